"""Concatenation, padding, rolling and slice scatter: shape rules, and the parts that results consist of.

    cat([f32[2, 3], f32[4, 3]])                        f32[6, 3]
    constant_pad_nd(f32[4], [1, 1])                    f32[6]

Results that consist of parts have a second rule, for loops (`concat_lowering`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...tensors.dtypes import NAMES, has_loops
from ...tensors.tensor_types import TensorType
from ...tensors.type_promotion import common_dtype
from ...tensors.views.view_maps import Map, Reshape, Slice
from ..memory_format import CONTIGUOUS, copied, formatted, suggested
from ..operator_record import NoRule, call_shape, fresh, shape, wrapped_dim
from ..scalar_ir import Scalar, const, select
from .concat_lowering import OperandPart, Part, along, bordered, boxed, concat_rule, replaced_in
from .element_from_index_rules import ElementPosition, index_function

# -- writing into a box ------------------------------------------------------------------------------------------------


@concat_rule("aten.slice_scatter.default")
def slice_scatter_parts(
    x: Any, src: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Part:
    dim = wrapped_dim(dim, x.ndim)
    first, size = sliced(x.shape[dim], start, end, step)
    if src.shape != (*x.shape[:dim], size, *x.shape[dim + 1 :]) or not size:
        raise NoRule("nothing, or another shape, is written")
    return replaced_in(x, OperandPart(src), whole(x.shape, dim, first, size))


@concat_rule("aten.select_scatter.default")
def select_scatter_parts(x: Any, src: Any, dim: int, index: int) -> Part:
    dim = wrapped_dim(dim, x.ndim)
    one = (*x.shape[:dim], 1, *x.shape[dim + 1 :])
    if src.ndim != x.ndim - 1 or not -x.shape[dim] <= index < x.shape[dim]:
        raise NoRule("another shape is written")
    return replaced_in(x, OperandPart(src, (Reshape(one),)), whole(x.shape, dim, index % x.shape[dim], 1))


@concat_rule("put")
def put_parts(x: Any, value: Any, maps: Sequence[Map]) -> Part:
    """Covers maps whose view is a box of x."""
    region = [(0, n) for n in x.shape]
    shown = tuple(x.shape)
    for step in maps:
        if isinstance(step, Slice) and step.step == 1 and len(shown) == x.ndim:
            region[step.dim] = (region[step.dim][0] + step.start, step.size)
        elif not isinstance(step, Reshape) or without_ones(step.shape) != without_ones(shown):
            raise NoRule("the written region is not a box")
        shown = step.result_shape(shown)
    box = tuple(size for _, size in region)
    if without_ones(box) != without_ones(shown):
        raise NoRule("the written region is not a box")
    return replaced_in(x, OperandPart(value, (Reshape(box),)), region)


def without_ones(sizes: Sequence[int]) -> list[int]:
    return [n for n in sizes if n != 1]


def sliced(size: int, start: int | None, end: int | None, step: int) -> tuple[int, int]:
    """The start and length of a slice with step 1."""
    if step != 1:
        raise NoRule("a slice in steps")
    first, last, _ = slice(start, end).indices(size)
    return first, max(last - first, 0)


def whole(shape: Sequence[int], dim: int, start: int, size: int) -> list[tuple[int, int]]:
    """The box that is restricted only along `dim`."""
    return [(start, size) if k == dim else (0, n) for k, n in enumerate(shape)]


@concat_rule("aten.slice_backward.default")
def slice_backward_parts(grad: Any, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Part:
    dim = wrapped_dim(dim, len(input_sizes))
    first, size = sliced(input_sizes[dim], start, end, step)
    return along(dim, [(first, 0), (size, OperandPart(grad)), (input_sizes[dim] - first - size, 0)])


@concat_rule("aten.select_backward.default")
def select_backward_parts(grad: Any, input_sizes: Sequence[int], dim: int, index: int) -> Part:
    dim = wrapped_dim(dim, len(input_sizes))
    at = index % input_sizes[dim]
    one = (*input_sizes[:dim], 1, *input_sizes[dim + 1 :])
    return along(dim, [(at, 0), (1, OperandPart(grad, (Reshape(one),))), (input_sizes[dim] - at - 1, 0)])


@shape(
    "aten.slice_backward.default",
    "aten.select_backward.default",
    "aten.diagonal_backward.default",
    "aten.unfold_backward.default",
)
def view_backward(grad_output: TensorType, input_sizes: Sequence[int], *_: object) -> TensorType:
    return fresh(grad_output, input_sizes)


# -- concatenation and padding -----------------------------------------------------------------------------------------


@shape("aten.cat.default")
def cat(tensors: Sequence[TensorType], dim: int = 0) -> TensorType:
    """Tensors of shape [0] are ignored whatever the rank of the others, for torch's backward compatibility."""
    parts = [x for x in tensors if x.shape != (0,)]
    dtype = common_dtype(tensors)
    if not parts:
        return fresh(tensors[0], (0,), dtype)
    first = parts[0]
    dim = wrapped_dim(dim, first.ndim)
    if any(
        x.ndim != first.ndim or x.shape[:dim] != first.shape[:dim] or x.shape[dim + 1 :] != first.shape[dim + 1 :]
        for x in parts
    ):
        raise NoRule(f"cat of {tensors} along {dim}")
    sizes = (*first.shape[:dim], sum(x.shape[dim] for x in parts), *first.shape[dim + 1 :])
    formats = {suggested(x) for x in tensors}
    return formatted(first, sizes, formats.pop() if len(formats) == 1 else CONTIGUOUS, dtype)


@concat_rule("aten.cat.default")
def cat_parts(tensors: Sequence[Any], dim: int = 0) -> Part:
    some = [x for x in tensors if x.shape != (0,)]
    if not some:
        raise NoRule("nothing is joined")
    dim = wrapped_dim(dim, some[0].ndim)
    return along(dim, [(x.shape[dim], OperandPart(x)) for x in some])


@concat_rule("aten.stack.default")
def stack_parts(tensors: Sequence[Any], dim: int = 0) -> Part:
    dim = wrapped_dim(dim, tensors[0].ndim + 1)
    return along(dim, [(1, OperandPart(x, (Reshape((*x.shape[:dim], 1, *x.shape[dim:])),))) for x in tensors])


@shape("aten.block_diag.default")
def block_diag(tensors: Sequence[TensorType]) -> TensorType:
    sizes = [(*(1,) * (2 - x.ndim), *x.shape) for x in tensors]
    return fresh(
        tensors[0],
        (sum(rows for rows, _ in sizes), sum(columns for _, columns in sizes)),
        common_dtype([fresh(x, (1,)) for x in tensors]),
    )


@shape("aten.stack.default")
def stack(tensors: Sequence[TensorType], dim: int = 0) -> TensorType:
    first = tensors[0]
    dim = wrapped_dim(dim, first.ndim + 1)
    if any(x.shape != first.shape for x in tensors):
        raise NoRule(f"stack of {tensors}")
    if first.ndim in (4, 5) and not all(x.is_contiguous for x in tensors):
        raise NoRule("of tensors that are channels last eager stacks some so too")
    return fresh(first, (*first.shape[:dim], len(tensors), *first.shape[dim:]), common_dtype(tensors))


@shape("aten.constant_pad_nd.default")
def constant_pad_nd(x: TensorType, pad: Sequence[int], value: object = 0) -> TensorType:
    sizes = list(x.shape)
    for k in range(len(pad) // 2):
        sizes[-1 - k] += pad[2 * k] + pad[2 * k + 1]
    if min(sizes, default=0) < 0:
        raise NoRule(f"padding {list(pad)} of {x}")
    if all(n <= 0 for n in pad):
        return copied(x.__class__(tuple(sizes), x.stride, x.dtype, x.device))
    return formatted(x, sizes, suggested(x))


@concat_rule("aten.constant_pad_nd.default")
def constant_pad_parts(x: Any, pad: Sequence[int], value: bool | int | float = 0) -> Part:
    if not has_loops(x.dtype) or not x.dtype.is_floating_point and const(value, NAMES[x.dtype]).payload != value:
        raise NoRule(f"a border of {value}")
    lengths = [(0, 0)] * x.ndim
    for k in range(len(pad) // 2):
        lengths[-1 - k] = (pad[2 * k], pad[2 * k + 1])
    return bordered(x, lengths, value)


@concat_rule("aten.reflection_pad1d.default", "aten.reflection_pad2d.default", "aten.reflection_pad3d.default")
def reflection_pad_parts(x: Any, padding: Sequence[int]) -> Part:
    return edges(
        x, padding, lambda dim, n: Slice(dim, n, -1, n), lambda dim, n: Slice(dim, x.shape[dim] - 2, -1, n), reach=1
    )


@concat_rule("aten.replication_pad1d.default", "aten.replication_pad2d.default", "aten.replication_pad3d.default")
def replication_pad_parts(x: Any, padding: Sequence[int]) -> Part:
    return edges(x, padding, lambda dim, n: Slice(dim, 0, 0, n), lambda dim, n: Slice(dim, x.shape[dim] - 1, 0, n))


def edges(x: Any, padding: Sequence[int], before: Any, behind: Any, reach: int = 0) -> Part:
    """A tensor padded from its own elements. The two functions return the map for the padding on each side."""
    sides: list[tuple[int, list[tuple[int, Map | None]]]] = []
    for k in range(len(padding) // 2):
        dim, (left, right) = x.ndim - 1 - k, padding[2 * k : 2 * k + 2]
        if min(left, right) < 0 or reach and max(left, right) >= x.shape[dim]:
            raise NoRule(f"padding {list(padding)} of {list(x.shape)}")
        sides.append((dim, [(left, before(dim, left)), (x.shape[dim], None), (right, behind(dim, right))]))
    return boxed(x, sides)


@shape("aten.reflection_pad1d.default", "aten.reflection_pad2d.default", "aten.reflection_pad3d.default")
def reflection_pad(x: TensorType, padding: Sequence[int]) -> TensorType:
    if any(n >= x.shape[-1 - k // 2] for k, n in enumerate(padding)):
        raise NoRule(f"reflecting {list(padding)} elements of {list(x.shape)}")
    return edge_pad(x, padding)


@shape("aten.replication_pad1d.default", "aten.replication_pad2d.default", "aten.replication_pad3d.default")
def edge_pad(x: TensorType, padding: Sequence[int]) -> TensorType:
    sizes = list(x.shape)
    for k in range(len(padding) // 2):
        sizes[-1 - k] += padding[2 * k] + padding[2 * k + 1]
    return formatted(x, sizes, suggested(x) if x.ndim == 4 else CONTIGUOUS)


call_shape(
    "aten.reflection_pad1d_backward.default",
    "aten.reflection_pad2d_backward.default",
    "aten.reflection_pad3d_backward.default",
    "aten.replication_pad1d_backward.default",
    "aten.replication_pad2d_backward.default",
    "aten.replication_pad3d_backward.default",
)(lambda a: formatted(a.self, a.self.shape, suggested(a.self) if a.self.ndim == 4 else CONTIGUOUS))


@shape("aten.diag_embed.default")
def diag_embed(x: TensorType, offset: int = 0, dim1: int = -2, dim2: int = -1) -> TensorType:
    sizes = list(x.shape[:-1])
    for dim in sorted(wrapped_dim(d, x.ndim + 1) for d in (dim1, dim2)):
        sizes.insert(dim, x.shape[-1] + abs(offset))
    return fresh(x, sizes)


# -- rearranging -------------------------------------------------------------------------------------------------------


call_shape("aten.tril.default", "aten.triu.default")(lambda a: fresh(a.self, a.self.shape))


@index_function("aten.tril.default", reads=True)
def tril_at(at: ElementPosition, x: Scalar, diagonal: int = 0) -> Scalar:
    return select(at.index[-1] - at.index[-2] <= diagonal, x, const(0, at.dtype))


@index_function("aten.triu.default", reads=True)
def triu_at(at: ElementPosition, x: Scalar, diagonal: int = 0) -> Scalar:
    return select(at.index[-1] - at.index[-2] < diagonal, const(0, at.dtype), x)


@shape("aten.roll.default")
def roll(x: TensorType, shifts: Sequence[int], dims: Sequence[int] = ()) -> TensorType:
    """Without dimensions the elements are rolled in row-major order. Otherwise eager concatenates two parts along each
    dimension, as `cat` does; one may be empty."""
    if not dims:
        return fresh(x, x.shape)
    if not x.numel:
        return copied(x)
    for shift, dim in zip(shifts, dims, strict=True):
        dim = wrapped_dim(dim, x.ndim)
        first = -shift % x.shape[dim]
        parts = [replace(x, shape=(*x.shape[:dim], n, *x.shape[dim + 1 :])) for n in (x.shape[dim] - first, first)]
        formats = {suggested(part) for part in parts}
        x = formatted(x, x.shape, formats.pop() if len(formats) == 1 else CONTIGUOUS)
    return x


@concat_rule("aten.roll.default", is_slow=True)
def roll_parts(x: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Part:
    over = [wrapped_dim(dim, x.ndim) for dim in dims]
    if not over or len(over) != len(shifts) or len(set(over)) != len(over):
        raise NoRule("rolled as one row, or a dimension twice")
    sides: list[tuple[int, list[tuple[int, Map | None]]]] = []
    for dim, shift in zip(over, shifts, strict=True):
        n = x.shape[dim]
        if shift % n:
            shift %= n
            sides.append((dim, [(shift, Slice(dim, n - shift, 1, shift)), (n - shift, Slice(dim, 0, 1, n - shift))]))
    return boxed(x, sides)
