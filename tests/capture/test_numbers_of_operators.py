"""Numbers that change from call to call, as arguments of registered operators and inside higher-order operators."""

import math

import pytest
import torch
from torch._higher_order_ops.map import map as map_elements
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.library import custom_op
from torch.utils._pytree import tree_leaves

import burnish
from burnish.capture.pytorch.torch_library_operators import runs_python

from .test_changing_numbers import SMALL, check

X = torch.arange(1.0, 13.0).view(4, 3) / 8
FLOATS = (0.5, 0.25, 1.5, 0.0, -0.75, float("nan"), float("inf"))
BACKENDS = {"burnish": "burnish", "eager": "eager", "another": lambda gm, inputs: gm.forward}


def register(name, function, describe, mutates_args=()):
    made = custom_op(f"burnish_numbers::{name}", function, mutates_args=mutates_args)
    made.register_fake(describe)
    return made


def scale(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * n


def scale_all(x: torch.Tensor, ns: list[int], by: float = 1.0) -> torch.Tensor:
    return x * sum(ns) * by


def scale_(x: torch.Tensor, n: int) -> None:
    x.mul_(n)


def twice_if_five(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * n if n != 5 else x.repeat(2, 1)


def repeated(x: torch.Tensor, n: int) -> torch.Tensor:
    return x.repeat(n % 3 + 1, 1) * n


def small(x: torch.Tensor, n: int) -> torch.Tensor:
    if n > 6:
        raise ValueError("too large")
    return x.double() if n < 0 else x + n


def describe_small(x, n):
    torch._check(n <= 6, lambda: "too large")
    return torch.empty_like(x, dtype=torch.float64 if n < 0 else x.dtype)


scaled = register("scaled", scale, lambda x, n: torch.empty_like(x))
scaled_all = register("scaled_all", scale_all, lambda x, ns, by=1.0: torch.empty_like(x))
scaled_ = register("scaled_", scale_, lambda x, n: None, ("x",))
doubled = register("doubled", twice_if_five, lambda x, n: x.new_empty(x.shape[0] * (1 + (n == 5)), x.shape[1]))
# Torch's own `pow` takes numbers that change: the name alone must not decide.
powered = register("pow", repeated, lambda x, n: x.new_empty(x.shape[0] * (n % 3 + 1), x.shape[1]))
limited = register("limited", small, describe_small)


def scaled_copy(x, n):
    y = x.clone()
    scaled_(y, n)
    return y


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("fn", "most"),
    [
        (lambda x, n: scaled(x, n + 1) * n, 2),
        (lambda x, n: scaled_all(x, [n, 2], by=0.5) + 1, 2),
        (lambda x, n: torch.ops.burnish_numbers.scaled(x, n), 2),
        (scaled_copy, 2),
        (lambda x, n: torch.ops.aten.mul.Tensor(x, n) + torch.ops.aten.add(x, n), 2),
    ],
)
def test_operators_take_changing_integers(fn, most, backend):
    check(fn, SMALL, most, BACKENDS[backend], X)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, n: doubled(x, n) + 1,
        lambda x, n: powered(x, n) * powered(x, n).shape[0],
        lambda x, n: torch.ops.burnish_numbers.pow(x, n),
        lambda x, n: limited(x, n) * 2,
    ],
)
def test_results_that_look_different_for_other_numbers_are_seen(fn, backend):
    check(fn, (3, 4, 5, 7, 2, -1, 5, 3), 8, BACKENDS[backend], X)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_sizes_and_numbers_of_operators_change_together(backend, dynamic):
    compiled = burnish.compile(lambda x, n: doubled(x, n) + 1, backend=BACKENDS[backend], dynamic=dynamic)
    for n, rows in ((3, 4), (4, 4), (2, 5), (5, 5), (7, 6), (5, 4), (3, 7)):
        x = torch.arange(rows * 3.0).view(rows, 3)
        assert torch.equal(compiled(x, n), twice_if_five(x, n) + 1)


TRANSFORMS = {
    "vmap": lambda x, n: torch.vmap(lambda r: r * n + r.sum())(x),
    "vmap of an argument": lambda x, n: torch.vmap(lambda r, k: (r + k).sin(), in_dims=(0, None))(x, n),
    "a branch": lambda x, n: torch.vmap(lambda r: r * n if n > 3 else r - n)(x),
    "grad": lambda x, n: torch.func.grad(lambda y: (y.sin() * n).sum())(x),
    "alpha": lambda x, n: torch.func.grad(lambda y: torch.add(y.sin(), y, alpha=n).sum())(x),
    "vjp": lambda x, n: torch.func.vjp(lambda y: (y * n).clamp(max=n), x)[1](x)[0],
    "jvp": lambda x, n: torch.func.jvp(lambda y: y.sin() * n, (x,), (x,))[1],
    "jacrev": lambda x, n: torch.func.jacrev(lambda y: (y.cos() - n).sum(0) * n)(x),
    "hessian": lambda x, n: torch.func.hessian(lambda y: (y.sin() * n).sum())(x[0]),
    "both": lambda x, n: torch.vmap(torch.func.grad(lambda r: (r.sin() * n).sum()))(x),
    "in place": lambda x, n: torch.vmap(lambda r: r.clone().mul_(n).add_(r, alpha=n))(x),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("values", [SMALL, FLOATS])
@pytest.mark.parametrize("name", sorted(TRANSFORMS.keys() - {"vjp", "jvp"}))
def test_transformed_functions_take_changing_numbers(name, values, backend):
    check(TRANSFORMS[name], values, 3 if name in ("a branch", "alpha") else 2, BACKENDS[backend], X)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["vmap", "grad", "jvp", "vjp"])
def test_gradients_through_transformed_functions_follow_the_number(name, backend):
    compiled = burnish.compile(TRANSFORMS[name], backend=BACKENDS[backend])
    for n in (3, 4, 5, 2.5, 0.5, 3):
        gradients = []
        for fn in (TRANSFORMS[name], compiled):
            x = X.clone().requires_grad_()
            fn(x, n).sum().backward()
            gradients.append(x.grad)
        torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_functions_that_vjp_returns_know_the_number_after_a_break(backend):
    def fn(x, n):
        y, back = torch.func.vjp(lambda t: t.sin() * n, x)
        if y.sum() > 0:
            return back(x)[0]
        return back(-x)[0]

    compiled = burnish.compile(fn, backend=BACKENDS[backend])
    for n in (3, 4, -5, 2):
        torch.testing.assert_close(compiled(X, n), fn(X, n))


@burnish.disable
def call_natively(function, x):
    return function(x)


@pytest.mark.parametrize("name", ["grad", "jacrev", "jacfwd", "hessian", "functionalize"])
def test_transformed_functions_that_leave_the_graph_hold_the_number(name):
    transform = getattr(torch.func, name)
    check(lambda x, n: call_natively(transform(lambda y: (y.sin() * n).sum()), x), SMALL, 2, "burnish", X[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_sizes_by_numbers_in_transformed_functions_are_seen(backend):
    check(
        lambda x, n: torch.vmap(lambda r: r.expand(abs(n) + 1, 3) * n)(x), (2, 3, 5, 0, -2, 3), 6, BACKENDS[backend], X
    )


LOOPS = {
    "scan": lambda x, n: scan(lambda c, r: (c + r * (n + 1) - n, c * 2), torch.zeros_like(x[0]), x)[1],
    "while": lambda x, n: while_loop(lambda i, y: i.sum() < 3, lambda i, y: (i + 1, y * n), (torch.zeros(1), x))[1],
    "map": lambda x, n: map_elements(lambda r, k: r * k + n, x, n),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", LOOPS)
def test_loops_take_changing_integers(name, backend):
    check(LOOPS[name], SMALL, 2, BACKENDS[backend], X)


@pytest.mark.parametrize("name", LOOPS)
def test_loops_take_changing_fractions(name):
    check(LOOPS[name], FLOATS, 2, "burnish", X)


def assert_follows(fn, numbers, backend, x=X):
    compiled = burnish.compile(fn, backend=BACKENDS[backend])
    for n in numbers:
        expected, made = fn(x, n), compiled(x, n)
        torch.testing.assert_close(made, expected, equal_nan=True)
        assert [y.stride() for y in tree_leaves(made)] == [y.stride() for y in tree_leaves(expected)]


POWERS = {
    "operator": lambda y, n: y**n,
    "function": torch.pow,
    "method": lambda y, n: y.pow(n),
    "in place": lambda y, n: y.clone().pow_(n),
    "float": torch.float_power,
    "base": lambda y, n: n ** y.abs(),
    "overload": lambda y, n: torch.ops.aten.pow(y, n),
    "many": lambda y, n: torch._foreach_pow([y], n)[0],
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", POWERS)
def test_gradients_of_powers_have_the_formula_of_the_exponent(name, backend):
    power, zero = POWERS[name], torch.tensor([0.0, 1.0, 2.0])
    assert_follows(
        lambda x, n: torch.func.hessian(lambda y: power(y, n).sum())(x), (3, 1, 2, 0, 0.5, -1), backend, zero
    )
    assert_follows(
        lambda x, n: torch.func.grad(lambda z: torch.func.grad(lambda y: power(y, n).sum())(z).sum())(x),
        (3, 1, 2, 0, 0.5, -1),
        backend,
        zero,
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, n: torch.vmap(lambda r, k: r.cumsum(0) + k, in_dims=(n, None))(x, 2),
        lambda x, n: torch.vmap(lambda pair: pair["a"].cumsum(0), in_dims=({"a": n},))({"a": x}),
        lambda x, n: torch.vmap(
            lambda r: torch.vmap(lambda z: z.cumsum(0), in_dims=(n,))(r.expand(3, 3)), in_dims=(1,)
        )(x[:3]),
        lambda x, n: torch.vmap(lambda r: (r, r), out_dims=(n, 0))(x),
        lambda x, n: torch.func.vjp(lambda y: (y * 2, y), x, has_aux=n)[0],
    ],
)
def test_numbers_in_containers_that_transforms_read_are_guarded(fn, backend):
    assert_follows(fn, (0, 1, 0, 1, 1), backend)


def helper(r, n):
    return torch.tensor(n) * r


@pytest.mark.parametrize("backend", BACKENDS)
def test_tensors_of_numbers_in_transformed_functions_are_made_again(backend):
    assert_follows(lambda x, n: torch.func.grad(lambda y: helper(y[1], n).sum())(x), SMALL, backend)


def twice_if_negative(x: torch.Tensor, n: float) -> torch.Tensor:
    return x.clone() if math.copysign(1, n) > 0 else x.repeat(2, 1)


signed = register(
    "signed", twice_if_negative, lambda x, n: x.new_empty(x.shape[0] * (2 - (math.copysign(1, n) > 0)), 3)
)


@pytest.mark.parametrize("backend", BACKENDS)
def test_operators_see_the_sign_of_zero(backend):
    assert_follows(lambda x, n: x * signed(x, n).shape[0], (0.5, 1.5, 0.0, -0.0, 2.0, -0.0), backend)


asked: list[int] = []


def describe_and_count(x, n):
    asked.append(n)
    return torch.empty_like(x)


counted = register("counted", scale, describe_and_count)


@pytest.mark.parametrize(("backend", "most"), [("burnish", 20), ("eager", 20), ("another", 110)])
def test_descriptions_are_not_asked_for_ever(backend, most):
    compiled = burnish.compile(lambda x, n: counted(x, n) + 1, backend=BACKENDS[backend])
    for n in range(5):
        compiled(X, n)
    asked.clear()
    for n in range(100, 200):
        assert torch.equal(compiled(X, n), X * n + 1)
    assert len(asked) <= most


@pytest.fixture(scope="module")
def library():
    made = torch.library.Library("burnish_kernels", "DEF")
    made.define("scaled(Tensor x, int n) -> Tensor")
    made.impl("scaled", lambda x, n: x * n, "CPU")
    torch.library.register_fake("burnish_kernels::scaled", lambda x, n: torch.empty_like(x), lib=made)
    made.define("both.Tensor(Tensor x, Tensor y) -> Tensor")
    made.define("both.Scalar(Tensor x, int y) -> Tensor")
    made.impl("both.Tensor", lambda x, y: x * y, "CompositeExplicitAutograd")
    made.impl("both.Scalar", lambda x, y: x * y + 1, "CompositeExplicitAutograd")
    for overload in ("both.Tensor", "both.Scalar"):
        torch.library.register_fake(f"burnish_kernels::{overload}", lambda x, y: torch.empty_like(x), lib=made)
    yield made
    made._destroy()


@pytest.mark.parametrize("backend", [*BACKENDS, "aot_eager"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_gradients_flow_through_kernels_without_a_formula(library, dynamic, backend):
    def fn(x, n):
        return torch.ops.burnish_kernels.scaled(x.sin(), n) * x + torch.ops.burnish_kernels.both(x, n)

    compiled = burnish.compile(fn, backend=BACKENDS.get(backend, backend), dynamic=dynamic)
    for n, rows in ((3, 4), (3, 5), (4, 6), (5, 7), (5, 3), (-1, 4)):
        gradients = []
        for function in (fn, compiled):
            x = torch.arange(1.0, rows * 3 + 1).view(rows, 3).div(10).requires_grad_()
            with pytest.warns(UserWarning, match="an autograd kernel was not registered"):
                function(x, n).sum().backward()
            gradients.append(x.grad)
        torch.testing.assert_close(gradients[1], gradients[0])


def test_kernels_from_other_code_than_files_are_seen():
    made = torch.library.Library("burnish_typed", "DEF")
    code = """made.define("f(Tensor x) -> Tensor"); made.impl("f", lambda x: x * 2, "CPU")"""
    exec(compile(code, "<stdin>", "exec"), {"made": made})
    assert runs_python(torch.ops.burnish_typed.f)
    made._destroy()


@pytest.mark.parametrize("backend", BACKENDS)
def test_operators_need_no_default_overload(library, backend):
    most = len(SMALL) if backend == "another" else 2
    check(lambda x, n: torch.ops.burnish_kernels.both(x, n) * x, SMALL, most, BACKENDS[backend], X)
