"""Prints a loop as the body of a Triton program, which computes one tile of it.

    r0 = max.f32 b0[768*i0 + i1]             x = (pid * 2 + tl.arange(0, 2))[:, None]
    b1[768*i0 + i1] = exp(...)         =>    q = tl.arange(0, 1024)[None, :]
                                             v0 = tl.load(b0 + (768*x + q), (x < 64) & (q < 768), 0)
                                             ...

`x` counts the rows and `q` the inner elements; the variables of the box are computed from them. Every expression has
the shape of what it depends on: nothing, the rows, the inner elements, or both. Triton broadcasts where they meet.

If the tile is whole, a program keeps what it has loaded or computed from stage to stage. A value that is stored and
read again in a later stage is kept too, instead of read from memory. Where rows are walked in steps, it is read from
memory after a barrier.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from ...ops.scalar_ir import Access, Scalar, make, walk
from ...schedule.loops.loop_ir import Reduction, Stage, Store
from ...tensors.dtypes import FLOATS
from ..loops.coalesce_loops import LoopNest, expressions
from .analysis.find_approximable_results import ROUGH, approximate_results
from .analysis.narrow_indices import is_narrow_comparison, narrow_indices
from .analysis.online_softmax import online_sums
from .print_math_expansions import operation_text
from .reduction_types_and_starts import accumulator_dtype, combine, position_dtype, starts
from .runtime_sizes import TritonSize, is_multiple, reach
from .scalar_operations import TritonOperations, operand
from .tiling import Tile, variables_of
from .triton_types import FAR, LONG_LINE, literal, type_of

ROWS, INNER = 1, 2
"""Bits for what an expression depends on."""


class TritonLoopPrinter:
    """`at` is the text of the tile's number. `numbers` are the buffers that are passed by value. `far`: whether offsets
    are 64 bits wide, for a box with symbolic sizes; None if the sizes are static."""

    def __init__(
        self,
        box: LoopNest,
        tile: Tile,
        stored: frozenset[int],
        numbers: frozenset[int],
        at: str,
        far: bool | None = None,
    ):
        self.functions: set[tuple[str, str]] = set()
        """The transcendental operations that the loop calls, with their dtypes."""
        self.box, self.tile, self.stored, self.numbers, self.at = box, tile, stored, numbers, at
        self.lines: list[str] = []
        self.depth = 0
        self.count = 0
        self.names: dict[Scalar, str] = {}
        self.kept: dict[Access, str] = {}
        """The names of values that an earlier stage stored."""
        self.reduced: list[str] = []
        row_variables, inner_variables = variables_of(box, tile)
        self.rows = math.prod(box.extents[k] for k in row_variables)
        self.inner = math.prod(box.extents[k] for k in inner_variables)
        self.row_variables, self.inner_variables = row_variables, inner_variables
        self.along = [INNER if k in inner_variables else ROWS for k in range(len(box.extents))]
        self.is_flat = box.is_elementwise and not tile.chunks
        self.flat_strides = tuple(math.prod(box.extents[k + 1 :]) for k in range(len(box.extents)))
        self.is_symbolic = far is not None
        self.far = self.rows * max(self.inner, 1) >= FAR if far is None else far
        self.online = {} if self.is_flat or tile.whole else online_sums(box)
        self.sums: dict[int, str] = {}
        """Sums of exponentials that were computed with their maximum."""
        self.later: list[str] = []
        """Lines for the end of a step."""
        roots = expressions(box.stages)
        self.uses = Counter([*roots, *(arg for x in walk(*roots) for arg in x.args)])
        self.approximate = approximate_results(roots)
        self.narrow = narrow_indices(roots, box.extents)
        """Expressions of i64 whose names are of i32."""
        self.changing: set[Scalar] = set()
        """Expressions that read a stored-to buffer: their values may differ between stages."""
        self.depends: dict[Scalar, int] = {}
        for x in walk(*roots):
            self.depends[x] = self.depends_on(x)
            if x.op == "load" and x.payload.buffer in stored or not self.changing.isdisjoint(x.args):
                self.changing.add(x)

    def body(self) -> list[str]:
        self.variables()
        for number, stage in enumerate(self.box.stages):
            if number:
                self.between(self.box.stages[number - 1])
            if stage.reductions and len(self.reduced) in self.online:  # summed with the stage before
                self.reduced += [self.sums[len(self.reduced) + k] for k in range(len(stage.reductions))]
                self.store_all(stage.row_stores, ROWS)
            else:
                self.stage(stage)
        return self.lines

    # ---- variables

    def variables(self) -> None:
        program = f"({self.at}) // {self.tile.chunks}" if self.tile.chunks else self.at
        at = f"({program}).to(tl.int64)" if self.far else f"({program})"
        if self.is_flat:
            self.line(f"x = {at} * {self.tile.rows} + tl.arange(0, {self.tile.rows})")
        else:
            self.line(f"x = ({at} * {self.tile.rows} + tl.arange(0, {self.tile.rows}))[:, None]")
        self.masks = {0: "", ROWS: "", INNER: "", ROWS | INNER: ""}
        if not is_multiple(self.rows, self.tile.rows):
            self.line(f"mx = x < {self.rows}")
            self.masks[ROWS] = self.masks[ROWS | INNER] = "mx"
        self.split("x", self.row_variables)
        if self.tile.chunks:
            chunk = f"({self.at}) % {self.tile.chunks} * {self.tile.inner}"
            self.line(f"q = ({chunk} + tl.arange(0, {self.tile.inner})){'.to(tl.int64)' if self.far else ''}[None, :]")
            self.split_inner()
        elif not self.is_flat and self.tile.whole:
            self.line(f"q = tl.arange(0, {self.tile.inner})[None, :]")
            self.split_inner()

    def split_inner(self) -> None:
        if (
            not is_multiple(self.inner, self.tile.inner)
            or not self.inner
            or self.tile.whole
            and isinstance(self.inner, TritonSize)
        ):
            self.line(f"mq = q < {self.inner}")
            self.masks[INNER] = "mq"
            self.masks[ROWS | INNER] = "mx & mq" if self.masks[ROWS] else "mq"
        self.split("q", self.inner_variables)

    def split(self, name: str, variables: Sequence[int]) -> None:
        """Splits a counter into its variables, the last one fastest."""
        step = 1
        for k in reversed(variables):
            text = name if step == 1 else f"{name} // {step}"
            if k != variables[0]:
                text = f"{text} % {self.box.extents[k]}" if step == 1 else f"({text}) % {self.box.extents[k]}"
            self.line(f"i{k} = {text}")
            step *= self.box.extents[k]

    # ---- stages

    def stage(self, stage: Stage) -> None:
        if self.is_flat or self.tile.whole:
            self.pass_over(stage)
            finished = [self.finished(*pair) for pair in self.collected]
        else:
            finished = self.in_steps(stage)
        for number, text in finished:
            self.reduced[number] = text
        self.store_all(stage.row_stores, ROWS)

    def pass_over(self, stage: Stage) -> None:
        """The whole row at once."""
        self.collected: list[tuple[int, list[str]]] = []
        first = len(self.reduced)
        for number, reduction in enumerate(stage.reductions, first):
            self.reduced.append("")
            if reduction.is_running:
                pair = self.taken(reduction)
                scanned = self.emit(f"tl.associative_scan({self.group(pair)}, 1, {combine(reduction)})", len(pair))
                self.reduced[number] = self.rounded(reduction, scanned[-1])
            else:
                self.collected.append((number, self.taken(reduction)))
        self.store_all(stage.stores, ROWS if self.is_flat else ROWS | INNER)

    def finished(self, number: int, parts: list[str]) -> tuple[int, str]:
        reduction = self.box.reductions[number]
        is_online = number in self.online.values()
        function = "joined_online" if is_online else combine(reduction)
        joined = self.emit(f"tl.reduce({self.group(parts)}, 1, {function}, keep_dims=True)", len(parts))
        if is_online:
            total = self.emit_one(f"checked_online({', '.join(joined)})")
            self.sums |= {k: total for k, maximum in self.online.items() if maximum == number}
            joined = joined[:1]
        return number, self.rounded(reduction, joined[-1])

    def in_steps(self, stage: Stage) -> list[tuple[int, str]]:
        """A loop over the row in steps, with accumulators from step to step."""
        first = len(self.reduced)
        held: list[list[str]] = []
        for number, reduction in enumerate(stage.reductions, first):
            shape = f"({self.tile.rows}, {1 if reduction.is_running else self.tile.inner})"
            held.append([f"a{number}{'ij'[k] if k else ''}" for k in range(len(self.starts(reduction)))])
            for name, (start, dtype) in zip(held[-1], self.starts(reduction), strict=True):
                self.line(f"{name} = tl.full({shape}, {start}, {type_of(dtype)})")
            if number in self.online.values():
                self.line(f"s{number} = tl.full({shape}, 0.0, tl.float32)")
        before = dict(self.names)
        self.line(f"for start in range(0, {self.inner}, {self.tile.inner}):")
        self.depth += 1
        far = ".to(tl.int64)" if self.far else ""
        self.line(f"q = (start + tl.arange(0, {self.tile.inner})){far}[None, :]")
        self.split_inner()
        for number, reduction in enumerate(stage.reductions, first):
            self.reduced.append("")
            names, joined = held[number - first], combine(reduction)
            if self.is_sum_of_products(reduction):
                factors = [self.spread(self.at_value(arg)) for arg in reduction.value.args]
                self.later.append(f"{names[0]} = tl.fma({', '.join(factors)}, {names[0]})")
                continue
            pair = self.taken(reduction)
            if reduction.is_running:
                scanned = self.emit(f"tl.associative_scan({self.group(pair)}, 1, {joined})", len(pair))
                sofar = self.emit(f"{joined}({', '.join([*names, *scanned])})", len(pair))
                self.reduced[number] = self.rounded(reduction, sofar[-1])
                whole = self.emit(f"tl.reduce({self.group(pair)}, 1, {joined}, keep_dims=True)", len(pair))
                later = f"{joined}({', '.join([*names, *whole])})"
            elif number in self.online.values():
                names = [*names, f"s{number}"]
                later = f"online({', '.join([*names, *pair])})"
            else:
                later = f"{joined}({', '.join([*names, *pair])})"
            held[number - first] = names
            self.later.append(f"{', '.join(names)} = {later}")
        self.store_all(stage.stores, ROWS if self.is_flat else ROWS | INNER)
        for text in self.later:
            self.line(text)
        self.later = []
        self.depth -= 1
        # Names from inside the loop are undefined after it.
        self.names = before
        return [
            self.finished(number, held[number - first])
            for number, reduction in enumerate(stage.reductions, first)
            if not reduction.is_running
        ]

    def between(self, before: Stage) -> None:
        """Forgets values that must be read again because the previous stage stored to their buffers."""
        written = [store for store in (*before.stores, *before.row_stores)]
        again = {x.payload.buffer for x in walk(*expressions(self.box.stages)) if x.op == "load"}
        if not any(store.access.buffer in again for store in written):
            return
        for x in self.changing:
            self.names.pop(x, None)
        for access in [a for a in self.kept if not self.tile.whole]:
            del self.kept[access]
        if not self.tile.whole:
            self.line("tl.debug_barrier()")

    def store_all(self, stores: Sequence[Store], each: int) -> None:
        """Computes everything before it stores anything: a stored-to element may also be read here. `each`: the
        dimensions along which there are elements."""
        made = [(store, self.at_value(store.value), [self.at_value(arg) for arg in store.args]) for store in stores]
        for store, value, args in made:
            pointer, mask = self.place(store.access, store.args, args, True, each if store.adds else 0)
            for index in store.args[: len(store.access.indirect)]:
                self.look_at(index, mask)
            stores = (
                f'tl.atomic_add({pointer}, {value}, {mask or None}, sem="relaxed")'
                if store.adds
                else f"tl.store({pointer}, {value}{f', {mask}' if mask else ''})"
            )
            self.line(stores)
            if not store.args:
                self.kept[store.access] = value

    # ---- reductions

    def is_sum_of_products(self, reduction: Reduction) -> bool:
        """Whether it may be rounded once for each product that is added. Beyond a row's end, 0 times infinity would be
        added, so rows end with a step."""
        value = reduction.value
        return reduction.op == "sum" and value.dtype == "f32" and value.op == "mul" and not self.masks[INNER]

    def spread(self, text: str) -> str:
        """With an element for each place of a step."""
        return f"tl.broadcast_to({text}, ({self.tile.rows}, {self.tile.inner}))"

    def taken(self, reduction: Reduction) -> list[str]:
        """The values of the tile as inputs of the reduction, with its start value in masked places."""
        value = self.at_value(reduction.value)
        source, wide = reduction.value.dtype, accumulator_dtype(reduction)
        found = [operand(TritonOperations(self.emit_one).cast(value, source, wide))]
        if reduction.is_positional:
            counted = type_of(position_dtype(self.box))
            terms = [
                f"i{k}.to({counted})" + (f" * {n}" if n != 1 else "")
                for k, n in enumerate(self.box.positions)
                if n and self.along[k] == INNER
            ]
            found.append(" + ".join(terms) or f"tl.full((1, 1), 0, {counted})")
        shape = f"({self.tile.rows}, {self.tile.inner})"
        mask = self.masks[INNER]
        return [
            self.emit_one(
                f"tl.where({mask}, tl.broadcast_to({text}, {shape}), {start})"
                if mask
                else f"tl.broadcast_to({text}, {shape})"
            )
            for text, (start, _) in zip(found, self.starts(reduction), strict=True)
        ]

    def starts(self, reduction: Reduction) -> list[tuple[str, str]]:
        return starts(reduction, self.box, not self.inner)

    def rounded(self, reduction: Reduction, text: str) -> str:
        if reduction.is_positional:
            return self.emit_one(TritonOperations(self.emit_one).cast(text, position_dtype(self.box), "i64"))
        return self.emit_one(TritonOperations(self.emit_one).cast(text, accumulator_dtype(reduction), reduction.dtype))

    def group(self, parts: list[str]) -> str:
        return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"

    # ---- expressions

    def at_value(self, root: Scalar) -> str:
        for x in walk(root, known=self.names):
            self.names[x] = self.written(x)
        return self.widened(root)

    def widened(self, x: Scalar) -> str:
        return f"{operand(self.names[x])}.to(tl.int64)" if x in self.narrow else self.names[x]

    def narrowed(self, x: Scalar) -> str:
        """The operation in i32, and its operands."""
        args = [literal(arg.payload, "i32") if arg.op == "const" else self.names[arg] for arg in x.args]
        text = TritonOperations(self.emit_one).apply(x.op, "i32", args)
        return self.emit_one(text) if self.uses.get(x, 1) > 1 or len(text) > LONG_LINE else text

    def written(self, x: Scalar) -> str:
        if x in self.narrow:
            return f"i{x.payload}" + ".to(tl.int32)" * self.far if x.op == "index" else self.narrowed(x)
        if is_narrow_comparison(x, self.narrow):
            return self.narrowed(x)
        args = [self.widened(arg) for arg in x.args]
        match x.op:
            case "const":
                return literal(x.payload, x.dtype)
            case "index":
                return f"i{x.payload}.to(tl.int64)"
            case "size":
                return f"{x.payload}.to(tl.int64)"
            case "reduced":
                return self.reduced[x.payload]
            case "load":
                return self.loaded(x, args)
            case "div" if self.divides_a_row(x):
                scale, inverse = self.inverse_of(x.args[1], args[1])
                text = f"(({args[0]} * {scale}) * {inverse})"
            case _:
                text = operation_text(self.approximated(x), args, self.emit_one, self.functions)
        return self.emit_one(text) if self.uses.get(x, 1) > 1 or len(text) > LONG_LINE else text

    def approximated(self, x: Scalar) -> Scalar:
        return make(ROUGH[x.op], x.dtype, x.args) if x in self.approximate and x.op in ROUGH else x

    def divides_a_row(self, x: Scalar) -> bool:
        """Whether it divides the elements of a row by one number, and one more rounding error does not matter: the
        elements are exponentials, as in softmax, or the result is rounded to half precision."""
        above, below = x.args
        is_inexact = above.op == "exp" or x in self.approximate
        is_of_row = below.op != "const" and self.depends[above] & ~self.depends[below] != 0
        return x.dtype == "f32" and is_inexact and is_of_row

    def inverse_of(self, y: Scalar, text: str) -> tuple[str, str]:
        """A power of two for both sides of the fraction, and the inverse of the scaled divisor: that of a denormal
        divisor would be infinite, and that of a large one denormal."""
        scale_of, inverse_of = (make(op, "f32", (y,)) for op in ("scale", "inverse"))
        if inverse_of not in self.names:
            size = self.emit_one(f"tl.abs({text})")
            small, large = literal(2.0**-100, "f32"), literal(2.0**100, "f32")
            down, up = literal(2.0**-64, "f32"), literal(2.0**64, "f32")
            scale = self.emit_one(f"tl.where({size} < {small}, {up}, tl.where({size} > {large}, {down}, 1.0))")
            self.names[scale_of], self.names[inverse_of] = scale, self.emit_one(f"tl.div_rn(1.0, {text} * {scale})")
            if y in self.changing:
                self.changing |= {scale_of, inverse_of}
        return self.names[scale_of], self.names[inverse_of]

    def loaded(self, x: Scalar, args: list[str]) -> str:
        access: Access = x.payload
        if access.buffer in self.numbers:
            return f"b{access.buffer}"
        if access in self.kept and not args:
            return self.kept[access]
        pointer, mask = self.place(access, x.args, args, False)
        for arg in x.args[: len(access.indirect)]:
            self.look_at(arg, mask)
        zero = "0" if x.dtype not in FLOATS else "0.0"
        return self.emit_one(f"tl.load({pointer}{f', {mask}, {zero}' if mask else ''})")

    def look_at(self, index: Scalar, mask: str) -> None:
        """Asserts that the index is in range; a wrong one ends the program."""
        if index.op == "within":
            x, size = (operand(self.widened(arg)) for arg in index.args)
            self.line(f'tl.device_assert(({x} >= 0) & ({x} < {size}), "index out of range"{mask and f", {mask}"})')

    def place(
        self, access: Access, given: Sequence[Scalar], args: list[str], is_store: bool, each: int = 0
    ) -> tuple[str, str]:
        """A pointer and a mask. The pointer has one element per position along `each`, even if all are one address."""
        depends, terms = 0, []
        for k, stride in enumerate(access.strides):
            if stride and self.box.extents[k] != 1:
                depends |= self.along[k]
        # With symbolic sizes, `far` decides this for the whole kernel.
        is_far = not self.is_symbolic and not self.far and reach(access, self.box) >= FAR  # type: ignore[operator]
        wide = ".to(tl.int64)" if is_far else ""
        if self.is_flat and len(access.strides) > 1 and access.strides == self.flat_strides:
            terms.append(f"x{wide}")  # Triton would not see from the variables that elements are adjacent
        else:
            for k, stride in enumerate(access.strides):
                if stride and self.box.extents[k] != 1:
                    terms.append(f"i{k}{wide}" if stride == 1 else f"{stride} * i{k}{wide}")
        for j, stride in enumerate(access.indirect):
            terms.append(f"{args[j]} * {stride}")
        for arg in given[: len(access.indirect)]:
            depends |= self.depends[arg]
        if access.masked:
            # The pointer needs the mask's shape.
            terms += [
                f"{name} * 0"
                for name, along in (("x", ROWS), ("q", INNER))
                if self.depends[given[-1]] & along & ~depends
            ]
            depends |= self.depends[given[-1]]
        terms += [f"{name} * 0" for name, along in (("x", ROWS), ("q", INNER)) if each & along & ~depends]
        depends |= each
        if is_store and not depends & ROWS:
            terms.append("x")  # There is one row, so x is 0. It only adds the shape.
            depends |= ROWS
        if access.offset or not terms:
            terms.append(str(access.offset))
        mask = " & ".join(part for part in (self.masks[depends], args[-1] if access.masked else "") if part)
        return f"b{access.buffer} + ({' + '.join(terms)})", mask

    def depends_on(self, x: Scalar) -> int:
        found = 0
        for arg in x.args:
            found |= self.depends[arg]
        match x.op:
            case "index":
                found |= self.along[x.payload]
            case "reduced":
                found |= ROWS | (INNER if self.box.reductions[x.payload].is_running else 0)
            case "load":
                for k, stride in enumerate(x.payload.strides):
                    if stride and self.box.extents[k] != 1:
                        found |= self.along[k]
        return found

    # ---- lines

    def emit_one(self, text: str) -> str:
        return text if text.isidentifier() else self.emit(text, 1)[0]

    def emit(self, text: str, results: int) -> list[str]:
        names = [f"v{self.count + k}" for k in range(results)]
        self.count += results
        self.line(f"{', '.join(names)} = {text}")
        return names

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)
