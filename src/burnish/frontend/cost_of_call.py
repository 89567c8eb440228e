"""``cost``: what a call of a function costs, by module: operations, bytes, memory, estimated and measured time.

    print(burnish.cost(model)(x))

The function really runs, `runs` times, in a separate program that is compiled for it; nothing of it is kept. The table
itself is in ``report/cost_report.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import settings
from ..backends.registry import lookup
from ..capture.engine.program_options import Options
from ..errors import UserError
from ..report.cost_report import Cost, cost_of_run
from ..report.record_run import RunRecorder
from .compile_callable import original_of, runner, why_not_compile
from .describe_guards import guard_text
from .live_programs import segments_of


def cost(fn: Any, *, runs: int = 5) -> Callable[..., Cost]:
    """``cost(fn)(*args, **kwargs)`` really runs ``fn`` and returns what a call of it costs.

    fn: what ``compile`` takes; of something compiled, its original is measured.
    runs: how often it runs. The first two compile; the fastest of the others counts. At least 3.
    """
    why = why_not_compile(fn)
    if why is not None:
        raise UserError(why.replace("burnish.compile", "burnish.cost"))
    if runs < 3:
        raise UserError(f"burnish.cost(runs={runs}): at least 3, as the first two compile.")
    original = original_of(fn)

    def costed(*args: Any, **kwargs: Any) -> Cost:
        recorded = recorded_calls(original, runs, args, kwargs)
        name = getattr(original, "__qualname__", None) or type(original).__qualname__
        return cost_of_run(recorded, name)

    return costed


def recorded_calls(original: Any, runs: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RunRecorder:
    """What is recorded of ``runs`` calls, compiled by themselves."""
    program, run = runner(original, Options(lookup("burnish")))
    with RunRecorder(lambda: segments_of(program), guard_text) as recorded, settings.patch(never_slower=False):
        for _ in range(runs):
            run(*args, **kwargs)
    return recorded
