"""What the scheduler has to know of the machine that a value is computed on.

    machine_of(value.type.device)       a Machine, or None where nobody makes kernels for that device

Kernels are loops for every machine alike. What differs is how many rows it takes to keep one busy, whether a program
holds on to memory between its runs, and what cannot be printed. `backends` offers a machine for each kind of device
that has a printer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from ..ops.scalar_ir import Scalar
from .library.gpu_matmul_spec import Maker
from .library.measure_candidates import Clock


def _anything(expression: Scalar) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Machine:
    name: str
    is_shared_out: Callable[[int, int, bool], bool]
    """Whether a large box walked row by row keeps it busy: how many rows, of how many elements, and whether memory lies
    along them. Else reductions and what follows them are kernels of their own."""
    fewest_rows: int
    """Long rows that are fewer are reduced in parts."""
    side_by_side: int
    """So many rows that lie side by side are walked as one, where it is not along rows that memory lies. On a CPU an
    item is a strip of such rows, a line or two of memory wide: cut into parts, the strips of one part are read
    together, while it lies in the cache, and what follows the reduction goes over memory in order."""
    short: tuple[int, int]
    """Up to so many elements a row is not cut: where memory lies along it, and where it does not."""
    parts: tuple[int, ...]
    """Into how many a row is cut: into as many as come out even."""
    least_part: tuple[int, int] = (1, 1)
    """Elements of a part, at least: where memory lies along rows, and where it does not."""
    most_programs: int = 1 << 30
    """More of them are of no use: strips of rows times parts."""
    most_together: int = 1 << 18
    """Elements over which two kernels walk that are started as one: beyond that a start costs nothing beside the work,
    and each is better shared out by itself."""
    keeps_operands: bool = False
    """Whether backward is given what forward stored for a library call also where the call saw a view of it. Else it
    is computed again from what takes no further memory: less memory, and more work."""
    cuts_several: bool = False
    """Whether more than one dimension is cut, where one does not come out even in as many parts as are of use."""
    has_arena: bool = True
    """Whether a program keeps the memory of its intermediate values from run to run. Else each is made when it is
    needed, by torch, which knows who uses it."""
    has_checks: bool = True
    """Whether indices are looked at before anything is computed with them, so that eager's error is raised. Else the
    loads by them look."""
    has_atomics: bool = False
    """Whether loops may add to one place of memory side by side."""
    why_not_printed: Callable[[Scalar], str | None] = _anything
    aligned: int = 0
    """In bytes: libraries multiply matrices faster whose rows begin at multiples of it. 0: as fast at any place."""
    matrices: Callable[[], Maker] | None = None
    """Who makes kernels of our own that multiply matrices, if anybody does. Asked when a product comes."""
    copy_seconds: float = 0.3e-9
    """What it costs to lay a tensor out anew, a byte."""
    clock: Callable[[], Clock | None] | None = None
    """Who takes the time of torch's convolutions there, if anybody does now. Where it is None `library.choose` measures
    as on a CPU."""


CPU = Machine(
    "cpu",
    is_shared_out=lambda rows, *_: rows >= 16,
    fewest_rows=8,
    side_by_side=1024,
    short=(0, 256),
    parts=(64, 32, 16, 8, 4, 2),
)

_machines: dict[str, Machine] = {"cpu": CPU}


def machine_of(device: torch.device) -> Machine | None:
    return _machines.get(device.type)


def offer(device_type: str, machine: Machine | None) -> None:
    """From here on this is what computes on such devices. None: nobody does, any more."""
    if machine is None:
        _machines.pop(device_type, None)
    else:
        _machines[device_type] = machine


@contextlib.contextmanager
def replaced(device_type: str, machine: Machine) -> Iterator[None]:
    """For tests, and for looking at what would be made for another machine."""
    before = _machines.get(device_type)
    offer(device_type, machine)
    try:
        yield
    finally:
        offer(device_type, before)


__all__ = ["CPU", "Machine", "machine_of", "offer", "replaced"]
