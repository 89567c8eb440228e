"""Gradients of every operator that torch has samples for: through compiled code, compared with eager's.

    python -m bench.gradients                     all differentiable operators, two samples each
    python -m bench.gradients --only softmax --samples 20

Each sample's inputs require gradients. The results are weighted and differentiated, in eager and through
`burnish.compile`; results and gradients must agree by the rule of `bench.closeness`. The last line has the counts.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

import burnish
from burnish.settings import patch

from .operators import (
    CannotCopy,
    Different,
    Judge,
    Outcome,
    Watched,
    full_name,
    last_line,
    observe_call,
    operators,
    quiet,
    repeats,
    same,
    set_seed,
)


def with_gradients(run: Callable) -> Callable:
    """The function's results and the gradients of their weighted sum with respect to the given tensors."""

    def call(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        sources = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor) and x.requires_grad]
        results = run(*args, **kwargs)
        outs = [
            x
            for x in tree_flatten(results)[0]
            if isinstance(x, torch.Tensor) and x.requires_grad and x.layout is torch.strided
        ]
        gradients: Any = ()
        if outs and sources:
            tangents = [weights(x) for x in outs]
            gradients = torch.autograd.grad(outs, sources, tangents, allow_unused=True)
            # Their layout depends on that of the tangents; where they are accumulated, autograd chooses it.
            gradients = [
                x if x is None or x.layout is not torch.strided else x.clone(memory_format=torch.contiguous_format)
                for x in gradients
            ]
        return [x.detach() if isinstance(x, torch.Tensor) else x for x in tree_flatten(results)[0]], gradients

    return call


def weights(x: torch.Tensor) -> torch.Tensor:
    """Weights of varied magnitude and both signs, the same for tensors of one shape."""
    made = torch.linspace(-1.0, 1.5, max(x.numel(), 1), dtype=torch.float64)[: x.numel()].reshape(x.shape)
    return made.to(x.dtype)


def check_operator(op: Any, samples: int | None) -> Outcome:
    outcome = Outcome(full_name(op))
    set_seed(0)
    for number, sample in enumerate(
        itertools.islice(op.sample_inputs("cpu", torch.float32, requires_grad=True), samples)
    ):
        with Watched() as watched:
            verdict, detail = check_sample(op.op, sample)
        if verdict is None:
            continue
        outcome.samples += 1
        outcome.ways.add(watched.way)
        outcome.refusals.update(watched.refusals)
        outcome.worse(verdict, f"sample {number}: {detail}")
    return outcome


def check_sample(function: Callable, sample: Any) -> tuple[str | None, str]:
    inputs = (sample.input, *sample.args), sample.kwargs

    def fn(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    eager = with_gradients(fn)
    burnish.reset()
    with patch(never_slower=False, on_error="raise", eager_random=True):
        try:
            want = observe_call(eager, inputs)
        except CannotCopy:
            return None, ""
        if want.error is not None:
            return None, ""
        try:
            compiled = with_gradients(burnish.compile(fn))
            for call in ("first call", "replay", "second replay"):
                got = observe_call(compiled, inputs)
                if got.error is not None:
                    return "crashed", f"{call}: {last_line(got.error)}"
                try:
                    same(want, got, values=True, judge=Judge(eager, inputs))
                except Different as difference:
                    return ("different", f"{call}: {difference}") if repeats(eager, inputs, want, False) else (None, "")
        except Exception as error:
            return "crashed", last_line(error)
    return "equal", ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--only", default="", help="operators whose name contains it")
    parser.add_argument("--samples", type=int, default=2, help="of each operator; 0 for all")
    parser.add_argument("--from", dest="first", type=int, default=0, help="begin with this operator")
    options = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    ways: collections.Counter[str] = collections.Counter()
    with quiet():
        found = [
            op
            for op in operators()
            if op.supports_autograd and torch.float32 in op.dtypes and options.only in full_name(op)
        ][options.first :]
        for op in found:
            outcome = check_operator(op, options.samples or None)
            if not outcome.samples:
                counts["without a sample that can be compared"] += 1
                continue
            counts[outcome.verdict] += 1
            ways[outcome.way] += 1
            if outcome.verdict != "equal":
                print(f"{outcome.verdict:10} {outcome.name}: {outcome.detail}", flush=True)
    print(", ".join(f"{count} {way}" for way, count in ways.most_common()))
    print(f"{len(found)} differentiable operators: " + ", ".join(f"{n} {name}" for name, n in counts.most_common()))
    return int(bool(counts["different"] + counts["crashed"]))


if __name__ == "__main__":
    sys.exit(main())
