"""Indexed writes are fused and go into the tensor in place if its old value is unused."""

import copy
import itertools
import math

import pytest
import torch

import burnish
from burnish.schedule.loops.build_kernel import Launch
from burnish.schedule.plan_steps import Call
from burnish.settings import patch

from ..recorded_events import recorded
from .compare_calls import compiled_with, equal_calls


def numbers(*shape, dtype=torch.float32):
    torch.manual_seed(len(shape))
    return torch.randn(shape).to(dtype) if dtype.is_floating_point else torch.randint(-9, 9, shape).to(dtype)


def calls_of(fn, *inputs):
    """The operators that the compiled program calls, and whether each writes in place."""
    with recorded("loops", datum="plan") as plans:
        compiled_with(fn, *inputs)
    steps = [step for plan in plans for step in plan.steps]
    return {step.node.op.name: step.in_place is not None for step in steps if isinstance(step, Call)}


INDEX = torch.tensor([2, 0, 2])
PLACES = torch.tensor([[0, 3, 1], [2, 2, 0]])

WRITES = {
    "index_copy": lambda x, y: x.index_copy_(0, INDEX, y[:3]),
    "index_add": lambda x, y: x.index_add_(0, INDEX, y[:3], alpha=2),
    "index_fill": lambda x, y: x.index_fill_(1, INDEX, 7),
    "index_put": lambda x, y: x.__setitem__(INDEX, y[:3]),
    "index_put of columns": lambda x, y: x.__setitem__((slice(None), INDEX), y[:, :3]),
    "index_ of a number": lambda x, y: x.__setitem__(INDEX, 3),  # index_fill from torch 2.15 on, index_put before
    "index_put that adds": lambda x, y: x.index_put_((INDEX,), y[:3], accumulate=True),
    "scatter": lambda x, y: x.scatter_(1, PLACES, y),
    "scatter of a number": lambda x, y: x.scatter_(1, PLACES, 2.5),
    "scatter_add": lambda x, y: x.scatter_add_(1, PLACES, y),
    "scatter_reduce": lambda x, y: x.scatter_reduce_(0, PLACES, y, "amax"),
}


@pytest.mark.parametrize("name", WRITES)
def test_input_is_written_in_place(name):
    def fn(x, y):
        WRITES[name](x, y * 2)
        return x[:2].sum(1) + 1

    inputs = numbers(5, 4), numbers(5, 4)
    equal_calls(fn, *inputs)
    assert [True] == [in_place for op, in_place in calls_of(fn, *inputs).items() if name.split()[0] in op]


@pytest.mark.parametrize("name", WRITES)
def test_intermediate_is_written_in_place(name):
    def fn(x, y):
        z = x * 3
        WRITES[name](z, y)
        return z.relu() + y.sum()

    inputs = numbers(5, 4), numbers(5, 4)
    equal_calls(fn, *inputs)
    assert [True] == [in_place for op, in_place in calls_of(fn, *inputs).items() if name.split()[0] in op]


def test_a_returned_intermediate_is_written_in_place():
    def fn(x, y):
        z = torch.zeros(6, 4)
        return z.index_add(0, INDEX, y[:3])

    equal_calls(fn, numbers(5, 4), numbers(5, 4))


def test_one_write_after_the_other():
    def fn(cache, k, v):
        cache.index_copy_(0, INDEX[:1], k)
        total = cache.sum(0)
        cache[INDEX[1:2]] = v * 2
        return total, cache.sum(0)

    inputs = numbers(5, 4), numbers(1, 4), numbers(1, 4)
    equal_calls(fn, *inputs)
    # Nothing is written to an input before the last check, which is that of the second index.
    assert calls_of(fn, *inputs) == {"check": False, "aten.index_copy.default": False, "aten.index_put.default": True}


KEPT = {
    "read afterwards": lambda x, y: (x.index_copy(0, INDEX, y[:3]), x * 2),
    "read by a view afterwards": lambda x, y: (x[1:], x.index_copy(0, INDEX, y[:3])),
    "an input that is not written": lambda x, y: x.index_add(0, INDEX, y[:3]),
    "given back as it was": lambda x, y: (lambda z: (z, z.index_fill(0, INDEX, 1)))(x + 1),
    "two made of one": lambda x, y: (lambda z: (z.index_fill(0, INDEX, 1), z.index_fill(0, INDEX, 2)))(x + 1),
    "written with itself": lambda x, y: (lambda z: z.scatter(0, PLACES, z))(x[:2, :3] + 1),
    "a view of something else": lambda x, y: (lambda z: (z[1:].index_fill(0, INDEX, 1), z))(x + 1),
    "to two inputs": lambda x, y: (lambda z: (x.copy_(z), y.copy_(z.index_fill(0, INDEX, 1))))(x + y),
    "inputs that change places": lambda x, y: (lambda z: (y.copy_(x), x.copy_(z)))(y.index_fill(0, INDEX, 1)),
    "what was there, after the write": lambda x, y: (lambda old: (x.index_fill_(0, INDEX, 1), old + 0))(x.clone()),
    "a part that is written": lambda x, y: (x[1:4].index_fill_(0, INDEX, 5), x + 0),
    "transposed": lambda x, y: (x.t().index_fill_(0, INDEX, 5), x + 0),
    "of the joined": lambda x, y: (lambda z: (z.index_fill(0, INDEX, 1), torch.cat([z, x])))(torch.cat([x, y * 2])),
    "of what grows": lambda x, y: (
        lambda a: (lambda b: torch.cat([b, a.index_fill(0, INDEX, 1)]))(torch.cat([a.exp(), x]))
    )(torch.cat([x.exp(), y])),
}


@pytest.mark.parametrize("name", KEPT)
def test_values_with_later_readers_are_not_overwritten(name):
    equal_calls(KEPT[name], numbers(5, 4), numbers(5, 4))


def test_wrong_index_raises_eagers_error_and_writes_nothing():
    def fn(x, i, y):
        x.index_copy_(0, i, y)
        return x + 1

    x, y = numbers(5, 4), numbers(1, 4)
    compiled = compiled_with(fn, x, torch.tensor([1]), y)
    with torch.no_grad(), pytest.raises(IndexError) as caught:
        compiled(before := copy.deepcopy(x), torch.tensor([9]), y)
    with pytest.raises(IndexError) as wanted:
        fn(copy.deepcopy(x), torch.tensor([9]), y)
    assert str(caught.value) == str(wanted.value)
    assert torch.equal(before, x)


def read_between(cache, other, i, j, k, v):
    cache.index_copy_(0, i, k)
    picked = cache[j]
    cache.add_(1)
    return picked, other + 1


def two_caches(cache, other, i, j, k, v):
    cache.index_copy_(0, i, k)
    other.index_copy_(0, j, v)
    return cache.sum(), other.sum()


def two_views(cache, other, i, j, k, v):
    cache[:3].index_copy_(0, i, k)
    cache[2:].index_fill_(0, j, 3.0)
    return cache.sum(), other + 1


def with_arithmetic_between(cache, other, i, j, k, v):
    cache.add_(1).index_add_(0, i, k)
    cache.mul_(2).scatter_(0, j[:, None].expand(1, 4), v)
    other.sub_(1)
    return cache * 1, other + 1


def same_cache_twice(cache, other, i, j, k, v):
    cache[i] = k
    cache[j] = v * 2
    return cache.sum(0), other + 1


@pytest.mark.falls_back("refused", only=".*True.*")
@pytest.mark.parametrize("rows", [5, 100_000])  # more than is copied for a graph that runs as it stands
@pytest.mark.parametrize("with_gradients", [False, True])
@pytest.mark.parametrize("fn", [read_between, two_caches, two_views, with_arithmetic_between, same_cache_twice])
def test_error_in_a_second_store_leaves_the_first_ones_writes(fn, with_gradients, rows):
    def call(run, i, j):
        cache, other = torch.ones(rows, 4), torch.zeros(rows, 4)
        try:
            found = run(cache, other, torch.tensor([i]), torch.tensor([j]), k, torch.full((1, 4), 9.0))
        except (IndexError, RuntimeError) as error:
            found = type(error), str(error), cache._version, other._version
        return found, cache, other

    k = torch.full((1, 4), 7.0, requires_grad=with_gradients)
    with torch.set_grad_enabled(with_gradients), patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(fn)
        for _ in range(2):
            call(compiled, 1, 1)
        assert burnish.was_compiled(compiled)
        for i, j in itertools.product((1, -rows - 3, rows + 4), repeat=2):
            (got, *inputs), (wanted, *expected) = call(compiled, i, j), call(fn, i, j)
            assert all(map(torch.equal, inputs, expected))
            assert (got == wanted) if type(wanted[0]) is type else all(map(torch.equal, got, wanted))


def test_version_of_a_written_input_moves():
    def fn(x, y):
        x.index_copy_(0, INDEX, y)
        return y + 1

    x, y = numbers(5, 4), numbers(3, 4)
    compiled = compiled_with(fn, x, y)
    before = x._version
    with torch.no_grad():
        compiled(x, y)
    assert x._version > before


def test_memory_of_a_cache_stays_its_own():
    def fn(cache, k, at):
        cache.index_copy_(2, at, k.exp())
        return cache[:, :, :3].sum()

    cache, k = torch.zeros(1, 2, 64, 8), numbers(1, 2, 1, 8)
    compiled = compiled_with(fn, cache, k, torch.tensor([0]))
    before = cache.data_ptr()
    with torch.no_grad():
        for at in range(5):
            compiled(cache, k * at, torch.tensor([at]))
    assert cache.data_ptr() == before
    torch.testing.assert_close(cache[0, :, :5], torch.stack([(k[0, :, 0] * at).exp() for at in range(5)], 1))


def test_two_results_of_one_memory_are_two_tensors():
    def fn(x):
        y = x * 2
        return y, y.transpose(0, 0)

    x = numbers(3, 2)
    compiled = compiled_with(fn, x)
    with torch.no_grad():
        first, second = compiled(x)
    assert first is not second and first.data_ptr() == second.data_ptr()
    second.t_()
    assert first.shape == (3, 2)


PARTS = {
    "a slice": (lambda c, k: c.__setitem__((slice(None), slice(5, 6)), k * 2), 4 * 8),
    "a row": (lambda c, k: c.__setitem__((slice(None), 5), k[:, 0] * 2), 4 * 8),
    "every other": (lambda c, k: c[:, ::2].add_(k), 4 * 16 * 8),
    "the last": (lambda c, k: c[:, -1:].fill_(2), 4 * 8),
}


@pytest.mark.parametrize("name", PARTS)
def test_unwritten_elements_of_an_input_are_not_visited(name):
    write, most = PARTS[name]

    def fn(c, k):
        write(c, k)
        return c[:, :2].sum(2) + 1

    inputs = numbers(4, 32, 8), numbers(4, 1, 8)
    equal_calls(fn, *inputs)
    with recorded("loops", datum="plan") as found:
        compiled_with(fn, *inputs)
    plan = found[0]
    assert len(set(plan.placed.values())) == 1
    writers = [
        step.kernel
        for step in plan.steps
        if isinstance(step, Launch) and any(step.buffers[at] in plan.placed for at in step.kernel.stored)
    ]
    assert sum(math.prod(loop.extents) for kernel in writers for loop in kernel.loops) <= most + 4 * 2 * 8


SHIFTS = {
    "into the next place": lambda x: x[1:].copy_(x[:-1].clone()),
    "around": lambda x: x.copy_(x.roll(1, 0)),
    "turned": lambda x: x.copy_(x.flip(0)),
    "transposed": lambda x: x.copy_(x.t().clone()),
    "added to the next": lambda x: x[1:].add_(x[:-1].clone()),
    "from the other half": lambda x: x[:3].copy_(x[3:] * 2),
    "one part after the other": lambda x: (x[3:4].copy_(x[:1] * 2), x[4:5].mul_(x[3:4])),
    "halves that change places": lambda x: x.copy_(torch.cat([x[3:], x[:3]])),
}


@pytest.mark.parametrize("name", SHIFTS)
def test_other_reads_come_before_the_write(name):
    def fn(x):
        SHIFTS[name](x)
        return x.sum()

    equal_calls(fn, numbers(6, 6))
