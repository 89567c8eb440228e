"""The text of kernels is for every target of Triton: its backend for AMD's GPUs compiles it for an MI300."""

import pytest

pytest.importorskip("triton")

from burnish.codegen.triton.compilation.invoke_triton import Job, compiled
from burnish.codegen.triton.kernel_function import print_kernel

from ..schedule.parse_loops import parse_kernel

backends = pytest.importorskip("triton.backends")
pytestmark = pytest.mark.skipif("amd" not in backends.backends, reason="Triton is built without AMD's backend")

THREADS = 64
"""Of a wave."""

KERNELS = {
    "functions": """kernel k(b0: bf16, b1: f32, b2: bf16 out, b3: f32 out)
  loop i0 < 5000 rows
    stage
      b2[i0] = cast.bf16(mul(cast.f32(b0[i0]), sigmoid(cast.f32(b0[i0]))))
      b3[i0] = add(div(tanh(b1[i0]), add(erf(b1[i0]), 2.0.f32)), max(sin(b1[i0]), sqrt(exp(b1[i0]))))
""",
    "softmax": """kernel k(b0: f16, b1: f16 out)
  loop i0 < 64 rows, i1 < 1000
    stage
      r0 = max.f32 cast.f32(b0[1000*i0 + i1])
    stage
      r1 = sum.f32 exp(sub(cast.f32(b0[1000*i0 + i1]), r0))
    stage
      b1[1000*i0 + i1] = cast.f16(div(exp(sub(cast.f32(b0[1000*i0 + i1]), r0)), r1))
""",
    "long rows": """kernel k(b0: bf16, b1: f32 out, b2: f32 out)
  loop i0 < 64 rows, i1 < 50257
    stage
      r0 = max.f32 cast.f32(b0[50257*i0 + i1])
      row b1[i0] = r0
    stage
      r1 = sum.f32 exp(sub(cast.f32(b0[50257*i0 + i1]), r0))
      row b2[i0] = log(r1)
""",
    "positions": """kernel k(b0: f32, b1: i64 out)
  loop i0 < 64 rows, i1 < 9000
    stage
      r0 = argmax.i64 b0[9000*i0 + i1]
      row b1[i0] = r0
""",
    "transpose": """kernel k(b0: bf16 out, b1: bf16)
  loop i0 < 512, i1 < 512 rows
    stage
      b0[512*i0 + i1] = cast.bf16(mul(cast.f32(b1[i0 + 512*i1]), 2.0.f32))
""",
    "random numbers": """kernel k(b0: f32 out, b1: i64)
  loop i0 < 5000 rows
    stage
      b0[i0] = cast.f32(lt(and(random_bits(b1[0], i0), 4294967295.i64), 3865470566.i64))
""",
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_compiled_for_amd(name, tmp_path, monkeypatch):
    from triton.backends.compiler import GPUTarget

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    printed = print_kernel(parse_kernel(KERNELS[name]))
    job = Job(printed.name, printed.text, printed.dtypes, printed.numbers, max(printed.warps // 2, 1), 0)
    made = compiled(job, GPUTarget("hip", "gfx942", THREADS))
    assert "amdhsa_kernel k" in made.asm["amdgcn"] and "gfx942" in made.asm["amdgcn"]
