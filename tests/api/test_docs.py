"""Documentation against code: names, settings, links and paths exist, and examples give what the pages show."""

import pkgutil
import re
from pathlib import Path

import pytest
import torch

import burnish
from burnish import settings

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "burnish"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md"]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@each_page
def test_names_of_the_api_exist(page):
    names = set(re.findall(r"(?<![\w/.-])burnish\.([a-z_]+)\b(?!\.)", page.read_text(encoding="utf-8")))
    files = {"burnish"}  # model.burnish
    assert not {name for name in names - files if not hasattr(burnish, name) and not (SOURCE / name).is_dir()}


@each_page
def test_environment_variables_are_settings(page):
    named = set(re.findall(r"BURNISH_[A-Z_]+", page.read_text(encoding="utf-8")))
    assert not settings.unknown_variables({name: "" for name in named})


@each_page
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@each_page
def test_files_that_are_named_exist(page):
    capture = {path.name for path in (ROOT / "src" / "burnish").rglob("*.py")} | {"graph.py", "check.py", "finish.py"}
    named = set(re.findall(r"`(?:\w+/)*(\w+\.py)`", page.read_text(encoding="utf-8")))
    assert not {name for name in named if name not in capture and not list(ROOT.glob(f"tests/**/{name}"))}


def test_make_targets_exist():
    rules = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)) <= rules


def test_tour_of_the_readme_prints_the_output_it_shows(capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code = next(block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "Python has to see" in block)
    scope = {"torch": torch, "burnish": burnish}
    exec(compile(code, "model.py", "exec"), scope)
    output = str(burnish.explain(scope["fn"])(torch.ones(100), 2.0))
    shown = re.search(r"```\n(2 graphs.*?)```", text, re.DOTALL).group(1)
    for line in shown.splitlines():
        wanted = line.rstrip("…").strip()
        # The source of a function that was made from a text is not at hand.
        assert wanted in output or wanted == "if y.sum() > 100:" or wanted.endswith(("and", "of an `if`")), wanted


class Config:
    factor = 2.0


config, seen = Config(), []


def step(x):
    y = torch.sin(x) * config.factor
    seen.append(len(seen))
    if y.sum() > 0:
        return y
    return -y


def test_worked_example_of_capture_runs_as_documented():
    compiled = burnish.compile(step, backend="eager")
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(compiled(x), (torch.sin(x) * 2).abs())
    assert seen == [0, 1]
    program = compiled.__burnish_program__
    first = program.entry.segments[-1]
    assert len(program.entry.segments) == 2
    assert "k0(V[0], [0])" in first.finish.__source__ and "len(v5) != 0" in first.check.__source__
    after = [segment for point in program.continuations.values() for segment in point.segments]
    assert sorted(segment.graph_module is not None for segment in after) == [False, True]


HOP = re.compile(r"\| `([a-z_]+(?:\.\w+)+)` \|$", re.MULTILINE)
DEVELOPER_PAGES = sorted((ROOT / "docs" / "dev").glob("*.md"))
each_developer_page = pytest.mark.parametrize("page", DEVELOPER_PAGES, ids=lambda page: page.name)


def test_the_life_of_a_call_has_all_its_hops():
    assert len(HOP.findall((ROOT / "docs" / "dev" / "architecture.md").read_text(encoding="utf-8"))) >= 12


@each_developer_page
def test_tables_of_developer_pages_name_existing_things(page):
    for hop in HOP.findall(page.read_text(encoding="utf-8")):
        pkgutil.resolve_name(f"burnish.{hop}")


@each_developer_page
def test_dotted_names_of_developer_pages_exist(page):
    """`ir.graph.Graph` is found from the package on, and `number_arguments.VALUE_CALLS` a constant of some module."""
    for name in re.findall(r"`((?:\w+\.)+\w+)(?:\(\))?`", page.read_text(encoding="utf-8")):
        *_, module, last = name.split(".")
        if re.fullmatch("[A-Z][A-Z_]+", last):
            texts = [path.read_text(encoding="utf-8") for path in SOURCE.rglob(f"{module}.py")]
            assert any(re.search(rf"^{last}\b", text, re.MULTILINE) for text in texts), name
        elif name.count(".") > 1 and (SOURCE / name.split(".")[0]).exists():
            pkgutil.resolve_name(f"burnish.{name}")


@each_developer_page
def test_decorators_of_developer_pages_are_in_the_files_named_with_them(page):
    for name, path in re.findall(r"`@(\w+)` in `([\w/]+\.py)`", page.read_text(encoding="utf-8")):
        assert re.search(rf"^def {name}\b", (SOURCE / path).read_text(encoding="utf-8"), re.MULTILINE), name


@each_developer_page
def test_paths_of_developer_pages_exist(page):
    for path in re.findall(r"`((?:\w+/)+\w+(?:\.(?:py|md))?)`", page.read_text(encoding="utf-8")):
        base = ROOT if path.split("/")[0] in ("src", "tests", "bench", "docs") else ROOT / "src" / "burnish"
        assert (base / path).exists(), path


@pytest.mark.parametrize("name", ["capture", "guards", "lowering", "scheduling", "codegen", "runtime", "debugging"])
def test_design_pages_are_short_and_have_one_drawing(name):
    text = (ROOT / "docs" / "dev" / f"{name}.md").read_text(encoding="utf-8")
    assert text.count("```mermaid") == 1
    assert len(text.splitlines()) <= 250


def test_readme_stays_on_a_screen_and_a_half():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 100
