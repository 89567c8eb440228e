"""Attention of one query as a native function, see `own_kernels.token_attention`.

    step = make_token_attention(attention)
    step.table                          out, q, k, v, mask, then numbers: lengths, steps in bytes, the scale

A function serves one dtype and one depth. A task is one head of the keys. For each block of keys and each query:

    score       dot products with the rows of k
    softmax     scaled and masked; what was summed so far is scaled where a larger score is found
    sum         the rows of v, weighted
"""

from __future__ import annotations

from dataclasses import dataclass

from ....concurrency.first_value_cache import once
from ....ops.scalar_ir import Access, Scalar, load
from ....runtime.program.native_kernels import NativeFunction, NativeKernel
from ....schedule.library.own_kernels.matmul_tiling_and_packing import NativeCall
from ....schedule.library.own_kernels.token_attention import TokenAttention
from ....tensors.dtypes import NAMES
from ..compile_to_machine_code import compile_function
from ..llvm_types import memory, size
from ..scalar_operations import evaluate
from ..target_cpu import Host, host
from .function_printer import FunctionPrinter
from .matmul import SERIAL

POINTERS = ("out", "q", "k", "v", "mask")
NUMBERS = """
    tasks heads sharing keys q_batch q_head k_batch k_head v_batch v_head out_batch out_head mask_batch mask_head
    k_row v_row scale cost
""".split()
"""Steps are in bytes; `cost` is the number of operations for each key."""

BLOCK = 128
"""Keys whose scores are computed together."""

UNROLL = 4
"""Keys whose dot products are computed together."""

MOST_VECTORS = 8
"""Vectors of the result that are summed together."""

LOWEST = "0xFFF0000000000000"
EXP: Scalar = load("f32", Access(0, 0, ())).exp()


@dataclass(frozen=True, slots=True)
class TokenForm:
    dtype: str
    depth: int
    columns: int
    mask: str | None
    """Its dtype."""


def make_token_attention(attention: TokenAttention) -> NativeCall:
    mask = attention.mask_dtype and NAMES[attention.mask_dtype]
    form = TokenForm(NAMES[attention.dtype], attention.depth, attention.columns, mask)
    items = [attention.dtype.itemsize] * 8 + [size(mask) if mask else 0] * 2 + [attention.dtype.itemsize] * 2
    cost = 2 * attention.tasks * attention.sharing * (attention.depth + attention.columns)
    numbers = [attention.tasks, attention.heads, attention.sharing, attention.keys]
    numbers += [item * step for item, step in zip(items, attention.steps, strict=True)]
    numbers += [attention.scale, cost]
    kernel = NativeKernel("token_attention", function(form), len(POINTERS) + len(NUMBERS), cost * attention.keys / 16)
    spots = [(name, 0) if name != "mask" or mask else 0 for name in POINTERS]
    return NativeCall(kernel, (*spots, *numbers))


@once
def function(form: TokenForm) -> NativeFunction:
    return compile_function(print_token_attention(form, host()), "token_attention")


def print_token_attention(form: TokenForm, target: Host) -> str:
    return TokenAttentionPrinter(form, target).module()


class TokenAttentionPrinter(FunctionPrinter):
    def __init__(self, form: TokenForm, target: Host):
        super().__init__(target)
        self.form = form
        self.item = size(form.dtype)

    def module(self) -> str:
        return self.text([self.entry(), self.work()])

    def entry(self) -> str:
        """Threads take tasks one by one, where there is enough work."""

        def body() -> None:
            tasks, keys, cost = (self.number("%table", name) for name in ("tasks", "keys", "cost"))
            is_short = self.put(f"icmp ult i64 {self.mul(keys, cost)}, {SERIAL}")
            grain = self.put(f"select i1 {is_short}, i64 {tasks}, i64 1")
            self.call_in_parallel(tasks, grain, "%table")

        return self.exported("token_attention", body)

    def number(self, table: str, name: str) -> str:
        return self.word(table, len(POINTERS) + NUMBERS.index(name))

    def room(self, count: int, type: str = "float") -> str:
        return self.put(f"alloca [{count} x {type}], align 64")

    def work(self) -> str:
        def body() -> None:
            self.pointers = {name: self.pointer("%table", number) for number, name in enumerate(POINTERS)}
            self.numbers = {name: self.number("%table", name) for name in NUMBERS}
            bits = self.put(f"trunc i64 {self.numbers['scale']} to i32")
            self.scale = self.splat(self.put(f"bitcast i32 {bits} to float"))
            self.scores, self.query = self.room(BLOCK + self.lanes), self.room(self.form.depth)
            self.sums = self.room(self.form.columns)
            self.mask_room = self.room(4 * (BLOCK + self.lanes), "i8")
            self.code.loop("%begin", "%end", 1, [], self.task)

        return self.function("void @work(i64 %begin, i64 %end, ptr %table)", body)

    def task(self, task: str, _: list[str]) -> list[str]:
        numbers = self.numbers
        batch = self.put(f"udiv i64 {task}, {numbers['heads']}")
        head = self.sub(task, self.mul(batch, numbers["heads"]))

        def here(name: str, number: str) -> str:
            far = self.add(self.mul(batch, numbers[f"{name}_batch"]), self.mul(number, numbers[f"{name}_head"]))
            return self.at(self.pointers[name], far)

        k, v = here("k", head), here("v", head)
        first = self.mul(head, numbers["sharing"])
        self.loop(
            numbers["sharing"],
            1,
            lambda n: self.query_head(*(here(name, self.add(first, n)) for name in ("q", "out", "mask")), k, v),
        )
        return []

    def query_head(self, q: str, out: str, mask: str, k: str, v: str) -> None:
        form, lanes = self.form, self.lanes
        for at in range(0, form.depth, lanes):
            self.store(self.row(q, at), self.at(self.query, 4 * at))
        for at in range(0, form.columns, lanes):
            self.store("zeroinitializer", self.at(self.sums, 4 * at))

        def block(start: str, carried: list[str]) -> list[str]:
            count = self.least(self.sub(self.numbers["keys"], start), BLOCK)
            self.score(self.at(k, self.mul(start, self.numbers["k_row"])), count)
            most, total, rest = self.softmax(start, count, mask, *carried)
            self.add_weighted_rows(self.at(v, self.mul(start, self.numbers["v_row"])), count, rest)
            return [most, total]

        _, total = self.code.loop("0", self.numbers["keys"], BLOCK, [("float", LOWEST), ("float", "0.0")], block)
        # Where everything is masked the result is zero, as in eager.
        is_zero = self.put(f"fcmp oeq float {total}, 0.0")
        inverse = self.put(f"fdiv float 1.0, {total}")
        inverse = self.splat(self.put(f"select i1 {is_zero}, float 1.0, float {inverse}"))
        for at in range(0, form.columns, lanes):
            value = self.put(f"fmul {self.vector} {self.load(self.at(self.sums, 4 * at))}, {inverse}")
            value = self.operations.cast(value, "f32", form.dtype)
            self.do(f"store {memory(form.dtype, lanes)} {value}, ptr {self.at(out, self.item * at)}, align {self.item}")

    def row(self, base: str, at: int) -> str:
        """A vector of a row, as float32."""
        return self.widened(self.at(base, self.item * at), self.form.dtype)

    def widened(self, pointer: str, dtype: str) -> str:
        value = self.put(f"load {memory(dtype, self.lanes)}, ptr {pointer}, align {size(dtype)}")
        return self.operations.cast(value, dtype, "f32")

    def score(self, k: str, count: str) -> None:
        """The dot products of the query with some rows of k. Behind the last one, it is computed again."""
        last = self.sub(count, 1)

        def some(s: str) -> None:
            rows = [
                self.at(k, self.mul(self.least(self.add(s, n), last), self.numbers["k_row"])) for n in range(UNROLL)
            ]
            sums = ["zeroinitializer"] * UNROLL
            for at in range(0, self.form.depth, self.lanes):
                query = self.load(self.at(self.query, 4 * at))
                sums = [self.fma(query, self.row(row, at), total) for row, total in zip(rows, sums, strict=True)]
            for n, total in enumerate(sums):
                value = self.sum_of_lanes(total)
                self.do(f"store float {value}, ptr {self.at(self.scores, self.mul(self.add(s, n), 4))}, align 4")

        self.loop(count, UNROLL, some)

    def softmax(self, start: str, count: str, mask: str, most: str, total: str) -> tuple[str, str, str]:
        """The largest score and the sum so far, and the factor of what was summed before."""
        form, lanes = self.form, self.lanes
        if form.mask is not None:
            item = size(form.mask)
            source, bytes = self.at(mask, self.mul(start, item)), self.mul(count, item)
            self.copy_bytes(self.mask_room, source, bytes)
        lowest = f"splat (float {LOWEST})"

        def larger(j: str, carried: list[str]) -> list[str]:
            place = self.at(self.scores, self.mul(j, 4))
            value = self.put(f"fmul {self.vector} {self.load(place)}, {self.scale}")
            if form.mask is not None:
                added = self.widened(self.at(self.mask_room, self.mul(j, size(form.mask))), form.mask)
                value = self.put(f"fadd {self.vector} {value}, {added}")
            value = self.put(
                f"select {self.mask_type} {self.before(j, count)}, {self.vector} {value}, {self.vector} {lowest}"
            )
            self.store(value, place)
            return [self.operations.apply("max", "f32", [value, carried[0]])]

        (found,) = self.code.loop("0", count, lanes, [(self.vector, lowest)], larger)
        found = self.call("float", f"llvm.vector.reduce.fmaximum.v{lanes}f32", (self.vector, found))
        new = self.call("float", "llvm.maximum.f32", ("float", found), ("float", most))
        is_empty = self.put(f"fcmp oeq float {new}, {LOWEST}")
        shift = self.put(f"select i1 {is_empty}, float 0.0, float {new}")
        shifts = self.splat(shift)
        rest = evaluate(self.operations, EXP, self.splat(self.put(f"fsub float {most}, {shift}")))

        def exponential(j: str, carried: list[str]) -> list[str]:
            place = self.at(self.scores, self.mul(j, 4))
            value = evaluate(self.operations, EXP, self.put(f"fsub {self.vector} {self.load(place)}, {shifts}"))
            self.store(value, place)
            return [self.put(f"fadd {self.vector} {carried[0]}, {value}")]

        (sums,) = self.code.loop("0", count, lanes, [(self.vector, "zeroinitializer")], exponential)
        here = self.sum_of_lanes(sums, "0.0")
        factor = self.put(f"extractelement {self.vector} {rest}, i64 0")
        total = self.put(f"fadd float {self.put(f'fmul float {total}, {factor}')}, {here}")
        return new, total, rest

    def add_weighted_rows(self, v: str, count: str, rest: str) -> None:
        """Adds the weighted rows of v to the sums."""
        lanes = self.lanes
        places = list(range(0, self.form.columns, lanes))
        for first in range(0, len(places), MOST_VECTORS):
            mine = places[first : first + MOST_VECTORS]
            old = [self.put(f"fmul {self.vector} {self.load(self.at(self.sums, 4 * at))}, {rest}") for at in mine]

            def one(s: str, carried: list[str], mine: list[int] = mine) -> list[str]:
                weight = self.put(f"load float, ptr {self.at(self.scores, self.mul(s, 4))}, align 4")
                weights, row = self.splat(weight), self.at(v, self.mul(s, self.numbers["v_row"]))
                return [self.fma(weights, self.row(row, at), sum) for at, sum in zip(mine, carried, strict=True)]

            new = self.code.loop("0", count, 1, [(self.vector, value) for value in old], one)
            for at, value in zip(mine, new, strict=True):
                self.store(value, self.at(self.sums, 4 * at))
