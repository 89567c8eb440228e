"""Lazy conjugation and negation: decomposes torch's views with a conj or neg bit into computed results.

    aten._conj.default x           =>    aten.conj_physical.default x
    aten._neg_view.default x       =>    aten.neg.default x

A graph computes them, because kernels read memory, which contains the values before conjugation. Tensors in the trace
have the bit (`lower.trace.trace_tensor`), so that torch's C++ code makes the same decisions as in eager. A graph never
writes through such a view and never returns one.
"""

from __future__ import annotations

from typing import Any

from ..operator_record import decomposition


@decomposition("aten._conj.default")
def conjugate(g: Any, x: Any) -> Any:
    return g("conj_physical", x)


@decomposition("aten._neg_view.default")
def negative(g: Any, x: Any) -> Any:
    return g("neg", x)
