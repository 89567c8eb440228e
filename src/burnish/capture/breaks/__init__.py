"""Graph breaks: the one object that says why a graph ended, where, and what helps.

Capture makes a ``Break`` wherever a segment has to end. Errors under ``fullgraph=True``, ``explain``, logs and reports
all show it and add nothing of their own:

    >>> where = Location("train.py", 41, "forward")
    >>> print(Break(OPAQUE_CALL, "call of scipy.fft.dct", (where,)).headline)
    B201 a call into native code with unknown behaviour: call of scipy.fft.dct (train.py:41 in forward)

The modules of this package are the catalog of break kinds: every reason to end a graph, each with its cure. Users read
these records, so a record must be true and must help. ``why`` explains the reason to readers who do not know how
capture works. ``what_to_do`` names the way out. ``broken`` and ``fixed`` show it. Both examples are whole programs:
they define ``fn``, the function a user would compile, and the code after its definition runs it.

Codes never change their meaning. B1xx ``data``, B2xx ``calls``, B3xx ``language``, B4xx ``state``, B5xx ``limits``.
"""

from .break_kind import CATALOG, GROUPS, BreakKind
from .break_record import Break, Location
from .calls import (
    BACKWARD_CALL,
    COLLECTIVE_CALL,
    DISABLED_CALL,
    FOREIGN_COMPILED,
    GRAPH_BREAK_REQUEST,
    OPAQUE_CALL,
    OPAQUE_FUNCTION,
    RANDOM_CALL,
)
from .data import DATA_BRANCH, DATA_READ, DATA_SHAPE, LIVE_VALUE, SUBCLASS_TENSOR, TENSOR_ERROR, UNKNOWN_TENSOR
from .language import OPAQUE_OPCODE, OUTSIDE_ITERATOR, RAISED, UNREBUILDABLE, USER_HASH
from .limits import SEGMENT_LIMIT
from .state import GLOBAL_SWITCH, GPU_CALL, TENSOR_STATE, UNSUPPORTED_WRITE

__all__ = [
    "BACKWARD_CALL",
    "CATALOG",
    "COLLECTIVE_CALL",
    "DATA_BRANCH",
    "DATA_READ",
    "DATA_SHAPE",
    "DISABLED_CALL",
    "FOREIGN_COMPILED",
    "GLOBAL_SWITCH",
    "GPU_CALL",
    "GRAPH_BREAK_REQUEST",
    "GROUPS",
    "LIVE_VALUE",
    "OPAQUE_CALL",
    "OPAQUE_FUNCTION",
    "OPAQUE_OPCODE",
    "OUTSIDE_ITERATOR",
    "RAISED",
    "RANDOM_CALL",
    "SEGMENT_LIMIT",
    "SUBCLASS_TENSOR",
    "TENSOR_ERROR",
    "TENSOR_STATE",
    "UNKNOWN_TENSOR",
    "UNREBUILDABLE",
    "UNSUPPORTED_WRITE",
    "USER_HASH",
    "Break",
    "BreakKind",
    "Location",
]
