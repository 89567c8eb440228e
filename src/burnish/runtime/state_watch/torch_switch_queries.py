"""Torch's global state (grad mode, autocast, ...) as C functions that native guard checks can call.

    switches()           [(function, argument, further arguments, mask), ...], or None where torch does not offer them

They are the facts of ``capture.guards.tensor_metadata.global_state``, except for the default device, which is a name
in a Python module. Their mangled symbols name the functions and argument types. Once, what each returns is compared
with the Python query.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ...concurrency.first_value_cache import once
from ...foundation.torch_private import (
    dispatch_key_parse,
    get_tracing_state,
    len_torch_dispatch_stack,
    len_torch_function_stack,
)
from ...tensors.device_facts import precision_on_gpus

BYTE, WHOLE = 0xFF, (1 << 64) - 1
CPU, CUDA = 0, 1
"""c10::DeviceType."""

TRACER = int(dispatch_key_parse("Tracer"))
"""c10::DispatchKey, which is on while `torch.jit.trace` records."""

Switch = tuple[int, int, tuple[int, int], int]

NONE_FURTHER = (0, 0)
MATRICES_ON_GPUS = (1, 3)
"""at::Float32Backend and at::Float32Op."""

PRECISIONS = {"none": 0, "ieee": 1, "tf32": 2, "bf16": 3}
"""at::Float32Precision."""

PRECISION = "_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE"

# Library, symbol, argument, mask, and the Python query where there is one to compare with.
ASKED: tuple[tuple[str, str, int | None, int, Callable[[], int] | None], ...] = (
    ("c10", "_ZN3c108GradMode10is_enabledEv", 0, BYTE, torch.is_grad_enabled),
    ("c10", "_ZN3c1013InferenceMode10is_enabledEv", 0, BYTE, torch.is_inference_mode_enabled),
    ("c10", "_ZN3c1031get_default_dtype_as_scalartypeEv", 0, BYTE, None),
    ("torch_cpu", "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv", 0, WHOLE, len_torch_function_stack),
    ("c10", "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv", 0, WHOLE, len_torch_dispatch_stack),
    ("torch_cpu", "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv", 0, BYTE, None),
    ("torch_cpu", "_ZNK2at7Context23deterministicAlgorithmsEv", None, BYTE, torch.are_deterministic_algorithms_enabled),
    (
        "torch_cpu",
        "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE",
        CPU,
        BYTE,
        lambda: torch.is_autocast_enabled("cpu"),
    ),
    (
        "torch_cpu",
        "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE",
        CUDA,
        BYTE,
        lambda: torch.is_autocast_enabled("cuda"),
    ),
    ("torch_cpu", "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE", CPU, BYTE, None),
    ("torch_cpu", "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE", CUDA, BYTE, None),
    ("torch_cpu", "_ZN2at8autocast25is_autocast_cache_enabledEv", 0, BYTE, torch.is_autocast_cache_enabled),
    (
        "c10",
        "_ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE",
        TRACER,
        BYTE,
        lambda: get_tracing_state() is not None,
    ),
    ("torch_cpu", PRECISION, None, BYTE, lambda: PRECISIONS[precision_on_gpus()]),
)
CONTEXT = "_ZN2at13globalContextEv"


@once
def switches() -> list[Switch] | None:
    folder = Path(torch.__file__).parent / "lib"
    try:
        libraries = {name: ctypes.CDLL(str(folder / f"lib{name}.so")) for name in ("c10", "torch_cpu")}
        context = ask(_address(libraries["torch_cpu"], CONTEXT), 0, NONE_FURTHER, WHOLE)
        found = [
            (
                _address(libraries[name], symbol),
                context if argument is None else argument,
                MATRICES_ON_GPUS if symbol is PRECISION else NONE_FURTHER,
                mask,
            )
            for name, symbol, argument, mask, _ in ASKED
        ]
    except (OSError, AttributeError):
        return None
    for switch, (*_, query) in zip(found, ASKED, strict=True):
        if query is not None and ask(*switch) != query():
            return None
    return found


def ask(function: int, argument: int, further: tuple[int, int], mask: int) -> int:
    """A function that takes fewer arguments ignores the others."""
    return _prototype()(function)(argument, *further) & mask


def _address(library: ctypes.CDLL, symbol: str) -> int:
    return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0


@once
def _prototype() -> Any:
    return ctypes.PYFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int32, ctypes.c_int32)
