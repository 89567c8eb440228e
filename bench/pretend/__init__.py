"""A pretended GPU below torch: torch takes it for an H100, and Burnish relies on torch.

    ran = pretended("import torch; print(torch.ones(3, device='cuda').is_cuda)")
    ran.stdout                       True

    python -m bench.pretend -m bench bert --device cuda --against torch.compile        any program, with such a GPU

In a process of its own, a library (`gpu.c`) replaces CUDA's own. There torch chooses its operators, its layouts and
its memory as it does on a GPU, streams are recorded, and Burnish compiles and launches. But kernels do nothing, and
results are whatever was in memory before, mostly zeros. So this shows what is run, not what is computed.

A first call therefore takes as long as on a GPU, except for the kernels themselves, and a later call takes its time on
the CPU. That is what the times of `bench` mean here; they do not say how fast a GPU would be.

Libraries compute nothing: each of their functions that torch calls and `gpu.c` lacks returns 0, which means success.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import torch

HERE = Path(__file__).parent
CALLERS = ("libc10_cuda.so", "libtorch_cuda.so", "libtorch_cuda_linalg.so", "libtorch_python.so", "libcaffe2_nvrtc.so")
"""The parts of torch that call CUDA."""

CUDA = re.compile(r"(__cuda|cuda|cublas|cudnn|cu[A-Z])(?!File)\w*")
REAL = {"cudnnGetVersion", "cudnnGetErrorString", "cudnnGetProperty", "cublasLtGetVersion", "cublasGetVersion_v2"}
"""Functions that are not replaced: they need no GPU, and their result is not a status."""

WORK = re.compile(r"(?i)gemm|gemv|trsm|matmul$|cudnnBackendExecute|(forward|backward)(training|inference|ex|data)*\d*$")
"""The library functions that compute."""

SHOWN = '#define SHOWN __attribute__((visibility("default")))'

HOST_DEFINES = "\n".join(
    f"#define {word}"
    for word in (
        "__host__",
        "__device__",
        "__device_builtin__",
        "__cudart_builtin__",
        "__location__(x)",
        "__align__(x)",
        "CUDARTAPI",
        "__device_builtin_texture_type__",
        "__device_builtin_surface_type__",
        "CUDARTAPI_CDECL",
        "__builtin_align__(n) __attribute__((aligned(n)))",
    )
)
"""Definitions for CUDA's headers from the CUDA compiler, which is not installed with torch."""


@functools.cache
def why_not() -> str | None:
    """Why there cannot be such a GPU here; None if there can."""
    if sys.platform != "linux" or torch.version.cuda is None:
        return "torch is not built for CUDA"
    if headers() is None:
        return "CUDA's headers are not installed"
    try:
        library()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no C compiler makes it: {error}"
    return None


def headers() -> Path | None:
    found = sorted(Path(sysconfig.get_path("purelib"), "nvidia").glob("*/include/cuda_runtime_api.h"))
    return found[0].parent if found else None


@functools.cache
def library() -> Path:
    """The library, compiled once for each process of tests."""
    place = Path(folder().name)
    (place / "crt").mkdir()
    (place / "crt" / "host_defines.h").write_text(HOST_DEFINES)
    (place / "crt" / "host_config.h").touch()
    own = (HERE / "gpu.c").read_text()
    defined = set(re.findall(r"\b(\w+)\(", "\n".join(line for line in own.splitlines() if line.startswith("SHOWN"))))
    made = "\n".join(
        f"SHOWN long {name}(void) {{ {stub_body(name)}return 0; }}"
        for name in sorted(cuda_functions() - defined - REAL)
    )
    (place / "others.c").write_text(f"{SHOWN}\nvoid pretended_called(const char *);\n{made}\n")
    found = place / "libcuda.so.1"
    subprocess.run(
        [
            "cc",
            "-shared",
            "-fPIC",
            "-O1",
            "-w",
            f"-I{place}",
            f"-I{headers()}",
            "-Wl,-soname,libcuda.so.1",
            "-o",
            str(found),
            str(HERE / "gpu.c"),
            str(place / "others.c"),
            "-lpthread",
            "-ldl",
        ],
        check=True,
    )
    return found


@functools.cache
def folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="burnish-pretended-gpu-")


def stub_body(name: str) -> str:
    return f'pretended_called("{name}"); ' if WORK.search(name) else ""


def cuda_functions() -> set[str]:
    """The functions of CUDA that torch calls."""
    names = set()
    for caller in CALLERS:
        listed = subprocess.run(
            ["nm", "-D", "--undefined-only", str(Path(torch.__file__).parent / "lib" / caller)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        names |= {line.split()[-1].partition("@")[0] for line in listed.splitlines()}
    names |= set(re.findall(r"\bcu[A-Z]\w+", triton_driver().read_text()))
    return {name for name in names if CUDA.fullmatch(name)}


def triton_driver() -> Path:
    """The source that Triton compiles to call CUDA when torch.compile uses it."""
    import triton

    return Path(triton.__file__).parent / "backends" / "nvidia" / "driver.c"


def surroundings(gpus: int = 1) -> dict[str, str]:
    """The environment variables of a process that has such GPUs."""
    return {"LD_PRELOAD": str(library()), "TRITON_LIBCUDA_PATH": str(library().parent), "PRETEND_GPUS": str(gpus)}


def leave() -> None:
    """End a process that has such a GPU before torch's own exit code: after a backward, one in ten ended in C++'s
    `terminate`, also in eager."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def environment(gpus: int = 1) -> dict[str, str]:
    """The environment of a program that is compiled again in each process, and stays compiled."""
    path = os.pathsep.join(filter(None, sys.path))
    return {**surroundings(gpus), "BURNISH_CACHE": "0", "BURNISH_NEVER_SLOWER": "0", "PYTHONPATH": path}


def pretended(code: str, gpus: int = 1, seconds: float = 300) -> subprocess.CompletedProcess[str]:
    """Run a program in a process with such GPUs."""
    env = {**os.environ, **environment(gpus)}
    code = f"{code}\nfrom bench.pretend import leave\nleave()\n"
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=seconds, check=False
    )
