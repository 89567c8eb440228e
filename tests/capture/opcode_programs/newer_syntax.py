"""Programs in the syntax of newer Python versions, as text: older ones cannot parse them."""

from __future__ import annotations

import linecache
import sys

from . import case

SINCE_3_12 = """
@case()
def type_parameters():
    def first[T: int](items: list[T]) -> T:
        return items[0]

    def pair[K, *V, **P](k: K, v: "V") -> tuple[K, int]:
        return k, v

    class Box[T]:
        def __init__(self, held: T):
            self.held = held

    type Names[T] = list[T]
    kinds = [type(p).__name__ for p in pair.__type_params__]
    return (first([1, 2]), pair(1, 2), first.__type_params__[0].__name__, first.__type_params__[0].__bound__, kinds,
            Box(3).held, Box.__type_params__[0].__name__, Names.__name__, str(Names.__value__), Names[int].__args__,
            first.__annotations__["return"].__name__, first.__qualname__)


@case(({"k": [1, 2]},))
def quotes_inside_formatted_strings(table):
    return f"{table["k"]!r:>{len("0123456789")}} {"\\n".join(["a", "b"])}"


@case()
def inlined_comprehensions_and_classes():
    x = [1]
    class Inner:
        x = 2
        found = [x for x in range(3)]
        nested = [[x for _ in range(1)] for x in range(2)]
    return Inner.found, Inner.nested, Inner.x, [(lambda: y)() for y in x], [x for x in x]
"""

SINCE_3_13 = """
@case()
def defaults_of_type_parameters():
    def made[T = int, *S = *tuple[int]](x: T) -> T:
        return x

    return made(4), made.__type_params__[0].__default__, str(made.__type_params__[1].__default__)
"""


SINCE_3_14 = """
@case((KeyError,), (ValueError,), (None,))
def exceptions_without_parentheses(kind):
    try:
        if kind:
            raise kind("x")
    except KeyError, ValueError:
        return "caught"
    return "none"


@case()
def annotations_that_are_functions():
    local = int

    def made(x: local, *, y: "text" = 1) -> list[local]:
        return x + y + len(made.__name__)

    class Inner:
        z: local = 3
        if z:
            w: undefined

    return made(2), made.__annotations__, made.__kwdefaults__, Inner.z, made.__annotate__(1)


@case((1, 5), ("a", 3))
def template_strings(value, width):
    made = t"{value!r:>{width}} of {value}", t"", t"text", t"{value}{width!a}", t"{value:x}"
    return [(m.strings, [(i.value, i.expression, i.conversion, i.format_spec) for i in m.interpolations]) for m in made]


@case(([1, 0],), ([1, 2],), ([],))
def inlined_generators(items):
    return all(x for x in items), any(x == 2 for x in items), tuple(x + 1 for x in items)
"""

ANNOTATIONS_ARE_TEXTS = """
@case()
def annotations_that_are_texts():
    class Inner:
        x: int = 1
        y: undefined

    return Inner.__annotations__
"""


def _enter(name: str, text: str, flags: int = 0) -> None:
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec", flags, dont_inherit=True), {"__name__": __name__, "case": case})


if sys.version_info >= (3, 12):
    _enter("<programs for 3.12>", SINCE_3_12)
if sys.version_info >= (3, 13):
    _enter("<programs for 3.13>", SINCE_3_13)
if sys.version_info >= (3, 14):
    _enter("<programs for 3.14>", SINCE_3_14)
_enter("<programs with annotations as texts>", ANNOTATIONS_ARE_TEXTS, annotations.compiler_flag)
