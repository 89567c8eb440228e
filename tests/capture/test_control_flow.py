"""Loops, conditions and arithmetic: on shapes, on flags, and on tensor data in the middle of everything."""

import array
import collections
import math
import os

import pytest
import torch

import burnish

from .call_sequences import Before, ordinary, swing, swinging
from .harness import program


@program(breaks=0)
def test_branch_on_a_shape():
    def fn(x):
        if x.shape[0] > 2 and x.dim() == 1:
            return x[:2] + 1
        elif x.dim() == 2:
            return x.t() * 2
        return x - 1

    return fn, [(torch.randn(*s),) for s in ((3,), (2,), (2, 3), (4,), (3,))]


@program(breaks=0)
def test_for_loop_with_a_shape_as_bound():
    def fn(x):
        total = torch.zeros(x.shape[1])
        for i in range(x.shape[0]):
            total = total + x[i] * i
        return total

    return fn, [(torch.randn(3, 2),), (torch.randn(5, 2),), (torch.randn(3, 2),)]


@program(breaks=0)
def test_while_loop_halves_an_integer():
    def fn(x, n):
        steps = 0
        while n > 1:
            n, steps = n // 2, steps + 1
            x = x * 2 if n % 2 else x + 1
        return x, steps

    return fn, [(torch.randn(2), n) for n in (8, 6, 1, 8)]


@program(breaks=0)
def test_for_else_without_and_with_break():
    def fn(x, wanted):
        for i, size in enumerate(x.shape):
            if size == wanted:
                x = x.sum(i)
                break
        else:
            x = x * 100
        return x

    return fn, [(torch.randn(2, 3), n) for n in (3, 2, 7, 3)]


@program
def test_while_else_with_a_data_dependent_condition():
    def fn(x):
        n = 0
        while x.sum() < 3:
            x = x + 1
            n += 1
            if n > 4:
                break
        else:
            x = x * 2
        return x, n

    return fn, [(torch.full((2,), v),) for v in (0.0, -9.0, 5.0, 1.0)]


@program
def test_branch_on_data():
    def fn(x):
        y = x.sin()
        if x.sum() > 0:
            y = y + 1
        else:
            y = y - 1
        return y * 2

    return fn, swinging


@program
def test_three_way_branch_on_data():
    def fn(x):
        s = x.sum()
        if s > 3:
            return x * 2
        elif s > 0:
            return x * 3
        elif s == 0:
            return x + 1
        return -x

    return fn, [(torch.full((2,), v),) for v in (2.0, 1.0, 0.0, -1.0, 1.0, 2.0)]


@program
def test_branches_on_data_in_a_row():
    def fn(x):
        for k in range(3):
            if x[k] > 0:
                x = x + k
            else:
                x = x * 2
        return x

    return fn, lambda i: (swing(i),)


@program
def test_nested_branches_on_data():
    def fn(x, y):
        if x.sum() > 0:
            if y.sum() > 0:
                return x + y
            z = x - y
        else:
            z = x * y if y.max() > 0 else x / y
        return z + 1

    signs = (1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0), (2.0, 2.0), (2.0, -2.0)
    return fn, [(torch.full((2,), a), torch.full((2,), b)) for a, b in signs]


@program
def test_branch_on_data_deep_in_nested_calls():
    def inner(x):
        y = x + 1
        return y.exp() if y.mean() > 0 else y.abs()

    def middle(x, k):
        return inner(x * k) + inner(x - k)

    def fn(x):
        a = x.sin()
        return a + middle(x, 2) * 3

    return fn, swinging


@program
def test_loop_over_a_break_with_a_changing_count():
    def fn(xs):
        total = torch.zeros(2)
        for x in xs:
            if x.sum() > 0:
                total = total + x
            else:
                total = total * 2
        return total

    return fn, [([swing(i, 2) for i in range(n)],) for n in (2, 5, 0, 3, 2)]


@program
def test_item_drives_a_range():
    def fn(x):
        y = x.float()
        for i in range(int(x.max().item())):
            y = y + i
        return y

    return fn, [(torch.tensor([1, n]),) for n in (3, 5, 0, 3)]


@program
def test_item_used_as_a_number_and_not_as_a_branch():
    def fn(x):
        scale = x.max().item()
        y = x / scale
        return y + len(x), scale * 2

    return fn, lambda i: (torch.rand(3) + 1,)


@program
def test_early_return_from_a_double_loop():
    def fn(x):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                if x[i, j] > 1:
                    return x * 2, (i, j)
        return x, None

    return fn, [
        (torch.tensor(rows),)
        for rows in (
            [[0.0, 1.0], [2.0, 0.0]],
            [[0.0, 0.0], [0.0, 0.0]],
            [[3.0, 1.0], [2.0, 0.0]],
            [[1.0, 0.5], [4.0, 0.0]],
        )
    ]


@program
def test_continue_on_data():
    def fn(x):
        kept = []
        for row in x:
            if row.min() < 0:
                continue
            kept.append(row * 2)
        return torch.stack(kept) if kept else x[:0]

    return fn, [(torch.tensor(v),) for v in ([[1.0, 2.0], [-1.0, 2.0]], [[-1.0, 2.0]], [[1.0, 1.0], [2.0, 2.0]])]


@program(breaks=0)
def test_conditional_expression_on_flags():
    def fn(x, training, p):
        y = x * (1 - p) if training else x
        return y + (1 if p else 2)

    return fn, [(torch.randn(2), t, p) for t, p in ((True, 0.5), (False, 0.5), (True, 0), (True, 0.5))]


@program(breaks=0)
def test_integer_arithmetic_decides_shapes():
    def fn(x, heads):
        b, n, d = x.shape
        size, rest = divmod(d, heads)
        y = x[..., : d - rest].reshape(b, n, heads, size).transpose(1, 2)
        return y * size**-0.5, -d // heads, d % heads, (d >> 1) & ~1, -7 % 4

    return fn, [(torch.randn(2, 3, d), h) for d, h in ((4, 2), (5, 2), (6, 3), (4, 2))]


@program(breaks=0)
def test_float_arithmetic_decides_shapes():
    def fn(x, ratio):
        keep = max(1, round(x.shape[0] * ratio))
        return x[:keep] / math.sqrt(keep), int(ratio * 10), math.ceil(ratio), math.floor(-ratio), ratio**2

    return fn, [(torch.randn(5), r) for r in (0.5, 0.3, 0.01, 0.5)]


@program(breaks=0)
def test_slices_with_computed_bounds():
    def fn(x, n):
        return x[n:], x[: -n or None], x[:: n + 1], x[slice(n, None, 2)], x[..., -1]

    return fn, [(torch.randn(6), n) for n in (1, 2, 0, 1)]


@program
def test_list_slices_read_written_and_deleted():
    def fn(x, items, n):
        items[1:n] = [x, x * 2]
        del items[::3]
        items[-1:] = []
        return items, items[::-1], len(items)

    return fn, [(torch.randn(2), [0, 1, 2, 3, 4], n) for n in (2, 4, 2)]


@program
def test_deleting_names_items_and_attributes():
    def fn(x, table, items):
        y = x * 2
        del table["a"], items[0]
        z = y + len(table) + len(items)
        del y
        try:
            return y  # noqa: F821
        except UnboundLocalError:
            return z

    return fn, lambda i: (torch.randn(2), {"a": 1, "b": 2}, [1, 2, 3])


@program
def test_unbound_local_depends_on_data():
    def fn(x):
        if x.sum() > 0:
            y = x * 2
        return y + 1

    return fn, swinging


@program(breaks=0)
def test_walrus_in_while_and_if():
    def fn(x, items):
        items = list(items)
        while (n := items.pop()) > 0:
            x = x + n
        if (m := x.shape[0]) > 2:
            x = x * m
        return x, n

    return fn, [(torch.randn(2), (0, 1, 2)), (torch.randn(3), (-1, 5)), (torch.randn(2), (0, 1, 2))]


@program
def test_flag_flipped_by_the_function_itself():
    state = {"first": True}

    def fn(x):
        if state["first"]:
            state["first"] = False
            return x.relu()
        return x.tanh()

    return fn, ordinary, state


@program
def test_step_counter_changes_the_path_every_second_call():
    class Stepper:
        step = 0

    s = Stepper()

    def fn(x):
        s.step += 1
        if s.step % 2 == 0:
            x = x * 10
        return x + s.step

    x = torch.randn(2)
    return fn, [(x,)] * 5, s


@program
def test_loop_bound_read_from_an_object_between_calls():
    class Config:
        depth = 2

    config = Config()

    def fn(x):
        for _ in range(config.depth):
            x = x.sin() + 1
        return x

    x = torch.randn(2)
    return fn, [(x,), *((x, Before(lambda n=n: setattr(config, "depth", n))) for n in (3, 0, 2))]


@program
def test_data_read_after_an_in_place_write():
    def fn(x):
        y = x * 2
        y.mul_(-1)
        if y.sum() > 0:
            y += 10
        x += 1
        return y, x.sum() > 0

    return fn, swinging


@program
def test_fixed_point_iteration_stops_on_data():
    def fn(x):
        for step in range(20):
            y = x.cos()
            if (y - x).abs().max() < 0.2:
                break
            x = y
        return x, step

    return fn, [(torch.full((2,), v),) for v in (0.0, 0.7, 1.5, 0.0)]


@program
def test_data_and_flag_conditions_combined():
    def fn(x, strict):
        if strict and x.min() < 0 or not strict and x.max() > 1:
            return x.abs()
        return x + 1

    return fn, lambda i: (swing(i), i != 0)


@program
def test_comparison_of_items_picks_the_larger():
    def fn(x, y):
        a, b = x.sum().item(), y.sum().item()
        larger = x if a > b else y
        return larger * 2, max(a, b), abs(a - b)

    return fn, lambda i: (swing(i), swing(i + 1))


@program
def test_tensor_as_index_of_a_python_list():
    def fn(x, i):
        layers = [torch.sin, torch.cos, torch.tanh]
        return layers[i](x), [10, 20, 30][int(i)]

    return fn, [(torch.randn(2), torch.tensor(n)) for n in (0, 2, 1, 0)]


@program
def test_pass_statement_bodies_and_empty_loops():
    def fn(x):
        for _ in []:
            x = x + 100
        for _ in range(0):
            pass
        while False:
            x = x * 0
        if x.sum() > 0:
            pass
        return x + 1

    return fn, swinging


@program
def test_beam_like_loop_keeps_lists_of_candidates():
    def fn(scores, width):
        beams = [((), 0.0)]
        for row in scores:
            grown = [(path + (i,), score + row[i].item()) for path, score in beams for i in range(len(row))]
            beams = sorted(grown, key=lambda b: -b[1])[:width]
        return scores.sum(), [list(path) for path, _ in beams]

    return fn, [
        (torch.tensor(rows), 2)
        for rows in ([[0.5, 0.25], [1.0, 0.0]], [[0.0, 4.0], [1.0, 2.0]], [[0.75, 0.25], [2.0, 0.0]])
    ]


@pytest.mark.parametrize(
    "make",
    [bytearray, lambda n: array.array("i", range(n)), lambda n: dict.fromkeys(range(n)).keys(), collections.deque],
    ids=["bytearray", "array", "view", "deque"],
)
def test_truth_of_a_container_made_before_a_break(make):
    def fn(count):
        held = make(count) if make is not collections.deque else make(range(count))
        os.getpid()
        return ("full" if held else "empty"), not held, bool(held)

    compiled = burnish.compile(fn, backend="eager")
    assert [compiled(n) for n in (1, 2, 0, 1, 0)] == [fn(n) for n in (1, 2, 0, 1, 0)]
