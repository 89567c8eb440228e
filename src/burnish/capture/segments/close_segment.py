"""Segment construction: turns a finished trace into a segment that can run again."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import torch

from ... import events, settings
from ...captured_graph.compile_request import REQUEST, CompileRequest
from ...foundation.torch_private import InferenceMode
from ...runtime.eager import setting_change_nodes
from ...runtime.program.restore_inputs_on_error import draws_and_may_fail, restoring
from ...runtime.segment_records import Segment
from ...tensors.torch_state import autocast_nesting
from ..breaks import Break
from ..engine.break_signals import Unrebuildable
from ..engine.build_fx_graph import build_graph
from ..engine.tracer import Tracer
from ..guards.guard_function import check_twice, write_check
from ..guards.tensor_metadata import global_state, is_tensor, restore_state
from ..guards.watch_after_first_check import watched
from ..interpreter import keyboard_interrupts
from ..interpreter.frames import Frame, Generator, frames_from
from ..interpreter.frames_to_slots import take_apart
from ..numbers import min_max_of_tensors, object_addresses
from ..pytorch import torch_switches, writes_of_calls
from ..pytorch.opaque_nodes import compares_results
from .concretize_scalars import deep_recursion
from .effect_code import EffectWriter
from .templates import Rebuilder


def close(
    tracer: Tracer,
    result: Any,
    frame: Frame | None,
    why: Break | None,
    backend: Callable,
    slots: list | None = None,
    is_again: bool = False,
) -> Segment:
    """Make the segment that ends with ``result`` returned, or before the current instruction of ``frame``.

    ``slots``: the initial slots, if still available; the traced run has changed their state by now. If its guards no
    longer hold for them, the segment is a step from one state to another, such as the first call with an empty cache,
    or an optimizer's first step. The same objects do not come here again in that state, so a compiling backend can wait
    for others.

    ``is_again``: other segments start at the same place. Their graphs have not been requested again so far, and this
    one may not be either: a backend can wait for the second request.
    """
    if tracer.symbolic_sizes is not None:
        tracer.symbolic_sizes.check_calls()
    if tracer.cached_answers is not None:
        tracer.cached_answers.check(tracer.heap)
    rebuilder = Rebuilder(tracer)
    with deep_recursion():
        layout = None
        if frame is None:
            rebuilder.leaves = True
            answer = rebuilder.build(result)
        else:
            _refuse_frames_of_texts(tracer, frame)
            layout, slots = take_apart(frame, tracer.heap.ends_unseen_in_each_call)
            rebuilder.active = _running_generators(frame)
            answer = f"[{', '.join(rebuilder.build(v) for v in slots)}]"
        built = len(rebuilder.lines)
        EffectWriter(rebuilder).write()
        has_effects = len(rebuilder.lines) > built
        rebuilder.lines += rebuilder.after_effects
        if tracer.traced_hooks:
            from ..pytorch.higher_order import traced_gradient_hooks  # few programs have any

            traced_gradient_hooks.check_kept(tracer, rebuilder)
        if tracer.chosen:
            seen = min_max_of_tensors.why_not_hidden(tracer, rebuilder.keep)
            if seen is not None:
                raise Unrebuildable(None, seen)
        object_addresses.guard_keys(tracer)
        _guard_against_aliases(tracer)
        recorder = tracer.recorder
        graph_module, graph = None, None
        written = writes_of_calls.written_inputs(recorder)
        opened = symbolic_inputs = None
        if recorder.calls or rebuilder.outputs:
            graph_module = build_graph(recorder, rebuilder.outputs)
            if tracer.settings_at_start is not None:
                setting_change_nodes.begin_with(graph_module, tracer.settings_at_start)
            torch_switches.guard_kernels_of_attention(tracer, graph_module)
            opened = None if tracer.symbolic_sizes is None else tracer.symbolic_sizes.inputs()
            if opened is not None:
                tracer.symbolic_sizes.guard_box(opened)  # type: ignore[union-attr]
                symbolic_inputs = tracer.symbolic_sizes.graph_inputs()  # type: ignore[union-attr]
        check, is_step = _check(tracer, rebuilder, slots)
    if graph_module is not None:
        # Formatting a graph is slow, so the listener does it.
        events.emit("graph", text=graph_module.graph, graph_module=graph_module)
        switches_mode = any(call.target is InferenceMode for call in recorder.calls)
        graph_module.meta[REQUEST] = CompileRequest(
            requests_before_compiling(tracer, is_again, is_step, opened is not None),
            guards_number_types=True,
            symbolic_inputs=symbolic_inputs,
            written_inputs=tuple(handle.key for handle in written),
            outputs_are_inference=tuple(rebuilder.in_inference_mode) if switches_mode else (),
            native_rules=tracer.subclasses.why_native(),
            has_functions_of_users=tracer.subclasses.has_functions_of_users(),
            warnings_already_given=dict(recorder.warnings),
        )
        graph = _compiled(tracer, backend, graph_module)
        if tracer.settings_at_start is not None:
            graph = setting_change_nodes.keeping_on_error(graph)
    finish = _finish(rebuilder, answer)
    return Segment(
        check,
        graph,
        finish,
        layout,
        guards=tracer.heap.guards,
        graph_module=graph_module,
        break_=why,
        state=tracer.heap.guards[0].expected,
        writes_inputs=bool(written),
        draws=graph_module is not None and draws_and_may_fail(graph_module),
        changes_autocast=any(call.target in AUTOCAST_CALLS for call in recorder.calls),
        compares_results=any(compares_results(call.target) for call in recorder.calls),
        is_step=is_step,
        has_effects=has_effects,
    )


def _refuse_frames_of_texts(tracer: Tracer, frame: Frame | None) -> None:
    """A continuation holds the globals of its frames as they are, so these must be those of a module."""
    if any(id(each.globals) in tracer.heap.fresh for each in frames_from(frame)):
        raise Unrebuildable(None, "the graph breaks in a text that exec() runs")


def requests_before_compiling(tracer: Tracer, is_again: bool, is_step: bool, is_open: bool) -> int:
    """The request at which a graph is compiled, counted from 1; 0 means at once.

    With symbolic sizes the first request is the latest: three sizes have been seen by then. If the change of size was
    only predicted, two have been seen, and the second request is allowed.
    """
    times = 2 if is_again else int(is_step)
    return times if not is_open or tracer.symbolic_sizes.request.is_expected else min(times, 1)  # type: ignore[union-attr]


def _compiled(tracer: Tracer, backend: Callable, graph_module: Any) -> Callable:
    """Compile the graph with the backend, under the switches and settings it will run under: those at the segment's
    start."""
    start, settings_at_start = tracer.heap.guards[0].expected, tracer.settings_at_start
    now, nesting, modes = global_state(), autocast_nesting(), keyboard_interrupts.count_modes()
    settings_now = None if settings_at_start is None else setting_change_nodes.values()
    if now != start:
        restore_state(start)
    try:
        if settings_at_start is not None:
            setting_change_nodes.put_back(settings_at_start)
        compiled = tracer.signals.at_once(backend, graph_module, list(tracer.recorder.examples))
        return compiled if getattr(backend, "restores", False) else restoring(graph_module, compiled)
    finally:
        if settings_now is not None:
            setting_change_nodes.put_back(settings_now)
        if now != global_state():
            restore_state(now, nesting)
        keyboard_interrupts.drop_modes(modes)


def _running_generators(frame: Frame | None) -> dict[int, int]:
    return {
        id(each.generator): at for at, each in enumerate(frames_from(frame)) if isinstance(each.generator, Generator)
    }


def _check(tracer: Tracer, rebuilder: Rebuilder, slots: list | None) -> tuple[Callable, bool]:
    """The check, and whether it now fails for the initial slots of the segment."""
    guards = tracer.heap.guards
    inputs = [handle.source for handle in tracer.recorder.inputs]
    values = [source for _, source in rebuilder.sources.values()]
    check = check_twice(guards, inputs, values) if tracer.checks else write_check(guards, inputs, values)
    is_step = slots is not None and check(slots) is None
    if settings.current().native_guards:
        written = frozenset(id(origin.source) for origin in tracer.heap.origins.values() if tracer.heap.changed(origin))
        check = watched(check, guards, inputs, values, tracer.checks, written)
    if tracer.cached_answers is not None:
        check = tracer.cached_answers.verifying(check)
    dropped = tracer.gradients.owners_of_dropped(values) if writes_of_calls.written_inputs(tracer.recorder) else []
    return check if not dropped else releasing(check, dropped), is_step


def releasing(check: Callable, owners: list[int]) -> Callable:
    """A check that clears gradients when the segment is about to run: those the program drops before it computes, so
    that the graph can use their memory. ``owners``: the indices of their tensors in the values."""

    def check_and_release(slots: list) -> Any:
        found = check(slots)
        if found is not None:
            for i in owners:
                found[1][i].grad = None
        return found

    check_and_release.__source__ = getattr(check, "__source__", "")  # type: ignore[attr-defined]
    return check_and_release


def _finish(rebuilder: Rebuilder, answer: str) -> Callable:
    body = "\n    ".join([*rebuilder.lines, f"return {answer}"])
    text = f"def finish(V, G):\n    {body}\n"
    namespace = dict(rebuilder.writer.constants)
    exec(compile(text, "<burnish finish>", "exec"), namespace)
    made = namespace["finish"]
    made.__source__ = text
    return made


def _guard_against_aliases(tracer: Tracer) -> None:
    """In a later run, an object that the segment writes to must not be an alias of something else it reads."""
    heap = tracer.heap
    if writes_of_calls.written_inputs(tracer.recorder):
        sources = [
            h.source.base if h.source.kind == "array" else h.source  # each check shows an array by another tensor
            for h, t in zip(tracer.recorder.inputs, tracer.recorder.examples, strict=True)
            if issubclass(type(t), torch.Tensor)
        ]
        if len(sources) > 1:
            heap.guard("distinct", None, tuple(sources))
    groups: dict[type, list] = collections.defaultdict(list)
    written = set(heap.identity_matters)
    for origin in list(heap.origins.values()):
        kind = torch.Tensor if is_tensor(origin.obj) else type(origin.obj)
        if origin.source.is_pinned or issubclass(kind, tuple):
            continue
        groups[kind].append(origin.source)
        if heap.changed(origin) or id(origin.obj) in heap.received:
            written.add(kind)
    for kind in written:
        if len(groups[kind]) > 1:
            heap.guard("distinct", None, tuple(groups[kind]))


AUTOCAST_CALLS = (torch.autocast_increment_nesting, torch.autocast_decrement_nesting)
