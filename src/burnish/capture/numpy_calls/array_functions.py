"""NumPy's functions that move, combine, select and multiply arrays, as torch calls.

The caller compares what a call made with what NumPy makes of the same arguments: dtype, size, strides, shared memory.
So a function here may return a view where NumPy copies, and it need not refuse what torch refuses.
``NotImplemented`` stands for arguments that torch takes in another way.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .ufuncs import torch_dtype


def reshape(a: Tensor, shape: Any, order: str = "C") -> Any:
    return torch.reshape(a, sizes_of(shape)) if order == "C" else NotImplemented


def sizes_of(shape: Any) -> tuple:
    return tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)


def reshape_to(a: Tensor, *shape: Any, order: str = "C") -> Any:
    """The method: sizes may be one tuple, or arguments of their own."""
    return reshape(a, shape[0] if len(shape) == 1 else shape, order)


def transpose_to(a: Tensor, *axes: Any) -> Tensor:
    return transpose(a, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None)


def copy_flat(a: Tensor, order: str = "C") -> Any:
    return ravel(a, order)


def transpose(a: Tensor, axes: Any = None) -> Tensor:
    return torch.permute(a, tuple(reversed(range(a.ndim))) if axes is None else tuple(axes))


def ravel(a: Tensor, order: str = "C") -> Any:
    return torch.reshape(a, (-1,)) if order == "C" else NotImplemented


def squeeze(a: Tensor, axis: Any = None) -> Tensor:
    return torch.squeeze(a) if axis is None else torch.squeeze(a, axis)


def expand_dims(a: Tensor, axis: Any) -> Any:
    return NotImplemented if isinstance(axis, (tuple, list)) else torch.unsqueeze(a, axis)


def swapaxes(a: Tensor, axis1: int, axis2: int) -> Tensor:
    return torch.transpose(a, axis1, axis2)


def moveaxis(a: Tensor, source: Any, destination: Any) -> Tensor:
    return torch.movedim(a, source, destination)


def copy(a: Tensor, order: str = "K") -> Any:
    return torch.clone(a)


def array(a: Any, dtype: Any = None, *, copy: Any = True, ndmin: int = 0) -> Any:
    if ndmin or copy is not True:
        return NotImplemented
    if not isinstance(a, Tensor):
        parts = joined(a, dtype)
        return NotImplemented if parts is None else torch.stack(parts)
    return torch.clone(a) if dtype is None else a.to(torch_dtype(dtype), copy=True)


def asarray(a: Any, dtype: Any = None) -> Any:
    if not isinstance(a, Tensor):
        return NotImplemented
    return a.detach() if dtype is None else a.to(torch_dtype(dtype))


def ascontiguousarray(a: Any, dtype: Any = None) -> Any:
    made = asarray(a, dtype)
    return made if made is NotImplemented else made.contiguous()


def astype(a: Tensor, dtype: Any, *, copy: bool = True) -> Any:
    return a.to(torch_dtype(dtype), copy=copy)


def atleast_1d(a: Tensor) -> Tensor:
    return torch.atleast_1d(a)


def atleast_2d(a: Tensor) -> Tensor:
    return torch.atleast_2d(a)


def joined(arrays: Any, dtype: Any = None) -> list[Tensor] | None:
    """The arrays in the dtype that NumPy gives to their combination; None if they are not all arrays."""
    if not isinstance(arrays, (tuple, list)) or not arrays or not all(isinstance(a, Tensor) for a in arrays):
        return None
    import numpy

    names = [str(a.dtype).removeprefix("torch.") for a in arrays]
    kind = torch_dtype(numpy.result_type(*map(numpy.dtype, names)) if dtype is None else dtype)
    return [a.to(kind) for a in arrays]


def concatenate(arrays: Any, /, axis: Any = 0, *, dtype: Any = None) -> Any:
    parts = joined(arrays, dtype)
    if parts is None:
        return NotImplemented
    return torch.cat([part.reshape(-1) for part in parts] if axis is None else parts, 0 if axis is None else axis)


def stack(arrays: Any, axis: int = 0, *, dtype: Any = None) -> Any:
    parts = joined(arrays, dtype)
    return NotImplemented if parts is None else torch.stack(parts, axis)


def vstack(tup: Any, *, dtype: Any = None) -> Any:
    parts = joined(tup, dtype)
    return NotImplemented if parts is None else torch.vstack(parts)


def hstack(tup: Any, *, dtype: Any = None) -> Any:
    parts = joined(tup, dtype)
    return NotImplemented if parts is None else torch.hstack(parts)


def dstack(tup: Any) -> Any:
    parts = joined(tup)
    return NotImplemented if parts is None else torch.dstack(parts)


def column_stack(tup: Any) -> Any:
    parts = joined(tup)
    return NotImplemented if parts is None else torch.column_stack(parts)


def array_split(ary: Tensor, indices_or_sections: Any, axis: int = 0) -> Any:
    given = indices_or_sections
    return list(torch.tensor_split(ary, tuple(given) if isinstance(given, list) else given, axis))


def tile(a: Tensor, reps: Any) -> Tensor:
    return torch.tile(a, sizes_of(reps))


def repeat(a: Tensor, repeats: Any, axis: Any = None) -> Any:
    return torch.repeat_interleave(a, repeats, axis) if isinstance(repeats, int) else NotImplemented


def roll(a: Tensor, shift: Any, axis: Any = None) -> Tensor:
    return torch.roll(a, shift, axis)


def diff(a: Tensor, n: int = 1, axis: int = -1) -> Any:
    return NotImplemented if a.dtype is torch.bool else torch.diff(a, n, axis)


def where(condition: Tensor, x: Any, y: Any, /) -> Any:
    return NotImplemented if not isinstance(condition, Tensor) else torch.where(condition != 0, *same_kind(x, y))


def same_kind(*values: Any) -> list[Any]:
    """Operands in their common dtype. A number's type is weak, as NumPy takes it."""
    import numpy

    kinds = [numpy.dtype(str(v.dtype).removeprefix("torch.")) if isinstance(v, Tensor) else weak(v) for v in values]
    if all(not isinstance(v, Tensor) for v in values):
        kinds = [numpy.asarray(v).dtype for v in values]
    kind = torch_dtype(numpy.result_type(*kinds))
    return [v.to(kind) if isinstance(v, Tensor) else torch.full((), v, dtype=kind) for v in values]


def weak(value: Any) -> Any:
    """A number of the same kind: live numbers must not be read here."""
    return next(kind(1) for kind in (bool, int, float, complex) if isinstance(value, kind))


def clip(a: Tensor, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = a_min if min is None else min, a_max if max is None else max
    if low is None and high is None or a.dtype is torch.bool or a.is_complex():
        return NotImplemented
    for limit in (low, high):
        if isinstance(limit, Tensor) and limit.dtype is not a.dtype:
            return NotImplemented
        if isinstance(limit, (int, float)) and not a.is_floating_point():
            range_ = torch.iinfo(a.dtype)
            if isinstance(limit, float) or not range_.min <= limit <= range_.max:
                return NotImplemented
    if isinstance(low, Tensor) != isinstance(high, Tensor):
        low, high = (
            limit if limit is None or isinstance(limit, Tensor) else torch.full((), limit, dtype=a.dtype)
            for limit in (low, high)
        )
    return torch.clamp(a, low, high)


def round_(a: Tensor, decimals: int = 0) -> Any:
    if not a.is_floating_point() or decimals and a.dtype is torch.float16:
        return NotImplemented
    return torch.round(a, decimals=decimals)


def take(a: Tensor, indices: Any, axis: Any = None) -> Any:
    if isinstance(indices, Tensor) and (indices.is_floating_point() or indices.dtype in (torch.bool, torch.uint8)):
        return NotImplemented
    source, dim = (a.reshape(-1), 0) if axis is None else (a, axis % a.ndim)
    index = indices if isinstance(indices, Tensor) else torch.tensor(indices)
    return source[(*[slice(None)] * dim, index)]


def take_along_axis(arr: Tensor, indices: Any, axis: Any = -1) -> Any:
    if axis is None or not isinstance(indices, Tensor) or indices.dtype is not torch.int64:
        return NotImplemented
    return torch.take_along_dim(arr, indices, axis)


def tril(m: Tensor, k: int = 0) -> Any:
    return torch.tril(m, k) if m.ndim > 1 else NotImplemented


def triu(m: Tensor, k: int = 0) -> Any:
    return torch.triu(m, k) if m.ndim > 1 else NotImplemented


def diag(v: Tensor, k: int = 0) -> Any:
    return torch.diag(v, k) if v.ndim == 1 else NotImplemented


def trace(a: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    if a.dtype in (torch.uint8, torch.bool, torch.float16):
        return NotImplemented
    return torch.sum(torch.diagonal(a, offset, axis1, axis2), -1)


def nan_to_num(x: Tensor, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    if x.is_complex() or copy is not True:
        return NotImplemented
    return torch.nan_to_num(x, nan, posinf, neginf) if x.is_floating_point() else torch.clone(x)


def isclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    first, second = same_kind(a, b)
    if not first.is_floating_point():
        first, second = first.to(torch.float64), second.to(torch.float64)
    near = (first - second).abs() <= atol + rtol * second.abs()
    is_close = torch.where(torch.isfinite(second), near, first == second)
    return is_close | torch.isnan(first) & torch.isnan(second) if equal_nan else is_close


def real(val: Tensor) -> Tensor:
    return torch.real(val)


def imag(val: Tensor) -> Any:
    return torch.imag(val) if val.is_complex() else NotImplemented


def zeros_like(a: Tensor, dtype: Any = None) -> Tensor:
    return torch.zeros_like(a, dtype=a.dtype if dtype is None else torch_dtype(dtype))


def empty_like(a: Tensor, dtype: Any = None) -> Tensor:
    return torch.empty_like(a, dtype=a.dtype if dtype is None else torch_dtype(dtype))


def empty(shape: Any, dtype: Any = float) -> Tensor:
    return torch.empty(sizes_of(shape), dtype=torch_dtype(dtype))


def ones_like(a: Tensor, dtype: Any = None) -> Tensor:
    return torch.ones_like(a, dtype=a.dtype if dtype is None else torch_dtype(dtype))


def full_like(a: Tensor, fill_value: Any, dtype: Any = None) -> Any:
    if isinstance(fill_value, Tensor):
        return NotImplemented
    return torch.full_like(a, fill_value, dtype=a.dtype if dtype is None else torch_dtype(dtype))


def meshgrid(*xi: Any, indexing: str = "xy") -> Any:
    if not all(isinstance(x, Tensor) and x.ndim == 1 for x in xi):
        return NotImplemented
    return tuple([grid.clone() for grid in torch.meshgrid(*xi, indexing=indexing)])


def pad(array: Tensor, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Any:
    if mode != "constant" or isinstance(constant_values, (tuple, list, Tensor)):
        return NotImplemented
    widths = [pad_width] if isinstance(pad_width, int) else list(pad_width)
    pairs = [(w, w) if isinstance(w, int) else tuple(w) for w in widths]
    if all(isinstance(w, int) for w in widths) and len(widths) == 2:
        pairs = [(widths[0], widths[1])]
    pairs = pairs * array.ndim if len(pairs) == 1 else pairs
    flat = [width for pair in reversed(pairs) for width in pair]
    return torch.nn.functional.pad(array, flat, value=constant_values)


def dot(a: Any, b: Any) -> Any:
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)) or not a.ndim or not b.ndim or b.ndim > 2:
        return NotImplemented
    return torch.matmul(*same_kind(a, b))


def inner(a: Any, b: Any, /) -> Any:
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)) or not a.ndim or not b.ndim:
        return NotImplemented
    return torch.inner(*same_kind(a, b))


def vdot(a: Any, b: Any, /) -> Any:
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        return NotImplemented
    first, second = same_kind(a.reshape(-1), b.reshape(-1))
    return torch.vdot(first, second)


def outer(a: Tensor, b: Tensor) -> Any:
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        return NotImplemented
    return torch.outer(*same_kind(a.reshape(-1), b.reshape(-1)))


def tensordot(a: Tensor, b: Tensor, axes: Any = 2) -> Any:
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        return NotImplemented
    if not isinstance(axes, int):
        axes = tuple([[part] if isinstance(part, int) else list(part) for part in axes])
    return torch.tensordot(*same_kind(a, b), axes)


def kron(a: Tensor, b: Tensor) -> Any:
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        return NotImplemented
    return torch.kron(*same_kind(a, b))


def cross(a: Tensor, b: Tensor, axis: Any = -1) -> Any:
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)) or a.shape[axis] != 3 or b.shape[axis] != 3:
        return NotImplemented
    return torch.linalg.cross(*same_kind(a, b), dim=axis)


def einsum(subscripts: Any, *operands: Any) -> Any:
    if not isinstance(subscripts, str) or not all(isinstance(x, Tensor) for x in operands):
        return NotImplemented
    return torch.einsum(subscripts, *same_kind(*operands))


def norm(x: Tensor, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    if x.is_complex() or ord == 0:
        return NotImplemented
    values = x if x.is_floating_point() else x.to(torch.float64)
    if axis is None and ord is None:
        return torch.linalg.vector_norm(values, 2, None, keepdims)
    if isinstance(axis, int) or axis is None and x.ndim == 1:
        return torch.linalg.vector_norm(values, 2 if ord is None else ord, axis, keepdims)
    return NotImplemented


def of_floats(function: Any) -> Any:
    """A function of ``linalg`` that takes integers for float64."""

    def call(a: Tensor) -> Any:
        if a.dtype is torch.float16:
            return NotImplemented
        return function(a if a.is_floating_point() or a.is_complex() else a.to(torch.float64))

    return call


NAMES = """
    reshape transpose ravel squeeze expand_dims swapaxes moveaxis copy array asarray ascontiguousarray atleast_1d
    atleast_2d concatenate stack vstack hstack dstack column_stack array_split tile repeat roll diff where clip take
    take_along_axis tril triu diag trace nan_to_num isclose real imag zeros_like empty_like ones_like full_like meshgrid
    pad dot inner vdot outer tensordot kron cross einsum
"""
FUNCTIONS = {
    **{name: globals()[name] for name in NAMES.split()},
    "round": round_,
    "around": round_,
    "split": array_split,
    "linalg.norm": norm,
    "linalg.det": of_floats(torch.linalg.det),
    "linalg.cholesky": of_floats(torch.linalg.cholesky),
}
METHODS = "transpose ravel squeeze swapaxes copy repeat clip round take trace dot".split()
