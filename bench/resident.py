"""The resident memory of a process after some calls of a model in inference, for each way to run it.

    python -m bench.resident bert resnet50      eager, compiled, and compiled with the option `release_weights`

Each is measured in a process of its own, with a cache that an earlier process has filled: the memory of a compiler that
runs is not counted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile

WAYS = {"eager": None, "burnish": {}, "burnish with release_weights": {"release_weights": True}}
CALLS = 14


def measured(model: str, way: str) -> int:
    """In this process."""
    import torch

    from .memory import give_back, memory
    from .models import MODELS

    module, args, kwargs = MODELS[model]()
    options = WAYS[way]
    run = module
    if options is not None:
        import burnish

        run = burnish.compile(module, options={"never_slower": False, **options})
    with torch.no_grad():
        for _ in range(CALLS):
            run(*args, **kwargs)
    give_back()
    return memory("VmRSS")


def in_process(model: str, way: str, folder: str) -> int:
    environment = {**os.environ, "BURNISH_CACHE_DIR": folder}
    command = [sys.executable, "-m", "bench.resident", model, "--way", way]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()[-1])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("bench.resident", description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("model", nargs="+")
    parser.add_argument("--way", choices=WAYS, help="only this one, in this process")
    asked = parser.parse_args(arguments)
    if asked.way is not None:
        print(measured(asked.model[0], asked.way))
        return 0
    for model in asked.model:
        with tempfile.TemporaryDirectory() as folder:
            in_process(model, "burnish", folder)
            eager, *others = (in_process(model, way, folder) for way in WAYS)
        shares = ", ".join(f"{way} {other / eager:.2f}x" for way, other in zip([*WAYS][1:], others, strict=True))
        print(f"{model}: eager {eager >> 20} MB; {shares}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
