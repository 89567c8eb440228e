"""Which sizes of inputs differ from those that a segment expects: the next trace makes them symbolic.

x: f32[64, 768] in the guards, f32[65, 768] now        dimension 0 of x: 64, 65
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..guards.guards import Guard
from ..guards.object_sources import Source
from .size_symbols import LEAST, SymbolPlace


def changed_sizes(guards: Iterable[Guard], read: Callable[[Source], Any]) -> dict[SymbolPlace, tuple[int, int]]:
    """The dimensions of tensors with a size that differs now from the guards.

    Guards are in the order of the program's reads: a source after a guard may only be read if that guard holds.
    """
    found: dict[SymbolPlace, tuple[int, int]] = {}
    for kind, source, expected in guards:
        if kind == "type" and type(read(source)) is not expected:  # type: ignore[arg-type]
            break
        if kind == "is" and read(source) is not expected:  # type: ignore[arg-type]
            break
        if kind not in ("tensor", "open tensor") or not expected:
            continue
        now = read(source)  # type: ignore[arg-type]
        facts = expected[0] if kind == "open tensor" else expected
        if not facts or type(now) is not facts[0]:
            break
        shape = facts[2]
        has_sizes = isinstance(shape, tuple) and now.layout is torch.strided and not now.is_nested
        if has_sizes and now.ndim == len(shape):
            for dim, (before, size) in enumerate(zip(shape, now.shape, strict=True)):
                if before is not None and before != size and before >= LEAST <= size:
                    found[SymbolPlace(source.path(), dim)] = before, size  # type: ignore[union-attr]
    return found
