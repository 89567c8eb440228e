"""Runs kernels as the Triton printer writes them, on a CPU, by Triton's interpreter.

    kernel = interpreted(kernel)          called with addresses, as a NativeKernel is

Programs run one after the other, in numpy. The functions that join two values of a reduction are called there for one
element after the other, which takes minutes; `quick_reductions` calls them for many at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import (
    InterpretedFunction,
    InterpreterBuilder,
    ReduceOps,
    ScanOps,
    TensorHandle,
    interpreter_builder,
)
from triton.runtime.jit import JITFunction

from burnish.codegen.triton import reduction_combine
from burnish.codegen.triton.compilation.source_for_triton import function_of
from burnish.codegen.triton.kernel_function import PrintedKernel, print_kernel
from burnish.codegen.triton.triton_types import signature_type
from burnish.schedule.loops.loop_ir import Kernel

from .numpy_reference import NUMPY
from .quick_triton_types import quick_types

COMBINE = {
    name: InterpretedFunction(getattr(fn, "fn", fn))
    for name, fn in vars(reduction_combine).items()
    if isinstance(fn, (JITFunction, InterpretedFunction))
}


def rounded_once(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """`function` in f64, rounded. Of f32, numpy's functions differ between processors, by up to four units."""
    return lambda x: function(x.astype(np.float64)).astype(x.dtype)


INSTRUCTIONS = {
    "create_exp2": rounded_once(np.exp2), "create_rsqrt": rounded_once(lambda x: 1 / np.sqrt(x)),
    "create_sin": rounded_once(np.sin), "create_cos": rounded_once(np.cos),
}  # fmt: skip
"""Functions that a GPU has instructions for: here the rounded result, on every processor."""


class Interpreted:
    def __init__(self, printed: PrintedKernel):
        self.printed = printed
        self.function = InterpretedFunction(function_of(self.printed, {"tl": tl, **COMBINE}, InterpretedFunction))

    def __call__(self, *addresses: int | float, sizes: Sequence[int] = (), grid: int | None = None) -> None:
        """Addresses of buffers, and the values of numbers; sizes and the number of programs for symbolic kernels."""
        with quick_types(), quick_reductions(), mended(), looking(), np.errstate(all="ignore"):
            run(self.function, self.printed, addresses, sizes, self.printed.grid if grid is None else grid)


def interpreted(kernel: Kernel) -> Interpreted:
    return Interpreted(print_kernel(kernel))


def run(
    function: InterpretedFunction,
    printed: PrintedKernel,
    addresses: tuple[int | float, ...],
    sizes: Sequence[int],
    grid: int,
) -> None:
    scope = interpreter._patch_lang(function.fn)
    try:
        rewritten = function.rewrite()
        args = []
        for n, (given, dtype) in enumerate(zip(addresses, printed.dtypes, strict=True)):
            type = tl.str_to_ty(signature_type(dtype, n in printed.numbers), None)
            data = np.array([given], NUMPY[dtype] if n in printed.numbers else np.uint64)
            args.append(tl.tensor(TensorHandle(data, type), type))
        for given, size in zip(sizes, printed.sizes, strict=True):
            assert not size.is_even or given % 16 == 0
            type = tl.str_to_ty(size.type, None)
            args.append(tl.tensor(TensorHandle(np.array([given], NUMPY[size.type]), type), type))
        interpreter_builder.set_grid_dim(grid, 1, 1)
        for program in range(grid):
            interpreter_builder.set_grid_idx(program, 0, 0)
            rewritten(*args)
    finally:
        scope.restore()


@contextlib.contextmanager
def looking() -> Iterator[None]:
    """Wrong indices are reported."""
    before = interpreter_builder.options
    interpreter_builder.options = replace(before, debug=True, sanitize_overflow=False)
    try:
        yield
    finally:
        interpreter_builder.options = before


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """A GPU rounds to bf16 and has denormals there; the interpreter truncates, and gets denormals wrong. The result of
    a comparison becomes a number where it is broadcast over a block. Products of bf16 are those of its bits. A product
    and a sum are rounded once, and unsigned numbers have complements. Functions are INSTRUCTIONS.
    """
    plain, product = InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot

    def cast(builder, source, target):
        types = source.dtype.scalar, target.scalar
        if types == (tl.bfloat16, tl.float32):
            return TensorHandle((source.data.astype(np.uint32) << 16).view(np.float32), tl.float32)
        if types == (tl.float32, tl.bfloat16):
            bits = source.data.view(np.uint32)
            rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
            return TensorHandle(np.where(np.isnan(source.data), 0x7FC0, rounded).astype(np.uint16), tl.bfloat16)
        return plain(builder, source, target)

    def spread(builder, type, source):
        return TensorHandle(np.full(type.shape, source.data.reshape(-1)[0]), source.dtype.scalar)

    def multiply(builder, a, b, *rest):
        if a.dtype.scalar == b.dtype.scalar == tl.bfloat16:
            a, b = (cast(builder, x, tl.float32) for x in (a, b))
        return product(builder, a, b, *rest)

    def constant(builder, value):
        return cast(builder, TensorHandle(np.array([value], np.float32), tl.float32), tl.bfloat16)

    def ones(builder, type):
        return TensorHandle(np.invert(np.zeros(1, interpreter._get_np_dtype(type))), type.scalar)

    def instruction(function):
        return lambda builder, x: TensorHandle(function(x.data), x.dtype.scalar)

    mends = {
        "cast_impl": cast,
        "create_splat": spread,
        "create_dot": multiply,
        "create_fma": fused,
        "get_bf16": constant,
        "get_all_ones_value": ones,
        **{name: instruction(function) for name, function in INSTRUCTIONS.items()},
    }
    before = {name: vars(InterpreterBuilder).get(name) for name in mends}
    for name, mend in mends.items():
        setattr(InterpreterBuilder, name, mend)
    try:
        yield
    finally:
        for name, function in before.items():
            if function is None:
                delattr(InterpreterBuilder, name)  # Triton 3.8 has no constants of bf16
            else:
                setattr(InterpreterBuilder, name, function)


def fused(builder: InterpreterBuilder, x: TensorHandle, y: TensorHandle, z: TensorHandle) -> TensorHandle:
    """x * y + z, rounded once. In the wider type the product is exact, and the rounding error of its sum with z decides
    if the sum is in the middle between two results."""
    wide = {np.dtype(np.float32): np.float64, np.dtype(np.float64): np.longdouble}.get(x.data.dtype)
    if wide is None:
        return TensorHandle(x.data * y.data + z.data, z.dtype.scalar)
    product, addend = x.data.astype(wide) * y.data.astype(wide), z.data.astype(wide)
    total = product + addend
    part = total - product
    lost = (product - (total - part)) + (addend - part)
    near = total.astype(x.data.dtype)
    is_between = np.isfinite(lost) & (lost != 0) & (total != near)
    towards = np.nextafter(total, np.where(lost > 0, np.inf, -np.inf).astype(wide))
    return TensorHandle(np.where(is_between, towards, total).astype(x.data.dtype), z.dtype.scalar)


@contextlib.contextmanager
def quick_reductions() -> Iterator[None]:
    """Halves are joined with halves, many elements by one call."""
    slow = ReduceOps.apply_impl, ScanOps.apply_impl

    def joined(ops, left, right, input):
        tensors = [ops.to_tensor(part, x.dtype) for half in (left, right) for part, x in zip(half, input, strict=True)]
        found = ops.combine_fn.fn(*tensors)
        return [x.handle.data for x in (found if isinstance(found, tuple) else (found,))]

    def reduce(ops, input):
        parts = [np.moveaxis(x.handle.data, ops.axis, 0) for x in input]
        while len(parts[0]) > 1:
            half = len(parts[0]) // 2
            parts = joined(ops, [part[:half] for part in parts], [part[half:] for part in parts], input)
        parts = [np.moveaxis(part, 0, ops.axis) if ops.keep_dims else part[0] for part in parts]
        return [ops.to_tensor(np.ascontiguousarray(part), x.dtype) for part, x in zip(parts, input, strict=True)]

    def scan(ops, input):
        parts = [np.moveaxis(x.handle.data, ops.axis, 0) for x in input]
        distance = 1
        while distance < len(parts[0]):
            later = joined(ops, [np.roll(part, distance, 0) for part in parts], parts, input)
            parts = [np.concatenate((a[:distance], b[distance:])) for a, b in zip(parts, later, strict=True)]
            distance *= 2
        parts = [np.moveaxis(part, 0, ops.axis) for part in parts]
        return [ops.to_tensor(np.ascontiguousarray(part), x.dtype) for part, x in zip(parts, input, strict=True)]

    ReduceOps.apply_impl, ScanOps.apply_impl = reduce, scan
    try:
        yield
    finally:
        ReduceOps.apply_impl, ScanOps.apply_impl = slow
