"""Builtin functions while tracing: a table with one handler each.

A handler ``(machine, args, kwargs)`` returns the value, ``PUSHED`` if interpreted code will return it, or ``MISSING``
to apply the general rule. ``PURE`` are functions of their arguments alone.
"""

from __future__ import annotations

import bisect
import builtins
import collections
import copy
import functools
import gc
import heapq
import importlib
import importlib.util
import itertools
import math
import operator
import os
import pickle
import re
import struct
import sys
import time
import types
import typing
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch.autograd.profiler import record_function

from ...foundation.torch_private import (
    all_true_or_runtime_assert,
    check_tensor_all,
    get_tracing_state,
    graph_capture_health_check,
    group_tensors_by_device_and_dtype,
    log_api_usage_once,
    set_stack_frame_name,
    utils_is_compiling,
)
from ...frontend import marks
from .. import breaks
from ..engine.interpreted_or_native import find_on_type, is_trusted, is_user_type
from ..guards import immutable_builtin_subclasses
from ..guards.container_reads_past_overrides import elements_of
from ..interpreter import emulated_frames
from ..interpreter.frames import MISSING, Generator
from ..numbers import assert_graph_numbers, decimal_context, live_scalars, object_addresses
from ..numbers.live_scalars import Live
from ..numpy_calls import numpy_dispatch
from ..pytorch import (
    activation_checkpointing,
    backward_and_grad,
    collectives,
    cond,
    constant_queries,
    cuda_calls,
    function_modes,
    tensor_assertions,
    tensor_hooks_and_data,
    torch_switches,
)
from ..pytorch.custom_functions import autograd_function_nodes
from ..pytorch.higher_order import inlined_operators, interpreted_vmap, loop_operators
from ..pytorch.modules import lazy_modules, module_backward_hooks, optimizers
from ..subclasses import make_tensors
from . import (
    class_creation,
    frame_builtins,
    locks,
    object_builtins,
    operator_functions,
    random_objects,
    sequence_builtins,
    trace_rollback,
)
from .attributes import attribute_writes
from .attributes.class_lookup import lookup
from .attributes.descriptor_binding import special_method
from .calls import import_statements
from .messages import print_and_format, warning_filters, warnings_warn
from .methods import other_native_methods
from .operators import guard_before_native_read, value_kinds
from .polyfills import (
    container_polyfills,
    iterator_polyfills,
    itertools_polyfills,
    operator_protocol_polyfills,
    reduction_polyfills,
    sort_polyfills,
)

PURE = frozenset(
    (
        *(abs, ascii, bin, chr, hex, oct, ord, pow, round, divmod, issubclass, math.prod, str.maketrans),
        *(bytes.maketrans, sys.intern, sys.getsizeof, struct.calcsize, struct.pack, struct.unpack),
        *(f for f in vars(math).values() if callable(f)),
        *(f for f in vars(operator).values() if isinstance(f, types.BuiltinFunctionType)),
        get_tracing_state,
        log_api_usage_once,
    )
) - {operator.setitem, operator.delitem, operator.iadd, operator.iconcat}
LIVE_OF_MATH = """
    sqrt exp log sin cos tan tanh atan atan2 hypot log1p floor ceil trunc isnan isinf isfinite pow log2 log10 fabs asin
    acos sinh cosh asinh acosh atanh expm1 exp2 cbrt erf erfc gamma lgamma degrees radians copysign fmod remainder ldexp
""".split()
LIVE_MATH = frozenset((abs, round, min, max, *(vars(math)[name] for name in LIVE_OF_MATH if hasattr(math, name))))


def _math(function: Callable) -> Callable:
    def handler(m: Any, args: tuple, kwargs: dict) -> Any:
        if (
            not kwargs
            and any(issubclass(type(a), Live) for a in args)
            and all(issubclass(type(a), (int, float)) and not is_user_type(type(a)) for a in args)
        ):
            return live_scalars.apply(function, *args) if live_scalars.has_result(function, *args) else MISSING
        if args and issubclass(type(args[0]), torch.Tensor):
            return m.perform(function, *args, **kwargs)
        if not kwargs and any([type(a) in value_kinds.NUMPY for a in args]):
            return numpy_dispatch.apply(m, function, *args)
        name = {abs: "__abs__", round: "__round__", math.floor: "__floor__", math.ceil: "__ceil__"}.get(function)
        if name and args and value_kinds.python_method(m, args[0], name):
            return m.call(special_method(m, args[0], name), args[1:], kwargs)
        return MISSING

    return handler


def _id(m: Any, args: tuple, kwargs: dict) -> Any:
    if args and m.cached_answers is not None and id(args[0]) in m.cached_answers.stand_ins:
        m.stop(breaks.OPAQUE_CALL, "id() of an object in the cache of a function")
    address = object_addresses.of(m, args[0]) if len(args) == 1 and not kwargs else None
    if address is not None:
        return address
    if m.frame.globals is copy.__dict__:
        return m.plainly(id, *args, **kwargs)  # a number or text is its own copy, so the memo does not get this key
    return m.stop(breaks.OPAQUE_CALL, "id() returns an address")


def _hash(m: Any, args: tuple, kwargs: dict) -> Any:
    is_of_object = lookup(m, type(args[0]), "__hash__")[1] is object
    method = MISSING if is_of_object else special_method(m, args[0], "__hash__")  # which would keep the object alive
    if isinstance(method, types.MethodType):
        return m.call(operator_protocol_polyfills.hash_of, (method,), {})
    if issubclass(type(args[0]), Live) or _hashes_by_value(m, args[0]):
        guard_before_native_read.check_key(m, args[0])
        return sequence_builtins.native(m, hash, args, kwargs)
    if method is MISSING and find_on_type(type(args[0]), "__hash__") is None:
        return m.plainly(hash, *args)  # which refuses
    if is_of_object:
        found = object_addresses.hash_of(m, args[0])
        if found is not None:
            return found
    return m.stop(breaks.OPAQUE_CALL, "hash() of an object returns an address")


def _hashes_by_value(m: Any, value: Any) -> bool:
    if issubclass(type(value), (tuple, frozenset)):
        return all(_hashes_by_value(m, part) for part in elements_of(value))
    if issubclass(type(value), Live):
        return True  # it is settled
    if immutable_builtin_subclasses.base_of_value(type(value)) is not None:
        return _hashes_by_value(m, immutable_builtin_subclasses.value_of(value))
    if type(value) in (range, complex):
        return value == value
    return m.heap.is_constant_key(value) and value == value  # a NaN hashes by its address


def _is_compiling(m: Any, args: tuple, kwargs: dict) -> Any:
    """True for the user's code. Torch's own code asks in order to take shortcuts that differ from eager (hooks left out
    after a failure, step counts kept as tensors), so it gets False. So does all code where blocks stay calls: blocks
    are compiled for the arguments of a plain Python caller."""
    return not m.options.keeps_blocks and not is_trusted(m.frame.globals.get("__name__"))


def _by_polyfill(polyfill: FunctionType, m: Any, args: tuple, kwargs: dict) -> Any:
    return m.call(polyfill, args, kwargs)


def _refused(what: str, m: Any, args: tuple, kwargs: dict) -> Any:
    return m.stop(breaks.OPAQUE_CALL, what)


def _pickle(function: Callable, m: Any, args: tuple, kwargs: dict) -> Any:
    from . import pickling  # few programs need it

    return pickling.HANDLERS[function](m, args, kwargs)


def _is_tracked(m: Any, args: tuple, kwargs: dict) -> Any:
    kinds = {type(value) for value in args if id(value) not in m.heap.fresh}
    if kwargs or not kinds <= value_kinds.SIMPLE | {list, set} or any(map(m.heap.origin_of, args)):
        return m.stop(breaks.OPAQUE_CALL, "gc.is_tracked() of an object that is not made here, or of a dict or tuple")
    return m.plainly(gc.is_tracked, *args, **kwargs)


def _change_heap(function: Callable, m: Any, args: tuple, kwargs: dict) -> Any:
    if (
        kwargs
        or len(args) != (1 if function in (heapq.heapify, heapq.heappop) else 2)
        or not issubclass(type(args[0]), list)
    ):
        return m.plainly(function, *args, **kwargs)  # which refuses
    if type(args[0]) is not list:
        return MISSING
    if any(map(sequence_builtins.is_object, (*args[0], *args[1:]))):
        # From this length on, C code makes a heap in another order.
        is_long = function is heapq.heapify and len(args[0]) > 2500
        from .polyfills import heap_polyfills

        return MISSING if is_long else m.call(getattr(heap_polyfills, function.__name__), args, {})
    if m.region is not None:
        m.region.will_write(args[0])
    guard_before_native_read.settle_all(m, args)
    m.heap.expose(args)
    m.heap.will_write(args[0])
    return m.plainly(function, *map(guard_before_native_read.settled, args))


def _fspath(m: Any, args: tuple, kwargs: dict) -> Any:
    path = args[0] if len(args) == 1 and not kwargs else None
    return path if type(path) in (str, bytes) else MISSING


def _import_module(m: Any, args: tuple, kwargs: dict) -> Any:
    name, package = (*args, None, None)[:2]
    if type(name) is str and name.startswith(".") and type(package) is str:
        name = importlib.util.resolve_name(name, package)
    if type(name) is not str or name not in sys.modules:
        return MISSING if type(name) is not str else m.stop(breaks.OPAQUE_CALL, f"first import of {name}")
    import_statements.guard_imported(m, name)
    return MISSING


def apply_function(m: Any, args: tuple, kwargs: dict) -> Any:
    function_modes.refuse(m, f"{args[0].__qualname__}.apply")
    if getattr(m.region, "lowers", False):
        return m.region.apply_custom(args[0], args[1:], kwargs)
    return autograd_function_nodes.apply(m, args[0], args[1:], kwargs)


BUILTINS: dict[Any, Callable] = {
    **sequence_builtins.BUILTINS,
    **object_builtins.BUILTINS,
    **frame_builtins.BUILTINS,
    **print_and_format.BUILTINS,
    **cuda_calls.BUILTINS,
    **operator_functions.BUILTINS,
    **torch_switches.BUILTINS,
    **collectives.BUILTINS,
    **decimal_context.HANDLERS,
    **constant_queries.BUILTINS,
    **make_tensors.BUILTINS,
    **locks.BUILTINS,
    **interpreted_vmap.HANDLERS,
    id: _id,
    hash: _hash,
    time.time: functools.partial(_refused, "a clock"),
    time.perf_counter: functools.partial(_refused, "a clock"),
    callable: lambda m, args, kwargs: lookup(m, type(args[0]), "__call__")[0] is not MISSING,
    os.fspath: _fspath,
    warnings.warn: warnings_warn.traced,
    **{function: functools.partial(_pickle, function) for function in (pickle.dumps, pickle.loads)},
    gc.collect: functools.partial(_refused, "gc.collect(), whose effect weak references and __del__ show"),
    gc.is_tracked: _is_tracked,
    group_tensors_by_device_and_dtype: optimizers.group_tensors,
    builtins.__build_class__: class_creation.class_statement,
    operator.setitem: lambda m, args, kwargs: attribute_writes.without_result(m, m.store_subscript(*args)),
    operator.delitem: lambda m, args, kwargs: attribute_writes.without_result(m, m.delete_subscript(*args)),
    **{
        getattr(heapq, name): functools.partial(_change_heap, getattr(heapq, name))
        for name in ("heapify", "heappush", "heappop", "heapreplace", "heappushpop")
    },
    **{function: _math(function) for function in LIVE_MATH - {min, max}},
    **{
        function: functools.partial(_by_polyfill, polyfill)
        for function, polyfill in (
            (functools.reduce, reduction_polyfills.reduce),
            (functools.cmp_to_key, sort_polyfills.cmp_to_key),
            (itertools.chain.from_iterable, itertools_polyfills.chain_from_iterable),
            (itertools.tee, itertools_polyfills.tee),
            (bisect.bisect_left, reduction_polyfills.bisect_left),
            (bisect.bisect_right, reduction_polyfills.bisect_right),
            (bisect.insort_left, reduction_polyfills.insort_left),
            (bisect.insort_right, reduction_polyfills.insort_right),
            (collections._count_elements, container_polyfills.count_elements),  # type: ignore[attr-defined]
        )
    },
}
TAKE = {
    **dict.fromkeys((locals, globals, sys.exc_info, sys.exception), (0, 0)),
    **dict.fromkeys((len, any, all, id, hash, repr, callable, itertools.chain.from_iterable), (1, 1)),
    **dict.fromkeys((isinstance, hasattr, delattr, operator.delitem), (2, 2)),
    **dict.fromkeys((setattr, operator.setitem), (3, 3)),
    **dict.fromkeys((next, iter, format, itertools.tee), (1, 2)),
    **dict.fromkeys((getattr, functools.reduce), (2, 3)),
    vars: (0, 1),
    **operator_functions.TAKE,
}
"""For builtins without keyword parameters: the fewest and most arguments. Other calls are errors at once."""
TAKE_NAMES = {
    sum: (1, 2, {"start"}),
    sorted: (1, 1, {"key", "reverse"}),
    min: (1, 1 << 30, {"key", "default"}),
    max: (1, 1 << 30, {"key", "default"}),
}
"""The same for builtins with keyword parameters, and their names."""


def is_refused(function: Any, args: tuple, kwargs: dict) -> bool:
    """Whether a builtin rejects such arguments. It is then called, to raise the error."""
    takes = TAKE.get(function)
    if takes is not None:
        return bool(kwargs) or not takes[0] <= len(args) <= takes[1]
    least, most, names = TAKE_NAMES.get(function, (0, 1 << 30, None))
    return not least <= len(args) <= most or names is not None and not kwargs.keys() <= names


def _enter_record(m: Any, args: tuple, kwargs: dict) -> Any:
    """``record_function`` names a span of work for the profiler. A graph has no such span, and code after a break must
    not end one."""
    attribute_writes.store(m, args[0], "run_callbacks_on_exit", False)
    return args[0]


def _deep_copy(m: Any, args: tuple, kwargs: dict) -> Any:
    """Of a tensor, as one break: inside, its storage is noted in a dictionary, which no graph can make again."""
    if len(args) != 1 or kwargs:
        return MISSING
    if type(args[0]) is torch.Tensor:
        m.stop(breaks.DATA_READ, "copy.deepcopy() of a tensor")
    if issubclass(type(args[0]), (torch.nn.Module, torch.nn.Parameter)) and not (
        m.options.runs_python or m.options.fullgraph
    ):  # which makes leaves: a break for each, and the copies between them differ in every call
        m.stop(breaks.TENSOR_STATE, "copy.deepcopy() makes leaves for another compiler")
    return MISSING


PYTHON_FUNCTIONS: dict[Any, Callable] = {
    # Torch reads the table of hooks while the graph runs: a removal must take effect before the following calls.
    torch.utils.hooks.RemovableHandle.remove: lambda m, args, kwargs: m.stop(breaks.TENSOR_STATE, "removal of a hook"),
    copy.deepcopy: _deep_copy,
    typing.cast: lambda m, args, kwargs: args[1] if len(args) == 2 else MISSING,
    record_function.__enter__: _enter_record,
    record_function.__exit__: lambda m, args, kwargs: None,
    **dict.fromkeys(
        (torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling, utils_is_compiling), _is_compiling
    ),
    marks.is_compiling: _is_compiling,
    graph_capture_health_check: constant_queries.ask_plainly(graph_capture_health_check),
    importlib.import_module: _import_module,
    importlib.util.find_spec: import_statements.find_spec,
    re.finditer: functools.partial(_by_polyfill, iterator_polyfills.find_matches),
    check_tensor_all: tensor_assertions.tensor_all,
    set_stack_frame_name: lambda m, args, kwargs: None,
    all_true_or_runtime_assert: tensor_assertions.all_true,
    **{f: tensor_hooks_and_data.before_hooks(handler) for f, handler in backward_and_grad.HANDLERS.items()},
}
for _module in (
    *(assert_graph_numbers, class_creation, cond, activation_checkpointing, inlined_operators, lazy_modules),
    numpy_dispatch,
    *(tensor_hooks_and_data, warning_filters, constant_queries, emulated_frames, random_objects, cuda_calls),
    *(module_backward_hooks, torch_switches, loop_operators, make_tensors, optimizers, trace_rollback),
):
    PYTHON_FUNCTIONS.update(_module.HANDLERS)
PYTHON_FUNCTIONS.update(print_and_format.PYTHON_FUNCTIONS)
_apply = vars(torch.autograd.Function).get("apply")
if isinstance(_apply, classmethod):  # Python in torch 2.11, C later
    PYTHON_FUNCTIONS[_apply.__func__] = apply_function


def _generator_method(name: str, m: Any, args: tuple, kwargs: dict) -> Any:
    return other_native_methods.call_generator(m, args[0], name, args[1:], kwargs)


for _name in ("send", "throw", "close", "__next__"):
    PYTHON_FUNCTIONS[getattr(Generator, _name)] = functools.partial(_generator_method, _name)
object_builtins.UNBOUND[type(itertools.tee(())[0]).__copy__] = other_native_methods.copy_tee
for _name in ("__reduce_ex__", "__reduce__"):
    PYTHON_FUNCTIONS[getattr(Generator, _name)] = other_native_methods.reduce_generator


def substitute(original: Any, polyfill: FunctionType) -> None:
    """``substitute_in_graph``: calls of ``original`` become calls of ``polyfill`` while tracing."""
    handler = functools.partial(_by_polyfill, polyfill)
    if isinstance(original, FunctionType):
        PYTHON_FUNCTIONS[original] = handler
    elif isinstance(original, types.BuiltinFunctionType):
        BUILTINS[original] = handler
    else:
        object_builtins.UNBOUND[original] = handler
