"""Scalar IR: hash-consed expressions for what a kernel computes for one element.

Operator records write their element-wise rules in it, the scheduler fuses these rules into loops, and the printers in
`codegen/` translate them to machine code. An expression is an immutable graph. Equal expressions are one object, so
common subexpressions are shared and `is` compares.

    >>> x = load("f32", Access(0, 0, (1,)))
    >>> print(select(x > 0, x, x.exp() - 1))
    select(gt(b0[i0], 0.0.f32), b0[i0], sub(exp(b0[i0]), 1.0.f32))

Types are the dtype names of `tensors.dtypes`: b8 (bool), u8, i8, i16, i32, i64, f16, bf16, f32, f64. Both
operands of a binary operation have the same type; the operator rules insert the casts. Integer arithmetic wraps around.
Floating point follows IEEE 754 as torch's eager kernels do: NaN propagates through min and max, and comparisons with
NaN are false except `ne`.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..tensors.dtypes import BITS, FLOATS, UNSIGNED

UNARY = frozenset(
    "neg abs sqrt rsqrt reciprocal floor ceil trunc round exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos "
    "atan sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma digamma not sigmoid exponent mantissa".split()
)
"""`round` rounds half to even. `not` is bitwise, and logical on b8. `reciprocal`, `rsqrt` and `sigmoid` are rounded
like 1/x, 1/sqrt(x) and 1/(1+exp(-x)). For x > 0, `mantissa` is between 3/4 and 3/2, and `exponent` is the integer with
x = mantissa * 2**exponent. Otherwise the mantissa is unspecified, and the exponent is -inf for 0, inf for infinity, and
NaN for everything else."""

BINARY = frozenset(
    "add sub mul div floor_div remainder fmod pow atan2 min max and or xor shl shr copysign ldexp".split()
)
"""`div` divides floats, and truncates for integers. `floor_div` and `remainder` round down, as in Python; `fmod` takes
the sign of the dividend. Integer division by zero gives 0: rules whose operator raises must not be scheduled.
`ldexp` is x * 2**y rounded once. x must be 0 or between 1/8 and 8, and y an integer of the same float type, at least
-254 or, in f64, -2046. If y is larger than any exponent, the result is infinity for every such x, and for NaN."""

COMPARISONS = frozenset("eq ne lt le gt ge".split())
"""Two operands of one type; the result is b8."""

OTHERS = frozenset("const size load index reduced select fma cast bitcast is_nan is_inf random_bits within".split())
"""The leaves, and operations with other signatures:

const     payload: the value                                 a literal of the type
size      payload: a symbolic size                           its value at run time, i64
load      payload: an Access; args: see Access               an element of a buffer
index     payload: the number of a loop variable             its value, i64
reduced   payload: the number of a reduction of this loop    its final value, in a later stage or a row store
select    (b8, x, y)                                         x if true, else y; both are evaluated
fma       (x, y, z)                                          x * y + z rounded once
cast      (x,)                                               x in another type; float to integer towards zero
bitcast   (x,)                                               the same bits as another type of the same width
is_nan, is_inf  (float,)                                     b8
random_bits  (seed, counter), both i64                       64 pseudo-random bits, i64, a function of both
within    (x, n), both i64                            x clamped to 0 … n - 1. As the index of a load, it marks an x
                                                      outside as an error of the program. If no check ran before (on a
                                                      GPU), the load then ends the program
"""


@dataclass(frozen=True, slots=True)
class Access:
    """The position of an element in a buffer: offset + sum(strides[k] * variable k) + sum(indirect[j] * args[j]).

    `strides` has one entry for each loop variable, in elements. `indirect` has one for each leading argument (i64) of
    the load or store with this access. If `masked`, one more argument of type b8 follows. If it is false, memory is not
    accessed, and a load returns 0.
    """

    buffer: int
    offset: int
    strides: tuple[int, ...]
    indirect: tuple[int, ...] = ()
    masked: bool = False

    def __str__(self) -> str:
        terms = [f"i{k}" if s == 1 else f"{s}*i{k}" for k, s in enumerate(self.strides) if s]
        terms += [f"{s}*@{j}" for j, s in enumerate(self.indirect)]
        if self.offset or not terms:
            terms.append(str(self.offset))
        return f"b{self.buffer}[{' + '.join(terms)}]"


class Scalar:
    """An expression. Create it with the functions below and with Python's operators, never directly."""

    __slots__ = ("__weakref__", "args", "dtype", "op", "payload")
    op: str
    args: tuple[Scalar, ...]
    dtype: str
    payload: Any

    def __add__(self, other: Scalar | float) -> Scalar:
        return binary("add", self, other)

    def __radd__(self, other: float) -> Scalar:
        return binary("add", self, other)

    def __sub__(self, other: Scalar | float) -> Scalar:
        return binary("sub", self, other)

    def __rsub__(self, other: float) -> Scalar:
        return binary("sub", const(other, self.dtype), self)

    def __mul__(self, other: Scalar | float) -> Scalar:
        return binary("mul", self, other)

    def __rmul__(self, other: float) -> Scalar:
        return binary("mul", self, other)

    def __truediv__(self, other: Scalar | float) -> Scalar:
        return binary("div", self, other)

    def __rtruediv__(self, other: float) -> Scalar:
        return binary("div", const(other, self.dtype), self)

    def __neg__(self) -> Scalar:
        return unary("neg", self)

    def __lt__(self, other: Scalar | float) -> Scalar:
        return compare("lt", self, other)

    def __le__(self, other: Scalar | float) -> Scalar:
        return compare("le", self, other)

    def __gt__(self, other: Scalar | float) -> Scalar:
        return compare("gt", self, other)

    def __ge__(self, other: Scalar | float) -> Scalar:
        return compare("ge", self, other)

    def __and__(self, other: Scalar) -> Scalar:
        return binary("and", self, other)

    def __or__(self, other: Scalar) -> Scalar:
        return binary("or", self, other)

    def __invert__(self) -> Scalar:
        return unary("not", self)

    def eq(self, other: Scalar | float) -> Scalar:
        return compare("eq", self, other)

    def ne(self, other: Scalar | float) -> Scalar:
        return compare("ne", self, other)

    def __getattr__(self, name: str) -> Any:
        """`x.exp()` is `unary("exp", x)`, for every unary operation."""
        if name in UNARY:
            return lambda: unary(name, self)
        raise AttributeError(name)

    def __str__(self) -> str:
        return text(self)

    def __repr__(self) -> str:
        return f"<{self.dtype} {text(self)}>"


_made: weakref.WeakValueDictionary[tuple, Scalar] = weakref.WeakValueDictionary()


def make(op: str, dtype: str, args: tuple[Scalar, ...] = (), payload: Any = None) -> Scalar:
    """The unique expression with these parts."""
    # 0.0 and -0.0 are equal keys but different constants, and so are 1, 1.0 and True.
    key = (op, dtype, args, repr(payload) if op == "const" else payload)
    found = _made.get(key)
    if found is None:
        found = Scalar()
        found.op, found.dtype, found.args, found.payload = op, dtype, args, payload
        found = _made.setdefault(key, found)
    return found


def const(value: bool | int | float, dtype: str) -> Scalar:
    if dtype in FLOATS:
        value = float(value)
    elif dtype == "b8":
        value = bool(value)
    elif isinstance(value, float) and not math.isfinite(value):
        value = -(1 << (BITS[dtype] - 1)) if dtype not in UNSIGNED else 0
    else:
        value = wrap(int(value), dtype)
    return make("const", dtype, (), value)


def wrap(value: int, dtype: str) -> int:
    """An integer wrapped around to the range of the type."""
    bits = BITS[dtype]
    value &= (1 << bits) - 1
    return value if dtype in UNSIGNED or value < 1 << (bits - 1) else value - (1 << bits)


def load(dtype: str, access: Access, *args: Scalar) -> Scalar:
    assert len(args) == len(access.indirect) + access.masked
    return make("load", dtype, args, access)


def index(variable: int) -> Scalar:
    return make("index", "i64", (), variable)


def reduced(number: int, dtype: str) -> Scalar:
    return make("reduced", dtype, (), number)


def unary(op: str, x: Scalar) -> Scalar:
    assert op in UNARY, op
    return make(op, x.dtype, (x,))


def binary(op: str, x: Scalar, y: Scalar | float) -> Scalar:
    assert op in BINARY, op
    y = y if isinstance(y, Scalar) else const(y, x.dtype)
    assert x.dtype == y.dtype, f"{op} of {x.dtype} and {y.dtype}"
    return make(op, x.dtype, (x, y))


def compare(op: str, x: Scalar, y: Scalar | float) -> Scalar:
    assert op in COMPARISONS, op
    y = y if isinstance(y, Scalar) else const(y, x.dtype)
    assert x.dtype == y.dtype, f"{op} of {x.dtype} and {y.dtype}"
    return make(op, "b8", (x, y))


def select(condition: Scalar, x: Scalar | float, y: Scalar | float) -> Scalar:
    dtype = x.dtype if isinstance(x, Scalar) else y.dtype  # type: ignore[union-attr]
    x = x if isinstance(x, Scalar) else const(x, dtype)
    y = y if isinstance(y, Scalar) else const(y, dtype)
    assert condition.dtype == "b8" and x.dtype == y.dtype, f"select of {condition.dtype}, {x.dtype}, {y.dtype}"
    return make("select", dtype, (condition, x, y))


def fma(x: Scalar, y: Scalar, z: Scalar) -> Scalar:
    return make("fma", x.dtype, (x, y, z))


def cast(x: Scalar, dtype: str) -> Scalar:
    if x.dtype == dtype:
        return x
    if x.op == "const":
        value = x.payload
        if dtype in ("f32", "f64") or not isinstance(value, float):
            return const(value != 0 if dtype == "b8" else value, dtype)
    return make("cast", dtype, (x,))


def bitcast(x: Scalar, dtype: str) -> Scalar:
    assert BITS[x.dtype] == BITS[dtype]
    return x if x.dtype == dtype else make("bitcast", dtype, (x,))


def is_nan(x: Scalar) -> Scalar:
    return make("is_nan", "b8", (x,))


def is_inf(x: Scalar) -> Scalar:
    return make("is_inf", "b8", (x,))


def random_bits(seed: Scalar, counter: Scalar) -> Scalar:
    assert seed.dtype == counter.dtype == "i64", f"random_bits of {seed.dtype} and {counter.dtype}"
    return make("random_bits", "i64", (seed, counter))


def within(x: Scalar, size: Scalar | float) -> Scalar:
    return make("within", "i64", (x, size if isinstance(size, Scalar) else const(size, "i64")))


def minimum(x: Scalar, y: Scalar | float) -> Scalar:
    return binary("min", x, y)


def maximum(x: Scalar, y: Scalar | float) -> Scalar:
    return binary("max", x, y)


def walk(*roots: Scalar, known: Container[Scalar] = ()) -> Iterator[Scalar]:
    """Every expression reachable from the roots, once, operands before users. Not those in `known`, nor what only they
    need: so roots that share most of their operands can be walked one by one, each adding to `known` what it yields."""
    seen: set[int] = set()
    stack: list[Scalar | None] = list(roots[::-1])
    while stack:
        x = stack.pop()
        if x is None:  # the one below is ready
            x = stack.pop()
        elif id(x) in seen or x in known:
            continue
        else:
            seen.add(id(x))
            if x.args:
                stack += (x, None, *x.args[::-1])
                continue
        yield x  # type: ignore[misc]


def text(root: Scalar, names: Mapping[Scalar, str] | None = None) -> str:
    """The full text of an expression, except for parts with names. Shared parts are repeated."""
    texts: dict[Scalar, str] = dict(names or {})
    for x in walk(root, known=texts):
        texts[x] = own_text(x, [texts[arg] for arg in x.args])
    return texts[root]


def own_text(x: Scalar, args: Sequence[str]) -> str:
    """The text of the outermost operation, with `args` as the texts of its operands."""
    inside = f"({', '.join(args)})" if args else ""
    match x.op:
        case "const":
            return f"{x.payload!r}.{x.dtype}"
        case "index":
            return f"i{x.payload}"
        case "size":
            return str(x.payload)
        case "reduced":
            return f"r{x.payload}"
        case "load":
            return f"{x.payload}{inside}"
        case "cast" | "bitcast":
            return f"{x.op}.{x.dtype}{inside}"
    return f"{x.op}{inside}"
