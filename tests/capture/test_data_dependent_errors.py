"""Operators that raise for some data: their errors, and the effects before them, are eager's."""

import math
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from bench.attack.errors import attack, generate
from bench.attack.failing_calls import CALLS, TABLE

import burnish
from burnish import events

from ..recorded_events import recorded

NOT_SLOWER = {"never_slower": False}


class Listener:
    """How many graphs of a program failed, and were refused."""

    def __init__(self):
        self.failed, self.refused = [], []

    def __enter__(self):
        self.stop = events.subscribe(self.hear)
        return self

    def __exit__(self, *_):
        self.stop()

    def hear(self, event):
        if event.kind == "graph.failed":
            self.failed.append(event.data["text"])
        if event.kind == "lower.refused":
            self.refused.append(event.data["text"])


def error_of(fn, *args):
    try:
        fn(*args)
    except Exception as error:
        return type(error), str(error)
    return None


@pytest.mark.falls_back("refused", only=r"ctc_loss|torch\.linalg\.lstsq.*")
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_error_of_a_result_that_is_not_used(call):
    text = f"def fn(p, q, x):\n    {call.text}\n    return x + 1\n"
    space = {"torch": torch, "F": F, "TABLE": TABLE, "checked": lambda condition: condition}
    exec(text, space)
    fn, x = space["fn"], torch.ones(3)
    expected = error_of(fn, *call.bad, x)
    compiled = burnish.compile(fn, options=NOT_SLOWER)
    for _ in range(2):
        torch.testing.assert_close(compiled(*call.good, x), x + 1)
    assert burnish.was_compiled(compiled)
    with Listener() as heard:
        assert error_of(compiled, *call.bad, x) == expected
    assert len(heard.failed) <= 1
    torch.testing.assert_close(compiled(*call.good, x), x + 1)


def test_writes_and_appends_before_a_failing_operator_have_happened():
    def fn(x, b, noted):
        b.add_(1)
        noted.append("first")
        10 // x  # noqa: B018
        b.add_(10)
        noted.append("second")
        return b.sum()

    for options in (NOT_SLOWER, {"never_slower": True}):
        burnish.reset()
        compiled, b, noted = burnish.compile(fn, options=options), torch.zeros(3), []
        for _ in range(2):
            compiled(torch.tensor([1, 2]), b, noted)
        assert b[0] == 22 and burnish.was_compiled(compiled)
        version = b._version
        with Listener() as heard, pytest.raises(RuntimeError, match="ZeroDivisionError"):
            compiled(torch.tensor([1, 0]), b, noted)
        assert b.tolist() == [23, 23, 23] and b._version == version + 1
        assert noted == ["first", "second"] * 2 + ["first"]
        assert len(heard.failed) == 1
        compiled(torch.tensor([1, 2]), b, noted)
        assert b[0] == 34


def test_handler_inside_of_the_function_sees_the_error():
    def fn(x, i, b):
        b.mul_(2)
        try:
            y = x[i]
            b.mul_(3)
        except IndexError:
            y = x[:1] * 0
        b.add_(1)
        return y

    compiled, x, b = burnish.compile(fn, options=NOT_SLOWER), torch.arange(4.0), torch.ones(2)
    for _ in range(2):
        compiled(x, torch.tensor([1]), b)
    assert b.tolist() == [43, 43]
    assert compiled(x, torch.tensor([9]), b).tolist() == [0]
    assert b.tolist() == [87, 87]


def test_running_statistics_are_updated_once_when_the_loss_fails():
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))

    def loss(x, target):
        return F.cross_entropy(model(x), target)

    compiled, x = burnish.compile(loss, options=NOT_SLOWER), torch.randn(5, 4)
    good, bad = torch.tensor([0, 1, 2, 1, 0]), torch.tensor([0, 1, 3, 1, 0])
    for _ in range(2):
        compiled(x, good).backward()
    assert burnish.was_compiled(compiled)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    expected = error_of(loss, x, bad)
    once = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(before)
    assert error_of(compiled, x, bad) == expected
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, once[name])


def test_random_state_is_that_of_a_single_run():
    def fn(x, i):
        y = F.dropout(x, 0.5)
        return y[i]

    compiled, x = burnish.compile(fn, options={"eager_random": True, **NOT_SLOWER}), torch.randn(64)
    for _ in range(2):
        compiled(x, torch.tensor([3]))
    torch.manual_seed(3)
    assert error_of(fn, x, torch.tensor([64])) is not None
    state = torch.get_rng_state()
    torch.manual_seed(3)
    assert error_of(compiled, x, torch.tensor([64])) is not None
    assert torch.equal(torch.get_rng_state(), state)


def test_error_in_backward_is_raised():
    class Picks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, i):
            ctx.save_for_backward(i)
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            (i,) = ctx.saved_tensors
            10 // i  # noqa: B018
            return gradient * 2, None

    def fn(x, i):
        return Picks.apply(x, i).sum()

    compiled, x = burnish.compile(fn, options=NOT_SLOWER), torch.ones(3, requires_grad=True)
    for _ in range(2):
        compiled(x, torch.tensor([2])).backward()
    loss = compiled(x, torch.tensor([0]))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        loss.backward()
    assert x.grad.tolist() == [4, 4, 4]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_other_backends_leave_inputs_as_they_were(backend):
    def fn(x, b, noted):
        b.add_(1)
        noted.append(1)
        y = 10 // x
        b.add_(10)
        return y

    compiled, b, noted = burnish.compile(fn, backend=backend), torch.zeros(3), []
    for _ in range(2):
        compiled(torch.tensor([1, 2]), b, noted)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(torch.tensor([1, 0]), b, noted)
    assert b.tolist() == [23, 23, 23] and len(noted) == 3


def test_caches_are_written_in_place_behind_one_check():
    def fn(caches, i, k):
        for cache in caches:
            cache.index_copy_(1, i, k)
        return sum(cache.sum() for cache in caches)

    compiled = burnish.compile(fn, options=NOT_SLOWER)
    caches, k = [torch.zeros(2, 64, 8) for _ in range(3)], torch.randn(2, 1, 8)
    with recorded("loops", datum="text") as plans, torch.no_grad():
        for at in range(3):
            compiled(caches, torch.tensor([at]), k)
    plan = plans[-1]
    assert plan.count("call check") == 1 and plan.count("call in place") == 3
    before = [cache.clone() for cache in caches]
    with pytest.raises(IndexError, match="out of bounds"), torch.no_grad():
        compiled(caches, torch.tensor([64]), k)
    for cache, old in zip(caches, before, strict=True):
        torch.testing.assert_close(cache, old)


def test_caches_with_a_length_each_are_written_in_place_behind_all_their_checks():
    """As in a static cache of transformers: every layer counts for itself, and the second one may be full."""

    def fn(x, lengths, caches):
        for length, cache in zip(lengths, caches, strict=True):
            position = torch.arange(x.shape[0]) + length
            length.add_(x.shape[0])
            cache.index_copy_(0, position, x)
            x = torch.tanh(x * cache.sum())
        return x

    def state(second=2):
        lengths = [torch.tensor([2]), torch.tensor([second]), torch.tensor([0])]
        return lengths, [torch.arange(24.0).view(8, 3) / 24 for _ in range(3)]

    in_place = []
    stop = events.subscribe(
        lambda event: in_place.append(event.data["text"].count("call in place")) if event.kind == "loops" else None
    )
    try:
        with burnish.settings.patch(never_slower=False, cache=False, on_error="raise"):
            compiled = burnish.compile(fn)
            for second in (2, 3, 6, 7, 1):
                x = torch.randn(2, 3)
                ours, eagers = state(second), state(second)
                if second == 7:
                    assert error_of(compiled, x, *ours) == error_of(fn, x, *eagers)
                else:
                    torch.testing.assert_close(compiled(x, *ours), fn(x, *eagers))
                for mine, other in zip((*ours[0], *ours[1]), (*eagers[0], *eagers[1]), strict=True):
                    torch.testing.assert_close(mine, other)
    finally:
        stop()
    assert in_place[0] == 3


@pytest.mark.falls_back("refused", "sizes")
def test_programs_that_fail_do_as_eager_does():
    """A few of those that `python -m bench.attack.errors` makes."""
    raised = compiled = 0
    for seed in range(5000, 5025):
        program = generate(random.Random(seed))
        outcome = attack(program)
        assert outcome.why_wrong is None, f"seed {seed}\n{program}{outcome.why_wrong}"
        raised += outcome.raised
        compiled += outcome.was_compiled
    assert raised > 15 and compiled > 21


def test_errors_of_sparse_tensors_depend_on_their_checks():
    def fn(x):
        try:
            return x + torch.sparse_coo_tensor([[0, 9]], [1.0, 2.0], (2,)).shape[0]
        except RuntimeError:
            return x - 1

    checks = torch.sparse.check_sparse_tensor_invariants
    was_on = checks.is_enabled()
    compiled = burnish.compile(fn, backend="eager")
    try:
        for is_on in (True, False, True, False):
            (checks.enable if is_on else checks.disable)()
            assert compiled(torch.ones(2)).tolist() == fn(torch.ones(2)).tolist()
    finally:
        (checks.enable if was_on else checks.disable)()


def test_errors_of_sequences_around_arrays_are_not_kept():
    class Items:
        def __init__(self, array):
            self.array = array

        def __len__(self):
            return len(self.array)

        def __getitem__(self, at):
            return self.array[at]

    def fn(x, items):
        try:
            return x + torch.tensor(items)
        except TypeError:
            return x - 1

    compiled = burnish.compile(fn, backend="eager")
    for values in ([1, "a"], [1, 2], [1, "a"], [3, 4]):
        items = Items(np.array(values, dtype=object))
        assert compiled(torch.ones(2), items).tolist() == fn(torch.ones(2), items).tolist()


def root_of_a_sum(x):
    x.add_(0.5)
    n = x.sum().item()
    return x * 2, n**0.5, n ** (-1)


def unused_quotient(x):
    n = x.sum().item()
    1 / n
    return x * 2


def unused_root(x):
    n = x.sum().item()
    math.sqrt(n)
    return x * 2


def logarithm_between_writes(x):
    x.mul_(2)
    y = x * math.log(x[0].item())
    x.add_(y.sum())
    return y


def whole_part(x):
    x.add_(1)
    return x * int(x.sum().item())


def large_power(x):
    x.add_(1)
    return x * 2, x.sum().item() ** 3000


@pytest.mark.parametrize("backend", ["eager", "burnish"])
@pytest.mark.parametrize(
    "fn",
    [root_of_a_sum, unused_quotient, unused_root, logarithm_between_writes, whole_part, large_power],
    ids=lambda fn: fn.__name__,
)
def test_numbers_that_python_has_no_result_for(fn, backend):
    """What was written before is there once, and a complex result is one."""
    compiled = burnish.compile(fn, backend=backend, options=NOT_SLOWER if backend == "burnish" else None)
    for values in ([1, 2], [3, 1], [-4, 1], [-1, 1], [-1, -1], [math.nan, 1], [math.inf, 0], [1, 1]):
        seen = []
        for run in (fn, compiled):
            x = torch.tensor(values, dtype=torch.float32)
            try:
                result = repr(run(x))
            except (ArithmeticError, ValueError) as error:
                result = repr(error)
            seen.append((result, repr(x)))
        assert seen[0] == seen[1]
    assert burnish.was_compiled(compiled)


def test_numbers_of_an_optimizer_come_before_what_it_writes():
    """So parameters are written in place, although Python's arithmetic on the counts of steps may raise."""
    layer = torch.nn.Linear(300, 300)
    optimizer = torch.optim.Adam(layer.parameters(), foreach=False)

    def step(x):
        optimizer.zero_grad()
        layer(x).square().mean().backward()
        optimizer.step()

    compiled, x = burnish.compile(step, options=NOT_SLOWER), torch.randn(4, 300)
    with recorded("loops") as plans:
        for _ in range(4):
            compiled(x)
    assert len(optimizer.state) == 2 and all(state["step"] == 4 for state in optimizer.state.values())
    plan = plans[-1].data["plan"]
    written = {write.value for write in plan.graph.writes if write.value.type.numel > 1}
    assert written and written <= set(plan.placed)
