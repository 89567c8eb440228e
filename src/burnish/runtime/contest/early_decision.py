"""Early decision: where a call of eager is long, a clear difference decides within the first round.

    c e c         eager took 134 ms, compiled code 37 ms after it: compiled code stays, after one call of eager
    c e c E C     82 and 39 ms: after two

Short calls go on to the rounds of the contest, which cost them little. So do calls during which our threads waited for
a core. Only compiled code is kept early: eager's first call generates code and allocates memory, so it may look slow
but not fast.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...concurrency import waits_for_cores

LONG = 0.01
"""Seconds from which on a call of eager is long."""

FAR = 2.0
"""Compiled code is kept if eager took more than this factor of its time in each of at least three calls of both."""

VERY_LONG, VERY_FAR = 0.015, 2.5
"""One call of each is enough if compiled code took at least these seconds and eager more than this factor: generating
eager's code takes some milliseconds."""


@dataclass(slots=True)
class EarlyDecision:
    is_open: bool = True
    trusts_first: bool = True
    """Whether one call of eager may be enough: all its kernels have run before."""
    eager: list[float] = field(default_factory=list)
    """Seconds of all calls so far."""
    compiled: list[float] = field(default_factory=list)
    """Seconds of the calls after eager's first one: earlier ones pack weights."""
    waited: float | None = None

    def begin(self, is_eager: bool) -> None:
        if self.is_open and is_eager:
            self.waited = waits_for_cores.seconds_waited()

    def end(self, is_eager: bool, seconds: float | None) -> None:
        """Notes a call; None if it cannot be timed."""
        if not self.is_open:
            return
        if is_eager:
            if seconds is None or seconds < LONG or not waits_for_cores.is_undisturbed(self.waited, seconds):
                self.is_open = False
            else:
                self.eager.append(seconds)
        elif self.eager:
            if seconds is None:
                self.is_open = False
            else:
                self.compiled.append(seconds)

    def keeps_compiled(self) -> bool:
        """Whether the calls so far show that compiled code is faster."""
        if not self.is_open or not self.compiled:
            return False
        is_pair = len(self.eager) == len(self.compiled) == 1
        if is_pair and (self.compiled[0] < VERY_LONG or not self.trusts_first):
            return False
        return min(self.eager) > (VERY_FAR if is_pair else FAR) * max(self.compiled)
