"""One kernel for all sizes, from the kernels for a few.

    kernels for 64, 65, 68 and 77 rows      =>      a kernel that is told how many rows there are
      loop i0 < 49152 ...                             loop i0 < %size0        %size0 = 768*s0
      loop i0 < 49920 ...

The boxes of the given kernels must be the same but for their numbers. A number that is the same everywhere stays;
any other must be a formula of the sizes, and becomes a `Size` that the kernel finds behind its buffers. Lanes are
chosen among the variables along which all that is read lies at known distances.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from ... import events
from ...ops.scalar import FLOATS, Access, Scalar, cast, const, make
from ...runtime.kernels import NativeKernel, bind
from ...schedule.loops import Kernel
from ...tensors.sizes import Formula, NoFormula, Space
from ..box import Box, accesses, mapped, remade, simplify_alike
from ..listing import listing_of
from . import plan as plans
from .compile import object_code, symbols
from .keep import keep
from .kernel import PARALLEL, SYMBOL, alias_scopes
from .loops import LoopPrinter
from .plan import Plan
from .scopes import Code
from .sizes import Size, blocks, hint, load_sizes, sizes_in
from .target import Host, host


@dataclass(frozen=True, slots=True)
class OpenKernel:
    native: NativeKernel
    sizes: tuple[Formula, ...]
    """What goes into the table behind the buffers."""


def compile_open_kernel(kernels: Sequence[Kernel], space: Space) -> OpenKernel:
    """`kernels` are those at the points of the space. Raises NoFormula where they differ in more than sizes."""
    first = kernels[0]
    if any(k.dtypes != first.dtypes or k.stored != first.stored or len(k.loops) != len(first.loops) for k in kernels):
        raise NoFormula(f"the kernel {first.name} is another one for other sizes")
    unifier = Unifier(space)
    loops = list(zip(*(kernel.loops for kernel in kernels), strict=True))
    if any(len({len(loop.extents) for loop in same}) > 1 for same in loops):
        raise NoFormula(f"the loops of {first.name} are others for other sizes")
    boxes = [unifier.box(simplify_alike(same)) for same in loops]
    key = "\n".join([f"{first.dtypes} {sorted(first.stored)}", *(line for box in boxes for line in listing_of(box)),
                     *(f"{box.positions} {[hint(n) < 16 for n in box.extents]}" for box in boxes)])
    native = _known.get(key)
    if native is None:
        native = _known.setdefault(key, compiled(first, boxes, len(unifier.sizes), host()))
    return OpenKernel(native, tuple(unifier.sizes))


_known: weakref.WeakValueDictionary[str, NativeKernel] = weakref.WeakValueDictionary()
"""For as long as a program holds them. Two threads may compile the same one: either serves."""


class Unifier:
    """What is equal in all examples stays, numbers become sizes."""

    def __init__(self, space: Space):
        self.space = space
        self.sizes: dict[Formula, Size] = {}
        self.made: dict[tuple[int, ...], Scalar] = {}
        self.held: list[Any] = []

    def box(self, boxes: Sequence[Box]) -> Box:
        self.made.clear()
        made: Box = self.of(boxes)
        return made

    def number(self, values: Sequence[int]) -> int | Size:
        found = self.space.fit(values)
        if isinstance(found, int):
            return found
        if found not in self.sizes:
            self.sizes[found] = Size(len(self.sizes), values[0])
        return self.sizes[found]

    def of(self, examples: Sequence[Any]) -> Any:
        first = examples[0]
        kind = type(first)
        if any(type(x) is not kind for x in examples):
            raise NoFormula("a kernel is another one for other sizes")
        if kind is Scalar:
            return self.scalar(examples)
        if kind is int:
            return first if all(x == first for x in examples) else self.number(examples)
        if kind is tuple:
            if any(len(x) != len(first) for x in examples):
                raise NoFormula("a kernel has other parts for other sizes")
            return tuple(map(self.of, zip(*examples, strict=True)))
        if is_dataclass(first):
            return replace(first, **{f.name: self.of([getattr(x, f.name) for x in examples]) for f in fields(first)})
        if any(x != first for x in examples):
            raise NoFormula(f"{first} is {examples[1]} for other sizes")
        return first

    def scalar(self, examples: Sequence[Scalar]) -> Scalar:
        first = examples[0]
        key = tuple(map(id, examples))
        found = self.made.get(key)
        if found is None:
            self.held.append(examples)
            if any(x.op != first.op or x.dtype != first.dtype for x in examples):
                raise NoFormula("a kernel computes otherwise for other sizes")
            if first.op == "const":
                found = self.constant(examples)
            else:
                args = tuple(self.scalar(args) for args in zip(*(x.args for x in examples), strict=True))
                found = make(first.op, first.dtype, args, self.of([x.payload for x in examples]))
            self.made[key] = found
        return found

    def constant(self, examples: Sequence[Scalar]) -> Scalar:
        first = examples[0]
        if all(x is first for x in examples):
            return first
        values = [x.payload for x in examples]
        if first.dtype in FLOATS and (found := self.ratio(values)) is not None:
            return cast(found, first.dtype)
        if first.dtype in FLOATS and all(v == int(v) for v in values if math.isfinite(v)) and all(
                map(math.isfinite, values)):
            values = [int(v) for v in values]
        elif first.dtype == "b8" or first.dtype in FLOATS:
            raise NoFormula(f"the number {first.payload} is another one for other sizes")
        size = self.number(values)
        assert isinstance(size, Size)
        return cast(make("size", "i64", (), size), first.dtype)

    def ratio(self, values: Sequence[float]) -> Scalar | None:
        """A number like 1/n or n/(n - 1), of which n is a size."""
        for above, below, guess in RATIOS:
            try:
                counts = [round(guess(v)) for v in values]
                if all(above(n) / below(n) == v for n, v in zip(counts, values, strict=True)):
                    parts = [self.whole([part(n) for n in counts]) for part in (above, below)]
                    return parts[0] / parts[1]
            except (ArithmeticError, ValueError, NoFormula):
                continue
        return None

    def whole(self, values: Sequence[int]) -> Scalar:
        """An integer as f64."""
        found = self.number(values)
        return const(found, "f64") if isinstance(found, int) else cast(make("size", "i64", (), found), "f64")


RATIOS: tuple[tuple[Callable[[int], int], Callable[[int], int], Callable[[float], float]], ...] = (
    (lambda n: 1, lambda n: n, lambda v: 1 / v),
    (lambda n: n, lambda n: n - 1, lambda v: v / (v - 1)),
    (lambda n: n - 1, lambda n: n, lambda v: 1 / (1 - v)),
    (lambda n: 2, lambda n: n, lambda v: 2 / v),
    (lambda n: -1, lambda n: n, lambda v: -1 / v),
    (lambda n: -2, lambda n: n, lambda v: -2 / v),
)
"""What stands above and below the line, and what n must be for a value."""


def compiled(kernel: Kernel, boxes: Sequence[Box], sizes: int, target: Host) -> NativeKernel:
    text, cycles = print_module(kernel, boxes, target)
    code = object_code(text, target)
    made = bind(kernel.name, code, SYMBOL, symbols(), len(kernel.dtypes) + sizes, cycles)
    if events.is_watched():
        events.emit("kernels", name=kernel.name, text=text, seconds=0.0)
    return made


def print_module(kernel: Kernel, boxes: Sequence[Box], target: Host) -> tuple[str, float]:
    planned = [(box, choose(box, target)) for box in boxes if 0 not in box.extents[: box.rows]]
    cycles = sum(plan.cycles for _, plan in planned)
    costs = [max(plan.cycles / max(plan.items, 1), 1) for _, plan in planned]
    unit = min(costs, default=1)
    weights = [max(round(cost / unit), 1) for cost in costs]
    count = len(kernel.dtypes)
    functions: list[str] = []
    declarations = {"declare i64 @llvm.smax.i64(i64, i64)", "declare i64 @llvm.smin.i64(i64, i64)",
                    f"declare i32 @{PARALLEL}(i64, i64, i64, ptr, ptr)"}
    buffers, counts = count, []
    for number, (box, plan) in enumerate(planned):
        scratch: tuple[str, ...] = ()
        if plan.kind == "inner" and plan.lane is not None and all(isinstance(box.extents[k], int) for k in box.inner):
            box, scratch = keep(box, plan.lane, count)
        printer = LoopPrinter(box, plan, target, kernel.stored, kernel.dtypes, scratch)
        functions += ["", *printer.function(f"loop{number}")]
        declarations |= printer.code.declarations
        buffers = max(buffers, count + len(scratch))
        counts.append(f"items{number}")
        functions += ["", *item_count(f"items{number}", box, plan, weights[number], count),
                      "", *cycle_count(f"cycles{number}", box, plan, count)]
    lines = [f"; kernel {kernel.name}", "", f'target triple = "{target.triple}"', "", *entry(counts, weights),
             *functions, "", *sorted(declarations), "", f"attributes #0 = {{ nounwind {target.attributes} }}"]
    if kernel.stored:
        lines += alias_scopes(buffers, [*kernel.stored, *range(count, buffers)])
    return "\n".join(lines) + "\n", cycles


def item_count(name: str, box: Box, plan: Plan, weight: int, buffers: int) -> list[str]:
    """A function that tells how many units of work a loop has: its items, by their weight."""
    code = Code()
    scope = code.here
    total = str(weight)
    for k in range(box.rows):
        extent: int | str | Size = box.extents[k]
        if plan.block and k == plan.lane:
            extent = blocks(code, box.extents[k], plan.block)
        total = code.emit(scope, f"mul nuw nsw i64 {total}, {extent}")
    return counting(name, box, buffers, scope.lines, total)


def cycle_count(name: str, box: Box, plan: Plan, buffers: int) -> list[str]:
    """A function that tells about how long a loop takes: what it took for the sizes that were seen, by its elements."""
    code = Code()
    scope = code.here
    seen = max(math.prod(map(hint, box.extents)), 1)
    total = str(max(round(plan.cycles / seen * FRACTIONS), 1))
    for extent in box.extents:
        total = code.emit(scope, f"mul nuw nsw i64 {total}, {extent}")
    return counting(name, box, buffers, scope.lines, code.emit(scope, f"udiv i64 {total}, {FRACTIONS}"))


FRACTIONS = 1 << 10
"""Of a cycle, an element of a loop is counted in."""


def counting(name: str, box: Box, buffers: int, lines: Sequence[str], total: str) -> list[str]:
    return [f"define internal i64 @{name}(ptr %buffers) #0 {{", "entry:", *load_sizes(sizes_in(box), buffers),
            *lines, f"  ret i64 {total}", "}"]


def entry(counts: Sequence[str], weights: Sequence[int]) -> list[str]:
    """The kernel itself, and the function that shares a range of work out to the loops."""
    lines = [f"define void @{SYMBOL}(ptr %buffers) #0 {{", "entry:"]
    total = cycles = "0"
    for number, name in enumerate(counts):
        lines += [f"  %n{number} = call i64 @{name}(ptr %buffers)", f"  %t{number} = add i64 {total}, %n{number}",
                  f"  %c{number} = call i64 @cycles{number}(ptr %buffers)",
                  f"  %s{number} = add i64 {cycles}, %c{number}"]
        total, cycles = f"%t{number}", f"%s{number}"
    lines += [f"  %is.small = icmp sle i64 {cycles}, {plans.GRAIN}",
              "  br i1 %is.small, label %alone, label %shared", "alone:",
              f"  call void @items(i64 0, i64 {total}, ptr %buffers)", "  ret void", "shared:",
              f"  %grains = mul i64 {total}, {plans.GRAIN}", f"  %of.one = udiv i64 %grains, {cycles}",
              "  %grain = call i64 @llvm.smax.i64(i64 %of.one, i64 1)",
              f"  %r = call i32 @{PARALLEL}(i64 0, i64 {total}, i64 %grain, ptr @items, ptr %buffers)", "  ret void",
              "}", "", "define internal void @items(i64 %begin, i64 %end, ptr %buffers) #0 {", "entry:"]
    start = "0"
    for number, (name, weight) in enumerate(zip(counts, weights, strict=True)):
        lines.append(f"  %n{number} = call i64 @{name}(ptr %buffers)")
        for side in ("begin", "end"):
            value = f"%{side}{number}"
            lines += [f"  {value}.from = sub i64 %{side}, {start}",
                      f"  {value}.low = call i64 @llvm.smax.i64(i64 {value}.from, i64 0)",
                      f"  {value}.in = call i64 @llvm.smin.i64(i64 {value}.low, i64 %n{number})",
                      f"  {value} = udiv i64 {value}.in, {weight}"]
        lines += [f"  call void @loop{number}(i64 %begin{number}, i64 %end{number}, ptr %buffers)",
                  f"  %t{number} = add i64 {start}, %n{number}"]
        start = f"%t{number}"
    return [*lines, "  ret void", "}"]


def choose(box: Box, target: Host) -> Plan:
    """As for known sizes, with the sizes of the program that was seen; lanes lie at known distances."""
    guessed = guess(box)
    open_rows = {k for k in range(box.rows) if isinstance(box.extents[k], Size)}
    if any(r.is_running for r in box.reductions):
        return plans.cut(guessed, None, 1, plans.cycles_of(guessed, None, target), target)
    lanes: list[int | None] = [
        k for k, extent in enumerate(guessed.extents) if extent > 1
        and all(isinstance(a.strides[k], int) for a in accesses(box.stages))
        and (box.is_elementwise or k >= box.rows or k not in open_rows or target.has_masks)]
    if box.is_elementwise or not box.inner or any(isinstance(box.positions[k], Size) for k in box.inner):
        lanes = [k for k in lanes if k is None or k < box.rows or isinstance(box.positions[k], int)]
    lane = min(lanes or [None], key=lambda k: plans.cycles_of(guessed, k, target, may_turn=False))
    width = 1 if lane is None else plans.width_of(guessed, lane, target)
    if width == 1 and not box.is_elementwise:
        lane = None
    return plans.cut(guessed, lane, width, plans.cycles_of(guessed, lane, target, may_turn=False), target,
                     may_turn=False, is_open=lane in open_rows)


def guess(box: Box) -> Box:
    """The box with the sizes that were seen."""
    @functools.cache
    def access(a: Access) -> Access:
        return replace(a, offset=hint(a.offset), strides=tuple(map(hint, a.strides)),
                       indirect=tuple(map(hint, a.indirect)))

    def leaf(x: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        return make("load", x.dtype, args, access(x.payload)) if x.op == "load" else remade(x, args)

    return replace(box, extents=tuple(map(hint, box.extents)), positions=tuple(map(hint, box.positions)),
                   stages=mapped(box.stages, leaf, access))
