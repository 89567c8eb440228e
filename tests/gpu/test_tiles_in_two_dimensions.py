"""Element-wise loops in tiles of two dimensions, and the integers that kernels compute with."""

import numpy as np
import pytest

pytest.importorskip("triton")

from burnish.codegen.loops.coalesce_loops import simplify
from burnish.codegen.triton.analysis.narrow_indices import narrow_indices
from burnish.codegen.triton.kernel_function import print_kernel
from burnish.codegen.triton.tiling import tile_of
from burnish.ops.scalar_ir import const, index

from ..codegen.run_kernel import is_interpreted, run
from ..schedule.parse_loops import parse_kernel

needs_interpreter = pytest.mark.skipif(not is_interpreted(), reason="no interpreter of Triton")

ROWS, WIDE = 150, 170

TRANSPOSED = f"""kernel k(b0: f32, b1: f32, b2: f32 out)
  loop i0 < {ROWS}, i1 < {WIDE} rows
    stage
      b2[{WIDE}*i0 + i1] = add(mul(b0[i0 + {ROWS}*i1], 2.0.f32), b1[i1])
"""

BATCHED = f"""kernel k(b0: f32, b1: f32, b2: f32 out)
  loop i0 < 3, i1 < {ROWS}, i2 < {WIDE} rows
    stage
      b2[{ROWS * WIDE}*i0 + {WIDE}*i1 + i2] = add(b0[{ROWS * WIDE}*i0 + i1 + {ROWS}*i2], b1[i1])
"""

OF_ROWS = """kernel k(b0: f32, b1: f32, b2: f32 out)
  loop i0 < 301, i1 < 1009 rows
    stage
      b2[1009*i0 + i1] = select(le(i1, i0), mul(b0[1009*i0 + i1], b1[i0]), cast.f32(sub(i1, i0)))
"""


def tile(text):
    return tile_of(simplify(parse_kernel(text).loops[0], expands=False))


def test_transposes_are_tiled_by_both_sides_and_numbers_of_rows_are_read_once():
    assert (tile(TRANSPOSED).rows, tile(TRANSPOSED).inner, tile(TRANSPOSED).fast) == (64, 64, 0)
    assert tile(BATCHED).fast == 1
    assert (tile(OF_ROWS).rows, tile(OF_ROWS).inner, tile(OF_ROWS).fast) == (1, 1024, None)
    flat = OF_ROWS.replace("b1[i0]", "b1[i1]")
    assert tile(flat).inner == 0
    # Triton sees that the elements of a flat tile are adjacent.
    assert "b0 + (x)" in print_kernel(parse_kernel(flat)).text


@needs_interpreter
@pytest.mark.parametrize("text", [TRANSPOSED, BATCHED, OF_ROWS, OF_ROWS.replace("b1[i0]", "b1[i1]")])
def test_each_element_is_computed_once_where_it_belongs(text):
    kernel = parse_kernel(text)
    random = np.random.default_rng(0)
    size = 301 * 1009
    buffers = [random.standard_normal(size).astype(np.float32), random.standard_normal(2000).astype(np.float32)]
    with_llvm, with_triton = (run(kernel, [*buffers, np.zeros(size, np.float32)], kind) for kind in (None, "triton"))
    np.testing.assert_array_equal(with_triton[2], with_llvm[2])


def test_indices_are_narrow_where_all_they_are_computed_from_is():
    i, j = index(0), index(1)
    inside, beyond = i * 1000 + j, i * 1000000 + j
    found = narrow_indices([inside, beyond, (beyond - beyond) + j], (4096, 50257))
    assert {i, j, inside} <= found and beyond not in found and (beyond - beyond) + j not in found
    assert i * const(5, "i64") not in narrow_indices([i * 5], (1 << 30, 1))
    assert not narrow_indices([inside], (object(), object())), "of symbolic sizes"


ARGMAX = """kernel k(b0: f32, b1: i64 out)
  loop i0 < {rows} rows, i1 < {long}
    stage
      r0 = argmax.i64 b0[{long}*i0 + i1]
      row b1[i0] = r0
"""


@needs_interpreter
def test_positions_are_of_32_bits_where_these_hold_them():
    assert "tl.int32" in print_kernel(parse_kernel(ARGMAX.format(rows=4, long=9000))).text
    far = print_kernel(parse_kernel(ARGMAX.format(rows=1, long=1 << 31))).text
    assert "i0.to(tl.int64)" in far or "i1.to(tl.int64)" in far
    x = np.random.default_rng(0).integers(0, 5, (4, 9000)).astype(np.float32)
    x[1, 700], x[2, 50] = np.nan, np.inf
    found = run(parse_kernel(ARGMAX.format(rows=4, long=9000)), [x.ravel(), np.zeros(4, np.int64)], "triton")[1]
    np.testing.assert_array_equal(found, x.argmax(1))


PRODUCTS = """kernel k(b0: f32, b1: f32, b2: f32 out)
  loop i0 < 2 rows, i1 < {long}
    stage
      r0 = sum.f32 mul(b0[{long}*i0 + i1], b1[i0])
      row b2[i0] = r0
"""


@needs_interpreter
def test_products_are_rounded_once_where_they_are_summed_up_to_the_rows_end():
    whole = parse_kernel(PRODUCTS.format(long=1 << 14))
    assert "tl.fma" in print_kernel(whole).text
    assert "tl.fma" not in print_kernel(parse_kernel(PRODUCTS.format(long=(1 << 14) - 1))).text
    x = np.random.default_rng(0).standard_normal((2, 1 << 14)).astype(np.float32)
    y = np.array([3.1, -0.7], np.float32)
    found = run(whole, [x.ravel(), y, np.zeros(2, np.float32)], "triton")[2]
    want = (x.astype(np.float64) * y[:, None]).sum(1)
    np.testing.assert_allclose(found, want, atol=1e-6 * np.abs(x * y[:, None]).sum(1).max())


def test_rows_that_are_added_at_indices_are_walked_along_memory():
    text = """kernel k(b0: f32 out, b1: i64, b2: f32)
  loop i0 < 4096, i1 < 1024 rows
    stage
      b0[i1 + 1024*@0](within(b1[i0], 8192.i64)) += mul(b2[1024*i0 + i1], 2.0.f32)
"""
    assert simplify(parse_kernel(text).loops[0], expands=False).stages[0].stores[0].access.strides == (0, 1)
