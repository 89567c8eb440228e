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

from .break_kind import CATALOG as CATALOG
from .break_kind import GROUPS as GROUPS
from .break_kind import BreakKind as BreakKind
from .break_record import Break as Break
from .break_record import Location as Location
from .calls import *
from .data import *
from .language import *
from .limits import *
from .state import *
