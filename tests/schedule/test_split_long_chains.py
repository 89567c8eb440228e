"""Chains of elementwise operators that are longer than Python's recursion limit or a kernel's limit."""

import pytest
import torch

import burnish
from burnish.ops.scalar_ir import walk
from burnish.schedule.fusion.split_long_chains import MOST

from ..recorded_events import recorded


def compiled(fn, *inputs):
    """The result, the number of operations of each kernel, and the events about loops."""
    with recorded("loops") as seen, burnish.settings.patch(on_error="raise", never_slower=False), torch.no_grad():
        run = burnish.compile(fn, fullgraph=True)
        run(*inputs)
        result = run(*inputs)
    steps = [step for event in seen for step in event.data["plan"].steps]
    sizes = [operations(step.kernel) for step in steps if hasattr(step, "kernel")]
    return result, sizes, "".join(event.data["text"] for event in seen)


def operations(kernel):
    stages = [stage for loop in kernel.loops for stage in loop.stages]
    made = {x for stage in stages for store in (*stage.stores, *stage.row_stores) for x in walk(store.value)}
    made |= {x for stage in stages for reduction in stage.reductions for x in walk(reduction.value)}
    return sum(x.op not in ("const", "load") for x in made)


def chain(length):
    def fn(x):
        for k in range(length // 2):
            x = x * 0.75 + k % 3
        return x

    return fn


def test_a_long_chain_is_one_expression():
    x = torch.rand(64)
    found, sizes, _ = compiled(chain(250), x)
    torch.testing.assert_close(found, chain(250)(x))
    assert len(sizes) == 1


def test_a_longer_one_is_cut_and_work_grows_with_its_length():
    x = torch.rand(64)
    work = {}
    for length in (400, 800, 1600):
        found, work[length], _ = compiled(chain(length), x)
        torch.testing.assert_close(found, chain(length)(x))
    assert all(max(sizes) <= 2 * MOST for sizes in work.values())
    for length in (400, 800):
        assert sum(work[2 * length]) == pytest.approx(2 * sum(work[length]), rel=0.05)
        assert len(work[2 * length]) == pytest.approx(2 * len(work[length]), abs=1)


def test_an_event_says_why_a_chain_was_cut():
    assert f"{MOST} are as many as a kernel takes" in compiled(chain(600), torch.rand(64))[2]


def test_values_that_several_read_are_cut_as_well():
    def fn(x, y):
        for _ in range(100):
            x, y = y * 0.5 + x * 0.25, x * 0.5 - y
        return x, y

    x, y = torch.rand(16), torch.rand(16)
    found, sizes, _ = compiled(fn, x, y)
    torch.testing.assert_close(found, fn(x, y))
    assert max(sizes) <= 2 * MOST


def test_a_wide_tree_is_cut_as_well():
    def fn(parts):
        parts = list(parts)
        while len(parts) > 1:
            parts = [torch.maximum(a * 2, b + 1) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    x = torch.rand(256, 8)
    found, sizes, _ = compiled(lambda x: fn(x.unbind(0)), x)
    torch.testing.assert_close(found, fn(x.unbind(0)))
    assert max(sizes) <= 2 * MOST


def test_reductions_along_a_long_chain_are_cut_as_well():
    def fn(x):
        for _ in range(200):
            x = (x - x.mean(-1, keepdim=True)) * 1.5
        return x

    x = torch.rand(4, 32, dtype=torch.float64)
    found, sizes, _ = compiled(fn, x)
    torch.testing.assert_close(found, fn(x))
    assert len(sizes) > 1
    assert max(sizes) <= 2 * MOST
