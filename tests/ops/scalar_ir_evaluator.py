"""Runs a scalar expression over whole tensors, one torch operation for each of the language's: its reference meaning.

    >>> x = load("f32", Access(0, 0, (1,)))
    >>> evaluated(select(x > 0, x, x.exp() - 1), [torch.tensor([-1.0, 2.0])])
    tensor([-0.6321,  2.0000])

Every operation is rounded to its own dtype, so that what a rule loses by the order of its operations is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from burnish.ops.scalar_ir import Scalar, walk
from burnish.tensors.dtypes import BITS, DTYPES, FLOATS

UNARY: dict[str, Callable] = {
    name: getattr(torch, name)
    for name in (
        "neg abs sqrt rsqrt reciprocal floor ceil trunc round exp exp2 expm1 log log2 log10 log1p sin cos tan asin "
        "acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma digamma sigmoid"
    ).split()
}
COMPARISONS: dict[str, Callable] = {name: getattr(torch, name) for name in "eq ne lt le gt ge".split()}
BINARY: dict[str, Callable] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "pow": torch.pow,
    "atan2": torch.atan2,
    "min": torch.minimum,
    "max": torch.maximum,
    "copysign": torch.copysign,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
}
DIVISIONS: dict[str, str] = {"div": "trunc", "floor_div": "floor"}


def evaluated(root: Scalar, buffers: Sequence[torch.Tensor]) -> torch.Tensor:
    """The expression where `i0` runs over the flat buffers, which are of one size."""
    assert all(buffer.ndim == 1 and buffer.numel() == buffers[0].numel() for buffer in buffers)
    values: dict[Scalar, torch.Tensor] = {}
    for x in walk(root):
        found = apply(x, [values[arg] for arg in x.args], buffers)
        assert found.dtype is DTYPES[x.dtype], f"{x.op} of {x.dtype} gave {found.dtype}"
        values[x] = found
    return values[root].expand(buffers[0].shape)


def apply(x: Scalar, args: list[torch.Tensor], buffers: Sequence[torch.Tensor]) -> torch.Tensor:
    dtype = DTYPES[x.dtype]
    match x.op:
        case "const":
            return torch.tensor([x.payload], dtype=dtype)
        case "load":
            assert x.payload.strides == (1,) and not x.payload.offset and not args
            return buffers[x.payload.buffer]
        case "select":
            return torch.where(*args)
        case "fma":
            wide = [arg.numpy().astype(np.longdouble) for arg in args]
            return torch.from_numpy((wide[0] * wide[1] + wide[2]).astype(f"f{BITS[x.dtype] // 8}"))
        case "cast":
            return args[0].to(dtype)
        case "bitcast":
            return args[0].view(dtype)
        case "is_nan":
            return torch.isnan(args[0])
        case "is_inf":
            return torch.isinf(args[0])
        case "not":
            return torch.bitwise_not(args[0])
        case "shl" | "shr":
            assert bool(((args[1] >= 0) & (args[1] < BITS[x.dtype])).all()), "a shift that has no meaning"
            return torch.bitwise_left_shift(*args) if x.op == "shl" else torch.bitwise_right_shift(*args)
    if x.op == "log1p":  # torch's vectorized one loses denormals
        return torch.from_numpy(np.log1p(args[0].numpy()))
    if x.op in UNARY:
        return UNARY[x.op](*args)
    if x.op in COMPARISONS:
        return COMPARISONS[x.op](*args)
    if x.op in DIVISIONS or x.op in ("fmod", "remainder"):
        if x.dtype in FLOATS:
            assert x.op in ("div", "fmod"), f"floats have no {x.op} here"
            # Where the quotient is huge, torch's vectorized fmod returns NaN.
            return (
                torch.true_divide(*args) if x.op == "div" else torch.from_numpy(np.fmod(*(arg.numpy() for arg in args)))
            )
        zero = args[1] == 0
        divisor = torch.where(zero, 1, args[1])
        found = (
            torch.div(args[0], divisor, rounding_mode=DIVISIONS[x.op])
            if x.op in DIVISIONS
            else BINARY[x.op](args[0], divisor)
        )
        return torch.where(zero, 0, found)
    if x.op == "pow":
        assert x.dtype in FLOATS, "integers have no pow"
    return BINARY[x.op](*args)
