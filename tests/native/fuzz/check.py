"""Checks that a compiled program behaves as in eager.

Shapes, dtypes, strides, aliasing, and the inputs afterwards must be equal; exact values are compared to the bit, and
the others by the rule of `bench.closeness`, with the program in float64 as the reference.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from bench.closeness import error, scaled_error
from bench.operators import Different, Judge, Seen, Watched, exactly, last_line, observe_call, same

import burnish
from burnish.settings import patch

from .program import DTYPES, Program
from .rounding_tolerance import errors_beside_values, noise

CALLS = (("first call", 0), ("replay", 0), ("replay with other numbers", 1))


@dataclass(frozen=True, slots=True)
class Failure:
    kind: str
    """The kind of failure, without numbers: failures of one kind are probably one defect."""
    message: str


@dataclass(frozen=True, slots=True)
class Verdict:
    failure: Failure | None
    way: str
    """How it ran: see `bench.operators.WAYS`."""


class ProgramJudge(Judge):
    """Exact values must be equal; others must be as near to the exact result as eager's (see `rounding_tolerance`)."""

    def __init__(self, program: Program, more: int):
        super().__init__(
            program.function(),
            (program.arguments(more), {}),
            program.function(torch.float64),
            program.function(torch.float32),
        )
        self.program, self.more = program, more

    def __call__(self, eager: torch.Tensor, got: torch.Tensor, part: str, number: int) -> str | None:
        if self.name(part, number) in self.program.exact:
            return exactly(eager, got)
        return super().__call__(eager, got, part, number)

    def name(self, part: str, number: int) -> str:
        return f"x{number}" if part == "inputs" else self.program.outputs[number]

    def errors(self, part: str, number: int) -> Iterator[torch.Tensor]:
        yield from super().errors(part, number)
        for eager, exact in errors_beside_values(self.program, self.more, self.name(part, number)):
            yield error(eager, exact.double())

    def scaled_errors(self, at: torch.Tensor, part: str, number: int) -> Iterator[torch.Tensor]:
        yield from super().scaled_errors(at, part, number)
        name = self.name(part, number)
        for eager, exact in errors_beside_values(self.program, self.more, name, torch.float32):
            yield scaled_error(eager, exact.double(), at)

    def noise(self, part: str, number: int, where: torch.Tensor) -> torch.Tensor | None:
        return noise(self.program, self.more, self.name(part, number), where)

    def rounded_to(self, part: str, number: int) -> torch.dtype | None:
        return DTYPES[self.program.shortest[self.name(part, number)]]


def check(program: Program) -> Verdict:
    """The failure of a program, if any. A program that eager does not run has none."""
    fn = program.function()
    burnish.reset()
    with torch.no_grad(), patch(never_slower=False, on_error="raise", eager_random=True), Watched() as watched:
        compiled = burnish.compile(fn, backend="burnish")
        for name, more in CALLS:
            inputs = program.arguments(more), {}
            want = observe_call(fn, inputs)
            if want.error is not None:
                return Verdict(None, watched.way)
            got = observe_call(compiled, inputs)
            failure = why_different(program, want, got, more)
            if failure is not None:
                return Verdict(Failure(failure.kind, f"{name}: {failure.message}"), watched.way)
    return Verdict(None, watched.way)


def why_different(program: Program, want: Seen, got: Seen, more: int) -> Failure | None:
    if got.error is not None:
        text = last_line(got.error)
        return Failure(f"crashed: {type(got.error).__name__}: {without_numbers(text)}"[:160], text)
    try:
        same(want, got, True, ProgramJudge(program, more))
    except Different as difference:
        return Failure(kind_of(str(difference)), str(difference))
    return None


def kind_of(text: str) -> str:
    words = "shape dtype stride layout aliasing structure random".split()
    found = next((word for word in words if re.search(rf"\b{word}\b", text)), "values")
    return f"different: {text.split(':')[0]}: {found}"


def without_numbers(text: str) -> str:
    return re.sub(r"\b[a-z_]*\d[\w.]*", "#", text)


@functools.cache
def silence() -> None:
    """Torch's warnings do not matter here."""
    import warnings

    warnings.simplefilter("ignore")
