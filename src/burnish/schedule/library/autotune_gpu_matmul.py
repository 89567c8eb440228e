"""Autotuning of our own GPU matmul kernels against torch's library, measured on the present GPU.

    work = Work(LinearSpec(x, w), ("x0", "x1"), before=(), after=relu, counts_after=True, ways=(linear_relu,))
    choose_matrix(work, maker)        a Candidate for one of the ways, or None if torch's own call is as fast

The comparison covers all of the work: torch's product with the prologue and epilogue kernels that a fused kernel does
not need. A handful of configurations is compiled in parallel and measured. A configuration that does not run, or whose
result differs from that of torch's product, is dropped. The result is remembered like other measurements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from ... import events
from ...concurrency.outside_errors import reraise_from_outside
from .autotune_library_calls import Measurements, candidates, memory
from .call_specs import LinearSpec, MatmulSpec
from .candidate import Candidate, bound, empty
from .gpu_matmul_spec import KernelSpec, Maker, MatmulTiles, candidate, tilings
from .measure_candidates import Measurement, random_tensor

WORTH = 0.97
"""Our own kernel must take at most this fraction of torch's time: smaller differences are noise."""

MOST_BYTES = 4 << 30
"""Largest size of the tensors made for measuring. Larger products are left to torch."""

ROUNDS = 2

NEAR = 16
"""Two results may differ by this many rounding errors of the largest number: sums are added in another order, and the
epilogue may increase a difference."""

TORCHS, PRODUCT, RESULT = "torch", "product", "result"
"""Names of torch's own call, of its result, and of the epilogue's result."""


@dataclass(frozen=True, slots=True)
class FusedProduct:
    """A product with its prologue and epilogue."""

    call: LinearSpec | MatmulSpec
    operands: tuple[str, ...]
    """The operands of torch's product, by their names in the kernels."""
    before: tuple[KernelSpec, ...]
    """Kernels that compute operands only for this product."""
    after: KernelSpec | None
    """The kernel that computes the epilogue from the product."""
    counts_after: bool
    """Whether the epilogue would be a kernel of its own. If other loops read its result, it is fused there at no cost.
    """
    ways: tuple[KernelSpec, ...]
    """Matmul kernels: one that reads the operands, and one that also computes them."""

    def before_of(self, way: KernelSpec) -> tuple[KernelSpec, ...]:
        """The prologue kernels that this way needs."""
        return tuple(spec for spec in self.before if spec.names[0] in way.inputs)

    def name_of(self, way: KernelSpec, tiles: MatmulTiles) -> str:
        return f"operands {tiles}" if self.before and not self.before_of(way) else str(tiles)


def choose_matrix(work: FusedProduct, maker: Maker, memory: Measurements = memory) -> Candidate | None:
    device = work.ways[0].output.device
    if memory_of(work) > MOST_BYTES:
        events.emit(
            "kernels.measured", text=f"{work.call}: {TORCHS}, for measuring takes more than {MOST_BYTES / 2**30:g} GB"
        )
        return None
    measured = memory.measured(
        f"{work} on {maker.about(device)}", list, 0.0, is_thorough=True, by=lambda *_: measure_work(work, maker, device)
    )
    if measured is None or TORCHS not in measured.least:
        why = "; ".join(f"{name}: {reason}" for name, reason in measured.dropped.items()) if measured else "no time"
        events.emit("kernels.measured", text=f"{work.call}: {TORCHS}, for nothing could be measured: {why}")
        return None
    least = measured.least
    offered = {work.name_of(way, tiles): (way, tiles) for way in work.ways for tiles in tilings(way)}
    own = {
        name: least[name] + sum(least[spec.names[0]] for spec in work.before_of(way))
        for name, (way, _) in offered.items()
        if name in least
    }
    torchs = least[TORCHS] + sum(least[spec.names[0]] for spec in work.before)
    torchs += least[RESULT] if work.after is not None and work.counts_after else 0.0
    name = min(own, key=own.__getitem__, default=None)
    is_won = name is not None and own[name] < WORTH * torchs
    if events.is_watched("kernels.measured"):
        events.emit(
            "kernels.measured", text=format_report(work, torchs, own, measured.dropped, name if is_won else None)
        )
    return candidate(name, *offered[name], maker) if name is not None and is_won else None


def memory_of(work: FusedProduct) -> int:
    specs = (*work.before, *work.ways, *([work.after] if work.after is not None else []))
    types = {name: type for spec in specs for name, type in zip(spec.names, spec.types, strict=True)}
    return sum(type.bytes for type in types.values()) + sum(spec.output.bytes for spec in work.ways)


def format_report(
    work: FusedProduct, torchs: float, own: dict[str, float], dropped: dict[str, str], name: str | None
) -> str:
    times = [f"  {each}: {1e6 * seconds:.1f} us" for each, seconds in {TORCHS: torchs, **own}.items()]
    why = [f"  {each} is dropped: {reason}" for each, reason in dropped.items()]
    return "\n".join([f"{work.call}: {name or TORCHS}", *times, *why])


def measure_work(work: FusedProduct, maker: Maker, device: torch.device) -> Measurement:
    """Seconds of torch's product, by `TORCHS`; of prologue and epilogue, by their result; of our kernels, by tiles."""
    around = [*work.before, *([work.after] if work.after is not None else [])]
    wanted: dict[str, tuple[KernelSpec, MatmulTiles | None]] = {spec.names[0]: (spec, None) for spec in around}
    wanted.update((work.name_of(way, tiles), (way, tiles)) for way in work.ways for tiles in tilings(way))
    with torch.no_grad(), torch.autocast(device.type, enabled=False), maker.on(device):
        made = dict(zip(wanted, maker.make(list(wanted.values())), strict=True))
        dropped = {name: why for name, why in made.items() if isinstance(why, str)}
        if any(spec.names[0] in dropped for spec in around):
            return Measurement({}, dropped=dropped)
        try:
            return timed(work, maker, {name: each for name, each in wanted.items() if name not in dropped}, dropped)
        except torch.OutOfMemoryError as error:
            return Measurement({}, dropped={**dropped, TORCHS: f"the GPU has no room to measure: {error}"})


def timed(
    work: FusedProduct, maker: Maker, wanted: dict[str, tuple[KernelSpec, MatmulTiles | None]], dropped: dict[str, str]
) -> Measurement:
    tensors: dict[str, torch.Tensor] = {}

    def given(name: str, spec: KernelSpec) -> torch.Tensor:
        if name not in tensors:
            tensors[name] = random_tensor(spec.inputs[name])
        return tensors[name]

    def into(out: torch.Tensor, name: str) -> Callable[[], object]:
        """The kernel, after a first run."""
        spec, tiles = wanted[name]
        run = bound(candidate(name, spec, tiles, maker), [out], [given(operand, spec) for operand in spec.names[1:]])
        run()
        return run

    def run_around(spec: KernelSpec) -> None:
        name = spec.names[0]
        tensors[name] = empty(spec.output)
        runs[name] = into(tensors[name], name)

    runs: dict[str, Callable[[], object]] = {}
    for spec in work.before:
        run_around(spec)
    way = work.ways[0]
    eager = candidates(work.call)[0]
    named = dict(zip(work.call.inputs, work.operands, strict=True))
    tensors[PRODUCT] = empty(eager.output)
    assert eager.run_into is not None
    runs[TORCHS] = partial(
        eager.run_into, tensors[PRODUCT], *[given(named[operand], way) for operand in eager.operands]
    )
    runs[TORCHS]()
    if work.after is not None:
        run_around(work.after)
    want = tensors[PRODUCT if work.after is None else RESULT]
    out = empty(way.output)
    for name, (_, tiles) in wanted.items():
        if tiles is None:
            continue
        try:
            run = into(out.fill_(float("nan")), name)
            why = why_not_near(out, want, tensors[PRODUCT], way.precision)
        except RuntimeError as error:
            reraise_from_outside(error)
            why = str(error).partition("\n")[0]
        if why is None:
            runs[name] = run  # type: ignore[possibly-undefined]
        else:
            dropped[name] = why
    least = dict.fromkeys(runs, float("inf"))
    for _ in range(ROUNDS):
        for name, run in runs.items():
            least[name] = min(least[name], maker.seconds(run))
    return Measurement(least, dropped=dropped)


def why_not_near(got: torch.Tensor, want: torch.Tensor, product: torch.Tensor, precision: str) -> str | None:
    """Why a result differs too much from torch's."""
    eps = max(torch.finfo(want.dtype).eps, torch.finfo(product.dtype).eps, 2**-10 if precision == "tf32" else 0.0)
    got, want = got.float(), want.float()
    scale = max(float(x.float().abs().nan_to_num(0.0, 0.0, 0.0).max()) for x in (want, product))
    is_near = ((got - want).abs() <= NEAR * eps * scale) | (got == want) | (got.isnan() & want.isnan())
    wrong = int((~is_near).sum())
    return None if not wrong else f"{wrong} of {got.numel()} numbers are not those of torch's product"
