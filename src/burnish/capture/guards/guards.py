"""Guards: the conditions under which a segment may run again, and the generated function that checks them.

A guard is data: a kind, the source it looks at, what it expects. ``CheckWriter`` turns a list of them, in the order in
which the trace met them, into the source of one Python function

    def check(S):
        v0 = S[0]
        if type(v0) is not k1: return None
        ...
        return (graph inputs), (values the exit needs)

so a hit costs straight-line code. Every prerequisite (the type) is checked before a read relies on it.
``first_failure`` evaluates the same guards one by one to say which failed.
"""

from __future__ import annotations

import functools
import keyword
import math
import operator
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any, NamedTuple

import torch

from ...concurrency.outside_errors import reraise_from_outside
from ...tensors.tensor_types import is_leaf
from ..interpreter.reads_past_overrides import dict_of
from ..numbers.numpy_tables import tensor_of_array
from . import read_native_iterators
from .container_reads_past_overrides import base_of, elements_of, length_of
from .object_sources import Source
from .set_iteration_order import ByIdentity, SameObjects, has_other_layout, is_remembered, remembered
from .tensor_metadata import (
    FACT_NAMES,
    STATE_NAMES,
    TENSOR_TYPES,
    SameManyTensors,
    SameState,
    SameTensors,
    global_state,
    is_comparable,
    open_facts,
    plain_view,
    tensor_facts,
)

WRITTEN = 10**100
MISSING_ERRORS = (KeyError, AttributeError, IndexError, TypeError, ValueError, ArithmeticError)


class Guard(NamedTuple):
    kind: str
    source: Source | None
    expected: Any = None


@functools.lru_cache(256)
def code_of(text: str, name: str) -> CodeType:
    """Cached: the checks of equal modules differ only in their constants."""
    return compile(text, f"<burnish {name}>", "exec")


def refuse(slots: list) -> None:
    """What a failing check calls when no other check is to follow."""


class CheckWriter:
    """Writes Python source that reads sources into variables and tests guards on them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.conditions: list[str] = []  # guards not written yet: adjacent ones become one `if`
        self.kept: set[int] = set()  # sources that code after the guards needs in a variable
        self.names: dict[int, str] = {}
        self.constants: dict[str, Any] = {}
        self._constant_names: dict[int, str] = {}
        self.tensors: list[tuple[str, tuple]] = []  # (variable, facts): no guard relies on these, so they come last

    def constant(self, value: Any) -> str:
        if (
            value is None
            or value is True
            or value is False
            or type(value) is str
            or type(value) is int
            and -WRITTEN < value < WRITTEN
        ):  # Python refuses to write very large integers
            return repr(value)
        name = self._constant_names.get(id(value))
        if name is None:
            name = self._constant_names[id(value)] = f"k{len(self._constant_names)}"
            self.constants[name] = value
        return name

    def load(self, source: Source) -> str:
        """The variable that holds ``source``. Reads it first if necessary."""
        if source.kind == "const":
            return self.constant(source.key)
        name = self.names.get(id(source))
        if name is None:
            expression = self.expression(source)
            name = self.names[id(source)] = f"v{len(self.names)}"
            self.flush()
            self.lines.append(f"{name} = {expression}")
        return name

    def flush(self) -> None:
        """Write the collected conditions, so that later lines may rely on them."""
        for at in range(0, len(self.conditions), 16):
            self.lines.append(f"if {' or '.join(self.conditions[at : at + 16])}: return None")
        self.conditions.clear()

    def value(self, source: Source) -> str:
        """``source`` for a single use: an inline expression if it is not needed elsewhere."""
        if source.kind == "const" or source.children or id(source) in self.names or id(source) in self.kept:
            return self.load(source)
        return self.expression(source)

    def expression(self, source: Source) -> str:
        if source.kind == "slot":
            return f"S[{source.key[0]}]"
        assert source.base is not None
        base = self.load(source.base)
        kind, key = source.kind, source.key
        if kind == "at":
            return f"{base}[{key.render(self)}]"
        if kind == "attr" and key != "shape" and key.isidentifier() and not keyword.iskeyword(key):
            return f"{base}.{key}"
        if kind in IN_PLACE:
            return IN_PLACE[kind].format(base=base, key=self.constant(key))
        function, takes_key = READERS[kind]
        return f"{self.constant(function)}({base}{f', {self.constant(key)}' if takes_key else ''})"

    def test(self, guard: Guard) -> str:
        """The condition under which ``guard`` fails."""
        kind, source, expected = guard
        if kind == "state":
            return f"not {self.constant(SameState(expected))}()"
        if kind == "outcome":
            expression, value = expected
            return f"({expression.render(self)}) is not {value}"
        if kind == "distinct":
            names = ", ".join(f"id({self.load(s)})" for s in expected)
            return f"len({{{names}}}) != {len(expected)}"
        assert source is not None
        if kind == "is":
            return f"{self.value(source)} is not {self.constant(expected)}"
        if kind == "tensor":
            return f"{self.constant(tensor_facts)}({self.value(source)}) != {self.constant(expected)}"
        v = self.load(source)
        if kind == "equal":
            return unequal(v, expected, self)
        if kind == "equal set":
            if expected and all(type(element) is ByIdentity for element in expected):
                return f"not {self.constant(SameObjects(expected))}({v})"
            elements = f"map({self.constant(remembered)}, {v})" if is_remembered(expected) else v
            return f"{self.constant(typed_key)}(frozenset({elements})) != {self.constant(typed_key(expected))}"
        if kind == "keys":
            if expected and all(type(k) is str for k in expected):
                return f"tuple({v}) != {self.constant(expected)} or {{*map(type, {v})}} != {self.constant({str})}"
            return f"{self.constant(typed_key)}(tuple({v})) != {self.constant(typed_key(expected))}"
        if kind in BY_BASE:
            return f"{self.constant(BY_BASE[kind])}({v}, {self.constant(expected)})"
        if kind in TESTS:
            return TESTS[kind].format(v=v, expected=self.constant(expected))
        if kind == "same":
            return f"{v} is not {self.load(expected)}"
        if kind == "unlike":
            return f"{v} is {self.load(expected)}"
        if kind == "open tensor":
            return self.test_open(v, *expected)
        if kind == "no hooks":
            names = " or ".join(f"{v}[{n!r}]" for n in HOOK_TABLES)
            return f"{names} or '_compiled_call_impl' in {v}"
        raise AssertionError(kind)

    def test_open(self, v: str, facts: tuple, dims: tuple[int, ...], order: tuple[int, ...]) -> str:
        """The condition under which a tensor differs from the expected one, except in its symbolic sizes. Written fact
        by fact, like ``open_facts``, because it runs on every call."""
        kind, dtype, shape, _, device, requires_grad, is_leaf_, lazy, is_inference, is_view = facts
        steps, step, factors = [""] * len(shape), 1, ""
        for dim in order:
            steps[dim] = f"{step}{factors}"
            if dim in dims:
                factors += f" * {v}.shape[{dim}]"
            else:
                step *= shape[dim]
        sizes = [f"{v}.shape[{dim}] != {size}" for dim, size in enumerate(shape) if dim not in dims]
        leaf = [] if not requires_grad else [f"{self.constant(is_leaf)}({v}) is not {is_leaf_}"]
        return " or ".join(
            [
                f"type({v}) is not {self.constant(kind)}",
                f"{v}.dtype is not {self.constant(dtype)}",
                f"{v}.layout is not {self.constant(torch.strided)} or {v}.is_nested",
                f"{v}.ndim != {len(shape)}",
                *sizes,
                f"{v}.stride() != ({''.join(f'{step}, ' for step in steps)})",
                f"{v}.device != {self.constant(device)}",
                f"{v}.requires_grad is not {requires_grad}",
                *leaf,
                f"({v}.is_conj(), {v}.is_neg(), {v}._is_zerotensor()) != {lazy}",
                f"{v}.is_inference() is not {is_inference}",
                f"{v}._is_view() is not {is_view}",
            ]
        )

    def guard(self, guard: Guard) -> None:
        source = guard.source
        if guard.kind == "tensor" and source is not None and not source.children and is_comparable(guard.expected):
            self.tensors.append((self.load(source), guard.expected))
            return
        condition = self.test(guard)  # may write lines that read its operands
        self.conditions.append(condition)

    def compare_tensors(self) -> None:
        if not self.tensors:
            return
        names, facts = zip(*self.tensors, strict=True)
        self.tensors.clear()
        group = f"({', '.join(names)},)"
        if len(names) > 8:
            self.conditions.append(f"not {self.constant(SameManyTensors(facts))}({group})")
        else:
            same = SameTensors(facts)
            at = self.constant(same)
            before = same.first(names, self.constant)
            compared = f"{at}.compare({', '.join(names)})"
            passed = " and ".join([*before, compared, *same.rest(names, self.constant(is_leaf))])
            self.conditions.append(f"not ({passed}) and not {at}.settle({group})")

    def function(self, name: str, parameters: str, result: str, refused: str = "None") -> Callable:
        """``refused``: the expression returned when a guard does not hold."""
        self.compare_tensors()
        self.flush()
        lines = [
            f"{line.removesuffix('None')}{refused}" if line.endswith(": return None") else line for line in self.lines
        ]
        body = "\n        ".join([*lines, f"return {result}"])
        text = f"def {name}({parameters}):\n    try:\n        {body}\n    except missing: return {refused}\n"
        namespace = {**self.constants, "missing": MISSING_ERRORS, "refuse": refuse}
        exec(code_of(text, name), namespace)
        made = namespace.pop(name)  # popped, so that no reference cycle delays its release
        made.__source__ = text
        return made


def entry_of(container: Any, key: Any) -> Any:
    """``container[key]`` on a subclass of a builtin container, as the builtin implements it."""
    if issubclass(type(container), dict):  # dict's own __getitem__ would call __missing__
        value = dict.get(container, key, base_of)
        if value is base_of:
            raise KeyError(key)
        return value
    return base_of(container).__getitem__(container, key)


def attribute_of(value: Any, name: str) -> Any:
    """``getattr``. A nested tensor has no shape; torch raises a RuntimeError, which is not among ``MISSING_ERRORS``."""
    if name == "shape" and type(value) in TENSOR_TYPES and value.is_nested:
        raise AttributeError(name)
    return getattr(value, name)


def values_of(table: Any) -> list:
    return list(table.values())


READERS: dict[str, tuple[Callable, bool]] = {
    "members": (operator.attrgetter("__dict__"), False),
    "own_members": (dict_of, False),
    "cell": (operator.attrgetter("cell_contents"), False),
    "call": (operator.call, False),
    "plain": (plain_view, False),
    "array": (tensor_of_array, False),
    "keys": (list, False),
    "values": (values_of, False),
    "attr": (attribute_of, True),
    "item": (operator.getitem, True),
    "entry": (entry_of, True),
    "count": (len, False),
    **{kind: (reader, False) for kind, reader in read_native_iterators.READERS.items()},
}
"""How sources of each kind are read from their base: the function, and whether it takes the source's key."""
IN_PLACE = {
    "members": "{base}.__dict__",
    "cell": "{base}.cell_contents",
    "item": "{base}[{key}]",
    "call": "{base}()",
    "keys": "list({base})",
    "values": "list({base}.values())",
}
"""The same without a call of the function."""
TESTS = {
    "type": "type({v}) is not {expected}",
    "length": "len({v}) != {expected}",
    "has": "{expected} not in {v}",
    "absent": "{expected} in {v}",
    "truth": "bool({v}) is not {expected}",
}
"""The condition under which a guard fails, where it depends on one value alone."""


def read(source: Source, base: Any) -> Any:
    """The value at a source."""
    function, takes_key = READERS[source.kind]
    return function(base, source.key) if takes_key else function(base)


# Guards on subclasses of builtin containers that bypass the subclass's methods. True means that the guard fails.
BY_BASE: dict[str, Callable] = {
    "has by base": lambda v, key: not dict.__contains__(v, key),
    "absent by base": lambda v, key: dict.__contains__(v, key),
    "length by base": lambda v, length: length_of(v) != length,
    "keys by base": lambda v, keys: typed_key(tuple(elements_of(v))) != typed_key(keys),
    "set layout": has_other_layout,
}
HOOK_TABLES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def unequal(v: str, expected: Any, writer: CheckWriter) -> str:
    kind = type(expected)
    if kind is float:
        if math.isnan(expected):
            return f"type({v}) is not float or {v} == {v}"
        if expected == 0.0:
            return f"type({v}) is not float or repr({v}) != {repr(expected)!r}"
    if kind is complex:
        return f"type({v}) is not complex or repr({v}) != {repr(expected)!r}"
    if kind in (tuple, frozenset, slice, range):
        return f"{writer.constant(typed_key)}({v}) != {writer.constant(typed_key(expected))}"
    return f"type({v}) is not {writer.constant(kind)} or {v} != {writer.constant(expected)}"


def typed_key(value: Any) -> Any:
    """A value that is equal only for equal constants of equal types (1, True and 1.0 differ)."""
    kind = type(value)
    if kind is str or kind is int:
        return (kind, value)
    if issubclass(kind, (tuple, frozenset)):
        parts = [typed_key(v) for v in value]
        return (kind, tuple(parts) if issubclass(kind, tuple) else frozenset(parts))
    if kind is slice:
        return (slice, typed_key(value.start), typed_key(value.stop), typed_key(value.step))
    if issubclass(kind, (float, complex)):
        return (kind, repr(value))
    return (kind, value)


class GuardFailure(NamedTuple):
    source: str
    expected: str
    found: str


def first_failure(guards: list[Guard], slots: list) -> GuardFailure | None:
    """The first guard that does not hold for ``slots``, in words."""
    for guard in guards:
        writer = CheckWriter()
        try:
            condition = writer.test(guard)
            probe = writer.function("probe", "S", f"({condition}, {_found_expression(guard, writer)})")
        except Exception as error:  # a guard that cannot be displayed must not hide the miss itself
            reraise_from_outside(error)
            return GuardFailure(str(guard.source), guard.kind, f"could not be evaluated: {error}")
        answer = probe(slots)
        if answer is None:
            return GuardFailure(str(guard.source), f"to exist ({guard.kind})", "not there")
        if answer[0]:
            try:
                return _in_words(guard, answer[1])
            except Exception as error:  # a repr that raises, or an integer of more digits than Python writes
                reraise_from_outside(error)
                return GuardFailure(guard.kind, _short(guard.expected), _short(answer[1]))
    return None


def _found_expression(guard: Guard, writer: CheckWriter) -> str:
    if guard.kind == "state":
        return f"{writer.constant(global_state)}()"
    if guard.kind == "outcome":
        return f"({guard.expected[0].render(writer)})"
    if guard.kind == "distinct" or guard.source is None:
        return "None"
    return writer.load(guard.source)


WORDS: Mapping[str, Callable[[str, Any, Any], tuple[str, str, str]]] = {
    "outcome": lambda where, test, found: (test[0].words(), str(test[1]), str(found)),
    "distinct": lambda where, sources, found: (
        ", ".join(map(str, sources)),
        "different objects",
        "some are the same object",
    ),
    "type": lambda where, kind, found: (f"type of {where}", kind.__qualname__, type(found).__qualname__),
    "length": lambda where, length, found: (f"len({where})", str(length), str(len(found))),
    "has": lambda where, key, found: (f"{key!r} in {where}", "True", "False"),
    "absent": lambda where, key, found: (f"{key!r} in {where}", "False", "True"),
    "no hooks": lambda where, hooks, found: (where, "a module without hooks", "hooks"),
    "same": lambda where, other, found: (where, f"the same object as {other}", "another object"),
    "unlike": lambda where, other, found: (where, f"another object than {other}", "the same object"),
    "truth": lambda where, truth, found: (f"bool({where})", str(truth), str(bool(found))),
}
"""For each kind of guard: what it looks at, what it expects and what it has found."""


def _in_words(guard: Guard, found: Any) -> GuardFailure:
    kind, source, expected = guard
    where = str(source)
    if kind == "state":
        for name, a, b in zip(STATE_NAMES, expected, found, strict=True):
            if a != b:
                return GuardFailure(name, repr(a), repr(b))
    if kind == "tensor":
        facts = tensor_facts(found)
        if not facts:
            return GuardFailure(where, "a tensor", type(found).__name__)
        for name, a, b in zip(FACT_NAMES, expected, facts, strict=True):
            if a != b:
                return GuardFailure(f"{where} ({name})", _fact(a), _fact(b))
    if kind == "open tensor":
        facts = open_facts(found, *expected[1:]) or tensor_facts(found)
        for name, a, b in zip(FACT_NAMES, expected[0], facts, strict=False):
            if a != b:
                return GuardFailure(f"{where} ({name if name != 'strides' else 'lying as it did'})", _fact(a), _fact(b))
        return GuardFailure(where, "a tensor", type(found).__name__)
    if kind in WORDS:
        return GuardFailure(*WORDS[kind](where, expected, found))
    return GuardFailure(where, _short(expected), _short(found))


def _fact(value: Any) -> str:
    return str(tuple(value)) if issubclass(type(value), torch.Size) else str(value)


def _short(value: Any) -> str:
    # Tensor data is not read: that would wait for a GPU, and is an error while a stream is captured.
    try:
        text = f"a tensor of the shape {tuple(value.shape)}" if issubclass(type(value), torch.Tensor) else repr(value)
    except Exception as error:
        reraise_from_outside(error)
        text = f"<{type(value).__qualname__}>"
    return text if len(text) <= 80 else text[:77] + "..."
