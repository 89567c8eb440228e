"""The engine: dispatch of a call to the segment whose guards hold; a recompile where none do.

    look up a segment whose guards hold -> run it -> follow its exit, until return
    none holds -> trace from here on the real values, which also computes the result of this very run

A break's instruction is executed by the plain machine, in both cases; where that leads is the next continuation.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch

from ... import events, settings
from ...errors import OURS, BackendError, BurnishError, InternalError, Unsupported, warn
from ...frontend.marks import size_marks
from ...runtime.contest import pause_garbage_collection, warmup_status
from ...runtime.contest.whole_call_contest import EAGER_STAYS
from ...runtime.failing import MOST_IN_A_ROW, Failing
from ...runtime.program.autograd_function import saving_is_watched
from ...runtime.program.restore_inputs_on_error import is_half_done
from ...runtime.segments import Continuation, ResultsChanged, Segment
from .. import breaks
from ..guards.changing_numbers import changed_numbers, value_at
from ..guards.growing_state import growing
from ..guards.guards import MISSING_ERRORS, first_failure
from ..guards.object_sources import Source
from ..guards.tensor_metadata import TENSOR_TYPES, default_device, global_state
from ..interpreter import argument_binding, deferred_os_signals, keyboard_interrupts
from ..interpreter.bytecode_decoder import decode
from ..interpreter.complete_instruction import Answering
from ..interpreter.frame_layout import SlotLayout, take_apart
from ..interpreter.frames import UNBOUND, Frame
from ..interpreter.instruction_loop import Machine
from ..interpreter.tracebacks import TrailOfKinds
from ..segments import whole_call_contest
from ..segments.break_transition import cross
from ..segments.close_segment import autocast_nesting, close, restore_state
from ..segments.concretize_scalars import scrub
from ..segments.unrebuildable_object import Unrebuildable
from ..symbolic_sizes.dynamic_dimensions import OpenSizes, SymbolPlace, Wish, changed_sizes
from .break_signals import Late, Stop
from .crash_repro import write_failure
from .tracer import Tracer

MISS = object()
FAILED = object()
MOST_WAITING = 1024
"""So many calls at most run as plain Python before a place is traced again that other threads change meanwhile."""
MOST_CHANGES = 3
"""So often may Python in a graph return other tensors than before; from then on it breaks the graph."""


@dataclass
class Options:
    """What a compiled function was asked for."""

    backend: Callable
    backend_name: str = "burnish"
    runs_python: bool = True
    fullgraph: bool = False
    dynamic: bool | None = None
    stance: Callable[[], str] = lambda: "default"
    sinks: list = field(default_factory=list)  # explain and export listen here
    keeps_blocks: bool = False  # a block that is compiled by regions is a call in the graph: see block_calls


class Program:
    """One compiled function."""

    def __init__(self, function: FunctionType, options: Options, subject: Any = None):
        """``subject``: what the user compiled, where that is not ``function`` but something it calls."""
        self.function, self.options = function, options
        self.continuations: dict[Any, Continuation] = {}
        self.sizes: dict[int, dict[SymbolPlace, tuple[int, int]]] = {}  # that differed, by the continuation
        self.closed_sizes: dict[int, set[SymbolPlace]] = {}  # that were to be open, and decided something
        self.changing: set[tuple] = set()  # paths of numbers that differed between two runs
        self.keeps_assertions = True
        self.results_changed = 0  # of Python that graphs run as it is
        self.ran_compiled = False  # whether the last call ran a graph
        code = decode(function.__code__)
        frame = Frame(code, function.__globals__, function.__builtins__, [])  # type: ignore[attr-defined]
        self.code = code
        self.bind = make_binder(function)
        shown = code.co if subject is None else code_of(subject) or code.co
        location = breaks.Location(shown.co_filename, shown.co_firstlineno, shown.co_qualname)
        self.entry = Continuation(None, "entry", location)
        self.entry_globals, self.entry_builtins = frame.globals, frame.builtins

    def forget(self) -> None:
        """Drop everything compiled."""
        self.continuations, self.sizes, self.closed_sizes = {}, {}, {}
        self.entry = Continuation(None, "entry", self.entry.location)

    # ---- running

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(self.bind(self.function, args, kwargs), args, kwargs)

    def run(self, slots: list, args: tuple | None = None, kwargs: dict | None = None, takes_part: bool = True) -> Any:
        """With ``args`` and ``kwargs`` bound to ``slots``; without them the slots are the arguments. ``takes_part``: in
        the contest of whole calls, if there is one.

        The way to a graph and back is all here: where a model has run, nothing of this is in the processor's caches,
        and each function more costs the better part of a microsecond."""
        continuation = self.entry
        self.ran_compiled = False
        outcome: Any = None
        has_traced: set[Continuation] | None = None
        try:
            while True:
                segments = continuation.segments
                outcome = MISS
                for segment in segments if len(segments) < 2 else continuation.likeliest_first(segments):
                    found = segment.check(slots)
                    if found is None:
                        continue
                    if len(segments) > 1:
                        continuation.note(segment)
                    contest = segment.contest
                    if contest is not None and takes_part:
                        found = None
                        self.ran_compiled = True
                        if contest is EAGER_STAYS:
                            return self.function(*slots) if args is None else self.function(*args, **kwargs or {})
                        return contest(slots, args, kwargs)
                    inputs, values = found
                    outputs: Any = ()
                    if segment.call is not None:
                        nesting = drawn = None
                        if segment.looks_first:
                            if segment.reruns_watched and saving_is_watched():
                                return self.rerun(continuation, slots)
                            nesting = autocast_nesting()
                            drawn = torch.get_rng_state() if segment.draws else None
                        try:
                            outputs = segment.call(*inputs) if segment.on is None else segment.on(inputs)
                        except BaseException as error:
                            if not may_run_again(segment, nesting, error):
                                raise
                            if drawn is not None:
                                torch.set_rng_state(drawn)
                            outputs, failed = FAILED, (type(error), f"{type(error).__name__}: {error}")
                            if type(error) is ResultsChanged:
                                self.results_changed += 1
                                continuation.drop(segment)
                        if outputs is FAILED:
                            return self.rerun_failed(continuation, slots, segment, *failed)
                        self.ran_compiled = True
                    answer = segment.finish(values, outputs)
                    if segment.leads_to is None:
                        if continuation is not self.entry:
                            slots.clear()  # it may hold an error whose traceback holds this frame
                            found = values = None
                        return answer
                    outcome = segment.leads_to, answer
                    found = inputs = values = outputs = answer = None
                    break
                if outcome is MISS:
                    if has_traced is None:
                        has_traced = set()
                    if self.why_not_trace(continuation, slots) or not continuation.claim():
                        return self.run_eagerly(continuation, slots, args, kwargs)
                    try:
                        if continuation.segments is not segments:
                            continue  # another thread has traced from here just now
                        outcome, signal = self.trace(continuation, slots, has_traced)
                    finally:
                        continuation.let_go()
                    if signal is None:
                        return outcome.result
                else:
                    slots.clear()
                    layout, taken = outcome
                    following, made = cross(layout, taken, self.continuation_for)
                    if following is not None:
                        continuation, slots, outcome, taken, made = following, made, None, None, None
                        continue
                    outcome, made = made, None
                    taken.clear()
                    outcome.step()
                if outcome.frame is None:
                    return outcome.result
                layout, taken = take_apart(outcome.frame)
                machine, outcome = outcome, (layout, taken)  # where an interrupt finds the program from here on
                machine.let_go()
                machine = None
                # Only the slots hold what the program holds, so that what it drops goes at once.
                continuation, slots, outcome, taken = self.continuation_for(layout), taken, None, None
        except BaseException as error:
            if keyboard_interrupts.has_passed(error):
                raise
            interrupt = error
        try:
            return self.leave(continuation, slots, outcome, interrupt)
        finally:
            del interrupt  # its traceback holds this frame: together they would outlive what they hold

    def leave(self, continuation: Continuation, slots: list, outcome: Any, interrupt: BaseException) -> Any:
        """Raise ``interrupt``, which came while code of ours ran, in the program's frames; also the error of a graph
        that cannot be run again. The program's ``with torch.no_grad()`` is left as any other block."""
        frame = outcome.frame if isinstance(outcome, Machine) else None
        if type(outcome) is tuple:
            layout, taken = outcome
            frame = layout.build(taken)
        if frame is None and (outcome is None or outcome is MISS) and slots and continuation.layout is not None:
            frame = continuation.layout.build(slots)  # nothing outside has changed since the segment's start
        try:
            if frame is None:
                raise interrupt
            return keyboard_interrupts.raise_in(Machine(frame), interrupt)
        finally:
            del interrupt

    def rerun(self, continuation: Continuation, slots: list, met: set[type] | None = None) -> Any:
        """A recorded call raised, with this run's data. Nothing outside has changed yet: run from the segment's start
        as plain Python, so that the error is raised at its place, under the user's handlers. ``met``: to be given the
        classes of the errors that the program meets."""
        if continuation.layout is None:
            values = [*slots, *[UNBOUND] * (self.code.n_locals - len(slots))]
            frame = Frame(self.code, self.entry_globals, self.entry_builtins, values)
            at = self.code.n_locals - len(self.function.__closure__ or ())
            values[at:] = self.function.__closure__ or ()
        else:
            frame = continuation.layout.build(slots)
        machine = Machine(frame)
        if met is not None:
            machine.trail = TrailOfKinds(met)
        return keyboard_interrupts.run(machine)

    def rerun_failed(
        self, continuation: Continuation, slots: list, segment: Segment, kind: type[BaseException], text: str
    ) -> Any:
        """``rerun``. Where plain Python meets no such error, the graph is to blame, and given up in the end."""
        met: set[type[BaseException]] = set()
        result = self.rerun(continuation, slots, met)
        if kind is ResultsChanged or kind in met or segment not in continuation.segments:
            return result
        failing = Failing.of(segment)
        failing.in_a_row += 1
        if failing.in_a_row >= MOST_IN_A_ROW:
            continuation.drop(segment)
            self.give_up(
                continuation,
                f"a graph raised {text!r} in {MOST_IN_A_ROW} calls in a row, and plain Python did not",
                cause="internal",
            )
        return result

    def run_eagerly(self, continuation: Continuation, slots: list, args: tuple | None, kwargs: dict | None) -> Any:
        if continuation.layout is None:
            return self.function(*slots) if args is None else self.function(*args, **kwargs or {})
        machine = Machine(continuation.layout.build(slots))
        slots.clear()  # what the program lets go must not be kept alive here
        return keyboard_interrupts.run(machine)

    def continuation_for(self, layout: SlotLayout) -> Continuation:
        found = self.continuations.get(layout.key)
        if found is None:
            # What stands in for C code, as `max` of tensors, is nobody's line.
            theirs = [frame for frame in layout.frames if not frame.code.co.co_filename.startswith(OURS)]
            top = theirs[-1] if theirs else layout.frames[-1]
            line = top.code.lines[min(top.pc, len(top.code.lines) - 1)]
            location = breaks.Location(top.code.co.co_filename, line, top.code.co.co_qualname)
            found = self.continuations.setdefault(layout.key, Continuation(layout, f"after line {line}", location))
        return found

    # ---- tracing

    def why_not_trace(self, continuation: Continuation, slots: list) -> str | None:
        if user_modes():
            return "a torch function mode of the user is active, and it must see every call"
        if torch._C._len_torch_dispatch_stack():
            return "a torch dispatch mode is active, and it must see every operator"
        if continuation.given_up:
            return continuation.why_given_up
        if continuation.waits:
            continuation.waits -= 1
            return "other threads changed what the last traces of it read"
        stance = self.options.stance()
        if stance == "force_eager":
            return "stance is force_eager"
        if continuation.segments:
            if stance == "eager_on_recompile":
                return "stance is eager_on_recompile"
            if continuation.is_full(settings.current().segment_limit):
                self.give_up(
                    continuation,
                    f"{len(continuation.segments)} variants of it exist already (setting segment_limit) and this call "
                    f"is another: {last_difference(continuation, slots)}",
                    cause="limit",
                )
                return continuation.why_given_up
        return None

    def give_up(self, continuation: Continuation, why: str, is_told: bool = True, cause: str = "refused") -> None:
        continuation.given_up, continuation.why_given_up = True, why
        events.emit(
            "guards.given_up", text=f"{continuation.location}: runs eagerly from here, because {why}", fallback=cause
        )
        if is_told:
            warn(
                f"burnish: {continuation.location} runs eagerly from now on, because {why}. "
                f"Set BURNISH_SHOW=guards to see what changes between calls."
            )

    def explain_miss(self, continuation: Continuation, slots: list) -> None:
        if not continuation.segments:
            return
        fails = self.options.stance() == "fail_on_recompile"
        if not fails and not events.is_watched("guards.missed"):
            return
        failures = []
        for i, segment in enumerate(continuation.segments):
            failure = first_failure(segment.guards, slots)
            if failure is not None:
                failures.append((i, *failure))
        events.emit(
            "guards.missed", function=self.entry.location.function, location=continuation.location, failures=failures
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

    def trace(self, continuation: Continuation, slots: list, has_traced: set[Continuation]) -> tuple[Any, Any]:
        """Trace from ``continuation``; answers the machine after the segment (and the break's instruction).
        ``has_traced``: where else in this call."""
        warmup_status.goes_on()
        tracer = Tracer(None, self.options)  # type: ignore[arg-type]
        state, modes = (global_state(), autocast_nesting()), torch._C._len_torch_dispatch_stack()
        machine: Machine | None = None
        try:
            with pause_garbage_collection.paused() as resume, tracer.signals:
                segments = continuation.segments
                machine, signal = self.trace_on(tracer, continuation, slots, resume)
                if continuation.segments is not segments and continuation not in has_traced:
                    has_traced.add(continuation)
                    continuation.made_in += 1
                continuation.let_go()  # the instruction at the break may take its time
                tracer.release()  # and what the program drops there must not be kept alive
            if signal is not None:
                machine.step()
            return machine.as_plain(), signal
        except BaseException as error:
            if machine is None:
                keyboard_interrupts.drop_our_modes(tracer, modes)
            if machine is None and isinstance(error, BurnishError) and continuation.layout is None:
                restore_state(*state)  # the user's `with torch.no_grad()` around the break has not been left
                tracer.release()
                raise
            if machine is None:
                machine = self.plain_machine(tracer)
            tracer.release()
            if machine.frame is None or keyboard_interrupts.has_passed(error):
                raise
            interrupt = error
        machine = machine.as_plain()
        try:
            machine.result = keyboard_interrupts.raise_in(machine, interrupt)
        finally:
            del interrupt
        return machine, None

    def trace_on(
        self, tracer: Tracer, continuation: Continuation, slots: list, resume: Callable
    ) -> tuple[Machine, Any]:
        """``trace``, up to the break's instruction. ``resume``: to be called before other people's code."""
        settings.current()  # reads the environment the first time, which is when printing and dumping begin
        if self.options.backend.ahead is not None:
            self.options.backend.ahead()
        self.explain_miss(continuation, slots)
        started = time.perf_counter()
        for segment in continuation.segments:
            self.changing |= changed_numbers(segment.guards, slots)
        tracer.changing = frozenset(self.changing)
        tracer.keeps_assertions = self.keeps_assertions
        tracer.may_run_opaquely = self.results_changed < MOST_CHANGES
        tracer.open_sizes = self.open_sizes(tracer, continuation, slots)
        tracer.frame = self.start_frame(tracer, continuation, slots)
        try:
            signal = tracer.trace()
        except Exception as error:
            if deferred_os_signals.raised(error):
                raise
            return self.recover(tracer, continuation, error)
        seconds = time.perf_counter() - started
        events.emit(
            "traced",
            instructions=tracer.count,
            seconds=seconds,
            torch_seconds=tracer.recorder.seconds,
            calls=len(tracer.recorder.calls),
        )
        why = None
        at = tracer.frame
        is_lasting = not keyboard_interrupts.was_met(tracer, signal) and not self.was_raced(tracer, continuation)
        if signal is not None:
            if signal.kind is not None and is_lasting:
                why = breaks.Break(signal.kind, signal.what, tracer.user_stack())
            at.pc -= 1  # type: ignore[union-attr]  # the segment ends before the instruction
        if why is not None:
            events.emit("breaks", text=why.render(), break_=why)
            if self.options.fullgraph:
                raise Unsupported(why)
        if is_lasting:
            if self.options.backend.ahead is None:
                resume()  # another's compiler may need much time, and memory
            self.finish_trace(tracer, continuation, signal, at, why, started, slots)
        return self.after(tracer, signal, at)

    def was_raced(self, tracer: Tracer, continuation: Continuation) -> bool:
        """Whether another thread changed what the trace has read. The next call traces again; when that is lost as
        well, a later one: twice as many calls go by each time."""
        what = tracer.heap.raced
        if what is None:
            return False
        continuation.races += 1
        continuation.waits = min(2**continuation.races - 2, MOST_WAITING)
        events.emit(
            "guards.raced",
            text=f"{continuation.location}: {what} was changed by another thread while it was "
            f"traced; it is traced again after {continuation.waits} calls",
            fallback="raced",
        )
        return True

    def open_sizes(self, tracer: Tracer, continuation: Continuation, slots: list) -> OpenSizes | None:
        """What the trace is to leave open: sizes that changed between two calls, or all."""
        dynamic = self.options.dynamic
        if dynamic is False or not getattr(self.options.backend, "runs_python", False):
            return None
        values: dict[int, Any] = {}

        def read(source: Source) -> Any:
            try:
                return value_at(source, slots, values)
            except MISSING_ERRORS:
                return None

        known = self.sizes.setdefault(id(continuation), {})
        for segment in continuation.segments:
            known.update(changed_sizes(segment.guards, read))
        if not (known or dynamic or any(type(x) in TENSOR_TYPES and size_marks(x).open for x in slots)):
            return None
        closed = frozenset(self.closed_sizes.get(id(continuation), ()))
        return OpenSizes(tracer, Wish(known, bool(dynamic), closed))

    def finish_trace(
        self, tracer: Tracer, continuation: Continuation, signal: Any, at: Any, why: Any, started: float, slots: list
    ) -> None:
        traced = time.perf_counter()
        expected = {SymbolPlace(*at): sizes for at, sizes in growing(tracer).items()}
        if tracer.has_assertions and not self.options.fullgraph and tracer.recorder.written_inputs():
            self.keeps_assertions = False  # a graph that writes to its inputs cannot be run again to raise them
            return
        # With open sizes it serves another size than those before, and the next call may be the last.
        is_again = any(not segment.is_step or tracer.open_sizes is not None for segment in continuation.segments)
        try:
            segment = close(
                tracer,
                tracer.result,
                at if signal is not None else None,
                why,
                self.options.backend,
                slots if continuation.layout is None else None,
                is_again,
            )
        except Unrebuildable as error:
            if self.was_raced(tracer, continuation):
                return
            if self.options.fullgraph:
                raise Unsupported(breaks.Break(breaks.UNREBUILDABLE, str(error), tracer.user_stack())) from error
            self.give_up(continuation, str(error), is_told=False)
            return
        except BackendError:
            raise
        except Exception as error:
            if deferred_os_signals.raised(error):
                raise
            if settings.current().on_error == "raise":
                raise InternalError("closing a segment", f"{type(error).__name__}: {error}") from error
            self.give_up(continuation, of_failure(tracer, error), cause="internal")
            return
        if self.was_raced(tracer, continuation):  # while it was closed
            return
        continuation.races = 0
        if continuation is self.entry and signal is not None:
            whole_call_contest.begin(self, segment)
        continuation.add(segment)
        self.sizes.setdefault(id(continuation), {}).update(expected)
        if tracer.open_sizes is not None and tracer.open_sizes.symbols.settled:
            closed = self.closed_sizes.setdefault(id(continuation), set())
            closed.update(*(tracer.open_sizes.symbols.places[k] for k in tracer.open_sizes.symbols.settled))
        self.ran_compiled |= segment.graph is not None
        closed = time.perf_counter()
        for sink in self.options.sinks:
            sink(segment, {"trace": traced - started, "compile": closed - traced})
        events.emit(
            "segment",
            segment=segment,
            where=continuation.location,
            text=f"{continuation.location}: {len(tracer.heap.guards)} guards, {len(tracer.recorder.calls)} torch calls",
        )

    def after(self, tracer: Tracer, signal: Any, at: Any) -> tuple[Machine, Any]:
        """What executes the break's instruction, or holds the result."""
        if signal is None:
            machine = Machine(None)
            (machine.result,) = scrub(tracer, tracer.result, leaves=True)
            tracer.result = None
            return machine, None
        machine = self.plain_machine(tracer)
        if not isinstance(signal, Stop):
            (value,) = scrub(tracer, signal.value)
            machine = Answering(at, value, signal.error)
            machine.trail = tracer.trail
        return machine, signal

    def plain_machine(self, tracer: Tracer) -> Machine:
        """What goes on, as plain Python, where the trace stands."""
        at = frame = tracer.frame
        while frame is not None:
            scrub(tracer, frame)
            frame = frame.caller
        machine = Machine(at)
        machine.trail = tracer.trail
        return machine

    def recover(self, tracer: Tracer, continuation: Continuation, error: Exception) -> tuple[Machine, Any]:
        """An error of ours. What has run has run for real, so plain execution can go on from the same state."""
        if settings.current().on_error == "raise":
            raise InternalError("tracing", f"{type(error).__name__}: {error} at {tracer.user_line()}") from error
        self.give_up(continuation, of_failure(tracer, error), cause="internal")
        at = tracer.frame
        at.pc -= 1
        signal: Any = Stop(breaks.OPAQUE_OPCODE, "internal error")
        if tracer.answer is not None and tracer.answer[0] is at and tracer.answer[1] == at.pc + 1:
            signal = Late(None, "", value=tracer.answer[2])
        return self.after(tracer, signal, at)

    def start_frame(self, tracer: Tracer, continuation: Continuation, slots: list) -> Frame:
        """Frames with the slots' values, each value known to the tracer."""
        heap = tracer.heap
        if continuation.layout is None:
            values = []
            for i, value in enumerate(slots):
                source = heap.sources.slot(i, self.code.names[i])
                number = heap.changing_number(value, source)
                values.append(value if value is UNBOUND else heap.admit(value, source) if number is None else number)
            frame = Frame(
                self.code,
                self.entry_globals,
                self.entry_builtins,
                values + [UNBOUND] * (self.code.n_locals - len(values)),
            )
            tracer.enter(frame, self.function)
            return frame
        labels = continuation.layout.labels()
        values = [heap.admit(v, heap.sources.slot(i, labels[i]), is_slot=True) for i, v in enumerate(slots)]
        frame = continuation.layout.build(values)
        tracer.adopt_running_generators(frame)
        slots.clear()  # the frames hold them now, for as long as the program does
        return frame


def may_run_again(segment: Segment, nesting: Any, error: BaseException) -> bool:
    """Whether a graph that raised can be run as plain Python instead: what it wrote to its inputs is undone. Torch's
    switches are as they were before it."""
    restore_state(segment.state, nesting)
    if isinstance(error, BackendError):
        return False  # the user's backend broke its contract
    has_written = is_half_done(error) and type(error) is not ResultsChanged  # before which nothing is written
    if not isinstance(error, Exception) or has_written or saving_is_watched() or deferred_os_signals.raised(error):
        return False  # checkpointing stops a run so, in the hook that sees what autograd saves
    events.emit("graph.failed", text=f"{type(error).__name__}: {error}; run again as plain Python")
    return True


def user_modes() -> int:
    """Active torch function modes, but for the default device."""
    count = torch._C._len_torch_function_stack()
    if count and default_device() is not None:
        from torch.utils._device import DeviceContext

        count -= sum(isinstance(torch._C._get_function_stack_at(i), DeviceContext) for i in range(count))
    return count


def code_of(subject: Any) -> CodeType | None:
    """The code a user would point at for a callable: a module's forward, what a partial calls, an object's __call__."""
    while isinstance(subject, functools.partial):
        subject = subject.func
    if isinstance(subject, torch.nn.Module):
        subject = subject.forward
    if not isinstance(subject, (FunctionType, MethodType)):
        subject = getattr(type(subject), "__call__", None)  # noqa: B004  # the function is wanted, not whether it is there
    return getattr(subject, "__code__", None)


def last_difference(continuation: Continuation, slots: list) -> str:
    """Why the most recent segment does not serve these slots."""
    failure = first_failure(continuation.segments[0].guards, slots)
    return (
        "the cause is not known"
        if failure is None
        else (f"{failure.source} was {failure.expected} and is now {failure.found}")
    )


def of_failure(tracer: Tracer, error: Exception) -> str:
    place = write_failure(tracer, error)
    return f"of an error inside Burnish ({type(error).__name__}: {error}), which is ours to mend" + (
        f"; please report it with {place}" if place is not None else ""
    )


class Plain:
    """A reason that is only a text."""

    def __init__(self, text: str):
        self.text = text

    def render(self) -> str:
        return self.text


def make_binder(function: FunctionType) -> Callable:
    """``bind(function, args, kwargs)`` as straight as the signature allows."""
    co = function.__code__
    n = co.co_argcount
    if co.co_kwonlyargcount == 0 and not co.co_flags & 12:

        def bind_simple(fn: FunctionType, args: tuple, kwargs: dict) -> list:
            if not kwargs and len(args) == n:
                return list(args)
            return argument_binding.bind(fn, args, kwargs)

        return bind_simple
    return argument_binding.bind
