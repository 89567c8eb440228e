"""Torch function modes that a compiled function enters: their rules are interpreted, the block is in the graph."""

import torch
from torch import nn
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch.overrides import TorchFunctionMode, _get_current_function_mode, has_torch_function

from .caller_programs import program_with_caller
from .harness import program


class AddOne(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out + 1 if func is torch.sin else out


class Scale(TorchFunctionMode):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * self.factor if func is torch.cos else out


class Log(TorchFunctionMode):
    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append((getattr(func, "__name__", str(func)), len(args), sorted(kwargs or {})))
        return func(*args, **(kwargs or {}))


@program(breaks=0)
def test_nested_modes_with_changing_attributes():
    def fn(x, factor):
        with Scale(factor), AddOne():
            y = torch.cos(torch.sin(x))
        return torch.cos(y) + torch.sin(x)

    return fn, [(torch.randn(3), factor) for factor in (2.0, 3.0, 0.5)]


@program(breaks=0)
def test_mode_sees_attributes_operators_and_switches():
    seen, linear = [], nn.Linear(4, 2)

    def fn(x):
        with Log(seen):
            y = linear(x) * x.shape[0] + x.size(1) + x.ndim
            y[0] = 2 - y[1]
            with torch.no_grad():
                y = y + torch.nn.functional.softmax(y, -1) + torch.zeros_like(y).fill_(1)
            y += float(len(seen))
            a, b, c = y
        return a + b * c

    return fn, [(torch.randn(3, 4),) for _ in range(3)], seen


@program(breaks=0)
def test_mode_replaces_an_attribute_and_a_factory():
    class Lies(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is torch.Tensor.shape.__get__:
                return torch.Size([7])
            if func is torch.ones:
                kwargs = {**(kwargs or {}), "dtype": torch.float64}
            return func(*args, **(kwargs or {}))

    def fn(x):
        with Lies():
            y = torch.ones(3) * x.shape[0]
        return y, x.shape, torch.ones(3)

    return fn, [(torch.randn(3),) for _ in range(3)]


@program(breaks=0)
def test_mode_keeps_a_tensor_and_a_count():
    class Total(TorchFunctionMode):
        calls = 0

        def __init__(self):
            super().__init__()
            self.total = torch.zeros(())

        def __torch_function__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if func is torch.sin:
                self.total = self.total + out.sum().detach()
                self.calls += 1
            return out

    def fn(x):
        with Total() as mode:
            y = torch.sin(x) + torch.sin(x * 2)
        return y, mode.total, mode.calls

    return fn, [(torch.randn(3, requires_grad=True),) for _ in range(3)]


@program(breaks=0)
def test_modes_in_a_generator_a_subclass_and_queries():
    class Tripled(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            out = super().__torch_function__(func, types, args, kwargs or {})
            return out * 3 if func is torch.sin else out

    def parts(x):
        with AddOne() as mode:
            yield torch.sin(x), has_torch_function((x,)), _get_current_function_mode() is mode
            yield torch.sin(x.as_subclass(Tripled)).as_subclass(torch.Tensor)

    def fn(x):
        return list(parts(x)), torch.sin(x), has_torch_function((x,))

    return fn, [(torch.randn(3),) for _ in range(3)]


@program_with_caller
def test_query_of_the_mode_stack_does_not_find_the_recorder():
    return (lambda x: (_get_current_function_mode(), x + 1)), (lambda fn, x: fn(x)), lambda i: (torch.randn(2),)


@program(breaks=0)
def test_rule_that_changes_between_calls():
    class Changing(TorchFunctionMode):
        factor = 1.0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {})) * self.factor

    mode = Changing()

    def fn(x, factor):
        mode.factor = factor
        with mode:
            return torch.sin(x)

    return fn, [(torch.randn(3), factor) for factor in (2.0, 3.0, 4.0)]


@program
def test_graph_that_ends_inside_a_block():
    def fn(x):
        with AddOne():
            y = torch.sin(x)
            if y.sum() > 3:
                y = y * 2
            z = torch.sin(y)
        return z + torch.sin(x)

    return fn, [(torch.full((3,), value),) for value in (1.0, -1.0, 1.0, -1.0)]


@program
def test_rule_that_breaks_the_graph():
    seen = []

    class Branches(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            out = func(*args, **(kwargs or {}))
            if func is torch.sin and bool(out.sum() > 0):
                return out * 2
            return out

    def fn(x):
        with AddOne(), Branches():
            y = torch.sin(x)
        return torch.sin(y)

    return fn, [(torch.full((3,), value),) for value in (1.0, -1.0, 1.0, -1.0)], seen


@program
def test_rule_that_raises():
    class Refuses(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is torch.tan:
                raise ValueError("no tan")
            return func(*args, **(kwargs or {}))

    def fn(x):
        try:
            with Refuses():
                return torch.tan(x)
        except ValueError as error:
            return torch.tan(x), str(error)

    return fn, [(torch.randn(3),) for _ in range(3)]


@program
def test_rule_that_raises_after_a_draw():
    class Fills(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            return out.fill_(0.5) if func is nn.init.kaiming_uniform_ else out

    def fn(x):
        with Fills():
            return nn.Linear(3, 2)(x)

    return fn, [(torch.randn(2, 3),) for _ in range(3)]


@program_with_caller
def test_mode_that_is_left_by_the_caller():
    mode = AddOne()

    def fn(x):
        mode.__enter__()
        return torch.sin(x)

    def caller(fn, x):
        before = torch._C._len_torch_function_stack()
        y, entered = fn(x), torch._C._len_torch_function_stack() - before
        mode.__exit__(None, None, None)
        return y, entered, torch.sin(x)

    return fn, caller, lambda i: (torch.randn(2),)


@program
def test_calls_under_a_mode_that_are_no_operators():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return torch.sin(x) * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    def fn(x):
        with AddOne():
            y = Doubled.apply(x) + torch.func.vmap(torch.sin)(x)
            y.sum().backward()
        return y, x.grad

    return fn, lambda i: (torch.randn(3, 3, requires_grad=True),)


@program(breaks=0)
def test_device_of_a_block():
    def fn(x):
        with torch.device("meta") as device:
            a = torch.ones(3)
            with torch.device("cpu"):
                b = torch.arange(3.0)
            c = torch.get_default_device().type
        return x * a.shape[0] + b, a.device.type, device.type, c, torch.ones(2), torch.get_default_device().type

    return fn, [(torch.randn(3),) for _ in range(3)]


@program
def test_graph_that_ends_while_rules_are_disabled():
    class Doubled(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            out = super().__torch_function__(func, types, args, kwargs or {})
            return out * 2 if func is torch.sin else out

    def fn(x):
        x = x.as_subclass(Doubled)
        with torch._C.DisableTorchFunctionSubclass():
            y = torch.sin(x)
            if y.sum() > 0:
                y = torch.sin(y)
        z = torch.sin(x)
        return y.as_subclass(torch.Tensor), z.as_subclass(torch.Tensor), type(y).__name__, type(z).__name__

    return fn, [(torch.full((3,), value),) for value in (1.0, -1.0, 1.0, -1.0)]


def mask_of(x, padding):
    """As transformers makes masks: a function of four places is mapped over all of them."""
    mask = lambda row, query, key: (key <= query) & (query - key < 3) & padding[row, key]  # noqa: E731
    for dims in ((None, None, 0), (None, 0, None), (0, None, None)):
        mask = torch.vmap(mask, in_dims=dims)
    rows, places = torch.arange(x.shape[0]), torch.arange(x.shape[1])
    with TransformGetItemToIndex():
        return x.masked_fill(mask(rows, places, places), -1.0) * 2


@program(breaks=0)
def test_mask_function_is_mapped_under_its_mode():
    calls = [(2, 5), (2, 5), (2, 6), (3, 7), (3, 8)]
    return mask_of, [(torch.randn(rows, n, n), torch.rand(rows, n) > 0.3) for rows, n in calls]


class Squares(TransformGetItemToIndex):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs) if func is not torch.sin else args[0] ** 2


@program(breaks=1)
def test_other_modes_do_not_enter_a_mapped_function():
    def fn(x):
        with Squares():
            return torch.vmap(lambda row: torch.sin(row) + row)(x) * 2

    return fn, [(torch.randn(3, 4),) for _ in range(3)]
