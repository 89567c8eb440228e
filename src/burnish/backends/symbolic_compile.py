"""Symbolic sizes and numbers for custom backends: one compilation for many of them, as under `torch.compile`.

    compiled = compile_symbolic(compile_graph, gm, [x, 3])    x: a size is symbolic
    compiled(x of another size, 4)                            the same code, if the backend asked for nothing special

The backend gets the contract that `torch.compile` has for symbols. Each symbolic size is an input of the graph, before
the others. The example inputs are real tensors, a `SymInt` for each size and whole number, and a `SymFloat` for each
float. Compilers built on AOTAutograd find the symbols of the tensors' sizes in a tracing context. What a compiler asks
about a symbol, such as `size == 4`, becomes a condition of its code: values that do not meet it are compiled again. A
backend that raises an error for symbols gets constants. Where it raises for these too, and so does the graph when it
runs eagerly, the error is the program's own: `x.select(0, 5)` of a shorter tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node

from .. import events
from ..captured_graph.compile_request import request_of
from ..compiler.adapters.specialize_numbers import LIMIT, NUMBERS, exactly, own_copy
from ..concurrency import thread_locks
from ..concurrency.outside_errors import reraise_from_outside
from ..errors import BackendError
from ..runtime.program.restore_inputs_on_error import has_drawing_name, name_of
from .data_dependent_tracing import reads_data
from .tracing_context import needs_context

Compile = Callable[[GraphModule, list[Any]], Callable[..., Any]]
SYMBOLS = (torch.SymInt, torch.SymFloat)


class SymbolInput(NamedTuple):
    """Where the value of a symbol is found among the inputs: a number, or a tensor's size."""

    input: int
    dimension: int | None

    def value(self, inputs: Sequence[Any]) -> Any:
        found = inputs[self.input]
        return found if self.dimension is None else found.shape[self.dimension]


@dataclass(slots=True)
class SpecializedCode:
    """Compiled code, and the numbers it is for."""

    constants: tuple[Any, ...]
    holds: Callable[[list[Any]], bool]
    compiled: Callable[..., Any]
    is_checked: bool
    """False: the backend may have kept a symbol in place of the number of each call, so the first run is compared."""


def has_symbols(gm: GraphModule, example_inputs: list[Any], may_run_graph: bool = False) -> bool:
    """Whether sizes of the inputs are symbolic or numbers live, and can be symbols for a backend. `may_run_graph`: it
    may be one that returns the graph, for which no run has to be compared."""
    if any(map(is_symbolic_number, example_inputs)):
        if not (may_run_graph or is_comparable(gm)):
            return False
    elif request_of(gm).symbolic_inputs is None:
        return False
    return not (reads_data(gm) or needs_context(gm, example_inputs))


def is_comparable(gm: GraphModule) -> bool:
    """Whether two runs of the graph give the same results."""
    is_any_random = any(is_random(node) for node in gm.graph.nodes if node.op.startswith("call_"))
    return not (request_of(gm).written_inputs or is_any_random)


def is_symbolic_number(value: Any) -> bool:
    return type(value) is int and abs(value) < 1 << 63 or type(value) is float and math.isfinite(value)


def is_random(node: Node) -> bool:
    return node.op == "call_module" or has_drawing_name(name_of(node))


def compile_symbolic(compile_graph: Compile, gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """Compiles for the example inputs, and again where the numbers of a call do not fit: up to ``LIMIT`` times."""
    symbolic = request_of(gm).symbolic_inputs
    shapes = {} if symbolic is None else symbolic.shapes
    places = [
        SymbolInput(at, dim) for at, sizes in shapes.items() for dim, size in enumerate(sizes) if type(size) is not int
    ]
    places += [SymbolInput(at, None) for at, value in enumerate(example_inputs) if is_symbolic_number(value)]
    numbers_at = [at for at, value in enumerate(example_inputs) if isinstance(value, NUMBERS)]
    variants: list[SpecializedCode] = []
    lock = thread_locks.rlock()
    takes_symbols = True

    def constants_of(inputs: Sequence[Any]) -> tuple[Any, ...]:
        given = [inputs[at] for at in numbers_at]
        return tuple([type(value) if is_symbolic_number(value) else exactly(value) for value in given])

    def find(inputs: Sequence[Any]) -> SpecializedCode | None:
        constants, numbers = constants_of(inputs), [place.value(inputs) for place in places]
        for variant in variants:
            if variant.constants == constants and variant.holds(numbers):
                return variant
        return None

    def find_or_compile(inputs: Sequence[Any]) -> SpecializedCode | None:
        found = find(inputs)
        if found is None:
            with lock:
                found = find(inputs)
                if found is None:
                    if len(variants) >= LIMIT:
                        return None
                    found = compile_variant(list(inputs))
                    variants.append(found)
        return found

    def compile_variant(inputs: list[Any]) -> SpecializedCode:
        nonlocal takes_symbols
        if takes_symbols:
            try:
                holds, compiled, runs_graph = compile_with_symbols(compile_graph, gm, inputs, places)
                if runs_graph or not numbers_at or is_comparable(gm):
                    return SpecializedCode(constants_of(inputs), holds, compiled, runs_graph or not numbers_at)
                takes_symbols = False
            except BackendError as error:
                events.emit("backend.constants", text=f"compiled for constant sizes and numbers, because: {error}")
                takes_symbols = False
        expected = [exactly(place.value(inputs)) for place in places]
        compiled = compile_graph(own_copy(gm), inputs)
        return SpecializedCode(
            constants_of(inputs), lambda numbers: list(map(exactly, numbers)) == expected, compiled, True
        )

    def check(variant: SpecializedCode, inputs: Sequence[Any]) -> Any:
        nonlocal takes_symbols
        found, expected = variant.compiled(*inputs), gm.forward(*inputs)
        variant.is_checked = all(map(is_near, found, expected))
        if variant.is_checked:
            return found
        events.emit("backend.constants", text="compiled for constant numbers, because the backend keeps its example's")
        takes_symbols = False
        with lock:
            if variant in variants:
                variants.remove(variant)
        return expected

    def run(*inputs: Any) -> Any:
        variant = find_or_compile(inputs)
        if variant is None:
            return gm.forward(*inputs)
        return variant.compiled(*inputs) if variant.is_checked else check(variant, inputs)

    find_or_compile(example_inputs)
    return with_own_errors(gm, run)


def with_own_errors(gm: GraphModule, run: Callable[..., Any]) -> Callable[..., Any]:
    """For code that is compiled when it is called: a backend's error gives way to the graph's own."""
    written = request_of(gm).written_inputs
    is_repeatable = not any(is_random(node) for node in gm.graph.nodes if node.op.startswith("call_"))

    def run_with_own_errors(*inputs: Any) -> Any:
        try:
            return run(*inputs)
        except BackendError as error:
            if not is_repeatable or error.__cause__ is None:  # else it raised while it compiled: nothing has run
                raise
            kept: BackendError | None = error
        try:
            with torch.no_grad():
                gm.forward(*[value.clone() if at in written else value for at, value in enumerate(inputs)])
        except Exception as error:
            reraise_from_outside(error)
            kept = None
        if kept is not None:
            raise kept
        return gm.forward(*inputs)  # raises, after the same writes as the program

    return run_with_own_errors


def compile_with_symbols(
    compile_graph: Compile, gm: GraphModule, inputs: list[Any], places: list[SymbolInput]
) -> tuple[Callable[[list[Any]], bool], Callable[..., Any], bool]:
    """The condition for other numbers, the code, and whether the code is the graph itself."""
    # These imports are slow.
    from torch._dynamo.source import ConstantSource
    from torch._functorch import config
    from torch._guards import TracingContext, tracing
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatefulSymbolicContext

    environment = ShapeEnv()
    mode = FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True)
    context = TracingContext(mode)
    examples, shown, of_places = list(inputs), {}, {}
    names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    with tracing(context), config.patch(donated_buffer=False):  # backward may be called with retain_graph=True
        for at, (value, name) in enumerate(zip(inputs, names, strict=True)):
            source = ConstantSource(name)
            if is_symbolic_number(value):
                symbol = environment.create_unspecified_symbol(value, source, DimDynamic.DYNAMIC)
                make = environment.create_symintnode if type(value) is int else environment.create_symfloatnode
                examples[at] = shown[at] = of_places[SymbolInput(at, None)] = make(symbol, hint=value, source=source)
            elif type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided:
                open_dims = {place.dimension for place in places if place.input == at}
                wanted = [DimDynamic.DYNAMIC if dim in open_dims else DimDynamic.STATIC for dim in range(value.dim())]
                about = StatefulSymbolicContext(dynamic_sizes=wanted, tensor_source=source, view_base_context=None)
                context.tensor_to_context[value] = about
                shown[at] = mode.from_tensor(value, source=source, symbolic_context=about)
                of_places.update({SymbolInput(at, dim): shown[at].shape[dim] for dim in open_dims})
        symbols = [of_places.get(place, place.value(inputs)) for place in places]
        sizes = {
            str(symbol): (place, symbol)
            for place, symbol in zip(places, symbols, strict=True)
            if place.dimension is not None and isinstance(symbol, torch.SymInt)
        }
        graph = own_copy(gm, list(sizes))
        given = [symbol for _, symbol in sizes.values()] + examples
        for node, value in zip(graph.graph.find_nodes(op="placeholder"), given, strict=True):
            node.meta["example_value"] = value
        for node, at in zip(graph.graph.find_nodes(op="placeholder")[len(sizes) :], range(len(inputs)), strict=True):
            node.meta["example_value"] = shown.get(at, inputs[at])
        code, forward = graph.code, type(graph).forward
        compiled = compile_graph(graph, given)
        runs_graph = is_run_by(graph, forward, compiled) and graph.code == code
    if getattr(context.fw_metadata, "bw_donated_idxs", ()) is None:
        context.fw_metadata.bw_donated_idxs = []  # None counts as "some" in backward
    first = [place for place, _ in sizes.values()]
    if not first:
        return condition_of(environment, symbols), compiled, runs_graph
    run: Callable[..., Any] = lambda *given: compiled(*[place.value(given) for place in first], *given)  # noqa: E731
    return condition_of(environment, symbols), run, runs_graph


def is_run_by(graph: GraphModule, forward: Callable[..., Any], compiled: Callable[..., Any]) -> bool:
    """Whether a backend has returned ``gm`` or ``gm.forward`` as it was: it can have kept no number of the example."""
    compiled = getattr(compiled, "compiled", compiled)  # in a FirstRun, which has gm.forward for gm without hooks
    is_method = type(compiled) is MethodType and compiled.__self__ is graph and compiled.__func__ is forward
    return is_method and type(graph).forward is forward and "forward" not in vars(graph)


def is_near(found: Any, expected: Any) -> bool:
    """Whether two results are the same but for rounding: a symbol in place of its number is far off."""
    if not isinstance(expected, torch.Tensor):
        return type(found) is type(expected) and (found is expected or bool(found == expected))
    if found.shape != expected.shape or found.dtype is not expected.dtype:
        return False
    found, expected = found.detach(), expected.detach()
    if not expected.dtype.is_floating_point or not expected.numel():
        return bool(torch.equal(found, expected))
    largest = float(expected.abs().nan_to_num(0.0, 0.0).max())
    return torch.allclose(found, expected, rtol=0.05, atol=0.01 * largest + 1e-6, equal_nan=True)


def condition_of(environment: Any, symbols: list[Any]) -> Callable[[list[Any]], bool]:
    """Whether numbers in place of ``symbols`` meet all that was asked about them, also when the code ran: a backend may
    have kept a symbol and computed with it."""
    which = [at for at, symbol in enumerate(symbols) if isinstance(symbol, SYMBOLS)]
    fixed = [(at, exactly(symbol)) for at, symbol in enumerate(symbols) if not isinstance(symbol, SYMBOLS)]
    asked, text = -1, None

    def holds(numbers: list[Any]) -> bool:
        nonlocal asked, text
        if asked != len(environment.guards):
            asked = len(environment.guards)
            text = environment.produce_guards_expression([symbols[at] for at in which], ignore_static=False)
        if any(exactly(numbers[at]) != value for at, value in fixed):
            return False
        return text is None or environment.evaluate_guards_expression(text, [numbers[at] for at in which])

    return holds
