"""The target for CPUs: kernels by LLVM. Importing it registers the target with our own kernels of library calls.

`ops.target_record` holds the machine facts, since the scheduler plans for CPUs without a code generator too.
"""

from __future__ import annotations

from dataclasses import replace

from ..codegen.llvm.compile_to_machine_code import compile_kernel, compile_kernels
from ..codegen.llvm.functions import (
    attention,
    batched_matmul,
    matmul,
    mkl_gemm,
    pad_image,
    recurrent_layer,
    skinny_gemm,
    token_attention,
    winograd,
)
from ..codegen.llvm.functions.quantized import dequantized_weight, int4_fixed_point_product, integer_product
from ..codegen.llvm.target_cpu import host
from ..ops.target_record import CPU, register_target
from ..runtime.disk.compiler_identity import compiler_identity
from ..runtime.disk.disk_cache import disk_cache
from ..schedule.library.own_kernels.matmul_tiling_and_packing import NativeKernelMaker

NATIVE_KERNELS = NativeKernelMaker(
    product=matmul.make,
    batched=batched_matmul.make_batched,
    padding=pad_image.pad,
    attention=attention.make_attention,
    winograd=winograd.make_winograd,
    token_attention=token_attention.make_token_attention,
    recurrence=recurrent_layer.make_recurrent,
    skinny_gemm=skinny_gemm.make_skinny_gemm,
    quantized=int4_fixed_point_product.make_quantized,
    dequantized=dequantized_weight.make_dequantized,
    integers=integer_product.make_integers,
    gemm=mkl_gemm.make_gemm,
    dtypes_of_gemm=mkl_gemm.dtypes,
    dtypes_of_tiles=matmul.dtypes,
    dtypes_of_matrix_units=matmul.dtypes_of_matrix_units,
    shape=matmul.tile_shape,
)

MEASURED = "measured"
"""The kind of entry on disk."""


class MeasurementsOnDisk:
    """Measurements of library calls, by this machine, this torch and this compiler: another version may have other
    candidates, which would never be measured beside remembered ones."""

    def get(self, key: str) -> str | None:
        shelf = disk_cache()
        found = shelf and shelf.get(MEASURED, self.key(key))
        return found and found.decode()

    def put(self, key: str, text: str) -> None:
        shelf = disk_cache()
        if shelf is not None:
            shelf.put(MEASURED, self.key(key), text.encode())

    def key(self, key: str) -> str:
        return f"{compiler_identity()}\n{key}"


HERE = replace(CPU, native_kernels=NATIVE_KERNELS, measurements=MeasurementsOnDisk())
register_target(CPU.name, lambda: HERE)

__all__ = ["MEASURED", "compile_kernel", "compile_kernels", "host"]
