"""A compiled graph that gradients flow through: forward and backward, joined for autograd.

    step = Differentiable(forward, backward, layout, eager)
    y = step(x, w)              y.grad_fn is ours
    y.sum().backward()          runs the compiled backward

Saved inputs and outputs are watched by autograd: to write to them before backward is an error, as it is in eager. The
other saved values are known to nobody else and are dropped one by one as backward reads them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import torch

from .program import is_laid_out, restrided
from .shared_gradients import PassedOn, Shown, copied_if_held, is_turned, with_tangents, with_views
from .symbolic_size_program import OpenProgram

TWICE = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
    "after calling backward."
)
"""Torch's own words."""


@dataclass(frozen=True, slots=True)
class GradientLayout:
    """Which tensors stand where. Forward answers the outputs that are not made anew (`shown`, `views`), then the values
    to be saved.
    Backward takes the tangents, `again`, the saved inputs, outputs and other values, and answers the gradients of
    `gradients`.
    """

    outputs: int
    shown: dict[int, Shown]
    """The others, by their position among all outputs."""
    flows: tuple[int, ...]
    """Positions of the outputs that gradients flow into, among forward's."""
    closed: tuple[tuple[int, str], ...]
    """Of those the ones by which backward cannot come in, and torch's words for it."""
    tangents: tuple[tuple[tuple[int, ...], tuple[int, ...], torch.dtype], ...]
    """Shape, stride and dtype that backward expects of each."""
    saved_inputs: tuple[int, ...]
    saved_outputs: tuple[int, ...]
    watched: tuple[int, ...]
    """Among the values to be saved: those that share memory with an input or output."""
    gradients: tuple[int, ...]
    """Positions of inputs."""
    inputs: int
    why_not_twice: str | None
    """Why gradients of gradients cannot be had; None where they can."""
    views: dict[int, Shown] = field(default_factory=dict)
    """Outputs that show a part of another one, by their positions. `Shown.input` is that one's among forward's."""
    hidden: int = 0
    """How many of the outputs, the last ones, the program does not answer with."""
    again: tuple[int, ...] = ()
    """Positions of the inputs that backward takes as they are when it runs, after the tangents."""
    reached: tuple[int, ...] = ()
    """Of each gradient: from which of `flows` it comes, a bit for each; empty where there is one."""
    gradient_views: tuple[tuple[int, Shown], ...] = ()
    """Positions among backward's results of gradients that are views of what stands there."""
    of_tangents: tuple[PassedOn, ...] = ()
    """The gradients that are tangents, or views of them."""
    held: tuple[tuple[int, bool], ...] = ()
    """Positions among backward's results of gradients that something else holds in eager when a leaf gets them, and
    whether it is a tangent. The memory of that is seen elsewhere if it is a view."""
    order: tuple[int, ...] = ()
    """In which order autograd is given the inputs; empty for their own."""

    def without_gradient(self, flowing: Sequence[Any]) -> list[int]:
        """Of the gradients those that nothing flows to, for the loss does not use the outputs that they come from."""
        if not self.reached or all(tangent is not None for tangent in flowing):
            return []
        used = sum(1 << k for k, tangent in enumerate(flowing) if tangent is not None)
        return [at for at, reached in zip(self.gradients, self.reached, strict=True) if not reached & used]

    def ordered(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """As autograd is given them."""
        return [inputs[k] for k in self.order] if self.order else inputs

    def as_given(self, ordered: Sequence[Any]) -> Sequence[Any]:
        """The inputs in their own order, of those that autograd was given."""
        return [x for _, x in sorted(zip(self.order, ordered, strict=True), key=first)] if self.order else ordered


first = operator.itemgetter(0)


def saving_is_watched() -> bool:
    """Whether there are hooks for what autograd saves."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def autograd_is_watched() -> bool:
    """Whether somebody looks at each step of autograd: at what it saves, or for the function of the program that made a
    NaN (anomaly detection). Then nothing is to be compiled, nor to run compiled."""
    return saving_is_watched() or torch.is_anomaly_enabled()


class Differentiable:
    """`eager` is the graph as it stands: gradients of gradients come from there."""

    takes_gradients = True

    def __init__(self, forward: Callable, backward: Callable, layout: GradientLayout, eager: Callable):
        self.forward, self.backward, self.layout, self.eager = forward, backward, layout, eager

    @property
    def source(self) -> str:
        return f"# forward\n{self.forward.source}\n# backward\n{self.backward.source}"  # type: ignore[attr-defined]

    def __call__(self, *inputs: Any) -> tuple:
        if autograd_is_watched():
            # Checkpointing counts what is saved, and the first run, the recording, was eager's.
            return tuple(self.eager(*inputs))
        return self.differentiated(inputs, self.layout, self.forward, self.backward)

    def differentiated(self, inputs: tuple, layout: GradientLayout, forward: Callable, backward: Callable) -> tuple:
        given = layout.ordered(inputs) if layout.order else inputs
        if torch.is_grad_enabled():
            made = Compiled.apply(self, layout, forward, backward, *given)
        else:  # it is the graph itself that turns gradients on
            with torch.enable_grad():
                made = Compiled.apply(self, layout, forward, backward, *given)
        if not layout.shown and not layout.views:
            return made
        rest = iter(made)
        found = [
            layout.shown[k].of(inputs)
            if k in layout.shown
            else layout.views[k].of(made)
            if k in layout.views
            else next(rest)
            for k in range(layout.outputs)
        ]
        return tuple(found[: layout.outputs - layout.hidden])


class OpenDifferentiable(Differentiable):
    """The same for programs whose sizes are told by their inputs: the layout is another one for other sizes."""

    def __init__(
        self,
        forward: OpenProgram,
        backward: OpenProgram,
        layout_at: Callable[[tuple[int, ...]], GradientLayout],
        eager: Callable,
        otherwise: Callable,
    ):
        super().__init__(forward, backward, layout_at(forward.points[0]), eager)
        self.layout_at, self.otherwise = layout_at, otherwise
        self.layouts: dict[tuple[int, ...], GradientLayout] = {}

    def __call__(self, *inputs: Any) -> tuple:
        if autograd_is_watched():
            return tuple(self.eager(*inputs))
        point = self.forward.point_of(inputs)  # type: ignore[attr-defined]
        layout = self.layouts.get(point)
        if layout is None:
            if not self.forward.is_right_for(point):  # type: ignore[attr-defined]
                return tuple(self.otherwise(*inputs))
            if len(self.layouts) > MOST_LAYOUTS:
                self.layouts.clear()
            layout = self.layouts[point] = self.layout_at(point)
        return self.differentiated(
            inputs,
            layout,
            functools.partial(self.forward.at, point),  # type: ignore
            functools.partial(self.backward.at, point),
        )  # type: ignore[attr-defined]


MOST_LAYOUTS = 1000


class Aside:
    """A program over tensors that require gradients, none of which leave it: the step of an optimizer, say."""

    takes_gradients = False

    def __init__(self, program: Any):
        self.program = program
        self.views: tuple[int, ...] | None = None
        """The outputs that show a part of an input; known when it has run once."""

    @property
    def source(self) -> str:
        return self.program.source

    def __call__(self, *inputs: Any) -> tuple:
        with torch.no_grad():
            made = self.program(*inputs)
        if self.views is None:
            self.views = tuple(k for k, x in enumerate(made) if is_view_of_constant(x, inputs))
        if not self.views:
            return made
        # Autograd forbids to write to views that were made while it was off.
        return tuple(
            x._base.as_strided(x.shape, x.stride(), x.storage_offset()) if k in self.views else x
            for k, x in enumerate(made)
        )


def is_view_of_constant(x: Any, inputs: Sequence[Any]) -> bool:
    return (
        isinstance(x, torch.Tensor)
        and x._is_view()
        and not x._base.requires_grad
        and not any(x is given for given in inputs)
    )


NOT_INPUTS = 4
"""Arguments of `Compiled` that come before the program's inputs."""


HANDS_OVER = hasattr(torch.autograd.Function, "boxed_grads_call")
"""Whether torch can give the tangents away, in a list: by arguments it keeps them until backward is done."""


class Compiled(torch.autograd.Function):
    """What autograd sees."""

    boxed_grads_call = True

    @staticmethod
    def forward(
        ctx: Any, step: Differentiable, layout: GradientLayout, forward: Callable, backward: Callable, *inputs: Any
    ) -> tuple:
        if layout.order:
            inputs = tuple(layout.as_given(inputs))
        ctx.step, ctx.layout, ctx.run, ctx.inputs = step, layout, backward, inputs
        ctx.set_materialize_grads(False)
        made = forward(*inputs)
        count = layout.outputs - len(layout.shown) - len(layout.views)
        # A view that was made in here could not be written to outside. It shares its version with what it shows.
        outputs = tuple(x.detach() if isinstance(x, torch.Tensor) and x._is_view() else x for x in made[:count])
        kept = list(made[count:])
        ctx.save_for_backward(
            *[tensor_or_none(inputs[k]) for k in layout.saved_inputs],
            *[outputs[k] for k in layout.saved_outputs],
            *[kept[k] for k in layout.watched],
        )
        ctx.kept = kept
        ctx.devices = [outputs[k].device for k in layout.flows]
        constant = [x for k, x in enumerate(outputs) if k not in layout.flows and isinstance(x, torch.Tensor)]
        if constant:
            flowing = {id(outputs[k]) for k in layout.flows}
            if not flowing.isdisjoint(map(id, constant)):
                # `return loss, loss.detach()`: one value, but two tensors, and only one of them takes gradients.
                outputs = tuple(
                    x.detach() if k not in layout.flows and id(x) in flowing else x for k, x in enumerate(outputs)
                )
                constant = [x for k, x in enumerate(outputs) if k not in layout.flows and isinstance(x, torch.Tensor)]
            ctx.mark_non_differentiable(*constant)
        return outputs

    @staticmethod
    def backward(ctx: Any, *given_tangents: Any) -> tuple:
        tangents = given_tangents[0] if HANDS_OVER else list(given_tangents)
        step: Differentiable = ctx.step
        layout: GradientLayout = ctx.layout
        if torch.is_grad_enabled():
            return None, None, None, None, *layout.ordered(gradients_to_differentiate(step, ctx.inputs, tangents))
        if ctx.kept is None:
            raise RuntimeError(TWICE)
        flowing = [tangents[k] for k in layout.flows]
        for k, words in layout.closed:
            if tangents[k] is not None:
                raise RuntimeError(words)
        if all(tangent is None for tangent in flowing):
            # Autograd walks on through what the loss reaches by other ways, with no gradient. Noughts would be one.
            if not torch._C._autograd._get_current_graph_task_keep_graph():
                ctx.kept = ctx.run = None
            return (None,) * (layout.inputs + NOT_INPUTS)
        unreached = layout.without_gradient(flowing)
        tangents.clear()
        turned = [
            (view, flowing[view.flow])
            for view in layout.of_tangents
            if is_turned(flowing[view.flow], *layout.tangents[view.flow])
        ]
        flowing.reverse()
        given = [
            as_expected(flowing.pop(), *expected, device)
            for expected, device in zip(layout.tangents, ctx.devices, strict=True)
        ]
        watched = ctx.saved_tensors[: len(layout.saved_inputs) + len(layout.saved_outputs)]
        given += [ctx.inputs[k] for k in layout.again]
        given += [
            ctx.inputs[k] if x is None else x for k, x in zip_longest(layout.saved_inputs, watched)
        ]  # a number of Python's is kept as it is
        given += ctx.kept
        run = ctx.run
        if not torch._C._autograd._get_current_graph_task_keep_graph():
            ctx.kept = ctx.run = None  # by what runs it is told that what was saved is done with
        del watched
        found = run(given)
        if layout.gradient_views:
            found = with_views(found, layout.gradient_views, layout.of_tangents)
        if turned:
            found = with_tangents(found, turned)
        if layout.held:
            found = copied_if_held(found, layout.held, [ctx.inputs[k] for k in layout.gradients])
        gradients: list[Any] = [None] * layout.inputs
        for at, gradient in zip(layout.gradients, found, strict=True):
            gradients[at] = gradient
        for at in unreached:
            gradients[at] = None
        return None, None, None, None, *layout.ordered(gradients)


def tensor_or_none(x: Any) -> torch.Tensor | None:
    return x if isinstance(x, torch.Tensor) else None


def as_expected(
    x: torch.Tensor | None, shape: tuple, stride: tuple, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """A tangent in the memory layout that backward was compiled for."""
    if x is None:
        return (
            torch.zeros(shape, dtype=dtype, device=device).as_strided(shape, stride)
            if not shape
            else torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_()
        )
    if x.is_conj() or x.is_neg():  # kernels read memory, and there stands something else
        x = x.resolve_conj().resolve_neg()
    # Where it is laid out as expected it stays the tensor it is, whatever its strides along dimensions of one element.
    # Returned as a gradient, a second tensor of the same memory would be taken over by autograd, not copied.
    return x if x.stride() == stride or is_laid_out(x, shape, stride) else restrided(x, shape, stride)


def gradients_to_differentiate(step: Differentiable, inputs: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """By the eager graph, run once more: its gradients can be differentiated again."""
    layout = step.layout
    if layout.why_not_twice is not None:
        raise RuntimeError(
            f"Gradients of gradients (create_graph=True) through compiled code that {layout.why_not_twice}: that part "
            "of the program cannot be run a second time. Keep it out of compilation with burnish.disable(function), or "
            "call backward without create_graph."
        )
    with torch.enable_grad():
        outputs = step.eager(*inputs)
        made = [out for k, out in enumerate(outputs) if k not in layout.shown and k not in layout.views]
        shown = {view.input: outputs[k]._base for k, view in layout.views.items()}
        made += [shown[k] for k in range(len(made), len(made) + layout.hidden)]
        pairs = [(made[k], tangents[k]) for k in layout.flows if tangents[k] is not None]
        wanted = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]
        found = iter(
            torch.autograd.grad(
                [out for out, _ in pairs],
                wanted,
                [tangent for _, tangent in pairs],
                allow_unused=True,
                create_graph=True,
            )
        )
    return [next(found) if isinstance(x, torch.Tensor) and x.requires_grad else None for x in inputs]
