"""Autograd function of a compiled graph: joins its compiled forward and backward.

    step = Differentiable(forward, backward, layout, eager)
    y = step(x, w)              y.grad_fn is ours
    y.sum().backward()          runs the compiled backward

Autograd checks the versions of saved inputs and outputs: writing to them before backward is an error, as in eager.
The other saved values are private and are freed one by one as backward reads them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ...foundation.torch_private import get_current_graph_task_keep_graph, top_saved_tensors_default_hooks
from .eager_double_backward import apart, at_no_level, needs_gradient, run_again
from .kinds_of_tangents import LAZY, NOT_IN_MEMORY, as_expected, keys_of
from .rebuild_aliased_gradients import copied_if_held, is_turned, with_tangents, with_views

if TYPE_CHECKING:
    from ...captured_graph.aliased_gradients import InputView, TangentGradient

TWICE = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
    "after calling backward."
)
"""Torch's own message."""


@dataclass(frozen=True, slots=True)
class GradientLayout:
    """The positions of inputs, outputs, saved values and gradients. Forward returns the outputs that are computed (not
    in `shown`, `views`), then the saved values. Backward takes the tangents, `again`, the saved inputs, outputs and
    other values. It returns the gradients of the inputs in `gradients`."""

    outputs: int
    shown: dict[int, InputView]
    """Outputs that are inputs or views of them, by their position among all outputs."""
    flows: tuple[int, ...]
    """Positions among forward's outputs: those that gradients flow into."""
    closed: tuple[tuple[int, str], ...]
    """Outputs in `flows` through which backward may not start, and torch's error message."""
    tangents: tuple[tuple[tuple[int, ...], tuple[int, ...], torch.dtype], ...]
    """Shape, stride and dtype that backward expects of each tangent."""
    saved_inputs: tuple[int, ...]
    saved_outputs: tuple[int, ...]
    watched: tuple[int, ...]
    """Positions among the saved values: those that share memory with an input or output."""
    gradients: tuple[int, ...]
    """Positions of the inputs that get gradients."""
    inputs: int
    why_not_twice: str | None
    """Why double backward is not supported; None where it is."""
    views: dict[int, InputView] = field(default_factory=dict)
    """Outputs that are views of other outputs, by position. `InputView.input` is the base's position among forward's
    outputs."""
    hidden: int = 0
    """The number of outputs, at the end, that the program does not return."""
    again: tuple[int, ...] = ()
    """Positions of the inputs that backward takes as they are when it runs, after the tangents."""
    reached: tuple[int, ...] = ()
    """For each gradient, a bit mask of the `flows` that it depends on; empty where there is one gradient."""
    gradient_views: tuple[tuple[int, InputView], ...] = ()
    """Positions among backward's results of gradients that are views of other results, and the views."""
    of_tangents: tuple[TangentGradient, ...] = ()
    """The gradients that are tangents, or views of them."""
    held: tuple[tuple[int, bool], ...] = ()
    """Positions among backward's results of gradients that eager references elsewhere when a leaf gets them, and
    whether each is a tangent. A view's memory is visible elsewhere."""
    order: tuple[int, ...] = ()
    """The order in which autograd gets the inputs; empty for their own order."""
    multiplied: tuple[int, ...] = ()
    """Bit masks of `flows`: the tangents that meet in backward and are combined with other values."""
    frees: bool = True
    """Whether eager frees saved tensors after backward, so that it runs only once."""
    unused: tuple[int, ...] = ()
    """The positions of inputs that require gradients and get none from any output: autograd must not see them."""
    draws: bool = False
    """Whether forward draws random numbers: a second run draws the same ones."""
    written: tuple[int, ...] = ()
    """The positions of inputs that forward writes to: a second run writes to copies."""
    overwritten: tuple[int, ...] = ()
    """Positions among the saved values: those in whose memory backward stores results."""

    def without_gradient(self, flowing: Sequence[Any]) -> list[int]:
        """The gradients that nothing flows to, because the loss does not use the outputs that they depend on."""
        if not self.reached or all(tangent is not None for tangent in flowing):
            return []
        used = sum(1 << k for k, tangent in enumerate(flowing) if tangent is not None)
        return [at for at, reached in zip(self.gradients, self.reached, strict=True) if not reached & used]

    def may_spread_nan(self, flowing: Sequence[Any]) -> bool:
        """Whether the zeros that stand for tangents which did not come may be multiplied with infinity."""
        if not self.multiplied or self.why_not_twice is not None:
            return False
        used = sum(1 << k for k, tangent in enumerate(flowing) if tangent is not None)
        return any(not mask & used for mask in self.multiplied)

    def ordered(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The inputs in autograd's order."""
        return [inputs[k] for k in self.order] if self.order else inputs

    def as_given(self, ordered: Sequence[Any]) -> Sequence[Any]:
        """The inputs in their own order, given those in autograd's order."""
        return [x for _, x in sorted(zip(self.order, ordered, strict=True), key=first)] if self.order else ordered


first = operator.itemgetter(0)


class GradientSource(Protocol):
    """Computes the gradients that compiled code cannot compute."""

    def gradients_by_eager(
        self, inputs: Sequence[Any], tangents: Sequence[Any], kind: str, create_graph: bool, drawn: Any
    ) -> list[Any]: ...


def check_twice(layout: GradientLayout, kind: str) -> None:
    """Raises RuntimeError if a graph cannot run a second time, for gradients of this kind."""
    if layout.why_not_twice is not None:
        raise RuntimeError(
            f"Gradients {kind} through compiled code that {layout.why_not_twice}: that part of the program cannot be "
            "run a second time. Keep it out of compilation with burnish.disable(function), or call backward without "
            "asking for them."
        )


def saving_is_watched() -> bool:
    """Whether there are saved-tensor hooks."""
    return top_saved_tensors_default_hooks(True) is not None


def autograd_is_watched() -> bool:
    """Whether each step of autograd is observed: by saved-tensor hooks, or by anomaly detection, which reports the
    function that made a NaN. Then nothing is compiled and nothing runs compiled."""
    return saving_is_watched() or torch.is_anomaly_enabled()


class DifferentiableGraph:
    """A compiled graph in autograd. `eager` is the uncompiled graph, used for gradients of gradients."""

    takes_gradients = True

    def __init__(self, forward: Callable, backwards: Sequence[Callable], layouts: tuple, eager: Callable):
        """`backwards`: of each node of autograd, from outputs to inputs. `layouts` describe the nodes."""
        self.forward, self.backwards, self.layouts, self.eager = forward, backwards, layouts, eager

    @property
    def source(self) -> str:
        backwards = "".join(f"\n# backward {k}\n{x.source}" for k, x in enumerate(self.backwards))  # type: ignore
        return f"# forward\n{self.forward.source}{backwards}"  # type: ignore[attr-defined]

    def __call__(self, *inputs: Any) -> tuple:
        if autograd_is_watched():
            # Checkpointing counts the saved tensors, and its first run was eager.
            return tuple(self.eager(*inputs))
        return self.called(inputs, self.forward, self.backwards)

    def called(self, inputs: tuple, forward: Callable, backwards: Sequence[Callable]) -> tuple:
        """One call by these functions, which do what `forward` and `backwards` do."""
        return self.differentiated(inputs, forward, backwards, *self.layouts)

    def differentiated(self, inputs: tuple, forward: Callable, backwards: Sequence[Callable], *layouts: Any) -> tuple:
        raise NotImplementedError


class Differentiable(DifferentiableGraph):
    """One node of autograd."""

    @property
    def layouts_of_nodes(self) -> Sequence[GradientLayout]:
        return self.layouts

    @property
    def layout(self) -> GradientLayout:
        return self.layouts[0]

    @property
    def computed(self) -> int:
        """How many of forward's results are outputs; the others are saved values."""
        return self.layout.outputs - len(self.layout.shown) - len(self.layout.views)

    def saved_values(self, inputs: Sequence[Any], made: Sequence[Any]) -> list[list[Any]]:
        """What the backward of each node gets after its tangents, out of the inputs and forward's results."""
        layout = self.layout
        saved = [inputs[k] for k in layout.saved_inputs] + [made[k] for k in layout.saved_outputs]
        return [saved + list(made[self.computed :])]

    def differentiated(self, inputs: tuple, forward: Callable, backwards: Sequence[Callable], *layouts: Any) -> tuple:
        (layout,), (backward,) = layouts, backwards
        given: Sequence[Any] = inputs
        if layout.unused:  # the outputs may still be views of them
            given = [x.detach() if k in layout.unused else x for k, x in enumerate(inputs)]
        if layout.order:
            given = layout.ordered(given)
        if torch.is_grad_enabled():
            made = Compiled.apply(self, layout, forward, backward, *given)
        else:  # the graph itself enables gradients
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

    def gradients_by_eager(
        self, inputs: Sequence[Any], tangents: Sequence[Any], kind: str, create_graph: bool, drawn: Any
    ) -> list[Any]:
        """Gradients from a second run of the eager graph. With `create_graph` they can be differentiated again."""
        layout = self.layout
        check_twice(layout, kind)
        with torch.enable_grad():
            with at_no_level():
                inputs = apart(inputs)
                outputs = run_again(self.eager, inputs, layout.written, drawn)
            made = [out for k, out in enumerate(outputs) if k not in layout.shown and k not in layout.views]
            shown = {view.input: outputs[k]._base for k, view in layout.views.items()}
            made += [shown[k] for k in range(len(made), len(made) + layout.hidden)]
            pairs = [(made[k], tangents[k]) for k in layout.flows if tangents[k] is not None]
            wanted = list(filter(needs_gradient, inputs))
            found = iter(
                torch.autograd.grad(
                    [out for out, _ in pairs],
                    wanted,
                    [tangent for _, tangent in pairs],
                    allow_unused=True,
                    create_graph=create_graph,
                )
            )
        return [next(found) if needs_gradient(x) else None for x in inputs]


class AtSymbolicSizes:
    """A differentiable graph of programs with symbolic sizes: its layouts depend on the sizes. `otherwise` runs where
    the programs are not right."""

    takes_gradients = True

    def __init__(self, graph: DifferentiableGraph, layouts_at: Callable[[tuple[int, ...]], tuple], otherwise: Callable):
        self.graph, self.layouts_at, self.otherwise = graph, layouts_at, otherwise
        self.layouts: dict[tuple[int, ...], tuple] = {}

    @property
    def source(self) -> str:
        return self.graph.source

    def __call__(self, *inputs: Any) -> tuple:
        graph = self.graph
        if autograd_is_watched():
            return tuple(graph.eager(*inputs))
        forward: Any = graph.forward
        point = forward.point_of(inputs)
        layouts = self.layouts.get(point)
        if layouts is None:
            if not forward.is_right_for(point):
                return tuple(self.otherwise(*inputs))
            if len(self.layouts) > MOST_LAYOUTS:
                self.layouts.clear()
            layouts = self.layouts[point] = self.layouts_at(point)
        backwards: Sequence[Any] = graph.backwards
        return graph.differentiated(
            inputs,
            functools.partial(forward.at, point),
            [functools.partial(backward.at, point) for backward in backwards],
            *layouts,
        )


MOST_LAYOUTS = 1000


class WithoutGradientFlow:
    """A program over tensors that require gradients, whose results do not: an optimizer step, for example."""

    takes_gradients = False

    def __init__(self, program: Any):
        self.program = program
        self.views: tuple[int, ...] | None = None
        """The outputs that are views of inputs; known after the first run."""

    @property
    def source(self) -> str:
        return self.program.source

    def __call__(self, *inputs: Any) -> tuple:
        with torch.no_grad():
            made = self.program(*inputs)
        if type(made) is RanInstead:
            return tuple(made)
        if self.views is None:
            self.views = tuple(k for k, x in enumerate(made) if is_view_of_constant(x, inputs))
        if not self.views:
            return made
        # Autograd forbids writes to views that were made while gradients were off.
        return tuple(
            x._base.as_strided(x.shape, x.stride(), x.storage_offset()) if k in self.views else x
            for k, x in enumerate(made)
        )


class RanInstead(tuple):
    """The results of what ran in place of the program of a `WithoutGradientFlow`."""


def with_gradients_instead(call: Callable) -> Callable[..., RanInstead]:
    """`call`, which runs where the program of a `WithoutGradientFlow` cannot. It may differentiate, so it runs in the
    present grad mode."""
    mode = torch.is_grad_enabled()

    def run(*inputs: Any) -> RanInstead:
        with torch.set_grad_enabled(mode):
            return RanInstead(call(*inputs))

    return run


def is_view_of_constant(x: Any, inputs: Sequence[Any]) -> bool:
    return (
        isinstance(x, torch.Tensor)
        and x._is_view()
        and not x._base.requires_grad
        and not any(x is given for given in inputs)
    )


NOT_INPUTS = 4
"""The number of arguments of `Compiled` before the program's inputs."""


HANDS_OVER = hasattr(torch.autograd.Function, "boxed_grads_call")
"""Whether torch can pass the tangents in a list that we can clear. As arguments, torch keeps them until backward is
done."""


class Compiled(torch.autograd.Function):
    """The function that autograd records."""

    boxed_grads_call = True

    @staticmethod
    def forward(
        ctx: Any, step: GradientSource, layout: GradientLayout, forward: Callable, backward: Callable, *inputs: Any
    ) -> tuple:
        if layout.order:
            inputs = tuple(layout.as_given(inputs))
        ctx.step, ctx.layout, ctx.run, ctx.inputs = step, layout, backward, inputs
        ctx.set_materialize_grads(False)
        ctx.drawn = torch.get_rng_state() if layout.draws else None
        made = forward(*inputs)
        count = layout.outputs - len(layout.shown) - len(layout.views)
        # A view made here could not be written to outside. `detach()` shares the version of its base.
        outputs = tuple(x.detach() if isinstance(x, torch.Tensor) and x._is_view() else x for x in made[:count])
        kept = list(made[count:])
        ctx.save_for_backward(
            *[tensor_or_none(inputs[k]) for k in layout.saved_inputs],
            *[tensor_or_none(outputs[k]) for k in layout.saved_outputs],
            *[kept[k] for k in layout.watched],
        )
        ctx.kept = kept
        ctx.numbers = {k: outputs[k] for k in layout.saved_outputs if not isinstance(outputs[k], torch.Tensor)}
        ctx.devices = [outputs[k].device for k in layout.flows]
        constant = [x for k, x in enumerate(outputs) if k not in layout.flows and isinstance(x, torch.Tensor)]
        if constant:
            flowing = {id(outputs[k]) for k in layout.flows}
            if not flowing.isdisjoint(map(id, constant)):
                # `return loss, loss.detach()`: one value but two tensors, and only one of them requires gradients.
                outputs = tuple(
                    x.detach() if k not in layout.flows and id(x) in flowing else x for k, x in enumerate(outputs)
                )
                constant = [x for k, x in enumerate(outputs) if k not in layout.flows and isinstance(x, torch.Tensor)]
            ctx.mark_non_differentiable(*constant)
        return outputs

    @staticmethod
    def backward(ctx: Any, *given_tangents: Any) -> tuple:
        tangents = given_tangents[0] if HANDS_OVER else list(given_tangents)
        step: GradientSource = ctx.step
        layout: GradientLayout = ctx.layout
        if torch.is_grad_enabled():
            found = step.gradients_by_eager(ctx.inputs, tangents, "of gradients (create_graph=True)", True, ctx.drawn)
            return None, None, None, None, *layout.ordered(found)
        if all(tangents[k] is None for k in layout.flows):
            # Autograd continues to what the loss reaches by other paths, with no gradient. Zeros would count as a
            # gradient.
            return (None,) * (layout.inputs + NOT_INPUTS)
        if ctx.kept is None:
            raise RuntimeError(TWICE)
        keys = keys_of(tangents)
        if keys & NOT_IN_MEMORY:
            kind = "many at once (vmap), or from a tensor that is not an ordinary one,"
            found = step.gradients_by_eager(ctx.inputs, tangents, kind, False, ctx.drawn)
            free_after(ctx, layout)
            return None, None, None, None, *layout.ordered(found)
        flowing = [tangents[k] for k in layout.flows]
        for k, words in layout.closed:
            if tangents[k] is not None:
                raise RuntimeError(words)
        unreached = layout.without_gradient(flowing)
        came = list(tangents) if layout.may_spread_nan(flowing) else None
        tangents.clear()
        turned = [
            (view, flowing[view.flow])
            for view in layout.of_tangents
            if is_turned(flowing[view.flow], *layout.tangents[view.flow])
        ]
        flowing.reverse()
        given = [
            as_expected(flowing.pop(), *expected, device, keys & LAZY)
            for expected, device in zip(layout.tangents, ctx.devices, strict=True)
        ]
        count = len(layout.saved_inputs) + len(layout.saved_outputs)
        # Torch refuses to show even no saved tensors a second time.
        watched = ctx.saved_tensors[:count] if count or layout.watched else ()
        given += [ctx.inputs[k] for k in layout.again]
        given += [ctx.inputs[k] if x is None else x for k, x in zip(layout.saved_inputs, watched, strict=False)]
        given += [
            ctx.numbers[k] if x is None else x
            for k, x in zip(layout.saved_outputs, watched[len(layout.saved_inputs) :], strict=True)
        ]  # Python numbers are kept as they are
        given += ctx.kept if is_last_backward(layout) else copies_of_some(ctx.kept, layout.overwritten)
        run = ctx.run
        free_after(ctx, layout)
        del watched
        found = run(given)
        if came is not None and not all(bool(x.isfinite().all()) for x in found if x is not None):
            again = step.gradients_by_eager(ctx.inputs, came, "", False, ctx.drawn)
            return None, None, None, None, *layout.ordered(again)
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


def free_after(ctx: Any, layout: GradientLayout) -> None:
    """Frees the saved values of a backward that runs only once."""
    if is_last_backward(layout):
        ctx.kept = ctx.run = None


def is_last_backward(layout: GradientLayout) -> bool:
    return layout.frees and not get_current_graph_task_keep_graph()


def copies_of_some(kept: Sequence[Any], some: Sequence[int]) -> list[Any]:
    """The saved values, for a backward that may run again: what it overwrites is a copy."""
    return [x.clone() if k in some else x for k, x in enumerate(kept)]


def tensor_or_none(x: Any) -> torch.Tensor | None:
    return x if isinstance(x, torch.Tensor) else None
