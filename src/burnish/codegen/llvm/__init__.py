"""The CPU printer: loop nests to LLVM IR with explicit vectors, and from there to machine code.

    print_ir(kernel)               the text, the loops as comments on top
    compile_kernel(kernel)         a NativeKernel
    compile_sequence(steps)        several of them in one call
    compile_product(product)       a matrix product or a convolution, see `schedule.library.own`

Box (a loop made simple) -> Plan (what becomes lanes) -> text, from inside out -> object code -> memory.
"""

from __future__ import annotations

from ...schedule.library import own
from . import attention, batches, gemm, padding, products, recurrent
from .compile import compile_kernel, compile_kernels
from .kernel import print_ir
from .products import make as compile_product
from .sequence import compile_sequence
from .target import Host, host

own.offer(own.Maker(compile_product, batches.make_batched, padding.pad, attention.make_attention,
                    recurrent.make_recurrent, gemm.make_gemm, gemm.dtypes, products.tile_shape))

__all__ = ["Host", "compile_kernel", "compile_kernels", "compile_product", "compile_sequence", "host", "print_ir"]
