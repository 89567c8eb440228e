"""The page of a graph break, for a terminal: `burnish breaks B101`."""

from __future__ import annotations

from .break_kind import BreakKind
from .break_record import labelled


def print_page(kind: BreakKind) -> str:
    examples = [
        f"  {label}\n\n" + "".join(f"    {line}".rstrip() + "\n" for line in code.splitlines())
        for label, code in (("Breaks:", kind.broken), ("Does not break:", kind.fixed))
    ]
    prose = labelled("Why", kind.why) + labelled("What to do", kind.what_to_do)
    return "\n".join([f"{kind.code} {kind.name}: {kind.title}", "", *prose, "", *examples])
