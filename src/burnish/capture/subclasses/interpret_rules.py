"""Calls on tensors of subclasses: the rules of their classes are interpreted, so that graphs hold plain tensors.

    linear(x, weight)        Quantized.__torch_function__ is interpreted:
                             to      = weight.q.to(torch.float32)         weight.q, weight.scale: inputs of the graph
                             mul     = to.mul(weight.scale)
                             linear  = linear(x, mul)

Torch shows the recorder every call on such a tensor (``call``). There are three kinds of rules:

* the class's ``__torch_function__``: interpreted in place of the call;
* no rules, or torch's default rule: the call is made and recorded on plain tensors that show the same memory
  (``Subclasses.plain_of``), and results take on the class again where they leave the segment;
* ``__torch_dispatch__``, which torch's dispatcher calls below autograd: a raw entry of the dispatch stack gets those
  calls and has them interpreted. Calls that autograd records stay whole: the graph runs the rules then, eagerly.

Rules that cannot be interpreted (they print, count, break the graph) run natively when the graph does, as part of it.
"""

from __future__ import annotations

from typing import Any

import torch

from ...foundation.torch_private import (
    is_torch_function_enabled,
    len_torch_dispatch_stack,
    pop_torch_dispatch_stack,
    push_on_torch_dispatch_stack,
)
from ...runtime.argument_trees import tensors_in
from .. import breaks
from ..engine.torch_call_records import NotRecordable
from ..guards.tensor_metadata import WithoutRules, is_ruled_kind, is_tensor
from ..interpreter.program_or_tracer_errors import call_for_program, internal
from ..python.operators import guard_before_native_read
from ..pytorch import torch_call_roles, torch_library_operators, writes_of_calls
from .subclass_tensors import NO_FUNCTION, has_dispatch, is_subclass, subclasses_in
from .tentative_dispatch_callbacks import NestedRegion

DEFAULT_FUNCTION = torch.Tensor.__torch_function__.__func__
NATIVE_MODULES = ("torch._subclasses", "torch.distributed", "torch._functorch", "torch.export")
"""Modules of classes that stand for something else than their inner tensors: tensors without data, or on many
machines."""
MAKES_JAGGED = frozenset(("_nested_view_from_jagged", "_nested_from_padded_tensor"))
"""Operators of torch that make jagged tensors, given one that stands for any of them."""


# ---- calls that the recorder receives


def call(m: Any, func: Any, kinds: Any, args: tuple, kwargs: dict | None) -> Any:
    """A call with tensors of subclasses, or other objects with ``__torch_function__``, among its arguments."""
    if kinds:  # torch also names classes without rules, where an attribute is read
        is_on = is_torch_function_enabled()
        kinds = tuple(kind for kind in kinds if is_on and kind.__torch_function__ is not NO_FUNCTION)
    if why_native(m, func, kinds, args, kwargs) is not None:
        value = call_natively(m, func, kinds, args, kwargs or {})
        return checked(m, func, args, kwargs or {}, value)
    for kind in kinds:
        rule = kind.__torch_function__
        if getattr(rule, "__func__", None) is DEFAULT_FUNCTION:
            if not all(issubclass(kind, other) for other in kinds):
                continue
            return convert_results(m, call_below_torch_function(m, func, args, kwargs or {}), func, kind)
        given = (kind, func, tuple(kinds), args) if kwargs is None else (kind, func, tuple(kinds), args, kwargs)
        mark, seen = m.recorder.mark(), m.recorder.seen
        value, why = m.interpret(call_rule, given, (kwargs,))
        if why is not None:
            m.subclasses.native[kind] = why
            m.recorder.forget(*mark)
            return as_one_call(m, func, kinds, args, kwargs or {}, value)
        if value is not NotImplemented:
            m.recorder.seen = max(m.recorder.seen, seen + 1)
            return value
    if not kinds:
        return call_below_torch_function(m, func, args, kwargs or {})
    return call_natively(m, func, kinds, args, kwargs or {})  # which raises torch's error


def call_rule(kind, func, kinds, args, *kwargs):  # type: ignore[no-untyped-def]
    return kind.__torch_function__(func, kinds, args, *kwargs)


def call_dispatch_rule(kind, func, kinds, args, kwargs):  # type: ignore[no-untyped-def]
    return kind.__torch_dispatch__(func, kinds, args, kwargs)


def call_registered_rule(rule_and_kind, func, kinds, args, kwargs):  # type: ignore[no-untyped-def]
    rule, kind = rule_and_kind
    return rule(kind, func, kinds, args, kwargs)


def dispatch_rule(m: Any, func: Any, kind: type) -> tuple[Any, Any]:
    """The function that calls the rule of a class for an operator, and its first argument. `torch.library` may have
    another rule for them than the class."""
    rule = torch_library_operators.rule_for_class(m, func, kind)
    return (call_dispatch_rule, kind) if rule is None else (call_registered_rule, (rule, kind))


def why_native(m: Any, func: Any, kinds: Any, args: tuple, kwargs: dict | None) -> str | None:
    """Why the rules of a call are not interpreted, or None."""
    name = torch_call_roles.name_of(func)
    if name in torch_call_roles.READS or name in torch_call_roles.STATE:
        return "it ends the graph"
    if name in MAKES_JAGGED:
        return "it is one operator of torch, which makes a jagged tensor"
    if m.region is not None and not isinstance(m.region, NestedRegion):
        return "it is in a region, which may be given up"
    found = list(subclasses_in((args, kwargs or {})))
    for kind in (*kinds, *map(type, found)):
        if kind in m.subclasses.native:
            return m.subclasses.native[kind]
        if kind.__module__.startswith(NATIVE_MODULES):
            return f"{kind.__qualname__} is one of torch's own"
        if not isinstance(getattr(kind, "__torch_function__", None), CLASS_METHODS):
            return f"__torch_function__ of {kind.__qualname__} is not a class method"
    for value in found:
        with WithoutRules():
            if torch.is_grad_enabled() and has_dispatch(type(value)) and value.requires_grad:
                m.subclasses.below_autograd.add(type(value))
                return "autograd records it"
    return None


CLASS_METHODS = (type(torch.Tensor.__torch_function__), type(NO_FUNCTION))


def call_natively(m: Any, func: Any, kinds: Any, args: tuple, kwargs: dict) -> Any:
    """One call of the graph, which runs the rules as they are."""
    recorder = m.recorder
    if kinds and recorder.pending_break is None:
        recorder.pending_break = why_not_by_rules(m, kinds)
    return recorder.call(func, args, kwargs, func, args, kwargs)


def why_not_by_rules(m: Any, kinds: Any) -> tuple[breaks.BreakKind, str] | None:
    """A user's tensor class implements the call with code that runs inside the graph and may read anything. Objects
    that the program has written are only updated after the graph."""
    kind = next(filter(is_ruled_kind, kinds), None)
    if kind is None or not m.heap.has_written():
        return None
    return breaks.OPAQUE_CALL, f"a call by the rules of {kind.__qualname__}, which may read what was just written"


def checked(m: Any, func: Any, args: tuple, kwargs: dict, value: Any) -> Any:
    """The result of rules that run in the graph. If they return an argument, they may return another object next time;
    the graph would take it for the argument."""
    name = torch_call_roles.name_of(func)
    if (
        m.recorder.pending_break is None
        and is_tensor(value)
        and any(value is given for given in tensors_in((args, kwargs)))
        and not writes_of_calls.writes(name, kwargs)
        and not name.startswith("__i")  # `x += 1`
    ):
        from ...captured_graph.distributed_tensor_nodes import is_distributed  # few programs have such rules

        if not is_distributed(value):  # what torch's own rules return follows from metadata
            m.recorder.pending_break = breaks.OPAQUE_CALL, f"{name}: a rule that returns its argument"
    return value


def as_one_call(m: Any, func: Any, kinds: Any, args: tuple, kwargs: dict, value: Any) -> Any:
    """The same for a call that has already been made."""
    recorder = m.recorder
    recorder.seen += 1
    recorder.pending_break = why_not_by_rules(m, kinds) or recorder.why_not_record(func, args, kwargs, value)
    return checked(m, func, args, kwargs, value)


# ---- below the rules of __torch_function__


def call_below_torch_function(m: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """The call as torch makes it where ``__torch_function__`` is disabled."""
    found = list(subclasses_in((args, kwargs)))
    if not found:
        return m.recorder.call(func, args, kwargs, func, args, kwargs)
    if any(has_dispatch(type(value)) for value in found):
        with WithoutRules():
            return dispatched(m, func, args, kwargs)
    if torch_call_roles.name_of(func) in torch_call_roles.FACTS:
        m.recorder.seen += 1
        if m.symbolic_sizes is not None and not all(m.heap.origin_of(value) is not None for value in found):
            m.symbolic_sizes.symbols.settle_all("a fact of a tensor subclass")
        with WithoutRules():
            return call_for_program(m, func, args, kwargs)
    try:
        shown = {id(value): m.subclasses.plain_of(m, value) for value in found}
    except NotRecordable as why:
        with WithoutRules():
            value = call_for_program(m, func, args, kwargs)
        m.recorder.pending_break = breaks.UNKNOWN_TENSOR, f"{torch_call_roles.name_of(func)}: {why}"
        return value
    args, kwargs = replaced(args, shown), replaced(kwargs, shown)
    back = {id(plain): value for value in found if (plain := shown[id(value)]) is not None}
    return replaced(m.recorder.call(func, args, kwargs, func, args, kwargs), back)


def replaced(tree: Any, by: dict[int, Any]) -> Any:
    """The tree with other objects in place of some of its tensors. Parts without such tensors stay the same objects."""
    kind = type(tree)
    if kind in (tuple, list):
        parts = [replaced(part, by) for part in tree]
        is_same = all(part is old for part, old in zip(parts, tree, strict=True))
        return tree if is_same else kind(parts)
    if kind is dict:
        entries = {key: replaced(part, by) for key, part in tree.items()}
        return tree if all(entries[key] is part for key, part in tree.items()) else entries
    return by.get(id(tree), tree)


def convert_results(m: Any, made: Any, func: Any, kind: type) -> Any:
    """The results of the default rule: they take on the class."""
    if kind is torch.Tensor or func in torch.overrides.get_default_nowrap_functions():
        return made
    if is_tensor(made):
        return made if isinstance(made, kind) else as_subclass(m, made, kind)
    if isinstance(made, (tuple, list)):
        return type(made)(convert_results(m, part, func, kind) for part in made)
    return made


def as_subclass(m: Any, value: torch.Tensor, kind: type) -> torch.Tensor:
    with WithoutRules():
        if value.layout is not torch.strided:
            m.plainly(torch.Tensor.as_subclass, value, kind)  # which may raise the program's error
        made = torch.Tensor.as_subclass(value, kind)
    plain = m.subclasses.shown_by(value) if is_subclass(value) else value
    if plain is not None:
        m.subclasses.note(made, plain)
    return made


# ---- rules of __torch_dispatch__


class Interceptor:
    """An entry of the dispatch stack: the rules that the dispatcher would call are interpreted."""

    supports_higher_order_operators = False

    def __init__(self, m: Any):
        self.m = self.tracer = m
        self.asked = False
        self.why: str | None = None

    @internal
    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        m, kwargs = self.m, kwargs or {}
        kinds = [kind for kind in types if has_dispatch(kind)]
        self.asked = True
        if self.why is not None:
            return NotImplemented if kinds else call_for_program(m, func, args, kwargs)
        if not kinds:  # a part of a composite operator that has plain tensors only
            made = m.recorder.call(func, args, kwargs, func, args, kwargs)
            if m.recorder.pending_break is not None:
                self.why, m.recorder.pending_break = m.recorder.pending_break[1], None
            return made
        for kind in kinds:
            rule, first = dispatch_rule(m, func, kind)
            value, self.why = m.interpret(rule, (first, func, tuple(types), args, kwargs), (kwargs,))
            if self.why is not None:
                m.subclasses.native[kind] = self.why
                return value
            if value is not NotImplemented:
                m.subclasses.note_view(value, func, args, kwargs)
                return value
        return NotImplemented


def dispatched(m: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    recorder = m.recorder
    if torch.is_grad_enabled() and any(value.requires_grad for value in tensors_in((args, kwargs))):
        return whole_call(m, func, args, kwargs)
    for value in (*args, *kwargs.values()):
        guard_before_native_read.settle_all(m, value)
    if m.symbolic_sizes is not None:  # the dispatcher passes on plain numbers
        m.symbolic_sizes.symbols.settle_all("a rule of a tensor subclass")
    mark = recorder.mark()
    interceptor = Interceptor(m)
    modes = len_torch_dispatch_stack()
    recorder.seen += 1
    try:
        push_on_torch_dispatch_stack(interceptor)
        made = call_for_program(m, func, args, kwargs)
    finally:
        if len_torch_dispatch_stack() > modes:
            pop_torch_dispatch_stack(None)
    if interceptor.why is not None:
        recorder.forget(*mark)
        recorder.pending_break = why_not_whole(m) or recorder.why_not_record(
            WholeCall.of(func, args, kwargs), args, kwargs, made
        )
        checked(m, func, args, kwargs, made)
    elif (
        not interceptor.asked
        and torch_call_roles.name_of(func) not in torch_call_roles.FACTS
        # ``x.to(dtype)`` and the like return ``x`` if it has this type already, by metadata alone.
        and not any(made is value for value in tensors_in((args, kwargs)))
    ):
        recorder.pending_break = recorder.why_not_record(func, args, kwargs, made)
    return made


def whole_call(m: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """A call that runs the rules of dispatch natively, in each run of the graph."""
    recorder = m.recorder
    m.subclasses.below_autograd.update(
        type(value) for value in subclasses_in((args, kwargs)) if has_dispatch(type(value))
    )
    if recorder.pending_break is None:
        recorder.pending_break = why_not_whole(m)
    whole = WholeCall.of(func, args, kwargs)
    return checked(m, func, args, kwargs, recorder.call(func, args, kwargs, whole, args, kwargs))


def why_not_whole(m: Any) -> Any:
    if m.heap.has_written():
        return breaks.OPAQUE_CALL, "a call by the rules of a tensor subclass, which may read what was just written"
    return None


class WholeCall:
    """A torch call without the rules of ``__torch_function__``, which have been interpreted already."""

    def __init__(self, func: Any):
        self.func = func
        self.__name__ = self.__qualname__ = torch_call_roles.name_of(func)
        self.__module__ = __name__

    @staticmethod
    def of(func: Any, args: tuple, kwargs: dict) -> Any:
        is_ruled = any(is_ruled_kind(type(value)) for value in subclasses_in((args, kwargs)))
        return WholeCall(func) if is_ruled else func

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with WithoutRules():
            return self.func(*args, **kwargs)
