"""Records the ATen calls of a trace as a functional graph of typed values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from ...foundation.torch_private import (
    DispatchKey,
    DispatchKeySet,
    ExcludeDispatchKeyGuard,
    len_torch_dispatch_stack,
    pop_torch_dispatch_stack,
    push_on_torch_dispatch_stack,
)
from ...ir.alias_analysis import aliased_argument
from ...ir.frozen_values import is_attention_without_dropout
from ...ir.graph import LEAVES, Graph, Node, Value
from ...ir.infer_types import result_types
from ...ir.joint_graph_signature import Gradients
from ...ir.untraceable_graph import NumberLost, Untraceable
from ...ops.operator_record import Op, lookup
from ...tensors.fit_size_formulas import GivenSize
from ...tensors.in_place_names import VIEW_OF_RESHAPING
from ...tensors.tensor_types import TensorType, contiguous_stride, has_stride
from .expand_foreach import rule_for
from .inference_mode_and_dispatch_keys import inference_mode_of_result
from .number_inputs import NumberInputs, tensor_of_number
from .replace_cudnn_batch_norm import CUDNN
from .schema_facts import declared, signature_of
from .storage_offsets import AS_STRIDED, check_offset, result_offsets
from .trace_tensor import TraceTensor, gradient_type, is_view_through_lazy, mark_lazy_view
from .traceability import why_not_input
from .validate_call_in_eager import verify_accepted_by_eager

ITEM = torch.ops.aten._local_scalar_dense.default
TO_COPY = torch.ops.aten._to_copy.default
ZEROS_WITHOUT_MEMORY = torch.ops.aten._efficientzerotensor.default
"""What autograd makes for a gradient that is zero everywhere. The tracer's has the same dispatch key, so that torch
computes with it as in eager: a product with infinity is zero. Where it is read as data, the graph has zeros."""


@dataclass(slots=True)
class Traced:
    graph: Graph
    constants: list[torch.Tensor] = field(default_factory=list)
    """Tensors that the captured graph holds. They are the last inputs."""
    gradients: Gradients | None = None
    """What was added to the graph for gradients, if they were requested."""
    has_numbers: bool = False
    """Whether it has Python numbers that may differ in the next call."""


class RandomRegion(Protocol):
    """A region that draws its random numbers itself."""

    def draw(self, func: Any, args: tuple, kwargs: dict) -> Any: ...


class AtenTracer:
    """Receives every ATen call during a trace."""

    confirms = False
    """Whether eager is asked about each operator, because the sizes are none that it has run for."""
    is_local = False
    """Whether there are `DTensor`s between inputs and outputs, of which the graph has the local tensors."""

    def __init__(self, gradients: bool = False, live_scalar_types: tuple[type, ...] = (), salt: int = 0) -> None:
        self.graph = Graph()
        self.traced = Traced(self.graph)
        self.gradients, self.live_scalar_types = gradients, live_scalar_types
        self.inputs: list[Any] = []
        """The inputs of this run: trace tensors and numbers."""
        self.numbers = NumberInputs(self.graph, salt)
        self.line: str | None = None
        self.constants: dict[int, Value] = {}
        self.region: RandomRegion | None = None
        """The checkpointed region that is being computed."""
        self.places: dict[int, int] = {}
        """The positions of inputs, by id."""
        self.written: set[int] = set()
        """The ids of inputs that were written to."""
        self.then: dict[int, TraceTensor] = {}
        """Those of them that backward takes in their state at that time, by position."""
        self.overwritten: tuple[int, ...] = ()
        """The positions of inputs that the caller writes to as soon as forward has run."""
        self.is_backward = False
        self.zeros: dict[Value, Value] = {}
        """Outputs that are zeros without memory, by those with memory."""
        self.picked: list[tuple[Node, Value]] = []
        """Copies made in place of views, and the bases of the views."""
        self.has_custom = False
        """Whether code of the user is differentiated."""

    def input(self, example: Any, name: str, is_state: bool) -> Any:
        if isinstance(example, GivenSize):
            example = int(example)
        elif isinstance(example, self.live_scalar_types) and type(example) is not bool:
            self.inputs.append(self.numbers.input(example, name))
            return self.inputs[-1]
        if not isinstance(example, torch.Tensor):
            self.graph.inputs.append(Value(TensorType.contiguous((), torch.int64), self.graph.fresh_name(name)))
            self.inputs.append(example)
            return example
        why = why_not_input(example)
        if why is not None:
            raise Untraceable(why)
        # Trained parameters change with every step: their values are not packed ahead.
        is_state = is_state and not self.gradients and not example.is_inference()
        value = self.graph.input(TensorType.of(example), name, is_state)
        made = TraceTensor.make(value, example.storage_offset())
        if self.gradients and example.requires_grad:
            made.requires_grad_()
        self.places[id(made)] = len(self.inputs)
        self.inputs.append(made)
        return made

    def tangent(self, out: TraceTensor) -> TraceTensor:
        """An input for the gradient of an output."""
        return TraceTensor.make(self.graph.input(gradient_type(out.value.type), f"{out.value.name}_tangent"))

    def tensor(self, value: Value, storage_offset: int = 0) -> TraceTensor:
        return TraceTensor.make(value, storage_offset)

    def as_it_is_then(self, x: TraceTensor) -> TraceTensor:
        """An input that is written to, for recomputation; in backward, its state at that time."""
        if not self.is_backward:
            return x
        at = self.places[id(x)]
        if at not in self.then:
            self.then[at] = TraceTensor.make(self.graph.input(x.value.type, f"{x.value.name}_then"), x.storage_offset())
        return self.then[at]

    def output(self, out: Any, is_seen: bool = True) -> Any:
        """`is_seen`: the program sees what it shares memory with, and not only its values as of a gradient."""
        if isinstance(out, TraceTensor):
            if out.is_conj() or out.is_neg() or is_seen and is_view_through_lazy(out.value):
                raise Untraceable("an output is a lazily conjugated tensor, or a view of one")
            return out.value if not out._is_zerotensor() else self.zeros_without_memory(out)
        if isinstance(out, torch.Tensor):
            return self.constant(out)
        return self.numbers.unwrapped(out)

    def zeros_without_memory(self, out: TraceTensor) -> Value:
        """Such an output, which the program cannot write to."""
        value, type = out.value, out.value.type
        if type.stride != contiguous_stride(type.shape):
            raise Untraceable("an output is a view of zeros without memory")
        if value not in self.zeros:
            options = {"dtype": type.dtype, "layout": torch.strided, "device": type.device}
            made = self.graph.add(lookup(ZEROS_WITHOUT_MEMORY), (list(type.shape),), options, type, self.line)
            self.zeros[value] = made  # type: ignore[assignment]
        return self.zeros[value]

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        if func is ITEM:
            return self.numbers.item(args[0].value, self.line)
        rule = rule_for(func) or CUDNN.get(func)
        if func is TO_COPY and not isinstance(args[0], torch.Tensor):
            rule = tensor_of_number  # torch hands over the number that it has made a tensor of
        if rule is not None:
            return self.again(rule, args, kwargs or {})
        if func is ZEROS_WITHOUT_MEMORY:
            zeros = self.perform(torch.ops.aten.zeros.default, args, kwargs)
            return TraceTensor.make(zeros.value, is_zero=True)
        func = declared(func, args)
        signature = signature_of(func)
        if signature.why_not is not None:
            raise Untraceable(signature.why_not)
        if signature.is_composite:
            return self.again(func.decompose, args, kwargs or {})
        if torch.Tag.nondeterministic_seeded in func.tags and self.numbers.any_in((args, kwargs or {})):
            raise NumberLost(f"{func} draws with a number that may be another one in the next call")
        if (
            self.region is not None
            and torch.Tag.nondeterministic_seeded in func.tags
            and not is_attention_without_dropout(func, args, kwargs or {})
        ):
            return self.region.draw(func, args, kwargs or {})
        return self.perform(func, args, kwargs)

    def perform(self, func: Any, args: tuple, kwargs: dict | None) -> Any:
        """Record an operator."""
        signature = signature_of(func)
        graph_args = self.unwrapped(args)
        graph_kwargs = {name: self.unwrapped(arg) for name, arg in kwargs.items()} if kwargs else {}
        op = lookup(func)
        if self.confirms and (signature.returns_written or not func._schema.returns):
            verify_accepted_by_eager(func, graph_args, graph_kwargs)
        for at in signature.written:
            self.writes(args[at] if isinstance(at, int) else kwargs[at])  # type: ignore[index]
        if signature.returns_written:
            # In place, or into `out`: the result is the argument, which must still have the type it had.
            given = [args[at] if isinstance(at, int) else kwargs[at] for at in signature.written]  # type: ignore[index]
            if signature.changes_type:
                self.change_type(func, given[0], args)
            else:
                self.graph.add(op, graph_args, graph_kwargs, (), self.line)
            return given[0] if len(given) == 1 else tuple(given)
        if not func._schema.returns:
            # It checks data, and may raise.
            self.graph.add(op, graph_args, graph_kwargs, (), self.line)
            return None
        result = result_types(op, graph_args, graph_kwargs)
        if self.confirms and op.shape is not None:  # otherwise the kernel itself was asked
            verify_accepted_by_eager(func, graph_args, graph_kwargs, result)
        lengths = {k: x for k, x in enumerate(result) if isinstance(x, int)} if signature.returns_lengths else {}
        if lengths:
            result = tuple(None if k in lengths else type for k, type in enumerate(result))
        made = self.graph.add(op, graph_args, graph_kwargs, result, self.line)
        offsets = self.offsets(made if isinstance(made, Value) else made[0], args)
        with inference_mode_of_result(func, args):
            if isinstance(made, Value):
                return mark_lazy_view(func, args, TraceTensor.make(made, offsets[0] if offsets else 0))
            results = [
                lengths.get(k)
                if value is None
                else mark_lazy_view(func, args, TraceTensor.make(value, offsets[k] if offsets else 0))
                for k, value in enumerate(made)
            ]
        return results if signature.returns_list else tuple(results)

    def offsets(self, made: Value | None, args: tuple) -> Sequence[int] | None:
        if made is None or not torch.is_grad_enabled() or aliased_argument(made.node) is None:
            return None
        if args[0].requires_grad and made.node.op.target is AS_STRIDED:
            check_offset(args[0].value, args[3] if len(args) > 3 else None)
        return result_offsets(made.node, args[0].storage_offset())

    def apply(self, op: Op, args: tuple) -> TraceTensor:
        """One of our own operators."""
        given = self.unwrapped(args)
        return TraceTensor.make(self.graph.add(op, given, {}, result_types(op, given, {}), self.line))

    def writes(self, x: Any) -> None:
        """Note which inputs are written to. A recomputed region must write to the same ones."""
        base = x if x._base is None else x._base
        if id(base) in self.places:
            if self.region is not None and x is not base:
                raise Untraceable("a checkpointed function writes to a part of an input")
            self.written.add(id(base))

    def change_type(self, func: Any, tensor: TraceTensor, args: tuple) -> None:
        """An operator that changes a tensor's shape or strides in place. Torch itself adjusts the strides of dimensions
        of size one; other uses must be in VIEW_OF_RESHAPING."""
        type = tensor.value.type
        if (
            func is torch.ops.aten.as_strided_.default
            and tuple(args[1]) == type.shape
            and len(args) == 3
            and tensor.value.node is not None
            and has_stride(type, tuple(args[2]))
        ):
            tensor.value.type = TensorType(type.shape, tuple(args[2]), type.dtype, type.device)
            return
        shown = VIEW_OF_RESHAPING.get(func)
        if shown is None or id(tensor if tensor._base is None else tensor._base) in self.places:
            raise Untraceable(f"{func} changes the shape of a tensor in place")
        # From here on the object is another view of its memory. It has no data, so only its type changes.
        made = TraceTensor.make(
            self.graph.add(
                op := lookup(shown), given := self.unwrapped(args), {}, result_types(op, given, {}), self.line
            ),
            tensor.storage_offset(),
        )
        with ExcludeDispatchKeyGuard(DispatchKeySet(DispatchKey.Python)):
            tensor.data = made
        tensor.value = made.value

    def again(self, rule: Callable, args: tuple, kwargs: dict) -> Any:
        """Decompose an operator that reached the dispatcher whole, for example a composite one; trace its parts."""
        modes = len_torch_dispatch_stack()
        try:
            push_on_torch_dispatch_stack(self)
            return rule(*args, **kwargs)
        finally:
            if len_torch_dispatch_stack() > modes:
                pop_torch_dispatch_stack(None)

    def unwrapped(self, tree: Any) -> Any:
        kind = type(tree)
        if kind in LEAVES:
            return self.numbers.unwrapped(tree)
        if kind is TraceTensor:
            return tree.value
        if isinstance(tree, torch.Tensor):
            return self.constant(tree)
        if isinstance(tree, (tuple, list)):
            parts = [self.unwrapped(part) for part in tree]
            return tuple(parts) if isinstance(tree, tuple) else parts
        if isinstance(tree, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise Untraceable("a symbolic number of torch's")
        return self.numbers.unwrapped(tree)

    def constant(self, tensor: torch.Tensor) -> Value:
        """A tensor with data, made by Python code during the trace."""
        value = self.constants.get(id(tensor))
        if value is None:
            why = why_not_input(tensor)
            if why is not None:
                raise Untraceable(why)
            value = Value(TensorType.of(tensor), self.graph.fresh_name("constant"))
            self.constants[id(tensor)] = value
            self.traced.constants.append(tensor)
        return value

    def finish(self) -> None:
        self.traced.has_numbers = bool(self.numbers.known)
        self.graph.inputs.extend(self.constants.values())
