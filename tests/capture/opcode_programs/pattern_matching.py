"""The match statement."""

import collections

from . import case

Point = collections.namedtuple("Point", "x y")


class Slotted:
    __slots__ = ("a",)
    __match_args__ = ("a",)

    def __init__(self, a):
        self.a = a


@case(
    (1,),
    ("text",),
    ([1, 2],),
    ([1, 2, 3],),
    ([],),
    ({"a": 1, "b": 2},),
    ({"kind": "p", "at": [1, 2]},),
    (Point(1, 2),),
    (Point(0, 5),),
    (Slotted(3),),
    (2.5,),
    (None,),
    (True,),
    (b"bytes",),
    ((1, (2, 3)),),
    ([[1], {"k": 5}],),
    ({"a": 1},),
)
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
