"""Builds a random program: each line is run as it is added, so that the next one can be chosen by its results.

A value is exact as long as every number in it comes from single operations that IEEE 754 rounds (or from none): then
compiled code has no freedom. Sums and functions make it inexact; discontinuous operators (floor, a comparison, argmax)
are never applied to an inexact value, where the last bit would decide.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .program import DTYPES, FLOATS, LAYOUTS, Input, Line, Program, given, namespace

MOST_ELEMENTS = 40_000
GREATEST = 1e4
"""Inexact numbers beyond this are not kept: they overflow soon, and then the last bit decides."""

Test = Callable[[torch.Tensor], bool]


class Rejected(Exception):
    """Eager does not accept the call."""


class Maker:
    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.space = namespace()
        self.inputs: list[Input] = []
        self.lines: list[Line] = []
        self.values: dict[str, torch.Tensor] = {}
        self.exact: dict[str, bool] = {}
        self.shortest: dict[str, str] = {}
        self.is_special = self.chance(6)
        self.draws = self.chance(5)
        """Whether it draws random numbers. They are others in float64, so nothing else in it is inexact then."""
        self.count = 0

    # ---- chance

    def chance(self, percent: float) -> bool:
        return self.random.random() * 100 < percent

    def one(self, options: Sequence[Any]) -> Any:
        return self.random.choice(options)

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def size(self) -> int:
        if self.chance(4):
            return 0
        if self.chance(18):
            return 1
        if self.chance(85):
            return self.integer(2, 9)
        return self.one((15, 16, 17, 31, 33, 64, 65, 130))

    def shape(self, most: int = 4) -> tuple[int, ...]:
        while True:
            shape = tuple(self.size() for _ in range(self.integer(0, most)))
            if numel(shape) <= MOST_ELEMENTS // 8:
                return shape

    def number(self) -> str:
        return self.one(("2", "-1", "3", "0.5", "1.5", "-0.25", "1", "0", "2.0", "7"))

    # ---- values

    def new_input(
        self, shape: tuple[int, ...] | None = None, dtype: str | None = None, layout: str | None = None, limit: int = 4
    ) -> str:
        shape = self.shape() if shape is None else shape
        dtype = dtype or self.one(("f32",) * 6 + ("f64", "bf16", "bf16", "f16", "i64", "i64", "i32", "u8", "b8", "i16"))
        layout = layout or (self.one(LAYOUTS) if self.chance(40) else "plain")
        is_special = self.is_special and dtype in FLOATS
        made = Input(shape, dtype, layout, self.integer(0, 999), is_special, limit)
        name = f"x{len(self.inputs)}"
        self.inputs.append(made)
        self.values[name] = given(made.shape, made.dtype, made.layout, made.seed, made.special, made.limit)
        self.exact[name] = True
        self.shortest[name] = dtype
        return name

    def pick(self, test: Test | None = None, exact: bool = False) -> str:
        """One of the values, a late one rather; a new input where none will do."""
        found = [
            name
            for name, value in self.values.items()
            if (test is None or test(value)) and (self.exact[name] or not exact)
        ]
        if not found:
            raise Rejected
        return found[-1 - min(int(self.random.expovariate(0.35)), len(found) - 1)]

    def floating(self, exact: bool = False, least: int = 0) -> str:
        return self.pick(lambda x: x.is_floating_point() and x.ndim >= least, exact)

    def integral(self) -> str:
        return self.pick(lambda x: not x.is_floating_point() and x.dtype is not torch.bool)

    def boolean(self, shape: tuple[int, ...] | None = None) -> str:
        """A condition; made for the shape if none is there."""
        try:
            return self.pick(lambda x: x.dtype is torch.bool and (shape is None or broadcasts(x.shape, shape)))
        except Rejected:
            return self.new_input(self.narrowed(shape or ()), "b8")

    def mate(self, name: str, exact: bool = False, dtype: str | None = None) -> str:
        """Something that broadcasts with a value."""
        shape = self.values[name].shape
        if not self.chance(30):
            try:
                return self.pick(
                    lambda x: (
                        broadcasts(x.shape, shape)
                        and numel(torch.broadcast_shapes(x.shape, shape)) <= MOST_ELEMENTS
                        and (dtype is None or x.dtype is DTYPES[dtype])
                    ),
                    exact,
                )
            except Rejected:
                pass
        return self.new_input(self.narrowed(shape), dtype)

    def narrowed(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The same shape with dimensions left out in front, and others 1."""
        kept = list(shape[self.integer(0, len(shape)) if self.chance(30) else 0 :])
        return tuple(1 if self.chance(20) else n for n in kept)

    def dim(self, name: str) -> int:
        rank = self.values[name].ndim
        if not rank:
            return self.integer(-1, 0)
        return self.integer(-rank, rank - 1)

    def dims(self, name: str) -> str:
        rank = self.values[name].ndim
        chosen = self.random.sample(range(rank), self.integer(1, rank)) if rank else []
        return repr(tuple(d - rank if self.chance(30) else d for d in chosen))

    # ---- lines

    def add(self, text: str, exact: bool | None = None, outputs: int = 1) -> tuple[str, ...]:
        """A line that makes values. `exact` None means: if what it reads is."""
        names = tuple(f"v{self.count + k}" for k in range(outputs))
        uses = self.read_in(text)
        if exact is None or exact:
            exact = all(self.exact[name] for name in uses)
        if self.draws and not exact:
            raise Rejected
        line = f"{', '.join(names)} = {text}" if outputs < 2 else f"{', '.join(names)}, = {text}"
        self.run(line)
        made = [self.space[name] for name in names]
        for value in made:
            if not isinstance(value, torch.Tensor) or value.numel() > MOST_ELEMENTS or value.is_complex():
                raise Rejected
            if not exact and value.is_floating_point() and not is_tame(value):
                raise Rejected
            if not has_memory(value):
                raise Rejected
        self.count += outputs
        self.lines.append(Line(line, names, uses))
        for name, value in zip(names, made, strict=True):
            self.values[name] = value
            self.exact[name] = bool(exact)
            self.shortest[name] = shortest([name_of(value), *(self.shortest[n] for n in uses), *named_in(text)])
        return names

    def change(self, target: str, text: str, exact: bool | None = None) -> None:
        """A line that writes to (a view of) a value."""
        uses = self.read_in(text)
        storage = self.values[target].untyped_storage().data_ptr()
        sharing = [name for name, value in self.values.items() if value.untyped_storage().data_ptr() == storage]
        if any(
            name not in sharing or name == target or self.values[name].numel()
            for name in uses
            if name != target and name in sharing
        ):
            raise Rejected
        exact = all(self.exact[name] for name in uses) if exact is None else exact
        if self.draws and not exact:
            raise Rejected
        before = {name: self.values[name].clone() for name in sharing}
        self.run(text)
        if not exact and any(
            self.values[name].is_floating_point() and not is_tame(self.values[name]) for name in sharing
        ):
            # Nothing was added to the program: take the change back.
            for name in sharing:
                try:
                    self.values[name].copy_(before[name])
                except RuntimeError:
                    self.values[name] = before[name]
            raise Rejected
        self.lines.append(Line(text, (), uses))
        dtype = shortest([self.shortest[name] for name in (*uses, *sharing)])
        for name in sharing:
            self.exact[name] &= exact
            self.shortest[name] = dtype

    def run(self, text: str) -> None:
        self.space.update(self.values)
        try:
            exec(text, self.space)
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
            raise Rejected from error

    def read_in(self, text: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name in re.findall(r"\b[xv]\d+\b", text) if name in self.values))

    def program(self) -> Program:
        made = [name for line in self.lines for name in line.defines]
        used = {name for line in self.lines for name in line.uses}
        ends = [name for name in made if name not in used]
        some = [name for name in made if name in used and self.chance(20)]
        outputs = tuple(dict.fromkeys(ends + some))
        if self.chance(5):
            outputs += (f"x{self.integer(0, len(self.inputs) - 1)}",)
        return Program(
            tuple(self.inputs),
            tuple(self.lines),
            outputs,
            frozenset(n for n, e in self.exact.items() if e),
            dict(self.shortest),
        )


def name_of(value: torch.Tensor) -> str:
    return next((name for name, dtype in DTYPES.items() if dtype is value.dtype), "i64")


def named_in(text: str) -> list[str]:
    return [name for name in FLOATS if re.search(rf"\b{name.upper()}\b", text)]


def shortest(names: Sequence[str]) -> str:
    """Of whole numbers no float dtype is rounded to: those of others count."""
    order = ("bf16", "f16", "f32", "f64")
    floats = [name for name in names if name in order]
    return min(floats, key=order.index) if floats else names[0]


def has_memory(x: torch.Tensor) -> bool:
    """Eager's convolution over no channels returns a tensor that has elements but no memory for them."""
    last = x.storage_offset() + sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))
    return not x.numel() or x.untyped_storage().nbytes() > last * x.dtype.itemsize


def is_tame(x: torch.Tensor) -> bool:
    whole = x.detach().double()
    return not bool((whole.abs() > GREATEST)[whole.isfinite()].any())


def broadcasts(a: Sequence[int], b: Sequence[int]) -> bool:
    return all(m == n or m == 1 or n == 1 for m, n in zip(reversed(a), reversed(b)))


def numel(shape: Sequence[int]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size
