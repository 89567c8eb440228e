"""Activation checkpointing (`torch.utils.checkpoint`) while tracing: a marked region of the graph.

    y = checkpoint(block, x, use_reentrant=False)      linear = torch.nn.functional.linear(x, weight, bias)   region 0
                                                       gelu = torch.nn.functional.gelu(linear)                region 0

A backend that supports the marks (`Backend.recomputes`) saves only the inputs of a region for backward, and recomputes
the rest there. Backends of others get a node with the function's graph, as from `torch.compile`.
Where that is not possible, the graph is the function without checkpointing, with the same values.

Checkpointing calls the function twice, in forward and in backward, so its side effects also happen twice. A region
therefore allows none: *before* it writes to an object from outside, prints, or breaks the graph, it is abandoned
(`CapturedRegion.give_up`). Only random number states and running statistics have changed by then. They are restored,
and the segment ends before the call of `checkpoint`, which is made for real on every run.

The traced run is a real one: its saved tensors are also recomputed, from the recorded calls.

With `use_reentrant=True`, torch runs the function without gradients first, and differentiates the recomputation by a
backward pass of its own. What the function computes is the same unless it asks whether gradients are on, or reads
tensors with a history that are not among its arguments. Then the region is given up (`reentrant_checkpoints`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch.utils import checkpoint as torch_checkpoint

from ... import settings
from ...captured_graph.checkpoint_hooks import Recomputation
from ...concurrency.outside_errors import came_from_outside
from ...foundation.torch_private import (
    checkpoint_impl,
    pop_saved_tensors_default_hooks,
    push_saved_tensors_default_hooks,
    unsafe_set_version_counter,
)
from ...runtime.argument_trees import mapped, tensors_in
from ...runtime.eager import eager_activation_checkpointing
from .. import breaks
from ..engine.break_signals import Stop
from ..engine.torch_call_records import Handle
from ..guards.tensor_metadata import TENSOR_TYPES
from ..interpreter.frames import MISSING
from ..numbers.live_scalars import Expression
from ..python.trace_rollback import CallStart, Region, ask_region
from . import writes_of_calls

OPTIONS = frozenset(
    """
    use_reentrant preserve_rng_state context_fn determinism_check debug early_stop respect_saved_tensors_hooks
""".split()
)


def checkpoint(m: Any, args: tuple, kwargs: dict) -> Any:
    """`checkpoint(function, *args, **options, **kwargs)`."""
    if not args or args[0] is None:
        return MISSING
    options = {name: kwargs[name] for name in OPTIONS & kwargs.keys()}
    return call(m, args[0], args[1:], {name: value for name, value in kwargs.items() if name not in OPTIONS}, options)


def checkpoint_decorated(m: Any, args: tuple, kwargs: dict) -> Any:
    """`_checkpoint_impl(function, args, kwargs, **options)`: from functions with `checkpoint(**options)`."""
    if len(args) != 3 or type(args[1]) is not tuple or type(args[2]) is not dict:
        return MISSING
    return call(m, *args, kwargs)


def call(m: Any, function: Any, args: tuple, kwargs: dict, options: dict) -> Any:
    policy = None
    if options.get("context_fn", torch_checkpoint.noop_context_fn) is not torch_checkpoint.noop_context_fn:
        from .higher_order import selective_checkpoints

        policy = selective_checkpoints.policy_of(m, options["context_fn"])
        options = options if policy is None else {k: v for k, v in options.items() if k != "context_fn"}
    why = why_not_region(options)
    if why is not None:
        m.stop(breaks.DISABLED_CALL, f"torch.utils.checkpoint.checkpoint with {why}")
    m.guard_outcome(Expression(checkpoints_plainly, ()), True)
    if m.region is not None:
        if options["use_reentrant"] or getattr(m.region, "is_reentrant", False):
            m.region.refuse("a checkpoint in a checkpoint with use_reentrant=True")
        # Of nested checkpoints only the outer one counts. More is saved during its recomputation.
        m.region.meets_another()
        return m.call(function, args, kwargs)
    if not torch.is_grad_enabled():
        return m.call(function, args, kwargs)
    is_reentrant = options.get("use_reentrant") is True
    if is_reentrant:
        from .higher_order import reentrant_checkpoints

        why = reentrant_checkpoints.why_not_alike(args, kwargs)
        if why is not None:
            m.stop(breaks.DISABLED_CALL, f"torch.utils.checkpoint.checkpoint with use_reentrant=True, and {why}")
    keeps_random = options.get("preserve_rng_state", True) is not False
    m.region = CapturedRegion(m, function, args, keeps_random, policy, is_reentrant)
    return m.call(run_region, (function, args, kwargs), {})


def why_not_region(options: dict) -> str | None:
    if type(options.get("use_reentrant")) is not bool:
        return "no choice of use_reentrant"
    for name, usual in (
        ("context_fn", torch_checkpoint.noop_context_fn),
        ("debug", False),
        ("early_stop", True),
        ("respect_saved_tensors_hooks", None),
    ):
        if options.get(name, usual) is not usual:
            return f"{name}={options[name]!r:.80}"
    if options.get("determinism_check", "default") not in ("default", "none"):
        return f"determinism_check={options['determinism_check']!r:.80}"
    if type(options.get("preserve_rng_state", True)) is not bool:
        return f"preserve_rng_state={options['preserve_rng_state']!r:.80}"
    return None if checkpoints_plainly() else "a setting of torch.utils.checkpoint for the whole process"


def checkpoints_plainly() -> bool:
    """Whether neither debugging nor a full recomputation (`set_checkpoint_early_stop`) has been requested."""
    stops_early = torch_checkpoint._enable_checkpoint_early_stop
    return not torch_checkpoint._checkpoint_debug_enabled and stops_early is not False


def run_region(function, args, kwargs):  # type: ignore[no-untyped-def]
    """The function that is interpreted for the call."""
    try:
        answer = function(*args, **kwargs)
    except BaseException as error:
        ask_region("left_by_error", error)
        raise
    ask_region("end", answer)
    return answer


class CapturedRegion(Region):
    """A checkpointed call that is being traced."""

    def __init__(
        self, m: Any, function: Any, args: tuple, keeps_random: bool, policy: Any = None, is_reentrant: bool = False
    ):
        super().__init__(m)
        self.keeps_random, self.is_reentrant = keeps_random, is_reentrant
        self.name = getattr(function, "__qualname__", type(function).__qualname__)
        self.start = CallStart(m, args)
        self.given = {id(a): a for a in args if isinstance(a, torch.Tensor)}
        self.held: dict[int, tuple[Handle, torch.Tensor]] = {}
        """Tensors computed before the region that it reads."""
        self.before: list[tuple[torch.Tensor, torch.Tensor, int]] = []
        """Tensors that the region writes to, their previous content, and their versions."""
        self.is_nested = False
        self.has_left = False
        """Whether the policy of a selective checkpoint is asked no more."""
        self.recomputation = Recomputation()
        self.policy: Any = None
        if policy is not None:
            from .higher_order import selective_checkpoints

            self.policy = selective_checkpoints.Policy(m.recorder, policy)
        push_saved_tensors_default_hooks(self.recomputation.pack, self.recomputation.unpack)
        if self.policy is not None:
            self.policy.__enter__()

    # ---- side effects that a region forbids

    def meets_another(self) -> None:
        if self.before:
            self.give_up(breaks.DISABLED_CALL, "a checkpoint in it, and it writes to tensors")
        self.is_nested = True

    def asks_about_gradients(self, what: str) -> NoReturn:
        """The program asks what differs between the two runs of a reentrant checkpoint."""
        self.give_up(breaks.DISABLED_CALL, f"{what} in it, which differs between its runs (use_reentrant=True)")

    def refuse(self, what: str) -> NoReturn:
        self.give_up(breaks.DISABLED_CALL, f"{what} in it, which happens again in backward")

    def will_call(self, function: Any, args: tuple, kwargs: dict) -> None:
        """A torch call is about to be made."""
        for value in tensors_in((args, kwargs)):
            handle = self.m.recorder.handle_of(value)
            if handle is not None and handle.call is not None and handle.call < self.start.calls:
                self.held.setdefault(id(handle), (handle, value))
        for target in writes_of_calls.written_or_changed_tensors(function, args, kwargs):
            if writes_of_calls.changes_object(function) and not self.is_made_here(target):
                self.refuse("a change of a tensor")
            self.will_write_tensor(target)

    def will_write_tensor(self, target: torch.Tensor) -> None:
        m = self.m
        if self.is_made_here(target):
            return
        if (
            type(target) not in TENSOR_TYPES
            or m.heap.origin_of(target) is None
            or id(target) in self.given
            or target._is_view()
            or target.requires_grad
            or target.is_inference()
            or not getattr(m.options.backend, "recomputes", False)
            or self.is_nested
        ):
            self.refuse("a change of a tensor")
        if not any(target is held for held, _, _ in self.before):
            self.before.append((target, target.clone(), target._version))

    def is_made_here(self, x: torch.Tensor) -> bool:
        handle = self.m.recorder.handle_of(x)
        return (
            handle is not None
            and handle.call is not None
            and handle.call >= self.start.calls
            and (x._base is None or self.is_made_here(x._base))
        )

    # ---- the end of a region

    def end(self, answer: Any) -> None:
        """The function has returned."""
        recorder = self.m.recorder
        if self.is_reentrant:
            from .higher_order import reentrant_checkpoints

            before = [value for _, value in self.held.values()]
            why = reentrant_checkpoints.why_not_alike_after(recorder, self.start.calls, self.given, before, answer)
            if why is not None:
                self.give_up(breaks.DISABLED_CALL, f"use_reentrant=True, and {why}")
        self.leave_policy()
        draws = self.start.random.has_changed()
        if self.start.has_switched():
            self.refuse("a change of a global switch")
        if draws and not self.keeps_random:
            self.give_up(breaks.DISABLED_CALL, "preserve_rng_state=False, and random numbers")
        given = list(filter(None, map(self.handle_of, self.given.values())))
        steps = self.steps(draws, {id(handle) for handle in given})
        self.leave()
        self.recomputation.again = (
            with_settings(eager_activation_checkpointing.again_of(*steps, self.start.random))
            if draws
            else eager_activation_checkpointing.again_of(*steps)
        )
        if not draws and self.becomes_a_node():
            return
        from .higher_order import selective_checkpoints

        saved = set() if self.policy is None or draws else self.policy.saved
        recorder.regions += [
            (*ends, draws, given) for ends in selective_checkpoints.split(self.start.calls, len(recorder.calls), saved)
        ]

    def becomes_a_node(self) -> bool:
        """Backends of others know checkpoints as `torch.compile` shows them: a node with a graph. Its recomputation
        would draw other random numbers, and write to running statistics once more. They ask the policy again, and a
        function would see each operator twice."""
        if not self.m.options.shows_operators or self.before:
            return False
        if self.policy is not None and getattr(self.policy.policy, "__module__", None) != torch_checkpoint.__name__:
            return False
        from ...foundation.torch_private import tag_activation_checkpoint  # few programs have such a backend
        from .higher_order import outline_recorded_calls

        start, given = self.start.calls, {"use_reentrant": self.is_reentrant}
        graph = outline_recorded_calls.group(self.m, start, tag_activation_checkpoint, given)
        if graph is not None and self.policy is not None:
            contexts = torch_checkpoint.create_selective_checkpoint_contexts
            graph.meta["_checkpoint_context_fn"] = functools.partial(contexts, self.policy.policy)
        return graph is not None

    def handle_of(self, x: torch.Tensor) -> Handle | None:
        recorder, origin = self.m.recorder, self.m.heap.origin_of(x)
        return recorder.handle_of(x) or origin and recorder.input_of.get(id(origin.source))

    def steps(self, draws: bool, given: set[int]) -> tuple[eager_activation_checkpointing.RecordedCalls, list[Any]]:
        """The recorded calls, and their inputs."""
        recorder, start = self.m.recorder, self.start.calls
        inputs: list[Any] = []
        saves: list[bool] = []
        places: dict[int, int] = {}

        def place(handle: Handle) -> eager_activation_checkpointing.StepValue:
            if isinstance(handle.call, int) and handle.call >= start:
                return eager_activation_checkpointing.StepValue(handle.call, handle.path)
            at = places.get(id(handle))
            if at is None:
                if handle.call is None:
                    value = recorder.examples[handle.key]
                elif id(handle) in self.held:
                    value = self.held[id(handle)][1]
                else:
                    self.refuse("a value that is not a tensor")
                at = places[id(handle)] = -1 - len(inputs)
                inputs.append(value)
                saves.append(id(handle) in given)
            return eager_activation_checkpointing.StepValue(at)

        calls = [
            (function_of(call.target, recorder.perform), mapped((call.args, call.kwargs), Handle, place))
            for call in recorder.calls[start:]
        ]
        count = len(inputs)

        def moved(found: eager_activation_checkpointing.StepValue) -> eager_activation_checkpointing.StepValue:
            return eager_activation_checkpointing.StepValue(
                -1 - found.at if found.at < 0 else found.at - start + count, found.path
            )

        made = [
            (function, *mapped(given, eager_activation_checkpointing.StepValue, moved)) for function, given in calls
        ]
        return eager_activation_checkpointing.steps_of(count, made, draws, tuple(saves)), inputs

    def leave_policy(self) -> None:
        if self.policy is not None and not self.has_left:
            self.has_left = True
            self.policy.__exit__(None, None, None)

    def leave(self) -> None:
        self.leave_policy()
        pop_saved_tensors_default_hooks()
        super().leave()

    def left_by_error(self, error: BaseException) -> NoReturn:
        self.give_up(breaks.RAISED, f"{type(error).__name__} leaves the checkpointed function")

    def give_up(self, kind: breaks.BreakKind, what: str) -> NoReturn:
        """End the segment before the checkpointed call."""
        self.undo()
        self.m.stop(kind, f"torch.utils.checkpoint.checkpoint of {self.name}: {what}")

    def undo(self) -> None:
        """Return to the start of the call."""
        self.leave()
        self.start.go_back(self.m)
        with torch.no_grad():
            for target, held, version in self.before:
                target.copy_(held)
                unsafe_set_version_counter((target,), (version,))

    def after_break(self, signal: Any) -> Any:
        """The trace ended inside the region: the segment must end before the call. The original break is the reason."""
        if came_from_outside(getattr(signal, "error", None)):
            self.leave()
            return signal
        self.undo()
        kind, what = signal.kind or breaks.RAISED, signal.what
        return Stop(kind, f"{what}, in the checkpointed {self.name}")


def with_settings(again: Callable) -> Callable:
    """Recompute with the random number setting of forward."""
    eager_random = settings.current().eager_random

    def call(is_done: Callable[[], bool]) -> None:
        with settings.patch(eager_random=eager_random):
            again(is_done)

    return call


def function_of(target: Any, perform: Callable) -> Callable:
    function = getattr(torch.Tensor, target) if isinstance(target, str) else target
    return lambda *args, **kwargs: perform(function, args, kwargs)


class TraceEffects(list):
    """The side effects of a trace. A region allows none, but for the nested call of a rule."""

    def __init__(self, m: Any):
        super().__init__()
        self.m = m

    def append(self, effect: Any) -> None:
        if self.m.region is not None and not getattr(self.m.region, "takes_effects", False):
            self.m.region.refuse(f"a call of {getattr(effect.function, '__name__', effect.function)}")
        super().append(effect)


HANDLERS: dict[Callable, Callable] = {
    torch_checkpoint.checkpoint: checkpoint,
    checkpoint_impl: checkpoint_decorated,  # in older torch `checkpoint` is not a decorator
}
