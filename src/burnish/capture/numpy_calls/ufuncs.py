"""NumPy's universal functions as torch calls.

    np.add(a, 1)          torch.add(a, 1)                     a is float32: so is the loop that NumPy takes
    np.sin(ints)          torch.sin(ints.to(torch.float64))
    np.divide(a, b)       torch.true_divide(a.to(torch.float64), b)

NumPy itself says which loop it takes for the operands' dtypes. The operands are cast to the loop's dtypes, and the
torch function computes in them.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch

from ..numbers.numpy_tables import NUMBERS

WEAK = (int, float, complex)

TORCH_NAMES = """
    add subtract:sub multiply:mul divide:true_divide float_power floor_divide remainder fmod positive negative
    exp exp2 expm1 log log2 log10 log1p sqrt square sin cos tan arcsin arccos arctan arctan2 hypot
    sinh cosh tanh arcsinh arccosh arctanh deg2rad rad2deg radians:deg2rad degrees:rad2deg floor ceil trunc rint:round
    logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor invert:bitwise_not
    greater:gt greater_equal:ge less:lt less_equal:le equal:eq not_equal:ne maximum minimum fmax fmin
    isnan isinf isfinite signbit copysign logaddexp logaddexp2 nextafter gcd lcm matmul
"""
TAKES_NUMBERS = frozenset(
    """
    add subtract multiply divide remainder fmod greater greater_equal less less_equal equal not_equal floor_divide power
""".split()
)
"""Functions whose torch form takes a Python number as the second operand."""


def absolute(x: torch.Tensor) -> torch.Tensor:
    return x.clone() if x.dtype is torch.bool else torch.abs(x)


def fabs(x: torch.Tensor) -> torch.Tensor:
    return torch.abs(x)


def conjugate(x: torch.Tensor) -> torch.Tensor:
    return torch.conj_physical(x) if x.is_complex() else x.clone()


def sign(x: torch.Tensor) -> Any:
    if x.is_complex():
        return NotImplemented
    return torch.where(torch.isnan(x), x, torch.sign(x)) if x.is_floating_point() else torch.sign(x)


def heaviside(x: torch.Tensor, at_zero: Any) -> torch.Tensor:
    return torch.where(torch.isnan(x), x, torch.heaviside(x, at_zero))


def reciprocal(x: torch.Tensor) -> Any:
    return torch.reciprocal(x) if x.is_floating_point() or x.is_complex() else NotImplemented


def power(x: Any, exponent: Any) -> Any:
    """Of integers only by a constant: NumPy raises an error for a negative exponent."""
    tensor = x if isinstance(x, torch.Tensor) else exponent
    if not (tensor.is_floating_point() or tensor.is_complex()):
        is_sure = not isinstance(exponent, torch.Tensor) and exponent >= 0
        return torch.pow(x, exponent) if is_sure else NotImplemented
    return torch.pow(x, exponent)


def left_shift(x: Any, bits: Any) -> Any:
    return x << bits if is_shift(x, bits) else NotImplemented


def right_shift(x: Any, bits: Any) -> Any:
    return x >> bits if is_shift(x, bits) else NotImplemented


def is_shift(x: Any, bits: Any) -> bool:
    return not isinstance(bits, torch.Tensor) and 0 <= bits < 8 * x.element_size()


OWN: dict[str, Callable] = {
    "absolute": absolute,
    "fabs": fabs,
    "conjugate": conjugate,
    "sign": sign,
    "heaviside": heaviside,
    "reciprocal": reciprocal,
    "power": power,
    "left_shift": left_shift,
    "right_shift": right_shift,
    "divmod": lambda x, y: (torch.floor_divide(x, y), torch.remainder(x, y)),
}


def _table() -> dict[Any, Callable]:
    numpy = sys.modules["numpy"]
    table: dict[Any, Callable] = {}
    for entry in TORCH_NAMES.split():
        name, _, of_torch = entry.partition(":")
        table[getattr(numpy, name)] = getattr(torch, of_torch or name)
    table.update((getattr(numpy, name), function) for name, function in OWN.items())
    return {ufunc: function for ufunc, function in table.items() if isinstance(ufunc, numpy.ufunc)}


UFUNCS: dict[Any, Callable] = _table() if NUMBERS else {}


def implementation_of(ufunc: Any) -> Callable | None:
    function = UFUNCS.get(ufunc)
    if function is None or not hasattr(ufunc, "resolve_dtypes"):
        return None

    def compute(*operands: Any, dtype: Any = None, kinds: tuple) -> Any:
        """``kinds``: the operands' NumPy dtypes, or Python types of numbers."""
        wanted = {} if dtype is None else {"signature": (*[None] * ufunc.nin, *[dtype] * ufunc.nout)}
        loop = ufunc.resolve_dtypes((*kinds, *[None] * ufunc.nout), **wanted)
        cast = [operand_in(operand, kind) for operand, kind in zip(operands, loop, strict=False)]
        if ufunc.__name__ not in TAKES_NUMBERS or not isinstance(cast[0], torch.Tensor):
            cast = [as_tensor(operand, kind) for operand, kind in zip(cast, loop, strict=False)]
        return function(*cast)

    return compute


def operand_in(operand: Any, dtype: Any) -> Any:
    if not isinstance(operand, torch.Tensor):
        return operand
    wanted = torch_dtype(dtype)
    return operand if operand.dtype is wanted else operand.to(wanted)


def as_tensor(operand: Any, dtype: Any) -> Any:
    return operand if isinstance(operand, torch.Tensor) else torch.full((), operand, dtype=torch_dtype(dtype))


def torch_dtype(dtype: Any) -> torch.dtype:
    """The torch dtype for anything that NumPy takes for a dtype."""
    numpy = sys.modules["numpy"]
    found = DTYPES.get(numpy.dtype(dtype).char)
    if found is None:
        raise ValueError(f"torch has no {dtype}")
    return found


DTYPES = {
    "?": torch.bool,
    "b": torch.int8,
    "h": torch.int16,
    "i": torch.int32,
    "l": torch.int64,
    "B": torch.uint8,
    "e": torch.float16,
    "f": torch.float32,
    "d": torch.float64,
    "F": torch.complex64,
    "D": torch.complex128,
}


@functools.cache
def place_of_out(function: Any) -> int:
    """The position of the argument that a function of NumPy, or the method of this name, writes to."""
    if function in UFUNCS:
        return function.nin
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return sys.maxsize
    names = [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    return names.index("out") if "out" in names else sys.maxsize
