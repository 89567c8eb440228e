"""A compiled graph as relocatable data without addresses: its drivers, and how they become a program.

    recipe = Recipe(Frozen(main, prologue, state=(1, 2)))
    compiled = recipe.assembled(tools, eager)

The compiler returns a recipe, and so does the cache on disk (`program_serialization`). From here on both take one path.
Recipes and their parts are named tuples. A process that reads a program must create their classes first, which takes a
data class fifteen times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..runtime.program.autograd_function import (
    AtSymbolicSizes,
    Differentiable,
    DifferentiableGraph,
    GradientLayout,
    WithoutGradientFlow,
    with_gradients_instead,
)
from ..runtime.program.frozen_prologue import FrozenProgram
from ..runtime.program.input_alias_check import AliasCheckedProgram
from ..runtime.program.native_kernels import NativeFunction, NativeKernel, NativeSequence
from ..runtime.program.several_autograd_nodes import DifferentiableInPieces, OutputLayout, PieceLayout
from ..runtime.program.unbound_driver import UnboundDriver, paired_programs
from ..runtime.state_watch.native_watch import Watch
from ..tensors.fit_size_formulas import Formula, Point

if TYPE_CHECKING:
    from ..runtime.program.symbolic_size_program import SizeCheck
    from ..runtime.program.unbound_symbolic_driver import UnboundSymbolicDriver
    from .check_symbolic_sizes import Reach

    AnyDriver = UnboundDriver | UnboundSymbolicDriver


class NativeTools(NamedTuple):
    """Native code that every program uses."""

    runner: NativeFunction
    memory_comparer: NativeKernel
    new_watch: Callable[[], Watch | None]

    def join(self, steps: Any) -> NativeSequence:
        return NativeSequence(self.runner, steps)


class Plain(NamedTuple):
    driver: AnyDriver


class Frozen(NamedTuple):
    main: AnyDriver
    prologue: UnboundDriver
    state: tuple[int, ...]


class Halved(NamedTuple):
    """With symbolic sizes, numbers in the layouts may be formulas."""

    forward: AnyDriver
    backward: AnyDriver
    layout: GradientLayout


class Divided(NamedTuple):
    """Forward and the pieces of its backward, from outputs to inputs."""

    forward: AnyDriver
    backwards: tuple[AnyDriver, ...]
    pieces: tuple[PieceLayout, ...]
    outputs: OutputLayout


class OtherSizes(NamedTuple):
    """What a program with symbolic sizes does for sizes that it was not compiled from."""

    check: SizeCheck
    """Whether it is right for them."""
    otherwise: Callable[..., Any]
    """Runs the graph where it is not, on `count` inputs. The main part of a frozen program also gets the results of its
    prologue."""
    count: int


class Recipe(NamedTuple):
    parts: Plain | Frozen | Halved | Divided
    has_no_gradient_flow: bool
    """Some inputs require gradients, but gradients flow into no result."""
    written: tuple[int, ...]
    """The inputs that are written to."""
    reaches: dict[int, int]
    """How many bytes each input spans, if some are written to."""
    open_inputs: tuple[int, ...] = ()
    """The tensors with symbolic sizes."""
    reach: Reach | None = None

    def assembled(self, tools: NativeTools, eager: Callable[..., Any], sizes: OtherSizes | None = None) -> Any:
        """`eager` runs the graph as it stands. `sizes` are given for symbolic sizes."""
        instead = with_gradients_instead(eager) if self.has_no_gradient_flow else eager
        link = self.linker(tools, sizes)
        made: Any
        match self.parts:
            case Plain(driver):
                (made,) = link(driver)
            case Frozen(main, prologue, state):
                (main_program,) = link(main)
                once = prologue.program(tools.join)
                made = FrozenProgram(main_program, once, state, tools.memory_comparer, instead, tools.new_watch)
            case Halved(forward, backward, layout):
                made = in_autograd(Differentiable, link(forward, backward), (layout,), eager, sizes)
            case Divided(forward, backwards, pieces, outputs):
                made = in_autograd(DifferentiableInPieces, link(forward, *backwards), (pieces, outputs), eager, sizes)
        if self.has_no_gradient_flow:
            made = WithoutGradientFlow(made)
        return AliasCheckedProgram(made, eager, self.written, self.reaches, self.open_inputs) if self.written else made

    def linker(self, tools: NativeTools, sizes: OtherSizes | None) -> Callable[..., list[Any]]:
        """Makes programs of the drivers that are called together."""
        if sizes is None:
            return lambda *drivers: (
                paired_programs(drivers, tools.join) if len(drivers) > 1 else [drivers[0].program(tools.join)]
            )
        otherwise = with_gradients_instead(sizes.otherwise) if self.has_no_gradient_flow else sizes.otherwise
        drivers = list(drivers_of(self.parts))
        sizes.check.conditions = tuple([formula for driver in drivers for formula in driver.conditions])
        # Backward runs for any sizes that forward has run for.
        sizes.check.is_at_every_size |= any(driver.is_divided for driver in drivers)

        def elsewhere(*inputs: Any) -> Any:
            return otherwise(*inputs[: sizes.count])

        return lambda *drivers: [driver.program(tools.join, sizes.check, elsewhere) for driver in drivers]


def in_autograd(
    kind: type[DifferentiableGraph],
    programs: Sequence[Any],
    layouts: tuple,
    eager: Callable[..., Any],
    sizes: OtherSizes | None,
) -> DifferentiableGraph | AtSymbolicSizes:
    forward, *backwards = programs
    if sizes is None:
        return kind(forward, backwards, layouts, eager)
    graph = kind(forward, backwards, settled(layouts, forward.points[0]), eager)
    return AtSymbolicSizes(graph, lambda point: settled(layouts, point), sizes.otherwise)


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
