"""The steps of a recurrent layer as a native function: tiles for the product, and the gates' effect on the states.

    step = make_recurrent(recurrence)
    step.table                          out, hidden, cell, gates, the packed weights, the first states and the plan

One function serves all sizes; the tiles are those of `gemm_microkernel`. `gates` holds the products of the inputs, for
each position all rows of the batch; `hidden` and `cell` hold the current states. A thread takes a direction and some
rows of the batch:

    for each position       gates += hidden weights'      hidden, cell = of gates and cell      out = hidden
"""

from __future__ import annotations

from ....concurrency.first_value_cache import once
from ....ops.scalar_ir import Access, Scalar, load
from ....runtime.program.native_kernels import NativeFunction, NativeKernel
from ....schedule.library.call_candidates.recurrent import Recurrence
from ....schedule.library.own_kernels.matmul_tiling_and_packing import NativeCall
from ..compile_to_machine_code import compile_function
from ..scalar_operations import evaluate
from ..target_cpu import host
from .function_printer import words
from .matmul import OPERATIONS_PER_CYCLE, SERIAL, TiledPrinter, product_tables, zeros

TABLE = ("out", "hidden", "cell", "gates", "packed", "hidden_0", "hidden_1", "cell_0", "cell_1", "plan")

PLAN = """
    tasks grain parts positions reversed size panels panel_bytes packed_direction state_direction state_row
    gates_position gates_direction gates_row gate out_position out_direction out_row chunks places rows full last
    full_table last_table zeros
""".split()
"""The plan, in words. Strides in bytes; `gate` is the stride from one gate to the next. `reversed` has a bit for each
direction. `rows` has the first row of the batch for each part, and the end."""

GATES = 4


def lstm() -> tuple[Scalar, Scalar]:
    """The next hidden and cell state, as expressions of the gates and the cell state: see `torch.nn.LSTM`."""
    enter, forget, new, leave, cell = (load("f32", Access(number, 0, ())) for number in range(GATES + 1))
    cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * cell.tanh(), cell


def make_recurrent(recurrence: Recurrence) -> NativeCall:
    spec, product = recurrence.spec, recurrence.hidden
    positions, batch, _ = spec.x.shape
    directions, size, gates = len(spec.is_reversed), spec.size, spec.gates
    tables = product_tables(product)
    tasks = directions * recurrence.parts
    rows = [0]
    for chunk in product.chunks:
        rows.append(rows[-1] + sum(sum(place.halves) for place in chunk))
    columns = (product.panels - 1) * product.panel + product.last_vectors * product.shape.lanes
    numbers = {
        "tasks": tasks,
        "grain": tasks if spec.flops < SERIAL else 1,
        "parts": recurrence.parts,
        "positions": positions,
        "reversed": sum(1 << n for n, flag in enumerate(spec.is_reversed) if flag),
        "size": size,
        "panels": product.panels,
        "panel_bytes": 4 * product.depth * product.panel,
        "packed_direction": 4 * product.depth * columns,
        "state_direction": 4 * batch * size,
        "state_row": 4 * size,
        "gates_position": 4 * batch * directions * gates * size,
        "gates_direction": 4 * gates * size,
        "gates_row": 4 * directions * gates * size,
        "gate": 4 * size,
        "out_position": 4 * batch * directions * size,
        "out_direction": 4 * size,
        "out_row": 4 * directions * size,
        "chunks": tables.chunks,
        "places": tables.places,
        "rows": words(*rows),
        "full": tables.full,
        "last": tables.last,
        "full_table": tables.full_table,
        "last_table": tables.last_table,
        "zeros": zeros(product.panel),
    }
    plan = words(*(numbers[name] for name in PLAN))
    kernel = NativeKernel("recurrent", _function(), len(TABLE), spec.flops / OPERATIONS_PER_CYCLE)
    spots = {
        "out": "out",
        "hidden": "hidden",
        "cell": "cell",
        "gates": "scratch",
        "packed": "hidden_packed",
        **{name: name for name in spec.states},
    }
    return NativeCall(kernel, (*((spots[name], 0) if name in spots else 0 for name in TABLE[:-1]), plan))


@once
def _function() -> NativeFunction:
    return compile_function(RecurrentPrinter(host()).module(), "recurrent")


class RecurrentPrinter(TiledPrinter):
    def module(self) -> str:
        entry = self.print_parallel_entry("recurrent", TABLE, PLAN)
        return self.text([entry, self.work_of_range(self.task), self.copy(), self.cell()])

    def task(self, task: str) -> None:
        plan, given = self.words, self.pointers
        direction = self.put(f"udiv i64 {task}, {plan['parts']}")
        part = self.sub(task, self.mul(direction, plan["parts"]))
        is_second = self.put(f"icmp ne i64 {direction}, 0")
        rows = self.at(self.address(plan["rows"]), self.mul(part, 8))
        first, stop = self.word(rows, 0), self.word(rows, 1)
        count = self.sub(stop, first)
        states = {}
        for name in ("hidden", "cell"):
            start = self.put(f"select i1 {is_second}, ptr {given[f'{name}_1']}, ptr {given[f'{name}_0']}")
            states[name] = self.at(given[name], self.mul(direction, plan["state_direction"]))
            far = self.mul(first, plan["state_row"])
            self.do(
                f"call void @copy(ptr {self.at(start, far)}, ptr {self.at(states[name], far)}, "
                f"i64 {self.mul(count, plan['size'])})"
            )
        packed = self.at(given["packed"], self.mul(direction, plan["packed_direction"]))
        gates = self.at(given["gates"], self.mul(direction, plan["gates_direction"]))
        out = self.at(given["out"], self.mul(direction, plan["out_direction"]))
        shifted = self.put(f"lshr i64 {plan['reversed']}, {direction}")
        is_reversed = self.put(f"trunc i64 {shifted} to i1")
        last = self.sub(plan["positions"], 1)
        chunk = self.at(self.address(plan["chunks"]), self.mul(part, 8))
        places = self.word(chunk, 0), self.word(chunk, 1)

        def step(number: str) -> None:
            backwards = self.sub(last, number)
            position = self.put(f"select i1 {is_reversed}, i64 {backwards}, i64 {number}")
            here = self.at(gates, self.mul(position, plan["gates_position"]))
            there = self.at(out, self.mul(position, plan["out_position"]))
            self.loop(plan["panels"], 1, lambda panel: self.panel(panel, packed, states["hidden"], here, places))

            def row(r: str) -> None:
                far = self.mul(r, plan["state_row"])
                self.do(
                    f"call void @cell(ptr {self.at(here, self.mul(r, plan['gates_row']))}, "
                    f"i64 {plan['gate']}, ptr {self.at(states['cell'], far)}, "
                    f"ptr {self.at(states['hidden'], far)}, "
                    f"ptr {self.at(there, self.mul(r, plan['out_row']))}, i64 {plan['size']})"
                )

            self.loop(stop, 1, row, first)

        self.loop(plan["positions"], 1, step)

    def panel(self, panel: str, packed: str, hidden: str, gates: str, places: tuple[str, str]) -> None:
        """One panel of a step's product, for the rows of a task."""
        plan = self.words
        following = self.add(panel, 1)
        is_last = self.put(f"icmp eq i64 {following}, {plan['panels']}")
        functions, tables = (self.of_panel(is_last, f"full{name}", f"last{name}") for name in ("", "_table"))
        weights = self.at(packed, self.mul(panel, plan["panel_bytes"]))
        further = self.put(f"select i1 {is_last}, i64 0, i64 {following}")
        ahead = self.at(packed, self.mul(further, plan["panel_bytes"]))
        to = self.at(gates, self.mul(panel, 2 * self.bytes))
        none = self.address(plan["zeros"])

        self.loop(
            places[1],
            1,
            lambda place: self.place(place, functions, tables, hidden, weights, to, none, to, ahead),
            places[0],
        )

    def copy(self) -> str:
        def body() -> None:
            def part(j: str) -> None:
                inside, far = self.before(j, "%count"), self.mul(j, 4)
                self.store(self.load(self.at("%from", far), inside), self.at("%to", far), inside)

            self.loop("%count", self.lanes, part)

        return self.function("void @copy(ptr %from, ptr %to, i64 %count)", body)

    def cell(self) -> str:
        """Writes the next states of one row of the batch, in place, and its result."""

        def body() -> None:
            def part(j: str) -> None:
                inside, far = self.before(j, "%size"), self.mul(j, 4)
                gates = [
                    self.load(self.at(self.at("%gates", self.mul("%gate", number)), far), inside)
                    for number in range(GATES)
                ]
                operations = self.operations
                cell = self.load(self.at("%cell", far), inside)
                for state, to in zip(lstm(), (("%hidden", "%out"), ("%cell",)), strict=True):
                    value = evaluate(operations, state, *gates, cell)
                    for place in to:
                        self.store(value, self.at(place, far), inside)

            self.loop("%size", self.lanes, part)

        return self.function("void @cell(ptr %gates, i64 %gate, ptr %cell, ptr %hidden, ptr %out, i64 %size)", body)
