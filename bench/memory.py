"""How much memory a process holds, as the kernel counts it.

    memory("VmRSS")     bytes resident now
    memory("VmHWM")     their maximum since the start or the last `forget_peak`

Not `ru_maxrss`: on Linux that starts at the resident size of the parent when it forked.
"""

from __future__ import annotations

import ctypes
import gc


def memory(line: str) -> int:
    """A line of /proc/self/status, in bytes."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for text in status:
            if text.startswith(f"{line}:"):
                return int(text.split()[1]) * 1024
    raise ValueError(f"/proc/self/status has no line {line}")


def forget_peak() -> None:
    """Reset the peak: writing 5 makes the kernel set it to the current resident size."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as clear:
        clear.write("5")


def give_back() -> None:
    """Return freed memory to the system if the C library can do that."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
