"""Disabled functions, which run as plain Python in the middle of compiled code."""

import torch
from torch import nn

import burnish

from .caller_programs import program_with_caller
from .harness import program

LOG = []


@burnish.disable
def plain(x, k=2):
    LOG.append(k)
    return x * k if x.sum() > 0 else x - k


@program
def test_disabled_function_in_the_middle():
    LOG.clear()

    def fn(x):
        y = plain(x + 1, k=3)
        return y * 2, len(LOG)

    return fn, [(torch.full((2,), v),) for v in (1.0, -5.0, 2.0, -5.0)], LOG


@program
def test_disabled_with_a_reason_and_as_a_call():
    def helper(x):
        return x.tolist()

    helper = burnish.disable(helper, reason="reads data")

    def fn(x):
        return x * sum(helper(x * 2))

    return fn, lambda i: (torch.randn(3),)


@program
def test_disabled_function_calls_back_into_a_closure():
    @burnish.disable
    def each(f, tensors):
        return [f(t) for t in tensors]

    def fn(x, k):
        return each(lambda t: t * k + x.sum(), [x, x + 1])

    return fn, [(torch.randn(2), k) for k in (1, 2, 1)]


@program
def test_disabled_module_between_layers():
    class Middle(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = 0

        @burnish.disable
        def forward(self, x):
            self.seen += 1
            return x + self.seen

    model = nn.Sequential(nn.Linear(2, 2), Middle(), nn.Linear(2, 2))
    return model, lambda i: (torch.randn(1, 2),), model[1]


@program_with_caller
def test_gradients_flow_through_a_disabled_part():
    @burnish.disable
    def middle(x):
        return x**2

    def fn(x):
        return (middle(x * 2) * 3).sum()

    def caller(fn, x):
        fn(x).backward()
        return x.grad

    return fn, caller, lambda i: (torch.randn(3, requires_grad=True),)


@program
def test_disabled_function_raises():
    @burnish.disable
    def check(x, limit):
        if x.max() > limit:
            raise ValueError(f"above {limit}")
        return x

    def fn(x):
        try:
            y = check(x * 2, 3)
        except ValueError as error:
            return str(error), x
        return "fine", y + 1

    return fn, [(torch.full((2,), v),) for v in (1.0, 2.0, 0.5, 9.0)]


@program
def test_disabled_function_changes_its_arguments():
    @burnish.disable
    def change(x, items):
        x.mul_(10)
        items.append(x.sum().item())

    def fn(x):
        items = [0.0]
        y = x + 1
        change(y, items)
        change(x, items)
        return y * 2, items

    return fn, lambda i: (torch.randn(2),)


@program
def test_disabled_under_no_grad_and_autocast():
    @burnish.disable
    def product(x):
        return x @ x, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")

    def fn(x):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            inside = product(x)
        return inside, product(x)

    return fn, lambda i: (torch.randn(2, 2, requires_grad=True),)


@program
def test_mark_of_torch_is_respected():
    @torch.compiler.disable
    def plainly(x):
        return x.sum().item()

    def fn(x):
        return x * plainly(x), plainly(x + 1)

    return fn, lambda i: (torch.randn(3),)


@program
def test_whole_entry_is_disabled():
    @burnish.disable
    def fn(x):
        return x * x.sum().item()

    return fn, lambda i: (torch.randn(3),)


@program
def test_graph_break_requested_by_the_user():
    def fn(x, y):
        z = x + y
        burnish.graph_break()
        z = z * 2
        return z.sin()

    return fn, lambda i: (torch.randn(3), torch.randn(3))
