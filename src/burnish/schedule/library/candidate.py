"""A way to compute a spec: which tensors it takes, what it gives back, and the function that runs it.

Between `specs` and `choose`. A candidate that is one operator of torch says so as data (`call`); one that is native
functions gives them (`steps`), so that whoever generates code can call them without Python. `run` does the same from
Python.

    >>> candidate = candidates(spec)[0]
    >>> candidate.operands
    ('x', 'weight', 'bias')
    >>> candidate.run(x, weight, bias)

All of them run without gradients.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...concurrency.compute_once import once
from ...tensors.tensor_types import TensorType, contiguous_stride, has_stride
from .call_specs import Spec
from .own_kernels.matmul_tiling_and_packing import Step, Stream

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
    call: Call | None = None
    """The same as data, where the candidate is one call."""
    steps: Callable[[], Sequence[Step]] | None = None
    """The same as native functions, which are compiled when they are asked for: most candidates are only looked at.
    Their spots are in the operands, `OUT` and `SCRATCH`."""
    scratch: int = 0
    """How many bytes of memory the steps need besides."""
    copies: tuple[str, ...] = ()
    """Operands that the steps are done with before they write anything but the scratch: the output may lie there."""
    further: tuple[tuple[str, TensorType], ...] = ()
    """What the steps make beside the output, by the name that it has in their spots. `run` gives them after it."""
    rows: tuple[str, ...] = ()
    """Operands that the library would copy, row after row, while it runs: whoever calls it had better do so. A copy in
    the graph may be made along with the original, and what was copied need not be there any more when it runs."""
    prepares: tuple[str, ...] = ("weight", "bias")
    """What `prepare` is given, of the spec's inputs, in order."""

    def takes(self, layouts: Sequence[TensorType]) -> str | None:
        """Why it does not compute operands that lie so; None where it does. It is offered for one spec, and what it
        reads without looking is as that says. What it prepared it alone knows."""
        inputs = self.spec.inputs
        for name, type in zip(self.operands, layouts, strict=True):
            if name not in inputs or name in self.prepared:
                continue
            wanted = inputs[name]
            if name in self.rows:
                wanted = replace(wanted, stride=contiguous_stride(wanted.shape))
            if not _is_laid(type, wanted):
                return f"the call {self.name} takes {name} as {wanted}, and is given {type}"
        return None

    def gives(self) -> tuple[TensorType, ...]:
        """The types of its results."""
        return self.output, *(type for _, type in self.further)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(self.operands)}) -> {self.output}"


def _is_laid(type: TensorType, wanted: TensorType) -> bool:
    return (type.shape, type.dtype, type.device) == (wanted.shape, wanted.dtype, wanted.device) and has_stride(
        type, wanted.stride
    )


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


def from_steps(
    name: str,
    spec: Spec,
    operands: tuple[str, ...],
    output: TensorType,
    make: Callable[[], Sequence[Step]],
    *,
    scratch: int = 0,
    further: tuple[tuple[str, TensorType], ...] = (),
    **rest: Any,
) -> Candidate:
    """A candidate that is native functions, one after the other."""

    def run_into(out: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        bound(candidate, (out, *map(empty, further_types)), tensors)()
        return out

    def run(*tensors: torch.Tensor) -> Any:
        made = (empty(output), *map(empty, further_types))
        bound(candidate, made, tensors)()
        return made if further else made[0]

    further_types = [type for _, type in further]
    candidate = Candidate(
        name, spec, operands, run, output, run_into=run_into, steps=once(make), scratch=scratch, further=further, **rest
    )
    return candidate


def empty(type: TensorType) -> torch.Tensor:
    return torch.empty_strided(type.shape, type.stride, dtype=type.dtype, device=type.device)


def bound(candidate: Candidate, made: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> Callable[[], None]:
    """The candidate's native functions, from these tensors into `made`: its output, and what it makes further."""
    assert candidate.steps is not None
    room = torch.empty(candidate.scratch, dtype=torch.uint8, device="cpu")
    names = (OUT, *(name for name, _ in candidate.further), SCRATCH, *candidate.operands)
    spots = dict(zip(names, (*made, room, *tensors), strict=True))
    steps, launches, checks = candidate.steps(), [], []
    for step in steps:
        words = [
            spots[word[0]].data_ptr() + word[1]
            if isinstance(word, tuple)
            else word
            if isinstance(word, int)
            else word.current()
            if isinstance(word, Stream)
            else word.address
            for word in step.table
        ]
        launches.append((step.kernel.launch, (ctypes.c_void_p * len(words))(*words)))
        checks += [word.check for word in step.table if isinstance(word, Stream)]

    def run() -> None:
        for launch, table in launches:
            launch(table)
        for check in checks:
            check()

    run.kept = spots, steps  # type: ignore[attr-defined]  # the tables hold addresses alone
    return run


def _positional(operator: Callable[..., Any], count: int, names: list[str]) -> Callable[..., Any]:
    """The operator as a function that takes its keyword-only arguments after the others."""
    if not names:
        return operator
    return lambda *values: operator(*values[:count], **dict(zip(names, values[count:], strict=True)))
