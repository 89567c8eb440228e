"""What rounding within a program may do to its results. For `check`: the inputs' neighbours do not show all of it.

    v0 = x0.to(F32).mean(0)         x0 is boolean: it has no neighbours, but v0 has
    v1 = torch.softmax(v0, 0)

    v2 = F.group_norm(x1, 1)        an element beside the mean is nearly nought, and as wrong as one that is large

Two things are asked, and both of eager's arithmetic alone, never of what is judged:

- *Eager's errors beside the values on the way* (`errors_beside_values`). Eager and float64 run line by line, and what a
  line made is moved by the same amount in both: what eager then makes of it, against what float64 makes of it, is an
  error that eager makes near here. Nothing is moved that a jump (a comparison, floor) reads, or the error would be that
  of the jump.
- *Half a unit of the largest* (`noise`). What takes a mean off knows its result to half a rounding unit of the largest
  of the numbers it centres, at best; what is left where they cancel is noise. The float64 program runs with such
  noise, of random signs, added by those lines, and what comes of it in the end is allowed. Other lines get none: an
  exponential or a softmax is accurate in each element, however small.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from bench.closeness import FAR, doubled, in_double, rounding_unit, singled
from bench.operators import set_seed

from .program import Line, Program, namespace

SAMPLES = 200
NOISES = 32

CENTRES = re.compile(r"layer_norm|group_norm|batch_norm|instance_norm|- \w+\.mean\(")
"""Lines that take a mean off."""

Space = dict[str, Any]
Change = Callable[[str, torch.Tensor], torch.Tensor]


def started(program: Program, arguments: tuple, floats: torch.dtype | None) -> Space:
    return namespace(floats) | {f"x{k}": x for k, x in enumerate(arguments)}


def in_single(dtype: torch.dtype | None) -> Callable[[tuple], tuple]:
    return singled if dtype is torch.float32 else lambda arguments: arguments


def errors_beside_values(program: Program, more: int, name: str, floats: torch.dtype | None = None,
                         ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of what eager and float64 make of a value's neighbours. `floats` is what eager's floats are meant to be."""
    movable = movable_lines(program, name)
    if not movable:
        return
    for seed in range(SAMPLES):
        generator = torch.Generator().manual_seed(seed)
        eager = started(program, in_single(floats)(program.arguments(more)), floats)
        exact = started(program, doubled(program.arguments(more)), torch.float64)
        set_seed(1)
        for k, line in enumerate(program.lines):
            exec(line.text, eager)
            with in_double():
                exec(line.text, exact)
            if k in movable:
                for made in line.defines or line.uses[:1]:
                    move(eager[made], exact[made], generator)
        yield eager[name], exact[name]


def move(eager: torch.Tensor, exact: torch.Tensor, generator: torch.Generator) -> None:
    """Both by the same, a few rounding units of eager's."""
    if eager.dtype is torch.float64 or not eager.is_floating_point() or eager.shape != exact.shape or not exact.numel():
        return
    far = FAR if eager.dtype.itemsize > 2 else 2
    steps = torch.randint(-far, far + 1, eager.shape, generator=generator)
    before = eager.double()
    moved = (before + steps * rounding_unit(before, eager.dtype)).to(eager.dtype)
    change = (moved.double() - before).nan_to_num(0.0, 0.0, 0.0)
    eager.copy_((before + change).to(eager.dtype))
    exact.add_(change)


def movable_lines(program: Program, name: str | None = None) -> set[int]:
    """Lines that make a value with memory of its own, or write to one, of which no jump on the way to `name` reads
    anything."""
    found: set[int] = set()
    wanted = leading_to(program, name)
    for k, line in enumerate(program.lines):
        below, read_by_jump = set(line.defines or line.uses), False
        for later in program.lines[k + 1:]:
            if later in wanted and below & set(later.uses):
                read_by_jump |= jumps(later)
                # What is written to is the first name of the line.
                below |= set(later.defines) or set(later.uses)
        if not read_by_jump and (makes_memory(program, k) if line.defines else writes_to_whole(program, k)):
            found.add(k)
    return found


def leading_to(program: Program, name: str | None) -> list[Line]:
    """The lines that a value may depend on: whoever writes to something counts."""
    if name is None:
        return list(program.lines)
    needed, found = {name}, []
    for line in reversed(program.lines):
        if not line.defines or needed & set(line.defines):
            needed |= set(line.uses)
            found.append(line)
    return found


def writes_to_whole(program: Program, number: int) -> bool:
    """Whether what a line wrote to can be moved, and no jump can read it by another name: it is an input, or has memory
    of its own, of which nothing else shows a part."""
    space = started(program, program.arguments(), None)
    set_seed(1)
    for line in program.lines[:number + 1]:
        exec(line.text, space)
    name = program.lines[number].uses[0]
    place = space[name].untyped_storage().data_ptr()
    return not any(isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() == place
                   for other, value in space.items() if other != name) and not is_expanded(space[name])


def is_expanded(x: torch.Tensor) -> bool:
    return any(n > 1 and not step for n, step in zip(x.shape, x.stride(), strict=True))


def makes_memory(program: Program, number: int) -> bool:
    """Whether the values of a line can be written to without writing to any other."""
    space = started(program, program.arguments(), None)
    set_seed(1)
    for line in program.lines[:number + 1]:
        exec(line.text, space)
    line = program.lines[number]
    made = [space[name] for name in line.defines]
    others = [value for name, value in space.items() if isinstance(value, torch.Tensor) and name not in line.defines]
    theirs = {value.untyped_storage().data_ptr() for value in others}
    mine = [value.untyped_storage().data_ptr() for value in made]
    return not theirs & set(mine) and len(set(mine)) == len(mine) and not any(map(is_expanded, made))


JUMP = re.compile("|".join(map(re.escape, (
    "floor", "ceil", "trunc", "round", "sign", "frac", " > ", " < ", " >= ", " <= ", " == ", " != ", " // ", " % ",
    "fmod", "remainder", "heaviside", "shrink", "threshold", "bool", "torch.int", "torch.uint", "one_hot", "isnan",
    "isfinite", "isinf", "logical_", "arg", "median", "sort", "nan_to_num", "any(", "all(", "nonzero", "max(dim",
    "min(dim"))))
"""What decides, rather than computes."""


def jumps(line: Line) -> bool:
    return JUMP.search(line.text) is not None


def noise(program: Program, more: int, name: str) -> torch.Tensor | None:
    """For each element of a value the most that half a rounding unit in each line that centres makes of it."""
    centring = {k for k, line in enumerate(program.lines) if line.defines and CENTRES.search(line.text)}
    if not centring:
        return None
    dtypes: dict[str, torch.dtype] = {}

    def run(change: Change | None, arguments: tuple, floats: torch.dtype | None = torch.float64) -> torch.Tensor:
        space = started(program, arguments, floats)
        set_seed(1)
        for k, line in enumerate(program.lines):
            exec(line.text, space)
            for made in line.defines if change is not None and k in centring else ():
                space[made] = change(made, space[made])
        return space[name].double()

    def note(made: str, value: torch.Tensor) -> torch.Tensor:
        dtypes[made] = value.dtype
        return value

    run(note, program.arguments(more), None)
    # Made before the default dtype is another one: random numbers would be others.
    plain, *others = [doubled(program.arguments(more)) for _ in range(NOISES + 1)]
    with in_double():
        meant = run(None, plain)
        found = torch.zeros_like(meant)
        for seed, arguments in enumerate(others):
            generator = torch.Generator().manual_seed(seed)
            changed = run(lambda made, x, g=generator: noisy(x, dtypes[made], g), arguments)
            found = torch.maximum(found, (changed - meant).abs().nan_to_num(0.0, 0.0, 0.0))
    return found


def noisy(x: torch.Tensor, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    finite = x.abs()[x.isfinite()]
    if not dtype.is_floating_point or not finite.numel():
        return x
    signs = torch.randint(0, 2, x.shape, generator=generator) * 2 - 1
    return x + 0.5 * signs * rounding_unit(finite.max(), dtype)


__all__ = ["errors_beside_values", "jumps", "movable_lines", "noise"]
