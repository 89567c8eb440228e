"""Every example of the ecosystem pages runs, each page from top to bottom in one scope."""

import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs").glob("ecosystem*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": page.stem}
    text = page.read_text(encoding="utf-8")
    blocks = list(re.finditer(r"```python\n(.*?)```", text, re.DOTALL))
    assert blocks
    for block in blocks:
        # Padded, so that a traceback shows the line of the page.
        lines = "\n" * text.count("\n", 0, block.start(1)) + block.group(1)
        exec(compile(lines, page.name, "exec"), scope)
