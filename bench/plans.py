"""Golden plans: the compiled plans of each model as text, to compare after a change that must not change them.

    python -m bench.plans record DIR                       all models, before the change
    python -m bench.plans compare DIR                      after it: prints differences, and fails if there are any
    python -m bench.plans record DIR --only bert,mlp

    DIR/bert-inference-packed.txt     the stages of one program, as `bench.plan_text` writes them
    DIR/code/0f3c….ll                 kernels as LLVM text, by digest

Plans do not depend on timing: in place of measurements, a rule chooses among library calls and our own kernels
(RULES). They do depend on the processor and on the versions of torch and LLVM, so they are recorded on the machine on
which they are compared. A model is compiled for inference, and for forward and backward; some also for symbolic sizes
and as a whole training step.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import multiprocessing
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from .plan_text import Written, written

HEAD = "## "
THREADS = 2
"""Plans depend on the number of threads."""
TRAINING_TIMES = 2
"""Batches for training: batch norm cannot train on one sample."""
OPEN = "open"
"""The mode that compiles inference for many sizes."""
LINES = 60
PROCESSES = 2

RULES = ("first", "packed", "last")
"""Which candidate counts as the fastest: eager's own call, the first that prepares its weights, or the last that
works, which is our own kernel if there is one. `last` also treats channels-last convolutions as the faster ones."""
SECONDS_PER_OPERATION = 1e-11

MODES = {"inference": RULES, OPEN: ("first",), "train": ("first", "last"), "train-step": ("last",)}
"""Modes with their rules. Weights that change are not packed, and for symbolic sizes there are no measurements."""
ONLY = {"train-step": ("mlp", "nanogpt", "resnet18"), OPEN: ("pointwise", "bert", "gpt2", "mlp", "lstm")}
"""The models compiled in these modes: for others they mostly add time. A whole step includes the optimizer."""


def programs(name: str) -> Iterator[tuple[str, str]]:
    """The modes and rules that a model is compiled with."""
    for mode, rules in MODES.items():
        if name in ONLY.get(mode, (name,)):
            yield from ((mode, rule) for rule in rules)


# -- choices that are the same in every run ----------------------------------------------------------------------------


@contextlib.contextmanager
def pinned(rule: str) -> Iterator[None]:
    """Inside the block a rule chooses candidates; compiled code is kept, and nothing is read from disk."""
    import burnish
    from burnish.schedule.library.autotune_library_calls import memory

    memory.pinned = lambda candidates: measured(candidates, rule)
    try:
        with burnish.settings.patch(never_slower=False, cache=False):
            yield
    finally:
        memory.pinned = None


def measured(candidates: Sequence[Any], rule: str) -> Any:
    """Measurements in which only the rule's candidate works."""
    from burnish.schedule.library.measure_candidates import Measurement

    ordered = list(candidates)
    if rule == "last":
        ordered.reverse()
    elif rule == "packed":
        ordered.sort(key=lambda candidate: candidate.prepare is None or candidate.steps is not None)
    taken = next(candidate for candidate in ordered if candidate is candidates[0] or is_working(candidate))
    return Measurement({taken.name: taken.spec.flops * SECONDS_PER_OPERATION * share(taken.spec, rule)})


def is_working(candidate: Any) -> bool:
    from burnish.schedule.library.measure_candidates import random_tensor, warm_up_candidate

    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        try:
            warm_up_candidate(candidate, {name: random_tensor(type) for name, type in candidate.spec.inputs.items()})
        except Exception:
            return False
    return True


def share(spec: Any, rule: str) -> float:
    """The share of a pretended time that all operations of a kind take. The rule `last` makes cheap what is otherwise
    rarely chosen: channels-last memory, and products for the gradients of windows of one pixel."""
    from burnish.schedule.layouts.channels_last_strides import is_channels_last
    from burnish.schedule.library.call_specs import ConvSpec, LinearSpec

    if rule != "last":
        return 1.0
    spec = getattr(spec, "conv", spec)
    if isinstance(spec, ConvSpec):
        return 0.5 if is_channels_last(spec.x) else 1.0
    return 0.25 if isinstance(spec, LinearSpec) else 1.0


# -- recording ---------------------------------------------------------------------------------------------------------


def text_of(compiled: Callable[[], Any], rule: str) -> Written:
    """The stages of everything that is compiled during a call."""
    import burnish

    burnish.reset()
    torch.manual_seed(0)
    with pinned(rule), written() as found:
        compiled()
    burnish.reset()
    return found


def text_of_model(name: str, mode: str, rule: str) -> Written:
    import burnish

    from .contestants import contestant_of

    work = workload(name, "inference" if mode == OPEN else mode)
    side = work.side(contestant_of("burnish"), alone=True)

    def call() -> None:
        with work.grad_mode():
            side.prepare()
            if mode == OPEN:
                side.compiled = burnish.compile(side.part(), dynamic=True)
            side.begin()

    return text_of(call, rule)


@functools.lru_cache(maxsize=1)
def workload(name: str, mode: str) -> Any:
    """A cached workload: generating weights takes as long as compiling a model, and plans do not depend on them."""
    from .workload import Workload

    return Workload.of(name, mode, times=None if mode == "inference" else TRAINING_TIMES)


def write(folder: Path, program: str, found: Written) -> None:
    (folder / "code").mkdir(parents=True, exist_ok=True)
    parts = [f"{HEAD}{stage.title}\n{stage.body}\n" for stage in found.stages]
    (folder / f"{program}.txt").write_text("\n".join(parts), encoding="utf-8")
    for key, text in found.code.items():
        (folder / "code" / f"{key}.ll").write_text(text, encoding="utf-8")


def record_model(folder: Path, name: str) -> str:
    """Record a model in a process of the pool. Returns the line to print."""
    torch.set_num_threads(THREADS)
    start, count = time.perf_counter(), 0
    for mode, rule in programs(name):
        found = text_of_model(name, mode, rule)
        count += sum(stage.body.count("\n") for stage in found.stages)
        write(folder, f"{name}-{mode}-{rule}", found)
    return f"{name:16} {count:8} lines  {time.perf_counter() - start:6.1f} s"


def record(folder: Path, names: Sequence[str], processes: int = PROCESSES) -> list[str]:
    """Record models. Returns those that could not be built or compiled, and why."""
    failed = []
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        futures = {name: pool.submit(record_model, folder, name) for name in names}
        for name, future in futures.items():
            try:
                print(future.result(), flush=True)
            except Exception as error:
                failed.append(f"{name}: {type(error).__name__}: {error}")
                print(failed[-1], flush=True)
    return failed


# -- comparing ---------------------------------------------------------------------------------------------------------


def stages_in(text: str) -> list[tuple[str, str]]:
    """Titles and bodies."""
    parts = re.split(rf"^{HEAD}", text, flags=re.MULTILINE)[1:]
    return [(title, body.strip("\n")) for title, _, body in (part.partition("\n") for part in parts)]


def differences(folder: Path, other: Path, program: str, lines: int = LINES) -> Iterator[str]:
    """The changes from one record to the other, a text for each stage."""
    before, after = (place / f"{program}.txt" for place in (folder, other))
    if not before.exists() or not after.exists():
        yield f"{program}: {'not in the record' if after.exists() else 'not compiled any more'}"
        return
    old, new = (stages_in(path.read_text(encoding="utf-8")) for path in (before, after))
    if [title for title, _ in old] != [title for title, _ in new]:
        yield f"{program}: there were {len(old)} stages, now there are {len(new)}\n" + cut(
            difflib.unified_diff(
                [title for title, _ in old], [title for title, _ in new], "before", "after", lineterm=""
            ),
            lines,
        )
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, i, k, j, m in matcher.get_opcodes():
        if tag == "equal":
            continue
        for at in range(max(k - i, m - j)):
            a = old[i + at] if i + at < k else ("", "")
            b = new[j + at] if j + at < m else ("", "")
            where = f"{program}, stage {(i if b == ('', '') else j) + at + 1} ({a[0] or b[0]})"
            yield f"{where}\n" + cut(
                difflib.unified_diff(a[1].splitlines(), b[1].splitlines(), "before", "after", lineterm=""), lines
            )
            if a[0] == b[0] == "kernels":
                yield from changed_code(folder, other, a[1], b[1], lines)


def changed_code(folder: Path, other: Path, before: str, after: str, lines: int) -> Iterator[str]:
    """The LLVM text of kernels at the same position with different digests."""
    for old, new in zip(before.splitlines(), after.splitlines(), strict=False):
        if old != new:
            texts = [
                (place / "code" / f"{line.rpartition(' ')[2]}.ll").read_text(encoding="utf-8").splitlines()
                for place, line in ((folder, old), (other, new))
            ]
            yield f"{new.partition(':')[0]}, LLVM\n" + cut(
                difflib.unified_diff(*texts, "before", "after", lineterm=""), lines
            )


def cut(diff: Iterator[str], lines: int) -> str:
    found = list(diff)
    more = [f"… and {len(found) - lines} more lines"] if len(found) > lines else []
    return "\n".join([*found[:lines], *more])


def compare(folder: Path, names: Sequence[str], processes: int = PROCESSES, lines: int = LINES) -> int:
    """How many programs are compiled differently from the record."""
    changed = 0
    with tempfile.TemporaryDirectory() as place:
        other = Path(place)
        failed = record(other, names, processes)
        expected = [f"{name}-{mode}-{rule}" for name in names for mode, rule in programs(name)]
        compared = [
            program
            for program in expected
            if (folder / f"{program}.txt").exists() or (other / f"{program}.txt").exists()
        ]
        for program in compared:
            found = list(differences(folder, other, program, lines))
            changed += bool(found)
            for text in found:
                print(text, end="\n\n", flush=True)
    print(
        f"{len(compared) - changed} of {len(compared)} programs are compiled as recorded"
        + f", {len(failed)} models failed" * bool(failed)
    )
    return changed + len(failed)


def main(arguments: Sequence[str] | None = None) -> int:
    from .models import MODELS

    parser = argparse.ArgumentParser(
        "python -m bench.plans", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default=",".join(MODELS), help="names of models, with commas")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--lines", type=int, default=LINES, help="so many lines of each difference are printed")
    asked = parser.parse_args(arguments)
    names = asked.only.split(",")
    unknown = set(names) - set(MODELS)
    if unknown:
        parser.error(f"no model is called {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    if asked.what == "record":
        asked.folder.mkdir(parents=True, exist_ok=True)
        return int(bool(record(asked.folder, names, asked.processes)))
    if not asked.folder.is_dir():
        parser.error(f"{asked.folder} is not a record")
    return int(bool(compare(asked.folder, names, asked.processes, asked.lines)))


if __name__ == "__main__":
    sys.exit(main())
