"""Context managers: classes, contextlib's tools, errors and early exits through them, torch's own around breaks."""

import contextlib

import torch

from .call_sequences import Before, ordinary, swing, swinging
from .harness import program


class Logged:
    """Notes entry and exit; ``swallow`` names the error it keeps."""

    def __init__(self, log, name="", swallow=()):
        self.log, self.name, self.swallow = log, name, swallow

    def __enter__(self):
        self.log.append(f"enter {self.name}")
        return self

    def __exit__(self, kind, error, tb):
        self.log.append(f"exit {self.name} {kind.__name__ if kind else None}")
        return kind is not None and issubclass(kind, self.swallow)


@program(breaks=0)
def test_enter_gives_a_value():
    class Scaled:
        def __init__(self, x):
            self.x = x

        def __enter__(self):
            return self.x * 2

        def __exit__(self, *_):
            return None

    def fn(x):
        with Scaled(x) as y:
            z = y + 1
        return z

    return fn, ordinary


@program
def test_entry_and_exit_are_logged():
    log = []

    def fn(x):
        with Logged(log, "a"):
            x = x + 1
        return x

    return fn, ordinary, log


@program
def test_two_managers_leave_in_reverse_order():
    def fn(x):
        log = []
        with Logged(log, "a"), Logged(log, "b") as b:
            x = x * len(b.name)
            with Logged(log, "c"):
                x = x + len(log)
        return x, log

    return fn, ordinary


@program
def test_return_out_of_a_with_block():
    def fn(x):
        log = []

        def inner():
            with Logged(log, "a"):
                for i in range(3):
                    with Logged(log, f"b{i}"):
                        if i == 1:
                            return x * i

        return inner() + 1, log

    return fn, ordinary


@program
def test_break_and_continue_out_of_a_with_block():
    def fn(x):
        log = []
        for i in range(4):
            with Logged(log, str(i)):
                if i == 0:
                    continue
                if i == 2:
                    break
                x = x + 1
        return x, log

    return fn, ordinary


@program
def test_manager_swallows_its_error():
    def fn(x):
        log = []
        with Logged(log, "a", swallow=(ValueError,)):
            x = x + 1
            raise ValueError
        with Logged(log, "b", swallow=(RuntimeError,)):
            x = x @ torch.ones(99)
        return x * 2, log

    return fn, ordinary


@program
def test_manager_lets_another_error_through():
    log = []

    def fn(x, n):
        with Logged(log, "a", swallow=(KeyError,)):
            x = x.reshape(n, -1)
        return x * 2

    return fn, [(torch.randn(4), 2), (torch.randn(4), 3), (torch.randn(4), 2), (torch.randn(4), 3)], log


@program
def test_break_inside_a_with_block():
    def fn(x):
        log = []
        with Logged(log, "outer") as outer:
            x = x.sin()
            if x.sum() > 0:
                outer.name = "positive"
                x = x + 1
            x = x * 2
        return x, log

    return fn, swinging


@program
def test_break_in_enter_and_exit():
    class Scope:
        def __init__(self, x):
            self.x = x

        def __enter__(self):
            return self.x + (1 if self.x.sum() > 0 else 2)

        def __exit__(self, *_):
            self.x = self.x * (3 if self.x.max() > 1 else 4)

    def fn(x):
        scope = Scope(x)
        with scope as y:
            y = y.sin()
        return y, scope.x

    return fn, swinging


@program
def test_return_from_within_a_broken_with_block():
    def fn(x):
        log = []
        with Logged(log, "a"):
            if x.sum() > 0:
                return x + 1, log
            x = x * 2
        return x, log

    return fn, swinging


@program
def test_contextmanager_from_a_generator():
    @contextlib.contextmanager
    def scaled(x, by):
        log.append("in")
        try:
            yield x * by
        finally:
            log.append("out")

    log = []

    def fn(x):
        with scaled(x, 3) as y:
            log.append("body")
        return y + 1

    return fn, ordinary, log


@program
def test_contextmanager_catches_at_its_yield():
    @contextlib.contextmanager
    def guard(out):
        try:
            yield
        except RuntimeError as error:
            out.append(type(error).__name__)

    def fn(x, n):
        out = []
        with guard(out):
            x = x.view(n, -1)
        return x + 1, out

    return fn, [(torch.randn(4), 2), (torch.randn(4), 3), (torch.randn(4), 2)]


@program
def test_contextmanager_around_a_break_that_raises():
    @contextlib.contextmanager
    def scope(log):
        log.append("in")
        try:
            yield log
        except ValueError:
            log.append("caught")
            raise
        finally:
            log.append("out")

    log = []

    def fn(x):
        with scope(log) as seen:
            if x.sum() < 0:
                raise ValueError("negative")
            seen.append(x.sum())
        return x * 2

    return fn, swinging, log


@program
def test_contextmanager_used_as_a_decorator():
    log = []

    @contextlib.contextmanager
    def noted(name):
        log.append(name)
        yield
        log.append(f"/{name}")

    @noted("step")
    def step(x):
        return x * 2

    def fn(x):
        return step(step(x))

    return fn, ordinary, log


@program
def test_attribute_set_for_the_length_of_a_block():
    class Model:
        training = True

    @contextlib.contextmanager
    def evaluating(model):
        was, model.training = model.training, False
        try:
            yield model
        finally:
            model.training = was

    model = Model()

    def layer(x):
        return x * 2 if model.training else x

    def fn(x):
        a = layer(x)
        with evaluating(model):
            b = layer(x)
        return a, b, layer(x)

    x = torch.randn(2)
    return (
        fn,
        [
            (x,),
            (x, Before(lambda: setattr(model, "training", False))),
            (x, Before(lambda: setattr(model, "training", True))),
        ],
        model,
    )


@program
def test_exit_stack_unwinds_entered_contexts():
    def fn(x, n):
        log = []
        with contextlib.ExitStack() as stack:
            for i in range(n):
                stack.enter_context(Logged(log, str(i)))
            stack.callback(log.append, "callback")
            x = x * n
        return x, log

    return fn, [(torch.randn(2), n) for n in (2, 3, 0, 2)]


@program
def test_exit_stack_swallows_and_keeps():
    def fn(x):
        log = []
        with contextlib.ExitStack() as stack:
            stack.enter_context(Logged(log, "a", swallow=(ValueError,)))
            stack.enter_context(Logged(log, "b"))
            x = x + 1
            raise ValueError("inside")
        kept = contextlib.ExitStack()
        kept.enter_context(Logged(log, "late"))
        later = kept.pop_all()
        log.append("between")
        later.close()
        return x, log

    return fn, ordinary


@program
def test_suppress_keeps_listed_errors_only():
    def fn(x, table):
        scale = 1.0
        with contextlib.suppress(KeyError):
            scale = table["scale"]
        with contextlib.suppress(ValueError, ZeroDivisionError):
            scale = scale / table["by"]
        return x * scale

    return fn, [
        (torch.randn(2), table)
        for table in ({"scale": 2.0, "by": 2}, {"by": 0}, {"scale": 3.0}, {"scale": 2.0, "by": 2})
    ]


@program
def test_nullcontext_as_conditional_manager():
    def fn(x, frozen):
        manager = torch.no_grad() if frozen else contextlib.nullcontext()
        with manager:
            y = x * 2
        with contextlib.nullcontext(y) as z:
            return z + 1, z.requires_grad

    return fn, [(torch.randn(2, requires_grad=True), f) for f in (True, False, True)]


@program
def test_closing_calls_close():
    class Source:
        def __init__(self):
            self.open = True

        def close(self):
            self.open = False

    def fn(x):
        source = Source()
        with contextlib.closing(source) as s:
            x = x + s.open
        return x, source.open

    return fn, ordinary


@program
def test_grad_mode_is_restored_after_an_error():
    def fn(x, n):
        try:
            with torch.no_grad():
                y = (x * 2).reshape(n, -1)
        except RuntimeError:
            y = x * 3
        return y, torch.is_grad_enabled(), y.requires_grad

    return fn, [(torch.randn(4, requires_grad=True), n) for n in (2, 3, 2)]


@program
def test_grad_mode_around_a_break():
    def fn(x):
        with torch.no_grad():
            y = x * 2
            if y.sum() > 0:
                y = y + x
            z = y * x
        w = x * z
        return y.requires_grad, z.requires_grad, w.requires_grad, w.detach()

    return fn, lambda i: (swing(i).requires_grad_(),)


@program
def test_grad_mode_differs_between_calls():
    def fn(x, flag):
        with torch.set_grad_enabled(flag):
            y = x.sin()
        return y, y.requires_grad

    return fn, [(torch.randn(2, requires_grad=True), f) for f in (True, False, True)]


@program
def test_grad_mode_of_the_caller_left_as_it_is():
    def fn(x):
        y = x * 2
        if y.sum() > 0:
            y = y.sin()
        return y, y.requires_grad

    def turn(on):
        torch.set_grad_enabled(on)

    x = torch.randn(2, requires_grad=True)
    return fn, [(x,), (x, Before(lambda: turn(False))), (x, Before(lambda: turn(True))), (x,)]


@program
def test_manager_held_by_an_object_and_entered_by_hand():
    def fn(x):
        log = []
        manager = Logged(log, "hand")
        entered = manager.__enter__()
        try:
            x = x + 1
        finally:
            left = manager.__exit__(None, None, None)
        return x, log, entered is manager, left

    return fn, ordinary


@program
def test_reentrant_manager_counts_its_depth():
    class Depth:
        depth = 0

        def __enter__(self):
            self.depth += 1
            return self.depth

        def __exit__(self, *_):
            self.depth -= 1

    depth = Depth()

    def fn(x, n):
        if n == 0:
            return x
        with depth as d:
            return fn(x * d, n - 1) + d

    return fn, [(torch.randn(2), n) for n in (2, 3, 2)], depth


@program
def test_object_without_the_protocol():
    def fn(x):
        with x.sum():
            return x

    return fn, ordinary


@program
def test_error_while_entering_the_second_leaves_the_first():
    log = []

    class Broken(Logged):
        def __enter__(self):
            raise OSError("cannot open")

    def fn(x):
        try:
            with Logged(log, "a"), Broken(log, "b"):
                return x
        except OSError as error:
            return x * 2, str(error)

    return fn, ordinary, log


@program
def test_with_inside_a_generator_inside_a_with():
    def fn(x):
        log = []

        def chunks():
            with Logged(log, "generator"):
                for part in x.unbind():
                    yield part

        with Logged(log, "function"):
            total = 0
            for part in chunks():
                if part.item() > 1:
                    log.append("big")
                total = total + part
        return total, log

    return fn, swinging
