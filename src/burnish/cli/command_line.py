"""The command `burnish`.

    burnish doctor [--all]     what works on this machine
    burnish breaks [CODE ...]  what a break means, and what to do about it
    burnish report SCRIPT ...  run a script, and write what was compiled, why, and where the time went, as a page
    burnish cache info|clear   what earlier processes left on disk; also export FILE and import FILE
    burnish keygen FILE        a key to sign files of burnish.save with
    burnish inspect FILE       what a file of burnish.save holds; --json for programs
    burnish bisect SCRIPT ...  the smallest graph that is not what eager computes, and the rewrite that makes it so
    burnish bisect COMMAND     the rewrite of the compiler that makes a command fail
    burnish bench [MODEL ...]  side by side with eager, torch.compile and others; in a checkout of the source

Exit status: 0 done, 1 something does not work, 2 the command was not understood.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import runpy
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from .. import __version__
from ..errors import BurnishError, UserError, did_you_mean


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        status = options.run(options)
        sys.stdout.flush()
        return status
    except UserError as error:
        print(f"burnish: {error}", file=sys.stderr)
        return 2
    except BurnishError as error:
        print(f"burnish: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. Buffered output must go somewhere when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def doctor(options: argparse.Namespace) -> int:
    """Print what works here. Status 1 if something is broken; missing parts are not failures."""
    from .doctor import examine, show

    broken = show(examine(options.all))
    if broken:
        print(
            f"\n{broken} of these {'do' if broken > 1 else 'does'} not work. Where the text does not say what to do, "
            "reinstall the package that it names; programs run eagerly until then.",
            file=sys.stderr,
        )
    else:
        print("\nBurnish works here. `burnish report SCRIPT.py` shows what it does with a program.")
    return 1 if broken else 0


def breaks(options: argparse.Namespace) -> int:
    """Print the page of each given break, or of all of them."""
    from ..capture.breaks import CATALOG
    from ..capture.breaks.print_break_page import print_page

    codes = [code.upper() for code in options.code] or sorted(CATALOG)
    for code in codes:
        if code not in CATALOG:
            raise UserError(
                f'There is no break with the code "{code}".{did_you_mean(code, CATALOG)} '
                f"`burnish breaks` without a code prints them all."
            )
    print("\n".join(print_page(CATALOG[code]) for code in codes))
    return 0


def cache(options: argparse.Namespace) -> int:
    """Print where the cache is and its size, clear it, or copy it to another machine."""
    from ..runtime.disk.disk_cache import disk_cache
    from . import cache_archive

    if (options.file is None) == (options.action in ("export", "import")):
        raise UserError(f"`burnish cache {options.action}` takes {'no' if options.file else 'the name of a'} file.")
    with warnings.catch_warnings(action="ignore"):  # the error below says it
        found = disk_cache()
    if found is None:
        print("The cache is off: the setting cache (BURNISH_CACHE in the environment) says so.")
        return 0
    if found.why_not is not None:
        raise UserError(found.why_not)
    match options.action:
        case "clear":
            print(f"{found.clear()} entries deleted from {found.folder}")
        case "info":
            print("\n".join(cache_archive.described(found)))
        case "export":
            print(
                f"{cache_archive.export_cache(found, options.file)} entries of {found.folder} are now in {options.file}"
            )
        case "import":
            print("\n".join(cache_archive.import_cache(found, options.file)))
    return 0


def report(options: argparse.Namespace) -> int:
    """Run a script as `python SCRIPT ...` does, under a report. The status is the script's."""
    from ..api import report

    if not options.script:
        raise UserError("`burnish report` takes a script and its arguments: `burnish report train.py --epochs 1`.")
    script, *arguments = options.script
    if not Path(script).exists():
        raise UserError(f"There is no file {script}.")
    written = report(options.output)
    before = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = [script, *arguments], str(Path(script).resolve().parent)
    try:
        with written:
            runpy.run_path(script, run_name="__main__")
    except Exception:  # an error of the script, shown as Python shows it, also if it is one of ours
        traceback.print_exc()
        return 1
    finally:
        sys.argv, sys.path[0] = before
        if written.summary is not None:
            print("", *written.summary, "", f"The report is in {options.output}", sep="\n", file=sys.stderr)
    return 0


def inspect(options: argparse.Namespace) -> int:
    """Print what a saved file holds, without running any of it."""
    from .inspect_file import as_text, contents

    try:
        found = contents(options.file)
    except OSError as error:
        raise UserError(f"{options.file} cannot be read: {error.strerror}") from error
    print(json.dumps(found, indent=1) if options.json else "\n".join(as_text(found)))
    return 0


def keygen(options: argparse.Namespace) -> int:
    """Write a new pair of keys."""
    from ..export.publisher_signature import write_keys

    private, public = write_keys(options.file)
    print(f"{private} signs: keep it to yourself.  burnish.save(model, path, args, sign={str(private)!r})")
    print(f"{public} is for those who load.     burnish.load(path, trust={str(public)!r})")
    return 0


def bisect(options: argparse.Namespace) -> int:
    """Run a command with more and less optimization, and print the first rewrite with which it fails."""
    from .bisect_rewrites import bisect

    if not options.command:
        raise UserError("`burnish bisect` takes a command that fails, such as `burnish bisect python script.py`.")
    print(bisect(options.command, options.output, options.slower))
    return 0


def bench(options: argparse.Namespace) -> int:
    """Run bench/, which is beside src/ and not part of the package: its dependencies are large."""
    root = Path(__file__).resolve().parents[3]
    if not (root / "bench" / "command.py").is_file():
        raise UserError(
            "The benchmark is not part of the installed package. It needs a checkout of Burnish's source: there, "
            "`pip install --editable '.[bench]'` and then `burnish bench`, or `make bench`, which does both."
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return importlib.import_module("bench.command").main(options.arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="burnish", description="A just-in-time compiler for PyTorch programs.")
    version = f"burnish {__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("doctor", help="what works on this machine")
    command.add_argument("--all", action="store_true", help="try every backend; takes up to a minute")
    command.set_defaults(run=doctor)

    command = commands.add_parser("breaks", help="what a break means, and what to do about it")
    command.add_argument("code", nargs="*", help="a break's code; all of them without one")
    command.set_defaults(run=breaks)

    command = commands.add_parser("cache", help="what earlier processes left on disk")
    command.add_argument(
        "action",
        choices=["info", "clear", "export", "import"],
        help="say how much, delete it, or carry it to another machine",
    )
    command.add_argument("file", nargs="?", type=Path, help="to write to, or to read from")
    command.set_defaults(run=cache)

    command = commands.add_parser("report", help="run a script, and write a page about what was compiled and why")
    command.add_argument(
        "-o", "--output", type=Path, default=Path("burnish-report.html"), help="burnish-report.html if not given"
    )
    command.add_argument("script", nargs=argparse.REMAINDER, help="a script, and its arguments")
    command.set_defaults(run=report)

    command = commands.add_parser("inspect", help="what a file of burnish.save holds")
    command.add_argument("file", type=Path, help="nothing of it runs")
    command.add_argument("--json", action="store_true", help="for programs")
    command.set_defaults(run=inspect)

    command = commands.add_parser("keygen", help="a key to sign files of burnish.save with")
    command.add_argument("file", type=Path, help="for the private key; the public one is beside it, with .pub")
    command.set_defaults(run=keygen)

    command = commands.add_parser("bisect", help="the smallest failing graph, and the rewrite that makes it fail")
    command.add_argument(
        "-o", "--output", type=Path, default=Path("burnish-repro.py"), help="the graph as a script: burnish-repro.py"
    )
    command.add_argument("--slower", action="store_true", help="of a script: also graphs that are slower than eager")
    command.add_argument("command", nargs=argparse.REMAINDER, help="exits with status 0 if its results are right")
    command.set_defaults(run=bisect)

    # It parses its own arguments, including `--help`: with another prefix none of them looks like an option here.
    command = commands.add_parser(
        "bench", help="side by side with eager, torch.compile and others", prefix_chars="\0", add_help=False
    )
    command.add_argument("arguments", nargs="*")
    command.set_defaults(run=bench)
    return parser


if __name__ == "__main__":
    sys.exit(main())
