"""A base class that prints native functions which are not loop nests: a small language on top of `FunctionCode`.

    class AttentionPrinter(FunctionPrinter):
        def module(self) -> str:
            return self.text([self.print_parallel_entry("attention", TABLE, PLAN), self.work()])

Sizes, strides and steps are words of a table; vectors are as wide as the machine's, and their tails are masked.

    print_parallel_entry    the exported function, which torch's threads share
    work_of_tasks           the function that a thread runs: it takes task after task from a shared counter
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ....runtime.program.native_kernels import NativeFunction, Words
from ..loop_invariant_scopes import FunctionCode
from ..scalar_operations import LlvmOperations
from ..target_cpu import Host


def words(*numbers: int | Words | NativeFunction) -> Words:
    """The plan of a table. The table's owner keeps it alive."""
    return Words(numbers)


class FunctionPrinter:
    def __init__(self, target: Host):
        self.host = target
        self.lanes = target.vector_bits // 32
        self.bytes = 4 * self.lanes
        self.vector, self.mask_type = f"<{self.lanes} x float>", f"<{self.lanes} x i1>"
        self.code = FunctionCode(target.has_scaling)
        self.pointers: dict[str, str] = {}
        self.words: dict[str, str] = {}

    def text(self, functions: Sequence[str]) -> str:
        return "\n".join(
            [
                f'target triple = "{self.host.triple}"',
                "",
                *functions,
                *sorted(self.code.declarations),
                "",
                f"attributes #0 = {{ nounwind {self.host.attributes} }}",
                "",
            ]
        )

    def print_parallel_entry(self, name: str, table: Sequence[str], plan: Sequence[str]) -> str:
        """The exported function: torch's threads share `tasks`, a word of the plan, each at least `grain`. It calls
        `work` with a pointer to a counter that starts at 0, followed by the table."""
        self.tables = table, plan

        def body() -> None:
            words = self.pointer("%table", table.index("plan"))
            shared = self.put("alloca [2 x i64]")
            self.do(f"store i64 0, ptr {shared}")
            self.do(f"store ptr %table, ptr {self.at(shared, 8)}")
            tasks, grain = self.word(words, plan.index("tasks")), self.word(words, plan.index("grain"))
            self.call_in_parallel(tasks, grain, shared)

        return self.exported(name, body)

    def call_in_parallel(self, tasks: str, grain: str, context: str) -> None:
        limits = ("i64", "0"), ("i64", tasks), ("i64", grain)
        self.call("i32", "torch_parallel_for", *limits, ("ptr", "@work"), ("ptr", context))

    def work_of_tasks(self, prepare: Callable[[], str], task: Callable[[str], None], claims_ahead: bool = False) -> str:
        """`prepare` prints what a thread does once, and returns the number of tasks. With `claims_ahead` a thread knows
        its next task, `claimed_ahead`, while it works on one."""

        def body() -> None:
            tasks, here = prepare(), self.code.here
            following = self.put("alloca i64") if claims_ahead else ""
            if claims_ahead:
                self.do(f"store i64 {self.claimed()}, ptr {following}")
            self.do("br label %next")
            here.begin("next")
            number = self.put(f"load i64, ptr {following}") if claims_ahead else self.claimed()
            some = self.put(f"icmp ult i64 {number}, {tasks}")
            self.do(f"br i1 {some}, label %task, label %exit")
            here.begin("exit")
            self.do("ret void")
            here.begin("task")
            if claims_ahead:
                self.claimed_ahead = self.claimed()
                self.do(f"store i64 {self.claimed_ahead}, ptr {following}")
            task(number)

        return self.function("void @work(i64 %begin, i64 %end, ptr %shared)", body, "br label %next")

    claimed_ahead = ""
    tables: tuple[Sequence[str], Sequence[str]] = ((), ())
    """The names of the pointers, and of the words of the plan."""

    def claimed(self) -> str:
        return self.put("atomicrmw add ptr %shared, i64 1 monotonic")

    def work_of_range(self, task: Callable[[str], None], prepare: Callable[[], None] = lambda: None) -> str:
        """The function of a thread that is given a range of tasks."""

        def body() -> None:
            self.load_table(self.pointer("%shared", 1), *self.tables)
            prepare()
            self.loop("%end", 1, task, "%begin")

        return self.function("void @work(i64 %begin, i64 %end, ptr %shared)", body)

    def load_table(self, table: str, pointers: Sequence[str], plan: Sequence[str]) -> None:
        self.pointers = {name: self.pointer(table, number) for number, name in enumerate(pointers)}
        self.words = {name: self.word(self.pointers["plan"], number) for number, name in enumerate(plan)}

    def exported(self, name: str, body: Callable[[], None]) -> str:
        return self.function(f"void @{name}(ptr %table)", body).replace("define internal", "define", 1)

    def function(self, head: str, body: Callable[[], None], end: str = "ret void") -> str:
        declarations, self.code = self.code.declarations, FunctionCode(self.host.has_scaling)
        self.code.declarations = declarations
        body()
        self.do(end.format(result=self.result))
        return "\n".join([f"define internal {head} #0 {{", "entry:", *self.code.here.lines, "}", ""])

    result = ""

    def put(self, instruction: str) -> str:
        return self.code.emit(self.code.here, instruction)

    def do(self, instruction: str) -> None:
        self.code.here.put(instruction)

    def call(self, result: str, function: str, *args: tuple[str, str], flags: str = "") -> str:
        """Calls a function from outside, such as an intrinsic. `args` are pairs of type and operand."""
        return self.code.call(self.code.here, result, function, *args, flags=flags)

    @property
    def operations(self) -> LlvmOperations:
        """Operations on vectors, printed here."""
        return LlvmOperations(self.code, self.code.here, self.lanes)

    def add(self, a: str, b: str | int) -> str:
        return self.put(f"add i64 {a}, {b}")

    def mul(self, a: str, b: str | int) -> str:
        return self.put(f"mul i64 {a}, {b}")

    def sub(self, a: str, b: str | int) -> str:
        return self.put(f"sub i64 {a}, {b}")

    def least(self, a: str, b: str | int) -> str:
        return self.call("i64", "llvm.umin.i64", ("i64", a), ("i64", str(b)))

    def fma(self, a: str, b: str, c: str) -> str:
        args = [(self.vector, value) for value in (a, b, c)]
        return self.call(self.vector, f"llvm.fma.v{self.lanes}f32", *args)

    def sum_of_lanes(self, value: str, start: str = "-0.0") -> str:
        args = ("float", start), (self.vector, value)
        reduce = f"llvm.vector.reduce.fadd.v{self.lanes}f32"
        return self.call("float", reduce, *args, flags="reassoc ")

    def copy_bytes(self, to: str, source: str, bytes: str) -> None:
        self.code.declare("void", "llvm.memcpy.p0.p0.i64", "ptr", "ptr", "i64", "i1")
        self.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {bytes}, i1 false)")

    def fetch(self, pointer: str) -> None:
        """Into a core's second cache."""
        self.code.declare("void", "llvm.prefetch.p0", "ptr", "i32", "i32", "i32")
        self.do(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 2, i32 1)")

    def at(self, base: str, far: str | int) -> str:
        return self.put(f"getelementptr i8, ptr {base}, i64 {far}")

    def word(self, table: str, number: int) -> str:
        return self.put(f"load i64, ptr {self.at(table, 8 * number)}")

    def pointer(self, table: str, number: int | str) -> str:
        far = 8 * number if isinstance(number, int) else self.mul(number, 8)
        return self.put(f"load ptr, ptr {self.at(table, far)}")

    def address(self, word: str) -> str:
        return self.put(f"inttoptr i64 {word} to ptr")

    def loop(self, stop: str, step: int, body: Callable[[str], None], start: str = "0") -> None:
        """A loop that may run zero times."""

        def turn(i: str, _: list[str]) -> list[str]:
            body(i)
            return []

        self.code.loop(start, stop, step, [], turn, may_be_empty=True)

    def when(self, condition: str, values: Iterable[tuple[str, str]], body: Callable[[], list[str]]) -> list[str]:
        """The values, by type, or where the condition holds those that `body` returns."""
        here, number = self.code.here, self.code.name()[1:]
        before = here.label
        self.do(f"br i1 {condition}, label %then.{number}, label %after.{number}")
        here.begin(f"then.{number}")
        made, last = body(), here.label
        self.do(f"br label %after.{number}")
        here.begin(f"after.{number}")
        return [
            self.put(f"phi {type} [{old}, %{before}], [{new}, %{last}]")
            for (type, old), new in zip(values, made, strict=True)
        ]

    def splat(self, one: str, type: str = "float") -> str:
        whole = f"<{self.lanes} x {type}>"
        first = self.put(f"insertelement {whole} poison, {type} {one}, i64 0")
        return self.put(f"shufflevector {whole} {first}, {whole} poison, <{self.lanes} x i32> zeroinitializer")

    def before(self, first: str, end: str) -> str:
        """A mask: for each lane whether first + lane < end."""
        left = self.splat(self.put(f"sub i64 {end}, {first}"), "i64")
        numbers = ", ".join(f"i64 {n}" for n in range(self.lanes))
        return self.put(f"icmp slt <{self.lanes} x i64> <{numbers}>, {left}")

    def load(self, pointer: str, mask: str | None = None) -> str:
        if mask is None:
            return self.put(f"load {self.vector}, ptr {pointer}, align 4")
        return self.call(
            self.vector,
            f"llvm.masked.load.v{self.lanes}f32.p0",
            ("ptr", pointer),
            (self.mask_type, mask),
            (self.vector, "zeroinitializer"),
        )

    def gather(self, pointer: str, apart: str, mask: str | None = None) -> str:
        """Numbers whose distances from a pointer, in bytes, are the lanes of `apart`; 0 where the mask is not set."""
        lanes, pointers = self.lanes, f"<{self.lanes} x ptr>"
        places = self.put(f"getelementptr i8, ptr {pointer}, <{lanes} x i64> {apart}")
        function = f"llvm.masked.gather.v{lanes}f32.v{lanes}p0"
        self.code.declare(self.vector, function, pointers, self.mask_type, self.vector)
        mask = mask or f"<{', '.join(['i1 true'] * lanes)}>"
        return self.put(
            f"call {self.vector} @{function}({pointers} align 4 {places}, {self.mask_type} {mask}, "
            f"{self.vector} zeroinitializer)"
        )

    def lanes_times(self, step: str) -> str:
        """The number of each lane times a step."""
        numbers = ", ".join(f"i64 {n}" for n in range(self.lanes))
        return self.put(f"mul <{self.lanes} x i64> <{numbers}>, {self.splat(step, 'i64')}")

    def store(self, value: str, pointer: str, mask: str | None = None) -> None:
        if mask is None:
            self.do(f"store {self.vector} {value}, ptr {pointer}, align 4")
            return
        function = f"llvm.masked.store.v{self.lanes}f32.p0"
        self.code.declare("void", function, self.vector, "ptr", self.mask_type)
        self.do(f"call void @{function}({self.vector} {value}, ptr {pointer}, {self.mask_type} {mask})")
