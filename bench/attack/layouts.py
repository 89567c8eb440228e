"""Operands in every layout, for every library candidate and every kernel of our own.

    python -m bench.attack.layouts --seed 1 --count 200
    python -m bench.attack.layouts --seed 1 --only 57        one program of it

A program is a producer (`memory.PRODUCERS`) for each operand that is computed, and a consumer behind them
(`consumers.CONSUMERS`). Inputs and parameters lie in layouts drawn at random. Where the chooser has several candidates,
one is drawn. Every candidate of a spec that is asked for on the way is also run by itself: into what it allocates, into
memory that is given, and its native functions. Errors are at most twice eager's against float64, and an ulp of the
largest element; strides and dtypes are eager's. The seed is printed, and how many programs ran compiled.
"""

from __future__ import annotations

import argparse
import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any
from unittest import mock

import torch
from torch import nn

import burnish
from burnish.schedule.library import choose_calls
from burnish.schedule.library.autotune_library_calls import Choice, candidates
from burnish.schedule.library.call_specs import Spec
from burnish.schedule.library.candidate import Candidate, bound
from burnish.settings import patch
from burnish.tensors.tensor_types import TensorType, has_stride

from ..operators import Watched
from . import trial
from .consumers import COMPUTED, CONSUMERS, Consumer
from .memory import PRODUCERS, laid_out

FLOOR = 8
"""Units of rounding of the largest element that an error may be where eager's is less."""


DOUBLE_TO_SINGLE = torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps

NEIGHBOURS = 3
"""Draws of how far off a result in float64 is because of roundings. What is left after cancellation is mostly that."""


class Wrong(Exception):
    pass


@dataclass
class Program:
    """A module with its inputs, which can be made again of the same numbers."""

    name: str
    net: nn.Module
    inputs: list[torch.Tensor]
    with_gradients: bool
    seed: int = 0

    def tangent_of(self, out: torch.Tensor) -> torch.Tensor:
        """The same numbers for each dtype, laid out as the result."""
        generator = torch.Generator().manual_seed(self.seed)
        made = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(torch.bfloat16)
        return torch.empty_like(out).copy_(made)


class Net(nn.Module):
    def __init__(
        self,
        consumer: Consumer,
        producers: list[tuple[str, list[int]]],
        computed: list[str],
        parameters: dict[str, torch.Tensor],
    ):
        super().__init__()
        self.consumer, self.producers, self.computed = consumer, producers, computed
        self.names = list(parameters)
        for name, tensor in parameters.items():
            self.register_parameter(name, nn.Parameter(tensor))

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        made = {
            name: PRODUCERS[producer](order, x)
            for name, (producer, order), x in zip(self.computed, self.producers, inputs, strict=True)
        }
        return self.consumer.run(**made, **{name: getattr(self, name) for name in self.names})


def drawn(draw: Random) -> Program:
    name = draw.choice(list(CONSUMERS))
    consumer = CONSUMERS[name]
    dtype, shapes = draw.choice(consumer.dtypes), consumer.shapes(draw)
    computed = [operand for operand in shapes if operand in COMPUTED]
    layouts, tensors = {}, {}
    for operand, shape in shapes.items():
        layouts[operand], tensors[operand] = laid_out(draw, shape, dtype)
    producers = [
        (draw.choice(list(PRODUCERS)), draw.sample(range(len(shapes[operand])), len(shapes[operand])))
        for operand in computed
    ]
    net = Net(consumer, producers, computed, {k: v for k, v in tensors.items() if k not in COMPUTED})
    with_gradients = draw.random() < 0.5
    net.requires_grad_(with_gradients)
    words = [f"{operand} {list(shape)} {layouts[operand]}" for operand, shape in shapes.items()]
    words += [
        f"{operand} through {producer} {order}" for operand, (producer, order) in zip(computed, producers, strict=True)
    ]
    title = f"{name}, {dtype}, {'gradients, ' if with_gradients else ''}{'; '.join(words)}"
    return Program(title, net, [tensors[operand] for operand in computed], with_gradients, draw.getrandbits(32))


def results(fn: Any, program: Program, dtype: torch.dtype | None = None) -> list[torch.Tensor]:
    """What comes out, and all gradients. With a dtype, everything in that."""
    inputs = [x.to(dtype) if dtype is not None else x for x in program.inputs]
    inputs = [x.detach().requires_grad_(program.with_gradients) for x in inputs]
    parameters = list(program.net.parameters())
    with torch.set_grad_enabled(program.with_gradients):
        out = fn(*inputs)
        if not program.with_gradients or not out.requires_grad:
            return [out]
        leaves = [x for x in (*inputs, *parameters) if x.requires_grad]
        found = torch.autograd.grad(out, leaves, program.tangent_of(out), allow_unused=True)
    return [out.detach(), *(x for x in found if x is not None)]


def results_in(dtype: torch.dtype, program: Program) -> list[torch.Tensor]:
    """Eager's, with inputs and parameters in another dtype."""
    before = [p.data for p in program.net.parameters()]
    for p in program.net.parameters():
        p.data = p.data.to(dtype)
    found = results(program.net, program, dtype)
    for p, data in zip(program.net.parameters(), before, strict=True):
        p.data = data
    return found


def results_of_neighbours(program: Program) -> list[torch.Tensor]:
    """Eager's, for inputs that differ by at most a rounding."""
    before = program.inputs
    program.inputs = [x * (1 + torch.finfo(x.dtype).eps * torch.randint_like(x, -1, 2)) for x in before]
    found = results(program.net, program)
    program.inputs = before
    return found


def why_wrong(
    found: torch.Tensor,
    eager: torch.Tensor,
    truth: torch.Tensor,
    single: torch.Tensor | None = None,
    neighbours: Sequence[torch.Tensor] = (),
) -> str | None:
    """`single` is eager's in float32, one draw of how far off it is in float64. There it is what is compared with, and
    not the truth: both may be off, and four times the largest draw is allowed. The others are `neighbours`."""
    if (found.dtype, found.shape, found.stride()) != (eager.dtype, eager.shape, eager.stride()):
        return f"{TensorType.of(eager)} expected, got {TensorType.of(found)}"
    if not eager.numel() or torch.equal(found, eager):
        return None
    truth, finite = truth.double(), truth.isfinite()
    if not torch.equal(found.isfinite(), eager.isfinite()):
        return "other elements are finite"
    largest = truth[finite].abs().max().item() if finite.any() else 0.0
    error, own = ((x.double() - truth)[finite].abs().max().item() if finite.any() else 0.0 for x in (found, eager))
    if single is not None and finite.any():
        own = (single.double() - truth)[finite].abs().max().item() * DOUBLE_TO_SINGLE
        own = 4 * max([own, *((x - truth)[finite].abs().max().item() for x in neighbours)])
    allowed = 2 * own + FLOOR * torch.finfo(eager.dtype).eps * max(largest, 1.0)
    return f"off by {error:.3g}, eager by {own:.3g}, {allowed:.3g} is allowed" if not error <= allowed else None


@contextlib.contextmanager
def forced(draw: Random, counts: Counter[str]) -> Iterator[set[Spec]]:
    """The chooser takes any candidate. Gives the specs that it was asked for."""
    asked: set[Spec] = set()

    def choose(spec: Spec, **_: Any) -> Choice:
        asked.add(spec)
        offered = candidates(spec)
        taken = draw.choice(offered)
        counts[taken.name] += 1
        times = {candidate.name: 1e-9 * 10 ** draw.uniform(0, 6) for candidate in offered}
        return Choice(taken, times[taken.name], times)

    with mock.patch.object(choose_calls, "choose", choose):
        yield asked


def run_program(program: Program, draw: Random, counts: Counter[str], ratios: list[tuple[float, str]]) -> str:
    """How it ran. Raises `Wrong`."""
    burnish.reset()
    eager = results(program.net, program)
    truth = results_in(torch.float64, program)
    is_double = eager[0].dtype is torch.float64
    singles = results_in(torch.float32, program) if is_double else [None] * len(eager)
    neighbours = zip(*(results_of_neighbours(program) for _ in range(NEIGHBOURS if is_double else 0)), strict=True)
    neighbours = list(neighbours) or [()] * len(eager)
    with patch(never_slower=False, on_error="raise", cache=False), forced(draw, counts) as asked, Watched() as watched:
        compiled = burnish.compile(program.net)
        for call in range(2):
            found = results(compiled, program)
            for number, parts in enumerate(zip(found, eager, truth, singles, neighbours, strict=True)):
                why = why_wrong(*parts)
                if why is not None:
                    raise Wrong(f"call {call}, result {number}: {why}")
                found: list[float] = []
                trial.why_wrong(parts[1], parts[0], parts[2], found)
                ratios += [(ratio, f"{program.name}, result {number}") for ratio in found]
    for spec in asked:
        run_candidates(spec, counts)
    return watched.way


# Candidates by themselves ---------------------------------------------------------------------------------------------


def run_candidates(spec: Spec, counts: Counter[str]) -> None:
    """All of a spec, on operands that lie as it says."""
    tensors = {name: filled(type) for name, type in spec.inputs.items()}
    offered = candidates(spec)
    with torch.no_grad():
        eager = run_of(offered[0], tensors)
        wide = {
            name: line_of(x).double().as_strided(x.shape, x.stride()) if x.is_floating_point() else x
            for name, x in tensors.items()
        }
        truth = run_of(offered[0], wide) if is_torch(offered[0]) else eager
        for candidate in offered:
            for way, made in ways_of(candidate, tensors):
                counts[f"{candidate.name} by itself"] += 1
                why = why_wrong(in_rows(made), in_rows(eager), truth)
                if why is None and not has_stride(candidate.output, made.stride()):
                    why = f"it says that it gives {candidate.output}, got {TensorType.of(made)}"
                if why is not None:
                    raise Wrong(f"{candidate.name} {way}: {why}; {spec}")


def in_rows(x: torch.Tensor) -> torch.Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def is_torch(candidate: Candidate) -> bool:
    """Whether it can be run in another dtype than its spec's."""
    return candidate.name not in ("mkldnn",) and candidate.prepare is None


def filled(type: TensorType) -> torch.Tensor:
    if type.dtype is torch.bool:
        return torch.empty_strided(type.shape, type.stride, dtype=type.dtype).fill_(True)
    x = torch.empty_strided(type.shape, type.stride, dtype=type.dtype)
    line_of(x).copy_(torch.randn(line_of(x).shape, dtype=torch.float64))
    return x


def line_of(x: torch.Tensor) -> torch.Tensor:
    """All memory of a tensor."""
    return x.as_strided((x.untyped_storage().nbytes() // x.itemsize,), (1,), 0)


def operands_of(candidate: Candidate, tensors: dict[str, torch.Tensor]) -> list[torch.Tensor] | None:
    given = dict(tensors)
    if candidate.prepare is not None:
        prepared = candidate.prepare(*(tensors[name] for name in candidate.prepares if name in tensors))
        if None in prepared:
            return None
        given.update(zip(candidate.prepared, prepared, strict=True))
    return [given[name] for name in candidate.operands]


def run_of(candidate: Candidate, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    operands = operands_of(candidate, tensors)
    assert operands is not None
    made = candidate.run(*operands)
    return made[0] if isinstance(made, (tuple, list)) else made


def ways_of(candidate: Candidate, tensors: dict[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    operands = operands_of(candidate, tensors)
    if operands is None:
        return
    made = candidate.run(*operands)
    yield "run", made[0] if isinstance(made, (tuple, list)) else made
    type = candidate.output
    if candidate.run_into is not None:
        out = torch.empty_strided(type.shape, type.stride, dtype=type.dtype).fill_(float("nan"))
        yield "run into", candidate.run_into(out, *operands)
    if candidate.steps is not None:
        made = [torch.empty_strided(t.shape, t.stride, dtype=t.dtype).fill_(float("nan")) for t in candidate.gives()]
        bound(candidate, made, operands)()
        yield "natively", made[0]


def run(seed: int, count: int, only: int | None = None, say: Any = print) -> list[str]:
    """What is wrong. A program's numbers depend on the seed and its own number alone."""
    ways: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    wrong, ratios = [], []
    for number in range(count) if only is None else [only]:
        draw = Random(f"{seed} {number}")
        torch.manual_seed(draw.getrandbits(32))
        program = drawn(draw)
        try:
            ways[run_program(program, draw, counts, ratios)] += 1
        except Exception as error:
            wrong.append(f"{number}: {program.name}\n    {type(error).__name__}: {error}")
            say(wrong[-1])
    for line in trial.distribution(ratios):
        say(line)
    compiled = ways["native"] + ways["library"]
    say(
        f"seed {seed}: {sum(ways.values()) + len(wrong)} programs, {compiled} ran compiled, {len(wrong)} wrong; "
        f"{dict(ways)}"
    )
    say(", ".join(f"{name} {times}" for name, times in sorted(counts.items())))
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=Random().randrange(1 << 30))
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--only", type=int, help="the number of one program")
    options = parser.parse_args()
    torch.set_num_threads(1)
    raise SystemExit(bool(run(options.seed, options.count, options.only)))


if __name__ == "__main__":
    main()
