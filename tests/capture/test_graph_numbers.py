"""Numbers that the user's code reads from tensors stay in the graph, until Python needs their value."""

import logging
import math
import operator
from decimal import Decimal
from fractions import Fraction

import pytest
import torch
from torch import nn

import burnish

from .harness import program
from .training_harness import captured


def spread(n):
    return [(torch.linspace(-1, k + 1, 6).view(2, 3),) for k in range(n)]


@program(breaks=0)
def test_item_in_arithmetic_and_returned():
    def fn(x):
        n = x.sum().item()
        return x * n, n, n * 2 + 1, -n, n / 3, n // 2, n % 3, abs(n), round(n), round(n, 1), int(n), max(n, 2.0)

    return fn, spread(4)


@program(breaks=0)
def test_functions_of_math_on_an_item():
    def fn(x):
        n = x.abs().sum().item()
        return math.sqrt(n), math.exp(-n), math.floor(n), math.hypot(n, 3), x / math.log(n + 1), math.atan2(n, 2)

    return fn, spread(3)


@program(breaks=0)
def test_int_and_float_of_a_tensor():
    def fn(x):
        return x * float(x.sum()), int(x.sum()) + 1, int(x.argmax()) ** 2, float(x.argmax())

    return fn, spread(3)


@program(breaks=0)
def test_integers_stay_integers():
    def fn(x):
        n = x.sum().item()
        return n // 2, n & 3, n | 8, ~n, n**2, x + n, x * (n / 2), type(n).__name__

    return fn, [(torch.tensor(v),) for v in ([1, 2], [5, 2**40], [-3, 1])]


@program(breaks=0)
def test_tolist_gives_numbers_in_lists():
    def fn(x):
        (a, b, c), rest = x.tolist()
        low, high = torch.aminmax(x)
        return (x - a) / (b - a + c), rest, [low.tolist(), [high.tolist()]], sum(int(v) for v in rest), max(rest)

    return fn, spread(3)


@program(breaks=0)
def test_number_before_and_after_a_write():
    def fn(x):
        y = x * 1
        before = y.sum().item()
        y.mul_(2)
        y[0] = before
        x.add_(1)
        return before, y.sum().item(), x.sum().item(), y

    return fn, spread(3)


@program(breaks=0)
def test_numbers_go_into_tensors_again():
    def fn(x):
        n, k = x.max().item(), int(x.argmax())
        return torch.tensor(n), torch.tensor([n, 2, k]), torch.tensor([k, 1]), torch.full((2,), n), x.new_full((1,), k)

    return fn, spread(3)


@program(breaks=0)
def test_power_that_is_complex_for_some_numbers():
    def fn(x):
        n = x.sum().item()
        return x * 2, n**0.5, 2.0**n, n**-1

    return fn, [(torch.tensor(v),) for v in ([1.0, 2.0], [3.0, 1.0], [-4.0, 1.0], [-1.0, 1.0], [1.0, 1.0])]


@program(breaks=0)
def test_numbers_that_cannot_be_converted_raise():
    def fn(x):
        return x * int(x.sum()), 1 / x.sum().item()

    return fn, [(torch.tensor([v, 1.0]),) for v in (1.0, float("nan"), 2.0, float("inf"), -1.0, 3.0)]


@program
def test_item_of_several_elements_raises():
    def fn(x):
        return (x * 2).item() + 1

    return fn, [(torch.ones(n),) for n in (1, 1, 2, 1)]


@program(breaks=0)
def test_a_number_is_stored_in_an_attribute():
    class Scaler(nn.Module):
        def __init__(self):
            super().__init__()
            self.last, self.all = 0.0, []

        def forward(self, x):
            self.last = x.max().item()
            self.all.append(self.last)
            return x / (self.last + 2)

    model = Scaler()
    return model, spread(4), model


@program(breaks=0)
def test_only_one_outcome_continues():
    def fn(x):
        n = x.sum().item()
        if n > 100:
            raise ValueError("too large")
        torch._check(n >= -100)
        return x * n

    return fn, [(torch.tensor([v, 1.0]),) for v in (1.0, 2.0, 200.0, -3.0, float("nan"), 4.0)]


@program(breaks=0)
def test_a_check_of_a_whole_number():
    def fn(x):
        n = int(x.sum())
        torch._check(n < 2**40, lambda: "too many")
        torch._check(n > 0 and n != 7)
        return torch.full((2,), n) + 1

    return fn, [(torch.tensor(v),) for v in (1, 2, 2**41, 7, 3)]


@program
def test_numbers_in_printed_and_logged_containers():
    lines = []
    logger = logging.Logger("graph numbers")
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger.addHandler(handler)

    def fn(x):
        low, high = torch.aminmax(x)
        values = [low.item(), {"high": high.item()}]
        logger.info("values %s", values)
        print(values, low.item(), (high.item(),))
        return x * values[0]

    return fn, spread(4), lines


@program
def test_a_number_is_read_after_a_write_through_a_view():
    def fn(x):
        x.view(1).add_(1)
        n = x.item()
        return x * 2 if n > 2 else x * 3

    return fn, [(torch.tensor(v),) for v in (1.0, 1.5, 0.5, 2.0, 1.0)]


@program
def test_a_number_is_read_after_a_write_to_an_alias():
    def fn(x, y):
        y.add_(1)
        n = x.item()
        return y * 2 if n > 2 else y * 3

    tensors = [torch.tensor(v) for v in (1.0, 1.5, 0.5, 2.0, 1.0)]
    return fn, [(x, x.view(1)) for x in tensors]


@program(breaks=0)
def test_texts_of_numbers_are_printed_and_returned():
    def fn(x):
        n, k = x.sum().item(), int(x.argmax())
        print(f"sum {n:.3f}", n, str(k), repr(n), sep=";")
        text = "at " + str(k) + f" of {x.numel()} {n!r:>10}"
        return text, {"text": f"{k:03d}"}, divmod(k, 4), divmod(n, 2)

    return fn, spread(4)


@program
def test_a_text_of_a_number_decides():
    def fn(x):
        text = f"{x.sum().item():.0f}"
        if text.startswith("3"):
            return x * 2, len(text)
        return x, text == "6", text in ("6", "9"), {text: 1}, text[0]

    return fn, spread(5)


@program
def test_a_number_of_an_argument_chooses_the_branch():
    def fn(x, n):
        n = n.item()
        return x * n if n > 2 else x - n

    return fn, [(torch.ones(2), torch.tensor(v)) for v in (1.0, 3.0, 2.0, 4.0)]


@program
def test_python_needs_the_number_at_the_end():
    def fn(x):
        n = x.sum().item()
        y = x * n
        if n > 2:
            return y
        return y + 1, {n: "key"}

    return fn, spread(5)


@program
def test_a_checkpointed_function_reads_a_number():
    def inner(x):
        return x * x.detach().sum().item()

    def fn(x):
        y = torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=False)
        return torch.autograd.grad(y.sum(), x)[0], y

    return fn, lambda i: (torch.linspace(0, i + 1, 4, requires_grad=True),)


def graphs_of(fn, *args, **options):
    burnish.reset()
    compiled = burnish.compile(fn, **options)
    compiled(*args)
    return captured(compiled)


def scaled(x):
    return x * x.sum().item()


def test_the_graph_of_a_users_backend_holds_ordinary_calls():
    seen = []

    def backend(gm, example_inputs):
        seen.append([node.target for node in gm.graph.nodes if node.op.startswith("call")])
        return gm.forward

    for fullgraph in (True, False):
        found = graphs_of(scaled, torch.ones(3), backend=backend, fullgraph=fullgraph)
        assert found.breaks == ([] if fullgraph else ["B102"])
    assert seen[0] == ["sum", "item", operator.mul] and len(seen) == 3


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_stay_symbolic_beside_a_number(dynamic):
    def fn(x):
        return x.view(x.shape[0] * 2, -1) * x.sum().item() / x.shape[0], x.mean().item() * x.shape[0]

    burnish.reset()
    compiled = burnish.compile(fn, fullgraph=True, dynamic=dynamic, options={"never_slower": False})
    for size in range(2, 9):
        x = torch.linspace(0, 1, size * 4).view(size, 4)
        torch.testing.assert_close(compiled(x), fn(x))
    assert captured(compiled).segments <= 2


def test_a_number_scales_gradients():
    def fn(x, w):
        y = (x * w).tanh()
        n = y.sum().item()
        return (y * n).sum(), n, y.detach().max().item()

    burnish.reset()
    compiled = burnish.compile(fn, fullgraph=True, options={"never_slower": False})
    for seed in range(4):
        torch.manual_seed(seed)
        x, w = torch.randn(3, 4), torch.randn(4, requires_grad=True)
        other = w.detach().clone().requires_grad_()
        found, wanted = compiled(x, w), fn(x, other)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        found[0].backward()
        wanted[0].backward()
        torch.testing.assert_close(w.grad, other.grad)
    assert burnish.was_compiled(compiled)


def test_a_number_that_no_kernel_can_take_raises_as_in_eager():
    def fn(x):
        return x * (x.sum().item() * 2**40)

    burnish.reset()
    compiled = burnish.compile(fn, fullgraph=True, options={"never_slower": False})
    for value in (1, 2, 2**30, 3):
        x = torch.full((2,), value)
        try:
            wanted = fn(x)
        except OverflowError as error:
            with pytest.raises(OverflowError, match=str(error)):
                compiled(x)
        else:
            assert torch.equal(compiled(x), wanted)
    assert burnish.was_compiled(compiled)


def test_the_text_of_a_number_in_a_tensor_is_made_after_the_graph():
    def fn(x):
        return x * 2, f"{x.sum():.1f} {x.max():>6.2f}"

    compiled = burnish.compile(fn, backend=lambda gm, example_inputs: gm.forward, fullgraph=True)
    for i in range(4):
        x = torch.arange(3.0) + i
        assert compiled(x)[1] == fn(x)[1]


@program
def test_bound_method_of_a_list_of_numbers_crosses_a_break():
    def fn(x):
        return x + 1, x.tolist().index(7)

    return fn, [(torch.tensor(v),) for v in ([7], [7], [8, 7], [1, 7])]


@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("other", [1j, 2 + 0j, Fraction(1, 2), Decimal(2), None, "a"])
def test_a_power_with_something_other_than_a_real_number_is_pythons(kind, other):
    def power(x):
        return kind(x.abs()) ** other, x * 2

    def power_of_it(x):
        return other ** kind(x.abs()), x * 2

    for fn in (power, power_of_it):
        compiled = burnish.compile(fn)
        for value in (1.0, 3.0):
            assert outcome(compiled, torch.tensor([value])) == outcome(fn, torch.tensor([value]))


def outcome(fn, *args):
    try:
        return str(fn(*args))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
