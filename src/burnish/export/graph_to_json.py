"""Serialize the graph of an exported function as JSON, and read it back.

    encode_graph(graph)                   [{"name": "sin", "op": "call_function", "target": "torch.sin", …}, …]
    decode_graph(written, attributes)     a torch.fx graph, built node by node

Every name is checked before a node is made from it. Where a graph runs uncompiled, torch.fx prints it as Python
source; only plain identifiers and constants of known types may get there from a file. `check_generated_code` checks
the printed source again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
import torch.fx

from ..capture.pytorch.torch_switches import SWITCHES
from ..errors import UserError
from ..foundation.torch_private import OpOverload
from .allowed_operators import OF_TORCH, ON_NUMBERS, SIZE, Unwritable, is_method, name_of, operation, why_not_pure
from .check_generated_code import CheckedCode
from .sizes_to_json import OF_ONE
from .values_to_json import decode, encode, entry, identifier, parts, shown

NUMBERS = (torch.fx.Node, int, float)

FIELDS = frozenset(("name", "op", "target", "args", "kwargs", "line"))


def encode_graph(graph: torch.fx.Graph, is_inner: bool = False) -> list[dict[str, Any]]:
    nodes: dict[torch.fx.Node, str] = {}
    written: list[dict[str, Any]] = []
    for node in graph.nodes:
        nodes[node] = node.name
        made: dict[str, Any] = {"name": node.name, "op": node.op}
        try:
            if node.op == "call_function":
                made["target"] = name_of(node.target)
            elif node.op == "get_attr" and is_inner:
                raise Unwritable("a graph inside a graph with one of its own")
            elif node.op == "call_method" and not is_method(node.target):
                raise Unwritable(f"the method Tensor.{node.target}")
            elif node.op != "output":
                made["target"] = node.target
            made["args"] = [encode(part, nodes) for part in node.args]
            made["kwargs"] = {key: encode(part, nodes) for key, part in node.kwargs.items()}
        except Unwritable as what:
            line = node.meta.get("stack_trace")
            raise UserError(
                f"The graph cannot be saved: it holds {what}{f' ({line.strip()})' if line else ''}. A file "
                f"holds torch's own operations, on tensors and plain values. The exported graph itself "
                f"works; to save it, write that part with torch operations."
            ) from None
        if line := node.meta.get("stack_trace"):
            made["line"] = line
        written.append(made)
    return written


def needs_trust(graph: torch.fx.Graph) -> bool:
    """Whether it calls operators that an untrusted file may not name."""
    return any(
        isinstance(node.target, OpOverload)
        and node.target is not SIZE
        and (node.target.namespace not in OF_TORCH or why_not_pure(node.target) is not None)
        for node in graph.nodes
    )


def decode_graph(written: Any, attributes: Collection[str], trust: bool = False) -> torch.fx.Graph:
    """`attributes` are the names of the tensors that it may read."""
    graph = torch.fx.Graph()
    nodes: dict[str, torch.fx.Node] = {}
    for number, what in enumerate(parts(written)):
        name = entry(what, "name")
        try:
            if name in nodes:
                raise UserError("there are two of this name")
            nodes[name] = _decode_node(graph, what, nodes, attributes, trust)
        except UserError as error:
            raise UserError(f"at {name!r:.60}, number {number} of its graph, {error}") from error
    _check_ends(graph)
    graph.set_codegen(CheckedCode())
    return graph


def _decode_node(
    graph: torch.fx.Graph, written: Any, nodes: dict[str, torch.fx.Node], attributes: Collection[str], trust: bool
) -> torch.fx.Node:
    op, name = entry(written, "op"), identifier(entry(written, "name"))
    if unknown := written.keys() - FIELDS:
        raise UserError(f"{sorted(unknown)!r:.60} stands where nothing should")
    args = tuple([decode(part, nodes) for part in parts(entry(written, "args"))])
    given = entry(written, "kwargs")
    if type(given) is not dict:
        raise UserError(f"{given!r:.60} stands where keyword arguments should")
    kwargs = {identifier(key): decode(part, nodes) for key, part in given.items()}
    target = written.get("target")
    if target == "operator.getitem" and (len(args) != 2 or kwargs):  # torch.fx prints it as x[y]
        raise UserError(f"it takes a part of something with {len(args)} arguments, and there are two")
    if op == "call_function" and type(target) is str and target in ON_NUMBERS:
        of_one = target.rpartition(".")[2] in OF_ONE
        if kwargs or len(args) != (1 if of_one else 2) or not all(type(x) in NUMBERS for x in args):
            raise UserError(f"it computes a size by {target}, with other things than {1 if of_one else 2} numbers")
    if target == "operator.pow" and not (len(args) == 2 and type(args[1]) in (int, float) and abs(args[1]) <= 8):
        raise UserError("it raises a size to a power that is not a small number")
    if op == "call_function":
        node = graph.create_node(op, operation(target, trust), args, kwargs, name)
    elif op == "call_method" and is_method(target) and args and isinstance(args[0], torch.fx.Node):
        node = graph.create_node(op, target, args, kwargs, name)
    elif op == "placeholder" and not args and not kwargs:
        node = graph.create_node(op, identifier(target), (), {}, name)
    elif op == "get_attr" and type(target) is str and target in attributes and not args and not kwargs:
        node = graph.create_node(op, target, (), {}, name)
    elif op == "output" and target is None and not kwargs:
        node = graph.create_node(op, "output", args, {}, name)
    else:
        raise UserError(f"it asks for {op!r:.40} of {target!r:.80}, which no exported graph may use")
    if "line" in written:
        node.meta["stack_trace"] = shown(written["line"], "a line of source")
    return node


def _check_ends(graph: torch.fx.Graph) -> None:
    """One output, at the end, of a tuple of results; each input has its own name."""
    nodes = list(graph.nodes)
    if not nodes or nodes[-1].op != "output" or sum(node.op == "output" for node in nodes) != 1:
        raise UserError("its graph does not end in its one output")
    results = nodes[-1].args
    if (
        len(results) != 1
        or not isinstance(results[0], (tuple, list))
        or not all(isinstance(part, torch.fx.Node) for part in results[0])
    ):
        raise UserError("the output of its graph is not a tuple of results")
    taken = {"self"}
    for node in nodes:
        if node.op == "placeholder":
            if node.target in taken:
                raise UserError(f"an input of its graph has the name {node.target!r}, which is taken")
            taken.add(str(node.target))


def sets_switches(graph: torch.fx.Graph) -> bool:
    """Whether it changes any of torch's global state, such as gradient mode."""
    return any(node.op == "call_function" and getattr(node.target, "__name__", "") in SWITCHES for node in graph.nodes)
