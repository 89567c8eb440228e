"""The first step down: torch calls become ATen calls.

    y = torch.nn.functional.linear(x, w)     =>     t    = aten.t.default w
                                                    mm   = aten.mm.default x, t

The captured graph runs once more, on `TraceTensor`s: tensors with a type and no data. PyTorch's own C++ decides what a
call means (views, promotion, composite operators), and each ATen call that comes out at the bottom is written down. Its
result's type is told by the operator's shape rule; where there is none the eager kernel is asked, on tensors of zeros.

The calls are seen through a raw entry of the dispatch stack: torch's TorchDispatchMode would import Dynamo.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

from ...ir.alias_analysis import aliased_argument
from ...ir.frozen_values import drops_nothing
from ...ir.gradient_signature import Gradients
from ...ir.graph import LEAVES, Graph, Node, Value
from ...ir.graph_builder import Builder
from ...ir.infer_types import result_types
from ...ir.untraceable_graph import NumberLost, Untraceable
from ...ops.operator_record import Op, lookup
from ...tensors.collective_operators import is_collective_operator
from ...tensors.compile_request import facts_of_input
from ...tensors.eager_strides import preserved_stride
from ...tensors.tensor_types import NAMES, TensorType, has_stride
from .checkpoint_recompute import Regions, TracedRegion
from .cudnn_batch_norm import CUDNN
from .differentiate import add_gradients, custom_backwards
from .expand_foreach import rule_for
from .masked_writes import is_masked_write, write_masked
from .max_pool1d import is_pooled_line, pool_line
from .number_inputs import Numbers, check_numbers
from .one_hot_class_check import check_classes, is_one_hot
from .recurrent_layers import is_recurrent, trace_recurrent
from .scalar_tensor_index import pick, picking_tensor, why_not_copied
from .storage_offsets import AS_STRIDED, beginnings, check_offset
from .symbolic_scalar import reckoned


class TraceTensor(torch.Tensor):
    """A tensor known by its type. `value` is what stands for it in the graph."""

    value: Value

    @staticmethod
    def make(value: Value, storage_offset: int = 0) -> TraceTensor:
        type = value.type
        made = torch.Tensor._make_wrapper_subclass(
            TraceTensor,
            type.shape,
            strides=type.stride,
            storage_offset=storage_offset,
            dtype=type.dtype,
            device=type.device,
        )
        made.value = value
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        """Torch writes arguments into its messages, and what is raised there leaves its dispatcher in disorder."""
        return f"TraceTensor({self.value}: {self.value.type})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise Untraceable(f"{func} was called outside the trace")


@dataclass(slots=True)
class Traced:
    graph: Graph
    constants: list[torch.Tensor] = field(default_factory=list)
    """Tensors that the graph itself brought along. They are its last inputs."""
    gradients: Gradients | None = None
    """Where gradients were asked for and flow: what was added to the graph for them."""
    has_numbers: bool = False
    """Whether there are Python numbers in it that may be others in the next call."""


ITEM = torch.ops.aten._local_scalar_dense.default

tracing = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=tracing._at_fork_reinit)  # another thread may have held it
"""One trace at a time: it changes what torch does in the whole process."""


def trace(
    gm: GraphModule, example_inputs: Sequence[Any], gradients: bool = False, open_numbers: tuple[type, ...] = ()
) -> Traced:
    """The ATen calls of a captured graph, and of its gradients if they are asked for. Python numbers among the inputs
    become constants, except for those of the kinds that are to stay open: they may be others in the next call."""
    traced = trace_once(gm, example_inputs, gradients, open_numbers, 0)
    if traced.has_numbers:
        check_numbers(traced, trace_once(gm, example_inputs, gradients, open_numbers, 1))
    return traced


def trace_once(
    gm: GraphModule, example_inputs: Sequence[Any], gradients: bool, open_numbers: tuple[type, ...], salt: int
) -> Traced:
    tracer = AtenTracer(gradients, open_numbers, salt)
    env: dict[torch.fx.Node, Any] = {}
    inputs = iter(example_inputs)
    outputs: Any = ()
    with tracing, plain_tensors(), dispatcher_kept():
        before = switches()
        regions = Regions(tracer, gm, env)
        modes = torch._C._len_torch_dispatch_stack()
        try:
            torch._C._push_on_torch_dispatch_stack(tracer)  # in here: an interrupt may come right behind it
            for node in gm.graph.nodes:
                regions.before(node)
                if node.op == "placeholder":
                    env[node] = tracer.input(next(inputs), node.name, facts_of_input(node).is_module_state)
                elif node.op == "output":
                    outputs = torch.fx.node.map_arg(node.args[0], env.__getitem__)
                else:
                    try:
                        env[node] = tracer.call(gm, node, env)
                    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
                        # The user's mistake, which eager is to report, or torch code that wants to see data.
                        raise Untraceable(f"{node.target} cannot be traced: {error}") from error
            regions.leave()
            if switches()[1:3] != before[1:3]:
                raise Untraceable("it ends in another inference mode, or with another default dtype, than it begins")
            put_back(before)  # whoever runs what is compiled makes the switches that the graph leaves so
            if gradients:
                outputs = add_gradients(tracer, list(outputs))
        finally:
            if torch._C._len_torch_dispatch_stack() > modes:
                torch._C._pop_torch_dispatch_stack(None)
            for mode in reversed(env.values()):
                if isinstance(mode, torch._C._InferenceMode):
                    # Its end puts back what the dispatcher was told before it: now, not when the object is collected.
                    mode.__exit__(None, None, None)
            put_back(before)
            regions.leave()
    tracer.traced.graph.outputs = [tracer.output(out) for out in outputs]
    why = why_not_copied(tracer.graph, tracer.picked) if tracer.picked else None
    if why is not None:
        raise Untraceable(why)
    tracer.finish()
    return tracer.traced


@contextlib.contextmanager
def plain_tensors() -> Iterator[None]:
    """Inference mode changes which operators come out at the bottom; the trace is made without it."""
    if not torch.is_inference_mode_enabled():
        yield
        return
    with torch.inference_mode(False), torch.no_grad():
        yield


def dispatcher_kept() -> Any:
    """Errors on the way through torch's C++ may leave keys of its dispatcher switched off, autograd's among them."""
    return torch._C._ForceDispatchKeyGuard(
        torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    )


def switches() -> tuple:
    """What a call in a graph may change for those that follow, and for whoever runs after the graph."""
    nesting = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        nesting,
        *((torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in ("cpu", "cuda")),
    )


def put_back(state: tuple) -> None:
    torch.set_grad_enabled(state[0])
    torch.set_default_dtype(state[2])
    while (nesting := switches()[3]) != state[3]:
        if nesting < state[3]:
            torch.autocast_increment_nesting()
        elif torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
    for device, (is_on, dtype) in zip(("cpu", "cuda"), state[4:], strict=True):
        torch.set_autocast_enabled(device, is_on)
        torch.set_autocast_dtype(device, dtype)


class AtenTracer:
    """Receives every ATen call made while the trace is on."""

    def __init__(self, gradients: bool = False, open_numbers: tuple[type, ...] = (), salt: int = 0) -> None:
        self.graph = Graph()
        self.traced = Traced(self.graph)
        self.gradients, self.open_numbers = gradients, open_numbers
        self.inputs: list[Any] = []
        """What the graph was run with: tensors of this trace, and numbers."""
        self.numbers = Numbers(self.graph, salt)
        self.line: str | None = None
        self.constants: dict[int, Value] = {}
        self.held: list[Any] = []
        self.region: TracedRegion | None = None
        """The checkpointed region that is being computed."""
        self.places: dict[int, int] = {}
        """The positions of inputs, by id."""
        self.written: set[int] = set()
        """The ids of inputs that were written to."""
        self.then: dict[int, TraceTensor] = {}
        """Of those the ones that backward is given as they are by then, by their positions."""
        self.is_backward = False
        self.picked: list[tuple[Node, Value]] = []
        """Copies that stand for views, and what they are views of."""
        self.has_custom = False
        """Whether code of the user's is among what is differentiated."""

    def input(self, example: Any, name: str, is_state: bool) -> Any:
        if isinstance(example, self.open_numbers) and type(example) is not bool:
            self.inputs.append(self.numbers.input(example, name))
            return self.inputs[-1]
        if not isinstance(example, torch.Tensor):
            self.graph.inputs.append(Value(TensorType.contiguous((), torch.int64), self.graph.fresh_name(name)))
            self.inputs.append(example)
            return example
        why = why_not_input(example)
        if why is not None:
            raise Untraceable(why)
        # Parameters that learn change with every step: nothing is prepared for them.
        is_state = is_state and not self.gradients and not example.is_inference()
        value = self.graph.input(TensorType.of(example), name, is_state)
        made = TraceTensor.make(value, example.storage_offset())
        if self.gradients and example.requires_grad:
            made.requires_grad_()
        self.places[id(made)] = len(self.inputs)
        self.inputs.append(made)
        return made

    def tangent(self, out: TraceTensor) -> TraceTensor:
        """An input for the gradients that flow into an output."""
        return TraceTensor.make(self.graph.input(gradient_type(out.value.type), f"{out.value.name}_tangent"))

    def tensor(self, value: Value, storage_offset: int = 0) -> TraceTensor:
        return TraceTensor.make(value, storage_offset)

    def as_it_is_then(self, x: TraceTensor) -> TraceTensor:
        """An input that is written to, for code that runs again: where that is in backward, what it is by then."""
        if not self.is_backward:
            return x
        at = self.places[id(x)]
        if at not in self.then:
            self.then[at] = TraceTensor.make(self.graph.input(x.value.type, f"{x.value.name}_then"), x.storage_offset())
        return self.then[at]

    def call(self, gm: GraphModule, node: torch.fx.Node, env: dict[torch.fx.Node, Any]) -> Any:
        """Run one node of the captured graph."""
        self.line = node.meta.get("stack_trace")
        args = torch.fx.node.map_arg(node.args, env.__getitem__)
        kwargs = torch.fx.node.map_arg(node.kwargs, env.__getitem__)
        at = picking_tensor(node.target, args)
        picked = None if at is None else self.pick(args, at)
        if picked is not None:
            return picked
        if is_one_hot(node.target, args, kwargs):
            check_classes(Builder(self.graph), args, kwargs)
        if is_masked_write(node.target, args):
            return write_masked(*args)
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        if node.op != "call_function":
            raise Untraceable(f"a {node.op} node")
        if self.numbers.any_in((args, kwargs)):
            found = self.numbers.call(node.target, args, kwargs)
            if found is not None:
                return found
        why = why_not_called(node.target) or why_not_data(node)
        if why is not None:
            raise Untraceable(why)
        if is_custom(node.target):
            return self.call_custom(node.target, args, kwargs)
        if is_recurrent(node.target, args, kwargs):
            return trace_recurrent(self, node.target, args)
        if is_pooled_line(node.target):
            return pool_line(node.target, args, kwargs)
        if self.has_custom and node.target is torch.autograd.grad:
            with custom_backwards(self):
                return node.target(*args, **kwargs)
        return node.target(*args, **kwargs)  # type: ignore[operator]

    def pick(self, args: tuple, at: int) -> Any:
        made = pick(args, at)
        if made is not None:
            self.picked.append((made.value.node, args[0].value))
        return made

    def call_custom(self, target: Any, args: tuple, kwargs: dict) -> Any:
        """A custom autograd function, of which capture knows that it is tensor code and nothing else."""
        self.has_custom = True
        try:
            return target(*reckoned(self.numbers, args), **reckoned(self.numbers, kwargs))
        except Untraceable:
            raise
        except Exception as error:
            raise Untraceable(f"{target.__name__} cannot be traced: {type(error).__name__}: {error}") from error

    def output(self, out: Any) -> Any:
        if isinstance(out, TraceTensor):
            if out.is_conj() or out.is_neg():
                raise Untraceable("an output is a lazily conjugated tensor")
            return out.value
        if isinstance(out, torch.Tensor):
            return self.constant(out)
        return self.numbers.unwrapped(out)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        if func is ITEM:
            return self.numbers.item(args[0].value, self.line)
        rule = rule_for(func) or CUDNN.get(func)
        if rule is not None:
            return self.again(rule, args, kwargs or {})
        func = declared(func, args)
        signature = signature_of(func)
        if signature.why_not is not None:
            raise Untraceable(signature.why_not)
        if signature.is_composite:
            return self.again(func.decompose, args, kwargs or {})
        if self.numbers.any_in((args, kwargs or {})) and torch.Tag.nondeterministic_seeded in func.tags:
            raise NumberLost(f"{func} draws with a number that may be another one in the next call")
        if (
            self.region is not None
            and torch.Tag.nondeterministic_seeded in func.tags
            and not drops_nothing(func, args, kwargs or {})
        ):
            return self.region.draw(func, args, kwargs or {})
        return self.perform(func, args, kwargs)

    def perform(self, func: Any, args: tuple, kwargs: dict | None) -> Any:
        """Write an operator down."""
        signature = signature_of(func)
        graph_args = self.unwrapped(args)
        graph_kwargs = {name: self.unwrapped(arg) for name, arg in kwargs.items()} if kwargs else {}
        op = lookup(func)
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
            # It looks at data, and raises perhaps.
            self.graph.add(op, graph_args, graph_kwargs, (), self.line)
            return None
        result = result_types(op, graph_args, graph_kwargs)
        lengths = {k: x for k, x in enumerate(result) if isinstance(x, int)} if signature.returns_lengths else {}
        if lengths:
            result = tuple(None if k in lengths else type for k, type in enumerate(result))
        made = self.graph.add(op, graph_args, graph_kwargs, result, self.line)
        offsets = self.offsets(made if isinstance(made, Value) else made[0], args)
        if isinstance(made, Value):
            return lazily(func, args, TraceTensor.make(made, offsets[0] if offsets else 0))
        results = [
            lengths.get(k)
            if value is None
            else lazily(func, args, TraceTensor.make(value, offsets[k] if offsets else 0))
            for k, value in enumerate(made)
        ]
        return results if signature.returns_list else tuple(results)

    def offsets(self, made: Value | None, args: tuple) -> Sequence[int] | None:
        if made is None or not torch.is_grad_enabled() or aliased_argument(made.node) is None:
            return None
        if args[0].requires_grad and made.node.op.target is AS_STRIDED:
            check_offset(args[0].value, args[3] if len(args) > 3 else None)
        return beginnings(made.node, args[0].storage_offset())

    def apply(self, op: Op, args: tuple) -> TraceTensor:
        """One of our own operators."""
        given = self.unwrapped(args)
        return TraceTensor.make(self.graph.add(op, given, {}, result_types(op, given, {}), self.line))

    def writes(self, x: Any) -> None:
        """Note which inputs are written to. What a region computes again must write to the same."""
        base = x if x._base is None else x._base
        if id(base) in self.places:
            if self.region is not None and x is not base:
                raise Untraceable("a checkpointed function writes to a part of an input")
            self.written.add(id(base))

    def change_type(self, func: Any, tensor: TraceTensor, args: tuple) -> None:
        """Torch itself adjusts the strides of dimensions of one element so; anything else has no form here."""
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
        shown = SHOWN.get(func)
        if shown is None or id(tensor if tensor._base is None else tensor._base) in self.places:
            raise Untraceable(f"{func} changes the shape of a tensor in place")
        # The object is another view of its memory from here on. Only its facts change, and its data never was there.
        made = TraceTensor.make(
            self.graph.add(
                op := lookup(shown), given := self.unwrapped(args), {}, result_types(op, given, {}), self.line
            ),
            tensor.storage_offset(),
        )
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.Python)):
            tensor.data = made
        tensor.value = made.value

    def again(self, rule: Callable, args: tuple, kwargs: dict) -> Any:
        """An operator that came down whole, a composite one say, is taken apart: its parts come to the trace in turn.
        An operator that came down whole, a composite one say, is taken apart: its parts come to the trace in turn."""
        modes = torch._C._len_torch_dispatch_stack()
        try:
            torch._C._push_on_torch_dispatch_stack(self)
            return rule(*args, **kwargs)
        finally:
            if torch._C._len_torch_dispatch_stack() > modes:
                torch._C._pop_torch_dispatch_stack(None)

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
        """A tensor with data, made by Python while tracing."""
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


SHOWN = {
    torch.ops.aten.squeeze_.default: torch.ops.aten.squeeze.default,
    torch.ops.aten.squeeze_.dim: torch.ops.aten.squeeze.dim,
    torch.ops.aten.squeeze_.dims: torch.ops.aten.squeeze.dims,
    torch.ops.aten.unsqueeze_.default: torch.ops.aten.unsqueeze.default,
    torch.ops.aten.transpose_.default: torch.ops.aten.transpose.int,
    torch.ops.aten.t_.default: torch.ops.aten.t.default,
}
"""Operators that change the shape of a tensor in place, and the views that it is from then on."""

LAZY = {
    torch.ops.aten._conj.default: (torch._C._set_conj, torch.Tensor.is_conj),
    torch.ops.aten._neg_view.default: (torch._C._set_neg, torch.Tensor.is_neg),
}


def lazily(func: Any, args: tuple, made: TraceTensor) -> TraceTensor:
    """What shows a tensor conjugated, or negated, without having computed it says so: torch's C++ asks
    (`ops.elementwise.lazy_conj_neg`)."""
    x = args[0] if args else None
    if not isinstance(x, TraceTensor) or not func._schema.returns[0].alias_info:
        return made
    for turns, (turn, is_turned) in LAZY.items():
        if is_turned(x) != (func is turns):
            turn(made, True)
    return made


def gradient_type(type: TensorType) -> TensorType:
    """How gradients of a tensor are laid out: as the tensor is where it is dense."""
    return TensorType(type.shape, preserved_stride(type), type.dtype, type.device)


def why_not_input(tensor: torch.Tensor) -> str | None:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return f"a tensor of the class {type(tensor).__qualname__}"
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return f"a tensor of the layout {tensor.layout}"
    if tensor.dtype not in NAMES:
        return f"a tensor of {tensor.dtype}"
    if tensor.is_conj() or tensor.is_neg():
        return "a lazily conjugated tensor"
    if tensor.device.type == "meta":
        return "a tensor without data"
    return None


VIEWS = ("T", "mT", "H", "mH", "real", "imag")
"""Attributes of tensors that are operators: what capture writes down for these has their name."""


def is_custom(target: Any) -> bool:
    """Whether a node's target is a custom autograd function (`capture/pytorch/autograd_functions.py`)."""
    return hasattr(target, "why_not_traceable")


def why_not_called(target: Any) -> str | None:
    """Only torch's own functions are run on tensors without data, and custom ones that do nothing but compute."""
    if is_custom(target):
        return target.why_not_traceable and f"{target.__name__} runs as it is: {target.why_not_traceable}"
    if getattr(target, "torch_attribute", None) in (*VIEWS, "data"):
        return None
    module = getattr(target, "__module__", None) or type(target).__module__ or ""
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return None
    if module in ("_operator", "builtins", "math") or module.startswith("torch"):
        owner = getattr(target, "__self__", None)
        if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
            return f"the custom function {owner.__qualname__}"
        return None
    return f"a call of {getattr(target, '__qualname__', target)}"


COMPUTES = frozenset(
    """
    add sub rsub mul div truediv pow neg abs sqrt exp log sin cos tanh sigmoid relu clamp clamp_min clamp_max sum mean
    norm matmul mm linear clone eq ne lt le gt ge zeros_like ones_like empty_like
""".split()
)
"""Calls that answer with a tensor of its own."""


def why_not_data(node: torch.fx.Node) -> str | None:
    """``x.data`` counts the writes to it apart from those to ``x``. That is nobody's concern inside of the graph, whose
    gradients are made of what the tensors hold by then, as eager's; it is where it leaves the graph."""
    if getattr(node.target, "torch_attribute", None) == "data" and may_leave(node):
        return "x.data leaves the graph"
    return None


def may_leave(node: torch.fx.Node) -> bool:
    """Whether a tensor, or another view of what it holds, is an output."""
    for user in node.users:
        name = user.target if isinstance(user.target, str) else getattr(user.target, "__name__", "")
        is_written_elsewhere = name.endswith("_") and user.args[:1] != (node,)
        if user.op == "output" or not (name in COMPUTES or is_written_elsewhere) and may_leave(user):
            return True
    return False


def declared(func: Any, args: tuple) -> Any:
    """The same operator under a name whose schema tells what it writes to. Running statistics are written silently."""
    if func is torch.ops.aten.native_batch_norm.default and args[5] and args[3] is not None and args[4] is not None:
        return torch.ops.aten._native_batch_norm_legit.default
    return func


@dataclass(frozen=True, slots=True)
class Signature:
    """What a schema says that tracing must know."""

    written: tuple[int | str, ...]
    """Positions of the arguments that are written to, or their names where they have no position."""
    returns_written: bool
    changes_type: bool
    returns_list: bool
    returns_lengths: bool
    """Numbers as well, which follow from the shapes."""
    is_composite: bool
    why_not: str | None


@functools.cache
def signature_of(func: torch._ops.OpOverload) -> Signature:
    schema = func._schema
    returns = schema.returns
    written = [
        k
        for k, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    answered = [r.alias_info is not None and r.alias_info.is_write for r in returns]
    returns_lengths = func.name().startswith("aten::_scaled_dot_product_")
    why = None
    if any(
        str(r.type) not in ("Tensor", "List[Tensor]", "Optional[Tensor]")
        and not (returns_lengths and str(r.type) in ("int", "SymInt"))
        for r in returns
    ):
        why = f"{func} answers with something that is no tensor"
    elif any(str(schema.arguments[k].type) != "Tensor" for k in written):
        why = f"{func} writes to a list of tensors"
    elif written and (any(answered) and len(answered) != len(written) or any(answered) != all(answered) or not returns):
        why = f"{func} writes to one tensor and returns another"
    elif is_collective_operator(func):
        why = f"{func} waits for other processes"
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    changes = torch.Tag.inplace_view in func.tags or func.name() in ("aten::resize_", "aten::set_")
    places = tuple(schema.arguments[k].name if schema.arguments[k].kwarg_only else k for k in written)
    returns_list = bool(returns) and str(returns[0].type) == "List[Tensor]"
    return Signature(places, any(answered), changes, returns_list, returns_lengths, composite, why)
