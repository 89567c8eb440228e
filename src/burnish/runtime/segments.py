"""Segments and continuations: a captured program as data.

    Continuation  = a point of the program; keeps the segments that were traced from there, most recent first
    Segment       = check(slots) -> inputs and values, or None; a compiled graph; finish(values, outputs) -> slots

A loop with a break inside comes to one continuation again and again in a call, with a segment for each round where the
rounds differ. What came after a segment last time is asked first then, so that a call does not look through all rounds
for each of them.

Nothing here knows how they were made.

Threads run one program at once and wait for nobody: one of them traces from a continuation, and the others go on as
plain Python until there is a segment for them. There is no lock, which a process forked meanwhile would find taken.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

MOST_IN_ONE_CALL = 8
"""So many times the limit of calls that may bring new segments is the limit of the segments of one continuation."""


class ResultsChanged(Exception):
    """Python that a graph runs as it is returned other tensors than when the graph was made: nothing behind it holds.
    It is raised before anything behind it has run."""


class Segment:
    __slots__ = (
        "__weakref__",
        "break_",
        "call",
        "check",
        "contest",
        "draws",
        "finish",
        "followed_by",
        "graph_module",
        "guards",
        "has_effects",
        "is_step",
        "leads_to",
        "looks_first",
        "nests",
        "on",
        "reruns_watched",
        "state",
        "writes_inputs",
    )

    def __init__(
        self,
        check: Callable,
        graph: Callable | None,
        finish: Callable,
        leads_to: Any,
        *,
        guards: list,
        graph_module: Any,
        break_: Any,
        state: tuple,
        writes_inputs: bool,
        nests: bool,
        is_step: bool = False,
        has_effects: bool = True,
        draws: bool = False,
        compares_results: bool = False,
    ):
        self.call: Callable | None
        self.on: Callable[[tuple], Any] | None
        self.check, self.graph, self.finish = check, graph, finish
        self.leads_to = leads_to  # None: the result is returned; else the shape of the frames to go on with
        self.guards, self.graph_module, self.break_ = guards, graph_module, break_
        self.state = state  # torch's global switches as the guards found them: put back when the graph fails half way
        self.draws = draws  # and may fail: torch's random state is put back then
        # Where a run of the graph may stop half way with ResultsChanged, it does not begin under saved-tensor hooks:
        # these would see the tensors of both runs, and checkpointing counts them.
        self.reruns_watched = compares_results
        self.nests = nests  # autocast is entered or left in the graph
        self.looks_first = nests or compares_results or draws
        self.is_step = is_step  # what it does makes its own guards fail
        self.has_effects = has_effects  # finish changes what was there before
        self.contest: Any = None  # who makes the whole calls that begin here, where eager may be the faster one
        self.writes_inputs = writes_inputs
        self.followed_by: weakref.ref[Segment] | None = None  # what held there the next time
        for part in check, graph:
            holders = getattr(part, "holders", None)
            if isinstance(holders, Holders):
                holders.add(self)

    @property
    def graph(self) -> Callable | None:
        return self.call

    @graph.setter
    def graph(self, graph: Callable | None) -> None:
        """``call``: the same. ``on``: as a function of the tuple of its inputs, where it can be had so. Then hundreds
        of parameters are not packed into a tuple once more."""
        self.call, self.on = graph, getattr(graph, "__burnish_on__", None)


class Holders:
    """The segments that call a graph, or ask by a check, which stands for another one for a time only: as a contest
    does."""

    def __init__(self) -> None:
        self.segments: list[weakref.ref[Segment]] = []

    def add(self, segment: Segment) -> None:
        self.segments.append(weakref.ref(segment))

    def hand_over(self, graph: Callable, other: Callable) -> None:
        """From here on they call the other one."""
        for reference in self.segments:
            segment = reference()
            if segment is not None and segment.graph is graph:  # else somebody watches what it calls
                segment.graph = other

    def ask_by(self, check: Callable) -> None:
        """From here on they ask by this check, which has these holders too."""
        for reference in self.segments:
            segment = reference()
            if (
                segment is not None
                and getattr(segment.check, "holders", None) is self
                and not hasattr(segment.check, "__wrapped__")
            ):  # else somebody watches it
                segment.check = check


class Continuation:
    __slots__ = (
        "claims",
        "given_up",
        "label",
        "last",
        "layout",
        "location",
        "made_in",
        "races",
        "segments",
        "waits",
        "why_given_up",
    )

    def __init__(self, layout: Any, label: str, location: Any):
        self.layout, self.label, self.location = layout, label, location
        self.segments: list[Segment] = []
        self.made_in = 0  # how many calls have added segments: a loop may add many in one, and knows them in the next
        self.races = 0  # how many traces in a row were lost to another thread that changed what they read
        self.waits = 0  # how many calls go by until it is traced again after that
        self.last: weakref.ref[Segment] | None = None  # which one held, where there are several
        self.given_up = False
        self.why_given_up = ""
        self.claims: dict[str, threading.Thread] = {}

    def claim(self) -> bool:
        """Whether the running thread is the one to trace from here, until it lets go. False where another one is."""
        me = threading.current_thread()
        owner = self.claims.setdefault("tracing", me)  # one step, whatever other threads do
        if owner is not me and not owner.is_alive():  # it was killed, or left behind by a fork
            owner = self.claims["tracing"] = me
        return owner is me

    def let_go(self) -> None:
        if self.claims.get("tracing") is threading.current_thread():
            self.claims.clear()

    def add(self, segment: Segment) -> None:
        """Called by the thread that has claimed it."""
        self.segments = [segment, *self.segments]

    def drop(self, segment: Segment) -> None:
        self.segments = [each for each in self.segments if each is not segment]

    def likeliest_first(self, segments: list[Segment]) -> list[Segment]:
        """Its segments, several of them, in the order to ask them in."""
        last = None if self.last is None else self.last()
        likeliest = None if last is None or last.followed_by is None else last.followed_by()
        if likeliest is None or likeliest is segments[0] or likeliest not in segments:
            return segments
        return [likeliest, *segments]  # twice in the list: it costs less to ask it again than to take it out

    def note(self, segment: Segment) -> None:
        """It held. Only where there are several of them."""
        held = weakref.ref(segment)
        last = None if self.last is None else self.last()
        if last is not None:
            last.followed_by = held
        self.last = held

    def is_full(self, limit: int) -> bool:
        """Whether calls bring ever new cases. Those that one call brings by itself, in a loop, count as one."""
        return len(self.segments) >= (limit if self.made_in >= limit else limit * MOST_IN_ONE_CALL)
