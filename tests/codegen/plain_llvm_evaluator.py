"""Evaluates a scalar expression of base operations over whole arrays, with plain LLVM code.

A stand-in for the printer in tests of expressions: one loop, one instruction an operation, nothing relaxed. An
operation that a printer need not know (a transcendental one that was left) is an error here.

    >>> x = load("f32", Access(0, 0, (1,)))
    >>> compiled(x * x + 1.0)(numpy.array([2.0, 3.0], numpy.float32))
    array([ 5., 10.], dtype=float32)
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from functools import cache

import llvmlite.binding as llvm
import numpy

from burnish.codegen.math.expand_operations import plain
from burnish.ops.scalar_ir import COMPARISONS, Scalar, walk
from burnish.tensors.dtypes import BITS, FLOATS, INTEGERS

TYPES = {"f16": "half", "f32": "float", "f64": "double", "b8": "i1"} | {t: f"i{BITS[t]}" for t in INTEGERS}
NUMPY = {
    "b8": "?",
    "u8": "u1",
    "i8": "i1",
    "i16": "i2",
    "i32": "i4",
    "i64": "i8",
    "f16": "f2",
    "f32": "f4",
    "f64": "f8",
}

FLOAT_CALLS = {
    "abs": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven",
    "fma": "fma", "min": "minimum", "max": "maximum",
}  # fmt: skip
FLOAT_INSTRUCTIONS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
INTEGER_INSTRUCTIONS = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor", "shl": "shl"}


def compiled(root: Scalar) -> Callable[..., numpy.ndarray]:
    """The expression as a function of arrays, one for each buffer it loads from."""
    root = plain(root)
    loads = sorted({x.payload.buffer for x in walk(root) if x.op == "load"})
    assert loads == list(range(len(loads)))
    _, address = machine_code(source(root, len(loads)))
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (len(loads) + 1))(address)

    def run(*arrays: numpy.ndarray) -> numpy.ndarray:
        arrays = tuple(numpy.ascontiguousarray(array) for array in arrays)
        out = numpy.empty(arrays[0].shape, NUMPY[root.dtype])
        kernel(out.size, out.ctypes.data, *[array.ctypes.data for array in arrays])
        return out

    return run


def source(root: Scalar, inputs: int) -> str:
    names: dict[Scalar, str] = {}
    lines: list[str] = []
    declared: set[str] = set()

    def emit(text: str) -> str:
        name = f"%v{len(lines)}"
        lines.append(f"  {name} = {text}")
        return name

    def call(intrinsic: str, result: str, *operands: tuple[str, str]) -> str:
        types = ", ".join(t for t, _ in operands)
        declared.add(f"declare {result} @{intrinsic}({types})")
        return emit(f"call {result} @{intrinsic}({', '.join(f'{t} {v}' for t, v in operands)})")

    for x in walk(root):
        names[x] = instruction(x, [names[arg] for arg in x.args], emit, call)
    kind = TYPES[root.dtype]
    stored, result = ("i8", emit(f"zext i1 {names[root]} to i8")) if kind == "i1" else (kind, names[root])
    parameters = "".join(f", ptr noalias %in{k}" for k in range(inputs))
    return "\n".join(
        [
            *sorted(declared),
            f"define void @kernel(i64 %n, ptr noalias %out{parameters}) {{",
            "entry:",
            "  %any = icmp sgt i64 %n, 0",
            "  br i1 %any, label %loop, label %done",
            "loop:",
            "  %i = phi i64 [0, %entry], [%next, %loop]",
            *lines,
            f"  %place = getelementptr {stored}, ptr %out, i64 %i",
            f"  store {stored} {result}, ptr %place",
            "  %next = add nuw nsw i64 %i, 1",
            "  %more = icmp slt i64 %next, %n",
            "  br i1 %more, label %loop, label %done",
            "done:",
            "  ret void",
            "}",
        ]
    )


def instruction(x: Scalar, args: list[str], emit: Callable[[str], str], call: Callable[..., str]) -> str:
    kind = TYPES[x.dtype]
    operand = x.args[0].dtype if x.args else x.dtype
    of = TYPES[operand]
    is_float = operand in FLOATS
    match x.op:
        case "const":
            return literal(x)
        case "load":
            stored = "i8" if kind == "i1" else kind
            place = emit(f"getelementptr {stored}, ptr %in{x.payload.buffer}, i64 %i")
            value = emit(f"load {stored}, ptr {place}")
            return emit(f"icmp ne i8 {value}, 0") if kind == "i1" else value
        case "select":
            return emit(f"select i1 {args[0]}, {kind} {args[1]}, {kind} {args[2]}")
        case "bitcast":
            return emit(f"bitcast {of} {args[0]} to {kind}")
        case "cast":
            return cast(args[0], operand, x.dtype, emit, call)
        case "is_nan":
            return emit(f"fcmp uno {of} {args[0]}, {args[0]}")
        case "is_inf":
            size = call(f"llvm.fabs.{operand}", of, (of, args[0]))
            return emit(f"fcmp oeq {of} {size}, {special('inf', operand)}")
        case "neg":
            return emit(f"fneg {of} {args[0]}") if is_float else emit(f"sub {of} 0, {args[0]}")
        case "not":
            return emit(f"xor {of} {args[0]}, -1")
        case "shr":
            return emit(f"{'lshr' if operand == 'u8' else 'ashr'} {of} {args[0]}, {args[1]}")
    if x.op in COMPARISONS:
        if is_float:
            return emit(f"fcmp {'u' if x.op == 'ne' else 'o'}{x.op} {of} {args[0]}, {args[1]}")
        sign = "" if x.op in ("eq", "ne") else "u" if operand in ("u8", "b8") else "s"
        return emit(f"icmp {sign}{x.op} {of} {args[0]}, {args[1]}")
    if is_float and x.op in FLOAT_CALLS:
        return call(f"llvm.{FLOAT_CALLS[x.op]}.{operand}", of, *[(of, arg) for arg in args])
    if is_float and x.op in FLOAT_INSTRUCTIONS:
        return emit(f"{FLOAT_INSTRUCTIONS[x.op]} {of} {args[0]}, {args[1]}")
    if not is_float and x.op in INTEGER_INSTRUCTIONS:
        return emit(f"{INTEGER_INSTRUCTIONS[x.op]} {of} {args[0]}, {args[1]}")
    if not is_float and x.op in ("min", "max"):
        sign = "u" if operand in ("u8", "b8") else "s"
        return call(f"llvm.{sign}{x.op}.{of}", of, (of, args[0]), (of, args[1]))
    raise AssertionError(f"{x.op} of {operand} is not a base operation")


def cast(value: str, source: str, target: str, emit: Callable[[str], str], call: Callable[..., str]) -> str:
    of, to = TYPES[source], TYPES[target]
    if target == "b8":
        zero = "0.0" if source in FLOATS else "0"
        return emit(f"{'fcmp une' if source in FLOATS else 'icmp ne'} {of} {value}, {zero}")
    if source in FLOATS and target in FLOATS:
        return emit(f"{'fpext' if BITS[source] < BITS[target] else 'fptrunc'} {of} {value} to {to}")
    if source in FLOATS:
        # Where the integer does not hold the value, the contract promises nothing: zero makes reliance on it visible.
        return call(f"llvm.fptosi.sat.{to}.{source}", to, (of, value))
    if target in FLOATS:
        return emit(f"{'uitofp' if source in ('u8', 'b8') else 'sitofp'} {of} {value} to {to}")
    if source == "b8" or BITS[source] < BITS[target]:
        return emit(f"{'zext' if source in ('u8', 'b8') else 'sext'} {of} {value} to {to}")
    return value if of == to else emit(f"trunc {of} {value} to {to}")


def literal(x: Scalar) -> str:
    if x.dtype == "b8":
        return "true" if x.payload else "false"
    if x.dtype not in FLOATS:
        return str(x.payload)
    return special(x.payload, x.dtype)


def special(value: float | str, dtype: str) -> str:
    """A float literal of LLVM: the bits of a double that the type holds exactly."""
    number = float(value)
    if dtype == "f16":
        return f"0xH{struct.unpack('<H', struct.pack('<e', number))[0]:04X}"
    held = float(numpy.float32(number)) if dtype == "f32" else number
    return f"0x{struct.unpack('<Q', struct.pack('<d', held))[0]:016X}"


@cache
def machine_code(text: str) -> tuple[llvm.ExecutionEngine, int]:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2, jit=True
    )
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine, engine.get_function_address("kernel")
