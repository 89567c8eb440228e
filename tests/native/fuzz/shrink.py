"""Shrinks a failing program: removes lines, outputs and inputs as long as it fails in the same way."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace

from .check import check
from .program import Input, Line, Program


def shrink(program: Program, kind: str, seconds: float) -> Program:
    end = time.monotonic() + seconds
    is_smaller = True
    while is_smaller and time.monotonic() < end:
        is_smaller = False
        for candidate in candidates(program):
            if time.monotonic() > end:
                break
            if fails(candidate, kind):
                program, is_smaller = candidate, True
                break
    return program


def fails(program: Program, kind: str) -> bool:
    try:
        failure = check(program).failure
    except Exception:
        # It is not a program any more: a name that nothing defines.
        return False
    return failure is not None and failure.kind == kind


def candidates(program: Program) -> Iterator[Program]:
    """Smaller programs, the boldest cuts first."""
    for name in program.outputs:
        if len(program.outputs) > 1:
            yield without_dead(replace(program, outputs=(name,)))
    for name in program.outputs:
        if len(program.outputs) > 1:
            yield without_dead(replace(program, outputs=tuple(n for n in program.outputs if n != name)))
    for k in reversed(range(len(program.lines))):
        yield without_line(program, k)
    for k, line in enumerate(program.lines):
        for name in line.uses if len(line.defines) == 1 else ():
            yield bypassed(program, k, line.defines[0], name)
    for k, given in enumerate(program.inputs):
        for simpler in simpler_inputs(given):
            yield replace(program, inputs=(*program.inputs[:k], simpler, *program.inputs[k + 1 :]))


def without_line(program: Program, k: int) -> Program:
    """The program without a line, and without the lines that need it."""
    gone, names = {k}, set(program.lines[k].defines)
    for n, line in enumerate(program.lines[k + 1 :], k + 1):
        if names & set(line.uses):
            gone.add(n)
            names |= set(line.defines)
    outputs = tuple(name for name in program.outputs if name not in names)
    return program.without(gone, outputs)


def without_dead(program: Program) -> Program:
    """The program without lines whose values are unused. Lines that write stay."""
    used = {name for line in program.lines for name in line.uses} | set(program.outputs)
    dead = {k for k, line in enumerate(program.lines) if line.defines and not used & set(line.defines)}
    return without_dead(program.without(dead, program.outputs)) if dead else program.without(set(), program.outputs)


def bypassed(program: Program, k: int, value: str, instead: str) -> Program:
    """The program without a line, one of its operands taken where its value was."""

    def changed(text: str) -> str:
        return re.sub(rf"\b{value}\b", instead, text)

    lines = [
        Line(changed(line.text), line.defines, tuple(instead if n == value else n for n in line.uses))
        if n > k
        else line
        for n, line in enumerate(program.lines)
        if n != k
    ]
    outputs = tuple(dict.fromkeys(instead if name == value else name for name in program.outputs))
    return replace(program, lines=tuple(lines), outputs=outputs).without(set(), outputs)


def simpler_inputs(given: Input) -> Iterator[Input]:
    if given.layout not in ("plain", "indices"):
        yield replace(given, layout="plain")
    if given.special:
        yield replace(given, special=False)
    if given.shape:
        yield replace(given, shape=given.shape[1:])
    for k, n in enumerate(given.shape):
        for smaller in (1, 2, n // 2):
            if 0 < smaller < n:
                yield replace(given, shape=(*given.shape[:k], smaller, *given.shape[k + 1 :]))
