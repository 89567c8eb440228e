"""Instructions that a thread executes, counted in a listing of machine code."""

from pathlib import Path

import pytest
from bench.dynamic_instructions import executed
from bench.graph_launches import table
from bench.record import BURNISH, TORCH_COMPILE

from bench import dynamic_instructions

LOOP = """
MOV R1, R2
.L_x_0
LDG.E R4, [R2.64]
IADD3 R12, P6, R12, 0x800, RZ
ISETP.GE.U32.AND P0, PT, R12, 0x4000, PT
@!P0 BRA `(.L_x_0)
EXIT
"""

SLOW_PATH = """
MUFU.RCP R1, R2
@!P0 BRA `(.L_x_1)
MOV R3, R4
CALL.REL.NOINC `($__internal_0_$__cuda_sm3x_div_rn_noftz_f32_slowpath)
.L_x_1
EXIT
"""

TWO_LOOPS = "\n".join(
    ["@P0 BRA `(.L_x_2)", *["FADD R1, R1, R2"] * 40, "EXIT", ".L_x_2", *["FADD R1, R1, R2"] * 20, "EXIT"]
)


@pytest.mark.parametrize(("text", "count"), [(LOOP, 1 + 8 * 4 + 1), (SLOW_PATH, 3), (TWO_LOOPS, 1 + 41 / 2 + 21 / 2)])
def test_loops_count_by_their_counters_and_branches_by_skipped_length(text, count, monkeypatch):
    monkeypatch.setattr(dynamic_instructions, "listing", lambda cubin: tuple(text.strip().splitlines()))
    executed.cache_clear()
    assert executed(Path("a.cubin")) == count
    executed.cache_clear()


def test_the_table_has_the_means_of_the_ratios_and_says_what_failed():
    ours = {"launches": 1.0, "MB": 8.0, "instructions": 1.0, "peak MB": 4.0}
    theirs = {"launches": 2.0, "MB": 2.0, "instructions": 1.0, "peak MB": 4.0}
    text = table(
        {BURNISH: {"a": ours, "b": ours, "c": "it failed"}, TORCH_COMPILE: {"a": theirs, "b": ours, "c": theirs}}
    )
    assert "it failed" in text
    means = next(line for line in text.splitlines() if line.startswith("geometric mean"))
    assert means.split()[2:] == ["0.71", "2.00", "1.00", "1.00"]
