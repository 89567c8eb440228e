"""Debug check (``BURNISH_CHECK=1``): detects user Python that runs natively, unseen, while a segment is traced.

Torch calls that the recorder has seen are exempt: the graph makes them again, with all the calls they make.
Callbacks from other native code (a ``__eq__`` during a dictionary lookup, a ``__repr__`` in a C formatter) read state
that no guard covers. Every such place must be interpreted or break. This profile hook finds places that do neither.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from ...errors import InternalError
from ..engine.interpreted_or_native import OUR_PATH, is_trusted

PATIENCE = 5.0
"""Seconds to wait for another thread that is installing a profile function."""


class UntracedCallDetector:
    """Active around one native call: ``with UntracedCallDetector(function, recorder): function(...)``.

    It does nothing while the program is profiled: a profiler in C, as cProfile is, cannot be put back from Python.
    """

    def __init__(self, function: Any, recorder: Any):
        self.function, self.recorder, self.seen = function, recorder, None

    def __enter__(self) -> None:
        self.calls = self.recorder.seen
        self.is_active = sys.getprofile() is None
        if self.is_active:
            set_profile(self.watch)

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if self.is_active:
            set_profile(None)
        if self.seen is not None and kind is None and self.recorder.seen == self.calls:
            raise InternalError(
                "tracing",
                f"{getattr(self.function, '__qualname__', self.function)} ran user code natively: {self.seen}",
            )

    def watch(self, frame: FrameType, event: str, arg: Any) -> None:
        if event != "call" or self.seen is not None:
            return
        co = frame.f_code
        if self.is_known(frame):
            return
        module = frame.f_globals.get("__name__") or ""
        if (
            is_trusted(module)
            or module.partition(".")[0] in ("numpy", "typing_extensions")  # annotations of code that is being imported
            or co.co_filename.startswith(OUR_PATH)
            or co.co_filename.startswith("<")
        ):
            return
        self.seen = f"{co.co_qualname} at {co.co_filename}:{co.co_firstlineno}"

    def is_known(self, frame: FrameType | None) -> bool:
        """Whether it is a method of a key that was interpreted before, or called by one."""
        known = self.recorder.tracer.known_codes
        while known and frame is not None and not frame.f_code.co_filename.startswith(OUR_PATH):
            if frame.f_code in known:
                return True
            frame = frame.f_back
        return False


def set_profile(function: Callable | None) -> None:
    """`sys.setprofile`. CPython 3.11 refuses it while another thread is inside it, and a thread stays inside it when a
    Python audit hook yields to other threads. A lock does not help: compiled programs may call it as well."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return sys.setprofile(function)
        except RuntimeError as error:
            if "while another profile function is being installed" not in str(error) or time.monotonic() > until:
                raise
        time.sleep(0)
