"""Calls of Python functions: interpreted in a new frame, unless a mark, a handler or a rule of torch says otherwise.

call_function(m, helper, (x,), {})        # PUSHED: the frame of helper runs next
"""

from __future__ import annotations

import functools
import operator
import sys
import weakref
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import FunctionType, MethodType
from typing import Any

from ....concurrency.first_value_cache import once
from ....foundation.torch_private import DisableTorchFunction
from ... import breaks
from ...engine.interpreted_or_native import OUR_PATH, is_leaf, is_pure_module, is_trusted, why_not_interpret
from ...engine.object_lifetimes import has_observable_finalization
from ...interpreter import argument_binding
from ...interpreter import frames as fr
from ...interpreter.bytecode_decoder import decode
from ...interpreter.decoded_code import Code
from ...interpreter.frames import MISSING, Frame, Raised
from ...numbers.live_scalars import Expression
from ...pytorch import collectives, function_modes, lambda_lifting, opaque_nodes, recorder_fast_path, torch_switches
from ...pytorch.higher_order import function_transforms, inlined_operators
from ...pytorch.modules import optimizers
from .. import builtin_functions, marks_of_dynamo
from ..polyfills import object_polyfills
from . import inner_whole_graphs
from .native_call_rules import call_leaf, is_user_object


def call_function(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    marks = function.__dict__
    if not marks:
        found = m.ordinary.get(id(function))
        if found is not None and found[0] is function:
            return push_ordinary(m, function, found[1], args, kwargs)
    else:
        handler = torch_switches.handler_of(function)
        if handler is not None:
            return handler(m, args, kwargs)
        answer = MISSING if MARKS.isdisjoint(marks) else call_marked(m, function, marks, args, kwargs)
        if answer is MISSING and "__wrapped__" in marks:
            answer = optimizers.call_decorated(m, function, args, kwargs)
        if answer is not MISSING:
            return answer
    if marks_of_dynamo.RULES in sys.modules:
        answer = marks_of_dynamo.call(m, function, args, kwargs)
        if answer is not MISSING:
            return answer
    handler = handler_of(m, function)
    if handler is not None:
        answer = handler(m, args, kwargs)
        if answer is not MISSING:
            return answer
    made_of = m.made_of.get(id(function.__code__))
    if made_of is not None and made_of[0].co is function.__code__ and made_of[1] is function.__globals__:
        admit_parts(m, function)
        return push_ordinary(m, function, made_of[0], args, kwargs)
    module = function.__globals__.get("__name__")
    by_module = BY_MODULE.get(module)
    if by_module is not None:
        answer = by_module(m, function, args, kwargs)
        if answer is not MISSING:
            return answer
    if function_transforms.is_functorch(function):
        answer = lambda_lifting.call_transform(m, function, args, kwargs)
        return push_ordinary(m, function, decode(function.__code__), args, kwargs) if answer is MISSING else answer
    if (
        is_leaf(function)
        and (is_pure_module(module) or not takes_user_code(args, kwargs))
        and torch_switches.SETTINGS.isdisjoint(function.__code__.co_names)
        and not (module in CALLS_METHODS and any(map(is_user_object, (*args, *kwargs.values()))))
    ):
        return call_leaf(m, function, args, kwargs)
    if module == "torch._tensor" and takes_user_code(args, kwargs):
        m.stop(breaks.TENSOR_STATE, f"{function.__qualname__} with a function of the user's")
    code = decode(function.__code__)
    why = why_not_interpret(function) if code.is_special else None
    if why is not None:
        m.stop(breaks.OPAQUE_FUNCTION, f"{function.__qualname__}: {why}")
    admit_parts(m, function)
    if not is_leaf(function) and not (module or "").startswith(("torch._dynamo", "torch._tensor")):
        # Other functions of this code are interpreted as well, whatever they close over. Holding a function has no
        # visible effect if it closes over no more than a class.
        m.made_of[id(code.co)] = code, function.__globals__
        if handler is None and not marks and "<locals>" not in code.co.co_qualname and id(function) not in m.heap.fresh:
            m.ordinary[id(function)] = (function, code)
    return push_ordinary(m, function, code, args, kwargs)


def handler_of(m: Any, function: FunctionType) -> Any:
    if m.modes:
        function_modes.check(m, function)
    return builtin_functions.PYTHON_FUNCTIONS.get(function)


CALLS_METHODS = frozenset(("string", "textwrap", "ast", "difflib"))
"""Pure modules whose functions call methods of their arguments: those of classes that the user derives from theirs."""

DISPATCH = functools.singledispatch(lambda value: value).dispatch.__code__  # type: ignore[attr-defined]


DISPATCHING_METHOD = functools.singledispatchmethod.__get__


def _dispatched(m: Any, dispatch: FunctionType, args: tuple, kwargs: dict) -> Any:
    """The function that ``functools.singledispatch`` has for a class. Another one may be registered later."""
    if dispatch is DISPATCHING_METHOD and "_method_cache" in dispatch.__code__.co_names:
        return m.call(object_polyfills.dispatching_method, args, kwargs)  # as without a cache of methods by object
    if dispatch.__code__ is not DISPATCH or len(args) != 1 or not issubclass(type(args[0]), type) or kwargs:
        return MISSING
    found = m.plainly(dispatch, args[0])
    m.heap.guard_answer(is_dispatched, m.heap.sources.pin(dispatch), args[0], found)
    return m.heap.adopt(found)


def _weak_container(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    """What it references weakly, only the program may hold."""
    if not is_leaf(function):
        return MISSING
    value = call_leaf(m, function, args, kwargs)
    for held in list(m.heap.fresh.values()):
        if type(held) is not weakref.ref and has_observable_finalization(held):
            m.heap.let_go(held)
    return value


def is_dispatched(dispatch: Any, cls: type, expected: Any) -> bool:
    return dispatch(cls) is expected


def _functional(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    return MISSING if function.__dict__ else recorder_fast_path.call(m, function, args, kwargs)


FLEX_ATTENTION = "torch.nn.attention.flex_attention"


@once
def _rules_of_flex_attention() -> Any:
    """Their modules are large, and few programs call FlexAttention: they are imported at its first call."""
    from ...pytorch.graph_regions import flex_attention

    return flex_attention


def _flex_attention(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    handler = _rules_of_flex_attention().BY_NAME.get(function.__name__)
    return MISSING if handler is None else handler(m, function, args, kwargs)


def is_replaced(function: FunctionType) -> bool:
    """Whether calls of this function of torch are never interpreted."""
    if function.__module__ == FLEX_ATTENTION and function.__name__ in _rules_of_flex_attention().BY_NAME:
        return True
    return function_transforms.is_functorch(function)


def _triton_launch(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    """``kernel[grid](...)``, where it reaches Triton. What a kernel writes to is known to Triton only."""
    if function.__name__ != "run" or "grid" not in kwargs:
        return MISSING
    name = getattr(args[0], "__name__", type(args[0]).__name__) if args else function.__qualname__
    return m.stop(breaks.FOREIGN_COMPILED, f"a launch of the Triton kernel {name}")


def _files_and_terminals(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    """One break, where interpreting it would be dozens."""
    names = NEVER_INTERPRETED[function.__globals__["__name__"]]
    if names and function.__name__ not in names:
        return MISSING
    what = "files, the profiler or the terminal"
    return m.stop(breaks.OPAQUE_FUNCTION, f"{function.__qualname__}, which works with {what}")


NEVER_INTERPRETED: dict[str, tuple[str, ...]] = {
    "torch.serialization": ("save", "load"),
    "torch.profiler.profiler": (),
    "torch.utils.tensorboard.writer": (),
    **dict.fromkeys(("tqdm.std", "tqdm.asyncio", "tqdm.notebook", "tqdm.rich"), ()),
}
"""By module, the functions that run as plain Python with all that they call; all of them, if none is named."""


def _text_of_nested(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    from ..messages import recursive_text

    return recursive_text.call(m, function, args, kwargs)


def _jagged(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    """Functions that make jagged tensors. The one that stands for any of them in torch's operators is made once."""
    if function.__name__ != "_nt_view_dummy":
        return push_ordinary(m, function, decode(function.__code__), args, kwargs)
    with DisableTorchFunction():
        made = m.plainly(function)
    return m.heap.admit(made, m.heap.sources.pin(made))


def _distributed(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    from ...pytorch import distributed_tensors

    return distributed_tensors.call(m, function, args, kwargs)


BY_MODULE: dict[str | None, Any] = {
    "torch.nested": _jagged,
    "torch.nested._internal.nested_tensor": _jagged,
    **dict.fromkeys(NEVER_INTERPRETED, _files_and_terminals),
    "torch.nn.functional": _functional,
    FLEX_ATTENTION: _flex_attention,
    **inlined_operators.BY_MODULE,
    **collectives.BY_MODULE,
    "torch.distributed.tensor._api": _distributed,
    "functools": _dispatched,
    **dict.fromkeys(("weakref", "_weakrefset"), _weak_container),
    "dataclasses": _text_of_nested,
    "reprlib": _text_of_nested,
    "triton.runtime.jit": _triton_launch,
    "triton.runtime.interpreter": _triton_launch,
    "triton.runtime.autotuner": _triton_launch,
}
"""How the functions of a module are called; MISSING if by the rules for all functions."""


# Marks on functions that say how they are called.
MARKS = frozenset(
    """
    __burnish_original__ _torchdynamo_disable _burnish_disable _burnish_graph_break _burnish_allow_in_graph
    _burnish_constant _dynamo_marked_constant _torchdynamo_orig_callable
""".split()
)


def call_marked(m: Any, function: FunctionType, marks: dict, args: tuple, kwargs: dict) -> Any:
    """MISSING where the marks say nothing."""
    is_wrapper = marks.get("_torchdynamo_wrapper_id", id(function)) == id(function)  # functools.wraps copies marks
    if "__burnish_original__" in marks and is_wrapper:
        # The compiled function is guarded by identity; what it was made from is read through it.
        source = m.heap.sources.pin(function).attr("__burnish_original__")
        original = m.heap.admit(marks["__burnish_original__"], source)
        return inner_whole_graphs.call_inside(m, marks.get("__burnish_program__"), original, args, kwargs)
    if marks.get("_torchdynamo_disable") or marks.get("_burnish_disable"):
        if optimizers.is_kept_from_dynamo(marks):
            return m.call(marks["_torchdynamo_orig_callable"], args, kwargs)
        reason = marks.get("_torchdynamo_disable_msg") or marks.get("_burnish_disable_reason")
        m.stop(breaks.DISABLED_CALL, f"{function.__qualname__}" + (f" ({reason})" if reason else ""))
    if marks.get("_burnish_graph_break"):
        m.stop(
            breaks.GRAPH_BREAK_REQUEST, args[0] if args and issubclass(type(args[0]), str) else function.__qualname__
        )
    if marks.get("_burnish_allow_in_graph"):
        return opaque_nodes.call_in_graph(m, opaque_nodes.OpaqueCall(function, function.__name__), args, kwargs)
    if marks.get("_burnish_constant") or marks.get("_dynamo_marked_constant"):
        return m.plainly(function, *args, **kwargs)
    if "_torchdynamo_orig_callable" in marks and is_wrapper:
        return m.call(marks["_torchdynamo_orig_callable"], args, kwargs)
    return MISSING


def takes_user_code(args: tuple, kwargs: dict) -> bool:
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) in (FunctionType, MethodType) and not is_trusted(value.__module__):
            return True
    return False


def push_ordinary(m: Any, function: FunctionType, code: Code, args: tuple, kwargs: dict) -> Any:
    if function.__code__ is not code.co:
        code = decode(function.__code__)
    if m.left and code.co in m.left:
        m.stop(breaks.LEFT_TO_PYTHON, m.left[code.co])
    if m.frame is not None and m.frame.depth > m.checked_depth:
        refuse_endless_recursion(m)
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
            m.put_cells(function, values, code)
        if m.region is not None and code.co.co_flags & CO_VARKEYWORDS:
            co = code.co
            m.region.made.add(id(values[co.co_argcount + co.co_kwonlyargcount + (co.co_flags & CO_VARARGS > 0)]))
        frame = Frame(code, function.__globals__, function.__builtins__, values)  # type: ignore[attr-defined]
        if code.is_generator and (function.__name__, function.__qualname__) != (code.co.co_name, code.co.co_qualname):
            frame.spare = fr.GeneratorNames(function.__name__, function.__qualname__)
        m.entered[code.co] += 1
        return m.push(frame)
    raise Raised(trouble)


def refuse_endless_recursion(m: Any) -> None:
    """What ``sys.setrecursionlimit`` allows. Our own frames stand for calls of C code. Python allows more of those."""
    room = room_for_frames()
    is_ours = [frame.code.is_ours for frame in fr.frames_from(m.frame)]
    left = min(room - 1 - is_ours.count(False), 2 * room - is_ours.count(True))
    m.checked_depth = m.frame.depth + left
    if left < 0:
        m.guard_outcome(Expression(operator.eq, (Expression(room_for_frames, ()), room)), True)
        raise Raised(RecursionError("maximum recursion depth exceeded"))


def room_for_frames() -> int:
    """How deep a compiled function that is called from here may nest its calls."""
    room, frame = sys.getrecursionlimit(), sys._getframe()
    while frame is not None:
        room -= not frame.f_code.co_filename.startswith((OUR_PATH, "<burnish"))
        frame = frame.f_back  # type: ignore[assignment]
    return room


def admit_parts(m: Any, function: FunctionType) -> None:
    """The code and the default values of a function from outside, which a program may replace: both are fixed by
    identity, and the values are read through their tuple."""
    key = ("parts", id(function))
    if key in m.lookups or id(function) in m.heap.fresh or is_trusted(function.__globals__.get("__name__")):
        return
    m.lookups[key] = True
    origin = m.heap.origin_of(function)
    source = origin.source if origin is not None else m.heap.sources.pin(function)
    m.heap.guard("is", source.attr("__code__"), function.__code__)
    if function.__defaults__:
        m.heap.admit(function.__defaults__, source.attr("__defaults__"))
    if function.__kwdefaults__:
        m.heap.admit(function.__kwdefaults__, source.attr("__kwdefaults__"))
        m.heap.complete(m.heap.origin_of(function.__kwdefaults__))
