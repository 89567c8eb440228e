"""Random numbers in compiled programs: a seed repeats them in every kind of run."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import burnish
from burnish.settings import patch

from ..recorded_events import recorded

RUNS = 12
"""Recorded, in turns with eager, compiled."""


def seeded(fn, *inputs, seed=0):
    torch.manual_seed(seed)
    return fn(*inputs)


def everything(x):
    return (
        torch.rand(3, 5),
        torch.rand_like(x),
        torch.randint(-5, 60, (7,)),
        F.dropout(x, 0.3),
        torch.bernoulli(x, 0.2),
        torch.empty_like(x).uniform_(-1, 2),
        torch.empty(4, dtype=torch.int32).random_(2, 9),
        F.dropout2d(x[None, :, :, None], 0.5),
        torch.rand(9, dtype=torch.float64),
        torch.rand(9, dtype=torch.bfloat16),
        torch.randint_like(x, 30),
        F.alpha_dropout(x, 0.4),
        torch.ops.aten.native_dropout(x, 0.3, True)[0],
    )


def watched(kind, run):
    with recorded(kind) as found:
        run()
    return found


@pytest.fixture(autouse=True)
def contests_are_held():
    with patch(never_slower=True):
        yield


@pytest.fixture
def x():
    return torch.randn(6, 8)


# -- a seed repeats ----------------------------------------------------------------------------------------------------


def test_a_seed_gives_the_same_numbers_in_every_run(x):
    compiled = burnish.compile(everything)
    with torch.no_grad():
        first = seeded(compiled, x)
        for _ in range(RUNS):
            torch.testing.assert_close(seeded(compiled, x), first, rtol=0, atol=0)
        assert not torch.equal(seeded(compiled, x, seed=1)[0], first[0])


def test_normal_numbers_agree_but_for_their_last_digits(x):
    compiled = burnish.compile(
        lambda x: (
            torch.randn(1000),
            torch.randn_like(x),
            torch.normal(x, 2.0),
            torch.empty(50, dtype=torch.float64).normal_(3, 0.5),
        )
    )
    with torch.no_grad():
        first = seeded(compiled, x)
        for _ in range(RUNS):
            torch.testing.assert_close(seeded(compiled, x), first)


def test_without_a_new_seed_every_run_gives_new_numbers(x):
    compiled = burnish.compile(lambda x: torch.rand_like(x))
    with torch.no_grad():
        found = [compiled(x) for _ in range(RUNS)]
    assert len({tuple(y.flatten().tolist()) for y in found}) == RUNS


def test_equal_calls_in_a_program_give_new_numbers():
    compiled = burnish.compile(lambda: (torch.rand(4), torch.rand(4)))
    for _ in range(4):
        a, b = compiled()
        assert not torch.equal(a, b)


def test_state_of_torchs_generator_is_all_there_is(x):
    compiled = burnish.compile(lambda x: F.dropout(x, 0.5) + torch.rand_like(x))
    with torch.no_grad():
        for _ in range(RUNS):
            state = torch.get_rng_state()
            first = compiled(x)
            with torch.random.fork_rng(devices=[]):
                compiled(x)
            after = torch.rand(3)
            torch.set_rng_state(state)
            assert torch.equal(compiled(x), first)
            assert torch.equal(torch.rand(3), after)


def test_numbers_depend_on_elements_not_on_iteration_order(x):
    """Each layout is compiled for itself, and the elements keep their numbers."""

    def draw(x):
        return torch.empty_like(x).uniform_() * 1.0

    wanted = seeded(burnish.compile(draw), x)
    for given in (x.t().contiguous().t(), x[None].to(memory_format=torch.contiguous_format)):
        burnish.reset()
        compiled = burnish.compile(draw)
        for _ in range(3):
            assert torch.equal(seeded(compiled, given).reshape(x.shape), wanted)


def test_numbers_do_not_depend_on_threads():
    compiled = burnish.compile(lambda: torch.rand(300, 1000) * 2)
    wanted = seeded(compiled)
    for threads in (1, 2, 1):
        torch.set_num_threads(threads)
        assert torch.equal(seeded(compiled), wanted)


def test_random_calls_keep_the_order_of_the_program():
    """A draw that depends on data comes before one that is written after it, though that could be made at once."""

    def fn(x):
        weights = torch.softmax(x * 3, -1)
        chosen = torch.multinomial(weights, 2)
        more = torch.rand(4)
        return chosen, more, torch.randperm(6), torch.poisson(weights.sum(0) + more.sum()), torch.rand(2)

    compiled, x = burnish.compile(fn), torch.randn(5, 7)
    with torch.no_grad(), patch(never_slower=False):
        first = seeded(compiled, x)
        for _ in range(3):
            torch.testing.assert_close(seeded(compiled, x), first, rtol=0, atol=0)


def test_a_shape_that_comes_again_draws_as_it_did_before_it_was_compiled(x):
    compiled = burnish.compile(lambda x: F.dropout(x, 0.5), dynamic=False)
    with torch.no_grad():
        compiled(x)
        for size in (3, 4):
            first = seeded(compiled, x[:size])
            for _ in range(4):
                assert torch.equal(seeded(compiled, x[:size]), first)


@pytest.mark.falls_back("refused")
def test_a_graph_that_cannot_be_compiled_gives_the_same_numbers(x):
    def refused(x):
        (x * 2).view(torch.int32).bitwise_and_(7)
        return F.dropout(x, 0.5) + torch.empty(6, 8).uniform_(-1, 1)

    wanted = seeded(burnish.compile(lambda x: F.dropout(x, 0.5) + torch.empty(6, 8).uniform_(-1, 1)), x)
    compiled = burnish.compile(refused)
    with torch.no_grad():
        assert watched("lower.refused", lambda: seeded(compiled, x))
        for _ in range(3):
            assert torch.equal(seeded(compiled, x), wanted)


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: x.normal_(),
        lambda x: x.normal_(2.0, 3.0),
        lambda x: x.uniform_(-1, 1),
        lambda x: x.bernoulli_(0.3),
        lambda x: x.random_(2, 9),
        lambda x: nn.init.normal_(x),
        lambda x: nn.init.xavier_uniform_(x),
    ],
    ids=["normal_", "normal_ of a mean", "uniform_", "bernoulli_", "random_", "init.normal_", "init.xavier_uniform_"],
)
def test_in_place_random_numbers_are_part_of_the_graph(draw, x):
    compiled = burnish.compile(lambda x: draw(torch.empty_like(x)) + x)
    with torch.no_grad(), patch(never_slower=False, on_error="raise"):
        assert watched("loops", lambda: compiled(x))
        assert torch.equal(seeded(compiled, x), seeded(compiled, x))
        drawn = torch.cat([seeded(compiled, x, seed=n) - x for n in range(200)])
        wanted = torch.cat([seeded(draw, torch.empty_like(x), seed=n) for n in range(200)])
        assert abs(drawn.mean() - wanted.mean()) < 5 * wanted.std() * (2 / wanted.numel()) ** 0.5


# -- one kernel with what reads it -------------------------------------------------------------------------------------


def test_random_numbers_are_made_in_the_kernel_that_reads_them(x):
    with torch.no_grad(), patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(lambda x, y: F.dropout(F.gelu(x), 0.1) + y)
        (plan,) = (event.data["plan"] for event in watched("loops", lambda: compiled(x, x)))
    calls = [str(step.node.op) for step in plan.steps if hasattr(step, "node")]
    assert calls == ["random_seed"] and len(plan.steps) == 2, str(plan)


def test_equal_layers_share_a_kernel():
    def fn(x):
        for _ in range(4):
            x = F.dropout(x @ x, 0.5)
        return x

    with torch.no_grad(), patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(fn)
        (plan,) = (event.data["plan"] for event in watched("loops", lambda: compiled(torch.randn(16, 16))))
    kernels = [step.kernel.key for step in plan.steps if hasattr(step, "kernel")]
    assert len(kernels) == 4 and len(set(kernels)) == 1


# -- gradients ---------------------------------------------------------------------------------------------------------


def test_backward_uses_the_dropout_mask_of_forward():
    compiled = burnish.compile(lambda x: F.dropout(x, 0.5) * 1.0)
    for _ in range(RUNS):
        x = torch.ones(6, 50, requires_grad=True)
        y = compiled(x)
        y.sum().backward()
        assert torch.equal(x.grad, y.detach()) and 0 < int((y == 0).sum()) < y.numel()


def test_backward_keeps_a_seed_and_makes_the_numbers_again():
    with patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(lambda x: F.dropout(x, 0.5) * 1.0)
        compiled(torch.ones(64, 64, requires_grad=True))
        y = compiled(torch.ones(64, 64, requires_grad=True))
    saved = [t for t in (*y.grad_fn.kept, *y.grad_fn.saved_tensors) if isinstance(t, torch.Tensor)]
    assert sum(t.numel() for t in saved) == 1, [t.shape for t in saved]


def test_a_captured_step_drops_the_same_in_both_directions():
    @burnish.compile
    def step(x):
        y = F.dropout(x, 0.5)
        y.sum().backward()
        return y.detach()

    for _ in range(RUNS):
        x = torch.ones(6, 50, requires_grad=True)
        assert torch.equal(step(x), x.grad)


def test_checkpoint_of_compiled_code_drops_the_same_when_it_runs_again():
    compiled = burnish.compile(lambda x: F.dropout(x, 0.5) * 1.0)
    for _ in range(RUNS):
        x = torch.ones(6, 50, requires_grad=True)
        y = checkpoint(compiled, x, use_reentrant=True)
        y.sum().backward()
        assert torch.equal(x.grad, y.detach())


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint_in_compiled_code_drops_the_same_when_it_runs_again(use_reentrant):
    compiled = burnish.compile(lambda x: checkpoint(lambda x: F.dropout(x, 0.5) * 1.0, x, use_reentrant=use_reentrant))
    for _ in range(RUNS):
        x = torch.ones(6, 50, requires_grad=True)
        y = compiled(x)
        y.sum().backward()
        assert torch.equal(x.grad, y.detach())


def test_dropout_of_a_module_trains_and_is_still_in_eval():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5))
    compiled, x = burnish.compile(model), torch.randn(4, 8)
    with torch.no_grad():
        for _ in range(4):
            assert (compiled(x) == 0).any()
        model.eval()
        for _ in range(4):
            torch.testing.assert_close(compiled(x), model(x))


# -- eager's numbers ---------------------------------------------------------------------------------------------------


def eagers(x):
    return (
        F.dropout(x, 0.5),
        torch.randn(7),
        torch.rand_like(x),
        torch.empty(4, 5).t().uniform_(),
        torch.randint(9, (5,)),
    )


@pytest.mark.falls_back("refused")
def test_the_option_gives_eagers_numbers(x):
    compiled = burnish.compile(eagers, options={"eager_random": True})
    with torch.no_grad():
        for seed in range(RUNS):
            torch.testing.assert_close(seeded(compiled, x, seed=seed), seeded(eagers, x, seed=seed), rtol=0, atol=0)


@pytest.mark.falls_back("refused")
def test_the_setting_gives_eagers_numbers_and_the_option_comes_first(x):
    with torch.no_grad(), patch(eager_random=True):
        compiled, other = burnish.compile(eagers), burnish.compile(eagers, options={"eager_random": False})
        for _ in range(RUNS):
            torch.testing.assert_close(seeded(compiled, x), seeded(eagers, x), rtol=0, atol=0)
            assert not torch.equal(seeded(other, x)[0], seeded(eagers, x)[0])


def test_a_graph_is_compiled_as_it_was_asked_for_when_it_was_recorded(x):
    """The second shape waits, and is compiled by a call that comes under other settings."""
    compiled = burnish.compile(lambda x: torch.rand_like(x), options={"eager_random": True}, dynamic=False)
    for given in (x, x[:3], x[:3], x[:3], x[:3]):
        assert torch.equal(seeded(compiled, given), seeded(torch.rand_like, given))


def test_an_option_that_is_neither_true_nor_false_is_refused():
    with pytest.raises(burnish.errors.UserError, match="eager_random"):
        burnish.compile(eagers, options={"eager_random": "yes"})


def test_a_generator_of_the_program_is_used(x):
    generator, other = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    compiled = burnish.compile(lambda x: x + torch.rand(6, 8, generator=generator))
    with torch.no_grad():
        for _ in range(RUNS):
            assert torch.equal(compiled(x), x + torch.rand(6, 8, generator=other))


def test_errors_of_random_operators_are_eagers(x):
    for bad in (
        lambda x: torch.bernoulli(x * 0 + 2),
        lambda x: x.clone().uniform_(3, 1),
        lambda x: F.dropout(x, 2.0),
        lambda x: torch.normal(x, x * 0 - 1),
        lambda x: torch.randint(3, 3, (2,)) + x[0, 0],
    ):
        with pytest.raises(Exception) as wanted:
            bad(x)
        burnish.reset()
        compiled = burnish.compile(bad)
        for _ in range(3):
            with torch.no_grad(), pytest.raises(type(wanted.value)) as found:
                compiled(x)
            assert str(found.value) == str(wanted.value)


@pytest.mark.falls_back("numbers")
def test_numbers_that_change_from_call_to_call_draw_alike_however_the_program_is_run():
    compiled = burnish.compile(lambda x, p: F.dropout(x, p) + torch.empty(6, 8).uniform_(p, 2 * p))
    with torch.no_grad():
        x = torch.ones(6, 8)
        first = {p: seeded(compiled, x, p) for p in (0.1, 0.2, 0.3)}
        for _ in range(4):
            for p, wanted in first.items():
                assert torch.equal(seeded(compiled, x, p), wanted)


@pytest.mark.parametrize("drawn", [torch.rand_like, lambda x: torch.bernoulli(x / 9), lambda x: torch.rand_like(x.t())])
def test_eagers_stream_follows_the_strides_of_a_written_tensor(drawn):
    def fn(x, y):
        x[...] = y
        return drawn(x)

    x, y = torch.randn(4, 2), torch.randint(0, 9, (2, 4)).t()
    with patch(eager_random=True, never_slower=False, on_error="raise"):
        compiled = burnish.compile(fn)
        for _ in range(3):
            torch.manual_seed(1)
            want = fn(x.clone(), y)
            torch.manual_seed(1)
            assert torch.equal(compiled(x.clone(), y), want)
