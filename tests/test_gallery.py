"""The programs of the gallery run as they are, each in a process of its own; each checks its results itself."""

import ast
import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

GALLERY = Path(__file__).resolve().parents[1] / "examples"
PROGRAMS = sorted(GALLERY.glob("*.py"))
each_program = pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
NEEDED = {"fastapi": ["httpx"], "transformers": ["accelerate"]}


def missing(path):
    """What a program needs and is not here: packages that it imports, or that these need, and what builds C."""
    if path.with_suffix(".c").exists():
        has_library = sysconfig.get_config_var("Py_ENABLE_SHARED")
        header = Path(sysconfig.get_path("include"), "Python.h")
        needed = {"a C compiler": shutil.which("cc"), "a shared libpython": has_library, "Python.h": header.exists()}
        return [name for name, found in needed.items() if not found]
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    tops = {name.partition(".")[0] for name in names}
    tops |= {other for name in tops for other in NEEDED.get(name, ())}
    return [name for name in sorted(tops) if importlib.util.find_spec(name) is None]


def test_there_are_ten_and_the_list_has_each():
    listed = (GALLERY / "README.md").read_text()
    assert len(PROGRAMS) == 10 and all(f"[{path.name}]({path.name})" in listed for path in PROGRAMS)


@pytest.mark.slow
@each_program
def test_program_of_the_gallery_runs(path, tmp_path):
    if absent := missing(path):
        pytest.skip(f"needs {', '.join(absent)}")
    run = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout, run.stderr
