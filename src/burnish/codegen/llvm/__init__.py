"""LLVM code generation for CPUs: loop nests to LLVM IR with explicit vectors, and from there to machine code.

    print_ir(kernel)               the text, with the loops as comments on top
    compile_kernel(kernel)         a NativeKernel
    compile_sequence(steps)        several of them in one call
    compile_product(product)       a matmul, see `schedule.library.own_kernels.matmul_tiling_and_packing`

Box (a simplified loop) -> VectorPlan (what becomes lanes) -> text, from inside out -> object code -> memory.
"""

from __future__ import annotations

from ...schedule.library.own_kernels import matmul_tiling_and_packing
from .compile_to_machine_code import compile_kernel, compile_kernels
from .functions import attention, batched_matmul, matmul, mkl_gemm, pad_image, recurrent_layer
from .functions.matmul import make as compile_product
from .kernel_module import print_ir
from .kernel_sequence import compile_sequence
from .target_machine import Host, host

matmul_tiling_and_packing.register_maker(
    matmul_tiling_and_packing.Maker(
        compile_product,
        batched_matmul.make_batched,
        pad_image.pad,
        attention.make_attention,
        recurrent_layer.make_recurrent,
        mkl_gemm.make_gemm,
        mkl_gemm.dtypes,
        matmul.tile_shape,
    )
)

__all__ = ["Host", "compile_kernel", "compile_kernels", "compile_product", "compile_sequence", "host", "print_ir"]
