"""Partials as arguments and of context managers, default factories of any kind, and queries of torch's C functions."""

import collections
import contextlib
import functools
import sys

import pytest
import torch

from .harness import program


@program(breaks=0)
def test_partial_is_an_argument():
    def fn(x, f):
        return f(x) + 1

    offset = torch.ones(3)
    partials = [functools.partial(torch.add, other=1), functools.partial(lambda a, b: a * b, b=offset)]
    return fn, [(torch.ones(3), partials[i]) for i in (0, 1, 0, 1)]


@program(breaks=0)
def test_partials_of_context_managers():
    without_gradients = functools.partial(torch.set_grad_enabled, False)
    lowered = functools.partial(torch.autocast, "cpu", dtype=torch.bfloat16)

    @contextlib.contextmanager
    def adding(a, b):
        yield a + b

    from_one = functools.partial(adding, 1)

    def fn(x):
        with without_gradients():
            y = x * 2
        with lowered(enabled=True):
            z = x @ x
        with from_one(b=2) as total:
            return y, y.requires_grad, z, x * total

    return fn, [(torch.randn(3, 3, requires_grad=True),)] * 3


class Fixed:
    def __call__(self):
        return 3


@program(breaks=0)
def test_default_factories_of_any_kind():
    def fn(x):
        of_closure = collections.defaultdict(lambda: x * 2)
        of_object = collections.defaultdict(Fixed())
        of_partial = collections.defaultdict(functools.partial(torch.zeros, 3))
        nested = collections.defaultdict(lambda: collections.defaultdict(list))
        of_object["q"] += 1
        of_partial["q"] += x
        nested["a"]["b"].append(x)
        return of_closure["a"] + of_closure["b"], of_object["q"], dict(of_partial), nested["a"]["b"][0] * 2

    return fn, [(torch.ones(3) * i,) for i in range(3)]


@program
def test_a_defaultdict_of_the_caller_counts():
    counts = collections.defaultdict(int)

    def fn(x):
        counts[x.shape[0]] += 1
        return x * 2, counts[x.shape[0]]

    return fn, [(torch.ones(n),) for n in (2, 3, 2, 2, 3)], lambda: dict(counts)


@program(breaks=0)
def test_queries_of_torchs_c_functions():
    def fn(x):
        return x * torch._C._is_xnnpack_enabled() + torch._C._get_max_operator_version() * 0

    return fn, [(torch.ones(3),)] * 3


class Bound:
    shift = functools.partial(lambda *args: args[-1] + 1)
    scale = staticmethod(functools.partial(lambda *args: args[-1] * 2))


@pytest.mark.skipif(sys.version_info < (3, 14), reason="partials are no methods")
@program(breaks=0)
def test_partials_in_classes_are_methods():
    def fn(x):
        bound = Bound()
        return bound.shift(x), bound.scale(x), Bound.shift(x), bound.shift.__self__ is bound

    return fn, [(torch.ones(3),) for _ in range(3)]


@pytest.mark.skipif(sys.version_info < (3, 14), reason="there are no placeholders")
@program(breaks=0)
def test_placeholders_of_partials_are_filled_in_order():
    def fn(x, outside):
        gap = functools.Placeholder
        made = functools.partial(lambda *args, **kwargs: (args, kwargs), gap, 2, gap, 4)
        nested = functools.partial(made, gap, x.ndim)
        try:
            made(1)
        except TypeError as error:
            text = str(error)
        return outside(x), outside(x, alpha=2), made(1, 3, 5, k=6), nested(7), nested(7, 8), nested.args, text

    outside = functools.partial(torch.sub, getattr(functools, "Placeholder", None), 2)
    return fn, [(torch.ones(3), outside) for _ in range(3)]
