"""GEMM microkernels for other processors use only the registers and instructions of their target."""

import re

import pytest

from burnish.codegen.llvm.compile_to_machine_code import assembly
from burnish.codegen.llvm.functions import matmul
from burnish.codegen.llvm.functions.gemm_microkernel import print_tile
from burnish.codegen.llvm.target_cpu import host, initialize, preset
from burnish.schedule.library.own_kernels.matmul_tiling_and_packing import MatmulTile

TILES = [
    MatmulTile((3, 3), 2),
    MatmulTile((3, 3), 2, is_blocked=True),
    MatmulTile((2,), 1, is_masked=True, has_residual=True),
    MatmulTile((3, 2), 2, is_depthwise=True),
]
is_x86 = host().triple.startswith("x86_64")


@pytest.mark.skipif(not is_x86, reason="prints for x86-64")
@pytest.mark.parametrize("tile", TILES, ids=repr)
def test_tile_for_avx2_fits_its_sixteen_registers(tile):
    initialize()
    matmul.with_assembler()
    text = assembly(print_tile(tile, preset("x86-64-v3")), preset("x86-64-v3"))
    assert "zmm" not in text and not re.search(r"%ymm(1[6-9]|2\d|3[01])", text)
    assert "vfmadd" in text


@pytest.mark.skipif(not is_x86 or host().vector_bits != 512, reason="has no AVX-512")
def test_sums_of_the_largest_tile_stay_in_registers():
    matmul.with_assembler()
    body = assembly(print_tile(MatmulTile((7, 7), 2), host()), host())
    loops = re.findall(r"#APP(.*?)#NO_APP", body, re.S)
    assert len(loops) == 2
    for loop in loops:
        assert "rsp" not in loop and loop.count("vfmadd231ps") % 28 == 0


@pytest.mark.parametrize("tile", TILES, ids=repr)
def test_tile_for_other_processors_holds_no_instructions_of_this_one(tile):
    assert "asm sideeffect" not in print_tile(tile, preset("neoverse-n1"))
