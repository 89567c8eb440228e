"""The stages of compiling a program as text that is the same in every run: no addresses, times, or file names.

    with written() as text:
        compiled(x)
    text.stages          the stages in order: title, body
    text.code            the LLVM text of kernels, by its digest

    ## graph                      the graph after each pass, and after each step of the schedule that returns a graph
    ## plan                       kernels, library calls and views, in order
    ## memory                     where values are: offsets in the arena, in inputs, in place of others
    ## kernels                    a line for each: the length of its LLVM text, and the digest
    ## driver                     the Python that runs the plan, and the tables that it passes to native code
    ## segment                    the checks of the guards, and how results are made from the graph's outputs

The names of passes are left out: stages are identified by position, so that a pass can be renamed.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from burnish import events
from burnish.codegen.llvm.print_kernel_module import print_ir
from burnish.ir.graph import Value
from burnish.report.dump_stages import function_text
from burnish.runtime.program.native_call_sequence import Fixed, InArena, Moving, NativeCalls
from burnish.runtime.program.native_kernels import NativeFunction, Words
from burnish.schedule.loops.build_kernel import Launch
from burnish.schedule.plan_steps import Plan

DIGITS = 16
SAME = "as before"
"""Stands for the graph of a step that changed nothing."""

KINDS = ("lower", "lower.refused", "loops", "kernels.driver", "segment")


@dataclass(frozen=True, slots=True)
class Stage:
    title: str
    body: str


@dataclass(slots=True)
class Written:
    stages: list[Stage] = field(default_factory=list)
    code: dict[str, str] = field(default_factory=dict)

    graph: str = ""
    """The last one."""

    def add(self, title: str, body: str) -> None:
        self.stages.append(Stage(title, body.rstrip()))

    def hear(self, event: events.Event) -> None:
        data = event.data
        match event.kind:
            case "lower":
                text = str(data["graph"])
                self.add("graph", SAME if text == self.graph else text)
                self.graph = text
            case "lower.refused":
                self.add("refused", data["text"])
            case "loops":
                plan = data["plan"]
                self.add("plan", without_comments(str(plan)))
                self.add("memory", memory_text(plan))
                launches = [step for step in plan.steps if isinstance(step, Launch)]
                self.add("kernels", "\n".join(map(self.kernel_line, launches)))
            case "kernels.driver":
                self.add("driver", driver_text(data["draft"]))
            case "segment":
                self.add("segment", segment_text(data["segment"]))

    def kernel_line(self, launch: Launch) -> str:
        text = print_ir(replace(launch.kernel, origin=()))
        key = digest(text)
        self.code[key] = text
        return f"{launch.kernel.name}: {text.count(chr(10))} lines, {key}"


@contextlib.contextmanager
def written() -> Iterator[Written]:
    """The stages of everything that is compiled inside the block."""
    from burnish.report.collect_fallbacks import collect_fallbacks

    found = Written()
    stop = events.subscribe(found.hear, KINDS)
    try:
        with collect_fallbacks() as fallbacks:
            yield found
        found.add("fallbacks", "\n".join(f"{fallback.cause} ({fallback.kind})" for fallback in fallbacks))
    finally:
        stop()


def memory_text(plan: Plan) -> str:
    lines = [f"arena of {plan.arena} bytes"]
    lines += [
        f"{value} at {at}, {value.type.bytes} bytes"
        for value, at in sorted(plan.offsets.items(), key=lambda entry: (entry[1], entry[0].name))
    ]
    lines += sorted(f"what {node.results[0]} needs at {at}" for node, at in plan.scratch.items())
    lines += sorted(f"{value} in the input {place}" for value, place in plan.placed.items())
    lines += sorted(f"{value} in place of {below}" for value, below in plan.in_place.items())
    lines += sorted(
        f"{what if isinstance(what, Value) else f'what {what.results[0]} needs'} in {host} at {at}"
        for what, (host, at) in plan.in_output_buffer.items()
    )
    return "\n".join(lines)


def segment_text(segment: Any) -> str:
    parts = [
        f"{name}:\n{code}"
        for name in ("check", "finish")
        if (code := function_text(getattr(segment, name))) is not None
    ]
    return without_comments("\n".join(parts))


def without_comments(text: str) -> str:
    """The text without its comments, which contain the user's files and lines, and constants as they print."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


def driver_text(draft: Any) -> str:
    """The text, the torch functions that it calls, and the tables passed to native code, for static and symbolic
    sizes."""
    lines = [draft.source.rstrip()]
    for name, thing in draft.things.items():
        if isinstance(thing, torch._ops.OpOverload):
            lines.append(f"{name} = {thing}")
    for name, view in draft.views.items() if isinstance(draft.views, dict) else enumerate(draft.views):
        lines.append(f"view {name}: {in_words(tuple(view) if isinstance(view, tuple) else view)}")
    for name, calls in draft.launches.items():
        lines.append(f"{name}:")
        if isinstance(calls, NativeCalls):
            for kernel, entries in calls.calls:
                lines.append(f"  {kernel.name} {code_digest(kernel.function)} {', '.join(map(entry_text, entries))}")
            continue
        for kernel, places in calls.kernels:
            lines.append(f"  {kernel.name} {code_digest(kernel.function)} of {places} places")
        lines += [f"  [{entry.at}] slot {entry.slot}, formula {entry.number}" for entry in calls.entries]
        lines += [f"  [{at}] {in_words(words)}" for at, words in calls.words]
    for number, formula in enumerate(getattr(draft, "formulas", ())):
        lines.append(f"formula {number}: {formula}")
    return "\n".join(lines)


def entry_text(entry: Any) -> str:
    match entry:
        case InArena(offset):
            return f"arena+{offset}"
        case Moving(text, offset):
            return f"{text}+{offset}" if offset else text
        case Fixed(number):
            return in_words(number)
    return type(entry).__name__


def in_words(thing: Any) -> str:
    """A value as text. Long tables are replaced by a digest; kernels in them by the digest of their machine code."""
    match thing:
        case Words():
            text = f"[{' '.join(map(in_words, thing.numbers))}]"
            return text if len(text) < 80 else f"[{len(thing.numbers)} words, {digest(text)}]"
        case NativeFunction():
            return code_digest(thing)
        case int() | str() | tuple() | None | torch.dtype():
            return str(thing)
    return type(thing).__name__


def code_digest(function: NativeFunction) -> str:
    return hashlib.sha256(function.object_code).hexdigest()[:DIGITS]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


__all__ = ["Stage", "Written", "written"]
