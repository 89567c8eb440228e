"""Targets: for each kind of device, the code generator and the machine facts that the pipeline uses for it.

cpu.py                 kernels by LLVM, our own kernels of library calls, and what was measured of these calls
cuda.py                kernels by Triton
kernel_compilers.py    each kernel of a plan is compiled by the compiler of its device
"""
