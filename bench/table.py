"""A run as text: one table for each quantity, with a row for each model and a column for each contestant.

    print(report(run))
    print(report(run, markdown=True))

Speeds are eager's time over the contestant's in the same rounds, so higher is faster and eager is 1. Means of ratios
are geometric. A dash is a missing measurement; the reasons follow the tables.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from .record import BURNISH, EAGER, TORCH_COMPILE, Overhead, Result, Row, Run

NONE = "—"
WRONG = 100.0
"""From so many times eager's error on, a result is wrong: its speed is marked and counts in no mean."""
FOREIGN = 0.05
"""From this share of the cores on, a note says that other work was using the machine."""
REASON_LENGTH = 150
DEFAULT = "default"
"""The mode of a compiler without an explicit one. Alone it needs no table: the last line of speeds has it."""

Pick = Callable[[Result], float | None]


@dataclass
class Table:
    title: str
    headings: list[str]
    rows: list[list[str]] = field(default_factory=list)
    summary: list[list[str]] = field(default_factory=list)
    """Rows that are set off from the others."""


def geomean(values: Iterable[float | None]) -> float | None:
    """The geometric mean of the values that are not None; None if there are none."""
    known = [value for value in values if value is not None and value > 0]
    return statistics.geometric_mean(known) if known else None


def is_wrong(result: Result) -> bool:
    return result.error_ratio is not None and result.error_ratio >= WRONG


def speed(result: Result) -> float | None:
    return None if is_wrong(result) else result.ratio


def advantage(
    rows: Sequence[Row], other: str, pick: Pick, better_is_less: bool = False, ours: str = BURNISH
) -> list[float]:
    """How many times better Burnish is than another, on each model that both run."""
    found = []
    for row in rows:
        if ours in row.results and other in row.results:
            own, theirs = pick(row.results[ours]), pick(row.results[other])
            if own is not None and theirs is not None and own > 0 and theirs > 0:
                found.append(theirs / own if better_is_less else own / theirs)
    return found


def steady(run: Run, rows: Sequence[Row]) -> Table:
    others = [name for name in run.contestants if name != EAGER]
    table = Table(
        "Steady state: a call of eager, and how many times as fast the others are", ["model", EAGER, *others, "breaks"]
    )
    for row in rows:
        cells = [show_speed(row.results.get(name)) for name in others]
        table.rows.append([row.model, milliseconds(row.results[EAGER].seconds), *cells, whole(row.breaks)])
    by_name = {name: [speed(row.results[name]) for row in rows if name in row.results] for name in others}
    lowest = [min(filter(None, by_name[name]), default=None) for name in others]
    counts = [sum(value is not None for value in by_name[name]) for name in others]
    if len(set(counts)) > 1:
        table.summary.append(["models", "", *map(str, counts), ""])
    table.summary += [
        ["geomean", "", *(times(geomean(by_name[name])) for name in others), ""],
        ["lowest", "", *map(times, lowest), ""],
        over_others("burnish over it", rows, [EAGER, *others], speed) + [""],
    ]
    return table


def modes_table(run: Run, rows: Sequence[Row]) -> Table:
    """Burnish and torch.compile in the same mode, for the modes in which both take part."""
    table = Table(
        "Mode against mode: how many times as fast Burnish is",
        [
            "mode",
            "models",
            "over torch.compile",
            "at least",
            "over eager",
            "at least",
            "torch.compile over eager",
            "first call sooner",
        ],
    )
    for ours in run.contestants:
        kind, _, mode = ours.partition(":")
        theirs = ours.replace(BURNISH, TORCH_COMPILE, 1)
        if kind != BURNISH or theirs not in run.contestants:
            continue
        over_theirs, over_eager = advantage(rows, theirs, speed, ours=ours), advantage(rows, EAGER, speed, ours=ours)
        table.rows.append(
            [
                mode or DEFAULT,
                str(len(over_theirs)),
                times(geomean(over_theirs)),
                times(min(over_theirs, default=None)),
                times(geomean(over_eager)),
                times(min(over_eager, default=None)),
                times(mean_of(rows, theirs, speed)),
                times(geomean(advantage(rows, theirs, first_call, better_is_less=True, ours=ours))),
            ]
        )
    return table


def first_call(result: Result) -> float | None:
    return result.first_call


def over_others(title: str, rows: Sequence[Row], names: Sequence[str], pick: Pick, less: bool = False) -> list[str]:
    cells = [NONE if name == BURNISH else times(geomean(advantage(rows, name, pick, less))) for name in names]
    return [title, *cells]


def seconds_table(title: str, run: Run, rows: Sequence[Row], pick: Pick) -> Table:
    names = run.contestants
    table = Table(title, ["model", *names])
    for row in rows:
        table.rows.append([row.model, *(show(row.results.get(name), pick, seconds) for name in names)])
    table.summary.append(["geomean", *(seconds(mean_of(rows, name, pick)) for name in names)])
    if BURNISH in names:
        table.summary.append(over_others("burnish sooner", rows, names, pick, less=True))
        least = [min(advantage(rows, name, pick, True), default=None) for name in names]
        table.summary.append(
            ["at least", *(NONE if name == BURNISH else times(value) for name, value in zip(names, least, strict=True))]
        )
    return table


def memory_table(title: str, run: Run, rows: Sequence[Row], pick: Pick) -> Table:
    """Eager in megabytes, the others as multiples of it."""
    others = [name for name in run.contestants if name != EAGER]
    table = Table(title, ["model", EAGER, *others])
    shares: dict[str, list[float | None]] = {name: [] for name in others}
    for row in rows:
        eager = pick(row.results[EAGER])
        cells = []
        for name in others:
            share = over(pick(row.results[name]) if name in row.results else None, eager)
            shares[name].append(share)
            cells.append(times(share))
        table.rows.append([row.model, NONE if eager is None else f"{eager / 2**20:.0f} MB", *cells])
    table.summary.append(["geomean", "", *(times(geomean(shares[name])) for name in others)])
    return table


def error_table(run: Run, rows: Sequence[Row]) -> Table:
    others = [name for name in run.contestants if name != EAGER]
    table = Table("Error against float64: eager's, and the others as multiples of it", ["model", EAGER, *others])
    for row in rows:
        cells = [show(row.results.get(name), lambda result: result.error_ratio, times) for name in others]
        error = row.results[EAGER].error
        table.rows.append([row.model, NONE if error is None else f"{error:.1e}", *cells])
    largest = [
        max(
            (
                row.results[name].error_ratio
                for row in rows
                if name in row.results and row.results[name].error_ratio is not None
            ),
            default=None,
        )
        for name in others
    ]
    table.summary.append(["largest", "", *map(times, largest)])
    return table


def overhead_table(run: Run) -> Table:
    names = list(dict.fromkeys(name for found in run.overheads for name in (*found.over, *found.why)))
    table = Table("Overhead of a call over eager's, in µs (negative: faster than eager)", ["program", EAGER, *names])
    for found in run.overheads:
        table.rows.append(
            [
                found.program,
                f"{found.eager * 1e6:.1f}",
                *(f"{found.over[name] * 1e6:+.1f}" if name in found.over else NONE for name in names),
            ]
        )
    return table


def beyond_table(run: Run) -> Table:
    names = list(dict.fromkeys(name for found in run.overheads for name in found.beyond))
    table = Table("What a call costs beyond its graph alone, in µs", ["program", *names])
    for found in run.overheads:
        table.rows.append(
            [found.program, *(f"{found.beyond[name] * 1e6:.2f}" if name in found.beyond else NONE for name in names)]
        )
    stacks = [found for found in run.overheads if 0 < found.modules == found.parameters]
    wide = [found for found in run.overheads if found.modules == 1]
    for title, group in (("each module with a parameter", stacks), ("each further parameter", wide)):
        slopes = [slope(group, name) for name in names]
        if any(each is not None for each in slopes):
            table.summary.append([title, *(NONE if each is None else f"{each * 1e6:.3f}" for each in slopes)])
    return table


def slope(overheads: Sequence[Overhead], name: str) -> float | None:
    """Seconds for each further parameter, by least squares; None for fewer than two points."""
    points = [(found.parameters, found.beyond[name]) for found in overheads if name in found.beyond]
    return statistics.linear_regression(*zip(*points, strict=True)).slope if len(points) > 1 else None


def tables(run: Run) -> list[Table]:
    found = []
    rows = [row for row in run.rows if row.results.get(EAGER) and row.results[EAGER].seconds is not None]
    if rows:
        found.append(steady(run, rows))
        by_mode = modes_table(run, rows)
        if by_mode.rows and [mode for mode, *_ in by_mode.rows] != [DEFAULT]:
            found.append(by_mode)
        first = "First two steps" if all(row.mode == "train-step" for row in rows) else "First call"
        found.append(seconds_table(f"{first}, imports aside (an export included)", run, rows, first_call))
        if any(result.warm is not None for row in rows for result in row.results.values()):
            found.append(
                seconds_table(
                    f"{first} with warm caches, imports aside",
                    run,
                    rows,
                    lambda result: result.warm and result.warm.first_call,
                )
            )
        if any(result.cold is not None for row in rows for result in row.results.values()):
            found += [
                seconds_table(
                    "From the start of a process to the first result",
                    run,
                    rows,
                    lambda result: result.cold and result.cold.process,
                ),
                memory_table(
                    "Peak memory of that process: eager, and multiples of it",
                    run,
                    rows,
                    lambda result: result.cold and float(result.cold.memory_peak),
                ),
                memory_table(
                    "Peak memory of later calls: eager, and multiples of it",
                    run,
                    rows,
                    lambda result: result.cold and float(result.cold.memory_steady),
                ),
            ]
        found.append(error_table(run, rows))
    if run.overheads:
        found.append(overhead_table(run))
        if any(overhead.beyond for overhead in run.overheads):
            found.append(beyond_table(run))
    return found


def then_and_now(now: Run, then: Run) -> Table:
    """How Burnish's speed over eager and its first call changed since another run."""
    table = Table("Burnish then and now", ["model", "speed then", "now", "change", "first call then", "now", "change"])
    before = {(row.model, row.mode): row.results.get(BURNISH) for row in then.rows}
    changes: tuple[list[float | None], list[float | None]] = ([], [])
    for row in now.rows:
        old, new = before.get((row.model, row.mode)), row.results.get(BURNISH)
        if old is None or new is None:
            continue
        faster, sooner = over(speed(new), speed(old)), over(old.first_call, new.first_call)
        changes[0].append(faster)
        changes[1].append(sooner)
        table.rows.append(
            [
                row.model,
                times(speed(old)),
                times(speed(new)),
                times(faster),
                seconds(old.first_call),
                seconds(new.first_call),
                times(sooner),
            ]
        )
    table.summary.append(["geomean", "", "", times(geomean(changes[0])), "", "", times(geomean(changes[1]))])
    return table


def notes(run: Run) -> list[str]:
    """Reasons for dashes, and warnings about the numbers."""
    found = []
    for row in run.rows:
        reasons: dict[str, list[str]] = {}
        for name, result in row.results.items():
            if result.why is not None:
                reasons.setdefault(result.why, []).append(name)
            if is_wrong(result):
                found.append(
                    f"! {row.model}, {name}: its result is {times(result.error_ratio)} eager's error away "
                    f"from float64; its speed counts in no mean"
                )
            found += [f"{row.model}, {name}: {text}" for text in result.details.get("warnings", ())]
        found += [f"{NONE} {row.model}, {', '.join(names)}: {why[:REASON_LENGTH]}" for why, names in reasons.items()]
        unknown = {result.why_no_error for result in row.results.values() if result.why_no_error}
        found += [f"{NONE} {row.model}, error: {why[:REASON_LENGTH]}" for why in unknown]
        loads = [row.foreign_load, *(result.cold and result.cold.foreign_load for result in row.results.values())]
        most = max(filter(None, loads), default=0.0)
        if most >= FOREIGN:
            found.append(f"{row.model}: other work took up to {most:.0%} of the cores; do not trust these numbers")
    for overhead in run.overheads:
        found += [f"{NONE} {overhead.program}, {name}: {why[:REASON_LENGTH]}" for name, why in overhead.why.items()]
    return found


def headline(run: Run) -> str:
    machine, settings = run.machine, run.settings
    on_gpu = settings.get("device", "cpu") != "cpu"
    where = f"{machine.get('gpu')} (timed by its events), " if on_gpu else ""
    where += f"{settings['dtype']}, " if settings.get("dtype") else ""
    return (
        f"{where}{machine.get('cpu')}, {machine.get('torch_threads')} threads, torch "
        f"{machine.get('packages', {}).get('torch')}, {settings.get('mode')}, "
        f"{settings.get('rounds')} rounds of {settings.get('seconds')} s blocks, {machine.get('when')}"
    )


def report(run: Run, markdown: bool = False, then: Run | None = None) -> str:
    parts = [headline(run)]
    found = tables(run)
    if then is not None:
        found.append(then_and_now(run, then))
    parts += [as_markdown(table) if markdown else as_text(table) for table in found]
    texts = notes(run)
    if texts:
        parts.append("\n".join(f"- {text}" for text in texts) if markdown else "\n".join(texts))
    return "\n\n".join(parts)


def as_text(table: Table) -> str:
    """Columns as wide as necessary; a contestant's variant is below its name."""
    heads = [heading.partition(":") for heading in table.headings]
    lines = [[name for name, _, _ in heads]]
    if any(variant for _, _, variant in heads):
        lines.append([variant for _, _, variant in heads])
    widths = [max(map(len, column)) for column in zip(*lines, *table.rows, *table.summary, strict=True)]

    def line(cells: Sequence[str]) -> str:
        first, *others = cells
        return "  ".join(
            [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        ).rstrip()

    rule = "─" * (sum(widths) + 2 * (len(widths) - 1))
    parts = [table.title, rule, *map(line, lines), rule, *map(line, table.rows)]
    if table.summary:
        parts += [rule, *map(line, table.summary)]
    return "\n".join(parts)


def as_markdown(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    bold = [[f"**{cell}**" if cell else "" for cell in row] for row in table.summary]
    rule = ["---", *["---:"] * (len(table.headings) - 1)]
    return "\n".join([f"**{table.title}**", "", *map(line, [table.headings, rule, *table.rows, *bold])])


def mean_of(rows: Sequence[Row], name: str, pick: Pick) -> float | None:
    return geomean(pick(row.results[name]) for row in rows if name in row.results)


def over(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def show(result: Result | None, pick: Pick, form: Callable[[float | None], str]) -> str:
    return NONE if result is None else form(pick(result))


def show_speed(result: Result | None) -> str:
    return NONE if result is None else times(result.ratio) + "!" * is_wrong(result)


def times(value: float | None) -> str:
    if value is None:
        return NONE
    if math.isinf(value):
        return "∞"
    return f"{value:.2f}×" if value < 100 else f"{value:.0f}×"


def seconds(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.3f} s" if value < 10 else f"{value:.1f} s"


def milliseconds(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value * 1e3:.2f} ms" if value < 0.1 else f"{value * 1e3:.0f} ms"


def whole(value: int | None) -> str:
    return NONE if value is None else str(value)
