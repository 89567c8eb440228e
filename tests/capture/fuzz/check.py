"""Runs one generated program eagerly and compiled, on equal worlds, and says how they differ.

Beyond what the harness compares (results, exceptions, arguments, printed text, warnings), a program's notes hold its
globals, which results share memory with which arguments, and what ``backward()`` of the results does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import linecache
import re
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

import burnish

from ..harness import Same, run_world

numbers = itertools.count()
SECONDS = 20


class Hang(BaseException):
    """A program that did not end; no ``except Exception`` of a program or of the compiler catches it."""


@dataclasses.dataclass
class Failure:
    kind: str  # "different", "error" or "hang"
    message: str
    expected_errors: tuple[str, ...] = ()

    @property
    def signature(self) -> str:
        """What stays the same while a program shrinks: no numbers, names, paths or values."""
        line = self.message.splitlines()[0] if self.message else ""
        line = re.sub(r"call \d+: ", "", line)
        return f"{self.kind}: " + re.sub(r"\[[^\]]*\]|'[^']*'|\"[^\"]*\"|\b[a-z_]*\d+\b|0x\w+|/\S+", "_", line)[:160]


class Loaded:
    """A program's module, with its source where tracebacks and ``inspect`` look for it."""

    def __init__(self, source: str):
        self.source = source
        self.name = f"fuzz_program_{next(numbers)}"
        self.code = compile(source, f"{self.name}.py", "exec")

    def __enter__(self) -> Loaded:
        linecache.cache[f"{self.name}.py"] = (len(self.source), None, self.source.splitlines(True), f"{self.name}.py")
        return self

    def __exit__(self, *_) -> None:
        linecache.cache.pop(f"{self.name}.py", None)
        sys.modules.pop(self.name, None)

    def world(self) -> tuple[Callable, list, Any]:
        module = types.ModuleType(self.name)
        sys.modules[self.name] = module
        exec(self.code, module.__dict__)
        return module.fn, module.calls(), module.NOTES

    def observed(self, fn: Callable) -> Callable:
        """``fn`` with the notes taken after every call."""
        spaces = vars(sys.modules[self.name])

        def call(*args):
            notes = spaces["NOTES"]
            notes.clear()
            try:
                result = fn(*args)
                notes["shared"] = shared_memory({"args": args, "result": result, "box": spaces["BOX"]})
                notes["backward"] = try_backward(result)
                return result
            finally:
                owned = {name: spaces[name] for name in ("TOTAL", "LOG", "SETTINGS", "BOX", "LAYER", "WEIGHT")}
                notes.update(owned, limits=(spaces["Box"].limit, spaces["Deep"].limit))
                if isinstance(spaces["fn"], torch.nn.Module):
                    notes["model"] = spaces["fn"]

        return call


def check(source: str) -> tuple[Failure | None, list[str]]:
    """How compiled differs from eager, and the names of the errors that eager's calls ended in."""
    with Loaded(source) as program, time_limit(SECONDS), usual_modes():
        try:
            expected = run_world(program.world, program.observed)
        except Hang:
            return None, ["Hang"]
        errors = [type(call["error"]).__name__ for call in expected if call["error"] is not None]
        burnish.reset()
        try:
            found = run_world(program.world, lambda fn: program.observed(burnish.compile(fn, backend="eager")))
            for i, (want, got) in enumerate(zip(expected, found, strict=True)):
                surprise = got["error"]
                if surprise is not None and want["error"] is None:
                    return Failure("error", f"{type(surprise).__name__}: {surprise}", tuple(errors)), errors
                for part in want:
                    Same(exact=True, same_text=True)(want[part], got[part], f"call {i}: {part}")
        except Hang:
            return Failure("hang", f"not done after {SECONDS} s", tuple(errors)), errors
        except AssertionError as difference:
            return Failure("different", str(difference), tuple(errors)), errors
    return None, errors


@contextlib.contextmanager
def usual_modes() -> Iterator[None]:
    """Modes that a wrong program leaves behind must not reach the next one, and every warning is given every time:
    one given once a process would be seen in the eager world only."""
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with torch.set_grad_enabled(True), torch.autocast("cpu", enabled=False):
            yield
    finally:
        torch.set_warn_always(always)


def tensors_in(value: Any, path: str = "", seen: frozenset[int] = frozenset()) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
    elif id(value) in seen:
        return
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            yield from tensors_in(part, f"{path}[{i}]", seen | {id(value)})
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from tensors_in(part, f"{path}[{key!r}]", seen | {id(value)})
    elif hasattr(value, "value") and hasattr(value, "history"):
        yield f"{path}.value", value.value


def shared_memory(value: Any) -> list[list[str]]:
    """Groups of paths whose tensors are one object (``a is b``) or share storage (``a ~ b``)."""
    same: dict[int, list[str]] = {}
    storages: dict[int, list[str]] = {}
    for path, tensor in tensors_in(value):
        if path not in same.setdefault(id(tensor), []):
            same[id(tensor)].append(path)
        if tensor.numel():
            storages.setdefault(tensor.untyped_storage().data_ptr(), []).append(f"{path}@{tensor.storage_offset()}")
    return [["is", *group] for group in same.values() if len(group) > 1] + [
        ["~", *group] for group in storages.values() if len(group) > 1
    ]


def try_backward(result: Any) -> str:
    losses = [tensor.sum() for _, tensor in tensors_in(result) if tensor.requires_grad and tensor.is_floating_point()]
    if not losses:
        return "none"
    try:
        torch.stack(losses).sum().backward(retain_graph=True)
    except RuntimeError as error:
        return str(error).split(". ")[0]
    return "done"


class time_limit:  # noqa: N801
    """Raises ``Hang`` in the main thread after some seconds; no limit elsewhere or without alarms."""

    def __init__(self, seconds: int):
        self.seconds = seconds if hasattr(signal, "SIGALRM") else 0
        if threading.current_thread() is not threading.main_thread():
            self.seconds = 0

    def __enter__(self) -> None:
        if self.seconds:
            self.before = signal.signal(signal.SIGALRM, self.ring)
            signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def __exit__(self, *_) -> None:
        if self.seconds:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self.before)

    @staticmethod
    def ring(*_) -> None:
        raise Hang
