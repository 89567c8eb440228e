"""Dispatch of methods in C while tracing: the type of the owner decides which rule makes the call.

    call_method(m, names, "append", ("bias",), {}, names.append)        # a list: ``container_methods``

A type is looked up in the tables once.
"""

from __future__ import annotations

import collections
import functools
import re
import types
from collections.abc import Callable
from typing import Any

import torch

from ....foundation.torch_private import DisableTorchFunctionSubclass, InferenceMode
from ... import breaks
from ...interpreter.reads_past_overrides import store_class_fact
from ...numbers.live_scalars import Live
from ...pytorch import function_modes
from .. import copy_protocol, in_memory_streams, locks
from ..attributes.attribute_reads import load_plainly
from ..attributes.attribute_writes import store_plainly, without_result
from ..operators import iteration, value_kinds
from .container_methods import TAKE, WRITES, call_dict, call_list, call_sequence, call_set, call_text
from .other_native_methods import (
    call_cached_function,
    call_class,
    call_frame,
    call_inference_mode,
    call_iterator,
    call_natively,
    call_object,
    pure_method,
)


def call_method(m: Any, owner: Any, name: str, args: tuple, kwargs: dict, bound: Any, unbound: Any = None) -> Any:
    """``owner.name(*args)`` where the method is C code."""
    kind = type(owner)
    if m.region is not None and name in WRITES and issubclass(kind, value_kinds.CHANGEABLE):
        m.region.will_write(owner)
    method = bound if bound is not None else functools.partial(unbound, owner)
    if kind is dict and name == "get" and not kwargs and args and type(args[0]) is str:
        origin = m.heap.origin_of(owner)
        found = None if origin is None else m.heap.read_key(origin, args[0])
        return found if issubclass(type(found), Live) else m.plainly(method, *args)
    takes = TAKE.get(name)
    if (
        takes is not None
        and (kwargs or not takes[0] <= len(args) <= takes[1])
        and issubclass(kind, value_kinds.BUILTIN_CONTAINERS)
    ):
        return m.plainly(method, *args, **kwargs)  # raises the error
    rule = _rules.get(kind)
    if rule is None:
        rule = store_class_fact(_rules, kind, _rule_for(kind))
    return rule(m, owner, name, args, kwargs, method)


_rules: dict[type, Callable] = {}


def _rule_for(kind: type) -> Callable:
    """How methods of this type's objects are called."""
    for classes, rule in CONTAINER_RULES:
        if issubclass(kind, classes):
            return rule if kind in value_kinds.BUILTIN_CONTAINERS else functools.partial(_call_unless_copied, rule)
    rule = next((rule for applies, rule in KIND_RULES if applies(kind)), call_object)
    return functools.partial(_call_unless_of_attributes, rule)


def _call_unless_copied(
    rule: Callable, m: Any, owner: Any, name: str, args: tuple, kwargs: dict, method: Callable
) -> Any:
    if name in ("__reduce_ex__", "__reduce__") and copy_protocol.asks_the_container(m, owner):
        m.stop(breaks.OPAQUE_CALL, f"{name} of a {type(owner).__qualname__} with its own methods")
    return rule(m, owner, name, args, kwargs, method)


def _call_unless_of_attributes(
    rule: Callable, m: Any, owner: Any, name: str, args: tuple, kwargs: dict, method: Callable
) -> Any:
    count = 1 if name == "__getattribute__" else 2
    if name in ATTRIBUTE_METHODS and len(args) == count and issubclass(type(args[0]), str) and not kwargs:
        return ATTRIBUTE_METHODS[name](m, owner, args)
    return rule(m, owner, name, args, kwargs, method)


def call_autograd_node(m: Any, node: Any, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    """``tensor.grad_fn.name()`` of a tensor that the graph makes."""
    if name == "name" and not args and not kwargs and m.heap.origin_of(node) is None:
        return m.plainly(node.name)
    return call_object(m, node, name, args, kwargs, method)


def call_device(m: Any, device: torch.device, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    if name == "__enter__":
        return function_modes.enter_device(m, device)
    if name == "__exit__":
        return function_modes.leave(m, args, kwargs)
    return pure_method(m, device, name, args, kwargs, method)


PURE_KINDS = (
    *(int, float, complex, range, slice, type(None), types.MappingProxyType, torch.dtype, re.Pattern, re.Match),
    *(BaseException, *value_kinds.NATIVE_PARTS),
)
NATIVE_MODULES = frozenset("functools operator enum types typing abc _abc datetime".split())


ATTRIBUTE_METHODS: dict[str, Callable] = {
    "__getattribute__": lambda m, owner, args: load_plainly(m, owner, args[0]),
    "__setattr__": lambda m, owner, args: without_result(m, store_plainly(m, owner, *args)),
}
CONTAINER_RULES: tuple[tuple[type | tuple[type, ...], Callable], ...] = (
    (dict, call_dict),
    ((list, collections.deque), call_list),
    ((set, frozenset), call_set),
    ((str, bytes), call_text),
    (tuple, call_sequence),
)
KIND_RULES: tuple[tuple[Callable[[type], bool], Callable], ...] = (
    (lambda kind: issubclass(kind, type), call_class),
    (lambda kind: kind is InferenceMode, call_inference_mode),
    (lambda kind: issubclass(kind, torch.autograd.graph.Node), call_autograd_node),
    (lambda kind: kind is DisableTorchFunctionSubclass, call_natively),
    (lambda kind: kind is torch.device, call_device),
    (lambda kind: issubclass(kind, in_memory_streams.KINDS), in_memory_streams.call_method),
    (lambda kind: kind in locks.KINDS, locks.call_method),
    (lambda kind: kind is types.FrameType, call_frame),
    (lambda kind: kind in iteration.ITERATORS or kind.__module__ == "itertools", call_iterator),
    (lambda kind: issubclass(kind, PURE_KINDS) and not issubclass(kind, types.ModuleType), pure_method),
    (lambda kind: kind is functools._lru_cache_wrapper, call_cached_function),
    (lambda kind: kind.__module__ in NATIVE_MODULES, call_natively),
)
"""The first rule that applies to the type of an object is used, after the rules of containers."""
