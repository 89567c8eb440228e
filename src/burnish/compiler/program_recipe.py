"""A compiled graph as relocatable data without addresses: its drivers, and how they become a program.

    recipe = Recipe(Frozen(main, prologue, state=(1, 2)))
    compiled = recipe.assembled(tools, eager)

The compiler returns a recipe, and so does the cache on disk (`program_serialization`). From here on both take one path.
Recipes and their parts are named tuples. A process that reads a program must create their classes first, which takes a
data class fifteen times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..runtime.program.autograd_function import (
    Differentiable,
    GradientLayout,
    SymbolicDifferentiable,
    WithoutGradientFlow,
    with_gradients_instead,
)
from ..runtime.program.frozen_prologue import FrozenProgram
from ..runtime.program.input_alias_check import AliasCheckedProgram
from ..runtime.program.native_kernels import NativeFunction, NativeKernel, NativeSequence
from ..runtime.program.program import LinkedProgram
from ..runtime.program.several_autograd_nodes import (
    DifferentiableInPieces,
    OutputLayout,
    PieceLayout,
    SymbolicDifferentiableInPieces,
)
from ..runtime.program.unbound_driver import UnboundDriver, paired_programs
from ..runtime.state_watch.native_watch import Watch
from ..tensors.fit_size_formulas import Formula, Point

if TYPE_CHECKING:
    from ..runtime.program.symbolic_size_program import SizeCheck
    from ..runtime.program.unbound_symbolic_driver import UnboundSymbolicDriver
    from .check_symbolic_sizes import Reach


class NativeTools(NamedTuple):
    """Native code that every program uses."""

    runner: NativeFunction
    memory_comparer: NativeKernel
    new_watch: Callable[[], Watch | None]

    def join(self, steps: Any) -> NativeSequence:
        return NativeSequence(self.runner, steps)


class Plain(NamedTuple):
    driver: UnboundDriver


class Frozen(NamedTuple):
    main: UnboundDriver
    prologue: UnboundDriver
    state: tuple[int, ...]


class Halved(NamedTuple):
    forward: UnboundDriver
    backward: UnboundDriver
    layout: GradientLayout


class Divided(NamedTuple):
    """Forward and the pieces of its backward, from outputs to inputs."""

    forward: UnboundDriver
    backwards: tuple[UnboundDriver, ...]
    pieces: tuple[PieceLayout, ...]
    outputs: OutputLayout


class Recipe(NamedTuple):
    parts: Plain | Frozen | Halved | Divided
    has_no_gradient_flow: bool
    """Some inputs require gradients, but gradients flow into no result."""
    written: tuple[int, ...]
    """The inputs that are written to."""
    reaches: dict[int, int]
    """How many bytes each input spans, if some are written to."""

    def assembled(
        self, tools: NativeTools, eager: Callable[..., Any]
    ) -> (
        AliasCheckedProgram
        | WithoutGradientFlow
        | Differentiable
        | DifferentiableInPieces
        | FrozenProgram
        | LinkedProgram
    ):
        made: Any
        join = tools.join
        match self.parts:
            case Plain(driver):
                made = driver.program(join)
            case Frozen(main, prologue, state):
                instead = with_gradients_instead(eager) if self.has_no_gradient_flow else eager
                made = FrozenProgram(
                    main.program(join), prologue.program(join), state, tools.memory_comparer, instead, tools.new_watch
                )
            case Halved(forward, backward, layout):
                made = Differentiable(*paired_programs((forward, backward), join), layout, eager)
            case Divided(forward, backwards, pieces, outputs):
                first, *others = paired_programs((forward, *backwards), join)
                made = DifferentiableInPieces(first, others, pieces, outputs, eager)
        if self.has_no_gradient_flow:
            made = WithoutGradientFlow(made)
        return AliasCheckedProgram(made, eager, self.written, self.reaches) if self.written else made


# ---- for symbolic sizes


class SymbolicPlain(NamedTuple):
    driver: UnboundSymbolicDriver


class SymbolicFrozen(NamedTuple):
    main: UnboundSymbolicDriver
    prologue: UnboundDriver
    state: tuple[int, ...]


class SymbolicHalved(NamedTuple):
    forward: UnboundSymbolicDriver
    backward: UnboundSymbolicDriver
    layout: Any
    """A GradientLayout in which numbers may be formulas."""


class SymbolicDivided(NamedTuple):
    forward: UnboundSymbolicDriver
    backwards: tuple[UnboundSymbolicDriver, ...]
    pieces: Any
    """Layouts in which numbers may be formulas, as of the outputs."""
    outputs: Any


class SymbolicRecipe(NamedTuple):
    parts: SymbolicPlain | SymbolicFrozen | SymbolicHalved | SymbolicDivided
    has_no_gradient_flow: bool
    written: tuple[int, ...]
    reaches: dict[int, int]
    open_inputs: tuple[int, ...]
    """The tensors with symbolic sizes."""
    reach: Reach | None = None

    def assembled(
        self, tools: NativeTools, eager: Callable[..., Any], otherwise: Callable[..., Any], check: SizeCheck, count: int
    ) -> Any:
        """`eager` runs the graph as it stands. `otherwise` runs it for sizes that the program is not right for, on
        `count` inputs: the main part of a frozen program also gets the results of its prologue."""

        def elsewhere(*inputs: Any) -> Any:
            return otherwise(*inputs[:count])

        check.conditions = tuple([formula for driver in drivers_of(self.parts) for formula in driver.conditions])
        instead = eager
        if self.has_no_gradient_flow:
            instead, otherwise = with_gradients_instead(eager), with_gradients_instead(otherwise)
        made: Any
        join = tools.join
        match self.parts:
            case SymbolicPlain(driver):
                made = driver.program(join, check, elsewhere)
            case SymbolicFrozen(main, prologue, state):
                made = FrozenProgram(
                    main.program(join, check, elsewhere),
                    prologue.program(join),  # type: ignore
                    state,
                    tools.memory_comparer,
                    instead,
                    tools.new_watch,
                )
            case SymbolicHalved(forward, backward, layout):
                made = SymbolicDifferentiable(
                    forward.program(join, check, otherwise),
                    backward.program(join, check, otherwise),
                    lambda point: settled(layout, point),
                    eager,
                    otherwise,
                )
            case SymbolicDivided(forward, backwards, pieces, outputs):
                made = SymbolicDifferentiableInPieces(
                    forward.program(join, check, otherwise),
                    [backward.program(join, check, otherwise) for backward in backwards],
                    lambda point: settled((pieces, outputs), point),
                    eager,
                    otherwise,
                )
        if self.has_no_gradient_flow:
            made = WithoutGradientFlow(made)
        return AliasCheckedProgram(made, eager, self.written, self.reaches, self.open_inputs) if self.written else made


def drivers_of(parts: Any) -> Iterator[UnboundSymbolicDriver]:
    for part in parts:
        if type(part) is tuple:
            yield from drivers_of(part)
        elif hasattr(part, "conditions"):
            yield part


def settled(tree: Any, point: Point) -> Any:
    """The tree with the values of its formulas at a point."""
    if isinstance(tree, Formula):
        return tree.at(point)
    if type(tree) is tuple:
        return tuple([settled(part, point) for part in tree])
    if type(tree) is dict:
        return {key: settled(part, point) for key, part in tree.items()}
    if is_dataclass(tree):
        return type(tree)(*[settled(getattr(tree, field.name), point) for field in fields(tree)])  # type: ignore
    return tree
