"""``torch.cond`` in a graph: both branches are graphs, and a tensor selects the one that runs.

    chosen = Branches(on_true, on_false)
    chosen(x.sum() > 0, x)                          (x.sin(),) or (x.cos(),)

As in torch, its results require gradients if any operand does, and operands that the chosen branch does not use get
gradients of zeros. The branch's values for backward are saved, so it does not run twice. It does run again for
gradients of gradients, and if its results have been written to, with the same random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...foundation.torch_private import execution_engine, get_current_graph_task_keep_graph
from .eager_activation_checkpointing import RandomState
from .loop_operators import with_numbers

Side = Callable[..., tuple[torch.Tensor, ...]]


class Branches:
    """A callable with a name that a graph can print. Its operands are all values that either branch reads: tensors, and
    then `count` numbers."""

    stands_alone = True
    """In a graph it runs as it is: see ``compiler.uncompiled_calls``."""

    def __init__(self, on_true: Side, on_false: Side, count: int = 0, draws: bool = False):
        """``draws``: a branch draws random numbers. Compiled code would draw others when its graph runs again."""
        self.on_true, self.on_false, self.count, self.draws = on_true, on_false, count, draws
        self.__name__ = self.__qualname__ = "cond"
        self.__module__ = __name__

    def in_subgraphs(self, compile_graph: Callable[[Any], Side]) -> Branches:
        """The same with compiled branches."""
        if self.draws:
            return self
        return Branches(compile_graph(self.on_true), compile_graph(self.on_false), self.count)

    def without_data(self, call: Callable, predicate: Any, *operands: Any) -> Any:
        """The results at other sizes: ``call(graph, operands, {})`` runs a graph on tensors without data."""
        made, other = (call(side, operands, {}) for side in (self.on_true, self.on_false))
        if [(x.shape, x.stride()) for x in made] != [(x.shape, x.stride()) for x in other]:
            raise ValueError("the branches return tensors of different sizes")
        return made

    def __call__(self, predicate: torch.Tensor, *given: Any) -> tuple[torch.Tensor, ...]:
        end = len(given) - self.count
        operands, numbers = given[:end], given[end:]
        side = self.on_true if predicate else self.on_false
        if torch.is_grad_enabled() and any(operand.requires_grad for operand in operands):
            again = with_numbers(getattr(side, "eager", side), numbers)
            if self.draws:
                again = drawing_again(again, operands)
            made: tuple[torch.Tensor, ...] = ChosenBranch.apply(with_numbers(side, numbers), again, *operands)
            return made
        return tuple(side(*given))


def drawing_again(side: Side, operands: tuple[torch.Tensor, ...]) -> Side:
    """A branch that draws what it is about to draw, whenever it runs."""
    random = RandomState(operands)

    def again(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with random.again(given):
            return side(*given)

    return again


class ChosenBranch(torch.autograd.Function):
    """The branch that runs, as one autograd function."""

    @staticmethod
    def forward(ctx: Any, side: Side, again: Side, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inside = [operand.detach().requires_grad_(operand.requires_grad) for operand in operands]
        with torch.enable_grad():
            made = side(*inside)
        ctx.save_for_backward(*operands)
        ctx.again, ctx.inside, ctx.made = again, inside, made
        return tuple(out.detach() for out in made)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        operands = ctx.saved_tensors
        wanted = [k for k in range(len(operands)) if ctx.needs_input_grad[k + 2]]
        twice = torch.is_grad_enabled()
        found: tuple[Any, ...] | None = None
        if not twice:
            kept = get_current_graph_task_keep_graph()
            try:
                found = gradients_of(ctx.made, gradients, [ctx.inside[k] for k in wanted], kept, False)
            except RuntimeError as error:
                if "inplace operation" not in str(error):
                    raise
            if not kept:
                ctx.made = ctx.inside = None
        if found is None:
            with torch.enable_grad():
                # Views, so that no operand depends on another one.
                inside = [
                    operand.view_as(operand) if twice else operand.detach().requires_grad_(operand.requires_grad)
                    for operand in operands
                ]
                made = ctx.again(*inside)
            found = gradients_of(made, gradients, [inside[k] for k in wanted], twice, twice)
        answer: list[Any] = [None] * (len(operands) + 2)
        for k, gradient in zip(wanted, found, strict=True):
            answer[k + 2] = torch.zeros_like(operands[k]) if gradient is None else gradient
        return tuple(answer)


def gradients_of(made: Any, gradients: Any, inputs: list[torch.Tensor], keep: bool, twice: bool) -> tuple[Any, ...]:
    """``torch.autograd.grad``, without the imports of its argument checks."""
    pairs = [(out, gradient) for out, gradient in zip(made, gradients, strict=True) if out.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    found: tuple[Any, ...] = execution_engine.run_backward(
        tuple(out for out, _ in pairs),
        tuple(gradient for _, gradient in pairs),
        keep,
        twice,
        tuple(inputs),
        allow_unreachable=True,
        accumulate_grad=False,
    )
    return found
