"""Strings: f-strings, %, format, methods, regular expressions on constants, text made from shapes and data."""

import re
import textwrap

import torch

from .call_sequences import Before, ordinary, swinging
from .harness import program


@program(breaks=0)
def test_fstring_with_a_shape():
    def fn(x):
        return x + 1, f"{x.dim()}d {tuple(x.shape)} {x.dtype} {x.shape[0]:>4}|{x.shape[-1]!r:<3}|"

    return fn, [(torch.randn(2, 3),), (torch.randn(4),), (torch.randn(2, 3),)]


@program
def test_fstring_with_tensor_data():
    def fn(x):
        y = x * 2
        text = f"mean {y.mean():.2f}, max {y.max().item():+.1e}"
        return y + 1, text

    return fn, ordinary


@program
def test_fstring_of_a_whole_tensor():
    def fn(x):
        y = x.round()
        return y * 2, f"{y}", str(y[0]), repr(y[:1])

    return fn, ordinary


@program
def test_fstring_debug_form_and_nested_spec():
    def fn(x, width):
        n = x.shape[0]
        return x, f"{n=} {n*2=:>{width}} {'a' if n > 2 else 'b'}"

    return fn, [(torch.randn(2), 4), (torch.randn(3), 6), (torch.randn(2), 4)]


@program(breaks=0)
def test_percent_and_format_methods():
    def fn(x):
        n = x.numel()
        return (
            x * n,
            "%d of %s (%05.1f%%)" % (n, "x", n / 3),
            "{0}{1!r:>5}{name:^7}".format(n, "q", name="mid"),
            "{a[k]} {b.real}".format(a={"k": n}, b=3),
        )

    return fn, [(torch.randn(2),), (torch.randn(3),), (torch.randn(2),)]


@program(breaks=0)
def test_string_methods_choose_a_branch():
    def fn(x, name):
        if name.startswith("layer.") and name.split(".")[1].isdigit():
            return x * int(name.split(".")[1])
        if name.upper().strip() == "HEAD" or "norm" in name:
            return x + 1
        return x, name.replace("_", "-").title(), name.partition("_")[2]

    return fn, [(torch.randn(2), n) for n in ("layer.3.w", " head ", "norm1", "some_name", "layer.4", "layer.3.w")]


@program
def test_parameter_names_joined_and_looked_up():
    params = {"layer.0.weight": 2.0, "layer.1.weight": 3.0}

    def fn(x):
        i = 0
        while (key := ".".join(["layer", str(i), "weight"])) in params:
            x = x * params[key]
            i += 1
        return x, i

    x = torch.randn(2)
    return fn, [
        (x,),
        (x, Before(lambda: params.update({"layer.2.weight": 5.0}))),
        (x, Before(lambda: params.pop("layer.1.weight"))),
    ]


@program
def test_regular_expression_on_constant_names():
    pattern = re.compile(r"layers?\.(\d+)\.(?P<kind>weight|bias)$")

    def fn(x, name):
        found = pattern.search(name)
        if found is None:
            return x, re.sub(r"\d+", "N", name)
        return x * int(found.group(1)), found["kind"], found.span()

    return fn, [(torch.randn(2), n) for n in ("layer.3.weight", "head.12.x", "layers.7.bias", "layer.3.weight")]


@program
def test_regular_expression_with_a_callback():
    def fn(x):
        seen = []

        def double(m):
            seen.append(m.group())
            return str(int(m.group()) * x.shape[0])

        text = re.sub(r"\d+", double, "a1b22")
        return x * len(seen), text

    return fn, [(torch.randn(2),), (torch.randn(3),), (torch.randn(2),)]


@program
def test_einsum_equation_built_from_strings():
    def fn(x, y, batch):
        left = "b" * batch + "ij"
        return torch.einsum(f"{left},{'b' * batch}jk->{'b' * batch}ik", x, y)

    return fn, [
        (torch.randn(2, 3), torch.randn(3, 2), 0),
        (torch.randn(4, 2, 3), torch.randn(4, 3, 2), 1),
        (torch.randn(2, 3), torch.randn(3, 2), 0),
    ]


@program
def test_string_slices_iteration_and_order():
    def fn(x, word):
        codes = [ord(c) - 97 for c in word if c.isalpha()]
        return x[codes], word[::-1], "".join(sorted(word)), word * 2, word < "m", chr(codes[0] + 65)

    return fn, [(torch.randn(5), w) for w in ("cab", "b-e", "cab")]


@program
def test_bytes_and_encoding():
    def fn(x, text):
        raw = text.encode("utf-8")
        return x * len(raw), raw.hex(), raw.decode()[::-1], bytes(bytearray(raw)[:1])

    return fn, [(torch.randn(2), t) for t in ("ab", "añ", "ab")]


@program
def test_text_accumulated_in_a_loop():
    def fn(x):
        log = ""
        for i, size in enumerate(x.shape):
            log += f"{i}:{size};"
            x = x + size
        return x, log, log.count(";")

    return fn, [(torch.randn(2, 3),), (torch.randn(4),), (torch.randn(2, 3),)]


@program
def test_print_of_text_and_of_tensor_data():
    def fn(x):
        print("shape", tuple(x.shape), sep="=", end="!\n")
        y = x.round()
        print(f"sum {y.sum().item():.0f}")
        print(y[0])
        return y * 2

    return fn, ordinary


@program
def test_print_keeps_its_place_around_a_break():
    def fn(x):
        print("before")
        if x.sum() > 0:
            print("positive", x.max())
            x = x * 2
        print("after", x.shape)
        return x

    return fn, swinging


@program
def test_string_conversion_errors():
    def fn(x, text):
        try:
            return x * int(text)
        except ValueError as error:
            return x, str(error)

    return fn, [(torch.randn(2), t) for t in ("3", "three", "3", "4")]


@program
def test_dedent_translate_and_templates():
    table = str.maketrans({"a": "1", "b": None})

    def fn(x, text):
        clean = textwrap.dedent(text).translate(table)
        return x + len(clean), clean.splitlines(), clean.casefold().center(9, "*"), clean.zfill(5)

    return fn, [(torch.randn(2), t) for t in ("  ab\n  c", "xyz", "  ab\n  c")]


@program
def test_string_of_a_class_with_a_tensor():
    class Loss:
        def __init__(self, x):
            self.x = x

        def __str__(self):
            return f"loss={self.x.item():.3f}"

    def fn(x):
        loss = Loss((x**2).mean())
        return loss.x * 2, str(loss), f"{loss!s:>12}"

    return fn, ordinary


class Pair(tuple):
    def __repr__(self):
        return "a pair"


@program(breaks=0)
def test_percent_formats_the_elements_of_a_tuple_with_its_own_text():
    return lambda x, pair: (x + 1, "%s and %s" % pair), lambda i: (torch.ones(2), Pair((i, "b")))
