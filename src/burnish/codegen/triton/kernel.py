"""A kernel as a function of Triton.

    printed = print_kernel(kernel)
    printed.text         def exp_f32(x): ...
                         def softmax(b0, b1): ...
    printed.grid         how many programs run it

The loops of a kernel know nothing of one another, so their programs are counted through: each asks by its number which
loop it belongs to, and which tile of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...schedule.loops import Kernel
from ..box import simplify
from ..listing import listing
from .functions import function_text
from .loops import LoopPrinter
from .tiles import tile_of


@dataclass(frozen=True, slots=True)
class Printed:
    name: str
    text: str
    grid: int
    """0 where there is nothing to do."""
    warps: int
    dtypes: tuple[str, ...]
    numbers: frozenset[int]
    """The buffers that are passed by value."""
    stages: int = 0
    """Of a product: how many steps of its loop are in the works at a time. 0: as Triton will have it."""


def print_kernel(kernel: Kernel, numbers: frozenset[int] = frozenset()) -> Printed:
    boxes = [simplify(loop, expands=False) for loop in kernel.loops]
    boxes = [box for box in boxes if 0 not in box.extents[: box.rows]]
    tiles = [tile_of(box) for box in boxes]
    name = "".join(c if c.isalnum() else "_" for c in kernel.name) or "kernel"
    name = name if name.isidentifier() else f"kernel_{name}"
    head, *loops = listing(kernel)
    lines = [f"# {line}" for line in ("\n".join(kernel.origin).splitlines() + [f"kernel {kernel.name}{head}"] + loops)]
    lines.append(f"def {name}({', '.join(f'b{n}' for n in range(len(kernel.dtypes)))}):")
    lines.append("    pid = tl.program_id(0)")
    first, functions = 0, set()
    for number, (box, tile) in enumerate(zip(boxes, tiles, strict=True)):
        printer = LoopPrinter(box, tile, kernel.stored, numbers, f"pid - {first}" if first else "pid")
        body = printer.body()
        functions |= printer.functions
        if len(boxes) == 1:
            lines += [f"    {line}" for line in body]
        else:
            end = first + tile.programs
            asked = f"pid < {end}" if number == 0 else f"pid >= {first}" if number + 1 == len(boxes) \
                else f"(pid >= {first}) & (pid < {end})"
            lines += [f"    if {asked}:", *(f"        {line}" for line in body)]
        first += tile.programs
    texts = [function_text(*function) for function in sorted(functions)]
    text = "\n\n\n".join([*texts, "\n".join(lines)]) + "\n"
    return Printed(name, text, first, max((tile.warps for tile in tiles), default=1), kernel.dtypes, numbers)


__all__ = ["Printed", "print_kernel"]
