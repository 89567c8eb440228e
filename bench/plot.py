"""A run as one picture: the speed relative to eager, and the duration of the first call.

    plot(run, "bench.svg")          # the suffix determines the format, PNG or SVG

Needs matplotlib, which `why_not_plot` checks before anything is measured.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .record import BURNISH, EAGER, Run
from .table import geomean, headline, speed

FORMATS = (".png", ".svg")
COLOURS = {EAGER: "#9aa0a6", BURNISH: "#d1495b"}
OTHERS = ("#30638e", "#5b9bc4", "#a3c4dc", "#edae49", "#66a182", "#8d6a9f")
GEOMEAN = "geomean"


def why_not_plot(path: str | Path) -> str | None:
    if Path(path).suffix.lower() not in FORMATS:
        return f"{path} ends neither in {' nor in '.join(FORMATS)}."
    if importlib.util.find_spec("matplotlib") is None:
        return "A plot needs matplotlib: pip install 'burnish[bench]'"
    return None


def plot(run: Run, path: str | Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    rows = [row for row in run.rows if row.results.get(EAGER) and row.results[EAGER].seconds is not None]
    fast = {
        name: [speed(row.results[name]) if name in row.results else None for row in rows] for name in run.contestants
    }
    first = {
        name: [row.results[name].first_call if name in row.results else None for row in rows]
        for name in run.contestants
    }
    models = [row.model for row in rows]
    figure, axes = pyplot.subplots(2, 1, figsize=(max(8.0, 0.16 * (len(rows) + 2) * len(run.contestants) + 2), 9))
    for axis, values, title in (
        (axes[0], fast, "speed over eager (higher is faster)"),
        (axes[1], first, "first call in seconds, logarithmic (lower is sooner)"),
    ):
        draw(axis, models, values)
        axis.set_title(title, loc="left", fontsize=11)
    axes[0].axhline(1.0, color="#444444", linewidth=0.8)
    axes[1].set_yscale("log")
    axes[0].legend(loc="upper left", ncols=min(4, len(run.contestants)), fontsize=8, frameon=False)
    axes[0].margins(y=0.25)
    figure.suptitle(headline(run), fontsize=8, color="#555555")
    figure.tight_layout()
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def draw(axis: Any, models: Sequence[str], values: dict[str, list[float | None]]) -> None:
    """Groups of bars, the geometric means last and separate. A missing measurement has no bar."""
    width = 0.8 / max(1, len(values))
    places = [*range(len(models)), len(models) + 0.5]
    other_colours = iter(OTHERS * len(values))
    for number, (name, found) in enumerate(values.items()):
        heights = [*found, geomean(found)]
        drawn = [
            (place + (number - (len(values) - 1) / 2) * width, height)
            for place, height in zip(places, heights, strict=True)
            if height is not None
        ]
        colour = COLOURS.get(name) or next(other_colours)
        axis.bar([place for place, _ in drawn], [height for _, height in drawn], width, label=name, color=colour)
    axis.set_xticks(places, [*models, GEOMEAN], rotation=40, ha="right", fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", linewidth=0.3)
    axis.set_axisbelow(True)
