"""Dispatch of calls while tracing: interpreted, run natively, or a graph break.

* Python functions are interpreted, but for torch's functional surface and pure standard library parts (``trust``);
* torch operations run under the recorder;
* builtins have an entry in ``builtin_calls``, methods of builtin containers in ``container_calls``;
* classes are constructed step by step where ``__new__`` or ``__init__`` is Python;
* anything else written in C is a break, executed for real on every run.
"""

from __future__ import annotations

import collections
import enum
import functools
import types
import weakref
from contextvars import ContextVar
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch

from ...tensors.collective_operators import is_collective_operator
from .. import breaks
from ..engine.interpreted_or_native import (
    is_collective,
    is_leaf,
    is_pure_module,
    is_trusted,
    is_trusted_type,
    is_user_type,
    why_not_interpret,
)
from ..engine.object_kinds import UNEXPOSED
from ..engine.object_lifetimes import Origin
from ..guards.tensor_metadata import TENSOR_TYPES, is_tensor
from ..interpreter import argument_binding
from ..interpreter import frames as fr
from ..interpreter.bytecode_decoder import decode
from ..interpreter.decoded_code import Code
from ..interpreter.frames import MISSING, PUSHED, Frame, Generator, Raised
from ..numbers import constant_tensors, graph_numbers, numpy_arrays, numpy_constants, numpy_kinds
from ..numbers.live_scalars import Expression, Live, LiveInt
from ..pytorch import (
    library_operators,
    opaque_nodes,
    optimizers,
    recorder_fast_path,
    repeated_blocks,
    tensor_assertions,
    tensor_object_state,
    torch_calls,
    torch_switches,
)
from ..segments.effects import Effect
from . import (
    builtin_functions,
    builtin_polyfills,
    container_methods,
    context_variables,
    object_builtins,
    object_creation,
    operators,
)
from .attributes import load, load_plainly, lookup, special_method

METHOD_KINDS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
METHOD_WRAPPER = type("".__add__)
TORCH_BUILTIN_MODULES = (
    "torch._C._nn",
    "torch._C._linalg",
    "torch._C._fft",
    "torch._C._special",
    "torch._C._sparse",
    "torch._C._nested",
    "torch",
    "torch._C",
)
PLAIN_OWNERS = frozenset((dict, list, tuple, set, str, collections.OrderedDict))
MODULE_CALL = torch.nn.Module.__call__
GLOBAL_HOOKS = [
    getattr(torch.nn.modules.module, n)
    for n in (
        "_global_backward_pre_hooks",
        "_global_backward_hooks",
        "_global_forward_hooks",
        "_global_forward_pre_hooks",
    )
]


def call(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    kind = type(function)
    caller = CALLERS.get(kind)
    if caller is not None:
        return caller(m, function, args, kwargs)
    if kind in m.module_kinds:
        return call_plain_module(m, function, args, kwargs)
    if isinstance(function, type):
        return object_creation.construct(m, function, args, kwargs)
    if isinstance(function, torch.nn.Module):
        return call_module(m, function, args, kwargs)
    if kind is functools.partial:
        merged = {**function.keywords, **kwargs} if function.keywords else kwargs
        return call(m, function.func, (*function.args, *args), merged)
    if kind is functools._lru_cache_wrapper:
        return call_cached(m, function, args, kwargs)
    if kind in (torch._ops.OpOverload, torch._ops.OpOverloadPacket):
        if is_collective_operator(function):
            m.stop(breaks.COLLECTIVE_CALL, str(function))
        if library_operators.runs_python(function):
            opaque_nodes.stop_after_writes(m, str(function))
        return call_torch(m, function, args, kwargs)
    if kind is weakref.ref:
        return call_weakref(m, function)
    if isinstance(function, (staticmethod,)):
        return call(m, function.__func__, args, kwargs)
    if kind is types.GenericAlias and function.__origin__ in WITHOUT_ALIAS:
        return call(m, function.__origin__, args, kwargs)
    if kind in numpy_kinds.FUNCTION_KINDS:
        answer = numpy_constants.call(m, function, args, kwargs)
        if answer is not MISSING:
            return answer
    if isinstance(function, (torch.jit.ScriptFunction, torch.jit.ScriptModule)):
        m.stop(breaks.FOREIGN_COMPILED, f"a call of the scripted {getattr(function, '__name__', kind.__name__)}")
    method = special_method(m, function, "__call__")
    if isinstance(method, MethodType):
        return call(m, method, args, kwargs)
    if method is MISSING:
        raise Raised(TypeError(f"'{kind.__name__}' object is not callable"))
    if is_trusted_type(kind) and kind.__module__ in ("operator", "re", "_operator"):
        return native(m, function, args, kwargs)
    return m.stop(breaks.OPAQUE_CALL, f"call of a {kind.__module__}.{kind.__qualname__}")


WITHOUT_ALIAS = (list, dict, set, frozenset, tuple)  # what ``list[int]()`` makes is not told that it was called so


def call_bound(m: Any, method: MethodType, args: tuple, kwargs: dict) -> Any:
    function = method.__func__
    args = (method.__self__, *args)
    if type(function) is FunctionType:
        return call_function(m, function, args, kwargs)
    return call(m, function, args, kwargs)


def call_wrapper(m: Any, wrapper: Any, args: tuple, kwargs: dict) -> Any:
    """A slot of a type written in C, bound: ``super().__getattribute__``, most of the time."""
    name, owner = wrapper.__name__, wrapper.__objclass__
    if name == "__getattribute__" and owner is object and len(args) == 1:
        return load_plainly(m, wrapper.__self__, args[0])
    return call_unbound(m, owner.__dict__[name], (wrapper.__self__, *args), kwargs)


# ---- Python functions


def call_function(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    marks = function.__dict__
    if not marks:
        found = m.ordinary.get(id(function))
        if found is not None and found[0] is function:
            return push_ordinary(m, function, found[1], args, kwargs)
    else:
        answer = MISSING if MARKS.isdisjoint(marks) else call_marked(m, function, marks, args, kwargs)
        if answer is MISSING and "__wrapped__" in marks:
            answer = optimizers.call_decorated(m, function, args, kwargs)
        if answer is not MISSING:
            return answer
    handler = builtin_functions.PYTHON_FUNCTIONS.get(function)
    if handler is not None:
        answer = handler(m, args, kwargs)
        if answer is not MISSING:
            return answer
    made_of = m.made_of.get(id(function.__code__))
    if made_of is not None and made_of[0].co is function.__code__ and made_of[1] is function.__globals__:
        admit_defaults(m, function)
        return push_ordinary(m, function, made_of[0], args, kwargs)
    module = function.__globals__.get("__name__")
    if module == "torch.nn.functional" and not marks:
        answer = recorder_fast_path.call(m, function, args, kwargs)
        if answer is not MISSING:
            return answer
    if module == "torch._dynamo.decorators" and function.__name__ == "graph_break":
        m.stop(breaks.GRAPH_BREAK_REQUEST, args[0] if args and isinstance(args[0], str) else "graph_break")
    if module == "torch._dynamo.external_utils" and function.__name__ == "is_compiling":
        return call(m, torch.compiler.is_compiling, args, kwargs)
    if module == "torch._dynamo.mutation_guard" and function.__name__ == "tag":
        return None  # Dynamo, used in the same process, numbers new modules for guards of its own
    if module is not None and module.startswith("torch._functorch") and module != "torch._functorch.functional_call":
        return opaque_nodes.call_transform(m, function, args, kwargs)
    if (
        is_leaf(function)
        and (is_pure_module(module) or not takes_user_code(args, kwargs))
        and torch_switches.SETTINGS.isdisjoint(function.__code__.co_names)
    ):
        return call_leaf(m, function, args, kwargs)
    if module == "torch._tensor" and takes_user_code(args, kwargs):
        m.stop(breaks.TENSOR_STATE, f"{function.__qualname__} with a function of the user's")
    if module is not None and module.startswith("torch.distributed.") and is_collective(function):
        m.stop(breaks.COLLECTIVE_CALL, f"{function.__qualname__}()")
    code = decode(function.__code__)
    why = why_not_interpret(function) if code.is_special else None
    if why is not None:
        m.stop(breaks.OPAQUE_FUNCTION, f"{function.__qualname__}: {why}")
    admit_defaults(m, function)
    if not is_leaf(function) and not (module or "").startswith(("torch._dynamo", "torch._tensor")):
        # Other functions of this code are interpreted as well, whatever they close over. Nobody can see that one is
        # held which closes over no more than a class.
        m.made_of[id(code.co)] = code, function.__globals__
        if handler is None and not marks and "<locals>" not in code.co.co_qualname and id(function) not in m.heap.fresh:
            m.ordinary[id(function)] = (function, code)
    return push_ordinary(m, function, code, args, kwargs)


# Marks on functions that say how they are called.
MARKS = frozenset(
    (
        "__burnish_original__",
        "_torchdynamo_disable",
        "_burnish_disable",
        "_burnish_graph_break",
        "_burnish_allow_in_graph",
        "_burnish_constant",
        "_torchdynamo_orig_callable",
    )
)


def call_marked(m: Any, function: FunctionType, marks: dict, args: tuple, kwargs: dict) -> Any:
    """MISSING where the marks say nothing."""
    is_wrapper = marks.get("_torchdynamo_wrapper_id", id(function)) == id(function)  # functools.wraps copies marks
    if "__burnish_original__" in marks and is_wrapper:
        # The compiled function is guarded by identity; what it was made from is read through it.
        source = m.heap.sources.pin(function).attr("__burnish_original__")
        return call(m, m.heap.admit(marks["__burnish_original__"], source), args, kwargs)
    if marks.get("_torchdynamo_disable") or marks.get("_burnish_disable"):
        if optimizers.is_kept_from_dynamo(marks):
            return call(m, marks["_torchdynamo_orig_callable"], args, kwargs)
        reason = marks.get("_torchdynamo_disable_msg") or marks.get("_burnish_disable_reason")
        m.stop(breaks.DISABLED_CALL, f"{function.__qualname__}" + (f" ({reason})" if reason else ""))
    if marks.get("_burnish_graph_break"):
        m.stop(breaks.GRAPH_BREAK_REQUEST, args[0] if args and isinstance(args[0], str) else function.__qualname__)
    if marks.get("_burnish_allow_in_graph"):
        return opaque_nodes.call_in_graph(m, opaque_nodes.OpaqueCall(function, function.__name__), args, kwargs)
    if marks.get("_burnish_constant"):
        return m.plainly(function, *args, **kwargs)
    if "_torchdynamo_orig_callable" in marks and is_wrapper:
        return call(m, marks["_torchdynamo_orig_callable"], args, kwargs)
    return MISSING


def takes_user_code(args: tuple, kwargs: dict) -> bool:
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) in (FunctionType, MethodType) and not is_trusted(value.__module__):
            return True
    return False


def push_ordinary(m: Any, function: FunctionType, code: Code, args: tuple, kwargs: dict) -> Any:
    if function.__code__ is not code.co:
        code = decode(function.__code__)
    if m.frame is not None and m.frame.depth > RECURSION_LIMIT:
        raise Raised(RecursionError("maximum recursion depth exceeded"))
    try:
        values = (
            [*args]
            if len(args) == code.plain_parameters and not kwargs
            else argument_binding.bind(function, args, kwargs)
        )
    except TypeError as error:
        trouble = error
    else:
        missing = code.n_locals - len(values)
        if missing:
            values += [fr.UNBOUND] * missing
        if function.__closure__:
            put_cells(m, function, values, code)
        if m.region is not None and code.co.co_flags & CO_VARKEYWORDS:
            co = code.co
            m.region.made.add(id(values[co.co_argcount + co.co_kwonlyargcount + (co.co_flags & CO_VARARGS > 0)]))
        return m.push(Frame(code, function.__globals__, function.__builtins__, values))  # type: ignore[attr-defined]
    raise Raised(trouble)


RECURSION_LIMIT = 900


def put_cells(m: Any, function: FunctionType, values: list, code: Any) -> None:
    """Give a frame its free variables; a cell from outside is addressed through its function."""
    cells = function.__closure__ or ()
    at = code.n_locals - len(cells)
    origin = m.heap.origin_of(function)
    for i, cell in enumerate(cells):
        values[at + i] = cell
        if id(cell) not in m.own_cells and id(cell) not in m.origins:
            if origin is not None:
                source = origin.source.attr("__closure__").item(i)
            elif id(function) in m.heap.fresh:
                continue
            else:
                source = m.heap.sources.pin(cell)
            source.label = function.__code__.co_freevars[i]
            m.origins[id(cell)] = Origin(cell, source)


def admit_defaults(m: Any, function: FunctionType) -> None:
    """Default values from outside: fixed by the identity of their tuple, read through it."""
    if not function.__defaults__ and not function.__kwdefaults__:
        return
    key = ("defaults", id(function))
    if key in m.lookups or id(function) in m.heap.fresh or is_trusted(function.__globals__.get("__name__")):
        return
    m.lookups[key] = True
    origin = m.heap.origin_of(function)
    source = origin.source if origin is not None else m.heap.sources.pin(function)
    if function.__defaults__:
        m.heap.admit(function.__defaults__, source.attr("__defaults__"))
    if function.__kwdefaults__:
        m.heap.admit(function.__kwdefaults__, source.attr("__kwdefaults__"))
        m.heap.complete(m.heap.origin_of(function.__kwdefaults__))


def call_leaf(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    """A Python function of torch, or a pure one of the standard library, as one native call."""
    if function is torch._assert and args and type(args[0]) is bool:
        # Of a bool it is Python's own statement: no call of the graph, and the message is made for nobody.
        return None if args[0] else m.plainly(function, *map(operators.settled, args))
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) not in UNEXPOSED:
            m.heap.expose(value)
    if is_pure_module(function.__globals__.get("__name__")):
        return pure(m, function, args, kwargs)
    why = torch_switches.why_not_leaf(function)
    if why is not None:
        m.stop(breaks.GLOBAL_SWITCH, why)
    # Its own arithmetic may put a float before a live int, which C code then takes for a plain one.
    if LiveInt in map(type, args):
        takes_sizes = m.open_sizes is not None and function.__module__ == "torch.nn.functional"
        args = tuple(
            a.settle() if type(a) is LiveInt and not (takes_sizes and m.open_sizes.symbols.takes(a)) else a
            for a in args
        )
    args, kwargs = constant_tensors.with_numbers(m, function, function.__name__, args, kwargs)
    return m.perform(function, *args, **kwargs)


def call_cached(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """A function behind ``functools.lru_cache``."""
    if any(isinstance(a, torch.Tensor) for a in (*args, *kwargs.values())):
        m.stop(breaks.OPAQUE_CALL, f"{function.__qualname__} behind lru_cache, called with tensors")
    for value in (*args, *kwargs.values()):
        operators.check_key(m, value)
    args, kwargs = plain(args), {k: plain(v) for k, v in kwargs.items()}  # the cache tells subclasses of int from int
    value = m.plainly(function, *args, **kwargs)
    if not is_fixed(value):
        value = m.heap.admit(value, m.heap.sources.pin(value))  # what it holds may change
    # As long as nobody clears the cache the answer stays the one in it.
    size = function.cache_info().currsize
    m.effects.append(Effect.of(m, ask_cache, (function, args, kwargs)))
    m.heap.guard(
        "outcome", None, (Expression(holds_at_least, (Expression(None, (m.heap.sources.pin(function),)), size)), True)
    )
    return value


def ask_cache(function: Any, args: tuple, kwargs: dict) -> None:
    """The cached function is asked again on every run: its counts, and a cache that lost the entry, are as in eager."""
    function(*args, **kwargs)


def holds_at_least(function: Any, size: int) -> bool:
    return function.cache_info().currsize >= size


def is_fixed(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(is_fixed, value))
    return type(value) in operators.SIMPLE or isinstance(value, (type, FunctionType, types.ModuleType))


# ---- C functions


def call_builtin(m: Any, function: BuiltinFunctionType, args: tuple, kwargs: dict) -> Any:
    owner = function.__self__
    kind = type(owner)
    if kind in TENSOR_TYPES and not (args and type(args[0]) is numpy_kinds.ARRAY):
        answer = recorder_fast_path.call(m, function, args, kwargs)
        return call_torch(m, function, args, kwargs) if answer is MISSING else answer
    if kind in PLAIN_OWNERS:
        return container_methods.call_method(m, owner, function.__name__, args, kwargs, function)
    handler = builtin_functions.BUILTINS.get(function)
    if handler is not None:
        if builtin_functions.is_refused(function, args, kwargs):
            return m.plainly(function, *args, **kwargs)  # which refuses
        answer = handler(m, args, kwargs)
        if answer is not MISSING:
            return answer
    answer = recorder_fast_path.call(m, function, args, kwargs)
    if answer is not MISSING:
        return answer
    if kind in numpy_kinds.VALUES or kind is numpy_kinds.ARRAY or function in numpy_kinds.FUNCTIONS:
        answer = numpy_constants.call(m, function, args, kwargs)
        if answer is not MISSING:
            return answer
    if args and type(args[0]) is numpy_kinds.ARRAY:
        answer = numpy_arrays.make_tensor(m, function, args, kwargs)
        if answer is not MISSING:
            return answer
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function) and function.__name__ == "apply":
        return builtin_functions.apply_function(m, (owner, *args), kwargs)
    if is_tensor(owner):
        return call_torch(m, function, args, kwargs)
    if owner is torch._C._VariableFunctions or getattr(function, "__module__", None) in TORCH_BUILTIN_MODULES:
        return torch_switches.call(m, function, args, kwargs)
    if owner is None or isinstance(owner, types.ModuleType):
        if is_pure_module(function.__module__) or function in builtin_functions.PURE:
            return pure(m, function, args, kwargs)
        return m.stop(breaks.OPAQUE_CALL, f"call of {function.__module__}.{function.__qualname__}")
    if isinstance(owner, Live):
        return native(m, getattr(owner.settle(), function.__name__), args, kwargs)
    if kind is ContextVar and m.options.keeps_blocks:
        return context_variables.call(m, owner, function, args, kwargs)
    return container_methods.call_method(m, owner, function.__name__, args, kwargs, function)


def call_unbound(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """A method taken from its class: ``str.join``, ``object.__setattr__``, ``torch.Tensor.add``."""
    handler = object_builtins.UNBOUND.get(function)
    if handler is not None:
        if len(args) < object_builtins.UNBOUND_TAKE.get(function, 1):
            return m.plainly(function, *args, **kwargs)
        answer = handler(m, args, kwargs)
        if answer is not MISSING:
            return answer
    owner = function.__objclass__
    if args and isinstance(args[0], Live):
        args = (args[0].settle(), *args[1:])
    if function.__name__ == "__init__" and issubclass(owner, BaseException):
        return m.plainly(function, *args, **kwargs)
    if not args or not isinstance(args[0], owner) and type(function) is not types.ClassMethodDescriptorType:
        return m.plainly(function, *args, **kwargs)
    if issubclass(torch.Tensor, owner) and owner is not object:
        return call_torch(m, function, args, kwargs)
    return container_methods.call_method(m, args[0], function.__name__, args[1:], kwargs, None, function)


def call_torch(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) not in TENSOR_TYPES and isinstance(value, (list, tuple, dict)):
            m.heap.expose(value)
    name = getattr(function, "__name__", "")
    if name == "requires_grad_" and is_required_already(m, function, args, kwargs):
        return args[0] if type(function) in METHOD_KINDS else function.__self__
    if name in ("item", "tolist") and not kwargs:
        tensor = args[0] if args else getattr(function, "__self__", None)
        if constant_tensors.is_known(m, tensor):
            return m.plainly(function, *args)
        if name == "item" and graph_numbers.stays_in_graph(m, tensor):
            return graph_numbers.read(m, tensor)
        if name == "item":
            answer = tensor_assertions.compared(m, tensor)
            if answer is not MISSING:
                return answer
    if name == "retain_grad" and not kwargs:
        tensor, *more = args if type(function) in METHOD_KINDS else (function.__self__, *args)
        if not more and tensor_object_state.retain_grad(m, tensor) is None:
            return None
    if name == "as_tensor":
        answer = graph_numbers.tensor_of(m, args, kwargs)
        if answer is not None:
            return answer
    if m.open_sizes is not None:
        answer = with_open_sizes(m, function, name, args, kwargs)
        if answer is not None:
            return answer
    if not torch_calls.takes_live_numbers(function):
        if any([issubclass(type(a), Live) for a in args]):
            args = tuple(
                [
                    a if m.open_sizes is not None and m.open_sizes.symbols.takes(a) else operators.settled(a)
                    for a in args
                ]
            )
        for value in (*args, *kwargs.values()) if kwargs else args:
            graph_numbers.settle_numbers(m, value)
    args, kwargs = constant_tensors.with_numbers(m, function, name, args, kwargs)
    if name in torch_calls.STATE and not m.recorder.changes_its_own(
        name, args[0] if args and type(function) in METHOD_KINDS else getattr(function, "__self__", None)
    ):
        # Before it runs: the graph so far is compiled for its inputs as they are, of which this changes one perhaps.
        return m.stop(breaks.TENSOR_STATE, f"{name}() on a tensor")
    seen = m.recorder.seen
    value = m.perform(function, *args, **kwargs)
    if m.recorder.seen == seen and name not in torch_calls.FACTS:
        # Torch kept the call from the recorder (``set_``): not to be recorded, not to be taken for a constant.
        m.late(*torch_calls.kept_from_the_recorder(name), value)
    return value


def with_open_sizes(m: Any, function: Any, name: str, args: tuple, kwargs: dict) -> Any:
    """The answer to a question for a size that is open; None where the call is to be made."""
    given = args if type(function) in METHOD_KINDS else (getattr(function, "__self__", None), *args)
    if given and type(given[0]) in TENSOR_TYPES and name in torch_calls.FACTS and name not in torch_calls.SIZELESS:
        return m.open_sizes.asked(name, given[0], (*map(operators.settled, given[1:]), *kwargs.values()))
    return None


def is_required_already(m: Any, function: Any, args: tuple, kwargs: dict) -> bool:
    """Whether ``tensor.requires_grad_(flag)`` changes nothing."""
    given = args if type(function) in METHOD_KINDS else (function.__self__, *args)
    tensor, flags = given[0], (*given[1:], *kwargs.values()) or (True,)
    return type(tensor) in TENSOR_TYPES and m.knows(tensor) and len(flags) == 1 and tensor.requires_grad is flags[0]


def native(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """Run C code whose arguments are made safe to read: guarded containers, settled numbers."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) not in UNEXPOSED:
            m.heap.expose(value)
            operators.settle_all(m, value)
            m.check_readable(function, value)
    return m.perform(function, *args, **kwargs)


def pure(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """A function of its arguments alone. Its answer must be something that can be made again or shared."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, Generator):
            m.stop(breaks.OPAQUE_CALL, f"{function.__qualname__} reads a generator")
        if (
            is_user_object(value)
            and not is_pure_module(getattr(function, "__module__", None))
            or isinstance(value, (FunctionType, MethodType))
            and function.__module__ in ("re", "_functools")
        ):
            m.stop(breaks.OPAQUE_CALL, f"{function.__qualname__} of a {type(value).__qualname__}")
    return native(m, function, plain(args), {k: plain(v) for k, v in kwargs.items()})


def is_user_object(value: Any) -> bool:
    kind = type(value)
    return is_user_type(kind) and not issubclass(kind, (type, torch.nn.Module, torch.Tensor, Live, enum.Enum))


def plain(value: Any) -> Any:
    if isinstance(value, Live):
        return value.settle()
    if type(value) is tuple:
        return tuple(plain(v) for v in value)
    return value


# ---- modules


def inside(m: Any, module: torch.nn.Module) -> torch.nn.Module:
    """The module that a compiled module stands for."""
    members = m.heap.members(module)
    table = None if members is None else m.heap.origin_of(m.heap.read_key(members, "_modules"))
    return module._modules["_orig_mod"] if table is None else m.heap.read_key(table, "_orig_mod")


def call_module(m: Any, module: torch.nn.Module, args: tuple, kwargs: dict) -> Any:
    kind = type(module)
    if kind in m.own_call_kinds:
        return call(m, special_method(m, module, "__call__"), args, kwargs)
    if isinstance(module, torch.jit.ScriptModule):
        m.stop(breaks.FOREIGN_COMPILED, f"a call of the scripted module {kind.__qualname__}")
    if hasattr(kind, "__burnish_original__"):
        return call(m, inside(m, module), args, kwargs)
    found, _ = lookup(m, kind, "__call__")
    if isinstance(lookup(m, kind, "__getattribute__")[0], FunctionType):
        m.own_call_kinds.add(kind)  # even its tables are read through code of the user's
        return call(m, special_method(m, module, "__call__"), args, kwargs)
    if "_orig_mod" in module._modules and kind.__name__ == "OptimizedModule":
        return call(m, inside(m, module), args, kwargs)
    if found is not MODULE_CALL:
        m.own_call_kinds.add(kind)
        return call(m, special_method(m, module, "__call__"), args, kwargs)
    if kind.__name__ != "OptimizedModule":
        m.module_kinds.add(kind)
    return call_plain_module(m, module, args, kwargs)


def call_plain_module(m: Any, module: torch.nn.Module, args: tuple, kwargs: dict) -> Any:
    """A module whose class has the ``__call__`` of ``nn.Module``."""
    kind, tables = type(module), module.__dict__
    has_global = any(GLOBAL_HOOKS)
    if tables.get("_backward_hooks") or tables.get("_backward_pre_hooks") or has_global and any(GLOBAL_HOOKS[:2]):
        m.stop(breaks.OPAQUE_FUNCTION, f"{kind.__qualname__} has backward hooks")
    origin = m.origins.get(id(module))
    members = None
    if origin is not None and origin.obj is module:
        members = origin.members
        if members is None or members.obj is not tables:
            members = m.heap.members_in(origin, tables)
    if (
        tables.get("_forward_hooks")
        or tables.get("_forward_pre_hooks")
        or has_global
        or "_compiled_call_impl" in tables
    ):
        if tables.get("_compiled_call_impl") is not None:
            if m.options.keeps_blocks and repeated_blocks.is_block(tables["_compiled_call_impl"]):
                return repeated_blocks.call_block(m, module, args, kwargs)
            return call(m, module._call_impl, args, kwargs)
        return call(m, MethodType(MODULE_CALL, module), args, kwargs)
    if members is not None and id(members) not in m.without_hooks:
        m.without_hooks.add(id(members))
        m.heap.add("no hooks", members.source)
    if not m.global_hooks_guarded:
        m.global_hooks_guarded = True
        for table in GLOBAL_HOOKS:
            m.heap.guard("truth", m.heap.sources.pin(table), False)
    plan = m.plans.get((kind, "forward"))
    if plan is not None and plan.method is not None and members is not None and "forward" not in tables:
        if "forward" not in members.known:
            m.heap.read_key(members, "forward")
        return call_function(m, plan.method, (module, *args), kwargs)
    forward = load(m, module, "forward")
    if forward is PUSHED:
        m.frame = m.frame.caller  # code of the user's finds it: under a call of ours, then
        return m.call(builtin_polyfills.call_forward, (module, args, kwargs), {})
    return call(m, forward, args, kwargs)


def call_weakref(m: Any, reference: weakref.ref) -> Any:
    """What a weak reference from outside points to is read like an attribute."""
    value = reference()
    origin = m.heap.origin_of(reference)
    if origin is not None and "target" not in origin.known:
        origin.note_read("target", value)
        return m.heap.admit(value, origin.source.child("call"))
    return value


# ---- imports


def import_module(m: Any, frame: Frame, name: str, level: int, names: Any) -> Any:
    """A module imported inside a function: importing again is free of effects once it is in sys.modules."""
    import sys

    full = name
    if level:
        package = frame.globals.get("__package__") or frame.globals["__name__"].rpartition(".")[0]
        for _ in range(level - 1):
            package = package.rpartition(".")[0]
        full = f"{package}.{name}" if name else package
    if full not in sys.modules:
        m.stop(breaks.OPAQUE_CALL, f"first import of {full}")
    return m.plainly(fr_import, frame, name, level, names)


CALLERS: dict[type, Any] = {
    FunctionType: call_function,
    MethodType: call_bound,
    BuiltinFunctionType: call_builtin,
    METHOD_WRAPPER: call_wrapper,
    type: object_creation.construct,
    **dict.fromkeys(METHOD_KINDS, call_unbound),
}
"""How what is of exactly this type is called."""


def fr_import(frame: Frame, name: str, level: int, names: Any) -> Any:
    return frame.builtins["__import__"](name, frame.globals, None, names, level)
