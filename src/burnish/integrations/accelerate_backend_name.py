"""The name "burnish" among the backends that Accelerate knows, from `burnish.install()` on.

    burnish.install()
    Accelerator(dynamo_plugin=TorchDynamoPlugin(backend="burnish"))
    TrainingArguments(torch_compile=True, torch_compile_backend="burnish")     # transformers asks Accelerate

Accelerate keeps the names of backends in an enumeration and refuses all others. The member is added when Accelerate is
imported, or at once if it is loaded already. Nothing is imported here.
"""

from __future__ import annotations

from typing import Any

from .after_import import after_import, forget

MODULE = "accelerate.utils.dataclasses"
NAME = "BURNISH"


def know_name() -> None:
    """Add the name, now or when Accelerate is imported."""
    after_import(MODULE, add_member)


def stop_waiting() -> None:
    forget(MODULE)


def add_member(module: Any) -> None:
    kind = getattr(module, "DynamoBackend", None)
    if kind is None or NAME in kind._member_map_:
        return
    member = str.__new__(kind, NAME) if issubclass(kind, str) else object.__new__(kind)
    member._name_, member._value_, member._sort_order_ = NAME, NAME, len(kind._member_names_)
    type.__setattr__(kind, NAME, member)
    kind._member_map_[NAME] = kind._value2member_map_[NAME] = member
    kind._member_names_.append(NAME)
