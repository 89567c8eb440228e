"""Programs for the tests of the instruction set: names, operators, containers, calls, classes.

``case`` enters a function with the argument tuples it is run on. Nothing here is about tensors: what is compared is what
plain Python does with what the interpreter does.
"""

import collections
import os.path
import sys

CASES: list = []


def case(*calls: tuple):
    """Run the function on each of these argument tuples; without any, on no arguments."""

    def enter(function):
        CASES.append((function, calls or ((),)))
        return function

    return enter


# ---- names

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
        del value
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

    return dict(sorted(locals().items(), key=str)).keys(), sorted(vars()), dir(), eval("a + b"), inner(), "CASES" in globals()


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


# ---- operators

@case((7, 3), (2.5, 0.5), (-7, 2))
def arithmetic(a, b):
    return a + b, a - b, a * b, a / b, a // b, a % b, a ** 2, -a, +a, not a


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
    items[::2] = [0] * len(items[::2])
    return a, items


@case((1, 2, 3), (3, 2, 1), (2, 2, 2))
def comparisons_chained(a, b, c):
    return a < b < c, a <= b <= c, a == b == c, a != b != c, a > b > c, a >= b >= c, a < b > c, a is b is c, a in (b, c)


@case((1, 0), (0, 1), (None, None), ("", "x"))
def boolean_operators(a, b):
    return a and b, a or b, not a, a and b or a, (a or b) and not (a and b), a if b else "else", a is None, b is not None


# ---- containers and strings

@case()
def building_containers():
    a, b = [1, 2], {"k": 1}
    return [0, *a, 3, *a], (*a, 4), {*a, 5}, {**b, "z": 2, **{"k": 3}}, [1, 2, 3, 4], {1, 2, 3}, {"a": 1, "b": 2}, [], {}, ()


@case()
def comprehensions():
    n = 3
    x = "outer"
    rows = [[i * j for j in range(n)] for i in range(n)]
    table = {i: {j for j in range(i)} for i in range(n) if i}
    flat = [x for row in rows for x in row if x]
    return rows, table, flat, x, {k: v for k, v in zip("ab", flat)}, [lambda: i for i in range(2)][0](), list(i + n for i in range(2))


@case()
def comprehension_that_fails_gives_the_outer_variable_back():
    x = 7
    try:
        return [1 / x for x in (1, 0)]
    except ZeroDivisionError:
        return x


@case()
def comprehension_over_an_unbound_outer_variable():
    found = [x for x in range(3)]
    if len(found) > 5:
        x = 1
    try:
        return found, x
    except UnboundLocalError as error:
        return found, str(error)


@case()
def comprehensions_with_closures_and_conditions():
    outer = 10
    makers = [lambda k: k + outer + i for i in range(3)]
    outer = 20
    return [m(1) for m in makers], [i if i % 2 else -i for i in range(4)], [[y for y in range(x) if y != 1] for x in range(4)]


@case(((1, 2, 3),), ([1, 2, 3, 4],), ("abc",), ({"x": 1, "y": 2, "z": 3},))
def unpacking(items):
    first, *rest = items
    *start, last = items
    a, *middle, c = items
    return first, rest, start, last, a, middle, c


@case(((1, 2),), ([1, (2, 3)],), ((1,),), ((1, 2, 3),), (5,), (iter([1, 2, 3, 4]),), ({1: 2},), (None,))
def unpacking_that_may_fail(items):
    try:
        a, b = items
        return a, b
    except (TypeError, ValueError) as error:
        return type(error).__name__, str(error), list(items) if hasattr(items, "__next__") else None


@case(((1,),), (7,))
def starred_unpacking_that_may_fail(items):
    try:
        a, *b, c = items
        return a, b, c
    except (TypeError, ValueError) as error:
        return type(error).__name__, str(error)


class Pair:
    def __init__(self, *items):
        self.items = items

    def __iter__(self):
        yield from self.items


class Loud(list):
    def __iter__(self):
        return iter(["loud"] * len(self))


class Unwilling:
    def __iter__(self):
        raise TypeError("will not")


@case()
def unpacking_user_iterables():
    a, b = Pair(1, 2)
    c, *d = Pair(1, 2, 3)
    e, f = Loud([1, 2])
    try:
        g, h = Unwilling()
    except TypeError as error:
        text = str(error)
    try:
        g, h = Pair(1, 2, 3)
    except ValueError as error:
        return a, b, c, d, e, f, [*Pair(4, 5)], text, str(error)


@case(([1], {1}, {"a": 1}), (5, 5, 5), (None, None, None), ([("a", 1)], [1], [("a", 1)]))
def extending_with_the_wrong_thing(items, members, table):
    found = []
    for attempt in (lambda: [0, *items], lambda: {0, *members}, lambda: {"z": 0, **table}, lambda: (*items, 1)):
        try:
            found.append(attempt())
        except TypeError as error:
            found.append(str(error))
    return found


@case((3.14159, "text", 42))
def formatted_strings(a, b, c):
    width = 8
    return f"{a:.2f} {b!r:>{width}} {c!s} {b!a} {c:#x} {{}} {a!r:^{width}.4}", f"{a}{b}", f"{c=}", f"plain {Vector(1, 2):03d}"


class Badly:
    def __str__(self):
        return 5


@case((lambda: f"{Badly()}",), (lambda: f"{Badly()!s}",), (lambda: f"{1:zzz}",))
def formatting_that_fails(attempt):
    try:
        return attempt()
    except (TypeError, ValueError) as error:
        return str(error)


@case((lambda: {[]: 1},), (lambda: {[]},), (lambda: {**5},), (lambda: {[]: 1 for _ in "a"},))
def building_that_fails(attempt):
    try:
        return attempt()
    except TypeError as error:
        return str(error)


# ---- calls

def takes_all(a, b=2, /, c=3, *rest, d, e=5, **others):
    return a, b, c, rest, d, e, others


@case()
def calls_of_every_shape():
    args, kwargs = (1, 2), {"d": 4, "z": 6}
    return (takes_all(1, d=2), takes_all(*args, **kwargs), takes_all(*args, 7, 8, 9, d=1, **{"q": 1}), takes_all(0, *[1], c=5, d=6),
            takes_all(*iter("ab"), d=0), takes_all(*Pair(5, 6), **kwargs, e=9), dict(a=1, **kwargs), max(*args, key=lambda v: -v))


@case((lambda: takes_all(),), (lambda: takes_all(1),), (lambda: takes_all(1, a=1, d=2),), (lambda: takes_all(1, 2, 3, c=3, d=2),),
      (lambda: takes_all(1, d=1, **{"d": 2}),), (lambda: takes_all(*5, d=1),), (lambda: takes_all(1, **5),), (lambda: len(*5),),
      (lambda: takes_all(1, **{1: 2}),), (lambda: (lambda x: x)(1, 2),), (lambda: (lambda *, x: x)(),), (lambda: None(),),
      (lambda: len(1, **{"a": 1}, **{"a": 2}),), (lambda: takes_all(*Unwilling(), d=1),))
def calls_that_fail(attempt):
    try:
        return attempt()
    except TypeError as error:
        return str(error)


class Methods:
    scale = 2

    def __init__(self, value=1):
        self._value = value

    def plain(self, x, y=1):
        return self._value * x * self.scale + y

    @classmethod
    def of_class(cls, x):
        return cls.scale + x

    @staticmethod
    def of_nobody(x):
        return x

    @property
    def value(self):
        return self._value

    @value.setter
    def value(self, new):
        self._value = new

    @value.deleter
    def value(self):
        self._value = None

    @property
    def callback(self):
        return lambda x, y=0: (self._value, x, y)

    def __call__(self, *args, **kwargs):
        return args, kwargs


@case()
def methods_and_properties():
    m = Methods(5)
    found = [m.plain(1), m.plain(1, y=2), m.of_class(1), m.of_nobody(1), Methods.of_class(2), Methods.plain(m, 3), m(1, k=2)]
    bound = m.plain
    m.value = 7
    found += [m.value, bound(1), m.callback(3), m.callback(*(4,), y=5)]
    del m.value
    m.scale = 3
    m.scale += 1
    found += [m.value, m.scale, vars(m)]
    del m.scale
    return found, m.scale, getattr(m, "missing", "default")


@case()
def attributes_that_are_missing():
    m = Methods()
    found = []
    try:
        m.missing
    except AttributeError as error:
        found.append(str(error))
    try:
        del m.missing
    except AttributeError as error:
        found.append(str(error))
    try:
        m.missing()
    except AttributeError as error:
        return found, str(error)


class Base:
    kind = "base"

    def __init__(self, x):
        self.x = x

    def describe(self, times=1):
        return f"{self.kind} {self.x}" * times

    @property
    def doubled(self):
        return self.x * 2

    @classmethod
    def make(cls):
        return cls(0)


class Derived(Base):
    kind = "derived"

    def __init__(self, x):
        super().__init__(x + 1)
        self.y = super().doubled

    def describe(self, times=1):
        parent = super()
        return [super().describe(), super().describe(times=times), parent.kind, super(Derived, self).describe(2), super().kind]

    @classmethod
    def make(cls):
        made = super().make()
        return made, super().kind

    def bad(self):
        return super().nothing

    def through_a_cell(self):
        return (lambda: self.x)(), super().describe()


@case()
def super_in_every_form():
    d, (made, kind) = Derived(1), Derived.make()
    try:
        d.bad()
    except AttributeError as error:
        return d.x, d.y, d.describe(2), made.x, kind, str(error), d.through_a_cell()


@case((2,))
def super_after_the_first_argument_is_no_longer_named(n):
    class Child(Base):
        def describe(self, times=1):
            found = 0
            for i in range(times):
                found += i
            return super().describe(times), found

    return Child(n).describe(3)


@case()
def class_statement_with_everything():
    outer = "cell"

    def mark(cls):
        cls.marked = outer
        return cls

    class Meta(type):
        def __new__(meta, name, bases, body, **kwargs):
            made = super().__new__(meta, name, bases, body)
            made.given = kwargs
            return made

    @mark
    class Made(Base, metaclass=Meta, extra=1):
        field: int = 3
        other = [outer for _ in range(2)]
        twice = field * 2

        def get(self):
            return outer, __class__.__name__, self.field

        del twice

    return Made.marked, Made.given, Made.other, Made(1).get(), Made.__qualname__, Made.__annotations__, hasattr(Made, "twice")


@case()
def functions_made_with_everything():
    seen = []

    def decorate(*marks):
        def apply(function):
            seen.append((marks, function.__name__))
            return function
        return apply

    @decorate("outer")
    @decorate("inner", 1)
    def made(a: int, b: "str" = "b", *, c: list = seen, d=4) -> dict:
        """Its text."""
        return a, b, len(c), d

    plain = lambda x=1, *y, z=2, **w: (x, y, z, w)
    return (made(1), made(1, "x", d=0), made.__annotations__, made.__defaults__, made.__kwdefaults__ == {"c": seen, "d": 4}, made.__doc__,
            made.__qualname__, made.__module__, seen, plain(), plain(5, 6, z=7, q=8), plain.__name__, [c.cell_contents for c in
                                                                                                      decorate("z").__closure__][0])


@case((5,))
def recursion(n):
    def factorial(k):
        return 1 if k < 2 else k * factorial(k - 1)

    def even(k):
        return True if k == 0 else odd(k - 1)

    def odd(k):
        return False if k == 0 else even(k - 1)

    return factorial(n), even(n), odd(n)


@case()
def natives_that_call_back():
    return sorted([3, 1, 2], key=lambda v: -v), list(map(lambda a, b: a + b, [1, 2], [3, 4])), list(filter(None, [0, 1]))


Point = collections.namedtuple("Point", "x y")


class Slotted:
    __slots__ = ("a",)
    __match_args__ = ("a",)

    def __init__(self, a):
        self.a = a


@case((1,), ("text",), ([1, 2],), ([1, 2, 3],), ([],), ({"a": 1, "b": 2},), ({"kind": "p", "at": [1, 2]},), (Point(1, 2),), (Point(0, 5),),
      (Slotted(3),), (2.5,), (None,), (True,), (b"bytes",), ((1, (2, 3)),), ([[1], {"k": 5}],), ({"a": 1},))
def match_statement(subject):
    match subject:
        case True | None:
            return "singleton", subject
        case 1:
            return "one"
        case str(text):
            return "str", text
        case float() as number if number > 2:
            return "big", number
        case Point(0, y=y):
            return "on axis", y
        case Point(x=x, y=y):
            return "point", x, y
        case Slotted(a):
            return "slotted", a
        case []:
            return "empty"
        case [a, b] if a == 1 and not isinstance(b, tuple):
            return "two", a, b
        case (1, (two, three)):
            return "nested", two, three
        case [[inner], {"k": int(k)}]:
            return "mixed", inner, k
        case [first, *rest]:
            return "many", first, rest
        case {"kind": "p", "at": [x, y], **rest}:
            return "map", x, y, rest
        case {"a": value, "b": _}:
            return "ab", value
        case {}:
            return "some map"
        case _:
            return "other"


@case(("C",), ("D",), ("E",), ("ok",))
def match_statement_that_fails(which):
    class C:
        __match_args__ = ("a", "a")
        a = 1

    class D:
        pass

    subject = C() if which == "C" else D()
    try:
        match subject:
            case C(1, 1):
                return "matched twice"
            case C(1, 2, 3):
                return "too many"
            case D(_) if which == "D":
                return "no positional patterns"
            case D(a=1):
                return "no such attribute"
            case len() if which == "ok":
                return "not reached"
            case _:
                return "none"
    except TypeError as error:
        return str(error)


_BIG = "".join(f"    v{i} = x + {1000 + i}\n    if v{i} == 1: total += 'a{i}'\n    total += str(v{i} % 7)\n" for i in range(300))
_NAMESPACE: dict = {}
exec(f"def extended_arguments(x):\n    total = ''\n    for i in range(2):\n{_BIG.replace('    v', '        v').replace('    if', '        if').replace('    total', '        total')}"
     f"        total += f'{{i}}'\n    def inner():\n        return v299, total\n    return inner(), v0, len(locals())\n", _NAMESPACE)
extended_arguments = case((-1000,), (5,))(_NAMESPACE["extended_arguments"])


@case()
def arguments_of_exec_and_frames():
    space = {}
    exec("made = 5", space)
    return space["made"], sys.exc_info(), eval("COUNT", {"COUNT": 9}), type(iter([]))
