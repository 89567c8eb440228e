"""The source of random decisions of a program: a seed (long runs) or hypothesis (the normal suite)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st


class Choose:
    """Decisions made by ``integer(low, high)``, both ends included."""

    def __init__(self, integer: Callable[[int, int], int]):
        self.integer = integer

    def one(self, options: Sequence) -> Any:
        return options[self.integer(0, len(options) - 1)]

    def weighted(self, options: Sequence[tuple[int, Any]]) -> Any:
        at = self.integer(0, sum(weight for weight, _ in options) - 1)
        for weight, option in options:
            at -= weight
            if at < 0:
                return option
        raise AssertionError("weights are positive")

    def chance(self, percent: int) -> bool:
        return self.integer(0, 99) < percent


def from_seed(seed: int) -> Choose:
    return Choose(random.Random(seed).randint)


def from_hypothesis(draw: Callable) -> Choose:
    return Choose(lambda low, high: draw(st.integers(low, high)))
