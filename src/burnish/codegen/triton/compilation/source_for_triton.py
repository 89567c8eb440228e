"""Turns printed text into a Python function for Triton, which needs the source of what it compiles.

fn = function_of(printed)            a Python function, with what it calls in its globals
"""

from __future__ import annotations

import inspect
import itertools
import linecache
from collections.abc import Callable, Mapping
from typing import Any, Protocol

_numbers = itertools.count()


class KernelSource(Protocol):
    """A printed kernel, or a job to compile one. Worker processes import this module too, without torch."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...


def function_of(printed: KernelSource, globals: Mapping[str, Any], jitted: Callable[[Callable], Any]) -> Callable:
    """`globals` are `tl` and the functions of `reduction_combine`. Functions that the kernel calls are `jitted`."""
    file = f"<burnish triton {printed.name} {next(_numbers)}>"
    linecache.cache[file] = (len(printed.text), None, printed.text.splitlines(True), file)
    space = {"__name__": "burnish.kernels", **globals}
    try:
        exec(compile(printed.text, file, "exec"), space)
    except SyntaxError as error:
        raise AssertionError(f"{error}\n{printed.text}") from error
    made: Callable = space[printed.name]
    for name, fn in list(space.items()):
        if name not in globals and fn is not made and inspect.isfunction(fn):
            space[name] = jitted(fn)
    return made


def forget(fn: Callable) -> None:
    """Drops the text once it has been read."""
    linecache.cache.pop(fn.__code__.co_filename, None)
