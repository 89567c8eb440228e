"""Kernels of every kind against torch, for this processor and for older ones."""

import pytest
import torch

from burnish.ops.scalar_ir import Access, binary, cast, load, reduced, select
from burnish.schedule.loops.loop_ir import Kernel, Loop, Reduction, Stage, Store
from burnish.tensors.dtypes import DTYPES

from . import example_kernels as examples
from .run_kernel import MACHINES, compiled

SHAPES = [(1, 1), (3, 1), (1, 17), (5, 16), (7, 100), (64, 64), (33, 130), (2, 5000), (300, 3)]

on_each_machine = pytest.mark.parametrize("machine", MACHINES)
each_shape = pytest.mark.parametrize("shape", SHAPES)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def launch(kernel, tensors, machine):
    compiled(kernel, machine)(*(tensor.data_ptr() for tensor in tensors))


def assert_no_worse(found, eager, exact):
    """Against float64: at most twice eager's error, or an error that one rounding of the result explains."""
    ours, theirs = ((x.double() - exact).abs().max().item() for x in (found, eager))
    assert ours <= max(2 * theirs, torch.finfo(found.dtype).eps * exact.abs().max().item()), (ours, theirs)


@on_each_machine
@each_shape
def test_softmax_over_rows(machine, shape):
    x, out = torch.randn(shape) * 3, torch.empty(shape)
    launch(examples.softmax(*shape), (x, out), machine)
    assert_no_worse(out, x.softmax(-1), x.double().softmax(-1))


@on_each_machine
@each_shape
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_layer_norm_with_its_statistics(machine, shape, dtype):
    rows, columns = shape
    x, weight, bias = (torch.randn(s).to(DTYPES[dtype]) for s in (shape, columns, columns))
    out, mean, scale = torch.empty(shape, dtype=DTYPES[dtype]), torch.empty(rows), torch.empty(rows)
    launch(examples.layer_norm(rows, columns, dtype), (x, weight, bias, out, mean, scale), machine)
    if columns == 1:
        # The variance is all rounding error: only the bias is left.
        torch.testing.assert_close(out, bias.expand(shape), rtol=1e-2, atol=1e-2)
        return
    eager, *_ = torch.native_layer_norm(x, (columns,), weight, bias, 1e-5)
    exact, exact_mean, exact_scale = torch.native_layer_norm(
        x.double(), (columns,), weight.double(), bias.double(), 1e-5
    )
    assert_no_worse(out, eager, exact)
    torch.testing.assert_close(mean.double()[:, None], exact_mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(scale.double()[:, None], exact_scale, rtol=1e-5, atol=1e-6)


@on_each_machine
@each_shape
def test_sums_of_rows_and_of_columns(machine, shape):
    x = torch.randn(shape)
    for dim, kernel in ((1, examples.row_sum(*shape)), (0, examples.column_sum(*shape))):
        out = torch.empty(shape[1 - dim])
        launch(kernel, (x, out), machine)
        torch.testing.assert_close(out.double(), x.double().sum(dim), rtol=1e-6, atol=1e-4)


@on_each_machine
@each_shape
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "u8"])
def test_a_transposed_copy(machine, shape, dtype):
    rows, columns = shape
    x = (torch.randn(columns, rows) * 50).to(DTYPES[dtype])
    out = torch.empty(shape, dtype=DTYPES[dtype])
    launch(examples.transposed_copy(rows, columns, dtype), (x, out), machine)
    assert torch.equal(out, x.t())


@on_each_machine
def test_an_embedding_reads_the_rows_that_indices_name(machine):
    indices, table, out = torch.randint(0, 50, (37,)), torch.randn(50, 19), torch.empty(37, 19)
    launch(examples.embedding(37, 19), (indices, table, out), machine)
    assert torch.equal(out, table[indices])


@on_each_machine
@pytest.mark.parametrize("columns", [5, 16, 40])
def test_a_masked_pad_touches_nothing_outside(machine, columns):
    x, out = torch.randn(6, columns), torch.empty(6, columns + 6)
    launch(examples.padded(6, columns, 3), (x, out), machine)
    assert torch.equal(out, torch.nn.functional.pad(x, (3, 3)))


@on_each_machine
@each_shape
def test_argmax_gives_the_first_of_equals_and_the_first_nan(machine, shape):
    kernel = examples.reduction("argmax", shape, 1, (shape[1], 1))
    for x in (torch.randint(0, 4, shape).float(), torch.full(shape, -torch.inf), torch.randn(shape)):
        out = torch.empty(shape[0], dtype=torch.int64)
        launch(kernel, (x, out), machine)
        assert torch.equal(out, x.argmax(1))
    x[0, shape[1] // 2 :] = torch.nan
    launch(kernel, (x, out), machine)
    assert out[0] == shape[1] // 2


@on_each_machine
def test_argmax_over_two_variables_counts_in_row_major_order(machine):
    x = torch.randint(0, 9, (4, 5, 21)).float().transpose(1, 2).contiguous().transpose(1, 2)
    out = torch.empty(4, dtype=torch.int64)
    launch(examples.reduction("argmax", (4, 5, 21), 1, x.stride()), (x, out), machine)
    assert torch.equal(out, x.flatten(1).argmax(1))


@on_each_machine
@pytest.mark.parametrize("count", [1, 31, 32, 33, 100_003])
def test_bf16_is_added_in_float_and_rounded_as_eager_does(machine, count):
    x, y = torch.randn(count).bfloat16(), torch.randn(count).bfloat16() * 1e-2
    out = torch.empty_like(x)
    launch(examples.add(count, "bf16"), (x, y, out), machine)
    assert torch.equal(out, x + y)


@on_each_machine
def test_every_bf16_comes_out_of_f32_as_in_eager(machine):
    bits = torch.arange(0, 2**32, 40_009, dtype=torch.int64).to(torch.int32)
    x = bits.view(torch.float32)
    out = torch.empty(len(x), dtype=torch.bfloat16)
    kernel = examples.elementwise("cast", cast(load("f32", Access(0, 0, (1,))), "bf16"), (len(x),), ("f32",))
    launch(kernel, (x, out), machine)
    expected = x.bfloat16()
    assert torch.equal(out.isnan(), expected.isnan())
    assert torch.equal(out[~out.isnan()].view(torch.int16), expected[~out.isnan()].view(torch.int16))


@on_each_machine
def test_an_in_place_update_reads_the_old_values(machine):
    x, y = torch.randn(1000), torch.randn(1000)
    a, b = (load("f32", Access(n, 0, (1,))) for n in (0, 1))
    stage = Stage(stores=(Store(Access(0, 0, (1,)), b), Store(Access(1, 0, (1,)), a)))
    kernel = Kernel("swap", ("f32", "f32"), frozenset({0, 1}), (Loop((1000,), 1, (stage,)),))
    before = x.clone(), y.clone()
    launch(kernel, (x, y), machine)
    assert torch.equal(x, before[1]) and torch.equal(y, before[0])


@on_each_machine
def test_a_later_stage_reads_stores_of_an_earlier_one(machine):
    x, out = torch.rand(9, 50) + 1, torch.empty(9, 50)
    square = load("f32", Access(0, 0, (50, 1))) * 3
    stored = load("f32", Access(1, 0, (50, 1)))
    stages = (
        Stage((Reduction("max", square),), (Store(Access(1, 0, (50, 1)), square),)),
        Stage(stores=(Store(Access(1, 0, (50, 1)), stored / reduced(0, "f32")),)),
    )
    kernel = Kernel("scale", ("f32", "f32"), frozenset({1}), (Loop((9, 50), 1, stages),))
    launch(kernel, (x, out), machine)
    assert torch.equal(out, x * 3 / (x * 3).amax(1, keepdim=True))


@on_each_machine
def test_a_value_of_two_stages_is_recomputed_if_its_input_was_overwritten(machine):
    x = torch.rand(6, 50)
    before, out = x.clone(), torch.empty(6, 50)
    there = Access(0, 0, (50, 1))
    power = load("f32", there).exp()
    stages = (
        Stage((Reduction("max", power),)),
        Stage(stores=(Store(there, load("f32", there) * 0.5),)),
        Stage(stores=(Store(Access(1, 0, (50, 1)), power / reduced(0, "f32")),)),
    )
    kernel = Kernel("powers", ("f32", "f32"), frozenset({0, 1}), (Loop((6, 50), 1, stages),))
    launch(kernel, (x, out), machine)
    assert torch.equal(x, before * 0.5)
    torch.testing.assert_close(out, x.exp() / before.exp().amax(1, keepdim=True))


@on_each_machine
def test_loops_of_one_kernel_are_all_computed(machine):
    counts = (10, 70_000, 1, 3000)
    tensors, loops = [], []
    for count in counts:
        first = len(tensors)
        x, y = (load("f32", Access(first + n, 0, (1,))) for n in (0, 1))
        loops.append(Loop((count,), 1, (Stage(stores=(Store(Access(first + 2, 0, (1,)), x * y),)),)))
        tensors += [torch.randn(count), torch.randn(count), torch.full((count,), torch.nan)]
    stored = frozenset(range(2, len(tensors), 3))
    launch(Kernel("many", ("f32",) * len(tensors), stored, tuple(loops)), tensors, machine)
    for x, y, out in zip(tensors[::3], tensors[1::3], tensors[2::3], strict=True):
        assert torch.equal(out, x * y)


@on_each_machine
@pytest.mark.parametrize("target", ["i64", "i32", "i16", "i8", "u8", "b8"])
def test_floats_become_integers_as_in_eager(machine, target):
    x = torch.cat([torch.randn(200) * 90, torch.tensor([300.0, -300.0, 1e4, -1e5, 0.9, -0.9, -0.0])])
    out = torch.empty(len(x), dtype=DTYPES[target])
    kernel = examples.elementwise("cast", cast(load("f32", Access(0, 0, (1,))), target), (len(x),), ("f32",))
    launch(kernel, (x, out), machine)
    assert torch.equal(out, x.to(DTYPES[target]))


@on_each_machine
def test_reductions_over_nothing_give_their_identity(machine):
    expected = {"sum": 0, "prod": 1, "max": -torch.inf, "min": torch.inf, "argmax": 0, "argmin": 0}
    for op, value in expected.items():
        out = torch.full((20,), 7, dtype=torch.int64 if op.startswith("arg") else torch.float32)
        launch(examples.reduction(op, (20, 0), 1, (0, 1)), (torch.empty(0), out), machine)
        assert (out == value).all(), op


@on_each_machine
@pytest.mark.parametrize("op", ["exp", "erf", "tanh", "log1p", "lgamma"])
def test_functions_of_float64_are_those_of_the_c_library(machine, op):
    if machine == "triton" and op == "lgamma":
        pytest.skip("the library's own, which the scheduler leaves to it there")
    x, out = torch.rand(37, dtype=torch.float64) + 0.1, torch.empty(37, dtype=torch.float64)
    value = getattr(load("f64", Access(0, 0, (1,))), op)()
    launch(examples.elementwise(op, value, (37,), ("f64",)), (x, out), machine)
    torch.testing.assert_close(out, getattr(torch, op)(x), rtol=1e-14, atol=0)


@on_each_machine
def test_a_nan_survives_max_and_select_takes_the_chosen_side(machine):
    x, y = torch.randn(100), torch.randn(100)
    x[3] = y[50] = x[99] = torch.nan
    a, b = (load("f32", Access(n, 0, (1,))) for n in (0, 1))
    out = torch.empty(100)
    value = select(a > b, a, a.sqrt()) * 0 + (a * 1.0)
    launch(examples.elementwise("select", value, (100,), ("f32", "f32")), (x, y, out), machine)
    expected = torch.where(x > y, x, x.sqrt()) * 0 + x
    torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)
    for op, eager in (("max", torch.maximum), ("min", torch.minimum)):
        launch(examples.elementwise(op, binary(op, a, b), (100,), ("f32", "f32")), (x, y, out), machine)
        torch.testing.assert_close(out, eager(x, y), rtol=0, atol=0, equal_nan=True)
