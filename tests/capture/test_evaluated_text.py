"""``eval`` of texts: names of the frame, globals, errors; and what stays a break."""

import os

import torch

from .harness import program

SCALE = 4


@program(breaks=0)
def test_text_reads_locals_cells_and_globals():
    def fn(x, y):
        def inner():
            return y

        return eval("x * SCALE + y * len([1, 2])"), inner(), eval(" x.shape[0] + 1")

    return fn, [(torch.ones(3), 2), (torch.ones(3), 3), (torch.ones(4), 3)]


@program(breaks=0)
def test_eval_is_an_argument():
    def fn(x, evaluate):
        return evaluate("1 + 1") * x, evaluate("(z := x + 1) * z")

    return fn, [(torch.ones(3), eval)] * 3


@program
def test_text_of_the_caller_and_its_errors():
    def fn(x, text):
        return eval(text)

    texts = ["x + 1", "x * 2", "x + 1", "x +", "nope", "x.foo", "1 / 0", "x = 3"]
    return fn, [(torch.ones(2), text) for text in texts]


@program
def test_text_that_looks_at_its_frame_or_has_functions_is_a_break():
    def fn(x, text):
        y = x.sin()
        z = eval(text, {"y": y}) if text == "y" else eval(text)
        return y, z

    texts = ["sorted(locals())", "[0 for _ in range(2)]", "(lambda a: a * 2)(3)", "y", "sorted(locals())"]
    return fn, [(torch.ones(2), text) for text in texts]


@program
def test_compile_refuses_an_argument_by_name_and_position():
    def fn(x):
        try:
            compile("1", "text", "eval", filename="other")
        except TypeError as error:
            return x + 1, str(error)

    return fn, lambda i: (torch.ones(2),)


@program
def test_names_of_a_frame_behind_a_break_that_are_cells():
    def fn(x, i):
        def read():
            return i

        os.getpid()
        shown = {name: value for name, value in locals().items() if name == "i"}
        return x * 2, eval("i + 1"), shown, read()

    return fn, [(torch.ones(2), i) for i in (0, 1, 2, 3, 2)]
