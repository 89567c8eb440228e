"""A way to compute a spec: which tensors it takes, what it gives back, and the function that runs it.

Between `specs` and `choose`. Most candidates are one torch operator, given as data (`Call`), so that whoever generates
code can call the operator itself; `run` does the same from Python.

    >>> candidate = candidates(spec)[0]
    >>> candidate.operands
    ('x', 'weight', 'bias')
    >>> candidate.run(x, weight, bias)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ...tensors.types import TensorType
from .specs import Spec

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """The place of a tensor among a call's arguments. With a `shape`, the same memory seen with other strides."""

    name: str
    shape: tuple[int, ...] | None = None
    stride: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """One torch operator and its positional arguments: constants, and Operands for the tensors.

    `out` is the overload that writes into a tensor given as the keyword `out`, where there is one that does so
    without a copy. `result` says how the operator's result is to be seen, where that differs from the candidate's
    output type: the strides alone differ, never the memory.
    """

    operator: torch._ops.OpOverload
    arguments: tuple[Any, ...]
    out: torch._ops.OpOverload | None = None
    result: TensorType | None = None


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
    specs; done once."""
    prepared: tuple[str, ...] = ()
    run_into: Callable[..., torch.Tensor] | None = None
    """`run_into(out, *operands)` writes the result into a tensor of the output's type and allocates nothing large."""
    overwrites: str | None = None
    """The operand whose memory the result takes. Whoever runs the candidate must not need that operand again."""
    call: Call | None = None
    """The same as data, where the candidate is one operator."""

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(self.operands)}) -> {self.output}"


def from_call(name: str, spec: Spec, call: Call, output: TensorType, **rest: Any) -> Candidate:
    """A candidate that is one operator."""
    operands = tuple(dict.fromkeys(a.name for a in call.arguments if isinstance(a, Operand)))
    places = [(i, operands.index(a.name), a) for i, a in enumerate(call.arguments) if isinstance(a, Operand)]
    template, operator = list(call.arguments), call.operator
    shape, stride = (call.result.shape, call.result.stride) if call.result is not None else ((), ())

    def fill(tensors: Tensors) -> list[Any]:
        arguments = template.copy()
        for i, which, operand in places:
            tensor = tensors[which]
            arguments[i] = tensor if operand.shape is None else tensor.as_strided(operand.shape, operand.stride)
        return arguments

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        result = operator(*fill(tensors))
        return result if not shape else result.as_strided(output.shape, output.stride)

    run_into = None
    if call.out is not None:
        writer = call.out

        def run_into(out: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
            writer(*fill(tensors), out=out if not shape else out.as_strided(shape, stride))
            return out

    return Candidate(name, spec, operands, run, output, run_into=run_into, call=call, **rest)
