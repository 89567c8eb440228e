"""The engine: dispatches a call to the segment whose guards hold, and recompiles if none do.

    look up a segment whose guards hold -> run it -> follow its exit, until return
    none holds -> trace from here on the real values, which also computes the result of this very run

The plain machine executes a break's instruction in both cases. Its result determines the next continuation.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from sys import getprofile
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch

from ... import events
from ...backends.registry import lookup
from ...concurrency.outside_errors import came_from_outside
from ...errors import BackendError
from ...runtime.give_up_failing_graphs import MOST_IN_A_ROW, Failing
from ...runtime.program.autograd_function import saving_is_watched
from ...runtime.program.restore_inputs_on_error import is_half_done
from ...runtime.segment_records import EAGER_STAYS, Continuation, ResultsChanged, Segment
from ...tensors.torch_state import autocast_nesting
from .. import breaks
from ..guards.arguments_of_eager_calls import EagerCallArguments
from ..guards.tensor_metadata import restore_state
from ..interpreter import argument_binding, keyboard_interrupts
from ..interpreter.bytecode_decoder import decode
from ..interpreter.decoded_code import Code
from ..interpreter.frames import UNBOUND, Frame
from ..interpreter.frames_to_slots import SlotLayout, take_apart
from ..interpreter.instruction_loop import Machine
from ..interpreter.tracebacks import TrailOfKinds
from ..segments.break_transitions import apply_transition, sees_further_calls
from ..segments.leave_to_python import CaptureBalance
from ..symbolic_sizes.dynamic_dimensions import SymbolPlace
from . import recompile_decisions, trace_segment
from .program_options import Options
from .trace_capabilities import TraceCapabilities
from .trace_segment import trace_from

MISS = object()
FAILED = object()


class Program:
    """One compiled function."""

    modules = 1  # how many modules share this program

    # Exports and regions of a model change these.
    why_not_trace = recompile_decisions.why_not_trace
    explain_miss = recompile_decisions.explain_miss
    give_up = staticmethod(recompile_decisions.give_up)
    start_frame = trace_segment.start_frame
    finish_trace = trace_segment.finish_trace
    recover = trace_segment.recover

    def __init__(self, function: FunctionType, options: Options, subject: Any = None):
        """``subject``: what the user compiled, if that is not ``function`` but something that it calls."""
        self.function, self.options, self.subject = function, options, subject
        self.continuations: dict[Any, Continuation] = {}
        self.sizes: dict[int, dict[SymbolPlace, tuple[int, int]]] = {}  # that differed, by continuation
        self.specialized_sizes: dict[int, Counter[SymbolPlace]] = {}  # by how many traces
        self.tried_again = 0  # how many traces have specialized a size that one before has
        self.changing: dict[tuple, Any] = {}  # by path, numbers that differed between two runs: before, and now
        self.capabilities = TraceCapabilities()
        self.balance = CaptureBalance()
        self.ran_compiled = False  # whether the last call ran a graph
        self.first_call: EagerCallArguments | None = None  # one that ran as plain Python, because of a stance
        self.others: dict[Any, Program] = {}  # by backend: see ``with_backend``
        code = self.read_code()
        frame = Frame(code, function.__globals__, function.__builtins__, [])  # type: ignore[attr-defined]
        shown = code.co if subject is None else code_of(subject) or code.co
        location = breaks.Location(shown.co_filename, shown.co_firstlineno, options.name or shown.co_qualname)
        self.entry = Continuation(None, "entry", location)
        self.entry_globals, self.entry_builtins = frame.globals, frame.builtins

    def read_code(self) -> Code:
        """The code of the function, which a program may replace, and how its arguments are bound."""
        self.code = decode(self.function.__code__)
        self.bind = make_binder(self.function)
        return self.code

    def forget(self) -> None:
        """Drop everything compiled."""
        self.continuations, self.sizes, self.specialized_sizes, self.tried_again = {}, {}, {}, 0
        self.entry = Continuation(None, "entry", self.entry.location)
        self.first_call, self.others, self.balance = None, {}, CaptureBalance()

    def parameter_named(self, source: str) -> str:
        """`batch[0]` for `args[0][0]`, in messages: anything but a function is called through a function of ours."""
        found = re.match(r"args\[(\d+)\]", source)
        code = code_of(self.subject) if found and not isinstance(self.subject, functools.partial) else None
        if found is None or code is None:
            return source
        names = code.co_varnames[not isinstance(self.subject, FunctionType) : code.co_argcount]  # without `self`
        return names[int(found[1])] + source[found.end() :] if int(found[1]) < len(names) else source

    def with_backend(self, backend: Any) -> Program:
        """The same program with another backend, which a stance names."""
        chosen = lookup(backend)
        found = self.others.get((chosen.name, chosen.fn))
        if found is None:
            options = replace(
                self.options,
                backend=chosen,
                backend_name=chosen.name,
                runs_python=chosen.runs_python,
                keeps_blocks=False,
            )
            found = self.others[chosen.name, chosen.fn] = Program(self.function, options, self.subject)
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> Program:
        return self  # as functions do: a wrapper's attributes may hold a program

    # ---- running

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.run(self.bind(self.function, args, kwargs), args, kwargs)

    def run(self, slots: list, args: tuple | None = None, kwargs: dict | None = None, takes_part: bool = True) -> Any:
        """With ``args`` and ``kwargs`` bound to ``slots``; without them the slots are the arguments. ``takes_part``: in
        the contest of whole calls, if there is one.

        The whole path to a graph and back is in this function. After a model has run, none of this code is in the
        processor's caches, and each further function costs almost a microsecond."""
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
                        return (
                            contest(slots, args, kwargs)
                            if contest is not EAGER_STAYS
                            else self.function(*slots)
                            if args is None
                            else self.function(*args, **kwargs or {})
                        )
                    inputs, values = found
                    outputs: Any = ()
                    if segment.call is not None:
                        if segment.looks_first and segment.reruns_watched and saving_is_watched():
                            return self.rerun(continuation, slots)
                        nesting, drawn = state_before(segment) if segment.looks_first else (None, None)
                        try:
                            outputs = (
                                segment.call(*inputs)
                                if segment.call_with_tuple is None
                                else segment.call_with_tuple(inputs)
                            )
                        except BaseException as error:
                            if not may_run_again(segment, nesting, error):
                                raise
                            outputs, failed = FAILED, self.note_failure(continuation, segment, drawn, error)
                        if outputs is FAILED:
                            return self.rerun_failed(continuation, slots, segment, *failed)
                        self.ran_compiled = True
                    answer = segment.finish(values, outputs)
                    if segment.leads_to is None:
                        if continuation is not self.entry:
                            slots.clear()  # they may hold an error whose traceback holds this frame
                            found = values = None
                        return answer
                    outcome = segment.leads_to, answer
                    found = inputs = values = outputs = answer = None
                    break
                was_profiled = getprofile() is not None
                if outcome is MISS:
                    has_traced = has_traced or set()
                    if self.why_not_trace(continuation, slots) or not continuation.claim():
                        return self.run_eagerly(continuation, slots, args, kwargs)
                    try:
                        is_new = continuation.segments is segments  # otherwise another thread has just traced
                        outcome = trace_from(self, continuation, slots, has_traced) if is_new else None
                        if outcome is None:
                            continue
                    finally:
                        continuation.let_go()
                else:
                    slots.clear()
                    layout, taken = outcome
                    following, made = apply_transition(layout, taken, self.continuation_for)
                    if following is not None:
                        continuation, slots, outcome, taken, made = following, made, None, None, None
                        continue
                    outcome, made = made, None
                    taken.clear()
                    outcome.step()
                outcome = self.balance.plain(outcome)
                self.balance.finish(outcome)
                if outcome.frame is None or sees_further_calls(was_profiled):
                    return outcome.result if outcome.frame is None else keyboard_interrupts.run(outcome.as_plain())
                layout, taken = take_apart(outcome.frame)
                machine, outcome = outcome, (layout, taken)  # an interrupt finds the program here from now on
                machine.let_go()
                machine = None
                # Only the slots hold the program's objects, so that a dropped one is destroyed at once.
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
        """Raise ``interrupt``, which arrived in our code, in the program's frames; also the error of a graph that
        cannot be run again. The program's ``with torch.no_grad()`` is left like any other block."""
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
        as plain Python, so that the error is raised at its place, under the user's handlers. ``met`` receives the
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

    def note_failure(
        self, continuation: Continuation, segment: Segment, drawn: torch.Tensor | None, error: BaseException
    ) -> tuple[type[BaseException], str]:
        """The error of a graph that is run again as plain Python, which draws the same random numbers: its class and
        text."""
        if drawn is not None:
            torch.set_rng_state(drawn)
        if type(error) is ResultsChanged:
            self.capabilities.results_changed += 1
            continuation.drop(segment)
        return type(error), f"{type(error).__name__}: {error}"

    def rerun_failed(
        self, continuation: Continuation, slots: list, segment: Segment, kind: type[BaseException], text: str
    ) -> Any:
        """``rerun``. If plain Python does not raise the error, the graph is at fault; after several it is given up."""
        met: set[type[BaseException]] = set()
        result = self.rerun(continuation, slots, met)
        if kind is ResultsChanged or kind in met or segment not in continuation.segments:
            return result
        failing = Failing.of(segment)
        failing.in_a_row += 1
        events.emit("runtime.failed", text=f"a graph raised {text!r}, and plain Python did not")
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
        slots.clear()  # objects that the program drops must not be kept alive here
        return keyboard_interrupts.run(machine)

    def begin_contest(self, segment: Segment) -> None:
        """Calls that begin with this segment take part in a contest with plain Python."""
        from ..segments import begin_whole_call_contest  # where there is a break

        begin_whole_call_contest.begin(self, segment)

    def continuation_for(self, layout: SlotLayout) -> Continuation:
        found = self.continuations.get(layout.key)
        if found is None:
            # A polyfill of C code, such as `max` of tensors, is not a line of the user.
            theirs = [frame for frame in layout.frames if not frame.code.is_ours]
            top = theirs[-1] if theirs else layout.frames[-1]
            line = top.code.lines[min(top.pc, len(top.code.lines) - 1)]
            location = breaks.Location(top.code.co.co_filename, line, top.code.co.co_qualname)
            found = self.continuations.setdefault(layout.key, Continuation(layout, f"after line {line}", location))
        return found


def state_before(segment: Segment) -> tuple[Any, torch.Tensor | None]:
    """What must be as it was before the graph, should plain Python run instead: autocast, and random numbers."""
    return autocast_nesting(), torch.get_rng_state() if segment.draws else None


def may_run_again(segment: Segment, nesting: Any, error: BaseException) -> bool:
    """Whether plain Python can replace a graph that raised: its writes to inputs are undone. Restores torch's
    switches."""
    restore_state(segment.state, nesting)
    if isinstance(error, BackendError):
        return False  # the user's backend broke its contract
    has_written = is_half_done(error) and type(error) is not ResultsChanged  # before which nothing is written
    if not isinstance(error, Exception) or has_written or saving_is_watched() or came_from_outside(error):
        return False  # checkpointing ends a run with an error in its saved-tensor hook
    events.emit("graph.failed", text=f"{type(error).__name__}: {error}; run again as plain Python")
    return True


def code_of(subject: Any) -> CodeType | None:
    """The code that the user wrote for a callable: a module's forward, a partial's function, an object's __call__."""
    while isinstance(subject, functools.partial):
        subject = subject.func
    if isinstance(subject, torch.nn.Module):
        subject = subject.forward
    if not isinstance(subject, (FunctionType, MethodType)):
        subject = getattr(type(subject), "__call__", None)  # noqa: B004  # the function is wanted, not whether it is there
    return getattr(subject, "__code__", None)


def make_binder(function: FunctionType) -> Callable:
    """``bind(function, args, kwargs)``, as direct as the signature allows."""
    co = function.__code__
    n = co.co_argcount
    if co.co_kwonlyargcount == 0 and not co.co_flags & 12:

        def bind_simple(fn: FunctionType, args: tuple, kwargs: dict) -> list:
            if not kwargs and len(args) == n and fn.__code__ is co:
                return list(args)
            return argument_binding.bind(fn, args, kwargs)

        return bind_simple
    return argument_binding.bind
