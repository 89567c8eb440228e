"""GPU matrix product kernels: equal to the CPU kernel, and compiled to machine code."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from burnish.codegen.triton import compile_matmul
from burnish.codegen.triton.compilation.cubin_cache import emitted
from burnish.codegen.triton.matmul_kernel import print_matrix
from burnish.errors import InternalError
from burnish.runtime.linking import cuda_module_loader
from burnish.schedule.library.gpu_matmul_spec import KernelSpec, LaunchableKernel, MatmulTiles
from burnish.tensors.tensor_types import TensorType

from ..codegen.run_kernel import _from_memory, _to_memory, is_interpreted, run
from ..codegen.triton_interpreter import Interpreted
from ..schedule.parse_loops import parse_kernel
from .test_golden_kernels import buffers_of

interpreted_here = pytest.mark.skipif(not is_interpreted(), reason="Triton's interpreter is too old")

SMALL = MatmulTiles(16, 32, 16, 4, 3)


def product(dtype, count, m, n, k, a, b, out="r0", others=(), stored="", result=None):
    """`a` and `b` are loads, or expressions of them; `out` is an expression of r0."""
    result = result or dtype
    wide = (lambda x: x) if dtype == "f32" else (lambda x: f"cast.f32({x})")
    heads = ", ".join(f"b{i}: {d}" for i, d in enumerate((dtype, dtype, *others), 1))
    stored = stored or f"{m * n}*i0 + {n}*i1 + i2"
    return parse_kernel(f"""kernel product(b0: {result} out, {heads})
  loop i0 < {count}, i1 < {m}, i2 < {n} rows, i3 < {k}
    stage
      r0 = sum.f32 mul({wide(a)}, {wide(b)})
      row b0[{stored}] = {out}
""")


def narrow(dtype, text="r0"):
    return text if dtype == "f32" else f"cast.{dtype}({text})"


def same(kernel, tiles=SMALL):
    buffers = buffers_of(kernel)
    want = run(kernel, buffers)[0]
    memory = [_to_memory(buffer, dtype) for buffer, dtype in zip(buffers, kernel.dtypes, strict=True)]
    printed = print_matrix(kernel, tiles, "tf32")
    Interpreted(printed)(*(array.ctypes.data for array in memory))
    got = _from_memory(memory[0], kernel.dtypes[0])
    eps = {"f32": 2e-6, "f16": 2e-3, "bf16": 2e-2}[kernel.dtypes[0]]
    scale = max(np.abs(want[np.isfinite(want)].astype(np.float64)).max(), 1.0)
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=0, atol=eps * scale)
    return printed


@interpreted_here
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("m, n, k", [(32, 64, 32), (37, 45, 29), (5, 7, 3), (150, 40, 16)])
def test_tiles_that_fit_and_tiles_that_reach_over_the_end(dtype, m, n, k):
    same(product(dtype, 1, m, n, k, f"b1[{k}*i1 + i3]", f"b2[{k}*i2 + i3]", narrow(dtype)))


@interpreted_here
@pytest.mark.parametrize(
    "a, b, why",
    [
        ("b1[37*i3 + i1]", "b2[45*i3 + i2]", "both turned over"),
        ("b1[64*i1 + i3 + 3]", "b2[64*i2 + 2*i3]", "with gaps, from within"),
        ("b1[i3]", "b2[29*i2 + i3]", "every row the same"),
        ("b1[29*i1 + i3]", "b2[i2]", "the same all along what is summed up"),
    ],
)
def test_operands_with_other_strides(a, b, why):
    same(product("f16", 1, 37, 45, 29, a, b, "cast.f16(r0)"))


@interpreted_here
def test_a_batch_of_products_that_share_one_operand():
    same(product("bf16", 3, 20, 33, 18, "b1[360*i0 + 18*i1 + i3]", "b2[33*i3 + i2]", "cast.bf16(r0)"))


@interpreted_here
def test_rows_of_tiles_are_gone_through_together_and_each_tile_once():
    printed = same(product("f32", 2, 16 * 11, 70, 16, "b1[2816*i0 + 16*i1 + i3]", "b2[16*i2 + i3]"))
    assert "tl.minimum" in printed.text and printed.grid == 2 * 11 * 3


@interpreted_here
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_bias_residual_and_epilogue_are_computed_before_the_result_is_stored(dtype):
    bias = "b3[i2]" if dtype == "f32" else "cast.f32(b3[i2])"
    y = narrow(dtype, f"add(r0, {bias})")
    printed = same(
        product(
            dtype,
            1,
            37,
            45,
            29,
            "b1[29*i1 + i3]",
            "b2[29*i2 + i3]",
            f"add(max(tanh({y}), 0.0.{dtype}), b4[45*i1 + i2])",
            others=(dtype, dtype),
        )
    )
    assert f"def tanh_{dtype}" in printed.text


@interpreted_here
def test_a_transposed_result_of_another_dtype():
    same(
        product(
            "bf16",
            1,
            20,
            33,
            18,
            "b1[18*i1 + i3]",
            "b2[18*i2 + i3]",
            "mul(cast.f32(cast.bf16(r0)), 0.5.f32)",
            stored="20*i2 + i1",
            result="f32",
        )
    )


@interpreted_here
def test_prologue_inputs_are_zero_beyond_the_end():
    """exp(0) is 1, and log(0) times 0 is NaN."""
    same(product("f16", 1, 37, 45, 29, "exp(b1[29*i1 + i3])", "exp(b2[29*i2 + i3])", "cast.f16(r0)"))
    same(product("f32", 1, 37, 45, 29, "log(add(abs(b1[29*i1 + i3]), 0.0.f32))", "b2[29*i2 + i3]"))


@interpreted_here
def test_an_operand_that_is_cast_as_it_is_loaded():
    kernel = parse_kernel("""kernel cast(b0: bf16 out, b1: f32, b2: f32)
  loop i0 < 1, i1 < 20, i2 < 33 rows, i3 < 18
    stage
      r0 = sum.f32 mul(cast.f32(cast.bf16(b1[18*i1 + i3])), cast.f32(cast.bf16(b2[18*i2 + i3])))
      row b0[33*i1 + i2] = cast.bf16(r0)
""")
    assert "tl.dot(v" in same(kernel).text


def test_the_precision_of_f32_follows_the_setting():
    kernel = product("f32", 1, 32, 32, 32, "b1[32*i1 + i3]", "b2[32*i2 + i3]")
    assert 'input_precision="ieee"' in print_matrix(kernel, SMALL, "ieee").text
    assert 'input_precision="tf32"' in print_matrix(kernel, SMALL, "tf32").text


def test_far_places_are_counted_in_64_bits():
    far = product("f16", 1, 1 << 17, 64, 1 << 15, f"b1[{1 << 15}*i1 + i3]", "b2[64*i3 + i2]", "cast.f16(r0)")
    assert "to(tl.int64)[:, None]" in print_matrix(far, SMALL, "ieee").text
    near = product("f16", 1, 64, 64, 64, "b1[64*i1 + i3]", "b2[64*i3 + i2]", "cast.f16(r0)")
    assert "int64" not in print_matrix(near, SMALL, "ieee").text


def test_another_kernel_is_not_a_product():
    kernel = parse_kernel("""kernel sums(b0: f32 out, b1: f32)
  loop i0 < 4 rows, i1 < 4
    stage
      r0 = sum.f32 b1[4*i0 + i1]
      row b0[i0] = r0
""")
    with pytest.raises(InternalError, match="no product"):
        print_matrix(kernel, SMALL, "ieee")


@pytest.mark.parametrize(
    "dtype, tiles, precision",
    [
        ("bf16", MatmulTiles(128, 128, 64, 8, 3), "ieee"),
        ("f16", MatmulTiles(64, 64, 64, 4, 4), "ieee"),
        ("f32", MatmulTiles(64, 64, 32, 4, 3), "tf32"),
        ("f32", MatmulTiles(64, 64, 32, 8, 4), "ieee"),
    ],
)
def test_triton_makes_machine_code_for_hopper(dtype, tiles, precision, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    wide = "b3[i2]" if dtype == "f32" else "cast.f32(b3[i2])"
    kernel = product(
        dtype,
        1,
        1000,
        1000,
        1000,
        "b1[1000*i1 + i3]",
        "b2[1000*i2 + i3]",
        f"max({narrow(dtype, f'add(r0, {wide})')}, 0.0.{dtype})",
        others=(dtype,),
    )
    made = emitted(print_matrix(kernel, tiles, precision), 90)
    held = (tiles.rows + tiles.columns) * tiles.depth * {"f32": 4}.get(dtype, 2)
    assert made.code[:4] == b"\x7fELF" and made.threads == 32 * tiles.warps
    assert made.shared >= 2 * held  # several steps are in the works at a time


def test_configurations_are_made_side_by_side_and_one_that_the_gpu_does_not_take_says_why(tmp_path, monkeypatch):
    """Without a GPU: machine code for Hopper, and a driver that refuses much shared memory."""

    def load(code, name, shared, device):
        if shared > 100_000:
            raise RuntimeError("cuFuncSetAttribute of the CUDA driver: invalid argument (1)")
        return cuda_module_loader.CudaFunction(len(code), shared)

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compile_matmul, "architecture_of", lambda index: 90)
    monkeypatch.setattr(cuda_module_loader, "load", load)
    monkeypatch.setattr(cuda_module_loader, "launch_address", lambda: 8)
    kernel = product("bf16", 1, 1024, 1024, 1024, "b1[1024*i1 + i3]", "b2[1024*i2 + i3]", "cast.bf16(r0)")
    type = TensorType.contiguous((1024, 1024), torch.bfloat16, torch.device("cuda", 0))
    spec = KernelSpec(kernel, (type,) * 3, ("product", "x0", "x1"), "ieee")
    small, large = MatmulTiles(64, 64, 32, 4, 3), MatmulTiles(128, 256, 64, 8, 4)
    for _ in range(2):
        made, refused = compile_matmul.make([(spec, small), (spec, large)])
        assert isinstance(made, LaunchableKernel) and made.stream.device == 0
        assert isinstance(refused, str) and "cuFuncSetAttribute" in refused
    assert compile_matmul.make([(spec, small)])[0].words is made.words, "what was made stays"
