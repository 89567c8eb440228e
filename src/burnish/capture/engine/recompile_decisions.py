"""Recompiles: whether a call that no segment fits is traced, why it is not, and what differed from the last call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ... import events, settings
from ...errors import Unsupported, warn
from ...runtime.segments import Continuation
from ..guards.guards import first_failure
from ..guards.tensor_metadata import default_device

if TYPE_CHECKING:
    from .engine import Program


def why_not_trace(program: Program, continuation: Continuation, slots: list) -> str | None:
    if user_modes():
        return "a torch function mode of the user is active, and it must see every call"
    if torch._C._len_torch_dispatch_stack():
        return "a torch dispatch mode is active, and it must see every operator"
    if continuation.given_up:
        return continuation.why_given_up
    if continuation.waits:
        continuation.waits -= 1
        return "other threads changed what the last traces of it read"
    stance = program.options.stance()
    if stance == "force_eager":
        return "stance is force_eager"
    if continuation.segments:
        if stance == "eager_on_recompile":
            return "stance is eager_on_recompile"
        if continuation.is_full(settings.current().segment_limit):
            give_up(
                continuation,
                f"{len(continuation.segments)} variants of it exist already (setting segment_limit) and this call "
                f"is another: {last_difference(continuation, slots)}",
                cause="limit",
            )
            return continuation.why_given_up
    return None


def give_up(continuation: Continuation, why: str, is_told: bool = True, cause: str = "refused") -> None:
    continuation.given_up, continuation.why_given_up = True, why
    events.emit(
        "guards.given_up", text=f"{continuation.location}: runs eagerly from here, because {why}", fallback=cause
    )
    if is_told:
        warn(
            f"burnish: {continuation.location} runs eagerly from now on, because {why}. "
            f"Set BURNISH_SHOW=guards to see what changes between calls."
        )


def explain_miss(program: Program, continuation: Continuation, slots: list) -> None:
    if not continuation.segments:
        return
    fails = program.options.stance() == "fail_on_recompile"
    if not fails and not events.is_watched("guards.missed"):
        return
    failures = []
    for i, segment in enumerate(continuation.segments):
        failure = first_failure(segment.guards, slots)
        if failure is not None:
            failures.append((i, *failure))
    events.emit(
        "guards.missed", function=program.entry.location.function, location=continuation.location, failures=failures
    )
    if fails:
        lines = [f"  {source}: expected {expected}, found {found}" for _, source, expected, found in failures]
        raise Unsupported(
            Plain(
                "\n".join(
                    [
                        f"{continuation.location} would be compiled again, and the stance is fail_on_recompile.",
                        "What is compiled asks for something else:",
                        *lines,
                        "What to do: keep it as it was, or set the stance eager_on_recompile or default.",
                    ]
                )
            )
        )


def user_modes() -> int:
    """The number of active torch function modes without that of the default device."""
    count = torch._C._len_torch_function_stack()
    if count and default_device() is not None:
        from torch.utils._device import DeviceContext

        count -= sum(isinstance(torch._C._get_function_stack_at(i), DeviceContext) for i in range(count))
    return count


def last_difference(continuation: Continuation, slots: list) -> str:
    """Why the guards of the most recent segment fail for these slots."""
    failure = first_failure(continuation.segments[0].guards, slots)
    return (
        "the cause is not known"
        if failure is None
        else (f"{failure.source} was {failure.expected} and is now {failure.found}")
    )


class Plain:
    """A reason given as text."""

    def __init__(self, text: str):
        self.text = text

    def render(self) -> str:
        return self.text
