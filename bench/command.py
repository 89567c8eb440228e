"""`burnish bench`: its arguments, and the order of its steps.

    burnish bench bert resnet50 --against eager,torch.compile,onnxruntime --json out.json --plot out.svg
    burnish bench --train
    burnish bench --overhead
    burnish bench --limits bert
    burnish bench llama_1b --device cuda --dtype bf16 --modes default,reduce-overhead
    burnish bench --read out.json --compare before.json

Eager and Burnish always take part. The JSON file is rewritten after each model, so an interrupted run keeps the
results so far.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from burnish.errors import BurnishError, UserError, did_you_mean

from .conductor import Conductor, Plan
from .contestants import COMPILER_MODES, TORCH_COMPILE, UnknownContestant, contestant_of
from .large import LARGE
from .machine import describe
from .models import FUNCTIONS, MODELS
from .plot import plot, why_not_plot
from .progress import Progress
from .record import BURNISH, EAGER, Overhead, Run
from .table import report

DEFAULT_AGAINST = "eager,torch.compile"
INTERRUPTED = 130
DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    if options.limits:
        from . import limits

        limits.show(chosen_models(options), options.dtype, options.threads)
        return 0
    then = read(options.compare) if options.compare else None
    why = why_not_plot(options.plot) if options.plot else None
    if why is not None:
        raise UserError(why)
    if options.json:
        writable(options.json)
    if options.read:
        run = read(options.read)
        status = 0
    else:
        run = Run(describe(), {}, contestants(options.against, options.modes))
        status = measure(run, options)
    if options.plot and run.rows:
        plot(run, options.plot)
    print(report(run, options.markdown, then))
    return status


def measure(run: Run, options: argparse.Namespace) -> int:
    """Fill the run, model by model. The status is 1 if Burnish failed on a model that eager runs."""
    models = chosen_models(options)
    mode = "train-step" if options.train_step else "train" if options.train else "inference"
    starts = 0 if options.steady_only else options.starts
    plan = Plan(
        run.contestants,
        mode,
        options.batch,
        not options.no_dropout,
        options.device,
        options.dtype,
        options.threads,
        options.rounds,
        options.seconds,
        starts,
        options.warm,
        options.limit,
    )
    run.settings.update(asdict(plan))
    run.machine["torch_threads"] = plan.threads or run.machine["torch_threads"]
    with Progress(len(models) + options.overhead) as progress, terminated_as_interrupted():
        conductor = Conductor(plan, progress)
        try:
            if options.overhead:
                progress.begin("overhead")
                run.overheads = overheads(conductor)
                progress.finish()
                keep(run, options)
            for model in models:
                progress.begin(model)
                run.rows.append(conductor.row(model))
                progress.finish()
                keep(run, options)
        except KeyboardInterrupt:
            progress.clear()
            print(f"Interrupted; {len(run.rows)} of {len(models)} models are measured.", file=sys.stderr)
            return INTERRUPTED
    return 1 if any(row.results[BURNISH].why and row.results[EAGER].why is None for row in run.rows) else 0


def overheads(conductor: Conductor) -> list[Overhead]:
    from .overhead import CONTESTANTS

    try:
        return conductor.overheads(list(CONTESTANTS))
    except RuntimeError as error:
        raise BurnishError(str(error)) from error


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """However a run is stopped, the process that it waits for is stopped with it."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def keep(run: Run, options: argparse.Namespace) -> None:
    if options.json:
        run.write(options.json)


def chosen_models(options: argparse.Namespace) -> list[str]:
    able = [name for name in MODELS if not (options.train_step and name in FUNCTIONS)]
    if not options.model:
        return [] if options.overhead else able
    known = [*MODELS, *LARGE]
    for name in options.model:
        if name not in known:
            raise UserError(
                f'There is no model called "{name}".{did_you_mean(name, known)} The models are: {", ".join(known)}.'
            )
        if name not in [*able, *LARGE]:
            raise UserError(f"{name} is a function without weights: there is no step to train.")
    return list(dict.fromkeys(options.model))


def contestants(against: str | None, modes: str | None = None) -> list[str]:
    """The contestants named, and both Burnish and torch.compile in each of the modes."""
    named = names_in(against if against is not None else DEFAULT_AGAINST if modes is None else "")
    for mode in names_in(modes or ""):
        if mode not in COMPILER_MODES:
            raise UserError(
                f'There is no mode called "{mode}".{did_you_mean(mode, COMPILER_MODES)} '
                f"The modes are: {', '.join(COMPILER_MODES)}."
            )
        named += [kind if mode == "default" else f"{kind}:{mode}" for kind in (BURNISH, TORCH_COMPILE)]
    for name in named:
        try:
            contestant_of(name)
        except UnknownContestant as error:
            raise UserError(str(error)) from None
    return list(dict.fromkeys([EAGER, BURNISH, *named]))


def names_in(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def read(path: Path) -> Run:
    try:
        return Run.read(path)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error


def writable(path: Path) -> None:
    """Raise an error if the file cannot be written: now, not after an hour of measuring."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists()
        with path.open("a", encoding="utf-8"):
            pass
        if new:
            path.unlink()
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error}") from error


def device(text: str) -> str:
    """The name of a device that exists."""
    import torch

    try:
        kind = torch.device(text).type
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(f"{text} is not a device: use cpu, cuda or cuda:1") from error
    if kind not in ("cpu", "cuda") or kind == "cuda" and not torch.cuda.is_available():
        raise argparse.ArgumentTypeError(f"torch has no {text} here")
    return text


def dtype(text: str) -> str:
    found = DTYPES.get(text, text)
    if found not in DTYPES.values():
        raise argparse.ArgumentTypeError(f"{text} is not one of {', '.join([*DTYPES, *DTYPES.values()])}")
    return found


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="burnish bench",
        description="Burnish side by side with eager and others, on real models.",
        epilog=f"models: {', '.join(MODELS)}; of the size for a GPU, and not among all of them: {', '.join(LARGE)}",
    )
    made.add_argument("model", nargs="*", help="names of models; all of them without one")
    kind = made.add_mutually_exclusive_group()
    kind.add_argument("--train", action="store_true", help="forward and backward")
    kind.add_argument("--train-step", action="store_true", help="forward, backward and AdamW, all of it compiled")
    made.add_argument(
        "--against",
        metavar="NAMES",
        help="with commas between: eager, torch.compile, torch.compile:max-autotune, "
        "torch.compile:freezing, torch.compile:max-autotune+freezing, onnxruntime, openvino "
        f"(default: {DEFAULT_AGAINST})",
    )
    made.add_argument(
        "--modes",
        metavar="NAMES",
        help="Burnish and torch.compile in each of these, with commas between: "
        f"{', '.join(COMPILER_MODES)}; adds to --against, and stands in for its default",
    )
    made.add_argument(
        "--overhead",
        action="store_true",
        help="what a call costs beyond its work; without models nothing else is measured",
    )
    made.add_argument(
        "--limits",
        action="store_true",
        help="how close each kernel comes to this machine's bandwidth and product rate; inference, without the others",
    )
    made.add_argument("--json", metavar="FILE", type=Path, help="write everything that was measured")
    made.add_argument("--plot", metavar="FILE", type=Path, help="write a picture, PNG or SVG")
    made.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    made.add_argument("--read", metavar="FILE", type=Path, help="measure nothing, show what --json wrote")
    made.add_argument("--compare", metavar="FILE", type=Path, help="show how Burnish changed since this --json")
    made.add_argument(
        "--batch", metavar="N", type=natural, help="so many times each model's usual batch (default: 1, in training 4)"
    )
    made.add_argument("--no-dropout", action="store_true", help="train without dropout, so that errors can be compared")
    made.add_argument(
        "--device",
        default="cpu",
        type=device,
        help="where it runs: cpu, cuda, cuda:1 (default: cpu); a GPU's time is that between two of "
        "its events, a first call's is that on the wall",
    )
    made.add_argument(
        "--dtype", type=dtype, help="of weights and inputs: f32, bf16, f16 (default: as models make them)"
    )
    made.add_argument(
        "--steady-only",
        action="store_true",
        help="no processes for cold starts: quicker, no memory, and a first call among the others'",
    )
    made.add_argument(
        "--starts",
        metavar="N",
        type=natural,
        default=1,
        help="cold starts of each contestant; the middle one counts (default: 1)",
    )
    made.add_argument(
        "--warm", action="store_true", help="as many starts more, with the caches that the cold ones filled"
    )
    made.add_argument("--rounds", metavar="N", type=natural, default=12, help="blocks of each (default: 12)")
    made.add_argument("--seconds", metavar="S", type=float, default=0.25, help="length of a block (default: 0.25)")
    made.add_argument("--threads", metavar="N", type=natural, help="for all (default: what torch chooses)")
    made.add_argument(
        "--limit",
        metavar="S",
        type=float,
        default=1800.0,
        help="how long a process may be silent before it is given up (default: 1800)",
    )
    return made


def natural(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number
