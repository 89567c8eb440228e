"""The recipes of the developer pages work as printed: each is applied to its toy and then unregistered."""

import contextlib
import io
import re

import pytest

from burnish.capture.breaks.break_kind import CATALOG
from burnish.capture.interpreter.opcodes import handler_registry
from burnish.capture.python import builtin_functions
from burnish.lower import pipeline
from burnish.ops import import_all_operators
from burnish.ops.operator_record import RECORDS
from burnish.schedule.library import autotune_library_calls
from burnish.tensors import dtypes

from . import pages

PAGE = pages.DOCS / "dev" / "recipes.md"
TEXT = PAGE.read_text("utf-8")
RECIPES = re.findall(r"^## (Add .+)$", TEXT, re.MULTILINE)
TABLES_OF_DTYPES = [table for name, table in vars(dtypes).items() if name.isupper() and isinstance(table, (dict, set))]
TABLES = (
    CATALOG,
    RECORDS,
    autotune_library_calls._WAYS,
    builtin_functions.PYTHON_FUNCTIONS,
    *TABLES_OF_DTYPES,
    handler_registry.HANDLERS,
    handler_registry.REFUSED,
    handler_registry.RESOLVERS,
)
"""The tables in which recipes register."""

assert import_all_operators  # its import fills RECORDS


@pytest.fixture
def taken_back(monkeypatch):
    monkeypatch.setattr(pipeline, "PASSES", pipeline.PASSES)
    monkeypatch.setattr(autotune_library_calls.memory, "pinned", None)
    before = [table.copy() for table in TABLES]
    scope = {"__name__": "recipe"}
    yield scope
    if "library" in scope:
        scope["library"]._destroy()
    for table, known in zip(TABLES, before, strict=True):
        table.clear()
        table.update(known)


def test_there_are_eight_recipes():
    assert len(RECIPES) == 8


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_works_as_printed(recipe, taken_back):
    section = pages.section_of(TEXT, recipe)
    line = TEXT[: TEXT.index(section)].count("\n")
    snippets = pages.snippets_of(section)
    assert any(snippet.output is not None or "assert" in snippet.code.body for snippet in snippets)
    for snippet in snippets:
        printed = io.StringIO()
        # Padded, so that tracebacks and breaks show the line of the page.
        code = "\n" * (line + snippet.code.line - 1) + snippet.code.body
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(PAGE), "exec"), taken_back)
        if snippet.output is not None:
            assert pages.matches(snippet.output, printed.getvalue()), printed.getvalue()


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_names_the_files_to_touch(recipe):
    touched = [row[0] for row in pages.rows_of(TEXT, recipe)]
    assert touched and all("`" in cell or "file" in cell for cell in touched)
