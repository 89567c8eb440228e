"""Library operators registered with torch from Python: their implementation may read anything.

The graph runs such an operator for real, each time. What the program writes to Python objects takes effect after the
graph, so an implementation that reads them must run after it: the segment ends. The bytecode of functions given to
`torch.library.custom_op` shows whether they can read what was written (`why_may_read`).

    state.calls += 1
    y = torch.ops.my.scaled(x, 2.0)         in the graph if its function reads arguments, torch and constants only
"""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import re
import types
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from ...concurrency.outside_errors import reraise_from_outside
from ...foundation.torch_private import (
    OPDEFS,
    CustomOpDef,
    OpOverloadPacket,
    dispatch_dump,
    find_torch_dispatch_rule,
    pytree,
    triton_ops_to_kernels,
)
from ...runtime.argument_trees import mapped, tensors_in
from ...tensors.eager_strides import packed_order, packed_stride
from ..guards.tensor_metadata import TENSOR_TYPES
from ..interpreter.frames import cell_value
from ..numbers.live_scalars import Expression, Live, LiveStr
from .custom_functions.autograd_function_side_effects import attributes_after, codes_in
from .custom_functions.autograd_function_traceability import ClassReader, Names, NotTraceable, is_constant
from .number_arguments import OPERATORS, is_of_torch
from .opaque_nodes import OpaqueCall, is_native

KEYS = """
    CPU CUDA CompositeExplicitAutograd CompositeExplicitAutogradNonFunctional CompositeImplicitAutograd Autograd
    AutogradCPU AutogradCUDA
""".split()
"""Dispatch keys of operators that run with data. Torch's own registrations are for tensors without data."""

FROM_PYTHON = re.compile(r"^(\w+)(?:\[alias\])?: registered at (?:\S.*\.py|<.*>):\d+ ", re.MULTILINE)
"""A line of the dispatcher's own table, for code from files or `<stdin>`. `torch.library._impls` does not do: when
an operator is defined again, the names of the new registrations leave it as soon as the old library is collected."""


def runs_python(operator: Any) -> bool:
    return not is_of_torch(operator) and not kernels_from_python(operator).isdisjoint(KEYS)


def overloads_of(operator: Any) -> list[Any]:
    is_packet = isinstance(operator, OpOverloadPacket)
    return [getattr(operator, name) for name in operator.overloads()] if is_packet else [operator]


def kernels_from_python(operator: Any) -> set[str]:
    """The dispatch keys of the kernels of all its overloads."""
    names = [str(overload).replace(".", "::", 1).partition(".") for overload in overloads_of(operator)]
    return set().union(*[keys_from_python(name, overload) for name, _, overload in names])


def has_results(operator: Any) -> bool:
    return any(overload._schema.returns for overload in overloads_of(operator))


def is_mutable(operator: Any) -> bool:
    return any(overload._schema.is_mutable for overload in overloads_of(operator))


def keys_from_python(name: str, overload: str = "") -> set[str]:
    """The dispatch keys with a kernel registered from Python. Not cached: libraries come and go."""
    spelled = name if overload in ("", "default") else f"{name}.{overload}"
    return set(FROM_PYTHON.findall(dispatch_dump(spelled)))


REGISTERED = ("_abstract_fn", "_backward_fn", "_setup_context_fn")
"""Attributes of a definition that determine compiled code: what its results look like, and how they are differentiated.
Kernels need no guard, because the graph calls the operator by way of torch."""


def guard_registrations(m: Any, operator: Any) -> None:
    """A function that is registered later, or in place of another one, is seen."""
    definition = OPDEFS.get(qualified_name(operator))
    if definition is None:
        return
    origin = m.heap.origin_of(definition)
    if origin is None:
        m.heap.admit(definition, m.heap.sources.pin(definition))
        origin = m.heap.origin_of(definition)
    for name in REGISTERED:
        m.heap.guard("is", origin.source.attr(name), getattr(definition, name))


def rule_for_class(m: Any, operator: Any, kind: type) -> Any:
    """The rule that `torch.library` has for an operator and a tensor subclass, if any."""
    if is_of_torch(operator):
        return None
    rule = find_torch_dispatch_rule(operator, kind)
    m.guard_outcome(Expression(is_rule, (operator, kind, rule)), True)
    return rule


def is_rule(operator: Any, kind: type, expected: Any) -> bool:
    return find_torch_dispatch_rule(operator, kind) is expected


def is_opaque(m: Any, operator: Any, given: tuple[Any, ...]) -> bool:
    """Whether compilers must not look into the operator: torch does not know what its results look like, or gradients
    flow through functions whose reads cannot be guarded."""
    return has_unknown_results(operator) or why_not_differentiated(m, operator, given) is not None


def why_not_differentiated(m: Any, operator: Any, given: tuple[Any, ...]) -> str | None:
    """Why a compiler may not run the operator's functions for gradients once and for all. If it may, what they read by
    name is guarded."""
    if not torch.is_grad_enabled() or not any(x.requires_grad for x in tensors_in(given)):
        return None
    definition = OPDEFS.get(qualified_name(operator))
    if definition is None:
        is_composite = kernels_from_python(operator).isdisjoint(set(KEYS) - {"CompositeImplicitAutograd"})
        return None if is_composite else "its functions are not known"
    if definition._backward_fn is None:
        return None
    names = Names(definition)
    reader = ClassReader(names)
    try:
        for function in (definition._setup_context_fn, definition._backward_fn):
            if function is not None:
                reader.function(function, takes_ctx=True)
    except NotTraceable as why:
        return str(why)
    m.heap.guard("outcome", None, (Expression(names.are_as_they_were, ()), True))
    return None


def is_differentiated_by_kernel(operator: Any, given: tuple[Any, ...]) -> bool:
    """Whether gradients flow through what the operator's kernel itself does, because it has none for autograd. Only a
    call for real records that."""
    if not torch.is_grad_enabled() or OPDEFS.get(qualified_name(operator)) is not None:
        return False
    kernels = kernels_from_python(operator) & set(KEYS)
    has_formula = any(key.startswith("Autograd") for key in kernels)
    if has_formula or kernels == {"CompositeImplicitAutograd"}:
        return False
    return any(x.requires_grad for x in tensors_in(given))


def has_unknown_results(operator: Any) -> bool:
    """Whether torch cannot tell what the results look like without running the operator: no function is registered for
    tensors without data, or it launches Triton kernels. Such an operator is a node whose results are compared with
    those of the traced run."""
    name = qualified_name(operator)
    definition = OPDEFS.get(name)
    if definition is None or definition._opoverload._schema.is_mutable:
        return False
    return definition._abstract_fn is None or triton_ops_to_kernels is None or name in triton_ops_to_kernels


# ---- numbers that may differ in the next run


def numbers_in(tree: Any) -> list[Live]:
    found: list[Live] = []
    mapped(tree, Live, found.append)
    return found


def vary_in_node(m: Any, operator: Any, args: tuple, kwargs: dict, node: OpaqueCall | None = None) -> bool:
    """Whether the numbers among an operator's arguments may differ in the next run, because its results look alike
    then. That is guarded; by a node that compares its results itself, only until many numbers have been met."""
    results = results_of(m, operator, args, kwargs)
    if results is None or results.are_sized_by_numbers():
        return False
    results.are_compared_by = node
    m.guard_outcome(Expression(results.are_alike, tuple([x.expression for x in results.operands])), True)
    return True


def are_kept(m: Any, operator: Any, args: tuple, kwargs: dict) -> bool:
    """Whether the numbers may differ in the next run of a graph that calls the operator by way of torch. Our own
    compiled code is made for one number, if there are results."""
    results = results_of(m, operator, args, kwargs)
    if results is None or m.options.runs_python and has_results(operator):
        return False
    if not results.are_sized_by_numbers():
        return vary_in_node(m, operator, args, kwargs)
    sizes = m.symbolic_sizes
    if sizes is None or not all([sizes.takes(number, is_sized=True) for number in results.operands[: results.count]]):
        return False
    sizes.symbols.is_divided = True  # nothing is known of the formulas in between
    return True


def results_of(m: Any, operator: Any, args: tuple, kwargs: dict) -> Results | None:
    numbers = numbers_in((args, kwargs))
    if not numbers or m.modes or m.region is not None or m.options.exports or m.unbacked_sizes.has_sizes:
        return None
    if any(number.expression.in_graph or isinstance(number, LiveStr) for number in numbers):
        return None
    results = Results(m, operator, (args, kwargs), numbers)
    return results if results.are_known else None


class NumberOperand(NamedTuple):
    """Stands for a number, by its position among the operands."""

    at: int


class Shaped(NamedTuple):
    """Stands for a tensor: its dtype, its sizes, and the order of its dimensions in memory, or its strides."""

    dtype: torch.dtype
    sizes: tuple
    order: tuple | None
    strides: tuple


class Results:
    """What the results of an operator look like, computed without data from numbers and symbolic sizes."""

    def __init__(self, m: Any, operator: Any, given: tuple, numbers: list[Live]):
        self.m, self.operator, self.count = m, operator, len(numbers)
        self.operands: list[Live] = list(numbers)
        places = iter(range(self.count))
        self.are_known = True
        self.given = mapped(mapped(given, Live, lambda number: NumberOperand(next(places))), torch.Tensor, self.shaped)
        self.values = [operand.plain() for operand in self.operands]
        self.are_known = self.are_known and self.at(self.values) is not None
        self.m = None  # guards outlive the trace
        self.known: dict[tuple, bool] = {}
        self.expected: dict[tuple, Any] = {}
        """What they look like for the numbers of the trace, by the symbolic sizes."""
        self.are_compared_by: OpaqueCall | None = None

    def shaped(self, tensor: torch.Tensor) -> Any:
        symbolic = self.m.symbolic_sizes
        sizes = (symbolic and type(tensor) in TENSOR_TYPES and symbolic.shape_of(tensor)) or tuple(tensor.shape)
        order = packed_order(tuple(tensor.shape), tensor.stride()) if tensor.layout is torch.strided else None
        varies = any(isinstance(size, Live) for size in sizes)
        if type(tensor) not in TENSOR_TYPES or tensor.layout is not torch.strided or varies and order is None:
            self.are_known = False
            return None
        return Shaped(tensor.dtype, tuple(map(self.placed, sizes)), order if varies else None, tensor.stride())

    def placed(self, size: Any) -> Any:
        if not isinstance(size, Live):
            return size
        self.operands.append(size)
        return NumberOperand(len(self.operands) - 1)

    def at(self, values: Sequence[Any]) -> Any:
        """What they look like for these operands; None if the operator refuses them."""

        def filled(tensor: Shaped) -> torch.Tensor:
            sizes = tuple([values[size.at] if isinstance(size, NumberOperand) else size for size in tensor.sizes])
            strides = tensor.strides if tensor.order is None else packed_stride(sizes, tensor.order)
            return torch.empty_strided(sizes, strides, dtype=tensor.dtype, device="meta")

        args, kwargs = mapped(mapped(self.given, NumberOperand, lambda place: values[place.at]), Shaped, filled)
        try:
            made = self.operator(*args, **kwargs)
        except Exception as error:  # with data it raises as well, where the program sees it
            reraise_from_outside(error)
            return None
        leaves, structure = pytree.tree_flatten(made)
        if not all(leaf is None or isinstance(leaf, torch.Tensor) and leaf.is_meta for leaf in leaves):
            return None
        return structure, [leaf if leaf is None else (leaf.dtype, leaf.shape, leaf.stride()) for leaf in leaves]

    def are_sized_by_numbers(self) -> bool:
        """Whether they look different for numbers nearby."""
        numbers = [x + 1 if isinstance(x, int) else 2 * x + 1 for x in self.values[: self.count]]
        return self.at([*numbers, *self.values[self.count :]]) not in (None, self.at(self.values))

    def are_alike(self, *operands: Any) -> bool:
        """Whether they look as they do for the numbers of the trace, at these sizes."""
        key = tuple([(type(x), repr(x)) for x in operands])  # zero has two signs
        known = self.known.get(key)
        if known is None:
            if self.are_compared_by is not None and self.are_compared_by.compares_all() and self.is_usual():
                return True
            found = self.at(operands)
            known = found is not None and found == self.expected_at(operands[self.count :])
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[key] = known
        return known

    def is_usual(self) -> bool:
        """Whether many numbers have looked alike, and none different."""
        return len(self.known) >= MANY and all(tuple(self.known.values()))

    def expected_at(self, sizes: tuple) -> Any:
        found = self.expected.get(sizes)
        if found is None:
            found = self.at([*self.values[: self.count], *sizes])
            if len(self.expected) >= MOST_KNOWN:
                self.expected.clear()
            self.expected[sizes] = found
        return found


MANY = 8
MOST_KNOWN = 1000


# ---- what an implementation reads

OUTWARD = frozenset(
    (eval, exec, compile, open, input, print, globals, locals, vars, __import__, breakpoint, delattr, id)
)
"""Builtins that reach more than their arguments."""

STATELESS = frozenset("torch builtins math operator functools itertools typing collections numpy scipy triton".split())
"""Libraries whose functions read no state that a program writes to, as `os.getenv` does."""


class MayRead(Exception):
    """The message says what an implementation may read."""


def why_may_read(m: Any, operator: Any) -> str | None:
    """Why the implementation may read what the program has written in this segment; None if it cannot."""
    if m.heap.has_marked:
        return "the program has set attributes of tensors"
    try:
        Reader(m).operator(operator)
    except MayRead as what:
        return str(what)
    return None


def qualified_name(operator: Any) -> str:
    return str(getattr(operator, "_overloadpacket", operator)._qualified_op_name)


class Reader:
    """Walks through the functions that an implementation calls by name."""

    def __init__(self, m: Any):
        self.m = m
        self.seen: set[Any] = set()

    def function(self, function: Any) -> None:
        if isinstance(function, functools.partial):
            for part in (function.func, *function.args, *function.keywords.values()):
                self.value(part, "a partial's argument", ())
            return
        if not isinstance(function, types.FunctionType):
            self.value(function, repr(function), ())
            return
        if function in self.seen:
            return
        self.seen.add(function)
        if is_stateless_library(function.__module__):
            for cell in function.__closure__ or ():  # torch's wrappers of the implementation
                value = cell_value(cell)
                if isinstance(value, types.FunctionType):
                    self.function(value)
            return
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.value(default, f"a default of {function.__qualname__}", ())
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for code in codes_in(function.__code__):
            for name, place, value, attributes in read_names(code, function, cells):
                if self.is_written(place, name):
                    raise MayRead(f"{function.__qualname__} reads {name}")
                self.value(value, f"{name} in {function.__qualname__}", attributes)

    def is_written(self, place: Any, name: str) -> bool:
        """Whether the program has set this name in its dictionary, or this cell."""
        origin = self.m.heap.origin_of(place)
        if origin is None:
            return False
        return bool(origin.is_changed_here or "contents" in origin.written or name in origin.written)

    def value(self, value: Any, what: str, attributes: tuple[str, ...]) -> None:
        """Check a value found under a name, with the attributes that are read from it directly."""
        while isinstance(value, types.ModuleType) and attributes:
            is_user_module = not is_stateless_library(value.__name__)
            value, what, attributes = inspect.getattr_static(value, attributes[0], None), attributes[0], attributes[1:]
            if is_user_module and is_constant(value):
                raise MayRead(f"it reads {what} of a module")
        if isinstance(value, types.ModuleType) and not is_stateless_library(value.__name__):
            raise MayRead(f"it reads the module {what}")
        if is_constant(value) or isinstance(value, types.ModuleType) or is_array_function(value):
            return
        if isinstance(value, (types.FunctionType, functools.partial)):
            self.function(value)
        elif isinstance(value, (*OPERATORS, CustomOpDef)):
            self.operator(value)
        elif is_triton_kernel(value):
            self.value(value.fn, what, ())  # a kernel, or what tunes one
        elif isinstance(value, type):
            if not is_stateless_library(value.__module__):
                raise MayRead(f"it reads {what}, a class")
        elif not is_native(value) or value in OUTWARD:
            raise MayRead(f"it reads {what}, a {type(value).__qualname__}")

    def operator(self, operator: Any) -> None:
        """Another operator, which it calls."""
        if isinstance(operator, CustomOpDef):
            operator = operator._opoverload
        if runs_python(operator):
            for function in functions_of(operator):
                self.function(function)


def functions_of(operator: Any) -> list[Any]:
    """The functions that run in forward."""
    definition = OPDEFS.get(qualified_name(operator))
    if definition is None:
        raise MayRead("its functions are not known")
    kernels = [definition._init_fn, *definition._backend_fns.values(), definition._setup_context_fn]
    return [function for function in kernels if function is not None]


def is_array_function(value: Any) -> bool:
    """NumPy's functions, which are objects."""
    return type(value).__name__ == "ufunc" and is_stateless_library(type(value).__module__)


def is_triton_kernel(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "triton" and hasattr(value, "fn")


def is_stateless_library(module: str | None) -> bool:
    return (module or "").partition(".")[0] in STATELESS


def read_names(
    code: types.CodeType, function: types.FunctionType, cells: dict[str, types.CellType]
) -> Iterator[tuple[str, Any, Any, tuple[str, ...]]]:
    """The outside names that code reads: where they are, their values, and the attributes that are read from them."""
    instructions = list(dis.get_instructions(code))
    for at, one in enumerate(instructions):
        name = one.argval
        if one.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            raise MayRead(f"{function.__qualname__} sets {name}")
        if one.opname == "IMPORT_NAME" and not is_stateless_library(name):
            raise MayRead(f"{function.__qualname__} imports {name}")
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            table = function.__globals__
            value = table.get(name, getattr(builtins, name, None))
        elif one.opname in ("LOAD_DEREF", "LOAD_CLOSURE", "LOAD_CLASSDEREF") and name in cells:
            table, value = cells[name], cell_value(cells[name])
        else:
            continue
        yield name, table, value, tuple(attributes_after(instructions, at))
