"""The error that rounding may cause in a program's results. Varying the inputs, as `check` does, does not show all.

    v0 = x0.to(F32).mean(0)         x0 is boolean: it has no neighbours, but v0 has
    v1 = torch.softmax(v0, 0)

    v2 = F.group_norm(x1, 1)        an element near the mean is almost zero, and as wrong as one that is large

There are two measures, both of eager's arithmetic alone, never of the judged code:

- *Eager's errors at neighbours of intermediate values* (`errors_beside_values`). Eager and float64 run line by line,
  and the result of a line is moved by the same amount in both. The difference between the later results of eager and
  of float64 is then an error that eager makes near here. A value that a discontinuous operator (a comparison, floor)
  reads is not moved, because the error would be that of the jump.
- *The effect of half a rounding unit in intermediate values* (`noise`). A line that subtracts a mean has an error of at
  least half a rounding unit of the largest of the numbers that it centres; where these cancel, the rest is noise. The
  logarithm of a sum of exponentials, the largest of which is 1, is known to half a unit of 1. A gelu is its argument
  times the sum of 1 and an error function near -1, which is known to half a unit of 1. And a sum, in any order, is
  known as if each of its terms were off by half a unit in the last place: eager's own order may be exact by luck,
  if no partial sum outgrew its digits. The derivatives of the float64 program give the effect of such halves on an
  element of the final result, and their total is allowed there. Other lines get no allowance: an exponential or a
  softmax is accurate in each element, however small.
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
MOST_ELEMENTS = 1024
"""So many elements are examined separately. Few are exact by luck, but one mean is subtracted from a whole row."""

CENTRES = re.compile(r"layer_norm|group_norm|batch_norm|instance_norm|- \w+\.mean\(")
"""Lines that subtract a mean."""

LOGARITHMS = re.compile(r"log_softmax|logsumexp|cross_entropy")
"""Lines that take the logarithm of a sum of exponentials."""

GELUS = re.compile(r"^\w+ = F\.gelu\(")
"""Lines that are a gelu of the expression in parentheses."""

SUMS = re.compile(
    r"sum\(|mean\(|\.var\(|\.std\(|\.norm\(|F\.linear|matmul| @ |addmm|einsum|F\.conv|avg_pool|"
    r"index_add\(|scatter_add\("
)
"""Lines that add up, or multiply and add up."""

Space = dict[str, Any]


def started(program: Program, arguments: tuple, floats: torch.dtype | None) -> Space:
    return namespace(floats) | {f"x{k}": x for k, x in enumerate(arguments)}


def in_single(dtype: torch.dtype | None) -> Callable[[tuple], tuple]:
    return singled if dtype is torch.float32 else lambda arguments: arguments


def errors_beside_values(
    program: Program, more: int, name: str, floats: torch.dtype | None = None
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of eager's and float64's results for neighbours of a value. `floats` is what eager's floats stand for."""
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
        for later in program.lines[k + 1 :]:
            if later in wanted and below & set(later.uses):
                read_by_jump |= jumps(later)
                # The first name of the line is written to.
                below |= set(later.defines) or set(later.uses)
        if not read_by_jump and (makes_memory(program, k) if line.defines else writes_to_whole(program, k)):
            found.add(k)
    return found


def leading_to(program: Program, name: str | None) -> list[Line]:
    """The lines that a value may depend on. One that writes to a tensor counts if a needed value shares its memory."""
    if name is None:
        return list(program.lines)
    space = ran(program)
    places = {name: x.untyped_storage().data_ptr() for name, x in space.items() if isinstance(x, torch.Tensor)}
    needed, found = {name}, []
    for line in reversed(program.lines):
        counts = (
            needed & set(line.defines) if line.defines else places[line.uses[0]] in {places[other] for other in needed}
        )
        if counts:
            needed |= set(line.uses)
            found.append(line)
    return found


def ran(program: Program, lines: int | None = None) -> Space:
    """The values that the first lines leave, in eager."""
    space = started(program, program.arguments(), None)
    set_seed(1)
    for line in program.lines[:lines]:
        exec(line.text, space)
    return space


def writes_to_whole(program: Program, number: int) -> bool:
    """Whether what a line wrote to can be moved, and no jump can read it by another name: it is an input, or has memory
    of its own, of which nothing else shows a part."""
    space = ran(program, number + 1)
    name = program.lines[number].uses[0]
    place = space[name].untyped_storage().data_ptr()
    return not any(
        isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() == place
        for other, value in space.items()
        if other != name
    ) and not is_expanded(space[name])


def is_expanded(x: torch.Tensor) -> bool:
    return any(n > 1 and not step for n, step in zip(x.shape, x.stride(), strict=True))


def makes_memory(program: Program, number: int) -> bool:
    """Whether the values of a line can be written to without writing to any other."""
    space = ran(program, number + 1)
    line = program.lines[number]
    made = [space[name] for name in line.defines]
    others = [value for name, value in space.items() if isinstance(value, torch.Tensor) and name not in line.defines]
    theirs = {value.untyped_storage().data_ptr() for value in others}
    mine = [value.untyped_storage().data_ptr() for value in made]
    return not theirs & set(mine) and len(set(mine)) == len(mine) and not any(map(is_expanded, made))


JUMP = re.compile(
    "|".join(
        map(
            re.escape,
            (
                "floor",
                "ceil",
                "trunc",
                "round",
                "sign",
                "frac",
                " > ",
                " < ",
                " >= ",
                " <= ",
                " == ",
                " != ",
                " // ",
                " % ",
                "fmod",
                "remainder",
                "heaviside",
                "hardshrink",
                "softshrink",
                "threshold",
                "bool",
                "torch.int",
                "torch.uint",
                "one_hot",
                "isnan",
                "isfinite",
                "isinf",
                "logical_",
                "arg",
                "median",
                "sort",
                "nan_to_num",
                "any(",
                "all(",
                "nonzero",
                "max(dim",
                "min(dim",
            ),
        )
    )
)
"""Operators that decide rather than compute."""


def jumps(line: Line) -> bool:
    return JUMP.search(line.text) is not None


def noise(program: Program, more: int, name: str, where: torch.Tensor) -> torch.Tensor | None:
    """For the elements of a value selected by a mask, the greatest effect of half a rounding unit: of the largest
    number in each line that centres, and of each term in each line that adds up."""
    if not any(
        line.defines and where.search(line.text)
        for line in program.lines
        for where in (CENTRES, LOGARITHMS, GELUS, SUMS)
    ):
        return None
    eager = started(program, program.arguments(more), None)
    set_seed(1)
    for line in program.lines:
        exec(line.text, eager)
    dtypes = {key: value.dtype for key, value in eager.items() if isinstance(value, torch.Tensor)}
    exact = started(program, doubled(program.arguments(more)), torch.float64)
    halves: list[tuple[torch.Tensor, torch.Tensor]] = []

    def moved_by_halves(value: str, size: torch.Tensor) -> torch.Tensor:
        """A value that is differentiated by: it is half so many rounding units off, at most."""
        place = torch.zeros_like(exact[value], requires_grad=True)
        halves.append((place, 0.5 * rounding_unit(size, dtypes[value])))
        return exact[value] + place

    def is_float(value: str) -> bool:
        return value in dtypes and dtypes[value].is_floating_point and exact[value].numel() > 0

    def run() -> torch.Tensor:
        for line in program.lines:
            terms = filter(is_float, line.uses) if line.defines and SUMS.search(line.text) else ()
            space = exact | {term: moved_by_halves(term, exact[term].detach()) for term in terms}
            exec(line.text, space)
            exact.update((made, space[made]) for made in line.defines)
            for made in filter(is_float, line.defines) if CENTRES.search(line.text) else ():
                largest = exact[made].detach().abs().nan_to_num(0.0, 0.0, 0.0).max()
                exact[made] = moved_by_halves(made, largest)
            for made in filter(is_float, line.defines) if LOGARITHMS.search(line.text) else ():
                exact[made] = moved_by_halves(made, torch.ones(()))
            for made in filter(is_float, line.defines) if GELUS.search(line.text) else ():
                exec(line.text, given := space | {"F": WithoutGelu()})
                exact[made] = moved_by_halves(made, given[made].detach())
        return exact[name]

    set_seed(1)
    with in_double(), torch.enable_grad():
        try:
            return off_by(run(), where, halves)
        except RuntimeError:
            # Autograd does not differentiate a value that is written to later, or through one of several views.
            return None


class WithoutGelu:
    """A gelu whose argument is also its result."""

    @staticmethod
    def gelu(x: torch.Tensor, **_: Any) -> torch.Tensor:
        return x

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.nn.functional, name)


def off_by(
    value: torch.Tensor, where: torch.Tensor, halves: list[tuple[torch.Tensor, torch.Tensor]]
) -> torch.Tensor | None:
    if value.shape != where.shape or not value.requires_grad:
        return None
    found = torch.zeros(value.shape, dtype=torch.float64)
    for place in where.nonzero()[:MOST_ELEMENTS].tolist():
        slopes = torch.autograd.grad(value[tuple(place)], [x for x, _ in halves], retain_graph=True, allow_unused=True)
        parts = [
            (slope.abs() * size).nan_to_num(0.0, 0.0, 0.0).sum()
            for slope, (_, size) in zip(slopes, halves, strict=True)
            if slope is not None
        ]
        found[tuple(place)] = sum(parts, torch.zeros(()))
    return found
