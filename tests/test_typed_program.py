"""What users import is typed: pyright accepts a user's program in strict mode, and finds a mistake in it."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("typed_program.py")
SOURCE = Path(__file__).resolve().parents[1] / "src"


def checked(text, folder):
    (folder / "program.py").write_text(text)
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(SOURCE)], "include": ["program.py"]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return [found["message"] for found in json.loads(run.stdout)["generalDiagnostics"]]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("pyright") is None, reason="needs pyright")
def test_program_passes_in_strict_mode_and_a_mistake_is_found(tmp_path):
    text = PROGRAM.read_text()
    assert checked(text, tmp_path) == []
    (message,) = checked(text.replace("wave(product(x, x), factor=3.0)", "wave(product(x, x), factor='3')"), tmp_path)
    assert '"factor"' in message
