"""Autotuning: the fastest candidate of a library call, measured on random tensors and remembered.

    >>> choice = choose(LinearSpec(x, weight, bias, is_frozen=True), seconds=0.005)
    >>> choice.candidate.name, choice.seconds
    ('mkl packed', 0.00029)

`memory` remembers seconds by candidate, not the choice. So one measurement serves callers that accept different
candidates, and tells whether a fused call beats a plain one followed by a kernel of our own. It is exported and loaded
as text, to be kept on disk.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Protocol

import torch

from ...concurrency.outside_errors import Suppressing
from ...ops.target_record import target_of
from ...tensors.device_facts import CPU
from .call_candidates.attention import attention_candidates
from .call_candidates.convolution import convolution_candidates
from .call_candidates.linear import linear_candidates
from .call_candidates.matmul import matmul_candidates
from .call_candidates.quantized import integer_candidates, quantized_candidates
from .call_candidates.recurrent import recurrent_candidates
from .call_specs import AttentionSpec, ConvSpec, IntegerSpec, LinearSpec, MatmulSpec, QuantizedSpec, RecurrentSpec, Spec
from .candidate import Candidate
from .measure_candidates import Measurement, measure
from .own_kernels import matmul_tiling_and_packing
from .own_kernels.own_matmul_and_convolution import NAME as OWN
from .own_kernels.own_matmul_and_convolution import tilings
from .own_kernels.quantized_product import INTEGERS as OWN_INTEGERS
from .own_kernels.quantized_product import NAME as OWN_QUANTIZED
from .own_kernels.query_block_attention import NAME as OWN_ATTENTION
from .own_kernels.skinny_gemm import MOST_ROWS
from .own_kernels.skinny_gemm import NAME as OWN_SKINNY_GEMM
from .own_kernels.token_attention import NAME as OWN_TOKEN
from .own_kernels.winograd_convolution import NAME as OWN_WINOGRAD
from .shrink_benchmarks import shrunk, shrunk_weight

SMALL = 50_000
"""With fewer operations the overhead of the call dominates, and eager's matmul has the least."""

FROM_MEMORY = 4 << 20
"""For one row and a weight of at least this size, reading the weight dominates. Each candidate reads it once, so none
that packs it is measured: that took a second for the 150 MB of a language model's head. The others are measured on a
part of the weight of twice this size."""

SMALL_IMAGES = 8_000_000
"""Convolutions with fewer operations use our own kernel: torch's overhead exceeds the work. In MobileNets ours was two
to five times as fast up to here. Where libraries have matrix instructions, only those below `SMALL`."""

ENOUGH, LARGE = 0.9, 100_000_000
"""Our own kernel is chosen at once if it reaches this fraction of the best rate that any large call in this process has
shown. Measuring others takes longer than running them: they pack weights and generate code."""

WORSE = {
    "onednn": "onednn packed",
    "pointwise onednn": "pointwise onednn packed",
    "pointwise addmm": "pointwise onednn packed",
}
"""Convolution candidates that are not measured where the other is available."""

OWN_CALL_SECONDS = 5e-6

WORTH = 0.97
"""A candidate that prepares weights or is not eager's must be at least this much faster than an earlier one. Smaller
differences are noise, and eager's own kernel is the safer one."""

WORTH_OTHER = {OWN_WINOGRAD: 0.9}
"""The same where more is asked: this form of a convolution rounds differently, and its weights are larger."""

MOST_ATTEMPTS = 3
"""How often a disturbed measurement is repeated, once for each request."""

BUSY_SECONDS, AGAIN_SECONDS = 0.3, 5.0
"""After disturbed measurements of this total time, the next one waits: on a busy machine they take a hundred times as
long and say little. After `AGAIN_SECONDS` one is tried again."""

LIKELY = (OWN_QUANTIZED, OWN_SKINNY_GEMM, OWN_TOKEN, OWN, OWN_ATTENTION, "onednn packed", "pointwise onednn packed")
"""The choice where nothing could be measured: the first of these that is available, else eager's."""

WITHOUT_MATRIX_UNITS = (OWN, OWN_ATTENTION)
"""Of these, the ones that come last where libraries have matrix instructions for the dtype."""

UNLIKELY = 0.25
"""A disturbed measurement overrides that choice only if it is this much faster. A product of 20 µs waited 10 ms for a
core in one candidate's turn, and 20 ms in another's."""

LIKELY_OPERATIONS_PER_SECOND = 1e11

FREE_ALLOCATION = 32 << 20
FAULT_SECONDS_PER_BYTE = 2e-10
"""malloc returns memory of this size to the system each time, so each new allocation pays for every page (0.8 µs each).
A candidate that writes into a given tensor does not."""

_WAYS: dict[type, Callable[[Any], Iterator[Candidate]]] = {
    LinearSpec: linear_candidates,
    QuantizedSpec: quantized_candidates,
    IntegerSpec: integer_candidates,
    ConvSpec: convolution_candidates,
    MatmulSpec: matmul_candidates,
    AttentionSpec: attention_candidates,
    RecurrentSpec: recurrent_candidates,
}


def offer(kind: type, more: Callable[[Any], Iterator[Candidate]]) -> None:
    """Further candidates for specs of a kind, which are measured with the usual ones."""
    usual = _WAYS[kind]
    _WAYS[kind] = lambda spec: itertools.chain(usual(spec), more(spec))


@dataclass(frozen=True, slots=True)
class Choice:
    candidate: Candidate
    seconds: float | None
    """Seconds of one call; None where nothing was measured. Extrapolated for large work."""
    measured: Mapping[str, float]
    """Seconds of all candidates that work, by name. Empty where nothing was measured."""
    is_steady: bool = True
    """False where other processes used the cores during the measurement."""


class MeasurementStore(Protocol):
    """Text by key, shared with other processes on the same machine."""

    def get(self, key: str) -> str | None: ...

    def put(self, key: str, text: str) -> None: ...


@dataclass(slots=True)
class Measurements:
    """Measurements by key. Thread-safe."""

    _seen: dict[str, Measurement] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _disturbed: float = 0.0
    """Seconds spent on disturbed measurements since the last steady one."""
    _at: float = 0.0
    """When the last one ended."""
    _rates: dict[tuple[int, torch.dtype], float] = field(default_factory=dict)
    """The highest rate in operations a second, by the number of threads and the dtype."""
    shelf: Callable[[], MeasurementStore | None] = lambda: None
    """Measurements of earlier processes."""
    pinned: Callable[[Sequence[Candidate]], Measurement] | None = None
    """Supplies the measurements where plans must be the same in every run: see `bench.plans`. Then nothing is measured
    or remembered."""

    def measured(
        self,
        key: str,
        candidates: Callable[[], list[Candidate]],
        seconds: float,
        is_thorough: bool = False,
        by: Callable[[list[Candidate], float], Measurement] | None = None,
    ) -> Measurement | None:
        """Measures once; again a few times if other work disturbed it. None if measuring is useless now. `by` measures
        at length where a CPU clock would not do."""
        if self.pinned is not None and by is None:
            return self.pinned(candidates())
        found, shelf = self._seen.get(key), self.shelf()
        if found is None and shelf is not None and (text := shelf.get(key)) is not None:
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
                if made.is_steady and shelf is not None:
                    shelf.put(key, text_of(made))
            return self._seen.get(key)

    def measure(self, candidates: list[Candidate], seconds: float) -> Measurement:
        flops, kind = candidates[0].spec.flops, (torch.get_num_threads(), candidates[0].output.dtype)
        own, best = next((c for c in candidates if c.name == OWN), None), self._rates.get(kind)
        if own is not None and best is not None:
            ours = [c for c in candidates if c.name in (OWN, OWN_WINOGRAD)]
            with Suppressing(Exception):  # if it does not run, the full measurement below drops it
                made = measure(ours, seconds)
                if made.is_steady and flops >= ENOUGH * best * made.least[OWN]:
                    return made
        names = {c.name for c in candidates} if isinstance(candidates[0].spec, ConvSpec) else ()
        made = measure([c for c in candidates if WORSE.get(c.name) not in names], seconds)
        if flops >= LARGE and made.is_steady:
            direct = [least for name, least in made.least.items() if name != OWN_WINOGRAD]
            self._rates[kind] = max(flops / min(direct, default=torch.inf), best or 0.0)
        return made

    def is_busy(self) -> bool:
        """Whether the machine was busy at the last measurement."""
        return self._disturbed > BUSY_SECONDS and perf_counter() - self._at < AGAIN_SECONDS

    def export(self) -> dict[str, str]:
        """The steady measurements as text, for a file."""
        return {key: text_of(measured) for key, measured in list(self._seen.items()) if measured.is_steady}

    def load(self, exported: Mapping[str, str]) -> None:
        """Takes over the measurements of another process on the same machine. Malformed text is ignored."""
        for key, text in exported.items():
            try:
                pairs = (entry.rsplit("=", 1) for entry in text.split("; "))
                self._seen.setdefault(key, Measurement({name: float(seconds) for name, seconds in pairs}))
            except ValueError:
                continue

    def clear(self) -> None:
        self._seen.clear()
        self._rates.clear()
        self._disturbed = 0.0


def text_of(measured: Measurement) -> str:
    return "; ".join(f"{name}={seconds:.4g}" for name, seconds in measured.least.items())


def shelf_of_machine() -> MeasurementStore | None:
    target = target_of(CPU)
    return None if target is None else target.measurements


memory = Measurements(shelf=shelf_of_machine)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=memory._lock._at_fork_reinit)  # another thread may have held it
"""The measurements of this process."""


def candidates(spec: Spec) -> list[Candidate]:
    """All ways to compute the spec. The first is eager's own kernel: always available, always correct."""
    return list(_WAYS[type(spec)](spec))


def choose(
    spec: Spec, *, seconds: float, accept: Callable[[Candidate], bool] = lambda _: True, memory: Measurements = memory
) -> Choice:
    """The fastest of the candidates that `accept` allows, after about `seconds` of measuring. Eager's candidate where
    none is accepted."""
    offered = candidates(spec)
    accepted = [c for c in offered if accept(c)] or offered[:1]
    own = next((c for c in accepted if c.name == OWN), None)
    if (
        isinstance(spec, ConvSpec)
        and own is not None
        and spec.flops < (SMALL if has_matrix_units(own) else SMALL_IMAGES)
    ):
        time = OWN_CALL_SECONDS + spec.flops / LIKELY_OPERATIONS_PER_SECOND
        return Choice(own, time, {OWN: time})
    is_quantized = isinstance(spec, (QuantizedSpec, IntegerSpec)) and spec.x.shape[0] <= MOST_ROWS
    if is_quantized and accepted[-1].name in (OWN_QUANTIZED, OWN_INTEGERS):
        return Choice(accepted[-1], None, {})
    is_small = spec.flops < SMALL and not isinstance(spec, RecurrentSpec)
    if len(offered) == 1 or not offered[0].output.is_on_host:
        return Choice(accepted[0], None, {})
    if is_small:
        return Choice(least_overhead(accepted), None, {})
    small = shrunk(spec)
    if is_read_once(spec):
        accepted = [c for c in accepted if c.prepare is None]
        if not any(c.name == OWN_SKINNY_GEMM for c in accepted):
            return Choice(accepted[0], None, {})
        assert isinstance(spec, LinearSpec)
        small = shrunk_weight(spec, 2 * FROM_MEMORY)
        offered = [c for c in offered if c.prepare is None]
    names = {c.name for c in offered}
    measured = memory.measured(
        key_of(small), lambda: offered if small is spec else [c for c in candidates(small) if c.name in names], seconds
    )
    if measured is None:
        likely = first_likely(accepted) or accepted[0]
        time = spec.flops / LIKELY_OPERATIONS_PER_SECOND
        return Choice(likely, time, {likely.name: time}, is_steady=False)
    times = {c.name: estimate(c, measured.least[c.name], small) for c in offered if c.name in measured.least}
    best = None if measured.is_steady else first_likely([c for c in accepted if c.name in times])
    worth = WORTH if best is None else UNLIKELY
    for candidate in accepted:
        time = times.get(candidate.name)
        asked = min(worth, WORTH_OTHER.get(candidate.name, WORTH))
        if time is not None and (best is None or time < asked * times[best.name]):
            best, worth = candidate, WORTH
    if best is None:
        return Choice(offered[0], times.get(offered[0].name), times, measured.is_steady)
    return Choice(best, times[best.name], times, measured.is_steady)


def least_overhead(offered: Sequence[Candidate]) -> Candidate:
    """For a small product: eager's kernel, unless only ours is called natively."""
    skinny = next((c for c in offered if c.name in (OWN_QUANTIZED, OWN_SKINNY_GEMM, OWN_TOKEN)), None)
    return offered[0] if skinny is None or offered[0].steps is not None else skinny


def first_likely(offered: Sequence[Candidate]) -> Candidate | None:
    has_units = len(offered) > 0 and has_matrix_units(offered[0])
    names = sorted(LIKELY, key=lambda name: has_units and name in WITHOUT_MATRIX_UNITS)
    return next((c for name in names for c in offered if c.name == name), None)


def has_matrix_units(candidate: Candidate) -> bool:
    """Whether libraries compute in its dtype with instructions that our own kernels do not use."""
    return candidate.output.dtype in matmul_tiling_and_packing.dtypes_of_matrix_units()


def is_read_once(spec: Spec) -> bool:
    """Whether reading a large weight from memory dominates the work."""
    return isinstance(spec, LinearSpec) and spec.x.shape[0] == 1 and spec.weight.bytes >= FROM_MEMORY


SURELY = 0.95
"""To replace the usual choice, a candidate must be at least this much faster in a thorough measurement."""


def choose_thoroughly(spec: Spec, *, seconds: float, memory: Measurements = memory) -> Choice:
    """Measures all candidates at length, without shortcuts. The usual choice stays where no other is clearly faster, or
    where other work disturbed the measurement."""
    usual = choose(spec, seconds=seconds, memory=memory)
    small = shrunk(spec)
    offered = candidates(small)
    if len(offered) == 1 or not offered[0].output.is_on_host:
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


def tuned(spec: LinearSpec | ConvSpec, *, seconds: float, memory: Measurements = memory) -> LinearSpec | ConvSpec:
    """The spec with the tiles for which our own kernel is clearly the fastest: all are measured at length."""
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
    """The spec and the other conditions on which times depend within one machine, as text."""
    return f"{spec} threads {torch.get_num_threads()}"


def estimate(candidate: Candidate, seconds: float, measured: Spec) -> float:
    """Estimates a candidate's seconds from those measured for the same candidate of the spec `measured`, which is at
    most as large."""
    if candidate.spec is measured:
        return seconds
    seconds *= candidate.spec.flops / max(measured.flops, 1)
    if candidate.run_into is None and candidate.output.bytes > FREE_ALLOCATION:
        seconds += candidate.output.bytes * FAULT_SECONDS_PER_BYTE
    return seconds
