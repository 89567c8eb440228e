"""Native watch: record words of memory that guards depend on, and compare them all in one native call.

    watch = Watch(watchers, arguments=1)
    watch.pin(0, id(model))
    members = watch.members(model)                     its dictionary, and that it stays its dictionary
    watch.dictionary(members)                          ... with exactly this content
    watch.tensor(id(weight), description)
    check = watch.function([id(weight)], [])
    check(model)                                       ((weight,), ()), or None where something has changed

Words are compared in the order of their entry, up to the first that differs. So an address may be entered if the
words before it keep its object alive: a pinned object is alive, as it is an argument; a dictionary of unchanged
version holds what it held. The watch holds no references; the check finds the objects it returns by address.

The contract of all code that reads the memory of other objects (this module, `tensor_guard_layout`,
`tensor_mutation_watch`, `module_tensor_lookup`, `runtime.program.frozen_prologue`, the native code in
`codegen.llvm.functions.native_guard_check` and `frozen_weights_compare`, and `capture.guards.native_watch_plan`):

1. *Layout.* An offset is found by a trial on objects made for it, or is fixed for a Python version that `is_supported`
   names. Where the trial is ambiguous, nothing is read.
2. *Lock.* Memory is read with the GIL held, and native checks are called with it. They run no Python code between the
   first comparison and the last reference taken. Threads without the GIL may change tensors at the same time, as they
   may in eager.
3. *Making.* Python code that makes a watch can lose the GIL between any two instructions. So it holds a reference to
   each object whose memory it reads. It enters what it has seen (`Watch.expect`) and does not read it again. It enters
   a dictionary's version before it reads an item, and follows a pointer in one step (`word_behind`).
4. *Checking.* Words are compared in an order in which each keeps alive what the next one is read from, up to the first
   that differs. Nothing after that one is read.
5. *Holding.* A value that is known only by its address is held (`kept`) by each function that knows it so. Native
   code, and its description for CPython, are made by `once` and never freed.
6. *Using.* A new watch is used only after it has returned the same objects that the check in Python finds, and has
   passed before and after that check. When it fails, the check in Python decides.
7. *Switching off.* Under `native_guards=False` (BURNISH_NATIVE_GUARDS=0) no watch is made. Guards are then checked in
   Python, and frozen state by version, address and samples of the tensors that the call holds, with weak references in
   place of the addresses of version counters.

Where CPython stores the state that is read here:

* Up to 3.13, every dictionary has a version that no other state of any dictionary has had. From 3.13 on, attributes
  written to an object bypass the dictionary that shows them and do not change the version. The first releases do not
  notify dictionary watchers either. There all the values themselves are compared, and from 3.14 on all the entries of
  every dictionary. The watch holds the keys: their addresses are not used for others.
* The content of a dictionary of one version stays alive and unchanged. In other places (a list, a cell, a slot) an
  object may be freed and another one made at its address, so everything known about it is checked again.
* The slot for an object's dictionary is found by ``_PyObject_GetDictPtr``, which also makes the dictionary of an
  object that has none yet. From then on attributes are written to it.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Sequence
from types import CellType, FunctionType
from typing import Any

from ...concurrency.first_value_cache import once
from ...concurrency.thread_locks import has_global_lock
from ..program.native_kernels import NativeFunction, load
from .tensor_guard_layout import WORD, word_at, word_behind, words_at, words_behind
from .torch_switch_queries import ask

TYPE = 8
"""Offset of an object's type."""

USED, VERSION, KEYS, VALUES = 16, 24, 32, 40
"""Offsets in a dictionary: the number of entries, the version, the keys, and the values if stored separately."""

SIZE, ITEMS = 16, 24
"""Of a list: its length, and the pointer to its items. Of a tuple: its length."""

TUPLE_ITEMS = tuple.__basicsize__
"""The first item. From 3.14 on, a tuple stores its hash before it."""

CELL = 16

WORDS_AT_ONCE = 4
"""Words compared in each iteration of the watcher's loop. The processor looks ahead over a number of instructions: the
fewer there are per word, the more words it waits for at a time."""

REACH = WORD << 32
"""Distance from the first word that is 0 to the last one. Words further away are stored like other words: a longer
table takes longer to read."""

MOST_ENTRIES = 1024
"""Of a dictionary that is compared entry by entry."""

has_versions = sys.version_info < (3, 14)
"""Whether a dictionary has a version."""
has_loose_values = sys.version_info >= (3, 13)
"""Whether values stored apart from their keys may change while the version does not."""
reference_count_bits = 32 if sys.version_info >= (3, 12) else 64
is_supported = (
    sys.implementation.name == "cpython"
    and (3, 11) <= sys.version_info[:2] <= (3, 14)
    and sys.byteorder == "little"
    and ctypes.sizeof(ctypes.c_void_p) == 8
    and has_global_lock
    and not hasattr(sys, "gettotalrefcount")
)
"""Other Pythons store things elsewhere; a debug build has more words before each object."""


class Unwatchable(Exception):
    """Some state is not shown by any word in memory."""


class Watch:
    def __init__(self, watcher: tuple[int, int], arguments: int = 0):
        """`watcher`: the addresses of the functions of ``codegen.llvm.functions.native_guard_check``."""
        self.watcher, self.arguments = watcher, arguments
        self.calls: list[int] = []
        self.pins: list[int] = []
        self.words: dict[int, int] = {}  # in order
        self.zero_words: dict[int, None] = {}  # addresses of words that are 0, on which no others depend
        self.tensors: list[tuple[int, tuple[int, ...]]] = []
        self.versions: dict[int, int] = {}  # of dictionaries, by address; a hash of the content where there are none
        self.keys: list[Any] = []  # held by the function

    # ---- the watched state

    def call(self, function: int, argument: int, further: tuple[int, int], mask: int) -> None:
        """Require that a C function returns what it returns now."""
        answer = ask(function, argument, further, mask)
        self.calls += (function, argument, further[0] | further[1] << 32, mask, answer)

    def pin(self, argument: int, address: int) -> None:
        self.pins += (argument, address)

    def word(self, address: int) -> int:
        found = self.words.get(address)
        if found is None:
            found = self.words[address] = word_at(address)
        return found

    def expect(self, address: int, word: int) -> None:
        """Require that a word is what Python code has seen. Reading it here would be a second read, and another thread
        may have changed it in between: the watch would then continue from an object that is gone."""
        if self.words.setdefault(address, word) != word:
            raise Unwatchable

    def type(self, obj: Any) -> None:
        self.expect(id(obj) + TYPE, id(type(obj)))

    def members(self, obj: Any) -> dict:
        """The dictionary of an object that is known to be alive."""
        table = object.__getattribute__(obj, "__dict__")
        slot = _dictionary_slot(obj)
        if type(table) is not dict or not slot or word_at(slot) != id(table):
            raise Unwatchable
        self.type(obj)
        self.expect(slot, id(table))
        return table

    def dictionary(self, table: dict) -> bool:
        """Require its whole content. Returns whether this dictionary object itself is required, with exactly these
        objects. Read its items afterwards: the watch then detects a change in between."""
        address = id(table)
        is_loose = has_loose_values and self.word(address + VALUES) != 0
        if address not in self.versions:
            content = self.loose_values(table) if is_loose else () if has_versions else self.all_entries(table)
            self.versions[address] = self.word(address + VERSION) if has_versions else hash(tuple(content))
        return has_versions and not is_loose

    def all_entries(self, table: dict) -> list[int]:
        """Require the keys and values of a dictionary that stores both, in their order."""
        at = id(table) + KEYS
        keys = self.word(at)
        kind, count = word_behind(at, 1), word_behind(at, 3)  # with the sizes of both; how many entries it has had
        width = 2 if kind >> 16 & 0xFF else 3  # without the hash if all keys are text
        first = 4 + (1 << (kind >> 8 & 0xFF)) // WORD
        if count > MOST_ENTRIES:
            raise Unwatchable
        words = words_behind(at, first + width * count)
        if words[1] != kind or words[3] != count:
            raise Unwatchable
        self.expect(keys + WORD, kind)
        self.expect(keys + 3 * WORD, count)
        places = [k for k in range(first + width - 2, len(words), width)]
        self.keys += dict.keys(table)
        if [(words[k], words[k + 1]) for k in places if words[k + 1]] != [(id(k), id(v)) for k, v in dict.items(table)]:
            raise Unwatchable
        for k in places:
            self.expect(keys + WORD * k, words[k])
            self.expect(keys + WORD * (k + 1), words[k + 1])
        return words[first:]

    def loose_values(self, table: dict) -> list[int]:
        """Require values stored apart: their capacity and number, then the values, then their order as bytes."""
        self.word(id(table) + KEYS)
        at = self.word(id(table) + VALUES)
        try:
            count = word_behind(id(table) + VALUES, 0) & 0xFF
            words = [word_behind(id(table) + VALUES, k) for k in range(1 + count + (count + 7) // 8)]
        except ValueError:
            raise Unwatchable from None
        for k, word in enumerate(words):
            self.expect(at + 8 * k, word)
        found = words[1 : 1 + count]
        if sorted(word for word in found if word) != sorted(map(id, table.values())):
            raise Unwatchable
        return words

    def entries(self, table: dict) -> None:
        """Require only the number of entries. Most are empty: each module has four tables of hooks."""
        if word_at(id(table) + USED):
            self.word(id(table) + USED)
        else:
            self.zero_words[id(table) + USED] = None

    def list_item(self, items: list, index: int, value: Any) -> None:
        self.list_length(items)
        if not 0 <= index < self.words[id(items) + SIZE]:
            raise Unwatchable
        self.expect(self.word(id(items) + ITEMS) + 8 * index, id(value))

    def list_length(self, items: list) -> None:
        self.type(items)
        self.word(id(items) + SIZE)

    def tuple_item(self, items: tuple, index: int) -> None:
        self.tuple_length(items)
        if not 0 <= index < tuple.__len__(items):
            raise Unwatchable
        self.word(id(items) + TUPLE_ITEMS + 8 * index)

    def tuple_length(self, items: tuple) -> None:
        self.type(items)
        self.word(id(items) + SIZE)

    def cell(self, cell: CellType, value: Any) -> None:
        self.type(cell)
        self.expect(id(cell) + CELL, id(value))

    def field(self, obj: Any, offset: int, value: Any) -> None:
        """Require that a field in the object itself holds `value`."""
        self.type(obj)
        found = self.word(id(obj) + offset)
        if found != id(value) and not (found == 0 and value is None):
            raise Unwatchable

    def tensor(self, place: int, description: tuple[int, ...]) -> None:
        """`place`: an address, or ``argument(k)``."""
        self.tensors.append((place, description))

    # ---- the check

    def function(self, inputs: Sequence[int], values: Sequence[int], takes_tuple: bool = False) -> Callable[..., Any]:
        """`inputs`, `values`: what the check returns, each an address or ``argument(k)``. `takes_tuple`: the check is
        best called as ``check(*arguments)``, and the tuple is not unpacked."""
        base = min(self.zero_words, default=0)
        near = [address for address in self.zero_words if address - base < REACH]
        words = [*self.words.items(), *((address, 0) for address in self.zero_words if address - base >= REACH)]
        for each in words, near:
            each += each[-1:] * (-len(each) % WORDS_AT_ONCE)  # type: ignore[operator]
        head = [
            0,
            self.arguments,
            len(self.calls) // 5,
            len(self.pins) // 2,
            len(words),
            len(self.tensors),
            len(inputs),
            len(values),
            id(None),
            len(near),
            base,
            *self.calls,
            *self.pins,
        ]
        for pair in words:
            head += pair
        offsets = [(address - base) // WORD for address in near]
        head += [low | high << 32 for low, high in zip(offsets[::2], offsets[1::2], strict=True)]
        at = len(head) + 2 * len(self.tensors) + len(inputs) + len(values)
        places: dict[tuple[int, ...], int] = {}
        described: list[int] = []
        for who, description in self.tensors:
            place = places.get(description)
            if place is None:
                place = places[description] = at + len(described)
                described += in_blocks(description)
            head += (who, place)
        head += inputs
        head += values
        head += described
        table = bytes(memoryview((ctypes.c_uint64 * len(head))(*head)))
        method = ctypes.byref(_method(self.watcher[takes_tuple], FLAGS[takes_tuple]))
        return _new_function()(method, table, tuple(self.keys))


def in_blocks(description: Sequence[int]) -> list[int]:
    """A tensor description with the checks of its implementation in blocks of eight words, which are compared at once.
    A block may overlap another one, but not extend beyond the last word to check."""
    kind, implementation, autograd, without, count, more = description[:6]
    checks = {description[k]: description[k + 1 : k + 3] for k in range(6, 6 + 3 * count, 3)}
    last = max(checks) - 7 * WORD
    blocks: list[int] = []
    beyond = 0
    for offset in sorted(checks):
        if offset >= beyond:
            start = min(offset, last)
            beyond = start + 8 * WORD
            block = [checks.get(start + WORD * k, (0, 0)) for k in range(8)]
            blocks += (start, *(mask for mask, _ in block), *(word for _, word in block))
    return [kind, implementation, autograd, without, len(blocks) // 17, more, *blocks, *description[6 + 3 * count :]]


def argument(k: int) -> int:
    return 2 * k + 1


def hits(check: Callable[..., Any]) -> int:
    """How often a check has passed."""
    return word_at(id(check.__self__) + sys.getsizeof(b"") - 1)  # type: ignore[attr-defined]


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


FLAGS = 0x80, 0x01
"""METH_FASTCALL, METH_VARARGS: the calling conventions of the two functions."""


@once
def _method(watcher: int, flags: int) -> _Method:
    return _Method(b"watch", watcher, flags, None)  # never freed: functions refer to it


@once
def _new_function() -> Any:
    """Of a C function, its ``self``, and its module, in whose place it holds something else."""
    prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
    return prototype(("PyCFunction_NewEx", ctypes.pythonapi))


def load_watchers(code: bytes) -> tuple[NativeFunction, NativeFunction]:
    """The native functions that run watches: with inputs as separate arguments, and as a tuple."""
    needed = c_api("PyTuple_New", "Py_IncRef", "Py_DecRef")
    return load(code, "watch", needed), load(code, "watch_tuple", needed)


def c_api(*names: str) -> dict[str, int]:
    """Addresses of functions of Python's C API, for native code that calls them."""
    return {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in names}


@once
def _slot_finder() -> Any:
    return ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(("_PyObject_GetDictPtr", ctypes.pythonapi))


def _dictionary_slot(obj: Any) -> int:
    return _slot_finder()(ctypes.py_object(obj)) or 0  # a conversion of ctypes would ask the object for its class


def dictionary_behind(proxy: Any) -> dict:
    """The dictionary behind a read-only view, such as ``vars(a class)``."""
    found = gc.get_referents(proxy)
    if len(found) != 1 or not isinstance(found[0], dict):
        raise Unwatchable
    return found[0]


def slot_offset(descriptor: Any) -> int:
    """The offset in an object that a member descriptor (of a name in ``__slots__``) reads."""
    member = word_at(id(descriptor) + 40)  # PyMemberDescrObject.d_member
    kind, offset = ctypes.c_int.from_address(member + 8).value, word_at(member + 16)
    if kind != 16 or offset > 1 << 16:  # T_OBJECT_EX: an object, and an error where there is none
        raise Unwatchable
    return offset


ORDER = type.__dict__["__mro__"]


@once
def order_field() -> int:
    """The offset of ``tp_mro`` in a class: the tuple of its bases in method resolution order."""
    offset = word_at(word_at(id(ORDER) + 40) + 16)
    if not 0 < offset < Watch.__class__.__basicsize__ or word_at(id(Watch) + offset) != id(ORDER.__get__(Watch)):
        raise Unwatchable
    return offset


def name_field(name: str, cls: type) -> int:
    """The offset of ``__name__`` or ``__qualname__`` in a class made in Python."""
    if not cls.__flags__ & (1 << 9):
        raise Unwatchable
    return _name_fields()[name]


@once
def _name_fields() -> dict[str, int]:
    probe = type("probe of a name", (), {"__qualname__": "probe of a qualified name"})
    words = words_at(id(probe), type.__basicsize__ // WORD)
    found = {}
    for name in ("__name__", "__qualname__"):
        at = [WORD * k for k, word in enumerate(words) if word == id(getattr(probe, name))]
        if len(at) != 1:
            raise Unwatchable
        found[name] = at[0]
    return found


@once
def function_field(name: str) -> int:
    """The offset of a function's field, found by the name of its attribute."""

    def make(where: Any) -> FunctionType:
        def probe(x: int = 1, *, y: int = 2) -> Any:
            return where

        return probe  # type: ignore[return-value]

    found: set[int] | None = None
    for _ in range(2):
        probe = make(object())
        here = {
            8 * k
            for k, word in enumerate(words_at(id(probe), probe.__sizeof__() // 8))
            if word == id(getattr(probe, name))
        }
        found = here if found is None else found & here
    if found is None or len(found) != 1:
        raise Unwatchable
    return found.pop()
