"""Runs a kernel on NumPy buffers, compiled for this processor or for an older one that it can emulate."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable

import numpy as np

from burnish.codegen.llvm.compile_to_machine_code import compile_kernel, native
from burnish.codegen.llvm.target_cpu import preset, why_not_runnable
from burnish.schedule.loops.loop_ir import Kernel
from burnish.tensors.dtypes import FLOATS

from .numpy_reference import NUMPY, evaluate, rounded


def triton_version() -> tuple[int, ...]:
    """0 where there is none."""
    try:
        version = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return (0,)
    return tuple(map(int, version.split(".")[:2]))


def is_interpreted() -> bool:
    """Whether Triton's interpreter is installed. `triton_interpreter` corrects its differences from a GPU."""
    return triton_version() >= (3, 6)


MACHINES = [
    None,
    *(name for name in ("x86-64-v2", "x86-64-v3") if why_not_runnable(name) is None),
    *(["triton"] if is_interpreted() else []),
]
"""The targets of a kernel: this machine, narrower vectors without masks if it has those too, and a GPU."""


def random_buffer(dtype: str, size: int, random: np.random.Generator) -> np.ndarray:
    if dtype == "b8":
        return random.random(size) < 0.5
    if dtype not in FLOATS:
        limits = np.iinfo(NUMPY[dtype])
        values = random.integers(-9, 10, size) if dtype != "u8" else random.integers(0, 19, size)
        extreme = random.choice([limits.min, limits.max, -1 if dtype != "u8" else 0], size)
        return np.where(random.random(size) < 0.1, extreme, values).astype(NUMPY[dtype])
    values = random.normal(0, 3, size)
    odd = random.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-41, 300.0], size)
    return rounded(np.where(random.random(size) < 0.05, odd, values), dtype)


def run(kernel: Kernel, buffers: list[np.ndarray], machine: str | None = None) -> list[np.ndarray]:
    """Copies of the buffers after the kernel. Those that it only reads must not have changed."""
    memory = [_to_memory(buffer, dtype) for buffer, dtype in zip(buffers, kernel.dtypes, strict=True)]
    before = [array.copy() for array in memory]
    compiled(kernel, machine)(*(array.ctypes.data for array in memory))
    for number, (old, new) in enumerate(zip(before, memory, strict=True)):
        assert number in kernel.stored or old.tobytes() == new.tobytes()
    return [_from_memory(array, dtype) for array, dtype in zip(memory, kernel.dtypes, strict=True)]


def compiled(kernel: Kernel, machine: str | None) -> Callable[..., None]:
    if machine == "triton":
        from .triton_interpreter import interpreted

        return interpreted(kernel)
    return compile_kernel(kernel) if machine is None else native(kernel, preset(machine))


def _to_memory(values: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bf16":
        return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return np.array(values, NUMPY[dtype])


def _from_memory(array: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


def check(kernel: Kernel, buffers: list[np.ndarray], machine: str | None = None, tolerance: float = 0.0) -> None:
    """The kernel against the reference. `tolerance` is relative, for kernels whose result depends on the order of
    additions or on the last bit of a function."""
    expected = evaluate(kernel, buffers)
    found = run(kernel, buffers, machine)
    for number in sorted(kernel.stored):
        dtype = kernel.dtypes[number]
        if dtype in FLOATS:
            loose = max(tolerance, {"bf16": 2**-7, "f16": 2**-10}.get(dtype, 0)) if tolerance else 0
            np.testing.assert_allclose(
                found[number].astype(np.float64),
                expected[number].astype(np.float64),
                rtol=loose,
                atol=loose,
                err_msg=f"buffer {number} on {machine}\n{kernel.key}",
                equal_nan=True,
            )
        else:
            what = f"buffer {number} on {machine}\n{kernel.key}"
            np.testing.assert_array_equal(found[number], expected[number], what)
