"""A random program: a sequence of torch calls on given tensors.

    x0 = given((3, 4), "f32", "transposed", 7)

    def f(x0):
        v0 = x0.sum(dim=(0,), keepdim=True)
        v1 = x0 / v0
        return v0, v1

Programs are text, so that a failing one can be read, run and cut down. Floating dtypes are written as names such as
F32: in the reference run they all mean float64.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "u8": torch.uint8,
    "b8": torch.bool,
}
FLOATS = ("f32", "f64", "bf16", "f16")
LAYOUTS = ("plain", "transposed", "gaps", "wider", "expanded", "offset", "channels last")


@dataclass(frozen=True, slots=True)
class Input:
    """How a tensor is made. `view_of` is the number of an input whose storage it shows a part of."""

    shape: tuple[int, ...]
    dtype: str
    layout: str = "plain"
    seed: int = 0
    special: bool = False
    limit: int = 4
    """Numbers are between -limit and limit; indices between 0 and limit - 1 have the layout "indices"."""

    def __str__(self) -> str:
        extra = "".join(
            f", {name}={getattr(self, name)!r}"
            for name in ("special", "limit")
            if getattr(self, name) != getattr(Input((), ""), name)
        )
        return f"given({self.shape}, {self.dtype!r}, {self.layout!r}, {self.seed}{extra})"


def given(
    shape: tuple[int, ...], dtype: str, layout: str = "plain", seed: int = 0, special: bool = False, limit: int = 4
) -> torch.Tensor:
    """Numbers of a few bits, so that most sums and products of few of them are exact, in the given layout."""
    generator = torch.Generator().manual_seed(seed)

    def numbers(shape: tuple[int, ...]) -> torch.Tensor:
        if layout == "indices":
            return torch.randint(0, max(limit, 1), shape, generator=generator).to(DTYPES[dtype])
        if dtype == "b8":
            return torch.rand(shape, generator=generator) < 0.5
        if dtype in FLOATS:
            made = (torch.rand(shape, generator=generator) * 2 - 1) * limit
            if special and made.numel():
                values = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1.0, 1e-40])
                chosen = torch.randint(0, len(values), shape, generator=generator)
                made = torch.where(torch.rand(shape, generator=generator) < 0.3, values[chosen], made)
            return made.to(DTYPES[dtype])
        low = 0 if dtype == "u8" else -limit
        return torch.randint(low, limit + 1, shape, generator=generator).to(DTYPES[dtype])

    match layout:
        case "transposed":
            back = tuple(reversed(range(len(shape))))
            return numbers(tuple(reversed(shape))).permute(back)
        case "gaps" if shape:
            return numbers((*shape, 2)).select(-1, 1)
        case "wider" if shape:
            return numbers((*shape[:-1], shape[-1] + 3))[..., 1:-2]
        case "expanded" if shape:
            return numbers((1, *shape[1:])).expand(shape)
        case "offset":
            size = 1
            for n in shape:
                size *= n
            return numbers((size + 5,))[5:].view(shape)
        case "channels last" if len(shape) == 4:
            return numbers(shape).contiguous(memory_format=torch.channels_last)
    return numbers(shape)


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    defines: tuple[str, ...]
    uses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """`exact` are the outputs that must be eager's to the bit: nothing in them is rounded but by single operations."""

    inputs: tuple[Input, ...]
    lines: tuple[Line, ...]
    outputs: tuple[str, ...]
    exact: frozenset[str]
    shortest: dict[str, str]
    """For each value, inputs with what they hold in the end among them, the shortest float dtype it was rounded to."""

    def __str__(self) -> str:
        arguments = ", ".join(f"x{k}" for k in range(len(self.inputs)))
        made = [f"x{k} = {given}" for k, given in enumerate(self.inputs)]
        body = [f"    {line.text}" for line in self.lines]
        result = f"    return ({''.join(f'{name}, ' for name in self.outputs)})"
        return "\n".join([*made, "", f"def f({arguments}):", *body, result, ""])

    def function(self, floats: torch.dtype | None = None) -> Callable[..., Any]:
        """`floats`: what every floating dtype named in it shall be."""
        text = str(self)
        space = namespace(floats)
        exec(compile(text[text.index("def f(") :], "<fuzz>", "exec"), space)
        return space["f"]

    def arguments(self, more: int = 0) -> tuple[torch.Tensor, ...]:
        """`more` gives others of the same kind."""
        return tuple(given(x.shape, x.dtype, x.layout, x.seed + 1000 * more, x.special, x.limit) for x in self.inputs)

    def without(self, lines: set[int], outputs: tuple[str, ...]) -> Program:
        """A smaller program; unused inputs are removed, too."""
        kept = [line for k, line in enumerate(self.lines) if k not in lines]
        used = {name for line in kept for name in line.uses} | set(outputs)
        numbers = [k for k in range(len(self.inputs)) if f"x{k}" in used]
        names = {f"x{k}": f"x{n}" for n, k in enumerate(numbers)}
        # Facts about a removed input must not pass to the one that gets its name.
        gone = {f"x{k}" for k in range(len(self.inputs)) if k not in numbers}
        changed = [renamed(line, names) for line in kept]
        return replace(
            self,
            inputs=tuple(self.inputs[k] for k in numbers),
            lines=tuple(changed),
            outputs=tuple(names.get(name, name) for name in outputs),
            exact=frozenset(names.get(name, name) for name in self.exact if name not in gone),
            shortest={names.get(name, name): dtype for name, dtype in self.shortest.items() if name not in gone},
        )


def renamed(line: Line, names: dict[str, str]) -> Line:
    """With other names for the inputs. A name is never part of another word: it is an x with a number."""
    text = re.sub(r"\bx\d+\b", lambda match: names.get(match.group(), match.group()), line.text)
    return Line(text, tuple(names.get(n, n) for n in line.defines), tuple(names.get(n, n) for n in line.uses))


def namespace(floats: torch.dtype | None = None) -> dict[str, Any]:
    named = {name.upper(): floats or DTYPES[name] for name in FLOATS}
    return {"torch": torch, "F": F, **named, "given": given}
