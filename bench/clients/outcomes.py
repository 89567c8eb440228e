"""How a client's tests went, the three ways side by side.

found = read_record(path)                     test -> Outcome
lines = differences(by_way)                   what torch.compile passes and Burnish does not
print(report({"kornia": by_way}))
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..table import NONE, Table, as_text

EAGER, TORCH, BURNISH = WAYS = ("eager", "torch.compile", "burnish")
DIED = "died"
"""The outcome of a test that began and did not end: the process ended before, or was ended."""
SHOWN = 160


@dataclass
class Outcome:
    outcome: str
    """passed, failed, skipped or died."""
    why: str = ""
    seconds: float = 0.0
    graphs: int = 0
    """How many graphs were captured."""
    refused: int = 0
    """How many of them run eagerly."""
    fallbacks: list[str] = field(default_factory=list)
    breaks: dict[str, int] = field(default_factory=dict)


ByTest = Mapping[str, Outcome]
ByWay = Mapping[str, ByTest]


def read_record(path: Path) -> dict[str, Outcome]:
    """A test writes a line when it begins, and one with its outcome; of several outcomes the last counts."""
    found: dict[str, Outcome] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        told = json.loads(line)
        name, outcome = told.pop("name"), told.pop("outcome")
        found[name] = Outcome(DIED if outcome == "begun" else outcome, **told)
    return found


def count(tests: ByTest, *outcomes: str) -> int:
    return sum(test.outcome in outcomes for test in tests.values())


def lost(by_way: ByWay) -> list[str]:
    """The tests that torch.compile passes and Burnish does not."""
    theirs, ours = by_way.get(TORCH, {}), by_way.get(BURNISH, {})
    return [
        name
        for name, test in theirs.items()
        if test.outcome == "passed" and name in ours and ours[name].outcome not in ("passed", "skipped")
    ]


def gained(by_way: ByWay) -> list[str]:
    """The tests that Burnish passes and torch.compile does not."""
    return lost({TORCH: by_way.get(BURNISH, {}), BURNISH: by_way.get(TORCH, {})})


def table_of(clients: Mapping[str, ByWay], about_dynamo: Mapping[str, Sequence[str]]) -> Table:
    table = Table(
        "Tests of clients: passed / failed",
        ["client", *WAYS, "lost", "about Dynamo", "gained", "graphs", "compiled", "fallbacks", "breaks"],
    )
    for client, by_way in clients.items():
        cells = [passed_and_failed(by_way[way]) if way in by_way else NONE for way in WAYS]
        ours = list(by_way.get(BURNISH, {}).values())
        graphs, refused = sum(test.graphs for test in ours), sum(test.refused for test in ours)
        away = lost(by_way)
        excused = [name for name in away if is_about_dynamo(name, about_dynamo.get(client, ()))]
        numbers = (
            len(away) - len(excused),
            len(excused),
            len(gained(by_way)),
            graphs,
            graphs - refused,
            sum(len(test.fallbacks) for test in ours),
            sum(sum(test.breaks.values()) for test in ours),
        )
        table.rows.append([client, *cells, *map(str, numbers)])
    return table


def passed_and_failed(tests: ByTest) -> str:
    return f"{count(tests, 'passed')} / {count(tests, 'failed', DIED)}"


def is_about_dynamo(name: str, parts: Iterable[str]) -> bool:
    return any(part in name for part in parts)


def report(clients: Mapping[str, ByWay], about_dynamo: Mapping[str, Sequence[str]] | None = None) -> str:
    """The table; below it the tests that were lost, with the reason; then the fallbacks, most frequent first."""
    lines = [as_text(table_of(clients, about_dynamo or {}))]
    for client, by_way in clients.items():
        for name in lost(by_way):
            mark = "=" if is_about_dynamo(name, (about_dynamo or {}).get(client, ())) else "!"
            lines.append(f"{mark} {client}: {name}: {one_line(by_way[BURNISH][name])}")
        lines += [f"{NONE} {client}: {number} × {text}" for text, number in fallbacks(by_way.get(BURNISH, {}))]
    return "\n".join(lines)


def one_line(test: Outcome) -> str:
    return " ".join((test.why or test.outcome).split())[:SHOWN]


def fallbacks(tests: ByTest) -> list[tuple[str, int]]:
    found: dict[str, int] = {}
    for test in tests.values():
        for text in test.fallbacks:
            found[text[:SHOWN]] = found.get(text[:SHOWN], 0) + 1
    return sorted(found.items(), key=lambda pair: -pair[1])
