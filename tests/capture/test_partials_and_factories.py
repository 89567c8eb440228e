"""Partials as arguments and of context managers, default factories of any kind, and queries of torch's C functions."""

import collections
import contextlib
import functools

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
