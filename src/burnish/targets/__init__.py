"""Targets: for each kind of device, the code generator and the machine facts that the pipeline uses for it.

cpu.py                 kernels by LLVM; registers our own kernels of library calls (matmul, attention, recurrent layers)
cuda.py                kernels by Triton; registers the `Target` that the scheduler reads, when a graph needs it
kernel_compilers.py    each kernel of a plan is compiled by the compiler of its device
"""
