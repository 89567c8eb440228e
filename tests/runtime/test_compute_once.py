"""`once`: an object whose address native code holds is created once, for all threads."""

import ast
import functools
import inspect
import threading
from pathlib import Path

import pytest

from burnish.compiler import provide_guard_watch
from burnish.concurrency.first_value_cache import once
from burnish.runtime.linking import elf_linker
from burnish.runtime.program import native_kernels
from burnish.runtime.state_watch import native_watch

from .concurrent_threads import at_once

SOURCE = Path(native_watch.__file__).parents[2]
HOLD_NATIVE_CODE = ("runtime", "codegen", "backends", "compiler", "schedule")

needs_watches = pytest.mark.skipif(
    provide_guard_watch.new_watch() is None, reason="this Python keeps its objects in another way"
)


def both_inside(monkeypatch, owner, name):
    """From here on two threads are inside of a function at the same time, the first time that they call it."""
    barrier, function, waited = threading.Barrier(2), getattr(owner, name), threading.local()

    def together(*args):
        if not hasattr(waited, "once"):
            waited.once = True
            barrier.wait(60)
        return function(*args)

    monkeypatch.setattr(owner, name, together)


def test_threads_that_ask_at_the_same_time_get_one_value():
    barrier = threading.Barrier(4)

    @once
    def value(key):
        barrier.wait(60)
        return object()

    found = at_once(*[functools.partial(value, 1)] * 4)
    assert len(set(map(id, found))) == 1
    assert value(1) is found[0]


def test_a_function_that_raises_is_called_again():
    calls = []

    @once
    def value():
        calls.append(1)
        if len(calls) == 1:
            raise ValueError
        return len(calls)

    with pytest.raises(ValueError):
        value()
    assert [value(), value()] == [2, 2]


def test_forgotten_values_are_created_again():
    calls = []

    @once
    def value(key):
        calls.append(key)
        return len(calls)

    assert [value("a"), value("a"), value("b")] == [1, 1, 2]
    value.cache_clear()
    assert [value("a"), value("a")] == [3, 3]


@needs_watches
def test_first_checks_of_two_threads_refer_to_one_method(monkeypatch):
    """A check refers to its method by address. The one that was made second must not take the place of the first.

    The methods of earlier checks stay: the garbage collector reads them through functions that are still alive."""
    monkeypatch.setattr(native_watch, "_method", once(inspect.unwrap(native_watch._method)))
    both_inside(monkeypatch, native_watch, "_Method")
    address = provide_guard_watch.watchers()[0]
    one, other = at_once(*[functools.partial(native_watch._method, address, native_watch.FLAGS[0])] * 2)
    assert one is other is native_watch._method(address, native_watch.FLAGS[0])


@needs_watches
def test_native_code_that_two_threads_load_at_once_is_loaded_once(monkeypatch):
    """Watches know it by its address."""
    code = provide_guard_watch.compiled()[0].object_code
    native_kernels._recent.clear()
    both_inside(monkeypatch, elf_linker, "link")
    load = functools.partial(
        native_kernels.load, code, "watch", native_watch.c_api("PyTuple_New", "Py_IncRef", "Py_DecRef")
    )
    one, other = at_once(load, load)
    assert one is other


def test_functions_near_native_code_keep_their_values_by_once():
    """`functools.cache` returns different values to threads that ask at the same time."""
    found = []
    for part in HOLD_NATIVE_CODE:
        for path in sorted((SOURCE / part).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if (
                    isinstance(node, ast.Attribute)
                    and node.attr == "cache"
                    and ast.unparse(node.value) == "functools"
                    or isinstance(node, ast.ImportFrom)
                    and node.module == "functools"
                    and any(name.name == "cache" for name in node.names)
                ):
                    found.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert found == []
