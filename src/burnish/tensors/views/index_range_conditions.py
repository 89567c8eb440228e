"""The margins by which indices stay where the code for them supposes: within a part of a concatenated value, or a row.

    with noting() as noted:
        index_of(...)           note((low, start), (start + length, high + 1))
    noted                       [(8, 8, None), (20, 16, None)]      the first of a pair is at least the second

An index is found for certain sizes. A program for symbolic sizes is right for others where all that holds there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Sequence
from contextvars import ContextVar

from ..fit_size_formulas import Formula, NoNumber, Point, Space, StructureDiffers
from .affine_indices import Affine

Pair = tuple[int, int, Hashable]
"""The first number is not less than the second. The third, if any, says what a view's dimensions are divided by."""

Noted = list[Pair | str]
"""Pairs, and words that must be the same for all sizes."""

_noted: ContextVar[Noted | None] = ContextVar("noted", default=None)


@contextlib.contextmanager
def noting() -> Iterator[Noted]:
    """Collects what is noted within."""
    here: Noted = []
    token = _noted.set(here)
    try:
        yield here
    finally:
        _noted.reset(token)


@contextlib.contextmanager
def dropped_on_error() -> Iterator[None]:
    """Drops what is noted if the block raises, as another way is tried then."""
    noted = _noted.get()
    before = 0 if noted is None else len(noted)
    try:
        yield
    except Exception:
        if noted is not None:
            del noted[before:]
        raise


def note_within(
    what: str, x: Affine, extents: tuple[int, ...], start: int, length: int, is_divided: bool = False
) -> None:
    """Records that start <= x < start + length. `is_divided`: x is the quotient or remainder of a division."""
    noted = _noted.get()
    if noted is not None:
        low, high = x.span(extents)
        signs = [(c > 0) - (c < 0) for c in x.coefficients]  # which ends are the lowest and the highest
        noted.append(f"{what} {signs}")
        by = (length, x.coefficients) if is_divided else None
        noted += [(low, start, by), (start + length, high + 1, by), *((abs(c), 0, None) for c in x.coefficients if c)]


def note(*pairs: tuple[int, int]) -> None:
    noted = _noted.get()
    if noted is not None:
        noted += [(*pair, None) for pair in pairs]


def conditions_of(noted: Sequence[Noted], space: Space) -> tuple[Formula, ...]:
    """The formulas that must not be negative, from what is noted at each point of the space."""
    if len(set(map(len, noted))) > 1:
        raise StructureDiffers("indices are found otherwise for other sizes")
    found: dict[Formula, None] = {}
    for examples in dict.fromkeys(zip(*noted, strict=True)):
        pairs = [pair for pair in examples if not isinstance(pair, str)]
        if len(pairs) != len(examples):
            if len(set(examples)) > 1:
                raise StructureDiffers("a value is read in other parts for other sizes")
            continue
        try:
            margin = difference(pairs, space)
        except NoNumber:
            if pairs[0][2] is None or len({by for _, _, by in pairs}) > 1:
                raise
            # Only the offset varies, and its quotients differ. The address has a formula, so it is that of the rows in
            # memory one after the other, where it does not matter how the offset is divided.
            continue
        if isinstance(margin, Formula) and not is_never_negative(margin):
            found[margin] = None
    return tuple(found)


def difference(pairs: Sequence[Pair], space: Space) -> int | Formula:
    try:
        return space.fit([more - less for more, less, _ in pairs])
    except NoNumber:
        more, less = (space.fit(values) for values in list(zip(*pairs, strict=True))[:2])
        known = more if isinstance(more, Formula) else less
        assert isinstance(known, Formula)
        none = (0,) * len(known.names)
        terms = [*terms_of(more, none), *((-factor, powers) for factor, powers in terms_of(less, none))]
        return Formula(known.names, tuple(terms), known.quotients)


def terms_of(x: int | Formula, none: Point) -> tuple[tuple[int, Point], ...]:
    return x.terms if isinstance(x, Formula) else ((x, none),)


def is_never_negative(margin: Formula) -> bool:
    """Whether that is certain for sizes from 1 on."""
    if all(factor >= 0 for factor, _ in margin.terms) and all(added >= 0 for _, added, _ in margin.quotients):
        return True
    grows = all(factor >= 0 for factor, powers in margin.terms if any(powers))
    return not margin.quotients and grows and sum(factor for factor, _ in margin.terms) >= 0
