"""Candidates of library calls: the operands and the result of one way to compute a spec, and the function that runs it.

Between `call_specs` and `autotune_library_calls`. A candidate that is one torch operator is described as data (`call`).
One that consists of native functions has `steps`, which generated code can call without Python. `run` does the same
from Python.

    >>> candidate = candidates(spec)[0]
    >>> candidate.operands
    ('x', 'weight', 'bias')
    >>> candidate.run(x, weight, bias)

No candidate computes gradients.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...concurrency.first_value_cache import once
from ...foundation.torch_private import OpOverload
from ...tensors.tensor_types import TensorType, contiguous_stride, same_layout
from .call_specs import Spec
from .own_kernels.matmul_tiling_and_packing import NativeCall, Stream

Tensors = tuple[torch.Tensor, ...]

OUT, SCRATCH = "out", "scratch"


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor among a call's arguments. With a `shape`, a view of the same memory with other strides."""

    name: str
    shape: tuple[int, ...] | None = None
    stride: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One torch operator and its positional arguments: constants, and Operands for the tensors."""

    operator: OpOverload
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...] = ()
    """Keyword-only arguments, of the same two kinds."""
    out: OpOverload | None = None
    """The overload that writes into a tensor given as the keyword `out`, where it does so without a copy."""
    result: TensorType | None = None
    """The type that the operator returns, where the candidate's output is a view of it with another shape."""
    which: int | None = None
    """The index of the result, where the operator has several."""


@dataclass(frozen=True, slots=True, repr=False)
class Candidate:
    name: str
    spec: Spec
    operands: tuple[str, ...]
    """The arguments of `run`, in order: names of the spec's inputs and of the results of `prepare`."""
    run: Callable[..., torch.Tensor]
    output: TensorType
    prepare: Callable[..., Tensors] | None = None
    """Maps the weight (and the bias, where the spec has one) to the tensors named by `prepared`. Only for frozen specs;
    runs once. It returns None for each where the candidate is not correct for these numbers: then the graph runs in
    eager mode until the weight changes."""
    prepared: tuple[str, ...] = ()
    run_into: Callable[..., torch.Tensor] | None = None
    """`run_into(out, *operands)` writes the result into a tensor of the output's type and allocates nothing large."""
    call: OperatorCall | None = None
    """The same as data, where the candidate is one call."""
    steps: Callable[[], Sequence[NativeCall]] | None = None
    """The same as native functions. They are compiled on request, because most candidates are never run. Their spots
    are in the operands, `OUT` and `SCRATCH`."""
    scratch: int = 0
    """Size of the steps' workspace in bytes."""
    copies: tuple[str, ...] = ()
    """Operands that the steps read completely before they write the output, which may therefore share their memory."""
    further: tuple[tuple[str, TensorType], ...] = ()
    """Further results of the steps, by their name in the spots. `run` returns them after the output."""
    rows: tuple[str, ...] = ()
    """Operands that the caller must copy to contiguous memory: the library would copy them row by row, or read the
    gaps between their rows. A copy in the graph may be fused with the producer of the original, which then need not be
    in memory when the call runs."""
    sizes_in_table: bool = False
    """All sizes that its steps depend on are plain numbers of their tables: the functions are the same for all."""
    prepares: tuple[str, ...] = ("weight", "bias")
    """The arguments of `prepare`, among the spec's inputs, in order."""

    def takes(self, layouts: Sequence[TensorType]) -> str | None:
        """Why it cannot compute operands with these layouts, or None. Inputs must have the layouts of its spec, which
        are not checked at run time. Only the candidate itself knows the layout of what it prepared."""
        inputs = self.spec.inputs
        for name, type in zip(self.operands, layouts, strict=True):
            if name not in inputs or name in self.prepared:
                continue
            wanted = inputs[name]
            if name in self.rows:
                wanted = replace(wanted, stride=contiguous_stride(wanted.shape))
            if not same_layout(type, wanted):
                return f"the call {self.name} takes {name} as {wanted}, and is given {type}"
        return None

    def gives(self) -> tuple[TensorType, ...]:
        """The types of its results."""
        return self.output, *(type for _, type in self.further)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(self.operands)}) -> {self.output}"


def from_call(name: str, spec: Spec, call: OperatorCall, output: TensorType, **rest: Any) -> Candidate:
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
    make: Callable[[], Sequence[NativeCall]],
    *,
    scratch: int = 0,
    further: tuple[tuple[str, TensorType], ...] = (),
    **rest: Any,
) -> Candidate:
    """A candidate that is a sequence of native functions."""

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
    """The candidate's native functions, bound to these tensors. `made` has its output and its further results."""
    assert candidate.steps is not None
    room = torch.empty(candidate.scratch, dtype=torch.uint8, device=candidate.output.device)
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

    run.kept = spots, steps  # type: ignore[attr-defined]  # keeps them alive: the tables hold only addresses
    return run


def _positional(operator: Callable[..., Any], count: int, names: list[str]) -> Callable[..., Any]:
    """The operator as a function that takes its keyword-only arguments after the others."""
    if not names:
        return operator
    return lambda *values: operator(*values[:count], **dict(zip(names, values[count:], strict=True)))
