"""CPython's own unit tests, each test method compiled, beside plain Python.

    python -m bench.cpython                                     all modules, by Burnish, with and without breaks
    python -m bench.cpython test_dict --way fullgraph           one of them; the reasons, most frequent first
    python -m bench.cpython test_dict --way torch.compile       fullgraph, with the backend `eager`
    python -m bench.cpython test_dict -k repr --verbose         some of its methods, with their tracebacks

The tests are those of the interpreter that runs this (the package `test`). A method runs in plain Python first, then
compiled, three calls each: our first call traces, later ones check guards and repeat effects. Methods that do not pass
in plain Python are left out. Each module has a process of its own; if a method ends it, or takes longer than its limit,
another process continues after that method.

A row shows how many methods pass, and out of how many. Under `default` all of them have to.
"""

from __future__ import annotations

import argparse
import builtins
import collections
import contextlib
import importlib
import importlib.util
import json
import os
import re
import signal
import sys
import tempfile
import traceback
import unittest
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from . import caches
from .apart import paths, run_family
from .table import NONE, Table, as_text

DEFAULT, FULLGRAPH, RIVAL = WAYS = ("default", "fullgraph", "torch.compile")
PASSED, DIED, LEFT_OUT, FELL_BACK = "passed", "died", "left out", "fell back"
MODULES = """
    test_dict test_list test_set test_tuple test_iter test_sort test_userdict test_userlist test_userstring
    test_ordered_dict test_defaultdict test_collections test_deque test_int test_long test_float test_complex test_bool
    test_math test_cmath test_numeric_tower test_range test_enumerate test_operator test_heapq test_bisect test_str
    test_unicode test_bytes test_array test_fractions test_statistics test_random test_hash test_index test_slice
    test_dictviews test_compare test_richcmp test_binop test_augassign test_string test_struct test_itertools
    test_baseexception test_builtin test_class test_context test_contextlib test_copy test_decorators test_descr
    test_exception_group test_exception_variations test_exceptions test_funcattrs test_functools test_generators
    test_genexps test_keywordonlyarg test_listcomps test_named_expressions test_patma test_property test_raise
    test_scope test_setcomps test_super test_types test_unpack test_unpack_ex test_with test_yield_from
    test_coroutines test_dataclasses test_datetime test_decimal test_frame test_inspect test_queue test_sys
    test_sys_settrace test_traceback test_typing test_weakref test_weakset test_zlib
""".split()
SHOWN = 240


# -- one module, in a process of its own -------------------------------------------------------------------------------


class TooLong(BaseException):
    pass


def cases_of(module: Any) -> Iterator[unittest.TestCase]:
    waiting: list[Any] = [unittest.defaultTestLoader.loadTestsFromModule(module)]
    while waiting:
        found = waiting.pop()
        if isinstance(found, unittest.TestSuite):
            waiting.extend(reversed(list(found)))
        else:
            yield found


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def outcome(case: unittest.TestCase, calls: int, limit: float) -> tuple[str, str]:
    """The outcome of the first call that does not pass, else that of all of them."""
    for call in range(1, calls + 1):
        result = unittest.TestResult()
        try:
            with limited(limit), warnings.catch_warnings():
                case(result)
        except TooLong:
            return "timeout", f"call {call}"
        except BaseException as error:
            return "raised", "".join(traceback.format_exception(error))
        for name, found in (("failed", result.failures), ("error", result.errors)):
            if found:
                return name, f"call {call}: {found[0][1]}"
        if result.skipped or result.expectedFailures or result.unexpectedSuccesses:
            return "skipped", ""
    return PASSED, ""


def compiler_of(way: str) -> Callable[[Callable], Callable]:
    import torch

    if way != RIVAL:
        import burnish

        return lambda method: burnish.compile(method, fullgraph=way == FULLGRAPH)
    import torch._dynamo

    for setting in ("enable_trace_unittest", "enable_trace_load_build_class"):
        if hasattr(torch._dynamo.config, setting):
            setattr(torch._dynamo.config, setting, True)

    def compile(method: Callable) -> Callable:
        torch._dynamo.reset()
        return torch.compile(method, backend="eager", fullgraph=True)

    return compile


@contextlib.contextmanager
def no_subtest(*_: Any, **__: Any) -> Iterator[None]:
    yield


def run_module(name: str, way: str, options: argparse.Namespace) -> None:
    """Write a line to the record when a method begins, and one with its outcome when it ends."""
    from burnish.report.collect_fallbacks import collect_fallbacks

    done = read_record(options.record)
    module, compile = importlib.import_module(f"test.{name}"), compiler_of(way)
    table, kept = vars(builtins), dict(vars(builtins))
    with options.record.open("a", buffering=1) as record:

        def note(case: unittest.TestCase, outcome: str, why: str = "") -> None:
            record.write(json.dumps([case.id(), outcome, why]) + "\n")

        for case in cases_of(module):
            method = getattr(case, "_testMethodName", None)
            if case.id() in done or (options.only or "") not in case.id() or not hasattr(case, method or " "):
                continue  # a doctest has no method
            note(case, LEFT_OUT)
            if outcome(case, options.calls, options.limit)[0] != PASSED:
                continue
            case = type(case)(method)  # type: ignore[arg-type]
            setattr(case, method, compile(getattr(case, method)))  # type: ignore[arg-type]
            if way != DEFAULT:
                case.subTest = no_subtest  # type: ignore[method-assign]
            note(case, DIED)
            with collect_fallbacks() as found:
                result, why = outcome(case, options.calls, options.limit)
            internal = [str(fallback) for fallback in found if fallback.cause == "internal"]
            if table != kept:  # a method that fails half way leaves changed builtins to all that follow
                table.clear()
                table.update(kept)
            note(case, *((FELL_BACK, internal[0]) if internal and result == PASSED else (result, why)))


# -- all of them -------------------------------------------------------------------------------------------------------

ByTest = dict[str, tuple[str, str]]


def read_record(path: Path) -> ByTest:
    """The outcomes in a record. The last line about a method counts."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {name: (outcome, why) for name, outcome, why in map(json.loads, lines)}


def run_apart(name: str, way: str, options: argparse.Namespace, arguments: Sequence[str]) -> tuple[ByTest, str]:
    """The outcomes, and why some are missing."""
    with tempfile.TemporaryDirectory(prefix="burnish-cpython-", ignore_cleanup_errors=True) as folder:
        record = Path(folder) / "record.jsonl"
        variables = {
            **os.environ,
            **caches.variables(Path(folder)),
            "PYTHONPATH": paths(),
            "BURNISH_CACHE": "0",
            "BURNISH_NEVER_SLOWER": "0",
        }
        command = [sys.executable, "-m", "bench.cpython", *arguments, "--worker", name, way, "--record", str(record)]
        while True:
            known = len(read_record(record))
            status, lines = run_family(command, variables, options.module_limit)
            found = read_record(record)
            if status == 0 or status is None or len(found) == known:
                why = "" if status == 0 else "not done in time" if status is None else " ".join(lines[-1:])
                return {test: outcome for test, outcome in found.items() if outcome[0] != LEFT_OUT}, why


def reason(why: str) -> str:
    """The code and the detail of a graph break; the last line of any other error."""
    lines = [line.strip() for line in why.splitlines() if line.strip()]
    for at, line in enumerate(lines):
        code = re.search(r"Graph break (B\d+)", line)
        if code or "Unsupported: " in line:
            return f"{code[1] if code else line} {' '.join(lines[at + 1 : at + 2])}"[:SHOWN]
    return (lines[-1] if lines else "")[:SHOWN]


def report(results: dict[str, dict[str, ByTest]], ways: Sequence[str], notes: Sequence[str]) -> str:
    table = Table("CPython's own tests: methods that pass, of how many", ["module", *ways])
    for name, by_way in results.items():
        table.rows.append([name, *(passed(by_way[way]) if way in by_way else NONE for way in ways)])
    every = {way: {f"{n} {t}": o for n, by in results.items() for t, o in by.get(way, {}).items()} for way in ways}
    table.summary.append(["all", *(passed(every[way]) for way in ways)])
    return "\n".join([as_text(table), *notes])


def passed(tests: ByTest) -> str:
    return f"{sum(outcome == PASSED for outcome, _ in tests.values())} / {len(tests)}" if tests else NONE


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m bench.cpython", description=(__doc__ or "").splitlines()[0])
    made.add_argument("modules", nargs="*", metavar="MODULE", help="such as test_dict (default: all that are listed)")
    made.add_argument("--way", choices=WAYS, action="append", help="may be repeated (default: those of Burnish)")
    made.add_argument("-k", dest="only", help="only methods with this in their names")
    made.add_argument("--calls", type=int, default=3, help="of each method (default: 3)")
    made.add_argument("--limit", type=float, default=20.0, help="seconds for each call of a method")
    made.add_argument("--module-limit", type=float, default=1800.0, help="seconds for each module and way")
    made.add_argument("--verbose", action="store_true", help="print whole tracebacks")
    made.add_argument("--json", type=Path, help="write all outcomes there")
    made.add_argument("--worker", nargs=2, metavar=("MODULE", "WAY"), help=argparse.SUPPRESS)
    made.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(given)
    if options.worker:
        run_module(*options.worker, options)
        return 0
    ways = options.way or [DEFAULT, FULLGRAPH]
    passed_on = ["--calls", str(options.calls), "--limit", str(options.limit)]
    passed_on += ["-k", options.only] if options.only else []
    results: dict[str, dict[str, ByTest]] = {}
    reasons: collections.Counter[str] = collections.Counter()
    notes, differs = [], False
    for name in options.modules or MODULES:
        if importlib.util.find_spec(f"test.{name}") is None:
            notes.append(f"{NONE} {name}: this version of Python has no such module")
            continue
        for way in ways:
            tests, why = run_apart(name, way, options, passed_on)
            results.setdefault(name, {})[way] = tests
            if why:
                notes.append(f"{NONE} {name}, {way}: {why[:SHOWN]}")
            for test, (outcome, text) in tests.items():
                if outcome != PASSED:
                    print(f"{way}: {outcome:8} {test}: {text if options.verbose else reason(text)}", flush=True)
                    differs |= way == DEFAULT
                    if way == FULLGRAPH:
                        reasons[reason(text)] += 1
            print(f"== {way} {name}: {passed(tests)}", flush=True)
            if options.json:
                options.json.write_text(json.dumps(results, indent=1) + "\n")
    notes += [f"{count} × {text}" for text, count in reasons.most_common()]
    print(report(results, ways, notes))
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
