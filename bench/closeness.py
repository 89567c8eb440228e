"""Whether compiled arithmetic is right: as close to float64 as eager is, element by element.

    wrong = why_wrong(eager, compiled, truth)                  None, or the reason in words

The rule, for each element, once both are of one dtype and shape:

1. Integers and booleans are equal. Where one of the two floats is NaN or infinite, the compiled one equals eager's, or
   eager's result in float64.
2. The error against float64 is at most twice eager's plus one rounding unit (of the result's dtype, at the true value).
3. Eager's error may be zero by luck, for example in a sum whose terms cancel. An element that breaks rule 2 is
   therefore examined again. Eager's error there is taken to be its greatest error on the inputs, on `NEIGHBOURS` other
   inputs with each number moved by a few rounding units, and on inputs whose elements are permuted along a dimension
   if that leaves the true result unchanged: the terms of a sum have no inherent order. The search ends with success as
   soon as it finds a large enough error.

For results in float64 itself there is no better reference than eager's, except for variances and norms (`PreciseSums`).
There eager's error, in rounding units, is the greatest that it makes in any element in float32. It counts once more,
with one more rounding unit, because eager is not exact. What eager itself computes for another order, where the true
result stays the same, counts as well. Differences below four rounding units of the tensor's largest number, or of 1,
are ignored.

Complex numbers count as pairs. The sign of zero does not count. Where float64 gives no reference (a random operator
draws other numbers), eager's result takes its place.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

NEIGHBOURS = 200
FAR = 16
"""The most rounding units by which a number of a neighbouring input is moved; 2 for short dtypes."""

ORDERS = 60
"""How many reordered inputs are tried."""

SAME = 1e-12
"""The relative distance below which true results count as equal."""

FACTOR = 2.0
ROUNDINGS = 1.0
"""The allowance beyond twice eager's error, in rounding units."""

DOUBLE = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}

SINGLE = {torch.float64: torch.float32, torch.complex128: torch.complex64}

Errors = Callable[[], Iterator[torch.Tensor]]


def why_wrong(
    eager: torch.Tensor,
    got: torch.Tensor,
    truth: torch.Tensor | None,
    eager_errors: Errors | None = None,
    rounded_to: torch.dtype | None = None,
    noise: Callable[[torch.Tensor], torch.Tensor | None] | None = None,
) -> str | None:
    """`eager_errors` gives eager's errors on neighbouring inputs; it is called only if rule 2 does not hold.
    `rounded_to` is the shortest dtype that the result was rounded to on the way. `noise` gives, for the elements of a
    mask, the error that intermediate rounding can cause in any implementation; it replaces the one rounding unit where
    it is greater."""
    if bitwise_equal(eager, got):
        return None
    eager, got = real(eager), real(got)
    if not eager.is_floating_point():
        return describe_worst(eager, got, eager != got)
    finite = eager.isfinite()
    special = (eager == got) | (eager.isnan() & got.isnan())
    if truth is not None and comparable(truth) and truth.shape == eager.shape:
        meant = real(truth).to(eager.dtype)
        special |= ~(finite & got.isfinite()) & ((meant == got) | (meant.isnan() & got.isnan()))
    if bool((~finite & ~special).any()):
        return describe_worst(eager, got, ~finite & ~special)
    if bool((~got.isfinite() & ~special).any()):
        return describe_worst(eager, got, ~got.isfinite() & ~special)
    exact = (
        eager.double() if truth is None or truth.shape != eager.shape or not comparable(truth) else real(truth).double()
    )
    own, ours = error(eager, exact), error(got, exact)
    unit = rounded_to or eager.dtype
    slack = ROUNDINGS * rounding_unit(exact, unit)
    if eager.dtype is torch.float64:
        largest = exact[finite].abs().max() if bool(finite.any()) else exact.new_zeros(())
        slack = torch.maximum(
            2 * slack if unit is torch.float64 else slack, 4 * rounding_unit(largest.clamp(min=1.0), torch.float64)
        )
    bad = finite & ~special & (ours > FACTOR * own + slack)
    if not bool(bad.any()):
        return None
    least = noise(bad) if noise is not None else None
    if least is not None and least.shape == slack.shape:
        slack = torch.maximum(slack, least)
        bad &= ours > FACTOR * own + slack
    for other in eager_errors() if eager_errors is not None and bool(bad.any()) else ():
        if other.shape == own.shape:
            own = torch.maximum(own, other.where(other.isfinite(), 0.0))
            bad &= ours > FACTOR * own + slack
            if not bool(bad.any()):
                return None
    return describe_worst(eager, got, bad, exact, own) if bool(bad.any()) else None


def describe_worst(
    eager: torch.Tensor,
    got: torch.Tensor,
    bad: torch.Tensor,
    exact: torch.Tensor | None = None,
    own: torch.Tensor | None = None,
) -> str:
    worst = int(bad.flatten().to(torch.uint8).argmax())
    if exact is not None:
        excess = torch.where(bad, error(got, exact) / rounding_unit(exact, eager.dtype), -1.0)
        worst = int(excess.flatten().argmax())
    place = tuple(int(k) for k in torch.unravel_index(torch.tensor(worst), eager.shape)) if eager.ndim else ()
    text = (
        f"{int(bad.sum())} of {bad.numel()} elements, at {place}: {eager[place].item()!r} expected, got "
        f"{got[place].item()!r}"
    )
    if exact is not None and own is not None:
        unit = rounding_unit(exact, eager.dtype)[place].item()
        text += (
            f", truly {exact[place].item()!r}; off by {error(got, exact)[place].item() / unit:.1f} rounding "
            f"units, eager by {own[place].item() / unit:.1f}"
        )
    return text


def bitwise_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True saves the slow comparison; False means nothing (NaN, layouts and dtypes without `equal`)."""
    try:
        return a.layout is torch.strided and not a.is_nested and torch.equal(a, b)
    except RuntimeError:
        return False


def comparable(x: torch.Tensor) -> bool:
    return x.dtype in (torch.float64, torch.complex128)


def real(x: torch.Tensor) -> torch.Tensor:
    """The numbers, complex ones as pairs."""
    x = x.detach()
    if x.layout is not torch.strided:
        x = x.to_dense()
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def error(x: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    return (x.double() - exact).abs().nan_to_num(nan=math.inf, posinf=math.inf)


def scaled_error(x: torch.Tensor, exact: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """1.5 times the greatest error in float32, as the same number of rounding units of float64 at `at`."""
    units = error(x, exact) / rounding_unit(exact, torch.float32)
    worst = units[units.isfinite()].max() if units.numel() else 0.0
    return (FACTOR + 1) / FACTOR * worst * rounding_unit(at.double(), torch.float64)


def rounding_unit(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance from the numbers to the next ones of the dtype."""
    info = torch.finfo(dtype)
    _, exponent = torch.frexp(x.abs().nan_to_num(nan=0.0, posinf=info.max).clamp(info.tiny, info.max))
    return torch.ldexp(torch.full_like(x, info.eps), (exponent - 1).double())


# -- inputs for the true result, and neighbours of the given ones ------------------------------------------------------


def doubled(tree: Any) -> Any:
    """Arguments with every float in float64; dtype arguments are replaced too."""
    return in_dtypes(tree, DOUBLE)


def singled(tree: Any) -> Any:
    """Arguments with every float64 in float32; dtype arguments are replaced too."""
    return in_dtypes(tree, SINGLE)


def in_dtypes(tree: Any, dtypes: dict[torch.dtype, torch.dtype]) -> Any:
    def change(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.to(dtypes[leaf.dtype]) if leaf.dtype in dtypes else leaf.clone()
        return dtypes.get(leaf, leaf) if isinstance(leaf, torch.dtype) else leaf

    return tree_map(change, tree)


def moved(tree: Any, seed: int, unit: torch.dtype = torch.float64) -> Any:
    """Arguments with every float moved by some rounding units; integers too, as floats, for every other seed.

    The units are those of `unit` where that is shorter: a float64 that is later rounded to float32 must be moved far
    enough to make a difference there. This does not loosen the rule: the true result and eager's are both computed
    from the moved inputs.
    """
    generator = torch.Generator().manual_seed(seed)

    def change(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        is_whole = not (leaf.is_floating_point() or leaf.is_complex() or leaf.dtype is torch.bool)
        made = leaf.float() if is_whole and seed % 2 and leaf.layout is torch.strided else leaf.clone()
        if leaf.layout is torch.strided and (made.is_floating_point() or made.is_complex()) and leaf.numel():
            parts = torch.view_as_real(made.resolve_conj()) if made.is_complex() else made
            far = FAR if parts.dtype.itemsize > 2 else 2
            steps = torch.randint(-far, far + 1, parts.shape, generator=generator)
            size = max(torch.finfo(parts.dtype).eps, torch.finfo(unit).eps)
            parts.copy_(parts * (1 + steps.to(parts) * size))
        return made

    return tree_map(change, tree)


def reordered(tree: Any, seed: int) -> Any:
    """Arguments in which the elements of one tensor are permuted along one of its dimensions."""
    generator = torch.Generator().manual_seed(seed)
    leaves, spec = tree_flatten(tree)
    longer = [
        (k, dim)
        for k, x in enumerate(leaves)
        if isinstance(x, torch.Tensor) and x.layout is torch.strided and not x.is_nested and x.is_floating_point()
        for dim, size in enumerate(x.shape)
        if size > 1
    ]
    if not longer:
        return tree
    at, dim = longer[seed % len(longer)]
    order = torch.randperm(leaves[at].shape[dim], generator=generator).to(leaves[at].device)
    return tree_unflatten(
        [
            x.index_select(dim, order) if k == at else x.clone() if isinstance(x, torch.Tensor) else x
            for k, x in enumerate(leaves)
        ],
        spec,
    )


@contextlib.contextmanager
def in_double() -> Iterator[None]:
    """Inside the block, operators that convert integers to floats convert them to float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with PreciseSums():
            yield
    finally:
        torch.set_default_dtype(before)


class PreciseSums(TorchFunctionMode):
    """Variances and norms of float64 as a mean and a sum of squares, summed in nested blocks. Eager's own add one
    number after the other. They are off by a dozen rounding units for a few dozen numbers, in any order, and by forty
    for thousands: not a reference for results in float64 itself."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in VARIANCES and len(args) == 1 and kwargs.keys() <= {"correction", "dim", "keepdim"}:
            found = variance(args[0], **kwargs)
            return found.sqrt() if func is torch.Tensor.std else found
        if func is torch.linalg.vector_norm and args[1:] == (2,) and kwargs.keys() <= {"dim", "keepdim"}:
            return args[0].abs().square().sum(kwargs.get("dim"), kwargs.get("keepdim", False)).sqrt()
        return func(*args, **kwargs)


def variance(x: torch.Tensor, dim: Any = None, correction: float = 1, keepdim: bool = False) -> torch.Tensor:
    dims = tuple(range(x.ndim)) if dim is None else dim
    average = x.mean(dims, keepdim=True)
    n = x.numel() // max(average.numel(), 1)
    return (x - average).square().sum(dims, keepdim=keepdim) / max(n - correction, 0)


VARIANCES = (torch.Tensor.var, torch.Tensor.std)
