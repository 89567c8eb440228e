"""Autocast to bfloat16 on the CPU: which operators change dtype, where it begins and ends, and gradients through it."""

import pytest
import torch
from torch import nn

import burnish

from .caller_programs import program_with_caller
from .harness import program


@program(breaks=0)
def test_linear_is_cast_and_the_sum_outside_is_not():
    layer = nn.Linear(4, 3)

    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = layer(x)
            z = y + x[:, :3]
        return y.dtype, z.dtype, layer(x), z

    return fn, lambda i: (torch.randn(2, 4),)


@program(breaks=0)
def test_nested_autocast_is_switched_off_inside():
    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = x @ x
            with torch.autocast("cpu", enabled=False):
                b = x @ x
            c = x @ x
        return a.dtype, b.dtype, c.dtype, a + b, b - c

    return fn, lambda i: (torch.randn(3, 3),)


@program(breaks=0)
def test_enabled_by_an_argument():
    def fn(x, enabled):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            return x @ x

    return fn, [(torch.randn(3, 3), flag) for flag in (True, False, True, False)]


@program
def test_autocast_as_decorator():
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def product(x):
        return x @ x

    def fn(x):
        return product(x), (x @ x).dtype

    return fn, lambda i: (torch.randn(3, 3),)


@program
def test_forward_decorated_with_amp():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)

        @torch.amp.autocast("cpu", dtype=torch.bfloat16)
        def forward(self, x):
            return self.inner(x).softmax(-1)

    return Model(), lambda i: (torch.randn(2, 3),)


@program_with_caller
def test_caller_opens_autocast_every_other_call():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

    def caller(fn, x, enabled):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            return fn(x)

    return model, caller, [(torch.randn(2, 3), flag) for flag in (False, True, False, True, True)]


@program_with_caller
def test_caller_changes_the_dtype_of_autocast():
    def fn(x):
        return x @ x, torch.get_autocast_dtype("cpu")

    def caller(fn, x, dtype):
        with torch.autocast("cpu", dtype=dtype):
            return fn(x)

    return fn, caller, [(torch.randn(3, 3), d) for d in (torch.bfloat16, torch.float16, torch.bfloat16)]


@program
def test_break_inside_autocast_stays_in_it():
    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = x @ x
            n = a.sum().item()
            b = (x @ x) * n
        c = (x @ x) * n
        return a.dtype, b, c

    return fn, lambda i: (torch.randn(3, 3),)


@program
def test_exception_leaves_autocast():
    def fn(x, y):
        try:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = x @ y
        except RuntimeError:
            out = x @ x
        return out, torch.is_autocast_enabled("cpu"), (x @ x).dtype

    return fn, [(torch.randn(3, 3), torch.randn(n, 3)) for n in (3, 2, 3, 2)]


@program
def test_branch_on_the_dtype_that_autocast_chose():
    def fn(x, enabled):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            y = x @ x
        if y.dtype == torch.bfloat16:
            return y.float() + 1
        return y - 1

    return fn, [(torch.randn(3, 3), flag) for flag in (True, False, True)]


@program
def test_is_autocast_enabled_chooses_the_path():
    def fn(x):
        if torch.is_autocast_enabled("cpu"):
            with torch.autocast("cpu", enabled=False):
                return x.double() @ x.double()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x, torch.is_autocast_enabled("cpu")

    return fn, lambda i: (torch.randn(2, 2),)


@program_with_caller
def test_gradients_of_float_weights_through_bfloat16_layers():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def fn(x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x)
        return nn.functional.mse_loss(out.float(), y)

    def caller(fn, x, y):
        model.zero_grad()
        loss = fn(x, y)
        loss.backward()
        return loss, [p.grad for p in model.parameters()]

    return fn, caller, lambda i: (torch.randn(5, 3), torch.randn(5, 1))


@program
def test_weight_changed_between_two_uses_in_one_region():
    weight = torch.randn(3, 3, requires_grad=True)

    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = x @ weight
            with torch.no_grad():
                weight.add_(1)
            b = x @ weight
        return a, b

    return fn, lambda i: (torch.randn(2, 3),), weight


@program(breaks=0)
def test_conv_and_batch_norm_under_autocast():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU())

    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x)

    return fn, lambda i: (torch.randn(2, 1, 5, 5),), model


@program(breaks=0)
def test_cat_of_two_dtypes_promotes():
    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = x @ x
            return torch.cat([low, x]), torch.stack([low, x]), low + x

    return fn, lambda i: (torch.randn(2, 2),)


@program_with_caller
def test_custom_function_with_amp_decorators():
    class Scale(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
        def forward(ctx, x, k):
            ctx.k = k
            return x * k

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, grad):
            return grad * ctx.k, None

    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            return Scale.apply(y, 3.0)

    def caller(fn, x):
        out = fn(x)
        out.sum().backward()
        return out, x.grad

    return fn, caller, lambda i: (torch.randn(2, 2, requires_grad=True),)


def test_an_error_inside_exits_every_context():
    """What eager casts is kept until the last autocast context is left: weights that learn would stay as they were."""

    def nesting():
        found = torch.autocast_increment_nesting() - 1
        torch.autocast_decrement_nesting()
        return found

    def pick(x, k):
        with torch.autocast("cpu"):
            return (x @ x).index_select(0, k)

    compiled, x = burnish.compile(pick, backend="eager"), torch.ones(3, 3)
    for k in (0, 1, 7, 2):
        index = torch.tensor([k])
        if k == 7:
            with pytest.raises(IndexError):
                compiled(x, index)
        else:
            assert torch.equal(compiled(x, index), pick(x, index))
        assert nesting() == 0
    assert not torch.is_autocast_enabled("cpu")
