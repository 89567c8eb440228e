"""Every operator at changing sizes and with changing integers, also where eager raises: results and errors.

    python -m bench.attack.sizes --seed 1 --count 300
    python -m bench.attack.sizes --only diagonal --backend eager      capture alone

A case is a sample of torch's records. One of its integers is an argument that changes, or follows from the size of
another tensor; or one of its sizes changes, in all tensors that have it. A program is called with the numbers of the
sample and its neighbours until it is compiled for all of them, then with 0, 1, 2, negative and larger ones. Results,
the sizes that Python sees, effects before the call, and errors must be eager's.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

import burnish
from burnish.settings import patch

from ..operator_samples import operator_records
from ..operators import UNINITIALIZED
from .rules import LARGEST, resized
from .trial import counted_graphs

WAYS = ("an argument", "a size plus a constant", "the sizes", "the sizes, marked")
SKIPPED = UNINITIALIZED | {"bernoulli", "multinomial", "normal", "rand_like", "randn_like", "randint_like", "uniform"}
"""What is in memory, and what is drawn, is not compared."""
SEQUENCE = (0, 1, 3, 2, 5, 8)
"""Added to the number of the sample."""


@dataclass
class Case:
    name: str
    source: str
    names: list[str]
    values: list[Any]
    numbers: list[int]
    resized: dict[int, int] = field(default_factory=dict)
    """For a case of sizes: the size that changes, by position of the tensor."""
    dynamic: bool | None = None
    op: Any = None

    def function(self) -> tuple[Any, list[int]]:
        effects: list[int] = []
        namespace: dict[str, Any] = {"op": self.op, "torch": torch, "L": effects}
        exec(self.source, namespace)
        return namespace["fn"], effects

    def arguments(self, number: int) -> list[Any]:
        values = [with_size(x, self.resized[k], number) if k in self.resized else x for k, x in enumerate(self.values)]
        values = [x.detach().clone() if isinstance(x, torch.Tensor) else x for x in values]
        if self.resized:
            return values
        return [*values, torch.zeros(number + OFFSET) if "t.shape" in self.source else number]


OFFSET = 20


def with_size(x: torch.Tensor, before: int, size: int) -> torch.Tensor:
    for dim in [dim for dim, old in enumerate(x.shape) if old == before]:
        x = resized(x, dim, size)
    return x


def written(tree: Any, values: list[Any], at: int | None, count: list[int]) -> str:
    """The text of an argument. Integers are constants, but for one of them; tensors and all else are parameters."""
    if type(tree) in (list, tuple):
        parts = "".join(f"{written(part, values, at, count)}, " for part in tree)
        return f"[{parts}]" if type(tree) is list else f"({parts})"
    if type(tree) in (int, bool, float, str, type(None)) and repr(tree) not in ("nan", "inf", "-inf"):
        count[0] += 1
        return "n" if count[0] - 1 == at else repr(tree)
    count[0] += 1
    values.append(tree)
    return f"a{len(values) - 1}"


BODY = """def fn({names}):
    L.append(1)
    {number}
    r = op({call})
    some = r if isinstance(r, (tuple, list)) else (r,)
    return r, [tuple(t.shape) for t in some if isinstance(t, torch.Tensor)]
"""


def case_of(record: Any, sample: Any, at: int | None, number: str) -> tuple[str, list[str], list[Any]]:
    values: list[Any] = []
    count = [0]
    call = ", ".join(
        [written(x, values, at, count) for x in (sample.input, *sample.args)]
        + [f"{key}={written(x, values, at, count)}" for key, x in sample.kwargs.items()]
    )
    names = [f"a{k}" for k in range(len(values))]
    given = [*names, *([] if at is None else ["t"] if number else ["n"])]
    return BODY.format(names=", ".join(given), number=number or "pass", call=call), names, values


def leaves_of(tree: Any) -> list[Any]:
    if type(tree) in (list, tuple):
        return [leaf for part in tree for leaf in leaves_of(part)]
    return [tree]


def is_unsafe(name: str, kwargs: dict[str, Any]) -> bool:
    """Whether eager itself writes outside of its results for some sizes: the process dies at any time after it."""
    dilation = kwargs.get("dilation", 1)
    return (
        "max_pool" in name
        and bool(kwargs.get("ceil_mode"))
        and set(dilation if isinstance(dilation, (tuple, list)) else (dilation,)) != {1}
        or "segment_reduce" in name
        and bool(kwargs.get("unsafe"))
        or "flash_attention_for_cpu" in name
    )


def cases_of(record: Any, dtype: torch.dtype) -> Iterator[Case]:
    seen: set[tuple] = set()
    for sample in record.sample_inputs("cpu", dtype):
        leaves = leaves_of([sample.input, *sample.args, *sample.kwargs.values()])
        tensors = [x for x in tree_flatten(leaves)[0] if isinstance(x, torch.Tensor)]
        if any(type(x) is not torch.Tensor or x.layout is not torch.strided or x.numel() > LARGEST for x in tensors):
            continue
        if is_unsafe(record.name, sample.kwargs):
            continue
        form = tuple((x.dim() if isinstance(x, torch.Tensor) else type(x)) for x in leaves), tuple(sample.kwargs)
        sizes = {size for x in tensors for size in x.shape}
        for at, x in enumerate(leaves):
            if type(x) is not int or (form, at) in seen:
                continue
            seen.add((form, at))
            edges = {0, 1, 2, -1, -2, x - 1, *(s + d for s in sizes for d in (-1, 0, 1)), *(-s for s in sizes), 60}
            for number in ("", f"n = t.shape[0] - {OFFSET}"):
                source, names, values = case_of(record, sample, at, number)
                numbers = [x + d for d in SEQUENCE] + sorted(n for n in edges if n + OFFSET >= 2 or not number) + [x]
                yield Case(f"{record.name}, {'a size' if number else 'an argument'}", source, names, values, numbers)
        for size in sorted(sizes):
            if (form, "size", size) in seen or size < 2 or any(not isinstance(x, torch.Tensor) for x in tensors):
                continue
            seen.add((form, "size", size))
            source, names, values = case_of(record, sample, None, "")
            places = {k: size for k, x in enumerate(values) if isinstance(x, torch.Tensor) and size in x.shape}
            numbers = [size + d for d in SEQUENCE] + [4, 3, 2, 1, 0, 7, 40, size]
            for dynamic in (None, True):
                yield Case(f"{record.name}, sizes", source, names, values, numbers, places, dynamic)
    return


def outcome(fn: Any, effects: list[int], args: list[Any]) -> Any:
    effects.clear()
    torch.manual_seed(0)
    try:
        result = fn(*args)
    except Exception as error:
        if isinstance(error, burnish.errors.InternalError):
            raise
        text = str(error).partition("Exception raised from")[0]  # what follows are addresses of machine code
        return type(error).__name__, " ".join(text.split()), list(effects)
    return result, args, list(effects)


def difference(want: Any, got: Any) -> str | None:
    """Errors have the same type and text."""
    if isinstance(want[0], str) or isinstance(got[0], str):
        if want == got:
            return None
        if want[:2] == got[:2]:
            return f"other effects before the error: {want[2]} in eager, {got[2]} compiled"
        return f"eager {brief(want)}, compiled {brief(got)}"
    if want[2] != got[2]:
        return "other effects"
    mine, theirs = tree_flatten(want[:2]), tree_flatten(got[:2])
    if mine[1] != theirs[1]:
        return f"another structure: {mine[1]} {theirs[1]}"[:200]
    for a, b in zip(mine[0], theirs[0], strict=True):
        if not isinstance(a, torch.Tensor):
            if not (a is b or a == b or a != a and b != b):
                return f"{a!r} in eager, compiled {b!r}"
            continue
        if (a.dtype, a.shape) != (b.dtype, b.shape) or a.layout is torch.strided and a.stride() != b.stride():
            return f"{a.dtype} {tuple(a.shape)} {a.stride()} in eager, {b.dtype} {tuple(b.shape)} {b.stride()}"
        try:
            torch.testing.assert_close(b, a, equal_nan=True, rtol=1e-4, atol=1e-4)
        except AssertionError as error:
            return " ".join(str(error).split())[:160]
    return None


def brief(outcome: Any) -> str:
    return f"raises {outcome[0]}: {outcome[1]:.200}" if isinstance(outcome[0], str) else "returns"


def tried(case: Case, backend: str) -> tuple[str | None, bool]:
    """What differs from eager, and at which number; whether compiled code ran."""
    burnish.reset()
    eager, seen = case.function()
    plain, effects = case.function()
    compiled = burnish.compile(plain, backend=backend, dynamic=case.dynamic)
    before: list[int] = []
    ran = False
    for k, number in enumerate(case.numbers):
        try:
            given, again = case.arguments(number), case.arguments(number)
        except (RuntimeError, IndexError):
            continue  # no such tensors
        want = outcome(eager, seen, given)
        if not k and isinstance(want[0], str) or want[0] == "AssertionError":
            return None, ran  # an AssertionError while tracing is taken for ours
        if difference(want, outcome(eager, seen, case.arguments(number))) is not None:
            continue  # uninitialized memory
        why = difference(want, outcome(compiled, effects, again))
        ran |= burnish.was_compiled(compiled)
        if why is not None:
            return f"{number} after {before}: {why}", ran
        before.append(number)
    return None, ran


@contextlib.contextmanager
def as_attacked() -> Iterator[None]:
    with (
        patch(never_slower=False, eager_random=True, cache=False, on_error="raise", segment_limit=1000),
        warnings.catch_warnings(),
        torch.no_grad(),
    ):
        warnings.simplefilter("ignore")
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200, help="cases drawn; 0 runs all")
    parser.add_argument("--only", default="")
    parser.add_argument("--backend", default="burnish")
    asked = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = []
        for record in operator_records():
            if asked.only not in record.name or record.name in SKIPPED:
                continue
            dtype = torch.float32 if torch.float32 in record.dtypes else torch.int64
            if dtype not in record.dtypes:
                continue
            for case in cases_of(record, dtype):
                case.op = record.op
                cases.append(case)
    draw = random.Random(asked.seed)
    if asked.count and asked.count < len(cases):
        cases = draw.sample(cases, asked.count)
    wrong = ran = graphs = 0
    with as_attacked():
        for case in cases:
            try:
                with counted_graphs() as made:
                    why, was_compiled = tried(case, asked.backend)
                graphs += made["loops"]
                ran += bool(made) and was_compiled
            except Exception as error:
                why = f"the case fails: {type(error).__name__}: {error}"[:300]
            if why is not None:
                wrong += 1
                print(f"{case.name}{', dynamic' if case.dynamic else ''}: {why}")
                print("    " + "; ".join(line.strip() for line in case.source.splitlines()[2:4] if "pass" not in line))
                print(f"    {[tuple(x.shape) if isinstance(x, torch.Tensor) else x for x in case.values]}", flush=True)
    print(f"seed {asked.seed}: {len(cases)} programs, {ran} ran compiled ({graphs} graphs), {wrong} differ from eager")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
