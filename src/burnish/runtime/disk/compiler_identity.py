"""The identity of the compiler: files on disk are read by the same version on the same kind of machine alone.

compiler_identity()      'burnish 5f1c… torch 2.14.1 llvmlite 0.44.0 …'
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import torch

from ...concurrency.first_value_cache import once
from ...foundation import plugins
from ...settings import current
from .disk_cache import disk_cache


@once
def compiler_identity() -> str:
    """The versions of the compiler, and its target. LLVM's version is that of llvmlite, whose binding is not loaded."""
    import llvmlite

    return (
        f"burnish {source_digest()} torch {torch.__version__} llvmlite {llvmlite.__version__} {machine()} "
        f"{current().cpu} {os.cpu_count()} {plugins.identity_for_compiler()}"
    )


OF_PROCESSOR = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")
"""Lines of /proc/cpuinfo from which LLVM derives a processor's name and features."""


def machine() -> str:
    """The processor and its features, some of which the system controls."""
    try:
        with open("/proc/cpuinfo", "rb") as file:
            first, end, _ = file.read(8192).decode().partition("\n\n")  # the system writes no more than is read
    except (OSError, ValueError):
        first = end = ""
    lines = [line.partition(":") for line in first.splitlines()]
    found = {name.strip(): text.strip() for name, _, text in lines if name.strip() in OF_PROCESSOR}
    if end and found.keys() == set(OF_PROCESSOR):
        return hashlib.sha256(str(sorted(found.items())).encode()).hexdigest()
    import llvmlite.binding as llvm

    return f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


@once
def source_digest() -> str:
    """The digest of Burnish's own files. Reading them all takes longer than linking a program, so the digest is cached
    by their sizes and times."""
    package = Path(__file__).parents[2]
    files = sorted(sources_below(str(package)))
    shelf = disk_cache()
    seen = "\n".join([str(package), *(f"{path} {size} {times}" for path, size, times in files)])
    found = None if shelf is None else shelf.get(SOURCES, seen)
    if found is not None:
        return found.decode()
    digest = hashlib.blake2b(digest_size=12)
    for path, _, _ in files:
        digest.update(f"\n{os.path.relpath(path, package)}\n".encode() + Path(path).read_bytes())
    if shelf is not None:
        shelf.put(SOURCES, seen, digest.hexdigest().encode())
    return digest.hexdigest()


SOURCES = "digest of sources"


def sources_below(folder: str) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """Python files: path, bytes, mtime and ctime. No installer sets the ctime."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from sources_below(entry.path)
            elif entry.name.endswith(".py"):
                at = entry.stat()
                yield entry.path, at.st_size, (at.st_mtime_ns, at.st_ctime_ns)
