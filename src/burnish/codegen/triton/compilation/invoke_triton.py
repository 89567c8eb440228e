"""Compiles one printed kernel to machine code for NVIDIA GPUs with Triton. This needs no GPU.

    emitted(Job("softmax", text, ("f32", "f32"), frozenset(), warps=4, architecture=90))      Cubin(code, name, …)

Worker processes run this module without torch, which would take them a second and more memory than all the rest. So no
module that imports torch is imported here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....concurrency.first_value_cache import once
from ....concurrency.outside_errors import reraise_from_outside
from ....errors import InternalError
from ..triton_types import signature_type
from .source_for_triton import forget, function_of

ALIGNED = 16
"""The address of every buffer is a multiple of this many bytes."""


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    text: str
    dtypes: tuple[str, ...]
    numbers: frozenset[int]
    """The buffers that are passed by value."""
    warps: int
    architecture: int
    is_aligned: bool = True
    """Every buffer begins at a multiple of ALIGNED."""
    sizes: tuple[tuple[str, bool], ...] = ()
    """The types of the parameters after the buffers, and whether they are multiples of ALIGNED for all sizes."""
    stages: int = 0
    """How many steps of a loop are in flight at a time. 0: Triton's default."""


@dataclass(frozen=True, slots=True)
class Cubin:
    code: bytes
    name: str
    shared: int
    """Bytes of shared memory of a program."""
    threads: int
    parameters: int
    """Of the function, including those that Triton adds, which are null."""


def packed(cubin: Cubin) -> bytes:
    head = json.dumps([cubin.name, cubin.shared, cubin.threads, cubin.parameters]).encode()
    return len(head).to_bytes(4, "little") + head + cubin.code


def unpacked(data: bytes) -> Cubin:
    end = 4 + int.from_bytes(data[:4], "little")
    return Cubin(data[end:], *json.loads(data[4:end]))


def emitted(job: Job) -> Cubin:
    from triton.backends.compiler import GPUTarget

    made = compiled(job, GPUTarget("cuda", job.architecture, 32))
    metadata: Any = made.metadata
    if getattr(metadata, "global_scratch_size", 0) or getattr(metadata, "num_ctas", 1) != 1:
        raise InternalError("codegen", f"a kernel that wants memory of its own, or clusters: {job.text}")
    return Cubin(
        made.asm["cubin"], metadata.name, metadata.shared, job.warps * 32, parameters_of(made.asm["ptx"], metadata.name)
    )


def compiled(job: Job, target: Any) -> Any:
    """What Triton makes of it for one of its targets."""
    import triton
    from triton.compiler import ASTSource
    from triton.runtime.jit import JITFunction

    fn = JITFunction(function_of(job, language(), JITFunction))
    signature = {f"b{n}": signature_type(dtype, n in job.numbers) for n, dtype in enumerate(job.dtypes)}
    signature.update((f"n{n}", type) for n, (type, _) in enumerate(job.sizes))
    aligned = [n for n in range(len(job.dtypes)) if job.is_aligned and n not in job.numbers]
    aligned += [n for n, (_, is_even) in enumerate(job.sizes, len(job.dtypes)) if is_even]
    # Products are not contracted into sums: the polynomials rely on each rounding, and eager rounds twice as well.
    # Integers wrap around.
    options = {
        "num_warps": job.warps,
        "enable_fp_fusion": False,
        "sanitize_overflow": False,
        "debug": "tl.device_assert" in job.text,
        **({"num_stages": job.stages} if job.stages else {}),
    }
    try:
        return triton.compile(
            ASTSource(fn, signature, {}, {(n,): [["tt.divisibility", ALIGNED]] for n in aligned}),
            target=target,
            options=options,
        )
    except Exception as error:
        reraise_from_outside(error)
        raise InternalError("codegen", f"Triton does not take what was printed: {error}\n{job.text}") from error
    finally:
        forget(fn.fn)


def parameters_of(ptx: str, name: str) -> int:
    found = re.search(rf"\.entry\s+{re.escape(name)}\s*\((.*?)\)", ptx, re.DOTALL)
    if found is None:
        raise InternalError("codegen", f"no function {name} in the PTX")
    return found.group(1).count(".param")


@once
def language() -> dict[str, Callable]:
    """The names that printed kernels may use."""
    import triton.language as tl

    from .. import reduction_combine

    return {"tl": tl, **{name: fn for name, fn in vars(reduction_combine).items() if hasattr(fn, "fn")}}
