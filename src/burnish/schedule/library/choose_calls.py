"""Dispatch to libraries (kernel selection): replaces each product and convolution by its fastest library call.

    y = linear x, w, b, None, None        =>    p = prepare 'onednn packed', w, b
    z = aten.gelu.default y                     z = run 'onednn packed' gelu, x, p

A following activation is fused where a library does it faster than a kernel of our own after the plain call. Where the
product is one of our own kernels, the element-wise epilogue (a residual, any activation) is computed while the sums are
in registers: see `epilogue_fusion.Epilogue`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from ... import events
from ...ir import fuel
from ...ir.frozen_values import state_values
from ...ir.graph import Graph, Node, Value, map_values
from ...ir.rewriter import Rewriter
from ...ir.verify_and_publish_graph import announce
from ...ops.burnish_primitives import CONV, LINEAR, PREPARE, QUANTIZED_LINEAR, RUN
from ...ops.layouts_eager_accepts import LEFT, reads_gaps
from ...ops.scalar_ir import Scalar
from ...settings import current
from ...tensors.tensor_types import TensorType, contiguous_stride
from ...tensors.views.view_maps import Permute, Reshape, Slice
from ..fusion.epilogue_fusion import Epilogue, epilogue_of
from ..layouts.convolution_layout import Layouts
from ..layouts.pad_matmul_operands import pad_matmul_operands
from ..layouts.propagate_channels_last import BACKWARD
from ..rewrites.grouped_query_attention import before_repeating
from ..rewrites.merge_recurrent_directions import LAYER, Layer, layers_of
from .autotune_library_calls import WORTH_OTHER, Choice, candidates, choose, choose_thoroughly, tuned
from .call_candidates.recurrent import NAME as OWN_RECURRENT
from .call_specs import Activation, AttentionSpec, ConvSpec, IntegerSpec, LinearSpec, MatmulSpec, QuantizedSpec, Spec
from .candidate import Candidate
from .choose_gpu_matmuls import choose_gpu_matmuls
from .own_kernels.own_matmul_and_convolution import NAME as OWN
from .own_kernels.own_matmul_and_convolution import own_candidate
from .own_kernels.quantized_product import INTEGERS as OWN_INTEGERS
from .own_kernels.quantized_product import of_one_row, own_dequantized
from .own_kernels.query_block_attention import NAME as OWN_ATTENTION
from .own_kernels.query_block_attention import own_attention
from .own_kernels.token_attention import NAME as OWN_TOKEN
from .own_kernels.token_attention import own_token_attention
from .own_kernels.winograd_convolution import NAME as WINOGRAD
from .own_kernels.winograd_convolution import own_winograd

SECONDS = 0.003
"""Time for measuring one spec."""

THOROUGH_SECONDS = 0.05
"""The same with the setting `max_autotune`."""

ELEMENT_SECONDS = 0.3e-9
"""Cost of an activation in our own kernel for each element. It may be fused with later loops there."""

LAUNCH_SECONDS = 4e-6
"""Cost of launching one."""

BATCHED = "aten.bmm.default"
INTEGER_PRODUCT = "aten._int_mm.default"
ATTENTION = "aten._scaled_dot_product_flash_attention_for_cpu.default"

OPAQUE = TensorType((), (), torch.uint8)
"""The type of values that a library prepared: only the library reads them."""

ACTIVATIONS = {
    "aten.relu.default": "relu",
    "aten.gelu.default": "gelu",
    "aten.silu.default": "silu",
    "aten.sigmoid.default": "sigmoid",
    "aten.tanh.default": "tanh",
    "aten.hardswish.default": "hardswish",
    "aten.hardsigmoid.default": "hardsigmoid",
    "aten.leaky_relu.default": "leaky_relu",
}


OwnAttention = Callable[[AttentionSpec, TensorType], Candidate | None]
OWN_ATTENTIONS: dict[str, OwnAttention] = {OWN_ATTENTION: own_attention, OWN_TOKEN: own_token_attention}


def is_measured(node: Node) -> bool:
    return node.op in (LINEAR, QUANTIZED_LINEAR, CONV) or node.op.name in (BATCHED, ATTENTION, LAYER)


@events.stage("measure")
def choose_calls(graph: Graph) -> Graph:
    if current().shape_padding:
        before, graph = graph, pad_matmul_operands(graph)
        announce("pad_matmul_operands", graph, before)
    if current().max_autotune:
        before, graph = graph, choose_gpu_matmuls(graph)
        announce("choose_gpu_matmuls", graph, before)
    before, graph = graph, Chooser(graph).run()
    announce("choose_calls", graph, before)
    return graph


class Chooser(Rewriter):
    def __init__(self, graph: Graph):
        super().__init__(graph)
        self.state = state_values(graph)
        self.readers: Counter[Value] = Counter()
        self.reader: dict[Value, Node] = {}
        for node in graph.nodes:
            for value in node.operands:
                self.readers[value] += 1
                self.reader[value] = node
        outside = graph.leaving_values()
        self.readers.update(outside)
        for value in outside:
            self.reader.pop(value, None)
        self.fused_into: dict[Node, Value] = {}
        """Activations that are fused into the call before them."""
        self.absorbed: set[Node] = set()
        """Epilogue nodes that a call computes, except the last one."""
        self.measured, self.to_measure = 0, sum(is_measured(node) for node in graph.nodes)
        self.postponed: dict[Node, Postponed] = {}
        """Calls with an epilogue, placed at its last node, where all their operands are available."""
        self.choices: dict[Spec, Choice] = {}
        """Equal layers have equal specs."""
        self.layers = self.layers_of(graph)
        self.first_halves = {layer.nodes[0] for layer in self.layers.values() if len(layer.nodes) > 1}
        """The first directions of merged layers: a layer is placed at its last node."""
        self.joined: dict[Node, Value] = {}
        """Concatenations whose parts a merged layer already writes side by side."""
        self.layouts = Layouts(graph, self.build, self.chosen, SECONDS, self.spec_of)

    def run(self) -> Graph:
        made = super().run()
        del self.layouts  # it refers to this object, which would keep both graphs until the garbage collector runs
        self.tell_progress("all of it")
        return made

    def tell_progress(self, what: str) -> None:
        """Reports progress, because thorough measurements take a while."""
        if current().max_autotune and self.to_measure:
            events.emit("kernels.measuring", done=self.measured, total=self.to_measure, what=what)

    def rewrite(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> Any:
        if is_measured(node):
            self.tell_progress(node.op.name)
            self.measured += 1
        if node in self.fused_into:
            return self.fused_into[node]
        if node in self.absorbed:
            # Only the call that replaces it reads this.
            return (self.env[next(iter(node.operands))],)
        if node in self.postponed:
            return self.call_with_epilogue(self.postponed[node])
        if node.op is RUN:
            return self.chosen_before(node)
        if node.op.name == BATCHED:
            return self.batched(args[0], args[1])
        if node.op.name in LEFT:
            return self.product(node, args, kwargs)
        if node.op.name == ATTENTION:
            return self.attention(node)
        if node in self.first_halves:
            return (self.env[node.args[0]],) * len(node.results)  # not read before the other direction is placed
        if node in self.joined:
            return self.joined[node]
        if node in self.layers:
            return self.layer(self.layers[node])
        if node.op.name == BACKWARD:
            return self.layouts.gradients(node, args)
        if node.op.name == INTEGER_PRODUCT:
            return self.integers(node, *args)
        if node.op is QUANTIZED_LINEAR:
            return self.quantized(node, args)
        return self.call(node) if node.op in (LINEAR, CONV) else None

    def chosen(self, spec: Spec) -> Choice:
        if spec not in self.choices:
            self.choices[spec] = spend_fuel(spec, chosen(spec))
        return self.choices[spec]

    def chosen_before(self, node: Node) -> Any:
        """Restores the layouts that its kernel was chosen for, where operands have changed theirs."""
        candidate, operands = node.args
        given = tuple(self.build.restride(self.env[value], value.type.stride) for value in operands)
        return self.build.apply_typed(RUN, (candidate, given), {}, tuple([v and v.type for v in node.results]))

    def product(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> Value | None:
        """Copies the left operand of a product that stays torch's, where its kernel may read gaps between rows."""
        place = LEFT[node.op.name]
        left = args[place]
        if not reads_gaps(left.type):
            return None
        rows = self.build.restride(left, contiguous_stride(left.shape))
        return self.build.apply(node.op, (*args[:place], rows, *args[place + 1 :]), kwargs)

    def batched(self, a: Value, b: Value) -> Value | None:
        spec = MatmulSpec(a.type, b.type)
        choice = self.chosen(spec)
        if choice.seconds is None or choice.candidate is candidates(spec)[0]:
            return None
        return self.build.apply_typed(RUN, (choice.candidate, (a, b)), {}, (choice.candidate.output,))[0]

    def quantized(self, node: Node, args: tuple) -> Value | None:
        """Uses our kernel where it is the fastest; else the weight is computed before each product. Rows of x, scales
        and shifts are small: they are copied where they have gaps."""
        operands = tuple(
            operand and (operand if place == 1 else self.build.restride(operand, contiguous_stride(operand.shape)))
            for place, operand in enumerate(args[:5])
        )
        spec = QuantizedSpec(*(operand and operand.type for operand in operands), *args[5:])
        names = ("x", "weight", "scales", "shifts", "bias")
        given = {name: operand for name, operand in zip(names, operands, strict=True) if operand is not None}
        own = self.own_quantized(spec, node)
        if own is not None:
            return self.run_of(own, given)
        weights = own_dequantized(of_one_row(spec))
        if weights is None:
            return None
        given["weight"] = self.run_of(weights, given)
        types = {name: given[name].type for name in ("x", "weight", "bias") if name in given}
        return self.run_of(self.chosen(LinearSpec(**types)).candidate, given)

    def integers(self, node: Node, x: Value, weight: Value) -> Value | None:
        rows = self.build.view(weight, Permute((1, 0)))
        own = self.own_integers(IntegerSpec(x.type, rows.type), node)
        return own and self.run_of(own, {"x": x, "weight": rows})

    def own_integers(self, spec: IntegerSpec, node: Node) -> Candidate | None:
        found = self.chosen(spec).candidate
        return found if found.name == OWN_INTEGERS else None

    def run_of(self, candidate: Candidate, given: dict[str, Value]) -> Value:
        operands = tuple(given[name] for name in candidate.operands)
        return self.build.apply_typed(RUN, (candidate, operands), {}, (candidate.output,))[0]  # type: ignore[return-value]

    def own_quantized(self, spec: QuantizedSpec, node: Node) -> Candidate | None:
        found = self.chosen(spec).candidate
        return None if found.steps is None else found

    def attention(self, node: Node) -> tuple[Value, None] | None:
        """Uses our own kernel where the results that gradients need are not read."""
        found = self.attention_spec(node)
        if found is None:
            return None
        spec, values = found
        return self.own_attention(OWN_ATTENTIONS.get(self.chosen(spec).candidate.name), spec, values, node)

    def own_attention(
        self, kernel: OwnAttention | None, spec: AttentionSpec, values: list[Value], node: Node
    ) -> tuple[Value, None] | None:
        out = node.results[0]
        assert out is not None
        own = kernel and kernel(spec, out.type)
        return own and (self.build.apply_typed(RUN, (own, tuple(values)), {}, (out.type,))[0], None)

    def attention_spec(self, node: Node) -> tuple[AttentionSpec, list[Value]] | None:
        """The spec and its operands. None where gradients read the other results, or something is dropped out."""
        out, sums = node.results
        q, k, v, dropout, is_causal, *_ = (*node.args, *(0.0, False)[len(node.args) - 3 :])
        if dropout or sums is not None and self.readers[sums] or out is None:
            return None
        mask = node.kwargs.get("attn_mask")
        shared = self.shared(k), self.shared(v)
        keys, numbers = shared if None not in shared else (self.env[k], self.env[v])
        values = [self.env[q], keys, numbers, *([] if mask is None else [self.env[mask]])]
        spec = AttentionSpec(
            *(value.type for value in values[:3]),
            values[3].type if mask is not None else None,
            is_causal,
            node.kwargs.get("scale"),
            keys.shape[1] != q.shape[1],
        )
        return spec, values

    def shared(self, value: Value) -> Value | None:
        """The heads before each was repeated for several of the queries' heads."""
        repeated = before_repeating(value)
        if repeated is None:
            return None
        batch, heads, _, rows, size = repeated.shape
        return self.build.view(self.env[repeated], Slice(2, 0, 1, 1), Reshape((batch, heads, rows, size)))

    def layers_of(self, graph: Graph) -> dict[Node, Layer]:
        return layers_of(graph, lambda value: value in self.state)

    def layer(self, layer: Layer) -> tuple | None:
        """Uses our own kernels for a recurrent layer where they are the fastest."""
        x = self.build.restride(self.env[layer.x], contiguous_stride(layer.x.shape))
        spec = layer.spec(x)
        candidate = self.chosen(spec).candidate
        if (
            any(self.env[v].type != type for v, type in zip(layer.weights, spec.weights.values(), strict=True))
            or candidate.name != OWN_RECURRENT
        ):
            for node in layer.nodes[:-1]:
                self.keep(node)
            return None
        assert candidate.prepare is not None
        given = {"x": x}
        given.update(
            (name, self.build.restride(self.env[value], type.stride))
            for (name, type), value in zip(spec.states.items(), layer.states, strict=True)
        )
        prepared = self.build.apply_typed(
            PREPARE, (candidate, *map(self.env.__getitem__, layer.weights)), {}, (OPAQUE,) * len(candidate.prepared)
        )
        given.update(zip(candidate.prepared, prepared, strict=True))
        types = candidate.output, *(type for _, type in candidate.further)
        operands = tuple(given[name] for name in candidate.operands)
        out, *states = self.build.apply_typed(RUN, (candidate, operands), {}, types)
        if layer.joined is not None:
            self.joined[layer.joined] = out
        for direction, node in enumerate(layer.nodes):
            mine = [self.build.view(state, Slice(0, direction, 1, 1), Reshape(state.shape[1:])) for state in states]
            self.env.update(zip(node.results[:3], (out, *mine), strict=True))
        return (out, *mine, None)

    def only_reader(self, value: Value) -> Node | None:
        """None where another call has absorbed that reader."""
        reader = self.reader.get(value) if self.readers[value] == 1 else None
        return None if reader in self.absorbed or reader in self.postponed else reader

    def call(self, node: Node) -> Value:
        x: Value = self.env[node.args[0]]
        spec = self.spec_of(node, x.type)
        if current().max_autotune:
            spec = tuned(spec, seconds=THOROUGH_SECONDS)
        if isinstance(spec, ConvSpec):
            spec, plain, x = self.layouts.forward(node, spec, x)
        else:
            plain = self.chosen(spec)
        found = epilogue_of(node, self.only_reader)
        if found is not None and (own := self.own_way(spec, plain, found)) is not None:
            self.absorbed.update(found.nodes[:-1])
            self.postponed[found.nodes[-1]] = Postponed(node, spec, x, plain, found, own)
            return x
        follower = self.activation_after(node)
        fused = None if follower is None else self.fused(spec, follower, plain)
        if fused is None or follower is None:
            return self.add_run(node, x, plain.candidate)
        # The product itself is no longer a value; the activation is its only reader.
        made = self.fused_into[follower] = self.add_run(node, x, fused.candidate)
        return made

    def own_way(self, spec: LinearSpec | ConvSpec, plain: Choice, found: Epilogue) -> str | None:
        """Our own kernel that, with the epilogue inside, beats the fastest call with a kernel of ours after it."""
        name = fastest_own(plain)
        own = plain.measured.get(name)
        if own is None or plain.seconds is None or OWN_WAYS[name](spec, found.expression) is None:
            return None
        is_faster = own < plain.seconds + LAUNCH_SECONDS + ELEMENT_SECONDS * plain.candidate.output.numel
        return name if is_faster and fuel.allows("fuse_epilogue", list(found.nodes), "inside", name) else None

    def call_with_epilogue(self, what: Postponed) -> Any:
        found, spec = what.epilogue, what.spec
        residual = None
        if found.residual is not None:
            residual = self.env[found.residual]
            if isinstance(spec, LinearSpec) and residual.type.is_contiguous:
                residual = self.build.reshape(residual, spec.output_shape)
            if residual.shape == spec.output_shape:
                spec = replace(spec, residual=residual.type)
        candidate = OWN_WAYS[what.own](spec, found.expression)
        if candidate is None or (found.residual is not None and spec.residual is None):
            return self.call_and_epilogue(what)
        made = self.add_run(what.node, what.x, candidate, residual)
        return self.build.reshape(made, found.result.shape) if made.shape != found.result.shape else made

    def call_and_epilogue(self, what: Postponed) -> Any:
        """Emits call and epilogue separately: the residual turned out to differ in layout from the result."""
        value = what.node.results[0]
        assert value is not None
        self.env[value] = self.add_run(what.node, what.x, what.plain.candidate)
        for node in what.epilogue.nodes:
            results = self.keep(node)
        return results

    def keep(self, node: Node) -> tuple:
        """Emits a node unchanged at another place."""
        args = map_values(node.args, self.env.__getitem__)
        kwargs = {name: map_values(arg, self.env.__getitem__) for name, arg in node.kwargs.items()}
        results = self.copy_node(node, args, kwargs)
        self.env.update((old, made) for old, made in zip(node.results, results, strict=True) if old is not None)
        return results

    def spec_of(self, node: Node, x: TensorType) -> LinearSpec | ConvSpec:
        weight, bias = (None if arg is None else self.env.get(arg, arg).type for arg in node.args[1:3])
        is_frozen = all(value in self.state for value in (node.args[1], node.args[2]) if value is not None)
        if node.op is LINEAR:
            return LinearSpec(x, weight, bias, is_frozen=is_frozen)
        stride, padding, dilation, transposed, output_padding, groups = node.args[5:]
        return ConvSpec(
            x, weight, bias, None, None, stride, padding, dilation, transposed, output_padding, groups, is_frozen
        )

    def activation_after(self, node: Node) -> Node | None:
        """The activation, if it is the product's only reader."""
        value = node.results[0]
        assert value is not None
        reader = self.reader.get(value)
        if reader is None or self.readers[value] != 1 or reader.op.name not in ACTIVATIONS:
            return None
        return reader if reader.results[0] is not None and reader.results[0].type == value.type else None

    def fused(self, spec: LinearSpec | ConvSpec, follower: Node, plain: Choice) -> Choice | None:
        spec = replace(spec, activation=activation_of(follower))
        if all(candidate.call is None for candidate in candidates(spec)):
            return None  # no library fuses it
        choice = self.chosen(spec)
        if choice.seconds is None or plain.seconds is None or choice.candidate.call is None:
            return None
        own = ELEMENT_SECONDS * choice.candidate.output.numel
        return choice if choice.seconds < plain.seconds + own else None

    def add_run(self, node: Node, x: Value, candidate: Candidate, residual: Value | None = None) -> Value:
        given = {"x": self.build.restride(x, contiguous_stride(x.shape)) if "x" in candidate.rows else x}
        if residual is not None:
            given["residual"] = residual
        given.update(
            (name, self.env[value])
            for name, value in zip(("weight", "bias"), node.args[1:3], strict=True)
            if value is not None
        )
        if candidate.prepare is not None:
            weights = [given[name] for name in ("weight", "bias") if name in given]
            made = self.build.apply_typed(PREPARE, (candidate, *weights), {}, (OPAQUE,) * len(candidate.prepared))
            given.update(zip(candidate.prepared, made, strict=True))
        operands = tuple(given[name] for name in candidate.operands)
        return self.build.apply_typed(RUN, (candidate, operands), {}, (candidate.output,))[0]  # type: ignore


@dataclass(frozen=True, slots=True)
class Postponed:
    node: Node
    spec: LinearSpec | ConvSpec
    x: Value
    """A value of the new graph."""
    plain: Choice
    """The call to use if the epilogue cannot be fused after all."""
    epilogue: Epilogue
    own: str
    """The name of our kernel that computes the epilogue."""


OWN_WAYS: dict[str, Callable[[Any, Scalar], Candidate | None]] = {OWN: own_candidate, WINOGRAD: own_winograd}
"""Our kernels that compute an epilogue while the sums are in registers."""


def fastest_own(plain: Choice) -> str:
    own, winograd = plain.measured.get(OWN), plain.measured.get(WINOGRAD)
    is_worth = winograd is not None and (own is None or winograd < WORTH_OTHER[WINOGRAD] * own)
    return WINOGRAD if is_worth else OWN


def chosen(spec: Spec) -> Choice:
    if current().max_autotune:
        return choose_thoroughly(spec, seconds=THOROUGH_SECONDS)
    return choose(spec, seconds=SECONDS)


def spend_fuel(spec: Spec, choice: Choice) -> Choice:
    """Any call but eager's own costs fuel."""
    eager = candidates(spec)[0]
    if choice.candidate.name == eager.name or fuel.allows("choose_calls", spec, choice.candidate.name):
        return choice
    return Choice(eager, None, {})


def activation_of(node: Node) -> Activation:
    name = ACTIVATIONS[node.op.name]
    if name == "gelu":
        return Activation(name, algorithm=node.kwargs.get("approximate", "none"))
    if name == "leaky_relu":
        return Activation(name, (float(node.args[1]) if len(node.args) > 1 else 0.01,))
    return Activation(name)
