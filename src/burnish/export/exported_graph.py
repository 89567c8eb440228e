"""An exported graph: inputs, outputs, fixed arguments, and calls that are checked against them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ..errors import UserError
from ..foundation.torch_private import pytree
from ..report.explain_report import tensor_type
from ..tensors.device_facts import is_host
from ..tensors.eager_strides import packed_stride
from ..tensors.torch_state import TorchState
from .symbolic_sizes import Condition, SizeRange, SymbolicSize, Term, value_of
from .trace_whole_call import same_fixed

if TYPE_CHECKING:
    from .precompile import Held, NativeGraph


@dataclass(frozen=True)
class TensorInput:
    """A tensor among the arguments. ``node`` is the number of its graph input; a tensor passed twice has one input."""

    name: str
    node: int
    dtype: torch.dtype
    shape: tuple[int | SymbolicSize, ...]
    device: torch.device
    order: tuple[int, ...] | None = None
    """Of its dimensions in memory, from the fastest to the slowest, if the program has asked for its strides."""

    def why_not(self, value: Any) -> str | None:
        """A sentence if ``value`` does not match what was exported."""
        if not isinstance(value, torch.Tensor):
            return f"{self.name} was a tensor of {self}, and is a {type(value).__name__}"
        if value.dtype == self.dtype and value.device == self.device and len(value.shape) == len(self.shape):
            differing = [k for k, size in enumerate(self.shape) if type(size) is int and size != value.shape[k]]
            if not differing:
                return self.why_not_layout(value)
            said = ", ".join(f'{k}: torch.export.Dim("{self.plain_name}_{k}")' for k in differing)
            fix = f'. For other sizes: dynamic_shapes={{"{self.plain_name}": {{{said}}}}}'
        else:
            fix = ""
        found = TensorInput(self.name, self.node, value.dtype, tuple(value.shape), value.device)
        return f"{self.name} was a tensor of {self}, and is one of {found}{fix}"

    def why_not_layout(self, value: torch.Tensor) -> str | None:
        if self.order is None:
            return None
        is_usual = self.order == tuple(range(value.ndim - 1, -1, -1))
        shape, stride = tuple(value.shape), value.stride()
        if value.is_contiguous() if is_usual else packed_stride(shape, self.order) == stride:
            return None
        fix = f"{self.name}.contiguous()" if is_usual else "a tensor with the example's memory format"
        return (
            f"{self.name} has the strides {stride}, the program asks how tensors lie in memory, and the example's "
            f"dimensions were in the order {self.order} there, from the fastest on. Pass {fix}"
        )

    @property
    def plain_name(self) -> str:
        return self.name.partition("[")[0].partition(".")[0]

    @property
    def symbolic_sizes(self) -> list[SymbolicSize]:
        return [size for size in self.shape if isinstance(size, SymbolicSize)]

    def __str__(self) -> str:
        place = "" if is_host(self.device) else f" on {self.device}"
        return tensor_type(self) + place


@dataclass(frozen=True)
class FixedInput:
    """An argument that is not a tensor, with its value."""

    name: str
    value: Any

    def why_not(self, value: Any) -> str | None:
        if same_fixed(self.value, value):
            return None
        return f"{self.name} was {self.value!r:.80}, and is {value!r:.80}"

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True)
class Output:
    """A leaf of the result: the graph's output of that number, or (None) a fixed value, or a formula of the sizes."""

    node: int | None
    value: Any = None
    size: Term = None

    def of(self, results: Sequence[Any], values: Mapping[str, int]) -> Any:
        if self.node is not None:
            return results[self.node]
        return self.value if self.size is None else value_of(self.size, values)


class GraphView(torch.nn.Module):
    """A module whose parameters, buffers and submodules are those of ``graph_module``, which may be made on demand."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__new__(cls)
        torch.nn.Module.__init__(made)  # before a dataclass sets its fields
        return made

    @property
    def graph_module(self) -> torch.fx.GraphModule:
        raise NotImplementedError

    @property
    def graph(self) -> torch.fx.Graph:
        return self.graph_module.graph

    @property
    def code(self) -> str:
        """The Python code of the graph."""
        return self.graph_module.code

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("held", "native"):
            raise AttributeError(name)
        return getattr(self.graph_module, name)


def table(name: str) -> property:
    """A container of a module, which is that of the graph module. ``nn.Module.__init__`` sets it once."""

    def read(module: GraphView) -> Any:
        return getattr(module.graph_module, name)

    def write(module: GraphView, value: Any) -> None:
        if "held" in module.__dict__:
            setattr(module.graph_module, name, value)

    return property(read, write)


for _name in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
    setattr(GraphView, _name, table(_name))


@dataclass(eq=False)
class ExportedGraph(GraphView):
    """A graph with everything needed to call it like the function it was made from. It is a module: ``graph``,
    ``code``, ``state_dict()`` and ``named_modules()`` are those of ``graph_module``."""

    name: str
    held: Held
    inputs: list[TensorInput | FixedInput]
    outputs: list[Output]
    arguments: Any  # a pytree specification: the structure of (args, kwargs)
    result: Any  # ... and of the result
    writes_inputs: bool = False
    """Whether the graph changes tensors that are passed in. Then two arguments must not be one tensor, unless they were
    when it was exported."""
    guards: list[str] = field(default_factory=list[str])
    """Guards that held at export and are assumed to hold from then on. Only those on the arguments are checked."""
    left_out: list[str] = field(default_factory=list[str])
    """Prints, warnings and log records of the function, which the graph does not repeat."""
    ranges: list[SizeRange] = field(default_factory=list[SizeRange])
    """The symbols in the sizes of inputs."""
    conditions: list[Condition] = field(default_factory=list[Condition])
    """What must hold of them besides."""
    native: NativeGraph | None = None
    """The compiled graph. ``burnish.save`` makes it, and ``burnish.load`` reads it if the file contains it."""
    is_trusted: bool = True
    """Whether it was made here, or comes from a file that this user wrote or trusts."""
    keeps_switches: bool = False
    """Whether torch's global state (gradient mode, autocast) is restored after a call. An untrusted graph may change it
    for itself, but not for its caller."""

    @property
    def graph_module(self) -> torch.fx.GraphModule:
        """The graph. Changes to it affect later calls."""
        return self.held.graph()

    def __deepcopy__(self, memo: dict[int, Any]) -> ExportedGraph:
        """A copy with tensors of its own. It has no compiled code yet."""
        kept = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("held", "native")}
        return type(self)(held=self.held.copied(memo), **copy.deepcopy(kept, memo))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        run = self.graph_module if self.native is None else self.native
        inputs, values = self.matched(args, kwargs)
        results = self.run_keeping_switches(run, inputs) if self.keeps_switches else run(*inputs)
        return pytree.tree_unflatten([output.of(results, values) for output in self.outputs], self.result)

    def unchecked(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """A call for another tracer, which has its own checks of arguments: without compiled code."""
        leaves = pytree.tree_leaves((args, dict(sorted(kwargs.items()))))
        found: dict[int, torch.Tensor] = {}
        values: dict[str, Any] = {}
        for expected, leaf in zip(self.inputs, leaves, strict=True):
            if isinstance(expected, TensorInput):
                found.setdefault(expected.node, leaf)
                for dim, size in enumerate(expected.shape):
                    if isinstance(size, SymbolicSize):
                        values.setdefault(size.symbol, (leaf.shape[dim] - size.added) // size.factor)
        results = self.graph_module(*[found[node] for node in sorted(found)])
        return pytree.tree_unflatten([output.of(results, values) for output in self.outputs], self.result)

    def run_keeping_switches(self, run: Any, inputs: list[torch.Tensor]) -> Any:
        before = TorchState.now()
        try:
            return run(*inputs)
        finally:
            before.restore()

    def matched(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[list[torch.Tensor], dict[str, int]]:
        """The flat inputs of the graph for a call, which must match the exported one, and the values of its symbols."""
        leaves, nesting = pytree.tree_flatten((args, dict(sorted(kwargs.items()))))
        if nesting != self.arguments:
            expected = pytree.tree_unflatten([i.name for i in self.inputs], self.arguments)
            raise UserError(
                f"{self.name} was exported with arguments nested like {_call_text(*expected)}. "
                f"Call it the same way, or export it again with these arguments."
            )
        wrong: list[str] = []
        found: dict[int, torch.Tensor] = {}
        for expected, leaf in zip(self.inputs, leaves, strict=True):
            if (why := expected.why_not(leaf)) is not None:
                wrong.append(why)
            elif isinstance(expected, TensorInput) and found.setdefault(expected.node, leaf) is not leaf:
                wrong.append(f"{expected.name} was the same tensor as another argument, and is not")
        if self.writes_inputs and len(set(map(id, found.values()))) < len(found):
            wrong.append("two arguments are the same tensor, the graph writes to its inputs, and they were different")
        values: dict[str, int] = {}
        if self.ranges and not wrong:
            wrong += why_not_sizes(self, leaves, values)
        if wrong:
            raise UserError(
                f"{self.name} cannot be called with these arguments: {'; '.join(wrong)}. "
                f"An exported graph holds for the arguments it was made with: export again with these."
            )
        return [found[node] for node in sorted(found)], values


def why_not_sizes(exported: ExportedGraph, leaves: Sequence[Any], values: dict[str, int]) -> Iterator[str]:
    """What is wrong with the symbolic sizes of a call. Puts the symbols' values into `values`."""
    ranges = {symbol.name: symbol for symbol in exported.ranges}
    places: dict[str, str] = {}
    is_right = True
    for expected, leaf in zip(exported.inputs, leaves, strict=True):
        for dim, size in enumerate(expected.shape) if isinstance(expected, TensorInput) else ():
            if not isinstance(size, SymbolicSize):
                continue
            place, now = f"{expected.name}.shape[{dim}]", leaf.shape[dim]
            value = size.solved(now)
            symbol = ranges[size.symbol]
            if value is None:
                is_right = False
                yield f"{place} is {now}, and was exported as {size}"
                continue
            known = values.setdefault(size.symbol, value)
            first = places.setdefault(size.symbol, place)
            if known != value:
                is_right = False
                if symbol.is_named:
                    what = f"was exported as {size}, where {size.symbol} is {known} by {first}"
                    fix = "If they may differ: a torch.export.Dim of its own for each"
                else:
                    what, fix = f"must be as {first}, which is {known}", "The program needs that"
                yield f"{place} is {now}, and {what}. {fix}"
            elif first == place and not symbol.holds(value):
                is_right = False
                what = f"{size} with {symbol.name} {symbol.limits}" if symbol.is_named else f"a size {symbol.limits}"
                yield f"{place} is {now}, and was exported as {what}. {symbol.widened(value)}"
    if is_right:
        yield from filter(None, (condition.why_not(values) for condition in exported.conditions))


def _call_text(args: Iterable[Any], kwargs: Mapping[str, Any]) -> str:
    return "(" + ", ".join([*map(_bare, args), *(f"{key}={_bare(value)}" for key, value in kwargs.items())]) + ")"


def _bare(value: Any) -> str:
    return value if isinstance(value, str) else repr(value).replace("'", "")
