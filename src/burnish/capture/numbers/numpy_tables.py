"""NumPy's constant types and functions, for constant folding (``numpy_folding``), and arrays. Empty without NumPy."""

from __future__ import annotations

import sys
from typing import Any

import torch

if "numpy" in sys.modules:  # torch imports it where it is installed
    import numpy

    _NUMBERS = """
        bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128
    """
    NUMBERS: frozenset[type] = frozenset(getattr(numpy, name) for name in _NUMBERS.split())
    DTYPES: frozenset[type] = frozenset(type(numpy.dtype(kind)) for kind in NUMBERS)
    FACTS: frozenset[type] = frozenset((numpy.finfo, numpy.iinfo))
    CLASSES = NUMBERS | FACTS | {numpy.dtype}
    FUNCTION_KINDS: frozenset[type] = frozenset((numpy.ufunc, type(numpy.prod)))
    _NAMES = """
        prod sum mean std var min max amin amax median average clip round around argmax argmin count_nonzero dot vdot
        inner size ndim interp percentile quantile isclose allclose array_equal any all ptp nanmin nanmax nanmean nansum
        result_type promote_types can_cast min_scalar_type base_repr binary_repr real imag angle sinc i0 heaviside
        nan_to_num isreal iscomplex common_type trapezoid
        array arange linspace logspace geomspace zeros ones full eye identity tile repeat concatenate stack vstack
        hstack outer kron tril triu cumsum cumprod diff where reshape transpose flip roll sort argsort unique
        searchsorted expand_dims squeeze ravel atleast_1d atleast_2d meshgrid hanning hamming blackman bartlett kaiser
        zeros_like ones_like full_like pad split array_split diag trace
    """
    FUNCTIONS = frozenset(
        [f for f in vars(numpy).values() if isinstance(f, numpy.ufunc)]
        + [getattr(numpy, name) for name in _NAMES.split() if hasattr(numpy, name)]
    )
    ARRAY: Any = numpy.ndarray
else:
    ARRAY = None
    NUMBERS = DTYPES = FACTS = CLASSES = FUNCTION_KINDS = FUNCTIONS = frozenset()

VALUES = NUMBERS | DTYPES
"""Immutable, and compared by value."""

if NUMBERS:
    GIVEN_TO_TORCH = NUMBERS - {numpy.bool_, numpy.uint64, numpy.complex64, numpy.complex128}
    """Torch converts these to Python numbers, but not the others."""
else:
    GIVEN_TO_TORCH = frozenset()


def is_same(now: Any, expected: Any) -> bool:
    return type(now) is type(expected) and repr(now) == repr(expected)


CHARACTERS = frozenset("?bhilBefdFD")
"""The dtypes of arrays that a tensor can show and whose operations torch has."""


def tensor_of_array(array: Any) -> torch.Tensor | None:
    """A tensor that shows an array's memory; None if torch cannot, or if the array must not be written to."""
    if type(array) is not ARRAY or array.dtype.char not in CHARACTERS or not array.flags.behaved:
        return None
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError):  # negative strides, another byte order
        return None
