"""Fills in the node metadata that custom backends expect from graphs of `torch.compile`.

x + y                            call_function operator.add, not the method "add"
torch.tensor([x[0], 1])          call_function torch._refs.tensor
node.meta["example_value"]       a tensor without data, of the result's size, dtype and strides
node.meta["nn_module_stack"]     {id: ("L['self'].layers.0", Linear)}
node.meta["source_fn_stack"]     [("linear", Linear)], [("sin", torch.sin)]
node.meta["stack_trace"]         all lines on the stack, with their source
"""

from __future__ import annotations

import linecache
import operator
import re
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from .. import events
from ..captured_graph.call_site import CallSite
from ..concurrency.outside_errors import reraise_from_outside
from ..foundation.torch_private import DisableTorchFunctionSubclass
from ..tensors.torch_state import TorchState

LINE = re.compile(r'  File "(.+)", line (\d+), in [^\n]+')
OPERATORS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "matmul": operator.matmul,
    "pow": operator.pow,
    "remainder": operator.mod,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "neg": operator.neg,
    "bitwise_not": operator.invert,
    "__eq__": operator.eq,
    "__ne__": operator.ne,
    "__lt__": operator.lt,
    "__le__": operator.le,
    "__gt__": operator.gt,
    "__ge__": operator.ge,
    "__neg__": operator.neg,
    "__add__": operator.add,
    "__sub__": operator.sub,
    "__mul__": operator.mul,
    "__matmul__": operator.matmul,
    "__pow__": operator.pow,
    "__truediv__": operator.truediv,
    "__floordiv__": operator.floordiv,
    "floor_divide": operator.floordiv,
    "__mod__": operator.mod,
    "__and__": operator.and_,
    "__or__": operator.or_,
    "__xor__": operator.xor,
    "__invert__": operator.invert,
    "__lshift__": operator.lshift,
    "__rshift__": operator.rshift,
    "__iadd__": operator.iadd,
    "__isub__": operator.isub,
    "__imul__": operator.imul,
    "__itruediv__": operator.itruediv,
    "__idiv__": operator.itruediv,
    "__iand__": operator.iand,
    "__ior__": operator.ior,
    "__ixor__": operator.ixor,
    "add_": operator.iadd,
    "sub_": operator.isub,
    "mul_": operator.imul,
    "div_": operator.itruediv,
}
"""By method, where the program has written an operator."""
REFLECTED: dict[str, Callable[..., Any]] = {
    "__rsub__": operator.sub,
    "__rdiv__": operator.truediv,
    "__rtruediv__": operator.truediv,
    "__rpow__": operator.pow,
    "__rfloordiv__": operator.floordiv,
    "__rmod__": operator.mod,
    "__rmatmul__": operator.matmul,
}
SUBSCRIPTS: dict[str, Callable[..., Any]] = {"__getitem__": operator.getitem, "__setitem__": operator.setitem}
INSTRUCTIONS = ("BINARY_", "COMPARE_", "UNARY_", "INPLACE_")


def describe_nodes(gm: GraphModule, example_inputs: list[Any], has_examples: bool) -> None:
    """``has_examples``: find the examples of the nodes' values, too."""
    for node in gm.graph.nodes:
        name_constructor(node)
        site = node.meta.get("stack_trace")
        if not site:
            continue
        if isinstance(site, CallSite):
            node.meta["stack_trace"] = "\n".join(map(with_source, site.lines)) + "\n"
            name_operator(node, site)
            name_module(node, site)
        else:
            node.meta["stack_trace"] = f"{with_source(site)}\n" if LINE.fullmatch(site) else site
    if has_examples and not all("example_value" in node.meta for node in gm.graph.nodes if node.op != "output"):
        find_examples(gm, example_inputs)


def with_source(line: str) -> str:
    found = LINE.fullmatch(line)
    return line if found is None else f"{line}\n    {linecache.getline(found[1], int(found[2])).strip()}"


def name_constructor(node: Node) -> None:
    """``torch.tensor`` reads the data of tensors in a list, so that it cannot be traced without data."""
    if node.target is torch.tensor and node.args and isinstance(node.args[0], (list, tuple)) and node.all_input_nodes:
        from torch._refs import tensor  # the same from operators

        node.target = tensor


def name_operator(node: Node, site: CallSite) -> None:
    """Show an operator of Python where the program has written one."""
    if node.op != "call_method" or node.kwargs:
        return
    name = str(node.target)
    if name in SUBSCRIPTS:
        node.op, node.target = "call_function", SUBSCRIPTS[name]
    elif site.instruction.startswith(INSTRUCTIONS) and len(node.args) <= 2:
        if name in OPERATORS:
            node.op, node.target = "call_function", OPERATORS[name]
        elif name in REFLECTED:
            node.op, node.target, node.args = "call_function", REFLECTED[name], tuple(reversed(node.args))


def name_module(node: Node, site: CallSite) -> None:
    source = node.target
    if site.modules:
        node.meta["nn_module_stack"] = {module.key: (module.path, module.kind) for module in site.modules}
        kind = site.modules[-1].kind
        source = kind if kind.__module__.startswith("torch.nn.modules") else source
    node.meta["source_fn_stack"] = [(node.name, source)]


def find_examples(gm: GraphModule, example_inputs: list[Any]) -> None:
    """Run the graph on tensors without data. Nodes that need data, and nodes that depend on them, get no example."""
    from torch._dispatch.python import enable_python_dispatcher
    from torch._guards import detect_fake_mode
    from torch._subclasses import FakeTensorMode  # other backends than ours, when they compile

    places = gm.graph.find_nodes(op="placeholder")
    mode = detect_fake_mode([node.meta.get("example_value") for node in places])
    mode = mode or FakeTensorMode(allow_non_fake_inputs=True)
    before, hooks = TorchState.now(), take_saved_tensor_hooks()
    try:
        for node, value in zip(places, example_inputs, strict=True):
            if "example_value" not in node.meta:
                is_tensor = isinstance(value, torch.Tensor)
                with DisableTorchFunctionSubclass():  # the rules of a tensor's class are the program's, which may count
                    node.meta["example_value"] = mode.from_tensor(value, static_shapes=True) if is_tensor else value
        with mode, enable_python_dispatcher():  # decompositions in C++ would ask for symbols' values
            run = ExampleRun(gm)
            try:
                run.run(*[node.meta["example_value"] for node in places])
            finally:
                run.end_guards()
    except Exception as error:
        reraise_from_outside(error)
        events.emit("backend.examples", text=f"no examples after {type(error).__name__}: {error}")
    finally:
        before.restore()
        for pack, unpack in reversed(hooks):
            torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)


def take_saved_tensor_hooks() -> list[tuple[Any, Any]]:
    """Remove the hooks on saved tensors, which must not see tensors without data. Returns them, the innermost first."""
    found = []
    while (top := torch._C._autograd._top_saved_tensors_default_hooks(False)) is not None:
        found.append(top)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    return found


class ExampleRun(torch.fx.Interpreter):
    def __init__(self, gm: GraphModule):
        super().__init__(gm)
        self.guards: list[Any] = []

    def end_guards(self) -> None:
        """A guard restores the dispatch keys that it has found: those of this run, if it ends after the run."""
        for guard in reversed(self.guards):
            guard.__exit__(None, None, None)

    def run_node(self, n: Node) -> Any:
        made = super().run_node(n)
        if isinstance(made, torch._C._InferenceMode):
            self.guards.append(made)
        if n.op != "output":
            n.meta["example_value"] = made
        return made
