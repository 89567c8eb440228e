"""The linker for ELF object files: linked code equals LLVM's, and unknown relocations are left to LLVM."""

import ctypes
import functools

import pytest

from burnish.codegen.llvm.compile_to_machine_code import object_code
from burnish.codegen.llvm.target_cpu import host
from burnish.runtime.linking import elf_linker, llvm_linker

pytestmark = pytest.mark.skipif(not elf_linker.is_supported(), reason="LLVM's linker is used here")

# A constant, a jump table, a function of its own by address, one outside that is given, and one of the C library.
TEXT = """
@numbers = private unnamed_addr constant [4 x i64] [i64 7, i64 11, i64 13, i64 17], align 32
declare i64 @given(i64)
declare i64 @labs(i64)

define internal i64 @own(i64 %x) {
  %y = mul i64 %x, 3
  ret i64 %y
}

define i64 @entry(i64 %which, i64 %x) {
  switch i64 %which, label %other [i64 0, label %a i64 1, label %b i64 2, label %c i64 3, label %d i64 4, label %e]
a:
  %at = getelementptr [4 x i64], ptr @numbers, i64 0, i64 %x
  %number = load i64, ptr %at
  ret i64 %number
b:
  %from.own = call i64 @own(i64 %x)
  ret i64 %from.own
c:
  %from.given = call i64 @given(i64 %x)
  ret i64 %from.given
d:
  %from.library = call i64 @labs(i64 %x)
  ret i64 %from.library
e:
  %address = ptrtoint ptr @own to i64
  %here = ptrtoint ptr @entry to i64
  %difference = sub i64 %address, %here
  %is.own = icmp ne i64 %difference, 0
  %one = zext i1 %is.own to i64
  ret i64 %one
other:
  ret i64 -1
}
"""
CASES = [(0, 0), (0, 3), (1, 5), (2, 9), (3, -4), (4, 0), (9, 9)]


@functools.cache
def code():
    return object_code(TEXT, host())


def given(x):
    return x + 100


GIVEN = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(given)
OUTSIDE = {"given": ctypes.cast(GIVEN, ctypes.c_void_p).value}


def called(linked):
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(linked.address_of("entry"))
    return [function(*case) for case in CASES]


def test_linked_code_equals_code_linked_by_llvm():
    ours = elf_linker.link(code(), OUTSIDE)
    assert ours is not None
    assert called(ours) == called(llvm_linker.link(code(), "entry", OUTSIDE)) == [7, 17, 15, 109, 4, 1, -1]


def test_code_cannot_be_written_to():
    linked = elf_linker.link(code(), OUTSIDE)
    start = linked.address_of("entry") // elf_linker.mmap.PAGESIZE * elf_linker.mmap.PAGESIZE
    with open("/proc/self/maps") as maps:
        line = next(
            line
            for line in maps
            if int(line.partition("-")[0], 16) <= start < int(line.partition("-")[2].partition(" ")[0], 16)
        )
    assert line.split()[1].startswith("r-x")


def test_missing_symbols_are_left_to_llvm():
    assert "missing" not in elf_linker.link(code(), OUTSIDE).functions
    assert elf_linker.link(code().replace(b"labs\0", b"lbas\0"), OUTSIDE) is None
    assert (
        elf_linker.link(
            object_code("@counter = global i64 0\n" + TEXT.replace("@numbers, i64 0", "@counter, i64 0"), host()),
            OUTSIDE,
        )
        is None
    ), "it has a variable"


def test_a_file_that_is_cut_short_is_not_linked():
    whole = code()
    for length in range(0, len(whole), 7):
        assert elf_linker.link(whole[:length], OUTSIDE) is None


def test_kinds_of_relocation_it_does_not_know_are_left_to_llvm():
    content = bytearray(code())
    sections = elf_linker._sections(bytes(content))
    at = next(section[4] for section in sections if section[1] == elf_linker.RELOCATIONS)
    offset, info, addend = elf_linker.RELOCATION.unpack_from(content, at)
    elf_linker.RELOCATION.pack_into(content, at, offset, info & ~0xFFFFFFFF | 4, addend)
    assert elf_linker.link(bytes(content), OUTSIDE) is None
    elf_linker.RELOCATION.pack_into(content, at, 1 << 40, info, addend)
    assert elf_linker.link(bytes(content), OUTSIDE) is None, "beyond its section"
