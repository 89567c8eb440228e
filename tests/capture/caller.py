"""Programs whose uncompiled caller is part of the subject: what it does before, between and after compiled calls.

A program returns the function to compile, the plain Python that calls it, and the calls of that caller:

    @program_with_caller
    def test_gradients_reach_the_argument():
        def fn(x): ...
        def caller(fn, x):          # never compiled; `fn` is eager in one world and compiled in the other
            fn(x).backward()
            return x.grad
        return fn, caller, [(torch.ones(3, requires_grad=True),)]

Results, arguments, output and state are compared by the rules of `harness.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import burnish

from .harness import Same, run_world


def program_with_caller(make: Callable | None = None, *, breaks: int | None = None, exact: bool = True,
                        same_text: bool = True):
    """``program`` for a ``make`` that returns ``fn, caller, calls, *state``."""
    if make is None:
        return functools.partial(program_with_caller, breaks=breaks, exact=exact, same_text=same_text)

    def world():
        fn, caller, calls, *state = make()
        return (fn, caller), calls, *state

    def eager(pair):
        return functools.partial(pair[1], pair[0])

    def compiled(pair):
        return functools.partial(pair[1], burnish.compile(pair[0], backend="eager", fullgraph=breaks == 0))

    def test():
        same = Same(exact, same_text)
        expected = run_world(world, eager)
        burnish.reset()
        found = run_world(world, compiled)
        assert len(expected) == len(found)
        for i, (want, got) in enumerate(zip(expected, found, strict=True)):
            for part in want:
                same(want[part], got[part], f"call {i}: {part}")

    test.__name__, test.__doc__, test.__module__ = make.__name__, make.__doc__, make.__module__
    return test
