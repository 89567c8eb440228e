"""Decimal arithmetic: its results depend on the context of the thread, above all on its precision.

A segment that makes or meets a ``Decimal`` guards the whole context. A program that asks for the context itself may
change it: that is a graph break.
"""

from __future__ import annotations

import decimal
import operator
from typing import Any

from .. import breaks
from .live_scalars import Expression

FACTS = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


def context_facts() -> tuple:
    context = decimal.getcontext()
    return (*[getattr(context, name) for name in FACTS], *[kind for kind, traps in context.traps.items() if traps])


def guard_context(heap: Any) -> None:
    if not heap.has_decimals:
        heap.has_decimals = True
        asked = Expression(operator.eq, (Expression(context_facts, ()), context_facts()))
        heap.guard("outcome", None, (asked, True))


def is_decimal(kind: type) -> bool:
    return kind is decimal.Decimal


def ask_for_context(m: Any, args: tuple, kwargs: dict) -> Any:
    return m.stop(breaks.OPAQUE_CALL, "decimal's context, which may be changed")


HANDLERS = {function: ask_for_context for function in (decimal.getcontext, decimal.setcontext, decimal.localcontext)}
