"""The documentation pages about graph breaks, generated from the catalog so that the two cannot differ.

python -m burnish.capture.breaks.pages            write docs/breaks.md
python -m burnish.capture.breaks.pages --check    fail when docs/breaks.md is out of date
python -m burnish.capture.breaks.pages B101       print the page of one break
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from . import CATALOG
from .break_kind import GROUPS, BreakKind
from .break_record import labelled

PAGES = Path(__file__).resolve().parents[4] / "docs" / "breaks.md"

INTRODUCTION = """\
# Graph breaks

Burnish records the torch operations of a function into a graph and runs the graph from the second call on. Where it
meets something that cannot be part of a graph, the graph ends: a **graph break**. The step in question runs as plain
Python, every time, and the next graph begins right after it.

A break never changes a result. It costs speed: operations before and after it are not optimized together, and Python
runs in between. One break in a large model hardly matters. One in each layer, or in the innermost loop, does.

- `print(burnish.explain(fn)(*args))` lists the breaks of a function with the line of each.
- `burnish.compile(fn, fullgraph=True)` turns the first break into an error.
- `burnish breaks B101` prints one of the pages below.

In the examples `fn` is the function that is compiled.

<!-- Written by `python -m burnish.capture.breaks.pages` from the catalog in src/burnish/capture/breaks. -->
"""


def write_pages() -> str:
    """The whole of docs/breaks.md."""
    parts = [INTRODUCTION]
    for prefix, group in GROUPS.items():
        parts.append(f"## {group}\n\n" + "\n".join(map(index_line, members(prefix))) + "\n")
        parts += map(write_page, members(prefix))
    return "\n".join(parts)


def members(prefix: str) -> list[BreakKind]:
    return [CATALOG[code] for code in sorted(CATALOG) if code.startswith(prefix)]


def index_line(kind: BreakKind) -> str:
    return f"- [{kind.code}](#{kind.code.lower()}) {kind.title}"


def write_page(kind: BreakKind) -> str:
    # The anchor is the code alone: links survive a reworded title.
    return f"""\
<a id="{kind.code.lower()}"></a>
### {kind.code} {kind.name}: {kind.title}

**Why.** {kind.why}

**What to do.** {kind.what_to_do}

Breaks:

```python
{kind.broken}```

Does not break:

```python
{kind.fixed}```
"""


def print_page(kind: BreakKind) -> str:
    """One page for a terminal."""
    examples = [
        f"  {label}\n\n" + "".join(f"    {line}".rstrip() + "\n" for line in code.splitlines())
        for label, code in (("Breaks:", kind.broken), ("Does not break:", kind.fixed))
    ]
    prose = labelled("Why", kind.why) + labelled("What to do", kind.what_to_do)
    return "\n".join([f"{kind.code} {kind.name}: {kind.title}", "", *prose, "", *examples])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m burnish.capture.breaks.pages", description="The pages about breaks."
    )
    parser.add_argument("codes", nargs="*", metavar="code", help="print the page of this break, for example B101")
    parser.add_argument("--check", action="store_true", help="write nothing, fail when the file is stale")
    parser.add_argument("--file", type=Path, default=PAGES, help="the file to write (default: docs/breaks.md)")
    chosen = parser.parse_args(arguments)
    kinds = [CATALOG.get(code.upper()) for code in chosen.codes]
    if None in kinds:
        unknown = chosen.codes[kinds.index(None)]
        parser.error(f"there is no break {unknown}; known are {', '.join(sorted(CATALOG))}")
    if kinds:
        print("\n".join(map(print_page, kinds)))
        return 0
    if not chosen.file.parent.is_dir():
        parser.error(f"{chosen.file.parent} does not exist: run this in a checkout, or name a file with --file")
    if chosen.check:
        fresh = chosen.file.is_file() and chosen.file.read_text(encoding="utf-8") == write_pages()
        if not fresh:
            print(f"{chosen.file} is stale: run python -m burnish.capture.breaks.pages", file=sys.stderr)
        return 0 if fresh else 1
    chosen.file.write_text(write_pages(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
