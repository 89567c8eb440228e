"""Values that are only read in half precision use approximate instructions, and round to eager's results."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

pytest.importorskip("triton")

import burnish
from burnish.codegen.triton.analysis.find_approximable_results import approximate_results
from burnish.codegen.triton.kernel_function import print_kernel
from burnish.ops.scalar_ir import Access, cast, load

from ..codegen.run_kernel import is_interpreted, run
from ..schedule.parse_loops import parse_kernel
from .simulated_gpu import interpreted

needs_interpreter = pytest.mark.skipif(not is_interpreted(), reason="no interpreter of Triton")


def element(dtype, buffer=0):
    return load(dtype, Access(buffer, 0, (1,)))


def test_products_hand_on_errors_and_sums_do_not():
    x = cast(element("bf16"), "f32")
    silu = x * x.sigmoid()
    assert x.sigmoid() in approximate_results([cast(silu, "bf16")])
    assert x.sigmoid() in approximate_results([cast(-silu / x.exp(), "f16")])
    assert x.sigmoid() not in approximate_results([cast(silu + 1.0, "bf16")])
    assert x.sigmoid() not in approximate_results([silu]), "f32 is stored"
    assert x.sigmoid() not in approximate_results([cast(silu, "bf16"), x.sigmoid()]), "f32 reads it as well"
    assert x.sigmoid() not in approximate_results([cast(silu, "bf16"), cast(silu, "f64")])


@needs_interpreter
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: F.silu(x) * y,
        lambda x, y: x.float().sigmoid().to(x.dtype),
        lambda x, y: (x.float().exp() / (1 + y.float() ** 2)).to(x.dtype),
        lambda x, y: torch.softmax(x, -1),
        lambda x, y: (x.float() / y.float().abs().sum(-1, keepdim=True)).to(x.dtype),
    ],
    ids=["swiglu", "sigmoid", "quotient", "softmax", "normalized"],
)
def test_it_differs_from_eager_by_a_rounding_error_of_half_precision(fn, dtype):
    x, y = ((torch.randn(7, 300) * 8).to(dtype) for _ in range(2))
    x[0, :4] = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0])
    x[1, :3] = torch.tensor([-60000.0, 60000.0, 88.5])
    with interpreted() as ran:
        compiled = burnish.compile(fn, fullgraph=True)
        compiled(x, y)  # captured: the operators run one by one
        got = compiled(x, y)
        assert ran
    exact = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}[dtype]
    want = fn(x, y)
    assert torch.equal(got.isnan(), want.isnan())
    finite = want.isfinite()
    assert torch.equal(got.isinf(), want.isinf())
    off = (got.double() - want.double()).abs()[finite]
    allowed = (2 * exact * want.double().abs() + torch.finfo(dtype).tiny)[finite]
    assert (off <= allowed).all(), off.max()


DIVIDED = """kernel k(b0: f32, b1: f32, b2: f32 out)
  loop i0 < 8 rows, i1 < 300
    stage
      r0 = sum.f32 b1[300*i0 + i1]
    stage
      b2[300*i0 + i1] = div(exp(b0[300*i0 + i1]), r0)
"""


@needs_interpreter
def test_a_row_is_divided_by_multiplications_for_every_divisor():
    assert print_kernel(parse_kernel(DIVIDED)).text.count("div_rn") == 1
    assert "div_rn((" not in print_kernel(parse_kernel(DIVIDED.replace("exp(b0", "abs(b0"))).text
    x = np.random.default_rng(0).uniform(-80, 80, (8, 300)).astype(np.float32)
    y = np.zeros((8, 300), np.float32)
    y[:, 0] = [1e-44, 3e-39, 1e-33, 7.0, 1e33, 3e38, np.inf, 0.0]
    with np.errstate(all="ignore"):
        want = np.exp(x.astype(np.float64)) / y.sum(1, dtype=np.float64, keepdims=True)
        found = run(parse_kernel(DIVIDED), [x.ravel(), y.ravel(), np.zeros(2400, np.float32)], "triton")[2].reshape(
            8, 300
        )
        rounded = want.astype(np.float32)
    normal = np.isfinite(rounded) & (np.abs(rounded) > 2e-38)
    np.testing.assert_allclose(found[normal], want[normal], rtol=4e-7)
    assert (np.abs(found[~normal & np.isfinite(rounded)]) < 3e-38).all()
    large = np.isinf(rounded)
    assert (found[large] > 3e38).all()
