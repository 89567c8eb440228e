"""Another thread raises in one that traces, compiles or runs a graph: the caller gets it, the next call compiles."""

import ctypes
import threading

import pytest
import torch

import burnish
from burnish.capture.engine import trace_segment
from burnish.capture.engine.heap import Heap
from burnish.capture.interpreter import deferred_os_signals

X = torch.ones(3)


class LateError(Exception):
    pass


def raise_here(kind):
    """As another thread does, which knows this one's number. It is raised at the next call that returns, or later."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(kind))


def asynchronously(at):
    raise_here(LateError)
    if at == "a loop":
        while True:
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


@pytest.mark.parametrize("at", ["a loop", "the beginning of a function", "a call"])
def test_error_of_another_thread_is_known(at):
    assert deferred_os_signals.is_asynchronous(caught(asynchronously, at))


@pytest.mark.parametrize(
    "function,args",
    [
        (raise_it, (LateError,)),
        (raise_it, (LateError(),)),
        (raise_it, (ValueError,)),
        (next, (iter(()),)),
        (torch.ones(2).view, (3,)),
        ({}.__getitem__, (1,)),
        (lambda: undefined, ()),  # noqa: F821
        (lambda: [bytearray(1 << 62)], ()),
        (torch.ones(2).__getitem__, (torch.tensor([9]),)),
    ],
)
def test_error_of_this_thread_is_known(function, args):
    assert not deferred_os_signals.is_asynchronous(caught(function, *args))


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
