"""Prints one scalar operation as a Triton expression.

    Operations(emit).apply("max", "f32", ["x", "y"])      ->      tl.where((x > y) | (x != x), x, y)

It follows eager where Triton leaves the result open: NaN in min and max, division that is rounded and not approximate,
division by zero, shifts beyond the width. Transcendental operations are expanded before (`print_math_expansions`).
"""

from __future__ import annotations

from collections.abc import Callable

from ...errors import InternalError
from ...ops.scalar_ir import COMPARISONS
from ...tensors.dtypes import BITS, FLOATS, INTEGERS, UNSIGNED, WIDE
from .fast_math_intrinsics import PRINTED
from .triton_types import literal, type_of

_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}
_BOOLEAN = {"add": "|", "mul": "&", "max": "|", "min": "&", "sub": "^", "and": "&", "or": "|", "xor": "^"}

_ANYWHERE = COMPARISONS | frozenset("const size load index reduced select cast bitcast within".split())
_OF_FLOATS = PRINTED.keys() | frozenset(
    "add sub mul div rough_div fma neg abs sqrt floor ceil trunc round copysign min max is_nan is_inf".split()
)
_OF_INTEGERS = frozenset(
    "add sub mul div floor_div remainder fmod and or xor not shl shr neg abs min max floor ceil trunc round fma".split()
)
_OF_TRUTHS = _BOOLEAN.keys() | {"not"}


def is_printable(op: str, dtype: str) -> bool:
    """Whether the operation has a form here. `dtype` is that of the operands."""
    if op in _ANYWHERE:
        return True
    return op in (_OF_FLOATS if dtype in FLOATS else _OF_TRUTHS if dtype == "b8" else _OF_INTEGERS)


class TritonOperations:
    """`emit` gives an expression a name if it is used more than once."""

    __slots__ = ("emit",)

    def __init__(self, emit: Callable[[str], str]):
        self.emit = emit

    def apply(self, op: str, dtype: str, args: list[str]) -> str:
        """`dtype` is that of the operands; of select, that of the values."""
        if op == "select":
            return f"tl.where({', '.join(args)})"
        if op == "within":
            x, size = args
            return self._integer("max", "i64", [self._integer("min", "i64", [x, f"({size} - 1)"]), literal(0, "i64")])
        if dtype in WIDE:
            result = self.apply(op, WIDE[dtype], [self.cast(arg, dtype, WIDE[dtype]) for arg in args])
            return result if op in COMPARISONS or op in ("is_nan", "is_inf") else self.cast(result, WIDE[dtype], dtype)
        if dtype in FLOATS:
            return self._float(op, dtype, args)
        return self._truth(op, args) if dtype == "b8" else self._integer(op, dtype, args)

    def quotient(self, x: str, y: str) -> str:
        """x / y of f32 for operands far from the ends of the range: a quick reciprocal and a Newton step. The result is
        that of `div_rn`, without its branch."""
        inverse = self.emit(f"(1.0 / {y})")
        found = self.emit(f"({x} * {inverse})")
        return f"tl.fma(tl.fma(-{found}, {y}, {x}), {inverse}, {found})"

    def _float(self, op: str, dtype: str, args: list[str]) -> str:
        x, y = args[0], args[1] if len(args) > 1 else ""
        match op:
            case "add" | "sub" | "mul":
                return f"({x} {_ARITHMETIC[op]} {y})"
            case "div":
                # The operator `/` is approximate in f32.
                return f"tl.div_rn({x}, {y})" if dtype == "f32" else f"({x} / {y})"
            case "rough_div":
                return f"({x} / {y})"
            case "fma":
                return f"tl.fma({', '.join(args)})"
            case "neg":
                return f"(-{x})"
            case "abs" | "floor" | "ceil":
                return f"tl.{op}({x})"
            case _ if op in PRINTED:
                return f"{PRINTED[op]}({operand(x)})"
            case "sqrt":
                return f"tl.sqrt_rn({x})" if dtype == "f32" else f"tl.sqrt({x})"
            case "trunc":
                x = self.emit(x)
                return f"tl.where({x} < 0.0, tl.ceil({x}), tl.floor({x}))"
            case "round":
                # To even. Adding the smallest number that has no fraction digits rounds x.
                x, whole = self.emit(x), literal(2.0 ** (23 if dtype == "f32" else 52), dtype)
                near = self._float("copysign", dtype, [f"((tl.abs({x}) + {whole}) - {whole})", x])
                return f"tl.where(tl.abs({x}) < {whole}, {near}, {x})"
            case "copysign":
                integer = "tl.int32" if dtype == "f32" else "tl.int64"
                sign = literal(-(1 << (BITS[dtype] - 1)), "i32" if dtype == "f32" else "i64")
                x, y = (f"{operand(arg)}.to({integer}, bitcast=True)" for arg in (x, y))
                return f"(({x} & ~{sign}) | ({y} & {sign})).to({type_of(dtype)}, bitcast=True)"
            case "min" | "max":
                return f"tl.{op}imum({operand(x)}, {operand(y)}, propagate_nan=tl.PropagateNan.ALL)"
            case "is_nan":
                x = self.emit(x)
                return f"({x} != {x})"
            case "is_inf":
                return f"(tl.abs({x}) == {literal(float('inf'), dtype)})"
        if op in _SIGNS:
            return f"({x} {_SIGNS[op]} {y})"
        raise InternalError("codegen", f"Triton has no form for {op} of {dtype}")

    def _truth(self, op: str, args: list[str]) -> str:
        if op == "not":
            return f"({args[0]} == 0)"
        if op in ("eq", "ne"):
            return f"({args[0]} {_SIGNS[op]} {args[1]})"
        if op in _SIGNS:
            return f"({args[0]}.to(tl.int32) {_SIGNS[op]} {args[1]}.to(tl.int32))"
        if op in _BOOLEAN:
            return f"({args[0]} {_BOOLEAN[op]} {args[1]})"
        raise InternalError("codegen", f"Triton has no form for {op} of b8")

    def _integer(self, op: str, dtype: str, args: list[str]) -> str:
        x, y = args[0], args[1] if len(args) > 1 else ""
        zero = literal(0, dtype)
        match op:
            case "neg":
                return f"({zero} - {x})"
            case "abs":
                x = self.emit(x)
                return x if dtype in UNSIGNED else f"tl.where({x} < 0, {zero} - {x}, {x})"
            case "floor" | "ceil" | "trunc" | "round":
                return x
            case "not":
                return f"(~{x})"
            case "min" | "max":
                x, y = self.emit(x), self.emit(y)
                return f"tl.where({x} {'<' if op == 'min' else '>'} {y}, {x}, {y})"
            case "div" | "fmod" | "floor_div" | "remainder":
                return self._division(op, dtype, x, y)
            case "shl" | "shr":
                return self._shift(op, dtype, x, y)
            case "fma":
                return f"({x} * {y} + {args[2]})"
        if op in _SIGNS:
            return f"({x} {_SIGNS[op]} {y})"
        if op in _ARITHMETIC:
            return f"({x} {_ARITHMETIC[op]} {y})"
        raise InternalError("codegen", f"Triton has no form for {op} of {dtype}")

    def _division(self, op: str, dtype: str, x: str, y: str) -> str:
        """Division by zero gives 0. The least value by -1 wraps around, as -x does. Triton's `//` and `%` truncate."""
        zero, one = literal(0, dtype), literal(1, dtype)
        x, y = self.emit(x), self.emit(y)
        is_signed = dtype not in UNSIGNED
        is_odd = f"({y} == 0) | ({y} == -1)" if is_signed else f"{y} == 0"
        divisor = self.emit(f"tl.where({is_odd}, {one}, {y})")
        if op in ("fmod", "remainder"):
            result = self.emit(f"{x} % {divisor}")
            if op == "remainder" and is_signed:
                result = f"tl.where({self._differ(result, divisor)}, {result} + {divisor}, {result})"
        else:
            result = self.emit(f"{x} // {divisor}")
            if op == "floor_div" and is_signed:
                left = self.emit(f"{x} - {result} * {divisor}")
                result = f"tl.where({self._differ(left, divisor)}, {result} - {one}, {result})"
            if is_signed:
                result = f"tl.where({y} == -1, {zero} - {x}, {result})"
        return f"tl.where({y} == 0, {zero}, {result})"

    def _differ(self, rest: str, y: str) -> str:
        """Whether the remainder is not zero and its sign differs from the divisor's."""
        return f"({rest} != 0) & (({rest} < 0) != ({y} < 0))"

    def _shift(self, op: str, dtype: str, x: str, y: str) -> str:
        """A shift beyond the width, or by a negative number, shifts out all bits; a right shift keeps the sign."""
        fixed, bits = _number(y), BITS[dtype]
        x, y = self.emit(x), self.emit(y)
        sign, zero = "<<" if op == "shl" else ">>", literal(0, dtype)
        if fixed is not None and 0 <= fixed < bits:
            return f"({x} {sign} {y})"
        inside = self.emit(f"({y} >= 0) & ({y} < {bits})")
        out = zero if op == "shl" or dtype in UNSIGNED else f"{x} >> {literal(bits - 1, dtype)}"
        return f"tl.where({inside}, {x} {sign} tl.where({inside}, {y}, {zero}), {out})"

    def cast(self, x: str, source: str, target: str) -> str:
        if source == target:
            return x
        if target == "b8":
            return f"({x} != {literal(0, source)})"
        if target in WIDE and source != "f32":
            return self.cast(self.cast(x, source, "f32"), "f32", target)
        if source in WIDE and target != "f32":
            return self.cast(self.cast(x, source, "f32"), "f32", target)
        if source in FLOATS and target in INTEGERS and BITS[target] < 32:
            # Through a wider integer, as eager's casts are compiled.
            way = "i64" if target in UNSIGNED else "i32"
            return self.cast(self.cast(x, source, way), way, target)
        return f"{operand(x)}.to({type_of(target)})"

    def bitcast(self, x: str, source: str, target: str) -> str:
        if "b8" in (source, target):
            return self.cast(x, source, target)
        return f"{operand(x)}.to({type_of(target)}, bitcast=True)"


def operand(x: str) -> str:
    """The operand in a form that `.to` can follow: not a plain number."""
    is_number = x[0].isdigit() or x[0] == "-" or x.startswith("float(")
    return f"tl.full((), {x}, tl.float32)" if is_number else x


def _number(text: str) -> int | None:
    """The integer that an operand spells, if it is a literal."""
    middle = text.removeprefix("tl.full((), ").partition(",")[0]
    return int(middle) if text.startswith("tl.full(") and middle.lstrip("-").isdigit() else None
