"""A compiled graph as it runs: a Python driver that launches kernels and calls operators.

    program = Program(source, constants, frame)
    outputs = program(*inputs)

The driver is generated text, kept in `source` for reading. What a run needs besides its inputs (the arena, views of it,
tables of pointers) is a `frame`: each run takes one from a pool, so that threads may run one program at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch


class Program:
    """`make_frame()` gives what one run at a time needs. The driver is `run(frame, *inputs)`."""

    def __init__(self, source: str, constants: dict[str, Any], make_frame: Callable[[], Any]):
        self.source, self.make_frame = source, make_frame
        self.frames: list[Any] = []
        namespace = dict(constants)
        exec(compile(source, "<burnish program>", "exec"), namespace)
        self.run = namespace["run"]

    def __call__(self, *inputs: Any) -> tuple:
        try:
            frame = self.frames.pop()
        except IndexError:
            frame = self.make_frame()
        outputs = self.run(frame, *inputs)
        self.frames.append(frame)
        return outputs


def restrided(x: torch.Tensor, shape: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    """The same contents in the memory layout that the kernels were made for."""
    made = torch.empty_strided(shape, stride, dtype=x.dtype, device=x.device)
    made.copy_(x)
    return made


class FrozenProgram:
    """A program whose last inputs are made from others, a module's state, and kept as long as those stay the same.

    `state` are the positions of the inputs that `prologue` looks at. A tensor is the same if it lies at the same
    address and its version counter has not moved. The old tensors are held, so that nothing else comes to lie there.
    """

    def __init__(self, main: Program, prologue: Program, state: Sequence[int]):
        self.main, self.prologue = main, prologue
        reads = "".join(f"i[{k}]._version, i[{k}].data_ptr(), " for k in state)
        self.stamp_of: Callable[[tuple], tuple] = eval(f"lambda i: ({reads})")
        self.positions = state
        self.lock = threading.Lock()
        self.kept: tuple[tuple | None, tuple, list[torch.Tensor]] = (None, (), [])

    @property
    def source(self) -> str:
        return f"# once\n{self.prologue.source}\n# every call\n{self.main.source}"

    def __call__(self, *inputs: Any) -> tuple:
        stamp, made, _ = self.kept
        now = self.stamp_of(inputs)
        if now != stamp:
            made = self.refreshed(now, inputs)
        return self.main(*inputs, *made)

    def refreshed(self, now: tuple, inputs: tuple) -> tuple:
        with self.lock:
            made = self.prologue(*inputs)
            self.kept = (now, made, [inputs[k].detach() for k in self.positions])
            return made
