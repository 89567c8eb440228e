"""A worker process that compiles kernels for another process: the Triton side of `compile_worker_pool`.

    job ->      -> machine code, or that Triton rejects the job
    job ->      -> …

Both ends use a socket, which is the standard input here. Each message is its length, followed by its bytes. The process
ends when the other end closes, which also happens when the parent process ends in any way.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import tempfile
import time
from typing import NamedTuple

from ....concurrency.first_value_cache import once
from .invoke_triton import Cubin, Job, emitted, language, packed, unpacked

LENGTH = struct.Struct("<Q")
LONGEST = 1 << 30
"""Bytes of a message. A longer length is invalid."""

MADE, REFUSED = b"+", b"-"
SECONDS = struct.Struct("<d")

LONGEST_IDLE = 90.0
"""Seconds. The other end normally closes before that. This is for a socket that a fork copied, which an unrelated
process holds open."""

MEMORY = "/dev/shm"
"""Triton writes files for each kernel; on a disk they would take a tenth of its time."""


def send(channel: socket.socket, message: bytes) -> None:
    # If no process listens, this must be an error to handle, not a signal, which could end the whole program.
    channel.sendall(LENGTH.pack(len(message)) + message, socket.MSG_NOSIGNAL)


def receive(channel: socket.socket) -> bytes | None:
    """A message. None if the other end has closed."""
    head = exactly(channel, LENGTH.size)
    if head is None:
        return None
    (length,) = LENGTH.unpack(head)
    if length > LONGEST:
        raise ValueError(f"a message of {length} bytes")
    return exactly(channel, length)


def exactly(channel: socket.socket, count: int) -> bytes | None:
    parts = []
    while count:
        part = channel.recv(min(count, 1 << 20))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def written(job: Job) -> bytes:
    return json.dumps(
        [
            job.name,
            job.text,
            job.dtypes,
            sorted(job.numbers),
            job.warps,
            job.architecture,
            job.is_aligned,
            job.sizes,
            job.stages,
        ]
    ).encode()


def read(message: bytes) -> Job:
    name, text, dtypes, numbers, *further, sizes, stages = json.loads(message)
    return Job(name, text, tuple(dtypes), frozenset(numbers), *further, tuple(map(tuple, sizes)), stages)


class CompiledKernel(NamedTuple):
    cubin: Cubin
    seconds: float


def read_answer(answer: bytes) -> CompiledKernel | None:
    """None if Triton rejected the job. Raises ValueError if the answer is invalid."""
    if answer == REFUSED:
        return None
    head = len(MADE) + SECONDS.size
    if answer[: len(MADE)] != MADE or len(answer) < head:
        raise ValueError("it is not an answer")
    try:
        cubin = unpacked(answer[head:])
    except TypeError as error:
        raise ValueError("it describes no machine code") from error
    if cubin.code[:4] != b"\x7fELF":
        raise ValueError("it is not machine code")
    return CompiledKernel(cubin, SECONDS.unpack(answer[len(MADE) : head])[0])


def work() -> None:
    """Compiles jobs until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process, which then closes the channel
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # the assembler that Triton calls must not inherit the socket
    prepare()
    try:
        while select.select([channel], [], [], LONGEST_IDLE)[0]:
            message = receive(channel)
            if message is None:
                return
            send(channel, answer(message))
    except OSError:
        return  # the other end is gone


def prepare() -> None:
    """Does everything that the first kernel would have to wait for."""
    # Line info for text without a file is useless to a profiler, and would be two thirds of the output.
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
    # Triton's own disk cache would be written for each kernel and never read: Burnish caches machine code itself.
    os.environ.pop("TRITON_CACHE_MANAGER", None)
    language()
    from triton.runtime import cache

    # Triton's cache key starts with a digest of all of Triton, 500 MB: half a second for nothing.
    setattr(cache, "triton_key", lambda: "burnish")  # noqa: B010  # not there in every version


def answer(message: bytes) -> bytes:
    start = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="burnish-", dir=files_in()) as folder:
            os.environ["TRITON_CACHE_DIR"] = tempfile.tempdir = folder
            made = packed(emitted(read(message)))
    except Exception:
        return REFUSED  # the parent compiles it again, and can report the error
    return MADE + SECONDS.pack(time.perf_counter() - start) + made


@once
def files_in() -> str:
    return MEMORY if os.access(MEMORY, os.W_OK) else tempfile.gettempdir()
