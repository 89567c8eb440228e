"""``yield from``, with send, throw and close."""

from . import case
from .containers import Pair
from .exceptions import chain
from .loops import Countdown


def inner_of_delegation(log):
    try:
        while True:
            try:
                received = yield len(log)
                log.append(received)
                if received == "stop":
                    return "result"
            except ValueError as error:
                log.append(str(error))
                yield "caught inside"
    finally:
        log.append("inner finally")


def outer_of_delegation(log):
    try:
        result = yield from inner_of_delegation(log)
        log.append(("result", result))
        yield "outer"
    except KeyError as error:
        log.append(("outer caught", str(error)))
        yield "recovered"
    finally:
        log.append("outer finally")
    return "outer result"


@case()
def delegation_with_send_throw_and_close():
    log = []
    g = outer_of_delegation(log)
    found = [next(g), g.send("a"), g.throw(ValueError("v")), next(g), g.send("stop"), next(g, "end")]
    h = outer_of_delegation(log)
    found += [next(h), h.throw(KeyError("k")), next(h, "over")]
    k = outer_of_delegation(log)
    next(k)
    k.close()
    m = outer_of_delegation(log)
    next(m)
    try:
        m.throw(OSError("through both"))
    except OSError as error:
        found.append(chain(error))
    return found, log


def triple(log):
    return (yield from outer_of_delegation(log))


@case()
def delegation_three_deep():
    log = []
    g = triple(log)
    found = [next(g), g.send(1), g.throw(ValueError("deep")), g.send(2), g.throw(KeyError("mid"))]
    try:
        next(g)
    except StopIteration as stop:
        found.append(stop.value)
    h = triple(log)
    next(h)
    h.close()
    return found, log, list(h)


@case()
def delegation_to_iterators():
    def over(items):
        value = yield from items
        yield ("value", value)

    found = [list(over([1, 2])), list(over(Countdown(2))), list(over(range(0))), list(over(Pair(1, 2)))]
    g = over([1, 2, 3])
    next(g)
    for attempt in (lambda: g.send(1), lambda: g.throw(ValueError("no throw"))):
        try:
            attempt()
        except (AttributeError, ValueError) as error:
            found.append(str(error))
            g = over([1, 2, 3])
            next(g)
    g.close()
    try:
        list(over(5))
    except TypeError as error:
        return found, str(error)


class Recording:
    """An iterator with the whole generator protocol, but no generator."""

    def __init__(self, log):
        self.log = log

    def __iter__(self):
        return self

    def __next__(self):
        return "next"

    def send(self, value):
        self.log.append(("send", value))
        if value == "stop":
            raise StopIteration("sent")
        return "answer"

    def throw(self, error):
        self.log.append(("throw", type(error).__name__))
        if isinstance(error, KeyError):
            raise StopIteration("thrown")
        if isinstance(error, OSError):
            raise RuntimeError("instead")
        return "thrown answer"

    def close(self):
        self.log.append("close")


def over_recording(log):
    try:
        value = yield from Recording(log)
        yield ("value", value)
    except RuntimeError as error:
        yield str(error)


@case()
def delegation_to_an_object_with_the_generator_protocol():
    log = []
    g = over_recording(log)
    found = [next(g), g.send(1), g.throw(ValueError("v")), next(g), g.throw(KeyError("k")), next(g, "end")]
    h = over_recording(log)
    found += [next(h), h.send("stop")]
    k = over_recording(log)
    found += [next(k), k.throw(OSError("o"))]
    m = over_recording(log)
    next(m)
    m.close()
    return found, log


@case(("returns",), ("yields",), ("raises",), ("plain",))
def closing_a_delegate(how):
    log = []

    def inner():
        try:
            yield 1
        except GeneratorExit:
            log.append("inner")
            if how == "returns":
                return "ignored"
            if how == "yields":
                yield "no"
            if how == "raises":
                raise ValueError("while closing")
            raise

    def outer():
        try:
            log.append((yield from inner()))
        except BaseException as error:
            log.append(("outer", type(error).__name__, str(error)))
            raise

    g = outer()
    next(g)
    try:
        g.close()
    except Exception as error:
        log.append(chain(error))
    return log
