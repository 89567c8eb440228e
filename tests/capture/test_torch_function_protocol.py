"""``__torch_function__`` of objects that are no tensors: as arguments, inside lists, in operators, with errors."""

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary, wrap_torch_function

from .call_sequences import Before, ordinary, swing
from .harness import program


class Pair:
    """Two tensors of equal shape, on which some torch functions work."""

    handled: dict = {}
    asked: list = []

    def __init__(self, first, second):
        self.first, self.second = first, second

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.asked.append((func.__name__, len(types)))
        if func not in cls.handled or not all(issubclass(kind, (Pair, torch.Tensor)) for kind in types):
            return NotImplemented
        return cls.handled[func](*args, **(kwargs or {}))


def implements(function):
    return lambda rule: Pair.handled.setdefault(function, rule)


@implements(torch.stack)
def stack(pairs, dim=0):
    return Pair(torch.stack([each.first for each in pairs], dim), torch.stack([each.second for each in pairs], dim))


@implements(torch.nn.functional.dropout)
def dropout(pair, p=0.5, training=True, inplace=False):
    return Pair(pair.first * p, pair.second if training else pair.first)


@implements(torch.Tensor.add)
def add(left, right):
    return Pair(left + right.first, left + right.second)


@implements(torch.where)
def where(condition, pair, other):
    return Pair(torch.where(condition, pair.first, other), torch.where(condition, pair.second, other))


class Refusing(Pair):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.asked.append("refused")
        return NotImplemented

    def __radd__(self, other):
        return other * self.first


@program(breaks=0)
def test_rule_is_asked_for_objects_inside_a_list():
    def fn(x):
        stacked = torch.stack([Pair(x, x + 1), Pair(x * 2, x)], dim=1)
        return stacked.first * stacked.second

    return fn, ordinary


@program(breaks=0)
def test_rule_of_an_object_from_outside():
    def fn(pairs):
        stacked = torch.stack(pairs)
        dropped = torch.nn.functional.dropout(pairs[0], 0.25, training=len(pairs) > 1)
        return stacked.first, stacked.second.sum() + dropped.second, type(stacked).__name__

    return fn, lambda i: ([Pair(swing(i), swing(i + 1)) for _ in range(2 + i % 2)],)


@program(breaks=0)
def test_rule_sees_function_types_and_arguments():
    def fn(x):
        Pair.asked.clear()
        chosen = torch.where(x > 0, Pair(x, -x), x)
        return chosen.first + chosen.second, list(Pair.asked)

    return fn, ordinary


@program(breaks=0)
def test_operator_of_a_tensor_asks_the_rule_of_the_other_operand():
    def fn(x):
        return (x + Pair(x, x * 2)).second, x + Refusing(x * 3, x)

    return fn, ordinary


class Factor(float):
    def __rmul__(self, other):
        return other * 100


class Bare:
    def __init__(self, value):
        self.value = value

    def __radd__(self, other):
        return other + self.value

    def __gt__(self, other):
        return other < self.value


@program(breaks=0)
def test_reflected_method_of_an_operand_without_a_rule():
    def fn(x):
        return x + Bare(x * 2), x < Bare(1.0), x == Bare(0), x != Bare(0)

    return fn, ordinary


@program
def test_operand_that_torch_takes_is_not_asked():
    def fn(x, factor):
        return x * factor + 1

    return fn, lambda i: (torch.randn(4), Factor(2.0))


@program(breaks=0)
def test_comparison_that_nothing_implements():
    def fn(x):
        try:
            return x < Refusing(x, x)
        except TypeError as error:
            return x + 1, str(error)

    return fn, ordinary


@program(breaks=0)
def test_rules_that_refuse_end_in_the_error_of_torch():
    def fn(x):
        texts = []
        for call in (
            lambda: torch.cat([Refusing(x, x), Pair(x, x)]),
            lambda: torch.nn.functional.softmax(Refusing(x, x), 0),
            lambda: x * Refusing(x, x),
            lambda: x.add(Refusing(x, x)),
        ):
            try:
                call()
            except TypeError as error:
                texts.append(str(error))
        return x + 1, texts

    return fn, ordinary


@program(breaks=0)
def test_rule_that_is_replaced_is_seen():
    kinds = {}

    def fn(x):
        return torch.stack([Pair(x, x)]).first

    def replace():
        kinds["old"] = Pair.handled[torch.stack]
        Pair.handled[torch.stack] = lambda pairs, dim=0: Pair(pairs[0].first * 7, pairs[0].second)

    def restore():
        Pair.handled[torch.stack] = kinds["old"]

    return fn, lambda i: (torch.randn(4), Before(replace if i == 1 else restore if i == 2 else lambda: None))


def scaled(x, factor=1):
    if has_torch_function_unary(x):
        return handle_torch_function(scaled, (x,), x, factor=factor)
    return x * factor * SCALE[0]


SCALE = [2.0]


@wrap_torch_function(lambda x, factor=1: (x,))
def counted(x, factor=1):
    Pair.asked.append("plain")
    return x * factor * SCALE[0]


@implements(scaled)
def scale_pair(pair, factor):
    return Pair(scaled(pair.first, factor), pair.second)


@implements(counted)
def count_pair(pair, factor):
    return Pair(counted(pair.first, factor), pair.second)


@program(breaks=0)
def test_functions_of_the_user_ask_the_rules():
    SCALE[0] = 2.0

    def fn(x):
        Pair.asked.clear()
        pair = Pair(x, x)
        return scaled(pair, 3).first + counted(pair, 2).first, scaled(x), counted(x), list(Pair.asked)

    def change():
        SCALE[0] += 1

    return fn, lambda i: (torch.randn(4), Before(change))


@program(breaks=0)
def test_gradients_flow_through_a_rule():
    def fn(pair):
        return torch.stack([pair, pair]).first.square().sum()

    def call(i):
        return (Pair(swing(i).requires_grad_(), torch.ones(4)),)

    return fn, call


@program
def test_object_where_no_rule_may_be_asked():
    def fn(x):
        return torch.is_tensor(Pair(x, x)), x.new_tensor([1.0]) + x, isinstance(Pair(x, x), torch.Tensor)

    return fn, ordinary
