"""``explain``: run a function once and report its graphs, graph breaks and guards.

    print(burnish.explain(model)(x))

The function really runs, in a separate program: existing compiled code is not used, and nothing is kept. The report
itself is in ``report/explain_report.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from traceback import FrameSummary
from typing import Any

from ..backends.registry import lookup
from ..capture import breaks
from ..capture.engine.engine import Program
from ..capture.engine.program_options import Options
from ..errors import UserError
from ..report.explain_report import BreakReason, ExplainOutput
from ..runtime.segment_records import Segment
from . import marks
from .compile_callable import is_asynchronous, original_of, runner, why_not_compile
from .describe_guards import guard_text


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
    reasons = [
        BreakReason(f"calls of {why}, are left to Python (B502)", [], False) for why in program.balance.left.values()
    ]
    for point in (program.entry, *program.continuations.values()):
        if point.given_up:
            place: breaks.Location = point.location
            frame = FrameSummary(place.filename, place.line, place.function, lookup_line=False)
            reasons.append(BreakReason(f"runs as plain Python from {place} on: {point.why_given_up}", [frame], False))
    return reasons
