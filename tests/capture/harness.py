"""The harness of the semantic programs in tests/capture.

A program is a function that builds a small world and returns what to call in it:

    @program
    def test_closure_sees_rebound_cell():
        def fn(x): ...
        return fn, [(torch.ones(3),), (torch.zeros(3),)]

The world is built twice: one copy runs eagerly, one compiled. Every call's result (or exception), its
arguments afterwards, what it printed and the optional third element of the return value (any state the
program wants compared) must agree. The first call of a compiled function is traced, later ones are
replayed, so a program makes at least three calls (a list of fewer is cycled with fresh worlds' arguments).
How the result came about (breaks, graphs, calls that traced) is pinned by `pins.py`.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import math
import random
import re
import types
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

import burnish

from ..seeding import seed as seed_torch
from . import pins

CALLS = 3


def program(make: Callable | None = None, *, breaks: int | None = None, exact: bool = True, same_text: bool = True):
    """Turn ``make`` into a test. ``breaks=0`` asks for ``fullgraph=True``; ``exact=False`` compares tensors by
    allclose; ``same_text=False`` leaves exception messages out of the comparison."""
    if make is None:
        return functools.partial(program, breaks=breaks, exact=exact, same_text=same_text)

    is_pinned = "<locals>" not in make.__qualname__  # programs that a test makes have no name of their own

    def test():
        same = Same(exact, same_text)
        expected = run_world(make, lambda fn: fn)
        burnish.reset()
        with pins.watched() as course:
            found = run_world(make, lambda fn: burnish.compile(fn, backend="eager", fullgraph=breaks == 0), course)
        assert len(expected) == len(found)
        for i, (want, got) in enumerate(zip(expected, found, strict=True)):
            for part in want:
                same(want[part], got[part], f"call {i}: {part}")
        if is_pinned:
            pins.check(make.__code__.co_filename, make.__name__, course)

    test.__name__, test.__doc__, test.__module__ = make.__name__, make.__doc__, make.__module__
    if is_pinned and pins.gives_up(make.__code__.co_filename, make.__name__):
        test = pytest.mark.falls_back("refused", "limit")(test)
    return test


def run_world(make: Callable, compiler: Callable, course: pins.Course | None = None) -> list[dict[str, Any]]:
    """Build the world, call its function ``CALLS`` times or as often as the program says, note all that can be seen."""
    seed(0)
    fn, calls, *state = make()
    calls = list(calls) if not callable(calls) else [calls(i) for i in range(CALLS)]
    while len(calls) < CALLS:
        calls.append(copy.deepcopy(calls[len(calls) % max(1, len(calls))]))
    compiled = compiler(fn)
    seen = []
    for i, args in enumerate(calls):
        args, kwargs = (args[:-1], args[-1].kwargs) if args and isinstance(args[-1], Keywords) else (args, {})
        seed(i)
        if course is not None:
            course.call = i + 1
        out, text, trouble = None, io.StringIO(), None
        with contextlib.redirect_stdout(text), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                out = compiled(*args, **kwargs)
            except Exception as error:  # the error is what is compared
                trouble = error
        seen.append(
            {
                "error": trouble,
                "result": snapshot(out),
                "args": snapshot(args),
                "kwargs": snapshot(kwargs),
                "printed": text.getvalue(),
                "warnings": [t for t in (str(w.message) for w in warned) if not t.startswith("burnish:")],
                "state": snapshot(state),
                "grad mode": torch.is_grad_enabled(),
                "random": (torch.rand(1), random.random()),
            }
        )
    return seen


class Keywords:
    """Keyword arguments of one call, given as its last argument: ``(x, Keywords(scale=2))``."""

    def __init__(self, **kwargs):
        self.kwargs = kwargs


def seed(n: int) -> None:
    seed_torch(n)
    random.seed(n)
    np.random.seed(n)


def snapshot(value: Any, memo: dict | None = None) -> Any:
    """A copy that later mutation cannot reach, shared parts staying shared. Functions, iterators stay as they are."""
    memo = {} if memo is None else memo
    if id(value) in memo:
        return memo[id(value)][0]
    if isinstance(value, torch.Tensor):
        copied = value.detach().clone() if not value.is_sparse else value
        memo[id(value)] = (Seen(copied, value), value)
    elif type(value) in (list, tuple, set, deque):
        if type(value) is list:
            copied = []
            memo[id(value)] = (copied, value)
            copied.extend(snapshot(v, memo) for v in value)
        else:
            memo[id(value)] = (type(value)(snapshot(v, memo) for v in value), value)
    elif isinstance(value, Mapping) and type(value).__module__ in ("builtins", "collections"):
        copied = {}
        memo[id(value)] = (copied, value)
        copied.update((snapshot(k, memo), snapshot(v, memo)) for k, v in value.items())
    elif isinstance(value, np.ndarray):
        memo[id(value)] = (value.copy(), value)
    elif isinstance(value, torch.nn.Module) or (
        hasattr(value, "__dict__")
        and not isinstance(value, (type, types.FunctionType, types.ModuleType, types.MethodType, BaseException))
    ):
        shell = Shell(type(value).__qualname__)
        memo[id(value)] = (shell, value)
        shell.parts = {k: snapshot(v, memo) for k, v in vars(value).items()}
    else:
        return value
    return memo[id(value)][0]


class Seen:
    """A tensor's value and what can be observed about it at one moment."""

    def __init__(self, data: torch.Tensor, tensor: torch.Tensor):
        self.data = data
        leaf = is_leaf(tensor)
        self.facts = {
            "dtype": tensor.dtype,
            "shape": tuple(tensor.shape),
            "device": tensor.device,
            "type": type(tensor).__name__,
            "stride": tensor.stride() if tensor.layout is torch.strided else None,
            "requires_grad": tensor.requires_grad,
            "is_leaf": leaf,
            "grad": None if not leaf or tensor.grad is None else tensor.grad.detach().clone(),
        }


def is_leaf(tensor: torch.Tensor) -> bool | str:
    """torch refuses to tell for a view of several whose base was written to: then that is what can be observed."""
    try:
        return tensor.is_leaf
    except RuntimeError:
        return ""


class Shell:
    """The observable attributes of an object."""

    def __init__(self, name: str):
        self.name, self.parts = name, {}


NODE = re.compile("grad_fn=<[^>]*>")
"""How a tensor prints its node, whose name differs: see docs/limitations.md."""


def text_of(error: BaseException) -> str:
    return NODE.sub("grad_fn=<>", str(error))


class Same:
    """Structural equality with a path in the message."""

    def __init__(self, exact: bool, same_text: bool):
        self.exact, self.same_text, self.done = exact, same_text, set()

    def __call__(self, want: Any, got: Any, path: str) -> None:
        if (id(want), id(got)) in self.done:
            return
        self.done.add((id(want), id(got)))
        assert type(want).__name__ == type(got).__name__, f"{path}: {describe(want)} expected, got {describe(got)}"
        if isinstance(want, Seen):
            self(want.facts, got.facts, f"{path} facts")
            self.tensors(want.data, got.data, path)
        elif isinstance(want, torch.Tensor):
            self.tensors(want, got, path)
        elif isinstance(want, Shell):
            assert want.name == got.name, path
            self(want.parts, got.parts, f"{path} attributes")
        elif isinstance(want, (list, tuple, deque)):
            assert len(want) == len(got), f"{path}: {len(want)} items expected, got {len(got)}"
            for i, (a, b) in enumerate(zip(want, got, strict=True)):
                self(a, b, f"{path}[{i}]")
        elif isinstance(want, Mapping):
            assert [str(k) for k in want] == [str(k) for k in got], (
                f"{path}: keys {list(want)} expected, got {list(got)}"
            )
            for (k, a), b in zip(want.items(), got.values(), strict=True):
                self(a, b, f"{path}[{k!r}]")
        elif isinstance(want, BaseException):
            if self.same_text:
                assert text_of(want) == text_of(got), f"{path}: {want!r} expected, got {got!r}"
            self(type(want.__cause__).__name__, type(got.__cause__).__name__, f"{path} cause")
        elif isinstance(want, np.ndarray):
            assert want.dtype == got.dtype, f"{path}: {want.dtype} expected, got {got.dtype}"
            check = np.testing.assert_array_equal if self.exact else np.testing.assert_allclose
            check(got, want, err_msg=path, **({} if self.exact else {"rtol": 1e-5, "atol": 1e-6}))
        elif isinstance(want, np.generic):
            self(np.asarray(want), np.asarray(got), path)
        elif isinstance(want, float) and not self.exact:
            assert math.isclose(want, got, rel_tol=1e-5, abs_tol=1e-6) or math.isnan(want) and math.isnan(got), (
                f"{path}: {want!r} expected, got {got!r}"
            )
        elif isinstance(
            want, (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, slice, range)
        ):
            assert repr(want) == repr(got), f"{path}: {want!r} expected, got {got!r}"

    def tensors(self, want: torch.Tensor, got: torch.Tensor, path: str) -> None:
        rtol, atol = (0.0, 0.0) if self.exact else (1e-5, 1e-6)
        if type(want) is not type(got):  # of two worlds, each with a class of its own
            with torch._C.DisableTorchFunctionSubclass():
                want, got = want.as_subclass(torch.Tensor), got.as_subclass(torch.Tensor)
        torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{path}: {m}")


def describe(value: Any) -> str:
    return f"{value!r}" if isinstance(value, BaseException) else f"{type(value).__name__} {value!r:.80}"
