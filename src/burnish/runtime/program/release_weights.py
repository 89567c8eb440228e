"""Moves weights out of memory that compiled code does not read: to files without names, mapped into memory.

    former = release([weight, bias], folder, places)    the tensors stay as they are; their elements are in a file
    weight.sum()                                        reads them into memory again
    weight.zero_()                                      writes to memory: the file does not change

A frozen prologue packs weights in another layout. Without this, the module's own stay in memory beside the packed ones,
although no later call reads them.

Released are tensors on the CPU whose memory nothing else refers to: no view, no NumPy array, no other process. An
operator of another thread may be reading them at this moment, so their former memory is returned to the caller, who
frees it some calls later.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from ...errors import warn
from ...torch_private import storage_use_count

SMALLEST = 16 * mmap.PAGESIZE
"""Bytes. A watched tensor keeps some pages in memory: those of its samples."""


def release(
    tensors: Sequence[torch.Tensor], folder: Path, places: Callable[[torch.Tensor], Sequence[int]] = lambda x: ()
) -> list[torch.UntypedStorage]:
    """The former memory of the tensors that were released, the caller's to free. `places`: addresses of the words of a
    tensor that are looked at in later calls."""
    chosen = [x for k, x in enumerate(tensors) if may_release(x) and not any(x is other for other in tensors[:k])]
    if not chosen:
        return []
    try:
        memory, files = mapped([x.untyped_storage() for x in chosen], folder)
    except OSError as error:
        warn(
            f"burnish: the option release_weights has no effect: {folder} cannot hold the weights ({error}). What to "
            "do: give it space, or set the setting cache_dir to a folder that has some."
        )
        return []
    former = []
    for x, storage in zip(chosen, files, strict=True):
        former.append(x.untyped_storage())
        with torch.inference_mode(False):
            x.data = torch.empty(0, dtype=x.dtype).set_(storage, x.storage_offset(), x.size(), x.stride())
        for place in places(x):
            ctypes.c_uint32.from_address(place).value  # noqa: B018 (its page is now in memory, and stays)
    memory.madvise(mmap.MADV_NORMAL)
    return former


def may_release(x: torch.Tensor) -> bool:
    if type(x) not in (torch.Tensor, torch.nn.Parameter) or x.device.type != "cpu":
        return False
    if x.layout is not torch.strided or x.is_inference() or x.is_pinned() or x.is_shared():
        return False
    size = x.untyped_storage().nbytes()
    return size >= SMALLEST and x.nbytes == size and references_to_memory(x) == references_to_memory(torch.empty(1))


def references_to_memory(x: torch.Tensor) -> tuple[int, int]:
    """From torch, and from Python to the object that stands for it."""
    storage = x.untyped_storage()
    return storage_use_count(storage._cdata), sys.getrefcount(storage)


def mapped(storages: Sequence[torch.UntypedStorage], folder: Path) -> tuple[mmap.mmap, list[torch.UntypedStorage]]:
    """Copies in one file, each from a page of its own. None of it is in memory, and a page that is read comes alone."""
    folder.mkdir(parents=True, exist_ok=True)
    starts, end = [], 0
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for storage in storages:
            starts.append(end)
            elements = memoryview((ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())).cast("B")
            end = -(-(end + len(elements)) // mmap.PAGESIZE) * mmap.PAGESIZE
            while elements:
                elements = elements[file.write(elements) :]
            file.seek(end)
        file.truncate(end)
        os.fdatasync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        memory = mmap.mmap(file.fileno(), end, access=mmap.ACCESS_COPY)
    memory.madvise(mmap.MADV_RANDOM)
    return memory, [
        torch.frombuffer(memory, dtype=torch.uint8, count=storage.nbytes(), offset=start).untyped_storage()
        for storage, start in zip(storages, starts, strict=True)
    ]
