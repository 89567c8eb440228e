"""Runs a callback once a module is imported, or at once if it is loaded already. Nothing is imported here.

after_import("accelerate.utils.dataclasses", add_member)     # add_member(module), when another one imports it
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_waiting: dict[str, Callable[[Any], None]] = {}


def after_import(name: str, act: Callable[[Any], None]) -> None:
    """Call ``act`` with the module. A later call for the same module replaces it, if that is not imported yet."""
    loaded = sys.modules.get(name)
    if loaded is not None and not is_being_imported(loaded):
        act(loaded)
        return
    _waiting[name] = act
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def forget(name: str) -> None:
    """Do nothing after the import of this module."""
    _waiting.pop(name, None)
    if not _waiting and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


def is_being_imported(module: ModuleType) -> bool:
    return bool(getattr(module.__spec__, "_initializing", False))


class ImportObserver:
    """A finder of modules that finds none by itself: it adds the action to those that others find."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        act = _waiting.get(name)
        if act is None:
            return None
        forget(name)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            _act_after(spec, act)
        return spec


def _act_after(spec: ModuleSpec, act: Callable[[Any], None]) -> None:
    loader: Any = spec.loader
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        act(module)

    loader.exec_module = exec_module


_finder: Any = ImportObserver()
