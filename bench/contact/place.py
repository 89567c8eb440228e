"""Where a check runs and what it leaves: the device, comparisons with float64, figures, notes.

    def check(place):
        x = place.randn(place.size(4096, 8), 100)
        place.agrees(lambda x: torch.softmax(x, -1), x)      raises AssertionError that says what is wrong where

In a rehearsal a check runs twice: on a pretended GPU, where kernels are compiled and launched but compute nothing
(`computes` is false), and, if it says so, on a CPU with kernels in Triton's interpreter.
"""

from __future__ import annotations

import contextlib
import json
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

import burnish
from burnish import events

from ..clocks import wait

FACTOR, ROUNDINGS = 2.0, 8.0
"""A result may be so many times as far from float64 as eager's, plus so many rounding units."""
SHOWN_BYTES = 400_000
"""The most bytes of kernels' text that are written."""
NOTED = "lower.refused runtime.cuda_graphs breaks guards.sizes kernels.workers runtime.contest runtime.failed".split()


class Place:
    def __init__(self, folder: Path, device: str, computes: bool = True, is_rehearsal: bool = False):
        self.folder, self.device, self.computes, self.is_rehearsal = folder, device, computes, is_rehearsal
        self.launches = 0
        """The number of kernels in compiled plans."""
        self.failed: list[str] = []
        """Errors of compiled graphs that fell back to plain Python."""

    def size(self, real: int, rehearsed: int) -> int:
        return rehearsed if self.is_rehearsal else real

    def wait(self) -> None:
        wait(self.device)

    # ---- output

    def write(self, kind: str, value: Any) -> None:
        with open(self.folder / "report.jsonl", "a") as file:
            file.write(json.dumps({kind: value}, default=str) + "\n")

    def figure(self, **numbers: Any) -> None:
        """Write figures at once, so that they remain if the check is killed later."""
        self.write("figure", {name: round(x, 4) if isinstance(x, float) else x for name, x in numbers.items()})

    def note(self, text: str) -> None:
        self.write("note", text)

    def watch(self, event: events.Event) -> None:
        if event.kind == "kernels":
            with open(self.folder / "kernels.txt", "a") as file:
                if file.tell() < SHOWN_BYTES:
                    file.write(f"{event.data['text']}\n")
        elif event.kind == "loops" and "plan" in event.data:
            self.launches += sum(type(step).__name__ == "Launch" for step in event.data["plan"].steps)
        elif event.kind in NOTED:
            if event.kind == "runtime.failed":
                self.failed.append(event.data["text"])
            self.note(f"{event.kind}: {str(event.data.get('text') or event.data.get('why'))[:2000]}")

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        stop = events.subscribe(self.watch)
        try:
            yield
        finally:
            stop()

    # ---- inputs

    def randn(self, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
        return (torch.randn(shape) * scale).to(dtype).to(self.device)

    def randint(self, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(high, shape).to(self.device)

    # ---- comparisons

    def agrees(
        self,
        fn: Callable[..., Any],
        *inputs: Any,
        gradients: bool = False,
        mode: str | None = None,
        calls: int = 3,
        fewest: int = 1,
        name: str = "",
        **options: Any,
    ) -> None:
        """Assert that calls are as close to float64 as eager's and use at least `fewest` compiled kernels."""
        run = with_gradients(fn) if gradients else fn
        self.note(f"inputs of {name or 'the program'}: {', '.join(map(described, tree_leaves(inputs)))}")
        before = self.launches
        with contextlib.nullcontext() if gradients else torch.no_grad():
            truth = run(*tree_map(doubled, inputs))
            want = run(*inputs)
            compiled = burnish.compile(fn, fullgraph=True, mode=mode, **options)
            run = with_gradients(compiled) if gradients else compiled
            worst = 0.0
            for call in range(calls):
                got = run(*inputs)
                self.wait()
                worst = max(worst, self.same(got, want, truth, f"{name} call {call}".strip()))
        made = self.launches - before
        assert made >= fewest, f"{name}: {made} kernels were compiled, and at least {fewest} are expected"
        self.figure(**{f"{name or 'error'} of allowed": worst})

    def same(self, got: Any, want: Any, truth: Any, name: str) -> float:
        """The largest error relative to the allowed one."""
        parts = list(zip(tree_leaves(got), tree_leaves(want), tree_leaves(truth), strict=True))
        return max((self.same_tensor(*part, f"{name}, result {k}") for k, part in enumerate(parts)), default=0.0)

    def same_tensor(self, got: Any, want: Any, truth: Any, name: str) -> float:
        if not isinstance(want, torch.Tensor):
            assert got == want or not self.computes, f"{name}: {got} where eager has {want}"
            return 0.0
        assert described(got) == described(want), f"{name}: {described(got)} where eager has {described(want)}"
        if not self.computes or not want.numel():
            return 0.0
        got, want, truth = (x.detach().double().cpu() for x in (got, want, truth))
        unit = torch.finfo(torch.float64 if not got.is_floating_point() else torch.float32).eps
        return distance(got, want, truth, unit, name)


def distance(got: torch.Tensor, want: torch.Tensor, truth: torch.Tensor, unit: float, name: str) -> float:
    finite = want.isfinite() & truth.isfinite()
    other = ~finite & ~((got == want) | (got.isnan() & want.isnan()))
    scale = truth[finite].abs().max().item() if finite.any() else 0.0
    off = torch.where(finite, (got - truth).abs(), 0.0)
    eager = torch.where(finite, (want - truth).abs(), 0.0).max().item()
    allowed = FACTOR * eager + ROUNDINGS * unit * scale
    wrong = other | (finite & (~got.isfinite() | (off > allowed)))
    if wrong.any():
        first = tuple(wrong.nonzero()[0].tolist())
        raise AssertionError(
            f"{name}: {int(wrong.sum())} of {wrong.numel()} elements are wrong, the first at {first}: "
            f"{got[first].item():.9g}, eager {want[first].item():.9g}, float64 {truth[first].item():.9g}; "
            f"largest error {off.max().item():.3g}, eager's {eager:.3g}, allowed {allowed:.3g}"
        )
    return off.max().item() / allowed if allowed else 0.0


def described(x: Any) -> str:
    if not isinstance(x, torch.Tensor):
        return repr(x)[:80]
    kind = str(x.dtype).removeprefix("torch.")
    return f"{kind}{list(x.shape)} strides {list(x.stride())} on {x.device}"


def doubled(x: Any) -> Any:
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        return x
    return x.detach().double().requires_grad_(x.requires_grad)


def with_gradients(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The results, and the gradients of all inputs that require them; the tangents are 1, 2, 3, … by result."""

    def run(*inputs: Any) -> list[Any]:
        wanted = [x for x in tree_leaves(inputs) if isinstance(x, torch.Tensor) and x.requires_grad]
        results = fn(*inputs)
        flows = [x for x in tree_leaves(results) if isinstance(x, torch.Tensor) and x.requires_grad]
        tangents = [torch.linspace(0.5, k + 1.5, x.numel(), device=x.device).view(x.shape).to(x.dtype)
                    for k, x in enumerate(flows)]  # fmt: skip
        return [tree_map(lambda x: x.detach() if isinstance(x, torch.Tensor) else x, results),
                *torch.autograd.grad(flows, wanted, tangents)]  # fmt: skip

    return run


def perform(check: Callable[[Place], Any], places: Sequence[Callable[[], contextlib.AbstractContextManager[Place]]]):
    """Run a check in each of the places. Returns the exit status of its process."""
    from ..fallbacks import refused

    opened = None
    for open_place in places:
        try:
            with open_place() as opened, opened.watched(), refused():
                torch.manual_seed(0)
                check(opened)
                opened.wait()
                assert not opened.failed, opened.failed[0]
        except BaseException as error:
            if opened is not None:
                where = "" if not opened.is_rehearsal else f"on {opened.device}, "
                opened.write("error", f"{where}{type(error).__name__}: {error}")
                opened.note("".join(traceback.format_exception(error)))
            return 1
    return 0
