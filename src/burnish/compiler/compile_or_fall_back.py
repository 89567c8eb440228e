"""The backend "burnish": compiles a captured graph, or falls back to eager.

The graph is lowered, with its gradients if they flow, scheduled, printed and compiled. A graph that is not supported
(with Python inside, for example) runs eagerly, node by node, and an event says why.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from .. import events
from ..captured_graph.compile_request import request_of
from ..concurrency import own_builtins, pause_garbage_collection, thread_locks
from ..concurrency.outside_errors import reraise_from_outside
from ..errors import warn
from ..foundation.torch_private import DisableTorchFunctionSubclass, set_grad_enabled
from ..ir.untraceable_graph import NumberLost, Untraceable
from ..runtime.contest import compile_activity_counter
from ..runtime.linking import cuda_module_loader
from ..runtime.program.autograd_function import autograd_is_watched
from ..runtime.program.restore_inputs_on_error import restoring
from ..settings import current, patch
from ..tensors.device_facts import gpus_of
from ..tensors.fit_size_formulas import GivenSize, NoFormula
from . import CompiledFn
from .adapters.adapter_order import Surroundings, wrap_in_adapters
from .adapters.autocast_off import autocast_is_on
from .adapters.eager_with_compiled_rng import draws_as_eager, run_eagerly_with_compiled_rng
from .adapters.exit_global_state import REPEATABLE, switches_left
from .adapters.lazy_conj_neg_views import outside_of_program
from .adapters.local_tensor_programs import local_program
from .adapters.observed_sizes import CompileForObservedSizes
from .adapters.specialize_numbers import LIMIT, compile_per_number, has_numbers, live_scalars_beside_sizes, own_copy
from .adapters.write_back_inputs import inputs_to_write_back, writing_back
from .check_symbolic_sizes import Check
from .load_or_compile import recipe_of, symbolic_recipe_of
from .partition_uncompiled_calls import has_steps, in_subgraphs
from .program_recipe import OtherSizes
from .uncompiled_calls import (
    let_call_stand_alone,
    let_functions_stand_alone,
    let_leaves_stand_alone,
    let_unstrided_stand_alone,
    why_native,
)


def burnish(gm: GraphModule, example_inputs: list[Any]) -> CompiledFn:
    """Burnish's own compiler."""
    if current().null_device is not None:
        from .null_device_dry_run import dry_run

        dry_run(gm, example_inputs, needs_gradients(gm, example_inputs))
        return run_eagerly_with_compiled_rng(gm)
    request = request_of(gm)
    has_symbols = request.symbolic_inputs is not None
    has_gradients = needs_gradients(gm, example_inputs)
    if not has_gradients:
        let_leaves_stand_alone(gm)
    if let_unstrided_stand_alone(gm, has_gradients):
        events.emit("lower.native", text="calls with sparse tensors or the like run as they are", graph_module=gm)
    if has_steps(gm):
        for why in why_native(gm):
            events.emit("lower.native", text=f"functions of the user run as they are: {why}", graph_module=gm)
        if has_symbols:
            request.size_numbers = tuple(request.symbolic_inputs.numbers)
        return parts_for_all_sizes(gm) if has_symbols else restoring(gm, in_subgraphs(gm, as_asked(burnish)))
    waits = request.calls_before_compiling
    if waits or autograd_is_watched():
        return DeferredCompile(gm, _compile_for_sizes, waits or (1 if has_symbols else 2))
    return _compile_for_sizes(gm, example_inputs)


ASKED = ("cuda_graphs", "max_autotune", "memory_budget", "never_slower", "shape_padding")
"""Settings that a function can be compiled with, through its mode or options."""


def as_asked(compile_graph: Callable[..., CompiledFn]) -> Callable[..., CompiledFn]:
    """A `compile_graph` for later, under the present settings: a mode is only in force while the backend is called."""
    asked = {name: getattr(current(), name) for name in ASKED}

    def compile_later(gm: GraphModule, example_inputs: list[Any], *sizes: Any) -> CompiledFn:
        with patch(**asked):
            return compile_graph(gm, example_inputs, *sizes)

    return compile_later


def as_asked_for_sizes(compile_graph: Callable[..., CompiledFn]) -> Callable[..., CompiledFn]:
    return pause_garbage_collection.paused()(own_builtins.usual()(as_asked(compile_graph)))


@pause_garbage_collection.paused()
@own_builtins.usual()
def _compile_for_sizes(gm: GraphModule, example_inputs: list[Any]) -> CompiledFn:
    local = local_program(gm, example_inputs, as_asked(_compile_for_sizes))
    if local is not None:
        return local
    outside = outside_of_program(gm, example_inputs, _compile_for_sizes)
    if outside is not None:
        return outside
    symbolic_inputs = request_of(gm).symbolic_inputs
    written = inputs_to_write_back(gm, example_inputs) if needs_gradients(gm, example_inputs) else ()
    if written:
        return writing_back(gm, example_inputs, written, _compile_for_sizes)
    if symbolic_inputs is None or not (symbolic_inputs.shapes or symbolic_inputs.numbers):
        return _compile_all(gm, example_inputs)  # the sizes that vary are those of no input of this graph
    return _compile_symbolic(gm, example_inputs, symbolic_inputs)


def _compile_symbolic(gm: GraphModule, example_inputs: list[Any], symbolic_inputs: Any) -> CompiledFn:
    """Compiles once for all sizes. If that is not possible, for each of the first few sizes."""
    eager = run_eagerly_with_compiled_rng(gm)
    apiece = CompilePerSize(gm, list(symbolic_inputs.shapes), eager, list(symbolic_inputs.numbers))
    try:
        why = why_not_symbolic(gm, example_inputs, symbolic_inputs)
        if why is not None:
            raise NoFormula(why)
        gradients = needs_gradients(gm, example_inputs)
        with patch(eager_random=draws_as_eager(gm)):
            recipe, tools = symbolic_recipe_of(gm, symbolic_inputs, gradients)
        space, examples = symbolic_inputs.space, symbolic_inputs.examples
        check = Check(gm, space, examples, gradients, live_scalars_beside_sizes(examples(space.points[0])))
        check.is_at_every_size = bool(symbolic_inputs.piecewise)
        others = OtherSizes(check.with_reach(recipe.reach), apiece, len(example_inputs))
        compiled = recipe.assembled(tools, eager, others)
        events.emit("guards.sizes", text=f"compiled for all {', '.join(symbolic_inputs.space.names)}", program=compiled)
        positions = list(symbolic_inputs.shapes)

        def work(inputs: Sequence[Any]) -> float:
            # Not the product of all their sizes: with a cache of many tensors no two calls would have equal work.
            return float(sum(inputs[k].numel() for k in positions)) or 1.0

        return wrap_in_adapters(
            compiled, Surroundings(gm, example_inputs, eager, recipe.written, compiled.takes_gradients, work)
        )
    except (NoFormula, Untraceable) as reason:
        why, cause = str(reason), "sizes"
        alone = alone_after_all(gm, reason.call) if isinstance(reason, Untraceable) else None
        if alone is not None:
            events.emit("lower.native", text=f"{alone}: {why}", graph_module=gm)
            request_of(gm).size_numbers = tuple(symbolic_inputs.numbers)
            return parts_for_all_sizes(gm)
    except Exception as error:
        reraise_from_outside(error)
        if current().on_error == "raise":
            raise
        why, cause = compiler_failed(gm, error, "compiles it for each size by itself"), "internal"
    events.emit("guards.sizes", text=f"compiled for each size by itself: {why}", graph_module=gm, fallback=cause)
    return apiece


def compiler_failed(gm: GraphModule, error: Exception, instead: str) -> str:
    """The reason as text, after one warning: an internal failure must not go unnoticed."""
    why = f"the compiler failed: {type(error).__name__}: {error}"
    warn(
        f"Burnish could not compile a graph of {len(gm.graph.nodes)} nodes and {instead}. This is a "
        f"defect of Burnish, not of your program: {why:.2000}",
        RuntimeWarning,
    )
    return why


def why_not_symbolic(gm: GraphModule, example_inputs: list[Any], symbolic_inputs: Any) -> str | None:
    if any(isinstance(x, torch.Tensor) for x in symbolic_inputs.given):
        return "an input is lazily conjugated, or not a plain strided tensor"
    others = [x for k, x in enumerate(example_inputs) if k not in symbolic_inputs.numbers]
    if has_numbers(others, FIXED) or has_numbers(others, (int,)) and not request_of(gm).guards_number_types:
        return "a number among its inputs may be another one in the next call"
    if gpus_of(example_inputs) and current().cuda_graphs:
        return "CUDA graphs are recorded for fixed sizes"
    if gpus_of(example_inputs) and cuda_module_loader.why_not() is not None:
        return cuda_module_loader.why_not()
    if autograd_is_watched():
        return "somebody watches what autograd saves"
    if autocast_is_on():
        return "autocast is on"
    if any(function not in REPEATABLE for function, _ in switches_left(gm)):
        return "it leaves autocast other than it found it"
    return None


def sizes_of(positions: list[int], numbers: list[int]) -> Callable[[tuple], tuple]:
    """A function that returns the sizes that distinguish calls of a graph with symbolic sizes: of tensors, and those
    that are inputs themselves."""
    reads = "".join([*(f"*i[{k}].shape, " for k in positions), *(f"i[{k}], " for k in numbers)])
    made: Callable[[tuple], tuple] = eval(f"lambda i: ({reads})")
    return made


class CompilePerSize:
    """A graph with symbolic sizes, compiled for each of the first few sizes; for any others it runs eagerly. The sizes
    among its inputs, at the positions `numbers`, are constants of the compiled code."""

    def __init__(self, gm: GraphModule, positions: list[int], eager: CompiledFn, numbers: list[int]):
        self.gm, self.eager, self.sizes_of = gm, eager, sizes_of(positions, numbers)
        self.compile_copy = as_asked(functools.partial(compile_copy, constants=numbers))
        self.made: dict[tuple, CompiledFn] = {}
        self.lock = thread_locks.lock()

    def __call__(self, *inputs: Any) -> Any:
        sizes = self.sizes_of(inputs)
        found = self.made.get(sizes)
        if found is None:
            with self.lock:
                found = self.made.get(sizes)
                if found is None:
                    if len(self.made) >= LIMIT:
                        return self.eager(*inputs)
                    found = self.made[sizes] = (
                        DeferredCompile(self.gm, self.compile_copy, 2)
                        if self.made
                        else self.compile_copy(self.gm, list(inputs))
                    )
        return found(*inputs)


def parts_for_all_sizes(gm: GraphModule) -> CompiledFn:
    return restoring(gm, in_subgraphs(gm, as_asked(for_observed_sizes), is_for_all_sizes=True))


def for_observed_sizes(gm: GraphModule, example_inputs: list[Any]) -> CompiledFn:
    """Compiles a subgraph with symbolic sizes. How the sizes of its inputs depend on each other is unknown at first."""
    if has_steps(gm):
        return parts_for_all_sizes(gm)
    tensors = [k for k, x in enumerate(example_inputs) if isinstance(x, torch.Tensor)]
    numbers = [k for k in request_of(gm).size_numbers if type(example_inputs[k]) is int]
    apiece = CompilePerSize(gm, tensors, run_eagerly_with_compiled_rng(gm), numbers)
    return CompileForObservedSizes(gm, apiece, as_asked_for_sizes(_compile_symbolic))


@pause_garbage_collection.paused()
def compile_copy(gm: GraphModule, example_inputs: list[Any], constants: Sequence[int] = ()) -> CompiledFn:
    """The numbers at the positions `constants` are the same in all calls."""
    copy = own_copy(gm)
    request = request_of(copy)
    request.size_numbers = (*request.size_numbers, *constants)
    return _compile_all(copy, example_inputs, constants)


class DeferredCompile:
    """A graph that may not be called again soon, for example one for other sizes of a function that has been compiled
    before. Sizes that come once (a sequence that grows with every call) are not worth compiling for, so the graph is
    compiled on its `times`th call. A graph for all sizes is compiled on its first: then a third size has come.

    Nothing is compiled while something watches what autograd saves, as checkpointing does: tracing saves too.
    """

    def __init__(self, gm: GraphModule, compile_graph: Callable[[GraphModule, list[Any]], CompiledFn], times: int):
        self.gm, self.eager = gm, run_eagerly_with_compiled_rng(gm)
        self.compile_graph, self.times = as_asked(compile_graph), times
        self.runs = 0
        self.compiled: CompiledFn | None = None
        self.lock = thread_locks.lock()

    def __call__(self, *inputs: Any) -> Any:
        if self.compiled is not None:
            return self.compiled(*inputs)
        if autograd_is_watched():
            return self.eager(*inputs)
        compile_activity_counter.count_step()
        with self.lock:
            self.runs += 1
            if self.runs >= self.times and self.compiled is None:
                self.compiled = self.compile_graph(self.gm, list(inputs))
        return (self.compiled or self.eager)(*inputs)


def _compile_all(gm: GraphModule, example_inputs: list[Any], constants: Sequence[int] = ()) -> CompiledFn:
    """Keeps as many numbers as possible live, but for those at the positions `constants`. The others become constants
    of the compiled code."""
    compile_graph = functools.partial(_compile_numbers, constants=constants)
    may_change_type = has_numbers(moving(example_inputs, constants)) and not request_of(gm).guards_number_types
    if may_change_type or any(isinstance(x, FIXED) for x in example_inputs):
        return compile_per_number(as_asked(compile_graph), gm, example_inputs, run_eagerly_with_compiled_rng(gm), FIXED)
    return compile_graph(gm, example_inputs)


FIXED = (bool, complex)
"""The types of numbers that are never live."""


def moving(example_inputs: Sequence[Any], constants: Sequence[int]) -> list[Any]:
    """The inputs that may differ between calls."""
    return [x for k, x in enumerate(example_inputs) if k not in constants or not isinstance(x, int)]


def _compile_numbers(
    gm: GraphModule,
    example_inputs: list[Any],
    number_types: tuple[type, ...] = (int, float),
    constants: Sequence[int] = (),
) -> CompiledFn:
    """Keeps numbers of the types `number_types` live if possible. Integers are given up first: they may be sizes. If it
    is known which of them are, those alone, at the positions `constants`."""
    others = moving(example_inputs, constants)
    live_scalar_types = tuple(kind for kind in number_types if has_numbers(others, (kind,)))
    given = [GivenSize(x) if k in constants and type(x) is int else x for k, x in enumerate(example_inputs)]
    if not live_scalar_types:
        return _compile(gm, given)
    try:
        return _compile(gm, given, live_scalar_types)
    except NumberLost as why:
        kind, *rest = live_scalar_types
        sizes = request_of(gm).size_numbers
        are_others_live = kind is int and not constants and len(moving(others, sizes)) < len(others)
        if are_others_live:
            compile_rest = functools.partial(_compile_numbers, number_types=number_types, constants=sizes)
        else:
            compile_rest = functools.partial(_compile_numbers, number_types=tuple(rest), constants=constants)
        events.emit(
            "lower.numbers",
            text=f"compiled once for each combination of {'sizes' if are_others_live else f'{kind.__name__}s'}: {why}",
            graph_module=gm,
            fallback="numbers",
        )
        return compile_per_number(
            as_asked(compile_rest),
            gm,
            example_inputs,
            run_eagerly_with_compiled_rng(gm),
            (kind,),
            sizes if are_others_live else None,
        )


def _compile(gm: GraphModule, example_inputs: list[Any], live_scalar_types: tuple[type, ...] = ()) -> CompiledFn:
    cause, call = "refused", None
    try:
        with patch(eager_random=draws_as_eager(gm)):
            recipe, tools = recipe_of(gm, example_inputs, needs_gradients(gm, example_inputs), live_scalar_types)
        eager = run_eagerly_with_compiled_rng(gm)
        compiled = recipe.assembled(tools, eager)
        return wrap_in_adapters(
            compiled, Surroundings(gm, example_inputs, eager, recipe.written, compiled.takes_gradients)
        )
    except NumberLost as reason:
        if live_scalar_types:
            raise
        why = str(reason)
    except Exception as error:
        reraise_from_outside(error)
        call = error.call if isinstance(error, Untraceable) else None
        # One may be a size, and a live scalar cannot stand for a size.
        if int in live_scalar_types and not is_refused_anyway(gm, example_inputs, call):
            raise NumberLost(f"{type(error).__name__}: {error}") from error
        if isinstance(error, Untraceable):
            why = str(error)
        elif current().on_error == "raise":
            raise
        else:  # the failure is the compiler's: the graph itself is sound and runs eagerly
            why, cause = compiler_failed(gm, error, "runs it eagerly"), "internal"
    alone = alone_after_all(gm, call) if cause == "refused" else None
    if alone is not None:
        events.emit("lower.native", text=f"{alone}: {why}", graph_module=gm)
        return restoring(gm, in_subgraphs(gm, as_asked(burnish)))
    request_of(gm).is_refused = True
    rules = request_of(gm).native_rules
    text = f"runs eagerly: {why}" + (f". {rules}" if rules else "")
    events.emit("lower.refused", text=text, graph_module=gm, fallback=cause)
    return run_eagerly_with_compiled_rng(gm)


def is_refused_anyway(gm: GraphModule, example_inputs: list[Any], call: int | None) -> bool:
    """Whether a call cannot be traced either with constants in place of all live scalars."""
    if call is None:
        return False
    from ..lower.trace.trace_to_aten import trace

    try:
        trace(gm, example_inputs, needs_gradients(gm, example_inputs))
    except Exception as error:
        reraise_from_outside(error)
        return isinstance(error, Untraceable) and error.call == call
    return False


def alone_after_all(gm: GraphModule, call: int | None) -> str | None:
    """Marks what runs as it is, so that the rest of the graph can be compiled, and says what it is, if there is any."""
    if let_call_stand_alone(gm, call):
        return "a call runs as it is"
    return "functions of the user run as they are" if let_functions_stand_alone(gm) else None


def needs_gradients(gm: GraphModule, example_inputs: list[Any]) -> bool:
    """Whether gradients may flow through the graph."""
    with DisableTorchFunctionSubclass():  # bypasses the __torch_function__ of subclasses
        if not any(isinstance(x, torch.Tensor) and x.requires_grad for x in example_inputs):
            return False
    return torch.is_grad_enabled() or any(turns_gradients_on(node) for node in gm.graph.nodes)


def turns_gradients_on(node: Node) -> bool:
    """Whether a call in a graph can turn gradients on half way."""
    if node.target in (set_grad_enabled, torch.set_grad_enabled):
        return node.args != (False,)
    return node.target is torch.enable_grad
