"""The documentation pages about graph breaks, generated from the catalog so that the two cannot differ.

python -m tests.breaks.break_pages        write docs/breaks.md
"""

from __future__ import annotations

from pathlib import Path

from burnish.capture.breaks import CATALOG
from burnish.capture.breaks.break_kind import GROUPS, BreakKind

PAGES = Path(__file__).resolve().parents[2] / "docs" / "breaks.md"

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

<!-- Written by `python -m tests.breaks.break_pages` from the catalog in src/burnish/capture/breaks. -->
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


if __name__ == "__main__":
    PAGES.write_text(write_pages(), encoding="utf-8")
