"""Optimizer steps that ``torch.amp.GradScaler`` may skip, as a select inside the graph.

    if not found_inf.item():                clone = weight.clone();  ne = found_inf != 0
        optimizer.step()                    weight.add_(grad, alpha=-0.1)
                                            weight.copy_(torch.where(ne, clone, weight))

The step is interpreted whatever the gradients are, and every tensor that it writes to gets its old content back where
the step is skipped. Anything else that a step changes would have to be undone as well: state made in the first step, a
count in Python, random numbers. Such a step is given up, and the segment ends where Python reads ``found_inf``. A write
that changes nothing, as that of a schedule which notes that the optimizer has stepped, is guarded to change nothing.

Only optimizers of ``torch.optim`` without hooks are taken: what a step of the program's own leaves behind may be
visible in no tensor that it is known to write to: a switch, a generator of random numbers, running statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import CellType
from typing import Any, NoReturn

import torch

from ....concurrency.outside_errors import came_from_outside
from ....foundation.torch_private import (
    debug_has_internal_overlap,
    global_optimizer_post_hooks,
    global_optimizer_pre_hooks,
    unsafe_set_version_counter,
)
from ....runtime.argument_trees import tensors_in
from ... import breaks
from ...engine.break_signals import BreakAfterOperation, Stop
from ...guards.tensor_metadata import TENSOR_TYPES
from ...interpreter.frames import MISSING, Raised
from ...python.trace_rollback import CallStart, Region
from .. import writes_of_calls
from ..graph_regions.graph_region import drawing_from, memory_of
from ..higher_order.native_callbacks import run_nested
from ..higher_order.undo_log import WRITTEN, UndoLog


def step_unless_infinite(m: Any, args: tuple, kwargs: dict) -> Any:
    """``GradScaler._maybe_opt_step(optimizer, optimizer_state)``."""
    if len(args) != 3 or kwargs or m.region is not None or not m.options.keeps_data:
        return MISSING
    if not type(args[1]).__module__.startswith("torch.optim.") or run_nested(m, runs_code_of_others, args[1:2], {}):
        return MISSING
    found = run_nested(m, infinities_of, args[2:], {})
    if len(found) != 1 or type(found[0]) not in TENSOR_TYPES or found[0].ndim or not m.knows(found[0]):
        return MISSING
    region = m.region = SkippableStep(m, found[0])
    try:
        value = run_nested(m, call_step, args[1:2], {})
        region.end(value)
    except (Stop, BreakAfterOperation, Raised) as signal:
        region.undo()
        if came_from_outside(getattr(signal, "error", None)):
            raise
        return MISSING
    except BaseException:
        region.undo()
        raise
    return None


# ---- functions that are interpreted for the call


def runs_code_of_others(optimizer):  # type: ignore[no-untyped-def]
    """Whether its step is replaced, but by a schedule that counts it, or has hooks."""
    step = optimizer.__dict__.get("step")
    return bool(
        step is not None
        and not hasattr(step, "_wrapped_by_lr_sched")
        or optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or global_optimizer_pre_hooks
        or global_optimizer_post_hooks
    )


def infinities_of(optimizer_state):  # type: ignore[no-untyped-def]
    return list(optimizer_state["found_inf_per_device"].values())


def call_step(optimizer):  # type: ignore[no-untyped-def]
    return optimizer.step()


def put_back(found, written):  # type: ignore[no-untyped-def]
    """In reverse order, since tensors may share memory."""
    with torch.no_grad():
        is_skipped = found != 0
        for target, before in written:
            is_old = is_skipped if target.device == is_skipped.device else is_skipped.to(target.device)
            target.copy_(torch.where(is_old, before, target))


class SkippableStep(Region):
    """A step that is being traced."""

    runs_both = True
    """More code runs than in eager."""

    def __init__(self, m: Any, found: torch.Tensor):
        super().__init__(m)
        self.start = CallStart(m, drawing_from([found]))
        self.found = found
        self.writes = UndoLog(m.heap)
        self.before: dict[int, tuple[torch.Tensor, torch.Tensor, int]] = {}
        """The tensors that the step writes to, copies of them that are part of the graph, and their versions."""
        self.versions: dict[int, tuple[torch.Tensor, int]] = {}
        """The older tensors that it uses, and their versions before."""
        self.memory: set[int] = set()
        """That of the older tensors."""

    # ---- side effects

    def may_change(self, target: Any) -> bool:
        return super().may_change(target) or type(target) is not CellType and self.writes.will_change(target)

    def before_node(self, call: Any) -> None:
        self.refuse(f"a call of {call.function.__qualname__}")

    def refuse(self, what: str) -> NoReturn:
        raise Stop(breaks.OPAQUE_CALL, what)

    def will_call(self, function: Any, args: tuple, kwargs: dict) -> None:
        """A torch call is about to be made."""
        for value in tensors_in((args, kwargs)):
            if type(value) not in TENSOR_TYPES or value.layout is not torch.strided:
                self.refuse("a tensor of another kind")
            if id(value) not in self.versions and not self.is_made_here(value):
                self.versions[id(value)] = value, version_of(value)
                self.memory.add(memory_of(value))
        if writes_of_calls.changes_object(function):
            self.refuse("a change of a tensor's state")
        if writes_of_calls.may_write(function, kwargs):
            for target in tensors_in(writes_of_calls.written_arguments(function, args, kwargs)):
                self.will_write_tensor(target)

    def will_write_tensor(self, target: torch.Tensor) -> None:
        """Note the content of a tensor, unless the step has made its memory."""
        if id(target) in self.before or self.is_made_here(target) and memory_of(target) not in self.memory:
            return
        overlaps = debug_has_internal_overlap(target) == 1
        if overlaps or target.is_inference() or torch.is_grad_enabled() or not self.m.knows(target):
            self.refuse("a change of such a tensor")
        copy = self.m.recorder.call(torch.clone, (target,), {}, torch.clone, (target,), {})
        self.before[id(target)] = target, copy, target._version

    def is_made_here(self, x: torch.Tensor) -> bool:
        handle = self.m.recorder.handle_of(x)
        return handle is not None and isinstance(handle.call, int) and handle.call >= self.start.calls

    # ---- the end

    def end(self, value: Any) -> None:
        m = self.m
        if value is not None or self.start.has_switched() or self.start.random.has_changed():
            self.refuse("a result, a change of a switch, or random numbers")
        written = {memory_of(target) for target, _, _ in self.before.values()}
        for old, version in self.versions.values():
            if version_of(old) != version and memory_of(old) not in written:
                self.refuse("a change of a tensor")
        for now, before in self.writes.contents():
            if len(now) != len(before) or any(a is not b for a, b in zip(now, before, strict=True)):
                self.refuse("a change of an object")
        entries = list(self.entries_written())
        self.writes.undo()
        for origin, key in entries:
            if m.heap.read_key(origin, key) is not dict.get(origin.obj, key, MISSING):  # which guards it
                self.refuse("a number that changes")
        self.leave()
        pairs = m.made([(target, copy) for target, copy, _ in reversed(self.before.values())])
        run_nested(m, put_back, (self.found, pairs), {})

    def entries_written(self) -> Iterator[tuple[Any, Any]]:
        """The entries of dictionaries that were written to, and found as they were."""
        for origin in self.m.heap.origins.values():
            known = self.writes.records.get(id(origin))
            if id(origin.obj) in self.writes.before and not origin.complete:
                if not isinstance(origin.obj, dict):
                    self.refuse("a change of an object")
                earlier = known[1 + WRITTEN.index("written")] if known is not None else ()
                yield from ((origin, key) for key in origin.written if key not in earlier)

    def undo(self) -> None:
        """Return to the start of the call."""
        self.leave()
        self.writes.undo()
        self.m.recorder.forget(*self.start.mark)
        self.start.go_back(self.m)
        with torch.no_grad():
            for target, copy, version in reversed(self.before.values()):
                target.copy_(copy)
                unsafe_set_version_counter((target,), (version,))


def version_of(x: torch.Tensor) -> int:
    return 0 if x.is_inference() else x._version
