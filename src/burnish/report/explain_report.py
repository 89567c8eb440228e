"""The report that ``explain`` returns: a function's graphs, the graph breaks between them, and what to do about each.

``ExplainOutput`` has the fields of torch's class of that name, so code written for one reads the other.
``print(output)`` is meant for people:

    2 graphs, 1 graph break, 14 operations, 31 guards; compiled in 132 ms (capture 84 ms, kernels 48 ms)

    Break 1 of 1
    ...
    Graph 1 of 2: 9 operations (torch.nn.functional.linear ×6, torch.sin ×3)
      linear = torch.nn.functional.linear(x, weight, bias)                     # float32[8, 64]
      ...

``output.html()`` is the same as a web page. Break records of any origin are accepted.
"""

from __future__ import annotations

import linecache
import operator
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from traceback import FrameSummary
from typing import Any

import torch
import torch.fx

from ..foundation.torch_private import OpOverload
from .text_layout import count, cut, duration, shifted, shorten

LISTING_HEAD, LISTING_TAIL = 20, 5
COMMONEST_SHOWN = 5
GUARDS_SHOWN = 20
LINE_SHOWN = 150
CALLS = ("call_function", "call_method", "call_module")
OPERATORS = {
    operator.add: "{} + {}",
    operator.sub: "{} - {}",
    operator.mul: "{} * {}",
    operator.truediv: "{} / {}",
    operator.floordiv: "{} // {}",
    operator.mod: "{} % {}",
    operator.pow: "{} ** {}",
    operator.matmul: "{} @ {}",
    operator.lt: "{} < {}",
    operator.le: "{} <= {}",
    operator.gt: "{} > {}",
    operator.ge: "{} >= {}",
    operator.eq: "{} == {}",
    operator.ne: "{} != {}",
    operator.and_: "{} & {}",
    operator.or_: "{} | {}",
    operator.neg: "-{}",
    operator.invert: "~{}",
}

LINES_AROUND = 2

STYLE = """\
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
pre { font: 13px/1.45 ui-monospace, monospace; overflow-x: auto; padding: .6rem .8rem; border-radius: 6px;
      background: rgba(128, 128, 128, .12); }
pre .hit { font-weight: bold; background: rgba(230, 120, 0, .28); }
section.break { border-left: 4px solid #d70; padding: .1rem 0 .1rem 1rem; margin: 1.2rem 0; }
summary { cursor: pointer; padding: .2rem 0; }
.place { font: 13px ui-monospace, monospace; opacity: .8; }
"""


@dataclass(frozen=True)
class BreakReason:
    """A break in torch's form, with Burnish's own description in ``render()`` and ``source``.

    ``graph_break`` is False for a part that was not compiled at all: no graph ends there.
    """

    reason: str
    user_stack: list[FrameSummary]
    graph_break: bool = True
    source: Any = None

    @classmethod
    def of(cls, source: Any) -> BreakReason:
        stack = [FrameSummary(place.filename, place.line, place.function, lookup_line=False) for place in source.stack]
        return cls(f"{source.kind.code} {source.kind.title}: {source.what}", stack, source=source)

    def render(self) -> str:
        return self.source.render() if self.source is not None else self.reason

    def __str__(self) -> str:
        return self.render()


@dataclass(repr=False)
class ExplainOutput:
    """The fields of torch's ``ExplainOutput``. ``compile_times`` holds seconds by stage; stages do not overlap."""

    graphs: list[torch.fx.GraphModule]
    graph_count: int
    graph_break_count: int
    break_reasons: list[BreakReason]
    op_count: int
    ops_per_graph: list[list[Any]] | None = None
    out_guards: list[Any] | None = None
    compile_times: dict[str, float] | None = None

    @classmethod
    def build(
        cls,
        graphs: Iterable[torch.fx.GraphModule],
        breaks: Iterable[Any],
        guards: Iterable[Any] = (),
        compile_times: Mapping[str, float] | None = None,
    ) -> ExplainOutput:
        graphs, reasons = list(graphs), [BreakReason.of(found) for found in breaks]
        operations = [[node.target for node in operation_nodes(graph)] for graph in graphs]
        return cls(
            graphs=graphs,
            graph_count=len(graphs),
            graph_break_count=len(reasons),
            break_reasons=reasons,
            op_count=sum(map(len, operations)),
            ops_per_graph=operations,
            out_guards=list(guards),
            compile_times=dict(compile_times or {}),
        )

    def __repr__(self) -> str:
        parts = [self.summary()]
        for i, reason in enumerate((r for r in self.break_reasons if r.graph_break), 1):
            parts.append(f"Break {i} of {self.graph_break_count}\n{shifted(reason.render())}")
        plain = [reason for reason in self.break_reasons if not reason.graph_break]
        parts += [f"Not compiled\n{shifted(reason.render())}" for reason in plain]
        for i, graph in enumerate(self.graphs, 1):
            listing = shorten(list_operations(graph), LISTING_HEAD, LISTING_TAIL, "operations")
            parts.append("\n".join([f"Graph {i} of {self.graph_count}: {census(graph)}", *map(shifted, listing)]))
        if self.out_guards:
            guards = shorten([str(guard).strip() for guard in self.out_guards], GUARDS_SHOWN, 0, "guards")
            parts.append("\n".join(["Guards: the graphs are used again while these hold", *map(shifted, guards)]))
        return "\n\n".join(parts) + "\n"

    def summary(self) -> str:
        """One line with the counts and the compile time."""
        counts = [
            count(self.graph_count, "graph"),
            count(self.graph_break_count, "graph break"),
            count(self.op_count, "operation"),
        ]
        if self.out_guards:
            counts.append(count(len(self.out_guards), "guard"))
        return ", ".join(counts) + self.timing()

    def timing(self) -> str:
        if not self.compile_times:
            return ""
        stages = ", ".join(f"{stage} {duration(seconds)}" for stage, seconds in self.compile_times.items())
        return f"; compiled in {duration(sum(self.compile_times.values()))} ({stages})"

    def _repr_html_(self) -> str:
        """For notebooks, in a frame: the page's styles stay inside."""
        return f'<iframe srcdoc="{escape(html_page(self))}" style="width: 100%; height: 32rem; border: 0"></iframe>'

    def html(self) -> str:
        """The same as a page that needs no other file."""
        return html_page(self)


def operation_nodes(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The calls of a graph; inputs, attributes and the output are not operations."""
    return [node for node in graph.graph.nodes if node.op in CALLS]


def census(graph: torch.fx.GraphModule) -> str:
    """``9 operations (torch.nn.functional.linear ×6, torch.sin ×3)``, most common first."""
    names = Counter(operation_name(node) for node in operation_nodes(graph))
    commonest = [f"{name} ×{times}" for name, times in names.most_common(COMMONEST_SHOWN)]
    more = [f"{len(names) - COMMONEST_SHOWN} more kinds"] if len(names) > COMMONEST_SHOWN else []
    detail = f" ({', '.join(commonest + more)})" if names else ""
    return count(sum(names.values()), "operation") + detail


def list_operations(graph: torch.fx.GraphModule) -> list[str]:
    """The graph as lines of Python, each with the type of its result if known."""
    nodes = operation_nodes(graph)
    calls = [cut(f"{node.name} = {call_text(node)}", LINE_SHOWN) for node in nodes]
    width = min(max(map(len, calls), default=0), 72)
    return [
        f"{call:<{width}}  # {kind}" if (kind := result_type(node)) else call
        for call, node in zip(calls, nodes, strict=True)
    ]


def operation_name(node: torch.fx.Node) -> str:
    if node.op == "call_method":
        return f".{node.target}"
    if node.op == "call_module":
        return f"self.{node.target}"
    return function_name(node.target)


def function_name(target: Any) -> str:
    """The public name of a function: ``torch.sin``, ``torch.nn.functional.linear``."""
    if isinstance(target, OpOverload):
        return str(target)
    name, module = getattr(target, "__name__", None), getattr(target, "__module__", None)
    if name is None:
        return str(target)
    for place, path in ((torch, "torch"), (torch.nn.functional, "torch.nn.functional"), (torch.Tensor, "torch.Tensor")):
        if getattr(place, name, None) is target:
            return f"{path}.{name}"
    return f"{(module or '').removeprefix('_')}.{name}".removeprefix("builtins.").removeprefix(".")


def call_text(node: torch.fx.Node) -> str:
    """The call as a user would write it."""
    args = [argument_text(arg) for arg in node.args]
    words = [f"{key}={argument_text(value)}" for key, value in node.kwargs.items()]
    if node.op == "call_method" and args:
        return f"{args[0]}.{node.target}({', '.join(args[1:] + words)})"
    if node.op == "call_function" and not words:
        if node.target is getattr and len(args) == 2 and isinstance(node.args[1], str):
            return f"{args[0]}.{node.args[1]}"
        if node.target is operator.getitem and len(args) == 2:
            return f"{args[0]}[{index_text(node.args[1])}]"
        template = OPERATORS.get(node.target) if getattr(node.target, "__hash__", None) else None
        if template is not None and template.count("{}") == len(args):
            return template.format(*args)
    return f"{operation_name(node)}({', '.join(args + words)})"


def argument_text(value: Any) -> str:
    if isinstance(value, torch.fx.Node):
        return value.name
    if type(value) in (list, torch.fx.immutable_collections.immutable_list):
        return f"[{', '.join(map(argument_text, value))}]"
    if type(value) is tuple:
        return f"({', '.join(map(argument_text, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {argument_text(part)}" for key, part in value.items()) + "}"
    if isinstance(value, slice):
        return f"slice({', '.join(map(argument_text, (value.start, value.stop, value.step)))})"
    if value is Ellipsis:
        return "..."
    if isinstance(value, torch.Tensor):
        return f"tensor of {tensor_type(value)}"
    return repr(value)


def index_text(index: Any) -> str:
    """The text between square brackets: ``:, None, 1:``."""
    if type(index) is tuple and index:
        return ", ".join(map(index_text, index)) + ("," if len(index) == 1 else "")
    if isinstance(index, slice):
        ends = ["" if end is None else argument_text(end) for end in (index.start, index.stop)]
        return ":".join(ends) + ("" if index.step is None else f":{argument_text(index.step)}")
    return argument_text(index)


def result_type(node: torch.fx.Node) -> str:
    """``float32[8, 64]``, from any metadata on the node that has it."""
    for key in ("example_value", "val", "tensor_meta"):
        note = node.meta.get(key)
        if isinstance(note, torch.Tensor) or (hasattr(note, "dtype") and hasattr(note, "shape")):
            return tensor_type(note)
    facts = node.meta.get("burnish_input")
    return type_text(facts.dtype, facts.shape) if facts is not None and facts.dtype is not None else ""


def tensor_type(value: Any) -> str:
    return type_text(value.dtype, value.shape)


def type_text(dtype: Any, shape: Iterable[Any]) -> str:
    return f"{str(dtype).removeprefix('torch.')}[{', '.join(map(str, shape))}]"


# ---- the report as HTML


def html_page(output: ExplainOutput) -> str:
    """One file without scripts or external resources; all text is escaped."""
    body = ["<h1>What Burnish made of it</h1>", f"<p>{escape(output.summary())}</p>"]
    for title, wanted in (("Graph breaks", True), ("Not compiled", False)):
        reasons = [reason for reason in output.break_reasons if reason.graph_break is wanted]
        if reasons:
            body += [f"<h2>{title}</h2>", *map(break_section, reasons)]
    body.append("<h2>Graphs</h2>" if output.graphs else "<p>No torch operation was recorded.</p>")
    for i, graph in enumerate(output.graphs, 1):
        body.append(folded(f"Graph {i}: {census(graph)}", list_operations(graph)))
    if output.out_guards:
        body.append("<h2>Guards</h2>")
        body.append(folded("The graphs are used again while these hold", map(str, output.out_guards)))
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>Burnish: explain</title>\n'
        f"<style>\n{STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )


def break_section(reason: BreakReason) -> str:
    found = reason.source
    if found is None:
        return f'<section class="break"><pre>{escape(reason.reason)}</pre></section>'
    parts = [f"<h3>{escape(found.kind.code)} {escape(found.kind.title)}</h3>", f"<p>{escape(found.what)}</p>"]
    frames = list(reversed(reason.user_stack))
    if frames:
        parts += [f'<div class="place">{escape(place(frames[0]))}</div>', excerpt(frames[0])]
    if len(frames) > 1:
        parts.append(folded("called from", (f"{place(frame)}\n    {frame.line or ''}" for frame in frames[1:])))
    parts.append(f"<p><b>Why.</b> {escape(found.kind.why)}</p>")
    parts.append(f"<p><b>What to do.</b> {escape(found.kind.what_to_do)}</p>")
    return '<section class="break">' + "\n".join(parts) + "</section>"


def place(frame: FrameSummary) -> str:
    return f"{frame.filename}:{frame.lineno} in {frame.name}"


def excerpt(frame: FrameSummary) -> str:
    """The line with its neighbours, marked; empty if the source is not available."""
    lines = linecache.getlines(frame.filename)
    if not 0 < frame.lineno <= len(lines):
        return ""
    shown = []
    for number in range(max(1, frame.lineno - LINES_AROUND), min(len(lines), frame.lineno + LINES_AROUND) + 1):
        text = escape(f"{number:>5}  {lines[number - 1].rstrip()}")
        shown.append(f'<span class="hit">{text}</span>' if number == frame.lineno else text)
    return "<pre>" + "\n".join(shown) + "</pre>"


def folded(title: str, lines: Iterable[str]) -> str:
    text = escape("\n".join(lines))
    return f"<details><summary>{escape(title)}</summary><pre>{text}</pre></details>"
