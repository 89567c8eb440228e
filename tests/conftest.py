"""Settings and fixtures of all tests: internal errors are raised instead of falling back to eager, and
untraced calls are detected. Each begins with nothing compiled, the default stance, one random seed and one thread."""

import atexit
import functools
import gc
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

os.environ.setdefault("BURNISH_ON_ERROR", "raise")
os.environ.setdefault("BURNISH_CHECK", "1")
os.environ.setdefault("_BURNISH_COMPARE_RESULTS", "0")
os.environ.setdefault("BURNISH_CACHE", "0")  # nor code that an earlier run left on disk
os.environ.setdefault("BURNISH_NEVER_SLOWER", "0")  # a test of compiled code must not end up testing eager
# Two processes run tests and others are started: a thread that waits for its turn by spinning keeps them from working.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Reports of planted failures and the like are deleted; pytest's own folders stay where one looks for them.
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="burnish-tests-")
atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)
# Programs that tests start import what is tested here, not what is installed.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parent.parent / "src"), os.environ.get("PYTHONPATH")])
)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """While tests are collected, libraries are imported and hardly anything becomes garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(autouse=True, scope="module")
def frozen_heap():
    """What earlier modules and imports left behind stays: without freezing it, each `gc.collect()` in a test goes
    through more than 700,000 objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def registries_as_they_were():
    """No test takes an entry of Burnish's tables away, nor puts another in its place: the tests that a process runs
    after it would meet a compiler without that entry, but only in some orders."""
    before = registries()
    yield
    now = registries()
    changed = [
        f"{place}[{key!r}]"
        for place, entries in before.items()
        for key, value in entries.items()
        if now[place].get(key, MISSING) is not value
    ]
    assert not changed, f"entries that this module's tests took away or replaced: {changed}"


MISSING = object()


def registries():
    """Copies of the tables and sets with names in capitals of all imported modules of Burnish, by module and name."""
    return {
        f"{module}.{name}": dict.fromkeys(table) if isinstance(table, set) else dict(table)
        for module, loaded in sys.modules.copy().items()
        if module.partition(".")[0] == "burnish"
        for name, table in vars(loaded).items()
        if name.isupper() and isinstance(table, (dict, set))
    }


@pytest.fixture(autouse=True, scope="session")
def generated_once():
    """LLVM generates the code of equal texts once: many tests compile the kernels of earlier ones. The code is loaded
    and bound again each time."""
    from burnish.codegen.llvm import compile_to_machine_code

    with pytest.MonkeyPatch.context() as patch:
        emitted = functools.lru_cache(1 << 12)(compile_to_machine_code.emitted)
        patch.setattr(compile_to_machine_code, "emitted", emitted)
        yield


@pytest.fixture(autouse=True)
def fresh():
    import torch  # here, for the tests of another process set its environment before they import it

    import burnish

    from . import frame_evaluation
    from .seeding import seed

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with more, a test waits on whatever else the machine runs
    seed(0)
    burnish.reset()
    yield
    burnish.set_stance("default")
    burnish.reset()
    torch.set_num_threads(threads)
    frame_evaluation.restore()


@pytest.fixture(autouse=True)
def no_listeners(monkeypatch):
    """Subscriptions that an earlier test left behind are not called."""
    from burnish import events

    monkeypatch.setattr(events, "_subscriptions", ())


@pytest.fixture(autouse=True)
def no_unnamed_fallback(request, no_listeners):
    """A fallback that the test does not name fails it: the result is still right, so nothing else would notice.
    `@pytest.mark.falls_back("refused", "sizes")` names the causes that a test expects; `only=` is an expression for the
    ids of the parameters that it applies to.
    """
    from burnish.report.collect_fallbacks import CAUSES, collect_fallbacks

    parameters = request.node.callspec.id if hasattr(request.node, "callspec") else ""
    named = {
        cause
        for mark in request.node.iter_markers("falls_back")
        if re.fullmatch(mark.kwargs.get("only", ".*"), parameters, re.DOTALL)
        for cause in mark.args
    }
    assert named <= CAUSES.keys(), f"{named - CAUSES.keys()} are no causes of fallbacks: {list(CAUSES)}"
    with collect_fallbacks() as found:
        yield
    unnamed = [str(fallback) for fallback in found if fallback.cause not in named]
    assert not unnamed, "fallbacks that the test does not name:\n" + "\n".join(unnamed)


@pytest.fixture(autouse=True)
def precision_as_it_was():
    """The precision of float32 products, in each place where torch stores it. Setting it with
    `torch.set_float32_matmul_precision` to the getter's result leaves other words there, and then a new process does
    not find a program that was saved."""
    import torch

    found = torch.backends
    places = [found, found.cuda.matmul, found.cudnn.conv, found.mkldnn.matmul, found.mkldnn.conv]
    before = [place.fp32_precision for place in places]
    yield
    if [place.fp32_precision for place in places] != before:
        with found.__allow_nonbracketed_mutation():  # torch's own tests forbid it
            for place, precision in zip(places, before, strict=True):
                place.fp32_precision = precision


@pytest.fixture
def happened():
    """The kinds of all events since the test began."""
    from burnish import events

    kinds = []
    events.subscribe(lambda event: kinds.append(event.kind))
    return kinds


@pytest.fixture
def backends():
    """Torch's settings, which may be changed; float32's precision is as it was afterwards."""
    import torch

    with torch.backends.__allow_nonbracketed_mutation():  # torch's own tests forbid it
        yield torch.backends
