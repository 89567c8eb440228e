"""Programs with more than one function that knows about compilation: an uncompiled caller, or helpers compiled too.

A program with a caller returns the function to compile, the plain Python that calls it, and the calls of that caller:

    @program_with_caller
    def test_gradients_reach_the_argument():
        def fn(x): ...
        def caller(fn, x):          # never compiled; `fn` is eager in one world and compiled in the other
            fn(x).backward()
            return x.grad
        return fn, caller, [(torch.ones(3, requires_grad=True),)]

A program with a compiler is given the compiler of its world, which does nothing in the eager one:

    @program_with_compiler
    def test_compiled_helper_inside(compiled):
        helper = compiled(lambda x: x * 2)
        return lambda x: helper(x) + 1, [(torch.ones(3),)]

Results, arguments, output and state are compared by the rules of `harness.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import burnish

from .harness import Same, run_world


def program_with_caller(
    make: Callable | None = None, *, breaks: int | None = None, exact: bool = True, same_text: bool = True
):
    """``program`` for a ``make`` that returns ``fn, caller, calls, *state``."""
    if make is None:
        return functools.partial(program_with_caller, breaks=breaks, exact=exact, same_text=same_text)

    def run(compiler):
        def world():
            fn, caller, calls, *state = make()
            return (fn, caller), calls, *state

        return run_world(world, lambda pair: functools.partial(pair[1], compiler(pair[0])))

    return as_test(make, run, breaks == 0, Same(exact, same_text))


def program_with_compiler(make: Callable):
    """``program`` for a ``make`` that takes the compiler of its world: a function like ``burnish.compile``."""

    def run(compiler):
        return run_world(functools.partial(make, compiler), compiler)

    return as_test(make, run, False, Same(exact=True, same_text=True))


def as_test(make: Callable, run: Callable, fullgraph: bool, same: Same) -> Callable:
    """The test that runs the world of ``make`` by both compilers, named like ``make``."""

    def eager(fn, **options):
        return fn

    def compiled(fn, **options):
        return burnish.compile(fn, backend="eager", fullgraph=fullgraph, **options)

    def test():
        expected = run(eager)
        burnish.reset()
        found = run(compiled)
        assert len(expected) == len(found)
        for i, (want, got) in enumerate(zip(expected, found, strict=True)):
            for part in want:
                same(want[part], got[part], f"call {i}: {part}")

    test.__name__, test.__doc__, test.__module__ = make.__name__, make.__doc__, make.__module__
    return test
