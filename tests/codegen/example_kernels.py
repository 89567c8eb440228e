"""Hand-written kernels in the form that the scheduler produces."""

from __future__ import annotations

from burnish.codegen.math.expand_operations import expand
from burnish.ops.scalar_ir import Access, Scalar, cast, fma, index, load, reduced
from burnish.schedule.loops.loop_ir import Kernel, Loop, Reduction, Stage, Store


def elementwise(
    name: str, value: Scalar, extents: tuple[int, ...], inputs: tuple[str, ...], strides: tuple[int, ...] = (1,)
) -> Kernel:
    """Stored to a buffer behind the inputs."""
    out = len(inputs)
    stage = Stage(stores=(Store(Access(out, 0, strides), value),))
    return Kernel(name, (*inputs, value.dtype), frozenset({out}), (Loop(extents, len(extents), (stage,)),))


def add(count: int, dtype: str = "f32") -> Kernel:
    x, y = (load(dtype, Access(n, 0, (1,))) for n in (0, 1))
    return elementwise("add", x + y, (count,), (dtype, dtype))


def softmax(rows: int, columns: int) -> Kernel:
    x = load("f32", Access(0, 0, (columns, 1)))
    power = (x - reduced(0, "f32")).exp()
    stages = (
        Stage((Reduction("max", x),)),
        Stage((Reduction("sum", power),)),
        Stage(stores=(Store(Access(1, 0, (columns, 1)), power / reduced(1, "f32")),)),
    )
    return Kernel("softmax", ("f32", "f32"), frozenset({1}), (Loop((rows, columns), 1, stages),))


def layer_norm(rows: int, columns: int, dtype: str = "f32") -> Kernel:
    """Statistics are stored too, once a row."""
    x = cast(load(dtype, Access(0, 0, (columns, 1))), "f32")
    mean = reduced(0, "f32") * (1 / columns)
    scale = (reduced(1, "f32") * (1 / columns) + 1e-5).rsqrt()
    weight, bias = (cast(load(dtype, Access(n, 0, (0, 1))), "f32") for n in (1, 2))
    value = cast(fma((x - mean) * scale, weight, bias), dtype)
    row = (1, 0)
    stages = (
        Stage((Reduction("sum", x),), row_stores=(Store(Access(4, 0, row), mean),)),
        Stage((Reduction("sum", (x - mean) * (x - mean)),), row_stores=(Store(Access(5, 0, row), scale),)),
        Stage(stores=(Store(Access(3, 0, (columns, 1)), value),)),
    )
    dtypes = (dtype, dtype, dtype, dtype, "f32", "f32")
    return Kernel("layer_norm", dtypes, frozenset({3, 4, 5}), (Loop((rows, columns), 1, stages),))


def reduction(op: str, extents: tuple[int, ...], rows: int, strides: tuple[int, ...], dtype: str = "f32") -> Kernel:
    """Of one buffer, into a contiguous result."""
    r = Reduction(op, load(dtype, Access(0, 0, strides)))
    out, step = [0] * len(extents), 1
    for k in reversed(range(rows)):
        out[k], step = step, step * extents[k]
    stage = Stage((r,), row_stores=(Store(Access(1, 0, tuple(out)), reduced(0, r.dtype)),))
    return Kernel(op, (dtype, r.dtype), frozenset({1}), (Loop(extents, rows, (stage,)),))


def row_sum(rows: int, columns: int) -> Kernel:
    return reduction("sum", (rows, columns), 1, (columns, 1))


def column_sum(rows: int, columns: int) -> Kernel:
    return reduction("sum", (columns, rows), 1, (1, columns))


def column_gradient(rows: int, columns: int) -> Kernel:
    """The gradient of an activation after a layer with a bias: much is computed, stored, and summed along the columns.
    The maximum is computed as well, and each sum is stored with a shift of its column."""
    x, grad = (load("f32", Access(n, 0, (1, columns))) for n in (0, 1))
    value = expand(grad * (1 + (x * 0.5).erf() + x * (x * x * -0.5).exp()))
    sums = reduced(0, "f32") + load("f32", Access(2, 0, (1, 0)))
    stage = Stage(
        (Reduction("sum", value), Reduction("max", value)),
        (Store(Access(1, 0, (1, columns)), value),),
        (Store(Access(3, 0, (1, 0)), sums), Store(Access(4, 0, (1, 0)), reduced(1, "f32"))),
    )
    return Kernel("column_gradient", ("f32",) * 5, frozenset({1, 3, 4}), (Loop((columns, rows), 1, (stage,)),))


def transposed_copy(rows: int, columns: int, dtype: str = "f32") -> Kernel:
    x = load(dtype, Access(0, 0, (1, rows)))
    return elementwise("transposed", x, (rows, columns), (dtype,), (columns, 1))


def embedding(count: int, width: int) -> Kernel:
    row = load("i64", Access(0, 0, (1, 0)))
    value = load("f32", Access(1, 0, (0, 1), (width,)), row)
    return elementwise("embedding", value, (count, width), ("i64", "f32"), (width, 1))


def padded(rows: int, columns: int, by: int) -> Kernel:
    """f32[rows, columns] with `by` zeros on either side of each row."""
    wide = columns + 2 * by
    inside = (index(1) >= by) & (index(1) < columns + by)
    value = load("f32", Access(0, -by, (columns, 1), (), True), inside)
    return elementwise("padded", value, (rows, wide), ("f32",), (wide, 1))
