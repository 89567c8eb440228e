"""torch.func: vmap, grad, jacobians and functional calls, alone and inside each other."""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from .caller_programs import program_with_caller
from .harness import program

COUNTS = []


def counted(t):
    COUNTS.append(1)
    return (t * t).sum()


def forward_mode_is_warm():
    """The first jvp of a process imports torch code that warns; both worlds should see it done."""
    torch.func.jvp(torch.sin, (torch.ones(1),), (torch.ones(1),))


@program
def test_vmap_over_rows():
    def fn(x, y):
        return vmap(torch.dot)(x, y)

    return fn, lambda i: (torch.randn(4, 3), torch.randn(4, 3))


@program
def test_vmap_with_dimensions_and_a_closure():
    def fn(x, y, k):
        def one(a, b):
            return (a * b).sum() * k

        return vmap(one, in_dims=(0, None))(x, y), vmap(one, in_dims=(1, 0), out_dims=0)(x, x)

    return fn, [(torch.randn(3, 3), torch.randn(3), k) for k in (1, 2.5, 1)]


@program
def test_nested_vmap():
    def fn(x, y):
        return vmap(vmap(torch.mul, in_dims=(None, 0)), in_dims=(0, None))(x, y)

    return fn, [(torch.randn(n), torch.randn(3)) for n in (2, 4, 2)]


@program
def test_vmap_refuses_python_control_flow_on_data():
    def fn(x):
        try:
            return vmap(lambda row: row * 2 if row.sum() > 0 else row)(x)
        except RuntimeError as error:
            return "data-dependent control flow" in str(error), x.sum()

    return fn, lambda i: (torch.randn(2, 3),)


@program
def test_grad_of_a_function():
    def fn(x, k):
        return grad(lambda v: (v.sin() * k).sum())(x)

    return fn, [(torch.randn(3), k) for k in (1.0, 2.0, 1.0)]


@program
def test_grad_with_value_and_auxiliary():
    def loss(w, x):
        y = x @ w
        return y.pow(2).sum(), {"y": y}

    def fn(w, x):
        gradient, (value, aux) = torch.func.grad_and_value(loss, has_aux=True)(w, x)
        return gradient, value, aux["y"]

    return fn, lambda i: (torch.randn(3), torch.randn(2, 3))


@program
def test_second_derivative():
    def fn(x):
        return grad(grad(lambda v: v**4))(x), vmap(grad(grad(torch.sin)))(torch.stack([x, x * 2]))

    return fn, lambda i: (torch.randn(()),)


@program
def test_jacobians_forward_and_reverse():
    forward_mode_is_warm()

    def fn(x):
        def f(v):
            return v.cumsum(0).sin() * v[0]

        return torch.func.jacrev(f)(x), torch.func.jacfwd(f)(x), torch.func.hessian(lambda v: f(v).sum())(x)

    return fn, lambda i: (torch.randn(3),)


@program
def test_vector_products():
    forward_mode_is_warm()

    def fn(x, v):
        out, pull = torch.func.vjp(torch.sin, x)
        return out, pull(v)[0], torch.func.jvp(torch.cos, (x,), (v,))

    return fn, lambda i: (torch.randn(3), torch.randn(3))


@program
def test_functional_call_with_other_parameters():
    model = nn.Linear(2, 2)

    def fn(x, k):
        params = {name: p * k for name, p in model.named_parameters()}
        return functional_call(model, params, (x,)), model(x)

    return fn, [(torch.randn(1, 2), k) for k in (0.0, 2.0, 0.0)], model


@program
def test_functional_call_updates_given_buffers_only():
    model = nn.BatchNorm1d(2)

    def fn(x):
        buffers = {k: v.clone() for k, v in model.named_buffers()}
        out = functional_call(model, (dict(model.named_parameters()), buffers), (x,))
        return out, buffers

    return fn, lambda i: (torch.randn(3, 2) + i,), model


@program
def test_gradients_per_sample():
    model = nn.Linear(3, 1)

    def fn(x, y):
        params = {k: v.detach() for k, v in model.named_parameters()}

        def loss(p, sample, target):
            return (functional_call(model, p, (sample[None],)) - target).pow(2).sum()

        return vmap(grad(loss), in_dims=(None, 0, 0))(params, x, y)

    return fn, [(torch.randn(n, 3), torch.randn(n, 1)) for n in (2, 4, 2)]


@program
def test_ensemble_of_stacked_models():
    models = [nn.Linear(2, 2) for _ in range(3)]

    def fn(x):
        params, buffers = torch.func.stack_module_state(models)

        def one(p, b, v):
            return functional_call(models[0], (p, b), (v,))

        return vmap(one, in_dims=(0, 0, None))(params, buffers, x)

    return fn, lambda i: (torch.randn(1, 2),)


@program
def test_random_numbers_in_vmap():
    def fn(x, how):
        return vmap(lambda row: row + torch.rand(2), randomness=how)(x)

    return fn, [(torch.zeros(3, 2), how) for how in ("different", "same", "different", "same")]


@program_with_caller
def test_autograd_outside_of_vmap_inside():
    def fn(x, w):
        return vmap(lambda row: (row * w).sin().sum())(x)

    def caller(fn, x, w):
        fn(x, w).sum().backward()
        return x.grad, w.grad

    return fn, caller, lambda i: (torch.randn(3, 2, requires_grad=True), torch.randn(2, requires_grad=True))


@program
def test_step_of_inner_training_by_hand():
    def fn(w, x, y, steps):
        for _ in range(steps):
            w = w - 0.1 * grad(lambda v: (x @ v - y).pow(2).mean())(w)
        return w

    return fn, [(torch.randn(2), torch.randn(3, 2), torch.randn(3), n) for n in (1, 3, 1, 0)]


@program(breaks=0)
def test_transforms_of_functions_written_in_c():
    def fn(x):
        return torch.vmap(torch.mul)(x, x), torch.vmap(torch.Tensor.sin)(x), torch.func.grad(torch.sum)(x)

    return fn, lambda i: (torch.randn(2, 3),)


@program(breaks=0)
def test_a_local_function_closes_over_computed_values():
    forward_mode_is_warm()
    model = nn.Linear(3, 1)

    def fn(x, k):
        scale = x.abs().sum() + 1
        parts = {"shift": x * 2, "weights": [x.sin(), x.cos()]}

        def inner(t):
            return t * scale + parts["shift"]

        def loss(t):
            return (inner(t) * parts["weights"][0] + model(t) * k).sum()

        return grad(loss)(x), vmap(lambda t, power=2: t**power * scale)(x), torch.func.hessian(loss)(x)

    return fn, [(torch.randn(3), k) for k in (1, 2, 1, 3)]


@program(breaks=0)
def test_a_closure_is_created_in_each_run():
    def fn(x):
        total = torch.zeros(())
        for i in range(3):
            offset = x[i]
            total = total + grad(lambda t: (t * offset).sum() ** 2)(x).sum()  # noqa: B023
        return total

    return fn, lambda i: (torch.randn(3),)


@program
def test_a_local_function_writes_to_something_outside():
    seen = []

    def fn(x):
        scale = x.sum()

        def loss(t):
            seen.append(1)
            return (t * scale).sum()

        return grad(loss)(x), len(seen)

    return fn, lambda i: (torch.randn(3),), seen


@program
def test_a_function_outside_writes_to_something_outside():
    calls = []

    def loss(t):
        calls.append(1)
        return (t * t).sum()

    gradient = grad(loss)

    def fn(x):
        return gradient(x), grad(counted)(x), len(COUNTS)

    COUNTS.clear()
    return fn, lambda i: (torch.ones(3),), calls


@program_with_caller
def test_a_function_of_the_callers_is_another_one_each_time():
    def fn(x, function):
        scale = x.sum()
        return grad(lambda t: function(t * scale).sum())(x)

    def caller(fn, x, k):
        return fn(x, lambda t: t**k)

    return fn, caller, [(torch.randn(3), k) for k in (1, 2, 3, 2)]


@program
def test_gradients_flow_through_closures():
    def fn(x, w):
        y = w * 2
        out = vmap(lambda t: (t * y).sum())(x)
        out.sum().backward()
        found = w.grad.clone()
        w.grad = None
        return found

    return fn, lambda i: (torch.randn(4, 3), torch.ones(3, requires_grad=True))
