"""The supported dtypes: one record each, and the tables that are derived from the records.

    >>> DTYPES["bf16"], DIGITS["bf16"], WIDE["bf16"]
    (torch.bfloat16, 8, 'f32')

A new dtype is a record here. The code generators derive their types from it. A float that LLVM does not know also needs
its conversions, in `codegen/llvm/scalar_operations.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Dtype:
    """The facts about one dtype that are the same on every device."""

    name: str
    """Its name in printed graphs and in the scalar IR."""
    torch: torch.dtype
    kind: str
    """b bool, i integer, f floating, c complex, o opaque: only eager's kernels know what its bits mean."""
    digits: int = 0
    """The binary digits of a float's significand, the hidden one included."""
    wide: str | None = None
    """The dtype of arithmetic on it, if eager's kernels compute in another one and round each result back."""
    is_paired: bool = False
    """Whether processors have an instruction that multiplies pairs of it and adds both products in its wide dtype."""

    @property
    def bits(self) -> int:
        """A bool is one byte in memory."""
        return 8 * self.torch.itemsize


NAMES: dict[torch.dtype, str] = {}
"""The supported dtypes. The compiler passes tensors of other dtypes through unchanged."""

DTYPES: dict[str, torch.dtype] = {}
KINDS: dict[str, str] = {}
"""The letter for a dtype in an operator record's `takes`."""

BITS: dict[str, int] = {}
"""Of the dtypes of the scalar IR, which has neither complex numbers nor opaque dtypes."""

DIGITS: dict[str, int] = {}
LARGEST: dict[str, float] = {}
"""The largest finite number of each floating dtype."""

WIDE: dict[str, str] = {}
"""Dtypes that are computed in a wider type and rounded after each operation, as eager does."""

FLOATS: set[str] = set()
INTEGERS: set[str] = set()
UNSIGNED: set[str] = set()
"""The unsigned ones of `INTEGERS`."""

HALVES: set[torch.dtype] = set()
"""The torch dtypes of half precision."""

SINGLES: list[torch.dtype] = []
"""Those that are computed in float32: itself, and the half precisions."""

PAIRED: set[torch.dtype] = set()
"""Those that products multiply in pairs of neighbours."""


def add(dtype: Dtype) -> None:
    """Fill the tables with what the record says."""
    name = dtype.name
    NAMES[dtype.torch] = name
    DTYPES[name] = dtype.torch
    KINDS[name] = dtype.kind
    if dtype.kind not in "co":
        BITS[name] = dtype.bits
    if dtype.kind == "f":
        FLOATS.add(name)
        DIGITS[name] = dtype.digits
        LARGEST[name] = float(torch.finfo(dtype.torch).max)
    elif dtype.kind == "i":
        INTEGERS.add(name)
        if not dtype.torch.is_signed:
            UNSIGNED.add(name)
    if "f32" in (name, dtype.wide):
        SINGLES.append(dtype.torch)
    if dtype.is_paired:
        PAIRED.add(dtype.torch)
    if dtype.wide is not None:
        WIDE[name] = dtype.wide
        HALVES.add(dtype.torch)


for _dtype in (
    Dtype("b8", torch.bool, "b"),
    Dtype("u8", torch.uint8, "i"),
    Dtype("i8", torch.int8, "i"),
    Dtype("i16", torch.int16, "i"),
    Dtype("i32", torch.int32, "i"),
    Dtype("i64", torch.int64, "i"),
    Dtype("f16", torch.float16, "f", digits=11, wide="f32"),
    Dtype("bf16", torch.bfloat16, "f", digits=8, wide="f32", is_paired=True),
    Dtype("f32", torch.float32, "f", digits=24),
    Dtype("f64", torch.float64, "f", digits=53),
    Dtype("c64", torch.complex64, "c"),
    Dtype("c128", torch.complex128, "c"),
    Dtype("u16", torch.uint16, "o"),
    Dtype("u32", torch.uint32, "o"),
    Dtype("u64", torch.uint64, "o"),
    *[
        Dtype(f"f8{rest}", getattr(torch, f"float8_{rest}"), "o")
        for rest in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
        if hasattr(torch, f"float8_{rest}")
    ],
):
    add(_dtype)


def has_loops(dtype: torch.dtype | None) -> bool:
    """Whether kernels of ours compute with it. Operators on others call eager's kernels."""
    return NAMES.get(dtype) in BITS  # type: ignore[arg-type]
