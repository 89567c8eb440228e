"""A compiled program with symbolic sizes: reads the sizes from the inputs and runs in a frame for them.

    program = SymbolicProgram(source, constants, point_of, make_frame, ...)
    outputs = program(*inputs)              point_of(inputs) == (64, 2): a frame for these sizes is made or found

Like `LinkedProgram`, but a frame belongs to sizes: they are numbers in it and in its tables. Frames for several
sizes share one piece of memory, their room, which is used by one run at a time. The program's size check runs the
first time that a size is outside the range of those checked before.
"""

from __future__ import annotations

import itertools
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
        # Extend the range to twice the size: sizes that grow by one with every call should not be checked in every
        # call. What holds at the corners of a range holds inside.
        for reach in (2, 1):
            wide = tuple([reach * size if size > most else size for size, most in zip(point, self.most, strict=True)])
            least, most = tuple(map(min, self.least, point)), tuple(map(max, self.most, wide))
            corners = corners_of(least, most)
            if corners and all(
                corner in self.corners or not self.check.is_special(corner) and self.holds_at(corner)
                for corner in corners
            ):
                self.least, self.most, self.corners = least, most, corners
                return True
        return len(point) > 1 and self.holds_at(point)

    def holds_at(self, point: tuple[int, ...]) -> bool:
        """What the check says, asked once: it takes the time of a trace."""
        found = self.checked.get(point)
        if found is None:
            if len(self.checked) > MOST_KNOWN:
                self.checked.clear()
            found = self.checked[point] = self.check(point)
        return found


def range_of(points: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
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
