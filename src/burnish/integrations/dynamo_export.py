"""``torch._dynamo.export`` by Burnish: a graph module with the signature of the function, and the guards it relies on.

    with burnish.install(default=True):
        module, guards = torch._dynamo.export(fn)(x, scale=2)
        module(x, scale=2), module.graph, module.code

The graph is one of ``burnish.export``, for the arguments as they were: a call with others (sizes, numbers) runs a graph
of their own. ``aten_graph=True`` traces it again into operators of ATen. What Burnish cannot export is left to Dynamo.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo
from torch.utils import _pytree as pytree

from ..errors import Unsupported, UserError
from ..export.export_save_load import export as export_graph
from ..export.exported_graph import TensorInput
from ..export.exported_program import Exported
from ..export.trace_whole_call import same_fixed

OF_ATEN = ("decomposition_table", "pre_dispatch")
WITHOUT_EFFECT = (
    *("tracing_mode", "assume_static_by_default", "disable_constraint_solver", "specialize_float", "_log_export_usage"),
    "prefer_deferred_runtime_asserts_over_guards",
)
"""Arguments about symbolic sizes and numbers."""


def export(original: Any, /, f: Callable, *extra_args: Any, **options: Any) -> Any:
    """In place of ``torch._dynamo.export``, which is the `original`."""

    def inner(*args: Any, **kwargs: Any) -> Any:
        try:
            module, guards = exported_module(f, args, kwargs, own)
        except (Unsupported, UserError):
            return original(f, **options)(*args, **kwargs)
        from torch._dynamo.eval_frame import ExportResult

        return ExportResult(module, guards)  # type: ignore[arg-type]

    parameters = inspect.signature(original).parameters.keys() - {"extra_args", "extra_kwargs"}
    known = ("aten_graph", "same_signature", *OF_ATEN, *WITHOUT_EFFECT)
    own = {name: value for name, value in options.items() if name in known and name not in WITHOUT_EFFECT}
    call_kwargs = {name: value for name, value in options.items() if name not in parameters}
    others = options.keys() - set(known) - call_kwargs.keys()
    if any(options[name] is not None for name in others):
        return original(f, *extra_args, **options)  # dynamic_shapes, constraints
    return inner(*extra_args, **call_kwargs) if extra_args or call_kwargs else inner


def exported_module(f: Callable, args: tuple, kwargs: dict, options: dict[str, Any]) -> tuple[Any, list[str]]:
    exported = export_graph(f, args, kwargs)
    leaves = pytree.tree_leaves((args, dict(sorted(kwargs.items()))))
    if not options.get("same_signature", True):
        return exported.graph_module, exported.guards
    graph = flat_graph(exported)
    module = torch.fx.GraphModule(exported.graph_module, graph)
    if options.get("aten_graph"):
        module = traced(module, leaves, {name: options[name] for name in OF_ATEN if name in options})
    names = argument_names(f, args, kwargs)
    module.graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(names, exported.arguments, exported.result)))
    module.recompile()
    with_other_arguments(module, exported, lambda *a, **k: exported_module(f, a, k, options)[0])
    return module, exported.guards


def flat_graph(exported: Exported) -> torch.fx.Graph:
    """The graph with one input for each leaf of the arguments, and one output for each leaf of the result."""
    graph = torch.fx.Graph()
    made: dict[torch.fx.Node, torch.fx.Node] = {}
    of_input: dict[int, torch.fx.Node] = {}
    for position, described in enumerate(exported.inputs):
        node = graph.placeholder(f"arg{position}")
        if isinstance(described, TensorInput):
            of_input.setdefault(described.node, node)
    inputs = 0
    for node in exported.graph_module.graph.nodes:
        if node.op == "placeholder":
            made[node], inputs = of_input[inputs], inputs + 1
        elif node.op != "output":
            made[node] = graph.node_copy(node, made.__getitem__)
        else:
            results = [made[part] if isinstance(part, torch.fx.Node) else part for part in node.args[0]]
            graph.output([o.value if o.node is None else results[o.node] for o in exported.outputs])
    graph.lint()
    return graph


def traced(module: torch.fx.GraphModule, leaves: list[Any], options: dict[str, Any]) -> torch.fx.GraphModule:
    from torch.fx.experimental.proxy_tensor import make_fx

    run = torch.fx.Interpreter(module).run
    return make_fx(run, tracing_mode="fake", _allow_non_fake_inputs=True, **options)(*leaves)


def argument_names(f: Any, args: tuple, kwargs: dict) -> list[str]:
    function = f.forward if isinstance(f, torch.nn.Module) else f
    names: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}_{i}" for i in range(len(args) - len(names))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return [*names[: len(args)], *sorted(kwargs)]


def with_other_arguments(module: torch.fx.GraphModule, exported: Exported, again: Callable) -> None:
    """Let a call with arguments that the graph does not hold for run a graph of their own."""
    kind: Any = type(module)  # each graph module has a class of its own
    others: dict[Any, Any] = {}
    of_graph = kind.forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        leaves, nesting = pytree.tree_flatten((args, dict(sorted(kwargs.items()))))
        if nesting == exported.arguments and fits(exported, leaves):
            return of_graph(self, *args, **kwargs)
        key = (str(nesting), *map(kind_of, leaves))
        if key not in others:
            others[key] = again(*args, **kwargs)
        return others[key](*args, **kwargs)

    kind.forward = functools.wraps(of_graph)(forward)


def fits(exported: Exported, leaves: list[Any]) -> bool:
    return all(
        described.why_not(leaf) is None if isinstance(described, TensorInput) else same_fixed(described.value, leaf)
        for described, leaf in zip(exported.inputs, leaves, strict=True)
    )


def kind_of(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return type(leaf), leaf.dtype, tuple(leaf.shape), leaf.device
    return type(leaf), repr(leaf)
