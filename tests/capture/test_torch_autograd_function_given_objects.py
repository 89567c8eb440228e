"""Objects that a custom autograd function is given and calls: their writes are seen, and only their writes."""

import dataclasses
import enum
import functools

import pytest
import torch

import burnish


class Counting:
    def __init__(self):
        self.calls = 0

    def __call__(self, *_):
        self.calls += 1


class CountingModule(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x


@pytest.mark.parametrize("backend", ["eager", "burnish"])
@pytest.mark.parametrize("kind", ["object", "module", "method", "method of a list"])
def test_what_a_function_is_given_may_write(kind, backend):
    class Calls(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, call):
            call(x.shape[0])
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2, None

    def make():
        holder = CountingModule() if kind == "module" else [] if kind == "method of a list" else Counting()
        call = holder.__call__ if kind == "method" else holder.append if kind == "method of a list" else holder

        def fn(x):
            y = Calls.apply(x, call)
            return y, len(holder) if kind == "method of a list" else holder.calls

        return fn

    fn, compiled = make(), burnish.compile(make(), backend=backend)
    for k in range(4):
        x = torch.ones(2) * k
        assert compiled(x)[1] == fn(x)[1] == k + 1


class Applied(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, given):
        return given(x) if callable(given) else x * given.factor

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2, None


class Factor(enum.Enum):
    TWO = 2
    factor = property(lambda self: self.value)


@dataclasses.dataclass
class Config:
    factor: int = 2
    log: list = dataclasses.field(default_factory=list)

    def uncalled(self):
        self.log.append(self.factor)


class LocalList(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)
        self.bias = torch.nn.Parameter(torch.ones(2))
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x):
        self.steps += 1
        results, named = [], {}
        results.append(torch.add(self.inner(x), self.bias.add(1)))
        named["first"] = self.inner(results[0])
        named.update(second=self.inner(x))
        return sum(named.values())


MAKERS = {
    "enum": lambda: Factor.TWO,
    "dataclass": Config,
    "module": LocalList,
    "lambda": lambda: functools.partial(lambda module, x: module(x), LocalList()),
    "partial": lambda: functools.partial(torch.add, other=1),
    "function of torch": lambda: torch.ones(2).add,
}


@pytest.mark.parametrize("name", MAKERS)
def test_what_writes_to_nothing_outside_stays_in_the_graph(name):
    given = MAKERS[name]()

    def fn(x):
        return Applied.apply(x, given) + 1

    compiled = burnish.compile(fn, fullgraph=True, backend="eager")
    for k in range(3):
        x = torch.full((2, 2), float(k), requires_grad=True)
        assert torch.equal(compiled(x), fn(x))


class WritesInTurn(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.log = []

    def forward(self, x):
        return self.step(x)

    def step(self, x):
        log = self.log
        log.append(1 if x.dim() else 2)
        return x


def by_closure(module):
    return lambda x: module.step(x)


def by_partial(module):
    return functools.partial(module.step)


def by_nested(module):
    def call(x):
        def inner():
            module.log.append(1)

        inner()
        return x

    return call


def by_decorator(module):
    def decorated(function):
        @functools.wraps(function)
        def call(x):
            module.log.append(1)
            return function(x)

        return call

    return decorated(lambda x: x)


@pytest.mark.parametrize("make", [lambda module: module, by_closure, by_partial, by_nested, by_decorator])
def test_writes_of_what_is_called_in_turn(make):
    def build():
        module = WritesInTurn()
        call = make(module)

        def fn(x):
            return Applied.apply(x, call), len(module.log)

        return fn

    fn, compiled = build(), burnish.compile(build(), backend="eager")
    for k in range(4):
        x = torch.ones(2) * k
        assert compiled(x)[1] == fn(x)[1] == k + 1
