"""Tensors that kernels cannot read: sparse and nested ones, those of classes that hold other tensors, and zeros without
memory. Torch or a kernel would end the process, so most of this runs in one of its own."""

import warnings

import pytest
import torch

import burnish

from ..forked_programs import run_program

KINDS = """
import warnings
import torch, burnish

warnings.simplefilter("ignore")


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)

    def __init__(self, held):
        self.held = held

    def __repr__(self):
        return f"Wrapper({self.held})"

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        args = [x.held if isinstance(x, Wrapper) else x for x in args]
        return Wrapper(function(*args, **(kwargs or {})))


values = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
KINDS = [
    lambda: Wrapper(values),
    lambda: torch._efficientzerotensor(2, 2),
    values.to_sparse,
    values.to_sparse_csr,
    lambda: torch.masked.masked_tensor(values, values > 1),
    lambda: torch._neg_view(values),
    lambda: values.to("meta"),
    lambda: torch.nested.nested_tensor(list(values)),
]


def shown(call):
    try:
        result = call()
    except Exception as error:
        return type(error)
    return type(result), repr(result)
"""


def equal_to_eager(code: str) -> None:
    done = run_program(f"{KINDS}\n{code}\nassert all(map(same, KINDS))\nprint('equal')")
    assert done.stdout.endswith("equal\n"), done.stdout + done.stderr


def test_gradients_of_every_kind_go_into_a_compiled_backward():
    equal_to_eager("""
def function(x):
    return (x * 2).sin() * x

compiled = burnish.compile(function, options={"never_slower": False})

def gradient(f, make):
    x = torch.full((2, 2), 0.3, requires_grad=True)
    f(x).backward(make())
    return x.grad

def same(make):
    wanted = shown(lambda: gradient(function, make))
    return all(shown(lambda: gradient(compiled, make)) == wanted for _ in range(3))
""")


def test_inputs_of_every_kind_come_after_plain_ones():
    equal_to_eager("""
def function(x, y):
    return (x * 2).sin() * y

def same(make):
    compiled = burnish.compile(function, options={"never_slower": False})
    for _ in range(2):
        compiled(torch.ones(2, 2), values)
    wanted = shown(lambda: function(values, make()))
    return all(shown(lambda: compiled(values, make())) == wanted for _ in range(3))
""")


def test_buffers_of_every_kind_replace_plain_ones():
    equal_to_eager("""
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for k in range(10):
            self.register_buffer(f"b{k}", torch.ones(2, 2))

    def forward(self, x):
        return (x * 2).sin() * sum(self.buffers())

def same(make):
    model = Model()
    compiled = burnish.compile(model, options={"never_slower": False})
    for _ in range(3):
        compiled(values)
    for k in range(10):
        setattr(model, f"b{k}", make())
    wanted = shown(lambda: model(values))
    return all(shown(lambda: compiled(values)) == wanted for _ in range(3))
""")


FLAT = """
FLAT = {
    "a product": lambda x: x.sgn() * x.exp(),
    "a product with infinity": lambda x: (x * 1000).exp().sgn(),
    "a view": lambda x: x.t().sgn().reshape(-1) * 2,
    "zeros alone": lambda x: x.sgn(),
    "a transposed view alone": lambda x: x.t().sgn(),
    "a matrix product": lambda x: (x @ x).sgn() @ x,
    "another dtype": lambda x: x.double().sgn() * x,
    "an absolute value": lambda x: x.abs() ** 3,
    "a loss": lambda x: torch.nn.functional.l1_loss(x.exp(), x),
}

def penalty(x, f):
    (slope,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
    return f(x).sum() + slope.square().sum(), slope.detach()

def both(run):
    x = values.clone().requires_grad_()
    made, *more = run(x)
    (slope,) = torch.autograd.grad(made.sum(), x)
    return [(t._is_zerotensor(), t.clone()) for t in (made.detach(), *more, slope)]

def same(name):
    f = FLAT[name]
    for function in (lambda x: (f(x),), lambda x: penalty(x, f)):
        compiled = burnish.compile(function, options={"never_slower": False})
        wanted = torch.cat([t.flatten() for _, t in both(function)])
        for _ in range(3):
            found = both(compiled)
            assert [zero for zero, _ in found] == [zero for zero, _ in both(function)], name
            found = torch.cat([t.flatten() for _, t in found])
            torch.testing.assert_close(found, wanted, equal_nan=True)
    return True

KINDS = FLAT
"""


def test_gradients_that_are_zero_everywhere_flow_on_as_in_eager():
    equal_to_eager(FLAT)


@pytest.mark.parametrize("transform", [torch.func.jvp, torch.func.vjp])
def test_a_compiled_result_is_differentiated_inside_a_transform(transform):
    def result(f):
        x = torch.arange(1.0, 4.0).requires_grad_()
        y = f(x)
        tangents = [(torch.arange(3.0),)] if transform is torch.func.jvp else []
        given = torch.ones(3) if transform is torch.func.vjp else (torch.ones(3),)
        found = transform(lambda v: torch.autograd.grad(y, x, v, retain_graph=True)[0], given, *tangents)
        return found if transform is torch.func.jvp else found[:1]

    def function(x):
        return x.sin() * x + 1

    compiled = burnish.compile(function, options={"never_slower": False})
    for _ in range(3):
        torch.testing.assert_close(result(compiled), result(function))


@pytest.mark.falls_back("refused")
def test_a_slice_of_a_nested_tensor_with_sizes_that_may_change():
    nested = torch.nested.nested_tensor([torch.ones(2, 6), torch.ones(3, 6)])
    compiled = burnish.compile(lambda t: t[1, :, -1], dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            assert torch.equal(compiled(nested), torch.ones(3))
