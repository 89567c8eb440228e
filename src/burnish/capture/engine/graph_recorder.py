"""The graph recorder: records the torch calls of a segment.

While a segment is traced, a ``TorchFunctionMode`` sees every torch call, from interpreted code and from C code
(``sum([t, u])`` adds tensors without our interpreter noticing). Each call runs for real and is recorded with handles
for its tensors: a graph input, or the result of an earlier call. ``build_fx_graph`` makes an FX graph of the list.

Some calls run but cannot be recorded. They return tensor data to Python (``bool(t)``, ``t.item()``), have an output
size that depends on data, or change a tensor in a way that a graph cannot express. They set ``pending_break``: the
tracer then ends the segment before the instruction that caused it.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable
from time import perf_counter
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...captured_graph.warnings_already_given import CALL
from ...foundation.torch_private import tree_leaves
from ...runtime.argument_trees import tensors_in
from ...tensors.collective_operators import is_wait
from .. import breaks
from ..guards.immutable_builtin_subclasses import base_of_value, value_of
from ..guards.predict_growing_sizes import grown_dim
from ..guards.tensor_metadata import TENSOR_TYPES, has_history, has_no_strides, has_rules, is_tensor
from ..interpreter.emulated_frames import at_line
from ..interpreter.program_or_tracer_errors import internal
from ..numbers import constant_arrays, numpy_tables, object_addresses, specialize_inexact_scalars
from ..numbers.detect_implicit_item_reads import ReadNumbers, may_read
from ..numbers.live_scalars import Expression, Live, guard_fit
from ..numbers.min_max_of_tensors import storage_of
from ..python.messages import warning_filters
from ..pytorch import function_modes, number_arguments, torch_call_roles
from ..pytorch.torch_call_roles import IMMEDIATE
from ..pytorch.writes_of_calls import version_of
from ..subclasses import interpret_rules
from ..subclasses.subclass_tensors import subclasses_in
from ..symbolic_sizes import unbacked_sizes
from .torch_call_records import Handle, NotRecordable, TorchCall

_new_call = tuple.__new__


# Classes that torch accepts as dtypes. A graph's code cannot name them.
DTYPE_OF = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
MOST_NAMED = 1024  # elements of a range
FUNCTIONS = (FunctionType, BuiltinFunctionType)  # a graph's text cannot name functions, torch's own included
LEGACY_TYPE: type = type(torch.HalfTensor)


def _named(value: Any) -> Any:
    """A class among the arguments of a torch function, replaced by something that code can name."""
    kind = type(value)
    if kind is LEGACY_TYPE:
        return f"{value.__module__}.{value.__name__}"
    if kind is type:
        return DTYPE_OF.get(value, value)
    return list(value) if kind is range and len(value) <= MOST_NAMED else value


GIVEN_BY_VALUE = frozenset((int, float, complex, str))
"""Torch reads objects of classes that derive from these past the methods of the classes."""


class Recorder(TorchFunctionMode):
    def __init__(self, tracer: Any):
        super().__init__()
        self.tracer = tracer
        # Random calls must draw the numbers that the backend's code will draw.
        self.perform = getattr(tracer.options.backend, "perform", None) or CALL
        self.calls: list[TorchCall] = []
        self.warnings: dict = {}  # that these have given
        self.known: dict[int, tuple[Any, Handle]] = {}
        self.inputs: list[Handle] = []
        self.input_of: dict[int, Handle] = {}
        self.examples: list[Any] = []
        self.versions: list[int] = []
        self.nodes_before: list[Any] = []  # autograd nodes or None: the history of inputs, not made by this segment
        self.data_read: list[torch.Tensor] = []  # results of ``x.data``, which count their writes themselves
        self.clones: dict[int, list[tuple[int, Handle]]] = {}
        self.pending_break: tuple[breaks.BreakKind, str] | None = None
        self.regions: list[tuple[int, int, bool, list[Handle]]] = []  # of checkpointed calls: from, to, whether they
        # draw random numbers, and which arguments they got
        self.groups: list[tuple] = []  # calls, effects and random state before functions that may become one node
        self.kept: list[Any] = []  # tables of tensors that functions of torch hold: see lowered_calls
        self.seconds = 0.0  # spent in torch; eager spends it as well
        self.takes_numbers = False  # NumPy scalars are accepted as if they were Python numbers
        self.keeps_numbers = False  # those given to a library's operator may vary: see torch_library_operators
        self.facts_read: set[str] = set()  # by name: what the program has asked about tensors
        self.read_by_user: set[int] = set()  # calls that read a number for the user's code
        self.unstrided: set[int] = set()  # calls that return tensors without strides, such as sparse ones
        self.name, self.filled = "", None  # of the call that is being recorded, and the dtype that its number must fit
        self.takes_sizes = False  # graph numbers are accepted as sizes: see unbacked_sizes
        self.seen = 0  # torch calls
        self.grown: dict[int, int] = {}  # `torch.cat` calls with an empty operand, and along which dimension
        self.shown: list[tuple[Any, tuple, dict]] | None = None  # what the mode receives, where a caller wants to know

    # ---- calls that the mode receives

    @internal
    def __torch_function__(self, func: Any, kinds: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if self.shown is not None:
            self.shown.append((func, args, kwargs or {}))
        if self.tracer.modes:
            if self.pending_break is None:
                from ..subclasses import interpret_function_modes  # few programs enter any

                return interpret_function_modes.call(self.tracer, func, kinds, args, kwargs)
            return function_modes.call_natively(self.tracer, func, args, kwargs)
        if self.pending_break is None and (
            not TENSOR_TYPES.issuperset(kinds) or next(subclasses_in((args, kwargs)), None) is not None
        ):
            return interpret_rules.call(self.tracer, func, kinds, args, kwargs)
        return self.call(func, args, kwargs or {}, func, args, kwargs or {})

    def call(self, function: Any, args: tuple, kwargs: dict, shown: Any, shown_args: tuple, shown_kwargs: dict) -> Any:
        """Perform ``function(*args, **kwargs)``. To modes it looks like ``shown(*shown_args, **shown_kwargs)``."""
        self.seen += 1
        if self.tracer.region is not None:
            given = self.tracer.region.will_call(shown, shown_args, shown_kwargs)
            if given is not None:  # those shown may begin with the tensor of a bound method
                args, kwargs = given[0][len(given[0]) - len(args) :], given[1]
        if self.tracer.filters:
            function = warning_filters.listening(self, function)
        function, started = at_line(self.tracer.frame, function, self.warnings), perf_counter()
        sizes = self.sizes_outside(shown_kwargs["out"]) if "out" in shown_kwargs else ()
        try:
            if may_read(shown, args, kwargs):
                with ReadNumbers() as read:
                    result = self.perform(function, args, kwargs)
                if read.any and self.pending_break is None:
                    self.pending_break = torch_call_roles.why_sized_by_data(shown, shown_args, shown_kwargs)
            else:
                result = self.perform(function, args, kwargs)
        except Exception as error:
            self.tracer.program_error = error
            raise
        self.seconds += perf_counter() - started
        if self.tracer.options.exports and torch_call_roles.is_unchanged_by_layout(
            shown, shown_args, shown_kwargs, result
        ):
            result = result.view_as(result)
        if sizes and sizes != self.sizes_outside(shown_kwargs["out"]) and self.pending_break is None:
            self.pending_break = breaks.TENSOR_STATE, f"{torch_call_roles.name_of(shown)}(out=…) of another size"
        self.pending_break = self.pending_break or torch_call_roles.why_not_leaf(self.tracer, result)
        if self.pending_break is None and not (
            type(result) is torch.Tensor
            and not self.tracer.unbacked_sizes.has_sizes
            and self.try_record_plain_call(shown, shown_args, shown_kwargs, result)
        ):
            self.pending_break = self.why_not_record(shown, shown_args, shown_kwargs, result)
        return result

    def sizes_outside(self, out: Any) -> list[torch.Size]:
        """Those of the tensors from outside that a call may resize, as `resize_` does."""
        return [x.shape for x in tensors_in(out) if id(x) in self.tracer.origins]

    def try_record_plain_call(self, func: Any, args: tuple, kwargs: dict, result: torch.Tensor) -> bool:
        """Fast path: record the most common kind of call, with only tensors and constants as arguments and a new tensor
        as result. Returns False for other calls."""
        known = torch_call_roles.known(func)
        if not known.is_plain or id(result) in self.tracer.origins:
            return False
        table, values = self.known, []
        for value in (*args, *kwargs.values()) if kwargs else args:
            if type(value) not in IMMEDIATE:
                entry = table.get(id(value))
                if entry is not None and entry[0]() is value:
                    value = entry[1]
                elif type(value) in TENSOR_TYPES:
                    origin = self.tracer.origins.get(id(value))
                    if origin is None or origin.obj is not value:
                        return False
                    value = self.input_of.get(id(origin.source)) or self.input(origin.source, value)
                elif not (type(value) is tuple and IMMEDIATE.issuperset(map(type, value))):
                    return False
            values.append(value)
        count = len(args)
        names = dict(zip(kwargs, values[count:], strict=True)) if kwargs else {}
        entry = table.get(id(result))
        if entry is not None and entry[0]() is result:
            return False  # an existing tensor: the call changed it, or returned it
        calls = self.calls
        if has_no_strides(result):
            self.unstrided.add(len(calls))
        table[id(result)] = (weakref.ref(result), Handle(len(calls)))
        calls.append(_new_call(TorchCall, (known.target, tuple(values[:count]), names, self.tracer.user_line())))
        return True

    def guard_place(self, question: Callable, tensor: torch.Tensor) -> None:
        """Guard the answer for all tensors from outside with the memory of ``tensor``, which may be a view of them."""
        place = storage_of(tensor)
        for origin in list(self.tracer.origins.values()):
            outside = origin.obj
            if type(outside) in TENSOR_TYPES and storage_of(outside) == place:
                asked = Expression(question, (Expression(None, (origin.source,)),))
                self.tracer.guard_outcome(Expression(operator.eq, (asked, question(outside))), True)

    def why_not_record(self, func: Any, args: tuple, kwargs: dict, result: Any) -> tuple | None:
        """Record the call, or return the break that it causes."""
        known, unbacked, is_source, changed = torch_call_roles.known(func), self.tracer.unbacked_sizes, False, None
        if not known.is_plain or type(result) not in TENSOR_TYPES:
            role, what = torch_call_roles.role_of(func, args, kwargs, result)
            if role is breaks.DATA_SHAPE:
                is_source = unbacked.takes(func, args, kwargs, result)
                role = torch_call_roles.RECORD if is_source else role
            if role == torch_call_roles.FACT:
                self.facts_read.add(what)
                given = (*args, *kwargs.values())
                if what not in torch_call_roles.SIZELESS and any(map(unbacked.has_unknown_size, given)):
                    return breaks.DATA_SHAPE, f"{what} of a tensor whose size depends on the data"
                self.guard_rules(func, args, kwargs, result)
                if what in torch_call_roles.NOT_IN_GUARDS and given and type(given[0]) in TENSOR_TYPES:
                    self.guard_place(torch_call_roles.NOT_IN_GUARDS[what], given[0])
                if self.tracer.symbolic_sizes is not None and what not in torch_call_roles.SIZELESS:
                    for value in given:
                        self.tracer.symbolic_sizes.specialize_sizes(value)
                return None
            if role != torch_call_roles.RECORD:
                if not (args and args[0] is result and self.changes_its_own(torch_call_roles.name_of(func), result)):
                    return role, what
                changed = result
        if type(result) in (tuple, list) and self.tracer.symbolic_sizes is not None:
            self.tracer.symbolic_sizes.specialize_split(torch_call_roles.name_of(func), args, kwargs)
        try:
            named_args = tuple(map(_named, args))
            named_kwargs = {k: _named(v) for k, v in kwargs.items()} if kwargs else kwargs
            self.record(known.target, named_args, named_kwargs, result, known.takes_live_numbers or self.keeps_numbers)
        except NotRecordable as why:
            kind = breaks.UNKNOWN_TENSOR if "tensor" in str(why) else breaks.OPAQUE_CALL
            return kind, f"{torch_call_roles.name_of(func)}: {why}"
        if changed is not None:  # from here on the object is what this call returns, with another shape
            self.known[id(changed)] = (weakref.ref(changed), Handle(len(self.calls) - 1))
        if is_source:
            unbacked.note_call(len(self.calls) - 1, torch_call_roles.name_of(func), args, kwargs, result)
        elif unbacked.has_sizes:
            structure = unbacked.why_not_structure(torch_call_roles.name_of(func), len(self.calls) - 1, result)
            if structure is not None:
                return breaks.DATA_SHAPE, f"{torch_call_roles.name_of(func)}: {structure}"
        return None

    def changes_its_own(self, name: str, tensor: Any) -> bool:
        """Whether a call changes a tensor object that the graph makes and that nothing outside holds, in a way that can
        be recorded. Torch's own tracer refuses ``detach_``."""
        return (
            (name in torch_call_roles.STATE_IN_GRAPH or name == "detach_" and self.tracer.options.runs_python)
            and type(tensor) is torch.Tensor
            and id(tensor) not in self.tracer.origins
            and self.handle_of(tensor) is not None
        )

    def guard_rules(self, func: Any, args: tuple, kwargs: dict, result: Any) -> None:
        """Guard a fact that a user's tensor class computes itself: it may return something else for the same tensor."""
        if not kwargs and args and has_rules(args[0]):
            origin = self.tracer.origins.get(id(args[0]))
            if origin is not None and origin.obj is args[0]:
                asked = Expression(func, (Expression(None, (origin.source,)), *args[1:]))
                self.tracer.heap.guard("outcome", None, (Expression(operator.eq, (asked, result)), True))

    def record(self, target: Any, args: tuple, kwargs: dict, result: Any, live_allowed: bool) -> None:
        argument = self.argument
        if args and type(args[-1]) is torch.Size and torch_call_roles.OF_SIZE_OR_DATA.get(target) == len(args):
            if not args[-1]:
                raise NotRecordable("a torch.Size of no dimensions")
            args = (*args[:-1], *args[-1])  # in a graph it would become a tuple
        name = self.name = torch_call_roles.name_of(target)
        self.filled = result.dtype if name in number_arguments.FILLS and is_tensor(result) else None
        at, keyword = number_arguments.value_argument(self.tracer.options, name)
        self.takes_sizes = unbacked_sizes.takes_sizes(self.tracer, name)
        self.takes_numbers = name not in torch_call_roles.BY_ELEMENT_TYPE
        if name in constant_arrays.TAKE_DTYPE and constant_arrays.are_constants(self.tracer, args):
            self.takes_numbers, kwargs = True, {**kwargs, "dtype": result.dtype}
        if name in number_arguments.FILLED:
            live_allowed = number_arguments.is_filled_by_number(name, args, kwargs)
        args, kwargs = specialize_inexact_scalars.with_exact_numbers(name, args, kwargs)
        call = TorchCall(
            target,
            tuple([a if type(a) in IMMEDIATE else argument(a, live_allowed or k == at) for k, a in enumerate(args)]),
            {k: argument(v, live_allowed or k == keyword) for k, v in kwargs.items()},
            self.tracer.user_line(),
        )
        if target is torch.cat and (dim := grown_dim(args, kwargs, result)) is not None:
            self.grown[len(self.calls)] = dim
        place = self.add(call)
        if getattr(target, "torch_attribute", None) == "data":
            self.data_read.append(result)
        if is_wait(target):
            self.known.pop(id(result), None)  # it returns its argument, and later uses depend on the wait
        self.register(result, place)

    def add(self, call: TorchCall) -> Handle:
        self.calls.append(call)
        return Handle(len(self.calls) - 1)

    def register(self, value: Any, handle: Handle) -> None:
        """Remember which values a recorded call produced."""
        if is_tensor(value):
            if type(value) in TENSOR_TYPES and has_no_strides(value):
                self.unstrided.add(handle.call)  # type: ignore[arg-type]
            if self.handle_of(value) is None and id(value) not in self.tracer.origins:
                self.known[id(value)] = (weakref.ref(value), handle)
        elif isinstance(value, (tuple, list)):
            for i, part in enumerate(value):
                self.register(part, Handle(handle.call, (*handle.path, i)))
        elif isinstance(value, dict):
            for key, part in value.items():
                self.register(part, Handle(handle.call, (*handle.path, key)))

    def register_object(self, value: Any, handle: Handle) -> None:
        """A value that is not a tensor but belongs to the graph, such as the object of a grad mode."""
        self.known[id(value)] = ((lambda: value), handle)

    def handle_of(self, value: Any) -> Handle | None:
        entry = self.known.get(id(value))
        return entry[1] if entry is not None and entry[0]() is value else None

    def argument(self, value: Any, live_allowed: bool = False) -> Any:
        """A call's argument, with tensors replaced by handles."""
        kind = type(value)
        if kind in IMMEDIATE:
            return value
        if kind in TENSOR_TYPES or is_tensor(value):
            return self.tensor(value)
        if isinstance(value, Live):
            return self.live_argument(value, live_allowed)
        if kind is tuple or kind is list or kind is torch.Size:
            return (list if kind is list else tuple)(self.argument(v, live_allowed) for v in value)
        if kind is dict:
            return {k: self.argument(v, False) for k, v in value.items()}
        if kind is slice:
            return slice(self.argument(value.start), self.argument(value.stop), self.argument(value.step))
        if (handle := self.handle_of(value)) is not None:
            return handle
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return tuple(self.argument(v, False) for v in value)
        if kind in numpy_tables.GIVEN_TO_TORCH and self.takes_numbers:
            if not constant_arrays.may_vary(self.tracer, value):
                return value.item()
            live = constant_arrays.as_live_scalar(self.tracer, value) if live_allowed else None
            if live is not None:
                return self.argument(live, live_allowed)
            if constant_arrays.are_settled(self.tracer, [value]):
                return value.item()
        if self.tracer.is_constant(value) and not isinstance(value, FUNCTIONS):
            return value
        if base_of_value(kind) in GIVEN_BY_VALUE:
            return value_of(value)
        raise NotRecordable(f"an argument of type {kind.__name__}")

    def live_argument(self, value: Live, live_allowed: bool) -> Any:
        if object_addresses.is_in(value.expression):
            raise NotRecordable("the address of an object")
        if isinstance(value, str) or getattr(self.tracer.region, "settles", lambda number: False)(value):
            return value.settle()
        if value.expression.in_graph and not live_allowed:
            if not self.takes_sizes:
                raise NotRecordable("a number read from a tensor")  # as an argument that determines later shapes
            self.tracer.unbacked_sizes.has_sizes = True
            return self.live_input(value)
        sizes = self.tracer.symbolic_sizes
        if sizes is not None and (sizes.symbols.takes(value) if live_allowed else sizes.takes(value, self.name)):
            return self.live_input(sizes.symbols.one_of(value))
        return self.live_input(value) if live_allowed else value.settle()

    def tensor(self, value: torch.Tensor) -> Handle:
        if (handle := self.handle_of(value)) is not None:
            return handle
        origin = self.tracer.origins.get(id(value))
        if origin is None or origin.obj is not value:
            raise NotRecordable("a tensor that came from code capture did not see")
        return self.input(origin.source, value)

    def input(self, source: Any, value: Any) -> Handle:
        handle = self.input_of.get(id(source))
        if handle is None:
            handle = self.input_of[id(source)] = Handle(None, (), source, len(self.inputs))
            self.inputs.append(handle)
            self.examples.append(value)
            self.versions.append(version_of(value))
            self.nodes_before.append(_node_of(value) if has_history(value) else None)
        return handle

    def clone_at(self, handle: Handle, position: int) -> Handle:
        """A copy of a value as it was after ``position`` calls: a clone node, for effects that expose the value."""
        number = sum(map(len, self.clones.values()))
        self.clones.setdefault(position, []).append((number, handle))
        return Handle(("clone", number))  # type: ignore[arg-type]

    def versions_in(self, tree: Any) -> dict[int, int]:
        return {id(x): version_of(x) for x in tree_leaves(tree) if type(x) in TENSOR_TYPES}

    def note_versions(self, count: int, before: dict[int, int]) -> None:
        """The inputs from ``count`` on came with a call that may have written to them. ``before``: versions by id."""
        for at in range(count, len(self.inputs)):
            self.versions[at] = before.get(id(self.examples[at]), self.versions[at])

    def live_input(self, value: Any) -> Handle:
        expression = value.expression
        if type(value.plain()) is bool:  # a truth of graph numbers is no argument of a node
            value.settle()
        guard_fit(value, self.filled)
        return expression.handle if expression.in_graph else self.input(expression, value.plain())

    def number(self, target: Any, operands: tuple) -> Handle:
        """Record a call that returns a Python number."""
        return self.add(TorchCall(target, tuple(self.argument(o, True) for o in operands), {}, self.tracer.user_line()))

    def new_call(self, target: Any, args: tuple, line: str | None) -> TorchCall:
        return TorchCall(target, args, {}, line)

    # ---- marks, to undo the calls of one instruction

    def mark(self) -> tuple[int, int]:
        return len(self.calls), len(self.inputs)

    def undo_to(self, mark: tuple[int, int]) -> None:
        if len(self.calls) > mark[0]:
            del self.calls[mark[0] :]
            self.tracer.unbacked_sizes.forget(mark[0])
            self.forget_sizes(mark[0])
            self.read_by_user = {call for call in self.read_by_user if call < mark[0]}
            self.unstrided = {call for call in self.unstrided if call < mark[0]}
        if self.tracer.symbolic_sizes is not None:
            self.tracer.symbolic_sizes.forget_regions(mark[0])
        self.grown = {call: dim for call, dim in self.grown.items() if call < mark[0]}
        self.forget_inputs(mark[1])

    def forget(self, calls: int, inputs: int) -> None:
        """Undo the calls of one part of an instruction, whose values the rest of it must not use."""
        self.undo_to((calls, inputs))
        for key, (_, handle) in list(self.known.items()):
            if handle.key >= inputs if handle.call is None else isinstance(handle.call, int) and handle.call >= calls:
                del self.known[key]
        self.tracer.subclasses.forget(self)

    def drop_calls(self, start: int) -> None:
        """Forget the calls from this one on, and their values."""
        for key, (_, handle) in list(self.known.items()):
            if isinstance(handle.call, int) and handle.call >= start:
                del self.known[key]
        del self.calls[start:]
        self.unstrided = {call for call in self.unstrided if call < start}
        self.forget_sizes(start)

    def forget_sizes(self, start: int) -> None:
        if self.tracer.symbolic_sizes is not None:
            self.tracer.symbolic_sizes.forget_calls(start)

    def forget_inputs(self, count: int) -> None:
        """Keep only the first ``count``."""
        for handle in self.inputs[count:]:
            del self.input_of[id(handle.source)]
        for inputs in (self.inputs, self.examples, self.versions, self.nodes_before):
            del inputs[count:]


def _node_of(value: torch.Tensor) -> Any:
    try:
        return value.grad_fn
    except RuntimeError:  # a view whose base was written to: it cannot be differentiated through
        return None
