"""Builds one Triton kernel for symbolic sizes from the kernels for a few sizes.

    kernel = SymbolicKernel([kernel for 64 rows, for 65, ...], numbers, space)
    kernel.at((200,))       Launching(printed, sizes=(200, 153600), grid=300)

    def exp(b0, b1, n0):                        n0: 768*s0
        x = (pid) * 512 + tl.arange(0, 512)
        mx = x < n0

A formula of the sizes in the kernels' boxes (`generalize_sizes`) becomes a parameter of the printed kernel. Tiles do
not depend on the sizes, except for two decisions at run time: how a row of symbolic length is held, and whether offsets
are 64 bits wide. Each combination is another form of the kernel, with its own text, printed when it is first needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...concurrency import thread_locks
from ...schedule.loops.loop_ir import Kernel
from ...tensors.fit_size_formulas import Formula, Point, Space
from ..loops.generalize_sizes import SizeGeneralizer, boxes_for_sizes
from ..loops.kernel_listing import listing, listing_of
from .kernel_function import PrintedKernel, SizeType, body_of, name_of, text_of, warps_of
from .runtime_sizes import ProgramsOf, SizeParameters, TritonSize, at, reaches
from .tiling import Tile, symbolic_tile_of

NEAR = 1 << 30
"""Below this reach, 32-bit offsets are enough: half of their range is left for the last tile."""

EVEN = 16


@dataclass(frozen=True, slots=True)
class Launching:
    """A launch for some sizes: the form of the kernel, its size arguments, and how many programs run it."""

    printed: PrintedKernel
    sizes: tuple[int, ...]
    grid: int


class SymbolicTritonKernel:
    def __init__(self, kernels: Sequence[Kernel], numbers: frozenset[int], space: Space):
        """`kernels` are those at the points of the space, `numbers` the buffers that are passed by value. Raises
        NoFormula if the kernels differ in more than sizes."""
        self.kernel, self.numbers = kernels[0], numbers
        self.parameters = SizeParameters()
        alike = [
            boxes
            for boxes in boxes_for_sizes(kernels, expands=False)
            if not all(0 in box.extents[: box.rows] for box in boxes)
        ]
        printed = SizeGeneralizer(space, lambda formula, seen: TritonSize(formula, self.parameters))
        listed = SizeGeneralizer(space, lambda formula, seen: formula)
        self.seen = [boxes[0] for boxes in alike]
        self.boxes = [printed.box(boxes) for boxes in alike]
        self.listed = listing(replace(self.kernel, loops=()))
        self.listed += [line for boxes in alike for line in listing_of(listed.box(boxes))]
        self.rows: list[int | TritonSize] = [math.prod(box.extents[: box.rows]) for box in self.boxes]
        self.inner: list[int | TritonSize] = [math.prod(box.extents[box.rows :]) for box in self.boxes]
        self.reaches: list[int | Formula] = list(set().union(*map(reaches, self.boxes)))
        self.forms: dict[tuple[tuple[Tile, ...], bool], tuple[PrintedKernel, list[Formula | ProgramsOf]]] = {}
        self.lock = thread_locks.lock()

    @property
    def name(self) -> str:
        return self.kernel.name

    def at(self, point: Point) -> Launching:
        tiles = tuple(
            [
                symbolic_tile_of(seen, at(inner, point), isinstance(rows, TritonSize), isinstance(inner, TritonSize))
                for seen, rows, inner in zip(self.seen, self.rows, self.inner, strict=True)
            ]
        )
        far = any(at(reach, point) >= NEAR for reach in self.reaches)
        with self.lock:
            form = self.forms.get((tiles, far))
            if form is None:
                form = self.forms[tiles, far] = self.printed(tiles, far)
        printed, parameters = form
        ends = [0]
        for rows, tile in zip(self.rows, tiles, strict=True):
            ends.append(ends[-1] + -(-max(at(rows, point), 0) // tile.rows))
        sizes = [ends[size.loops] if isinstance(size, ProgramsOf) else size.at(point) for size in parameters]
        return Launching(printed, tuple(sizes), ends[-1])

    def printed(self, tiles: tuple[Tile, ...], far: bool) -> tuple[PrintedKernel, list[Formula | ProgramsOf]]:
        """Prints a form. Also returns its size parameters."""
        ends = [End(self.parameters, number + 1) for number in range(len(tiles))]
        lines, functions = body_of(self.kernel, self.boxes, tiles, self.numbers, ends, far)
        parameters = list(self.parameters.entries)
        type = "i64" if far else "i32"
        sizes = tuple([SizeType(type, isinstance(size, Formula) and size.divisor % EVEN == 0) for size in parameters])
        name = name_of(self.kernel)
        text = text_of(self.kernel, name, self.listed, [f"n{k}" for k in range(len(parameters))], lines, functions)
        return PrintedKernel(name, text, 0, warps_of(tiles), self.kernel.dtypes, self.numbers, sizes), parameters


@dataclass(frozen=True, slots=True)
class End:
    """The end of the programs of the first `loops` loops, printed as a parameter."""

    parameters: SizeParameters
    loops: int

    def __str__(self) -> str:
        return self.parameters.name(ProgramsOf(self.loops))
