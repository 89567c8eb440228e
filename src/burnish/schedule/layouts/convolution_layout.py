"""Layouts of convolution tensors: channels-last or contiguous, for forward and backward.

    y = conv x, w                                    r = restride x, channels-last
    z = aten.relu.default y                          y = run 'convolution' r, w
    g, h = aten.convolution_backward t, x, w    =>   z = aten.relu.default y                   channels-last as well
                                                     s = restride t, channels-last
                                                     g, h = aten.convolution_backward s, r, w

A library copies a tensor that is not in the layout it computes in. Element-wise nodes before and after a convolution
take its layout at no cost. So forward, both gradients and the copy are measured together. Where there are gradients, or
on a GPU, all convolutions are decided together (`propagate_channels_last`). The channels-last gradients of a 1x1
convolution are two matrix products, where those are faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...ir import fuel
from ...ir.graph import Graph, Node, Value
from ...ir.graph_builder import Builder
from ...ops.burnish_primitives import CONV, RUN
from ...ops.target_record import CPU, target_of
from ...tensors.tensor_types import TensorType, contiguous_stride
from ..library.autotune_library_calls import Choice
from ..library.call_candidates.convolution import in_channels_last, why_not_pointwise
from ..library.call_candidates.convolution_backward_times import ConvBackwardSpec
from ..library.call_candidates.convolution_backward_times import seconds_of as gradient_seconds
from ..library.call_specs import ConvSpec, LinearSpec
from ..library.gpu_convolution_times import seconds_of as seconds_on_gpu
from ..library.measure_candidates import Clock
from .channels_last_strides import channels_last_stride, is_channels_last
from .propagate_channels_last import BACKWARD, SecondsByLayout, choose_layouts, links_of


@dataclass(slots=True)
class ChosenConvolution:
    spec: ConvSpec
    x: Value
    """A value of the new graph."""
    backward: float | None
    """Seconds of its gradients in one call of torch."""


LEAST_CHANNELS = 16
"""Fewest channels for which oneDNN's gradients of a strided 1x1 convolution are correct: the width of its vectors."""


class Layouts:
    """`choose` finds the fastest call of a spec; `seconds` is the time allowed for measuring one."""

    def __init__(
        self,
        graph: Graph,
        build: Builder,
        choose: Callable[[Any], Choice],
        seconds: float,
        spec_of: Callable[[Node, TensorType], Any],
    ):
        self.graph, self.build, self.choose, self.seconds, self.spec_of = graph, build, choose, seconds, spec_of
        self.backward = {(node.args[1], node.args[2]): node for node in graph.nodes if node.op.name == BACKWARD}
        self.chosen: dict[tuple[Value, Value], ChosenConvolution] = {}
        """By the convolution's input and weight in the old graph."""
        self.laid: dict[tuple[Value, tuple[int, ...]], Value] = {}
        self.is_last: dict[Node, bool] | None = None
        """Of the convolutions that are decided together; computed at the first use."""
        self.clocks = clocks_of(graph)

    def lay(self, x: Value, stride: tuple[int, ...]) -> Value:
        """The value with these strides: one copy, shared by all readers."""
        if x.type.stride == stride:
            return x
        if (x, stride) not in self.laid:
            self.laid[x, stride] = self.build.restride(x, stride)
        return self.laid[x, stride]

    def forward(self, node: Node, spec: ConvSpec, x: Value) -> tuple[ConvSpec, Choice, Value]:
        """The spec in the chosen layout, the fastest call for it, and its input."""
        behind = self.backward.get((node.args[0], node.args[1]))
        if behind is not None or node in self.clocks:
            spec = in_order(spec, is_last=self.decided()[node])
            x = self.lay(x, spec.x.stride)
            if behind is not None:
                self.chosen[node.args[0], node.args[1]] = ChosenConvolution(spec, x, self.seconds_behind(spec, behind))
            return spec, self.choose(spec), x
        choice, turned = self.choose(spec), in_channels_last(spec)
        if turned != spec:
            other = self.choose(turned)
            moved = copy_seconds(x.type)
            is_faster = choice.seconds and other.seconds and other.seconds + moved < choice.seconds
            if is_faster and fuel.allows("convolution_layout", node, "channels-last"):
                spec, choice = turned, other
        return spec, choice, self.lay(x, spec.x.stride)

    def decided(self) -> dict[Node, bool]:
        """Which of the convolutions with gradients, or on a GPU, compute in channels-last."""
        if self.is_last is None:
            nodes = [
                node
                for node in self.graph.nodes
                if node in self.clocks or node.op is CONV and tuple(node.args[:2]) in self.backward
            ]
            times = [
                SecondsByLayout(*(self.seconds_of(node, is_last) or 0.0 for is_last in (False, True))) for node in nodes
            ]
            # With only one of the two times, there is nothing to compare.
            times = [both if all(both) else SecondsByLayout(0.0, 0.0) for both in times]
            links = list(links_of(self.graph, nodes, copy_seconds))
            self.is_last = {
                node: is_last and not self.is_refused(node) and self.is_allowed(node)
                for node, is_last in zip(nodes, choose_layouts(times, links), strict=True)
            }
        return self.is_last

    def is_refused(self, node: Node) -> bool:
        """Whether its gradients must not be computed in channels-last: oneDNN then writes past the end of its workspace
        if a 1x1 convolution has a stride and fewer channels than a vector."""
        behind = self.backward.get(tuple(node.args[:2]))
        if behind is None or not behind.args[-1][1] or not node.args[0].type.is_on_host:
            return False
        weight, stride = node.args[1].type.shape, self.spec_of(node, node.args[0].type).stride
        return max(weight[2:]) == 1 < max(stride) and weight[1] < LEAST_CHANNELS

    def is_allowed(self, node: Node) -> bool:
        is_last = is_channels_last(node.args[0].type)
        return is_last or fuel.allows("convolution_layout", node, "channels-last")

    def seconds_of(self, node: Node, is_last: bool) -> float | None:
        """Time of the convolution and its gradients. None where they were not measured."""
        if is_last and self.is_refused(node):
            return None
        spec = in_order(self.spec_of(node, node.args[0].type), is_last=is_last)
        if node in self.clocks:
            behind = self.backward.get(tuple(node.args[:2]))
            return seconds_on_gpu(spec, behind and tuple(behind.args[-1]), self.clocks[node])
        forward, backward = self.choose(spec).seconds, self.seconds_behind(spec, self.backward[tuple(node.args[:2])])
        return None if forward is None or backward is None else forward + backward

    def seconds_behind(self, spec: ConvSpec, node: Node) -> float | None:
        return gradient_seconds(ConvBackwardSpec(replace(spec, bias=None), tuple(node.args[-1])), self.seconds)

    def gradients(self, node: Node, args: tuple) -> Any:
        """The results of a convolution's backward in the chosen layout; None where none was chosen."""
        found = self.chosen.get((node.args[1], node.args[2]))
        if found is None:
            return None
        grad, _, weight, *_ = args
        is_last = is_channels_last(found.x.type)
        grad = self.lay(grad, channels_last_stride(grad.shape) if is_last else contiguous_stride(grad.shape))
        if is_last and why_not_pointwise(found.spec) is None:
            made = self.products(found, grad, weight, node.args[-1])
            if made is not None:
                return made
        return self.build.apply(node.op, (grad, found.x, weight, *args[3:]))

    def products(self, found: ChosenConvolution, grad: Value, weight: Value, wanted: Sequence[bool]) -> tuple | None:
        """Matrix products, where faster than one call: with pixels as rows, dx = grad @ w and dw = gradᵀ @ x."""
        rows, outputs, channels = grad.type.numel // grad.shape[1], grad.shape[1], found.x.shape[1]
        device, dtype = grad.type.device, grad.dtype
        grad_rows, x_rows = (TensorType.contiguous((rows, n), dtype, device) for n in (outputs, channels))
        step, across = weight.type.stride[:2]
        turned = TensorType((channels, outputs), (across, step), dtype, device)
        specs = [
            LinearSpec(grad_rows, turned) if wanted[0] else None,
            LinearSpec(transposed(grad_rows), transposed(x_rows)) if wanted[1] else None,
        ]
        choices = [spec and self.choose(spec) for spec in specs]
        seconds = [choice.seconds for choice in choices if choice is not None]
        if found.backward is None or not seconds or None in seconds or sum(seconds) >= found.backward:  # type: ignore
            return None
        if not fuel.allows("convolution_layout", "the gradients of a convolution", "products of matrices"):
            return None
        build = self.build
        pixels = self.rows_of(grad)
        made: list[Value | None] = [None, None, None]
        if choices[0] is not None:
            matrix = build.permute(build.reshape(weight, (outputs, channels)), (1, 0))
            image = build.reshape(self.run(choices[0], pixels, matrix), (grad.shape[0], *grad.shape[2:], channels))
            made[0] = build.permute(image, (0, image.ndim - 1, *range(1, image.ndim - 1)))
        if choices[1] is not None:
            across_x = build.permute(self.rows_of(found.x), (1, 0))
            made[1] = build.reshape(self.run(choices[1], build.permute(pixels, (1, 0)), across_x), weight.shape)
        if wanted[2]:
            made[2] = build.reduce("sum", grad, (0, *range(2, grad.ndim)), keep=False)
        return tuple(made)

    def rows_of(self, x: Value) -> Value:
        """A channels-last tensor as a matrix with one pixel in each row."""
        last = self.build.permute(x, (0, *range(2, x.ndim), 1))
        return self.build.reshape(last, (x.type.numel // x.shape[1], x.shape[1]))

    def run(self, choice: Choice, x: Value, weight: Value) -> Value:
        rows = self.build.restride(x, contiguous_stride(x.shape)) if "x" in choice.candidate.rows else x
        given = {"x": rows, "weight": weight}
        operands = tuple(given[name] for name in choice.candidate.operands)
        made = self.build.apply_typed(RUN, (choice.candidate, operands), {}, (choice.candidate.output,))[0]
        assert made is not None
        return made


def clocks_of(graph: Graph) -> dict[Node, Clock]:
    """Convolutions that are measured on their GPU, and the timer of each."""
    found: dict[Node, Clock] = {}
    for node in graph.nodes:
        target = target_of(node.args[0].type.device) if node.op is CONV and node.args[0].ndim > 3 else None
        clock = target.clock() if target is not None and target.clock is not None else None
        if clock is not None:
            found[node] = clock
    return found


def copy_seconds(type: TensorType) -> float:
    """Time to copy a tensor to another layout."""
    return (target_of(type.device) or CPU).copy_seconds * type.bytes


def in_order(spec: ConvSpec, *, is_last: bool) -> ConvSpec:
    """The same convolution with x in channels-last or contiguous layout."""
    if is_last:
        return in_channels_last(spec)
    return replace(spec, x=replace(spec.x, stride=contiguous_stride(spec.x.shape)))


def transposed(type: TensorType) -> TensorType:
    return replace(type, shape=type.shape[::-1], stride=type.stride[::-1])
