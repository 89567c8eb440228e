"""The compiled stand-in for an ``nn.Module``: itself a module, with the original's attributes, hooks and signature.

    compiled = burnish.compile(model)
    compiled.layers[0] is model.layers[0]      # what it does not have itself, the original has
    compiled.state_dict()                      # keys begin with `_orig_mod.`, as those of torch.compile do

Only a call differs. Everything written to the stand-in is written to the original.
"""

from __future__ import annotations

import copy
import functools
import inspect
from typing import Any

import torch

from . import stance
from .capture.engine import Options, Program
from .capture.polyfills import call_entry

# Hooks around a call. Both modules hold the same tables, so a hook put on either is run once, by the original.
HOOK_TABLES = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks",
)


class CompiledModule(torch.nn.Module):
    """Calls run compiled; everything else is the original module's."""

    _orig_mod: torch.nn.Module

    def __init__(self, module: torch.nn.Module, options: Options, kwargs: dict[str, Any]):
        super().__init__()
        self._start(module._orig_mod if isinstance(module, CompiledModule) else module, options, kwargs)

    def _start(self, original: torch.nn.Module, options: Options, kwargs: dict[str, Any]) -> None:
        from .api import keep_track

        program = Program(call_entry, options, original)
        keep_track(program)

        def forward(*args: Any, **kw: Any) -> Any:
            return self(*args, **kw)

        self._modules["_orig_mod"] = original
        self.__dict__.pop("_is_full_backward_hook", None)  # goes with the tables, so the original's counts
        self.__dict__.update({name: original.__dict__[name] for name in HOOK_TABLES if name in original.__dict__})
        self.__dict__.update(
            __burnish_program__=program, _compile_kwargs=kwargs, _options=options,
            # On the object, so that whoever asks for the signature of `model.forward` gets the original's.
            forward=functools.update_wrapper(forward, original.forward, updated=()),
        )

    @property
    def __burnish_original__(self) -> torch.nn.Module:
        return self._modules["_orig_mod"]  # type: ignore[return-value]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if stance.forces_eager():
            return self._modules["_orig_mod"](*args, **kwargs)  # type: ignore[misc]
        return self.__dict__["__burnish_program__"](self._modules["_orig_mod"], args, kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._orig_mod.forward)

    # ---- attributes

    def __getattr__(self, name: str) -> Any:
        original = self.__dict__.get("_modules", {}).get("_orig_mod")
        if original is None:
            raise AttributeError(f"{name} of a compiled module that is still being made")
        return original if name == "_orig_mod" else getattr(original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if "_orig_mod" not in self.__dict__.get("_modules", ()):
            super().__setattr__(name, value)  # nn.Module.__init__ is at work
        elif name == "_orig_mod":
            self._start(value, self._options, self._compile_kwargs)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    @property
    def training(self) -> bool:  # type: ignore[override]
        """The original's: there is one state, whoever is asked."""
        return self._orig_mod.training

    @training.setter
    def training(self, value: bool) -> None:
        if "_orig_mod" in self.__dict__.get("_modules", ()):
            self._orig_mod.training = value

    def register_parameter(self, name: str, param: Any) -> None:
        self._orig_mod.register_parameter(name, param)

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        self._orig_mod.register_buffer(name, tensor, persistent)

    def add_module(self, name: str, module: Any) -> None:
        self._orig_mod.add_module(name, module)

    def register_module(self, name: str, module: Any) -> None:
        self._orig_mod.register_module(name, module)

    def train(self, mode: bool = True) -> CompiledModule:
        self._orig_mod.train(mode)
        return self

    # ---- copies

    def __getstate__(self) -> dict[str, Any]:
        return {"module": self._orig_mod, "kwargs": self._compile_kwargs}

    def __setstate__(self, state: dict[str, Any]) -> None:
        from .api import options_of

        torch.nn.Module.__init__(self)
        self._start(state["module"], options_of(**state["kwargs"]), state["kwargs"])

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModule:
        copied = CompiledModule(copy.deepcopy(self._orig_mod, memo), self._options, self._compile_kwargs)
        memo[id(self)] = copied
        return copied

    # ---- what only some modules have: the original answers, or raises as it would

    def __bool__(self) -> bool:
        return bool(self._orig_mod)

    def __len__(self) -> int:
        return len(self._orig_mod)  # type: ignore[arg-type]

    def __getitem__(self, key: Any) -> Any:
        return self._orig_mod[key]  # type: ignore[index]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._orig_mod[key] = value  # type: ignore[index]

    def __delitem__(self, key: Any) -> None:
        del self._orig_mod[key]  # type: ignore[attr-defined]

    def __iter__(self) -> Any:
        return iter(self._orig_mod)  # type: ignore[call-overload]

    def __contains__(self, key: Any) -> bool:
        return key in self._orig_mod  # type: ignore[operator]
