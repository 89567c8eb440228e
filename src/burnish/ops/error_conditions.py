"""Data-dependent errors of operators: the conditions under which each operator does not raise.

    index_select(x, 0, index)          InRange(index, 0, 5)           x has 5 rows
    floor_divide(x, y)                 NotZero(y)                     of integers
    linalg_cholesky_ex …               UNKNOWN                        only factoring detects it

A record's check takes the operator's arguments. It returns the conditions under which the operator does not raise:
empty if it never does, `UNKNOWN` if only the operator itself can decide. Errors about shapes and types are raised in
the trace and need no check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..foundation.torch_private import dispatch_get_all_op_names
from ..tensors.tensor_types import NumberType
from .indexing.index_shape_rules import SCATTERS
from .operator_record import registers, wrapped_dim


@dataclass(frozen=True, slots=True)
class InRange:
    """Each element of `index` is at least `low` and less than `size`, or is `ignored`."""

    index: Any
    low: int
    size: int
    ignored: int | None = None


@dataclass(frozen=True, slots=True)
class NotZero:
    divisor: Any


@dataclass(frozen=True, slots=True)
class Probability:
    """Each element is at least 0 and at most 1."""

    value: Any


Condition = InRange | NotZero | Probability
Conditions = tuple[Condition, ...] | None
UNKNOWN: Conditions = None


def check(*names: str) -> Callable[[Callable], Callable]:
    """Register the conditions of operators."""
    return registers(names, "check")


# -- errors from an index ----------------------------------------------------------------------------------------------


@check("aten.index_select.default", "aten.gather.default", *SCATTERS)
def along_a_dimension(x: Any, dim: int, index: Any, *_: object, **__: object) -> Conditions:
    return (InRange(index, 0, x.shape[wrapped_dim(dim, x.ndim)] if x.ndim else 1),)


@check("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def index_fill(x: Any, dim: int, index: Any, *_: object, **__: object) -> Conditions:
    size = x.shape[wrapped_dim(dim, x.ndim)] if x.ndim else 1
    return (InRange(index, -size, size),)


@check("aten.index.Tensor", "aten.index_put.default")
def by_several_indices(x: Any, indices: Sequence[Any], *_: object, **__: object) -> Conditions:
    given = [(size, index) for size, index in zip(x.shape, indices, strict=False) if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for _, index in given):
        return UNKNOWN
    return tuple(InRange(index, -size, size) for size, index in given)


@check("aten.take.default", "aten.put.default")
def by_place(x: Any, index: Any, *_: object, **__: object) -> Conditions:
    return (InRange(index, -x.type.numel, x.type.numel),)


@check("aten.embedding.default")
def embedding(weight: Any, indices: Any, *_: object) -> Conditions:
    return (InRange(indices, 0, weight.shape[0]),)


@check("aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default")
def nll_loss(x: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Conditions:
    return (InRange(target, 0, x.shape[1 if x.ndim > 1 else 0], ignore_index),)


# -- errors from a divisor ---------------------------------------------------------------------------------------------


@check(
    "aten.floor_divide.default",
    "aten.floor_divide.Scalar",
    "aten.remainder.Tensor",
    "aten.remainder.Scalar",
    "aten.remainder.Scalar_Tensor",
    "aten.fmod.Tensor",
    "aten.fmod.Scalar",
)
def whole_division(x: Any, y: Any) -> Conditions:
    if not (is_whole(x) and is_whole(y)):
        return ()
    if isinstance(y, int):
        return () if y else UNKNOWN
    return UNKNOWN if is_number(y) else (NotZero(y),)


@check("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def division(x: Any, y: Any, rounding_mode: str | None = None) -> Conditions:
    return () if rounding_mode is None else whole_division(x, y)


def is_number(x: Any) -> bool:
    return isinstance(x.type, NumberType)


def is_whole(x: Any) -> bool:
    if isinstance(x, (bool, int, float, complex)):
        return isinstance(x, int)
    return not (x.dtype.is_floating_point or x.dtype.is_complex)


# -- errors from a probability -----------------------------------------------------------------------------------------


@check("aten.bernoulli.default", "aten.bernoulli.Tensor")
def bernoulli(x: Any, p: Any = None, *, generator: object = None) -> Conditions:
    return (Probability(x if p is None else p),)


# -- errors of Python's arithmetic -------------------------------------------------------------------------------------

NEVER_RAISING = frozenset(
    "operator.add operator.sub operator.mul operator.neg operator.pos operator.abs operator.and_ operator.or_ "
    "operator.xor operator.invert builtins.abs builtins.min builtins.max builtins.float math.fabs math.atan "
    "math.atan2 math.tanh".split()
)
DIVISIONS = ("operator.truediv", "operator.floordiv", "operator.mod")
TO_INTEGERS = ("builtins.int", "builtins.round", "math.floor", "math.ceil", "math.trunc")
"""They raise for infinities and NaN."""


@check("number")
def arithmetic(name: str, *operands: Any) -> Conditions:
    """`1 / n` raises for 0, `math.sqrt(n)` for a negative number, `n**2.0` where the result is too large."""
    if name in NEVER_RAISING or name in DIVISIONS and isinstance(operands[1], (int, float)) and operands[1]:
        return ()
    return () if name in TO_INTEGERS and all(map(is_whole_number, operands)) else UNKNOWN


def is_whole_number(x: Any) -> bool:
    return isinstance(x, int) or not isinstance(x, float) and x.dtype is torch.int64


# -- conditions that only the operator can check -----------------------------------------------------------------------

UNKNOWN_CONDITIONS = frozenset(
    """
    _index_put_impl masked_scatter _embedding_bag _embedding_bag_forward_only embedding_renorm multi_margin_loss
    multilabel_margin_loss_forward max_unpool2d max_unpool3d bincount repeat_interleave histc histogram
    _histogramdd_bin_edges _histogramdd_from_bin_cts _histogramdd_from_bin_tensors multinomial normal poisson binomial
    _sample_dirichlet binary_cross_entropy _ctc_loss segment_reduce _pack_padded_sequence lu_unpack cholesky
    cholesky_inverse geqrf fake_quantize_per_channel_affine_cachemask _fake_quantize_learnable_per_channel_affine
    _functional_assert_async _functional_assert_scalar
    linalg_pinv linalg_matrix_sqrth linalg_polar _linalg_eigh linalg_eig linalg_eigvals _linalg_eigvals _linalg_svd
    linalg_lstsq
""".split()
)
WITH_CHECK_ERRORS = frozenset(
    "linalg_inv_ex linalg_cholesky_ex linalg_lu_factor_ex linalg_ldl_factor_ex _linalg_solve_ex".split()
)
"""They raise only with `check_errors`. Without it, a separate operator checks their result."""


def overloads(packets: frozenset[str]) -> list[str]:
    """The names of all overloads of operators, without creating overload objects."""
    names = [name.removeprefix("aten::") for name in dispatch_get_all_op_names() if name.startswith("aten::")]
    return [f"aten.{name if '.' in name else f'{name}.default'}" for name in names if name.partition(".")[0] in packets]


@check("ctc_loss", *overloads(UNKNOWN_CONDITIONS))
def unknown_conditions(*_: object, **__: object) -> Conditions:
    return UNKNOWN


@check(*overloads(WITH_CHECK_ERRORS))
def with_check_errors(*args: object, check_errors: bool = False, **__: object) -> Conditions:
    return UNKNOWN if check_errors or args[-1] is True else ()
