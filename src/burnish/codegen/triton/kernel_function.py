"""Prints a kernel as a Triton function.

    printed = print_kernel(kernel)
    printed.text         def exp_f32(x): ...
                         def softmax(b0, b1): ...
    printed.grid         how many programs run it

The loops of a kernel are independent, so their programs are numbered consecutively. Each program finds by its number
the loop it belongs to, and its tile of that loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from ...schedule.loops.loop_ir import Kernel
from ..loops.coalesce_loops import LoopNest, simplify
from ..loops.kernel_listing import listing
from .loop_printer import TritonLoopPrinter
from .print_math_expansions import function_text
from .tiling import PLAIN, Tile, TileVariant, tile_of


@dataclass(frozen=True, slots=True)
class PrintedKernel:
    name: str
    text: str
    grid: int
    """0 if there is nothing to compute."""
    warps: int
    dtypes: tuple[str, ...]
    numbers: frozenset[int]
    """The buffers that are passed by value."""
    sizes: tuple[SizeType, ...] = ()
    """The parameters after the buffers: symbolic sizes (`symbolic_size_kernel`)."""
    stages: int = 0
    """For a matmul: how many steps of its loop are in flight at a time. 0: Triton's default."""


@dataclass(frozen=True, slots=True)
class SizeType:
    type: str
    is_even: bool
    """Whether it is a multiple of 16 for all sizes. Such a bound does not cut vectors short."""


def print_kernel(kernel: Kernel, numbers: frozenset[int] = frozenset(), variant: TileVariant = PLAIN) -> PrintedKernel:
    boxes = [simplify(loop, expands=False) for loop in kernel.loops]
    boxes = [box for box in boxes if 0 not in box.extents[: box.rows]]
    tiles = [tile_of(box, variant) for box in boxes]
    ends = list(itertools.accumulate(tile.programs for tile in tiles))
    lines, functions = body_of(kernel, boxes, tiles, numbers, ends)
    name = name_of(kernel)
    return PrintedKernel(
        name,
        text_of(kernel, name, listing(kernel), (), lines, functions),
        ends[-1] if ends else 0,
        warps_of(tiles),
        kernel.dtypes,
        numbers,
    )


def body_of(
    kernel: Kernel,
    boxes: Sequence[LoopNest],
    tiles: Sequence[Tile],
    numbers: frozenset[int],
    ends: Sequence[object],
    far: bool | None = None,
) -> tuple[list[str], set[tuple[str, str]]]:
    """The lines, and the functions that they call. `ends[k]` counts the programs of loops 0 to k together."""
    lines: list[str] = []
    functions: set[tuple[str, str]] = set()
    for number, (box, tile) in enumerate(zip(boxes, tiles, strict=True)):
        first = ends[number - 1] if number else 0
        printer = TritonLoopPrinter(box, tile, kernel.stored, numbers, f"pid - {first}" if number else "pid", far)
        body = printer.body()
        functions |= printer.functions
        if len(boxes) == 1:
            lines += body
        else:
            asked = (
                f"pid < {ends[0]}"
                if number == 0
                else f"pid >= {first}"
                if number + 1 == len(boxes)
                else f"(pid >= {first}) & (pid < {ends[number]})"
            )
            lines += [f"if {asked}:", *(f"    {line}" for line in body)]
    return lines, functions


def text_of(
    kernel: Kernel,
    name: str,
    listed: Sequence[str],
    further: Sequence[str],
    body: Sequence[str],
    functions: set[tuple[str, str]],
) -> str:
    """`listed` is the kernel's listing, for readers. `further` are the parameters after the buffers."""
    head, *loops = listed
    lines = [f"# {line}" for line in ("\n".join(kernel.origin).splitlines() + [f"kernel {kernel.name}{head}"] + loops)]
    lines.append(f"def {name}({', '.join([*(f'b{n}' for n in range(len(kernel.dtypes))), *further])}):")
    lines += ["    pid = tl.program_id(0)", *(f"    {line}" for line in body)]
    texts = [function_text(*function) for function in sorted(functions)]
    return "\n\n\n".join([*texts, "\n".join(lines)]) + "\n"


def name_of(kernel: Kernel) -> str:
    name = "".join(c if c.isalnum() else "_" for c in kernel.name) or "kernel"
    return name if name.isidentifier() else f"kernel_{name}"


def warps_of(tiles: Sequence[Tile]) -> int:
    return max((tile.warps for tile in tiles), default=1)
