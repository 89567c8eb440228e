"""What a call costs beyond the work: a function of one operator, and stacks of small modules.

    eager 2.1 µs, burnish +9.0 µs, torch.compile +12.4 µs

Beside them stands BERT-base as it is, but for narrow layers: what its 199 parameters cost, without its arithmetic.

The operators are so small that nothing can be won in them. What is left is finding the compiled code and making sure
that it still holds, which grows with the number of modules, and of their parameters, there are to look at. It is told
in two ways: over eager's time, which spends some on modules as well, and beyond the time of the compiled graph, which
is taken within each call: the difference of two calls that take a millisecond each would drown in what these vary by.
`torch.compile` with a backend that runs the graph as it stands shows the same of Dynamo.
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
    """Stands where a compiled function calls its graph, and says how long that took. Also a backend for torch.compile
    that runs a graph as it stands."""

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
        """Where the graph is called on the tuple of its inputs, as it is without this."""
        begun = perf_counter()
        result = self.run.__burnish_call_with_tuple__(inputs)  # type: ignore[union-attr]
        self.seconds = perf_counter() - begun
        return result

    def backend(self, gm: torch.fx.GraphModule, example_inputs: list) -> Callable:
        self.run = gm.forward
        return self


class Scale(nn.Module):
    """As little as a module can do with a weight of its own."""

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
    """What a call takes beyond its graph. Without what it costs to look at the clock within it."""
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
    """``fn`` compiled and warm, and its graph, which tells the time it takes."""
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
    """Programs share code objects. What was compiled for the last one would be looked through for the next."""
    import burnish

    burnish.reset()
    torch._dynamo.reset()
