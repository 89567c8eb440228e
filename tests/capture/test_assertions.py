"""``assert`` about tensors stays in the graph, and fails as in eager.

The statements are to be what they are: PYTEST_DONT_REWRITE.
"""

import pytest
import torch

import burnish

from .harness import program


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
        return torch.distributions.Normal(mean, scale).log_prob(x)

    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    mean, scale, x = torch.zeros(3), torch.ones(3), torch.rand(3)
    for factor in (1.0, 2.0, 3.0):
        assert torch.equal(compiled(mean, scale * factor, x), fn(mean, scale * factor, x))
    with pytest.raises(ValueError, match="scale"):
        compiled(mean, -scale, x)
