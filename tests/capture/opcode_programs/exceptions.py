"""Raising, catching, finally, exception groups."""

import sys

from . import case


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
    except ValueError as error:  # noqa: F841
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
