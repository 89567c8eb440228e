"""Recompile or not: decides whether to trace a call that no segment fits, and reports why."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

from torch.autograd import forward_ad

from ... import events, settings
from ...concurrency import own_builtins
from ...errors import warn
from ...foundation.torch_private import (
    get_function_stack_at,
    get_tracing_state,
    len_torch_dispatch_stack,
    len_torch_function_stack,
)
from ...frontend import torch_config, torch_errors
from ...frontend.stance import LATER
from ...runtime.segment_records import Continuation
from ..guards.arguments_of_eager_calls import EagerCallArguments, has_tensor
from ..guards.guards import first_failure
from ..guards.tensor_metadata import default_device
from .interpreted_or_native import OBSERVES, observes

if TYPE_CHECKING:
    from .engine import Program


USUAL_LIMIT = settings.Settings().segment_limit


def why_not_trace(program: Program, continuation: Continuation, slots: list) -> str | None:
    if user_modes():
        return "a torch function mode of the user is active, and it must see every call"
    if len_torch_dispatch_stack():
        return "a torch dispatch mode is active, and it must see every operator"
    if get_tracing_state() is not None:
        return "torch.jit.trace is recording, and it must see every operator"
    if forward_ad._current_level >= 0:
        return "forward mode is on, whose tangents compiled code would lose"
    if continuation.given_up:
        return continuation.why_given_up
    if sys.is_finalizing():
        return "Python is ending, and torch takes its tensors apart"
    if continuation.waits:
        continuation.waits -= 1
        return "other threads changed what the last traces of it read"
    if replaced := own_builtins.replaced():
        return of_replaced_builtin(program, continuation, replaced[0])
    if continuation is program.entry and observes(program.function):
        if program.options.fullgraph:
            raise torch_errors.made("Unsupported", TextReason(f"{continuation.location}: {OBSERVES}"))
        give_up(continuation, OBSERVES)
        return OBSERVES
    stance = program.options.stance()
    if stance == "force_eager":
        return "stance is force_eager"
    if stance == "eager_on_recompile":
        return "stance is eager_on_recompile"
    if stance in LATER and continuation is program.entry and not continuation.segments and program.first_call is None:
        program.first_call = EagerCallArguments(slots)
        return f"stance is {stance}, and this is the first call"
    if continuation.segments and continuation.is_full(variants_limit(program)):
        why = (
            f"{len(continuation.segments)} variants of it exist already (B501, setting segment_limit) and this call "
            f"is another: {last_difference(continuation, slots)}"
        )
        if limit_is_strict(program):
            raise torch_errors.made("FailOnRecompileLimitHit", TextReason(f"{continuation.location}: {why}"))
        give_up(continuation, why, cause="limit")
        return continuation.why_given_up
    why_not_again = program.balance.why_not_again(continuation)
    if why_not_again is not None and not limit_is_strict(program) and not program.options.fullgraph:
        why = f"{why_not_again}, and this call is another: {last_difference(continuation, slots)}"
        give_up(continuation, why, cause="left")
        return continuation.why_given_up
    return None


def of_replaced_builtin(program: Program, continuation: Continuation, name: str) -> str:
    why = f"builtins.{name} is replaced, which torch's own code needs"
    with own_builtins.usual():
        if program.options.fullgraph:
            raise torch_errors.made("Unsupported", TextReason(f"{continuation.location}: {why}"))
        warn_of_replaced_builtin(name)
    return why


@functools.cache
def warn_of_replaced_builtin(name: str) -> None:
    warn(
        f"burnish: functions that are not compiled yet run eagerly while builtins.{name} is replaced: torch's own code "
        "needs it. What to do: nothing, or put it back before they are called."
    )


def variants_limit(program: Program) -> int:
    """How many variants one place may have: the argument of ``compile``, else ours or Dynamo's, whichever was set."""
    limit = program.options.recompile_limit
    if limit is None:
        limit = settings.current().segment_limit
        limit = limit if limit != USUAL_LIMIT else torch_config.dynamo("recompile_limit", limit)
    return limit * program.modules


def limit_is_strict(program: Program) -> bool:
    """Whether one variant too many is an error. It is if a limit was asked for together with ``fullgraph``."""
    asked = program.options.recompile_limit or torch_config.changed_in_dynamo("recompile_limit")
    if asked is not None and program.options.fullgraph:
        return True
    return bool(torch_config.dynamo("fail_on_recompile_limit_hit"))


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
    if program.options.stance() == "fail_on_recompile":
        fails = bool(continuation.segments) or has_tensor(slots)
    else:
        fails = bool(continuation.segments) and bool(torch_config.dynamo("error_on_recompile"))
    if not continuation.segments and not fails:
        return
    if not fails and not events.is_watched("guards.missed"):
        return
    failures = []
    for i, segment in enumerate(continuation.segments):
        failure = first_failure(segment.guards, slots)
        if failure is not None:
            source, *values = failure
            if continuation is program.entry:
                source = program.parameter_named(source)
            failures.append((i, source, *values))
    events.emit(
        "guards.missed", function=program.entry.location.function, location=continuation.location, failures=failures
    )
    if fails:
        lines = [f"  {source}: expected {expected}, found {found}" for _, source, expected, found in failures]
        again = " again" if continuation.segments else ""
        asked = "torch._dynamo.config.error_on_recompile is set"
        if program.options.stance() == "fail_on_recompile":
            asked = "the stance is fail_on_recompile"
        raise torch_errors.made(
            "RecompileError",
            TextReason(
                "\n".join(
                    [
                        f"{continuation.location} would be compiled{again}, and {asked}.",
                        "The compiled segments need something else:" if lines else "Nothing is compiled for it yet.",
                        *lines,
                        "What to do: keep it as it was, or set the stance eager_on_recompile or default.",
                    ]
                )
            ),
            also=RuntimeError,
        )


def user_modes() -> int:
    """The number of active torch function modes without that of the default device."""
    count = len_torch_function_stack()
    if count and default_device() is not None:
        from ...foundation.torch_private import DeviceContext

        count -= sum(isinstance(get_function_stack_at(i), DeviceContext) for i in range(count))
    return count


def last_difference(continuation: Continuation, slots: list) -> str:
    """Why the guards of the most recent segment fail for these slots."""
    failure = first_failure(continuation.segments[0].guards, slots)
    if failure is None:
        return "the cause is not known"
    source = failure.source if len(failure.source) <= LONGEST else f"{failure.source[:LONGEST]}…"
    return f"{source} was {failure.expected} and is now {failure.found}"


LONGEST = 200
"""Characters of an expression over many numbers."""


class TextReason:
    """A reason given as text."""

    def __init__(self, text: str):
        self.text = text

    def render(self) -> str:
        return self.text
