"""The record that the catalog keeps for each graph break kind. The modules beside this one are the catalog."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class BreakKind:
    """One reason to end a graph, in the words a user reads."""

    code: str
    name: str
    title: str
    why: str
    what_to_do: str
    broken: str
    fixed: str


CATALOG: dict[str, BreakKind] = {}

GROUPS = {
    "B1": "Data: Python needs to know what is in a tensor",
    "B2": "Calls: code that capture does not go into",
    "B3": "Language: Python that has no graph form",
    "B4": "State: changes to something that outlives the call",
    "B5": "Limits",
}


def kind(code: str, name: str, *, title: str, why: str, what_to_do: str, broken: str, fixed: str) -> BreakKind:
    """Enter a kind into the catalog. Prose is indented in the source and stored as one paragraph."""
    assert code not in CATALOG, f"{code} is taken by {CATALOG[code].name}"
    prose = {"title": title, "why": " ".join(why.split()), "what_to_do": " ".join(what_to_do.split())}
    examples = {"broken": textwrap.dedent(broken).strip() + "\n", "fixed": textwrap.dedent(fixed).strip() + "\n"}
    CATALOG[code] = kind = BreakKind(code=code, name=name, **prose, **examples)
    return kind


__all__ = ["CATALOG", "GROUPS", "BreakKind", "kind"]
