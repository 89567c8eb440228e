"""Runs the snippets of pages: those of a page in order, in one namespace, as a user's program would.

    python tests/docs/run_page.py docs/getting-started.md docs/reference.md
    python tests/docs/run_page.py --import lightning.pytorch --into DIRECTORY docs/lightning-*.md

A snippet that raises, or prints something other than the page shows, ends its page; the error is printed, or written
to DIRECTORY/PAGE.txt. The status is 1 if a page failed.

Each page has a process of its own, forked from one that has imported the compiler and the framework and done nothing
else: a page may change torch in any way, and importing takes longer than most pages.
"""

import argparse
import contextlib
import gc
import importlib
import io
import os
import sys
import tempfile
import traceback
import types
from pathlib import Path

import pages

sys.path.append(str(pages.DOCS.parent / "tests"))
from forked_programs import READY  # noqa: E402

sys.path.pop()  # pages import what is installed


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("pages", type=Path, nargs="+")
    parser.add_argument("--import", dest="first", default="burnish", help="what is imported before")
    parser.add_argument("--into", type=Path, help="a directory for what pages write, and for what happened")
    chosen = parser.parse_args(arguments)
    gc.disable()  # nothing that is imported becomes garbage, and pages need not go through it
    importlib.import_module(chosen.first)
    exec(READY, {})
    gc.freeze()
    gc.enable()
    with tempfile.TemporaryDirectory() as scratch:
        reports = [run_apart(page.resolve(), (chosen.into or Path(scratch)).resolve()) for page in chosen.pages]
    if chosen.into is None:
        print("\n".join(filter(None, reports)))
    return 1 if any(reports) else 0


def run_apart(page: Path, into: Path) -> str:
    """Run a page in its own process and folder. Returns a description of the error, if it failed."""
    folder, report = into / page.stem, into / f"{page.stem}.txt"
    folder.mkdir(parents=True)
    child = os.fork()
    if child == 0:
        text = "The process ended early.\n"
        try:
            os.chdir(folder)
            os.environ["BURNISH_CACHE_DIR"] = str(folder / "cache")
            text = run(page)
        finally:
            report.write_text(text, encoding="utf-8")
            os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        report.write_text(f"The process of {page.name} ended with status {status}.\n", encoding="utf-8")
    return report.read_text(encoding="utf-8")


def run(page: Path) -> str:
    """Run the snippets of a page here. Returns a description of the error, if one failed."""
    main_module = sys.modules["__main__"] = types.ModuleType("__main__")  # where pickle and inspect look up classes
    for snippet in pages.snippets_of(page.read_text(encoding="utf-8")):
        place = f"{page.name}:{snippet.code.line}"
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                exec(compiled(snippet.code, page), vars(main_module))
        except BaseException:
            return f"{printed.getvalue()}\nThe snippet at {place} raised:\n{traceback.format_exc()}"
        if snippet.output is not None and not pages.matches(snippet.output, printed.getvalue()):
            return f"The snippet at {place} printed\n{printed.getvalue()}\nand the page shows\n{snippet.output}"
    return ""


def compiled(block: pages.Block, page: Path) -> types.CodeType:
    if block.title:
        file = Path(block.title).resolve()
        file.write_text(block.body, encoding="utf-8")
        return compile(block.body, str(file), "exec")
    # Padded, so that tracebacks and breaks show the line of the page.
    return compile("\n" * (block.line - 1) + block.body, str(page), "exec")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
