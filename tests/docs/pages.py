"""The pages under docs/, taken apart: fenced blocks, headings, links. Everything here works on text alone.

    ```python title="model.py"          a snippet; it runs under that file name, so that messages name model.py
    ```text title="Output"              what the snippet right before it prints; `…` stands for anything

`run_page.py` runs the snippets of one page, `test_snippets.py` every page, `test_site.py` reads the rest.
"""

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
OUTPUT = 'title="Output"'

FENCE = re.compile(r"^```(?P<language>[\w-]*) *(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<!!)\[[^\]\n]*(?:\n[^\]\n]*)?\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    language: str
    info: str
    body: str
    line: int  # of the page, where the body begins
    start: int
    end: int

    @property
    def title(self) -> str | None:
        found = re.search(r'title="([^"]+)"', self.info)
        return found.group(1) if found else None


@dataclass(frozen=True)
class Snippet:
    code: Block
    output: str | None  # what it prints, where the page shows that


def blocks_of(text: str) -> list[Block]:
    return [
        Block(
            found["language"],
            found["info"].strip(),
            found["body"],
            text.count("\n", 0, found.start("body")) + 1,
            found.start(),
            found.end(),
        )
        for found in FENCE.finditer(text)
    ]


def snippets_of(text: str) -> list[Snippet]:
    """The Python of a page in order, each with the output that is shown right below it."""
    blocks = blocks_of(text)
    found = []
    for block, following in zip(blocks, [*blocks[1:], None], strict=False):
        if block.language != "python":
            continue
        shown = following is not None and is_output(following) and not text[block.end : following.start].strip()
        found.append(Snippet(block, following.body if shown else None))
    return found


def is_output(block: Block) -> bool:
    return block.language == "text" and block.info == OUTPUT


def prose_of(text: str) -> str:
    """The page without its fenced blocks; lines keep their numbers."""
    return FENCE.sub(lambda found: "\n" * found.group().count("\n"), text)


def matches(shown: str, printed: str) -> bool:
    """Whether a program printed what the page shows. `…` stands for anything; spaces at the end of a line do not
    matter."""
    shown, printed = ("\n".join(map(str.rstrip, text.strip().splitlines())) for text in (shown, printed))
    pattern = ".*?".join(map(re.escape, shown.split("…")))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


def anchors_of(text: str) -> set[str]:
    """The targets of links on a page: headings, as mkdocs names them, and explicit anchors."""
    prose = prose_of(text)
    found = set(re.findall(r'<a id="([^"]+)">', prose))
    for title in re.findall(r"^#{1,6} +(.+?)\s*$", prose, re.MULTILINE):
        explicit = re.search(r"\{ *#([\w-]+) *\}$", title)
        name = explicit.group(1) if explicit else slug(title)
        count = 0
        while (numbered := f"{name}_{count}" if count else name) in found:
            count += 1
        found.add(numbered)
    return found


def slug(title: str) -> str:
    """The anchor that Python-Markdown's table of contents makes of a heading."""
    plain = unicodedata.normalize("NFKD", title.replace("`", "")).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def links_of(text: str) -> list[str]:
    return LINK.findall(prose_of(text))


def rows_of(text: str, heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its head."""
    section = re.split(rf"^#+ +{re.escape(heading)}\s*$", prose_of(text), maxsplit=1, flags=re.MULTILINE)[1]
    section = re.split(r"^#+ ", section, maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line.strip() for line in section.splitlines() if line.strip().startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def section_of(text: str, heading: str) -> str:
    """A heading's text, with its snippets, up to the next heading of its kind or above."""
    outside = FENCE.sub(
        lambda found: re.sub(r"[^\n]", " ", found.group()), text
    )  # comments in snippets begin with # too
    level = re.search(rf"^(#+) +{re.escape(heading)}\s*$", outside, re.MULTILINE)
    following = re.compile(rf"^#{{1,{len(level.group(1))}}} ", re.MULTILINE).search(outside, level.end())
    return text[level.end() : following.start() if following else None]
