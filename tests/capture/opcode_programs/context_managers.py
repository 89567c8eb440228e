"""``with``."""

import contextlib
import sys

from . import case
from .exceptions import chain


class Manager:
    def __init__(self, log, swallows=False, fails_at=None):
        self.log, self.swallows, self.fails_at = log, swallows, fails_at

    def __enter__(self):
        self.log.append("enter")
        if self.fails_at == "enter":
            raise OSError("enter")
        return self

    def __exit__(self, kind, error, traceback):
        self.log.append(("exit", kind and kind.__name__, str(error)))
        if self.fails_at == "exit":
            raise OSError("exit")
        return self.swallows


@case((False, None), (True, None), (False, "enter"), (True, "exit"))
def with_statements(swallows, fails_at):
    log = []
    try:
        with Manager(log, swallows, fails_at) as manager, Manager(log) as second:
            log.append((manager is not second, second is not None))
            raise ValueError("inside")
        log.append("after")
    except Exception as error:
        log.append(chain(error))
    return log


@case(("return",), ("break",), ("fall",))
def leaving_through_with(how):
    log = []

    def leave():
        for i in range(2):
            with Manager(log, True), contextlib.suppress(KeyError):
                if how == "return":
                    return i
                if how == "break":
                    break
                {}["missing"]
            log.append("next")

    return leave(), log, sys.exc_info()


class OnlyEnter:
    def __enter__(self):
        return 1


class Static:
    @staticmethod
    def __enter__():
        return "static"

    @classmethod
    def __exit__(cls, *error):
        return cls.__name__ == "Static"


@case()
def things_that_are_no_context_managers():
    found = []
    for thing in (5, OnlyEnter(), None, OnlyEnter):
        try:
            with thing:
                found.append("entered")
        except TypeError as error:
            found.append(str(error))
    with Static() as text:
        found.append(text)
        raise ValueError
    return found


@contextlib.contextmanager
def managed(log, name):
    log.append(f"enter {name}")
    try:
        yield name.upper()
    except KeyError as error:
        log.append(repr(error))
    finally:
        log.append(f"exit {name}")


@case((KeyError,), (ValueError,), (None,))
def context_managers_from_generators(kind):
    log = []
    try:
        with managed(log, "a") as a, contextlib.ExitStack() as stack:
            b = stack.enter_context(managed(log, "b"))
            log.append(a + b)
            if kind:
                raise kind("x")
    except ValueError as error:
        log.append(chain(error))
    return log
