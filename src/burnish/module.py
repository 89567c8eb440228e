"""The compiled stand-in for an ``nn.Module``: itself a module, with the original's attributes, keys and signature."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch

from .capture.engine import Options, Program
from .capture.polyfills import call_entry


class CompiledModule(torch.nn.Module):
    """Calls run compiled; everything else is the original module's."""

    _orig_mod: torch.nn.Module

    def __init__(self, module: torch.nn.Module, options: Options, kwargs: dict[str, Any]):
        super().__init__()
        original = module._orig_mod if isinstance(module, CompiledModule) else module
        self.__dict__["_burnish"] = (options, kwargs)
        self._modules["_orig_mod"] = original
        self.__dict__["_compile_kwargs"] = kwargs
        self.__dict__["training"] = original.training
        self._start()

    def _start(self) -> None:
        self.__dict__["__burnish_program__"] = Program(call_entry, self._burnish[0])
        from .api import _programs

        _programs.add(self.__burnish_program__)

    @property
    def __burnish_original__(self) -> torch.nn.Module:
        return self._modules["_orig_mod"]  # type: ignore[return-value]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__["__burnish_program__"](self._modules["_orig_mod"], args, kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._orig_mod)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._modules["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self).__dict__ or name in ("_orig_mod",):
            object.__setattr__(self, name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def train(self, mode: bool = True) -> CompiledModule:
        self._orig_mod.train(mode)
        self.__dict__["training"] = mode
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {"module": self._orig_mod, "kwargs": self._burnish[1]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        from .api import compile as compile_

        made = compile_(state["module"], **state["kwargs"])
        self.__dict__.update(made.__dict__)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModule:
        from .api import compile as compile_

        return compile_(copy.deepcopy(self._orig_mod, memo), **self._burnish[1])

    def __len__(self) -> int:
        return len(self._orig_mod)  # type: ignore[arg-type]

    def __getitem__(self, key: Any) -> Any:
        return self._orig_mod[key]  # type: ignore[index]

    def __iter__(self) -> Any:
        return iter(self._orig_mod)  # type: ignore[call-overload]

    def __contains__(self, key: Any) -> bool:
        return key in self._orig_mod  # type: ignore[operator]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})
