"""Settings of torch's own compiler that also count for Burnish: a program that sets them has said what it wants.

    torch._dynamo.config.recompile_limit = 64         places may have 64 variants
    TORCH_COMPILE_DISABLE=1 python train.py           nothing is compiled

Dynamo's settings are read only if the program has loaded Dynamo. It cannot have changed them otherwise, and loading it
takes a second. Each is read when it matters: when a function is compiled, traced, or compiled again.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

DYNAMO_CONFIG = "torch._dynamo.config"
INDUCTOR_CONFIG = "torch._inductor.config"
OFF_SWITCHES = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")
"""Environment variables that Dynamo reads when it is loaded."""


def dynamo(name: str, default: Any = None) -> Any:
    """A setting of Dynamo; ``default`` if Dynamo is not loaded, or has no such setting."""
    return getattr(sys.modules.get(DYNAMO_CONFIG), name, default)


def changed_in_dynamo(name: str) -> Any:
    """A setting of Dynamo if the program has changed it from its default; otherwise None."""
    return _changed(DYNAMO_CONFIG, name)


def changed_in_inductor(name: str) -> Any:
    """The same of TorchInductor. The name may lead into a group: ``triton.cudagraphs``."""
    return _changed(INDUCTOR_CONFIG, name)


def compiler(name: str) -> Any:
    """A setting of ``torch.compiler.config``, or None. Torch loads that module itself, and it reads the environment."""
    return getattr(torch.compiler.config, name, None)


def is_switched_off() -> bool:
    """Whether the program or its environment has switched torch's compiler off."""
    loaded = sys.modules.get(DYNAMO_CONFIG)
    if loaded is not None:
        return bool(getattr(loaded, "disable", False))
    return any(os.environ.get(name) == "1" for name in OFF_SWITCHES)


def _changed(module: str, name: str) -> Any:
    config = sys.modules.get(module)
    entry = getattr(config, "_config", {}).get(name)
    if entry is None:
        return None
    alias = getattr(entry, "alias", None)
    if alias is not None:
        home, _, name = alias.rpartition(".")
        return _changed(home, name)
    value = _value_of(config, name)
    return None if value == getattr(entry, "default", value) else value


def _value_of(config: Any, name: str) -> Any:
    for part in name.split("."):
        config = getattr(config, part)
    return config
