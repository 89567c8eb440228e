"""exec(), eval() and compile() in a program: interpreted like the body of a class, with names in a dictionary."""

import collections
import dataclasses
import operator
import warnings

import pytest
import torch

import burnish

from .harness import program

SCALE = 3


@program(breaks=0)
def test_a_text_fills_a_namespace():
    def fn(x, k):
        names = {"k": k}
        exec("def scaled(x):\n    return x * k\nsizes = [scaled(i) for i in range(3)]", names)
        return names["scaled"](x), names["sizes"]

    return fn, lambda i: (torch.ones(2), i + 2)


@program(breaks=0)
def test_a_text_reads_globals_and_keeps_its_names_apart():
    def fn(x):
        k, names = 5, {}
        exec("k = SCALE; y = k + 1", globals(), names)
        exec("k = 7")
        return x * k, names, eval("k + y", {"k": 1}, {"y": 2})

    return fn, lambda i: (torch.ones(2),)


@program(breaks=0)
def test_a_code_object_runs_with_the_builtins_of_its_globals():
    def fn(x):
        code = compile("n = 0\nfor i in few(3):\n    n += i", "<text>", "exec")
        names = {"__builtins__": {"few": range}}
        exec(code, names)
        try:
            exec("print", {"__builtins__": {}})
        except NameError as error:
            return x * names["n"], str(error)

    return fn, lambda i: (torch.ones(2),)


@program
def test_a_text_that_breaks_the_graph():
    def fn(x):
        names = {"x": x}
        exec("y = x + 1\nif y.sum() > 0:\n    y = y * 2\nz = y + 3", names)
        return names["z"]

    return fn, [(torch.ones(2),), (-3 * torch.ones(2),), (torch.ones(2),)]


@program
def test_a_text_with_errors_and_imports():
    def fn(x):
        seen = []
        for text in ("a ===", "1 / 0", "missing", "from math import *"):
            names = {}
            try:
                exec(text, names)
            except Exception as error:
                seen.append(type(error).__name__)
        return x * 2, seen, names["floor"](2.5)

    return fn, lambda i: (torch.ones(2),)


@program
def test_a_function_of_a_text_leaves_the_function():
    def fn(x):
        names = {"y": x + 1}
        exec("def read():\n    return y", names)
        return names["read"]

    def read(x):
        return fn(x)()

    return read, lambda i: (torch.ones(2) * i,)


@program
def test_annotations_of_a_text_are_values():
    def fn(x):
        class Names(dict):
            pass

        names = Names()
        exec("a: int = 1", names)
        exec("import math; b: str", plain := {})
        return x * 2, names["__annotations__"], plain["__annotations__"]

    return fn, lambda i: (torch.ones(2),)


@program(breaks=0)
def test_a_dataclass_is_made_in_the_graph():
    def fn(x, k):
        @dataclasses.dataclass
        class Scaled:
            x: torch.Tensor
            k: int = 2
            seen: list = dataclasses.field(default_factory=list)

            def value(self):
                return self.x * self.k

        return Scaled(x, k).value(), Scaled(x).value(), Scaled(x).seen

    return fn, lambda i: (torch.ones(2), i)


@program
def test_a_class_of_named_tuples_is_made():
    def fn(x, k):
        Pair = collections.namedtuple("Pair", "left right", defaults=[4])
        return x * Pair(k).right, repr(Pair(1)), Pair.__module__

    return fn, lambda i: (torch.ones(2), i)


@program
def test_globals_of_outside_functions_are_read_in_each_call():
    outside = {"c": 1, "__name__": "outside"}
    exec("def g(y):\n    return y * c", outside)
    g = outside["g"]

    def fn(x):
        exec("c += 1", g.__globals__)
        g.__globals__["c"] += 1
        return g(x), eval("c", g.__globals__), eval("c", operator.attrgetter("__globals__")(g))

    return fn, lambda i: (torch.ones(2),)


@program
def test_builtins_of_outside_tables():
    table = {"__builtins__": {"len": lambda _: 7}}

    def fn(x, length):
        if length == 2:
            table["__builtins__"] = {"len": lambda _: 2}
        table["__builtins__"]["len"] = lambda _: length
        exec("r = len('abc')", table)
        return x * table["r"]

    return fn, lambda i: (torch.ones(2), i)


@program
def test_compilation_warns_in_each_call():
    def fn(x):
        names = {}
        exec("r = 1 is 1", names)
        return x * names["r"] * eval("2 is 2")

    def noted(x):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            y = fn(x)
        return y, [str(each.message) for each in found]

    return noted, lambda i: (torch.ones(2),)


def warning_text(x, log):
    names = {}
    log.append("exec")
    exec("r = 1 is 1", names)
    log.append("eval")
    scale = eval("2 is 2") + eval("3 is 3", {})
    code = compile("4 is 4", "<four>", "eval")
    return x * names["r"] * scale * eval(code, {})


@pytest.mark.parametrize("action", ["always", "default", "ignore"])
def test_warnings_of_compilation_are_given_again_under_the_filters_of_the_caller(action):
    def noted(function):
        log, found = [], []
        for _ in range(3):
            with warnings.catch_warnings(record=True) as given:
                warnings.simplefilter(action)
                y = function(torch.ones(2), log)
            found.append((y.tolist(), [(str(each.message), each.category, each.filename) for each in given]))
        return found, log

    compiled = burnish.compile(warning_text, fullgraph=True)
    expected = noted(warning_text)
    assert noted(compiled) == expected and burnish.was_compiled(compiled)
    assert [len(given) for _, given in expected[0]] == [0 if action == "ignore" else 4] * 3


def test_a_function_that_shows_warnings_of_compilation_sees_the_state_of_then(monkeypatch):
    def noted(function):
        log = []
        monkeypatch.setattr(warnings, "showwarning", lambda *_: log.append(len(log)))
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            return [function(torch.ones(2), log).tolist() for _ in range(3)], log

    compiled = burnish.compile(warning_text)
    compiled(torch.ones(2), [])
    assert noted(compiled) == noted(warning_text)


def test_warnings_of_compilation_that_become_errors_are_raised_where_they_arise():
    compiled, log = burnish.compile(warning_text), []
    compiled(torch.ones(2), log)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for function in (warning_text, compiled):
            log.clear()
            with pytest.raises(SyntaxError):
                function(torch.ones(2), log)
            assert log == ["exec"]


@program
def test_compiled_code_that_is_kept_is_another_object_each_time():
    kept = []

    def fn(x):
        kept.append(compile("1", "<text>", "eval"))
        return x * 2, [a is b for a in kept for b in kept]

    return fn, lambda i: (torch.ones(2),)
