"""Loops and jumps."""

from . import case
from .containers import Pair


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
