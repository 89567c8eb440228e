"""The CPU that code is generated for: its name for LLVM, and its vector width.

    >>> host().vector_bits
    512

A `Host` is plain data, so tests can generate code for a machine that is not present: `preset("x86-64-v3")`.
"""

from __future__ import annotations

from dataclasses import dataclass

import llvmlite.binding as llvm

from ...concurrency import thread_locks
from ...concurrency.first_value_cache import once
from ...errors import UserError
from ...runtime.linking.llvm_linker import fork_between_calls
from ...settings import current


@dataclass(frozen=True, slots=True)
class Host:
    triple: str
    cpu: str
    features: str
    """In LLVM's form: "+avx2,-avx512f". Empty: the default features of the processor's name."""
    vector_bits: int
    has_masks: bool
    """Masked loads and stores are single instructions, for elements of every width (AVX-512BW). Elsewhere the last
    elements of a loop are computed one at a time, in a tail loop."""

    @property
    def has_scaling(self) -> bool:
        """Whether multiplying by a power of two is an instruction, denormal results included."""
        return self.has_masks and self.triple.startswith("x86_64")

    @property
    def has_fma(self) -> bool:
        return self.cpu in ("x86-64-v3", "x86-64-v4") or "+fma" in self.features.split(",")

    @property
    def has_bf16_pairs(self) -> bool:
        """Whether an instruction multiplies pairs of bf16 and adds them to float32."""
        return self.vector_bits == 512 and "+avx512bf16" in self.features.split(",")

    @property
    def has_bf16_matrices(self) -> bool:
        """Whether an instruction multiplies matrices of bf16. Libraries use it, our own kernels do not."""
        return "+amx-bf16" in self.features.split(",")

    @property
    def attributes(self) -> str:
        """The function attributes that make LLVM generate for this machine."""
        # Without the last two, LLVM halves vectors of 512 bits on processors for which it prefers 256.
        features = f'"target-features"="{self.features}" ' if self.features else ""
        return (
            f'"target-cpu"="{self.cpu}" {features}'
            f'"min-legal-vector-width"="{self.vector_bits}" "prefer-vector-width"="{self.vector_bits}"'
        )


PRESETS = {
    "x86-64-v2": ("x86_64-unknown-linux-gnu", 128, False),
    "x86-64-v3": ("x86_64-unknown-linux-gnu", 256, False),
    "x86-64-v4": ("x86_64-unknown-linux-gnu", 512, True),
    "neoverse-n1": ("aarch64-unknown-linux-gnu", 128, False),
}
"""Machines by name: triple, vector_bits, has_masks."""


REQUIRED = {
    "x86-64-v2": {"sse4.2", "popcnt"},
    "x86-64-v3": {"avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe"},
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}
"""The features that each level of x86-64 adds to the one before, by LLVM's names."""


def preset(cpu: str) -> Host:
    triple, bits, has_masks = PRESETS[cpu]
    return Host(triple, cpu, "", bits, has_masks)


def why_not_runnable(cpu: str) -> str | None:
    """Why code for a preset cannot run on this processor, or None."""
    if cpu not in REQUIRED:
        return "no level of x86-64"
    below = list(REQUIRED)[: list(REQUIRED).index(cpu) + 1]
    found = llvm.get_host_cpu_features()
    missing = sorted(name for level in below for name in REQUIRED[level] if not found.get(name))
    return f"this processor has no {', '.join(missing)}" if missing else None


@once
def host() -> Host:
    """The machine to generate code for: this processor, or the level of it that the setting `cpu` names."""
    initialize()
    cpu = current().cpu
    if cpu is not None:
        reason = why_not_runnable(cpu)
        if reason is not None:
            raise UserError(f"The setting cpu (BURNISH_CPU in the environment) cannot be {cpu!r}: {reason}.")
        return preset(cpu)
    features = llvm.get_host_cpu_features()
    triple = llvm.get_process_triple()
    if features.get("avx512f"):
        bits = 512
    elif features.get("avx"):
        bits = 256
    else:
        bits = 128
    has_masks = all(features.get(name) for name in ("avx512f", "avx512bw", "avx512vl", "avx512dq"))
    return Host(triple, llvm.get_host_cpu_name(), features.flatten(), bits, has_masks)


@once
def initialize() -> None:
    """Prepares LLVM to generate code for this machine."""
    fork_between_calls()
    with _lock:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()


_lock = thread_locks.lock()
