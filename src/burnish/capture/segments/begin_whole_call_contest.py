"""Starts a contest of whole calls, for what the contest of a graph cannot time: breaks, guards, effects.

whole_call_contest.begin(program, segment)     calls that begin with this segment take part in a `CallContest`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast
from weakref import ref

from torch.fx import GraphModule

from ... import settings
from ...runtime.contest.inference_contest import CLEAR
from ...runtime.contest.whole_call_contest import CallContest, OneAtATime
from ...runtime.eager.drawing_calls import may_draw
from ...runtime.segment_records import Segment

if TYPE_CHECKING:
    from ..engine.engine import Program


def begin(program: Program, segment: Segment) -> None:
    options = program.options
    with settings.patch(**options.backend.asked) as asked:  # type: ignore[attr-defined]
        if options.backend.name != "burnish" or options.sinks or not asked.compares:  # type: ignore[attr-defined]
            return
        has_breaks = segment.leads_to is not None
        if not has_breaks and not asked.eager_random and draws(segment.graph_module):
            return

    # They hold the contest, and are running where it is called.
    program_of, segment_of = cast("Callable[[], Program]", ref(program)), cast("Callable[[], Segment]", ref(segment))

    def compiled(slots: list, args: tuple | None, kwargs: dict | None) -> Any:
        return program_of().run(slots, args, kwargs, takes_part=False)

    def eager(slots: list, args: tuple | None, kwargs: dict | None) -> Any:
        segment_of().check(slots)  # as in later calls, so that its time is included
        program = program_of()
        return program.run_eagerly(program.entry, slots, args, kwargs)

    def settle(stays: object) -> None:
        segment_of().contest = stays

    # A graph that writes to inputs may run eagerly on copies, which plain Python does not make.
    share = 0.0 if has_breaks else 1 / CLEAR if segment.writes_inputs else 1.0
    name = f"{program.entry.location}, whole calls"
    if program.contests is None:
        program.contests = OneAtATime()
    segment.contest = CallContest(compiled, eager, name, settle, share=share, contests=program.contests)


def draws(graph_module: Any) -> bool:
    """Whether a seed would give other random numbers where plain Python runs in place of the graph."""
    graphs = () if graph_module is None else graph_module.modules()
    return any(may_draw(node) for part in graphs if isinstance(part, GraphModule) for node in part.graph.nodes)
