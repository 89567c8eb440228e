"""Prints one scalar operation as LLVM instructions, on one lane or a vector of them.

    Operations(code, scope, 16).apply("add", "f32", ["%v1", "%v2"])    ->    %v3 = fadd <16 x float> %v1, %v2

It follows eager where LLVM leaves the result open: NaN in min and max, division by zero, shifts beyond the width,
casts of floats that fit no integer.
"""

from __future__ import annotations

from ...errors import InternalError
from ...ops.scalar_ir import Access, Scalar, load, walk, wrap
from ...runtime.linking import vector_math_symbols
from ...tensors.dtypes import BITS, FLOATS, UNSIGNED, WIDE
from ..math.expand_operations import PLAIN, expand
from .llvm_types import literal, register, suffix, vector
from .loop_invariant_scopes import FunctionCode, Scope

_ARITHMETIC = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_BOOLEAN = {"add": "or", "mul": "and", "max": "or", "min": "and", "sub": "xor", "and": "and", "or": "or", "xor": "xor"}
_FLOAT_INSTRUCTIONS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "fmod": "frem", "neg": "fneg"}
_FLOAT_INTRINSICS = {
    "fma": "fma",
    "abs": "fabs",
    "sqrt": "sqrt",
    "copysign": "copysign",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "roundeven",
}
_LIBRARY = set(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf erfc lgamma pow atan2".split()
)
"""C library functions, for operations without a polynomial: called for one lane after the other."""
_FLOAT_COMPARISONS = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_SIGNED = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
_UNSIGNED = {"eq": "eq", "ne": "ne", "lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge"}


class LlvmOperations:
    """Prints into one scope, at one width."""

    __slots__ = ("code", "scope", "width")

    def __init__(self, code: FunctionCode, scope: Scope, width: int):
        self.code, self.scope, self.width = code, scope, width

    def emit(self, instruction: str) -> str:
        return self.code.emit(self.scope, instruction)

    def call(self, function: str, scalar: str, *args: str, more: tuple[tuple[str, str], ...] = ()) -> str:
        """Calls an intrinsic whose arguments and result have one type; `more` are additional arguments."""
        type = vector(scalar, self.width)
        pairs = [*((type, a) for a in args), *more]
        return self.code.call(self.scope, type, f"llvm.{function}.{suffix(scalar, self.width)}", *pairs)

    def constant(self, value: bool | int | float, dtype: str) -> str:
        return literal(value, dtype, self.width)

    def type(self, dtype: str) -> str:
        return register(dtype, self.width)

    def select(self, condition: str, dtype: str, x: str, y: str) -> str:
        return self.emit(f"select {self.type('b8')} {condition}, {self.type(dtype)} {x}, {self.type(dtype)} {y}")

    def apply(self, op: str, dtype: str, args: list[str]) -> str:
        """`dtype` is that of the operands; of select, that of the values."""
        if op == "select":
            return self.select(args[0], dtype, args[1], args[2])
        if dtype in WIDE:
            wide = [self.cast(a, dtype, WIDE[dtype]) for a in args]
            result = self.apply(op, WIDE[dtype], wide)
            is_truth = op in _FLOAT_COMPARISONS or op in ("is_nan", "is_inf")
            return result if is_truth else self.cast(result, WIDE[dtype], dtype)
        if dtype in FLOATS:
            return self._float(op, dtype, args)
        if dtype == "b8":
            return self._boolean(op, args)
        return self._integer(op, dtype, args)

    def _float(self, op: str, dtype: str, args: list[str]) -> str:
        if op in _FLOAT_INSTRUCTIONS:
            return self.emit(f"{_FLOAT_INSTRUCTIONS[op]} {self.type(dtype)} {', '.join(args)}")
        if op in _FLOAT_INTRINSICS:
            return self.call(_FLOAT_INTRINSICS[op], register(dtype), *args)
        if op in _FLOAT_COMPARISONS:
            return self.compare(op, dtype, *args)
        if op in _FLOAT_SEQUENCES:
            return _FLOAT_SEQUENCES[op](self, op, dtype, args)
        if op in _LIBRARY:
            return self._vector(op, dtype, args) or self._library(op + "f" * (dtype == "f32"), register(dtype), args)
        raise InternalError("codegen", f"no instruction for {op} of {dtype}")

    def _min_max(self, op: str, dtype: str, args: list[str]) -> str:
        x, y = args
        if _is_literal(y):
            x, y = y, x
        better = self.compare("lt" if op == "min" else "gt", dtype, x, y)
        # This is the second operand if either is NaN, so only a NaN in the first is left to keep.
        chosen = self.select(better, dtype, x, y)
        if _is_literal(x) and "0x7FF8" not in x:
            return chosen
        return self.select(self._float("is_nan", dtype, [x]), dtype, x, chosen)

    def _is_nan(self, op: str, dtype: str, args: list[str]) -> str:
        return self.emit(f"fcmp uno {self.type(dtype)} {args[0]}, {args[0]}")

    def _is_inf(self, op: str, dtype: str, args: list[str]) -> str:
        return self.compare("eq", dtype, self._float("abs", dtype, args), self.constant(float("inf"), dtype))

    def _reciprocal(self, op: str, dtype: str, args: list[str]) -> str:
        return self._float("div", dtype, [self.constant(1.0, dtype), *args])

    def _rsqrt(self, op: str, dtype: str, args: list[str]) -> str:
        return self._float("reciprocal", dtype, [self._float("sqrt", dtype, args)])

    def _sigmoid(self, op: str, dtype: str, args: list[str]) -> str:
        power = self._float("exp", dtype, [self._float("neg", dtype, args)])
        return self._float("reciprocal", dtype, [self._float("add", dtype, [self.constant(1, dtype), power])])

    def _vector(self, op: str, dtype: str, args: list[str]) -> str | None:
        """Calls a vector function of this width, or of half or a quarter of it. None if there is none."""
        for lanes in (self.width, self.width // 2, self.width // 4):
            found = vector_math_symbols.addresses(lanes, dtype).get(op) if lanes > 1 else None
            if found is not None:
                break
        else:
            return None
        type = register(dtype, lanes)
        self.code.declarations.add(f"declare {type} @{found[0]}({', '.join([type] * len(args))})")
        parts = []
        for start in range(0, self.width, lanes):
            pieces = [self._lanes(dtype, arg, start, lanes) for arg in args]
            parts.append(self.emit(f"call {type} @{found[0]}({', '.join(f'{type} {piece}' for piece in pieces)})"))
        while len(parts) > 1:
            parts = [self._joined(dtype, a, b, lanes) for a, b in zip(parts[::2], parts[1::2], strict=True)]
            lanes *= 2
        return parts[0]

    def _lanes(self, dtype: str, x: str, start: int, count: int) -> str:
        if count == self.width:
            return x
        mask = ", ".join(f"i32 {start + k}" for k in range(count))
        whole = self.type(dtype)
        return self.emit(f"shufflevector {whole} {x}, {whole} poison, <{count} x i32> <{mask}>")

    def _joined(self, dtype: str, a: str, b: str, lanes: int) -> str:
        type, mask = register(dtype, lanes), ", ".join(f"i32 {k}" for k in range(2 * lanes))
        return self.emit(f"shufflevector {type} {a}, {type} {b}, <{2 * lanes} x i32> <{mask}>")

    def _library(self, function: str, scalar: str, args: list[str]) -> str:
        self.code.declare(scalar, function, *[scalar] * len(args))
        type = vector(scalar, self.width)
        if self.width == 1:
            return self.emit(f"call {type} @{function}({', '.join(f'{type} {a}' for a in args)})")
        result = "poison"
        for lane in range(self.width):
            single = [self.emit(f"extractelement {type} {a}, i64 {lane}") for a in args]
            value = self.emit(f"call {scalar} @{function}({', '.join(f'{scalar} {a}' for a in single)})")
            result = self.emit(f"insertelement {type} {result}, {scalar} {value}, i64 {lane}")
        return result

    def _parts(self, op: str, dtype: str, args: list[str]) -> str:
        """Scaling by powers of two, and its inverse."""
        x, bits = args[0], BITS[dtype] * self.width
        if not self.code.has_scaling or bits not in (128, 256, 512):
            return evaluate(self, _PLAIN[op, dtype], *args)
        type, tail = self.type(dtype), f"p{'s' if dtype == 'f32' else 'd'}.{bits}"
        # All lanes; for 512 bits, also the current rounding mode.
        more = [(f"i{max(self.width, 8)}", "-1"), *([("i32", "4")] if bits == 512 else [])]

        def call(name: str, *args: tuple[str, str]) -> str:
            return self.code.call(self.scope, type, f"llvm.x86.avx512.mask.{name}.{tail}", *args, (type, x), *more)

        if op == "ldexp":
            return call("scalef", *((type, a) for a in args))
        # The mantissa is between 3/4 and 3/2, and NaN below 0.
        mantissa = call("getmant", (type, x), ("i32", str(0b1011)))
        if op == "mantissa":
            return mantissa
        return self.emit(f"fsub {type} {call('getexp', (type, x))}, {call('getexp', (type, mantissa))}")

    def _remainder(self, op: str, dtype: str, args: list[str]) -> str:
        """Rounds down, as eager: the truncated remainder, plus the divisor where the signs differ."""
        rest, y = self._float("fmod", dtype, args), args[1]
        return self.select(self._differ(dtype, rest, y), dtype, self._float("add", dtype, [rest, y]), rest)

    def _differ(self, dtype: str, rest: str, y: str) -> str:
        """Whether the remainder is not zero and its sign differs from the divisor's."""
        zero = self.constant(0, dtype)
        some = self.compare("ne", dtype, rest, zero)
        signs = self._boolean("xor", [self.compare("lt", dtype, rest, zero), self.compare("lt", dtype, y, zero)])
        return self._boolean("and", [some, signs])

    def _floor_division(self, op: str, dtype: str, args: list[str]) -> str:
        """Follows c10's div_floor_floating step by step, so that results agree to the last bit."""
        x, y = args
        zero, one = self.constant(0.0, dtype), self.constant(1.0, dtype)
        rest = self._float("fmod", dtype, [x, y])
        quotient = self._float("div", dtype, [self._float("sub", dtype, [x, rest]), y])
        lower = self._float("sub", dtype, [quotient, one])
        quotient = self.select(self._differ(dtype, rest, y), dtype, lower, quotient)
        floor = self._float("floor", dtype, [quotient])
        is_far = self.compare("gt", dtype, self._float("sub", dtype, [quotient, floor]), self.constant(0.5, dtype))
        floor = self.select(is_far, dtype, self._float("add", dtype, [floor, one]), floor)
        exact = self._float("div", dtype, [x, y])
        signed_zero = self._float("copysign", dtype, [zero, exact])
        # A NaN compares unequal to zero here, and stays.
        result = self.select(self.compare("eq", dtype, quotient, zero), dtype, signed_zero, floor)
        return self.select(self.compare("eq", dtype, y, zero), dtype, exact, result)

    def compare(self, op: str, dtype: str, x: str, y: str) -> str:
        type = self.type(dtype)
        if dtype in FLOATS:
            return self.emit(f"fcmp {_FLOAT_COMPARISONS[op]} {type} {x}, {y}")
        signs = _UNSIGNED if dtype in UNSIGNED or dtype == "b8" else _SIGNED
        return self.emit(f"icmp {signs[op]} {type} {x}, {y}")

    def _boolean(self, op: str, args: list[str]) -> str:
        type = self.type("b8")
        if op == "not":
            return self.emit(f"xor {type} {args[0]}, {self.constant(True, 'b8')}")
        if op in _SIGNED:
            return self.compare(op, "b8", *args)
        if op in _BOOLEAN:
            return self.emit(f"{_BOOLEAN[op]} {type} {args[0]}, {args[1]}")
        raise InternalError("codegen", f"no instruction for {op} of b8")

    def _integer(self, op: str, dtype: str, args: list[str]) -> str:
        type, scalar = self.type(dtype), register(dtype)
        x = args[0]
        y = args[1] if len(args) > 1 else ""
        is_unsigned = dtype in UNSIGNED
        match op:
            case "neg":
                return self.emit(f"sub {type} {self.constant(0, dtype)}, {x}")
            case "abs":
                return x if is_unsigned else self.call("abs", scalar, x, more=(("i1", "false"),))
            case "floor" | "ceil" | "trunc" | "round":
                return x
            case "not":
                return self.emit(f"xor {type} {x}, {self.constant(-1, dtype)}")
            case "min" | "max":
                return self.call(f"{'u' if is_unsigned else 's'}{op}", scalar, x, y)
            case "div" | "fmod" | "floor_div" | "remainder":
                return self._division(op, dtype, x, y)
            case "shl" | "shr":
                return self._shift(op, dtype, x, y)
            case "fma":
                return self._integer("add", dtype, [self._integer("mul", dtype, [x, y]), args[2]])
        if op in _SIGNED:
            return self.compare(op, dtype, x, y)
        if op in _ARITHMETIC:
            return self.emit(f"{_ARITHMETIC[op]} {type} {x}, {y}")
        raise InternalError("codegen", f"no instruction for {op} of {dtype}")

    def _division(self, op: str, dtype: str, x: str, y: str) -> str:
        """Division by zero gives 0. The least value by -1 wraps around instead of trapping, as -x does."""
        type, zero = self.type(dtype), self.constant(0, dtype)
        divide, rest = ("udiv", "urem") if dtype in UNSIGNED else ("sdiv", "srem")
        fixed = _constant_of(y)
        if fixed is not None and wrap(fixed, dtype) not in (0, -1):
            divisor, by_zero, by_minus_one = y, None, None
        else:
            by_zero = self.compare("eq", dtype, y, zero)
            divisor = self.select(by_zero, dtype, self.constant(1, dtype), y)
            by_minus_one = None
            if dtype not in UNSIGNED:
                by_minus_one = self.compare("eq", dtype, y, self.constant(-1, dtype))
                divisor = self.select(by_minus_one, dtype, self.constant(1, dtype), divisor)
        if op in ("fmod", "remainder"):
            result = self.emit(f"{rest} {type} {x}, {divisor}")
            if op == "remainder" and dtype not in UNSIGNED:
                moved = self.emit(f"add {type} {result}, {divisor}")
                result = self.select(self._differ(dtype, result, divisor), dtype, moved, result)
        else:
            result = self.emit(f"{divide} {type} {x}, {divisor}")
            if op == "floor_div" and dtype not in UNSIGNED:
                product = self.emit(f"mul {type} {result}, {divisor}")
                left = self.emit(f"sub {type} {x}, {product}")
                lower = self.emit(f"sub {type} {result}, {self.constant(1, dtype)}")
                result = self.select(self._differ(dtype, left, divisor), dtype, lower, result)
            if by_minus_one is not None:
                result = self.select(by_minus_one, dtype, self.emit(f"sub {type} {zero}, {x}"), result)
        return result if by_zero is None else self.select(by_zero, dtype, zero, result)

    def _shift(self, op: str, dtype: str, x: str, y: str) -> str:
        """A shift beyond the width, or by a negative number, shifts out all bits; a right shift keeps the sign."""
        type, bits = self.type(dtype), BITS[dtype]
        fixed = _constant_of(y)
        if fixed is not None and 0 <= fixed < bits:
            return self.emit(f"{'shl' if op == 'shl' else 'lshr' if dtype == 'u8' else 'ashr'} {type} {x}, {y}")
        inside = self.emit(f"icmp ult {type} {y}, {self.constant(bits, dtype)}")
        amount = self.select(inside, dtype, y, self.constant(0, dtype))
        shifted = self.emit(f"{'shl' if op == 'shl' else 'lshr' if dtype == 'u8' else 'ashr'} {type} {x}, {amount}")
        if op == "shl" or dtype in UNSIGNED:
            out = self.constant(0, dtype)
        else:
            out = self.emit(f"ashr {type} {x}, {self.constant(bits - 1, dtype)}")
        return self.select(inside, dtype, shifted, out)

    def cast(self, x: str, source: str, target: str) -> str:
        if source == target:
            return x
        if target in WIDE and source != "f32":
            return self.cast(self.cast(x, source, "f32"), "f32", target)
        if source in WIDE and target != "f32":
            return self.cast(self.cast(x, source, "f32"), "f32", target)
        from_, to = self.type(source), self.type(target)
        if source == "bf16":
            bits = self.emit(f"zext {from_} {x} to {self.type('i32')}")
            bits = self.emit(f"shl {self.type('i32')} {bits}, {self.constant(16, 'i32')}")
            return self.emit(f"bitcast {self.type('i32')} {bits} to {to}")
        if target == "bf16":
            return self._round_to_bf16(x)
        if source in FLOATS and target in FLOATS:
            return self.emit(f"{'fpext' if BITS[source] < BITS[target] else 'fptrunc'} {from_} {x} to {to}")
        if target == "b8":
            return self.compare("ne", source, x, self.constant(0, source))
        if source in FLOATS:
            return self._truncate_to_integer(x, source, target)
        is_unsigned = source == "b8" or source in UNSIGNED
        if target in FLOATS:
            return self.emit(f"{'uitofp' if is_unsigned else 'sitofp'} {from_} {x} to {to}")
        if BITS[source] > BITS[target] and source != "b8":
            return self.emit(f"trunc {from_} {x} to {to}")
        if BITS[source] == BITS[target] and source != "b8":
            return x
        return self.emit(f"{'zext' if is_unsigned else 'sext'} {from_} {x} to {to}")

    def _truncate_to_integer(self, x: str, source: str, target: str) -> str:
        # As C++ compiles eager's static_cast: small integers through a wider one. Out of range, the result is whatever
        # the processor's instruction returns; freeze turns LLVM's poison into a plain value.
        way = target if BITS[target] >= 32 else "i64" if target in UNSIGNED else "i32"
        result = self.emit(f"fptosi {self.type(source)} {x} to {self.type(way)}")
        result = self.emit(f"freeze {self.type(way)} {result}")
        return self.cast(result, way, target)

    def _round_to_bf16(self, x: str) -> str:
        """Rounds to nearest even by integer arithmetic; a NaN becomes the quiet NaN."""
        type = self.type("i32")
        bits = self.emit(f"bitcast {self.type('f32')} {x} to {type}")
        high = self.emit(f"lshr {type} {bits}, {self.constant(16, 'i32')}")
        odd = self.emit(f"and {type} {high}, {self.constant(1, 'i32')}")
        bias = self.emit(f"add {type} {odd}, {self.constant(0x7FFF, 'i32')}")
        rounded = self.emit(f"lshr {type} {self.emit(f'add {type} {bits}, {bias}')}, {self.constant(16, 'i32')}")
        is_nan = self._float("is_nan", "f32", [x])
        rounded = self.select(is_nan, "i32", self.constant(0x7FC0, "i32"), rounded)
        return self.emit(f"trunc {type} {rounded} to {self.type('i16')}")

    def bitcast(self, x: str, source: str, target: str) -> str:
        if target == "b8":
            return self.compare("ne", source, x, self.constant(0, source))
        if source == "b8":
            return self.emit(f"zext {self.type('b8')} {x} to {self.type(target)}")
        if register(source) == register(target):
            return x
        return self.emit(f"bitcast {self.type(source)} {x} to {self.type(target)}")


_FLOAT_SEQUENCES = {
    "min": LlvmOperations._min_max,
    "max": LlvmOperations._min_max,
    "is_nan": LlvmOperations._is_nan,
    "is_inf": LlvmOperations._is_inf,
    "reciprocal": LlvmOperations._reciprocal,
    "rsqrt": LlvmOperations._rsqrt,
    "sigmoid": LlvmOperations._sigmoid,
    "remainder": LlvmOperations._remainder,
    "floor_div": LlvmOperations._floor_division,
    "ldexp": LlvmOperations._parts,
    "exponent": LlvmOperations._parts,
    "mantissa": LlvmOperations._parts,
}
"""Float operations that take several instructions, or other ones on some machines."""

_PLAIN = {
    (op, t): PLAIN[op](*(load(t, Access(n, 0, ())) for n in range(1 + (op == "ldexp"))))
    for op in PLAIN
    for t in ("f32", "f64")
}


def evaluate(to: LlvmOperations, root: Scalar, *values: str) -> str:
    """Prints an expression of a few values, which it refers to as loads of buffer 0, 1, …"""
    found: dict[Scalar, str] = {}
    for x in walk(expanded := expand(root)):
        if x.op == "load":
            found[x] = values[x.payload.buffer]
        elif x.op == "const":
            found[x] = to.constant(x.payload, x.dtype)
        else:
            args, source = [found[arg] for arg in x.args], x.args[0].dtype
            match x.op:
                case "cast":
                    found[x] = to.cast(args[0], source, x.dtype)
                case "bitcast":
                    found[x] = to.bitcast(args[0], source, x.dtype)
                case _:
                    found[x] = to.apply(x.op, x.dtype if x.op == "select" else source, args)
    return found[expanded]


def _is_literal(operand: str) -> bool:
    return not operand.startswith("%")


def _constant_of(operand: str) -> int | None:
    """The integer that an operand spells, if it is a literal."""
    text = operand.removeprefix("splat (").removesuffix(")").split()[-1]
    return int(text) if text.lstrip("-").isdigit() else None
