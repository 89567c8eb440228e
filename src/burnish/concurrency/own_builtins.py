"""Builtins of Burnish's own: its modules do not see what a program puts into ``builtins``.

    with unittest.mock.patch("builtins.len", lambda items: 7):
        step(x)                    the program's len() is 7; the interpreter that runs ``step`` still counts

CPython takes the builtins of a function from ``__builtins__`` in the globals of its module, if they are there before
the function is made. So Burnish's modules are created with them.
"""

from __future__ import annotations

import _imp
import builtins
import contextlib
import importlib.machinery
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import BuiltinFunctionType, ModuleType

OWN = dict(vars(builtins))
PACKAGE = f"{__name__.partition('.')[0]}."
HARMLESS = frozenset("__import__ _ breakpoint copyright credits exit help input license open print quit".split())
"""Torch's compiler does not depend on these."""


def is_of_python(name: str, value: object) -> bool:
    if isinstance(value, type):
        return not value.__flags__ & HEAP_TYPE or name == "ExceptionGroup"
    return type(value) is BuiltinFunctionType or not callable(value)


def put_back() -> frozenset[str]:
    """If the program replaced builtins before it imported this package, find those of Python. It keeps a copy, which it
    shows when the module is created again. Returns the names of all others, which are the program's own."""
    others = {n for n, value in OWN.items() if not (n.startswith("__") or n in HARMLESS or is_of_python(n, value))}
    if not others:
        return frozenset()
    namespace = vars(builtins)
    before = dict(namespace)
    try:
        _imp.create_builtin(builtins.__spec__)
        found = {name: namespace[name] for name in others if namespace[name] is not before[name]}
    finally:
        for name in namespace.keys() - before.keys():
            del namespace[name]
        namespace.update(before)
    OWN.update(found)
    return frozenset(others - found.keys())


HEAP_TYPE = 1 << 9
NOT_NEEDED = HARMLESS | put_back()


def replaced() -> list[str]:
    """The builtins that torch's own code needs, where the program has replaced them."""
    return [name for name, value in OWN.items() if vars(builtins).get(name) is not value and name not in NOT_NEEDED]


@contextlib.contextmanager
def usual() -> Iterator[None]:
    """Torch's code finds Python's builtins."""
    others = {name: vars(builtins).get(name, OWN) for name in replaced()}
    vars(builtins).update({name: OWN[name] for name in others})
    try:
        yield
    finally:
        for name, other in others.items():
            if other is OWN:
                del vars(builtins)[name]
            else:
                vars(builtins)[name] = other


class OwnModuleFinder:
    """Python's own finder, for the modules of this package."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        found = PathFinder.find_spec(name, path, target) if name.startswith(PACKAGE) else None
        if found is not None and isinstance(found.loader, importlib.machinery.SourceFileLoader):
            found.loader.create_module = create_module  # type: ignore[method-assign]
        return found


def create_module(spec: ModuleSpec) -> ModuleType:
    module = ModuleType(spec.name)
    module.__dict__["__builtins__"] = OWN
    return module


sys.meta_path.insert(0, OwnModuleFinder)  # type: ignore[arg-type]
