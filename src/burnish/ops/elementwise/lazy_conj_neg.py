"""What torch computes lazily: conjugates and negatives that are views with a mark, until somebody reads them.

    aten._conj.default x           =>    aten.conj_physical.default x
    aten._neg_view.default x       =>    aten.neg.default x

In a graph they are computed: kernels read memory, and there stands what was not conjugated. In the trace tensors bear
the mark (`lower.trace.trace_to_aten`), so that torch's C++ decides as ever. Through such a view nothing is written, and
none leaves a graph.
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
