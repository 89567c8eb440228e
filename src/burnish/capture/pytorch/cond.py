"""``torch.cond`` while tracing: a data-dependent branch that does not break the graph.

    torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    sum_1 = x.sum()
    gt = sum_1 > 0
    cond = cond(gt, x)                              a node that holds two graphs (``runtime/eager/cond.py``)

Both functions are interpreted, one after the other, and each is recorded as a graph of its own. So both run on this
call's data, including the branch that was not chosen. The program cannot observe this: a branch is abandoned *before*
it writes to an object from outside, prints or breaks the graph. The segment then ends before ``torch.cond``, which is
called for real on every run. Cases that eager rejects (branches that return tensors with different metadata, or return
their arguments) raise their error there. Random numbers that a branch draws are put back: the node draws those of the
chosen branch.

A backend without Python in its graphs gets torch's own operator, ``torch.ops.higher_order.cond``, with the two graphs
as submodules. If the predicate is a Python number, torch.cond itself is interpreted instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from ...foundation.torch_private import is_batchedtensor, pytree
from ...runtime.eager.cond import Branches
from .. import breaks
from ..engine.build_fx_graph import GRAPH_NAME
from ..engine.interpreted_or_native import is_trusted
from ..engine.torch_call_records import Handle, TorchCall, handles_in
from ..guards.tensor_metadata import TENSOR_TYPES
from ..interpreter.frames import MISSING
from ..numbers.graph_numbers import fits_in_64_bits, is_graph_truth
from ..python.trace_rollback import ask_region
from .graph_regions.graph_region import GraphRegion, drawing_from, memory_of

CONTAINERS = (tuple, list, dict)


def cond_operator(m: Any, args: tuple, kwargs: dict) -> Any:
    """A direct call of ``torch.ops.higher_order.cond``: in eager, gradients flow to its operands only. Torch itself
    calls it for ``torch.cond`` in code compiled by ``torch.compile``, whose backend may be Burnish."""
    args = args[1:]
    is_known = bool(args) and isinstance(args[0], (bool, int)) and not is_graph_truth(args[0])
    if len(args) == 4 and not kwargs and is_known and type(args[3]) in (tuple, list):
        return m.call(args[1] if args[0] else args[2], tuple(args[3]), {})
    return cond(m, args, kwargs, is_bare=not is_trusted(m.frame.globals.get("__name__")))


def cond(m: Any, args: tuple, kwargs: dict, is_bare: bool = False) -> Any:
    """``torch.cond(pred, true_fn, false_fn, operands=())``."""
    given = dict(zip(("pred", "true_fn", "false_fn", "operands"), args, strict=False)) | kwargs
    predicate, operands = given.get("pred"), given.get("operands", ())
    is_number = is_graph_truth(predicate)  # a comparison of numbers that were read from tensors
    if is_number:
        predicate = predicate.tensor
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
    if getattr(m.region, "lowers", False) and is_batchedtensor(predicate):
        return m.call(select, (predicate, given["true_fn"], given["false_fn"], tuple(operands)), {})
    if m.region is not None and not isinstance(m.region, Branch):
        m.region.refuse("torch.cond")
    truth = m.plainly(bool, predicate)
    m.answer = None
    m.region = Branch(m, predicate, truth, leaves)
    m.region.is_bare, m.region.is_number = is_bare, is_number
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
        ask_region("end_side", other(*operands))
        answer = ask_region("end_side", chosen(*operands))
    except BaseException as error:
        ask_region("left_by_error", error)
        raise
    return answer


# ---- under torch.vmap, with a predicate for each example


def select(predicate, on_true, on_false, operands):  # type: ignore[no-untyped-def]
    """The function that is interpreted for the call. As in torch, both branches run."""
    ask_region("begin_branches")
    return ask_region("choose", predicate, on_true(*operands), on_false(*operands))


class Side:
    """One recorded branch."""

    def __init__(self, calls: list[TorchCall], outputs: list[Handle], examples: list[torch.Tensor], spec: Any):
        self.calls, self.outputs, self.examples, self.spec = calls, outputs, examples, spec


class Branch(GraphRegion):
    """A call of ``torch.cond`` that is being traced."""

    functions = "a branch"
    may_call_functions = may_draw = True

    def __init__(self, m: Any, predicate: torch.Tensor, truth: bool, given: list[torch.Tensor]):
        super().__init__(m, "torch.cond", drawing_from([predicate, *given]))
        self.predicate, self.truth = predicate, truth
        self.given = {id(value) for value in given}
        self.is_bare = self.is_number = False
        self.sides: list[Side] = []

    def refuse(self, what: str) -> NoReturn:
        self.give_up(breaks.OPAQUE_CALL, f"{what} in a branch")

    def inside(self, name: str) -> str:
        return "a branch of torch.cond"

    def settles(self, number: Any) -> bool:
        """Whether it is a constant of the graphs. Torch's operator takes integers besides tensors, whose sizes may be
        symbolic; ours takes every number from outside."""
        if not self.m.options.shows_operators:
            is_inside = self.outer is not None and getattr(self.outer, "settles", lambda number: True)(number)
            return is_inside or number.expression.in_graph or self.m.options.exports
        return isinstance(number, float) or not fits_in_64_bits(number)

    # ---- the end of a branch

    def end_side(self, answer: Any) -> Any:
        recorder = self.m.recorder
        self.check_end()
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
            self.refuse("a result that is not a tensor computed there")
        given, made = set(map(memory_of, self.operands.values())), set(map(memory_of, leaves))
        if len(made) < len(leaves) or given & made:
            self.refuse("a result that shares memory with another one or with what was given")
        return leaves, spec

    def end(self) -> Any:
        """Both have been traced: replace them by one node."""
        m, recorder = self.m, self.m.recorder
        first, second = self.sides
        operands = list(self.operands.values())
        learns = torch.is_grad_enabled() and any(operand.requires_grad for operand in operands)
        if learns and self.is_number:
            self.refuse("gradients, which are those of the chosen branch alone where the predicate is a number")
        if learns and self.is_bare and any(x.requires_grad and id(x) not in self.given for x in operands):
            self.refuse("gradients of a tensor that is not among the operands")
        if first.spec != second.spec or list(map(facts_of, first.examples)) != list(map(facts_of, second.examples)):
            self.refuse("results that differ between the two")
        numbers = self.numbers()
        values = [recorder.examples[handle.key] for handle in numbers.values()]
        self.operands |= dict(zip(numbers, values, strict=True))
        graphs = [self.graph_of(side.calls, side.outputs) for side in (self.sides[::-1] if self.truth else self.sides)]
        for graph, name in zip(graphs, ("cond_true", "cond_false"), strict=True):
            graph.meta[GRAPH_NAME] = name
        self.leave()
        if self.outer is not None:
            for value in (self.predicate, *operands):
                self.outer.reads(value)
        branches = Branches(*graphs, len(numbers), self.draws)
        handles = [*(recorder.tensor(value) for value in (self.predicate, *operands)), *numbers.values()]
        made = branches(self.predicate, *operands, *values)
        if not m.options.wants_operators:
            call = TorchCall(branches, tuple(handles), {}, m.user_line())
        else:
            call = TorchCall(torch.ops.higher_order.cond, (handles[0], *graphs, tuple(handles[1:])), {}, m.user_line())
        recorder.register(made, recorder.add(call))
        m.answer = None
        return pytree.tree_unflatten(list(made), second.spec)

    def numbers(self) -> dict[int, Handle]:
        """The inputs of the graph that are numbers and that a branch reads, by id: further operands."""
        examples = self.m.recorder.examples
        found = [
            handle for side in self.sides for call in side.calls for handle in handles_in((call.args, call.kwargs))
        ]
        return {
            id(handle): handle
            for handle in found
            if handle.call is None and handle.key is not None and not isinstance(examples[handle.key], torch.Tensor)
        }


def is_plain_tree(value: Any) -> bool:
    if type(value) in CONTAINERS:
        return all(map(is_plain_tree, value.values() if type(value) is dict else value))
    return isinstance(value, torch.Tensor)


def facts_of(x: torch.Tensor) -> tuple:
    """The facts that must be equal for the results of both branches. All of them require gradients if an operand
    does."""
    return x.dtype, tuple(x.shape), x.stride(), x.device, x.layout


HANDLERS: dict[Callable, Callable] = {torch.cond: cond, type(torch.ops.higher_order.cond).__call__: cond_operator}
