"""The overhead of a call: for a function of one operator, and for stacks of small modules.

    eager 2.1 µs, burnish +9.0 µs, torch.compile +12.4 µs

A BERT-base with narrow layers is measured too: it shows the cost of its 199 parameters without its arithmetic.

The operators are so small that compiling cannot speed them up. The rest is the time to find the compiled code and to
check that it is still valid, which grows with the number of modules and parameters to check. It is reported in two
ways. One is relative to eager's time, which includes some work for modules as well. The other is the time beyond that
of the compiled graph, which is timed within each call: the difference between two calls of a millisecond each would be
lost in their variation. `torch.compile` with a backend that runs graphs as they are shows the same for Dynamo.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import nn

from .clocks import SAMPLE_SECONDS
from .contestants import Contestant, TorchCompile, contestant_of
from .models import transformers
from .record import EAGER, Overhead
from .steady import frozen_objects, take_turns, warm_up

CONTESTANTS = (EAGER, "burnish", "burnish:backend=eager", "torch.compile:backend=eager")
STACKS = (1, 10, 50, 100, 200)
WIDE = (10, 50, 100, 200)
WIDTH = 8
FEWEST_RESTS, MOST_RESTS = 20, 20_000


class Graph:
    """Replaces the graph that a compiled function calls, and times it. Also a backend for torch.compile that runs
    graphs as they are."""

    def __init__(self, run: Callable | None = None):
        self.run, self.seconds = run, 0.0
        if hasattr(run, "__burnish_call_with_tuple__"):
            self.__burnish_call_with_tuple__ = self.called_on

    def __call__(self, *inputs: Any) -> Any:
        begun = perf_counter()
        result = self.run(*inputs)  # type: ignore[misc]
        self.seconds = perf_counter() - begun
        return result

    def called_on(self, inputs: tuple) -> Any:
        """Called in place of a graph that takes the tuple of its inputs, so that this path is used here as well."""
        begun = perf_counter()
        result = self.run.__burnish_call_with_tuple__(inputs)  # type: ignore[union-attr]
        self.seconds = perf_counter() - begun
        return result

    def backend(self, gm: torch.fx.GraphModule, example_inputs: list) -> Callable:
        self.run = gm.forward
        return self


class Scale(nn.Module):
    """The least that a module with a weight of its own can do."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return x * self.weight


class Wide(nn.Module):
    """Many parameters in one module."""

    def __init__(self, count: int):
        super().__init__()
        self.weights = nn.ParameterList(torch.ones(WIDTH) for _ in range(count))

    def forward(self, x):
        for weight in self.weights:
            x = x * weight
        return x


def one_operator(x):
    return torch.relu(x)


def narrow_bert() -> nn.Module:
    hf = transformers()
    return hf.BertModel(hf.BertConfig(hidden_size=24, intermediate_size=24, vocab_size=50))


def programs(
    stacks: Sequence[int] = STACKS, wide: Sequence[int] = WIDE, bert: bool = True
) -> Iterator[tuple[str, int, Callable]]:
    yield "one operator", 0, one_operator
    if bert:
        model = narrow_bert().eval()
        yield "BERT-base, narrow", len(list(model.modules())), model
    for count in stacks:
        yield f"{count} module{'s' * (count > 1)}", count, nn.Sequential(*(Scale() for _ in range(count))).eval()
    for count in wide:
        yield f"1 module, {count} parameters", 1, Wide(count).eval()


def measure(
    program: str, modules: int, fn: Callable, rounds: int, seconds: float, contestants: Sequence[str] = CONTESTANTS
) -> Overhead:
    args, kwargs = inputs_of(fn)
    found = Overhead(program, modules, 0.0)
    if isinstance(fn, nn.Module):
        found.parameters = len(list(fn.parameters()))
    calls: dict[str, Callable[[], Any]] = {}
    graphs: dict[str, Graph] = {}
    with torch.no_grad():
        for name in contestants:
            try:
                contestant = contestant_of(name)
                contestant.bring()
                compiled, graph = compile_for(contestant, fn, args, kwargs)
            except Exception as error:
                found.why[name] = f"{type(error).__name__}: {error}"
                continue
            calls[name] = lambda compiled=compiled: compiled(*args, **kwargs)
            if graph is not None:
                graphs[name] = graph
        blocks = take_turns(calls, rounds, seconds)
        for name, graph in graphs.items():
            found.beyond[name] = beyond(calls[name], graph, rounds * seconds)
    eager = blocks.pop(EAGER)
    found.eager = statistics.median(eager)
    for name, times in blocks.items():
        found.over[name] = median_difference(times, eager)
    return found


def beyond(call: Callable[[], Any], graph: Graph, seconds: float) -> float:
    """Seconds of a call beyond its graph, without the cost of reading the clock within it."""
    empty = Graph(lambda: None)
    return rest_of(call, graph, seconds) - rest_of(empty, empty, SAMPLE_SECONDS)


def rest_of(call: Callable[[], Any], graph: Graph, seconds: float) -> float:
    rests: list[float] = []
    with frozen_objects():
        end = perf_counter() + seconds
        while len(rests) < MOST_RESTS and (len(rests) < FEWEST_RESTS or perf_counter() < end):
            begun = perf_counter()
            call()
            rests.append(perf_counter() - begun - graph.seconds)
    return statistics.median(rests)


def median_difference(times: Sequence[float], others: Sequence[float]) -> float:
    return statistics.median(a - b for a, b in zip(times, others, strict=True))


def inputs_of(fn: Callable) -> tuple[tuple, dict[str, Any]]:
    if "input_ids" in getattr(fn, "dummy_inputs", ()):  # a model of transformers
        tokens = torch.arange(8).reshape(1, 8)
        return (), {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    return (torch.randn(WIDTH),), {}


def compile_for(
    contestant: Contestant, fn: Callable, args: tuple, kwargs: dict[str, Any]
) -> tuple[Callable, Graph | None]:
    """``fn`` compiled and warm, and its graph, which times itself."""
    if isinstance(contestant, TorchCompile) and contestant.backend == "eager":
        graph = Graph()
        compiled = torch.compile(fn, backend=graph.backend)
        warm_up(lambda: compiled(*args, **kwargs))
        return compiled, graph
    compiled = contestant.compile(fn, args, kwargs)
    warm_up(lambda: compiled(*args, **kwargs))
    return compiled, None if compiled is fn else graph_of(compiled, fn, args, kwargs)


def graph_of(compiled: Any, fn: Any, args: tuple, kwargs: dict[str, Any]) -> Graph | None:
    program = vars(compiled).get("__burnish_program__")
    if program is None:
        return None
    if program.function is not fn:
        args, kwargs = (fn, args, kwargs), {}
    for segment in program.entry.segments:
        if segment.check(program.bind(program.function, args, kwargs)) is not None:
            segment.graph = Graph(segment.graph)
            return segment.graph
    return None


def forget() -> None:
    """Reset both compilers: programs share code objects, so a call would also check the code compiled for the last."""
    import burnish

    burnish.reset()
    torch._dynamo.reset()
