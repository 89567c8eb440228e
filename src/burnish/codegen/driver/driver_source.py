"""The text of a driver while it is written: its lines, the names in it, and what they stand for.

text.bind("call", torch.mm)                         "call_0": from here on the text may use it
text.memory(f32[64, 64])                            "empty_cpu((64, 64), (64, 1), float32)"
text.library_call(candidate, ["x", "w"])            "call_0(x, shown(w, (768, 64), (1, 768), 0))"
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from ...runtime.program.unbound_driver import FunctionOf
from ...schedule.library.candidate import Call, Candidate, Operand
from ...tensors.tensor_types import TensorType

NO_LETTER = re.compile(r"\W")
"""What cannot stand in a name."""


class DriverText:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.things: dict[str, Any] = {}
        self.numbers: dict[str, int] = {}
        """How often each name was wanted."""
        self.devices: list[int] = []
        """The GPUs of what is launched. Where there is one, it is the current one while the driver runs."""

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
        """A number or what is made of numbers; else a name for it."""
        if isinstance(given, (list, tuple)):
            is_plain = all(isinstance(part, (int, bool, type(None))) for part in given)
        else:
            is_plain = given is None or isinstance(given, (bool, int, str))
        return repr(given) if is_plain else self.bind("constant", given)

    def memory(self, type: TensorType) -> str:
        """A new tensor, with whatever lies there."""
        layout, device = f"{type.shape}, {type.stride}", type.device
        if device.type == "cpu" or (device.type == "cuda" and self.devices == [device.index]):
            return f"empty_{device.type}({layout}, {self.dtype(type.dtype)})"
        name = NO_LETTER.sub("_", str(device))
        self.things[name] = device
        return f"empty_strided({layout}, dtype={self.dtype(type.dtype)}, device={name})"

    def strided(self, source: str, type: TensorType, offset: int) -> str:
        """A view as torch makes it: whoever gets hold of it may ask of what."""
        return f"as_strided({source}, {type.shape}, {type.stride}, {source}.storage_offset() + {offset})"

    def shown(self, source: str, type: TensorType | Operand, offset: int = 0) -> str:
        """The same memory in another shape, for what looks at the memory alone."""
        return f"shown({source}, {type.shape}, {type.stride}, {offset})"

    def library_call(self, candidate: Candidate, tensors: Sequence[str], out: str | None = None) -> str:
        """One operator in its own words, where that is what it is. `out`: where it writes to."""
        call = candidate.call
        if type(call) is not Call:
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


__all__ = ["DriverText"]
