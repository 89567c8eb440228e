"""Every operator torch has samples for, captured and replayed.

    python -m bench.operators                     all operators, all samples
    python -m bench.operators --only softmax      those whose name contains it
    python -m bench.operators --limit 100 --samples 5

Each sample of `op_db` runs through `burnish.compile(fn, backend="eager")` as a function, and in place where the
operator can; twice, on equal inputs: the first call traces, the second replays. Results, mutated inputs, metadata,
aliasing of results and inputs, and errors must be eager's. The last line counts; what is wrong is listed above it.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import dataclasses
import itertools
import os
import random
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("BURNISH_ON_ERROR", "raise")

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_map_only

import burnish

from .observe import Observed

DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bool)
# Their results are whatever memory held before: only metadata can be compared.
UNINITIALIZED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_"}
VERDICTS = ("equal", "break", "different", "crashed")


@dataclasses.dataclass
class Outcome:
    """The worst that happened over an operator's samples."""

    name: str
    verdict: str = "equal"
    detail: str = ""
    breaks: tuple[str, ...] = ()
    samples: int = 0

    def worse(self, verdict: str, detail: str) -> None:
        if VERDICTS.index(verdict) > VERDICTS.index(self.verdict):
            self.verdict, self.detail = verdict, detail


class Different(Exception):
    pass


def check_operator(op: Any, most_samples: int | None = None) -> Outcome:
    """All samples of one operator, in each of its variants."""
    outcome = Outcome(full_name(op))
    dtype = next(dtype for dtype in DTYPES if dtype in op.dtypes)
    codes: set[str] = set()
    for variant in (op.op, op.inplace_variant):
        if variant is None:
            continue
        set_seed(0)
        for i, sample in enumerate(itertools.islice(op.sample_inputs("cpu", dtype), most_samples)):
            with Observed() as seen:
                verdict, detail = check_sample(variant, sample, op.name in UNINITIALIZED)
            if verdict is None:
                continue
            outcome.samples += 1
            codes.update(seen.break_codes)
            if verdict == "equal" and seen.breaks:
                verdict, detail = "break", seen.breaks[0]
            place = "in place, " if variant is op.inplace_variant else ""
            outcome.worse(verdict, f"{place}sample {i}: {detail}")
    outcome.breaks = tuple(sorted(codes))
    return outcome


def check_sample(variant: Callable, sample: Any, uninitialized: bool) -> tuple[str | None, str]:
    """The verdict on one sample and what it rests on; no verdict where eager itself cannot be repeated."""
    inputs = (sample.input, *sample.args), sample.kwargs

    def fn(*args, **kwargs):
        return variant(*args, **kwargs)

    try:
        want = observe_call(fn, inputs)
    except CannotCopy:
        return None, ""
    burnish.reset()
    try:
        compiled = burnish.compile(fn, backend="eager")
        for call in ("first call", "replay", "second replay"):
            got = observe_call(compiled, inputs)
            if want.error is None and got.error is not None:
                return "crashed", f"{call}: {last_line(got.error)}"
            try:
                same(want, got, values=not uninitialized)
            except Different as difference:
                if repeats(fn, inputs, want, uninitialized):
                    return "different", f"{call}: {difference}"
                return None, ""
    except Exception as error:
        return "crashed", last_line(error)
    return "equal", ""


class CannotCopy(Exception):
    pass


@dataclasses.dataclass
class Seen:
    """One call: what came out, what the inputs are afterwards, the random state it left."""

    result: Any
    inputs: Any
    error: BaseException | None
    random: torch.Tensor


def observe_call(fn: Callable, inputs: tuple) -> Seen:
    args, kwargs = fresh(inputs)
    set_seed(1)
    result = error = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = fn(*args, **kwargs)
        except Exception as raised:
            error = raised
    return Seen(result, (args, kwargs), error, torch.rand(1))


def fresh(inputs: tuple) -> tuple:
    """A deep copy keeps views of one storage views of one storage; some layouts can only be cloned one by one."""
    try:
        return copy.deepcopy(inputs)
    except Exception:
        try:
            return tree_map_only(torch.Tensor, torch.clone, inputs)
        except Exception as error:
            raise CannotCopy from error


def repeats(fn: Callable, inputs: tuple, want: Seen, uninitialized: bool) -> bool:
    """Does eager give the same when it is asked again?"""
    try:
        same(want, observe_call(fn, inputs), values=not uninitialized)
    except Different:
        return False
    return True


def same(want: Seen, got: Seen, values: bool) -> None:
    if want.error is not None:
        if type(want.error) is not type(got.error) or str(want.error) != str(got.error):
            raise Different(f"{last_line(want.error)!r} expected, got {last_line(got.error)!r}")
        return
    for part in ("inputs", "result"):
        compare(getattr(want, part), getattr(got, part), part, values)
    if values:
        compare(aliases(want), aliases(got), "aliasing", True)
    if not torch.equal(want.random, got.random):
        raise Different("the random state afterwards")


def compare(want: Any, got: Any, part: str, values: bool) -> None:
    wanted, want_spec = tree_flatten(want)
    gotten, got_spec = tree_flatten(got)
    if want_spec != got_spec:
        raise Different(f"{part}: structure {want_spec} expected, got {got_spec}")
    for a, b in zip(wanted, gotten, strict=True):
        if type(a) is not type(b):
            raise Different(f"{part}: a {type(a).__name__} expected, got {type(b).__name__}")
        if isinstance(a, torch.Tensor):
            compare_tensors(a, b, part, values)
        elif values and not plain_equal(a, b):
            raise Different(f"{part}: {a!r} expected, got {b!r}")


def compare_tensors(a: torch.Tensor, b: torch.Tensor, part: str, values: bool) -> None:
    for fact in ("dtype", "shape", "device", "layout", "requires_grad"):
        if getattr(a, fact) != getattr(b, fact):
            raise Different(f"{part}: {fact} {getattr(a, fact)} expected, got {getattr(b, fact)}")
    if a.layout is torch.strided and not a.is_nested and a.stride() != b.stride():
        raise Different(f"{part}: stride {a.stride()} expected, got {b.stride()}")
    if values and not surely_equal(a, b):
        try:
            torch.testing.assert_close(b, a, rtol=0, atol=0, equal_nan=True)
        except AssertionError as error:
            raise Different(f"{part}: {' '.join(str(error).split())[:120]}") from None


def surely_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True saves the slow comparison; False says nothing (NaN, layouts and dtypes without `equal`)."""
    try:
        return a.layout is torch.strided and not a.is_nested and torch.equal(a, b)
    except RuntimeError:
        return False


def plain_equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b, equal_nan=True)
    if isinstance(a, (bool, int, float, complex, str, torch.dtype, torch.device, torch.Size, type(None))):
        return repr(a) == repr(b)
    return True


def aliases(seen: Seen) -> list[int]:
    """For each tensor of result and inputs the number of the first one it shares storage with."""
    first: dict[int, int] = {}
    found = []
    for i, leaf in enumerate(tree_flatten((seen.inputs, seen.result))[0]):
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and not leaf.is_nested and leaf.numel():
            found.append(first.setdefault(leaf.untyped_storage().data_ptr(), i))
    return found


def set_seed(n: int) -> None:
    torch.default_generator.manual_seed(n)  # torch.manual_seed notes a stack trace for each GPU to come
    random.seed(n)
    np.random.seed(n)


def last_line(error: BaseException | None) -> str:
    if error is None:
        return "no exception"
    return " ".join("".join(traceback.format_exception_only(error)).split())[:200]


def full_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Samples warn about prototypes and deprecations; that is torch's business."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(threads)


def operators() -> list[Any]:
    """Torch's records of the operators that run on a CPU (importing them takes seconds)."""
    with quiet():
        from torch.testing._internal.common_methods_invocations import op_db
    return [op for op in op_db if any(dtype in op.dtypes for dtype in DTYPES)]


def summary(outcomes: list[Outcome]) -> str:
    counted = collections.Counter(outcome.verdict for outcome in outcomes)
    codes = collections.Counter(code for o in outcomes if o.verdict == "break" for code in o.breaks)
    by_code = f" ({', '.join(f'{code} {number}' for code, number in codes.most_common())})" if codes else ""
    return (f"{len(outcomes)} operators: {counted['equal']} equal with no break, {counted['break']} equal with "
            f"breaks{by_code}, {counted['different']} different, {counted['crashed']} crashed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME", help="operators whose name contains this")
    parser.add_argument("--limit", type=int, help="the first so many operators")
    parser.add_argument("--samples", type=int, help="at most so many samples of each")
    parser.add_argument("--breaks", action="store_true", help="list operators with breaks too")
    settings = parser.parse_args()
    chosen = [op for op in operators() if not settings.only or settings.only in full_name(op)][:settings.limit]
    start, outcomes = time.monotonic(), []
    with quiet():
        for op in chosen:
            outcomes.append(check_operator(op, settings.samples))
            if sys.stderr.isatty():
                print(f"\r{len(outcomes)}/{len(chosen)} {outcomes[-1].name:40.40}", end="", file=sys.stderr)
    shown = VERDICTS[1 if settings.breaks else 2:]
    for outcome in sorted(outcomes, key=lambda o: (VERDICTS.index(o.verdict), o.name)):
        if outcome.verdict in shown:
            print(f"{outcome.verdict:10} {outcome.name}: {outcome.detail}")
    unheard = [outcome.name for outcome in outcomes if not outcome.samples]
    if unheard:
        print(f"no usable sample: {', '.join(unheard)}")
    print(f"{sum(outcome.samples for outcome in outcomes)} samples in {time.monotonic() - start:.0f} s")
    print(summary(outcomes))
    return 1 if any(outcome.verdict in VERDICTS[2:] for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
