"""Gradients while tracing: ``backward()`` as a call of the graph, and ``.grad`` as an ordinary attribute.

``loss.backward()`` computes gradients and adds them to the leaves it reaches. Both steps are recorded, one after the
other, so the optimizer's next operations work on values of the graph:

    opt.zero_grad()              w.grad is noted to become None
    loss.backward()              grad = torch.autograd.grad((loss,), (w,), allow_unused=True);  getitem = grad[0]
    w.add_(w.grad, alpha=-0.1)   add_ = w.add_(getitem, alpha=-0.1)
                                 after the graph: w.grad = getitem

The leaves are found by walking the autograd graph from the loss. Every step on the way must have been computed in this
segment, and every leaf must be an object the segment knows. Otherwise, or if hooks run on the way, the segment ends
before the call (B206) and autograd runs for real.

``GradFields`` records the state of ``.grad``. If it is read first, it is guarded: None, or a tensor with this metadata.
If it is written, it is set after the graph to its final value. A gradient without a holder is not an output.
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any

import torch

from ...concurrency.outside_errors import reraise_from_outside
from ...errors import InternalError
from ...tensors.tensor_types import is_leaf
from .. import breaks
from ..engine.object_lifetimes import Origin
from ..guards.tensor_metadata import TENSOR_TYPES, WithoutRules, is_tensor
from ..interpreter.emulated_frames import call_at_line
from ..interpreter.frames import MISSING
from ..numbers.live_scalars import Expression
from . import writes_of_calls
from .custom_functions.autograd_function_nodes import may_read_in_backward

# Whether gradients for a dictionary of tensors are supported: `grad(loss, {"w": w})`. Not by older torch (2.11).
TAKES_TABLES = "dict[" in str(inspect.signature(torch.autograd.grad).parameters["inputs"].annotation)


class Field:
    """The ``.grad`` of one tensor from outside."""

    __slots__ = ("before", "calls_before", "origin", "written")

    def __init__(self, origin: Origin, before: Any):
        self.origin = origin
        self.before = before  # the value the segment found there; MISSING if it did not look
        self.written = False
        self.calls_before = 0  # how many calls were recorded when it was first written


class GradFields:
    def __init__(self, tracer: Any):
        self.m = tracer
        self.fields: dict[int, Field] = {}
        self.made_here: dict[int, torch.Tensor] = {}  # tensors of the graph whose .grad was set

    # ---- the attribute

    def read(self, tensor: torch.Tensor) -> Any:
        """``tensor.grad``."""
        m = self.m
        origin, value = m.heap.origin_of(tensor), call_at_line(m.frame, getattr, (tensor, "grad"), {})  # which may warn
        if origin is None:
            return value if value is None or m.knows(value) else m.perform(getattr, tensor, "grad")
        if id(tensor) not in self.fields:
            self.fields[id(tensor)] = Field(origin, value)
            m.heap.admit(value, origin.source.attr("grad"))
        return value

    def write(self, tensor: torch.Tensor, value: Any) -> None:
        """``tensor.grad = value``."""
        m = self.m
        if m.region is not None:
            m.region.refuse("a change of a gradient")
        if not m.knows(tensor) or value is not None and not (is_tensor(value) and m.knows(value)):
            m.stop(breaks.TENSOR_STATE, "assignment to .grad of a tensor")
        m.plainly(setattr, tensor, "grad", value)
        origin = m.heap.origin_of(tensor)
        if origin is None:
            self.made_here[id(tensor)] = tensor
            return
        m.heap.identity_matters.add(torch.Tensor)
        field = self.fields.setdefault(id(tensor), Field(origin, MISSING))
        if not field.written:
            field.written, field.calls_before = True, len(m.recorder.calls)

    def changed(self) -> list[tuple[Origin, Any]]:
        """The tensors from outside with a new object in ``.grad``, and that object."""
        changed = []
        for field in self.fields.values():
            now = field.origin.obj.grad if field.written else field.before
            if now is not field.before:
                changed.append((field.origin, now))
        return changed

    def without_views(self) -> set[int]:
        """The ids of gradients that autograd left in ``.grad`` and that are not views, so must not be views after later
        calls. A compiler might place them inside a larger buffer, and guards on their metadata would then fail."""
        return {
            id(now)
            for _, now in self.changed()
            if isinstance(now, torch.Tensor) and not now._is_view() and not now.requires_grad
        }

    def owners_of_dropped(self, values: list) -> list[int]:
        """The values that own a gradient which the program drops without having used it (``zero_grad``).

        Only if the graph writes to its inputs. Other graphs that fail run again as plain Python, from the state before
        the call, which must be unchanged. So must the gradients that are dropped after an assertion.
        """
        m = self.m
        may_fail_at = min(writes_of_calls.assertions(m.recorder.calls), default=len(m.recorder.calls))
        places = {id(source): i for i, source in enumerate(values)}
        found = []
        for origin, _ in self.changed():
            field = self.fields[id(origin.obj)]
            before = field.before
            if (
                field.calls_before > may_fail_at
                or before is MISSING
                or before is None
                or id(origin.source) not in places
            ):
                continue
            old = m.heap.origin_of(before)
            if old is not None and id(old.source) not in places and id(old.source) not in m.recorder.input_of:
                found.append(places[id(origin.source)])
        return found

    # ---- the autograd engine

    def backward(self, outputs: tuple, given: tuple | None, retain_graph: bool | None, inputs: tuple | None) -> None:
        """Add gradients of ``outputs`` to ``inputs``, or to all leaves that they depend on."""
        m = self.m
        leaves, why = self.leaves_of(outputs, inputs)
        if why is None:
            why = next(filter(None, map(self.why_not_accumulate, leaves)), None)
        if why is not None:
            m.stop(breaks.BACKWARD_CALL, f"backward(): {why}")
        self.guard_hooks(leaves)
        before = list(map(self.read, leaves))
        found = self.compute(outputs, tuple(leaves), given, {"retain_graph": retain_graph})
        # Autograd returns a gradient without a copy if nothing else holds it. The tuple does, and briefly this call.
        shared = [sys.getrefcount(found[i]) > 2 for i in range(len(found))]
        for leaf, old, gradient, is_shared in zip(leaves, before, found, shared, strict=True):
            if gradient is None:
                continue
            if old is None:
                self.write(leaf, self.own_copy(leaf, gradient, is_shared))
            else:
                m.perform(torch.Tensor.add_, old, gradient)

    def grad(self, outputs: tuple, inputs: tuple, given: tuple | None, options: dict[str, Any]) -> tuple:
        """``torch.autograd.grad``."""
        _, why = self.leaves_of(outputs, inputs)
        if why is not None:
            self.m.stop(breaks.BACKWARD_CALL, f"torch.autograd.grad: {why}")
        fills = options["materialize_grads"] and options["create_graph"] and options["allow_unused"] is not False
        if not fills:
            return self.compute(outputs, inputs, given, options)
        found = self.compute(outputs, inputs, given, {**options, "materialize_grads": False, "allow_unused": True})
        # Torch makes leaves that require gradients, which a compiled gradient cannot be.
        zeros = torch.zeros_like
        pairs = zip(inputs, found, strict=True)
        return tuple(self.m.perform(zeros, x, requires_grad=True) if g is None else g for x, g in pairs)

    def compute(self, outputs: tuple, inputs: tuple, given: tuple | None, options: dict[str, Any]) -> tuple:
        """Run the engine, and record it as one call."""
        m = self.m
        if m.region is not None and not getattr(m.region, "lowers", False):
            m.region.refuse("a backward pass")
        allow_unused = options.get("allow_unused", True)  # an unused input is already an error in this run
        options = {k: v for k, v in options.items() if v and k != "allow_unused"}
        if given is not None and any(g is not None for g in given):
            options["grad_outputs"] = given
        started = perf_counter()
        try:
            found = torch.autograd.grad(outputs, inputs, allow_unused=allow_unused, **options)
        except InternalError:
            raise
        except Exception as caught:  # raised by torch, or by a user's backward formula
            error = caught
        else:
            m.recorder.seconds += perf_counter() - started
            m.recorder.seen += 1
            m.recorder.record(torch.autograd.grad, (outputs, inputs), {**options, "allow_unused": True}, found, False)
            return found
        try:
            m.fail(f"{type(error).__name__}: {error}", error)
        finally:
            del error
        return ()

    # ---- from the outputs to the leaves

    def leaves_of(self, outputs: tuple, inputs: tuple | None) -> tuple[list[torch.Tensor], str | None]:
        """The tensors to differentiate by, and the reason why the graph cannot do it, or None."""
        m = self.m
        if torch.is_anomaly_enabled():
            return [], "anomaly detection is on"
        for tensor in (*outputs, *(inputs or ())):
            if not is_ordinary(tensor) or not m.knows(tensor):
                return [], "a tensor the graph does not know"
            if not tensor.requires_grad:
                return [], "a tensor that requires no gradient"
        ends = {id(n): n for n in map(node_of, inputs or ()) if n is not None}
        waiting = [n for n in map(node_of, outputs) if id(n) not in ends]
        if any(m.heap.origin_of(t) is not None and not is_leaf(t) for t in outputs):
            return [], "what led to the loss ran before this segment"
        outside = {id(n) for n in m.recorder.nodes_before}
        seen: dict[int, Any] = dict(ends)
        leaves: list[torch.Tensor] = []
        while waiting:
            node = waiting.pop()
            if node is None or id(node) in seen:
                continue
            seen[id(node)] = node  # held, so that its address is not reused
            if id(node) in outside:
                return [], "what led to the loss ran before this segment"
            if may_read_in_backward(node) and m.heap.has_written():
                return [], "a custom function's backward may read what was just written"
            if type(node).__name__ == ACCUMULATES and node.variable.requires_grad:  # not frozen since forward
                leaves.append(node.variable)
            waiting += [following for following, _ in reversed(node.next_functions)]
        if inputs is not None:
            return list(inputs), None
        if not leaves:
            return [], "it reaches no leaf"
        return leaves, None

    def why_not_accumulate(self, leaf: torch.Tensor) -> str | None:
        m = self.m
        if not is_ordinary(leaf) or not m.knows(leaf):
            return "a leaf that capture did not see"
        if not is_leaf(leaf):
            return "a tensor that is not a leaf keeps its gradient"
        if has_hooks(leaf):
            return "hooks run on a leaf's gradient"
        before = leaf.grad
        if before is not None:
            if not m.knows(before) and id(leaf) in self.fields or not is_ordinary(before):
                return "a gradient of unknown origin"
            if before.requires_grad or before.is_sparse:
                return "gradients that require gradients, or sparse ones, are added up"
        return None

    def guard_hooks(self, leaves: list[torch.Tensor]) -> None:
        origins = filter(None, map(self.m.heap.origin_of, leaves))
        parts = tuple(Expression(None, (origin.source,)) for origin in origins)
        self.m.heap.guard("outcome", None, (Expression(without_hooks, parts), True))

    # ---- storing a gradient

    def own_copy(self, leaf: torch.Tensor, gradient: torch.Tensor, is_shared: bool) -> torch.Tensor:
        """The value that autograd stores in ``.grad``: the gradient itself if it is not shared and has the memory
        layout of the leaf ("gradient layout contract"), else a copy with that layout."""
        m = self.m
        if gradient.layout is not torch.strided or leaf.layout is not torch.strided:
            return gradient
        dense = is_dense(leaf)
        wanted = leaf.stride() if dense else contiguous_strides(leaf.shape)
        if all(a == b or n == 1 for a, b, n in zip(gradient.stride(), wanted, gradient.shape, strict=True)):
            if is_shared:
                return m.perform(torch.Tensor.clone, gradient)
            # Autograd's formulas may end in a view (`t()` of a product). The tensor in `.grad` is not a view.
            return m.perform(torch.Tensor.detach, gradient) if gradient._is_view() else gradient
        for memory_format in (torch.contiguous_format, torch.channels_last, torch.channels_last_3d):
            if leaf.dim() == RANKS.get(memory_format, leaf.dim()) and (
                leaf.is_contiguous(memory_format=memory_format) or not dense
            ):
                return m.perform(torch.Tensor.clone, gradient, memory_format=memory_format)
        made = m.perform(torch.empty_strided, tuple(leaf.shape), wanted, dtype=gradient.dtype, device=gradient.device)
        return m.perform(torch.Tensor.copy_, made, gradient)


ACCUMULATES = "AccumulateGrad"  # the class of the autograd nodes that add to a leaf's .grad
RANKS = {torch.channels_last: 4, torch.channels_last_3d: 5}
_hooks, _later_hooks = operator.attrgetter("_backward_hooks"), operator.attrgetter("_post_accumulate_grad_hooks")


def is_ordinary(tensor: Any) -> bool:
    """Whether its class has no rules for gradients of its own."""
    if type(tensor) in TENSOR_TYPES:
        return True
    from ...captured_graph.distributed_tensor_nodes import is_distributed

    return is_distributed(tensor)


def node_of(tensor: torch.Tensor) -> Any:
    """The start of the walk over the autograd graph: a tensor's node, or the one that accumulates into a leaf."""
    if tensor.grad_fn is not None:
        return tensor.grad_fn
    return torch.autograd.graph.get_gradient_edge(tensor).node


def has_hooks(tensor: torch.Tensor) -> bool:
    return bool(_hooks(tensor)) or bool(_later_hooks(tensor))


def without_hooks(*tensors: torch.Tensor) -> bool:
    """A guard: the leaves' gradients have no hooks."""
    return not any(map(_hooks, tensors)) and not any(map(_later_hooks, tensors))


def set_gradients(tensors: Iterable[torch.Tensor], gradients: Iterable[Any]) -> None:
    """Called by ``finish`` after the graph."""
    for tensor, gradient in zip(tensors, gradients, strict=True):
        tensor.grad = gradient


def no_view(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.detach() if gradient._is_view() else gradient


def is_leaf_of_other(tensor: torch.Tensor) -> bool:
    """Whether it is a view of a parameter that was made without gradients."""
    with WithoutRules():
        return tensor.requires_grad and tensor._is_view() and is_leaf(tensor)


def is_refused(tensor: torch.Tensor) -> bool:
    """Whether it is a view of which torch refuses to tell the history: made without gradients, and written to since."""
    with WithoutRules():
        if not tensor._is_view():
            return False
        try:
            tensor.is_leaf  # noqa: B018
        except RuntimeError as error:
            reraise_from_outside(error)
            return True
    return False


def as_leaf(view: torch.Tensor) -> torch.Tensor:
    """Such a view, where a compiler has made it again with gradients."""
    with torch.no_grad():
        return view if is_leaf(view) else view.view_as(view)


def contiguous_strides(shape: Iterable[int]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for n in reversed(tuple(shape)):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill their memory without overlap or gaps."""
    step = 1
    for stride, n in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n != 1):
        if stride != step:
            return n == 0
        step *= n
    return True


# ---- handlers for torch's functions


def backward(names: list[str], m: Any, args: tuple, kwargs: dict) -> Any:
    """A function with parameters of these names: the first two are the tensors and the gradients to start with."""
    options = _bound(names, args, kwargs)
    why = None
    if not m.options.runs_python:
        why = "the backend runs no Python"
    elif options is None or options.get("create_graph") or options.get("grad_variables") is not None:
        why = "gradients of gradients are kept"
    if why is not None or options is None:
        return m.stop(breaks.BACKWARD_CALL, f"backward(): {why}")
    outputs, given, inputs = (_tensors(m, options.get(name)) for name in (*names[:2], "inputs"))
    if outputs is None or inputs is MISSING or given is MISSING or outputs is MISSING or inputs == ():
        return m.stop(breaks.BACKWARD_CALL, "backward() of something other than tensors")
    m.gradients.backward(outputs, given, options.get("retain_graph"), inputs)
    m.answer = (m.frame, m.frame.pc, None)
    return None


def grad(m: Any, args: tuple, kwargs: dict) -> Any:
    """``torch.autograd.grad``."""
    names = """
        outputs inputs grad_outputs retain_graph create_graph only_inputs allow_unused is_grads_batched
        materialize_grads
    """.split()
    options = _bound(names, args, kwargs)
    lowers = getattr(m.region, "lowers", False)
    if options is None or not (m.options.runs_python or lowers):
        return m.stop(breaks.BACKWARD_CALL, "torch.autograd.grad")
    wanted = options.pop("inputs", None)
    table = wanted if type(wanted) is dict and TAKES_TABLES else None
    m.heap.expose(wanted)
    inputs = _tensors(m, wanted if table is None else tuple(table.values()))
    outputs, given = _tensors(m, options.pop("outputs", None)), _tensors(m, options.pop("grad_outputs", None))
    if (
        not inputs
        or not outputs
        or MISSING in (inputs, outputs, given)
        or options.get("is_grads_batched")
        or not options.get("only_inputs", True)
    ):
        return m.stop(breaks.BACKWARD_CALL, "torch.autograd.grad of something other than tensors")
    chosen = {name: options.get(name) for name in ("retain_graph", "create_graph", "materialize_grads")}
    chosen["allow_unused"] = options.get("allow_unused")
    found = m.gradients.grad(outputs, inputs, given, chosen)
    return found if table is None else dict(zip(table, found, strict=True))


def _bound(names: Sequence[str], args: tuple, kwargs: dict) -> dict[str, Any] | None:
    if len(args) > len(names) or not kwargs.keys() <= set(names[len(args) :]):
        return None
    return dict(zip(names, args, strict=False)) | kwargs


def _tensors(m: Any, value: Any) -> Any:
    """None, or a tuple of tensors (and None among them); MISSING for anything else."""
    if value is None:
        return None
    if is_tensor(value):
        return (value,)
    m.heap.expose(value)
    if type(value) is dict and TAKES_TABLES:
        value = tuple(value.values())
    if type(value) not in (tuple, list):
        return MISSING
    return tuple(value) if all(v is None or is_tensor(v) for v in value) else MISSING


HANDLERS: dict[Callable, Callable] = {
    torch.Tensor.backward: functools.partial(backward, "self gradient retain_graph create_graph inputs".split()),
    torch.autograd.backward: functools.partial(
        backward, "tensors grad_tensors retain_graph create_graph grad_variables inputs".split()
    ),
    torch.autograd.grad: grad,
}
