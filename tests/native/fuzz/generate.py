"""Generates a random program from a seed: lines are added one by one, each chosen from the values at hand."""

from __future__ import annotations

import contextlib
import warnings

import torch

from .program import Program
from .program_builder import Maker, Rejected
from .random_operators import OPERATORS

MOST_LINES = 14


def generate(seed: int) -> Program:
    """The same for the same seed, whatever torch's random state is."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.default_generator.manual_seed(seed)
        maker = Maker(seed)
        for _ in range(maker.integer(1, 2)):
            maker.new_input()
        wanted = maker.integer(1, MOST_LINES)
        weights = [weight for weight, _ in OPERATORS]
        for _ in range(20 * MOST_LINES):
            if len(maker.lines) >= wanted:
                break
            grow = maker.random.choices(OPERATORS, weights)[0][1]
            with contextlib.suppress(Rejected):
                grow(maker)
        program = maker.program()
        # Inputs made for lines that came to nothing.
        return program.without(set(), program.outputs)
