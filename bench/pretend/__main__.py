"""Run Python with a pretended GPU: `python -m bench.pretend -m bench bert --device cuda`."""

import os
import subprocess
import sys

from . import surroundings, why_not

if __name__ == "__main__":
    if (reason := why_not()) is not None:
        sys.exit(f"no GPU can be pretended here: {reason}")
    if len(sys.argv) < 2:
        sys.exit("there is no program to run. For example: python -m bench.pretend -m bench bert --device cuda")
    command = [sys.executable, *sys.argv[1:]]
    sys.exit(subprocess.run(command, env={**os.environ, **surroundings()}, check=False).returncode)
