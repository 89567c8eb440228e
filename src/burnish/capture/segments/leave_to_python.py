"""Decides which code is left to Python: capturing it costs much, and its graphs cannot win that back.

Between ``engine.trace_segment``, which asks after each trace, and the loop of ``engine``. Each trace that a break ends
is entered in the accounts of the code on its stack. A function whose breaks outweigh its torch calls is left: calls of
it are a break of their own (B502), and nothing in it is traced any more. If that holds for all code of a program, the
whole program runs as plain Python.

    balance = program.balance
    balance.note(program, tracer, start, frame)     after a trace from a continuation, that ends in ``frame``
    balance.left                             {code of noise(): "noise, whose 8 breaks were between 3 torch calls"}
    balance.why_all_left                     why the whole program is left, or None

What counts are breaks and torch calls, never time: each run of a program decides the same. A segment costs some
milliseconds to capture and some microseconds in each call; a torch call in it saves about one. The more breaks there
are, the more torch calls each must have between them: 8 breaks two each, 40 breaks ten.
"""

from __future__ import annotations

from collections import Counter
from types import CodeType, MappingProxyType
from typing import Any

import torch

from ... import events
from ...runtime.segment_records import Continuation
from ..engine.interpreted_or_native import STDLIB, is_trusted
from ..guards.tensor_metadata import TENSOR_TYPES
from ..interpreter import frames as fr
from ..interpreter.frames import Frame, frames_from
from ..interpreter.instruction_loop import Machine

LEAST_IN_FUNCTION = 8
LEAST_IN_PROGRAM = 24
"""Fewer breaks leave nothing to Python."""

BREAKS_FOR_A_CALL = 4
"""After this many breaks, each must have one torch call; after twice as many, two."""

VARIANTS_OF_A_BREAK = 4
"""So many traces from one break to another count as one: calls and rounds of a loop that differ."""

ELEMENTS_OF_A_CALL = 1 << 14
"""A torch call on so many elements counts twice: they take about as long as the call itself."""

VARIANTS_OF_PYTHON = 3
MUCH_PYTHON = 20_000
PYTHON_FOR_A_CALL = 500
"""If the traces from one place, made by at least three calls, have so many instructions, and so many for each torch
call, then a call that is another case again is not traced. A layer of a model has about a hundred for each."""

LARGE_GRAPH = 20
"""Code with so many torch calls between two breaks is a model, or calls one, and is never left."""

NOTHING: Counter[str] = Counter()

CALLS_ANYTHING = frozenset(("contextlib", "functools"))
"""Modules of the standard library whose functions wrap those of the program. A wrapper is never left: it has the same
code whatever it wraps."""


class Account:
    """Of one code object: how often it was called in traces, the breaks inside, and the torch calls inside."""

    __slots__ = ("breaks", "calls", "entered", "has_large_graph", "work")

    def __init__(self) -> None:
        self.breaks = self.calls = self.entered = self.work = 0
        self.has_large_graph = False

    def add(self, calls: int, scale: int) -> None:
        self.has_large_graph |= calls >= LARGE_GRAPH
        self.calls += calls
        self.work += calls * scale

    def without(self, other: Account) -> None:
        self.breaks = max(0, self.breaks - other.breaks)
        self.calls, self.work = max(0, self.calls - other.calls), max(0, self.work - other.work)

    def cannot_pay(self, least: int) -> bool:
        return not self.has_large_graph and self.breaks >= least and self.breaks**2 > BREAKS_FOR_A_CALL * self.work

    def __str__(self) -> str:
        return f"{self.breaks} breaks were between {self.calls} torch calls"


class CaptureBalance:
    """Of one program."""

    def __init__(self) -> None:
        self.accounts: dict[CodeType, Account] = {}
        self.total = Account()
        self.ways: Counter[Any] = Counter()  # from break to break: how often each was traced
        self.spent: dict[Any, Counter[str]] = {}  # on all traces from a place, by the key of its layout
        self.left: dict[CodeType, str] = {}
        self.shown = MappingProxyType(self.left)  # a trace that is released clears its dictionaries
        self.why_all_left: str | None = None

    def note(self, program: Any, tracer: Any, continuation: Continuation, at: Frame | None) -> None:
        """A trace from ``continuation`` has ended at a break in ``at``, or without one, if that is None."""
        calls, start = len(tracer.recorder.calls), None if continuation.layout is None else continuation.layout.key
        spent = self.spent.setdefault(start, Counter())
        spent["instructions"] += tracer.count
        spent["calls"] += calls
        way = start, tuple([(id(frame.code), frame.pc) for frame in frames_from(at)])
        self.ways[way] += 1
        if self.ways[way] % VARIANTS_OF_A_BREAK != 1:
            return  # another variant of a place, such as a round of a loop
        scale = 1 + largest_result(tracer) // ELEMENTS_OF_A_CALL
        for code, times in tracer.entered.items():
            self.account(code).entered += times
        for code, until in tracer.returned:
            self.account(code).add(until, scale)
        self.total.add(calls, scale)
        if at is None:
            return
        self.total.breaks += 1
        chain = list(frames_from(at))[-2::-1]  # without the program's own function, from the outside
        inside = Counter({frame.code.co: calls - min(max(frame.began, 0), calls) for frame in reversed(chain)})
        for code, count in inside.items():
            account = self.account(code)
            account.breaks += 1
            account.add(count, scale)
        if program.options.fullgraph or program.options.exports:
            return
        found = self.outermost_that_cannot_pay(program, chain)
        if found is not None:
            self.leave(program, found, chain)
        elif self.total.cannot_pay(LEAST_IN_PROGRAM):
            self.why_all_left = f"compiling it cannot pay (B502): its {self.total}"
            forget_all(program)
            program.give_up(program.entry, self.why_all_left, cause="left")

    def why_not_again(self, continuation: Continuation) -> str | None:
        """Why no further variant of a place is traced, although its segments are fewer than ``segment_limit``."""
        if continuation.made_in < VARIANTS_OF_PYTHON:
            return None
        spent = self.spent.get(None if continuation.layout is None else continuation.layout.key, NOTHING)
        instructions, calls = spent["instructions"], spent["calls"]
        if instructions < MUCH_PYTHON or instructions < PYTHON_FOR_A_CALL * calls:
            return None
        return (
            f"compiling further variants of it cannot pay (B502): those so far have {instructions} instructions of "
            f"Python for {calls} torch calls"
        )

    def account(self, code: CodeType) -> Account:
        found = self.accounts.get(code)
        if found is None:
            found = self.accounts[code] = Account()
        return found

    def outermost_that_cannot_pay(self, program: Any, chain: list[Frame]) -> Frame | None:
        wrapper = None
        for frame in chain:
            code, account = frame.code.co, self.account(frame.code.co)
            if (
                code is not program.code.co
                and code not in self.left
                and account.cannot_pay(LEAST_IN_FUNCTION)
                and account.entered < 2 * account.breaks  # otherwise most calls of it are within one graph
                and may_be_left(frame)
            ):
                if set(code.co_freevars) <= {"__class__"}:  # which super() needs
                    return frame
                wrapper = wrapper or frame  # it may wrap another function next time
        return wrapper

    def leave(self, program: Any, frame: Frame, chain: list[Frame]) -> None:
        code, account = frame.code.co, self.account(frame.code.co)
        why = self.left[code] = f"{code.co_qualname}, whose {account}"
        for outer in {each.code.co for each in chain[: chain.index(frame)]}:
            self.accounts[outer].without(account)
        self.total.without(account)
        forget(program, code)
        events.emit("breaks.left", text=f"{program.entry.location}: calls of {why}, are left to Python (B502)")

    def plain(self, machine: Machine) -> Machine:
        """What ``finish`` runs: a machine at a break has the answer of one instruction, which it has executed."""
        return machine.as_plain() if self.left or self.why_all_left is not None else machine

    def finish(self, machine: Machine) -> None:
        """Run ``machine`` until no frame of code that is left is on its stack, or to its end."""
        if self.why_all_left is not None:
            machine.run()
        while self.left and (outermost := self.outermost_left(machine.frame)) is not None:
            caller = outermost.caller
            while outermost.caller is caller and machine.frame is not None:
                machine.step()

    def outermost_left(self, frame: Frame | None) -> Frame | None:
        found = None
        for each in frames_from(frame):
            if each.code.co in self.left and each.caller is not None:
                found = each
        return found


def push(tracer: Any, frame: Frame, completion: int = fr.PUSH, spare: Any = None) -> Any:
    frame.began = len(tracer.recorder.calls)
    return Machine.push(tracer, frame, completion, spare)


def return_from(tracer: Any, frame: Frame, value: Any) -> bool:
    if frame.began < 0:
        tracer.returned.append((frame.code.co, len(tracer.recorder.calls)))
    return Machine.return_from(tracer, frame, value)


def may_be_left(frame: Frame) -> bool:
    """Torch's code is shared by all models, and that of some modules by all functions that they wrap."""
    if frame.code.is_ours or frame.code.is_body:
        return False
    module = frame.globals.get("__name__")
    return not is_trusted(module) or (module.partition(".")[0] in STDLIB and module not in CALLS_ANYTHING)


def largest_result(tracer: Any) -> int:
    """The elements of the largest tensor that the graph returns or gets; a parameter may be a table that few rows are
    read of."""
    made: list[Any] = [reference() for reference, _ in tracer.recorder.known.values()]
    given = [each for each in tracer.recorder.examples if not issubclass(type(each), torch.nn.Parameter)]
    return max((each.numel() for each in (*made, *given) if type(each) in TENSOR_TYPES), default=0)


def forget(program: Any, code: CodeType) -> None:
    """Drop the segments that begin or end in ``code``. They are traced again, up to the call."""

    def is_inside(layout: Any) -> bool:
        return layout is not None and any(frame.code.co is code for frame in layout.frames[1:])

    for key, continuation in list(program.continuations.items()):
        if is_inside(continuation.layout):
            program.continuations.pop(key, None)
    for continuation in (program.entry, *program.continuations.values()):
        for segment in continuation.segments:
            if is_inside(segment.leads_to):
                continuation.drop(segment)
        if not continuation.segments:
            continuation.made_in = 0


def forget_all(program: Any) -> None:
    program.continuations, program.entry.segments = {}, []
