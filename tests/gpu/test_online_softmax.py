"""Long rows: the maximum and the sum of exponentials in one pass."""

import numpy as np
import pytest

pytest.importorskip("triton")

from burnish.codegen.triton.kernel_function import print_kernel

from ..codegen.run_kernel import is_interpreted, run
from ..schedule.parse_loops import parse_kernel

pytestmark = pytest.mark.skipif(not is_interpreted(), reason="no interpreter of Triton")

ROWS, LONG = 9, 9001
TEXT = f"""kernel k(b0: f32, b1: f32 out, b2: f32 out)
  loop i0 < {ROWS} rows, i1 < {LONG}
    stage
      r0 = max.f32 b0[{LONG}*i0 + i1]
      row b1[i0] = r0
    stage
      r1 = sum.f32 exp(sub(b0[{LONG}*i0 + i1], r0))
      row b2[i0] = r1
"""


def rows():
    random = np.random.default_rng(0)
    x = (random.standard_normal((ROWS, LONG)) * 8).astype(np.float32)
    x[1] = np.sort(x[1])  # each step finds a larger maximum
    x[2] = -np.inf
    x[3, 4000] = np.inf
    x[4, 5] = np.nan
    x[5, :5000] = -np.inf
    x[6] = 1e30 * x[6]
    x[7] -= 500
    x[8] = np.linspace(-200, 200, LONG)[::-1]
    return x


def test_sum_is_near_to_float64_and_nan_where_it_is():
    x = rows()
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        most = wide.max(1, keepdims=True)
        want = np.exp(wide - most).sum(1)
    _, maxima, sums = run(
        parse_kernel(TEXT), [x.ravel(), np.zeros(ROWS, np.float32), np.zeros(ROWS, np.float32)], "triton"
    )
    np.testing.assert_array_equal(maxima, most[:, 0].astype(np.float32))
    np.testing.assert_allclose(sums, want, rtol=1e-6)


def test_the_row_is_read_once_unless_it_is_read_again_anyway():
    assert print_kernel(parse_kernel(TEXT)).text.count("tl.load") == 1
    stores = f"    stage\n      b3[{LONG}*i0 + i1] = div(exp(sub(b0[{LONG}*i0 + i1], r0)), r1)\n"
    softmax = TEXT.replace("b2: f32 out", "b2: f32 out, b3: f32 out") + stores
    assert print_kernel(parse_kernel(softmax)).text.count("tl.load") == 2
    other = TEXT.replace("exp(sub(b0", "sub(exp(b0").replace("r0)\n      row b2", "r0)\n      row b2")
    assert print_kernel(parse_kernel(other.replace("], r0))", "]), r0)"))).text.count("tl.load") == 2
