"""Generates the function that rebuilds a segment's results and replays its side effects.

At its end a segment holds real objects: tensors of the graph, new containers and instances, objects from outside.
``Rebuilder`` writes the Python function that makes the same structure from this run's values:

    def finish(V, G):            # V: values read by the check, G: the graph's outputs
        t0 = [G[0], V[2]]        # a fresh list
        d1 = V[0].__dict__
        d1['count'] = 4          # an effect
        return t0

Each object is built once, so sharing and cycles survive.
"""

from __future__ import annotations

import collections
import functools
import re
import types
import warnings
import weakref
from types import CellType, FunctionType, MethodType
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from ..engine.break_signals import Unrebuildable
from ..engine.graph_recorder import Recorder
from ..engine.heap import Heap
from ..engine.interpreted_or_native import is_trusted_type, is_user_type
from ..engine.torch_call_records import Handle
from ..guards import iterator_contents
from ..guards.guards import CheckWriter
from ..guards.immutable_builtin_subclasses import base_of_value
from ..guards.object_sources import Source
from ..guards.tensor_metadata import WithoutRules
from ..guards.value_or_identity import SINGLETON_IDS
from ..interpreter.frames import Generator
from ..numbers import constant_arrays, min_max_of_tensors, numpy_tables, object_addresses
from ..numbers.live_scalars import Live
from ..python import in_memory_streams, locks, template_strings
from ..python.messages import warning_filters
from ..python.operators import iteration, value_kinds
from ..pytorch import tensor_hooks_and_data
from ..pytorch.backward_and_grad import as_leaf, is_leaf_of_other, is_refused, no_view
from . import rebuild_containers, rebuild_functions, rebuild_instances, rebuild_subclass_tensors
from .shown_iterators import is_shown

LITERALS = frozenset((int, str, bytes, bool, type(None)))


class Rebuilder:
    def __init__(self, tracer: Any):
        self.tracer = tracer
        self.heap: Heap = tracer.heap
        self.recorder: Recorder = tracer.recorder
        self.writer = CheckWriter()  # for its constants only
        self.lines: list[str] = []
        self.memo: dict[int, str] = {}
        self.after_effects: list[str] = []  # lines that depend on what the effects leave in outside objects
        self.keep: list[Any] = []
        self.sources: dict[int, tuple[int, Source]] = {}
        self.outputs: list[Handle] = []
        self.output_at: dict[int, int] = {}
        self.in_inference_mode: list[bool | None] = []
        """For each output, whether it was made in inference mode; None if it is not a tensor."""
        self.active: dict[int, int] = {}  # generators whose frame is running: index of the frame
        self.clones: dict[int, str] = {}
        self.leaves = False  # they go to plain Python, which gets builtin iterators in place of ours
        self.is_hidden = False  # in the frame of an outside generator: the next call may advance what it has begun
        self.own_gradients = tracer.gradients.without_views()

    # ---- pieces

    def constant(self, value: Any) -> str:
        if self.tracer.addresses and object_addresses.is_part_of(self.tracer, value):
            if type(value) is not int:
                raise Unrebuildable(value, "the address of an object is in a constant")
            return self.address(self.tracer.addresses[value])
        if issubclass(type(value), type) and id(value) in self.heap.fresh:
            raise Unrebuildable(value, f"the class {value.__qualname__}, made here, leaves the graph")
        if type(value) is types.CodeType and id(value) in self.heap.fresh:
            raise Unrebuildable(value, "a code object that compile() makes leaves the graph")
        return self.writer.constant(value)

    def address(self, of: object_addresses.Address) -> str:
        if of.is_gone:
            raise Unrebuildable(None, f"the address of a {of.kind.__qualname__} that is gone")
        return f"id({self.build(of.reference())})"

    def variable(self) -> str:
        return f"t{len(self.keep)}"

    def name(self, value: Any, expression: str) -> str:
        """Bind ``expression`` to a variable that stands for ``value``."""
        name = self.variable()
        self.keep.append(value)
        self.memo[id(value)] = name
        self.lines.append(f"{name} = {expression}")
        return name

    def name_once(self, value: Any, expression: str) -> str:
        """``name`` for an immutable object: building its parts has built it already if one of them holds it."""
        return self.memo.get(id(value)) or self.name(value, expression)

    def source(self, source: Source) -> str:
        if source.kind == "const":
            return self.constant(source.key)
        at = self.sources.get(id(source))
        if at is None:
            at = self.sources[id(source)] = (len(self.sources), source)
        return f"V[{at[0]}]"

    def output(self, handle: Handle, value: Any = None) -> str:
        at = self.output_at.get(id(handle))
        if at is None:
            at = self.output_at[id(handle)] = len(self.outputs)
            self.outputs.append(handle)
            with WithoutRules():
                self.in_inference_mode.append(value.is_inference() if issubclass(type(value), torch.Tensor) else None)
        return f"G[{at}]"

    # ---- values

    def build(self, value: Any) -> str:
        kind = type(value)
        if kind in LITERALS or id(value) in SINGLETON_IDS:
            return self.constant(value)
        known = self.memo.get(id(value))
        if known is not None:
            return known
        if self.tracer.cached_answers is not None:
            self.tracer.cached_answers.refuse_to_leave(value)
        if issubclass(kind, Live):  # by class: isinstance of a weak proxy reads its referent, which may be gone
            return self.live(value)
        if issubclass(kind, torch.Tensor):
            return self.tensor(value)
        origin = self.heap.origin_of(value)
        if origin is not None and not (kind is Generator and is_shown(self, self.heap, value)):
            return self.source(origin.source)
        handle = self.recorder.handle_of(value)
        if handle is not None:
            return self.name(value, self.output(handle, value))
        found, source = self.heap.by_value.get(id(value), (None, None))
        if found is value and source is not None:
            return self.source(source)
        builder = BUILDERS.get(kind)
        if builder is not None:
            return builder(self, value)
        return self.other(value)

    def live(self, value: Any) -> str:
        expression = value.expression
        if expression.operation is None:
            return self.source(expression.operands[0])
        return expression.render(_SourceNames(self))

    def tensor(self, value: torch.Tensor) -> str:
        origin = self.heap.origin_of(value)
        handle = self.recorder.handle_of(value)
        if origin is not None:
            return self.source(origin.source)
        picked = min_max_of_tensors.build(self, value) if self.tracer.chosen else None
        if picked is not None:
            return picked
        if handle is None:
            name = rebuild_subclass_tensors.build_subclass(self, value)
            rebuild_instances.build_attributes(self, value, name)
            return name
        if handle.call is None:
            return self.name(value, self.source(handle.source))
        output = self.output(handle, value)
        if id(value) in self.own_gradients:
            output = f"{self.constant(no_view)}({output})"
        elif self.tracer.options.shows_operators and is_leaf_of_other(value):
            output = f"{self.constant(as_leaf)}({output})"
        elif self.tracer.options.shows_operators and value._is_view() and is_refused(value):
            raise Unrebuildable(value, "a view of a parameter, made without gradients, leaves after a write")
        name = self.name(value, output)
        attributes = value.__dict__ if type(value) in (torch.Tensor, torch.nn.Parameter) else {}
        for key, part in attributes.items():
            self.lines.append(f"{name}.__dict__[{key!r}] = {self.build(part)}")
        if id(value) in self.tracer.gradients.made_here:
            self.lines.append(f"{name}.grad = {self.build(value.grad)}")
        return name

    def other(self, value: Any) -> str:
        kind = type(value)
        if issubclass(type(value), torch._C._InferenceMode):
            raise Unrebuildable(value)
        if self.heap.has_fixed_meaning(value) and id(value) not in self.heap.fresh:
            return self.constant(value)
        if kind in iteration.ITERATORS or kind.__module__ == "itertools":
            return rebuild_containers.build_iterator(self, value)
        if issubclass(type(value), BaseException):
            return rebuild_instances.build_exception(self, value)
        if issubclass(type(value), tuple):
            return rebuild_containers.build_tuple_of_class(self, value)
        if base_of_value(kind) is not None and id(value) in self.heap.fresh:
            return rebuild_containers.build_value_of_class(self, value)
        if kind.__module__ == "operator":  # itemgetter and the like
            return template_strings.build(self, value)
        if (
            issubclass(type(value), (dict, list, set, collections.deque))
            or id(value) in self.heap.fresh
            or is_user_type(kind)
            and hasattr(value, "__dict__")
            and id(value) in self.heap.fresh
        ):
            return rebuild_instances.build_instance(self, value)
        if (
            kind in value_kinds.SIMPLE
            or kind in numpy_tables.VALUES
            or issubclass(type(value), (types.ModuleType, type, types.TracebackType, types.CodeType))
        ):
            return self.constant(value)
        if is_trusted_type(kind) and kind.__module__ in SHARED_MODULES and not issubclass(kind, WEAK):
            return self.constant(value)
        raise Unrebuildable(value)

    def refuse(self, value: Any) -> str:
        raise Unrebuildable(value)


class _SourceNames:
    """Lets a live value's expression name its sources the way ``finish`` does."""

    def __init__(self, rebuilder: Rebuilder):
        self.rebuilder = rebuilder

    def load(self, source: Source) -> str:
        return self.rebuilder.source(source)

    def constant(self, value: Any) -> str:
        return self.rebuilder.constant(value)

    def graph_number(self, handle: Handle) -> str:
        return self.rebuilder.output(handle)

    def address(self, of: object_addresses.Address) -> str:
        return self.rebuilder.address(of)


WEAK = (weakref.ref, *weakref.ProxyTypes)  # such as those in a WeakValueDictionary, which call a function at the end

# Objects of these modules are immutable values: sharing one between runs is not seen.
SHARED_MODULES = frozenset(
    """
    re inspect typing datetime decimal fractions torch types weakref operator string torch._C importlib.machinery
""".split()
)
BUILDERS: dict[type, Any] = {
    **dict.fromkeys((list, tuple, set, frozenset), rebuild_containers.build_sequence),
    dict: rebuild_containers.build_dictionary,
    **dict.fromkeys(
        (collections.OrderedDict, collections.defaultdict, collections.Counter),
        rebuild_containers.build_dictionary_of_class,
    ),
    collections.deque: rebuild_containers.build_deque,
    slice: rebuild_containers.build_slice,
    range: rebuild_containers.build_range,
    MethodType: rebuild_functions.build_method,
    types.BuiltinFunctionType: rebuild_functions.build_builtin,
    type(re.compile("").match): rebuild_functions.build_builtin,
    type("".__add__): rebuild_functions.build_builtin,
    FunctionType: rebuild_functions.build_function,
    CellType: rebuild_functions.build_cell,
    functools.partial: rebuild_functions.build_partial,
    super: rebuild_functions.build_super,
    bytearray: rebuild_containers.build_bytearray,
    types.GenericAlias: rebuild_functions.build_generic_alias,
    weakref.ref: rebuild_functions.build_weak_reference,
    **dict.fromkeys(in_memory_streams.KINDS, in_memory_streams.build),
    **dict.fromkeys(locks.KINDS, locks.build),
    **dict.fromkeys(template_strings.KINDS, template_strings.build),
    Generator: rebuild_functions.build_generator,
    RemovableHandle: tensor_hooks_and_data.build_handle,
    warnings.catch_warnings: warning_filters.build_block,
    numpy_tables.ARRAY: constant_arrays.build,
    **dict.fromkeys(numpy_tables.NUMBERS, constant_arrays.build_number),
    **dict.fromkeys(iterator_contents.VIEWS, rebuild_containers.build_view),
}
