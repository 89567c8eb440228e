"""Report guard misses (recompiles): the nearest segment and its first guard that failed.

A call found no segment whose guards hold. The nearest segment is the one with the fewest failed guards; the first of
these is shown with its values.

    No compiled segment of Model.forward fits this call; it is compiled once more.
      at model.py:12 in forward
          def forward(self, x):

      self.layers[3].scale
          expected  0.5
          found     0.25
      (segment 2, the nearest of 3: no other guard of it failed)

      What to do  The number differs from the one that was compiled in. ...
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .text_layout import cut, labelled

ALSO_SHOWN = 4
VALUE_SHOWN = 100

ADVICE = {
    "number": """The number differs from the one that was compiled in, and each new number is compiled again. Pass it
        as a tensor (`torch.tensor(value)`), which is data and needs no guard, or keep it fixed.""",
    "flag": """Each setting of a flag is compiled once, so a flag that goes back and forth costs nothing further.""",
    "text": """Each text is compiled once. If the text differs on every call (a name, a message, a path), use it
        outside the compiled function.""",
    "training": """The module changed between training and evaluation. Each of the two is compiled once, so this is
        expected when you call `train()` or `eval()`; it does not go on happening.""",
    "grad mode": """Code compiled with gradients recorded is not used without, and the other way round. Each of the
        two is compiled once. To stay with one, call under `torch.no_grad()` or `torch.inference_mode()` every time,
        or never.""",
    "autocast": """Autocast decides the dtypes inside the graph, so each setting is compiled once. Enter
        `torch.autocast(...)` the same way around every call.""",
    "requires grad": """The tensor took part in autograd on one call and not on the other. Make it the same every
        time: `x.detach()` where no gradient is wanted.""",
    "shape": """This segment was compiled for another size. A size that changes is left open from its second value on:
        what is compiled now serves further ones too. `burnish.mark_dynamic(x, dim)`, or `dynamic=True` for all sizes,
        leaves it open from the first call on. Where the function decides by the very size, each one is compiled once:
        pad or batch inputs to a few fixed sizes there.""",
    "stride": """The same shape has another layout in memory. Pass the tensor in one layout every time, for example
        through `x.contiguous()`.""",
    "dtype": """The element type differs. Convert before the call, `x.to(dtype)`, so that it is the same every time;
        each one that is needed is compiled once.""",
    "device": """The tensor is on another device. Each device is compiled once; move inputs to one device first if
        this was not intended.""",
    "none": """The value is `None` on one call and present on another. Each of the two cases is compiled once.""",
    "identity": """Another object stands where the compiled code expects one object in particular. Make functions,
        lambdas, modules and other objects once and pass the same ones again, in place of making new ones for every
        call.""",
    "type": """The value is of another type. Pass always the same type: convert the value before the call. Each type
        that is needed is compiled once.""",
    "length": """The container has another number of items, and loops over it were unrolled for the old number. Keep
        the length fixed: pad, or allocate the full length at the start and fill it in.""",
    "missing": """An attribute or key was there on one call and not on the other. Set it once, with a default, before
        the first call.""",
    "value": """The value differs from the one that was compiled in. Keep it fixed between calls, or pass what changes
        as a tensor.""",
}


@dataclass(frozen=True)
class GuardMiss:
    """A guard that failed. ``category`` is a key of ``ADVICE``; if empty, it is derived from the other fields."""

    segment: int
    source: str
    expected: str
    found: str
    category: str = ""


def render_miss(function_name: str, location: Any, failures: Sequence[GuardMiss]) -> str:
    """The report of one miss. ``location`` is a ``breaks.Location``, a text, or None."""
    lines = [f"No compiled segment of {function_name} fits this call; it is compiled once more.", *where(location)]
    segments = by_nearness(failures)
    if not segments:
        return "\n".join([*lines, "  There is no segment yet that it could be compared with."])
    nearest, *others = segments
    first, *also = nearest
    lines += ["", *difference(first), f"  ({standing(first.segment, len(segments), len(also))})"]
    if also:
        lines += ["", "  Of the same segment, these guards failed too:", *brief(also)]
    if others:
        lines += ["", "  The other segments failed first at:", *brief([other[0] for other in others], numbered=True)]
    return "\n".join([*lines, "", *labelled("What to do", advice(first))])


def by_nearness(failures: Iterable[GuardMiss]) -> list[list[GuardMiss]]:
    """Failures grouped by segment, the segment with the fewest first; the sort is stable."""
    groups: dict[int, list[GuardMiss]] = {}
    for failure in failures:
        groups.setdefault(failure.segment, []).append(failure)
    return sorted(groups.values(), key=len)


def where(location: Any) -> list[str]:
    if location is None:
        return []
    source = location.source_line() if hasattr(location, "source_line") else ""
    return [f"  at {location}"] + ([f"      {source}"] if source else [])


def difference(failure: GuardMiss) -> list[str]:
    expected, found = values(failure)
    return [f"  {failure.source}", f"      expected  {expected}", f"      found     {found}"]


def values(failure: GuardMiss) -> tuple[str, str]:
    return cut(failure.expected, VALUE_SHOWN), cut(failure.found, VALUE_SHOWN)


def standing(segment: int, segments: int, also: int) -> str:
    rank = f"segment {segment}, the nearest of {segments}" if segments > 1 else f"segment {segment}, the only one"
    return f"{rank}; no other guard of it failed" if not also else f"{rank}; its first guard that failed"


def brief(failures: Sequence[GuardMiss], numbered: bool = False) -> list[str]:
    """One line per failure."""
    lines = []
    for failure in failures[:ALSO_SHOWN]:
        owner = f"segment {failure.segment}: " if numbered else ""
        expected, found = values(failure)
        lines.append(f"      {owner}{failure.source}: expected {expected}, found {found}")
    if len(failures) > ALSO_SHOWN:
        lines.append(f"      … and {len(failures) - ALSO_SHOWN} more")
    return lines


def advice(failure: GuardMiss) -> str:
    return ADVICE[failure.category or categorize(failure)]


def categorize(failure: GuardMiss) -> str:
    """Which advice fits. Rules on the guard's source come before those on its values."""
    for category, applies in RULES:
        if applies(failure):
            return category
    return "value"


def _source(pattern: str):
    """A rule on the guard's source."""
    return lambda failure: re.search(pattern, failure.source) is not None


def _says(pattern: str):
    """A rule on the text of the two values. One match is enough, since one value may be missing."""
    return lambda failure: any(re.search(pattern, text) for text in (failure.expected, failure.found))


def _both(types: type | tuple[type, ...]):
    """A rule on the two values as Python literals: both have one of these types."""
    return lambda failure: all(type(literal(text)) in types for text in (failure.expected, failure.found))


def literal(text: str) -> Any:
    """The value of a Python literal, and a plain object for any other text."""
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return object()


RULES = (
    ("grad mode", _source(r"(?i)grad[ _]mode|grad_enabled|inference[ _]mode|is_inference")),
    ("autocast", _source(r"(?i)autocast")),
    ("requires grad", _source(r"\brequires_grad\b|\(is_leaf\)$")),
    ("training", _source(r"\.training$")),
    ("length", _source(r"^len\(")),
    ("shape", _source(r"\.(shape|size\(|ndim|dim\()|\(shape\)$")),
    ("stride", _source(r"\.(stride|is_contiguous|storage_offset)\b|\((strides|being contiguous)\)$")),
    ("dtype", _source(r"\.dtype$|\(dtype\)$")),
    ("device", _source(r"\.device\b|\(device\)$")),
    ("type", _source(r"^type\(|^type of |\.__class__$|\(type\)$")),
    ("identity", _source(r"^id\(")),
    ("missing", _says(r"(?i)^(missing|absent|no such (attribute|key)|nothing|not there)\b")),
    ("shape", _says(r"(?i)^(shape|size)\b")),
    ("stride", _says(r"(?i)^strides?\b")),
    ("dtype", _says(r"^torch\.(u?int|float|bfloat|complex|bool|half|double|long)\w*$")),
    ("length", _says(r"(?i)^(length\b|\d+ (items|elements|keys)$)")),
    ("identity", _says(r"(?i)\bobject\b| at 0x|\bidentity\b|^<(function|bound method|built-in)|\blambda\b")),
    ("type", _says(r"(?i)^<class|^type\b|^an? \w+$")),
    ("none", _says(r"^None$")),
    ("flag", _both((bool,))),
    ("number", _both((int, float, complex, bool))),
    ("text", _both((str, bytes))),
)
