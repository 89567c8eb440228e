"""The seven questions of a newcomer: each command of the page prints what the page says."""

import os
import runpy
import sys

import pytest

from burnish import settings
from burnish.cli import command_line

from . import pages

PAGE = (pages.DOCS / "questions.md").read_text("utf-8")
BLOCKS = pages.blocks_of(PAGE)
COMMANDS = [
    (block.body.strip(), following.body)
    for block, following in zip(BLOCKS, BLOCKS[1:], strict=False)
    if block.language == "sh" and following.info == pages.OUTPUT
]
QUESTIONS = [line for line in PAGE.splitlines() if line.startswith("## ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With the programs of the page."""
    made = tmp_path_factory.mktemp("questions")
    for block in BLOCKS:
        if block.title and block.title.endswith(".py"):
            (made / block.title).write_text(block.body)
    return made


def test_there_are_seven_questions_and_each_shows_what_is_printed():
    assert len(QUESTIONS) == 7 and all(question.endswith("?") for question in QUESTIONS)
    for question in QUESTIONS[:1] + QUESTIONS[2:]:  # the first answers the second as well
        section = PAGE[PAGE.index(question) :].split("\n## ")[0]
        assert "```sh" in section and pages.OUTPUT in section


@pytest.mark.parametrize(
    ("command", "output"),
    [
        pytest.param(*each, id=each[0], marks=[pytest.mark.slow] * each[0].startswith("burnish bisect"))
        for each in COMMANDS
    ],
)
def test_command_prints_what_the_page_says(command, output, folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    for name in [name for name in os.environ if name.startswith("BURNISH_")]:
        monkeypatch.delenv(name)  # doctor shows them
    program, *arguments = command.split()
    monkeypatch.setattr(sys, "argv", [program, *arguments])
    with settings.patch(check=False, on_error="fallback", cache_dir=folder / "cache"):
        try:
            if program == "python":
                runpy.run_path(arguments[0], run_name="__main__")
            else:
                command_line.main(arguments)
        except SystemExit as end:
            assert not end.code
    printed = capsys.readouterr()
    assert pages.matches(output, printed.out + printed.err), printed.out + printed.err
