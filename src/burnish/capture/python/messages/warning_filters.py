"""Warning filters: ``with warnings.catch_warnings():`` in interpreted code.

    with warnings.catch_warnings():             enter            real, and an effect that is repeated in its order
        warnings.simplefilter("ignore")         simplefilter     the same
        y = old_function(x)                     a native warning ends the segment before it, inside the block
    return y                                    exit

While tracing the filters are really changed. On later runs that happens at the segment's end, among its other effects,
in order with the program's own warnings. Torch's own warnings would come when the graph runs, under different filters.
So while the filters differ from those at the segment's start, calls are checked for warnings.
"""

from __future__ import annotations

import functools
import sys
import types
import unittest.case
import warnings
from collections.abc import Callable
from typing import Any

from ... import breaks
from ...engine.break_signals import Unrebuildable
from ...interpreter.frames import MISSING, Raised
from ...interpreter.reads_past_overrides import dict_of
from ...numbers.live_scalars import settled
from ...segments.effects import Effect
from ..polyfills import text_polyfills

catch_warnings = warnings.catch_warnings
GLOBALS = ("simplefilter", "filterwarnings", "resetwarnings")


def enter(m: Any, args: tuple, kwargs: dict) -> Any:
    """``catch_warnings.__enter__``."""
    block = args[0]
    if (
        len(args) != 1
        or type(block) is not catch_warnings
        or id(block) not in m.heap.fresh
        or id(block) in m.filters
        or block._record
        and not may_record(m)
        or block._module is not warnings
    ):  # type: ignore[attr-defined]
        return MISSING
    if m.region is not None:
        m.region.refuse("a change of warning filters")
    log = m.plainly(catch_warnings.__enter__, block)
    m.filters[id(block)] = block
    m.effects.append(Effect.of(m, is_entered, (block,)))
    return log


def may_record(m: Any) -> bool:
    """Whether warnings may be recorded: what the program finds in the list is a constant then. No break may come inside
    the block, because the list that a later run makes is another one."""
    found = filters_of(warnings)
    if not m.options.fullgraph or any(entry[0] == "once" for entry in found[1:]):
        return False
    if not m.filters:
        m.heap.guard_answer(filters_are, m.heap.sources.pin(warnings), found)
    return True


def filters_of(module: Any) -> tuple:
    return module.defaultaction, *module.filters


def filters_are(module: Any, expected: tuple) -> bool:
    return filters_of(module) == expected


def leave(m: Any, args: tuple, kwargs: dict) -> Any:
    """``catch_warnings.__exit__``, also for a block that was entered before this segment."""
    block = args[0]
    if type(block) is not catch_warnings or block._record and id(block) not in m.filters:  # type: ignore[attr-defined]
        return MISSING
    if id(block) not in m.filters and m.heap.origin_of(block) is None:
        return MISSING
    if m.region is not None:
        m.region.refuse("a change of warning filters")
    try:
        m.plainly(catch_warnings.__exit__, block, None, None, None)
    except Raised as raised:
        m.stop(breaks.OPAQUE_CALL, f"catch_warnings: {raised.error}")
    if id(block) in m.filters:
        del m.filters[id(block)]
    else:
        m.filters[id(block)] = block  # from here on the filters differ from those during the graph
    m.effects.append(Effect.of(m, leave_again, (block,)))
    return None


def change(name: str) -> Callable:
    """``simplefilter`` and similar functions, inside a block that was entered here."""
    function = getattr(warnings, name)

    def handler(m: Any, args: tuple, kwargs: dict) -> Any:
        if not any(id(block) in m.heap.fresh for block in m.filters.values()):
            return MISSING
        if m.region is not None:
            m.region.refuse("a change of warning filters")
        args = tuple(map(settled, args))
        m.plainly(function, *args, **kwargs)
        m.effects.append(Effect.of(m, function, args, kwargs))
        return None

    return handler


def is_entered(block: Any) -> None:
    """Rebuilding the block already enters it."""


def leave_again(block: Any) -> None:
    block.__exit__(None, None, None)


def enter_again(action: tuple | None, records: bool) -> Any:
    block = catch_warnings(record=records)
    block._filter = action  # type: ignore[attr-defined]
    block.__enter__()
    return block


def build_block(rebuilder: Any, block: Any) -> str:
    """A block in the code that ends a segment. If it was entered here, it is rebuilt by entering it."""
    if not any(effect.function is is_entered and effect.args[0] is block for effect in rebuilder.tracer.effects):
        text: str = rebuilder.other(block)
        return text
    if block._record and id(block) in rebuilder.tracer.filters:
        raise Unrebuildable(block, "a block that still records warnings")
    action = rebuilder.constant(block._filter)
    made: str = rebuilder.name(block, f"{rebuilder.constant(enter_again)}({action}, {block._record})")
    return made


def enter_assertion(m: Any, args: tuple, kwargs: dict) -> Any:
    """``with self.assertWarns(...)`` of ``unittest``: all modules forget the warnings that they have given."""
    if len(args) != 1 or kwargs or not m.options.fullgraph or m.region is not None:
        return MISSING
    m.plainly(forget_warnings)
    m.effects.append(Effect.of(m, forget_warnings, ()))
    return m.call(text_polyfills.enter_assertion_of_warning, args, {})


def forget_warnings() -> None:
    """Nothing but the modules' dictionaries is looked at: no ``__getattr__`` of a module makes such a name."""
    for module in list(sys.modules.values()):
        names = dict_of(module) if isinstance(module, types.ModuleType) else None
        if names and names.get("__warningregistry__"):
            names["__warningregistry__"] = {}


def listening(recorder: Any, function: Callable) -> Callable:
    """``function``, with warnings of its own ending the segment before the instruction that calls it."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            value = function(*args, **kwargs)
        for each in seen:
            recorder.pending_break = (
                breaks.OPAQUE_CALL,
                f"a {each.category.__name__} of torch's where filters were changed",
            )
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
        return value

    return call


HANDLERS: dict[Callable, Callable] = {
    catch_warnings.__enter__: enter,
    catch_warnings.__exit__: leave,
    unittest.case._AssertWarnsContext.__enter__: enter_assertion,  # type: ignore[attr-defined]
    **{getattr(warnings, name): change(name) for name in GLOBALS},
}
