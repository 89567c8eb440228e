"""Python numbers taken out of tensors: live in arithmetic, shapes, keys and control flow."""

import math

import torch
from torch import nn

from .caller_programs import program_with_caller
from .harness import program


@program
def test_item_flows_on_in_arithmetic():
    def fn(x):
        n = x.sum().item()
        m = n * 2 + 1
        return x * m, x + n**2, m / 3, -n

    return fn, lambda i: (torch.randn(3),)


@program
def test_item_as_a_dimension():
    def fn(n):
        k = n.item()
        return torch.ones(k, k + 1), torch.arange(k), torch.zeros(2, k).shape

    return fn, [(torch.tensor(n),) for n in (2, 3, 2, 0)]


@program
def test_item_as_a_loop_bound():
    def fn(x, n):
        for i in range(n.item()):
            x = x * 2 + i
        return x

    return fn, [(torch.ones(2), torch.tensor(n)) for n in (3, 1, 0, 3, 4)]


@program
def test_item_chooses_the_branch_and_stays_in_the_sum():
    def fn(x):
        n = x.max().item()
        if n > 1:
            return x / n
        if n < -1:
            return x * n
        return x + n

    return fn, [(torch.tensor(v),) for v in ([2.0, 1.0], [-3.0, -2.0], [0.5, 0.0], [4.0, 3.0], [0.25, 0.1])]


@program
def test_int_float_and_bool_of_a_tensor():
    def fn(x):
        a, b, c = int(x), float(x), bool(x)
        return torch.full((2,), a), torch.full((2,), b), c, x * (a if c else 10), complex(x)

    return fn, [(torch.tensor(v),) for v in (2.7, 0.0, -1.5, 3)]


@program
def test_number_types_by_dtype():
    def fn(x):
        v = x.item()
        return type(v).__name__, v, torch.tensor(v).dtype, torch.ones(1) * v

    return fn, [(torch.tensor(v),) for v in (1, 1.5, True, 2 + 1j, 3)]


@program
def test_tolist_builds_a_new_tensor():
    def fn(x):
        values = x.tolist()
        values.append(sum(values))
        return torch.tensor(sorted(values)) * len(values), values

    return fn, [(torch.tensor(v),) for v in ([3, 1, 2], [5], [2.5, -1.0], [1, 1, 1])]


@program
def test_number_as_a_dictionary_key():
    table = {0: "zero", 1: "one"}

    def fn(x):
        k = int(x.argmax())
        table.setdefault(k, f"new {k}")
        return x * k, table[k]

    return fn, [(torch.tensor(v),) for v in ([1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 2.0])], table


@program
def test_several_numbers_meet():
    def fn(x, y):
        a, b = x.sum().item(), y.sum().item()
        return x * b + y * a, max(a, b), math.hypot(a, b), round(a - b, 3), divmod(int(a), 3)

    return fn, lambda i: (torch.randn(2) * 5, torch.randn(2) * 5)


@program
def test_number_is_compared_and_counted():
    def fn(x):
        values = [v.item() for v in x]
        positive = sum(v > 0 for v in values)
        return x * positive, any(v > 2 for v in values), min(values), values.index(max(values))

    return fn, [(torch.tensor(v),) for v in ([1.0, -1.0], [3.0, 2.0], [-1.0, -2.0], [1.0, -2.0])]


@program
def test_running_average_of_losses_in_a_list():
    losses = []

    def fn(x):
        loss = x.pow(2).mean()
        losses.append(loss.item())
        return loss * 2, sum(losses) / len(losses)

    return fn, lambda i: (torch.randn(3),), losses


@program
def test_number_as_an_attribute_between_calls():
    class Scaler(nn.Module):
        def __init__(self):
            super().__init__()
            self.limit = 0.0

        def forward(self, x):
            self.limit = max(self.limit, x.abs().max().item())
            return x / self.limit

    model = Scaler()
    return model, [(torch.tensor(v),) for v in ([1.0, 2.0], [4.0, 1.0], [1.0, 0.5], [8.0, 1.0])], model


@program
def test_not_a_number_and_infinity():
    def fn(x):
        v = x.sum().item()
        if math.isnan(v):
            return torch.zeros(2)
        if math.isinf(v):
            return torch.ones(2) * (1 if v > 0 else -1)
        return x * v

    values = ([1.0, 2.0], [float("nan"), 1.0], [float("inf"), 1.0], [-float("inf"), 1.0], [0.5, 1.0])
    return fn, [(torch.tensor(v),) for v in values]


@program
def test_item_of_more_than_one_element_raises():
    def fn(x):
        return x.item() * 2

    return fn, [(torch.ones(n),) for n in (1, 2, 1, 3)]


@program
def test_tensor_used_as_a_python_index_and_range():
    def fn(x, n):
        total = [x[i] for i in range(n)]
        return total, "abcdef"[n], [0] * n, x.new_ones(n)

    return fn, [(torch.arange(4.0), torch.tensor(n)) for n in (1, 3, 0, 1)]


@program
def test_gradient_stops_at_the_number_only():
    def fn(x):
        scale = x.detach().norm().item()
        loss = (x / scale).sum()
        (grad,) = torch.autograd.grad(loss, x)
        return grad, scale

    return fn, lambda i: (torch.randn(3, requires_grad=True),)


@program
def test_numbers_unpacked_from_a_tensor():
    def fn(box, image):
        top, left, height, width = box.tolist()
        return image[top : top + height, left : left + width].sum(), height * width

    return fn, [
        (torch.tensor(b), torch.arange(16.0).view(4, 4))
        for b in ([0, 0, 2, 2], [1, 1, 3, 2], [2, 0, 1, 4], [0, 0, 2, 2])
    ]


@program
def test_number_goes_into_a_tensor_again():
    def fn(x):
        best = x.max().item()
        y = torch.tensor([best, best + 1, 0.5])
        y[0] = best * 2
        return y.fill_(best) if best > 5 else y

    return fn, [(torch.tensor(v),) for v in ([1.0], [6.0], [2.0], [7.0])]


@program_with_caller
def test_returned_number_is_a_plain_one():
    def fn(x):
        return x.sum().item(), x.numel(), int(x.sum())

    def caller(fn, x):
        a, b, c = fn(x)
        return type(a).__name__, type(b).__name__, type(c).__name__, a + b + c, f"{a:.3f}"

    return fn, caller, lambda i: (torch.randn(3),)


@program
def test_small_and_large_integers():
    def fn(x):
        n = x.item()
        return n + 1, n * n, x + 1, torch.tensor([n]), n == 256, hash(n)

    return fn, [(torch.tensor(n),) for n in (1, 256, 2**40, -5, 1)]
