"""Parses printed kernels: for dumps, and for tests of code generation.

    kernel = parse_kernel('''
        kernel row_sum(b0: f32, b1: f32 out)
          loop i0 < 64 rows, i1 < 512
            stage
              r0 = sum.f32 mul(b0[512*i0 + i1], 2.0.f32)
              row b1[i0] = r0
    ''')
    print_kernel(parse_kernel(print_kernel(kernel))) == print_kernel(kernel)

A constant states its type, a load has the type of its buffer, and all other types follow. Names like `t0` stand for
the expressions assigned to them. Comment lines directly above a kernel are its origin.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from burnish.ops.scalar_ir import (
    BINARY,
    COMPARISONS,
    UNARY,
    Access,
    Scalar,
    binary,
    compare,
    fma,
    index,
    is_inf,
    is_nan,
    load,
    make,
    random_bits,
    reduced,
    select,
    unary,
    within,
)
from burnish.schedule.loops.loop_ir import REDUCTIONS, Kernel, Loop, Reduction, Stage, Store
from burnish.tensors.dtypes import BITS, FLOATS

from ..ir.parse_graph import ParseError

TOKEN = re.compile(
    r"""\s*(?:
    (?P<const>(?:-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf|nan)|True|False)\.(?:b8|u8|i8|i16|i32|i64|f16|bf16|f32|f64)\b) |
    (?P<number>-?\d+) |
    (?P<word>[a-z_]\w*(?:\.\w+)?) |
    (?P<mark>[][(),=*+@]) |
    (?P<end>$)
)""",
    re.VERBOSE,
)

OTHERS: dict[str, Callable[..., Scalar]] = {
    "select": select,
    "fma": fma,
    "is_nan": is_nan,
    "is_inf": is_inf,
    "random_bits": random_bits,
    "within": within,
}
CASTS = ("cast", "bitcast")
OPERANDS = {
    **dict.fromkeys(UNARY, 1),
    **dict.fromkeys(BINARY | COMPARISONS, 2),
    **dict.fromkeys(CASTS, 1),
    "select": 3,
    "fma": 3,
    "is_nan": 1,
    "is_inf": 1,
    "random_bits": 2,
    "within": 2,
}


def parse_kernel(text: str) -> Kernel:
    """Parses text with exactly one kernel."""
    found = kernels_in(text)
    if len(found) != 1:
        raise ParseError(f"the text holds {len(found)} kernels, not one")
    return found[0]


def kernels_in(text: str) -> list[Kernel]:
    """The kernels of a printed plan, in order. Its other steps are skipped."""
    found: list[Kernel] = []
    origin: list[str] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at].strip()
        at += 1
        if line.startswith("# "):
            origin.append(line[2:])
            continue
        if line.startswith("kernel "):
            body: list[tuple[int, str]] = [(at, line)]
            while at < len(lines) and re.match(r"\s*(loop|stage|row|[bt]\d+|r\d+)\b", lines[at]):
                body.append((at + 1, lines[at].strip()))
                at += 1
            found.append(KernelParser(body, tuple(origin)).run())
        origin = []
    return found


@dataclass(slots=True)
class OpenStage:
    reductions: list[Reduction] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    row_stores: list[Store] = field(default_factory=list)

    def closed(self) -> Stage:
        return Stage(tuple(self.reductions), tuple(self.stores), tuple(self.row_stores))


class KernelParser:
    """Parses the lines of one kernel, each given with its number."""

    def __init__(self, lines: list[tuple[int, str]], origin: tuple[str, ...]):
        self.lines, self.origin = lines, origin
        self.dtypes: list[str] = []
        self.stored: set[int] = set()
        self.parts: dict[str, Scalar] = {}
        self.reductions: list[Reduction] = []
        self.count = 0
        self.number, self.line = 0, ""

    def run(self) -> Kernel:
        name = ""
        loops: list[tuple[tuple[int, ...], int, list[OpenStage]]] = []
        for number, line in self.lines:
            self.number, self.line = number, line
            word = line.split()[0]
            if word == "kernel":
                name = self.head()
            elif word == "loop":
                loops.append((*self.box(), []))
                self.count = len(loops[-1][0])
                self.parts, self.reductions = {}, []
            elif not loops:
                raise self.error("there is no loop yet")
            elif word == "stage":
                loops[-1][2].append(OpenStage())
            elif not loops[-1][2]:
                raise self.error("there is no stage yet")
            else:
                self.statement(loops[-1][2][-1])
        made = tuple(Loop(extents, rows, tuple(stage.closed() for stage in stages)) for extents, rows, stages in loops)
        return Kernel(name, tuple(self.dtypes), frozenset(self.stored), made, self.origin)

    def head(self) -> str:
        found = re.fullmatch(r"kernel (\w*)\((.*)\)", self.line)
        if found is None:
            raise self.error("expected a kernel and its buffers")
        for n, text in enumerate(found[2].split(", ") if found[2] else ()):
            buffer = re.fullmatch(rf"b{n}: (\w+)( out)?", text)
            if buffer is None or buffer[1] not in BITS:
                raise self.error(f"expected the type of buffer {n}")
            self.dtypes.append(buffer[1])
            if buffer[2]:
                self.stored.add(n)
        return found[1]

    def box(self) -> tuple[tuple[int, ...], int]:
        if self.line == "loop once":
            return (), 0
        extents: list[int] = []
        rows = 0
        for k, text in enumerate(self.line.removeprefix("loop ").split(", ")):
            found = re.fullmatch(rf"i{k} < (\d+)( rows)?", text)
            if found is None:
                raise self.error(f"expected the extent of variable {k}")
            extents.append(int(found[1]))
            rows = k + 1 if found[2] else rows
        return tuple(extents), rows

    def statement(self, stage: OpenStage) -> None:
        left, _, right = self.line.replace(" += ", " + = ", 1).partition(" = ")
        if re.fullmatch(r"t\d+", left):
            self.parts[left] = self.expression(right)
        elif re.fullmatch(r"r\d+", left):
            op, _, value = right.partition(" ")
            made = Reduction(op.partition(".")[0], self.expression(value))
            if left != f"r{len(self.reductions)}" or made.op not in REDUCTIONS or op != f"{made.op}.{made.dtype}":
                raise self.error(f"expected the reduction r{len(self.reductions)}")
            self.reductions.append(made)
            stage.reductions.append(made)
        else:
            adds = left.endswith(" +")
            tokens = self.tokens(left.removeprefix("row ").removesuffix(" +"))
            access, args = self.access(tokens)
            tokens.finish()
            stores = stage.row_stores if left.startswith("row ") else stage.stores
            stores.append(Store(access, self.expression(right), args, adds))

    def expression(self, text: str) -> Scalar:
        tokens = self.tokens(text)
        try:
            found = self.scalar(tokens)
        except AssertionError as error:
            raise self.error(f"operands of other types: {error}") from None
        tokens.finish()
        return found

    def scalar(self, tokens: ScalarTokens) -> Scalar:
        kind, word = tokens.kind, tokens.text
        if kind == "const":
            return constant(tokens.take())
        if kind != "word":
            raise self.error("expected an expression", tokens)
        if re.fullmatch(r"b\d+", word):
            access, args = self.access(tokens)
            return load(self.dtypes[access.buffer], access, *args)
        tokens.take()
        if re.fullmatch(r"i\d+", word):
            return index(int(word[1:]))
        if re.fullmatch(r"r\d+", word) and int(word[1:]) < len(self.reductions):
            return reduced(int(word[1:]), self.reductions[int(word[1:])].dtype)
        if word in self.parts:
            return self.parts[word]
        op, _, dtype = word.partition(".")
        if op not in OPERANDS or (op in CASTS) != (dtype in BITS):
            raise self.error(f"there is no operation called {word}", tokens)
        args = self.arguments(tokens)
        if len(args) != OPERANDS[op]:
            raise self.error(f"{op} of {len(args)} operands", tokens)
        if op in CASTS:
            return make(op, dtype, args)
        if op in UNARY:
            return unary(op, *args)
        if op in BINARY:
            return binary(op, *args)
        return compare(op, *args) if op in COMPARISONS else OTHERS[op](*args)

    def arguments(self, tokens: ScalarTokens) -> tuple[Scalar, ...]:
        found: list[Scalar] = []
        tokens.expect("(")
        while True:
            found.append(self.scalar(tokens))
            if not tokens.taken(","):
                tokens.expect(")")
                return tuple(found)

    def access(self, tokens: ScalarTokens) -> tuple[Access, tuple[Scalar, ...]]:
        name = tokens.take()
        if not re.fullmatch(r"b\d+", name) or int(name[1:]) >= len(self.dtypes):
            raise self.error(f"there is no buffer called {name}", tokens)
        tokens.expect("[")
        offset, strides, indirect = 0, [0] * self.count, []
        while True:
            factor = int(tokens.take()) if tokens.kind == "number" else None
            if factor is not None and not tokens.taken("*"):
                offset += factor
            elif tokens.taken("@"):
                tokens.take()
                indirect.append(factor or 0)
            else:
                variable = tokens.take()
                if not re.fullmatch(r"i\d+", variable) or int(variable[1:]) >= self.count:
                    raise self.error(f"there is no variable called {variable}", tokens)
                strides[int(variable[1:])] = 1 if factor is None else factor
            if not tokens.taken("+"):
                break
        tokens.expect("]")
        args = self.arguments(tokens) if tokens.text == "(" else ()
        if len(args) not in (len(indirect), len(indirect) + 1):
            raise self.error(f"the access needs {len(indirect)} indices, and may have a mask", tokens)
        return Access(int(name[1:]), offset, tuple(strides), tuple(indirect), len(args) > len(indirect)), args

    def tokens(self, text: str) -> ScalarTokens:
        return ScalarTokens(text, self.error)

    def error(self, why: str, tokens: ScalarTokens | None = None) -> ParseError:
        before = f", before '{tokens.text}'" if tokens is not None and tokens.text else ""
        return ParseError(f"line {self.number}: {why}{before}\n    {self.line}")


class ScalarTokens:
    """The tokens of an expression, one at a time."""

    def __init__(self, text: str, error: Callable[..., ParseError]):
        self.error = error
        self.rest: Iterator[tuple[str, str]] = self.all(text)
        self.kind, self.text = next(self.rest)

    def all(self, text: str) -> Iterator[tuple[str, str]]:
        at = 0
        while True:
            found = TOKEN.match(text, at)
            if found is None or found.lastgroup is None:
                raise self.error(f"'{text[at:]}' is not an expression")
            yield found.lastgroup, found[found.lastgroup]
            at = found.end()

    def take(self) -> str:
        text = self.text
        self.kind, self.text = next(self.rest)
        return text

    def taken(self, text: str) -> bool:
        if self.text != text:
            return False
        self.take()
        return True

    def expect(self, text: str) -> None:
        if not self.taken(text):
            raise self.error(f"expected '{text}'", self)

    def finish(self) -> None:
        if self.kind != "end":
            raise self.error("expected the end", self)


def constant(text: str) -> Scalar:
    value, _, dtype = text.rpartition(".")
    if dtype == "b8":
        return make("const", dtype, (), value == "True")
    number = float(value) if dtype in FLOATS else int(value)
    # All NaNs are equal here: use one object, so that parsed kernels compare equal.
    return make("const", dtype, (), math.nan if number != number else number)
