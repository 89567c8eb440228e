"""Records a run for the report and for the trace: what was compiled and why, and when each part ran.

    with RunRecorder(live_segments, guard_text) as run:
        model(x)
    run.spans           (category, name, line, start, seconds, thread)
    run.segments        dictionaries of text and numbers, which can be written as JSON

Listens to the events, and observes the functions of segments through `profile_segments`. It keeps text and numbers
only: no tensor, module or graph of the program lives longer because of it.
"""

from __future__ import annotations

import linecache
import math
import threading
import weakref
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

import torch

from ..errors import UserError
from ..events import Event, subscribe
from .exclude_from_capture import exclude_from_capture
from .explain_report import list_operations
from .guard_misses import GuardMiss, advice, by_nearness, values
from .profile_segments import ObservedFunction, Profile, bytes_of
from .text_layout import cut, line_text

KINDS = (
    "breaks",
    "breaks.left",
    "graph",
    "guards.given_up",
    "guards.missed",
    "guards.raced",
    "guards.sizes",
    "lower.native",
    "lower.refused",
    "plan",
    "runtime.contest",
    "runtime.failed",
    "segment",
    "stage.begin",
    "stage.end",
    "traced",
)
NOTES = (
    "breaks.left",
    "guards.given_up",
    "guards.raced",
    "guards.sizes",
    "lower.native",
    "lower.refused",
    "runtime.failed",
)
"""Events that are shown as they are."""

MOST_SPANS = 1_000_000
MOST_GUARDS = 400
"""Of one segment."""
LINES_AROUND = 3
TEXT_SHOWN = 4000


class FunctionCalls:
    """The calls of one function of a segment."""

    __slots__ = ("best", "bytes", "calls", "part", "seconds", "steps")

    def __init__(self, part: ObservedFunction):
        self.part = part._replace(segment=None, program=None)
        origins = None if part.program is None else part.program.run.__globals__.get("_origins")
        self.steps: list[str] = [] if origins is None else origins.names
        self.calls, self.seconds, self.best, self.bytes = 0, 0.0, float("inf"), 0


class RunRecorder:
    def __init__(
        self,
        programs: Callable[[], Iterable[tuple[Any, Any]]],
        guard_text: Callable[[Any], str],
        most_spans: int = MOST_SPANS,
    ):
        self.guard_text, self.most_spans = guard_text, most_spans
        self.profile = Profile(programs, self.around)
        self.spans: list[tuple[str, str, str, float, float, int]] = []
        self.spans_dropped = 0
        self.segments: list[dict[str, Any]] = []
        self.breaks: list[dict[str, Any]] = []
        self.misses: list[dict[str, Any]] = []
        self.graphs: list[dict[str, Any]] = []
        self.contests: list[dict[str, Any]] = []
        self.notes: list[dict[str, Any]] = []
        self.threads: dict[int, str] = {}
        self.started = self.ended = 0.0
        self.is_on = False
        self.of_segment: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()
        self.of_graph: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()
        self.here = threading.local()
        """Of each thread: the graph that is compiled, the graph that was captured last, the miss that came last."""
        self.stop: Callable[[], None] = lambda: None

    @exclude_from_capture
    def __enter__(self) -> RunRecorder:
        if self.is_on:
            raise UserError("This run is being recorded already. Enter it once, or make another report or trace.")
        self.started = perf_counter()
        self.stop = subscribe(self.on_event, KINDS)
        try:
            self.profile.__enter__()
        except BaseException:
            self.stop()
            raise
        self.is_on = True
        return self

    @exclude_from_capture
    def __exit__(self, *error: Any) -> None:
        self.is_on = False
        try:
            self.profile.__exit__(None, None, None)
        finally:
            self.stop()
            self.ended = perf_counter()

    # ---- times

    def span(self, category: str, name: str, line: str, start: float, seconds: float) -> None:
        if len(self.spans) >= self.most_spans:
            self.spans_dropped += 1
            return
        thread = threading.get_ident()
        if thread not in self.threads:
            self.threads[thread] = threading.current_thread().name
        self.spans.append((category, name, line, start, seconds, thread))

    def around(self, function: Callable, part: ObservedFunction) -> Callable:
        """A function that also records its calls."""
        record = self.segment_record(part.segment, part.place)
        measured = FunctionCalls(part)
        record["measured"].append(measured)
        kind, name, line, span = part.kind, part.name, line_text(part.line), self.span
        is_graph = kind == "graph"

        def recorded(*args: Any, **kwargs: Any) -> Any:
            start = perf_counter()
            try:
                result = function(*args, **kwargs)
            finally:
                seconds = perf_counter() - start
                measured.calls += 1
                measured.seconds += seconds
                if seconds < measured.best:
                    measured.best = seconds
                span(kind, name, line, start, seconds)
            if is_graph:
                measured.bytes = bytes_of((args, result))
            return result

        return recorded

    # ---- events

    def on_event(self, event: Event) -> None:
        data, seconds = event.data, event.data.get("seconds")
        match event.kind:
            case "traced":
                self.here.trace = seconds
                self.span("trace", "trace", "", event.time - seconds, seconds)
            case "stage.begin":
                if data["stage"] == "compile":
                    self.here.compiling = self.compiled_graph(data["graph_module"])
            case "stage.end":
                self.end_stage(data["stage"], event.time, seconds)
            case "breaks":
                self.break_record(data["break_"])["times"] += 1
            case "graph":
                self.here.graph = self.new_graph(data["graph_module"])
            case "plan":
                record = getattr(self.here, "compiling", None) or getattr(self.here, "graph", None)
                if record is not None:
                    add_plan(record["plans"], plan_record(data["describe"]()))
            case "guards.missed":
                self.here.missed = self.miss_record(event.time, data)
            case "segment":
                self.note_segment(event)
            case "runtime.contest":
                self.contests.append({key: data[key] for key in ("text", "compiled", "eager", "kept")})
            case kind if kind in NOTES:
                is_slower = "fallback" in data or kind == "runtime.failed"
                self.notes.append({"slower": is_slower, "text": cut(str(data["text"]), TEXT_SHOWN)})

    def end_stage(self, stage: str, end: float, seconds: float) -> None:
        self.span(stage, stage, "", end - seconds, seconds)
        record = getattr(self.here, "compiling", None)
        if record is not None:
            record["seconds"][stage] = record["seconds"].get(stage, 0.0) + seconds
        if stage == "compile":
            self.here.compiling = None

    def compiled_graph(self, graph_module: Any) -> dict[str, Any]:
        """The record of a graph that is compiled now. A part of a graph, or a copy, was not captured itself: it belongs
        to the graph that this thread has captured, if that is not a segment yet."""
        found = self.of_graph.get(graph_module)
        if found is None:
            captured = getattr(self.here, "graph", None)
            found = self.new_graph(graph_module) if captured is None else captured
        return found

    def new_graph(self, graph_module: Any) -> dict[str, Any]:
        found = self.of_graph[graph_module] = {
            "segment": None,
            "seconds": {},
            "plans": [],
            "operations": list_operations(graph_module),
            "weights": weights_of(graph_module),
        }
        self.graphs.append(found)
        return found

    def break_record(self, found: Any) -> dict[str, Any]:
        stack = [place_record(place) for place in reversed(found.stack)]
        key = (found.kind.code, found.what, str(found.stack[-1]) if found.stack else "")
        for record in self.breaks:
            if record["key"] == key:
                return record
        record = {
            "key": key,
            "code": found.kind.code,
            "title": found.kind.title,
            "what": found.what,
            "why": found.kind.why,
            "what_to_do": found.kind.what_to_do,
            "stack": stack,
            "times": 0,
        }
        self.breaks.append(record)
        return record

    def miss_record(self, time: float, data: dict[str, Any]) -> dict[str, Any]:
        nearest, *_ = [*by_nearness([GuardMiss(*failure) for failure in data["failures"]]), []]
        failures = [dict(zip(("expected", "found"), values(f), strict=True), source=f.source) for f in nearest]
        record = {
            "at": time - self.started,
            "thread": threading.get_ident(),
            "function": data["function"],
            "place": place_record(data["location"]),
            "failures": failures,
            "advice": " ".join(advice(nearest[0]).split()) if nearest else "",
            "segment": None,
        }
        self.misses.append(record)
        return record

    def note_segment(self, event: Event) -> None:
        segment, here = event.data["segment"], self.here.__dict__
        record = self.segment_record(segment, event.data["where"])
        record |= {"at": event.time - self.started, "function": place_record(event.data["function"])}
        record["seconds"] = {"trace": here.pop("trace", 0.0)}
        missed, graph = here.pop("missed", None), here.pop("graph", None)
        if segment.break_ is not None:
            record["break"] = self.breaks.index(self.break_record(segment.break_))
        if missed is not None and missed["place"] == record["place"]:
            missed["segment"] = record["number"]
            record["because"] = self.misses.index(missed)
        graph = self.of_graph.get(segment.graph_module) if segment.graph_module is not None else graph
        if graph is not None and graph["segment"] is None:
            graph["segment"] = record["number"]
            record["graph"] = self.graphs.index(graph)

    def segment_record(self, segment: Any, place: Any) -> dict[str, Any]:
        record = self.of_segment.get(segment)
        if record is None:
            guards = [cut(self.guard_text(guard), TEXT_SHOWN) for guard in segment.guards[:MOST_GUARDS]]
            record = {
                "number": len(self.segments),
                "place": place_record(place),
                "function": place_record(place),
                "guards": guards,
                "guard_count": len(segment.guards),
                "has_graph": segment.graph_module is not None,
                "break": None,
                "because": None,
                "graph": None,
                "at": None,
                "seconds": {},
                "measured": [],
            }
            self.segments.append(record)
            self.of_segment[segment] = record
        return record


def add_plan(plans: list[dict[str, Any]], made: dict[str, Any]) -> None:
    """A graph with symbolic sizes is planned for several sizes; one of them is shown."""
    names = [step["name"] for step in made["steps"]]
    for number, plan in enumerate(plans):
        if [step["name"] for step in plan["steps"]] == names:
            if made["arena"] > plan["arena"]:
                plans[number] = made
            return
    plans.append(made)


def plan_record(data: dict[str, Any]) -> dict[str, Any]:
    record = {key: data[key] for key in ("arena", "inputs", "outputs", "peak", "buffers")}
    record["steps"] = [
        {
            **step,
            "lines": list(dict.fromkeys(filter(None, map(line_text, step["lines"])))),
            "modules": [module.path for module in getattr(step["lines"][0], "modules", ())] if step["lines"] else [],
            "text": without_comments(step["text"]),
        }
        for step in data["steps"]
    ]
    return record


def without_comments(text: str) -> str:
    return cut("\n".join(line for line in text.splitlines() if not line.startswith("#")), TEXT_SHOWN)


def weights_of(graph_module: Any) -> int:
    """Bytes of the parameters and buffers that a graph takes."""
    facts = [node.meta.get("burnish_input") for node in graph_module.graph.nodes if node.op == "placeholder"]
    sizes = [(each.dtype.itemsize, each.shape) for each in facts if each and each.is_module_state and each.dtype]
    return sum(item * math.prod(shape) for item, shape in sizes)


def place_record(place: Any) -> dict[str, Any]:
    """A place in the program, with the lines around it."""
    lines = linecache.getlines(place.filename)
    first = max(1, place.line - LINES_AROUND)
    around = [line.rstrip("\n") for line in lines[first - 1 : place.line + LINES_AROUND]] if lines else []
    return {
        "file": place.filename,
        "line": place.line,
        "name": place.function,
        "first": first,
        "source": [cut(line, 200) for line in around],
    }


def machine() -> dict[str, Any]:
    """What the run is on."""
    is_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if is_gpu else None,
    }
