"""``torch.cond`` while tracing: a data-dependent branch that does not break the graph.

    torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    sum_1 = x.sum()
    gt = sum_1 > 0
    cond = cond(gt, x)                              a node that holds two graphs (``runtime/eager/cond.py``)

Both functions are interpreted, one after the other, and each is recorded as a graph of its own. So both run on this
call's data, including the branch that was not chosen. The program cannot observe this: a branch is abandoned *before*
it writes to an object from outside, prints or breaks the graph, and also if it draws random numbers. The segment then
ends before ``torch.cond``, which is called for real on every run. Cases that eager rejects (branches that return
tensors with different metadata, or return their arguments) raise their error there.

A backend without Python in its graphs gets torch's own operator, ``torch.ops.higher_order.cond``, with the two graphs
as submodules. If the predicate is a Python number, torch.cond itself is interpreted instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch.utils import _pytree as pytree

from ...runtime.argument_trees import mapped
from ...runtime.eager.cond import Branches
from .. import breaks
from ..engine.break_signals import Stop
from ..engine.graph_builder import GRAPH_NAME, build_graph
from ..engine.graph_recorder import Recorder
from ..engine.interpreted_or_native import is_trusted
from ..engine.recorded_calls import Call, Handle
from ..guards.tensor_metadata import TENSOR_TYPES
from ..interpreter.frames import MISSING
from ..python.trace_rollback import CallStart
from .activation_checkpointing import tensors_in, written

CONTAINERS = (tuple, list, dict)


def cond_operator(m: Any, args: tuple, kwargs: dict) -> Any:
    """A direct call of ``torch.ops.higher_order.cond``: in eager, gradients flow to its operands only. Torch itself
    calls it for ``torch.cond`` in code compiled by ``torch.compile``, whose backend may be Burnish."""
    args = args[1:]
    if len(args) == 4 and not kwargs and isinstance(args[0], (bool, int)) and type(args[3]) in (tuple, list):
        return m.call(args[1] if args[0] else args[2], tuple(args[3]), {})
    return cond(m, args, kwargs, is_bare=not is_trusted(m.frame.globals.get("__name__")))


def cond(m: Any, args: tuple, kwargs: dict, is_bare: bool = False) -> Any:
    """``torch.cond(pred, true_fn, false_fn, operands=())``."""
    given = dict(zip(("pred", "true_fn", "false_fn", "operands"), args, strict=False)) | kwargs
    predicate, operands = given.get("pred"), given.get("operands", ())
    if type(predicate) not in TENSOR_TYPES or len(given) != len(args) + len(kwargs):
        return MISSING
    if (
        predicate.numel() != 1
        or not m.knows(predicate)
        or not (callable(given.get("true_fn")) and callable(given.get("false_fn")))
        or type(operands) not in (tuple, list)
    ):
        return MISSING
    m.heap.expose(operands)
    leaves = pytree.tree_leaves(operands) if is_plain_tree(operands) else [None]
    if not all(type(leaf) in TENSOR_TYPES and m.knows(leaf) and leaf.layout is torch.strided for leaf in leaves):
        return MISSING
    if m.region is not None and not isinstance(m.region, Branch):
        m.region.refuse("torch.cond")
    if m.symbolic_sizes is not None:
        m.symbolic_sizes.symbols.settle_all("torch.cond")
    truth = m.plainly(bool, predicate)
    m.answer = None
    m.region = Branch(m, predicate, truth, leaves)
    m.region.is_bare = is_bare
    return m.call(
        run_both,
        (
            given["false_fn"] if truth else given["true_fn"],
            given["true_fn"] if truth else given["false_fn"],
            tuple(operands),
        ),
        {},
    )


def run_both(other, chosen, operands):  # type: ignore[no-untyped-def]
    """The function that is interpreted for the call. The branch that was not chosen comes first, so that the program
    continues with the state after the chosen one."""
    try:
        side_ends(other(*operands))
        answer = side_ends(chosen(*operands))
    except BaseException as error:
        branch_raised(error)
        raise
    return answer


def side_ends(answer):  # type: ignore[no-untyped-def]
    """Handled by `ends`."""
    return answer


def branch_raised(error: BaseException) -> None:
    """Handled by `left_by_error`."""


def ends(m: Any, args: tuple, kwargs: dict) -> Any:
    return m.region.end_side(args[0])


def left_by_error(m: Any, args: tuple, kwargs: dict) -> NoReturn:
    m.region.give_up(breaks.RAISED, f"{type(args[0]).__name__} leaves a branch")


class Side:
    """One recorded branch."""

    def __init__(self, calls: list[Call], outputs: list[Handle], examples: list[torch.Tensor], spec: Any):
        self.calls, self.outputs, self.examples, self.spec = calls, outputs, examples, spec


class Branch:
    """A call of ``torch.cond`` that is being traced: a region, like ``activation_checkpointing.CapturedRegion``."""

    runs_both = True
    """More code runs than in eager."""

    def __init__(self, m: Any, predicate: torch.Tensor, truth: bool, given: list[torch.Tensor]):
        self.m, self.predicate, self.truth = m, predicate, truth
        self.given = {id(value) for value in given}
        self.is_bare = False
        self.outer: Branch | None = m.region
        self.start = CallStart(m, drawing_from([predicate, *given]))
        self.made: set[int] = set()
        """Ids of objects that the branches have made. No older object has one of these."""
        self.operands: dict[Any, torch.Tensor] = {}
        """The outside tensors that the branches read, by handle."""
        self.sides: list[Side] = []

    # ---- side effects that a branch forbids

    def meets_another(self) -> None:
        self.refuse("a checkpoint")

    def will_write(self, target: Any) -> None:
        """An object other than a tensor is about to be changed."""
        if id(target) not in self.made:
            self.refuse(f"a change of a {type(target).__qualname__}")

    def refuse(self, what: str) -> NoReturn:
        self.give_up(breaks.OPAQUE_CALL, f"{what} in a branch")

    def will_call(self, function: Any, args: tuple, kwargs: dict) -> None:
        """A torch call is about to be made."""
        for value in tensors_in((args, kwargs)):
            self.reads(value)
        for target in written(function, args, kwargs):
            if not self.is_made_here(target) or memory_of(target) in set(map(memory_of, self.operands.values())):
                self.refuse("a change of a tensor")
        if self.outer is not None:
            self.outer.will_call(function, args, kwargs)

    def reads(self, value: torch.Tensor) -> None:
        if not self.is_made_here(value) and self.m.knows(value):
            if value.layout is not torch.strided:
                self.refuse("a tensor that is not strided")
            self.operands.setdefault(id(self.m.recorder.tensor(value)), value)

    def is_made_here(self, x: torch.Tensor) -> bool:
        handle = self.m.recorder.handle_of(x)
        return handle is not None and isinstance(handle.call, int) and handle.call >= self.start.calls

    # ---- the end of a branch

    def end_side(self, answer: Any) -> Any:
        recorder = self.m.recorder
        if self.start.has_switched():
            self.refuse("a change of a global switch")
        if self.start.random.has_changed():
            self.refuse("drawing random numbers")
        leaves, spec = self.leaves_of(answer)
        outputs = [recorder.tensor(leaf) for leaf in leaves]
        self.sides.append(Side(recorder.calls[self.start.calls :], outputs, leaves, spec))
        self.forget()
        return answer if len(self.sides) == 1 else self.end()

    def leaves_of(self, answer: Any) -> tuple[list[torch.Tensor], Any]:
        if not is_plain_tree(answer):
            self.refuse(f"a result of the type {type(answer).__qualname__}")
        leaves, spec = pytree.tree_flatten(answer)
        if not leaves or not all(type(leaf) is torch.Tensor and self.is_made_here(leaf) for leaf in leaves):
            self.refuse("a result that is no tensor it has computed")
        known = [memory_of(value) for value in self.operands.values()] + [memory_of(leaf) for leaf in leaves]
        if len(set(known[len(self.operands) :])) < len(leaves) or set(known[: len(self.operands)]) & set(
            known[len(self.operands) :]
        ):
            self.refuse("a result that shares memory with another one or with what was given")
        return leaves, spec

    def forget(self) -> None:
        """Forget the values of one branch: neither the other branch nor the program may use them."""
        recorder, start = self.m.recorder, self.start.calls
        for key, (_, handle) in list(recorder.known.items()):
            if isinstance(handle.call, int) and handle.call >= start:
                del recorder.known[key]
        del recorder.calls[start:]

    def end(self) -> Any:
        """Both have been traced: replace them by one node."""
        m, recorder = self.m, self.m.recorder
        first, second = self.sides
        operands = list(self.operands.values())
        learns = torch.is_grad_enabled() and any(operand.requires_grad for operand in operands)
        if learns and self.is_bare and any(x.requires_grad and id(x) not in self.given for x in operands):
            self.refuse("gradients of a tensor that is not among the operands")
        if first.spec != second.spec or list(map(facts_of, first.examples)) != list(map(facts_of, second.examples)):
            self.refuse("results that differ between the two")
        graphs = [self.graph_of(side) for side in (self.sides[::-1] if self.truth else self.sides)]
        for graph, name in zip(graphs, ("cond_true", "cond_false"), strict=True):
            graph.meta[GRAPH_NAME] = name
        self.leave()
        if self.outer is not None:
            for value in (self.predicate, *operands):
                self.outer.reads(value)
        branches = Branches(*graphs)
        handles = [recorder.tensor(value) for value in (self.predicate, *operands)]
        made = branches(self.predicate, *operands)
        if not m.options.wants_operators:
            call = Call(branches, tuple(handles), {}, m.user_line())
        else:
            call = Call(torch.ops.higher_order.cond, (handles[0], *graphs, tuple(handles[1:])), {}, m.user_line())
        recorder.calls.append(call)
        recorder.register(made, Handle(len(recorder.calls) - 1))
        m.answer = None
        return pytree.tree_unflatten(list(made), second.spec)

    def graph_of(self, side: Side) -> torch.fx.GraphModule:
        """The branch as a graph of the values it reads."""
        start, places = self.start.calls, {key: k for k, key in enumerate(self.operands)}
        part = Recorder(self.m)
        part.inputs = [Handle(None, (), f"operand_{k}", k) for k in range(len(places))]
        part.examples = list(self.operands.values())

        def moved(handle: Handle) -> Any:
            if isinstance(handle.call, int) and handle.call >= start:
                return Handle(handle.call - start, handle.path)
            if id(handle) not in places:
                return self.number(handle)
            return part.inputs[places[id(handle)]]

        for call in side.calls:
            args, kwargs = mapped((call.args, call.kwargs), Handle, moved)
            part.calls.append(call._replace(args=args, kwargs=kwargs))
        return build_graph(part, list(map(moved, side.outputs)))

    def number(self, handle: Handle) -> Any:
        """What stands for a number that may differ in the next call."""
        self.refuse("a number that is no constant")

    def leave(self) -> None:
        self.m.region = self.outer

    def give_up(self, kind: breaks.BreakKind, what: str) -> NoReturn:
        """End the segment before the outermost ``torch.cond``."""
        self.undo()
        self.m.stop(kind, f"torch.cond: {what}")

    def undo(self) -> None:
        """Return to the start of the call."""
        if self.outer is not None:
            self.outer.undo()
            return
        self.m.region = None
        self.start.go_back(self.m)

    def after_break(self, signal: Any) -> Any:
        """The trace ended inside a branch: the segment must end before the call. The original break is the reason."""
        self.undo()
        return Stop(signal.kind or breaks.RAISED, f"{signal.what}, in a branch of torch.cond")


def is_plain_tree(value: Any) -> bool:
    if type(value) in CONTAINERS:
        return all(map(is_plain_tree, value.values() if type(value) is dict else value))
    return isinstance(value, torch.Tensor)


def facts_of(x: torch.Tensor) -> tuple:
    """The facts that must be equal for the results of both branches. All of them require gradients if an operand
    does."""
    return x.dtype, tuple(x.shape), x.stride(), x.device, x.layout


def memory_of(x: torch.Tensor) -> int:
    return x.untyped_storage()._cdata


def drawing_from(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors on all devices whose random number state a branch may use."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        tensors.append(torch.empty(0, device="cuda"))
    return tensors


HANDLERS: dict[Callable, Callable] = {
    torch.cond: cond,
    type(torch.ops.higher_order.cond).__call__: cond_operator,
    side_ends: ends,
    branch_raised: left_by_error,
}
