"""Argument tables of hand-written native functions, in 64-bit words: builds them, and the IR that reads them.

plan = words(tasks, grain, ...)                 kept alive by the owner of the table that contains it
load_words("plan", ("tasks", "grain"))          %tasks and %grain, read from where %plan points to
load_pointers("table", ("out", "x"))            %out and %x
load_offsets("at", {"a0": "a", "c0": "c"})      %a0 = %a plus a number of bytes: the words at %at from the second on
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....runtime.program.native_kernels import NativeFunction, Words


def words(*numbers: int | Words | NativeFunction) -> Words:
    return Words(numbers)


def load_words(table: str, names: Sequence[str]) -> str:
    return _load("i64", table, names)


def load_pointers(table: str, names: Sequence[str]) -> str:
    return _load("ptr", table, names)


def _load(type: str, table: str, names: Sequence[str]) -> str:
    return "\n".join(
        f"  %{name}.word = getelementptr i64, ptr %{table}, i64 {n}\n  %{name} = load {type}, ptr %{name}.word"
        for n, name in enumerate(names)
    )


def load_offsets(table: str, bases: Mapping[str, str]) -> str:
    return "\n".join(
        f"  %{name}.at = getelementptr i64, ptr %{table}, i64 {n}\n"
        f"  %{name}.far = load i64, ptr %{name}.at\n"
        f"  %{name} = getelementptr i8, ptr %{base}, i64 %{name}.far"
        for n, (name, base) in enumerate(bases.items(), 1)
    )
