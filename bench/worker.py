"""One process of the benchmark, which the conductor starts and listens to.

    python -m bench.worker '{"kind": "cold", "model": "bert", "contestants": ["burnish"], …}'

The imports at the top are those that every contestant needs: a process that times a start must not import the others.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import caches
from .contestants import contestant_of
from .job import Job, Message, Tell, one_line
from .memory import forget_peak, give_back, memory
from .record import Cold, Row, finite

STEADY_CALLS = 5


def cold(job: Job, tell: Tell) -> Cold:
    """Measure one contestant alone, from the start of the process."""
    (name,) = job.contestants
    tell({"stage": "starts", "contestant": name})
    os.environ.update(caches.variables(caches.folder_of(job.caches, name)))
    begun = time.monotonic()
    import torch  # noqa: F401

    torch_imported = time.monotonic()
    from .workload import Workload

    set_threads(job)
    work = Workload.of(job.model, job.mode, job.times, job.dropout, job.device, job.dtype)
    contestant = contestant_of(name)
    with work.grad_mode():
        side = work.side(contestant, alone=True)
        built, memory_built = time.monotonic(), memory("VmRSS")
        contestant.bring()
        brought = time.monotonic()
        side.prepare()
        side.begin()
        first = time.monotonic()
        give_back()
        compiling_peak = memory("VmHWM")
        forget_peak()
        for _ in range(STEADY_CALLS):
            side.call_and_wait()
        steady_peak = memory("VmHWM")
    return Cold(
        process=first - job.spawned,
        torch_import=torch_imported - begun,
        build=built - torch_imported,
        own_import=brought - built,
        first_call=first - brought,
        memory_built=memory_built,
        memory_peak=max(compiling_peak, steady_peak),
        memory_steady=steady_peak,
    )


def steady(job: Job, tell: Tell) -> Row:
    from .side_by_side import SideBySide

    set_threads(job)
    return SideBySide(job, tell).row()


def overhead(job: Job, tell: Tell) -> list[dict[str, Any]]:
    from .overhead import forget, measure, programs

    set_threads(job)
    os.environ.update(caches.variables(Path(job.caches)))
    found = []
    for name, modules, fn in programs():
        tell({"stage": f"calls {name}"})
        found.append(dataclasses.asdict(measure(name, modules, fn, job.rounds, job.seconds)))
        forget()
    return found


def set_threads(job: Job) -> None:
    import torch

    if job.threads is not None:
        torch.set_num_threads(job.threads)


KINDS: dict[str, Callable[[Job, Tell], Any]] = {"cold": cold, "steady": steady, "overhead": overhead}


def main() -> int:
    job = Job(**json.loads(sys.argv[1]))
    os.set_inheritable(job.messages, False)
    with os.fdopen(job.messages, "w", encoding="utf-8", buffering=1) as messages:

        def tell(message: Message) -> None:
            messages.write(json.dumps(finite(message)) + "\n")

        try:
            result = KINDS[job.kind](job, tell)
        except Exception as error:
            traceback.print_exc()
            tell({"failed": one_line(error)})
            return 1
        tell({"result": dataclasses.asdict(result) if dataclasses.is_dataclass(result) else result})
    return 0


if __name__ == "__main__":
    sys.exit(main())
