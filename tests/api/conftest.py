"""Fixtures that run programs in processes of their own."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


@pytest.fixture
def run_alone():
    """Runs a program in its own interpreter, with further environment variables; returns its output."""

    def run(program, status=0, **environment):
        root = Path(__file__).resolve().parents[2]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("BURNISH_")}
        environment = {**inherited, "PYTHONPATH": str(root / "src"), **environment}
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == status, done.stderr
        return done.stdout, done.stderr

    return run
