"""A compiled program with symbolic sizes: reads the sizes from the inputs and runs in a frame for them.

    program = SymbolicProgram(source, constants, point_of, make_frame, ...)
    outputs = program(*inputs)              point_of(inputs) == (64, 2): a frame for these sizes is made or found

Like `LinkedProgram`, but a frame belongs to sizes: they are numbers in it and in its tables. Frames for several
sizes share one piece of memory, their room, which is used by one run at a time. The program's size check runs the
first time that a size is outside the range of those checked before.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from ... import events
from ...concurrency import thread_locks
from ...errors import InternalError
from ...tensors.fit_size_formulas import ALIGNMENT, Formula
from .program import BUILT_IN

MOST_FRAMES = 32
"""Where there are more sizes, the oldest frame is dropped, and built again when it is needed."""

MOST_KNOWN = 10_000

MOST_CORNERS = 16
"""Where a range has more, each point is checked by itself."""

MOST_FAILED = 6
"""How often a range of several symbols is extended in vain. Then each point is checked by itself."""

Range = tuple[tuple[int, ...], tuple[int, ...]]
"""The least sizes, and the largest ones."""

SLACK = 1.25
"""A room grows by more than requested: the next size is often a little larger."""


class SizeCheck(Protocol):
    """Whether a program is valid for sizes."""

    bounds: tuple[tuple[int, ...], tuple[int, ...]] | None
    """The range in which it is known to be valid, except for special sizes."""
    is_at_every_size: bool
    """Whether sizes between those that it is valid for say nothing: it is given remainders of sizes."""
    conditions: tuple[Formula, ...]
    """What must not be negative. Loops are split where values are joined, and their borders keep an order."""

    def __call__(self, point: tuple[int, ...]) -> bool: ...

    def is_special(self, point: tuple[int, ...]) -> bool:
        """Whether these sizes imply nothing for the sizes around them, and vice versa."""
        ...


class Room:
    """Memory for one run at a time, and the frames in it."""

    __slots__ = ("address", "frames", "memory", "staying", "views")

    def __init__(self) -> None:
        self.memory = torch.empty(0, dtype=torch.uint8)
        self.address = 0
        self.frames: dict[tuple[int, ...], Any] = {}
        self.views: dict[torch.dtype, torch.Tensor] = {}
        self.staying: list[tuple[str, Any]] | None = None
        """The parts that all frames share."""

    def reserve(self, size: int) -> int:
        """The address where `size` bytes start. Drops the existing frames if that needs new memory."""
        if self.memory.numel() < size + ALIGNMENT or not self.address:
            first = not self.frames
            self.frames.clear()
            self.views.clear()
            self.staying = None
            self.memory = torch.empty(0, dtype=torch.uint8)
            whole = int(size * (1 if first else SLACK)) // ALIGNMENT * ALIGNMENT
            self.memory = torch.empty(max(whole, size) + 2 * ALIGNMENT, dtype=torch.uint8)
            self.address = self.memory.data_ptr()
        return -(-self.address // ALIGNMENT) * ALIGNMENT

    def view(self, dtype: torch.dtype) -> torch.Tensor:
        found = self.views.get(dtype)
        if found is None:
            whole = self.memory.numel() // 16 * 16
            found = self.views[dtype] = self.memory[:whole].view(dtype)
        return found


class SymbolicProgram:
    takes_gradients = False

    def __init__(
        self,
        source: str,
        constants: dict[str, Any],
        point_of: Callable[[Sequence[Any]], tuple[int, ...]],
        make_frame: Callable[[tuple[int, ...], Room], Any],
        names: tuple[str, ...],
        points: Sequence[tuple[int, ...]],
        check: SizeCheck,
        otherwise: Callable[..., Any],
        is_divided: bool = False,
    ):
        """`is_divided`: the program or its backward divides sizes. Quotients that are equal at all points may differ in
        between, so that every size is checked."""
        self.is_divided = is_divided
        self.source, self.point_of, self.make_frame, self.names = source, point_of, make_frame, names
        self.check, self.otherwise, self.points = check, otherwise, points
        self.least, self.most = range_of(points)
        if check.bounds is not None:
            self.least, self.most = check.bounds
        self.corners = {self.least, self.most}
        self.units = [math.gcd(*sizes) for sizes in zip(*points, strict=True)]
        self.failed = 0
        self.checked = dict.fromkeys(points, True)
        self.known: set[tuple[int, ...]] = set()
        self.refused: set[tuple[int, ...]] = set()
        self.rooms: list[Room] = []
        self.lock = thread_locks.lock()
        namespace = {**BUILT_IN, **constants}
        exec(compile(source, "<burnish program>", "exec"), namespace)
        self.run = namespace["run"]

    def __call__(self, *inputs: Any) -> Any:
        point = self.point_of(inputs)
        if point not in self.known:
            if not self.is_right_for(point):
                return self.otherwise(*inputs)
            if len(self.known) > MOST_KNOWN:
                self.known.clear()
            self.known.add(point)
        return self.at(point, *inputs)

    def at(self, point: tuple[int, ...], *inputs: Any) -> Any:
        """Run for sizes that it is valid for."""
        try:
            room = self.rooms.pop()
        except IndexError:
            room = Room()
        frame = room.frames.get(point)
        if frame is None:
            try:
                frame = self.make_frame(point, room)
            # a kernel needs another variant for these sizes, and it could not be compiled
            except InternalError as error:
                self.rooms.append(room)
                return self.refuse(point, error)(*inputs)
            if len(room.frames) >= MOST_FRAMES:
                del room.frames[next(iter(room.frames))]
            room.frames[point] = frame
        outputs = self.run(frame, *inputs)
        self.rooms.append(room)
        return outputs

    def refuse(self, point: tuple[int, ...], error: InternalError) -> Callable[..., Any]:
        """Stop using the program for these sizes, and return what runs instead."""
        self.known.discard(point)
        with self.lock:
            self.refused.add(point)
        events.emit("guards.sizes", text=f"not for {', '.join(map(str, point))}: {error}", fallback="internal")
        return self.otherwise

    def is_right_for(self, point: tuple[int, ...]) -> bool:
        if point in self.refused or any(formula.at(point) < 0 for formula in self.check.conditions):
            return False
        with self.lock:
            if point in self.refused:
                return False
            found = self.found_right(point)
            if not found and len(self.refused) < MOST_KNOWN:
                self.refused.add(point)
        return found

    def found_right(self, point: tuple[int, ...]) -> bool:
        if self.is_divided or self.check.is_special(point):
            return point == self.points[0] or self.holds_at(point)
        if is_between(self.least, point, self.most):
            return True
        # Extend the range farther than to the size: sizes that grow by one with every call should not be checked in
        # every call. What holds at the corners of a range holds inside.
        is_single = len(point) == 1
        if is_single or self.failed < MOST_FAILED:
            for reach in (2, 1) if is_single else (4, 2, 1):
                least, most = self.longer(point[0], reach) if is_single else self.wider(point, reach)
                corners = corners_of(least, most)
                further = sorted(corners - self.corners)
                if further and not any(map(self.check.is_special, further)) and all(map(self.holds_at, further)):
                    self.least, self.most, self.corners = least, most, corners
                    return True
            self.failed += 1
        return self.holds_at(point)

    def longer(self, size: int, reach: int) -> Range:
        (least,), (most,) = self.least, self.most
        return (min(least, size),), (reach * size if size > most else most,)

    def wider(self, point: tuple[int, ...], reach: int) -> Range:
        """The range farther down and up, of all symbols that change: if another one leaves it later, that costs as many
        traces again. It ends at a few sizes only, so that ranges share corners."""
        least, most = list(point), list(point)
        for k, (low, size, high) in enumerate(zip(self.least, point, self.most, strict=True)):
            unit, offset = self.units[k], 2 * k + 1  # two symbols are rarely equal at a corner
            changes = reach > 1 and (low, high) != (size, size)
            below = end_below(min(low, size) // reach // unit, offset)
            above = end_above(-(-max(high, size) * reach // unit), offset)
            least[k] = unit * below if changes or size < low else low
            most[k] = unit * above if changes or size > high else high
        return tuple(least), tuple(most)

    def holds_at(self, point: tuple[int, ...]) -> bool:
        """What the check says, asked once: it takes the time of a trace."""
        found = self.checked.get(point)
        if found is None:
            if len(self.checked) > MOST_KNOWN:
                self.checked.clear()
            found = self.checked[point] = self.check(point)
        return found


def end_below(size: int, offset: int) -> int:
    """A power of two plus the offset, or a smaller size itself."""
    return (1 << (size - offset).bit_length() - 1) + offset if size > offset + 1 else size


def end_above(size: int, offset: int) -> int:
    return (1 << (max(size - offset, 2) - 1).bit_length()) + offset


def range_of(points: Sequence[tuple[int, ...]]) -> Range:
    """The range that a program is right for if it is right at the points. Of several symbols this is the first point
    alone: that one stays smaller than another holds at all points, and at a corner between them it may not."""
    some = points if len(points[0]) == 1 else points[:1]
    least, most = (tuple(map(end, zip(*some, strict=True))) for end in (min, max))
    return least, most


def corners_of(least: tuple[int, ...], most: tuple[int, ...]) -> set[tuple[int, ...]]:
    """Of a range; none where there are too many."""
    if 2 ** sum(map(operator.ne, least, most)) > MOST_CORNERS:
        return set()
    return set(itertools.product(*zip(least, most, strict=True)))


def is_between(least: tuple[int, ...], point: tuple[int, ...], most: tuple[int, ...]) -> bool:
    return all(low <= size <= high for low, size, high in zip(least, point, most, strict=True))
