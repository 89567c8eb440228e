"""Parser for printed graphs, for dumps and for tests of single passes.

    graph = parse_graph('''
        graph(x: f32[2, 3], w: f32[4, 3] state)
          view = view w, permute[1, 0] : f32[3, 4]{1, 3}
          mm = aten.mm.default x, view : f32[2, 4]
          return mm
    ''')
    str(parse_graph(str(graph))) == str(graph)

Every graph can be parsed back up to the step that chooses library calls. The functions inside a `run` or `prepare` are
printed as `<name>`, which the parser rejects. Comments begin with #.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

import torch

from burnish.ir.graph import RESERVED, Alias, Graph, Value, Write
from burnish.ops import import_all_operators  # noqa: F401  (fills the records)
from burnish.ops.operator_record import RECORDS, Op, lookup
from burnish.tensors.dtypes import DTYPES
from burnish.tensors.tensor_types import CPU, TensorType, contiguous_stride
from burnish.tensors.views.view_maps import Diagonal, Expand, Map, Permute, Reshape, Slice

TOKEN = re.compile(
    r"""\s*(?:
    (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*") |
    (?P<number>-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf\b|nan\b)) |
    (?P<word>[^\W\d]\w*(?:\.\w+)*) |
    (?P<thing><[^>-][^>]*>) |
    (?P<mark><-|[][(){}<>,:=@*+]) |
    (?P<end>(?:\#.*)?$)
)""",
    re.VERBOSE,
)

CONSTANTS = {"None": None, "True": True, "False": False}
TORCH_CONSTANTS = (torch.dtype, torch.layout, torch.memory_format)


class ParseError(Exception):
    """The text is not a valid graph or kernel; the message quotes the place."""


class Tokens:
    """The tokenizer of one line."""

    def __init__(self, line: str, number: int = 1):
        self.line, self.number, self.at = line, number, 0
        self.kind, self.text = "", ""
        self.read()

    def read(self) -> None:
        self.start = self.at
        found = TOKEN.match(self.line, self.at)
        if found is None or found.lastgroup is None:
            raise self.error("this is not a word, number or mark")
        self.kind, self.text, self.at = found.lastgroup, found[found.lastgroup], found.end()

    def take(self) -> str:
        text = self.text
        self.read()
        return text

    def taken(self, *texts: str) -> bool:
        """Consume these tokens if all of them come next; otherwise consume none."""
        back = (self.start, self.at, self.kind, self.text)
        for text in texts:
            if self.text != text or self.kind == "string":
                self.start, self.at, self.kind, self.text = back
                return False
            self.read()
        return True

    def expect(self, text: str) -> None:
        if not self.taken(text):
            raise self.error(f"expected '{text}'")

    def word(self, what: str) -> str:
        if self.kind != "word":
            raise self.error(f"expected {what}")
        return self.take()

    def integer(self) -> int:
        if self.kind != "number" or not re.fullmatch(r"-?\d+", self.text):
            raise self.error("expected a whole number")
        return int(self.take())

    def integers(self, begin: str, end: str) -> tuple[int, ...]:
        self.expect(begin)
        return tuple(self.until(end, self.integer))

    def until(self, end: str, read: Callable[[], Any]) -> list[Any]:
        """A comma-separated list up to `end`, which may be "" for the end of the line."""
        found: list[Any] = []
        while not self.is_at(end):
            found.append(read())
            if not self.is_at(end):
                self.expect(",")
        if end:
            self.read()
        return found

    def is_at(self, end: str) -> bool:
        return self.text == end and self.kind != "string" if end else self.kind == "end"

    def finish(self) -> None:
        if self.kind != "end":
            raise self.error("expected the end of the line")

    def error(self, why: str) -> ParseError:
        place = len(self.line[: self.start]) + len(self.line[self.start :]) - len(self.line[self.start :].lstrip())
        return ParseError(f"line {self.number}: {why}\n    {self.line}\n    {' ' * place}^")


def parse_graph(text: str) -> Graph:
    return GraphParser(text).run()


def parse_type(text: str) -> TensorType:
    """
    >>> parse_type("f32[3, 4]{1, 3}").stride
    (1, 3)
    """
    tokens = Tokens(text)
    type = tensor_type(tokens)
    tokens.finish()
    return type


class GraphParser:
    def __init__(self, text: str):
        self.graph = Graph()
        self.values: dict[str, Value] = {}
        lines = enumerate(map(str.strip, text.splitlines()), 1)
        self.lines = [(number, line) for number, line in lines if line and not line.startswith("#")]

    def run(self) -> Graph:
        # Each input may have its own line.
        end = next((k for k, (_, line) in enumerate(self.lines, 1) if line.endswith(")")), len(self.lines))
        self.head(Tokens(" ".join(line for _, line in self.lines[:end])))
        for number, line in self.lines[end:]:
            tokens = Tokens(line, number)
            if tokens.taken("return"):
                self.graph.outputs = tokens.until("", lambda tokens=tokens: self.output(tokens))
            elif tokens.taken("write"):
                is_silent = tokens.taken("silently")
                at = self.input(tokens)
                tokens.expect("<-")
                self.graph.writes.append(Write(at, self.value(tokens), is_silent))
            else:
                self.node(tokens)
            tokens.finish()
        return self.graph

    def head(self, tokens: Tokens) -> None:
        tokens.expect("graph")
        tokens.expect("(")

        def one() -> None:
            name = tokens.word("the name of an input")
            tokens.expect(":")
            value = self.named(tokens, name, tensor_type(tokens))
            value.is_state = tokens.taken("state")
            self.graph.inputs.append(value)

        tokens.until(")", one)
        tokens.finish()

    def named(self, tokens: Tokens, name: str, type: TensorType) -> Value:
        if name in self.values:
            raise tokens.error(f"there are two values called {name}")
        if name in RESERVED:
            raise tokens.error(f"{name} is not a name of a value")
        self.values[name] = Value(type, self.graph.fresh_name(name))
        return self.values[name]

    def value(self, tokens: Tokens) -> Value:
        name = tokens.word("a value")
        if name not in self.values:
            raise tokens.error(f"no value called {name} has been made before")
        return self.values[name]

    def input(self, tokens: Tokens) -> int:
        value = self.value(tokens)
        if value not in self.graph.inputs:
            raise tokens.error(f"{value} is not an input")
        return self.graph.inputs.index(value)

    def node(self, tokens: Tokens) -> None:
        names: list[str] = []
        first = tokens.word("an operator or the name of a result")
        if tokens.text in ("=", ","):
            names.append(first)
            while tokens.taken(","):
                names.append(tokens.word("the name of a result"))
            tokens.expect("=")
            first = tokens.word("an operator")
        op = operator(tokens, first)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        while tokens.kind != "end" and not tokens.is_at(":"):
            if args or kwargs:
                tokens.expect(",")
            name = tokens.text if tokens.kind == "word" and re.match(r"\s*=", tokens.line[tokens.at :]) else None
            if name is None:
                args.append(self.argument(tokens))
            else:
                tokens.take(), tokens.expect("=")
                kwargs[name] = self.argument(tokens)
        types: tuple[TensorType | None, ...] = ()
        if names:
            tokens.expect(":")
            types = tuple(tokens.until("", lambda: None if tokens.taken("_") else tensor_type(tokens)))
        if len(types) != len(names) or any(
            (name == "_") != (type is None) for name, type in zip(names, types, strict=True)
        ):
            raise tokens.error(f"the results are {', '.join(names)}, which needs as many types")
        self.graph.add(op, tuple(args), kwargs, ())
        node = self.graph.nodes[-1]
        made: list[Value | None] = []
        for position, (name, type) in enumerate(zip(names, types, strict=True)):
            value = None if type is None else self.named(tokens, name, type)
            if value is not None:
                value.node, value.position = node, position
            made.append(value)
        node.results = tuple(made)

    def argument(self, tokens: Tokens) -> Any:
        if tokens.kind == "string":
            return ast.literal_eval(tokens.take())
        if tokens.kind == "number":
            return number(tokens.take())
        if tokens.kind == "thing":
            raise tokens.error(
                f"{tokens.text} is an object of the compiler, which has no text: graphs are read back "
                "as they were before library calls were chosen"
            )
        if tokens.taken("["):
            return tokens.until("]", lambda: self.argument(tokens))
        if tokens.taken("("):
            return tuple(tokens.until(")", lambda: self.argument(tokens)))
        if tokens.taken("@"):
            return device(tokens)
        if tokens.text in CONSTANTS:
            return CONSTANTS[tokens.take()]
        if tokens.text.startswith("torch."):
            found = getattr(torch, tokens.text.removeprefix("torch."), None)
            if not isinstance(found, TORCH_CONSTANTS):
                raise tokens.error("this is not a constant of torch's")
            tokens.take()
            return found
        if tokens.taken("complex", "("):
            real, imaginary = tokens.until(")", lambda: number(tokens.take()))
            return complex(real, imaginary)
        maps = view_maps(tokens)
        return maps if maps else self.value(tokens)

    def output(self, tokens: Tokens) -> Any:
        is_detached = tokens.taken("detached", "(")
        if not is_detached and not tokens.taken("alias", "("):
            return self.argument(tokens)
        at, maps = self.input(tokens), view_maps(tokens)
        type = tensor_type(tokens) if tokens.taken(":") else None
        tokens.expect(")")
        return Alias(at, type, maps, is_detached)


def operator(tokens: Tokens, name: str) -> Op:
    """The record of this name. A torch operator without one gets an empty record."""
    found = RECORDS.get(name)
    if found is not None and (found.target is not None or "." not in name):
        return found
    namespace, _, rest = name.partition(".")
    packet, _, overload = rest.partition(".")
    try:
        return lookup(getattr(getattr(getattr(torch.ops, namespace), packet), overload))
    except (AttributeError, RuntimeError):
        raise tokens.error(f"there is no operator called {name}") from None


def tensor_type(tokens: Tokens) -> TensorType:
    name = tokens.word("a type")
    if name not in DTYPES:
        raise tokens.error(f"{name} is not a dtype: {', '.join(DTYPES)}")
    shape = tokens.integers("[", "]")
    stride = tokens.integers("{", "}") if tokens.is_at("{") else contiguous_stride(shape)
    if len(stride) != len(shape):
        raise tokens.error("there must be as many strides as sizes")
    return TensorType(shape, stride, DTYPES[name], device(tokens) if tokens.taken("@") else CPU)


def device(tokens: Tokens) -> torch.device:
    name = tokens.word("a device")
    if tokens.is_at(":") and re.match(r"\d", tokens.line[tokens.at :]):
        tokens.read()
        return torch.device(name, tokens.integer())
    return torch.device(name)


def number(text: str) -> int | float:
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


def view_maps(tokens: Tokens) -> tuple[Map, ...]:
    found: list[Map] = []
    while True:
        if tokens.taken("reshape", "["):
            found.append(Reshape(tuple(tokens.until("]", tokens.integer))))
        elif tokens.taken("permute", "["):
            found.append(Permute(tuple(tokens.until("]", tokens.integer))))
        elif tokens.taken("expand", "["):
            found.append(Expand(tuple(tokens.until("]", tokens.integer))))
        elif tokens.taken("slice", "["):
            dim = tokens.integer()
            tokens.expect(":")
            found.append(Slice(dim, *tokens.until("]", tokens.integer)))
        elif tokens.taken("diagonal", "["):
            a = tokens.integer()
            tokens.expect(",")
            b = tokens.integer()
            tokens.expect(":")
            found.append(Diagonal(a, b, *tokens.until("]", tokens.integer)))
        else:
            return tuple(found)
