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
def test_without_a_level_no_tensor_has_a_tangent():
    def fn(x, t):
        unpacked = forward_ad.unpack_dual(x)
        if unpacked.tangent is None and forward_ad.unpack_dual(level=None, tensor=t * 2).tangent is None:
            x = x.clamp(0, 1)
        with forward_ad.dual_level():
            tangent = forward_ad.unpack_dual(forward_ad.make_dual(x, t).sin()).tangent
        return unpacked, unpacked.primal is t, tangent, forward_ad.unpack_dual(tangent)

    return fn, two


@pytest.mark.parametrize("backend", ["burnish", "eager"])
def test_a_level_of_the_caller_has_tangents(backend):
    def fn(x):
        tangent = forward_ad.unpack_dual(x).tangent
        return x * 2 if tangent is None else tangent * 3

    compiled, x = burnish.compile(fn, backend=backend, fullgraph=True), torch.ones(3)
    for _ in range(2):
        assert torch.equal(compiled(x), x * 2)
        with forward_ad.dual_level():
            assert torch.equal(compiled(forward_ad.make_dual(x, x * 5)), x * 15)
            assert torch.equal(compiled(x), x * 2)
        assert torch.equal(torch.func.jvp(compiled, (x,), (x,))[0], torch.func.jvp(fn, (x,), (x,))[0])


@pytest.mark.parametrize("backend", ["burnish", "eager"])
def test_a_level_that_a_call_opens_is_seen_behind_it(backend):
    opened = []

    @torch.compiler.disable
    def maybe_open():
        if opened:
            opened[0].__enter__()

    def fn(x, t):
        maybe_open()
        d = forward_ad.make_dual(x, t) if opened else x
        tangent = forward_ad.unpack_dual(d * 2).tangent
        return d.detach() if tangent is None else tangent + 1

    compiled, x = burnish.compile(fn, backend=backend), torch.ones(3)
    for _ in range(2):
        assert torch.equal(compiled(x, x), x)
        opened.append(forward_ad.dual_level())
        try:
            assert torch.equal(compiled(x, x), x * 3)
        finally:
            opened.pop().__exit__(None, None, None)


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


@program
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


@program
def test_write_to_a_dual_of_an_argument():
    def fn(x, t):
        with forward_ad.dual_level():
            d = forward_ad.make_dual(x, t)
            d.mul_(3)
            return forward_ad.unpack_dual(d).tangent * 1, x * 1

    return fn, two


@program
def test_write_to_a_dual_of_a_new_tensor():
    def fn(x, t):
        y = x * 1
        with forward_ad.dual_level():
            d = forward_ad.make_dual(y, t)
            d += 1
            return forward_ad.unpack_dual(d).tangent * 1, y * 1

    return fn, two


@program
def test_write_to_a_list_of_duals():
    def fn(x, t):
        with forward_ad.dual_level():
            d = forward_ad.make_dual(x, t)
            torch._foreach_mul_([d], 2.0)
            return forward_ad.unpack_dual(d).tangent * 1, x * 1

    return fn, two


@program
def test_write_by_vmap_inside_a_level():
    def fn(x, t):
        with forward_ad.dual_level():
            d = torch.vmap(lambda y: (y * 2).mul_(3))(forward_ad.make_dual(x, t))
            return forward_ad.unpack_dual(d).tangent * 1

    return fn, two


@program
def test_random_numbers_inside_a_level():
    def fn(x, t):
        with forward_ad.dual_level():
            d = torch.nn.functional.dropout(forward_ad.make_dual(x, t)) + torch.rand(2)
            return forward_ad.unpack_dual(d)

    return fn, two


def test_one_seed_draws_the_same_numbers_inside_a_level():
    def fn(x):
        with forward_ad.dual_level():
            return torch.rand(3) + x

    compiled, found = burnish.compile(fn), []
    for _ in range(6):
        torch.manual_seed(3)
        found.append(compiled(torch.ones(3)))
    assert all(torch.equal(value, found[0]) for value in found)


@pytest.mark.parametrize("first", [True, False])
def test_whether_tangents_are_on_is_guarded(first):
    def fn(x, t):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(forward_ad.make_dual(x, t).sin()).tangent

    def ask(x):
        return x + 1 if torch._C._is_fwd_grad_enabled() else x + 2

    x, t = two(0)
    compiled, asked = burnish.compile(fn), burnish.compile(ask)
    for on in (first, first, not first, first, not first):
        with forward_ad._set_fwd_grad_enabled(on):
            assert (compiled(x, t) is None) == (not on)
            torch.testing.assert_close(asked(x), ask(x))


@program
def test_tangents_are_switched_off_inside_a_level():
    def fn(x, t):
        try:
            with forward_ad.dual_level():
                torch._C._set_fwd_grad_enabled(False)
                d = forward_ad.make_dual(x, t).sin()
            return d * 2, torch._C._is_fwd_grad_enabled()
        finally:
            torch._C._set_fwd_grad_enabled(True)

    return fn, two


@BACKENDS
@pytest.mark.parametrize("name", ["jvp", "vmap", "vjp", "grad"])
def test_transforms_write_to_views_of_arguments(name, backend):
    def write(y):
        y.detach()[0].mul_(2)
        print(end="")
        return y.sin()

    def fn(x, t):
        if name == "jvp":
            return torch.func.jvp(lambda y: (y.mul_(2), y.sin())[1], (x,), (t,))
        if name == "vmap":
            return torch.vmap(write)(x)
        if name == "vjp":
            return torch.func.vjp(write, x)[1](t)
        return torch.func.grad(lambda y: write(y).sum())(x)

    compiled, (x, t) = burnish.compile(fn, backend=backend), two(0)
    given, expected = (x.clone(), t.clone()), (x.clone(), t.clone())
    for _ in range(4):
        torch.testing.assert_close(compiled(*given), fn(*expected))
        torch.testing.assert_close(given, expected)


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
