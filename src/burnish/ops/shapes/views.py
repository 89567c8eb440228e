"""View operators, defined by index maps from the view to its source.

The maps (`tensors/views/view_maps.py`) give both type and data. Strides of size-1 dimensions and of empty tensors do
not affect data, but programs can read them. If the maps give others than eager, a shape rule follows below the maps.

    t(f32[2, 3])                      [permute[1, 0]]
    select(f32[4, 2, 3], 0, -1)       [slice[0: 3, 1, 1], reshape[2, 3]]

Operators with several results (`split`, `unbind`) have their maps in the record's notes: `notes["maps"](x, *args)`
returns one chain of maps for each result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch

from ...tensors.eager_strides import preserved_stride
from ...tensors.tensor_types import TensorType, has_stride
from ...tensors.views.view_maps import Diagonal, Expand, Map, Permute, Reshape, Slice, view_stride, view_type
from ..operator_record import NoRule, call_shape, fresh, record, shape, view, wrapped_dim

Chain = Sequence[Map]


# -- the same elements in another shape --------------------------------------------------------------------------------


def inferred_shape(wanted: Sequence[int], numel: int) -> tuple[int, ...]:
    """A shape with its -1 replaced."""
    found = tuple(wanted)
    if -1 not in found:
        return found
    known = 1
    for n in found:
        if n != -1:
            known *= n
    if known == 0 or numel % known:
        raise NoRule(f"shape {list(wanted)} is invalid for {numel} elements")
    return tuple(numel // known if n == -1 else n for n in found)


@view("aten.view.default", "aten._unsafe_view.default")
def reshaped(x: TensorType, size: Sequence[int]) -> Chain:
    wanted = inferred_shape(size, x.numel)
    if wanted == x.shape and view_stride(x.shape, x.stride, wanted) == x.stride:
        return []
    return [Reshape(wanted)]


@view("aten._reshape_alias.default")
def reshape_alias(x: TensorType, size: Sequence[int], stride: Sequence[int]) -> Chain:
    return [Reshape(tuple(size))] if tuple(size) != x.shape else []


call_shape("aten._reshape_alias.default")(lambda a: restrided(a.self, a.size, a.stride))


@view(
    "aten.alias.default",
    "aten.detach.default",
    "aten.lift.default",
    "aten.lift_fresh.default",
    "aten.view_as.default",
    "aten._fw_primal.default",
)
def alias(x: TensorType, *_: object) -> Chain:
    return []


@view("aten.unsqueeze.default")
def unsqueeze(x: TensorType, dim: int) -> Chain:
    at = wrapped_dim(dim, x.ndim + 1)
    return [Reshape((*x.shape[:at], 1, *x.shape[at:]))]


@shape("aten.unsqueeze.default", "aten.unsqueeze_.default")
def unsqueeze_type(x: TensorType, dim: int) -> TensorType:
    at = wrapped_dim(dim, x.ndim + 1)
    step = x.shape[at] * x.stride[at] if at < x.ndim else 1
    return restrided(x, (*x.shape[:at], 1, *x.shape[at:]), (*x.stride[:at], step, *x.stride[at:]))


def squeezed_dims(x: TensorType, dim: int | Sequence[int] | None = None) -> set[int]:
    asked = range(x.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    return {d for d in (wrapped_dim(d, x.ndim) for d in asked) if x.ndim and x.shape[d] == 1}


SQUEEZES = ("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims")


@view(*SQUEEZES)
def squeeze(x: TensorType, dim: int | Sequence[int] | None = None) -> Chain:
    gone = squeezed_dims(x, dim)
    return [Reshape(without(x.shape, gone))] if gone else []


@shape(*SQUEEZES, "aten.squeeze_.default", "aten.squeeze_.dim", "aten.squeeze_.dims")
def squeeze_type(x: TensorType, dim: int | Sequence[int] | None = None) -> TensorType:
    gone = squeezed_dims(x, dim)
    return restrided(x, without(x.shape, gone), without(x.stride, gone))


def without(sizes: Sequence[int], gone: Sequence[int] | set[int]) -> tuple[int, ...]:
    return tuple(n for k, n in enumerate(sizes) if k not in gone)


def restrided(x: TensorType, size: Sequence[int], stride: Sequence[int]) -> TensorType:
    return TensorType(tuple(size), tuple(stride), x.dtype, x.device)


# -- dimensions in another order ---------------------------------------------------------------------------------------


def permuted(dims: Sequence[int]) -> Chain:
    return [Permute(tuple(dims))] if list(dims) != sorted(dims) else []


@view("aten.permute.default")
def permute(x: TensorType, dims: Sequence[int]) -> Chain:
    return permuted([wrapped_dim(d, x.ndim) for d in dims])


@view("aten.transpose.int", "aten.swapaxes.default")
def transpose(x: TensorType, a: int, b: int) -> Chain:
    dims = list(range(x.ndim))
    a, b = wrapped_dim(a, x.ndim), wrapped_dim(b, x.ndim)
    if dims:
        dims[a], dims[b] = b, a
    return permuted(dims)


@view("aten.t.default")
def t(x: TensorType) -> Chain:
    if x.ndim > 2:
        raise NoRule("t() of more than two dimensions")
    return permuted((1, 0)) if x.ndim == 2 else []


@view("aten.movedim.int", "aten.movedim.intlist")
def movedim(x: TensorType, source: int | Sequence[int], destination: int | Sequence[int]) -> Chain:
    sources = [source] if isinstance(source, int) else source
    places = [destination] if isinstance(destination, int) else destination
    moved = {wrapped_dim(to, x.ndim): wrapped_dim(d, x.ndim) for d, to in zip(sources, places, strict=True)}
    rest = iter(d for d in range(x.ndim) if d not in moved.values())
    return permuted([moved[k] if k in moved else next(rest) for k in range(x.ndim)])


# -- expand, slice, select, diagonal and unfold ------------------------------------------------------------------------


@view("aten.expand.default")
def expand(x: TensorType, size: Sequence[int], *, implicit: bool = False) -> Chain:
    added = len(size) - x.ndim
    if added < 0:
        raise NoRule("expand() to fewer dimensions")
    wanted = tuple(x.shape[k - added] if n == -1 and k >= added else n for k, n in enumerate(size))
    if any(n not in (1, m) for n, m in zip(x.shape, wanted[added:], strict=True)):
        raise NoRule(f"{x.shape} does not expand to {wanted}")
    return [Expand(wanted)] if wanted != x.shape else []


def slice_range(n: int, start: int | None, end: int | None, step: int) -> tuple[int, int]:
    """First index and count, with the limits clamped."""
    if step < 1:
        raise NoRule("a slice's step is positive")
    first, last, _ = slice(start, end).indices(n)
    return first, max(0, -(-(last - first) // step))


@view("aten.slice.Tensor")
def sliced(x: TensorType, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Chain:
    dim = wrapped_dim(dim, x.ndim)
    first, count = slice_range(x.shape[dim], start, end, step)
    return [Slice(dim, first, step, count)] if first or step != 1 or count != x.shape[dim] else []


@view("aten.narrow.default")
def narrow(x: TensorType, dim: int, start: int, length: int) -> Chain:
    dim = wrapped_dim(dim, x.ndim)
    start = start + x.shape[dim] if start < 0 else start
    if not x.ndim or start < 0 or length < 0 or start + length > x.shape[dim]:
        raise NoRule(f"{length} elements from {start} on, of {x} along {dim}")
    return part(x, dim, start, length)


def part(x: TensorType, dim: int, start: int, length: int) -> Chain:
    return [Slice(dim, start, 1, length)] if start or length != x.shape[dim] else []


@view("aten.select.int")
def select(x: TensorType, dim: int, index: int) -> Chain:
    dim = wrapped_dim(dim, x.ndim)
    if not x.ndim or not -x.shape[dim] <= index < x.shape[dim]:
        raise NoRule(f"select({dim}, {index}) of {x.shape}")
    index = index + x.shape[dim] if index < 0 else index
    return [*part(x, dim, index, 1), Reshape(without(x.shape, (dim,)))]


@shape("aten.select.int")
def select_type(x: TensorType, dim: int, index: int) -> TensorType:
    dim = wrapped_dim(dim, x.ndim)
    if not x.ndim or not -x.shape[dim] <= index < x.shape[dim]:
        raise NoRule(f"select({dim}, {index}) of {x.shape}")
    return restrided(x, without(x.shape, (dim,)), without(x.stride, (dim,)))


@view("aten.diagonal.default")
def diagonal(x: TensorType, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Chain:
    a, b = wrapped_dim(dim1, x.ndim), wrapped_dim(dim2, x.ndim)
    if a == b:
        raise NoRule("a diagonal of one dimension")
    rows, columns = x.shape[a], x.shape[b]
    count = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    return [Diagonal(a, b, offset if count > 0 else 0, max(count, 0))]


@view("aten.unfold.default")
def unfold(x: TensorType, dimension: int, size: int, step: int) -> Chain:
    """Windows along a dimension, with their elements in a new last one. No chain of maps gives overlapping windows."""
    if not x.ndim:
        return [Slice(0, 0, 1, size)] if size != 1 else [Reshape((1,))]
    dim = wrapped_dim(dimension, x.ndim)
    n = x.shape[dim]
    count = (n - size) // step + 1
    before, after = x.shape[:dim], x.shape[dim + 1 :]
    if size == 1:
        last = (count - 1) * step + 1
        chosen = part(x, dim, 0, last) if step == 1 else [Slice(dim, 0, step, count)]
        return [*chosen, Reshape((*before, count, *after, 1))]
    span = size if count == 1 else step
    if span < size or count * span > n:
        raise NoRule("windows overlap")
    cut = [] if span == size else [Slice(dim + 1, 0, 1, size)]
    order = [*range(dim + 1), *range(dim + 2, x.ndim + 1), dim + 1]
    return [*part(x, dim, 0, count * span), Reshape((*before, count, span, *after)), *cut, *permuted(order)]


@shape("aten.unfold.default")
def unfold_type(x: TensorType, dimension: int, size: int, step: int) -> TensorType:
    dim = wrapped_dim(dimension, x.ndim)
    n, stride = (x.shape[dim], x.stride[dim]) if x.ndim else (1, 1)
    if size > n or size < 0 or step < 1:
        raise NoRule(f"unfold of {n} in windows of {size}")
    if not x.ndim:
        return restrided(x, (size,), (1,))
    counts, strides = list(x.shape), list(x.stride)
    counts[dim], strides[dim] = (n - size) // step + 1, stride * step
    return restrided(x, (*counts, size), (*strides, stride))


@view("aten.as_strided.default")
def as_strided(x: TensorType, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Chain:
    """Covered only if nothing changes except strides of size-1 dimensions, as pooling to 1x1 does."""
    if storage_offset is None and tuple(size) == x.shape and has_stride(x, tuple(stride)):
        return []
    raise NoRule("elements at any strides")


call_shape("aten.as_strided.default", "aten.as_strided_.default")(lambda a: restrided(a.self, a.size, a.stride))


# -- another dtype over the same bytes ---------------------------------------------------------------------------------


@shape("aten.view.dtype")
def view_dtype(x: TensorType, dtype: torch.dtype) -> TensorType:
    old, new = x.dtype.itemsize, dtype.itemsize
    if old == new:
        return TensorType(x.shape, x.stride, dtype, x.device)
    if not x.ndim or x.stride[-1] != 1:
        raise NoRule("dtypes of different sizes need a dense last dimension")
    *sizes, n = x.shape
    *strides, _ = x.stride
    return TensorType((*sizes, n * old // new), (*(s * old // new for s in strides), 1), dtype, x.device)


REAL_OF = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}


@shape("aten.view_as_real.default")
def view_as_real(x: TensorType) -> TensorType:
    if x.dtype not in REAL_OF:
        raise NoRule(f"{x.dtype} is not complex")
    return TensorType((*x.shape, 2), (*(2 * s for s in x.stride), 1), REAL_OF[x.dtype], x.device)


@shape("aten.view_as_complex.default")
def view_as_complex(x: TensorType) -> TensorType:
    complex_of = {real: dtype for dtype, real in REAL_OF.items()}
    if x.dtype not in complex_of:
        raise NoRule(f"{x.dtype} has no complex dtype")
    return TensorType(x.shape[:-1], tuple(s // 2 for s in x.stride[:-1]), complex_of[x.dtype], x.device)


# -- operators that return several views -------------------------------------------------------------------------------


def views(*names: str) -> Callable[[Callable], Callable]:
    """Register an operator that returns several views."""

    def register(rule: Callable[..., tuple[Chain, ...]]) -> Callable:
        def types(x: TensorType, *args: object) -> tuple[TensorType | None, ...]:
            return tuple(view_type(tuple(chain), x) for chain in rule(x, *args))

        for name in names:
            made = record(name)
            made.shape = types
            made.notes["maps"] = rule
        return rule

    return register


@views("aten.split_with_sizes.default", "aten.unsafe_split_with_sizes.default")
def split_with_sizes(x: TensorType, split_sizes: Sequence[int], dim: int = 0) -> tuple[Chain, ...]:
    dim = wrapped_dim(dim, x.ndim)
    ends = [0]
    for n in split_sizes:
        ends.append(ends[-1] + n)
    if not x.ndim or ends[-1] != x.shape[dim]:
        raise NoRule(f"sizes {list(split_sizes)} of dimension {dim} of {x.shape}")
    return tuple(part(x, dim, start, end - start) for start, end in pairwise(ends))


@views("aten.split.Tensor", "aten.unsafe_split.Tensor")
def split(x: TensorType, split_size: int, dim: int = 0) -> tuple[Chain, ...]:
    dim = wrapped_dim(dim, x.ndim)
    if not x.ndim or split_size < 0 or (split_size == 0 and x.shape[dim]):
        raise NoRule(f"split in parts of {split_size}")
    n = x.shape[dim]
    count = max(-(-n // split_size), 1) if split_size else 1
    return tuple(part(x, dim, k * split_size, min(split_size, n - k * split_size)) for k in range(count))


@views("aten.chunk.default", "aten.unsafe_chunk.default")
def chunk(x: TensorType, chunks: int, dim: int = 0) -> tuple[Chain, ...]:
    dim = wrapped_dim(dim, x.ndim)
    if not x.ndim or chunks < 1:
        raise NoRule(f"{chunks} chunks")
    size = -(-x.shape[dim] // chunks)
    if not size:
        return split_with_sizes(x, [0] * chunks, dim)
    return split(x, size, dim)


@views("aten.unbind.int")
def unbind(x: TensorType, dim: int = 0) -> tuple[Chain, ...]:
    return tuple(select(x, dim, k) for k in range(x.shape[wrapped_dim(dim, x.ndim)]))


def unbind_types(x: TensorType, dim: int = 0) -> tuple[TensorType, ...]:
    if not x.ndim:
        raise NoRule("unbind of a tensor without dimensions")
    dim = wrapped_dim(dim, x.ndim)
    one = restrided(x, without(x.shape, (dim,)), without(x.stride, (dim,)))
    return (one,) * x.shape[dim]


record("aten.unbind.int").shape = unbind_types


# -- copies in another order of elements -------------------------------------------------------------------------------


@view("aten.flip.default", is_alias=False)
def flip(x: TensorType, dims: Sequence[int]) -> Chain:
    turned = sorted(wrapped_dim(d, x.ndim) for d in dims)
    return [Slice(d, x.shape[d] - 1, -1, x.shape[d]) for d in turned if x.ndim and x.shape[d] > 1]


call_shape("aten.flip.default")(lambda a: restrided(a.self, a.self.shape, preserved_stride(a.self)))


def quarter_turns(k: int, dims: Sequence[int]) -> tuple[int, list[int]]:
    """The number of quarter turns modulo 4, and the dimensions to flip for them."""
    k %= 4
    return k, [] if k == 0 else [dims[1]] if k == 1 else list(dims) if k == 2 else [dims[0]]


@view("aten.rot90.default", is_alias=False)
def rot90(x: TensorType, k: int = 1, dims: Sequence[int] = (0, 1)) -> Chain:
    k, turned = quarter_turns(k, dims)
    return [*flip(x, turned), *(transpose(x, *dims) if k % 2 else [])]


@shape("aten.rot90.default")
def rot90_type(x: TensorType, k: int = 1, dims: Sequence[int] = (0, 1)) -> TensorType:
    k, _ = quarter_turns(k, dims)
    if not k:
        return dense(x)
    turned = restrided(x, x.shape, preserved_stride(x))
    return view_type(tuple(transpose(x, *dims)), turned) if k % 2 else turned


@view("aten.repeat.default", is_alias=False)
def repeat(x: TensorType, repeats: Sequence[int]) -> Chain:
    """Each dimension [n] is expanded to [rounds, n], and the two are merged."""
    if len(repeats) < x.ndim:
        raise NoRule("fewer repeats than dimensions")
    own = (*(1,) * (len(repeats) - x.ndim), *x.shape)
    whole = tuple(n * rounds for n, rounds in zip(own, repeats, strict=True))
    if whole == x.shape:
        return []
    if all(rounds == 1 or n == 1 for n, rounds in zip(own, repeats, strict=True)):
        return [Expand(whole)]
    apart = [n for size in zip(repeats, own, strict=True) for n in size]
    once = [n for size in own for n in (1, size)]
    return [Reshape(tuple(once)), Expand(tuple(apart)), Reshape(whole)]


@shape("aten.repeat.default")
def repeat_type(x: TensorType, repeats: Sequence[int]) -> TensorType:
    if len(repeats) < x.ndim:
        raise NoRule("fewer repeats than dimensions")
    own = (*(1,) * (len(repeats) - x.ndim), *x.shape)
    return fresh(x, [n * rounds for n, rounds in zip(own, repeats, strict=True)])


def copies(*names: str) -> None:
    """Register the `_copy` forms: `permute_copy` is `permute` followed by a contiguous copy."""
    for name in names:
        viewed = record(name)
        base, overload = name.removeprefix("aten.").split(".")
        copy = record(f"aten.{base}_copy.{overload}")
        copy.shape = _copy_type(viewed.shape)
        if viewed.rule is not None:
            copy.rule = type(viewed.rule)(viewed.rule.maps, is_alias=False)
        elif "maps" in viewed.notes:
            copy.notes.update(maps=viewed.notes["maps"], is_copy=True)


def dense(x: TensorType) -> TensorType:
    return fresh(x, x.shape)


def _copy_type(rule: Callable) -> Callable:
    def types(*args: object, **kwargs: object) -> TensorType | tuple[TensorType, ...]:
        found = rule(*args, **kwargs)
        return tuple(map(dense, found)) if isinstance(found, tuple) else dense(found)

    return types


copies(
    "aten.view.default",
    "aten.unsqueeze.default",
    *SQUEEZES,
    "aten.permute.default",
    "aten.transpose.int",
    "aten.t.default",
    "aten.expand.default",
    "aten.slice.Tensor",
    "aten.narrow.default",
    "aten.select.int",
    "aten.diagonal.default",
    "aten.unfold.default",
    "aten.as_strided.default",
    "aten.view.dtype",
    "aten.view_as_real.default",
    "aten.view_as_complex.default",
    "aten.split.Tensor",
    "aten.split_with_sizes.default",
    "aten.unbind.int",
)


@shape("aten.view_copy.default")
def view_copy_type(x: TensorType, size: Sequence[int]) -> TensorType:
    """Unlike `view`, it accepts any strides."""
    return fresh(x, inferred_shape(size, x.numel))
