"""Large arenas release their pages between calls, never during one, and results do not change."""

import gc
import mmap
import sys
import threading

import pytest
import torch

import burnish
from burnish.runtime.program import arena_memory
from burnish.runtime.program.arena_memory import LARGE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems keep the pages")

ROWS = 2200
"""Of square matrices: two of them are more than LARGE."""


def steps(x):
    """None can be fused with the next, nor reuse the previous buffer: each reads all of it, at other indices."""
    for step in range(6):
        x = torch.softmax(x.flip(1) * 2, step % 2)
    return x.sum()


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


@pytest.fixture
def compiled():
    made = arena_memory.count_large_arenas()
    fn = burnish.compile(steps)
    x = torch.randn(ROWS, ROWS)
    for _ in range(2):
        assert fn(x) == pytest.approx(float(steps(x)))
    assert arena_memory.count_large_arenas() == made + 1
    return fn, x


def test_pages_go_and_come_back(compiled):
    fn, x = compiled
    expected, before = fn(x), resident()
    assert arena_memory.give_back()
    assert resident() < before - LARGE
    made = arena_memory.count_large_arenas()
    assert fn(x) == expected and arena_memory.count_large_arenas() == made
    assert resident() > before - LARGE // 2


def test_an_arena_in_use_keeps_its_contents(compiled):
    fn, x = compiled
    expected, wrong = fn(x), []

    def work():
        for _ in range(30):
            if fn(x) != expected:
                wrong.append(x)

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        arena_memory.give_back()
    thread.join()
    assert not wrong


def test_programs_are_not_held_for_their_arenas():
    gc.collect()
    before, fn = len(arena_memory._owners), burnish.compile(steps)
    fn(torch.randn(ROWS, ROWS))
    assert len(arena_memory._owners) == before + 1
    burnish.reset()
    del fn
    gc.collect()
    assert len(arena_memory._owners) == before


def test_small_ones_are_left_alone():
    fn, x = burnish.compile(steps), torch.randn(64, 64)
    made = arena_memory.count_large_arenas()
    fn(x), fn(x)
    assert arena_memory.count_large_arenas() == made
