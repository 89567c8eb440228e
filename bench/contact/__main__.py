"""The command line: see the package."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import pretend
from ..apart import ROOT

SETTINGS = {
    "BURNISH_NEVER_SLOWER": "0",  # kernels are checked even where eager is faster
    "BURNISH_ON_ERROR": "raise",
    "BURNISH_CACHE": "0",
    "BURNISH_COMPILE_WORKERS": "2",  # several checks run at once
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # a process that forks must not have touched the GPU
}
PRETENDED = "BURNISH_CONTACT_PRETENDED"
RERUNS = 3
"""How many failing checks are run once more, under a tool that reports more."""
FAULTS = ("CUDA error", "illegal", "misaligned", "CUDA driver", "invalid device context")


def parser() -> argparse.ArgumentParser:
    from .commands import COMMANDS

    made = argparse.ArgumentParser(prog="python -m bench.contact", description=sys.modules[__package__].__doc__,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    made.add_argument("command", choices=COMMANDS)
    made.add_argument("--minutes", type=float, help="of the whole command")
    made.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or ROOT / "bench" / "out" / "contact"))
    made.add_argument("--only", default="", help="checks whose name contains one of these words, with commas between")
    made.add_argument("--at-once", type=int, help="checks that run side by side")
    made.add_argument("--rehearse", action="store_true", help="in small, without a GPU: whether everything is in place")
    made.add_argument("--one", help=argparse.SUPPRESS)
    made.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return made


def places(folder: Path, check: Any, is_rehearsal: bool) -> Sequence[Callable[[], Any]]:
    from .place import Place

    if not is_rehearsal:
        return [lambda: contextlib.nullcontext(Place(folder, "cuda"))]

    @contextlib.contextmanager
    def in_the_interpreter() -> Iterator[Place]:
        sys.path.append(str(ROOT))
        from tests.gpu.simulated_gpu import interpreted

        with interpreted():
            yield Place(folder, "cpu", is_rehearsal=True)

    pretended = Place(folder, "cuda", computes=False, is_rehearsal=True)
    return [lambda: contextlib.nullcontext(pretended), *([in_the_interpreter] if check.interpreted else [])]


def reruns_of(checks: Sequence[Any]) -> list[Any]:
    """Failed checks to repeat, under the sanitizer or with blocking launches."""
    import shutil

    from .commands import STRICT

    tool = STRICT if shutil.which("compute-sanitizer") else ""
    waits = (("CUDA_LAUNCH_BLOCKING", "1"),)
    return [
        replace(check, name=f"{check.name} again", tool=tool or "env", seconds=45, alone=False, environment=waits)
        for check in checks[:RERUNS]
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.rehearse and os.environ.get(PRETENDED) is None:
        if (reason := pretend.why_not()) is not None:
            print(f"nothing to rehearse on: {reason}", file=sys.stderr)
            return 2
        # The library has to exist before torch is loaded, and its file as long as processes start.
        words = [sys.executable, "-m", "bench.contact", *(sys.argv[1:] if arguments is None else arguments)]
        import subprocess

        return subprocess.run(words, env={**os.environ, **SETTINGS, **pretend.surroundings(), PRETENDED: "1"}, cwd=ROOT,
                              check=False).returncode  # fmt: skip
    os.environ.update(SETTINGS)
    import torch

    from .check_runner import Runner
    from .commands import COMMANDS, MINUTES

    if options.rehearse:
        torch.backends.cuda.enable_cudnn_sdp(False)  # its plans are not part of the pretended GPU
        torch.set_num_threads(1)
    checks = COMMANDS[options.command]()
    wanted = [word for word in options.only.split(",") if word]
    checks = [check for check in checks if not wanted or any(word in check.name for word in wanted)]
    cores = len(os.sched_getaffinity(0))
    runner = Runner(
        options.command,
        options.out.absolute(),
        options.minutes or (30.0 if options.rehearse else MINUTES[options.command]),
        options.rehearse,
        options.at_once or max(1, min(6, cores // 2)),
        functools.partial(places, is_rehearsal=options.rehearse),
    )
    return run(runner, checks, options)


def run(runner: Any, checks: Sequence[Any], options: argparse.Namespace) -> int:
    if options.one:
        name = options.one.removesuffix(" again")
        (check,) = [check for check in checks if check.name == name]
        return runner.perform(check, options.folder)
    if runner.is_rehearsal:
        checks = [replace(check, seconds=20 * check.seconds, tool="") for check in checks]  # its speed does not matter
    runner.run(checks[:1])
    if runner.failed and checks[0].run and not runner.is_rehearsal:
        runner.forks = False
        runner.run(checks[:1])
    last = [check for check in checks[1:] if check.command]
    runner.run([check for check in checks[1:] if not check.command])
    failed = {line["name"]: line["error"] for line in runner.lines if line["ok"] is False}
    faulty = [check for check in runner.failed if check.run and any(word in failed[check.name] for word in FAULTS)]
    if not runner.is_rehearsal and not any(check.tool for check in faulty):
        runner.run(reruns_of(faulty))
    runner.run(last)
    wrong = [line["name"] for line in runner.lines if line["ok"] is False]
    missed = [line["name"] for line in runner.lines if line["ok"] is None]
    print(f"{sum(line['ok'] is True for line in runner.lines)} good, wrong: {wrong}, not reached: {missed}", flush=True)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
