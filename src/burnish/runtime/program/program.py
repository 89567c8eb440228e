"""A compiled program: a Python driver that launches kernels and calls operators, with a pool of frames.

    program = LinkedProgram(source, constants, make_frame)
    outputs = program(*inputs)

The driver is generated source text, kept in `source`. A frame holds what a run needs besides its inputs: the arena,
views of it, tables of pointers. Each run takes one from a pool, so that threads may run one program concurrently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...foundation.torch_private import compiler_guards, reinterpret_tensor
from ...tensors.device_facts import DEVICES
from .restore_inputs_on_error import half_done


class LinkedProgram:
    """`make_frame()` returns what one run at a time needs. The driver is `run(frame, *inputs)`."""

    takes_gradients = False
    """Whether autograd records it."""

    def __init__(
        self,
        source: str,
        constants: dict[str, Any],
        make_frame: Callable[..., Any],
        takes: tuple[int, ...] | None = None,
        binds: tuple[int, ...] = (),
    ):
        """`takes` and `binds`: positions of the inputs for `run` and for `bind`, if the driver has a `bind`."""
        self.source, self.make_frame, self.takes, self.binds = source, make_frame, takes, binds
        self.frames: list[Any] = []
        namespace = {**BUILT_IN, **constants}
        exec(compile(source, "<burnish program>", "exec"), namespace)
        self.run, self.bind = namespace["run"], namespace.get("bind")

    def __call__(self, *inputs: Any) -> tuple:
        return self.__burnish_call_with_tuple__(inputs)

    def __burnish_call_with_tuple__(self, inputs: tuple) -> tuple:
        """The same, as a function of the tuple of its inputs."""
        try:
            frame = self.frames.pop()
        except IndexError:
            frame = self.make_frame()
        if self.takes is not None:
            frame.bound = None
            self.bind(frame, *[inputs[k].data_ptr() for k in self.binds])
            inputs = tuple([inputs[k] for k in self.takes])
        outputs = self.run(frame, *inputs)
        self.frames.append(frame)
        return outputs

    def each_idle_arena(self, do: Callable[[torch.Tensor], object]) -> None:
        frames = taken(self.frames)
        for frame in frames:
            do(frame.arena)
        self.frames += frames

    def run_bound(self, token: object, bound: Sequence[int], taken: Sequence[Any]) -> tuple:
        """Run with the inputs that `run` takes and the addresses that `bind` takes. The token identifies the addresses:
        a frame bound for the same token is not bound again."""
        try:
            frame = self.frames.pop()
        except IndexError:
            frame = self.make_frame()
        if frame.bound is not token:
            self.bind(frame, *bound)
            frame.bound = token
        outputs = self.run(frame, *taken)
        self.frames.append(frame)
        return outputs


class PairedProgram(LinkedProgram):
    """A forward or backward program. They share one arena, so a run takes frames of all of them from the pool."""

    def __init__(
        self, whole: LinkedProgram, side: int, pairs: list[tuple[Any, ...]], make_pair: Callable[[], tuple[Any, ...]]
    ):
        self.source, self.make_frame, self.run = whole.source, whole.make_frame, whole.run
        self.takes, self.binds, self.bind = None, (), None
        self.side, self.pairs, self.make_pair = side, pairs, make_pair

    def __call__(self, *inputs: Any) -> tuple:
        try:
            pair = self.pairs.pop()
        except IndexError:
            pair = self.make_pair()
        outputs = self.run(pair[self.side], *inputs)
        self.pairs.append(pair)
        return outputs

    def each_idle_arena(self, do: Callable[[torch.Tensor], object]) -> None:
        pairs = taken(self.pairs)
        for frames in pairs:
            do(frames[0].arena)
        self.pairs += pairs


def taken(pool: list[Any]) -> list[Any]:
    """All that is in the pool. Other threads may take and put back at the same time."""
    found = []
    while True:
        try:
            found.append(pool.pop())
        except IndexError:
            return found


def restrided(x: torch.Tensor, shape: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    """The same contents in the memory layout that the kernels were compiled for."""
    if is_laid_out(x, shape, stride):
        return x.as_strided(shape, stride)
    made = torch.empty_strided(shape, stride, dtype=x.dtype, device=x.device)
    made.copy_(x)
    return made


def is_laid_out(x: torch.Tensor, shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether the elements have that memory layout: the stride of a dimension of size 1 is ignored."""
    return all(size <= 1 or is_ == step for size, is_, step in zip(shape, x.stride(), stride, strict=True))


def within(
    host: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...], at: int
) -> torch.Tensor:
    """A tensor in the memory of another one, `at` bytes after its start."""
    start = at // dtype.itemsize
    if host.dtype is dtype:
        return host.as_strided(shape, stride, start)
    return torch.empty(0, dtype=dtype, device=host.device).set_(host.untyped_storage(), start, shape, stride)


def empty_on(device: str) -> Callable[..., torch.Tensor]:
    """A function that allocates on the CPU, or on the current GPU, for (shape, stride, dtype). Torch has one that
    bypasses the dispatcher: half a microsecond instead of one and a half."""

    def empty(shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(shape, stride, dtype=dtype, device=device)

    return getattr(compiler_guards, f"_empty_strided_{device}", empty)


def shown(x: torch.Tensor, shape: tuple[int, ...], stride: tuple[int, ...], offset: int) -> torch.Tensor:
    """A view of the same memory in another shape, `offset` elements further on."""
    return x.as_strided(shape, stride, x.storage_offset() + offset)


BUILT_IN: dict[str, Any] = {
    "half_done": half_done,
    "restrided": restrided,
    "within": within,
    "as_strided": torch.as_strided,
    "empty_strided": torch.empty_strided,
    **{f"empty_{device}": empty_on(device) for device in DEVICES},
    "shown": reinterpret_tensor or shown,
}
"""What every driver may use."""
