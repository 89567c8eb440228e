"""Autotuning: which candidate of a library call is the fastest here, measured on random tensors and remembered.

    >>> choice = choose(LinearSpec(x, weight, bias, is_frozen=True), seconds=0.005)
    >>> choice.candidate.name, choice.seconds
    ('mkl packed', 0.00029)

What `memory` remembers are seconds by candidate, not the choice: the same measurement answers for callers who accept
different candidates, and says whether a fused call beats a plain one with a kernel of our own after it. It goes to disk
and comes back as text (`export`, `load`).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Protocol

import torch

from .benchmark_proxy import shrunk
from .call_candidates.attention import attention_candidates
from .call_candidates.convolution import convolution_candidates
from .call_candidates.linear import linear_candidates
from .call_candidates.matmul import matmul_candidates
from .call_candidates.recurrent import recurrent_candidates
from .call_specs import AttentionSpec, ConvSpec, LinearSpec, MatmulSpec, RecurrentSpec, Spec
from .candidate import Candidate
from .measure_candidates import Measured, measure
from .own_kernels.attention_tiling import NAME as OWN_ATTENTION
from .own_kernels.own_kernel_candidates import NAME as OWN
from .own_kernels.own_kernel_candidates import tilings

SMALL = 50_000
"""Below so many operations the call itself is what costs, and of matrices eager's kernel is called the fastest."""

FROM_MEMORY = 4 << 20
"""Of one row and a weight of so many bytes, reading the weight is what costs. Every candidate reads it once, eager's as
it lies; making a packed one, only to measure it, took a second for the 150 MB of a language model's head."""

SMALL_IMAGES = 8_000_000
"""Of convolutions our own is: what torch does around each of them takes longer than the work. In MobileNets it was two
to five times as fast up to here."""

ENOUGH, LARGE = 0.9, 100_000_000
"""Our own kernel has no rival any more where it reaches this part of the best rate that anything large has shown in
this process. Measuring a rival takes longer than running it: it packs weights and makes code of its own."""

WORSE = {
    "onednn": "onednn packed",
    "pointwise onednn": "pointwise onednn packed",
    "pointwise addmm": "pointwise onednn packed",
}
"""Convolutions that are not measured where there is the other."""

OWN_CALL_SECONDS = 5e-6

WORTH = 0.97
"""A candidate that prepares weights or is not eager's must be at least this much faster than one that comes before it:
smaller differences are noise, and eager's own kernel is the safer one."""

MOST_ATTEMPTS = 3
"""How often a disturbed measurement is made again, each time that somebody asks for it."""

BUSY_SECONDS, AGAIN_SECONDS = 0.3, 5.0
"""Where measurements that other work disturbed have taken so long in all, the next one waits: on a busy machine they
take a hundred times as long, and say little. After a while one is tried again."""

LIKELY = (OWN, OWN_ATTENTION, "onednn packed", "pointwise onednn packed")
"""What is taken where nothing could be measured: the first of these that there is, else eager's."""

UNLIKELY = 0.25
"""What other work disturbed must have taken so much less time to be taken in place of that: a product of 20 µs waited
10 ms for a core in one candidate's turn, and 20 ms in another's."""

LIKELY_OPERATIONS_PER_SECOND = 1e11

FREE_ALLOCATION = 32 << 20
FAULT_SECONDS_PER_BYTE = 2e-10
"""malloc hands memory of this size back to the system each time; whoever allocates the next result pays for every page
(0.8 µs each). What runs into a given tensor does not."""

_WAYS: dict[type, Callable[[Any], Iterator[Candidate]]] = {
    LinearSpec: linear_candidates,
    ConvSpec: convolution_candidates,
    MatmulSpec: matmul_candidates,
    AttentionSpec: attention_candidates,
    RecurrentSpec: recurrent_candidates,
}


@dataclass(frozen=True, slots=True)
class Choice:
    candidate: Candidate
    seconds: float | None
    """Of one call; None where nothing was measured. For large work extrapolated from less of it."""
    measured: Mapping[str, float]
    """The seconds of all candidates that work, by name. Empty where nothing was measured."""
    is_steady: bool = True
    """False where other work used the cores while it was measured."""


class Shelf(Protocol):
    """Text by text, for other processes on the same machine."""

    def get(self, key: str) -> str | None: ...

    def put(self, key: str, text: str) -> None: ...


@dataclass(slots=True)
class Memory:
    """What was measured, by key. Threads may use one."""

    _seen: dict[str, Measured] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _disturbed: float = 0.0
    """Seconds since the last steady measurement."""
    _at: float = 0.0
    """When the last one ended."""
    _rates: dict[int, float] = field(default_factory=dict)
    """The most operations in a second, by the number of threads."""
    shelf: Shelf | None = None
    """Where measurements of earlier processes are."""
    pinned: Callable[[Sequence[Candidate]], Measured] | None = None
    """Says what would be measured, where plans must be the same in every run: see `bench.plans`. Nothing is measured or
    remembered then."""

    def measured(
        self,
        key: str,
        candidates: Callable[[], list[Candidate]],
        seconds: float,
        is_thorough: bool = False,
        by: Callable[[list[Candidate], float], Measured] | None = None,
    ) -> Measured | None:
        """Measured once; again, a few times, where other work disturbed it. None where it is no use now. `by`: how
        it is measured at length, where a clock of the CPU would not tell."""
        if self.pinned is not None and by is None:
            return self.pinned(candidates())
        found = self._seen.get(key)
        if found is None and self.shelf is not None and (text := self.shelf.get(key)) is not None:
            self.load({key: text})
            found = self._seen.get(key)
        if found is not None and (found.is_steady or found.attempts >= MOST_ATTEMPTS):
            return found
        # One measurement at a time: two would disturb each other.
        with self._lock:
            if self._seen.get(key) is found and (is_thorough or not self.is_busy()):
                start = perf_counter()
                made = (by or measure)(candidates(), seconds) if is_thorough else self.measure(candidates(), seconds)
                made = self._seen[key] = made.after(found)
                self._at = perf_counter()
                self._disturbed = 0.0 if made.is_steady else self._disturbed + self._at - start
                if made.is_steady and self.shelf is not None:
                    self.shelf.put(key, text_of(made))
            return self._seen.get(key)

    def measure(self, candidates: list[Candidate], seconds: float) -> Measured:
        flops, threads = candidates[0].spec.flops, torch.get_num_threads()
        own, best = next((c for c in candidates if c.name == OWN), None), self._rates.get(threads)
        if own is not None and best is not None:
            with contextlib.suppress(Exception):  # if it cannot run it is no candidate, which is seen below
                made = measure([own], seconds)
                if made.is_steady and flops >= ENOUGH * best * made.least[OWN]:
                    return made
        names = {c.name for c in candidates} if isinstance(candidates[0].spec, ConvSpec) else ()
        made = measure([c for c in candidates if WORSE.get(c.name) not in names], seconds)
        if flops >= LARGE and made.is_steady:
            self._rates[threads] = max(flops / min(made.least.values()), best or 0.0)
        return made

    def is_busy(self) -> bool:
        """Whether the machine was, when somebody last looked."""
        return self._disturbed > BUSY_SECONDS and perf_counter() - self._at < AGAIN_SECONDS

    def export(self) -> dict[str, str]:
        """Text to text, for a file. What was disturbed while it was measured stays out."""
        return {key: text_of(measured) for key, measured in list(self._seen.items()) if measured.is_steady}

    def load(self, exported: Mapping[str, str]) -> None:
        """Take over what another process measured on the same machine. Text that is no measurement is passed by."""
        for key, text in exported.items():
            try:
                pairs = (entry.rsplit("=", 1) for entry in text.split("; "))
                self._seen.setdefault(key, Measured({name: float(seconds) for name, seconds in pairs}))
            except ValueError:
                continue

    def clear(self) -> None:
        self._seen.clear()
        self._rates.clear()
        self._disturbed = 0.0


def text_of(measured: Measured) -> str:
    return "; ".join(f"{name}={seconds:.4g}" for name, seconds in measured.least.items())


memory = Memory()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=memory._lock._at_fork_reinit)  # another thread may have held it
"""Of this process."""


def candidates(spec: Spec) -> list[Candidate]:
    """All ways to compute the spec. The first is eager's own kernel: always there, always right."""
    return list(_WAYS[type(spec)](spec))


def choose(
    spec: Spec, *, seconds: float, accept: Callable[[Candidate], bool] = lambda _: True, memory: Memory = memory
) -> Choice:
    """The fastest candidate, of those that `accept` lets through, after about `seconds` of measuring. Where none is
    accepted the answer is eager's."""
    offered = candidates(spec)
    accepted = [c for c in offered if accept(c)] or offered[:1]
    own = next((c for c in accepted if c.name == OWN), None)
    if isinstance(spec, ConvSpec) and spec.flops < SMALL_IMAGES and own is not None:
        time = OWN_CALL_SECONDS + spec.flops / LIKELY_OPERATIONS_PER_SECOND
        return Choice(own, time, {OWN: time})
    is_small = spec.flops < SMALL and not isinstance(spec, RecurrentSpec)
    if len(offered) == 1 or is_small or is_read_once(spec) or offered[0].output.device.type != "cpu":
        return Choice(accepted[0], None, {})
    small = shrunk(spec)
    measured = memory.measured(key_of(small), lambda: offered if small is spec else candidates(small), seconds)
    if measured is None:
        likely = first_likely(accepted) or accepted[0]
        time = spec.flops / LIKELY_OPERATIONS_PER_SECOND
        return Choice(likely, time, {likely.name: time}, is_steady=False)
    times = {c.name: estimate(c, measured.least[c.name], small) for c in offered if c.name in measured.least}
    best = None if measured.is_steady else first_likely([c for c in accepted if c.name in times])
    worth = WORTH if best is None else UNLIKELY
    for candidate in accepted:
        time = times.get(candidate.name)
        if time is not None and (best is None or time < worth * times[best.name]):
            best, worth = candidate, WORTH
    if best is None:
        return Choice(offered[0], times.get(offered[0].name), times, measured.is_steady)
    return Choice(best, times[best.name], times, measured.is_steady)


def first_likely(offered: Sequence[Candidate]) -> Candidate | None:
    return next((c for name in LIKELY for c in offered if c.name == name), None)


def is_read_once(spec: Spec) -> bool:
    """Whether the work is to read a large weight from memory."""
    return isinstance(spec, LinearSpec) and spec.x.shape[0] == 1 and spec.weight.bytes >= FROM_MEMORY


SURELY = 0.95
"""What takes the place of the usual choice must have been at least this much faster, measured at length."""


def choose_thoroughly(spec: Spec, *, seconds: float, memory: Memory = memory) -> Choice:
    """All candidates are measured, each at length, also where experience would do. The usual choice stays where
    another is not surely faster, or other work disturbed the measuring."""
    usual = choose(spec, seconds=seconds, memory=memory)
    small = shrunk(spec)
    offered = candidates(small)
    if len(offered) == 1 or offered[0].output.device.type != "cpu":
        return usual
    measured = memory.measured(f"{key_of(small)} thoroughly", lambda: offered, seconds, is_thorough=True)
    if measured is None or not measured.is_steady or usual.candidate.name not in measured.least:
        return usual
    name, least = min(measured.least.items(), key=lambda entry: entry[1])
    best = next((c for c in candidates(spec) if c.name == name), None)
    if best is None or least >= SURELY * measured.least[usual.candidate.name]:
        return usual
    times = {c.name: estimate(c, measured.least[c.name], small) for c in candidates(spec) if c.name in measured.least}
    return Choice(best, times[name], times)


def tuned(spec: LinearSpec | ConvSpec, *, seconds: float, memory: Memory = memory) -> LinearSpec | ConvSpec:
    """The spec with the tiles that our own kernel is surely the fastest with: all are measured, each at length."""
    small = shrunk(spec)
    assert isinstance(small, (LinearSpec, ConvSpec))
    offered = list(tilings(small).values()) if spec.flops >= SMALL else []
    if len(offered) < 2:
        return spec
    measured = memory.measured(f"{key_of(small)} tiles", lambda: offered, seconds, is_thorough=True)
    usual, *others = offered
    if measured is None or not measured.is_steady or usual.name not in measured.least:
        return spec
    name, least = min(measured.least.items(), key=lambda entry: entry[1])
    if name == usual.name or least >= SURELY * measured.least[usual.name]:
        return spec
    chosen = next((other.spec for other in others if other.name == name), None)
    return spec if chosen is None else replace(spec, tiles=chosen.tiles)  # type: ignore[union-attr]


def key_of(spec: Spec) -> str:
    """The spec and what else the times depend on within one machine, as text."""
    return f"{spec} threads {torch.get_num_threads()}"


def estimate(candidate: Candidate, seconds: float, measured: Spec) -> float:
    """Seconds of a candidate, given those of the same for a `measured` spec that is at most as large."""
    if candidate.spec is measured:
        return seconds
    seconds *= candidate.spec.flops / max(measured.flops, 1)
    if candidate.run_into is None and candidate.output.bytes > FREE_ALLOCATION:
        seconds += candidate.output.bytes * FAULT_SECONDS_PER_BYTE
    return seconds
