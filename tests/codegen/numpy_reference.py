"""The NumPy reference evaluator of kernels, which tests compare the printers with.

    results = evaluate(kernel, buffers)      copies of the buffers, after the kernel

Every expression is an array over the whole box, in its own dtype, operation by operation; reductions are done in
float64 or in whole numbers. bf16 is held as float32 with the low bits zero.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from burnish.ops.scalar_ir import Access, Scalar, walk
from burnish.schedule.loops.loop_ir import Kernel, Loop, Reduction, Store
from burnish.tensors.dtypes import BITS, FLOATS

NUMPY = {
    "b8": np.bool_,
    "u8": np.uint8,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "bf16": np.float32,
    "f32": np.float32,
    "f64": np.float64,
}

FUNCTIONS = {
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "pow": np.power,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "expm1": np.expm1,
    "log1p": np.log1p,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
}


def evaluate(kernel: Kernel, buffers: list[np.ndarray]) -> list[np.ndarray]:
    memory = [np.array(buffer) for buffer in buffers]
    for loop in kernel.loops:
        if 0 not in loop.extents[: loop.rows]:
            with np.errstate(all="ignore"):
                _Evaluation(kernel, loop, memory).run()
    return memory


class _Evaluation:
    def __init__(self, kernel: Kernel, loop: Loop, memory: list[np.ndarray]):
        self.kernel, self.loop, self.memory = kernel, loop, memory
        self.indices = np.indices(loop.extents, dtype=np.int64)
        self.reduced: list[np.ndarray] = []
        self.values: dict[Scalar, np.ndarray] = {}

    def run(self) -> None:
        inner = tuple(range(self.loop.rows, len(self.loop.extents)))
        is_empty = any(self.loop.extents[k] == 0 for k in inner)
        for stage in self.loop.stages:
            self.values.clear()
            finished = [self._reduce(r, self.of(r.value)) for r in stage.reductions]
            if not is_empty:
                self._store([self._prepared(store) for store in stage.stores])
            self.reduced += finished
            self.values.clear()
            if stage.row_stores:
                rows = _Evaluation(self.kernel, _without_inner(self.loop), self.memory)
                rows.reduced = self.reduced
                rows._store([rows._prepared(store) for store in stage.row_stores])

    # Memory.

    def _places(self, access: Access, args: tuple[Scalar, ...]) -> tuple[np.ndarray, np.ndarray]:
        shape = self.loop.extents
        place = np.full(shape, access.offset, np.int64)
        for k, stride in enumerate(access.strides[: len(shape)]):
            place = place + stride * self.indices[k]
        for step, arg in zip(access.indirect, args, strict=False):
            place = place + step * self.of(arg)
        mask = self.of(args[-1]) if access.masked else np.True_
        return place, np.broadcast_to(mask, shape)

    def _load(self, x: Scalar) -> np.ndarray:
        place, mask = self._places(x.payload, x.args)
        data = self.memory[x.payload.buffer]
        if not mask.all():
            place = np.where(mask, place, 0)
            if data.size == 0:
                return np.zeros(place.shape, NUMPY[x.dtype])
        assert place.size == 0 or (place.min() >= 0 and place.max() < data.size), "the kernel reads outside a buffer"
        return np.where(mask, data[place], NUMPY[x.dtype](0))

    def _prepared(self, store: Store) -> tuple:
        place, mask = self._places(store.access, store.args)
        value = np.broadcast_to(self.of(store.value), self.loop.extents)
        assert len(np.unique(place[mask])) == mask.sum(), "two elements are stored to one place"
        return store.access.buffer, place[mask], value[mask]

    def _store(self, prepared: list[tuple]) -> None:
        for buffer, place, value in prepared:
            self.memory[buffer][place] = value

    # Values.

    def of(self, root: Scalar) -> np.ndarray:
        for x in walk(root):
            if x not in self.values:
                self.values[x] = self._value(x)
        return self.values[root]

    def _value(self, x: Scalar) -> np.ndarray:
        args = [self.values[a] for a in x.args]
        match x.op:
            case "const":
                return rounded(np.float64(x.payload), x.dtype) if x.dtype in FLOATS else NUMPY[x.dtype](x.payload)
            case "load":
                return self._load(x)
            case "index":
                return self.indices[x.payload]
            case "reduced":
                value = self.reduced[x.payload]
                return value.reshape(value.shape + (1,) * (len(self.loop.extents) - value.ndim))
            case "cast":
                return cast(args[0], x.args[0].dtype, x.dtype)
            case "bitcast":
                return bitcast(args[0], x.args[0].dtype, x.dtype)
            case "select":
                return np.where(*args)
        return operation(x.op, x.args[0].dtype, args)

    def _reduce(self, reduction: Reduction, value: np.ndarray) -> np.ndarray:
        extents, rows = self.loop.extents, self.loop.rows
        count = math.prod(extents[rows:])
        value = np.broadcast_to(value, extents).reshape((*extents[:rows], count))
        dtype = reduction.value.dtype
        is_float = dtype in FLOATS
        match reduction.op:
            case "sum" | "prod":
                if is_float:
                    return rounded(getattr(np, reduction.op)(value.astype(np.float64), axis=-1), dtype)
                return getattr(np, reduction.op)(value, axis=-1, dtype=NUMPY[dtype])
            case "any" | "all":
                return getattr(np, reduction.op)(value, axis=-1)
            case "max" | "min":
                if is_float:
                    identity = -math.inf if reduction.op == "max" else math.inf
                elif dtype == "b8":
                    identity = reduction.op == "min"
                else:
                    limits = np.iinfo(NUMPY[dtype])
                    identity = limits.min if reduction.op == "max" else limits.max
                return getattr(np, reduction.op)(value, axis=-1, initial=NUMPY[dtype](identity))
        if count == 0:
            return np.zeros(extents[:rows], np.int64)
        # numpy too gives the first NaN, else the first best.
        return getattr(np, reduction.op)(value, axis=-1).astype(np.int64)


def _without_inner(loop: Loop) -> Loop:
    return Loop(loop.extents[: loop.rows], loop.rows, ())


def rounded(value: np.ndarray, dtype: str) -> np.ndarray:
    """A float array in a float dtype."""
    if dtype == "bf16":
        single = np.asarray(value, np.float32)
        bits = single.view(np.uint32).astype(np.uint64)
        bits = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype(np.uint32)
        return np.where(np.isnan(single), np.float32(np.nan), bits.view(np.float32))
    if dtype == "f16":
        return np.asarray(value, np.float32).astype(np.float16)
    return np.asarray(value).astype(NUMPY[dtype])


def cast(x: np.ndarray, source: str, target: str) -> np.ndarray:
    if target in FLOATS:
        return rounded(x, target) if source in FLOATS else rounded(x.astype(NUMPY[target]), target)
    if target == "b8":
        return x != 0
    if source not in FLOATS:
        return x.astype(NUMPY[target])
    # As the conversion instructions of x86: the least value for numbers that do not fit.
    way = {"u8": "i64", "i8": "i32", "i16": "i32"}.get(target, target)
    wide = np.trunc(x.astype(np.float64))
    limit = 2.0 ** (BITS[way] - 1)
    fits = (wide >= -limit) & (wide < limit)
    whole = np.where(fits, np.where(fits, wide, 0).astype(NUMPY[way]), np.iinfo(NUMPY[way]).min)
    return whole.astype(NUMPY[way]).astype(NUMPY[target])


def bitcast(x: np.ndarray, source: str, target: str) -> np.ndarray:
    if source == "bf16":
        bits = (np.ascontiguousarray(x, np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return bits.view(np.int16)
    if target == "bf16":
        return (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if target == "b8":
        return x != 0
    return np.ascontiguousarray(x).view(NUMPY[target]).reshape(x.shape)


def operation(op: str, dtype: str, args: list[np.ndarray]) -> np.ndarray:
    """One operation on operands of a dtype, rounded to it."""
    if dtype in FLOATS:
        wide = [a.astype(np.float32) for a in args] if dtype in ("f16", "bf16") else args
        result = _float_operation(op, wide)
        return result if result.dtype == np.bool_ else rounded(result, dtype)
    if dtype == "b8":
        return _COMPARISONS[op](*args) if op in _COMPARISONS else _BOOLEAN[op](*args)
    return _integer_operation(op, dtype, args)


_COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_BOOLEAN = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "not": np.logical_not,
    "add": np.logical_or,
    "mul": np.logical_and,
    "max": np.logical_or,
    "min": np.logical_and,
}
_FLOAT = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "min": np.minimum,
    "max": np.maximum,
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "is_nan": np.isnan,
    "is_inf": np.isinf,
    "copysign": np.copysign,
    "fmod": np.fmod,
    "remainder": lambda x, y: np.where(y == 0, np.nan, np.remainder(x, np.where(y == 0, 1, y))),
}


def _float_operation(op: str, args: list[np.ndarray]) -> np.ndarray:
    if op in _COMPARISONS:
        return _COMPARISONS[op](*args)
    if op in _FLOAT:
        return np.asarray(_FLOAT[op](*args))
    if op == "fma":
        x, y, z = (a.astype(np.longdouble) for a in args)
        return (x * y + z).astype(args[0].dtype)
    return FUNCTIONS[op](*(a.astype(np.float64) for a in args))


def _integer_operation(op: str, dtype: str, args: list[np.ndarray]) -> np.ndarray:
    """In Python's whole numbers, then wrapped."""
    if op in _COMPARISONS:
        return _COMPARISONS[op](*args)
    bits = BITS[dtype]

    def one(x: int, y: int = 0) -> int:
        match op:
            case "add" | "sub" | "mul" | "and" | "or" | "xor":
                return {"add": x + y, "sub": x - y, "mul": x * y, "and": x & y, "or": x | y, "xor": x ^ y}[op]
            case "neg":
                return -x
            case "abs":
                return abs(x)
            case "not":
                return ~x
            case "min" | "max":
                return min(x, y) if op == "min" else max(x, y)
            case "div" | "floor_div" | "remainder" | "fmod" if y == 0:
                return 0
            case "div":
                return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
            case "floor_div":
                return x // y
            case "remainder":
                return x % y
            case "fmod":
                return abs(x) % abs(y) * (-1 if x < 0 else 1)
            case "shl":
                return x << y if 0 <= y < bits else 0
            case "shr":
                return x >> y if 0 <= y < bits else (-1 if x < 0 else 0)
        return x

    arrays = np.broadcast_arrays(*args)
    flat = itertools.starmap(one, zip(*(a.ravel().tolist() for a in arrays), strict=True))
    wrapped = [value & ((1 << bits) - 1) for value in flat]
    unsigned = np.array(wrapped, dtype=f"u{bits // 8}")
    return unsigned.view(NUMPY[dtype]).reshape(arrays[0].shape)
