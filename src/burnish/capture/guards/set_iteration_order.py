"""Set layouts: where the elements are in a set's table, which decides the order of iteration.

    list({7, 15}), list({15, 7})      [7, 15], [15, 7]: the first to come takes the place that both want

The layout follows from the hashes and from earlier operations on the set. A rebuilt set gets the same layout:
``how_to_make`` looks for steps that lead there, and tries them on stand-ins with the same hashes.
"""

from __future__ import annotations

import array
import ctypes
import itertools
import operator
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from .container_reads_past_overrides import elements_of

MOST_TRIED = 64
"""Up to this length, all parts of the order are tried as a set that is copied, else those that get such a table."""
LINEAR, SHIFT, SMALLEST, ENTRY = 9, 5, 8, 16  # of CPython's tables
REMOVED = -1
"""The hash of a place whose element has been removed."""
WORD = ctypes.c_ssize_t


class Head(ctypes.Structure):
    """The start of a set object."""

    _fields_ = [
        ("object", WORD * 2),
        ("fill", WORD),
        ("used", WORD),
        ("mask", WORD),
        ("table", ctypes.POINTER(ctypes.c_char)),
        ("hash", WORD),
        ("finger", WORD),
    ]


class SetTable(NamedTuple):
    """A set's table as it is in memory."""

    mask: int
    fill: int  # places in use, or whose element has been removed
    finger: int
    entries: bytes

    def column(self, at: int) -> array.array:
        """0: the addresses of the elements, 1: their hashes."""
        return array.array("q", self.entries)[at::2]


class Layout(NamedTuple):
    size: int  # of the table
    removed: int  # places whose element has been removed
    finger: int  # where pop() looks next
    places: tuple[int, ...]  # of the elements, in order
    hashes: tuple[int, ...]


class BuildSteps(NamedTuple):
    """``order``: the elements by index, then the fillers. ``copied``: how many of these come as a set, and whether the
    others do."""

    copied: tuple[int, bool]
    order: tuple[int, ...]
    fillers: tuple[int, ...]
    finger: int


class ByIdentity(weakref.ref):
    """An element that is hashed by its address, as a guard remembers it: the guard must not keep it alive."""

    __slots__ = ("address",)

    def __init__(self, element: Any):
        super().__init__(element)
        self.address = id(element)

    def __hash__(self) -> int:
        return self.address

    def __eq__(self, other: object) -> bool:
        element = self()
        return element is not None and type(other) is ByIdentity and element is other()

    def __repr__(self) -> str:
        return repr(self())


def remembered(element: Any) -> Any:
    """Modules and tensors are held: they mostly outlive the guard, and some functions of torch refuse tensors that are
    referenced weakly."""
    kind = type(element)
    if kind in (tuple, frozenset):
        parts = [*map(remembered, element)]
        return kind(parts) if any(map(operator.is_not, parts, element)) else element
    is_by_address = kind.__hash__ is object.__hash__ and kind.__weakrefoffset__ != 0
    return ByIdentity(element) if is_by_address and not issubclass(kind, torch.nn.Module) else element


def is_remembered(element: Any) -> bool:
    kind = type(element)
    return kind is ByIdentity or kind in (tuple, frozenset) and any(map(is_remembered, element))


class SameObjects:
    """Whether a set has these elements, which are all remembered by their identity: C code compares all addresses."""

    def __init__(self, elements: Iterable[ByIdentity]):
        self.references = [*elements]
        self.addresses = {reference.address for reference in self.references}

    def __call__(self, items: Any) -> bool:
        return set(map(id, items)) == self.addresses and all(
            map(operator.is_not, map(weakref.ref.__call__, self.references), itertools.repeat(None))
        )


class ElementStandIn:
    """An object with the hash of an element."""

    __slots__ = ("hashed",)

    def __init__(self, hashed: int):
        self.hashed = hashed

    def __hash__(self) -> int:
        return self.hashed


def table_of(items: Any) -> SetTable:
    """Another thread may change the set meanwhile, but not between the reads of ``table`` and ``mask``, and the copy:
    no call is among them."""
    head = Head.from_address(id(items))
    entries = head.table[: head.mask + 1 << 4]
    return SetTable(len(entries) // ENTRY - 1, head.fill, head.finger, entries)


def layout_of(items: Any) -> Layout:
    return layout_in(table_of(items))


def layout_in(table: SetTable) -> Layout:
    hashes = table.column(1)
    places = tuple(i for i, key in enumerate(table.column(0)) if key and hashes[i] != REMOVED)
    return Layout(
        table.mask + 1, table.fill - len(places), table.finger, places, tuple(hashes[place] for place in places)
    )


def was_changed(items: Any) -> bool:
    """Whether the set has known other elements, or more."""
    return IS_UNDERSTOOD and layout_of(items)[:3] != (SMALLEST, 0, 0)


def removed_places(items: set, layout: Layout) -> list[int]:
    return [i for i, hashed in enumerate(table_of(items).column(1)) if hashed == REMOVED] if layout.removed else []


class Slotted(set):
    __slots__ = ("a", "b")


def _is_understood() -> bool:
    if set().__sizeof__() != ctypes.sizeof(Head) + SMALLEST * ENTRY + ctypes.sizeof(WORD):
        return False
    changed, popped = Slotted((1, 2)), {5, 6}
    changed.discard(1)
    popped.pop()
    return (
        layout_of(set([7, 8])) == (8, 0, 0, (0, 7), (8, 7))
        and layout_of(set(range(5))) == (32, 0, 0, (0, 1, 2, 3, 4), (0, 1, 2, 3, 4))
        and layout_of(changed) == (8, 1, 0, (2,), (2,))
        and layout_of(popped) == (8, 1, 6, (6,), (6,))
        and removed_places(changed, layout_of(changed)) == [1]
    )


IS_UNDERSTOOD = _is_understood()


class Expected(NamedTuple):
    table: SetTable
    numbers: dict[Any, int]  # of the elements, in order, which are kept
    without_hash: tuple[int, ...]  # the places of elements whose hash is 0, which empty places have, too


def expected_layout(table: SetTable, elements: list) -> Expected:
    layout = layout_in(table)
    places = tuple(p for p, hashed in zip(layout.places, layout.hashes, strict=True) if hashed == 0)
    return Expected(table, {remembered(e): i for i, e in enumerate(elements)}, places)


def has_other_layout(items: Any, expected: Expected) -> bool:
    """For a guard. ``items`` has the expected elements."""
    now, before = table_of(items), expected.table
    if now == before:  # with the same objects
        return False
    if now[:3] != before[:3] or now.column(1) != before.column(1):
        return True
    addresses = now.column(0)
    return not all([addresses[p] for p in expected.without_hash]) or list(
        map(expected.numbers.get, map(remembered, elements_of(items)))
    ) != list(range(len(expected.numbers)))


# ---- making a set again


def make(kind: type, steps: BuildSteps, elements: Iterable) -> Any:
    if kind is frozenset and not steps.copied[0]:
        return frozenset([*map([*elements].__getitem__, steps.order)])
    items: set = set()
    fill(items, steps, elements)
    return items if kind is set else frozenset(items)


def fill(items: set, steps: BuildSteps, elements: Iterable) -> None:
    """The same in an empty set, without calling methods of a subclass."""
    elements = [*elements, *steps.fillers]
    ordered = [*map(elements.__getitem__, steps.order)]
    if steps.finger:
        set.update(items, range(steps.finger))
        for i in range(steps.finger - 1):
            set.discard(items, i)
        set.pop(items)  # which begins at this place the next time
        set.clear(items)
    at, as_set = steps.copied
    if at:
        set.update(items, set(ordered[:at]))
    set.update(items, set(ordered) if as_set else ordered[at:] if at else ordered)
    for filler in steps.fillers:
        set.discard(items, filler)


def is_made_in_order(items: Any) -> bool:
    """Whether a new set of the same elements, added in order, has the same layout."""
    if not IS_UNDERSTOOD:
        return False
    layout = layout_of(items)
    stand_ins = [*map(ElementStandIn, layout.hashes)]
    made = (set if isinstance(items, set) else frozenset)(stand_ins)
    return list(made) == stand_ins and layout_of(made) == layout


def how_to_make(items: Any, hashes_once: bool = False) -> BuildSteps | None:
    """The steps by which ``make`` makes a set with the layout of this one, which no other thread knows; None if none
    were found. ``hashes_once``: elements are asked for their hash only once."""
    if not IS_UNDERSTOOD:
        return None
    layout = layout_of(items)
    free = removed_places(items, layout) if layout.removed else []
    fillers = tuple(filler_of(place, layout) for place in free)
    stand_ins = [*map(ElementStandIn, layout.hashes)]
    kind = set if issubclass(type(items), set) else frozenset
    for steps in candidates(layout, free, fillers):
        if hashes_once and steps.copied[1]:
            continue
        made = make(kind, steps, stand_ins)
        is_same = list(made) == stand_ins and layout_of(made) == layout
        if is_same and (not free or removed_places(made, layout) == free):
            return steps
    return None


def filler_of(place: int, layout: Layout) -> int:
    """A number whose place in the table is this one."""
    return next(n for n in itertools.count(place + layout.size, layout.size) if n not in layout.hashes)


def candidates(layout: Layout, free: Sequence[int], fillers: tuple[int, ...]) -> Iterator[BuildSteps]:
    places, hashes = (*layout.places, *free), (*layout.hashes, *fillers)
    count = len(places)
    orders = [tuple(range(count))]
    if (ordered := order_of_arrival(layout.size, places, hashes)) is not None:
        orders.insert(0, ordered)
    if count <= 5:
        orders += itertools.permutations(range(count))
    for order in orders:
        few = (count, layout.size // 4, layout.size // 2 - 1, *range(0, count, 1 + count // 16))
        for at in range(count + 1) if count <= MOST_TRIED else few:
            yield BuildSteps((at, False), order, fillers, layout.finger)
            if count - at > 1:
                yield BuildSteps((at, True), order, fillers, layout.finger)


def order_of_arrival(size: int, places: Sequence[int], hashes: Sequence[int]) -> tuple[int, ...] | None:
    """An order in which the elements find these places: each after those that it has found on its way."""
    at = {place: i for i, place in enumerate(places)}
    waits: dict[int, set] = {}
    for i, hashed in enumerate(hashes):
        way = itertools.takewhile(lambda place, end=places[i]: place != end, places_of(hashed, size))
        waits[i] = {at.get(place, -1) for place in itertools.islice(way, size)}
    order: list[int] = []
    while len(order) < len(places):
        arrived = set(order)
        ready = [i for i in waits if i not in arrived and waits[i] <= arrived]
        if not ready:
            return None
        order += ready
    return tuple(order)


def places_of(hashed: int, size: int) -> Iterator[int]:
    """The places where CPython looks for an element, in order."""
    rest, at, mask = hashed % (1 << 64), hashed % size, size - 1
    while True:
        yield from range(at, at + LINEAR + 1 if at + LINEAR <= mask else at + 1)
        rest >>= SHIFT
        at = (at * 5 + 1 + rest) & mask
