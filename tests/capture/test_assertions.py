"""``assert`` about tensors stays in the graph, and fails as in eager.

The statements are to be what they are: PYTEST_DONT_REWRITE.
"""

import pytest
import torch
from torch import nn

import burnish

from .harness import program


def some_that_fail(fn):
    """Calls of ``fn(state, x)``, two of which fail an assertion about ``x``. The state is to be eager's after each."""
    state = torch.zeros(3)

    def call(x):
        torch.manual_seed(0)
        return fn(state, x)

    values = (1.0, 2.0, torch.nan, 4.0, torch.nan)
    return call, [(torch.tensor([1.0, value, 3.0]),) for value in values], [state]


@program(breaks=0)
def test_a_write_to_a_tensor_of_the_graph_keeps_an_assertion_in_it():
    def fn(state, x):
        sample = torch.empty(3).normal_()
        parts = torch.stack([torch.zeros(3), torch.ones(3)])
        parts[0][1] = 5
        torch._foreach_add_([*parts.unbind()], 1.0)
        assert (x == x).all()
        return state.add_(sample * parts[0]).clone()

    return some_that_fail(fn)


@program
def test_a_write_to_an_argument_and_a_tensor_of_the_graph_before_an_assertion():
    def fn(state, x):
        torch._foreach_add_([torch.zeros(3), state], 1.0)
        assert (x == x).all()
        return state.add_(1).clone()

    return some_that_fail(fn)


@program
def test_a_write_through_the_data_of_another_tensor_before_an_assertion():
    def fn(state, x):
        other = torch.zeros(3)
        other.data = state
        other.add_(1)
        assert (x == x).all()
        return state.clone()

    return some_that_fail(fn)


@program(breaks=0)
def test_an_assertion_that_holds_ends_no_graph():
    def fn(x):
        assert x.min() > 0, "not positive"
        return x.sqrt()

    return fn, [(torch.ones(3),), (torch.ones(3) * 4,), (torch.ones(3) * 9,)]


@program
def test_an_assertion_that_fails_raises_the_users_error_at_its_place():
    seen = []

    def fn(x):
        seen.append(len(x))
        y = x + 1
        assert (y > 0).all(), f"got {tuple(y.shape)}"
        return y * 2

    return fn, [(torch.ones(3),), (-torch.ones(3),), (torch.ones(3),), (-torch.ones(3),)], seen


@program
def test_a_failing_assertion_is_caught_by_the_user():
    def fn(x):
        try:
            assert x[0] == 1, "first"
        except AssertionError as error:
            return x - 1, str(error)
        return x + 1, ""

    return fn, [(torch.ones(2),), (torch.zeros(2),), (torch.ones(2),)]


@program
def test_an_assertion_before_a_write_to_an_argument_raises_before_it():
    def fn(x):
        assert x.sum() > 0, "nothing"
        x.add_(1)
        return x * 2

    return fn, [(torch.ones(2),), (torch.ones(2),), (-torch.ones(2),), (torch.ones(2),)]


@program
def test_an_assertion_about_several_elements_is_the_error_it_is_in_eager():
    def fn(x):
        assert x > 0
        return x

    return fn, [(torch.ones(1),), (torch.ones(2),), (torch.ones(1),)]


def test_distributions_check_their_arguments_inside_the_graph():
    def fn(mean, scale, x):
        return torch.distributions.Normal(mean, scale, validate_args=True).log_prob(x)

    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    mean, scale, x = torch.zeros(3), torch.ones(3), torch.rand(3)
    for factor in (1.0, 2.0, 3.0):
        assert torch.equal(compiled(mean, scale * factor, x), fn(mean, scale * factor, x))
    with pytest.raises(ValueError, match="scale"):
        compiled(mean, -scale, x)


@program
def test_an_error_raised_for_bad_data_is_no_break():
    def fn(x):
        if not torch.isfinite(x).all():
            raise ValueError(f"not finite: {'one' if x.numel() == 1 else 'some'} of {x}")
        if x.sum() > 10:
            raise OverflowError("too much")
        return x * 2

    return fn, [(torch.ones(2),), (torch.full((2,), torch.nan),), (torch.full((2,), 9.0),), (torch.ones(2),)]


@program
def test_an_error_that_is_handled_below():
    def fn(x):
        try:
            if x.sum() < 0:
                raise ValueError("negative")
        except ValueError:
            return -x
        return x * 2

    return fn, [(torch.ones(2),), (-torch.ones(2),), (torch.ones(2),), (-torch.ones(2),)]


@program
def test_a_condition_with_two_live_branches_is_evaluated_every_time():
    def fn(x, strict):
        for _ in range(2):
            if x.sum() > 4:
                if strict:
                    raise ValueError("too much")
                x = x - 1
            x = x + 1
        return x

    return fn, [(torch.ones(2), False), (torch.ones(2) * 3, False), (torch.ones(2) * 3, True), (torch.ones(2), True)]


def test_errors_for_bad_data_are_part_of_one_graph():
    def fn(x):
        for row in x:
            if row.sum() < 0:
                raise ValueError("negative")
        if not (x < 5).all():
            raise ValueError("large")
        return x.sqrt()

    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2, 3)), torch.ones(2, 3))
    with pytest.raises(ValueError, match="large"):
        compiled(torch.full((2, 3), 9.0))
    with pytest.raises(ValueError, match="negative"):
        compiled(-torch.ones(2, 3))


@program(breaks=0)
def test_a_check_of_all_elements_by_torch_ends_no_graph():
    def fn(x):
        torch._check_tensor_all(x > 0, lambda: "not positive")
        return x.sqrt()

    return fn, [(torch.ones(3),), (torch.ones(3) * 4,), (torch.ones(3) * 9,)]


@program
def test_a_check_of_all_elements_by_torch_raises_its_error():
    seen = []

    def fn(x, n):
        seen.append(n)
        torch._check_tensor_all(x > 0, lambda: f"not positive: {n}")
        return x.sqrt()

    return fn, [(torch.ones(3), 1), (torch.tensor([1.0, -1.0, 2.0]), 2), (torch.ones(3), 3), (-torch.ones(3), 4)], seen


@program(breaks=0)
def test_a_number_read_from_a_tensor_is_asserted_about():
    class Lookup(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.rows = nn.Embedding(5, 3), 5

        def forward(self, x):
            assert x.max().item() < self.rows, f"{x.max().item()} of {self.rows}"
            if x.min().item() < 0:
                raise ValueError("negative")
            return self.table(x)

    torch.manual_seed(0)
    return Lookup(), [(torch.tensor([0, last]),) for last in (1, 4, 3, 2)]


@program
def test_such_an_assertion_fails_later():
    def fn(x):
        assert x.max().item() <= 0.1, f"{x.max().item()}"
        return x * 2

    return fn, [(torch.full((2,), value),) for value in (0.0, 0.05, 0.1, 0.09)]  # as a float32, 0.1 is more than 0.1


@program
def test_a_number_that_is_compared_for_another_reason_is_a_number():
    def fn(x):
        total = x.sum().item() > 1
        return x + total, type(total) is bool, 2 if x.max().item() > 0 else 3

    return fn, [(torch.full((2,), value),) for value in (0.0, 1.0, -1.0, 2.0)]


@program
def test_assertions_of_a_training_step_that_writes_to_its_weights():
    layer = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)

    def fn(x):
        loss = torch.distributions.Normal(layer(x), x.exp()).log_prob(x).mean()
        assert x.sum() > 0, "nothing"
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    x, bad = torch.rand(4, 3), torch.full((4, 3), float("nan"))
    gradients = [parameter.grad for parameter in layer.parameters()]
    return fn, [(x,), (x + 1,), (x + 2,), (-x,), (x,), (bad,), (x,)], list(layer.parameters()), gradients


@program
def test_an_assertion_after_a_write_to_an_argument_keeps_the_write():
    def fn(x):
        x.add_(1)
        assert x.sum() > 0, "nothing"
        return x * 2

    return fn, [(torch.ones(2),), (torch.ones(2),), (-torch.ones(2) * 3,), (torch.ones(2),)]


def test_assertion_that_fails_leaves_weights_and_gradients_as_eager_does():
    def world(compiler):
        torch.manual_seed(0)
        layer = nn.Linear(600, 600)  # of more than a megabyte
        optimizer = torch.optim.Adam(layer.parameters())

        def fn(x):
            loss = torch.distributions.Normal(layer(x), 1.0, validate_args=True).log_prob(x).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        compiled, seen = compiler(fn), []
        x = torch.rand(4, 600)
        for given in (x, x, x, x * float("nan"), x):
            try:
                seen.append(compiled(given))
            except ValueError as error:
                seen.append(str(error)[:60])
            seen += [p.detach().clone() for p in layer.parameters()]
            seen += [p.grad.clone() for p in layer.parameters()]
            seen += [state["step"] for state in optimizer.state.values()]
        return seen, compiled

    expected, _ = world(lambda fn: fn)
    for backend in ("burnish", "eager"):
        found, compiled = world(lambda fn, backend=backend: burnish.compile(fn, backend=backend))
        torch.testing.assert_close(
            [v for v in found if type(v) is not str], [v for v in expected if type(v) is not str]
        )
        assert [v for v in found if type(v) is str] == [v for v in expected if type(v) is str] != []
        assert burnish.was_compiled(compiled)


@pytest.mark.parametrize("backend", [lambda gm, example_inputs: gm.forward, "aot_eager"], ids=["own", "aot_eager"])
@pytest.mark.parametrize("learns", [False, True])
def test_backends_of_others_check_assertions_in_a_full_graph(backend, learns):
    def fn(x):
        assert x.sum() < 10, "too large"
        if x.max().item() > 2:
            raise ValueError("no")
        return x.sin()

    burnish.reset()
    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for value in (1.0, -1.0, 2.0):
        x = torch.full((3,), value, requires_grad=learns)
        torch.testing.assert_close(compiled(x), fn(x))
    with pytest.raises(AssertionError, match="too large"):
        compiled(torch.full((3,), 9.0, requires_grad=learns))
    with pytest.raises(ValueError, match="no"):
        compiled(torch.full((3,), 3.0, requires_grad=learns))
