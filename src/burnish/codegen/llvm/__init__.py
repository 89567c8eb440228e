"""LLVM code generation for CPUs: loop nests to LLVM IR with explicit vectors, and from there to machine code.

    print_kernel_module.print_ir(kernel)                    the text, with the loops as comments on top
    compile_to_machine_code.compile_kernel(kernel)    a NativeKernel
    kernel_sequence.compile_sequence(steps)           several of them in one call
    functions.matmul.make(product)                    a matmul, see `schedule.library.own_kernels`

Box (a simplified loop) -> VectorPlan (what becomes lanes) -> text, from inside out -> object code -> memory.
"""
