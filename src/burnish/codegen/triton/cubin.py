"""Machine code for NVIDIA GPUs, made by Triton from printed kernels. No GPU has to be there.

    compile_cubin(printed, 90)        Cubin(code, name, shared memory, …)

What is compiled is kept where all of Burnish's machine code is, so that it is found without importing Triton.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...errors import InternalError
from ...runtime.disk_cache import disk_cache
from .kernel import Printed
from .source import forget, function_of
from .types import NUMBERS, POINTERS

KIND = "cubin"
ALIGNED = 16
"""Bytes: what the address of every buffer is a multiple of."""


@dataclass(frozen=True, slots=True)
class Cubin:
    code: bytes
    name: str
    shared: int
    """Bytes of memory that the threads of a program share."""
    threads: int
    parameters: int
    """Of the function, those that Triton adds included: they are null."""


def compile_cubin(printed: Printed, architecture: int, is_aligned: bool = True) -> Cubin:
    """`is_aligned`: every buffer begins at a multiple of ALIGNED."""
    shelf = disk_cache()
    how = f"{is_aligned} {printed.warps} {printed.stages} {printed.dtypes} {sorted(printed.numbers)}"
    key = f"{made_with(architecture)}\n{how}\n{printed.text}"
    if shelf is not None:
        found = shelf.get(KIND, key)
        if found is not None:
            return unpacked(found)
    made = emitted(printed, architecture, is_aligned)
    if shelf is not None:
        shelf.put(KIND, key, packed(made))
    return made


def packed(cubin: Cubin) -> bytes:
    head = json.dumps([cubin.name, cubin.shared, cubin.threads, cubin.parameters]).encode()
    return len(head).to_bytes(4, "little") + head + cubin.code


def unpacked(data: bytes) -> Cubin:
    end = 4 + int.from_bytes(data[:4], "little")
    return Cubin(data[end:], *json.loads(data[4:end]))


def made_with(architecture: int) -> str:
    return f"triton {triton_version()} sm_{architecture}"


@functools.cache
def triton_version() -> str:
    """Asked without importing it, which takes a fifth of a second."""
    return importlib.metadata.version("triton")


def emitted(printed: Printed, architecture: int, is_aligned: bool = True) -> Cubin:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.runtime.jit import JITFunction

    fn = JITFunction(function_of(printed, language(), JITFunction))
    signature = {f"b{n}": NUMBERS[dtype] if n in printed.numbers else POINTERS[dtype]
                 for n, dtype in enumerate(printed.dtypes)}
    aligned = {(n,): [["tt.divisibility", ALIGNED]] for n in range(len(printed.dtypes))
               if is_aligned and n not in printed.numbers}
    options = {"num_warps": printed.warps, "enable_fp_fusion": False}
    options.update({"num_stages": printed.stages} if printed.stages else {})
    try:
        # Products are not contracted into sums: the polynomials count on each rounding, and eager rounds twice as well.
        made = triton.compile(ASTSource(fn, signature, {}, aligned), target=GPUTarget("cuda", architecture, 32),
                              options=options)
    except Exception as error:
        raise InternalError("codegen", f"Triton does not take what was printed: {error}\n{printed.text}") from error
    finally:
        forget(fn.fn)
    metadata: Any = made.metadata
    if getattr(metadata, "global_scratch_size", 0) or getattr(metadata, "num_ctas", 1) != 1:
        raise InternalError("codegen", f"a kernel that wants memory of its own, or clusters: {printed.text}")
    return Cubin(made.asm["cubin"], metadata.name, metadata.shared, printed.warps * 32,
                 parameters_of(made.asm["ptx"], metadata.name))


def parameters_of(ptx: str, name: str) -> int:
    found = re.search(rf"\.entry\s+{re.escape(name)}\s*\((.*?)\)", ptx, re.DOTALL)
    if found is None:
        raise InternalError("codegen", f"no function {name} in the PTX")
    return found.group(1).count(".param")


@functools.cache
def language() -> dict[str, Callable]:
    """What printed kernels may use."""
    import triton.language as tl

    from . import combine

    return {"tl": tl, **{name: fn for name, fn in vars(combine).items() if hasattr(fn, "fn")}}


__all__ = ["ALIGNED", "Cubin", "compile_cubin"]
