"""Fixtures that run programs in processes of their own."""

import os
import textwrap

import pytest

from ..forked_programs import READY, run_program


@pytest.fixture
def run_alone():
    """Runs a program in its own process, with further environment variables; returns its output."""

    def run(program, status=0, prepare=READY, **environment):
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("BURNISH_")}
        inherited |= environment
        done = run_program(textwrap.dedent(program), ends=(status,), environment=inherited, prepare=prepare)
        return done.stdout, done.stderr

    return run
