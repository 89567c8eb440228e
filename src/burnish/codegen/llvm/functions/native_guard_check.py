"""The native guard check: compares memory with recorded values, and returns objects if all are equal.

    compile_watchers()      C functions: (self, args, count) -> object, METH_FASTCALL as PyMethodDef has it; and
                            the same of a tuple, (self, args) -> object, METH_VARARGS

A segment's guards are about state that hardly ever changes. ``runtime.state_watch.native_watch`` records as numbers
where that state is and what was there; this function reads the numbers and compares. They are data, so there is one
such function in a process, compiled once. Its table is the content of ``self``, a bytes object:

    hits, count of arguments, counts of the sections, None, count of zeros, their base, then the sections
      calls      function, argument, further, mask, answer    torch's switches; further is two numbers of 32 bits
      pins       argument, address                            the argument must be the object at that address
      words      address, word                                ordered so that each keeps alive the next; padded to
                                                              a multiple of WORDS_AT_ONCE
      zeros    half a word each: the offset, in words from the base, of a word that must be 0; padded likewise
      tensors    object, where its description begins         an even number is an address, an odd one an argument
      inputs     object                                       the first tuple of the result
      values     object                                       the second
    descriptions of tensors
      type, offset of the implementation, offset of its autograd data, whether it may be without,
      number of blocks of the one, number of checks of the other,
      the blocks: offset, eight masks, eight words; the checks: offset, mask, word

The result is the pair of tuples, or None if something differs.
"""

from __future__ import annotations

from ....concurrency.first_value_cache import once
from ....runtime.program.native_kernels import NativeFunction
from ....runtime.state_watch.native_watch import TUPLE_ITEMS, WORDS_AT_ONCE, load_watchers, reference_count_bits
from ..compile_to_machine_code import object_code
from ..target_cpu import host
from .function_printer import FunctionPrinter

CONTENT = 32
"""Bytes before the content of a bytes object."""
LENGTH = 16
"""Bytes before a tuple's length."""

COUNTS = "args calls pins words tensors inputs values".split()
BLOCK, CHECK = 17, 3
"""Words of a block and of a check in the description of a tensor."""
MASKED = "<8 x i64>"


class WatchPrinter(FunctionPrinter):
    """The tuples are allocated before any comparison: allocation may run a garbage collection, and that any code. From
    the first comparison to the last reference taken, no code runs that could change the compared state."""

    def module(self) -> str:
        watch = self.function("ptr @watch(ptr %self, ptr %args, i64 %count)", self.watch, "ret ptr {result}")
        of_tuple = self.function("ptr @watch_tuple(ptr %self, ptr %args)", self.watch_tuple, "ret ptr {result}")
        return self.text([part.replace("define internal", "define", 1) for part in (watch, of_tuple)])

    def watch_tuple(self) -> None:
        count = self.put(f"load i64, ptr {self.at('%args', LENGTH)}")
        items = self.at("%args", TUPLE_ITEMS)
        self.result = self.put(f"tail call ptr @watch(ptr %self, ptr {items}, i64 {count})")

    def watch(self) -> None:
        table, self.passed = self.at("%self", CONTENT), 0
        counts = {name: self.word(table, number) for number, name in enumerate(COUNTS, 1)}
        none, zero_count, base = self.pointer(table, 8), self.word(table, 9), self.pointer(table, 10)
        calls = self.at(table, 8 * 11)
        pins = self.at(calls, self.mul(counts["calls"], 8 * 5))
        words = self.at(pins, self.mul(counts["pins"], 8 * 2))
        zeros = self.at(words, self.mul(counts["words"], 8 * 2))
        tensors = self.at(zeros, self.mul(zero_count, 4))
        inputs = self.at(tensors, self.mul(counts["tensors"], 8 * 2))
        values = self.at(inputs, self.mul(counts["inputs"], 8))
        new = [self.new_tuple(count) for count in (counts["inputs"], counts["values"], "2")]
        missing = [self.put(f"icmp eq ptr {made}, null") for made in new]
        no_memory = self.put(f"or i1 {self.put(f'or i1 {missing[0]}, {missing[1]}')}, {missing[2]}")
        self.expect(self.not_(no_memory))
        self.expect_equal("%count", counts["args"])
        self.loop(counts["calls"], 1, lambda n: self.check_call(self.at(calls, self.mul(n, 8 * 5))))
        self.loop(counts["pins"], 1, lambda n: self.check_pin(self.at(pins, self.mul(n, 8 * 2))))
        self.loop(counts["words"], WORDS_AT_ONCE, lambda n: self.check_words(self.at(words, self.mul(n, 8 * 2))))
        self.loop(zero_count, WORDS_AT_ONCE, lambda n: self.check_zeros(self.at(zeros, self.mul(n, 4)), base))
        self.loop(counts["tensors"], 1, lambda n: self.check_tensor(self.at(tensors, self.mul(n, 8 * 2)), table))
        self.do(f"store i64 {self.add(self.word(table, 0), 1)}, ptr {table}")
        self.fill(new[0], inputs, counts["inputs"])
        self.fill(new[1], values, counts["values"])
        for number, made in enumerate(new[:2]):
            self.do(f"store ptr {made}, ptr {self.at(new[2], TUPLE_ITEMS + 8 * number)}")
        self.do(f"ret ptr {new[2]}")
        self.refuse(new, no_memory, none)

    def refuse(self, new: list[str], no_memory: str, none: str) -> None:
        """Where something differs, or memory is short."""
        here = self.code.here
        here.begin("drop")
        for made in new:
            self.do(f"call void @Py_DecRef(ptr {made})")
        self.do(f"br i1 {no_memory}, label %failed, label %refused")
        here.begin("failed")
        self.do("ret ptr null")
        here.begin("refused")
        self.do(f"call void @Py_IncRef(ptr {none})")
        self.result = none
        for function in ("Py_DecRef", "Py_IncRef"):
            self.code.declare("void", function, "ptr")

    def new_tuple(self, count: str) -> str:
        return self.call("ptr", "PyTuple_New", ("i64", count))

    def expect(self, condition: str) -> None:
        """Refuses unless it holds."""
        self.passed += 1
        self.do(f"br i1 {condition}, label %passed{self.passed}, label %drop")
        self.code.here.begin(f"passed{self.passed}")

    def expect_equal(self, a: str, b: str, type: str = "i64") -> None:
        self.expect(self.put(f"icmp eq {type} {a}, {b}"))

    def check_call(self, at: str) -> None:
        """One of torch's switches."""
        function, argument, mask, answer = self.pointer(at, 0), *(self.word(at, number) for number in (1, 3, 4))
        further = [self.put(f"load i32, ptr {self.at(at, far)}") for far in (16, 20)]
        found = self.put(f"call i64 {function}(i64 {argument}, i32 {further[0]}, i32 {further[1]})")
        self.expect_equal(self.put(f"and i64 {found}, {mask}"), answer)

    def check_pin(self, at: str) -> None:
        expected = self.pointer(at, 1)
        self.expect_equal(self.pointer("%args", self.word(at, 0)), expected, "ptr")

    def check_words(self, at: str) -> None:
        for number in range(WORDS_AT_ONCE):
            address, expected = self.pointer(at, 2 * number), self.word(at, 2 * number + 1)
            self.expect_equal(self.word(address, 0), expected)

    def check_zeros(self, at: str, base: str) -> None:
        every = "0"
        for number in range(WORDS_AT_ONCE):
            place = self.put(f"zext i32 {self.put(f'load i32, ptr {self.at(at, 4 * number)}')} to i64")
            every = self.put(f"or i64 {every}, {self.word(self.at(base, self.mul(place, 8)), 0)}")
        self.expect_equal(every, "0")

    def check_tensor(self, at: str, table: str) -> None:
        spec, subject = self.at(table, self.mul(self.word(at, 1), 8)), self.subject(at)
        kind, to_implementation, to_data, may_be_without, block_count, check_count = (
            self.word(spec, number) for number in range(6)
        )
        self.expect_equal(self.word(subject, 1), kind)
        implementation = self.pointer(self.at(subject, to_implementation), 0)
        blocks = self.at(spec, 8 * 6)
        checks = self.at(blocks, self.mul(block_count, 8 * BLOCK))

        def block(n: str) -> None:
            here = self.at(blocks, self.mul(n, 8 * BLOCK))
            found, mask, expected = (
                self.put(f"load {MASKED}, ptr {place}, align 8")
                for place in (self.at(implementation, self.word(here, 0)), self.at(here, 8), self.at(here, 8 * 9))
            )
            difference = self.put(f"xor {MASKED} {found}, {expected}")
            differs = self.put(f"icmp ne {MASKED} {self.put(f'and {MASKED} {difference}, {mask}')}, zeroinitializer")
            self.expect_equal(self.put(f"bitcast <8 x i1> {differs} to i8"), "0", "i8")

        def check(n: str) -> None:
            here = self.at(checks, self.mul(n, 8 * CHECK))
            found = self.word(self.at(data, self.word(here, 0)), 0)
            self.expect_equal(self.put(f"and i64 {found}, {self.word(here, 1)}"), self.word(here, 2))

        self.loop(block_count, 1, block)
        data = self.pointer(self.at(implementation, to_data), 0)
        has_none = self.put(f"icmp eq ptr {data}, null")
        # Without autograd data nothing of it is checked.
        self.expect(self.put(f"or i1 {self.put(f'icmp ne i64 {may_be_without}, 0')}, {self.not_(has_none)}"))
        self.loop(self.put(f"select i1 {has_none}, i64 0, i64 {check_count}"), 1, check)

    def not_(self, condition: str) -> str:
        return self.put(f"xor i1 {condition}, true")

    def subject(self, at: str) -> str:
        """The object that a word stands for: an argument where the number is odd, else the one at that address."""
        word = self.word(at, 0)
        is_argument = self.put(f"trunc i64 {word} to i1")
        argument = self.at("%args", self.mul(self.put(f"lshr i64 {word}, 1"), 8))
        return self.pointer(self.put(f"select i1 {is_argument}, ptr {argument}, ptr {at}"), 0)

    def fill(self, into: str, objects: str, count: str) -> None:
        """A tuple with references to these objects. As Py_INCREF: since 3.12 the count is half a word, and an object
        with such a count is immortal. No other object is referred to as often."""
        kind, items = f"i{reference_count_bits}", self.at(into, TUPLE_ITEMS)
        immortal = 3 << 30 if reference_count_bits == 32 else -1

        def one(n: str) -> None:
            subject = self.subject(self.at(objects, self.mul(n, 8)))
            before = self.put(f"load {kind}, ptr {subject}")
            more = self.put(f"add {kind} {before}, 1")
            is_immortal = self.put(f"icmp uge {kind} {before}, {immortal}")
            self.do(
                f"store {kind} {self.put(f'select i1 {is_immortal}, {kind} {before}, {kind} {more}')}, ptr {subject}"
            )
            self.do(f"store ptr {subject}, ptr {self.at(items, self.mul(n, 8))}")

        self.loop(count, 1, one)


@once
def compile_watchers() -> tuple[NativeFunction, NativeFunction]:
    """Compiled once in a process and never freed: checks refer to them."""
    return load_watchers(object_code(WatchPrinter(host()).module(), host()))
