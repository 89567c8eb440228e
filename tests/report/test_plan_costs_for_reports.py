"""The costs of a plan's steps, against numbers worked out by hand."""

import torch

import burnish
from burnish import events


def steps_of(fn, *inputs, kind=None):
    """The steps of the plans that calls of a function make, without views."""
    plans = []
    stop = events.subscribe(lambda event: plans.append(event.data["describe"]()), ["plan"])
    compiled = burnish.compile(fn)
    with torch.no_grad():
        for _ in range(2):
            compiled(*inputs)
    stop()
    return [step for plan in plans for step in plan["steps"] if step["kind"] != "view"], plans


def test_elementwise_kernel_counts_each_function_of_each_element():
    (step,), (plan,) = steps_of(lambda x, y: torch.sin(x) * y + 1, torch.ones(8, 16), torch.ones(8, 16))
    assert step["kind"] == "kernel" and step["operations"] == 3 * 128
    assert (step["read"], step["written"]) == (2 * 128 * 4, 128 * 4)
    assert (plan["inputs"], plan["outputs"], plan["arena"], plan["buffers"]) == (2 * 128 * 4, 128 * 4, 0, [])
    assert plan["peak"] == 3 * 128 * 4
    assert "test_plan_costs_for_reports.py" in step["lines"][0] and step["lines"][0].modules == ()


def test_broadcast_operand_is_read_once():
    (step,), _ = steps_of(lambda x, y: x + y, torch.ones(8, 16), torch.ones(16))
    assert (step["operations"], step["read"], step["written"]) == (128, (128 + 16) * 4, 128 * 4)


def test_gathered_rows_count_as_what_is_read_of_the_table():
    table, at = torch.ones(1000, 16), torch.tensor([3, 5])
    steps, _ = steps_of(lambda table, at: table[at] * 2, table, at)
    assert steps[-1]["written"] == 2 * 16 * 4 and sum(step["read"] for step in steps) <= 3 * 2 * 16 * (4 + 8)


def test_products_and_attention_count_as_torch_counts_them():
    x, w = torch.ones(32, 64), torch.ones(64, 48)
    steps, _ = steps_of(lambda x, w: x @ w, x, w)
    assert [step["operations"] for step in steps] == [2 * 32 * 64 * 48]
    assert (steps[0]["read"], steps[0]["written"]) == ((32 * 64 + 64 * 48) * 4, 32 * 48 * 4)
    image, kernel = torch.ones(1, 3, 10, 10), torch.ones(4, 3, 3, 3)
    steps, _ = steps_of(lambda image, kernel: torch.conv2d(image, kernel), image, kernel)
    assert sum(step["operations"] or 0 for step in steps) == 2 * 4 * 8 * 8 * 3 * 9


def test_operator_that_nobody_counts_has_no_number():
    steps, _ = steps_of(lambda x: torch.sort(x)[0], torch.ones(8))
    assert [(step["kind"], step["operations"]) for step in steps] == [("call", None)]


def test_buffers_of_a_plan_lie_in_its_arena_while_they_live():
    def chain(x):
        for _ in range(3):
            x = torch.softmax(torch.sort(x)[0], -1)
        return x

    _, (plan,) = steps_of(chain, torch.ones(64, 64))
    assert plan["buffers"] and all(b["offset"] + b["bytes"] <= plan["arena"] for b in plan["buffers"])
    assert all(0 <= b["first"] <= b["last"] < len(plan["steps"]) for b in plan["buffers"])


def test_nothing_is_computed_unless_somebody_asks_for_plans():
    compiled = burnish.compile(lambda x: x + 1)
    kinds = []
    events.subscribe(lambda event: kinds.append(event.kind))
    compiled(torch.ones(3))
    assert "loops" in kinds and "plan" not in kinds
