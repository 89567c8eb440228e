"""Trace one whole call for ``export`` as a single graph, and restore the program's state afterwards.

    with kept_as_they_were(fn):
        program(...)            # a OneGraph
    program.found               # the CallTrace

A ``OneGraph`` is a program that never closes a segment. It returns what the tracer recorded, so that the graph can
be written with other inputs and outputs than those of a segment.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CellType, CodeType, FunctionType, MappingProxyType, MethodType
from typing import Any

import torch
import torch.fx
from torch.nn.parameter import UninitializedTensorMixin

from ..capture.engine.build_fx_graph import build_graph
from ..capture.engine.engine import Program
from ..capture.engine.tracer import Tracer
from ..capture.numbers.live_scalars import Expression, Live
from ..capture.pytorch import writes_of_calls
from ..capture.symbolic_sizes.declared_dimensions import LAYOUT_FACTS, DeclaredSize, DeclaredSizes, DeclaredSymbol
from ..errors import InternalError, Unsupported, UserError
from ..foundation.torch_private import pytree
from ..frontend.describe_guards import guard_text
from ..report.text_layout import labelled
from ..runtime.segment_records import Continuation
from .prove_sizes import term_of
from .symbolic_sizes import Term

FIXED = frozenset(
    (
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        type(Ellipsis),
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
        torch.Size,
    )
)
EFFECT_WORDS = {"print_to": "print", "warn_at": "a warning", "call_logger": "a log record", "ask_cache": None}
ABSENT = object()


def is_fixed(value: Any) -> bool:
    """Whether a value that is not a tensor can be part of an exported graph."""
    return type(value) in FIXED or type(value) is slice and all(map(is_fixed, (value.start, value.stop, value.step)))


def same_fixed(a: Any, b: Any) -> bool:
    """1, 1.0 and True differ, so do 0.0 and -0.0; nan equals nan."""
    return type(a) is type(b) and (repr(a) == repr(b) if isinstance(a, (float, complex)) else a == b)


@dataclass(frozen=True)
class Refusal:
    """Why there is no exported graph, in the form of a break record."""

    headline: str
    found: tuple[str, ...]
    why: str
    what_to_do: str

    def render(self) -> str:
        lines = [self.headline, *(f"  {line}" for line in self.found), ""]
        return "\n".join([*lines, *labelled("Why", self.why), *labelled("What to do", self.what_to_do)])


@dataclass
class CallTrace:
    """The recording of one call."""

    graph_module: torch.fx.GraphModule
    inputs: list[tuple[Any, str, Term]]  # each graph input's value, its source in words, and its formula of sizes
    outputs: list[tuple[int | None, Any]]  # each leaf of the result: the graph's output of that number, or a value
    result: Any  # the structure of the result
    guards: list[str]
    written: list[Any] = field(default_factory=list[Any])  # inputs the graph writes to
    changed: list[str] = field(default_factory=list[str])  # Python state it changed
    left_out: list[str] = field(default_factory=list[str])
    foreign: list[str] = field(default_factory=list[str])  # parts of the result that a file cannot store
    sizes: DeclaredSizes | None = None
    reads_layout: bool = False  # whether the program has asked how tensors lie in memory
    numbers: dict[int, Term] = field(default_factory=dict[int, Term])  # leaves of the result that are formulas of sizes

    def writes_to(self, tensor: Any, before: Any) -> bool:
        """Whether the graph changes an argument whose data was ``before``."""
        return any(tensor is other for other in self.written) or not same_data(tensor.detach(), before.detach())

    def why_not_export(self, name: str) -> Unsupported | None:
        if self.changed:
            return Unsupported(
                Refusal(
                    f"Cannot export {name}: it changes Python objects",
                    tuple(f"writes to {what}" for what in self.changed),
                    "A compiled function does such writes again on each run. An exported graph runs without them, "
                    "so they would be lost.",
                    "Return the value, keep it in a buffer (self.register_buffer), which is a tensor and part of the "
                    "graph, or leave the write out while burnish.is_compiling() is True. The objects are as they were.",
                )
            )
        if self.foreign:
            return Unsupported(
                Refusal(
                    f"Cannot export {name}: its result is not only tensors",
                    tuple(self.foreign),
                    "The result of an exported graph consists of tensors, numbers, strings, None and dtypes, in "
                    "tuples, lists, dictionaries and what is registered with torch.utils._pytree.",
                    "Return the tensors the object holds.",
                )
            )
        return None


class OneGraph(Program):
    """A program for one call in one graph, whose writes to Python objects can be undone."""

    found: CallTrace | None = None
    undo: Undo | None = None
    symbols: Sequence[DeclaredSymbol] = ()
    shapes: Mapping[int, Mapping[int, DeclaredSize]] = MappingProxyType({})
    """By the id of each tensor, its symbolic sizes."""

    def start_frame(self, tracer: Tracer, continuation: Continuation, slots: list[Any]) -> Any:
        self.undo = Undo(tracer)
        tracer.symbolic_sizes = DeclaredSizes(tracer, self.symbols, self.shapes) if self.symbols else None
        return super().start_frame(tracer, continuation, slots)

    def finish_trace(self, tracer: Tracer, continuation: Continuation, signal: Any, *rest: Any) -> None:
        if signal is None and self.undo is not None:  # else the user's code raised
            self.found = _take(tracer, self.undo)

    def take_back(self) -> None:
        if self.undo is not None:
            self.undo.take_back()

    def recover(self, tracer: Tracer, continuation: Continuation, error: Exception) -> Any:
        raise InternalError("tracing", f"{type(error).__name__}: {error} at {tracer.user_line()}") from error


class Undo:
    """Previous values of dictionary entries (attributes and globals among them) and cells that are written to.

    The heap knows what was written, and for whole containers also the previous content; the rest is recorded here.
    """

    def __init__(self, tracer: Any):
        self.heap = heap = tracer.heap
        self.entries: dict[tuple[int, Any], tuple[dict[Any, Any], Any]] = {}
        self.cells: dict[int, tuple[CellType, Any]] = {}
        self.classes: dict[tuple[int, str], tuple[type, Any]] = {}
        write_key, store_cell = heap.will_write_key, tracer.store_cell

        def will_write_key(origin: Any, key: Any, *rest: Any, **named: Any) -> None:
            if isinstance(origin.obj, dict):
                self.entries.setdefault((id(origin.obj), key), (origin.obj, dict.get(origin.obj, key, ABSENT)))
            elif isinstance(origin.obj, MappingProxyType):
                self.classes.setdefault((id(origin.obj), key), (origin.source.base.key, origin.obj[key]))
            write_key(origin, key, *rest, **named)

        def store_cell_noted(cell: CellType, value: Any) -> None:
            self.cells.setdefault(id(cell), (cell, _content(cell)))
            store_cell(cell, value)

        heap.will_write_key, tracer.store_cell = will_write_key, store_cell_noted
        self.origins: list[Any] = []
        release = tracer.release

        def release_noted() -> None:
            self.origins = self.origins or list(heap.origins.values())
            release()

        tracer.release = release_noted

    def changes(self) -> Iterator[str]:
        """The objects that have changed, in words."""
        for origin in list(self.heap.origins.values()):
            obj, source = origin.obj, origin.source
            if not self.heap.changed(origin):
                continue
            if isinstance(obj, CellType):
                if self.cells.get(id(obj), (obj, ABSENT))[1] is not _content(obj):
                    yield f"the variable {source}"
            elif isinstance(obj, dict) and origin.snapshot is None:
                for key in origin.written:
                    if self.entries.get((id(obj), key), (obj, ABSENT))[1] is not dict.get(obj, key, ABSENT):
                        yield str(source.item(key))
            elif isinstance(obj, MappingProxyType):
                for name in origin.written:
                    cls, before = self.classes[id(obj), name]
                    if obj[name] is not before:
                        yield f"{cls.__qualname__}.{name}"
            elif origin.written:
                yield from (f"{source}.{name}" for name in origin.written)
            else:
                yield str(source)

    def take_back(self) -> None:
        for origin in self.origins or list(self.heap.origins.values()):
            if origin.snapshot is not None:
                _put_back(origin.obj, origin.snapshot)
            elif origin.appended_from is not None:
                del origin.obj[origin.appended_from :]
        for (_, key), (table, before) in self.entries.items():
            if before is not ABSENT:
                dict.__setitem__(table, key, before)
            elif key in table:
                dict.__delitem__(table, key)
        for (_, name), (cls, before) in self.classes.items():
            type.__setattr__(cls, name, before)
        for cell, before in self.cells.values():
            if before is not ABSENT:
                cell.cell_contents = before
            elif _content(cell) is not ABSENT:
                del cell.cell_contents


def _put_back(container: Any, before: list[Any]) -> None:
    """Restore a container's previous content: items, or the pairs of a dictionary."""
    if isinstance(container, dict):
        if [(id(k), id(v)) for k, v in container.items()] != [(id(k), id(v)) for k, v in before]:
            container.clear()
            container.update(before)
    elif isinstance(container, (list, set, collections.deque)) and list(map(id, container)) != list(map(id, before)):
        container.clear()
        (container.update if isinstance(container, set) else container.extend)(before)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # unassigned
        return ABSENT


def _take(tracer: Tracer, undo: Undo) -> CallTrace:
    recorder, heap, sizes = tracer.recorder, tracer.heap, tracer.symbolic_sizes
    if sizes is not None:
        sizes.finish()
    leaves, nesting = pytree.tree_flatten(tracer.result)
    handles: list[Any] = []
    outputs: list[tuple[int | None, Any]] = []
    foreign: list[str] = []
    numbers: dict[int, Term] = {}
    for leaf in leaves:
        if isinstance(leaf, Live):
            numbers[len(outputs)] = size_term(sizes, leaf.expression)
        value = leaf.plain() if isinstance(leaf, Live) else leaf
        handle = None
        if isinstance(value, torch.Tensor):
            handle = recorder.handle_of(value)
            origin = heap.origin_of(value)
            if handle is None and origin is not None:
                handle = recorder.input(origin.source, value)
        if handle is not None:
            outputs.append((len(handles), None))
            handles.append(handle)
        else:
            outputs.append((None, value))
            if not is_fixed(value):
                foreign.append(f"returns a {type(value).__module__}.{type(value).__qualname__}")
    graph_module = build_graph(recorder, handles)
    for node in graph_module.graph.nodes:
        node.meta.pop("example_value", None)  # a copy of an argument, no longer needed
    inputs = [
        (value, str(handle.source), size_term(sizes, handle.source))
        for handle, value in zip(recorder.inputs, recorder.examples, strict=True)
    ]
    writes = set(map(id, writes_of_calls.written_inputs(recorder)))
    written = [value for handle, value in zip(recorder.inputs, recorder.examples, strict=True) if id(handle) in writes]
    effects = (EFFECT_WORDS.get(effect.function.__name__, effect.function.__name__) for effect in tracer.effects)
    return CallTrace(
        graph_module,
        inputs,
        outputs,
        nesting,
        list(map(guard_text, heap.guards)),
        written,
        list(undo.changes()),
        [words for words in effects if words is not None],
        foreign,
        sizes,
        not LAYOUT_FACTS.isdisjoint(recorder.facts_read),
        numbers,
    )


def size_term(sizes: DeclaredSizes | None, source: Any) -> Term:
    """The formula of a number that is computed from symbolic sizes, or None."""
    is_formula = sizes is not None and isinstance(source, Expression) and sizes.is_of_symbols(source)
    return term_of(sizes, source) if is_formula else None


# ---- restoring state


@contextmanager
def kept_as_they_were(original: Any) -> Iterator[None]:
    """Restore, at the end, the tensors that a callable reaches and torch's random state."""
    modules, tensors = reached(original)
    for module in modules:
        for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            if isinstance(tensor, UninitializedTensorMixin):
                raise UserError(
                    f"burnish.export: {type(module).__qualname__}.{name} has no shape yet. Call the module "
                    f"once, so that its lazy parameters are made, then export it."
                )
    kept_tensors = [_KeptTensor(tensor) for tensor in tensors]
    random = torch.get_rng_state()
    on_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        yield
    finally:
        for kept in kept_tensors:
            kept.restore()
        torch.set_rng_state(random)
        if on_devices:
            torch.cuda.set_rng_state_all(on_devices)


def reached(original: Any) -> tuple[list[torch.nn.Module], list[torch.Tensor]]:
    """The modules and tensors a callable holds: itself, bound, in closures, defaults, the globals it names."""
    modules: dict[int, torch.nn.Module] = {}
    tensors: dict[int, torch.Tensor] = {}
    seen: set[int] = set()
    waiting = [original]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            tensors[id(value)] = value
        elif isinstance(value, torch.nn.Module):
            modules[id(value)] = value
            waiting += vars(value).values()
        elif isinstance(value, FunctionType):
            waiting += _held_by(value)
        elif isinstance(value, MethodType):
            waiting += (value.__self__, value.__func__)
        elif isinstance(value, functools.partial):
            waiting += (value.func, *value.args, *value.keywords.values())
        elif type(value) in (list, tuple):
            waiting += value
        elif isinstance(value, dict) and len(value) < 100_000 and "__builtins__" not in value:
            waiting += value.values()
        elif value is original:
            waiting += (*getattr(value, "__dict__", {}).values(), vars(type(value)).get("__call__"))
    return list(modules.values()), list(tensors.values())


def _held_by(function: FunctionType) -> Iterator[Any]:
    if function.__module__ and function.__module__.partition(".")[0] == "torch":
        return
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # unassigned
            continue
    yield from function.__defaults__ or ()
    for name in _names(function.__code__):
        value = function.__globals__.get(name)
        if isinstance(value, (torch.Tensor, torch.nn.Module, FunctionType, list, dict)):
            yield value


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


class _KeptTensor:
    """A tensor's data, gradient and flags."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor
        self.alias = tensor.detach()
        self.data = self.alias.clone()
        self.version = _version(tensor)
        self.requires_grad = tensor.requires_grad
        self.gradient = tensor.grad if tensor.is_leaf else None
        self.kept_gradient = None if self.gradient is None else _KeptTensor(self.gradient)

    def restore(self) -> None:
        tensor = self.tensor
        if tensor.is_leaf:
            if tensor.requires_grad != self.requires_grad:
                tensor.requires_grad_(self.requires_grad)
            if tensor.grad is not self.gradient:
                tensor.grad = self.gradient
            if self.kept_gradient is not None:
                self.kept_gradient.restore()
        if tensor.layout is torch.strided and (
            tensor.shape != self.alias.shape or tensor.data_ptr() != self.alias.data_ptr()
        ):
            tensor.data = self.alias
        # Batch normalization writes to its statistics without a new version, so the data is compared as well.
        if _version(tensor) != self.version or not same_data(self.alias, self.data):
            with torch.inference_mode(tensor.is_inference()), torch.no_grad():
                self.alias.copy_(self.data)


def same_data(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.layout is torch.strided and not a.is_meta and torch.equal(a, b)


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
