"""Another thread raises in one that traces, compiles or runs a graph: the caller gets it, the next call compiles."""

import ctypes
import enum
import gc
import sys
import threading

import pytest
import torch

import burnish
from burnish.capture.engine import trace_segment
from burnish.capture.engine.engine import Program
from burnish.capture.engine.heap import Heap
from burnish.codegen.llvm import compile_to_machine_code
from burnish.compiler import compile_graph, compile_or_fall_back
from burnish.concurrency import outside_errors, pause_garbage_collection
from burnish.concurrency.await_future import AtomicCondition
from burnish.lower.trace import trace_to_aten

X = torch.ones(3)


class LateError(Exception):
    pass


class Color(enum.Enum):
    RED = 1


def raise_in(kind, thread):
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


def raise_here(kind):
    """As another thread does, which knows this one's number. It is raised at the next call that returns, or later."""
    raise_in(kind, threading.get_ident())


def asynchronously(at):
    if at != "a comparison":
        raise_here(LateError)
    if at == "a loop":
        while True:
            pass
    if at == "a comparison":
        names = ["a"]
        threading.Timer(0.05, raise_in, [LateError, threading.get_ident()]).start()
        while names[0] == "a":
            pass
    if at == "the beginning of a function":
        (lambda: None)()
    return len("after a call")


def caught(function, *args):
    try:
        function(*args)
    except Exception as error:
        return error
    raise AssertionError("it raised nothing")


def raise_it(error):
    raise error


@pytest.mark.parametrize("at", ["a loop", "a comparison", "the beginning of a function", "a call"])
def test_error_of_another_thread_is_known(at):
    assert outside_errors.is_asynchronous(caught(asynchronously, at))


@pytest.mark.parametrize(
    "function,args",
    [
        (raise_it, (LateError,)),
        (raise_it, (LateError(),)),
        (raise_it, (ValueError,)),
        (next, (iter(()),)),
        (torch.ones(2).view, (3,)),
        ({}.__getitem__, (1,)),
        (Color, (5,)),
        (lambda: undefined, ()),  # noqa: F821
        (lambda: [bytearray(1 << 62)], ()),
        (torch.ones(2).__getitem__, (torch.tensor([9]),)),
    ],
)
def test_error_of_this_thread_is_known(function, args):
    assert not outside_errors.came_from_outside(caught(function, *args))


def once_before(function, kind):
    done = []

    def call(*args, **kwargs):
        if not done:
            done.append(True)
            raise_here(kind)
        return function(*args, **kwargs)

    return call


@pytest.mark.parametrize("kind", [LateError, RecursionError, ValueError, KeyboardInterrupt])
@pytest.mark.parametrize(
    "owner,name",
    [
        (Heap, "admit"),
        (trace_segment, "close"),
        (trace_segment, "global_state"),
        (trace_segment, "machine_after_break"),
        (compile_or_fall_back, "recipe_of"),
        (compile_graph, "lower"),
        (compile_to_machine_code, "_workers"),
        (compile_to_machine_code, "result_of"),
        (trace_to_aten, "run_node"),
    ],
)
@pytest.mark.parametrize("on_error", ["raise", "fallback"])
def test_error_in_a_first_call_is_raised_and_the_next_call_compiles(owner, name, kind, on_error, monkeypatch):
    factor = 2.0

    def fn(x):
        return x.sin() * factor

    compiled = burnish.compile(fn)
    with burnish.settings.patch(on_error=on_error):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, once_before(getattr(owner, name), kind))
            with pytest.raises(kind) as found:
                compiled(X)
        assert type(found.value) is kind
        for _ in range(3):
            torch.testing.assert_close(compiled(X), fn(X))
    assert burnish.was_compiled(compiled)
    assert not compiled.__burnish_program__.entry.given_up
    assert torch._C._len_torch_function_stack() == torch._C._len_torch_dispatch_stack() == 0


def test_error_while_a_graph_runs_is_raised():
    compiled = burnish.compile(lambda x: x.sin() * 2)
    for _ in range(2):
        compiled(X)
    (segment,) = compiled.__burnish_program__.entry.segments
    segment.graph = once_before(segment.graph, LateError)
    with pytest.raises(LateError):
        compiled(X)
    torch.testing.assert_close(compiled(X), X.sin() * 2)
    assert burnish.was_compiled(compiled)


def test_error_right_behind_a_block_leaves_the_block(monkeypatch):
    class Depth:
        now = 0

        def __enter__(self):
            self.now += 1

        def __exit__(self, *error):
            self.now -= 1

    depth = Depth()

    def fn(x):
        with depth:
            return x.sin().tolist()  # the graph ends: what follows in the block is its end

    compiled = burnish.compile(fn)
    with monkeypatch.context() as patch:
        patch.setattr(Program, "continuation_for", once_before(Program.continuation_for, LateError))
        with pytest.raises(LateError):
            compiled(X)
    assert depth.now == 0
    assert compiled(X) == fn(X)
    assert depth.now == 0


def test_error_while_the_collector_is_paused_leaves_it_on(monkeypatch):
    compiled = burnish.compile(lambda x: x.sin() * 2)
    with monkeypatch.context() as patch:
        patch.setattr(pause_garbage_collection.gc, "disable", once_before(gc.disable, LateError))
        with pytest.raises(LateError) as raised:
            compiled(X)
    assert gc.isenabled(), raised
    torch.testing.assert_close(compiled(X), X.sin() * 2)


def test_error_that_the_program_catches_is_not_part_of_the_compiled_code():
    calls = []

    def slow(x):
        if not calls:
            raise_here(LateError)
        calls.append(len(calls))
        return x

    def fn(x):
        try:
            return slow(x.sin()) * 2
        except LateError:
            return x * 3

    compiled = burnish.compile(fn)
    torch.testing.assert_close(compiled(X), X * 3)
    calls.append("begun")
    for _ in range(3):
        torch.testing.assert_close(compiled(X), X.sin() * 2)


def test_condition_is_entered_and_left_without_a_function_in_python():
    condition, called = AtomicCondition(), []
    sys.setprofile(lambda frame, event, arg: called.append(frame.f_code.co_name) if event == "call" else None)
    try:
        with condition:
            is_held = condition._is_owned
    finally:
        sys.setprofile(None)
    assert called == [] and is_held is not None
    with condition:
        condition.notify()
