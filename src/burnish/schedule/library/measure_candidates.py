"""Benchmarking: times candidates on random tensors, interleaved, and takes the minimum of several runs.

    >>> measure(candidates(spec), seconds=0.005).least
    {'addmm': 0.00034, 'onednn packed': 0.00033, 'mkl packed': 0.00029}

On busy cores a multi-threaded product takes as long as its slowest thread waits for a core. Then the measurement takes
longer, and its result is marked as disturbed. A candidate is dropped, with the reason, if it raises, or if the shape or
strides of its result are not those it declared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter

import torch

from ...concurrency import waits_for_cores
from ...concurrency.outside_errors import reraise_from_outside
from ...tensors.tensor_types import TensorType, has_stride
from .candidate import Candidate, bound, empty

HOPELESS = 2.0
"""A candidate this many times slower than the best in its first runs is not run again, except eager's."""

PATIENCE = 3
"""The time is spent in this many stretches. The first undisturbed one ends the measurement."""


BLOCK = 8191
"""The period of a large random tensor: a prime, so that rows differ."""


@dataclass(slots=True)
class Measurement:
    least: dict[str, float]
    """Seconds by name, for all candidates that work."""
    is_steady: bool = True
    """False where other work used the cores."""
    dropped: dict[str, str] = field(default_factory=dict)
    """Why the other candidates do not work."""
    attempts: int = 1

    def after(self, earlier: Measurement | None) -> Measurement:
        """Combines this measurement with an earlier, disturbed one: the shorter time of each candidate, unless this
        one is steady."""
        if earlier is None:
            return self
        attempts = earlier.attempts + 1
        if self.is_steady:
            return replace(self, attempts=attempts)
        least = {name: min(time, earlier.least.get(name, time)) for name, time in self.least.items()}
        return replace(self, least=least, attempts=attempts)


@dataclass(frozen=True, slots=True)
class Clock:
    """Times work on a GPU, where a CPU clock would say nothing."""

    seconds: Callable[[Callable[[], object]], float]
    """Seconds of the work that a function launches on the current GPU."""
    on: Callable[[torch.device], contextlib.AbstractContextManager]
    """Makes a GPU the current one."""
    about: Callable[[torch.device], str]
    """The conditions on which times depend: the GPU and its compiler."""


def measure(candidates: Sequence[Candidate], seconds: float) -> Measurement:
    """Times the candidates for about a third of `seconds`, or all of it on busy cores; each promising one at least
    twice. The first candidate is eager's: an exception from it is raised, because the spec is wrong."""
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        inputs = {name: random_tensor(type) for name, type in candidates[0].spec.inputs.items()}
        runs: dict[str, Callable[[], object]] = {}
        dropped: dict[str, str] = {}
        for candidate in candidates:
            try:
                runs[candidate.name] = warm_up_candidate(candidate, inputs)
            except Exception as error:
                reraise_from_outside(error)
                if candidate is candidates[0]:
                    raise
                dropped[candidate.name] = str(error).partition("\n")[0]
        least = {name: _time(run) for name, run in runs.items()}
        for name, first in least.items():
            if first < seconds / 10:
                least[name] = min(first, _time(runs[name]))
        limit = HOPELESS * min(least.values())
        promising = [name for name, first in least.items() if first <= limit or name == candidates[0].name]
        is_steady = False
        for _ in range(PATIENCE):
            is_steady = _is_undisturbed(partial(_improve, least, runs, promising, seconds / PATIENCE))
            if is_steady:
                break
    return Measurement(least, is_steady, dropped)


def _improve(
    least: dict[str, float], runs: Mapping[str, Callable[[], object]], promising: list[str], seconds: float
) -> None:
    """Runs each at least once more, and again while `seconds` last."""
    end = perf_counter() + seconds
    while True:
        for name in promising:
            least[name] = min(least[name], _time(runs[name]))
        if perf_counter() >= end:
            return


def _is_undisturbed(work: Callable[[], None]) -> bool:
    """Runs `work`; returns whether our threads got a core whenever they wanted one. True if the system does not say."""
    waited, start = waits_for_cores.seconds_waited(), perf_counter()
    work()
    return waits_for_cores.is_undisturbed(waited, perf_counter() - start)


def bind(candidate: Candidate, inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """The operands that the candidate takes, from the spec's inputs by name; prepares weights where it needs that."""
    values = dict(inputs)
    if candidate.prepare is not None:
        weights = [inputs[name] for name in candidate.prepares if name in inputs]
        values.update(zip(candidate.prepared, candidate.prepare(*weights), strict=True))
    return [values[name] for name in candidate.operands]


def random_tensor(type: TensorType) -> torch.Tensor:
    """Random numbers of a separate generator: the program's random state stays unchanged."""
    tensor = torch.empty_strided(type.shape, type.stride, dtype=type.dtype, device=type.device)
    numbers = torch.Generator(type.device).manual_seed(0)
    # One element for each address: a stride of 0 repeats it.
    base = tensor.as_strided(*_places(type))
    if type.dtype.is_floating_point and base.numel() > 2 * BLOCK and base.is_contiguous():
        # Repeat a block: drawing millions of numbers takes longer than the product that reads them.
        block = torch.empty(BLOCK, dtype=type.dtype, device=type.device).uniform_(-1, 1, generator=numbers)
        whole = base.numel() // BLOCK * BLOCK
        base.view(-1)[:whole].view(-1, BLOCK).copy_(block)
        base.view(-1)[whole:].copy_(block[: base.numel() - whole])
        return tensor
    if type.dtype.is_floating_point or type.dtype.is_complex:
        base.uniform_(-1, 1, generator=numbers) if type.dtype.is_floating_point else base.normal_(generator=numbers)
    else:
        base.random_(0, 2, generator=numbers)
    return tensor


def why_not_as_said(candidate: Candidate, result: torch.Tensor) -> str | None:
    said = candidate.output
    if tuple(result.shape) != said.shape or result.dtype is not said.dtype or not has_stride(said, result.stride()):
        return f"gives {TensorType.of(result)} where it said {said}"
    return None


def warm_up_candidate(candidate: Candidate, inputs: Mapping[str, torch.Tensor]) -> Callable[[], object]:
    """The candidate as it will run, after a first run that showed that it works."""
    operands = bind(candidate, inputs)
    if candidate.steps is not None and not candidate.further:
        run = bound(candidate, [empty(candidate.output)], operands)
        run()
        return run
    if candidate.run_into is not None:
        run = partial(candidate.run_into, empty(candidate.output), *operands)
    else:
        run = partial(candidate.run, *operands)
    reason = why_not_as_said(candidate, run())
    if reason is not None:
        raise ValueError(reason)
    return run


def _time(run: Callable[[], object]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def _places(type: TensorType) -> tuple[tuple[int, ...], tuple[int, ...]]:
    kept = [(size, step) for size, step in zip(type.shape, type.stride, strict=True) if step or size == 0]
    return tuple(size for size, _ in kept), tuple(step for _, step in kept)
