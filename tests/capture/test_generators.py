"""Generators: driven inside, handed out, handed in, closed, thrown into, broken in the middle."""

import copy
import inspect
from itertools import islice

import torch

from .call_sequences import Before, ordinary, swing, swinging
from .harness import program


@program(breaks=0)
def test_generator_consumed_by_a_for_loop():
    def halves(x, n):
        for _ in range(n):
            x = x / 2
            yield x

    def fn(x):
        total = torch.zeros_like(x)
        for y in halves(x, 3):
            total = total + y
        return total

    return fn, ordinary


@program(breaks=0)
def test_generator_consumed_by_list_and_sum():
    def fn(x):
        def powers():
            for n in range(1, 4):
                yield x**n

        return torch.stack(list(powers())), sum(powers())

    return fn, ordinary


@program
def test_infinite_generator_with_islice():
    def fn(x):
        def steps():
            y = x
            while True:
                y = y.sin() + 1
                yield y

        return list(islice(steps(), 1, 4))

    return fn, ordinary


@program(breaks=0)
def test_yield_from_passes_values_and_the_return_value():
    def inner(x):
        yield x + 1
        yield x + 2
        return x * 10

    def outer(x):
        last = yield from inner(x)
        yield last

    def fn(x):
        return [y for y in outer(x)]

    return fn, ordinary


@program(breaks=0)
def test_send_feeds_a_running_average():
    def average():
        total, count, value = 0, 0, None
        while True:
            received = yield value
            total, count = total + received, count + 1
            value = total / count

    def fn(x):
        running = average()
        next(running)
        return [running.send(x * k) for k in (1, 2, 4)]

    return fn, ordinary


@program
def test_throw_is_caught_inside_the_generator():
    def worker(x):
        while True:
            try:
                yield x
                x = x + 1
            except ValueError as error:
                yield x * error.args[0]

    def fn(x):
        w = worker(x)
        first = next(w)
        thrown = w.throw(ValueError(5))
        return first, thrown, next(w), next(w)

    return fn, ordinary


@program
def test_throw_not_caught_leaves_the_generator_finished():
    def worker(x):
        yield x
        yield x + 1

    def fn(x):
        w = worker(x)
        next(w)
        try:
            w.throw(KeyError("stop"))
        except KeyError as error:
            return x * 2, str(error), list(w)

    return fn, ordinary


@program
def test_close_runs_the_finally_block():
    log = []

    def worker(x):
        try:
            yield x
            yield x + 1
        finally:
            log.append(x.sum())

    def fn(x):
        w = worker(x)
        y = next(w)
        w.close()
        log.append("closed")
        return y, next(w, None)

    return fn, ordinary, log


@program
def test_generator_that_ignores_close():
    def stubborn(x):
        try:
            yield x
        except GeneratorExit:
            yield x + 1

    def fn(x):
        w = stubborn(x)
        next(w)
        try:
            w.close()
        except RuntimeError as error:
            return x - 1, str(error)

    return fn, ordinary


@program
def test_return_value_arrives_in_stop_iteration():
    def fn(x):
        def worker():
            yield x
            return x * 3

        w = worker()
        next(w)
        try:
            next(w)
        except StopIteration as stop:
            return stop.value

    return fn, ordinary


@program
def test_stop_iteration_inside_a_generator_becomes_a_runtime_error():
    def fn(x):
        def broken():
            yield next(iter([x]))
            yield next(iter([]))

        try:
            return list(broken())
        except RuntimeError as error:
            return x * 2, str(error), type(error.__cause__).__name__

    return fn, ordinary


@program
def test_generator_returned_and_driven_afterwards():
    made, seen = [], []

    def fn(x):
        y = x.cos()

        def values():
            for n in range(3):
                yield y * n

        made.append(values())
        return y

    def use():
        seen.append(list(made[-1]))

    return fn, [(torch.randn(2),)] + [(torch.randn(2), Before(use)) for _ in range(3)], seen


@program
def test_generator_started_inside_and_finished_outside():
    made, seen = [], []

    def fn(x):
        def values():
            y = x
            for n in range(4):
                y = y + n
                yield y

        g = values()
        made.append(g)
        return next(g) + next(g)

    def use():
        seen.append(list(made[-1]))

    return fn, [(torch.randn(2),)] + [(torch.randn(2), Before(use)) for _ in range(3)], seen


@program
def test_generator_made_outside_is_advanced():
    def batches(i):
        for n in range(3):
            yield torch.full((2,), float(n + i))

    def fn(x, source):
        first = next(source)
        return x + first, [x * y for y in source]

    return fn, lambda i: (torch.randn(2), batches(i))


@program
def test_one_generator_is_advanced_by_every_call():
    def counter():
        n = 0
        while True:
            n += 1
            yield n

    numbers = counter()

    def fn(x):
        return x * next(numbers)

    return fn, ordinary


@program
def test_one_generator_of_tensors_ends_in_the_third_call():
    source = (torch.full((4,), float(n)) for n in range(5))

    def fn(x):
        return x + next(source), x - next(source)

    return fn, ordinary


@program
def test_generator_shared_between_calls_is_compiled_into_both():
    held = []

    def running(total):
        while True:
            total = total + (yield total)

    def fn(x):
        if not held:
            held.append(running(x))
            return next(held[0])
        return held[0].send(x)

    return fn, ordinary


@program
def test_generator_expression_with_a_condition():
    def fn(xs):
        return sum(x * 2 for x in xs if x.shape[0] > 1)

    return fn, [
        ([torch.randn(2), torch.randn(1), torch.randn(2)],),
        ([torch.randn(2)],),
        ([torch.randn(1)],),
        ([torch.randn(2), torch.randn(1), torch.randn(2)],),
    ]


@program
def test_generator_expression_binds_its_first_iterable_at_once():
    def fn(x):
        items, scale = [x, x + 1], 2
        scaled = (item * scale for item in items)
        items, scale = [x.sin()], 3
        return list(scaled), items

    return fn, ordinary


@program
def test_break_inside_a_generator():
    def positive(xs):
        for x in xs:
            if x.sum() > 0:
                yield x * 2

    def fn(*xs):
        return [y + 1 for y in positive(xs)]

    return fn, lambda i: (swing(i), swing(i + 1), swing(i))


@program
def test_break_between_two_resumptions():
    def stages(x):
        x = x.sin()
        yield x
        x = x.cos()
        yield x

    def fn(x):
        g = stages(x)
        a = next(g)
        if a.sum() > 0:
            return a, None
        return a, next(g)

    return fn, swinging


@program
def test_two_generators_in_lockstep():
    def fn(x):
        def up():
            n = 0
            while n < 4:
                yield x + n
                n += 1

        def down():
            n = 3
            while n > 0:
                yield x - n
                n -= 1

        return [a * b for a, b in zip(up(), down())]  # noqa: B905

    return fn, ordinary


@program
def test_generator_with_try_finally_left_early():
    log = []

    def chunks(x):
        try:
            for part in x.split(1):
                yield part
        finally:
            log.append(x.shape[0])

    def fn(x):
        found = None
        for part in chunks(x):
            found = part
            if part.item() > 0:
                break
        return found * 2

    return fn, swinging, log


@program
def test_generator_reading_state_that_changes_between_resumptions():
    def fn(x, config):
        def scaled():
            for _ in range(3):
                yield x * config["scale"]

        out = []
        for y in scaled():
            config["scale"] += 1
            out.append(y)
        return out

    return fn, lambda i: (torch.randn(2), {"scale": i % 2})


@program
def test_recursive_generator_walks_a_tree():
    def walk(tree):
        if isinstance(tree, torch.Tensor):
            yield tree
        else:
            for branch in tree:
                yield from walk(branch)

    def fn(tree):
        return sum(leaf.sum() for leaf in walk(tree)), len(list(walk(tree)))

    return fn, [
        ([torch.randn(2), [torch.randn(3), [torch.randn(1)]]],),
        ([[], torch.randn(2)],),
        ([torch.randn(2), [torch.randn(3), [torch.randn(1)]]],),
    ]


@program
def test_generator_method_of_an_object():
    class Loader:
        def __init__(self, data, size):
            self.data, self.size, self.served = data, size, 0

        def __iter__(self):
            for start in range(0, len(self.data), self.size):
                self.served += 1
                yield self.data[start : start + self.size]

    def fn(loader):
        return [batch.mean(0) for batch in loader]

    return fn, [(Loader(torch.randn(5, 2), size),) for size in (2, 3, 2)]


@program
def test_send_none_and_send_to_a_fresh_generator():
    def fn(x):
        def echo():
            while True:
                x_in = yield
                x_in = x_in if x_in is not None else x

        g = echo()
        try:
            g.send(x)
        except TypeError as error:
            text = str(error)
        return g.send(None), x * 2, text

    return fn, ordinary


@program
def test_yield_from_forwards_send_and_throw():
    def inner(x):
        try:
            received = yield x
            yield x * received
        except ValueError:
            yield x - 1
        return "done"

    def outer(x):
        result = yield from inner(x)
        yield result

    def fn(x):
        a, b = outer(x), outer(x)
        next(a), next(b)
        return a.send(3), next(a), b.throw(ValueError), next(b)

    return fn, ordinary


@program
def test_generator_state_attributes():
    def fn(x):
        def g():
            yield x

        made = g()
        before = made.gi_frame is None
        value = next(made)
        rest = list(made)
        return value, before, rest, made.gi_frame is None, made.__name__

    return fn, lambda i: (swing(i),)


@program
def test_generator_says_what_it_delegates_to_and_is_not_copied():
    def fn(x):
        def inner():
            yield 1

        def outer():
            yield from within

        within = inner()
        made = outer()
        next(made)
        texts = [made.gi_yieldfrom is within, within.gi_yieldfrom]
        try:
            copy.copy(made)
        except TypeError as error:
            texts.append(str(error))
        list(made)
        return x, texts, made.gi_code.co_name, list(copy.copy(map(str, [1, 2])))

    return fn, [(torch.ones(2),)]


@program
def test_error_thrown_behind_a_break_meets_the_handler_of_a_generator_that_was_advanced_before_it():
    def fn(x):
        def g():
            try:
                yield x
            except ValueError:
                yield x - 1

        made = g()
        states = [inspect.getgeneratorstate(made)]
        first = next(made)
        states.append(inspect.getgeneratorstate(made))
        return first, made.throw(ValueError), states

    return fn, ordinary


@program
def test_error_thrown_behind_a_break_advances_what_the_generator_delegates_to():
    @torch.compiler.disable
    def outside(x):
        pass

    def inner(x):
        try:
            yield x
        except ValueError:
            yield x - 1
        return "done"

    def outer(x):
        result = yield from inner(x)
        yield result

    def fn(x):
        running = outer(x)
        next(running)
        outside(x)
        return running.throw(ValueError), next(running)

    return fn, [(torch.ones(3),), (torch.ones(3),), (torch.ones(2, 3),), (torch.ones(3),)]


@program(breaks=0)
def test_close_returns_what_the_generator_returns():
    def worker(x):
        try:
            yield x
        except GeneratorExit:
            return 7

    def fn(x):
        w = worker(x)
        y = next(w)
        return y, w.close(), w.close()

    return fn, ordinary


@program(breaks=0)
def test_throw_of_a_class_whose_constructor_makes_no_error():
    class Odd(Exception):
        def __new__(cls, *args):
            return 5

    class Refuses(Exception):
        def __init__(self):
            raise KeyError("no")

    def worker(x):
        for _ in range(2):
            try:
                yield x
            except (TypeError, KeyError) as error:
                yield str(error)

    def fn(x):
        w = worker(x)
        seen = next(w), w.throw(Odd), next(w), w.throw(Refuses)
        w.close()
        return seen

    return fn, ordinary


@program
def test_throw_with_a_class_and_a_value():
    def worker(x):
        while True:
            try:
                x = x + 1
                yield x
            except ValueError as error:
                yield error.args

    def fn(x):
        w = worker(x)
        seen = [next(w), w.throw(ValueError, 4), next(w), w.throw(ValueError, (1, 2))]
        for bad in ((ValueError(), 3), (3,), (ValueError, None, 3)):
            try:
                w.throw(*bad)
            except TypeError as error:
                seen.append(str(error))
        return seen

    return fn, ordinary


@program
def test_delegation_to_a_coroutine_is_refused():
    async def answer():
        return 3

    def worker(c):
        yield from c

    def fn(x):
        c = answer()
        try:
            list(worker(c))
        except TypeError as error:
            return x * 2, str(error)
        finally:
            c.close()

    return fn, ordinary


@program
def test_names_of_generators_are_texts():
    def worker(x):
        yield x

    def fn(x):
        w = worker(x)
        w.__name__ = "other"
        seen = [w.__name__]
        for change in (lambda: setattr(w, "__name__", 3), lambda: delattr(w, "__qualname__")):
            try:
                change()
            except TypeError as error:
                seen.append(str(error))
        return next(w), seen

    return fn, ordinary


@program
def test_the_frame_of_a_suspended_generator():
    def worker(x, k):
        y = x + k
        yield y
        yield k

    def fn(x):
        w = worker(x, 2)
        next(w)
        f = w.gi_frame
        return f.f_back, f.f_code.co_name, f.f_lineno - f.f_code.co_firstlineno, sorted(f.f_locals), f.f_locals["k"]

    return fn, ordinary
