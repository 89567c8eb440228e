"""Exceptions: raised, caught, chained, let through; finally with every way out; errors of tensor operations.

PYTEST_DONT_REWRITE: the assert statements here belong to the programs, and pytest would put its own code in them.
"""

import contextlib
import linecache
import sys
import traceback
import unittest
import weakref

import pytest
import torch

import burnish

from .call_sequences import Before, ordinary, swing, swinging
from .harness import program


class ShapeError(ValueError):
    """An error that carries data."""

    def __init__(self, message, shape):
        super().__init__(message)
        self.shape = shape


def checked(x, n):
    if x.shape[-1] != n:
        raise ShapeError(f"expected {n} columns, got {x.shape[-1]}", tuple(x.shape))
    return x * n


@program(breaks=0)
def test_raised_and_caught_in_the_same_function():
    def fn(x):
        try:
            raise ValueError("inner")
        except ValueError:
            x = x + 1
        return x * 2

    return fn, ordinary


@program(breaks=0)
def test_raised_in_a_callee_and_caught_by_the_caller():
    def fn(x):
        try:
            return checked(x, 3)
        except ShapeError:
            return x - 1

    return fn, [(torch.randn(3),), (torch.randn(4),), (torch.randn(3),)]


@program
def test_attributes_and_args_of_a_caught_error():
    def fn(x):
        try:
            return checked(x, 3)
        except ShapeError as error:
            return x + error.shape[0], str(error), error.args, repr(error)

    return fn, [(torch.randn(3),), (torch.randn(4),), (torch.randn(3),)]


@program
def test_uncaught_error_reaches_the_caller():
    def fn(x):
        y = x.sin()
        return checked(y, 3) + y

    return fn, [(torch.randn(3),), (torch.randn(4),), (torch.randn(3),), (torch.randn(4),)]


@program
def test_uncaught_error_after_side_effects_keeps_them():
    log = []

    def fn(x):
        log.append(x.sum())
        x.add_(1)
        y = checked(x, 3)
        log.append(y)
        return y

    return fn, [(torch.randn(3),), (torch.randn(4),), (torch.randn(3),), (torch.randn(4),)], log


@program
def test_uncaught_error_of_a_tensor_operation():
    def fn(x, w):
        h = x.relu()
        return h @ w

    return fn, [
        (torch.randn(2, 3), torch.randn(3, 2)),
        (torch.randn(2, 3), torch.randn(4, 2)),
        (torch.randn(2, 3), torch.randn(3, 2)),
        (torch.randn(2, 3), torch.randn(4, 2)),
    ]


@program
def test_caught_error_of_a_tensor_operation():
    def fn(x, y):
        try:
            z = x + y
        except RuntimeError as error:
            z = x.sum() + y.sum()
            return z, str(error).split(" ")[0]
        return z * 2

    return fn, [(torch.randn(3), torch.randn(3)), (torch.randn(3), torch.randn(4)), (torch.randn(3), torch.randn(3))]


@program
def test_data_dependent_tensor_error_in_later_calls_only():
    def fn(x, index):
        y = x * 2
        try:
            return y[index] + 1
        except IndexError:
            return y - 1

    return fn, [
        (torch.randn(3), torch.tensor([0, 2])),
        (torch.randn(3), torch.tensor([0, 5])),
        (torch.randn(3), torch.tensor([1, 1])),
    ]


@program
def test_error_raised_because_of_tensor_data():
    def fn(x):
        if not torch.isfinite(x).all():
            raise FloatingPointError(f"{int((~torch.isfinite(x)).sum())} bad values")
        return x.log()

    return fn, [(torch.tensor([1.0, 2.0]),), (torch.tensor([1.0, float("inf")]),), (torch.tensor([3.0, 2.0]),)]


@program
def test_assert_that_passes_and_fails():
    def fn(x, n):
        assert x.shape[0] == n, f"expected {n} rows, got {x.shape[0]}"
        return x * n

    return fn, [(torch.randn(3), 3), (torch.randn(3), 4), (torch.randn(3), 3), (torch.randn(4), 4)]


@program
def test_assert_on_data():
    def fn(x):
        y = x * 2
        assert (y > 0).all(), "not all positive"
        return y.sqrt()

    return fn, swinging


@program
def test_assert_without_message_caught():
    def fn(x):
        try:
            assert x.sum() > 0
            return x + 1
        except AssertionError as error:
            return x - 1, error.args

    return fn, swinging


@program
def test_else_runs_only_without_an_error():
    def fn(x):
        log = []
        try:
            y = x.reshape(2, -1)
        except RuntimeError:
            log.append("except")
            y = x
        else:
            log.append("else")
            y = y + 1
        finally:
            log.append("finally")
        return y, log

    return fn, [(torch.randn(4),), (torch.randn(3),), (torch.randn(4),)]


@program(breaks=0)
def test_return_in_try_runs_finally_first():
    def fn(x):
        log = []

        def inner():
            try:
                return x * 2
            finally:
                log.append("finally")

        y = inner()
        return y, log

    return fn, ordinary


@program
def test_return_in_finally_swallows_the_error():
    def fn(x):
        def inner():
            try:
                raise ValueError("lost")
            finally:
                return x * 3  # noqa: B012

        return inner() + 1

    return fn, ordinary


@program
def test_return_in_finally_wins_over_return_in_try():
    def fn(x):
        def inner(flag):
            try:
                return x
            finally:
                if flag:
                    return x + 1  # noqa: B012

        return inner(True), inner(False)

    return fn, ordinary


@program
def test_break_and_continue_leave_through_finally():
    def fn(x):
        log = []
        for i in range(5):
            try:
                if i == 1:
                    continue
                if i == 3:
                    break
                x = x + i
            finally:
                log.append(i)
                x = x * 2
        return x, log

    return fn, ordinary


@program
def test_data_dependent_break_leaves_through_finally():
    def fn(x):
        steps = 0
        while True:
            try:
                if x.sum() > 10:
                    break
                x = x.abs() * 2
            finally:
                steps += 1
        return x, steps

    return fn, [(torch.full((2,), v),) for v in (0.5, 20.0, -0.5, 3.0)]


@program
def test_continue_in_except_inside_a_loop():
    def fn(xs):
        total, skipped = torch.zeros(2), 0
        for x in xs:
            try:
                total = total + checked(x, 2)
            except ShapeError:
                skipped += 1
                continue
            total = total * 1.5
        return total, skipped

    return fn, [([torch.randn(n) for n in sizes],) for sizes in ((2, 3, 2), (3, 3), (2,), (2, 3, 2))]


@program(breaks=0)
def test_nested_try_with_the_outer_handler_taken():
    def fn(x):
        try:
            try:
                raise KeyError("k")
            except ValueError:
                x = x + 100
            finally:
                x = x + 1
        except KeyError:
            x = x * 2
        return x

    return fn, ordinary


@program
def test_error_in_a_handler_has_the_first_as_context():
    def fn(x):
        try:
            try:
                raise KeyError("first")
            except KeyError:
                raise ValueError("second")  # noqa: B904
        except ValueError as error:
            return x + 1, repr(error.__context__), error.__cause__, error.__suppress_context__

    return fn, ordinary


@program
def test_raise_from_sets_the_cause():
    def fn(x):
        try:
            try:
                return checked(x, 2)
            except ShapeError as error:
                raise RuntimeError("layer failed") from error
        except RuntimeError as error:
            return x - 1, str(error), type(error.__cause__).__name__, error.__cause__.shape

    return fn, [(torch.randn(3),), (torch.randn(2),), (torch.randn(3),)]


@program
def test_raise_from_leaves_the_function():
    def fn(x):
        try:
            return checked(x, 2)
        except ShapeError as error:
            raise RuntimeError("layer failed") from error

    return fn, [(torch.randn(3),), (torch.randn(2),), (torch.randn(3),), (torch.randn(2),)]


@program
def test_raise_from_none():
    def fn(x):
        try:
            try:
                raise KeyError("hidden")
            except KeyError:
                raise ValueError("shown") from None
        except ValueError as error:
            return x * 2, error.__suppress_context__, error.__cause__

    return fn, ordinary


@program
def test_bare_raise_sends_the_same_error_on():
    log = []

    def fn(x):
        try:
            return checked(x, 2)
        except ShapeError as error:
            log.append(error.shape)
            raise

    return fn, [(torch.randn(n),) for n in (3, 2, 4, 2, 3)], log


@program
def test_bare_raise_without_an_error():
    def fn(x):
        try:
            raise  # noqa: PLE0704
        except RuntimeError as error:
            return x + 1, str(error)

    return fn, ordinary


@program
def test_except_with_a_tuple_of_types():
    def fn(x, kind):
        try:
            if kind == 0:
                raise KeyError("k")
            if kind == 1:
                raise IndexError("i")
            if kind == 2:
                raise TypeError("t")
        except (KeyError, IndexError) as error:
            return x + 1, type(error).__name__
        except Exception as error:
            return x + 2, type(error).__name__
        return x + 3

    return fn, [(torch.randn(2), k) for k in (0, 1, 2, 3, 0)]


@program
def test_types_to_catch_come_from_a_variable():
    def fn(x, types):
        try:
            return x.reshape(7, -1)
        except types:
            return x * 2

    return fn, [
        (torch.randn(3), RuntimeError),
        (torch.randn(3), (KeyError, RuntimeError)),
        (torch.randn(3), KeyError),
        (torch.randn(3), RuntimeError),
    ]


@program
def test_name_of_a_caught_error_is_gone_afterwards():
    def fn(x):
        error = "before"
        try:
            raise ValueError
        except ValueError as error:
            x = x + len(error.args)
        try:
            return x, error
        except UnboundLocalError as gone:
            return x, str(gone)

    return fn, ordinary


@program
def test_error_objects_are_stored_and_raised_later():
    def fn(xs):
        errors, total = [], 0
        for x in xs:
            try:
                total = total + checked(x, 2).sum()
            except ShapeError as error:
                errors.append(error)
        if len(errors) > 1:
            raise errors[-1]
        return total, [str(e) for e in errors]

    return fn, [([torch.randn(n) for n in sizes],) for sizes in ((2, 3), (3, 4), (2, 2), (2, 3))]


@program
def test_lookup_errors_are_caught_with_their_texts():
    def fn(x, table, items, i):
        out = []
        for attempt in (lambda: table[i], lambda: items[i], lambda: x.shape[i], lambda: x.nothing, lambda: 1 / i):
            try:
                out.append(attempt())
            except (KeyError, IndexError, AttributeError, ZeroDivisionError) as error:
                out.append((type(error).__name__, str(error)))
        return x * 2, out

    return fn, [(torch.randn(2), {0: x}, [5], i) for x, i in (("a", 0), ("b", 1), ("a", 0))]


@program
def test_key_error_from_a_changing_dict():
    table = {"a": 2.0}

    def fn(x):
        try:
            scale = table["b"]
        except KeyError:
            scale = table["a"]
        return x * scale

    x = torch.randn(2)
    return fn, [(x,), (x, Before(lambda: table.update(b=3.0))), (x, Before(lambda: table.pop("b")))]


@program
def test_error_with_a_break_in_every_part():
    def fn(x):
        log = []
        try:
            if x.sum() > 0:
                raise ValueError(x.max().item())
            log.append("fine")
        except ValueError as error:
            log.append(("caught", error.args[0]))
            if x.max() > 1:
                x = x * 2
        else:
            if x.min() < -1:
                x = x * 3
        finally:
            log.append(bool(x.sum() > 0))
            x = x + 1
        return x, log

    return fn, swinging


@program
def test_exception_group_is_split_by_except_star():
    def fn(x, n):
        log = []
        try:
            errors = [ValueError("v"), KeyError("k"), ValueError("w")][:n]
            raise ExceptionGroup("many", errors)
        except* ValueError as group:
            log.append(("value", len(group.exceptions)))
            x = x + 1
        except* KeyError as group:
            log.append(("key", [str(e) for e in group.exceptions]))
            x = x * 2
        return x, log

    return fn, [(torch.randn(2), n) for n in (1, 2, 3, 1)]


@program
def test_exception_group_leaves_with_what_is_left():
    def fn(x):
        try:
            raise ExceptionGroup("many", [ValueError("v"), TypeError("t")])
        except* ValueError:
            x.add_(1)

    return fn, ordinary


@program
def test_note_added_to_an_error():
    def fn(x):
        try:
            checked(x, 2)
        except ShapeError as error:
            error.add_note(f"in layer {x.dim()}")
            return x, error.__notes__
        return x * 2

    return fn, [(torch.randn(3),), (torch.randn(2),), (torch.randn(3),)]


@program
def test_error_in_finally_replaces_the_first():
    def fn(x):
        try:
            try:
                raise ValueError("first")
            finally:
                x = x + 1
                {}["missing"]
        except KeyError as error:
            return x, type(error.__context__).__name__

    return fn, ordinary


@program
def test_not_implemented_and_custom_hierarchies():
    class LayerError(Exception): ...

    class WeightError(LayerError): ...

    class Layer:
        def forward(self, x):
            raise NotImplementedError(type(self).__name__)

    def fn(x, n):
        try:
            if n == 0:
                Layer().forward(x)
            raise WeightError("w") if n == 1 else LayerError
        except WeightError:
            return x + 1
        except LayerError as error:
            return x + 2, str(error)
        except NotImplementedError as error:
            return x + 3, str(error)

    return fn, [(torch.randn(2), n) for n in (0, 1, 2, 0)]


@program
def test_lines_of_the_traceback_name_the_users_functions():
    def inner(x):
        return checked(x, 3)

    def fn(x):
        try:
            inner(x)
        except ShapeError as error:
            names, tb = [], error.__traceback__
            while tb is not None:
                names.append(tb.tb_frame.f_code.co_name)
                tb = tb.tb_next
            return x * 2, names
        return x

    return fn, [(torch.randn(4),), (torch.randn(3),), (torch.randn(4),)]


@program
def test_error_escapes_a_loop_after_in_place_writes():
    def fn(x, limit):
        for i in range(4):
            x += 1
            if i == limit:
                raise StopIteration(i)
        return x * 2

    return fn, [(torch.zeros(2), n) for n in (1, 9, 2, 1)]


@program
def test_system_exit_and_base_exceptions_pass_except_exception():
    def fn(x):
        try:
            try:
                raise KeyboardInterrupt("stop")
            except Exception:
                return x
        except BaseException as error:
            return x * 2, repr(error)

    return fn, ordinary


@program
def test_retry_loop_until_it_fits():
    def fn(x, sizes):
        for n in sizes:
            try:
                y = x.view(n, -1)
                break
            except RuntimeError:
                continue
        else:
            raise ShapeError("nothing fits", x.shape)
        return y.sum(0), n

    return fn, [(torch.randn(6), s) for s in ([4, 3], [4, 5], [2], [4, 3])]


@program
def test_error_thrown_by_an_operator_of_a_class():
    class Strict:
        def __init__(self, x):
            self.x = x

        def __add__(self, other):
            if other.x.shape != self.x.shape:
                raise ShapeError("add", tuple(other.x.shape))
            return Strict(self.x + other.x)

    def fn(x, y):
        try:
            return (Strict(x) + Strict(y)).x
        except ShapeError as error:
            return x, error.shape

    return fn, lambda i: (torch.randn(2), torch.randn(2 if i != 1 else 3))


@program
def test_breaks_before_during_and_after_a_caught_tensor_error():
    def fn(x, y):
        scale = 2 if x.sum() > 0 else 3
        try:
            z = x @ y
        except RuntimeError:
            z = x.sum() * (1 if y.sum() > 0 else -1)
        return z * scale if z.sum() > 0 else z + scale

    return fn, lambda i: (swing(i, 3), torch.randn(3 if i != 1 else 2))


@program
def test_cause_whose_class_raises():
    class Broken(Exception):
        def __init__(self):
            raise RuntimeError("no cause")

    def fn(x):
        try:
            raise IndexError from Broken
        except RuntimeError as error:
            return x, str(error)

    return fn, [(torch.ones(2),)]


@program
def test_error_thrown_into_a_delegate_has_the_context_of_its_delegator():
    def inner():
        try:
            yield
        except Exception:
            raise

    def outer():
        try:
            raise KeyError("a")
        except KeyError:
            yield from inner()

    def fn(x):
        made = outer()
        next(made)
        try:
            made.throw(ValueError)
        except ValueError as error:
            return x, repr(error.__context__)

    return fn, [(torch.ones(2),)]


@program
def test_error_that_was_handled_shows_where_it_was_raised_on_every_run():
    def fails(x):
        raise ValueError(x.shape[0])

    def fn(x):
        try:
            fails(x)
        except ValueError as error:
            kept = error
        if x.sum() > 0:
            x = x + 1
        shown = [(at.name, at.lineno) for at in traceback.extract_tb(kept.__traceback__)]
        return x, shown, kept.with_traceback(None).__traceback__

    return fn, swinging


@pytest.mark.parametrize("value", [3, "text", None, (1,)])
def test_error_about_an_attribute_of_a_plain_value_has_no_context(value):
    compiled = burnish.compile(lambda x, value: x * value.missing, backend="eager")
    for _ in range(2):
        with pytest.raises(AttributeError) as caught:
            compiled(torch.ones(2), value)
        assert caught.value.__context__ is None


@program(breaks=0)
def test_assert_raises_clears_the_frames_of_the_error():
    case = unittest.TestCase()

    def fn(x):
        with case.assertRaises(ShapeError) as caught:
            checked(x, 9)
        case.assertRaisesRegex(ShapeError, "expected 8 columns", checked, x, 8)
        case.assertEqual(caught.exception.shape, tuple(x.shape))
        return x + caught.exception.shape[0]

    return fn, ordinary


@program(breaks=0)
def test_a_frame_that_runs_is_not_cleared():
    def fn(x):
        try:
            checked(x, 9)
        except ShapeError as error:
            inner = error.__traceback__.tb_next.tb_frame
            inner.clear()
            try:
                error.__traceback__.tb_frame.clear()
            except RuntimeError as refused:
                return x + 1, str(refused), inner.f_code.co_name

    return fn, ordinary


@program
def test_traceback_shows_where_in_the_line_an_error_was_raised():
    def inner(x):
        return x.missing

    def fn(x):
        try:
            y = inner(x)
        except AttributeError as error:
            frames = traceback.extract_tb(error.__traceback__)
            names = [frame.name for frame in frames]
            lines = [linecache.getline(f.filename, f.lineno)[f.colno : f.end_colno] for f in frames]
            return x * 2, names[names.index("fn") :], lines[names.index("fn") :]
        return y

    return fn, lambda i: (torch.ones(2),)


@program
def test_the_class_of_a_cause_makes_no_error():
    class Odd(Exception):
        def __new__(cls):
            return None

    def fn(x):
        seen = []
        for raising in (ValueError, Odd):
            try:
                raise raising from Odd
            except (TypeError, ValueError) as error:
                seen.append((type(error).__name__, "should have returned an instance of BaseException" in str(error)))
        return x * 2, seen

    return fn, lambda i: (torch.ones(2),)


@program
def test_a_handled_error_ends_with_its_handler():
    class Held:
        pass

    class Holding(Exception):
        def __init__(self, held):
            self.held = held

    def fn(x):
        held = Held()
        reference = weakref.ref(held)
        try:
            raise Holding(held)
        except Holding:
            try:
                try:
                    raise
                finally:
                    raise
            except Holding:
                pass
        held = None
        return x * 2, reference() is None

    return fn, lambda i: (torch.ones(2),)


@program(breaks=0)
def test_the_handled_error_is_asked_for():
    def fn(x):
        seen = [sys.exception()]
        try:
            raise KeyError("a")
        except KeyError as error:
            seen.append(sys.exception() is error)
            try:
                raise ValueError("b")
            except ValueError as second:
                seen.append((sys.exception() is second, second.__context__ is error))
            seen.append(sys.exception() is error)
        return x * 2, seen, sys.exception()

    return fn, lambda i: (torch.ones(2),)


@program(breaks=0)
def test_groups_are_split_and_shown():
    def fn(x):
        group = ExceptionGroup("both", [ValueError(1), OSError(2)])
        with contextlib.suppress(ExceptionGroup):
            raise ExceptionGroup("one", [KeyError(3)])
        parts = group.split(ValueError)
        return x * 2, repr(parts), repr(group.subgroup((OSError, KeyError))), str(ValueError(1, KeyError(2)))

    return fn, lambda i: (torch.ones(2),)


@program
def test_group_around_a_single_error_holds_a_tuple():
    def fn(x):
        try:
            raise ValueError("alone")
        except* ValueError as group:
            found = type(group.args[1]).__name__, len(group.exceptions)
        return x + 1, found

    return fn, [(torch.ones(2),)] * 3


class MadeOfMore(Exception):
    def __new__(cls, code):
        return super().__new__(cls, code, 7)

    def __init__(self, code):
        self.code = code


class OwnGroup(ExceptionGroup):
    def __new__(cls, message, code):
        return super().__new__(cls, message, [ValueError(code)])


@program
def test_exceptions_with_their_own_constructor_cross_breaks():
    def fn(x):
        error, group = MadeOfMore(3), OwnGroup("text", 4)
        if x.sum() > 0:
            x = x + 1
        return x, repr(error), error.args, error.code, str(group), group.args, repr(group.exceptions)

    return fn, [(torch.ones(2),) for _ in range(3)]


@program
def test_groups_cross_breaks_after_their_arguments_have_changed():
    def fn(x):
        errors = [ValueError(1)]
        first, second = ExceptionGroup("a", errors), ExceptionGroup("b", (KeyError(1), first_of(errors)))
        errors.append(2)
        second.args = ("c",)
        if x.sum() > 0:
            x = x + 1
        return (
            x,
            repr(first),
            first.args[1] is errors,
            first.exceptions,
            repr(second),
            second.message,
            second.exceptions,
        )

    def first_of(errors):
        return errors[0]

    return fn, [(torch.ones(2),) for _ in range(3)]


@program
def test_object_of_an_attribute_error_over_a_break():
    def fn(x):
        error = AttributeError("m", name="n", obj=3)
        burnish.graph_break()
        return x + 1, error.name, error.obj

    return fn, [(torch.ones(2),)]
