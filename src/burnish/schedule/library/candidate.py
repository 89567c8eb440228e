"""A way to compute a spec: which tensors it takes, what it gives back, and the function that runs it.

Between `specs` and `choose`. A candidate that is one operator of torch, or one function of a library, says so as data
(`call`); one that is native functions of ours gives them (`steps`), so that whoever generates code can call them
without Python. `run` does the same from Python.

    >>> candidate = candidates(spec)[0]
    >>> candidate.operands
    ('x', 'weight', 'bias')
    >>> candidate.run(x, weight, bias)

All of them run without gradients.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...tensors.types import TensorType
from .own import Step
from .specs import Spec

Tensors = tuple[torch.Tensor, ...]

OUT, SCRATCH = "out", "scratch"


@dataclass(frozen=True, slots=True)
class Operand:
    """The place of a tensor among a call's arguments. With a `shape`, the same memory seen with other strides."""

    name: str
    shape: tuple[int, ...] | None = None
    stride: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """One torch operator and its positional arguments: constants, and Operands for the tensors."""

    operator: torch._ops.OpOverload
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...] = ()
    """Keyword-only arguments, of the same two kinds."""
    out: torch._ops.OpOverload | None = None
    """The overload that writes into a tensor given as the keyword `out`, where one does so without a copy."""
    result: TensorType | None = None
    """What the operator returns, where the candidate's output is that memory seen with another shape."""
    which: int | None = None
    """Which of several results is meant."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A C function of libtorch_cpu and its arguments, in order: numbers with their C type, and the addresses of
    tensors, of which "out" is where the result goes. It returns nothing and frees nothing."""

    symbol: str
    arguments: tuple[tuple[str, Any], ...]
    """("int", 64), ("float", 1.0) or ("address", name of an operand or "out")."""


@dataclass(frozen=True, slots=True, repr=False)
class Candidate:
    name: str
    spec: Spec
    operands: tuple[str, ...]
    """What `run` takes, in this order: names of the spec's inputs and of what `prepare` makes."""
    run: Callable[..., torch.Tensor]
    output: TensorType
    prepare: Callable[..., Tensors] | None = None
    """From the weight (and the bias, where the spec has one) to the tensors named by `prepared`. Only for frozen
    specs; done once. None for each where the candidate is not right for these numbers: then the graph runs eagerly
    until the weight changes."""
    prepared: tuple[str, ...] = ()
    run_into: Callable[..., torch.Tensor] | None = None
    """`run_into(out, *operands)` writes the result into a tensor of the output's type and allocates nothing large."""
    overwrites: str | None = None
    """The operand whose memory the result takes. Whoever runs the candidate must not need that operand again."""
    call: Call | Foreign | None = None
    """The same as data, where the candidate is one call."""
    steps: Callable[[], Sequence[Step]] | None = None
    """The same as native functions, which are compiled when they are asked for: most candidates are only looked at.
    Their spots are in the operands, `OUT` and `SCRATCH`."""
    scratch: int = 0
    """How many bytes of memory the steps need besides."""
    further: tuple[tuple[str, TensorType], ...] = ()
    """What the steps make beside the output, by the name that it has in their spots. `run` gives them after it."""
    prepares: tuple[str, ...] = ("weight", "bias")
    """What `prepare` is given, of the spec's inputs, in order."""

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(self.operands)}) -> {self.output}"


def from_call(name: str, spec: Spec, call: Call, output: TensorType, **rest: Any) -> Candidate:
    """A candidate that is one operator."""
    given = [*call.arguments, *(value for _, value in call.keywords)]
    operands = tuple(dict.fromkeys(a.name for a in given if isinstance(a, Operand)))
    places = [(i, operands.index(a.name), a) for i, a in enumerate(given) if isinstance(a, Operand)]
    operator = _positional(call.operator, len(call.arguments), [name for name, _ in call.keywords])
    which, inner = call.which, call.result

    def fill(tensors: Tensors) -> list[Any]:
        arguments = given.copy()
        for i, position, operand in places:
            tensor = tensors[position]
            arguments[i] = tensor if operand.shape is None else tensor.as_strided(operand.shape, operand.stride)
        return arguments

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        result = operator(*fill(tensors))
        if which is not None:
            result = result[which]
        return result if inner is None else result.as_strided(output.shape, output.stride)

    run_into = None
    if call.out is not None:
        writer = call.out

        def run_into(out: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
            writer(*fill(tensors), out=out if inner is None else out.as_strided(inner.shape, inner.stride))
            return out

    return Candidate(name, spec, operands, run, output, run_into=run_into, call=call, **rest)


def from_steps(name: str, spec: Spec, operands: tuple[str, ...], output: TensorType,
               make: Callable[[], Sequence[Step]], *, scratch: int = 0,
               further: tuple[tuple[str, TensorType], ...] = (), **rest: Any) -> Candidate:
    """A candidate that is native functions, one after the other."""
    steps = functools.cache(make)
    names = (OUT, SCRATCH, *(name for name, _ in further), *operands)

    @functools.cache
    def tables() -> list[tuple[Callable[[Any], None], Any, list[tuple[int, int, int]], list[tuple[int, int]]]]:
        """For each step its function, the type of its table, the tensors in it and what is always the same."""
        return [(step.kernel.launch, ctypes.c_void_p * len(step.table),
                 [(at, names.index(spot[0]), spot[1]) for at, spot in enumerate(step.table) if isinstance(spot, tuple)],
                 [(at, word if isinstance(word, int) else word.address) for at, word in enumerate(step.table)
                  if not isinstance(word, tuple)]) for step in steps()]

    def empty(type: TensorType) -> torch.Tensor:
        return torch.empty_strided(type.shape, type.stride, dtype=type.dtype, device="cpu")

    def run_all(out: torch.Tensor, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        room = torch.empty(scratch, dtype=torch.uint8, device="cpu") if scratch else out
        made = (out, *(empty(type) for _, type in further))
        addresses = [x.data_ptr() for x in (out, room, *made[1:], *tensors)]
        for launch, table_type, spots, fixed in tables():
            table = table_type()
            for at, which, behind in spots:
                table[at] = addresses[which] + behind
            for at, word in fixed:
                table[at] = word
            launch(table)
        return made

    def run_into(out: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        return run_all(out, *tensors)[0]

    def run(*tensors: torch.Tensor) -> Any:
        made = run_all(empty(output), *tensors)
        return made if further else made[0]

    return Candidate(name, spec, operands, run, output, run_into=run_into, steps=steps, scratch=scratch,
                     further=further, **rest)


def _positional(operator: Callable[..., Any], count: int, names: list[str]) -> Callable[..., Any]:
    """The operator as a function that takes its keyword-only arguments after the others."""
    if not names:
        return operator
    return lambda *values: operator(*values[:count], **dict(zip(names, values[count:], strict=True)))
