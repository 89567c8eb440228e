"""Tensor guards as words in memory: find where torch stores dtype, device, sizes, strides and autograd flags.

    layout = tensor_layout()                      None where torch's layout is not known
    words = layout.describe(x)                    None for a tensor that its words do not describe fully
    description = [type of x, ..., checks]        as `codegen.llvm.functions.native_guard_check` reads it

A tensor that matches another one's description has the same type, dtype, device, layout, sizes, strides and dispatch
keys. The keys show lazy conjugation, inference tensors and subclasses in C++. It also has the same `requires_grad`,
and is a view if that one is.

Torch does not guarantee its layout, so nothing is assumed: tensors are made that differ in one property only, and
their words are compared. Where the result is ambiguous, there is no layout, and guards check tensors in Python.
"""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from ...concurrency.first_value_cache import once
from ...concurrency.outside_errors import reraise_from_outside
from ...foundation.torch_private import DisableTorchFunctionSubclass, dispatch_keys, top_saved_tensors_default_hooks

WORD = 8
ALL = (1 << 64) - 1
INLINE = 5
"""This many sizes are in the tensor itself, followed by as many strides. More are stored elsewhere."""

HEAD = 12
"""Words of a tensor's Python object that are searched for the address of its implementation."""

LONGEST = 26
"""Words of the implementation that are searched. It has as many; a shorter one would fail to match."""

AUTOGRAD = 32
"""At most this many words of the autograd data are searched for its flags, one after the other."""

KIND = (1 << 40) - 1
"""Dtype and device in their word, on a little-endian machine."""


def word_at(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def word_behind(address: int, index: int) -> int:
    """A word of what the pointer at an address points to. The interpreter follows it and reads in one step, so no other
    thread can free it in between. Raises ValueError for a null pointer."""
    return _POINTER.from_address(address)[index]


def words_behind(address: int, count: int) -> list[int]:
    """The first words of what the pointer at an address points to, in one step likewise."""
    return _POINTER.from_address(address)[:count]


_POINTER = ctypes.POINTER(ctypes.c_uint64)


def words_at(address: int, count: int) -> list[int]:
    return list((ctypes.c_uint64 * count).from_address(address))


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Offsets in words: in the Python object, in the implementation, in the autograd data."""

    implementation: int
    autograd: int
    rank: int
    kind: int
    """Offset of dtype and device."""
    kind_mask: int
    keys: int
    history: int
    flags: int
    wants_gradient: int
    is_view: int

    def describe(self, x: torch.Tensor) -> list[int] | None:
        """None where a match would not show that everything is as in this tensor."""
        wants_gradient, is_view = x.requires_grad, x._is_view()
        if x.layout is not torch.strided or x.ndim > INLINE or wants_gradient and (is_view or not x.is_leaf):
            return None
        at = x._cdata
        words = words_at(at, self.keys + 1)
        if words[self.rank] != x.ndim or words[self.rank + 1 : self.rank + 1 + x.ndim] != list(x.shape):
            return None  # sizes are stored in another way: symbolic sizes, for example
        plain = [
            0,
            self.rank,
            *range(self.rank + 1, self.rank + 1 + x.ndim),
            *range(self.rank + 1 + INLINE, self.rank + 1 + INLINE + x.ndim),
            self.keys,
        ]
        checks = [(WORD * k, ALL, words[k]) for k in plain]
        checks.append((WORD * self.kind, self.kind_mask, words[self.kind] & self.kind_mask))
        flags = self.wants_gradient * wants_gradient | self.is_view * is_view
        further = [(WORD * self.flags, self.wants_gradient | self.is_view, flags), (WORD * self.history, ALL, 0)]
        return [
            id(type(x)),
            WORD * self.implementation,
            WORD * self.autograd,
            int(not wants_gradient and not is_view),
            len(checks),
            len(further),
            *(word for check in (*checks, *further) for word in check),
        ]


class _Unclear(Exception):
    """The observations fit no layout."""


@once
def tensor_layout() -> TensorLayout | None:
    # Independent of the caller's modes: they would change the tensors made here. Nor do its hooks see what is saved.
    try:
        with (
            DisableTorchFunctionSubclass(),
            torch.inference_mode(False),
            torch.enable_grad(),
            saved_tensors_hooks(_as_it_is, _as_it_is) if _saving_is_watched() else nullcontext(),
        ):
            return _found()
    except (_Unclear, AttributeError, RuntimeError) as error:
        reraise_from_outside(error)
        return None


def _as_it_is(x: Any) -> Any:
    return x


def _saving_is_watched() -> bool:
    return top_saved_tensors_default_hooks(True) is not None


def _only(found: Any) -> int:
    found = list(found)
    if len(found) != 1:
        raise _Unclear
    return found[0]


def _words(x: torch.Tensor) -> list[int]:
    return words_at(x._cdata, LONGEST)


def _found() -> TensorLayout:
    x = torch.empty_strided((101, 103, 107), (30011, 211, 2), dtype=torch.float32, device="cpu")
    implementation = _only(k for k, word in enumerate(words_at(id(x), HEAD)) if word == x._cdata)
    words = _words(x)
    rank = _only(
        k
        for k in range(LONGEST - 9)
        if words[k : k + 4] == [3, 101, 103, 107] and words[k + 6 : k + 9] == [30011, 211, 2]
    )
    keys = _only(k for k in range(rank + 11, LONGEST) if words[k] == dispatch_keys(x).raw_repr())
    count = _only(k for k in range(rank + 11, keys) if words[k] == x.numel())
    if keys != count + 2:
        raise _Unclear
    kind, kind_mask = count + 1, _kind_mask(count + 1)
    _confirm_sizes(rank)
    _confirm_keys(x, keys)
    autograd = _autograd_offset(rank)
    flags, wants_gradient = _flags(autograd)
    return TensorLayout(
        implementation,
        autograd,
        rank,
        kind,
        kind_mask,
        keys,
        _history(autograd, flags),
        flags,
        wants_gradient,
        _view_flag(autograd, flags, wants_gradient),
    )


def _kind_mask(kind: int) -> int:
    """Dtype and device are adjacent: two bytes; then the device type, its index (-1: none), and whether there is one.
    The rest of that word follows from sizes and keys, or is never written."""
    seen: dict[tuple, int] = {}
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
        for device in ("cpu", "meta"):
            words = {_words(torch.empty(size, dtype=dtype, device=device))[kind] & KIND for size in range(3)}
            seen[dtype, device] = _only(words)
    of_dtypes = {word ^ seen[torch.float32, device] for (_, device), word in seen.items()}
    of_devices = {seen[dtype, "cpu"] ^ seen[dtype, "meta"] for dtype, _ in seen}
    if (
        max(of_dtypes) > 0xFFFF
        or len(of_dtypes) != 6
        or _only(of_devices) & ~0xFF0000
        or {word >> 24 for word in seen.values()} != {0x01FF}
    ):
        raise _Unclear
    return KIND


def _confirm_sizes(rank: int) -> None:
    for sizes in ((), (41,), (43, 47), (2, 3, 5, 7), (2, 3, 5, 7, 11)):
        x = torch.empty(sizes, device="cpu")
        words, n = _words(x), len(sizes)
        if (
            words[rank] != n
            or words[rank + 1 : rank + 1 + n] != list(sizes)
            or words[rank + 1 + INLINE : rank + 1 + INLINE + n] != list(x.stride())
        ):
            raise _Unclear


def _confirm_keys(x: torch.Tensor, keys: int) -> None:
    with torch.inference_mode():
        inference = torch.empty(2, device="cpu")
    lazy = torch.empty(2, dtype=torch.complex64, device="cpu").conj()
    if len({_words(y)[keys] for y in (x, inference, lazy, lazy.imag)}) != 4:
        raise _Unclear
    if len({_words(y)[0] for y in (x, inference, lazy, torch.nn.Parameter(torch.empty(3, device="cpu")))}) != 1:
        raise _Unclear


def _autograd_offset(rank: int) -> int:
    """The word that is set when a tensor gets `requires_grad`."""
    x = torch.empty(2, device="cpu")
    before = _words(x)[:rank]
    x.requires_grad_()
    after = _words(x)[:rank]
    return _only(k for k in range(rank) if before[k] == 0 and after[k] != 0)


def _flags(autograd: int) -> tuple[int, int]:
    """The word with the flags, and the bit of `requires_grad`. Words are read one by one: the memory may end after the
    flags."""
    x = torch.empty(2, device="cpu", requires_grad=True)
    meta = _words(x)[autograd]
    for k in range(AUTOGRAD):
        before = word_at(meta + WORD * k)
        x.requires_grad_(False)
        bits = before ^ word_at(meta + WORD * k)
        x.requires_grad_(True)
        if _words(x)[autograd] != meta:
            break
        if bits:
            if bits.bit_count() != 1 or not before & bits:
                break
            return k, bits
    raise _Unclear


def _history(autograd: int, flags: int) -> int:
    """The word that is null in a leaf and otherwise identifies the autograd node: two results of one operator share it.
    If it is a shared pointer, a second word follows."""
    x = torch.ones(3, dtype=torch.float32, device="cpu", requires_grad=True)
    one, two, *leaves = (
        words_at(_words(y)[autograd], flags)
        for y in (*torch.std_mean(x), x, *(torch.empty(2, device="cpu", requires_grad=True) for _ in range(4)))
    )
    other = words_at(_words(x * 2)[autograd], flags)
    found = [
        k
        for k in range(1, flags)
        if not any(leaf[k] for leaf in leaves) and one[k] == two[k] != 0 and other[k] not in (0, one[k])
    ]
    if not found or found != list(range(found[0], found[0] + len(found))) or len(found) > 2:
        raise _Unclear
    return found[0]


def _view_flag(autograd: int, flags: int, wants_gradient: int) -> int:
    """The bit that all views have, and no other tensor. Some bytes beside it are never written: they hold anything."""
    everywhere, somewhere = ALL, 0
    held = []
    for size in range(1, 17):
        base = torch.empty(size, device="cpu", requires_grad=True)
        plain = [base, base * 2, torch.nn.Parameter(torch.empty(size, device="cpu"))]
        views = [base.view(size), plain[1][:], torch.empty(size, device="cpu").view(-1), base.detach()[:1]]
        if any(x._is_view() for x in plain) or not all(x._is_view() for x in views):
            raise _Unclear
        held += plain + views  # so that each has its own address
        for x in plain:
            somewhere |= word_at(_words(x)[autograd] + WORD * flags)
        for x in views:
            everywhere &= word_at(_words(x)[autograd] + WORD * flags)
    bits = everywhere & ~somewhere & ~wants_gradient
    if bits.bit_count() != 1:
        raise _Unclear
    return bits
