"""Forward-mode differentiation that the program begins and ends: tangents' operators are part of the graph."""

import pytest
import torch
import torch._decomp.decompositions_for_jvp  # warns when it is loaded
from torch.autograd import forward_ad

import burnish

from .harness import program
from .operator_backend import operators

BACKENDS = pytest.mark.parametrize(
    "backend", ["burnish", "eager", "aot_eager", pytest.param(operators, id="operators")]
)


def two(i):
    return torch.randn(3, 2), torch.randn(3, 2)


@program(breaks=0)
def test_tangent_of_a_function():
    def fn(x, t):
        with forward_ad.dual_level():
            d = forward_ad.make_dual(x, t)
            primal, tangent = forward_ad.unpack_dual(d.sin() * d)
        return primal, tangent + 1

    return fn, two


@program(breaks=0)
def test_unpacked_tensor_is_returned_as_it_is():
    def fn(x, t):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(forward_ad.make_dual(x, t).exp())

    return fn, two


@program(breaks=0)
def test_tensor_without_a_tangent_has_none():
    def fn(x, t):
        with forward_ad.dual_level():
            found = forward_ad.unpack_dual(x.exp())
            return found.primal, found.tangent is None

    return fn, two


@program(breaks=0)
def test_tangents_of_parameters():
    layer = torch.nn.Linear(2, 3)
    tangents = {name: torch.randn_like(p) for name, p in layer.named_parameters()}

    def fn(x, t):
        with forward_ad.dual_level():
            weights = {name: forward_ad.make_dual(p, tangents[name]) for name, p in layer.named_parameters()}
            return forward_ad.unpack_dual(torch.func.functional_call(layer, weights, x)).tangent

    return fn, two


@program(breaks=0)
def test_levels_entered_by_functions():
    def fn(x, t):
        level = forward_ad.enter_dual_level()
        y = forward_ad.unpack_dual(forward_ad.make_dual(x, t).tanh()).tangent
        forward_ad.exit_dual_level(level=level)
        return y, level

    return fn, two


@program(breaks=0)
def test_two_levels_one_after_the_other():
    def fn(x, t):
        with forward_ad.dual_level():
            first = forward_ad.unpack_dual(forward_ad.make_dual(x, t).sin()).tangent
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(forward_ad.make_dual(first, t).exp()).tangent

    return fn, two


@program(breaks=0)
def test_what_a_level_made_is_used_behind_it():
    seen = []

    def fn(x, t):
        with forward_ad.dual_level():
            y = forward_ad.make_dual(x, t).sin()
            seen.append(y)
            print("inside")
        return y * 2

    return fn, two, seen


@program(breaks=0)
def test_gradient_of_a_tangent():
    def fn(x, t):
        with forward_ad.dual_level():
            tangent = forward_ad.unpack_dual((forward_ad.make_dual(x, t) ** 3).sum()).tangent
        return torch.autograd.grad(tangent, x)[0]

    return fn, lambda i: (torch.randn(3, requires_grad=True), torch.randn(3))


@program(breaks=0)
def test_vmap_inside_a_level():
    def fn(x, t):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(torch.vmap(torch.sin)(forward_ad.make_dual(x, t))).tangent

    return fn, two


@program
def test_branch_on_data_inside_a_level_leaves_the_function_to_eager():
    def fn(x, t):
        with forward_ad.dual_level():
            d = forward_ad.make_dual(x, t)
            d = d.sin() if d.sum() > 0 else d.cos()
            return forward_ad.unpack_dual(d).tangent

    return fn, two


@program
def test_function_returns_inside_a_level():
    def enter(x, t):
        forward_ad.enter_dual_level()
        return forward_ad.make_dual(x, t)

    inner = burnish.compile(enter, backend="eager")

    def fn(x, t):
        d = inner(x, t)
        tangent = forward_ad.unpack_dual(d.sin()).tangent
        forward_ad.exit_dual_level()
        return tangent

    return fn, two


@program
def test_function_enters_a_level_that_its_caller_leaves():
    def fn(x, t):
        forward_ad.enter_dual_level()
        return forward_ad.make_dual(x, t).sin()

    def call(x, t):
        try:
            return forward_ad.unpack_dual(fn(x, t)).tangent
        finally:
            forward_ad.exit_dual_level()

    return call, two


@program
def test_error_leaves_a_level():
    def fn(x, t):
        with forward_ad.dual_level():
            forward_ad.make_dual(x, t).sin()
            raise ValueError("inside")

    return fn, two


@program
def test_handled_error_leaves_a_level():
    def fn(x, t):
        try:
            with forward_ad.dual_level():
                forward_ad.make_dual(x, t)
                raise ValueError("inside")
        except ValueError:
            return x * 2, forward_ad._current_level

    return fn, two


@program
def test_level_inside_a_level_is_an_error():
    def fn(x, t):
        with forward_ad.dual_level():
            try:
                with forward_ad.dual_level():
                    return x
            except RuntimeError as error:
                return str(error)

    return fn, two


@program
def test_write_to_an_argument_inside_a_level():
    def fn(x, t):
        with forward_ad.dual_level():
            d = forward_ad.make_dual(x, t)
            x.add_(1)
            return forward_ad.unpack_dual(d * 2)

    return fn, two


def test_error_of_fullgraph_leaves_no_level():
    def fn(x, t):
        with forward_ad.dual_level():
            return x if forward_ad.make_dual(x, t).sum() > 0 else t

    with pytest.raises(burnish.Unsupported):
        burnish.compile(fn, fullgraph=True)(torch.ones(2), torch.ones(2))
    assert forward_ad._current_level == -1


@BACKENDS
def test_backends_compile_tangents(backend):
    def fn(x, t):
        with forward_ad.dual_level():
            d = forward_ad.make_dual(x, t)
            return forward_ad.unpack_dual(torch.nn.functional.layer_norm(d.sigmoid() @ d.t(), (3,))).tangent

    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for _ in range(3):
        x, t = two(0)
        torch.testing.assert_close(compiled(x, t), fn(x, t))
    assert burnish.was_compiled(compiled)
