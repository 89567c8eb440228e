"""A process that makes machine code for another one, kernel by kernel: the side of `workers` that runs Triton.

    job ->      -> machine code, or that there is none
    job ->      -> …

Both ends talk through a socket, which is the standard input here: each message is its length and so many bytes. The
process ends when the other end closes, as it does when who started this one ends, however that comes about.
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

from ....concurrency.compute_once import once
from .invoke_triton import Cubin, Job, emitted, language, packed, unpacked

LENGTH = struct.Struct("<Q")
LONGEST = 1 << 30
"""Bytes of a message. What claims to be longer is none."""

MADE, REFUSED = b"+", b"-"
SECONDS = struct.Struct("<d")

LONGEST_IDLE = 90.0
"""Seconds. The other end says when it has no more jobs, before that; this is for one that was copied by a fork, and is
held open by a process that knows nothing of it."""

MEMORY = "/dev/shm"
"""Files that Triton writes for each kernel cost a tenth of its time on a disk."""


def send(channel: socket.socket, message: bytes) -> None:
    # Where nobody listens that is an error to be handled, not a signal, which could end a whole program.
    channel.sendall(LENGTH.pack(len(message)) + message, socket.MSG_NOSIGNAL)


def receive(channel: socket.socket) -> bytes | None:
    """None where the other end has closed."""
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


class Made(NamedTuple):
    cubin: Cubin
    seconds: float


def read_answer(answer: bytes) -> Made | None:
    """None where Triton did not take the job. Raises ValueError where that is no answer."""
    if answer == REFUSED:
        return None
    head = len(MADE) + SECONDS.size
    if answer[: len(MADE)] != MADE or len(answer) < head:
        raise ValueError("it is no answer")
    try:
        cubin = unpacked(answer[head:])
    except TypeError as error:
        raise ValueError("it describes no machine code") from error
    if cubin.code[:4] != b"\x7fELF":
        raise ValueError("it is no machine code")
    return Made(cubin, SECONDS.unpack(answer[len(MADE) : head])[0])


def work() -> None:
    """Until there is nobody to work for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whom Ctrl-C is meant for will say what to do
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # the assembler that Triton calls shall not hold the socket
    prepare()
    try:
        while select.select([channel], [], [], LONGEST_IDLE)[0]:
            message = receive(channel)
            if message is None:
                return
            send(channel, answer(message))
    except OSError:
        return  # nobody is there to hear the answer


def prepare() -> None:
    """All that a first kernel would wait for."""
    # Lines of a text that lies in no file mean nothing to a profiler, and would be two thirds of what is made.
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
    # What Triton keeps on disk is written for each kernel and never read: Burnish keeps machine code itself.
    os.environ.pop("TRITON_CACHE_MANAGER", None)
    language()
    from triton.runtime import cache

    # The name of what is kept there begins with a digest of all of Triton, of 500 MB: half a second for nothing.
    setattr(cache, "triton_key", lambda: "burnish")  # noqa: B010  # not there in every version


def answer(message: bytes) -> bytes:
    start = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="burnish-", dir=files_in()) as folder:
            os.environ["TRITON_CACHE_DIR"] = tempfile.tempdir = folder
            made = packed(emitted(read(message)))
    except Exception:
        return REFUSED  # compiled once more by who asked, who can say what is wrong
    return MADE + SECONDS.pack(time.perf_counter() - start) + made


@once
def files_in() -> str:
    return MEMORY if os.access(MEMORY, os.W_OK) else tempfile.gettempdir()


__all__ = ["Made", "read_answer", "receive", "send", "work", "written"]
