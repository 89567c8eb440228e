"""The package as users get it: sdist and wheel are built, installed beside torch and llvmlite alone, and used."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

PROGRAM = """
import sys, torch, burnish
from pathlib import Path

assert "wheel-environment" in burnish.__file__, burnish.__file__
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
compiled, x = burnish.compile(model), torch.randn(4, 8)
with burnish.report("report.html"):
    for _ in range(3):
        torch.testing.assert_close(compiled(x), model(x))
        compiled(x).sum().backward()
assert burnish.was_compiled(compiled) and Path("report.html").read_text().startswith("<!doctype html>")
with torch.no_grad():
    burnish.save(model, "model.burnish", (x,))
    torch.testing.assert_close(burnish.load("model.burnish")(x), model(x))
assert not {"numpy", "scipy", "rich"} & set(sys.modules)
"""


def packages_of(names):
    """The files and folders, in site-packages, of these distributions and of what they require."""
    found, waiting = {}, list(names)
    while waiting:
        name = re.split(r"[^\w.-]", waiting.pop(), maxsplit=1)[0]
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for other systems
        if distribution.name not in found:
            tops = {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}
            found[distribution.name] = {Path(distribution.locate_file(top)) for top in tops}
            waiting += [line for line in distribution.requires or [] if "extra ==" not in line]
    return set().union(*found.values())


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A wheel of an sdist of the files that git has, as `python -m build` makes it, with this environment's setuptools:
    nothing is downloaded."""
    folder = tmp_path_factory.mktemp("package")
    copy = folder / "checkout"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "out", "site"))
    build = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
    command = [sys.executable, "-c", build]
    subprocess.run([*command, "build_sdist", str(folder)], cwd=copy, check=True, capture_output=True)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    subprocess.run(
        [sys.executable, "-c", build, "build_wheel", str(folder)], cwd=source, check=True, capture_output=True
    )
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def python(built, tmp_path_factory):
    """An environment with the wheel, torch, llvmlite and what these require, and nothing else."""
    home = tmp_path_factory.mktemp("wheel-environment")
    venv.create(home, with_pip=True)
    made = home / "bin" / "python"
    subprocess.run([made, "-m", "pip", "install", "-q", "--no-deps", "--no-index", built[1]], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    for path in packages_of(["torch", "llvmlite"]):
        if path.exists() and not (packages / path.name).exists():
            (packages / path.name).symlink_to(path)
    return made


@pytest.mark.slow
def test_wheel_holds_what_it_needs_and_says_what_it_is(built):
    sdist, wheel = built
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    assert {"burnish/py.typed", "burnish/report/page/report.js", "burnish/report/page/report.html"} <= names
    assert not [name for name in names if not name.startswith(("burnish/", "burnish-"))]
    for line in (
        "Name: burnish",
        "Summary: ",
        "Requires-Python: >=3.11",
        "License-Expression: ",
        "Requires-Dist: torch",
    ):
        assert f"\n{line}" in metadata
    assert "# Burnish" in metadata  # the README is the description


@pytest.mark.slow
def test_wheel_works_beside_torch_and_llvmlite_alone(python, tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BURNISH"))}
    environment["BURNISH_CACHE_DIR"] = str(tmp_path / "cache")

    def run(*command):
        return subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout

    run(python, "-c", PROGRAM)
    command = python.with_name("burnish")
    assert run(command, "--version").startswith("burnish ")
    assert "FAILS" not in run(command, "doctor") and "B101" in run(command, "breaks", "B101")
