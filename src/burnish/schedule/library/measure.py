"""Seconds of candidates on random tensors: interleaved, the least of several runs.

    >>> measure(candidates(spec), seconds=0.005).least
    {'addmm': 0.00034, 'onednn packed': 0.00033, 'mkl packed': 0.00029}

A candidate that raises, or whose result has another shape or lies otherwise than it said, is dropped, with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

import torch

from ...tensors.types import TensorType, has_stride
from .candidate import Candidate

HOPELESS = 2.0
"""A candidate so many times slower than the best at its first run is not run again."""

STEADY = 1.2
"""The ratio of the two shortest runs up to which a time can be trusted: beyond, something else used the cores."""


@dataclass(slots=True)
class Measured:
    least: dict[str, float]
    """Seconds by name, for all candidates that work."""
    is_steady: bool = True
    dropped: dict[str, str] = field(default_factory=dict)
    """Why the others do not."""


def measure(candidates: Sequence[Candidate], seconds: float) -> Measured:
    """At least two runs of each promising candidate, more while `seconds` last. The first candidate is eager's: where
    it raises, the spec is wrong, and so does this."""
    with torch.no_grad():
        inputs = {name: random_tensor(type) for name, type in candidates[0].spec.inputs.items()}
        runs: dict[str, Callable[[], object]] = {}
        dropped: dict[str, str] = {}
        for candidate in candidates:
            try:
                runs[candidate.name] = _ready(candidate, inputs)
            except Exception as error:
                if candidate is candidates[0]:
                    raise
                dropped[candidate.name] = str(error).partition("\n")[0]
        samples: dict[str, list[float]] = {name: [_time(run)] for name, run in runs.items()}
        end = perf_counter() + seconds - sum(times[0] for times in samples.values())
        limit = HOPELESS * min(times[0] for times in samples.values())
        promising = [name for name, times in samples.items() if times[0] <= limit]
        while len(samples[promising[0]]) < 2 or perf_counter() < end:
            for name in promising:
                samples[name].append(_time(runs[name]))
    least = {name: min(times) for name, times in samples.items()}
    best = min(least, key=least.__getitem__)
    first, second = sorted(samples[best])[:2]
    return Measured(least, second <= STEADY * first, dropped)


def bind(candidate: Candidate, inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """The operands that the candidate takes, from the spec's inputs by name: prepared where it prepares, a copy of
    what it overwrites."""
    values = dict(inputs)
    if candidate.prepare is not None:
        weights = [inputs[name] for name in ("weight", "bias") if name in inputs]
        values.update(zip(candidate.prepared, candidate.prepare(*weights), strict=True))
    if candidate.overwrites is not None:
        original = values[candidate.overwrites]
        values[candidate.overwrites] = torch.empty_strided(
            original.shape, original.stride(), dtype=original.dtype, device=original.device).copy_(original)
    return [values[name] for name in candidate.operands]


def random_tensor(type: TensorType) -> torch.Tensor:
    tensor = torch.empty_strided(type.shape, type.stride, dtype=type.dtype, device=type.device)
    # One element per place in memory: a stride of 0 repeats it.
    base = tensor.as_strided(*_places(type))
    if type.dtype.is_floating_point or type.dtype.is_complex:
        base.uniform_(-1, 1) if type.dtype.is_floating_point else base.normal_()
    else:
        base.random_(0, 2)
    return tensor


def why_not_as_said(candidate: Candidate, result: torch.Tensor) -> str | None:
    said = candidate.output
    if tuple(result.shape) != said.shape or result.dtype is not said.dtype or not has_stride(said, result.stride()):
        return f"gives {TensorType.of(result)} where it said {said}"
    return None


def _ready(candidate: Candidate, inputs: Mapping[str, torch.Tensor]) -> Callable[[], object]:
    """The candidate as it will run, after a first run that showed that it works."""
    operands = bind(candidate, inputs)
    if candidate.run_into is not None:
        said = candidate.output
        out = torch.empty_strided(said.shape, said.stride, dtype=said.dtype, device=said.device)
        run = partial(candidate.run_into, out, *operands)
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
