"""Guards as sentences about the program, for ``explain`` and for reports."""

from __future__ import annotations

from typing import Any

from ..capture.guards.guards import FACT_NAMES, STATE_NAMES, Guard
from ..report.dump_stages import in_words
from ..tensors.dtypes import HALVES

USUAL = (None, False, 0, *HALVES)  # usual values of torch's global state, not worth showing


def guard_text(guard: Guard) -> str:
    """A guard as a sentence about the program."""
    try:
        return _sentence(guard)
    except ValueError:  # Python does not write integers of thousands of digits
        return f"{guard.kind}: not shown"


def _sentence(guard: Guard) -> str:
    kind, source, expected = guard
    match kind:
        case "state":
            named = zip(STATE_NAMES, expected, strict=False)
            shown = [f"{name} {value}" for i, (name, value) in enumerate(named) if i < 3 or value not in USUAL]
            return f"torch's switches: {', '.join(shown)}"
        case "outcome":
            return f"{expected[0].words()} is {expected[1]}"
        case "distinct":
            return f"{', '.join(map(str, expected))} are different objects"
        case "tensor":
            return f"{source} is {_tensor_text(*expected)}"
        case "type":
            return f"{source} is a {expected.__qualname__}"
        case "length":
            return f"len({source}) == {expected}"
        case "keys":
            return f"the keys of {source} are {_short(list(expected))}"
        case "has" | "absent":
            return f"{_short(expected)} is {'' if kind == 'has' else 'not '}in {source}"
        case "truth":
            return f"bool({source}) is {expected}"
        case "same" | "unlike":
            return f"{source} is {'' if kind == 'same' else 'not '}{expected}"
        case "no hooks":
            return f"{source} has no hooks"
        case "is":
            return f"{source} is {_name(expected)}"
        case "equal" | "equal set":
            return f"{source} == {_short(expected)}"
        case _:
            return f"{source}: {kind}" + ("" if expected is None else f" {_short(expected)}")


def _tensor_text(kind: Any, dtype: Any, shape: Any, strides: Any, device: Any, *flags: Any) -> str:
    sizes = "" if shape is None else f"[{', '.join(map(str, shape))}]"
    set_flags = [name for name, value in zip(FACT_NAMES[5:], flags, strict=False) if value is True]
    what = f"a {kind.__name__} of {str(dtype).removeprefix('torch.')}{sizes} on {device}"
    return ", ".join([what, f"strides {strides}", *set_flags])


def _name(value: Any) -> str:
    names = (getattr(value, attribute, None) for attribute in ("__qualname__", "__name__", "co_qualname"))
    return next((name for name in names if isinstance(name, str)), None) or _short(value)


def _short(value: Any) -> str:
    text = " ".join((value.__qualname__ if isinstance(value, type) else in_words(value)).split())
    return text if len(text) <= 80 else text[:79] + "…"
