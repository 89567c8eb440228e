"""A native function that compares words of memory with their recorded values.

    memory_comparer().launch(table)    table: the addresses, the expected words, their number, the address of the result

`runtime.program.frozen_prologue` uses it to see whether a module's parameters were changed without torch's knowledge.
"""

from __future__ import annotations

from ....concurrency.first_value_cache import once
from ....runtime.program.native_kernels import NativeKernel, bind
from ..compile_to_machine_code import object_code
from ..target_cpu import host
from .function_printer import FunctionPrinter


class ComparePrinter(FunctionPrinter):
    def module(self) -> str:
        return self.text([self.exported("sampler", self.compare)])

    def compare(self) -> None:
        addresses, expected, count, answer = (self.pointer("%table", number) for number in range(4))

        def word(k: str, different: list[str]) -> list[str]:
            now = self.put(f"load i32, ptr {self.pointer(addresses, k)}")
            before = self.put(f"load i32, ptr {self.at(expected, self.mul(k, 4))}")
            return [self.put(f"or i32 {different[0]}, {self.put(f'xor i32 {now}, {before}')}")]

        (found,) = self.code.loop("0", self.word(count, 0), 1, [("i32", "0")], word, may_be_empty=True)
        self.do(f"store i32 {found}, ptr {answer}")


@once
def memory_comparer() -> NativeKernel:
    code = object_code(ComparePrinter(host()).module(), host())
    return bind("sampler", code, "sampler", {}, buffers=4, cycles=10_000)
