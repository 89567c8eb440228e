"""Vectorization and tiling: which variable becomes lanes, which loops coalesce, what each thread computes."""

import pytest

from burnish.codegen.llvm.target_cpu import preset
from burnish.codegen.llvm.vectorization_and_tiling import choose, pieces
from burnish.codegen.loops.coalesce_loops import simplify
from burnish.codegen.math.expand_operations import expand
from burnish.ops.scalar_ir import Access, index, load
from burnish.schedule.loops.loop_ir import Loop, Stage, Store

from . import example_kernels as examples

WIDE, NARROW = preset("x86-64-v4"), preset("x86-64-v3")


def planned(kernel, target=WIDE):
    box = simplify(kernel.loops[0])
    return box, choose(box, target)


def copy_of(extents, out, strides, more=None):
    x = load("f32", Access(0, 0, strides))
    stage = Stage(stores=(Store(Access(1, 0, out), x if more is None else x + more),))
    return simplify(Loop(extents, len(extents), (stage,)))


def test_a_contiguous_box_becomes_one_long_loop():
    strides = (3072, 1024, 32, 1)
    assert copy_of((4, 3, 32, 32), strides, strides).extents == (12288,)


def test_channels_last_on_both_sides_becomes_one_long_loop():
    strides = (3072, 1, 96, 3)
    assert copy_of((4, 3, 32, 32), strides, strides).extents == (12288,)


@pytest.mark.parametrize("value, lanes", [("sin", 16), ("cos", 16), ("tan", 8)])
def test_rare_float64_operations_do_not_halve_the_lanes(value, lanes):
    """Sines of large numbers need doubles, tangents all of them."""
    x = expand(getattr(load("f32", Access(0, 0, (1,))), value)())
    stage = Stage(stores=(Store(Access(1, 0, (1,)), x),))
    assert choose(simplify(Loop((4096,), 1, (stage,))), WIDE).width == lanes


def test_a_broadcast_variable_prevents_coalescing():
    bias = load("f32", Access(2, 0, (0, 1, 0, 0)))
    strides = (3072, 1024, 32, 1)
    assert copy_of((4, 3, 32, 32), strides, strides, bias).extents == (4, 3, 1024)


def test_a_variable_whose_value_is_used_is_not_merged():
    box = copy_of((8, 16), (16, 1), (16, 1), load("f32", Access(2, 0, (0, 0), (1,)), index(1)))
    assert box.extents == (8, 16)


def test_variables_of_one_turn_are_gone():
    assert copy_of((1, 8, 1), (8, 1, 1), (0, 3, 5)).extents == (8,)


def test_softmax_has_the_elements_of_a_row_in_lanes():
    _, plan = planned(examples.softmax(64, 512))
    assert (plan.kind, plan.lane, plan.width, plan.items) == ("inner", 1, 16, 64)


def test_column_sums_have_rows_in_lanes():
    _, plan = planned(examples.column_sum(4096, 1024))
    assert (plan.kind, plan.lane, plan.width) == ("rows", 0, 16)
    assert plan.items == 1024 // plan.block


@pytest.mark.parametrize("target", [WIDE, NARROW])
def test_expensive_columns_are_computed_in_strips(target):
    box, plan = planned(examples.column_gradient(256, 2048), target)
    assert (plan.kind, plan.lane) == ("rows", 0) and plan.strips > 1
    assert plan.block == plan.width * plan.copies * plan.strips and plan.items * plan.block == 2048
    assert plan.items >= 8  # enough for several threads


@pytest.mark.parametrize(
    "kernel",
    [
        examples.column_sum(256, 2048),  # its turns are wide without
        examples.column_gradient(256, 128),  # several elements of a column share a page
        examples.column_gradient(4, 2048),
        examples.column_gradient(256, 2048 + 7),
    ],
)
def test_other_columns_are_computed_one_after_the_other(kernel):
    assert planned(kernel)[1].strips == 1


def test_where_sums_are_stored_says_nothing_about_lanes():
    # [parts, pixels, channels], summed over the pixels of each part; the sums of a channel are adjacent.
    box, plan = planned(examples.reduction("sum", (64, 8, 784), 2, (1, 50176, 64)))
    assert (plan.kind, box.extents[plan.lane]) == ("rows", 64)


def test_very_short_rows_are_computed_side_by_side():
    _, plan = planned(examples.row_sum(10_000, 3))
    assert (plan.kind, plan.lane) == ("rows", 0)


def test_reads_across_the_lanes_are_transposed_in_tiles():
    _, plan = planned(examples.transposed_copy(1024, 1024))
    assert (plan.kind, plan.lane, plan.across, plan.items) == ("tiles", 1, 0, 64 * 64)


def test_tiles_that_do_not_come_out_even_leave_strips():
    box = simplify(examples.transposed_copy(40, 50).loops[0])
    kinds = [plan.kind for _, plan in pieces(box, WIDE)]
    assert kinds[0] == "tiles" and len(kinds) == 3 and "tiles" not in kinds[1:]
    assert sum(part.extents[0] * part.extents[1] for part, _ in pieces(box, WIDE)) == 2000


@pytest.mark.parametrize(
    ("dtype", "target", "width"),
    [("f32", WIDE, 16), ("f64", WIDE, 8), ("bf16", WIDE, 16), ("u8", WIDE, 64), ("f32", NARROW, 8), ("i64", NARROW, 4)],
)
def test_lanes_fill_a_vector_of_the_computed_type(dtype, target, width):
    assert planned(examples.add(10_000, dtype), target)[1].width == width


def test_a_loop_over_nothing_has_no_items():
    assert simplify(examples.add(0).loops[0]).extents == (0,)
    assert choose(simplify(examples.add(0).loops[0]), WIDE).items == 0
