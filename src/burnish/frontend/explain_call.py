"""``explain``: run a function once and report its graphs, graph breaks and guards.

    print(burnish.explain(model)(x))

The function really runs, in a separate program: existing compiled code is not used, and nothing is kept. The report
itself is in ``report/explain_report.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from traceback import FrameSummary
from typing import Any

import torch

from ..api import is_asynchronous, original_of, runner, why_not_compile
from ..backends.registry import lookup
from ..capture import breaks
from ..capture.engine.engine import Program
from ..capture.engine.program_options import Options
from ..capture.guards.guards import FACT_NAMES, STATE_NAMES, Guard
from ..errors import UserError
from ..report.explain_report import BreakReason, ExplainOutput
from ..runtime.segments import Segment
from . import marks

USUAL = (None, False, 0, torch.bfloat16, torch.float16)  # usual values of torch's global state, not worth showing


def explain(fn: Any) -> Callable[..., ExplainOutput]:
    """``explain(fn)(*args, **kwargs)`` really runs ``fn`` once and returns what was captured.

    fn: what ``compile`` takes; of something compiled, its original is explained.
    """
    why = why_not_compile(fn)
    if why is not None:
        raise UserError(why.replace("burnish.compile", "burnish.explain"))
    original = original_of(fn)

    def explained(*args: Any, **kwargs: Any) -> ExplainOutput:
        if marks.is_disabled(original) or is_asynchronous(original):
            return _never_compiled(original, args, kwargs)
        segments: list[Segment] = []
        seconds = {"trace": 0.0, "compile": 0.0}

        def note(segment: Segment, took: dict[str, float]) -> None:
            segments.append(segment)
            for stage, time in took.items():
                seconds[stage] += time

        program, run = runner(original, Options(lookup("eager"), "eager", True, sinks=[note]))
        run(*args, **kwargs)
        output = ExplainOutput.build(
            [s.graph_module for s in segments if s.graph_module is not None],
            [s.break_ for s in segments if s.break_ is not None],
            [guard_text(guard) for s in segments for guard in s.guards],
            seconds,
        )
        output.break_reasons += plain_parts(program)
        return output

    return explained


def _never_compiled(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExplainOutput:
    if not is_asynchronous(original):
        original(*args, **kwargs)
    reason = getattr(original, "_burnish_disable_reason", None) or getattr(original, "_torchdynamo_disable_msg", None)
    why = f"it is disabled{f' ({reason})' if reason else ''}" if marks.is_disabled(original) else "it is an `async def`"
    output = ExplainOutput.build([], [])
    name = getattr(original, "__qualname__", type(original).__name__)
    output.break_reasons.append(BreakReason(f"{name} runs as plain Python: {why}", [], False))
    return output


def plain_parts(program: Program) -> list[BreakReason]:
    """Where a program gave up compiling. These are not graph breaks, since no graph follows them, but useful to
    know."""
    reasons: list[BreakReason] = []
    for point in (program.entry, *program.continuations.values()):
        if point.given_up:
            place: breaks.Location = point.location
            frame = FrameSummary(place.filename, place.line, place.function, lookup_line=False)
            reasons.append(BreakReason(f"runs as plain Python from {place} on: {point.why_given_up}", [frame], False))
    return reasons


def guard_text(guard: Guard) -> str:
    """A guard as a sentence about the program."""
    kind, source, expected = guard
    match kind:
        case "state":
            named = zip(STATE_NAMES, expected, strict=False)
            shown = [f"{name} {value}" for i, (name, value) in enumerate(named) if i < 3 or value not in USUAL]
            return f"torch's switches: {', '.join(shown)}"
        case "outcome":
            return f"{expected[0].words()} is {expected[1]}"
        case "distinct":
            return f"{', '.join(map(str, expected))} are different objects"
        case "tensor":
            return f"{source} is {_tensor_text(*expected)}"
        case "type":
            return f"{source} is a {expected.__qualname__}"
        case "length":
            return f"len({source}) == {expected}"
        case "keys":
            return f"the keys of {source} are {_short(list(expected))}"
        case "has" | "absent":
            return f"{_short(expected)} is {'' if kind == 'has' else 'not '}in {source}"
        case "truth":
            return f"bool({source}) is {expected}"
        case "same" | "unlike":
            return f"{source} is {'' if kind == 'same' else 'not '}{expected}"
        case "no hooks":
            return f"{source} has no hooks"
        case "is":
            return f"{source} is {_name(expected)}"
        case "equal" | "equal set":
            return f"{source} == {_short(expected)}"
        case _:
            return f"{source}: {kind}" + ("" if expected is None else f" {_short(expected)}")


def _tensor_text(kind: Any, dtype: Any, shape: Any, strides: Any, device: Any, *flags: Any) -> str:
    sizes = "" if shape is None else f"[{', '.join(map(str, shape))}]"
    set_flags = [name for name, value in zip(FACT_NAMES[5:], flags, strict=False) if value is True]
    what = f"a {kind.__name__} of {str(dtype).removeprefix('torch.')}{sizes} on {device}"
    return ", ".join([what, f"strides {strides}", *set_flags])


def _name(value: Any) -> str:
    names = (getattr(value, attribute, None) for attribute in ("__qualname__", "__name__", "co_qualname"))
    return next((name for name in names if isinstance(name, str)), None) or _short(value)


def _short(value: Any) -> str:
    text = " ".join((value.__qualname__ if isinstance(value, type) else repr(value)).split())
    return text if len(text) <= 80 else text[:79] + "…"
