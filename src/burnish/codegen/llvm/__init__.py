"""The CPU printer: loop nests to LLVM IR with explicit vectors, and from there to machine code.

    print_ir(kernel)               the text, the loops as comments on top
    compile_kernel(kernel)         a NativeKernel
    compile_sequence(steps)        several of them in one call

Box (a loop made simple) -> Plan (what becomes lanes) -> text, from inside out -> object code -> memory.
"""

from __future__ import annotations

from .compile import compile_kernel, compile_kernels
from .kernel import print_ir
from .sequence import compile_sequence
from .target import Host, host

__all__ = ["Host", "compile_kernel", "compile_kernels", "compile_sequence", "host", "print_ir"]
