"""Tables and bars by rich, where it is installed (`pip install burnish[rich]`) and the output is a terminal.

    console = console_on(sys.stdout)
    print("\n".join(table_lines(rows))) if console is None else console.print(table(rows))

Texts are shown as they are: brackets in them are not taken for markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .subscribe_while_enabled import is_terminal

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table


def console_on(stream: Any, width: int | None = None) -> Console | None:
    """None where plain text is to be written."""
    if not is_terminal(stream):
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None

    console = Console(file=stream, width=width, highlight=False, markup=False, emoji=False)
    return None if console.is_dumb_terminal else console


def table(rows: Sequence[Sequence[str]]) -> Table:
    """The first row has the titles. The first column is aligned to the left, the others to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD)
    for number, title in enumerate(rows[0]):
        made.add_column(Text(title), justify="right" if number else "left", no_wrap=number > 0)
    for row in rows[1:]:
        made.add_row(*map(Text, row))
    return made


def table_between_lines(
    above: Sequence[str], rows: Sequence[Sequence[str]], below: Sequence[str] = ()
) -> RenderableType:
    """A table between lines of text: what `rich.print` shows of an object."""
    from rich.console import Group
    from rich.text import Text

    return Group(*map(Text, above), table(rows), *map(Text, below))


def grid_of(cells: Sequence[tuple[str, int | None, str]]) -> Table:
    """A line of cells, each with its width and style. Long texts are wrapped inside their cells."""
    from rich.table import Table
    from rich.text import Text

    line = Table.grid(padding=(0, 1))
    for _, width, style in cells:
        line.add_column(width=width, style=style)
    line.add_row(*(Text(text) for text, _, _ in cells))
    return line


def bar_line(console: Console, part: float, text: str, cells: int, columns: int) -> str:
    """A fraction of 1 as a bar, and a text beside it, with the codes of this terminal."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    line = Table.grid(padding=(0, 2))
    line.add_row(ProgressBar(total=1.0, completed=part, width=cells), Text(text, no_wrap=True, overflow="ellipsis"))
    console.width = columns
    with console.capture() as captured:
        console.print(line)
    return captured.get().rstrip("\n")
