"""Segments and continuations: a captured program as data, and which segment's guards to check first.

    Continuation  = a point of the program; keeps the segments traced from there, most recent first
    Segment       = check(slots) -> inputs and values, or None; a compiled graph; finish(values, outputs) -> slots

A loop with a graph break in its body reaches one continuation repeatedly in a call. It has a segment for each
iteration where the iterations differ. The segment that followed the current one last time is checked first, so that
a call does not check all of them in each iteration.

This module does not depend on how segments are made.

Threads run one program concurrently and never wait. One thread traces from a continuation; the others run plain
Python until a segment is there. No lock is used: a process forked while one is held would find it locked.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

MOST_IN_ONE_CALL = 8
"""A continuation may hold this many times `segment_limit` segments, while fewer than `segment_limit` calls added
some."""


EAGER_STAYS = object()
"""Replaces the contest of a segment's whole calls that eager has won: the function is called as it is."""


class ResultsChanged(Exception):
    """Python code called by a graph returned different tensors than when the graph was made, so the rest of the graph
    is invalid. Raised before anything after that code has run."""


class Segment:
    __slots__ = (
        "__weakref__",
        "break_",
        "call",
        "call_with_tuple",
        "changes_autocast",
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
        changes_autocast: bool,
        is_step: bool = False,
        has_effects: bool = True,
        draws: bool = False,
        compares_results: bool = False,
    ):
        self.call: Callable | None
        self.call_with_tuple: Callable[[tuple], Any] | None
        self.check, self.graph, self.finish = check, graph, finish
        self.leads_to = leads_to  # None: the result is returned; else the shape of the frames to continue with
        self.guards, self.graph_module, self.break_ = guards, graph_module, break_
        self.state = state  # torch's global state as the guards found it: restored when the graph raises
        self.draws = draws  # draws random numbers and may raise: torch's random state is restored then
        # A run of the graph that may stop with ResultsChanged does not start under saved-tensor hooks: they would see
        # the tensors of both runs, and checkpointing counts them.
        self.reruns_watched = compares_results
        self.changes_autocast = changes_autocast  # autocast is entered or left in the graph
        self.looks_first = changes_autocast or compares_results or draws
        self.is_step = is_step  # its own effects make its guards fail
        self.has_effects = has_effects  # finish has side effects on objects that existed before
        self.contest: Any = None  # runs the whole calls that begin here, where eager may be faster
        self.writes_inputs = writes_inputs
        self.followed_by: weakref.ref[Segment] | None = None  # the segment whose guards held next, last time
        for part in check, graph:
            holders = getattr(part, "holders", None)
            if isinstance(holders, SegmentsToUpdate):
                holders.add(self)

    @property
    def graph(self) -> Callable | None:
        return self.call

    @graph.setter
    def graph(self, graph: Callable | None) -> None:
        """Also sets `call`, the same function, and `call_with_tuple`, the same as a function of the tuple of its
        inputs, if the graph has one: that avoids packing hundreds of parameters into a tuple again."""
        self.call, self.call_with_tuple = graph, getattr(graph, "__burnish_call_with_tuple__", None)


class SegmentsToUpdate:
    """The segments that call a graph or use a check which will be replaced later, as a contest is."""

    def __init__(self) -> None:
        self.segments: list[weakref.ref[Segment]] = []

    def add(self, segment: Segment) -> None:
        self.segments.append(weakref.ref(segment))

    def hand_over(self, graph: Callable, other: Callable) -> None:
        """Make these segments call `other` instead of `graph`."""
        for reference in self.segments:
            segment = reference()
            if segment is not None and segment.graph is graph:  # else a listener wraps what it calls
                segment.graph = other

    def replace_check(self, check: Callable) -> None:
        """Make these segments use this check, which has the same holders."""
        for reference in self.segments:
            segment = reference()
            if (
                segment is not None
                and getattr(segment.check, "holders", None) is self
                and not hasattr(segment.check, "__wrapped__")
            ):  # else a listener wraps it
                segment.check = check


class Continuation:
    __slots__ = (
        "claims",
        "ends_before",
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
        self.made_in = 0  # how many calls added segments: a loop may add many in one call and reuse them in the next
        self.races = 0  # how many traces in a row were discarded because another thread changed what they read
        self.waits = 0  # how many calls to skip before tracing again after that
        self.last: weakref.ref[Segment] | None = None  # the segment whose guards held last, where there are several
        self.ends_before: int | None = None  # the recorded call at which each trace ends, if one has to
        self.given_up = False
        self.why_given_up = ""
        self.claims: dict[str, threading.Thread] = {}

    def claim(self) -> bool:
        """Whether the running thread may trace from here, until it calls `let_go`. False while another thread
        traces."""
        me = threading.current_thread()
        owner = self.claims.setdefault("tracing", me)  # atomic
        if owner is not me and not owner.is_alive():  # the thread was killed, or does not exist after a fork
            owner = self.claims["tracing"] = me
        return owner is me

    def let_go(self) -> None:
        if self.claims.get("tracing") is threading.current_thread():
            self.claims.clear()

    def add(self, segment: Segment) -> None:
        """Called by the thread that has claimed this continuation."""
        self.segments = [segment, *self.segments]

    def drop(self, segment: Segment) -> None:
        self.segments = [each for each in self.segments if each is not segment]

    def likeliest_first(self, segments: list[Segment]) -> list[Segment]:
        """The segments, several of them, in the order to check their guards in."""
        last = None if self.last is None else self.last()
        likeliest = None if last is None or last.followed_by is None else last.followed_by()
        if likeliest is None or likeliest is segments[0] or likeliest not in segments:
            return segments
        return [likeliest, *segments]  # appears twice in the list: checking it again costs less than removing it

    def note(self, segment: Segment) -> None:
        """Record that this segment's guards held. Called only where there are several segments."""
        held = weakref.ref(segment)
        last = None if self.last is None else self.last()
        if last is not None:
            last.followed_by = held
        self.last = held

    def is_full(self, limit: int) -> bool:
        """Whether calls keep bringing new cases. The segments that one call adds in a loop count as one."""
        return len(self.segments) >= (limit if self.made_in >= limit else limit * MOST_IN_ONE_CALL)
