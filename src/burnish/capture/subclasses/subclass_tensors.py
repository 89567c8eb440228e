"""Tensors of subclasses in a trace: which plain tensors show them, and how the program made them.

x.as_subclass(Tagged)                 shows the memory of x, which the graph knows
Tensor._make_wrapper_subclass(cls)    has no data: it is rebuilt from its arguments and attributes
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from ...foundation.torch_private import disabled_torch_function_impl
from ...runtime.argument_trees import tensors_in
from ..engine.torch_call_records import NotRecordable
from ..guards.tensor_metadata import NO_DISPATCH, TENSOR_TYPES, is_tensor, plain_view

NO_FUNCTION = disabled_torch_function_impl


def is_subclass(value: Any) -> bool:
    kind = type(value)
    return kind not in TENSOR_TYPES and kind is not torch.nn.Buffer and is_tensor(value)


def has_dispatch(kind: type) -> bool:
    """Whether torch's dispatcher calls Python for tensors of a class."""
    return kind.__torch_dispatch__ is not NO_DISPATCH


def subclasses_in(tree: Any) -> Iterator[torch.Tensor]:
    return filter(is_subclass, tensors_in(tree))


class ViewByRule(NamedTuple):
    """The call whose result, given by a rule, torch marks as a view of the first argument."""

    value: torch.Tensor
    operator: Any
    args: tuple
    kwargs: dict
    has_gradients: bool
    place: tuple[int, int] | None
    """Its position, and the number of results, where the operator returns a list."""


class Subclasses:
    """The tensors of subclasses in one trace."""

    def __init__(self) -> None:
        self.plain: dict[int, tuple[weakref.ref, torch.Tensor, bool]] = {}
        """Plain tensors that show the memory of those without rules of dispatch, by id, and whether the latter have
        been made without history, by `_make_subclass`."""
        self.wrappers: dict[int, tuple[torch.Tensor, tuple, dict]] = {}
        """Tensors without data that the program made, and the arguments that made them, by id."""
        self.views: dict[int, ViewByRule] = {}
        """How wrappers were made that torch has marked as views of others, by id."""
        self.storages: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """Wrappers that were given the storage of another one, and that one, by id."""
        self.native: dict[type, str] = {}
        """Classes with rules that could not be interpreted, and why."""
        self.below_autograd: set[type] = set()
        """Classes with rules of dispatch that were called while autograd recorded."""

    def why_native(self) -> str:
        reasons = [f"The rules of {kind.__qualname__} are not interpreted: {why}" for kind, why in self.native.items()]
        reasons += [
            f"Gradients flow through {kind.__qualname__}, whose rules are below autograd"
            for kind in self.below_autograd
        ]
        return "; ".join(sorted(reasons))

    def has_functions_of_users(self) -> bool:
        """Whether one of the classes has a `__torch_function__` that is not torch's."""
        modules = (getattr(kind.__torch_function__, "__module__", None) or "" for kind in self.native)
        return any(module.partition(".")[0] != "torch" for module in modules)

    def forget(self, recorder: Any) -> None:
        """Forget what shows values that the recorder has forgotten."""
        self.plain = {key: entry for key, entry in self.plain.items() if recorder.handle_of(entry[1]) is not None}

    def shown_by(self, value: torch.Tensor) -> torch.Tensor | None:
        entry = self.plain.get(id(value))
        return entry[1] if entry is not None and entry[0]() is value else None

    def wrapper(self, value: torch.Tensor) -> tuple[torch.Tensor, tuple, dict] | None:
        entry = self.wrappers.get(id(value))
        return entry if entry is not None and entry[0] is value else None

    def is_made_here(self, value: torch.Tensor) -> bool:
        return self.wrapper(value) is not None or self.shown_by(value) is not None

    def note_view(self, value: Any, operator: Any, args: tuple, kwargs: dict) -> None:
        returns = operator._schema.returns
        if len(returns) != 1 or returns[0].alias_info is None or returns[0].alias_info.is_write:
            return
        parts = list(value) if isinstance(value, (list, tuple)) else [value]
        for k, part in enumerate(parts):
            if is_tensor(part) and self.wrapper(part) is not None:
                place = None if part is value else (k, len(parts))
                self.views[id(part)] = ViewByRule(part, operator, args, kwargs, torch.is_grad_enabled(), place)

    def view(self, value: torch.Tensor) -> ViewByRule | None:
        entry = self.views.get(id(value))
        return entry if entry is not None and entry.value is value and value._is_view() else None

    def storage_owner(self, value: torch.Tensor) -> torch.Tensor | None:
        entry = self.storages.get(id(value))
        return entry[1] if entry is not None and entry[0] is value else None

    def is_detached(self, value: torch.Tensor) -> bool:
        return self.plain[id(value)][2]

    def note(self, value: torch.Tensor, plain: torch.Tensor, is_detached: bool = False) -> None:
        self.plain[id(value)] = weakref.ref(value), plain, is_detached

    def plain_of(self, m: Any, value: torch.Tensor) -> torch.Tensor:
        """A plain tensor of the graph that shows a tensor's memory."""
        found = self.shown_by(value)
        if found is None:
            origin = m.heap.origin_of(value)
            if origin is None:
                raise NotRecordable(f"a tensor of {type(value).__qualname__} that came from code capture did not see")
            found = plain_view(value)
            handle = m.recorder.input(origin.source.child("plain"), found)
            m.recorder.known[id(found)] = weakref.ref(found), handle
            self.note(value, found)
        return found
