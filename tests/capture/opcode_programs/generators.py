"""Generators."""

import sys

from . import case
from .context_managers import Manager
from .exceptions import chain


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
    found = list(walk(nested)), sum(squares), next(squares, None), [*walk(nested)]
    return found, max(*walk([3, 1])), dict(zip("ab", walk([7, 8])))


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
    before = g.gi_running, g.gi_frame is None, g.gi_code.co_name
    return g.__name__, g.__qualname__, iter(g) is g, before, list(g), g.gi_frame


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
