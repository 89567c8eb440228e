"""Custom autograd functions: what is saved, what backward returns, and arguments that are no tensors."""

import itertools
import types

import numpy as np
import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .caller_programs import program_with_caller
from .harness import program


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 30 * x**2


class Affine(Function):
    @staticmethod
    def forward(ctx, x, k, name=None):
        ctx.k, ctx.name = k, name
        return x * k + len(name or "")

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.k * 100, None, None


def backward_of(fn, *args):
    """Call, pull a gradient of ones back, and give all that is seen."""
    out = fn(*args)
    first = out[0] if isinstance(out, tuple) else out
    first.sum().backward()
    return out, [a.grad for a in args if isinstance(a, torch.Tensor)]


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


@program_with_caller
def test_own_backward_is_used():
    def fn(x):
        return Cube.apply(x * 2)

    return fn, backward_of, lambda i: (leaf(3),)


@program_with_caller
def test_arguments_that_are_no_tensors():
    def fn(x, k, name):
        return Affine.apply(x, k, name) if name else Affine.apply(x, k)

    return fn, backward_of, [(leaf(3), 2, "ab"), (leaf(3), 3.5, None), (leaf(3), 2, "abcd"), (leaf(3), 2, "ab")]


@program_with_caller
def test_several_outputs():
    class Parts(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y, x + y, x.detach().sum()

        @staticmethod
        def backward(ctx, g_product, g_sum, g_total):
            x, y = ctx.saved_tensors
            return g_product * y * 10 + g_sum, g_product * x + g_sum * 10

    def fn(x, y):
        product, total, plain = Parts.apply(x, y)
        return product * 2 + total, plain

    return fn, backward_of, lambda i: (leaf(3), leaf(3))


@program_with_caller
def test_needs_input_grad_skips_work():
    log = []

    class Product(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            log.append(ctx.needs_input_grad)
            return x * y

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            return grad * y if ctx.needs_input_grad[0] else None, grad * x if ctx.needs_input_grad[1] else None

    def fn(x, y):
        return Product.apply(x, y)

    return (
        fn,
        backward_of,
        [(leaf(2), leaf(2)), (leaf(2), torch.randn(2)), (torch.randn(2), leaf(2)), (leaf(2), leaf(2))],
        log,
    )


@program_with_caller
def test_separate_setup_context():
    class Square(Function):
        @staticmethod
        def forward(x, scale):
            return x * x * scale

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.scale = inputs
            ctx.save_for_backward(x, output)

        @staticmethod
        def backward(ctx, grad):
            x, out = ctx.saved_tensors
            return grad * x * ctx.scale + out * 0, None

    def fn(x, scale):
        return Square.apply(x, scale)

    return fn, backward_of, [(leaf(2), s) for s in (1, 2, 1, 3)]


@program_with_caller
def test_in_place_function_marks_its_input_dirty():
    class Fill(Function):
        @staticmethod
        def forward(ctx, x, value):
            ctx.mark_dirty(x)
            return x.fill_(value)

        @staticmethod
        def backward(ctx, grad):
            return grad * 0.5, None

    def fn(x, value):
        y = x * 2
        out = Fill.apply(y, value)
        return out, out is y

    return fn, backward_of, [(leaf(2), v) for v in (1.0, 2.0, 1.0)]


@program_with_caller
def test_output_marked_as_not_differentiable():
    class SortWithRank(Function):
        @staticmethod
        def forward(ctx, x):
            values, order = x.sort()
            ctx.mark_non_differentiable(order)
            ctx.save_for_backward(order)
            return values, order

        @staticmethod
        def backward(ctx, g_values, g_order):
            (order,) = ctx.saved_tensors
            return torch.zeros_like(g_values).index_add_(0, order, g_values)

    def fn(x):
        values, order = SortWithRank.apply(x)
        return values * torch.arange(len(values)), order.requires_grad

    return fn, backward_of, lambda i: (leaf(4),)


@program_with_caller
def test_double_backward_goes_through_backward():
    def fn(x):
        return Cube.apply(x)

    def caller(fn, x):
        (first,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        return first, second

    return fn, caller, lambda i: (leaf(3),)


@program_with_caller
def test_once_differentiable_refuses_a_second_time():
    class Doubled(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @once_differentiable
        def backward(ctx, grad):
            return grad * 2

    def fn(x):
        return Doubled.apply(x) ** 2

    def caller(fn, x):
        (first,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        try:
            torch.autograd.grad(first.sum(), x)
        except RuntimeError as error:
            return first, str(error)
        return first

    return fn, caller, lambda i: (leaf(3),)


@program_with_caller
def test_straight_through_estimator():
    class Round(Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, grad):
            return grad.clamp(-1, 1)

    def fn(x):
        return Round.apply(x * 3) * 2

    return fn, backward_of, lambda i: (leaf(3),)


@program_with_caller
def test_gradient_reversal_with_a_strength_that_changes():
    class Reverse(Function):
        @staticmethod
        def forward(ctx, x, strength):
            ctx.strength = strength
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            return -ctx.strength * grad, None

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.strength = 1.0

        def forward(self, x):
            return Reverse.apply(x, self.strength).sin()

    model = Model()

    def caller(fn, x, strength):
        model.strength = strength
        return backward_of(fn, x)

    return model, caller, [(leaf(3), s) for s in (1.0, 0.5, 1.0, 0.0)]


@program_with_caller
def test_a_module_that_is_made_in_the_call_is_an_argument():
    class Scale(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def forward(self, x):
            return x * self.factor

    class Through(Function):
        @staticmethod
        def forward(ctx, x, module):
            ctx.module = module
            return module(x)

        @staticmethod
        def backward(ctx, grad):
            return ctx.module(grad) * 10, None

    def fn(x, factor):
        return Through.apply(x * 2, Scale(factor)).sin()

    return fn, backward_of, lambda i: (leaf(3), i + 1.0)


@program_with_caller
def test_numpy_inside_forward_and_backward():
    class Sinc(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.from_numpy(np.sinc(x.detach().numpy()))

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * torch.from_numpy(np.cos(x.detach().numpy()))

    def fn(x):
        return Sinc.apply(x) * 2

    return fn, backward_of, lambda i: (leaf(3),)


@program_with_caller
def test_forward_branches_on_data_and_backward_on_a_flag():
    class Gate(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.open = bool(x.sum() > 0)
            return x * 2 if ctx.open else x * 0

        @staticmethod
        def backward(ctx, grad):
            return grad * 2 if ctx.open else None

    def fn(x):
        return Gate.apply(x) + x

    return fn, backward_of, [(torch.tensor([v], requires_grad=True),) for v in (1.0, -1.0, 2.0, -3.0)]


@program_with_caller
def test_exception_in_backward_reaches_the_caller():
    class Picky(Function):
        @staticmethod
        def forward(ctx, x, fail):
            ctx.fail = fail
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            if ctx.fail:
                raise ValueError("no gradient today")
            return grad, None

    def fn(x, fail):
        return Picky.apply(x, fail)

    return fn, backward_of, [(leaf(2), f) for f in (False, True, False, True)]


@program
def test_gradient_taken_inside():
    def fn(x):
        y = Cube.apply(x).sum()
        (grad,) = torch.autograd.grad(y, x)
        return y, grad * x

    return fn, lambda i: (leaf(3),)


@program
def test_gradients_left_as_none_are_not_materialized():
    seen = []

    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            seen.append((a is None, b is None))
            return a if b is None else b

    def fn(x, which):
        outs = Two.apply(x)
        return torch.autograd.grad(outs[which].sum(), x)[0]

    return fn, [(leaf(2), w) for w in (0, 1, 0, 1)], seen


@program
def test_apply_under_no_grad_saves_nothing():
    def fn(x):
        with torch.no_grad():
            y = Cube.apply(x)
        z = Cube.apply(x.detach())
        return y.requires_grad, z.grad_fn is None, type(Cube.apply(x).grad_fn).__name__, y + z

    return fn, lambda i: (leaf(3),)


@program
def test_apply_bound_to_a_name():
    cube = Cube.apply
    table = {"cube": cube, "affine": Affine.apply}

    def fn(x):
        return cube(x) + table["cube"](x) + table["affine"](x, 2)

    return fn, lambda i: (leaf(3),)


@program
def test_counters_of_forward_are_read_after_it():
    seen = []

    class Counted(Function):
        calls = 0

        @staticmethod
        def forward(ctx, x):
            Counted.calls += 1
            seen.append(Counted.calls)
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    def fn(x):
        y = Counted.apply(x)
        return y * Counted.calls, len(seen)

    return fn, [(leaf(3),)] * 4, seen


NUMBERS = itertools.count()


def reading(state):
    class Scaled(Function):
        @staticmethod
        def forward(ctx, x):
            return x * state.scale

        @staticmethod
        def backward(ctx, gradient):
            return gradient * state.scale

    return Scaled


@program
def test_forward_reads_the_latest_writes():
    state = types.SimpleNamespace(scale=1.0)
    scaled = reading(state)

    def fn(x, scale):
        state.scale = scale
        return scaled.apply(x)

    return fn, [(leaf(3), scale) for scale in (2, 3, 4, 5)], state


@program
def test_backward_reads_the_latest_writes():
    state = types.SimpleNamespace(scale=1.0)
    scaled = reading(state)

    def fn(x, scale):
        y = scaled.apply(x).sum()
        state.scale = scale
        return torch.autograd.grad(y, x)[0]

    return fn, [(leaf(3), scale) for scale in (2, 3, 4, 5)], state


@program
def test_an_operator_in_python_reads_the_latest_writes():
    state = types.SimpleNamespace(scale=1.0)

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * state.scale

    operator = torch.library.custom_op(f"burnish_tests::scaled_{next(NUMBERS)}", scaled, mutates_args=())
    operator.register_fake(torch.empty_like)

    def fn(x, scale):
        state.scale = scale
        return operator(x)

    return fn, [(torch.ones(3), scale) for scale in (2, 3, 4, 5)], state


@program(breaks=0)
def test_what_reads_nothing_may_come_after_a_write():
    state = types.SimpleNamespace(calls=0)

    def fn(x):
        state.calls += 1
        return Cube.apply(x) + state.calls

    return fn, lambda i: (leaf(3),), state


class Recomputed(torch.autograd.Function):
    """A checkpoint as users write it: the function is run again in backward."""

    @staticmethod
    def forward(ctx, run, length, *given):
        ctx.run, ctx.given, ctx.parameters = run, given[:length], given[length:]
        with torch.no_grad():
            return run(*ctx.given)

    @staticmethod
    def backward(ctx, gradient):
        given = [x.detach().requires_grad_() for x in ctx.given]
        with torch.enable_grad():
            out = ctx.run(*[x.view_as(x) for x in given])
        return None, None, *torch.autograd.grad(out, [*given, *ctx.parameters], gradient, allow_unused=True)


class RecomputedBlock(torch.nn.Module):
    scale = 1.0

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x, y):
        return Recomputed.apply(self.run, 2, x, y, *self.parameters())

    def run(self, x, y):
        return x + torch.tanh(self.linear(x) + y) * self.scale


@program(breaks=0)
def test_function_is_given_a_method():
    torch.manual_seed(0)
    blocks = [RecomputedBlock() for _ in range(3)]

    def fn(x, y):
        for block in blocks:
            block.zero_grad()
        for block in blocks:
            x = block(x, y)
        loss = x.square().sum()
        loss.backward()
        return loss, [block.linear.weight.grad for block in blocks]

    return fn, [(torch.randn(n, 4), torch.randn(n, 4)) for n in (2, 2, 3, 4)]


@program
def test_function_is_given_a_method_that_was_put_in_the_place_of_another():
    class Held(RecomputedBlock):
        def run(self, x, y):
            return x * y * self.scale

    torch.manual_seed(0)
    block = RecomputedBlock()

    def other(self, x, y):
        return x - y

    def fn(x, y, change):
        if change == 1:
            block.__class__ = Held
        elif change == 2:
            block.run = types.MethodType(other, block)
        elif change == 3:
            block.run = lambda x, y: x / 2
        return block(x.requires_grad_(), y) * 2

    return fn, [(torch.randn(2, 4), torch.randn(2, 4), change) for change in (0, 0, 1, 1, 2, 2, 3, 3)]


class TellsSize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor, x.shape[0], factor + 1

    @staticmethod
    def backward(ctx, gradient, *_):
        return gradient * ctx.factor, None


@program
def test_a_number_that_a_custom_function_returns_follows_from_a_size():
    return lambda x: TellsSize.apply(x, x.shape[0] * 0.5), [
        (torch.ones(n, requires_grad=True),) for n in (3, 3, 4, 5, 6, 7)
    ]
