"""Generates the function that rebuilds a segment's results and replays its side effects.

At its end a segment holds real objects: tensors of the graph, new containers and instances, objects from outside.
``Rebuilder`` writes the Python function that makes the same structure from this run's values:

    def finish(V, G):            # V: values read by the check, G: the graph's outputs
        t0 = [G[0], V[2]]        # a fresh list
        d1 = V[0].__dict__
        d1['count'] = 4          # an effect
        return t0

Each object is built once, so sharing and cycles survive. How depends on its type: the tables below name the functions.
An object that none of them builds is `Unrebuildable`: a segment that ends with it is not compiled.
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

from ...foundation.torch_private import InferenceMode
from ..engine.break_signals import Unrebuildable
from ..engine.interpreted_or_native import is_trusted_type, is_user_type
from ..guards import read_native_iterators
from ..guards.immutable_builtin_subclasses import base_of_value
from ..guards.value_or_identity import SINGLETON_IDS
from ..interpreter.frames import Generator
from ..numbers import constant_arrays, min_max_of_tensors, numpy_tables
from ..numbers.live_scalars import Live
from ..python import in_memory_streams, locks, template_strings
from ..python.messages import warning_filters
from ..python.operators import iteration, value_kinds
from ..pytorch import tensor_hooks_and_data
from ..pytorch.backward_and_grad import as_leaf, is_leaf_of_other, is_refused, no_view
from . import rebuild_containers, rebuild_functions, rebuild_instances
from .shown_iterators import is_shown
from .template_writer import TemplateWriter

LITERALS = frozenset((int, str, bytes, bool, type(None)))


class Rebuilder(TemplateWriter):
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
            return value.expression.render(self)  # type: ignore[no-any-return]
        if issubclass(kind, torch.Tensor):
            return self.tensor(value)
        origin = self.heap.origin_of(value)
        if origin is not None and not (kind is Generator and is_shown(self, self.heap, value)):
            return self.load(origin.source)
        handle = self.recorder.handle_of(value)
        if handle is not None:
            return self.name(value, self.output(handle, value))
        found, source = self.heap.by_value.get(id(value), (None, None))
        if found is value and source is not None:
            return self.load(source)
        builder = BUILDERS.get(kind)
        if builder is not None:
            return builder(self, value)
        return self.other(value)

    def tensor(self, value: torch.Tensor) -> str:
        origin = self.heap.origin_of(value)
        handle = self.recorder.handle_of(value)
        if origin is not None:
            return self.load(origin.source)
        picked = min_max_of_tensors.build(self, value) if self.tracer.chosen else None
        if picked is not None:
            return picked
        if handle is None:
            from . import rebuild_subclass_tensors  # few programs have any

            name = rebuild_subclass_tensors.build_subclass(self, value)
            rebuild_instances.build_attributes(self, value, name)
            return name
        if handle.call is None:
            return self.name(value, self.load(handle.source))
        output = self.output(handle, value)
        if id(value) in self.own_gradients:
            output = self.call(no_view, output)
        elif self.tracer.options.shows_operators and is_leaf_of_other(value):
            output = self.call(as_leaf, output)
        elif self.tracer.options.shows_operators and is_refused(value):
            raise Unrebuildable(value, "a view of a parameter, made without gradients, leaves after a write")
        name = self.name(value, output)
        if type(value) in (torch.Tensor, torch.nn.Parameter):
            self.set_attributes(name, value.__dict__)
        if id(value) in self.tracer.gradients.made_here:
            self.lines.append(f"{name}.grad = {self.build(value.grad)}")
        return name

    def other(self, value: Any) -> str:
        kind = type(value)
        if issubclass(type(value), InferenceMode):
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


WEAK = (weakref.ref, *weakref.ProxyTypes)  # such as those in a WeakValueDictionary, which call a function at the end

# Objects of these modules are immutable values: sharing one between runs is not seen.
SHARED_MODULES = frozenset(
    """
    re inspect typing datetime decimal fractions torch types weakref operator string torch._C importlib.machinery
""".split()
)
BUILDERS: dict[type, Any] = {
    **dict.fromkeys((list, tuple, set, frozenset), rebuild_containers.build_sequence),
    **dict.fromkeys(
        (dict, collections.OrderedDict, collections.defaultdict, collections.Counter),
        rebuild_containers.build_dictionary,
    ),
    collections.deque: rebuild_containers.build_deque,
    **dict.fromkeys((slice, range), rebuild_containers.build_bounds),
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
    **dict.fromkeys(read_native_iterators.VIEWS, rebuild_containers.build_view),
}
