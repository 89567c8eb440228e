"""A watch: where state lies in memory and what was there, checked by one native call.

    watch = Watch(watchers, arguments=1)
    watch.pin(0, id(model))
    members = watch.members(model)                     its dictionary, and that it stays its dictionary
    watch.dictionary(members)                          ... with just this content
    watch.tensor(id(weight), description)
    check = watch.function([id(weight)], [])
    check(model)                                       ((weight,), ()), or None where something has changed

Words are compared in the order in which they were entered, up to the first that differs. So an address may be entered
as soon as those before it keep alive what lies there: what is pinned lives, as it is an argument; a dictionary that has
the version it had holds what it held. Nothing is held on to here, and what the check hands out it finds by address.

The contract of all code that reads the memory of other objects (this module, `tensor_words`, `state_watch`, `owned`,
`frozen`, the native code in `codegen.llvm.functions.guard_watch` and `sampler`, and
`capture.guards.native_watch_plan`):

1. *Layout.* An offset is found by trying it on objects made for that, or comes with a Python version that
   `is_supported` names. Where the trial is not clear, nothing is read.
2. *Lock.* Memory is read with the interpreter's lock held, and native checks are called with it. They run no Python
   code between the first comparison and the last reference taken. Threads without that lock may change tensors
   meanwhile, as they may in eager.
3. *Making.* Python code that makes a watch can lose the lock between any two instructions. So it holds a reference to
   each object whose memory it reads. It enters what it has seen (`Watch.expect`) and does not read it again. It enters
   a dictionary's version before it reads an item, and follows a pointer in one step (`word_behind`).
4. *Checking.* Words are compared in an order in which each keeps alive what the next one is read from, up to the first
   that differs. Nothing behind that one is read.
5. *Holding.* A value that is known by its address alone is held (`kept`) by each function that knows it so. Native
   code, and what describes it to CPython, is made by `once` and never freed.
6. *Using.* A new watch is used after it has handed out the very objects that the check in Python finds, and has passed
   before and after that check. When it says no, the check in Python decides.
7. *Switching off.* Under `native_guards=False` (BURNISH_NATIVE_GUARDS=0) no watch is made. Guards are then checked in
   Python, and frozen state by version, address and samples of the tensors that the call holds.

Where CPython keeps what is read here:

* Every dictionary has a version, which no other state of any dictionary has had. From 3.13 on, though, attributes that
  are written into an object, past the dictionary that shows them, leave the version alone, and the first releases do
  not tell those who watch the dictionary either. There the values themselves are compared, all of them.
* What a dictionary of one version holds stays alive, and stays what it is. Anywhere else (in a list, a cell, a slot) an
  object may go and another one be made where it lay, so all that is to be known of it has to be asked anew.
* The slot for an object's dictionary is found by ``_PyObject_GetDictPtr``, which also makes the dictionary of an object
  that has none yet. From then on it is where attributes are written to.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import sysconfig
from collections.abc import Callable, Sequence
from types import CellType, FunctionType
from typing import Any

from ...concurrency.compute_once import once
from ..program.native_kernels import NativeFunction, load
from .tensor_guard_layout import WORD, word_at, word_behind, words_at
from .torch_switch_queries import ask

TYPE = 8
"""Where an object's type stands."""

USED, VERSION, KEYS, VALUES = 16, 24, 32, 40
"""Of a dictionary: how many entries it has, its version, where its keys lie, and its values if those lie apart."""

SIZE, ITEMS = 16, 24
"""Of a list: its length, and where its items lie. Of a tuple: its length, and where its items begin."""

CELL = 16

WORDS_AT_ONCE = 4
"""So many are compared in each turn of the watcher's loop. The processor looks ahead over a number of instructions: the
fewer there are to a word, the more words it waits for at a time."""

REACH = WORD << 32
"""From the first word that is 0 to the last one. What lies further off is written out as other words are: a table that
is longer takes longer to read."""

has_loose_values = sys.version_info >= (3, 13)
"""Whether values that lie apart from their keys may change while the version does not."""
is_supported = (
    sys.implementation.name == "cpython"
    and (3, 11) <= sys.version_info[:2] <= (3, 13)
    and sys.byteorder == "little"
    and ctypes.sizeof(ctypes.c_void_p) == 8
    and not sysconfig.get_config_var("Py_GIL_DISABLED")
    and not hasattr(sys, "gettotalrefcount")
)
"""Other Pythons keep things elsewhere; a debug build has more words in front of each object."""


class Unwatchable(Exception):
    """There is something of which no word in memory tells."""


class Watch:
    def __init__(self, watcher: tuple[int, int], arguments: int = 0):
        """`watcher`: the addresses of the functions of ``codegen.llvm.functions.guard_watch``."""
        self.watcher, self.arguments = watcher, arguments
        self.calls: list[int] = []
        self.pins: list[int] = []
        self.words: dict[int, int] = {}  # in order
        self.noughts: dict[int, None] = {}  # addresses of words that are 0, on which no others depend
        self.tensors: list[tuple[int, tuple[int, ...]]] = []
        self.versions: dict[int, int] = {}  # of dictionaries, by address

    # ---- what is watched

    def call(self, function: int, argument: int, further: tuple[int, int], mask: int) -> None:
        """That a C function answers as it does now."""
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
        """That a word is what Python code has seen. To read it here would be to look a second time, and another thread
        may have changed it in between: the watch would then go on from an object that is not there any more."""
        if self.words.setdefault(address, word) != word:
            raise Unwatchable

    def type(self, obj: Any) -> None:
        self.expect(id(obj) + TYPE, id(type(obj)))

    def members(self, obj: Any) -> dict:
        """The dictionary of an object that is known to live."""
        table = object.__getattribute__(obj, "__dict__")
        slot = _dictionary_slot(obj)
        if type(table) is not dict or not slot or word_at(slot) != id(table):
            raise Unwatchable
        self.type(obj)
        self.expect(slot, id(table))
        return table

    def dictionary(self, table: dict) -> bool:
        """All that is in it. Answers whether this very dictionary has to be there, with these very objects. Read its
        items afterwards: a change in between is then one that the watch sees."""
        address = id(table)
        is_loose = has_loose_values and self.word(address + VALUES) != 0
        if address not in self.versions:
            if is_loose:
                self.loose_values(table)
            self.versions[address] = self.word(address + VERSION)
        return not is_loose

    def loose_values(self, table: dict) -> None:
        """Where they lie: how many there may be and how many there are, then the values, then their order as bytes."""
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

    def entries(self, table: dict) -> None:
        """Only how many there are in it. Most are empty: each module has four tables of hooks."""
        if word_at(id(table) + USED):
            self.word(id(table) + USED)
        else:
            self.noughts[id(table) + USED] = None

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
        if not 0 <= index < len(items):
            raise Unwatchable
        self.word(id(items) + ITEMS + 8 * index)

    def tuple_length(self, items: tuple) -> None:
        self.type(items)
        self.word(id(items) + SIZE)

    def cell(self, cell: CellType, value: Any) -> None:
        self.type(cell)
        self.expect(id(cell) + CELL, id(value))

    def field(self, obj: Any, offset: int, value: Any) -> None:
        """A field of an object's own, which holds `value`."""
        self.type(obj)
        found = self.word(id(obj) + offset)
        if found != id(value) and not (found == 0 and value is None):
            raise Unwatchable

    def tensor(self, who: int, description: tuple[int, ...]) -> None:
        """`who`: an address, or ``argument(k)``."""
        self.tensors.append((who, description))

    # ---- the check

    def function(self, inputs: Sequence[int], values: Sequence[int], takes_tuple: bool = False) -> Callable[..., Any]:
        """`inputs`, `values`: what the check hands out, each an address or ``argument(k)``. `takes_tuple`: it is best
        called as ``check(*arguments)``, and the tuple is not unpacked."""
        base = min(self.noughts, default=0)
        near = [address for address in self.noughts if address - base < REACH]
        words = [*self.words.items(), *((address, 0) for address in self.noughts if address - base >= REACH)]
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
        return _new_function()(ctypes.byref(_method(self.watcher[takes_tuple], FLAGS[takes_tuple])), table, None)


def in_blocks(description: Sequence[int]) -> list[int]:
    """A description of a tensor, what is asked of its implementation in blocks of eight words, which are compared at
    once. A block may lie over another one, but not beyond the last word that is asked for."""
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
"""METH_FASTCALL, METH_VARARGS: how the two functions are handed their arguments."""


@once
def _method(watcher: int, flags: int) -> _Method:
    return _Method(b"watch", watcher, flags, None)  # for ever: functions refer to it


@once
def _new_function() -> Any:
    prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    return prototype(("PyCFunction_NewEx", ctypes.pythonapi))


def load_watchers(code: bytes) -> tuple[NativeFunction, NativeFunction]:
    """The native functions that look at them: given inputs one by one, and as a tuple."""
    needed = c_api("PyTuple_New", "Py_IncRef", "Py_DecRef")
    return load(code, "watch", needed), load(code, "watch_tuple", needed)


def c_api(*names: str) -> dict[str, int]:
    """Addresses of functions of Python's C interface, for native code that calls them."""
    return {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in names}


@once
def _slot_finder() -> Any:
    return ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(("_PyObject_GetDictPtr", ctypes.pythonapi))


def _dictionary_slot(obj: Any) -> int:
    return _slot_finder()(obj) or 0


def dictionary_behind(proxy: Any) -> dict:
    """What a read-only view shows, such as ``vars(a class)``."""
    found = gc.get_referents(proxy)
    if len(found) != 1 or not isinstance(found[0], dict):
        raise Unwatchable
    return found[0]


def slot_offset(descriptor: Any) -> int:
    """Where in an object a member descriptor (of a name in ``__slots__``) reads."""
    member = word_at(id(descriptor) + 40)  # PyMemberDescrObject.d_member
    kind, offset = ctypes.c_int.from_address(member + 8).value, word_at(member + 16)
    if kind != 16 or offset > 1 << 16:  # an object, and an error where there is none
        raise Unwatchable
    return offset


ORDER = type.__dict__["__mro__"]


@once
def order_field() -> int:
    """Where in a class the tuple of its bases stands, in the order in which they are asked."""
    offset = word_at(word_at(id(ORDER) + 40) + 16)
    if not 0 < offset < Watch.__class__.__basicsize__ or word_at(id(Watch) + offset) != id(ORDER.__get__(Watch)):
        raise Unwatchable
    return offset


@once
def function_field(name: str) -> int:
    """Where a function keeps what it shows under a name."""

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
