"""A compiled graph as data: its drivers and what surrounds them; and how that is put together.

    recipe = Recipe(Frozen(main, prologue, state=(1, 2)))
    compiled = recipe.assembled(tools, eager)

The compiler ends in a recipe, and so does what is read from disk (`kept`): from here on there is one way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..runtime.apart import Apart
from ..runtime.differentiable import Aside, Differentiable, Layout
from ..runtime.draft import Draft
from ..runtime.frozen import FrozenProgram
from ..runtime.kernels import NativeFunction, NativeKernel, NativeSequence
from ..runtime.program import Program


@dataclass(frozen=True, slots=True)
class Tools:
    """Native code that every program uses."""

    runner: NativeFunction
    sampler: NativeKernel

    def join(self, steps: Any) -> NativeSequence:
        return NativeSequence(self.runner, steps)


@dataclass(frozen=True, slots=True)
class Plain:
    driver: Draft


@dataclass(frozen=True, slots=True)
class Frozen:
    main: Draft
    prologue: Draft
    state: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Halved:
    forward: Draft
    backward: Draft
    layout: Layout


@dataclass(frozen=True, slots=True)
class Recipe:
    parts: Plain | Frozen | Halved
    is_aside: bool = False
    """Over tensors that require gradients, none of which leave it."""
    written: tuple[int, ...] = ()
    """The inputs that are written to."""
    reaches: dict[int, int] = field(default_factory=dict)
    """Where some are: over how many bytes each input lies."""

    def assembled(
        self, tools: Tools, eager: Callable[..., Any]
    ) -> Apart | Aside | Differentiable | FrozenProgram | Program:
        made: Any
        join = tools.join
        match self.parts:
            case Plain(driver):
                made = driver.program(join)
            case Frozen(main, prologue, state):
                made = FrozenProgram(main.program(join), prologue.program(join), state, tools.sampler, eager)
            case Halved(forward, backward, layout):
                made = Differentiable(forward.program(join), backward.program(join), layout, eager)
        if self.is_aside:
            made = Aside(made)
        return Apart(made, eager, self.written, self.reaches) if self.written else made
