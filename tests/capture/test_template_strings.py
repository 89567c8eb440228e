"""Template strings (Python 3.14) hold live numbers, tensors and iterators, are iterated, returned, kept and crossed by
breaks. They are texts here, as older Python cannot parse them."""

import linecache
import re
import sys

import pytest
import torch

import burnish

pytestmark = pytest.mark.skipif(sys.version_info < (3, 14), reason="no template strings")

PROGRAMS = """
import os
from string.templatelib import Interpolation, Template, convert

kept, state = [], {"n": 1}


class Loud:
    def __repr__(self):
        kept.append("repr")
        return "loud"


def joined(template):
    out = []
    for part in template:
        match part:
            case str():
                out.append(part)
            case Interpolation(value, _, conversion, spec):
                out.append(format(convert(value, conversion), spec))
    return "".join(out)


def returned(x, n):
    return x * n, t"a{n}b{x!r:>{n}}c", t"", t"{n + x.shape[0]}"


def iterated(x, n):
    a, *rest = t"{n} b {x * n}"
    return joined(t"v {n:>5} {n + 1!r}"), a, rest, list(zip(t"a{n}", t"{n}b")), "q" in t"q{n}", [*t"{n}" + t"{n} x"]


def kept_outside(x, n):
    made = t"{n} {x}"
    kept.append(made)
    return x + n, made is kept[-1], made.interpolations[0].value + 1, made == made, t"" == t"", made.values[1] is x


def a_list_inside(x, n):
    items = []
    made = t"{items}"
    items.append(n)
    return x, made, made.values[0] is items


def iterators_inside(x, n):
    return x + 1, t"{map(lambda v: v + n, [1, 2])}", [*t"{(k for k in range(n))}".values[0]]


def reads_changing_state(x, n):
    made = t"{state['n']}"
    state["n"] += 1
    return x * state["n"], made


def from_outside(x, n, given=t"outer {state!r:x}"):
    return x + n, given, given.values[0] is state, [type(part).__name__ for part in given]


def refused(x, n):
    try:
        t"{n}".strings = ()
    except AttributeError as error:
        return x, str(error)
"""
OVER_BREAKS = """

def over_a_break(x, n):
    made, it = t"{n} {x}", iter(t"a{n}{x}b")
    first = next(it)
    os.getpid()
    out = [next(it), *it]
    for part in made:
        os.getpid()
        out.append(part)
    return x * n, made, first, out


def shown_by_its_own_text(x, n):
    return x, repr(t"{n}"), str(t"{Loud()}"), list(kept)
"""
NAMESPACE: dict = {"__name__": "templates"}
if sys.version_info >= (3, 14):
    linecache.cache["<templates>"] = (0, None, (PROGRAMS + OVER_BREAKS).splitlines(True), "<templates>")
    exec(compile(PROGRAMS + OVER_BREAKS, "<templates>", "exec"), NAMESPACE)
NAMES = re.findall(r"^def (\w+)\(x, n", PROGRAMS + OVER_BREAKS, re.MULTILINE)


def shown(value):
    match type(value).__name__:
        case "Template":
            return "Template", value.strings, [shown(part) for part in value.interpolations]
        case "Interpolation":
            return "Interpolation", shown(value.value), value.expression, value.conversion, value.format_spec
        case "Tensor":
            return value.tolist()
        case "tuple" | "list" as kind:
            return kind, [shown(part) for part in value]
        case "map":
            return "map", list(value)
        case kind:
            return kind, repr(value)


def course(fn):
    NAMESPACE["kept"].clear()
    NAMESPACE["state"].update(n=1)
    calls = [(torch.arange(3.0) + n, n) for n in (1, 2, 3, 2, 5)]
    return [(shown(fn(*args)), shown([*NAMESPACE["kept"]]), dict(NAMESPACE["state"])) for args in calls]


@pytest.mark.parametrize("name", NAMES)
def test_templates_are_as_in_plain_python(name):
    fn = NAMESPACE[name]
    want = course(fn)
    compiled = burnish.compile(fn, backend="eager", fullgraph=f"def {name}(" in PROGRAMS)
    assert course(compiled) == want
