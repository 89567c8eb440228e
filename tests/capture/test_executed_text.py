"""exec(), eval() and compile() in a program: interpreted like the body of a class, with names in a dictionary."""

import collections
import dataclasses

import torch

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
