"""The source of a driver while it is generated: its lines, its names, and the objects bound to them.

text.bind("call", torch.mm)                         "call_0": the source may use this name from now on
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from ...runtime.program.unbound_driver import FunctionOf
from ...schedule.library.candidate import Candidate, Operand, OperatorCall
from ...tensors.device_facts import DEVICES, is_host
from ...tensors.tensor_types import TensorType

NO_LETTER = re.compile(r"\W")
"""Characters that a name cannot contain."""


class DriverText:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.things: dict[str, Any] = {}
        self.numbers: dict[str, int] = {}
        """How often each name was requested."""
        self.devices: list[int] = []
        """The GPUs of the launches. If there is only one, it is the current device while the driver runs."""

    def line(self, text: str) -> None:
        self.lines.append(text)

    def identifier(self, name: str) -> str:
        return self.bind_name(f"v_{NO_LETTER.sub('_', name)}")

    def bind(self, name: str, thing: Any) -> str:
        made = self.bind_name(f"{name}_0")
        self.things[made] = thing
        return made

    def bind_name(self, name: str) -> str:
        number = self.numbers.get(name, 0)
        self.numbers[name] = number + 1
        return f"{name}__{number}" if number else name

    def dtype(self, dtype: torch.dtype) -> str:
        name = str(dtype).removeprefix("torch.")
        self.things[name] = dtype
        return name

    def constant(self, given: Any) -> str:
        """A literal for numbers, strings and containers of numbers; otherwise a bound name."""
        if isinstance(given, (list, tuple)):
            is_plain = all(isinstance(part, (int, bool, type(None))) for part in given)
        else:
            is_plain = given is None or isinstance(given, (bool, int, str))
        return repr(given) if is_plain else self.bind("constant", given)

    def memory(self, type: TensorType) -> str:
        """A new uninitialized tensor."""
        layout, device = f"{type.shape}, {type.stride}", type.device
        if is_host(device) or (device.type in DEVICES and self.devices == [device.index]):
            return f"empty_{device.type}({layout}, {self.dtype(type.dtype)})"
        name = NO_LETTER.sub("_", str(device))
        self.things[name] = device
        return f"empty_strided({layout}, dtype={self.dtype(type.dtype)}, device={name})"

    def strided(self, source: str, type: TensorType, offset: int) -> str:
        """A view as torch makes it: code that gets it may ask for its base."""
        return f"as_strided({source}, {type.shape}, {type.stride}, {source}.storage_offset() + {offset})"

    def shown(self, source: str, type: TensorType | Operand, offset: int = 0) -> str:
        """The same memory in another shape, for code that only uses the memory."""
        return f"shown({source}, {type.shape}, {type.stride}, {offset})"

    def library_call(self, candidate: Candidate, tensors: Sequence[str], out: str | None = None) -> str:
        """One library call, as a direct call of the operator where it is a single one. `out`: the tensor to write."""
        call = candidate.call
        if type(call) is not OperatorCall:
            which, given = ("run", tensors) if out is None else ("run_into", [out, *tensors])
            return f"{self.bind(which, FunctionOf(candidate, which))}({', '.join(given)})"
        named = dict(zip(candidate.operands, tensors, strict=True))

        def argument(given: Any) -> str:
            if not isinstance(given, Operand):
                return self.constant(given)
            return named[given.name] if given.shape is None else self.shown(named[given.name], given)

        given = [*map(argument, call.arguments), *(f"{key}={argument(value)}" for key, value in call.keywords)]
        if out is not None:
            into = out if call.result is None else self.shown(out, call.result)
            return f"{self.bind('call', call.out)}({', '.join([*given, f'out={into}'])})"
        text = f"{self.bind('call', call.operator)}({', '.join(given)})"
        if call.which is not None:
            text += f"[{call.which}]"
        return text if call.result is None else self.shown(text, candidate.output)
