"""How much memory a process holds, as the kernel counts it.

    memory("VmRSS")     bytes resident now
    memory("VmHWM")     the most that was, since the start or the last `forget_peak`

Not `ru_maxrss`: on Linux that starts at what the parent had resident when it forked.
"""

from __future__ import annotations

import ctypes
import gc


def memory(line: str) -> int:
    """Bytes of a line in /proc/self/status."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for text in status:
            if text.startswith(f"{line}:"):
                return int(text.split()[1]) * 1024
    raise ValueError(f"the kernel does not tell {line}")


def forget_peak() -> None:
    """The kernel's own way: 5 sets the peak to what is resident now."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as clear:
        clear.write("5")


def give_back() -> None:
    """What was allocated and freed goes back to the system, where the C library can do that."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
