"""``profile``: where the time of compiled code goes, segment by segment.

    with burnish.profile() as p:
        for batch in batches:
            model(batch)
    print(p)
    p.segments[0].kernels            seconds in native kernels

    20 calls of 1 segment, 31 ms
    segment                      calls      each  guards  kernels  library  Python    in and out   of copying
    model.py:12 in forward          20  1.549 ms    0.3%    41.2%    55.8%    2.7%       4.72 MB        0.05×

At its start, the functions of each segment are replaced by timed ones, and restored at the end. Code that is not
profiled has no overhead. Calls inside a graph are classified by their names in its driver (see
``codegen.driver.generate_driver``): ``launch_0`` are kernels, ``call_0`` and ``run_0`` operators of torch and
libraries.

"In and out" is the memory of a graph's inputs and outputs, the minimum that has to be moved; intermediate values are
not counted. The last column compares this with the machine's memory copy speed, which is measured on demand.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from types import FunctionType, TracebackType
from typing import Any, NamedTuple

import torch

from .. import events
from ..concurrency import thread_locks
from ..errors import UserError
from .exclude_from_capture import exclude_from_capture
from .rich_output import table_between_lines
from .text_layout import count, duration, preformatted, table_lines

KERNELS = ("launch_",)
LIBRARY = ("call_", "run_", "prepare_")
"""Prefixes of the names by which a driver calls native code and operators."""

COPIED = 1 << 26
"""Bytes that are copied to measure memory speed: more than caches hold."""

NAME_WIDTH = 48


@dataclass(slots=True)
class SegmentProfile:
    """Times and counts of one segment while the profile was on. All times are in seconds, summed over its calls."""

    name: str
    """Where in the program it begins."""
    calls: int = 0
    misses: int = 0
    """How often its guards were checked and did not hold."""
    guards: float = 0.0
    kernels: float = 0.0
    library: float = 0.0
    """Operators of torch and library calls; all of a graph that runs eagerly."""
    python: float = 0.0
    """Everything else: the driver, autograd, side effects, rebuilding the results."""
    backward: float = 0.0
    """The part of `kernels`, `library` and `python` that was in backward."""
    bytes: int = 0
    """Of the inputs and outputs of its graph, in all calls."""

    @property
    def seconds(self) -> float:
        return self.guards + self.kernels + self.library + self.python

    @property
    def bandwidth(self) -> float:
        """Bytes in and out per second of kernels and library calls in forward; 0 where there are none."""
        busy = self.kernels + self.library
        return self.bytes / busy if busy > 0 and self.bytes and not self.backward else 0.0


_installed: list[Profile] = []
_installing = thread_locks.rlock()
"""The profiles that are on, in the order in which they began: each replaces the functions of those before."""


class ObservedFunction(NamedTuple):
    """A function of a segment that is observed."""

    segment: Any
    place: Any
    kind: str
    """guards, graph, backward, kernel or library."""
    name: str
    line: Any = None
    """Of the user's program, for kernels and library calls; None if it is not known."""
    program: Any = None
    step: int = -1
    """Of the program's plan."""


Around = Callable[[Callable, ObservedFunction], Callable]
"""Returns a function that calls the given one."""


@dataclass(slots=True)
class Inside:
    """The running thread's time in native code since it entered a graph."""

    kernels: float = 0.0
    library: float = 0.0
    programs: int = 0


class Here(threading.local):
    def __init__(self) -> None:
        self.inside = Inside()


@dataclass(slots=True, eq=False, repr=False)
class Profile:
    """``programs`` returns (segment, place) for everything compiled so far."""

    programs: Callable[[], Iterable[tuple[Any, Any]]]
    around: Around | None = None
    """Wraps each function that is replaced, for an observer that also wants to know each call. The native functions
    that a driver calls together are then called one by one."""
    segments: list[SegmentProfile] = field(default_factory=list)
    """In the order in which they were found; those without calls or misses are dropped at the end."""
    _undo: list[Callable[[], None]] = field(default_factory=list)
    _watched: set[int] = field(default_factory=set)
    _keep: list[Any] = field(default_factory=list)
    _records: weakref.WeakKeyDictionary[Any, SegmentProfile] = field(default_factory=weakref.WeakKeyDictionary)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _here: Here = field(default_factory=Here)

    # ---- start and end

    @exclude_from_capture
    def __enter__(self) -> Profile:
        with _installing:
            if self in _installed:
                raise UserError("This profile is on already. Enter it once, or make another one.")
            _installed.append(self)
            try:
                self._install()
            except BaseException:
                self._uninstall()
                _installed.remove(self)
                raise
        return self

    @exclude_from_capture
    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        with _installing:
            # Those that began later have replaced our functions, and would put them back at their end.
            later = _installed[_installed.index(self) + 1 :]
            for profile in reversed(later):
                profile._uninstall()
            self._uninstall()
            _installed.remove(self)
            for profile in later:
                profile._install()
        self.segments = [record for record in self.segments if record.calls or record.misses]

    def _install(self) -> None:
        self._undo.append(events.subscribe(self._on_event, ["segment"]))
        for segment, place in self.programs():
            self._watch(segment, place)

    def _uninstall(self) -> None:
        while self._undo:
            self._undo.pop()()
        self._watched.clear()
        self._keep.clear()

    def _on_event(self, event: events.Event) -> None:
        self._watch(event.data["segment"], event.data["where"])

    def _is_new(self, thing: Any) -> bool:
        with self._lock:
            if id(thing) in self._watched:
                return False
            self._watched.add(id(thing))
            self._keep.append(thing)  # so that its id is not reused
            return True

    def _replace(self, owner: Any, name: str, made: Any) -> None:
        before = getattr(owner, name)
        setattr(owner, name, made)
        self._undo.append(lambda: setattr(owner, name, before))

    # ---- watching

    def _watch(self, segment: Any, place: Any) -> None:
        if not self._is_new(segment):
            return
        record = self._records.get(segment)
        if record is None:
            record = self._records[segment] = SegmentProfile(str(place))
            self.segments.append(record)
        part = ObservedFunction(segment, place, "guards", str(place))
        self._replace(segment, "check", self._timed_check(record, segment.check, self._observed(segment.check, part)))
        self._replace(segment, "finish", self._timed_finish(record, segment.finish))
        if segment.graph is not None:
            part = part._replace(kind="graph")
            self._watch_programs(record, segment.graph, part)
            graph = self._observed(segment.graph, part)
            self._replace(segment, "graph", self._timed_graph(record, segment.graph, graph, part))

    def _watch_programs(self, record: SegmentProfile, graph: Any, part: ObservedFunction) -> None:
        for program, is_backward in programs_in(graph):
            if self._is_new(program):
                made = self._timed_driver(record, program, is_backward, part._replace(program=program))
                self._replace(program, "run", made)

    def _observed(self, function: Callable, part: ObservedFunction) -> Callable:
        return function if self.around is None else self.around(function, part)

    def _timed_check(self, record: SegmentProfile, check: Callable, observed: Callable) -> Callable:
        @functools.wraps(check)
        def timed(slots: list) -> Any:
            start = perf_counter()
            found = observed(slots)
            seconds = perf_counter() - start
            with self._lock:
                record.guards += seconds
                if found is None:
                    record.misses += 1
                else:
                    record.calls += 1
            return found

        return timed

    def _timed_finish(self, record: SegmentProfile, finish: Callable) -> Callable:
        @functools.wraps(finish)
        def timed(*args: Any) -> Any:
            start = perf_counter()
            try:
                return finish(*args)
            finally:
                seconds = perf_counter() - start
                with self._lock:
                    record.python += seconds

        return timed

    def _timed_graph(
        self, record: SegmentProfile, graph: Callable, observed: Callable, part: ObservedFunction
    ) -> Callable:
        def timed(*inputs: Any) -> Any:
            outer, inside = self._here.inside, Inside()
            self._here.inside = inside
            start = perf_counter()
            try:
                outputs = observed(*inputs)
            finally:
                seconds = perf_counter() - start
                self._here.inside = outer
                if not inside.programs:
                    inside.library = seconds  # a graph that runs uncompiled, with torch's operators
                    self._watch_programs(record, graph, part)  # it may have been compiled during this call
                with self._lock:
                    record.kernels += inside.kernels
                    record.library += inside.library
                    record.python += seconds - inside.kernels - inside.library
            moved = bytes_of((inputs, outputs))
            with self._lock:
                record.bytes += moved
            return outputs

        return timed

    def _timed_driver(
        self, record: SegmentProfile, program: Any, is_backward: bool, part: ObservedFunction
    ) -> Callable:
        run: FunctionType = program.run
        names = dict(run.__globals__)
        for name, thing in names.items():
            if callable(thing) and name.startswith(KERNELS):
                names[name] = self._timed_call(
                    self._observed_calls(name, thing, part._replace(kind="kernel")), "kernels"
                )
            elif callable(thing) and name.startswith(LIBRARY):
                calls = self._observed_calls(name, thing, part._replace(kind="library"))
                names[name] = self._timed_call(calls, "library")
        driver: Callable = FunctionType(run.__code__, names, run.__name__, run.__defaults__, run.__closure__)
        if is_backward:
            driver = self._observed(driver, part._replace(kind="backward"))
        if not is_backward:

            def timed(*args: Any) -> Any:
                self._here.inside.programs += 1
                return driver(*args)

            return timed

        def timed_backward(*args: Any) -> Any:
            outer, inside = self._here.inside, Inside()
            self._here.inside = inside
            start = perf_counter()
            try:
                return driver(*args)
            finally:
                seconds = perf_counter() - start
                self._here.inside = outer
                with self._lock:
                    record.backward += seconds
                    record.kernels += inside.kernels
                    record.library += inside.library
                    record.python += seconds - inside.kernels - inside.library

        return timed_backward

    def _observed_calls(self, name: str, function: Callable, part: ObservedFunction) -> Callable:
        """A function that a driver calls; if it is a sequence of native functions, each of these is observed."""
        origins = part.program.run.__globals__.get("_origins")
        if self.around is None or origins is None or name not in origins.steps:
            return function
        apart = origins.separate(function) if part.kind == "kernel" else [function]
        steps = origins.steps[name]
        calls = [
            self.around(call, part._replace(name=origins.names[step], line=origins.lines[step], step=step))
            for call, step in zip(apart, steps, strict=True)
        ]
        if len(calls) == 1:
            return calls[0]

        def one_by_one(table: Any) -> None:
            for call in calls:
                call(table)

        return one_by_one

    def _timed_call(self, function: Callable, kind: str) -> Callable:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                inside = self._here.inside
                setattr(inside, kind, getattr(inside, kind) + perf_counter() - start)

        return timed

    # ---- report

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def __rich__(self) -> Any:
        rows = self.rows()
        return table_between_lines([self.headline()], rows) if rows[1:] else self.headline()

    def __repr__(self) -> str:
        """Also what a prompt shows."""
        rows = self.rows()
        return "\n".join([self.headline(), *(table_lines(rows) if rows[1:] else [])])

    def met(self) -> list[SegmentProfile]:
        return [record for record in self.segments if record.calls or record.misses]

    def rows(self) -> list[tuple[str, ...]]:
        """Of the table: a title, and a line for each segment."""
        rows = [("segment", "calls", "each", "guards", "kernels", "library", "Python", "in and out", "of copying")]
        for record in sorted(self.met(), key=lambda record: -record.seconds):
            shares = (record.guards, record.kernels, record.library, record.python)
            each = max(record.calls, 1)
            moved = record.bytes / each
            rows.append(
                (
                    end_of(record.name),
                    str(record.calls),
                    short(record.seconds / each),
                    *(f"{100 * share / record.seconds if record.seconds else 0:.1f}%" for share in shares),
                    size(moved) if moved else "",
                    f"{record.bandwidth / copy_bandwidth():.2f}×" if record.bandwidth else "",
                )
            )
        return rows

    def headline(self) -> str:
        met = self.met()
        if not met:
            return "No compiled code ran. A first call compiles, and is not counted."
        total, calls = sum(record.seconds for record in met), sum(record.calls for record in met)
        missed = sum(record.misses for record in met)
        head = f"{count(calls, 'call')} of {count(len(met), 'segment')}, {duration(total)}"
        if missed:
            head += f"; guards did not hold {'once' if missed == 1 else f'{missed} times'}"
        return head


def end_of(name: str) -> str:
    """The end of a long place name, which distinguishes it from others."""
    return name if len(name) <= NAME_WIDTH else f"…{name[1 - NAME_WIDTH :]}"


def programs_in(thing: Any, is_backward: bool = False, seen: set[int] | None = None) -> Iterator[tuple[Any, bool]]:
    """The drivers in a compiled graph, and whether they run in backward. Wrappers (contests, frozen weights, closures)
    are searched by structure: this module does not know their classes."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, (torch.nn.Module, torch.Tensor, type)):
        return
    seen.add(id(thing))
    parts: Iterable[tuple[str, Any]] = ()
    if isinstance(thing, (tuple, list)):
        parts = (("", part) for part in thing)
    elif isinstance(thing, dict):
        parts = (("", part) for part in thing.values())
    elif isinstance(thing, FunctionType) and is_ours(thing.__module__):
        parts = (("", cell.cell_contents) for cell in thing.__closure__ or () if not is_empty(cell))
    elif is_ours(type(thing).__module__):
        if hasattr(thing, "make_frame") and isinstance(getattr(thing, "run", None), FunctionType):
            yield thing, is_backward
            return
        parts = vars(thing).items() if hasattr(thing, "__dict__") else ()
    for name, part in list(parts):
        yield from programs_in(part, is_backward or name == "backwards", seen)


def is_ours(module: Any) -> bool:
    return isinstance(module, str) and module.startswith("burnish.")


def is_empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


def bytes_of(values: Any) -> int:
    """Of the tensors among them, each once."""
    found: dict[tuple[int, int], int] = {}

    def add(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            if value.layout is torch.strided and value.device.type != "meta":
                found[value.data_ptr(), value.numel()] = value.numel() * value.element_size()
        elif isinstance(value, (tuple, list)):
            for part in value:
                add(part)

    add(values)
    return sum(found.values())


@functools.cache
def copy_bandwidth() -> float:
    """Bytes per second, read and written, when this machine copies memory: the best of a few measurements."""
    source = torch.zeros(COPIED, dtype=torch.uint8)
    target = torch.zeros_like(source)
    best = min(seconds_of(lambda: target.copy_(source)) for _ in range(5))
    return 2 * COPIED / best


def seconds_of(work: Callable[[], Any]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def short(seconds: float) -> str:
    return (
        f"{seconds * 1e6:.1f} µs"
        if seconds < 1e-3
        else f"{seconds * 1e3:.3f} ms"
        if seconds < 1
        else f"{seconds:.2f} s"
    )


def size(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"
