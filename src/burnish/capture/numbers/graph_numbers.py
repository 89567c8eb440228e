"""Graph numbers: Python numbers that a program reads from tensors and computes with, kept in the graph.

An optimizer that keeps its step count in a tensor reads it (``step.item()``), computes with it and passes the result to
a torch operation. Python need not know the number for that, so the computation is recorded like a torch call. The same
is done for numbers that the user's code reads (``.item()``, ``float(t)``, ``.tolist()``). One that is returned is an
output of the graph:

    step = step_t.item()                    item = step_t.item()
    bias = 1 - 0.9 ** step                  pow_1 = operator.pow(0.9, item);  sub = operator.sub(1, pow_1)
    p.addcdiv_(m, d, value=-lr / bias)      ...;  p.addcdiv_(m, d, value=truediv)

In the trace such a number is a live scalar (``live_scalars``) whose expression is a handle of the recorder. The segment
ends where Python needs the value, as for a text or a list index. The number is then a slot of the next segment. A
comparison becomes a guard if the number comes from a counter: a tensor to which the graph only adds constants before
the read. The guard computes the count in advance (RAdam changes its formula after five steps).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

import torch

from ...concurrency.outside_errors import reraise_from_outside
from ...foundation.torch_private import foreach_add_
from ...tensors.device_facts import is_host
from ...tensors.in_place_names import is_in_place_name
from .. import breaks
from ..engine.interpreted_or_native import is_trusted_namespace
from ..guards.tensor_metadata import TENSOR_TYPES
from ..python.operators import functions_called_by_guards
from ..pytorch import number_arguments, writes_of_calls
from . import assert_graph_numbers, live_scalars
from .assert_graph_numbers import as_tensor

# Recorded operations. All of these return a number for numbers, or raise.
RECORDED = frozenset(
    (
        *map(vars(operator).get, "add sub mul truediv floordiv mod pow neg pos abs and_ or_ xor invert".split()),
        *(abs, min, max, int, float, round),
        *map(vars(math).get, "sqrt exp log sin cos tan tanh atan atan2 hypot pow log1p log2 log10 fabs".split()),
        *(math.floor, math.ceil, math.trunc),
    )
)
SYMBOLIC = frozenset(
    (
        *map(vars(operator).get, "add sub mul truediv floordiv mod pow neg pos abs and_ or_ xor".split()),
        *(abs, round, math.floor, math.ceil, math.trunc),
    )
)
"""Those that a compiler of AOTAutograd's symbols takes without a number: not ``mod`` of floats."""
SYMBOLIC_TYPES = {int: torch.sym_int, float: torch.sym_float}
"""What compilers of AOTAutograd's symbols take for Python's own, which ask for the number."""
SAME_KIND = frozenset((min, max))  # the result has the type of one operand, so both must have the same type


class GraphNumber(live_scalars.Expression):
    """The expression of a graph number: the recorded call."""

    __slots__ = ("handle",)
    in_graph = True

    def __init__(self, handle: Any):
        super().__init__(_number_of_the_graph, ())
        self.handle = handle

    def render(self, writer: Any) -> str:
        text: str = writer.graph_number(self.handle)
        return text

    def words(self) -> str:
        return "a number read from a tensor"


class GraphText(live_scalars.Expression):
    """The expression of a text with graph numbers in it, as for a message: it is made after the graph has run."""

    __slots__ = ()
    in_graph = True

    @property
    def handle(self) -> Any:
        raise NotBeforehand


FORMATS = {
    format: re.compile("c$"),
    functions_called_by_guards.formatted: re.compile(r"%[^a-zA-Z%]*([hlL]?c|\*)"),
    str.format: re.compile(r"c\}|\{[^}]*\{"),
}
"""Operations that make texts by a format, and which formats may raise for other numbers."""
TEXTS = frozenset((str, repr, operator.add, functions_called_by_guards.join, *FORMATS))
"""Operations that make texts, and that never raise for a number of the same type (but for some formats)."""


def depends_on_number(operation: Callable, values: list) -> bool:
    """Whether a format makes a text only of some numbers."""
    if operation not in FORMATS:
        return False
    if FORMATS[operation].search(str(values[operation is format])):
        return True
    return not all(
        live_scalars.has_result(operation, *[one if type(value) is float else value for value in values])
        for one in (math.nan, math.inf)
    )


def _number_of_the_graph() -> None:
    raise AssertionError("a number of the graph is computed by the graph")


WITHOUT_NUMBERS = frozenset((torch.bool, torch.uint64, torch.complex32, torch.complex64, torch.complex128))
"""Dtypes of elements that are not live scalars, or that a compiled graph cannot hold as one."""
MOST_READ, MOST_READ_OF_CHOICE = 1024, 2
"""The most elements of a list that a graph reads one by one: where the alternative is an error or the program asks,
and elsewhere. A break reads longer lists faster."""


def is_called_by_torch(m: Any) -> bool:
    return m.frame is not None and is_trusted_namespace(m.frame.globals)


def may_read(m: Any) -> bool:
    """Whether numbers that the user's code reads may be part of the graph."""
    return m.options.keeps_numbers and m.options.keeps_data and m.region is None


def list_stays_in_graph(m: Any, tensor: Any) -> bool:
    """Whether ``tensor.tolist()`` is recorded here."""
    return (
        stays_in_graph(m, tensor, is_one=False)
        and not m.unbacked_sizes.has_unknown_size(tensor)
        and tensor.numel() <= (MOST_READ if m.options.fullgraph or not m.options.runs_python else MOST_READ_OF_CHOICE)
        and not is_called_by_torch(m)
    )


def stays_in_graph(m: Any, tensor: Any, is_one: bool = True) -> bool:
    """Whether reading the element of ``tensor`` is recorded here."""
    return (
        m.frame is not None
        and type(tensor) in TENSOR_TYPES
        and (not is_one or tensor.numel() == 1)
        and tensor.dtype not in WITHOUT_NUMBERS
        and not tensor.is_meta
        and (is_called_by_torch(m) or may_read(m))
        and m.knows(tensor)
    )


def read(m: Any, tensor: torch.Tensor) -> Any:
    """``tensor.item()`` as a graph number."""
    value = m.plainly(tensor.item)
    m.recorder.seen += 1
    handle = m.recorder.number("item", (tensor,))
    m.unbacked_sizes.note_number(handle, value)
    if not is_called_by_torch(m):
        m.recorder.read_by_user.add(handle.call)
    return live_scalars.make(value, GraphNumber(handle), m)


def is_converted_in_graph(m: Any, tensor: Any) -> bool:
    """Whether ``float(tensor)`` is recorded here. Torch warns if gradients flow to the tensor: once, or every time."""
    return stays_in_graph(m, tensor) and not (
        tensor.requires_grad and torch.is_warn_always_enabled() and not is_called_by_torch(m)
    )


def read_converted(m: Any, kind: type, tensor: torch.Tensor) -> Any:
    """``float(tensor)`` or ``int(tensor)``."""
    if tensor.requires_grad:
        m.plainly(kind, tensor)  # for the warning
    number = read(m, tensor)
    return number if type(number.plain()) is kind else m.plainly(live_scalars.apply, kind, number)


def read_list(m: Any, tensor: torch.Tensor) -> Any:
    """``tensor.tolist()``: each element is read from a tensor of its own."""
    if tensor.ndim == 0:
        return read(m, tensor)
    if m.symbolic_sizes is not None:
        m.symbolic_sizes.specialize_sizes(tensor)
    flat = m.perform(torch.Tensor.detach, tensor) if tensor.requires_grad else tensor
    if not is_host(tensor.device):
        flat = m.perform(torch.Tensor.cpu, flat)  # one transfer for all elements
    if tensor.ndim > 1:
        flat = m.perform(torch.Tensor.reshape, flat, -1)
    elements = iter(m.perform(torch.Tensor.unbind, flat) if tensor.numel() else ())

    def part(shape: tuple[int, ...]) -> Any:
        return [part(shape[1:]) for _ in range(shape[0])] if shape else read(m, next(elements))

    return part(tuple(tensor.shape))


def tensor_of(m: Any, args: tuple, kwargs: dict) -> Any:
    """``torch.tensor`` or ``torch.as_tensor`` of a live number, or of a list with some; None for any other call."""
    content = args[0] if len(args) == 1 else None
    if is_graph_truth(content) and kwargs.keys() <= {"dtype", "device"}:
        from . import truths_of_graph_numbers

        return truths_of_graph_numbers.tensor_of(m, content, kwargs)
    numbers = content if type(content) in (list, tuple) else (content,)
    live = [number for number in numbers if type(number) in (live_scalars.LiveInt, live_scalars.LiveFloat)]
    if not live or not kwargs.keys() <= {"dtype", "device"}:
        return None
    if not all(type(number) in (int, float) or isinstance(number, live_scalars.Live) for number in numbers):
        return None
    filled = numbers if any(map(is_graph_number, live)) else filled_alike(numbers, kwargs.get("dtype"))
    if filled is None:
        return None
    values = list(map(live_scalars.plain_of, numbers))
    made = m.plainly(torch.as_tensor, values, **kwargs)
    tensors = [as_tensor(m, number, made.dtype, made.device) for number in filled]
    return tensors[0] if numbers is not content else m.perform(torch.stack, tensors)


def filled_alike(numbers: Any, dtype: torch.dtype | None) -> Any:
    """The numbers from which ``torch.full`` makes the tensor that ``torch.tensor`` makes from these. The latter
    converts numbers that do not fit without a check, and raises errors of its own. None if there are none."""
    has_float = any(isinstance(number, float) for number in numbers)
    dtype = dtype or (torch.get_default_dtype() if has_float else torch.int64)
    if dtype.is_floating_point:
        filled = [as_filled(number, dtype) for number in numbers]
        return None if any(number is None for number in filled) else filled
    return numbers if dtype is torch.int64 and not has_float and all(map(fits_in_64_bits, numbers)) else None


def as_filled(number: Any, dtype: torch.dtype) -> Any:
    most = torch.finfo(dtype).max
    if not live_scalars.has_result(float, number):
        return None
    if dtype is not torch.float64 and not ask_graph_number(is_within, number, most):
        return (math.inf if number > 0 else -math.inf) if ask_graph_number(is_beyond, number, most) else None
    return number if isinstance(number, float) or fits_in_64_bits(number) else ask_graph_number(float, number)


def is_within(number: float, most: float) -> bool:
    return not abs(number) > most or number in (math.inf, -math.inf)


def is_beyond(number: float, most: float) -> bool:
    """Whether a number is too large to be rounded to the largest one."""
    return abs(number) >= 2 * most


def ask_graph_number(question: Callable, number: Any, *limits: Any) -> Any:
    if isinstance(number, live_scalars.Live):
        return live_scalars.apply(question, number, *limits)
    return question(number, *limits)


def fits_in_64_bits(number: Any) -> bool:
    answer: bool = ask_graph_number(is_word, number)
    return answer


def is_word(number: int) -> bool:
    return -(1 << 63) <= number < 1 << 63


def is_graph_number(value: Any) -> bool:
    return issubclass(type(value), live_scalars.Live) and value.expression.in_graph


def is_graph_truth(value: Any) -> bool:
    return is_graph_number(value) and type(value.plain()) is bool


def in_tensors_type(m: Any, value: Any, tensor: Any) -> Any:
    """A graph number that is written to a tensor, as a tensor of the same type; any other value as it is."""
    if not is_graph_number(value) or type(tensor) not in TENSOR_TYPES:
        return value
    return as_tensor(m, value, tensor.dtype, tensor.device)


def is_recorded(m: Any, operation: Callable | None, values: list) -> bool:
    """Whether the graph computes ``operation``. Where only Dynamo's setting asks for numbers, a break is better than
    an error of a backend that does not know it."""
    if operation not in RECORDED or operation in SAME_KIND and len(set(map(type, values))) > 1:
        return False
    if m.options.fullgraph or not (m.options.shows_operators and m.options.keeps_numbers):
        return True
    return operation in SYMBOLIC and not (operation is operator.mod and float in map(type, values))


def apply(m: Any, operation: Callable | None, operands: tuple) -> Any:
    """``operation(*operands)`` with at least one graph number among the operands."""
    values = list(map(live_scalars.plain_of, operands))
    if bool in map(type, values) and any(is_graph_truth(operand) for operand in operands):
        refuse(m)
    if operation in SAME_KIND and len(operands) == 2 and type(values[0]) is not type(values[1]):
        # The result is one of the operands, unchanged: which one is guarded in advance.
        first, second = operands
        return second if apply(m, operator.gt if operation is max else operator.lt, (second, first)) else first
    if operation is operator.pow:
        operation = power(operands, values)
    if operation in SYMBOLIC_TYPES and len(operands) == 1 and type(values[0]) is operation:
        return operands[0]
    if is_recorded(m, operation, values):
        try:
            value = operation(*values)
        except Exception as error:
            reraise_from_outside(error)
            value = None  # an error for this run's numbers; reporting it needs the numbers
        if type(value) in (int, float):
            if m.options.shows_operators:
                operation = SYMBOLIC_TYPES.get(operation, operation)
            return live_scalars.make(value, GraphNumber(m.recorder.number(operation, operands)), m)
    if operation in TEXTS and not depends_on_number(operation, values):
        text = m.plainly(operation, *values)
        if type(text) is str:
            parts = tuple(o.expression if isinstance(o, live_scalars.Live) else o for o in operands)
            return live_scalars.make(text, GraphText(operation, parts), m)
    if operation is divmod:
        return apply(m, operator.floordiv, operands), apply(m, operator.mod, operands)
    if operation in QUESTIONS and not any(issubclass(type(value), str) for value in values):
        try:
            question = live_scalars.Expression(operation, tuple(before_the_graph(m, o) for o in operands))
        except NotBeforehand:
            pass
        else:
            answer = bool(operation(*values))
            if question.sources():
                m.guard_outcome(question, answer)
            return answer
        checked = assert_graph_numbers.outcome(m, operation, operands)
        if checked is None and m.options.fullgraph:
            from . import truths_of_graph_numbers  # few programs pass a comparison on

            checked = truths_of_graph_numbers.compare(m, operation, operands)
        if checked is not None:
            return checked
    for operand in operands:
        live_scalars.settled(operand)
    raise AssertionError("a number of the graph has been settled")


def power(operands: tuple, values: list) -> Callable | None:
    """The operation for ``base ** exponent``, with a result of the same type for all numbers; None if there is none.
    Python's own returns a complex number for some negative bases, and a float for some whole numbers."""
    base, exponent = operands
    if not all(isinstance(value, (int, float)) for value in values):
        return None  # a complex number, a Decimal: Python computes it
    is_base_live, is_exponent_live = (isinstance(operand, live_scalars.Live) for operand in operands)
    if float not in map(type, values):
        return operator.pow if not is_exponent_live and exponent >= 0 else None
    if not is_exponent_live and float(values[1]).is_integer() or not is_base_live and base > 0:
        return operator.pow
    return math.pow


def refuse(m: Any) -> None:
    """Python needs the number itself."""
    m.stop(breaks.LIVE_VALUE, "a number read from a tensor")


def settle_numbers(m: Any, value: Any, depth: int = 0) -> None:
    """Torch is about to take numbers in a place where the graph cannot provide them."""
    if issubclass(type(value), live_scalars.Live):
        if value.expression.in_graph:
            refuse(m)
    elif issubclass(type(value), (tuple, list)) and depth < 4:
        for part in value:
            settle_numbers(m, part, depth + 1)


# ---- numbers that are known before the graph runs


class NotBeforehand(Exception):
    """The number is unknown until the graph has run."""


TRUTH = operator.truth
QUESTIONS = frozenset((operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne, operator.truth))


def before_the_graph(m: Any, value: Any) -> Any:
    """A live scalar as an expression over sources, or a constant."""
    if not issubclass(type(value), live_scalars.Live):
        return value
    return of_handle(m, value.expression.handle) if value.expression.in_graph else value.expression


def of_handle(m: Any, handle: Any) -> Any:
    if handle.call is None:
        if isinstance(handle.source, live_scalars.Expression):
            return handle.source
        raise NotBeforehand
    call = m.recorder.calls[handle.call]
    if call.target == "item":
        if handle.call in m.recorder.read_by_user and writes_of_calls.changes_before(m.recorder.calls, handle.call):
            raise NotBeforehand  # the write may be to the same memory; optimizers keep their counters apart
        return of_counter(m, call.args[0], handle.call)
    if call.target not in RECORDED:
        raise NotBeforehand
    return live_scalars.Expression(call.target, tuple(of_handle(m, a) if is_handle(a) else a for a in call.args))


def of_counter(m: Any, tensor: Any, end: int) -> Any:
    """The result of ``item()`` on a tensor after ``end`` calls."""
    calls = m.recorder.calls
    added = []
    for call in calls[:end]:
        if makes_something_new(call):
            continue
        first = call.args[0] if call.args else None
        others = (*call.args[1:], *call.kwargs.values())
        if any(tensor is a or issubclass(type(a), (list, tuple)) and any(tensor is part for part in a) for a in others):
            raise NotBeforehand
        is_one_of = isinstance(first, (list, tuple)) and any(tensor is part for part in first)
        if call.target == "add_" and first is tensor or call.target is foreach_add_ and is_one_of:
            added.append((constant_of(m, call.args[1]), call.kwargs.get("alpha", 1)))
        elif call.target != "item" and (first is tensor or is_one_of):
            raise NotBeforehand
    start = live_scalars.Expression(None, (tensor.source,)) if tensor.call is None else constant_of(m, tensor)
    return live_scalars.Expression(counted, (start, tuple(added)))


def makes_something_new(call: Any) -> bool:
    """Whether a call computes only from its arguments, writes to none of them, and returns no alias of them."""
    name = call.target if isinstance(call.target, str) else getattr(call.target, "__name__", "_")
    return (
        (name in number_arguments.VALUE_CALLS or name == "clone")
        and not is_in_place_name(name)
        and name != "dropout"
        and "out" not in call.kwargs
    )


CONSTANTS = (torch.tensor, torch.as_tensor, torch.ones, torch.zeros)


def constant_of(m: Any, value: Any) -> Any:
    """A number that is written in the program, or a tensor made from one."""
    if not is_handle(value):
        return value
    call = None if value.call is None or value.path else m.recorder.calls[value.call]
    if call is None or call.target not in CONSTANTS or any(map(is_handle, (*call.args, *call.kwargs.values()))):
        raise NotBeforehand
    return call.target(*call.args, **call.kwargs)


def counted(start: torch.Tensor, added: tuple) -> Any:
    count = start.detach().clone()
    for number, factor in added:
        count.add_(number, alpha=factor)
    return count.item()


def is_handle(value: Any) -> bool:
    return hasattr(value, "call") and hasattr(value, "source")
