"""Numbers of tensors that a program writes to in ways that their names do not show, and numbers beyond a dtype."""

import pytest
import torch
from torch.nn import functional

import burnish

A = torch.ops.aten


@torch.library.custom_op("burnish_tests::bump", mutates_args={"t"})
def bump(t: torch.Tensor) -> None:
    t.add_(1)


class Added(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        t.add_(1)
        ctx.mark_dirty(t)
        return t

    @staticmethod
    def backward(ctx, g):
        return g


WRITES = {
    "an overload": lambda t: A.add_.Scalar(t, 2),
    "a list": lambda t: A._foreach_add_.Scalar([t], 1),
    "a library": bump,
    "vmap": lambda t: torch.vmap(lambda v: v.add_(1))(t.view(1)),
    "vmap of another": lambda t: torch.vmap(lambda v: t.add_(1))(torch.ones(1)),
    "a Function": Added.apply,
    "functionalize": lambda t: torch.func.functionalize(lambda v: v.add_(1))(t),
    "prims": lambda t: torch.ops.prims.copy_to(t, torch.zeros((), dtype=t.dtype)),
}


def outcomes(fn, values, given):
    found = []
    for value in values:
        x = given.clone()
        try:
            result = str(fn(x, value))
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        found.append((result, x.tolist()))
    return found


def check(fn, values, given=None, backend="eager"):
    given = torch.ones(2) if given is None else given
    with burnish.settings.patch(never_slower=False):
        assert outcomes(burnish.compile(fn, backend=backend), values, given) == outcomes(fn, values, given)


@pytest.mark.parametrize("name", WRITES)
def test_a_number_is_read_after_the_write(name):
    def fn(x, n):
        t, zero = torch.tensor(n), torch.zeros((), dtype=torch.int64)
        WRITES[name](t)
        WRITES[name](zero)
        return t.item(), zero.item(), x * 3 if t > 5 else x * 2

    check(fn, (3, 5, 4, 7))


@pytest.mark.parametrize("name", ["overload", "vmap"])
def test_a_write_before_an_assertion_that_fails_happens_once(name):
    def fn(x, n):
        A.add_.Tensor(x, torch.ones(2)) if name == "overload" else torch.vmap(lambda v: v.add_(1))(x)
        torch._assert_async((n > 0).all())
        return x * 2

    check(fn, [torch.tensor([1.0, sign]) for sign in (1, 2, -1, 1)])


def test_a_number_beyond_a_dtype_is_what_eager_makes_of_it():
    check(lambda x, n: (torch.tensor(n, dtype=torch.float32).item(), x.new_tensor(n)), (3, 4, 5, 2**70, 2**130, 6))
    check(lambda x, n: torch.tensor(n, dtype=torch.half), (3, 4, 5, 65504, 65510, 65520, 70000, -(2**40), 2**70, 6))

    def fn(x, n):
        t = torch.tensor(n)
        x.mul_(2)
        return int(t), x

    check(fn, (3.0, 4.0, 5.0, 1e300, 6.0))


@pytest.mark.parametrize("values", [(2, 3, 5, 2**31 - 1, 2**24 + 1, 4), (2.5, 3.5, 1.5, 1e-320, 4.0)])
def test_exponents_are_odd_and_tiny_as_in_python(values):
    check(lambda x, n: x**n, values, torch.tensor([1.0, -2.0, 3.0, 0.0]), "burnish")


def test_a_half_is_not_padded_with_a_number_beyond_it():
    values = (2, 3, 5, 2**31, 70000, 4)
    check(lambda x, n: functional.pad(x, (1, 1), value=n) * 2, values, torch.ones(2).half(), "burnish")


def test_a_number_read_from_a_tensor_is_an_object_of_its_own():
    def fn(x, n):
        t = torch.tensor(n)
        v = t.item()
        return v is n, v is v, v is t.item(), int(t) is n

    check(fn, (1000, 2000, 10**12, -7000, 3, 256, 257))
