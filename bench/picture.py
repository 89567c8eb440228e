"""The picture of the README: the first table of docs/benchmarks.md as bars.

    python -m bench.picture docs/benchmarks.svg

`burnish bench` measured the table; the page says when, where and with which command. Needs matplotlib.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from .plot import COLOURS, draw
from .record import BURNISH, EAGER, TORCH_COMPILE

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
NUMBER = re.compile(r"[\d.]+")


def rows_of(text: str) -> list[list[str]]:
    """The cells of the first table, without its header and its geometric means."""
    table = re.search(r"^\| model .*\n\|[ :|-]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    if table is None:
        raise SystemExit(f"There is no table of models in {PAGE}.")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.group(1).splitlines()]
    return [row for row in rows if row[0] != "geomean"]


def number(cell: str) -> float:
    return float(NUMBER.search(cell).group())  # type: ignore[union-attr]


def main(path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = "burnish"
    from matplotlib import pyplot

    rows = rows_of(PAGE.read_text(encoding="utf-8"))
    models = [row[0] for row in rows]
    # model, eager's time, speeds of burnish, torch.compile and its best mode, first calls of burnish and torch.compile
    speeds = {
        EAGER: [1.0] * len(rows),
        BURNISH: [number(row[2]) for row in rows],
        TORCH_COMPILE: [number(row[3]) for row in rows],
    }
    firsts = {BURNISH: [number(row[5]) for row in rows], TORCH_COMPILE: [number(row[6]) for row in rows]}
    figure, axes = pyplot.subplots(2, 1, figsize=(11, 6.5))
    draw(axes[0], models, speeds)
    axes[0].set_title("inference on two CPU cores: speed over eager (higher is faster)", loc="left", fontsize=11)
    axes[0].legend(loc="upper left", ncols=3, fontsize=8, frameon=False)
    axes[0].margins(y=0.2)
    COLOURS.setdefault(TORCH_COMPILE, "#30638e")
    draw(axes[1], models, firsts)
    axes[1].set_yscale("log")
    axes[1].set_title("first call in seconds, logarithmic (lower is sooner)", loc="left", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
