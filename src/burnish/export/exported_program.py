"""``export``: one standalone graph of a whole function or module, to call, save and share.

    exported = burnish.export(model, (x,))
    exported(x)                                  # the same arguments, the same result
    exported.save("model.burnish")
    burnish.load("model.burnish")(x)

    burnish.save(model, "model.burnish", (x,))   # the same, compiled

The function really runs once, on copies of the arguments; its changes to the module are undone. It has to fit into
one graph: a graph break is an ``Unsupported`` error, and so are side effects that the graph cannot repeat, such as
writes to Python objects (``self.calls += 1``). Prints, warnings and log records are left out, and
``Exported.left_out`` names them.

The design:

* Parameters, buffers and every other tensor the function reaches are attributes of ``graph_module`` (``get_attr``
  nodes), parameters and buffers under their own names. They are the module's own tensors: until it is saved, training
  the module changes what the exported graph computes.
* Inputs of the graph are the tensors among the arguments, in order, flattened by ``torch.utils._pytree``. Numbers,
  strings and other values are fixed: calling with other values is an error, and so are other shapes.
* Sizes that ``dynamic_shapes`` declares are symbols of the trace (``declared_dimensions``). The graph computes
  numbers from them with nodes of its own (``SizeNodes``). ``prove_sizes`` says for which sizes it is right.
"""

from __future__ import annotations

import inspect
import operator
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ..backends.registry import lookup
from ..capture.engine.program_options import Options
from ..capture.symbolic_sizes.declared_dimensions import DeclaredSize, DeclaredSymbol
from ..captured_graph.lazy_graph_module import graph_module
from ..errors import InternalError, UserError
from ..foundation.torch_private import pytree
from ..frontend.compile_callable import is_asynchronous, original_of, runner, why_not_compile
from ..frontend.marks import is_disabled
from ..integrations.from_torch_export import callable_of, class_name_of, example_of, is_exported_program
from ..report.explain_report import list_operations
from ..report.text_layout import count, shifted, shorten
from ..tensors.device_facts import DEVICES
from ..tensors.eager_strides import packed_order
from .dynamic_shapes import Declared, declared_sizes
from .exported_graph import ExportedGraph, FixedInput, Output, TensorInput
from .prove_sizes import Proven, prove, with_constants
from .symbolic_sizes import OPERATIONS, SymbolicSize, Term, names_in, value_of
from .trace_whole_call import CallTrace, OneGraph, is_fixed, kept_as_they_were

if TYPE_CHECKING:
    from torch.export import ExportedProgram


GUARDS_SHOWN = 12
OPERATIONS_SHOWN = 30


@dataclass(repr=False, eq=False)
class Exported(ExportedGraph):
    """What ``burnish.export`` returns: an exported graph that can be saved, converted and printed."""

    def save(self, path: str | os.PathLike[str], *, sign: str | os.PathLike[str] | None = None) -> None:
        """Write everything to one file, which ``burnish.load`` reads, including compiled code (see ``burnish.save``).
        For the format see ``export.file_format``; ``sign`` is a private key (``export.publisher_signature``)."""
        from .file_format import save

        save(self, path, sign)

    def module(self) -> Exported:
        """Itself: it is a module. Programs of torch.export have one."""
        return self

    def to_torch_export(self) -> ExportedProgram:
        """The same as a program of ``torch.export``, for tools that take those. Imports torch's compiler."""
        from ..integrations.to_torch_export import to_torch_export

        return to_torch_export(self)

    def __str__(self) -> str:
        signature = ", ".join(f"{i.name}: {i}" if isinstance(i, TensorInput) else f"{i.name}={i}" for i in self.inputs)
        listing = list_operations(self.graph_module)
        parts = [
            f"{self.name}({signature}): {count(len(listing), 'operation')}",
            shifted("\n".join(shorten(listing, OPERATIONS_SHOWN, 5, "operations"))),
        ]
        for title, lines, noun in (("Taken to hold", self.guards, "guards"), ("Left out", self.left_out, "calls")):
            if lines:
                parts.append(f"{title}\n" + shifted("\n".join(shorten(lines, GUARDS_SHOWN, 0, noun))))
        return "\n\n".join(parts) + "\n"

    def __repr__(self) -> str:
        return f"<Exported {self.name}: {count(len(self.inputs), 'input')}, {count(len(self.outputs), 'output')}>"


def exported_program(
    fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any = None
) -> Exported:
    """See ``export_save_load.export``."""
    name = None
    if is_exported_program(fn):
        name = class_name_of(fn)
        if not args and not kwargs:
            args, kwargs, own_shapes = example_of(fn)
            dynamic_shapes = own_shapes if dynamic_shapes is None else dynamic_shapes
        fn = callable_of(fn)
    original, args, kwargs = _checked(fn, args, kwargs)
    name = name or getattr(original, "__qualname__", type(original).__qualname__)
    leaves, nesting = pytree.tree_flatten((args, kwargs))
    names = _argument_names(original, args, kwargs)
    inputs = list(_describe(leaves, names))
    copies = _copied(leaves)
    declared = declared_sizes(dynamic_shapes, original, args, kwargs, names)
    own_args, own_kwargs = pytree.tree_unflatten(copies, nesting)
    options = Options(lookup("eager"), "eager", True, fullgraph=True, dynamic=False, keeps_data=False, exports=True)
    program, run = runner(original, options, OneGraph)
    assert isinstance(program, OneGraph)
    program.symbols, program.shapes = _symbols(declared, copies)
    with kept_as_they_were(original):
        try:
            run(*own_args, **own_kwargs)
            trace = program.found
            proven = prove(trace.sizes, declared, name) if trace is not None and trace.sizes is not None else None
        finally:
            program.take_back()
    if trace is None:
        raise InternalError("export", f"no graph was made of {name}, and no error either")
    refusal = trace.why_not_export(name)
    if refusal is not None:
        raise refusal
    writes = any(
        isinstance(leaf, torch.Tensor) and trace.writes_to(copied, leaf)
        for leaf, copied in zip(leaves, copies, strict=True)
    )
    if writes and (pair := _sharing(leaves, names)) is not None:
        raise UserError(
            f"{name} writes to its arguments, and {pair[0]} and {pair[1]} share memory: what it does "
            f"depends on how they overlap, which an exported graph does not know. Pass copies."
        )
    if trace.reads_layout:
        inputs = [_with_order(described, copied) for described, copied in zip(inputs, copies, strict=True)]
    if proven is not None:
        inputs = [_with_sizes(described, declared.sizes.get(k, {}), proven) for k, described in enumerate(inputs)]
    module, outputs = _put_together(original, trace, inputs, copies, {} if proven is None else proven.constants)
    from .precompile import Held

    return Exported(
        name,
        Held.of(module),
        inputs,
        outputs,
        nesting,
        trace.result,
        writes,
        trace.guards,
        trace.left_out,
        proven.ranges if proven is not None else [],
        proven.conditions if proven is not None else [],
    )


def _symbols(declared: Declared, copies: list[Any]) -> tuple[list[DeclaredSymbol], dict[int, dict[int, DeclaredSize]]]:
    """For the tracer: symbols by number, and the sizes of tensors by their ids."""
    numbers = {name: k for k, name in enumerate(declared.ranges)}
    shapes: dict[int, dict[int, DeclaredSize]] = {}
    for leaf, sizes in declared.sizes.items():
        shapes.setdefault(id(copies[leaf]), {}).update(
            {dim: DeclaredSize(numbers[size.symbol], size.factor, size.added) for dim, size in sizes.items()}
        )
    symbols = [DeclaredSymbol(s.name, s.example, s.least, s.most) for s in declared.ranges.values()]
    return symbols, shapes


def _with_order(described: TensorInput | FixedInput, copied: Any) -> TensorInput | FixedInput:
    if not isinstance(described, TensorInput) or copied.layout is not torch.strided:
        return described
    return replace(described, order=packed_order(tuple(copied.shape), copied.stride()))


def _with_sizes(
    described: TensorInput | FixedInput, sizes: Mapping[int, SymbolicSize], proven: Proven
) -> TensorInput | FixedInput:
    """An input with its symbolic sizes, where the program did not make constants of them."""
    if not isinstance(described, TensorInput):
        return described
    shape: list[int | SymbolicSize] = list(described.shape)
    for dim, size in sizes.items():
        symbol = proven.united.get(size.symbol, size.symbol)
        if symbol not in proven.constants:
            shape[dim] = replace(size, symbol=symbol)
    return replace(described, shape=tuple(shape))


def _checked(fn: Any, args: Any, kwargs: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    why = why_not_compile(fn)
    if why is not None:
        raise UserError(why.replace("burnish.compile", "burnish.export"))
    if not isinstance(args, (tuple, list)):
        raise UserError(
            f"burnish.export takes the arguments as a tuple, export(fn, (x,)), not a {type(args).__name__}."
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise UserError(f"burnish.export takes keyword arguments as a dictionary, not a {type(kwargs).__name__}.")
    original = original_of(fn)
    if is_disabled(original) or is_asynchronous(original):
        raise UserError(
            f"burnish.export cannot make a graph of {getattr(fn, '__qualname__', fn)}: "
            f"{'it is disabled' if is_disabled(original) else 'it is an `async def`'}."
        )
    if any(map(torch.is_autocast_enabled, DEVICES)):
        raise UserError(
            "burnish.export was called under torch.autocast, which the graph would not know later. "
            "Enter autocast inside the function, and it becomes a part of the graph."
        )
    return original, tuple(args), dict(sorted((kwargs or {}).items()))


def _argument_names(original: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
    """The leaves of the arguments as a user would write them: ``x``, ``state[0]``."""
    try:
        signature = inspect.signature(original.forward if isinstance(original, torch.nn.Module) else original)
        known = [
            p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
    except (ValueError, TypeError):
        known = []
    names = [known[i] if i < len(known) else f"args[{i}]" for i in range(len(args))]
    named = [*zip(names, args, strict=True), *kwargs.items()]
    return [name + pytree.keystr(path) for name, value in named for path, _ in pytree.tree_flatten_with_path(value)[0]]


def _describe(leaves: Iterable[Any], names: Iterable[str]) -> Iterator[TensorInput | FixedInput]:
    nodes: dict[int, int] = {}
    for leaf, name in zip(leaves, names, strict=True):
        if isinstance(leaf, torch.Tensor):
            node = nodes.setdefault(id(leaf), len(nodes))
            yield TensorInput(name, node, leaf.dtype, tuple(leaf.shape), leaf.device)
        elif is_fixed(leaf):
            yield FixedInput(name, leaf)
        else:
            raise UserError(
                f"burnish.export: {name} is a {type(leaf).__module__}.{type(leaf).__qualname__}. Arguments "
                f"are tensors, numbers, strings, None and dtypes, in tuples, lists, dictionaries and classes "
                f"that are registered: torch.export.register_dataclass({type(leaf).__name__}). Other "
                f"objects can be held by the function: functools.partial(fn, config=...), or a closure."
            )


def _copied(leaves: Iterable[Any]) -> list[Any]:
    """Copies of tensors in memory of their own; a tensor that occurs twice is copied once."""
    copies: dict[int, Any] = {}

    def copy_of(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        made = copies.get(id(leaf))
        if made is None:
            made = leaf.detach().clone()
            if isinstance(leaf, torch.nn.Parameter):
                made = torch.nn.Parameter(made, leaf.requires_grad)
            copies[id(leaf)] = made = made.requires_grad_(leaf.requires_grad)
        return made

    return list(map(copy_of, leaves))


def _sharing(leaves: Iterable[Any], names: Iterable[str]) -> tuple[str, str] | None:
    """Two different tensors in the same memory."""
    owners: dict[int, tuple[Any, str]] = {}
    for leaf, name in zip(leaves, names, strict=True):
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.numel():
            first, owner = owners.setdefault(leaf.untyped_storage().data_ptr(), (leaf, name))
            if first is not leaf:
                return owner, name
    return None


def _put_together(
    original: Any,
    trace: CallTrace,
    inputs: list[TensorInput | FixedInput],
    copies: list[Any],
    constants: Mapping[str, int],
) -> tuple[torch.fx.GraphModule, list[Output]]:
    """The traced graph with the arguments as inputs and every other tensor as an attribute."""
    graph = torch.fx.Graph()
    of_argument: dict[int, torch.fx.Node] = {}
    for described, leaf in zip(inputs, copies, strict=True):
        if isinstance(leaf, torch.Tensor) and id(leaf) not in of_argument:
            of_argument[id(leaf)] = node = graph.placeholder(_identifier(described.name))
            node.meta["tensor_meta"] = described
    attributes = _Attributes(original)
    values: dict[torch.fx.Node, Any] = {}
    sizes = SizeNodes(graph, inputs, of_argument, copies)
    placeholders = iter(trace.inputs)
    for node in trace.graph_module.graph.nodes:
        if node.op == "placeholder":
            value, words, term = next(placeholders)
            if term is not None:
                values[node] = sizes.node(with_constants(term, constants))
            elif not isinstance(value, torch.Tensor):
                values[node] = value  # a number among the arguments: fixed
            else:
                values[node] = of_argument.get(id(value)) or attributes.node(graph, value, words)
        else:
            values[node] = graph.node_copy(node, lambda used: values[used])
            if node.op == "get_attr":
                attributes.hold(values[node], trace.graph_module.get_submodule(str(node.target)))
    graph.lint()
    module = graph_module(attributes.values, graph, "Exported")
    return module, list(_outputs(trace, constants))


def _outputs(trace: CallTrace, constants: Mapping[str, int]) -> Iterator[Output]:
    for number, (node, leaf) in enumerate(trace.outputs):
        term = with_constants(trace.numbers.get(number), constants)
        if node is not None:
            yield Output(node)
        elif term is None:
            yield Output(None, leaf)
        else:
            yield Output(None, size=term) if names_in(term) else Output(None, value_of(term, {}))


class SizeNodes:
    """The sizes of inputs, and numbers computed from them, as nodes at the beginning of a graph."""

    def __init__(
        self,
        graph: torch.fx.Graph,
        inputs: Iterable[TensorInput | FixedInput],
        of_argument: Mapping[int, torch.fx.Node],
        copies: Iterable[Any],
    ):
        self.graph = graph
        self.places: dict[str, tuple[torch.fx.Node, int, SymbolicSize]] = {}
        self.made: dict[Term, torch.fx.Node] = {}
        for described, leaf in zip(inputs, copies, strict=True):
            for dim, size in enumerate(described.shape) if isinstance(described, TensorInput) else ():
                if isinstance(size, SymbolicSize):
                    self.places.setdefault(size.symbol, (of_argument[id(leaf)], dim, size))

    def node(self, term: Term) -> Any:
        if not names_in(term):
            return value_of(term, {})
        found = self.made.get(term)
        if found is None:
            if isinstance(term, str):
                made = self.symbol(term)
            else:
                function = operator.pow if term[0] == "pow" else OPERATIONS[term[0]]
                made = self.graph.call_function(function, tuple(map(self.node, term[1:])))
            found = self.made[term] = made
        return found

    def symbol(self, name: str) -> torch.fx.Node:
        tensor, dim, size = self.places[name]
        made = self.graph.call_function(torch.ops.aten.sym_size.int, (tensor, dim))
        if size.added:
            made = self.graph.call_function(operator.sub, (made, size.added))
        if size.factor != 1:
            made = self.graph.call_function(operator.floordiv, (made, size.factor))
        return made


class _Attributes:
    """The tensors that a graph holds itself, each under one name."""

    def __init__(self, original: Any):
        owner = original if isinstance(original, torch.nn.Module) else getattr(original, "__self__", None)
        self.names: dict[int, str] = {}
        if isinstance(owner, torch.nn.Module):
            for path, tensor in (*owner.named_parameters(), *owner.named_buffers()):
                self.names[id(tensor)] = path
        self.taken = {path.partition(".")[0] for path in self.names.values()}
        self.values: dict[str, Any] = {}

    def node(self, graph: torch.fx.Graph, value: Any, words: str) -> torch.fx.Node:
        name = self.names.get(id(value))
        if name is None:
            name = self.free_name(f"constant_{_identifier(words)}")
        self.values[name] = value
        node = graph.get_attr(name)
        node.meta["tensor_meta"] = TensorInput(name, -1, value.dtype, tuple(value.shape), value.device)
        return node

    def hold(self, node: torch.fx.Node, graph: torch.nn.Module) -> None:
        """A graph inside the graph: of a branch, or of a loop's step."""
        node.target = name = self.free_name(str(node.target))
        self.values[name] = graph

    def free_name(self, plain: str) -> str:
        name, number = plain, 1
        while name in self.taken:
            name, number = f"{plain}_{number}", number + 1
        self.taken.add(name)
        return name


def _identifier(words: str) -> str:
    cleaned = "".join(c if c.isalnum() and c.isascii() else "_" for c in words).strip("_")
    return f"input_{cleaned}" if not cleaned.isidentifier() else cleaned
