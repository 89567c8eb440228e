"""Comparing element-wise records with eager, call by call.

    checked(torch.ops.aten.add.Tensor, (x, y), {})        None, or what differs

A record's shape rule must give the type of eager's result, and its scalar rule, run by `evaluate`, eager's elements:
exactly for integers and bools; for floats as near to the float64 result as twice eager's own distance and one unit in
the last place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from burnish.ops import import_all_operators  # noqa: F401  (fills the records)
from burnish.ops.elementwise.elementwise_record import element, rounded
from burnish.ops.operator_record import RECORDS, NoRule, Op, Pointwise
from burnish.ops.scalar_ir import Access, Scalar, load
from burnish.tensors.dtypes import NAMES
from burnish.tensors.tensor_types import TensorType

from .scalar_ir_evaluator import evaluated

FAMILIES = (
    "activation_gradients activations arithmetic casts comparisons elementwise functions losses selection"
).split()


# Which zero is the larger differs between the vectorized and the plain part of one kernel of eager's, and its gelu is
# a library's.
ANY_ZERO = {
    f"aten.{name}"
    for name in (
        "maximum.default minimum.default fmax.default fmin.default clamp.Tensor clamp_min.Tensor clamp_max.Tensor "
        "gelu.default gelu_backward.default"
    ).split()
}


def records() -> dict[str, Op]:
    """The element-wise records: those with a scalar rule, and those that only know their type."""
    return {
        name: op
        for name, op in RECORDS.items()
        if name.startswith("aten.")
        and (isinstance(op.rule, Pointwise) or getattr(op.shape, "__module__", "").rpartition(".")[2] in FAMILIES)
    }


def overload_of(name: str) -> torch._ops.OpOverload:
    _, packet, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), overload)


class Watcher:
    """Sees every ATen call made while `watching`, and hands those of our records to `check`."""

    def __init__(self, check: Callable[[Any, tuple, dict, Any], None]):
        self.check, self.known = check, records()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if str(func) in self.known:
            self.check(func, args, kwargs or {}, result)
        return result


@contextlib.contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    torch._C._push_on_torch_dispatch_stack(watcher)
    try:
        yield
    finally:
        torch._C._pop_torch_dispatch_stack(None)


def refusal(func: Any, args: tuple, kwargs: dict, is_typed_only: bool = False) -> str | None:
    """Why the record does not cover these arguments, if it does not."""
    op = RECORDS[str(func)]
    try:
        found = op.shape(*typed(args), **typed(kwargs))
        if not is_typed_only and isinstance(op.rule, Pointwise) and not has_complex(args, kwargs):
            expression_of(op, args, kwargs, found)
    except NoRule as reason:
        return str(reason)
    return None


def difference(func: Any, args: tuple, kwargs: dict, eager: Any, is_typed_only: bool = False) -> str | None:
    """How the record, which covers these arguments, differs from eager."""
    op = RECORDS[str(func)]
    types, named_types = typed(args), typed(kwargs)
    found, expected = op.shape(*types, **named_types), typed(eager)
    if found != expected:
        return f"{op}: type {found}, eager {expected}, of {types} {named_types or ''}"
    if is_typed_only or not isinstance(op.rule, Pointwise) or has_complex(args, kwargs):
        return None
    expression, tensors = expression_of(op, args, kwargs, found)
    got = evaluated(expression, [tensor.expand(found.shape).reshape(-1) for tensor in tensors])
    where = difference_of_values(
        got, eager.reshape(-1), lambda: wide_references(func, args, kwargs), signed_zeros=op.name not in ANY_ZERO
    )
    return None if where is None else f"{op}: {where}, of {types} {named_types or ''}"


def checked(func: Any, args: tuple, kwargs: dict, is_typed_only: bool = False) -> str | None:
    """The difference on a call that need not be one that eager takes; None too where the record refuses it."""
    if refusal(func, args, kwargs, is_typed_only) is not None:
        return None
    try:
        eager = func(*args, **kwargs)
    except Exception as error:
        return f"{func}: eager raises {str(error)[:100]!r}, of {typed(args)} {typed(kwargs)}"
    return difference(func, args, kwargs, eager, is_typed_only)


def has_complex(args: tuple, kwargs: dict) -> bool:
    return any(
        isinstance(part, complex) or (isinstance(part, torch.Tensor) and part.is_complex())
        for part in (*args, *kwargs.values())
    )


def typed(tree: Any) -> Any:
    if isinstance(tree, torch.Tensor):
        return TensorType.of(tree)
    if isinstance(tree, dict):
        return {name: typed(part) for name, part in tree.items()}
    return type(tree)(typed(part) for part in tree) if isinstance(tree, (tuple, list)) else tree


def expression_of(op: Op, args: tuple, kwargs: dict, result: TensorType) -> tuple[Scalar, list[torch.Tensor]]:
    """The element of the result, and the tensors that its buffers stand for."""
    tensors: list[torch.Tensor] = []

    def loaded(tensor: torch.Tensor) -> Scalar:
        tensors.append(tensor)
        return load(NAMES[tensor.dtype], Access(len(tensors) - 1, 0, (1,)))

    return element(op, tree_map_only(torch.Tensor, loaded, args), kwargs, typed(args), result), tensors


def wide_references(func: Any, args: tuple, kwargs: dict) -> Iterator[torch.Tensor]:
    """The same call in float64, flat, with its numbers as they are and as float32 holds them.

    Which of the two eager's kernel means differs between its vectorized and its plain part. There is none where
    tensors of another dtype make another call.
    """

    def widened(part: Any) -> Any:
        return part.double() if isinstance(part, torch.Tensor) and part.is_floating_point() else part

    def held(part: Any) -> Any:
        return rounded(part, "f32") if isinstance(part, float) else widened(part)

    usual = torch.get_default_dtype()
    for change in (widened, held):
        try:
            torch.set_default_dtype(torch.float64)
            found = func(*map(change, args), **{name: change(part) for name, part in kwargs.items()})
        except RuntimeError:
            return
        finally:
            torch.set_default_dtype(usual)
        if isinstance(found, torch.Tensor) and found.dtype is torch.float64:
            yield found.reshape(-1)


def difference_of_values(
    got: torch.Tensor, eager: torch.Tensor, references: Callable[[], Iterable[torch.Tensor]], signed_zeros: bool = True
) -> str | None:
    if got.dtype is not eager.dtype:
        return f"elements of {got.dtype}, eager's of {eager.dtype}"
    wrong, first_exact = ~((got == eager) | ((got != got) & (eager != eager))), None
    if eager.is_floating_point() and wrong.any():
        for exact in references():
            wrong &= ~(is_near(got, eager, exact) | (got == exact.to(eager.dtype)))
            first_exact = exact if first_exact is None else first_exact
    if eager.is_floating_point() and signed_zeros:
        wrong |= (got == 0) & (eager == 0) & (got.signbit() != eager.signbit())
    if not wrong.any():
        return None
    at = int(wrong.nonzero()[0])
    exactly = "" if first_exact is None else f" (exactly {first_exact[at].item()!r})"
    return f"{int(wrong.sum())} of {wrong.numel()}: at {at} {got[at].item()!r}, eager {eager[at].item()!r}{exactly}"


def is_near(got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Where the error is at most twice eager's, there or in its worst place of this call, and one unit more.

    Of float64 eager itself is the reference: there only wrong constants and formulas are looked for.
    """
    one = unit(exact.to(eager.dtype))
    if eager.dtype is torch.float64:
        return (got - eager).abs() <= 4096 * one + 4 * unit(torch.ones(1, dtype=torch.float64)) * (eager.abs() < 1e-3)
    errors = ((eager.double() - exact).abs() / one).nan_to_num(posinf=0)
    return (got.double() - exact).abs() / one <= 2 * errors.max() + 1


def unit(x: torch.Tensor) -> torch.Tensor:
    """The distance to the next number, in float64."""
    info = torch.finfo(x.dtype)
    _, exponent = torch.frexp(x.double().abs().nan_to_num(posinf=info.max))
    return (torch.exp2(exponent.double() - 1) * info.eps).clamp(min=info.tiny * info.eps)
