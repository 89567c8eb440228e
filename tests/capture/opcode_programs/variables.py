"""Globals, locals, cells, imports."""

import os.path

from . import case

COUNT = 0


@case()
def globals_are_read_written_and_deleted():
    global COUNT, PASSING
    COUNT += 1
    PASSING = COUNT
    found = PASSING, len("ab")
    del PASSING
    try:
        return PASSING
    except NameError as error:
        COUNT = 0
        return found, str(error), error.name


@case((True,), (False,))
def locals_may_be_unbound(known):
    if known:
        value = 1
    try:
        return value
    except UnboundLocalError as error:
        return str(error)


@case()
def deleting_a_local_twice():
    value = 1
    del value
    try:
        del value  # noqa: F821
    except UnboundLocalError as error:
        return str(error)


@case((3,))
def closures_share_their_cells(n):
    def add(k):
        nonlocal n
        n += k
        return n

    def drop():
        nonlocal n
        del n

    first = add(2), add(3), n
    drop()
    try:
        add(1)
    except NameError as error:
        text = str(error)
    try:
        n  # noqa: B018
    except UnboundLocalError as error:
        return first, text, str(error)


@case()
def deleting_an_unbound_free_variable():
    def drop():
        nonlocal value
        del value

    if COUNT:
        value = 1
    try:
        drop()
    except NameError as error:
        return str(error)


@case((1, 2), (3, 4))
def parameters_become_cells(a, b):
    def swap():
        nonlocal a, b
        a, b = b, a

    swap()
    return a, b, (lambda: (a, b))()


@case()
def locals_and_friends_see_the_frame():
    a, b = 1, 2

    def inner():
        return a

    return sorted(locals()), sorted(vars()), dir(), eval("a + b"), inner(), "COUNT" in globals()


@case()
def imports_inside_a_function():
    import collections.abc
    import os.path as path
    from math import floor, pi

    return collections.abc.Mapping.__name__, path is os.path, floor(pi)


@case()
def importing_what_is_not_there():
    try:
        from math import nothing_of_the_kind
    except ImportError as error:
        return str(error).split("(")[0], error.name, nothing_of_the_kind if COUNT else None


@case((5,), (50,))
def walrus_in_conditions_and_comprehensions(n):
    if (half := n // 2) > 10:
        return half, [last := i for i in range(half)][-1], last
    return [y for x in range(n) if (y := x * x) % 2], y
