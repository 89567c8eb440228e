"""The debug check for code of the program that native calls run while a segment is traced."""

import functools
import statistics
import sys
import threading
from types import SimpleNamespace

import pytest

from burnish.capture.guards.detect_unseen_user_code import UntracedCallDetector
from burnish.errors import InternalError

from ..forked_programs import TORCH, run_program


def negative(x):
    return -x


def numbers():
    while True:
        try:
            yield 1
        except ValueError:
            yield 2


def watched(function, *known):
    recorder = SimpleNamespace(seen=0, tracer=SimpleNamespace(known_codes={each.__code__ for each in known}))
    with UntracedCallDetector(function, recorder):
        return function()


sort = functools.partial(sorted, [1, 2], key=negative)


def test_code_of_the_program_in_a_native_call_is_found_each_time():
    for _ in range(3):
        with pytest.raises(InternalError, match="ran user code natively: negative at"):
            watched(sort)
    assert sort() == [2, 1] and watched(sort, negative) == [2, 1]


def test_generators_of_the_program_that_native_calls_resume_are_found():
    running = numbers()
    next(running)
    for resume in (running.__next__, functools.partial(running.throw, ValueError())):
        with pytest.raises(InternalError, match="ran user code natively: numbers at"):
            watched(resume)


def test_functions_of_the_library_and_of_generated_text_are_not_found():
    assert watched(functools.partial(statistics.mean, [1, 2, 3])) == 2
    assert watched(eval("lambda: 3")) == 3


@pytest.mark.parametrize("importer", ["torch.nested", "program"])
def test_only_what_torch_imports_runs_code_that_is_not_found(importer, monkeypatch):
    class Finder:
        @staticmethod
        def find_spec(name, path, target=None):
            asked.append(negative(len(name)))

    asked, names = [], {"__name__": importer}
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    exec("def load():\n    import colorsys\n    return colorsys", names)
    if importer == "program":
        with pytest.raises(InternalError, match=r"ran user code natively: .*find_spec at"):
            watched(names["load"])
    else:
        assert watched(names["load"]).__name__ == "colorsys"
    assert asked == [-8]


def test_code_that_other_threads_run_meanwhile_is_not_found():
    started, ended = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (started.wait(), sort(), ended.set()))
    thread.start()
    with UntracedCallDetector(ended.wait, SimpleNamespace(seen=0)):
        started.set()
        assert ended.wait(60)
    thread.join()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there is no other way")
def test_watching_a_call_leaves_the_bytecode_of_running_functions_alone():
    """Python rewrites it whenever a profile function is set."""
    assert watched(sys.getprofile) is None


TAKEN = """
import functools, sys
from types import SimpleNamespace
for tool in range(6 if hasattr(sys, "monitoring") else 0):
    sys.monitoring.use_tool_id(tool, "the program's")
from burnish.capture.guards.detect_unseen_user_code import UntracedCallDetector
from tests.capture.test_untraced_calls import sort
detector = UntracedCallDetector(sort, SimpleNamespace(seen=1, tracer=SimpleNamespace(known_codes=())))
with detector:
    sort()
    detector.recorder.seen = 2
print(detector.seen.split()[0], sys.getprofile())
"""


def test_a_program_may_take_all_tools_for_monitoring():
    assert run_program(TAKEN, prepare=TORCH).stdout == "negative None\n"


FREED = """
import sys
from tests.capture.test_untraced_calls import sort, watched
assert watched(int) == 0
sys.monitoring.set_events(4, 0)  # newer versions do that, too
sys.monitoring.free_tool_id(4)
for _ in range(2):
    try:
        watched(sort)
    except Exception as error:
        print(type(error).__name__, sys.getprofile())
    if sys.monitoring.get_tool(4) is None:
        sys.monitoring.use_tool_id(4, "the program's")
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there are no such tools")
def test_a_program_may_free_and_take_the_tool_of_the_check():
    ran = run_program(FREED, prepare=TORCH)
    assert (ran.stdout, ran.stderr) == ("InternalError None\n" * 2, "")
