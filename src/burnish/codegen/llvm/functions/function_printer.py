"""A base class that prints native functions which are not loop nests: a small language on top of `Code`.

    class AttentionPrinter(FunctionPrinter):
        def module(self) -> str:
            return self.text([self.print_parallel_entry("attention", TABLE, PLAN), self.work()])

Sizes, strides and steps are words of a table; vectors are as wide as the machine's, and their tails are masked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..loop_invariant_scopes import Code
from ..target_machine import Host


class FunctionPrinter:
    def __init__(self, target: Host):
        self.host = target
        self.lanes = target.vector_bits // 32
        self.bytes = 4 * self.lanes
        self.vector, self.mask_type = f"<{self.lanes} x float>", f"<{self.lanes} x i1>"
        self.code = Code(target.has_scaling)

    def text(self, functions: Sequence[str]) -> str:
        self.code.declarations.add("declare i32 @torch_parallel_for(i64, i64, i64, ptr, ptr)")
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

        def body() -> None:
            words = self.pointer("%table", table.index("plan"))
            shared = self.put("alloca [2 x i64]")
            self.do(f"store i64 0, ptr {shared}")
            self.do(f"store ptr %table, ptr {self.at(shared, 8)}")
            tasks, grain = self.word(words, plan.index("tasks")), self.word(words, plan.index("grain"))
            self.put(f"call i32 @torch_parallel_for(i64 0, i64 {tasks}, i64 {grain}, ptr @work, ptr {shared})")

        return self.function(f"void @{name}(ptr %table)", body).replace("define internal", "define", 1)

    def function(self, head: str, body: Callable[[], None], end: str = "ret void") -> str:
        declarations, self.code = self.code.declarations, Code(self.host.has_scaling)
        self.code.declarations = declarations
        body()
        self.do(end.format(result=self.result))
        return "\n".join([f"define internal {head} #0 {{", "entry:", *self.code.here.lines, "}", ""])

    result = ""

    def put(self, instruction: str) -> str:
        return self.code.emit(self.code.here, instruction)

    def do(self, instruction: str) -> None:
        self.code.here.put(instruction)

    def add(self, a: str, b: str | int) -> str:
        return self.put(f"add i64 {a}, {b}")

    def mul(self, a: str, b: str | int) -> str:
        return self.put(f"mul i64 {a}, {b}")

    def least(self, a: str, b: str) -> str:
        return self.code.call(self.code.here, "i64", "llvm.umin.i64", ("i64", a), ("i64", b))

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
        return self.code.call(
            self.code.here,
            self.vector,
            f"llvm.masked.load.v{self.lanes}f32.p0",
            ("ptr", pointer),
            (self.mask_type, mask),
            (self.vector, "zeroinitializer"),
        )

    def store(self, value: str, pointer: str, mask: str | None = None) -> None:
        if mask is None:
            self.do(f"store {self.vector} {value}, ptr {pointer}, align 4")
            return
        function = f"llvm.masked.store.v{self.lanes}f32.p0"
        self.code.declare("void", function, self.vector, "ptr", self.mask_type)
        self.do(f"call void @{function}({self.vector} {value}, ptr {pointer}, {self.mask_type} {mask})")
