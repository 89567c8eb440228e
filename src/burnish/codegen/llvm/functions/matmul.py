"""Matmul and convolution as native functions: tiles, and one small function that distributes them among threads.

    step = make(product)        tiles are compiled once in a process, for all products that use them
    step.table                  out, x, packed, bias, residual and the plan

`gemm_microkernel` prints the tiles. The tiling of a product is data that the function reads: each task is one chunk of
pixels and one panel of outputs. A thread takes the next task when it has finished one, so no thread waits for a slower
one.
"""

from __future__ import annotations

import os
from concurrent.futures import Future
from dataclasses import dataclass

import llvmlite.binding as llvm
import torch

from ....concurrency import thread_locks
from ....concurrency.await_future import SharedResult, result_of
from ....concurrency.first_value_cache import once
from ....runtime.program.native_kernels import NativeFunction, NativeKernel, Words
from ....schedule.library.own_kernels.matmul_tiling_and_packing import (
    MatmulTile,
    NativeCall,
    Product,
    Shape,
    Sum,
    packed_columns,
)
from ..compile_to_machine_code import compile_function
from ..llvm_types import size
from ..target_cpu import host, initialize
from .function_printer import FunctionPrinter, words
from .gemm_microkernel import RUN_WORDS, SYMBOL, WORDS, print_tile

SERIAL = 300_000
"""Operations below which waking threads does not pay."""

OPERATIONS_PER_CYCLE = 30

TABLE = ("out", "x", "packed", "bias", "residual", "plan")
# The plan, in words:
PLAN = """
    tasks grain panels packed_step out_step bias_step chunks places full last full_table last_table x_step
    batch_tasks packed_batch x_batch out_batch
""".split()
# `chunks` points to the index of each chunk's first place. A place has the tile's number, then byte offsets:
# of its two groups of pixels in x, result and residual, and of its sum's words in the table. `full` and `last`
# point to the tiles' functions, for all panels and for the last one, which may be narrower.
PLACE_WORDS = 8


class TiledPrinter(FunctionPrinter):
    """A function that walks through the places of a product."""

    def of_panel(self, is_last: str, full: str, last: str) -> str:
        """What the plan says for the last panel, or for the others, as an address."""
        return self.address(self.put(f"select i1 {is_last}, i64 {self.words[last]}, i64 {self.words[full]}"))

    def place(
        self,
        number: str,
        functions: str,
        tables: str,
        x: str,
        weights: str,
        out: str,
        bias: str,
        residual: str,
        ahead: str,
    ) -> None:
        """Calls the tile of the place with this number."""
        at = self.at(self.address(self.words["places"]), self.mul(number, 8 * PLACE_WORDS))
        function = self.pointer(functions, self.word(at, 0))
        bases = (x, x, out, out, residual, residual, tables)
        x0, x1, out0, out1, residual0, residual1, numbers = (
            self.at(base, self.word(at, n)) for n, base in enumerate(bases, 1)
        )
        self.call_tile(function, x0, x1, weights, out0, out1, bias, residual0, residual1, numbers, ahead)

    def call_tile(self, function: str, *pointers: str) -> None:
        self.do(f"call void {function}({', '.join(f'ptr {pointer}' for pointer in pointers)})")


class ProductPrinter(TiledPrinter):
    def module(self) -> str:
        work = self.work_of_tasks(self.prepare, self.task, claims_ahead=True)
        return self.text([self.print_parallel_entry("product", TABLE, PLAN), work])

    def prepare(self) -> str:
        self.load_table(self.pointer("%shared", 1), TABLE, PLAN)
        self.quarter = self.put(f"lshr i64 {self.words['packed_step']}, 2")
        return self.words["tasks"]

    def task(self, task: str) -> None:
        plan = self.words
        # The task after this one is known, and with it the weights that will be wanted.
        batch_after, rest_after = self.divided(self.claimed_ahead, plan["batch_tasks"])
        _, panel_after = self.divided(rest_after, plan["panels"])
        wanted = self.moved("packed", (batch_after, "packed_batch"), (panel_after, "packed_step"))
        batch, rest = self.divided(task, plan["batch_tasks"])
        chunk, panel = self.divided(rest, plan["panels"])
        is_last = self.put(f"icmp eq i64 {self.add(panel, 1)}, {plan['panels']}")
        x = self.moved("x", (batch, "x_batch"), (panel, "x_step"))
        packed = self.moved("packed", (batch, "packed_batch"), (panel, "packed_step"))
        out = self.moved("out", (batch, "out_batch"), (panel, "out_step"))
        bias = self.moved("bias", (panel, "bias_step"))
        residual = self.moved("residual", (panel, "out_step"))
        functions = self.of_panel(is_last, "full", "last")
        tables = self.of_panel(is_last, "full_table", "last_table")
        chunks = self.at(self.address(plan["chunks"]), self.mul(chunk, 8))
        first, stop = self.word(chunks, 0), self.word(chunks, 1)

        def place(number: str) -> None:
            part = self.sub(number, first)
            is_early = self.put(f"icmp ult i64 {part}, 4")
            quarter = self.at(wanted, self.mul(part, self.quarter))
            ahead = self.put(f"select i1 {is_early}, ptr {quarter}, ptr {packed}")
            self.place(number, functions, tables, x, packed, out, bias, residual, ahead)

        self.loop(stop, 1, place, first)

    def divided(self, number: str, by: str) -> tuple[str, str]:
        """The quotient and the remainder."""
        quotient = self.put(f"udiv i64 {number}, {by}")
        return quotient, self.sub(number, self.mul(quotient, by))

    def moved(self, name: str, *steps: tuple[str, str]) -> str:
        """The address of a tensor of the table, moved by pairs of a number and a step of the plan."""
        address = self.pointers[name]
        for number, step in steps:
            address = self.at(address, self.mul(number, self.words[step]))
        return address


@once
def driver() -> NativeFunction:
    return compile_function(ProductPrinter(host()).module(), "product")


def tile_function(tile: MatmulTile) -> NativeFunction:
    """A tile's code. Threads that need the same tile wait for the one that compiles it."""
    mine: Future[NativeFunction] = SharedResult()
    try:
        with _lock:
            future = _tiles.setdefault(tile, mine)
        if future is mine:
            with_assembler()
            mine.set_result(compile_function(print_tile(tile, host()), SYMBOL))
    except BaseException as error:
        if not mine.done():
            with _lock:
                if _tiles.get(tile) is mine:
                    del _tiles[tile]
            mine.set_exception(error)
        raise
    return result_of(future)


@once
def with_assembler() -> None:
    """Enables LLVM's assembler: tiles contain the processor's own instructions as text."""
    initialize()
    llvm.initialize_native_asmparser()


_lock = thread_locks.lock()
_tiles: dict[MatmulTile, Future[NativeFunction]] = {}


def _forget_unfinished() -> None:
    """In a forked process: the threads that were compiling do not exist."""
    for tile in [tile for tile, future in _tiles.items() if not future.done()]:
        del _tiles[tile]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_unfinished)


@dataclass(frozen=True, slots=True)
class Tables:
    """The tiling of a product, as tables."""

    chunks: Words
    places: Words
    full: Words
    last: Words
    full_table: Words
    last_table: Words


def product_tables(product: Product) -> Tables:
    kinds = list(dict.fromkeys(place.halves for chunk in product.chunks for place in chunk))
    # The last panel uses the tiles of the others if it is as wide.
    functions = [
        [tile_function(product.tile(halves, is_last=is_last)) for halves in kinds]
        if is_last or product.panels > 1
        else [0] * len(kinds)
        for is_last in (False, True)
    ]
    full, last = (words(*addresses) for addresses in functions)
    chunks = words(*_starts(product))
    places = words(*_places(product, kinds))
    tables = [
        words(*(word for part in product.sums for word in _numbers(product, part, is_last=is_last)))
        for is_last in (False, True)
    ]
    return Tables(chunks, places, full, last, *tables)


def make(product: Product) -> NativeCall:
    tables = product_tables(product)
    batch_tasks = len(product.chunks) * product.panels
    tasks = product.batches * batch_tasks
    grain = tasks if product.flops < SERIAL else 1
    panel = size(product.result) * product.panel
    plan = words(
        tasks,
        grain,
        product.panels,
        product.depth * product.item * product.panel,
        panel,
        panel if product.has_bias else 0,
        tables.chunks,
        tables.places,
        tables.full,
        tables.last,
        tables.full_table,
        tables.last_table,
        panel if product.is_depthwise else 0,
        batch_tasks,
        product.depth * product.item * packed_columns(product),
        product.item * product.x_batch,
        size(product.result) * product.out_batch,
    )
    kernel = NativeKernel("product", driver(), len(TABLE), product.flops / OPERATIONS_PER_CYCLE)
    bias = ("bias", 0) if product.has_bias else zeros(product.panel)
    residual = ("residual", 0) if product.has_residual else 0
    return NativeCall(kernel, (("out", 0), ("x", 0), ("packed", 0), bias, residual, plan))


def zeros(count: int) -> Words:
    """`count` floats."""
    return words(*[0] * -(-count // 2))


def _starts(product: Product) -> list[int]:
    starts = [0]
    for chunk in product.chunks:
        starts.append(starts[-1] + len(chunk))
    return starts


def _places(product: Product, kinds: list[tuple[int, ...]]) -> list[int]:
    numbers = {halves: number for number, halves in enumerate(kinds)}
    starts = [0]
    for part in product.sums:
        starts.append(starts[-1] + 8 * (len(WORDS) + RUN_WORDS * len(part.runs)))
    words: list[int] = []
    item = size(product.result)
    for chunk in product.chunks:
        for place in chunk:
            (x0, x1), (out0, out1) = place.x, place.out
            to = item * out0, item * out1
            words += (numbers[place.halves], product.item * x0, product.item * x1, *to, *to, starts[place.sum])
    return words


def _numbers(product: Product, part: Sum, *, is_last: bool) -> list[int]:
    vectors = product.last_vectors if is_last else product.shape.vectors
    row = product.item * vectors * product.shape.lanes
    valid = product.shape.lanes
    if is_last and product.outputs % product.shape.lanes:
        valid = product.outputs % product.shape.lanes
    out_step = size(product.result) * part.out_step
    words = [product.item * part.x_step, out_step, out_step, len(part.runs), valid]
    summed = 0
    for number, run in enumerate(part.runs):
        summed += run.length
        following = part.runs[number + 1].length if number + 1 < len(part.runs) else None
        flush = following is not None and summed + following > product.longest_run
        if flush:
            summed = 0
        words += (product.item * run.x, run.length * product.item // 4, int(flush), run.weight * row)
    return words


def dtypes() -> tuple[torch.dtype, ...]:
    """What the tiles multiply on this machine."""
    return (torch.float32, torch.bfloat16) if host().has_bf16_pairs else (torch.float32,)


def dtypes_of_matrix_units() -> tuple[torch.dtype, ...]:
    """What libraries multiply on this machine with instructions that the tiles do not use."""
    return (torch.bfloat16,) if host().has_bf16_matrices else ()


@once
def tile_shape() -> Shape | None:
    """28 sums for 32 registers, 12 for 16: the remaining registers hold weights and numbers of x."""
    machine = host()
    if machine.vector_bits == 512:
        return Shape(16, 7, 2)
    if machine.vector_bits == 256 and machine.has_fma:
        return Shape(8, 3, 2)
    return None
