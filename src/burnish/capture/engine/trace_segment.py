"""Traces a segment from a continuation on the real values, closes it, and goes on with plain Python at the break."""

from __future__ import annotations

import collections
import dataclasses
import gc
import inspect
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ... import events, settings
from ...concurrency import own_builtins, pause_garbage_collection
from ...concurrency.outside_errors import reraise_from_outside
from ...errors import BackendError, BurnishError, InternalError, Unsupported
from ...foundation.torch_private import len_torch_dispatch_stack, set_torch_function_state
from ...frontend import torch_config, torch_errors
from ...frontend.marks import size_marks
from ...runtime.contest import compile_activity_counter
from ...runtime.segment_records import Continuation
from ...tensors.torch_state import autocast_nesting
from .. import breaks
from ..guards.arguments_of_eager_calls import EagerCallArguments, values_in
from ..guards.changing_numbers import changed_numbers, value_at
from ..guards.guards import MISSING_ERRORS
from ..guards.object_sources import Source
from ..guards.predict_growing_sizes import growing
from ..guards.tensor_metadata import TENSOR_TYPES, global_state, leave_dual_levels, restore_state
from ..interpreter import keyboard_interrupts
from ..interpreter.execute_with_given_result import CompletedInstruction, RaisedByCall
from ..interpreter.frames import UNBOUND, Frame, frames_from
from ..interpreter.instruction_loop import Machine
from ..python import marks_of_dynamo
from ..python.calls import inner_whole_graphs
from ..pytorch import function_modes, tensor_hooks_and_data, writes_of_calls
from ..segments.close_segment import close
from ..segments.concretize_scalars import FOR_A_TRACE, concretize, deep_recursion
from ..segments.shown_iterators import find_shown
from ..symbolic_sizes.dynamic_dimensions import (
    MOST_TRIES,
    MOST_TRIES_OF_PROGRAM,
    NUMBER,
    SymbolicSizeRequest,
    SymbolicSizes,
    SymbolPlace,
    count_tries,
)
from ..symbolic_sizes.user_names_of_sources import requests_for
from .break_signals import BreakAfterOperation, Stop, Unrebuildable
from .tracer import Tracer

if TYPE_CHECKING:
    from .engine import Program

MOST_WAITING = 1024
"""The most calls that run as plain Python before a place is traced again that other threads change."""


def trace_from(
    program: Program, continuation: Continuation, slots: list, has_traced: set[Continuation]
) -> Machine | None:
    """Trace from ``continuation``; returns the machine after the segment (and the break's instruction), or None if the
    trace could not begin, and the continuation was given up. ``has_traced``: the continuations traced in this call."""
    compile_activity_counter.count_step()
    tracer = Tracer(None, program.options)  # type: ignore[arg-type]
    state, modes = (global_state(), autocast_nesting()), len_torch_dispatch_stack()
    flag = marks_of_dynamo.breaks_are_errors()
    collects_garbage, is_tracing = gc.isenabled(), True
    machine: Machine | None = None
    try:
        with deep_recursion(FOR_A_TRACE), pause_garbage_collection.paused() as resume, tracer.signals:
            segments = continuation.segments
            machine, signal = trace_on(program, tracer, continuation, slots, resume)
            if continuation.segments is not segments and continuation not in has_traced:
                has_traced.add(continuation)
                continuation.made_in += 1
            continuation.let_go()  # the instruction at the break may take its time
            tracer.release()  # objects that the program drops there must not be kept alive
        is_tracing = False
        if machine is None:
            return None
        if signal is not None:
            machine.step()
        return machine.as_plain()
    except BaseException as error:
        if is_tracing:  # an error of another thread may have come while the blocks above were entered or left
            tracer.signals.end()
            if collects_garbage:
                gc.enable()
        if machine is None:
            keyboard_interrupts.drop_our_modes(tracer, modes)
        if machine is None and isinstance(error, BurnishError) and continuation.layout is None:
            if isinstance(error, Unsupported) and tracer.frame is not None:
                continuation.let_go()  # blocks of the program may call it
                keyboard_interrupts.leave_blocks(program, plain_machine(tracer), error)
            marks_of_dynamo.restore_flag(flag)
            set_torch_function_state(tracer.rules_at_start)
            leave_dual_levels()
            restore_state(*state)  # the user's `with torch.no_grad()` around the break has not been left
            tracer.release()
            raise
        if machine is None:
            machine = plain_machine(tracer)
        tracer.release()
        if machine.frame is None or keyboard_interrupts.has_passed(error):
            raise
        interrupt = error
    machine = machine.as_plain()
    try:
        machine.result = keyboard_interrupts.raise_in(machine, interrupt)
    finally:
        del interrupt
    return machine


def trace_on(
    program: Program, tracer: Tracer, continuation: Continuation, slots: list, resume: Callable
) -> tuple[Machine | None, Any]:
    """``trace_from``, up to the break's instruction. ``resume`` is called before a foreign backend."""
    settings.current()  # reads the environment the first time, which is when printing and dumping begin
    if program.options.backend.ahead is not None:
        program.options.backend.ahead()
    program.explain_miss(continuation, slots)
    marks_of_dynamo.adopt_substitutes()
    tracer.unwanted = marks_of_dynamo.functions_to_ignore()
    started = time.perf_counter()
    numbers: dict[tuple, tuple[Any, Any]] = {}
    for segment in continuation.segments:
        numbers |= changed_numbers(segment.guards, slots)
    program.changing |= numbers
    if program.first_call is not None and continuation is program.entry:
        program.changing |= program.first_call.changed_numbers(EagerCallArguments(slots))
    tracer.changing, tracer.go_on = frozenset(program.changing), machine_after_break
    tracer.left = program.balance.shown
    tracer.earlier_segments = len(continuation.segments)
    tracer.capabilities = dataclasses.replace(program.capabilities)
    tracer.subclasses.native.update(program.capabilities.native_rules)
    tracer.symbolic_sizes = choose_symbolic_sizes(program, tracer, continuation, slots, numbers)
    tracer.ends_before = continuation.ends_before
    try:
        with deep_recursion():
            tracer.frame = program.start_frame(tracer, continuation, slots)
        signal = tracer.trace()
    except Exception as error:
        reraise_from_outside(error)
        return program.recover(tracer, continuation, error)
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
    is_lasting = not keyboard_interrupts.was_met(tracer, signal) and not was_raced(tracer, continuation)
    if signal is not None:
        if signal.kind is not None and is_lasting:
            why = breaks.Break(signal.kind, signal.what, tracer.user_stack())
        at.pc -= 1  # type: ignore[union-attr]  # the segment ends before the instruction
        tracer.heap.shown = find_shown(tracer, at)
    if why is not None:
        events.emit("breaks", text=why.render(), break_=why)
        if program.options.fullgraph or marks_of_dynamo.breaks_are_errors():
            raise of_break(tracer, why, signal)
        inner = program.capabilities.inner_whole_graphs.outermost(tracer)
        if inner is not None and getattr(signal, "error", None) is None:
            return break_inside(tracer, why, signal, *inner)
    if function_modes.is_inside_block(tracer):
        program.capabilities.enters_modes = False
    elif is_lasting:
        if program.options.backend.ahead is None:
            resume()  # a foreign compiler may need much time and memory
        program.finish_trace(tracer, continuation, signal, at, why, started, slots)
        program.balance.note(program, tracer, continuation, None if signal is None else at)
    return machine_after_break(tracer, signal, at)


def break_inside(
    tracer: Tracer, why: breaks.Break, signal: Stop | BreakAfterOperation, first: Frame, inner: Program
) -> tuple[Machine | None, Any]:
    """A break in a function that was compiled with ``fullgraph=True``, whose frames begin with ``first``. No segment
    ends here: the next trace ends before the call."""
    tracer.capabilities.inner_whole_graphs.broken[inner] = why
    if why.kind not in inner_whole_graphs.ALWAYS or first.caller is None or first.generator is not None:
        return machine_after_break(tracer, signal, tracer.frame)
    error = of_break(tracer, why, signal)
    machine = plain_machine(tracer)
    tracer.frame, first.caller = first.caller, None
    keyboard_interrupts.leave_blocks(inner, machine, error)
    return RaisedByCall(tracer.frame, error), signal


def of_break(tracer: Tracer, why: breaks.Break, signal: Stop | BreakAfterOperation) -> Exception:
    """The error of a break where one graph was demanded. If the break is an error of a torch operation that nothing in
    the program can handle, it is that error, as in eager, and otherwise an instance of its class, too."""
    error = getattr(signal, "error", None)
    if not isinstance(error, Exception):
        return torch_errors.made("Unsupported", why)
    if not tracer.will_be_handled(error):
        error.add_note(why.render())
        return error
    made = torch_errors.made("Unsupported", why, also=type(error))
    made.__cause__ = error
    return made


def was_raced(tracer: Tracer, continuation: Continuation) -> bool:
    """Whether another thread changed state that the trace has read, or the stack had too little room for the trace. A
    later call traces again: the number of calls until then doubles each time."""
    what = tracer.heap.raced
    if tracer.is_short_of_stack:
        why = "the stack had no room left"
    elif replaced := own_builtins.replaced():
        why = f"builtins.{replaced[0]} was replaced"
    elif what is None or tracer.heap.dropped is not None:  # the end of an object ran code of this thread
        return False
    else:
        why = f"{what} was changed by another thread"
    continuation.races += 1
    continuation.waits = min(2**continuation.races - 2, MOST_WAITING)
    if tracer.frame is None and tracer.is_short_of_stack:
        continuation.waits += 1  # this call, which has not begun
    events.emit(
        "guards.raced",
        text=f"{continuation.location}: {why} while it was traced; it is traced again after {continuation.waits} calls",
        fallback="raced",
    )
    return True


def is_of_stack(tracer: Tracer, error: BaseException | None) -> bool:
    """Whether an error of ours says no more than that this call was made at a great depth."""
    while error is not None and not isinstance(error, RecursionError):
        error = error.__cause__
    tracer.is_short_of_stack |= error is not None
    return tracer.is_short_of_stack


def choose_symbolic_sizes(
    program: Program, tracer: Tracer, continuation: Continuation, slots: list, numbers: Mapping[tuple, tuple[Any, Any]]
) -> SymbolicSizes | None:
    """The sizes that are symbolic in the trace: those that changed between two calls, or all. ``numbers``: those that
    differ from what the segments of the continuation expect, by their paths."""
    dynamic = program.options.dynamic
    said = requests_for(program.options.sizes, program.function, program.subject)
    if dynamic is None and torch_config.dynamo("assume_static_by_default", True) is False and said.spec is None:
        dynamic = True
    if dynamic:
        said = dataclasses.replace(said, takes_numbers=True)
    tracer.size_requests = said or None
    if dynamic is False and not said:
        return None
    values: dict[int, Any] = {}

    def read(source: Source) -> Any:
        try:
            return value_at(source, slots, values, {})
        except MISSING_ERRORS:
            return None

    known = program.sizes.setdefault(id(continuation), {})
    if dynamic is not False and torch_config.dynamo("automatic_dynamic_shapes", True):
        from ..symbolic_sizes.changed_sizes import changed_sizes

        for segment in continuation.segments:
            known.update(changed_sizes(segment.guards, read))
        known.update({SymbolPlace(path, NUMBER): both for path, both in numbers.items() if type(both[1]) is int})
        if program.first_call is not None and continuation is program.entry:
            changes = program.first_call.changed_sizes(EagerCallArguments(slots))
            known.update({SymbolPlace(*place): sizes for place, sizes in changes.items()})
    moved = {}
    if dynamic is not False and said.spec is None and torch_config.dynamo("automatic_dynamic_shapes", True):
        moved = {path: values for path, values in program.changing.items() if type(values[1]) is int}
    is_asked = dynamic or said or any(type(x) in TENSOR_TYPES and size_marks(x).open for x in values_in(slots))
    if not (known or moved or is_asked):
        return None
    is_of_numbers = not is_asked and all(place.dim == NUMBER for place in known)
    tries = program.specialized_sizes.get(id(continuation), {})
    most = MOST_TRIES if program.tried_again < MOST_TRIES_OF_PROGRAM else 1
    specialized = frozenset(place for place, times in tries.items() if times >= most)
    return SymbolicSizes(tracer, SymbolicSizeRequest(known, bool(dynamic), specialized, moved, said, is_of_numbers))


def is_traced_otherwise(program: Program, tracer: Tracer, continuation: Continuation) -> bool:
    """Whether the trace is not kept, because what it met makes the next one end earlier, or record something else."""
    if tracer.hooked_late is not None and tracer.hooked_late < (continuation.ends_before or sys.maxsize):
        continuation.ends_before = tracer.hooked_late
        return True
    if not program.options.fullgraph and tensor_hooks_and_data.may_fail_after_assignment(tracer):
        if tracer.has_assertions:
            program.capabilities.keeps_assertions = False
        else:
            program.capabilities.assigns_data = False
        return True
    if (
        tracer.has_assertions
        and not program.options.fullgraph
        and writes_of_calls.writes_before_assertion(tracer.recorder)
    ):
        # A graph that has written to its inputs cannot be run again to raise them.
        program.capabilities.keeps_assertions = False
        return True
    return False


def finish_trace(
    program: Program,
    tracer: Tracer,
    continuation: Continuation,
    signal: Any,
    at: Any,
    why: Any,
    started: float,
    slots: list,
) -> None:
    traced = time.perf_counter()
    expected = {SymbolPlace(*at): sizes for at, sizes in growing(tracer).items()}
    is_partial = any(kind not in program.capabilities.native_rules for kind in tracer.subclasses.native)
    if is_partial:
        # Its guards are on what the interpreted part of a rule has read. If they fail already, as after a counter, it
        # is not kept. The next trace leaves the rule to the graph.
        program.capabilities.native_rules.update(tracer.subclasses.native)
        if continuation.layout is not None:
            return
    if is_traced_otherwise(program, tracer, continuation):
        return
    has_symbols = tracer.symbolic_sizes is not None and bool(tracer.symbolic_sizes.symbols.hints)
    # With symbolic sizes it serves a size that differs from those before, and the next call may be the last.
    is_again = any(not segment.is_step or has_symbols for segment in continuation.segments)
    try:
        segment = close(
            tracer,
            tracer.result,
            at if signal is not None else None,
            why,
            program.options.backend,
            slots if continuation.layout is None else None,
            is_again,
        )
    except Unrebuildable as error:
        tracer.heap.guards.clear()  # no segment has them, and they hold classes that the program may drop
        if was_raced(tracer, continuation) or is_partial:
            return
        if can_do_without(program, tracer):
            return
        if program.options.fullgraph:
            unrebuildable = breaks.Break(breaks.UNREBUILDABLE, str(error), tracer.user_stack())
            raise torch_errors.made("Unsupported", unrebuildable) from error
        program.give_up(continuation, str(error), is_told=False)
        return
    except BackendError:
        raise
    except Exception as error:
        reraise_from_outside(error)
        if is_of_stack(tracer, error) and was_raced(tracer, continuation):
            return
        if settings.current().on_error == "raise":
            raise InternalError("closing a segment", f"{type(error).__name__}: {error}") from error
        program.give_up(continuation, of_failure(tracer, error), cause="internal")
        return
    if was_raced(tracer, continuation) or is_partial and segment.is_step:  # while it was closed
        return
    continuation.races = 0
    if continuation is program.entry and signal is not None:
        program.begin_contest(segment)
    continuation.add(segment)
    program.sizes.setdefault(id(continuation), {}).update(expected)
    if tracer.symbolic_sizes is not None and tracer.symbolic_sizes.symbols.settled:
        tries = program.specialized_sizes.setdefault(id(continuation), collections.Counter())
        program.tried_again += count_tries(tries, tracer.symbolic_sizes.symbols)
    program.ran_compiled |= segment.graph is not None
    closed = time.perf_counter()
    for sink in program.options.sinks:
        sink(segment, {"trace": traced - started, "compile": closed - traced})
    events.emit(
        "segment",
        segment=segment,
        where=continuation.location,
        function=program.entry.location,
        text=f"{continuation.location}: {len(tracer.heap.guards)} guards, {len(tracer.recorder.calls)} torch calls",
    )


def can_do_without(program: Program, tracer: Tracer) -> bool:
    """Whether the next trace leaves out what may be why this one cannot become a segment."""
    if tracer.cached_answers is not None and tracer.cached_answers.refused:
        program.capabilities.called_as_is |= tracer.cached_answers.refused
        return True
    if program.options.fullgraph:
        return False
    if program.capabilities.sees_unused_outputs and any(not hook.runs_in_backward for hook in tracer.traced_hooks):
        program.capabilities.sees_unused_outputs = False  # more than one output has gradients
        return True
    if (tracer.recorder.kept or tracer.traced_hooks) and program.capabilities.keeps_functions:
        program.capabilities.keeps_functions = False  # one has left, or changed: the next trace ends before it is made
        return True
    if tracer.has_classes and program.capabilities.keeps_classes:
        program.capabilities.keeps_classes = False  # so it is of a class
        return True
    return False


def machine_after_break(tracer: Tracer, signal: Any, at: Any) -> tuple[Machine, Any]:
    """The machine that executes the break's instruction, or holds the result."""
    if signal is None:
        machine = Machine(None)
        function_modes.enter_in_torch(tracer)
        (machine.result,) = concretize(tracer, tracer.result, leaves=True)
        tracer.result = None
        return machine, None
    machine = plain_machine(tracer)
    if not isinstance(signal, Stop):
        (value,) = concretize(tracer, signal.value)
        machine = CompletedInstruction(at, value, signal.error)
        machine.trail = tracer.trail
    return machine, signal


def plain_machine(tracer: Tracer) -> Machine:
    """A machine that continues as plain Python at the present instruction of the trace."""
    concretize(tracer, *frames_from(tracer.frame))
    function_modes.enter_in_torch(tracer)
    machine = Machine(tracer.frame)
    machine.trail = tracer.trail
    return machine


def recover(
    program: Program, tracer: Tracer, continuation: Continuation, error: Exception
) -> tuple[Machine | None, Any]:
    """After an internal error. Effects so far are real, so plain execution continues from the same state."""
    if is_of_stack(tracer, error):
        was_raced(tracer, continuation)
    elif settings.current().on_error == "raise":
        raise InternalError("tracing", f"{type(error).__name__}: {error} at {tracer.user_line()}") from error
    else:
        program.give_up(continuation, of_failure(tracer, error), cause="internal")
    at = tracer.frame
    if at is None:  # nothing has run yet
        return None, None
    at.pc -= 1
    signal: Any = Stop(breaks.OPAQUE_OPCODE, "internal error")
    if tracer.answer is not None and tracer.answer[0] is at and tracer.answer[1] == at.pc + 1:
        signal = BreakAfterOperation(None, "", value=tracer.answer[2])
    return machine_after_break(tracer, signal, at)


def start_frame(program: Program, tracer: Tracer, continuation: Continuation, slots: list) -> Frame:
    """Frames with the slots' values, each value known to the tracer."""
    heap = tracer.heap
    if continuation.layout is None:
        if program.function.__code__ is not program.code.co:
            program.read_code()
        values = []
        heap.arguments = program.code.args_total - bool(program.code.co.co_flags & inspect.CO_VARKEYWORDS)
        for i, value in enumerate(slots):
            source = heap.sources.slot(i, program.code.names[i])
            number = heap.changing_number(value, source)
            values.append(value if value is UNBOUND else heap.admit(value, source) if number is None else number)
        frame = Frame(
            program.code,
            program.entry_globals,
            program.entry_builtins,
            values + [UNBOUND] * (program.code.n_locals - len(values)),
        )
        tracer.enter(frame, program.function)
        return frame
    labels = continuation.layout.labels()
    values = [heap.admit_slot(v, heap.sources.slot(i, labels[i])) for i, v in enumerate(slots)]
    frame = continuation.layout.build(values)
    tracer.adopt_running_generators(frame)
    slots.clear()  # the frames hold them now, for as long as the program does
    return frame


def of_failure(tracer: Tracer, error: Exception) -> str:
    from .crash_repro import write_failure

    place = write_failure(tracer, error)
    return f"of an error inside Burnish ({type(error).__name__}: {error}), which is ours to mend" + (
        f"; please report it with {place}" if place is not None else ""
    )
