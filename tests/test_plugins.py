"""Plug-ins of installed packages: the three of the page work, and one that fails costs a warning."""

import importlib.metadata
import os
import sys
import threading
import tomllib

import pytest

from burnish.compiler import graph_cache_key
from burnish.foundation import plugins

from .docs import pages
from .forked_programs import TORCH, run_program

PAGE = (pages.DOCS / "plugins.md").read_text("utf-8")

PROGRAM = """
import torch, toy_plugin, burnish
from burnish import events
from burnish.foundation import plugins

plans = []
events.subscribe(lambda event: plans.append(str(event.data["plan"])), {"loops"})
fused = burnish.compile(lambda x: torch.ops.toy_plugin.hinge(x * 2, 1.0).exp())
product = burnish.compile(torch.nn.functional.linear)
x, weight = torch.linspace(-1, 1, 64).reshape(8, 8), torch.randn(4, 8)
with burnish.report("report.html"):
    for _ in range(2):
        torch.testing.assert_close(fused(x), (1 - x * 2).clamp(min=0).exp())
        torch.testing.assert_close(product(x, weight), x @ weight.T)
assert "exp(max(" in plans[0], plans[0]

from burnish.schedule.library.autotune_library_calls import candidates
from burnish.schedule.library.call_specs import LinearSpec
from burnish.tensors.tensor_types import TensorType
f32 = [TensorType.contiguous(shape, torch.float32) for shape in ((8, 8), (4, 8))]
assert [c.name for c in candidates(LinearSpec(*f32))].count("toy linear") == 1
assert "toy=toy_plugin:register 1.5" in plugins.identity_for_compiler()
"""


@pytest.fixture
def installed(tmp_path):
    """The package of the page, as pip would install it."""
    code = [block for block in pages.blocks_of(PAGE) if block.title == "toy_plugin.py"]
    (project,) = (tomllib.loads(block.body) for block in pages.blocks_of(PAGE) if block.title == "pyproject.toml")
    (tmp_path / "toy_plugin.py").write_text("\n".join(block.body for block in code))
    info = tmp_path / "toy_plugin-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-plugin\nVersion: 1.5\n")
    groups = project["project"]["entry-points"]
    groups["burnish.report"]["Broken"] = "toy_plugin:no_such_function"
    text = ""
    for group, points in groups.items():
        text += f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
    (info / "entry_points.txt").write_text(text)
    return tmp_path


def test_plugins_of_a_package_are_found_and_used(installed, monkeypatch):
    monkeypatch.chdir(installed)
    environment = {**os.environ, "PYTHONPATH": f"{installed}{os.pathsep}{os.environ['PYTHONPATH']}"}
    run = run_program(PROGRAM, environment=environment, prepare=TORCH)
    assert "The plug-in Broken (toy_plugin:no_such_function) failed, and is left out" in run.stderr
    page = (installed / "report.html").read_text()
    assert '"title":"Longest lines","columns":["Line","Step"],"rows":[["' in page and '"title":"Broken"' not in page


class Point(importlib.metadata.EntryPoint):
    """An entry point whose function is given."""

    def load(self):
        return self.value


@pytest.fixture
def register(monkeypatch):
    """Makes a function the only plug-in of the compiler, in a process that has called none."""

    def make(function):
        point = Point("mine", function, "burnish.compiler")
        monkeypatch.setattr(plugins, "entry_points", lambda group: (point,) * (group == "compiler"))
        monkeypatch.setattr(plugins, "_started", {})
        monkeypatch.setattr(plugins, "_failed", [])

    return make


def test_identity_imports_nothing_and_knows_each_file(tmp_path, monkeypatch):
    package = tmp_path / "plug_in_that_raises"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError")
    (package / "recipes.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    point = importlib.metadata.EntryPoint("mine", "plug_in_that_raises.register:all", "burnish.compiler")
    before = plugins._identity(point)
    assert before == plugins._identity(point)
    os.utime(package / "recipes.py", ns=(1, 1))
    assert plugins._identity(point) != before and "plug_in_that_raises" not in sys.modules


def test_failed_plug_in_is_part_of_the_key(register):
    register(sys.exit)
    before = graph_cache_key.surroundings()
    with pytest.warns(RuntimeWarning, match="The plug-in mine .* is left out: SystemExit"):
        assert plugins.start_in_compiler()
    assert graph_cache_key.surroundings() != before


def test_no_thread_waits_for_a_plug_in(register):
    answers = []

    def waits_for_another_thread():
        other = threading.Thread(target=lambda: answers.append(plugins.start_in_compiler()), daemon=True)
        other.start()
        other.join(10)

    register(waits_for_another_thread)
    assert plugins.start_in_compiler()
    assert answers == [False], "what it compiles is not stored"
