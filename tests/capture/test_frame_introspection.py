"""Functions that read interpreter frames, and helpers that read their caller's frame."""

import inspect
import sys
import traceback

import torch

from .harness import program


def caller(depth=1):
    frame = sys._getframe(depth)
    return frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno, frame.f_globals["__name__"]


@program
def test_a_function_reads_its_own_frame():
    def fn(x):
        y = x + 1
        line = sys._getframe().f_lineno
        return y, line, sys._getframe().f_code.co_name, inspect.currentframe().f_lineno, sys._getframe().f_locals["y"]

    return fn, lambda i: (torch.ones(2),)


@program
def test_a_function_reads_the_stack():
    def fn(x):
        inner = inspect.stack()[0]
        return x * 2, inner.function, inner.lineno, traceback.extract_stack()[-1].name

    return fn, lambda i: (torch.ones(2),)


@program
def test_a_helper_reads_its_callers():
    def middle(x):
        return caller(), caller(2), x * 2

    def fn(x):
        found = middle(x + 1)
        return found, caller(), [caller() for _ in range(1)]

    return fn, lambda i: (torch.ones(2),)


@program
def test_a_method_notes_where_it_was_called():
    class Log:
        def note(self):
            self.last = sys._getframe(1).f_lineno

    log = Log()

    def fn(x):
        log.note()
        y = x + 1
        log.note()
        return y

    return fn, lambda i: (torch.ones(2),), log


@program
def test_an_error_passes_frames_once():
    def fail():
        raise ValueError(sys._getframe(1).f_code.co_name)

    def fn(x):
        try:
            try:
                {}["missing"]
            except KeyError:
                fail()
        except ValueError as error:
            return (
                x + 1,
                str(error),
                type(error.__context__).__name__,
                error.__suppress_context__,
                [frame.name for frame in traceback.extract_tb(error.__traceback__)],
            )

    return fn, lambda i: (torch.ones(2),)
