"""A pytest plugin for a client's own tests: it decides what torch.compile is, and writes down how each test went.

    BURNISH_CLIENT='{"way": "burnish", "record": "record.jsonl", "limit": 60}' pytest -p burnish_client tests

Ways: `eager` (torch.compile returns what it is given), `torch.compile` (with `backend` where the test names none or the
default one), `burnish` (install(default=True); backends that a test names, other than its own functions, are Burnish
as well). One line for each test: its outcome, and what Burnish did during it.
"""

from __future__ import annotations

import collections
import functools
import json
import os
import signal
import time
from typing import Any

import pytest
import torch

ASKED = json.loads(os.environ["BURNISH_CLIENT"])
WAY: str = ASKED["way"]
LIMIT: float = ASKED["limit"]
NAMED = (None, "inductor", "eager", "aot_eager", "aot_eager_decomp_partition", "cudagraphs")
"""Backends of torch that stand for "compile this"."""


# -- what torch.compile is ---------------------------------------------------------------------------------------------


def as_eager() -> None:
    def compile(model: Any = None, **kwargs: Any) -> Any:
        return (lambda model: model) if model is None else model

    torch.compile = compile  # type: ignore[assignment]
    torch.nn.Module.compile = lambda self, *args, **kwargs: None  # type: ignore[method-assign]


def as_torch(backend: str) -> None:
    own = torch.compile

    @functools.wraps(own)
    def compile(model: Any = None, **kwargs: Any) -> Any:
        if kwargs.get("backend") in (None, "inductor") and backend != "inductor":
            kwargs |= {"backend": backend, "mode": None, "options": None}
        return own(**kwargs) if model is None else own(model, **kwargs)

    torch.compile = compile  # type: ignore[assignment]


def as_burnish() -> None:
    import burnish
    from burnish.integrations.torch_compile import ChosenBackend

    burnish.install(default=True)
    own = torch.compile

    @functools.wraps(own)
    def compile(model: Any = None, **kwargs: Any) -> Any:
        backend = kwargs.get("backend")
        if callable(backend):
            kwargs["backend"] = ChosenBackend(backend)
        elif backend in NAMED:
            kwargs["backend"] = None
        return own(**kwargs) if model is None else own(model, **kwargs)

    torch.compile = compile  # type: ignore[assignment]


# -- what Burnish does -------------------------------------------------------------------------------------------------


class Counts:
    """Of the events during one test."""

    def __init__(self) -> None:
        self.graphs, self.refused = 0, 0
        self.fallbacks: list[str] = []
        self.breaks: collections.Counter[str] = collections.Counter()

    def listen(self) -> None:
        from burnish import events

        events.subscribe(self.note)

    def clear(self) -> None:
        self.__init__()

    def note(self, event: Any) -> None:
        if event.kind == "graph":
            self.graphs += 1
        elif event.kind == "breaks" and "break_" in event.data:
            self.breaks[" ".join(event.data["break_"].render().split())[:200]] += 1
        cause = event.data.get("fallback")
        if cause is not None:
            self.refused += event.kind == "lower.refused"
            self.fallbacks.append(f"{cause} ({event.kind}): {' '.join(str(event.data['text']).split())[:300]}")


COUNTS = Counts()

if WAY == "eager":
    as_eager()
elif WAY == "burnish":
    as_burnish()
    COUNTS.listen()
else:
    as_torch(ASKED["backend"])


# -- hooks -------------------------------------------------------------------------------------------------------------


class TooLong(BaseException):
    """Not an Exception: a client's handlers must not catch it."""


def _stop(*_: Any) -> None:
    raise TooLong(f"not done after {LIMIT:.0f} s")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Any):
    COUNTS.clear()
    item.stash[BEGUN] = time.perf_counter()
    write({"name": item.nodeid, "outcome": "begun"})
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any):
    signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        return (yield)
    except TooLong as error:
        pytest.fail(str(error))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any, call: Any):
    report = yield
    if report.when == "call" or report.outcome != "passed" and report.when == "setup":
        why = "" if report.outcome == "passed" else _why(report, call)
        counts = {"graphs": COUNTS.graphs, "refused": COUNTS.refused, "fallbacks": COUNTS.fallbacks}
        seconds = time.perf_counter() - item.stash[BEGUN]
        told = {"outcome": report.outcome, "why": why, "seconds": seconds, "breaks": dict(COUNTS.breaks)}
        write({"name": item.nodeid, **told, **counts})
    return report


BEGUN: pytest.StashKey[float] = pytest.StashKey()


def _why(report: Any, call: Any) -> str:
    if call.excinfo is None:
        return str(report.longrepr)[-600:]
    return f"{call.excinfo.typename}: {call.excinfo.value}"[:1200]


def write(line: dict[str, Any]) -> None:
    with open(ASKED["record"], "a") as file:
        file.write(json.dumps(line) + "\n")
