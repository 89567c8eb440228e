"""Kernels become object files for systems and processors that are not here. Whether they run there is not known."""

from dataclasses import replace

import llvmlite.binding as llvm
import pytest

from burnish.codegen.llvm.print_kernel_module import print_ir
from burnish.codegen.llvm.target_cpu import preset

from .test_printed_llvm import KERNELS

ELF_OF_ARM = b"\x7fELF\x02\x01\x01"
COFF_OF_X86 = (0x8664).to_bytes(2, "little")
MACH_O_OF_64_BITS = (0xFEEDFACF).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("cpu", "triple", "start"),
    [
        ("neoverse-n1", "aarch64-unknown-linux-gnu", ELF_OF_ARM),
        ("neoverse-n1", "arm64-apple-macosx13.0", MACH_O_OF_64_BITS),
        ("x86-64-v3", "x86_64-apple-macosx13.0", MACH_O_OF_64_BITS),
        ("x86-64-v3", "x86_64-pc-windows-msvc", COFF_OF_X86),
    ],
)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_kernel_becomes_an_object_file(kernel, cpu, triple, start):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(print_ir(kernel, replace(preset(cpu), triple=triple)), llvm.create_context())
    module.triple = triple
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=3)
    assert machine.emit_object(module).startswith(start)
