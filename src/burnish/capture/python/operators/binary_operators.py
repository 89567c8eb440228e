"""Binary and unary operators while tracing.

Numbers and strings are computed at once. Tensors go to the recorder. Containers from outside are guarded as far as the
operation looks into them. Objects with Python special methods get those interpreted, through ``polyfills`` where
CPython's protocol has several steps.
"""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Callable, ItemsView, KeysView
from typing import Any

import torch

from ... import breaks
from ...guards.container_reads_past_overrides import elements_of
from ...guards.tensor_metadata import TENSOR_TYPES
from ...interpreter.frames import MISSING, SAMPLE, Generator
from ...numbers import live_scalars
from ...numbers.live_scalars import Live
from ...numpy_calls import numpy_dispatch
from ..attributes.class_lookup import lookup
from ..attributes.descriptor_binding import special_method
from ..calls import torch_function_of_non_tensors
from ..messages import print_and_format
from ..polyfills import container_polyfills, object_polyfills, operator_protocol_polyfills
from ..polyfills.torch_function_polyfills import has_rule
from . import functions_called_by_guards, iteration, subscripts
from .guard_before_native_read import check_key, expose, refuse_unhashed_key, settle_all, settled
from .guard_identity_comparisons import guard_comparison, guard_elements
from .truth_and_identity import is_same
from .value_kinds import (
    BUILTIN_CONTAINERS,
    CHANGEABLE,
    NUMBERS_OF_PYTHON,
    NUMPY,
    SIMPLE,
    finds_items_by_methods,
    holds_user_equality,
    is_known,
    python_method,
)

ARITHMETIC = "add sub mul matmul truediv floordiv mod pow lshift rshift and or xor".split()
METHODS: dict[Callable, tuple[str, str | None, str | None]] = {}
"""For each operation the method, the reflected method and the in-place method."""
for _name in ARITHMETIC:
    _plain = getattr(operator, _name + "_" if _name in ("and", "or") else _name)
    METHODS[_plain] = (f"__{_name}__", f"__r{_name}__", None)
    METHODS[getattr(operator, f"i{_name}")] = (f"__{_name}__", f"__r{_name}__", f"__i{_name}__")
for _name, _mirror in (("lt", "gt"), ("le", "ge"), ("eq", "eq"), ("ne", "ne"), ("gt", "lt"), ("ge", "le")):
    METHODS[getattr(operator, _name)] = (f"__{_name}__", f"__{_mirror}__", None)
METHODS[operator.getitem] = ("__getitem__", None, None)
METHODS[divmod] = ("__divmod__", "__rdivmod__", None)
UNARY_METHODS = {operator.neg: "__neg__", operator.pos: "__pos__", operator.invert: "__invert__"}
EQUALITY = ("__eq__", "__ne__")
COMPARISONS = frozenset((operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge))
IN_PLACE = frozenset(operation for operation, names in METHODS.items() if names[2] is not None)


def binary(m: Any, operation: Callable, left: Any, right: Any) -> Any:
    left_kind, right_kind = type(left), type(right)
    if left_kind in SIMPLE and right_kind in SIMPLE:
        return m.plainly(operation, left, right)
    if (
        left_kind in TENSOR_TYPES
        and (right_kind in TENSOR_TYPES or right_kind in NUMBERS_OF_PYTHON)
        and operation is not operator.getitem
    ):
        return m.perform(operation, left, right)
    if operation is operator.getitem:
        return subscripts.subscript(m, left, right)
    if issubclass(type(left), torch.Tensor) or issubclass(type(right), torch.Tensor):
        return _of_tensors(m, operation, left, right)
    if left_kind in NUMPY or right_kind in NUMPY:
        return numpy_dispatch.apply(m, operation, left, right)
    if issubclass(type(left), Live) or issubclass(type(right), Live):
        return _of_live_scalars(m, operation, left, right)
    return _of_objects(m, operation, left, right)


def _of_tensors(m: Any, operation: Callable, left: Any, right: Any) -> Any:
    """At least one operand is a tensor, the other one is not a plain number."""
    if not issubclass(type(left), torch.Tensor) and python_method(m, left, METHODS[operation][0]):
        return by_protocol(m, operation, left, right)
    method, reflected, in_place = METHODS[operation]
    if type(right) in NUMPY and in_place is None and type(left) in TENSOR_TYPES:
        answer = numpy_dispatch.on_tensor(m, operation, left, right)
        if answer is not MISSING:
            return answer
    if type(left) in NUMPY and type(right) in TENSOR_TYPES:
        number = numpy_dispatch.python_number_of(m, left)
        if number is not MISSING:
            return binary(m, operation, number, right)
    if reflected and not issubclass(type(right), torch.Tensor):
        has_reflected = python_method(m, right, reflected)
        is_asked = has_reflected or has_rule(type(right)) or method in EQUALITY and identity_decides(type(right))
        if in_place is None and is_asked:
            answer = torch_function_of_non_tensors.operator(m, left, right, method, reflected)
            if answer is not MISSING:
                return answer
        if has_reflected:
            what = f"a tensor {operation.__name__} a {type(right).__qualname__} with its own {reflected}"
            m.stop(breaks.OPAQUE_CALL, what)
    expose(m, left)
    expose(m, right)
    return m.perform(operation, left, right)


def _of_live_scalars(m: Any, operation: Callable, left: Any, right: Any) -> Any:
    if type(left) in (str, live_scalars.LiveStr) and operation is operator.mod:
        return (
            m.plainly(live_scalars.apply, functions_called_by_guards.formatted, left, right)
            if type(right) in print_and_format.PLAIN or issubclass(type(right), Live)
            else format_by_percent(m, settled(left), right)
        )
    is_of_numbers = issubclass(type(left), live_scalars.NUMBERS) and issubclass(type(right), live_scalars.NUMBERS)
    if is_of_numbers and not has_own_method(m, operation, left, right):
        # Not by the operands' own methods: those of bool and float know nothing of live numbers on their right.
        return m.plainly(live_scalars.apply, operation, left, right)
    if issubclass(type(left), str) and issubclass(type(right), str) and operation in (operator.add, operator.iadd):
        return live_scalars.apply(operator.add, left, right)
    if has_own_method(m, operation, left, right):
        return _of_objects(m, operation, left, right)
    return binary(m, operation, settled(left), settled(right))


def has_own_method(m: Any, operation: Callable, left: Any, right: Any) -> bool:
    """Whether one of the operands defines the operation in Python."""
    method, reflected, in_place = METHODS[operation]
    return (
        python_method(m, left, method)
        or in_place is not None
        and python_method(m, left, in_place)
        or reflected is not None
        and python_method(m, right, reflected)
    )


def _of_objects(m: Any, operation: Callable, left: Any, right: Any) -> Any:
    left_kind, right_kind = type(left), type(right)
    if operation in (operator.eq, operator.ne) and identity_decides_between(left_kind, right_kind):
        return is_same(m, left, right) == (operation is operator.eq)
    if (
        has_own_method(m, operation, left, right)
        or operation is operator.ne
        and (python_method(m, left, "__eq__") or python_method(m, right, "__eq__"))
    ):
        return by_protocol(m, operation, left, right)
    if operation in (operator.mul, operator.imul):
        repeats = left_kind in subscripts.INDEXED, right_kind in subscripts.INDEXED
        if any(repeats) and subscripts.indexes_in_python(m, right if repeats[0] else left):
            is_in_place = operation is operator.imul and repeats[0]
            polyfill = container_polyfills.repeat_in_place if is_in_place else container_polyfills.repeat
            return m.call(polyfill, (left, right), {})
    if operation in (operator.or_, operator.ior):
        iteration.refuse_operands(m, left, right)
    if issubclass(type(left), BUILTIN_CONTAINERS) or issubclass(type(right), BUILTIN_CONTAINERS):
        return _of_containers(m, operation, left, right)
    if is_known(left) and is_known(right):
        m.check_readable(operation, left)
        m.check_readable(operation, right)
        return m.plainly(operation, left, right)
    if not any(has_other_method(m, kind, name) for kind in (left_kind, right_kind) for name in METHODS[operation]):
        return m.plainly(operation, left, right)  # which refuses
    return m.stop(
        breaks.OPAQUE_CALL, f"operator {operation.__name__} on {left_kind.__qualname__} and {right_kind.__qualname__}"
    )


def has_other_method(m: Any, kind: type, name: str | None) -> bool:
    """Whether a class has a method for an operator besides those of ``object`` and of numbers, which leave it to the
    other operand if that is not a number."""
    if name is None:
        return False
    owner = lookup(m, kind, name)[1]
    return all(owner is not other for other in (None, object, int, float, complex, bool))


DICT_VIEWS = (KeysView, ItemsView)


def check_keys_for_view(m: Any, operation: Callable, view: Any, keys: Any) -> None:
    meets = operation in (operator.and_, operator.iand)
    for key in keys:
        if meets and issubclass(type(view), ItemsView):  # which hashes no more than the first part of a pair
            refuse_unhashed_key(m, key, "items() & a sequence")
        check_key(m, key, dict if meets else set)


def _of_containers(m: Any, operation: Callable, left: Any, right: Any) -> Any:
    if type(left) is str and operation is operator.mod:
        return format_by_percent(m, left, right)
    if (
        operation is operator.iadd
        and issubclass(type(left), (list, collections.deque))
        and (not issubclass(type(right), (list, tuple)) or iteration.needs_interpreting(m, right))
    ):
        return m.call(left.__iadd__, (right,), {})
    iteration.refuse_copied_deque(m, left, right)
    if operation is operator.ior and issubclass(type(left), dict) and type(right) is Generator:
        return m.call(left.__ior__, (right,), {})
    converts = operation not in COMPARISONS  # to numbers
    for side, other in ((left, right), (right, left)):
        if not issubclass(type(side), BUILTIN_CONTAINERS):
            settle_all(m, side, converts=converts)
            if operation in IN_PLACE or any(has_other_method(m, type(side), name) for name in METHODS[operation]):
                m.check_readable(operation, side)  # otherwise its type decides
            if issubclass(type(side), DICT_VIEWS) and issubclass(type(other), (list, tuple)):
                check_keys_for_view(m, operation, side, other)
    if operation in COMPARISONS:
        return _compare_containers(m, operation, left, right)
    if operation in IN_PLACE:
        if m.region is not None and issubclass(type(left), CHANGEABLE):
            m.region.will_write(left)
        m.heap.will_write(left)
    if operation is operator.add and type(left) is list and type(right) is list:
        return m.perform(operation, *map(m.heap.items_read_at_once, (left, right)))
    of_sets = issubclass(type(left), SETS) and issubclass(type(right), SETS)
    for side in (left, right):
        expose(m, side, reads_order=not of_sets)
        if of_sets:
            m.heap.read_order(side, stops=False)
    if of_sets:
        guard_comparison(m, left, right)
        if operation in SET_METHODS and issubclass(type(left), set):
            with m.heap.changing_set(left, SET_METHODS[operation], (right,)):
                return m.perform(operation, left, right)
    if isinstance(right, (Generator, types.GeneratorType)):
        if isinstance(left, SETS):
            return m.plainly(operation, left, SAMPLE)  # which refuses
        m.stop(breaks.OPAQUE_CALL, "a generator extends a list in place")
    return m.perform(operation, left, right)


def _compare_containers(m: Any, operation: Callable, left: Any, right: Any) -> Any:
    for side in (left, right):
        expose(m, side, reads_order=False)
    guard_comparison(m, left, right)
    if not (issubclass(type(left), SETS) and issubclass(type(right), SETS)):
        guard_elements(m, operation, left, right)
    if not (holds_numbers_alone(left) and holds_numbers_alone(right)):
        settle_all(m, left, converts=False)
        settle_all(m, right, converts=False)
    if holds_user_equality(m, left) or holds_user_equality(m, right):
        return compare_by_steps(m, operation, left, right)
    return m.perform(operation, left, right)


SETS = (set, frozenset)
SET_METHODS = {operator.ior: "__ior__", operator.iand: "__iand__", operator.isub: "__isub__", operator.ixor: "__ixor__"}


def compare_by_steps(m: Any, operation: Callable, left: Any, right: Any) -> Any:
    """A comparison of containers whose elements have operators in Python."""
    kinds = {type(left), type(right)}
    if kinds <= {set, frozenset}:
        for key in (*left, *right):
            check_key(m, key)
        return m.perform(operation, left, right)
    if kinds <= {list, tuple, dict} and len(kinds) > 1:
        return m.perform(operation, left, right)  # their types decide
    method = METHODS[operation][0]
    if kinds == {dict} and method in EQUALITY:
        polyfill = (
            operator_protocol_polyfills.equal_dicts if method == "__eq__" else operator_protocol_polyfills.unequal_dicts
        )
        return m.call(polyfill, (left, right), {})
    if kinds == {list} or kinds == {tuple}:
        return m.call(operator_protocol_polyfills.compare_sequences, (left, right, method), {})
    return m.stop(breaks.USER_HASH, "containers compared whose elements define __eq__")


def holds_numbers_alone(value: Any) -> bool:
    """Whether it is, for example, a shape: the comparison is of its numbers, and live ones take part in it."""
    return issubclass(type(value), tuple) and all(
        type(part) in (int, live_scalars.LiveInt) for part in elements_of(value)
    )


def format_by_percent(m: Any, text: str, values: Any) -> Any:
    m.heap.expose(values)
    # Of a tuple, the elements are formatted, and no method of its class is called.
    formatted = elements_of(values) if issubclass(type(values), tuple) else (values,)
    needs_python = any(print_and_format.needs_python_text(m, value) for value in formatted)
    if needs_python or finds_items_by_methods(m, values):
        m.stop(breaks.OPAQUE_CALL, "% formatting of an object with its own text")
    if type(values) is tuple and print_and_format.holds_live_alone(values):
        return m.plainly(live_scalars.apply, functions_called_by_guards.formatted, settled(text), *values)
    settle_all(m, values)
    return m.perform(operator.mod, text, values)


def identity_decides_between(left: type, right: type) -> bool:
    """Whether == of objects of these types is object identity. Numbers and strings know no other types as equal."""
    decides = identity_decides(left), identity_decides(right)
    return all(decides) or any(decides) and (left in SIMPLE or right in SIMPLE)


def identity_decides(kind: type) -> bool:
    """Whether == and != on this type are object identity."""
    return kind.__eq__ is object.__eq__ and kind.__ne__ is object.__ne__


def by_protocol(m: Any, operation: Callable, left: Any, right: Any) -> Any:
    method, reflected, in_place = METHODS[operation]
    if operation in COMPARISONS:
        return m.call(operator_protocol_polyfills.compare, (left, right, method, reflected), {})
    if in_place is not None:
        return m.call(operator_protocol_polyfills.in_place, (left, right, method, reflected, in_place), {})
    return m.call(operator_protocol_polyfills.binary, (left, right, method, reflected), {})


def unary(m: Any, operation: Callable, value: Any) -> Any:
    if issubclass(type(value), torch.Tensor):
        return m.perform(operation, value)
    if type(value) is bool and operation is operator.invert and object_polyfills.INVERSION_OF_BOOL:
        return m.call(object_polyfills.inverted_bool, (value,), {})
    if issubclass(type(value), Live):
        return m.plainly(operation, value)
    if type(value) in NUMPY:
        return numpy_dispatch.apply(m, operation, value)
    method = special_method(m, value, UNARY_METHODS[operation])
    if isinstance(method, types.MethodType):
        return m.call(method, (), {})
    return m.plainly(operation, value)
