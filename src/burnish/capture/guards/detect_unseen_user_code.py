"""Debug check (``BURNISH_CHECK=1``): detects user Python that runs natively, unseen, while a segment is traced.

Torch calls that the recorder has seen are exempt: the graph makes them again, with all the calls they make.
Callbacks from other native code (a ``__eq__`` during a dictionary lookup, a ``__repr__`` in a C formatter) read state
that no guard covers. Every such place must be interpreted or break. This profile hook finds places that do neither.
"""

from __future__ import annotations

import atexit
import functools
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from ...errors import InternalError
from ..engine.interpreted_or_native import OUR_PATH, is_trusted

PATIENCE = 5.0
"""Seconds to wait for another thread that is installing a profile function."""
UNNAMED_TOOLS = (4, 3)
"""The ids of `sys.monitoring` that Python gives no meaning. A program cannot take the one that the check has taken."""

TOOL = "burnish check"

FOR_ANNOTATIONS = ("numpy", "typing_extensions")
"""Modules that run while annotations of imported code are computed."""

IMPORTS = ("<frozen importlib._bootstrap>", "_find_and_load")
"""The function that an import statement calls."""

active = threading.local()


class UntracedCallDetector:
    """Active around one native call: ``with UntracedCallDetector(function, recorder): function(...)``.

    It does nothing while the program has a profile function: one in C, as cProfile sets before Python 3.12, cannot be
    put back from Python. Tools of `sys.monitoring` run beside it.
    """

    def __init__(self, function: Any, recorder: Any):
        self.function, self.recorder, self.seen = function, recorder, None

    def __enter__(self) -> None:
        self.calls = self.recorder.seen
        self.is_active = sys.getprofile() is None and getattr(active, "detector", None) is None
        if self.is_active:
            active.detector = self
            self.is_profiling = not monitors_calls()
            if self.is_profiling:
                set_profile(self.watch)

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if self.is_active:
            if self.is_profiling:
                set_profile(None)
            active.detector = None
        if self.seen is not None and kind is None and self.recorder.seen == self.calls:
            raise InternalError(
                "tracing",
                f"{getattr(self.function, '__qualname__', self.function)} ran user code natively: {self.seen}",
            )

    def watch(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and not is_exempt(frame):
            self.see(frame)

    def see(self, frame: FrameType) -> None:
        if self.seen is None and not self.is_known(frame):
            code = frame.f_code
            self.seen = f"{code.co_qualname} at {code.co_filename}:{code.co_firstlineno}"

    def is_known(self, frame: FrameType | None) -> bool:
        """Whether it is a method of a key that was interpreted before, part of an import of torch, or called by one."""
        known = self.recorder.tracer.known_codes
        while frame is not None and not frame.f_code.co_filename.startswith(OUR_PATH):
            if frame.f_code in known or is_import_of_torch(frame):
                return True
            frame = frame.f_back
        return False


def is_import_of_torch(frame: FrameType) -> bool:
    """What torch imports at a first call, a module and the finders that are asked for it, it imports in eager, too."""
    code, importer = frame.f_code, frame.f_back
    return (
        (code.co_filename, code.co_name) == IMPORTS
        and importer is not None
        and str(dict.get(importer.f_globals, "__name__")).partition(".")[0] == "torch"
    )


def is_exempt(frame: FrameType) -> bool:
    module = dict.get(frame.f_globals, "__name__")
    return (
        is_trusted(module)
        or (type(module) is str and module.partition(".")[0] in FOR_ANNOTATIONS)
        or frame.f_code.co_filename.startswith((OUR_PATH, "<"))
    )


def monitors_calls() -> bool:
    """Whether `sys.monitoring` reports each call. Since Python 3.12, setting a profile function rewrites the bytecode
    of all functions that run, and twice for each native call that is much work."""
    tool = monitoring_tool()
    return tool is not None and is_ours(tool)


def is_ours(tool: int) -> bool:
    """Whether the program has not freed the id, or taken it then."""
    monitoring: Any = getattr(sys, "monitoring", None)
    return monitoring.get_tool(tool) == TOOL


@functools.cache
def monitoring_tool() -> int | None:
    """The id under which `sys.monitoring` reports calls from now on, if there is one."""
    monitoring: Any = getattr(sys, "monitoring", None)
    tool = next((tool for tool in UNNAMED_TOOLS if monitoring and monitoring.get_tool(tool) is None), None)
    if tool is None:
        return None
    events = monitoring.events
    monitoring.use_tool_id(tool, TOOL)
    replies = {events.PY_START: monitoring.DISABLE, events.PY_RESUME: monitoring.DISABLE, events.PY_THROW: None}
    ours = {event: functools.partial(see_call, reply) for event, reply in replies.items()}  # a throw stays enabled
    for event, callback in ours.items():
        monitoring.register_callback(tool, event, callback)
    monitoring.set_events(tool, events.PY_START | events.PY_RESUME | events.PY_THROW)
    atexit.register(end_monitoring, tool, ours)  # then modules are cleared, and destructors may still be called
    return tool


def end_monitoring(tool: int, ours: dict[int, Callable]) -> None:
    """Python keeps the callbacks of an id that the program has freed."""
    monitoring: Any = getattr(sys, "monitoring", None)
    for event, callback in ours.items():
        found = monitoring.register_callback(tool, event, None)
        if found is not callback:
            monitoring.register_callback(tool, event, found)


def see_call(reply_if_exempt: object, code: CodeType, *_: Any) -> object:
    """Called where a frame begins or goes on. That of an exempt function is not reported again."""
    frame = sys._getframe(1)
    if is_exempt(frame):
        return reply_if_exempt
    detector = getattr(active, "detector", None)
    if detector is not None:
        detector.see(frame)
    return None


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
