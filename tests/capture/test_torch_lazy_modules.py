"""Lazy modules and other objects initialized by the first call."""

import functools

import torch
from torch import nn

from .caller_programs import program_with_caller
from .harness import program


@program
def test_lazy_linear_takes_its_width_from_the_first_input():
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2))
    return model, lambda i: (torch.randn(2, 5),)


@program_with_caller
def test_lazy_module_becomes_an_ordinary_one():
    model = nn.LazyLinear(2)

    def caller(fn, x):
        before = type(model).__name__
        return fn(x), before, type(model).__name__, tuple(model.weight.shape), len(model._forward_pre_hooks)

    return model, caller, lambda i: (torch.randn(1, 3),)


@program
def test_lazy_convolution_and_batch_norm():
    model = nn.Sequential(nn.LazyConv2d(2, 3), nn.LazyBatchNorm2d())
    return model, lambda i: (torch.randn(2, 1, 5, 5) + i,)


@program
def test_lazy_width_that_does_not_fit_later():
    model = nn.LazyLinear(2)
    return model, [(torch.randn(1, n),) for n in (3, 4, 3, 4)]


@program_with_caller
def test_lazy_module_is_initialised_by_the_caller_first():
    model = nn.LazyLinear(2)
    model(torch.zeros(1, 3))

    def caller(fn, x):
        out = fn(x)
        out.sum().backward()
        grad = model.weight.grad.clone()
        model.zero_grad()
        return out, grad

    return model, caller, lambda i: (torch.randn(2, 3),)


@program
def test_parameter_is_made_in_the_first_forward():
    class Late(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = None

        def forward(self, x):
            if self.weight is None:
                self.weight = nn.Parameter(torch.ones(x.shape[-1]) * 2)
            return x * self.weight, len(list(self.parameters()))

    model = Late()
    return model, lambda i: (torch.randn(2, 3),), model


@program
def test_layer_is_added_in_the_first_forward():
    class Late(nn.Module):
        def forward(self, x):
            if "inner" not in self._modules:
                self.inner = nn.Linear(x.shape[-1], 2)
                nn.init.constant_(self.inner.weight, 0.5)
            return self.inner(x)

    model = Late()
    return model, lambda i: (torch.randn(2, 3),), model


@program
def test_cached_property_is_computed_once():
    log = []

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.Parameter(torch.randn(3))

        @functools.cached_property
        def table(self):
            log.append("computed")
            return self.base.detach() * 2

        def forward(self, x):
            return x * self.table

    model = Model()
    return model, lambda i: (torch.randn(3),), log


@program
def test_table_by_length_is_cached_by_lru_cache():
    made = []

    @functools.lru_cache(maxsize=None)
    def positions(n):
        made.append(n)
        return torch.arange(n).float()

    def fn(x):
        return x + positions(x.shape[0]), positions.cache_info().currsize

    return fn, [(torch.randn(n),) for n in (3, 4, 3, 4, 5)], made


@program
def test_dictionary_cache_by_shape_and_dtype():
    cache = {}

    def fn(x):
        key = (tuple(x.shape), x.dtype)
        if key not in cache:
            cache[key] = torch.ones(x.shape, dtype=x.dtype) * (len(cache) + 1)
        return x * cache[key], len(cache)

    return (
        fn,
        [(torch.ones(2),), (torch.ones(3),), (torch.ones(2),), (torch.ones(2, dtype=torch.float64),), (torch.ones(3),)],
        cache,
    )


@program
def test_global_flag_marks_the_first_call():
    state = {"ready": False}

    def fn(x):
        if not state["ready"]:
            state["ready"], state["offset"] = True, x.sum()
            return x
        return x - state["offset"]

    return fn, lambda i: (torch.randn(3),), state


@program_with_caller(breaks=0)
def test_the_first_call_of_lazy_modules_breaks_nothing():
    model = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(2))

    def caller(fn, x):
        out = fn(x)
        out.sum().backward()
        kinds = [type(part).__name__ for part in model]
        grads = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        return out, kinds, grads, len(model[0]._forward_pre_hooks)

    return model, caller, lambda i: (torch.randn(4, 5),)


@program_with_caller(breaks=0)
def test_a_lazy_module_of_the_users_own():
    class Scale(nn.modules.lazy.LazyModuleMixin, nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.parameter.UninitializedParameter()
            self.made = 0

        def initialize_parameters(self, x):
            self.weight.materialize(x.shape[1:])
            with torch.no_grad():
                self.weight.uniform_()
            self.made += 1

        def forward(self, x):
            return x * self.weight + self.made

    model = Scale()

    def caller(fn, x):
        out = fn(x)
        out.sum().backward()
        return out, model.weight, model.weight.grad.clone(), model.made

    return model, caller, lambda i: (torch.randn(4, 5),)


@program
def test_a_lazy_module_that_cannot_be_made():
    model = nn.LazyConv2d(2, 3)

    def fn(x):
        try:
            return model(x)
        except (RuntimeError, ValueError) as error:
            return type(error).__name__

    return fn, [(torch.randn(5),), (torch.randn(2, 1, 5, 5),), (torch.randn(2, 1, 5, 5),)]
