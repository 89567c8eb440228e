"""Regions whose torch calls become a graph of their own: the branches of `torch.cond`, functions of flex attention.

    region = m.region = GraphRegion(m, "torch.cond", tensors)
    ...                                    a function is interpreted; its torch calls are recorded
    graph = region.graph_of(calls, outputs)
    region.leave()

A region must leave no trace but its graph: more may run than in eager. So it is given up *before* the function writes
to an object from outside, prints or breaks the graph, and if it draws random numbers that its node would not draw.
The segment then ends before the call, which is made for real on every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from ....runtime.argument_trees import mapped, tensors_in
from ... import breaks
from ...engine.break_signals import Stop
from ...engine.build_fx_graph import build_graph
from ...engine.graph_recorder import Recorder
from ...engine.torch_call_records import Handle, TorchCall
from ...python.trace_rollback import CallStart, Region
from ..writes_of_calls import written_tensors

UNKNOWN = "it runs Python"


class GraphRegion(Region):
    runs_both = True
    """More code runs than in eager."""
    functions = "its function"
    may_call_functions = False
    """Whether its graphs may call custom autograd functions."""
    may_draw = False
    """Whether its graphs may draw random numbers: the node draws them, and not the trace."""

    def __init__(self, m: Any, name: str, tensors: list[torch.Tensor]):
        """`tensors`: on all devices whose random number state the function may use."""
        super().__init__(m)
        self.name, self.start = name, CallStart(m, tensors)
        self.operands: dict[Any, torch.Tensor] = {}
        """The outside tensors that the region reads, by handle."""
        self.draws = False
        """Whether random numbers were drawn."""

    # ---- side effects that a region forbids

    def refuse(self, what: str) -> NoReturn:
        self.give_up(breaks.OPAQUE_CALL, what)

    def meets_another(self) -> None:
        """A checkpoint computes what its function does, and here it saves no memory: a reason for a break only."""
        if not self.m.options.fullgraph:
            super().meets_another()

    def will_call(self, function: Any, args: tuple, kwargs: dict) -> None:
        """A torch call is about to be made."""
        for value in tensors_in((args, kwargs)):
            self.reads(value)
        for target in written_tensors(function, args, kwargs):
            if not self.is_made_here(target) or memory_of(target) in set(map(memory_of, self.operands.values())):
                self.refuse("a change of a tensor")
        if self.outer is not None:
            self.outer.will_call(function, args, kwargs)

    def before_node(self, call: Any) -> None:
        """A call that runs Python natively is about to be a node. It may have side effects, except for a custom
        function that a compiler may trace."""
        is_pure = getattr(call, "why_not_traceable", UNKNOWN) is None and not call.writes
        if not (is_pure and self.may_call_functions):
            self.refuse(f"a call of {call.function.__qualname__}")

    def reads(self, value: torch.Tensor) -> None:
        if not self.is_made_here(value) and self.m.knows(value):
            if value.layout is not torch.strided:
                self.refuse("a tensor that is not strided")
            self.operands.setdefault(id(self.m.recorder.tensor(value)), value)

    def is_made_here(self, x: torch.Tensor) -> bool:
        handle = self.m.recorder.handle_of(x)
        return handle is not None and isinstance(handle.call, int) and handle.call >= self.start.calls

    def check_end(self) -> None:
        if self.start.has_switched():
            self.refuse("a change of a global switch")
        if self.start.random.has_changed():
            if not self.may_draw:
                self.refuse("drawing random numbers")
            self.start.random.put_back()
            self.draws = True

    # ---- the graph

    def graph_of(
        self, calls: list[TorchCall], outputs: list[Handle], given: Sequence[torch.Tensor] = ()
    ) -> torch.fx.GraphModule:
        """The recorded calls as a graph of `given`, which the first calls made, and of the operands."""
        return graph_of_calls(self.m, self.start.calls, calls, self.operands, outputs, given, self.number)

    def number(self, handle: Handle) -> Any:
        """What stands for a number that may differ in the next call."""
        self.refuse("a number that is not a constant")

    def forget(self) -> None:
        """Forget the values that were computed: the program must not use them."""
        if self.m.symbolic_sizes is not None:
            self.m.symbolic_sizes.keep_claims(self.start.calls, self.outer is not None)
        self.m.recorder.drop_calls(self.start.calls)

    # ---- the end of a region

    def left_by_error(self, error: BaseException) -> NoReturn:
        self.give_up(breaks.RAISED, f"{type(error).__name__} leaves {self.functions}")

    def give_up(self, kind: breaks.BreakKind, what: str) -> NoReturn:
        """End the segment before the outermost region."""
        name = self.undo()
        self.m.stop(kind, f"{name}: {what}")

    def undo(self) -> str:
        """Return to the start of the call. Returns its name."""
        if self.outer is not None:
            return self.outer.undo()
        self.m.region = None
        self.start.go_back(self.m)
        return self.name

    def after_break(self, signal: Any) -> Any:
        """The trace ended inside the region: the segment must end before the call. The original break is the reason."""
        name = self.undo()
        return Stop(signal.kind or breaks.RAISED, f"{signal.what}, in {self.inside(name)}")

    def inside(self, name: str) -> str:
        return f"a function of {name}"


def graph_of_calls(
    m: Any,
    start: int,
    calls: list[TorchCall],
    operands: dict[Any, torch.Tensor],
    outputs: list[Handle],
    given: Sequence[torch.Tensor] = (),
    number: Callable[[Handle], Any] | None = None,
) -> torch.fx.GraphModule:
    """The calls recorded from ``start`` on as a graph of their own. ``number``: what stands for other values."""
    places = {key: k for k, key in enumerate(operands, len(given))}
    part = Recorder(m)
    part.examples = [*given, *operands.values()]
    part.inputs = [Handle(None, (), f"operand_{k}", k) for k in range(len(part.examples))]

    def moved(handle: Handle) -> Any:
        if isinstance(handle.call, int) and handle.call >= start:
            if handle.call - start < len(given):
                return part.inputs[handle.call - start]
            return Handle(handle.call - start - len(given), handle.path)
        if id(handle) not in places:
            assert number is not None
            return number(handle)
        return part.inputs[places[id(handle)]]

    for call in calls[len(given) :]:
        args, kwargs = mapped((call.args, call.kwargs), Handle, moved)
        part.calls.append(call._replace(args=args, kwargs=kwargs))
    return build_graph(part, list(map(moved, outputs)))


def memory_of(x: torch.Tensor) -> int:
    return x.untyped_storage()._cdata


def drawing_from(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors on all devices whose random number state a function may use."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        tensors.append(torch.empty(0, device="cuda"))
    return tensors
