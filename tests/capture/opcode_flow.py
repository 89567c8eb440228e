"""Programs for the tests of the instruction set: loops, exceptions, ``with``, generators."""

import contextlib
import sys

from .opcode_values import Pair, case


# ---- loops

@case((5,), (0,), (12,))
def loops_of_every_shape(n):
    found = []
    for i in range(n):
        if i == 2:
            continue
        if i == 7:
            break
        found.append(i)
    else:
        found.append("no break")
    while n > 3:
        n -= 1
        if n == 4:
            found.append("four")
            continue
        if n == 8:
            break
    else:
        found.append(n)
    for a, (b, *c) in [(1, (2, 3, 4)), (5, (6,))]:
        for _ in c:
            found.append((a, b, c))
    return found


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration("done")
        self.n -= 1
        return self.n


class Broken:
    def __iter__(self):
        return self

    def __next__(self):
        raise ValueError("broken")


class Sequence:
    def __getitem__(self, i):
        if i > 2:
            raise IndexError
        return i * 10


@case()
def loops_over_user_iterators():
    found = [list(Countdown(3)), [k for k in Countdown(2)], [k for k in Sequence()]]
    for k in Countdown(4):
        if k == 1:
            break
        found.append(k)
    else:
        found.append("else")
    try:
        for k in Broken():
            found.append(k)
    except ValueError as error:
        found.append(str(error))
    for k in Pair(1, 2):
        found.append(k)
    try:
        for k in 5:
            pass
    except TypeError as error:
        return found, str(error)


@case((None,), (1,))
def jumps_on_none(value):
    found = []
    while value is None:
        value = 0
    while value is not None:
        found.append(value)
        value = None if value > 2 else value + 1
    for _ in range(2):
        if value is not None:
            found.append(value)
        value = None if value else value
    return found, value if value is None else "some"


# ---- exceptions

class Special(Exception):
    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code


class NeedsNothing(Exception):
    def __init__(self):
        super().__init__("made without arguments")


def fails(kind, *args):
    raise kind(*args)


def chain(error):
    """The types along ``__context__`` and ``__cause__``."""
    seen = []
    while error is not None and len(seen) < 8:
        seen.append((type(error).__name__, str(error), type(error.__cause__).__name__, error.__suppress_context__))
        error = error.__context__
    return seen


@case((ValueError,), (KeyError,), (TypeError,), (ZeroDivisionError,), (RuntimeError,), (None,))
def try_with_every_clause(kind):
    found = []
    try:
        try:
            if kind is None:
                found.append("fine")
            elif kind is ZeroDivisionError:
                1 / 0
            else:
                fails(kind, "text")
        except ValueError as error:
            found.append(("value", str(error)))
        except (KeyError, TypeError):
            found.append("key or type")
            raise
        else:
            found.append("else")
        finally:
            found.append("finally")
    except ArithmeticError as error:
        found.append(type(error).__name__)
    except Exception as error:
        found.append(chain(error))
    return found, sys.exc_info()


@case(("return",), ("raise",), ("break",), ("continue",), ("fall",))
def leaving_through_finally(how):
    found = []

    def leave():
        for i in range(3):
            try:
                if how == "return":
                    return i
                if how == "raise":
                    raise ValueError(i)
                if how == "break":
                    break
                if how == "continue":
                    continue
            finally:
                found.append(i)
        return "end"

    try:
        return leave(), found
    except ValueError as error:
        return error.args, found


@case()
def finally_that_swallows():
    def swallow():
        try:
            raise ValueError
        finally:
            return "swallowed"

    def loop():
        for i in range(3):
            try:
                1 / 0
            finally:
                continue
        return i

    return swallow(), loop(), sys.exc_info()


@case()
def contexts_and_causes():
    found = []
    try:
        try:
            raise ValueError("first")
        except ValueError:
            raise KeyError("second")
    except KeyError as error:
        found.append(chain(error))
    try:
        try:
            fails(ValueError, "first")
        except ValueError as error:
            raise KeyError("second") from error
    except KeyError as error:
        found.append(chain(error))
    try:
        try:
            1 / 0
        except ZeroDivisionError:
            raise Special(3) from None
    except Special as error:
        found.append((chain(error), error.code))
    try:
        raise NeedsNothing from OSError
    except NeedsNothing as error:
        found.append((chain(error), type(error.__cause__).__name__))
    try:
        raise NeedsNothing
    except NeedsNothing as error:
        found.append(chain(error))
    return found


@case()
def contexts_of_nested_handlers():
    found = []
    first = ValueError("first")
    try:
        try:
            raise first
        except ValueError:
            try:
                raise KeyError("second")
            except KeyError:
                found.append(type(sys.exc_info()[1]).__name__)
                raise first
    except ValueError as error:
        found.append(chain(error))
    try:
        try:
            fails(KeyError, 1)
        finally:
            len(5)
    except TypeError as error:
        found.append(chain(error))
    try:
        try:
            raise OSError("a")
        except OSError as error:
            error.__context__ = None
            saved = error
        try:
            raise LookupError("b")
        except LookupError:
            raise saved
    except OSError as error:
        found.append(chain(error))
    return found, sys.exc_info()


@case((5,), (None,), (int,), ("text",))
def raising_what_is_no_exception(what):
    try:
        raise what
    except TypeError as error:
        first = str(error)
    try:
        raise ValueError from what
    except TypeError as error:
        return first, str(error)
    except ValueError as error:
        return first, chain(error)


@case()
def reraising_with_nothing_to_raise():
    try:
        raise
    except RuntimeError as error:
        return str(error)


@case((int,), ("x",), ((ValueError, 5),))
def catching_what_is_no_exception(kind):
    try:
        try:
            raise ValueError("it")
        except kind:
            return "caught"
    except TypeError as error:
        return str(error), chain(error)


@case()
def the_caught_name_is_gone_afterwards():
    error = "before"
    try:
        raise ValueError
    except ValueError as error:
        pass
    try:
        return error
    except UnboundLocalError as gone:
        return str(gone)


@case((1,), (0,))
def assertions(value):
    try:
        assert value, f"value is {value}"
        return "held"
    except AssertionError as error:
        return error.args


def leaves(group):
    if isinstance(group, BaseExceptionGroup):
        return type(group).__name__, group.message, [leaves(e) for e in group.exceptions]
    return type(group).__name__, str(group)


@case(("V",), ("VK",), ("VKT",), ("T",), ("naked",), ("nothing",), ("base",))
def exception_groups(which):
    kinds = {"V": ValueError, "K": KeyError, "T": TypeError}
    found = []
    try:
        try:
            if which == "naked":
                raise ValueError("alone")
            if which == "base":
                raise BaseExceptionGroup("base", [KeyboardInterrupt("k"), ValueError("v")])
            if which != "nothing":
                nested = ExceptionGroup("inner", [kinds[k](k.lower()) for k in which])
                raise ExceptionGroup("outer", [nested] + [kinds[k](k) for k in which])
        except* ValueError as group:
            found.append(leaves(group))
        except* (KeyError, OSError) as group:
            found.append(leaves(group))
        else:
            found.append("else")
        finally:
            found.append("finally")
    except BaseException as error:
        found.append(leaves(error))
    return found


@case(("raise new",), ("raise",), ("raise group",), ("raise from",), ("raise two",), ("both",))
def exception_groups_with_clauses_that_raise(how):
    original = ExceptionGroup("eg", [ValueError(1), KeyError(2), OSError(3)])
    try:
        try:
            raise original
        except* ValueError as group:
            if how == "raise":
                raise
            if how == "raise group":
                raise group
            if how == "raise from":
                raise RuntimeError("new") from group
            if how != "both":
                raise RuntimeError("new")
        except* KeyError as group:
            if how == "raise two":
                raise LookupError("second")
            if how == "both":
                raise group
    except BaseException as error:
        return leaves(error), chain(error)


@case(("raise new",), ("raise",), ("raise error",), ("raise all",))
def exception_groups_that_are_used_up(how):
    try:
        try:
            if how == "raise all":
                raise ExceptionGroup("eg", [ValueError(1)])
            raise ValueError("naked")
        except* ValueError as group:
            if how in ("raise new", "raise all"):
                raise RuntimeError("new")
            if how == "raise":
                raise
            raise group
    except BaseException as error:
        return leaves(error), chain(error)


@case((ExceptionGroup,), (5,), ((ValueError, BaseExceptionGroup),))
def exception_groups_that_may_not_be_caught(kind):
    try:
        try:
            raise ValueError("it")
        except* kind:
            len("caught")
    except TypeError as error:
        return str(error)


@case((12,))
def errors_pass_through_many_frames(depth):
    found = []

    def down(k):
        try:
            if k == 0:
                return [][1]
            return down(k - 1)
        finally:
            found.append(k)

    try:
        down(depth)
    except IndexError as error:
        return found, str(error)


# ---- with

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


# ---- generators

@case()
def generators_driven_by_hand():
    def count(n):
        try:
            for i in range(n):
                received = yield i
                if received:
                    yield received * 10
        finally:
            found.append("finally")
        return "end"

    found = []
    g = count(3)
    found += [next(g), g.send(5), next(g), g.send(None)]
    try:
        next(g)
    except StopIteration as stop:
        found.append(stop.value)
    try:
        next(g)
    except StopIteration as stop:
        found.append(stop.value)
    found.append(next(g, "default"))
    early = count(2)
    next(early)
    early.close()
    fresh = count(2)
    fresh.close()
    return found, list(count(2)), list(fresh)


@case()
def throwing_into_generators():
    def worker():
        x = 0
        while True:
            try:
                x = yield x
            except ValueError as error:
                x = str(error)
            except KeyError:
                return "key"

    found = []
    g = worker()
    found += [next(g), g.send(4), g.throw(ValueError("v")), g.throw(ValueError), g.send(1)]
    try:
        g.throw(KeyError("k"))
    except StopIteration as stop:
        found.append(stop.value)
    try:
        g.throw(KeyError("again"))
    except KeyError as error:
        found.append(str(error))
    h = worker()
    try:
        h.throw(OSError("fresh"))
    except OSError as error:
        found.append(str(error))
    h = worker()
    next(h)
    try:
        h.throw(OSError("unhandled"))
    except OSError as error:
        found.append(chain(error))
    return found, list(h), list(g)


@case()
def misusing_generators():
    def itself():
        try:
            yield next(g)
        except ValueError as error:
            yield str(error)

    def stubborn():
        try:
            yield 1
        except GeneratorExit:
            yield 2

    g = itself()
    found = [next(g)]
    try:
        itself().send(3)
    except TypeError as error:
        found.append(str(error))
    s = stubborn()
    next(s)
    try:
        s.close()
    except RuntimeError as error:
        found.append(str(error))
    try:
        [].__iter__().missing
    except AttributeError:
        return found


@case()
def stop_iteration_inside_generators():
    def leaks():
        yield 1
        raise StopIteration("leak")

    def leaks_natively():
        yield next(iter([]))

    found = []
    for make in (leaks, leaks_natively):
        try:
            for value in make():
                found.append(value)
        except RuntimeError as error:
            found.append(chain(error))
    try:
        g = leaks()
        next(g)
        g.throw(StopIteration("thrown"))
    except RuntimeError as error:
        found.append(chain(error))
    return found


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


@case()
def generators_of_generators():
    def walk(tree):
        if isinstance(tree, list):
            for branch in tree:
                yield from walk(branch)
        else:
            yield tree

    nested = [1, [2, [3, 4]], [], [[5]]]
    squares = (leaf * leaf for leaf in walk(nested))
    return list(walk(nested)), sum(squares), next(squares, None), [*walk(nested)], max(*walk([3, 1])), dict(zip("ab", walk([7, 8])))


@case()
def generators_with_cells_and_parameters():
    def make(a, *rest, b=2, **others):
        total = a

        def add(k):
            nonlocal total
            total += k
            return total

        for k in rest:
            yield add(k), total, b, others
        yield lambda: (a, total)

    g = make(1, 2, 3, b=4, c=5)
    first, second, function = g
    return first, second, function(), [k for k in (lambda: (yield from "xy"))()]


@case()
def generators_that_handle_errors_across_yields():
    log = []

    def careful():
        try:
            raise ValueError("own")
        except ValueError:
            log.append(type(sys.exc_info()[1]).__name__)
            yield 1
            log.append(type(sys.exc_info()[1]).__name__)
            try:
                raise
            except ValueError as error:
                yield str(error)
            raise KeyError("new")

    g = careful()
    try:
        raise OSError("outside")
    except OSError:
        next(g)
        log.append(type(sys.exc_info()[1]).__name__)
        next(g)
    try:
        next(g)
    except KeyError as error:
        return log, chain(error), sys.exc_info()


@case()
def generators_inside_with_and_loops():
    log = []

    def source():
        with Manager(log):
            for i in range(3):
                try:
                    yield i
                finally:
                    log.append(i)

    for value in source():
        log.append(("got", value))
    pairs = [(a, b) for a in source() for b in (x for x in range(a))]
    return log, pairs, list(zip(source(), source()))


def top_level(n, *rest):
    total = n
    for k in rest:
        total += yield (k, total)
    return total


@case()
def generator_objects_know_their_names():
    def made():
        yield

    g = made()
    return g.__name__, g.__qualname__, iter(g) is g, g.gi_running, g.gi_frame is None, g.gi_code.co_name, list(g), g.gi_frame


async def coroutine(x):
    async with x as y:
        async for z in y:
            await z
    return [w async for w in x]


async def async_generator(x):
    yield x


@case()
def coroutines_are_made_but_not_run():
    made = coroutine(1), async_generator(2)
    made[0].close()
    return [type(m).__name__ for m in made]
