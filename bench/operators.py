"""Every operator that torch has samples for, captured and replayed.

    python -m bench.operators                     all operators, all samples
    python -m bench.operators --only softmax      those whose name contains it
    python -m bench.operators --limit 100 --samples 5
    python -m bench.operators --backend burnish --dtype float32,bfloat16,int64,bool
    python -m bench.operators --backend burnish --dtype float32,bfloat16 --device cuda --only softmax

Each sample of `op_db` runs through `burnish.compile(fn, backend="eager")` as a function, and in place if the operator
supports it; twice, on equal inputs: the first call traces, the second replays. Results, mutated inputs, metadata,
aliasing of results and inputs, and errors must equal eager's. The last line has the counts; errors are listed above it.

With `--backend burnish` the native compiler's code must be right, and it is kept even where eager is faster. Its
rounding is judged by the rule of `bench.closeness`. Without `--dtype` each operator is checked in one dtype.

On a GPU, eager's kernels differ from those of a CPU. There a result is also right if torch's own tests would accept it,
that is, if `torch.testing.assert_close` passes. `bench.sweep` distributes all operators over processes.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import dataclasses
import functools
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
from burnish import events
from burnish.settings import patch

from .closeness import (
    DOUBLE,
    NEIGHBOURS,
    ORDERS,
    SAME,
    SINGLE,
    bitwise_equal,
    doubled,
    error,
    in_double,
    moved,
    real,
    reordered,
    scaled_error,
    singled,
    why_wrong,
)
from .observe import Observed
from .operator_samples import operator_records

DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bool)
# Their results are uninitialized memory: only metadata can be compared.
UNINITIALIZED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_"}
VERDICTS = ("equal", "break", "different", "crashed")
WAYS = ("native", "library", "views", "refused", "not captured")
"""How an operator ran: in our own kernels, in eager's, as a view that computes nothing, or not compiled at all."""


@dataclasses.dataclass
class Outcome:
    """The worst verdict over an operator's samples."""

    name: str
    verdict: str = "equal"
    detail: str = ""
    breaks: tuple[str, ...] = ()
    samples: int = 0
    ways: set[str] = dataclasses.field(default_factory=set)
    refusals: set[str] = dataclasses.field(default_factory=set)

    @property
    def way(self) -> str:
        """How the operator as a whole ran: a refusal of any sample comes first, then our kernels, then eager's."""
        for name in ("refused", "not captured", "native", "library"):
            if name in self.ways:
                return name
        return "views"

    def worse(self, verdict: str, detail: str) -> None:
        if VERDICTS.index(verdict) > VERDICTS.index(self.verdict):
            self.verdict, self.detail = verdict, detail


class Different(Exception):
    pass


def check_operator(
    op: Any,
    most_samples: int | None = None,
    backend: str = "eager",
    dtype: torch.dtype | None = None,
    device: str = "cpu",
) -> Outcome:
    """All samples of one operator, in each of its variants."""
    outcome = Outcome(full_name(op) if dtype is None else f"{full_name(op)} {str(dtype).removeprefix('torch.')}")
    dtype = dtype or next(dtype for dtype in DTYPES if takes(op, dtype, device))
    codes: set[str] = set()
    for variant in (op.op, op.inplace_variant):
        if variant is None:
            continue
        set_seed(0)
        for i, sample in enumerate(itertools.islice(op.sample_inputs(device, dtype), most_samples)):
            with Observed() as seen, Watched() as watched:
                verdict, detail = check_sample(variant, sample, op.name in UNINITIALIZED, backend, device)
            if verdict is None:
                continue
            outcome.samples += 1
            outcome.ways.add("not captured" if seen.breaks and watched.way == "views" else watched.way)
            outcome.refusals.update(watched.refusals)
            codes.update(seen.break_codes)
            if verdict == "equal" and seen.breaks:
                verdict, detail = "break", seen.breaks[0]
            place = "in place, " if variant is op.inplace_variant else ""
            outcome.worse(verdict, f"{place}sample {i}: {detail}")
    outcome.breaks = tuple(sorted(codes))
    return outcome


class Watched:
    """Records how graphs run while it is entered."""

    def __init__(self) -> None:
        self.way = "views"
        self.refusals: set[str] = set()

    def __enter__(self) -> Watched:
        self.stop = events.subscribe(self.note)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def note(self, event: events.Event) -> None:
        if event.kind == "lower.refused":
            self.way = "refused"
            self.refusals.add(" ".join(event.data["text"].split())[:160])
        elif event.kind == "loops" and self.way != "refused":
            steps = {type(step).__name__ for step in event.data["plan"].steps}
            if "Launch" in steps:
                self.way = "native"
            elif "Call" in steps and self.way == "views":
                self.way = "library"


def check_sample(
    variant: Callable, sample: Any, uninitialized: bool, backend: str = "eager", device: str = "cpu"
) -> tuple[str | None, str]:
    """The verdict on one sample and the reason for it; no verdict if eager itself is not repeatable."""
    inputs = (sample.input, *sample.args), sample.kwargs

    def fn(*args, **kwargs):
        return variant(*args, **kwargs)

    is_native = backend != "eager"
    judge = exactly
    if is_native:
        judge = Judge(fn, inputs) if is_cpu(device) else JudgeOnGpu(fn, inputs)
    burnish.reset()
    # This checks graphs without gradients; `bench.gradients` checks the others.
    # The code is compiled now, not loaded from what an earlier run left on disk.
    as_eager = patch(never_slower=False, on_error="raise", eager_random=True, cache=False)
    with torch.no_grad() if is_native else contextlib.nullcontext(), as_eager:
        try:
            want = observe_call(fn, inputs)
        except CannotCopy:
            return None, ""
        try:
            compiled = burnish.compile(fn, backend=backend)
            for call in ("first call", "replay", "second replay"):
                got = observe_call(compiled, inputs)
                if want.error is None and got.error is not None:
                    return "crashed", f"{call}: {last_line(got.error)}"
                try:
                    same(want, got, values=not uninitialized, judge=judge)
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
    """One call: its result or error, the inputs after it, and the random state that it left."""

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
    return Seen(result, (args, kwargs), error, drawn_next())


def drawn_next() -> torch.Tensor:
    """The next number of each generator: that of the CPU, and that of the GPU if one is in use."""
    devices = ["cpu", "cuda"] if torch.cuda.is_initialized() else ["cpu"]
    return torch.cat([torch.rand(1, dtype=torch.float32, device=device).cpu() for device in devices])


def fresh(inputs: tuple) -> tuple:
    """A deep copy, which preserves shared storage; some layouts can only be cloned one by one."""
    try:
        return copy.deepcopy(inputs)
    except Exception:
        try:
            return tree_map_only(torch.Tensor, torch.clone, inputs)
        except Exception as error:
            raise CannotCopy from error


def repeats(fn: Callable, inputs: tuple, want: Seen, uninitialized: bool) -> bool:
    """Whether a second call in eager gives the same."""
    try:
        same(want, observe_call(fn, inputs), values=not uninitialized)
    except Different:
        return False
    return True


Judgement = Callable[[torch.Tensor, torch.Tensor, str, int], "str | None"]
"""What is wrong with the second tensor, which should equal the first. It is a leaf, by number, of a part of `Seen`."""


def same(want: Seen, got: Seen, values: bool, judge: Judgement | None = None) -> None:
    if want.error is not None:
        if type(want.error) is not type(got.error) or str(want.error) != str(got.error):
            raise Different(f"{last_line(want.error)!r} expected, got {last_line(got.error)!r}")
        return
    for part in ("inputs", "result"):
        compare(getattr(want, part), getattr(got, part), part, values, judge or exactly)
    if values:
        compare(aliases(want), aliases(got), "aliasing", True, exactly)
    if not torch.equal(want.random, got.random):
        raise Different("the random state afterwards")


def compare(want: Any, got: Any, part: str, values: bool, judge: Judgement) -> None:
    wanted, want_spec = tree_flatten(want)
    gotten, got_spec = tree_flatten(got)
    if want_spec != got_spec:
        raise Different(f"{part}: structure {want_spec} expected, got {got_spec}")
    for number, (a, b) in enumerate(zip(wanted, gotten, strict=True)):
        if type(a) is not type(b):
            raise Different(f"{part}: a {type(a).__name__} expected, got {type(b).__name__}")
        if isinstance(a, torch.Tensor):
            compare_metadata(a, b, part)
            wrong = judge(a, b, part, number) if values else None
            if wrong is not None:
                raise Different(f"{part}: {wrong}")
        elif values and not plain_equal(a, b):
            raise Different(f"{part}: {a!r} expected, got {b!r}")


def compare_metadata(a: torch.Tensor, b: torch.Tensor, part: str) -> None:
    for fact in ("dtype", "shape", "device", "layout", "requires_grad"):
        if getattr(a, fact) != getattr(b, fact):
            raise Different(f"{part}: {fact} {getattr(a, fact)} expected, got {getattr(b, fact)}")
    if a.layout is torch.strided and not a.is_nested and a.stride() != b.stride():
        raise Different(f"{part}: stride {a.stride()} expected, got {b.stride()}")


def exactly(a: torch.Tensor, b: torch.Tensor, part: str = "", number: int = 0) -> str | None:
    if not bitwise_equal(a, b):
        try:
            torch.testing.assert_close(b, a, rtol=0, atol=0, equal_nan=True)
        except AssertionError as error:
            return " ".join(str(error).split())[:120]
    return None


class Judge:
    """Compares by `bench.closeness`, and computes eager's results in float64 when they are first needed."""

    def __init__(
        self, fn: Callable, inputs: tuple, in_double: Callable | None = None, in_single: Callable | None = None
    ):
        """`in_double` and `in_single` are the function with the dtypes that it names itself replaced."""
        self.fn, self.inputs = fn, inputs
        self.fn_in_double, self.fn_in_single = in_double or fn, in_single or fn

    def __call__(self, eager: torch.Tensor, got: torch.Tensor, part: str, number: int) -> str | None:
        if bitwise_equal(eager, got):
            return None
        if eager.layout is not torch.strided or eager.is_nested or eager.is_quantized:
            return exactly(eager, got)
        is_double = eager.dtype in SINGLE and self.rounded_to(part, number) in (None, torch.float64)
        errors = functools.partial(self.scaled_errors, eager) if is_double else self.errors
        truth = self.leaf(self.truth, part, number)
        astray = self.astray(eager, got, truth)
        if astray is not None:
            plain = self.leaf(self.without_onednn, part, number)
            eager = eager.where(~(astray & plain.isfinite()), plain)
        return why_wrong(
            eager,
            got,
            truth,
            lambda: errors_without_onednn(errors(part, number), astray is not None),
            self.rounded_to(part, number),
            functools.partial(self.noise, part, number),
        )

    def astray(self, eager: torch.Tensor, got: torch.Tensor, truth: torch.Tensor | None) -> torch.Tensor | None:
        """Where eager has NaN or infinity and the others have a number. oneDNN's gelu of infinity is NaN, while ATen's
        own, which serves other sizes and layouts, is infinite: eager's result without oneDNN is then right as well."""
        if truth is None or truth.shape != eager.shape or truth.layout is not torch.strided:
            return None
        found = ~eager.isfinite() & got.isfinite() & truth.isfinite()
        return found if found.any() else None

    @functools.cached_property
    def without_onednn(self) -> Seen:
        with torch.backends.mkldnn.flags(enabled=False):
            return observe_call(self.fn, self.inputs)

    def noise(self, part: str, number: int, where: torch.Tensor) -> torch.Tensor | None:
        """The error that intermediate rounding causes in those elements, if it is known."""
        return None

    def rounded_to(self, part: str, number: int) -> torch.dtype | None:
        """The shortest intermediate dtype, if it is known and is not the result's."""
        return None

    @functools.cached_property
    def truth(self) -> Seen | None:
        return self.in_double(self.inputs)

    def in_double(self, inputs: tuple) -> Seen | None:
        """A call in float64; None if that fails or draws random numbers, which would be different ones."""
        try:
            with in_double():
                found = observe_call(self.fn_in_double, doubled(inputs))
        except Exception:
            return None
        untouched = observe_call(lambda: None, ((), {})).random
        return found if found.error is None and torch.equal(found.random, untouched) else None

    def leaf(self, seen: Seen | None, part: str, number: int) -> torch.Tensor | None:
        leaves = [] if seen is None else tree_flatten(getattr(seen, part))[0]
        return leaves[number] if number < len(leaves) and isinstance(leaves[number], torch.Tensor) else None

    def errors(self, part: str, number: int) -> Iterator[torch.Tensor]:
        for seed in range(NEIGHBOURS):
            near = moved(self.inputs, seed, torch.float32)  # only results that are not float64 themselves get here
            eager = self.leaf(observe_call(self.fn, near), part, number)
            exact = self.leaf(self.in_double(near), part, number)
            if eager is not None and exact is not None and eager.shape == exact.shape:
                yield error(real(eager), real(exact).double())
        truth = self.leaf(self.truth, part, number)
        for seed in range(ORDERS) if truth is not None else ():
            other = reordered(self.inputs, seed)
            eager = self.leaf(observe_call(self.fn, other), part, number)
            exact = self.leaf(self.in_double(other), part, number)
            if eager is not None and exact is not None and eager.shape == exact.shape == truth.shape:
                is_same = error(real(exact), real(truth).double()) <= SAME * real(truth).abs()
                yield torch.where(is_same, error(real(eager), real(exact).double()), 0.0)

    def scaled_errors(self, at: torch.Tensor, part: str, number: int) -> Iterator[torch.Tensor]:
        """For a result in float64: eager's errors in float32, scaled to float64."""
        for seed in range(NEIGHBOURS):
            near = moved(singled(self.inputs), seed)
            eager = self.leaf(observe_call(self.fn_in_single, near), part, number)
            exact = self.leaf(self.in_double(near), part, number)
            if (
                eager is not None
                and exact is not None
                and eager.shape == exact.shape == at.shape
                and eager.dtype in DOUBLE
            ):
                yield scaled_error(real(eager), real(exact), real(at))
        # Float32 does not show everything: eager sums some of it in float64. A change by reordering is rounding.
        for seed in range(ORDERS):
            eager = self.leaf(observe_call(self.fn, reordered(self.inputs, seed)), part, number)
            if eager is not None and eager.shape == at.shape:
                apart = error(real(eager), real(at).double())
                yield torch.where(apart <= SAME * real(at).abs(), apart, 0.0)


class JudgeOnGpu(Judge):
    """Results that torch's own tests accept as equal are right; the rest is judged as on a CPU."""

    def __call__(self, eager: torch.Tensor, got: torch.Tensor, part: str, number: int) -> str | None:
        try:
            torch.testing.assert_close(got, eager, equal_nan=True)
        except AssertionError:
            return super().__call__(eager, got, part, number)
        return None


def errors_without_onednn(errors: Iterator[torch.Tensor], is_wanted: bool) -> Iterator[torch.Tensor]:
    with torch.backends.mkldnn.flags(enabled=False) if is_wanted else contextlib.nullcontext():
        yield from errors


def plain_equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b, equal_nan=True)
    if isinstance(a, (bool, int, float, complex, str, torch.dtype, torch.device, torch.Size, type(None))):
        return repr(a) == repr(b)
    return True


def aliases(seen: Seen) -> list[int]:
    """For each tensor of the result and the inputs, the index of the first one that it shares storage with."""
    first: dict[int, int] = {}
    found = []
    for i, leaf in enumerate(tree_flatten((seen.inputs, seen.result))[0]):
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and not leaf.is_nested and leaf.numel():
            found.append(first.setdefault(leaf.untyped_storage().data_ptr(), i))
    return found


def set_seed(n: int) -> None:
    torch.default_generator.manual_seed(
        n
    )  # torch.manual_seed records a stack trace for each GPU that may be initialized later
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(n)
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
    """Hide warnings: samples warn about prototypes and deprecations, which is torch's business."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(threads)


def is_cpu(device: str) -> bool:
    return torch.device(device).type == "cpu"


def takes(op: Any, dtype: torch.dtype, device: str) -> bool:
    return dtype in op.supported_dtypes(torch.device(device).type)


def operators(device: str = "cpu") -> list[Any]:
    """Torch's records of the operators that run on a device (importing them takes seconds)."""
    with quiet():
        records = operator_records()
    return [op for op in records if any(takes(op, dtype, device) for dtype in DTYPES)]


def summary(outcomes: list[Outcome], backend: str = "eager") -> str:
    counted = collections.Counter(outcome.verdict for outcome in outcomes)
    codes = collections.Counter(code for o in outcomes if o.verdict == "break" for code in o.breaks)
    by_code = f" ({', '.join(f'{code} {number}' for code, number in codes.most_common())})" if codes else ""
    line = (
        f"{len(outcomes)} operators: {counted['equal']} equal with no break, {counted['break']} equal with "
        f"breaks{by_code}, {counted['different']} different, {counted['crashed']} crashed"
    )
    if backend == "eager":
        return line
    ways = collections.Counter(outcome.way for outcome in outcomes if outcome.samples)
    return f"{line}; {', '.join(f'{ways[way]} {way}' for way in WAYS)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME", help="operators whose name contains this")
    parser.add_argument("--limit", type=int, help="the first so many operators")
    parser.add_argument("--samples", type=int, help="at most so many samples of each")
    parser.add_argument("--breaks", action="store_true", help="list operators with breaks too")
    parser.add_argument("--backend", default="eager", help="eager (the default) or burnish")
    parser.add_argument("--dtype", help="each operator in each of these it takes, as float32,int64")
    parser.add_argument("--device", default="cpu", help="where samples are made: cpu (the default) or cuda")
    parser.add_argument("--refused", action="store_true", help="list operators that are not compiled")
    settings = parser.parse_args()
    dtypes = [getattr(torch, name) for name in settings.dtype.split(",")] if settings.dtype else [None]
    device = settings.device
    if not is_cpu(device):
        torch.cuda.init()  # so that its generator is compared from the first operator on
    chosen = [op for op in operators(device) if not settings.only or settings.only in full_name(op)][: settings.limit]
    pairs = [
        (op, dtype) for op, dtype in itertools.product(chosen, dtypes) if dtype is None or takes(op, dtype, device)
    ]
    start, outcomes = time.monotonic(), []
    with quiet():
        for op, dtype in pairs:
            outcomes.append(check_operator(op, settings.samples, settings.backend, dtype, device))
            if sys.stderr.isatty():
                print(f"\r{len(outcomes)}/{len(pairs)} {outcomes[-1].name:40.40}", end="", file=sys.stderr)
    shown = VERDICTS[1 if settings.breaks else 2 :]
    for outcome in sorted(outcomes, key=lambda o: (VERDICTS.index(o.verdict), o.name)):
        if outcome.verdict in shown:
            print(f"{outcome.verdict:10} {outcome.name}: {outcome.detail}")
    if settings.refused:
        for outcome in outcomes:
            if outcome.way == "refused":
                print(f"refused    {outcome.name}: {'; '.join(sorted(outcome.refusals))}")
    unsampled = [outcome.name for outcome in outcomes if not outcome.samples]
    if unsampled:
        print(f"no usable sample: {', '.join(unsampled)}")
    print(f"{sum(outcome.samples for outcome in outcomes)} samples in {time.monotonic() - start:.0f} s")
    print(summary(outcomes, settings.backend))
    return 1 if any(outcome.verdict in VERDICTS[2:] for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
