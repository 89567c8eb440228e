"""A client's virtual environment and sources, in a folder outside the repository.

    environment = prepare(PROJECTS["kornia"], Path("~/.cache/clients"), "https://github.com/{owner}/{name}")
    environment.python, environment.sources

The environment sees the packages of the one that runs this, through a .pth file: torch is not installed again, and the
client's own versions of anything else come first.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .projects import Project

PLUGIN = Path(__file__).with_name("plugin")


@dataclass(frozen=True)
class Environment:
    python: Path
    sources: Path
    version: str


class NotPrepared(Exception):
    """The client cannot be installed, or its sources are not to be had."""


def prepare(project: Project, folder: Path, git: str) -> Environment:
    """git: the address of a repository, with {owner} and {name}."""
    python = make_environment(folder / "venv")
    name = project.package if project.version is None else f"{project.package}=={project.version}"
    run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", name, *project.packages])
    show = f"import importlib.metadata; print(importlib.metadata.version({project.package!r}))"
    version = run([python, "-c", show]).strip()
    sources = folder / "sources" / version
    if not sources.exists():
        owner, _, name = project.repository.partition("/")
        fetch(git.format(owner=owner, name=name), project.tag.format(version=version), project.paths, sources)
    for file, text, instead in project.edits:
        path = sources / file
        path.write_text(path.read_text().replace(text, instead))
    return Environment(python, sources, version)


def make_environment(folder: Path) -> Path:
    """Its Python. The environment is made unless it is there."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    packages = run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
    Path(packages, "burnish_clients.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def fetch(address: str, tag: str, paths: Sequence[str], sources: Path) -> None:
    """The files of one tag. Only `paths` are kept: the package itself is the installed one."""
    partial = sources.with_name(sources.name + ".partial")
    run(["rm", "-rf", partial])
    sources.parent.mkdir(parents=True, exist_ok=True)
    clone = ["git", "-c", "advice.detachedHead=false", "clone", "--quiet", "--depth", "1", "--no-checkout"]
    run([*clone, "--branch", tag, address, partial])
    known = run(["git", "-C", partial, "ls-tree", "--name-only", tag]).split()
    wanted = [path for path in paths if path.partition("/")[0] in known]
    run(["git", "-C", partial, "checkout", "--quiet", tag, "--", *wanted])
    partial.rename(sources)


def run(command: Sequence[str | Path], limit: float = 1200.0) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=limit)
    if done.returncode:
        raise NotPrepared(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout
