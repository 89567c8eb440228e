"""The documentation site is complete: links resolve, tables list all names, the menu lists all pages."""

import dataclasses
import importlib.util
import inspect
import posixpath
import re
import subprocess
import sys

import pytest
import torch
import torch.compiler

import burnish
from burnish import settings
from burnish.capture.breaks import CATALOG
from burnish.cli.command_line import _parser
from burnish.frontend import modes_and_options

from ..browser import browser, why_no_browser
from . import pages

PAGES = {page.relative_to(pages.DOCS).as_posix(): page.read_text("utf-8") for page in sorted(pages.DOCS.rglob("*.md"))}
MKDOCS = pages.DOCS.parent / "mkdocs.yml"
each_page = pytest.mark.parametrize("name", PAGES)
NEWEST = (2, 15)  # the torch whose names the tables were written for


def text_in_code(cell):
    return re.search(r"`([^`]+)`", cell).group(1)


def column(page, heading):
    return [text_in_code(row[0]) for row in pages.rows_of(PAGES[page], heading)]


# ---- links


@each_page
def test_links_and_anchors_of_a_page_resolve(name):
    for link in pages.links_of(PAGES[name]):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), target)) if target else name
        assert target in PAGES, f"{link}: no such page"
        if anchor:
            assert anchor in pages.anchors_of(PAGES[target]), f"{link}: no such heading"


@each_page
def test_codes_of_breaks_that_a_page_names_exist(name):
    defined = set(re.findall(r'^    "(B\d+)",$', PAGES[name], re.MULTILINE))  # of a toy
    assert set(re.findall(r"\bB[1-5]\d\d\b", PAGES[name])) <= set(CATALOG) | defined


def test_the_menu_has_every_page_once():
    named = re.findall(r": ([\w/-]+\.md)$", MKDOCS.read_text("utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(PAGES)


def test_anchors_are_found_as_the_site_names_them():
    text = '# A `b.c_d` & e: f\n\n## Same\n\n## Same\n\n<a id="b101"></a>\n```sh\n# no heading\n```\n'
    assert pages.anchors_of(text) == {"a-bc_d-e-f", "same", "same_1", "b101"}


def test_a_link_over_two_lines_is_found():
    assert pages.links_of("see [a\nb](c.md#d) and `[x](y.md)`\n```\n[no](no.md)\n```\n") == ["c.md#d", "y.md"]


def test_the_site_builds_without_a_warning(tmp_path):
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        pytest.skip("the site is built by what `pip install burnish[docs]` brings")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=MKDOCS.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for page in PAGES:
        html = (tmp_path / "site" / page.replace(".md", ".html")).read_text("utf-8")
        assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="https?:', html), "the site loads from elsewhere"
    if why_no_browser() is None:
        search_in_files(tmp_path / "site")


def search_in_files(site):
    """Pages that are opened as files can be searched, without a network."""
    with browser() as started:
        for name in ("getting-started.html", "dev/guards.html"):
            page, asked = started.new_page(), []
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.goto((site / name).as_uri())
            page.keyboard.press("/")
            page.keyboard.type("recompile")
            page.wait_for_selector(".md-search-result__item", state="attached")
            assert {url.partition(":")[0] for url in asked} <= {"file", "about", "data", "blob"}


# ---- names of torch


def test_every_name_of_torch_compiler_is_in_the_table():
    named = column("from-torch-compile.md", "Names of `torch.compiler`")
    assert len(named) == len(set(named))
    assert set(torch.compiler.__all__) <= set(named)
    assert torch_version() != NEWEST or set(named) == set(torch.compiler.__all__)


def test_every_parameter_of_torch_compile_is_in_the_table():
    named = column("from-torch-compile.md", "Parameters of `torch.compile`")
    parameters = inspect.signature(torch.compile).parameters
    assert set(parameters) <= set(named)
    assert torch_version() != NEWEST or set(named) == set(parameters)


def test_the_table_says_which_parameters_are_ours():
    for row in pages.rows_of(PAGES["from-torch-compile.md"], "Parameters of `torch.compile`"):
        is_ours = text_in_code(row[0]) in inspect.signature(burnish.compile).parameters
        assert (row[1] == "none") is not is_ours, row


@pytest.mark.parametrize("heading", ["Names of `torch.compiler`", "Other names"])
def test_names_of_ours_in_the_tables_exist(heading):
    for row in pages.rows_of(PAGES["from-torch-compile.md"], heading):
        for name in re.findall(r"`burnish\.(\w+)", row[1]):
            assert name in burnish.__all__, row


def torch_version():
    return tuple(map(int, torch.__version__.split(".")[:2]))


# ---- names of ours


def test_every_public_name_has_a_section_of_the_reference():
    sections = re.findall(r"^### burnish\.(\w+)$", PAGES["reference.md"], re.MULTILINE)
    assert len(sections) == len(set(sections))
    assert set(sections) == set(burnish.__all__)


@pytest.mark.parametrize(
    "name", [name for name in burnish.__all__ if inspect.isroutine(getattr(burnish, name)) or name == "set_stance"]
)
def test_a_section_of_the_reference_shows_the_signature(name):
    section = pages.section_of(PAGES["reference.md"], f"burnish.{name}")
    shown = re.search(rf"^`{name}\((.*)\)`$", section, re.MULTILINE).group(1)
    signature = inspect.signature(getattr(burnish, name))
    plain = signature.replace(
        return_annotation=inspect.Signature.empty,
        parameters=[
            parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()
        ],
    )
    assert shown.replace('"', "'") == str(plain)[1:-1]
    explained = section.replace(shown, "", 1)
    refers = "modes-and-options.md#arguments-of-burnishcompile" in section
    for parameter in signature.parameters:
        assert (
            refers
            or parameter in ("model", "module", "fn", "path")
            or re.search(rf"`{parameter}\b", explained)
            or f"{parameter}=" in explained
        ), f"{parameter} is not explained"


def test_the_arguments_of_compile_are_in_the_table_with_their_defaults():
    shown = {
        text_in_code(row[0]): row[1].strip("`")
        for row in pages.rows_of(PAGES["modes-and-options.md"], "Arguments of `burnish.compile`")
    }
    parameters = inspect.signature(burnish.compile).parameters
    assert shown == {
        name: repr(parameter.default).replace("'", '"') for name, parameter in parameters.items() if name != "model"
    }


def test_every_setting_is_in_the_table_with_its_default():
    shown = {
        text_in_code(row[0]): row[1].strip("`") for row in pages.rows_of(PAGES["modes-and-options.md"], "Settings")
    }
    assert list(shown) == [field.name for field in dataclasses.fields(settings.Settings)]
    for field in dataclasses.fields(settings.Settings):
        assert shown[field.name] == (repr(field.default).replace("'", '"') if field.name != "show" else "nothing")


def test_every_stage_that_can_be_shown_is_named():
    shown = re.search(r"^Stages of `show`: (.*)\.$", PAGES["modes-and-options.md"], re.MULTILINE).group(1)
    assert tuple(re.findall(r"`(\w+)`", shown)) == settings.STAGES


def test_modes_and_options_are_in_the_tables():
    assert column("modes-and-options.md", "Modes") == list(modes_and_options.MODES)
    assert column("modes-and-options.md", "Options") == list(modes_and_options.OURS)
    for name, (counterpart, _) in modes_and_options.COUNTERPARTS.items():
        section = pages.section_of(PAGES["modes-and-options.md"], "Options")
        assert f"`{name}`" in section and f"`{counterpart}`" in section


def test_every_stance_is_in_the_table():
    from burnish.frontend.stance import STANCES

    assert tuple(column("reference.md", "burnish.set_stance")) == STANCES


@each_page
def test_commands_that_a_page_shows_are_understood(name):
    for block in pages.blocks_of(PAGES[name]):
        for line in block.body.splitlines() if block.language == "sh" else ():
            words = line.partition("#")[0].split()
            if words[:1] == ["burnish"] and words[1:] != ["--version"]:  # which ends the process
                _parser().parse_args(words[1:])
            elif words[:1] == ["make"]:
                assert f"\n{words[1]}:" in (MKDOCS.parent / "Makefile").read_text("utf-8")
