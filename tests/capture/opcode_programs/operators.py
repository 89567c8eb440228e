"""Arithmetic, comparisons, subscripts and truth, of builtin types and of a class with methods for them."""

from . import case


@case((7, 3), (2.5, 0.5), (-7, 2))
def arithmetic(a, b):
    return a + b, a - b, a * b, a / b, a // b, a % b, a**2, -a, +a, not a


@case((12, 10))
def bits(a, b):
    return a & b, a | b, a ^ b, a << 2, a >> 1, ~a


@case((7, 3))
def in_place_operators(a, b):
    c = d = e = f = g = h = i = j = a
    c += b
    d -= b
    e *= b
    f /= b
    g //= b
    h %= b
    i **= b
    j <<= b
    k = l = m = n = a  # noqa: E741
    k >>= 1
    l &= b  # noqa: E741
    m |= b
    n ^= b
    return c, d, e, f, g, h, i, j, k, l, m, n


class Vector:
    def __init__(self, *parts):
        self.parts = parts

    def __matmul__(self, other):
        return sum(a * b for a, b in zip(self.parts, other.parts))

    def __imatmul__(self, other):
        self.parts = (self @ other,)
        return self

    def __iadd__(self, other):
        self.parts += other.parts
        return self

    def __add__(self, other):
        return Vector(*[a + b for a, b in zip(self.parts, other.parts)])

    def __neg__(self):
        return Vector(*[-a for a in self.parts])

    def __pos__(self):
        return self.parts

    def __invert__(self):
        return self.parts[::-1]

    def __eq__(self, other):
        return self.parts == other.parts

    def __lt__(self, other):
        return self.parts < other.parts and [self.parts]

    def __bool__(self):
        return any(self.parts)

    def __contains__(self, item):
        return item in self.parts and "yes"

    def __iter__(self):
        return iter(self.parts)

    def __format__(self, spec):
        return f"<{', '.join(format(p, spec) for p in self.parts)}>"

    def __getitem__(self, key):
        if isinstance(key, slice):
            return key.start, key.stop, key.step
        return self.parts[key]

    def __setitem__(self, key, value):
        self.parts = self.parts, key, value

    def __delitem__(self, key):
        self.parts = self.parts, "without", key

    def __repr__(self):
        return f"Vector{self.parts}"


@case()
def operators_of_a_class():
    a, b = Vector(1, 2), Vector(3, 4)
    c = a + b
    d = -c
    a += b
    e = Vector(1, 1)
    e @= Vector(5, 6)
    return c, d, a, a == b, a < b, b < a, +a, ~a, Vector(1, 2) @ b, e.parts


@case()
def truth_of_a_class_in_every_place():
    yes, no = Vector(1), Vector(0)
    found = [not yes, not no, bool(no), yes and 1, no and 1, yes or 2, no or 2, 1 if yes else 2, 1 if no else 2]
    while not no:
        no = yes
    while no:
        no = Vector(0)
    if yes and not no:
        found.append("both")
    assert yes, "yes is true"
    return found, [v for v in (yes, no) if v], no or None or yes, (yes < Vector(5)) and 7


@case()
def membership_and_identity_of_a_class():
    v = Vector(1, 2)
    return 1 in v, 3 in v, 1 not in v, 3 not in v, v is v, v is not None, [k for k in range(4) if k in v]


@case()
def subscripts_of_a_class():
    v = Vector(1, 2)
    first = v[0], v[1:2], v[:], v[::2], v[1:], v[-1]
    v[3] = 4
    v[1:2] = 5
    del v[6]
    del v[1:2]
    return first, v.parts


@case(([1, 2, 3, 4, 5],))
def slices(items):
    a = items[1:3], items[:2], items[-2:], items[:], items[::2], items[4:1:-1]
    items[1:3] = [9]
    items[:0] = [7, 7]
    del items[-1:]
    start = len(items) - 2
    items[start : start + 1] = [*items[start : start + 1], 8]
    items[::2] = [0] * len(items[::2])
    return a, items


@case((1, 2, 3), (3, 2, 1), (2, 2, 2))
def comparisons_chained(a, b, c):
    return a < b < c, a <= b <= c, a == b == c, a != b != c, a > b > c, a >= b >= c, a < b > c, a is b is c, a in (b, c)


@case((1, 0), (0, 1), (None, None), ("", "x"))
def boolean_operators(a, b):
    mixed = a and b or a, (a or b) and not (a and b), a if b else "else"
    return a and b, a or b, not a, mixed, a is None, b is not None
