"""Specs of our own GPU matmul kernels: the kernel, its tile sizes, and the compiler that makes it.

    spec = KernelSpec(kernel, types, ("out", "x", "w"), precision="tf32")
    tilings(spec)                   MatmulTiles(128, 128, 32, warps=4, stages=3), …
    candidate(spec, tiles, maker)   a Candidate like any other

The kernel is written in the loop IR, with four variables: `codegen.triton.matmul_kernel` shows one. Prologue and
epilogue kernels, which are loops only, are specs as well: they have no tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from ...tensors.tensor_types import TensorType
from ..loops.loop_ir import Kernel
from .candidate import OUT, Candidate, from_steps
from .measure_candidates import Clock
from .own_kernels.matmul_tiling_and_packing import NativeCall, Stream


@dataclass(frozen=True, slots=True)
class MatmulTiles:
    """The work of one program: `rows` by `columns` of the result, in steps of `depth` along the summed dimension."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    """Software pipelining depth: loads of the next steps run while one is multiplied."""

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}x{self.depth} warps {self.warps} stages {self.stages}"


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """A kernel on tensors. Buffer 0 is the result."""

    kernel: Kernel
    types: tuple[TensorType, ...]
    """Of its buffers."""
    names: tuple[str, ...]
    """Of its buffers: a tensor that several kernels read has the same name in each."""
    precision: str = ""
    """Of a product of f32: see `tensors.device_facts`."""

    @property
    def inputs(self) -> dict[str, TensorType]:
        return dict(zip(self.names[1:], self.types[1:], strict=True))

    @property
    def output(self) -> TensorType:
        return self.types[0]

    @property
    def flops(self) -> int:
        return 2 * prod(self.kernel.loops[0].extents)

    def __repr__(self) -> str:
        types = ", ".join(f"{name}: {type}" for name, type in zip(self.names, self.types, strict=True))
        return f"{self.kernel.key}\n  on {types} {self.precision}".rstrip()


@dataclass(frozen=True, slots=True)
class LaunchableKernel:
    """A kernel that can be launched, by `launcher` with `words` as its arguments."""

    launcher: object
    words: object
    stream: Stream


@dataclass(frozen=True, slots=True)
class Maker(Clock):
    """Compiles such kernels for a GPU, and times them there."""

    make: Callable[[Sequence[tuple[KernelSpec, MatmulTiles | None]]], Sequence[LaunchableKernel | str]]
    """Compiles in parallel. A text says why a kernel could not be compiled."""


HALF = (
    MatmulTiles(128, 256, 64, 8, 3),
    MatmulTiles(128, 128, 64, 4, 3),
    MatmulTiles(128, 128, 32, 8, 4),
    MatmulTiles(64, 128, 64, 4, 4),
    MatmulTiles(128, 64, 64, 4, 4),
    MatmulTiles(64, 64, 64, 4, 4),
    MatmulTiles(32, 64, 64, 4, 4),
)
FULL = (
    MatmulTiles(128, 128, 32, 8, 3),
    MatmulTiles(64, 128, 32, 4, 4),
    MatmulTiles(128, 64, 32, 4, 4),
    MatmulTiles(64, 64, 32, 4, 4),
    MatmulTiles(32, 64, 32, 4, 4),
)
"""Tiles worth measuring for dtypes of two bytes (`HALF`), and of four (`FULL`)."""

PROGRAMS = 64
"""Fewer programs leave most of a large GPU idle: then only smaller tiles are measured."""

MOST_TILINGS = 5


def tilings(spec: KernelSpec) -> list[MatmulTiles]:
    """A few tile sizes: none much larger than the matrix, none that leaves the GPU idle if another does not."""
    count, rows, columns, _ = spec.kernel.loops[0].extents
    offered = FULL if "f32" in spec.kernel.dtypes else HALF
    fitting = [t for t in offered if t.rows < 2 * max(rows, 32) and t.columns < 2 * max(columns, 64)]
    busy = [t for t in fitting if count * -(-rows // t.rows) * -(-columns // t.columns) >= PROGRAMS]
    return (busy or fitting[-2:])[:MOST_TILINGS]


def candidate(name: str, spec: KernelSpec, tiles: MatmulTiles | None, maker: Maker) -> Candidate:
    """Compiled when its steps are requested."""

    def steps() -> list[NativeCall]:
        (made,) = maker.make([(spec, tiles)])
        if isinstance(made, str):
            raise RuntimeError(f"{name}: {made}")
        return [NativeCall(made.launcher, (made.words, made.stream, (OUT, 0), *((name, 0) for name in spec.names[1:])))]

    return from_steps(name, spec, spec.names[1:], spec.output, steps)  # type: ignore[arg-type]
