"""The setting `check`: the first calls of a compiled graph are compared with eager.

    call = compared(compiled, gm, eager)       the compiled graph itself, where the graph must not run twice
    call(x, w)                                 raises InternalError where a result differs; so does its backward

Eager runs first, on copies of the inputs and with the same random numbers. Compared are the results, the inputs as the
graph leaves them, and the gradients that backward gives the inputs. Where numbers differ by more than roundings should,
eager runs in float64 too: compiled code may be a few times as far from that as eager is.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from types import NoneType
from typing import Any

import torch
from torch.fx import GraphModule, Node

from .. import events
from ..captured_graph.warnings_already_given import filtered
from ..concurrency.outside_errors import reraise_from_outside
from ..errors import InternalError
from ..foundation.torch_private import (
    HigherOrderOperator,
    OpOverload,
    OpOverloadPacket,
    is_functorch_wrapped_tensor,
    len_torch_dispatch_stack,
    len_torch_function_stack,
)
from ..runtime.contest.synchronized_clock import is_recorded
from ..runtime.eager.eager_activation_checkpointing import RandomState
from ..runtime.program.autograd_function import autograd_is_watched
from ..runtime.program.restore_inputs_on_error import half_done
from ..runtime.segment_records import SegmentsToUpdate
from ..settings import current
from ..tensors.device_facts import DEVICES
from . import CompiledFn
from .record_backward_for_check import GradientsOfCall, has_history

CALLS = 2
"""How many calls are compared: the first computes what is computed only once, the second uses it."""

NEAR = {torch.float64: 1e-9, torch.complex128: 1e-9, torch.float32: 1e-4, torch.complex64: 1e-4}
"""How far a number may be from eager's, as a part of the largest of its tensor."""

NEAR_HALF = 0.03
"""The same for dtypes of fewer bits."""

LEAST = 0.01
"""A tensor's largest number counts as at least this: others may cancel out."""

TIMES_EAGER = 10
"""How many times as far from float64 compiled code may be as eager."""

FLIPPED = 0.02
"""Of integers and truth values that are computed from floating-point numbers so many may differ, for roundings decide
them."""

MOST_BYTES = 1 << 30
"""An input with more is not copied."""

UNSET = ("empty", "resize", "set_")
"""Functions of torch with one of these in their names give memory as it is."""

PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


is_on = os.environ.get("_BURNISH_COMPARE_RESULTS", "1") != "0"
"""The suite runs with the setting ``check`` on and this off: its tests look into what is compiled, count the Python
calls of a step and the memory that it saves, and compare with eager themselves."""


def compared(compiled: CompiledFn, gm: GraphModule, eager: CompiledFn) -> CompiledFn:
    return Compared(compiled, gm, eager) if is_on and all(map(only_computes, gm.graph.nodes)) else compiled


def only_computes(node: Node) -> bool:
    """Whether a node may run twice, with the same results: somebody's own operator may do anything."""
    target: Any = node.target
    if node.op != "call_function":
        return node.op != "get_attr" and not any(word in str(target) for word in UNSET)
    if isinstance(target, OpOverload | OpOverloadPacket):
        return str(target).startswith("aten.") and not any(word in str(target) for word in UNSET)
    name, module = getattr(target, "__name__", ""), getattr(target, "__module__", None) or "torch"
    return (
        module.partition(".")[0] in ("torch", "math", "builtins", "_operator")
        and not module.startswith(("torch.distributed", "torch.utils"))
        and not isinstance(target, HigherOrderOperator)
        and not any(word in name for word in UNSET)
    )


class Compared:
    def __init__(self, compiled: CompiledFn, gm: GraphModule, eager: CompiledFn):
        self.compiled, self.gm, self.eager = compiled, gm, eager
        self.left = CALLS
        self.holders = SegmentsToUpdate()

    def __call__(self, *inputs: Any) -> Any:
        if self.left <= 0:
            self.holders.hand_over(
                self, self.compiled
            )  # callers of this graph call the compiled function directly from now on
        if self.left <= 0 or not may_be_copied(inputs):
            return self.compiled(*inputs)
        self.left -= 1
        random = RandomState(inputs)
        given, copies = copied(inputs), copied(inputs)
        try:
            want = run_quietly(self.eager, copies)
        except Exception as error:
            reraise_from_outside(error)
            want = None  # compiled code raises as well
        has_drawn, has_its_own = put_back(random)
        made = self.compiled(*inputs)
        if want is not None and not has_its_own:
            wide = None if has_drawn else functools.partial(self.in_float64, given)
            names = [f"output {k}" for k in range(len(want))] + [f"input {k}, at the end," for k in range(len(inputs))]
            with self.announcing(given, torch.is_grad_enabled()):
                look([*made, *inputs], [*want, *copies], names, self.name, wide)
            self.look_at_gradients(made, want, inputs, copies, None if has_drawn else given)
        return made

    @property
    def name(self) -> str:
        """The graph in words, with the user's line where it begins."""
        nodes = self.gm.graph.nodes
        line = next((node.meta["stack_trace"] for node in nodes if node.meta.get("stack_trace")), None)
        return f"a graph of {len(nodes)} nodes{f' that begins at {line.strip()}' if line else ''}"

    def in_float64(self, given: Sequence[Any]) -> list[Any] | None:
        """What eager gives for the inputs in float64, and what it leaves in them. None where it takes no others."""
        wide = [as_float64(x) for x in given]
        try:
            return [*run_quietly(self.eager, wide), *wide]
        except Exception as error:
            reraise_from_outside(error)
            return None

    def gradients_in_float64(
        self, given: Sequence[Any], tangents: dict[int, Any], places: Sequence[int]
    ) -> list | None:
        """Eager's gradients of the inputs at these places in float64, or None if it does not take float64."""
        wide = [as_float64(x) for x in given]
        try:
            with torch.enable_grad():
                results = run_quietly(self.eager, wide)
            flows = [(results[k], as_float64(tangent).detach()) for k, tangent in tangents.items()]
            outputs, weights = zip(*flows, strict=True)
            return list(torch.autograd.grad(outputs, [wide[k] for k in places], weights, allow_unused=True))
        except Exception as error:
            reraise_from_outside(error)
            return None

    @contextlib.contextmanager
    def announcing(self, given: Sequence[Any], grad: bool) -> Iterator[None]:
        """Listeners get the graph, and inputs with which it differs, before the error is raised."""
        try:
            yield
        except InternalError:
            events.emit("check.differs", text=self.name, graph_module=self.gm, inputs=given, grad=grad)
            raise

    def look_at_gradients(
        self, made: Sequence[Any], want: Sequence[Any], inputs: Sequence[Any], copies: list, given: list | None
    ) -> None:
        """Have autograd's nodes of the compiled graph compare what they give the inputs, when backward runs. `given`:
        copies of the inputs for float64, or None if the graph draws random numbers."""
        if any(has_history(x) != has_history(y) for x, y in zip(made, want, strict=True)):
            return
        observed = GradientsOfCall(made, inputs)
        if not observed.is_complete or not observed.inputs:
            return
        name = f"backward of {self.name}"

        def look_at() -> None:
            if any(map(has_changed, inputs, copies)):
                return  # written to since forward, perhaps unseen by autograd: eager's backward would read that
            flowing = observed.from_outside()
            if not flowing:
                return
            try:
                expected = torch.autograd.grad(
                    [want[k] for k in flowing],
                    [copies[k] for k in observed.inputs],
                    list(flowing.values()),
                    retain_graph=True,
                    allow_unused=True,
                )
            except RuntimeError as error:
                reraise_from_outside(error)
                return
            # No gradient is one of zeros, and how gradients lie is left to each kernel.
            found = [
                (k, got.contiguous(), gradient.contiguous())
                for (k, got), gradient in zip(observed.gradients(), expected, strict=True)
                if got is not None and gradient is not None
            ]
            if found:
                places, got, wanted = zip(*found, strict=True)
                names = [f"the gradient of input {k}" for k in places]
                wide = None if given is None else functools.partial(self.gradients_in_float64, given, flowing, places)
                with self.announcing(copies if given is None else given, True):
                    look(got, wanted, names, name, wide)

        observed.then(look_at)


def put_back(random: RandomState) -> tuple[bool, bool]:
    """Whether numbers were drawn, and whether compiled code draws others than eager does."""
    has_drawn, asked = random.has_changed(), current()
    random.put_back()
    return has_drawn, has_drawn and (bool(random.devices) or asked.fuel is not None and not asked.eager_random)


def run_quietly(eager: CompiledFn, inputs: Sequence[Any]) -> list[Any]:
    with filtered("ignore"):
        return list(eager(*inputs))


# -- copies of inputs --------------------------------------------------------------------------------------------------


def may_be_copied(inputs: Sequence[Any]) -> bool:
    if is_recorded() or autograd_is_watched() or torch.autograd.forward_ad._current_level >= 0:
        return False
    if len_torch_dispatch_stack() or len_torch_function_stack():
        return False
    return all(
        is_plain(x) if isinstance(x, torch.Tensor) else isinstance(x, int | float | complex | NoneType) for x in inputs
    )


def is_plain(x: torch.Tensor) -> bool:
    return (
        type(x) in PLAIN
        and x.layout is torch.strided
        and x.device.type in DEVICES
        and not (x.is_quantized or x.is_nested or x.is_conj() or x.is_neg())
        and not is_functorch_wrapped_tensor(x)
        and x.is_inference() == torch.is_inference_mode_enabled()
        and x.untyped_storage().nbytes() <= MOST_BYTES
    )


def copied(inputs: Sequence[Any]) -> list[Any]:
    """Copies that share memory where the inputs do."""
    given = {id(x): x for x in inputs if isinstance(x, torch.Tensor)}
    blocks = copied_blocks([x.untyped_storage() for x in given.values()])
    tensors: dict[int, torch.Tensor] = {}
    for x in given.values():
        storage = x.untyped_storage()
        start, block = blocks[storage._cdata]
        copy = torch.empty(0, dtype=x.dtype, device=x.device)
        skipped = (storage.data_ptr() - start) // x.element_size()
        copy.set_(block, skipped + x.storage_offset(), x.shape, x.stride())
        tensors[id(x)] = copy.requires_grad_(x.requires_grad)
    return [tensors.get(id(x), x) for x in inputs]


def copied_blocks(storages: list[torch.UntypedStorage]) -> dict[int, tuple[int, torch.UntypedStorage]]:
    """For each storage, where a block of memory begins that it is a part of, and a copy of the block. Several storages
    overlap where NumPy arrays are shown by tensors."""
    groups: list[list[torch.UntypedStorage]] = []
    end = -1
    for storage in sorted({s._cdata: s for s in storages}.values(), key=lambda s: (str(s.device), s.data_ptr())):
        is_part = groups and 0 < storage.data_ptr() < end and groups[-1][0].device == storage.device
        if not is_part:
            groups.append([])
        groups[-1].append(storage)
        end = max(end if is_part else -1, storage.data_ptr() + storage.nbytes())
    found = {}
    for group in groups:
        start, block = group[0].data_ptr(), group[0].clone()
        if len(group) > 1:
            block.resize_(max(s.data_ptr() + s.nbytes() for s in group) - start)
            everything = torch.empty(0, dtype=torch.uint8, device=block.device).set_(block)
            for part in group[1:]:
                at = part.data_ptr() - start
                everything[at : at + part.nbytes()] = torch.empty(0, dtype=torch.uint8, device=part.device).set_(part)
        found.update({s._cdata: (start, block) for s in group})
    return found


def as_float64(x: Any) -> Any:
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        return x
    return x.detach().double().requires_grad_(x.requires_grad)


def has_changed(x: Any, copy: Any) -> bool:
    """Whether an input is not what eager has left in its copy. Roundings of a graph that writes are not changes."""
    with torch.no_grad():
        return why_different(x, copy) is not None


# -- comparing ---------------------------------------------------------------------------------------------------------


def look(
    made: Sequence[Any],
    want: Sequence[Any],
    names: Sequence[str],
    graph: str,
    in_float64: Callable[[], list[Any] | None] | None = None,
) -> None:
    """Raise InternalError for the first value that differs."""
    reference: list[Any] | None = None
    for k, (got, expected) in enumerate(zip(made, want, strict=True)):
        if type(got) is type(expected) is float:
            got, expected = torch.tensor([got, expected], dtype=torch.float64)
        why = why_different(got, expected)
        if why is not None and in_float64 is not None:
            reference, in_float64 = in_float64(), None
        if why is None or reference is not None and is_as_near(got, expected, reference[k]):
            continue
        error = InternalError(
            "check",
            f"{graph} gives something else than eager does: {names[k]} {why}.\n"
            f"To find the smallest graph that is, and the rewrite that is wrong, run burnish bisect script.py",
        )
        half_done(error)  # else the caller would run plain Python in place of the graph, and go on
        raise error


def as_rounded(got: torch.Tensor, want: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Tensors of float64 in float32 if they hold numbers of it, as numbers that a graph reads from its tensors do, and
    scalars of NumPy that become float64 later: these were rounded to float32."""
    if got.dtype is want.dtype is torch.float64:
        singles = got.float(), want.float()
        if all(torch.equal(x.double().nan_to_num(), y.nan_to_num()) for x, y in zip(singles, (got, want), strict=True)):
            return singles
    return got, want


def why_different(got: Any, want: Any) -> str | None:
    if not isinstance(got, torch.Tensor) or not isinstance(want, torch.Tensor):
        return None if type(got) is type(want) and (got == want or got != got) else f"is {got!r}, and eager's {want!r}"
    for name in ("dtype", "shape", "device"):
        if getattr(got, name) != getattr(want, name):
            return f"has the {name} {getattr(got, name)}, and eager's {getattr(want, name)}"
    if strides_that_count(got) != strides_that_count(want):
        return f"has the strides {got.stride()}, and eager's {want.stride()}"
    got, want = as_rounded(got, want)
    far, share = distance(got, want)
    if want.dtype.is_floating_point or want.dtype.is_complex:
        return (
            None
            if far <= allowed(want)
            else f"differs by up to {far:.3g}, and eager's numbers go up to {largest(want):.3g}"
        )
    return f"differs in {share:.1%} of its elements" if share > 0 else None


def is_as_near(got: Any, want: Any, exact: Any) -> bool:
    """Whether a tensor is not much further from float64 than eager's. Where roundings decide, either may be right."""
    if type(exact) is float:
        exact = torch.tensor(exact, dtype=torch.float64)
    if (
        not isinstance(exact, torch.Tensor)
        or got.shape != exact.shape
        or strides_that_count(got) != strides_that_count(want)
    ):
        return False
    got, want = as_rounded(got, want)
    if want.dtype.is_floating_point or want.dtype.is_complex:
        return distance(got, exact)[0] <= TIMES_EAGER * distance(want, exact)[0] + allowed(want)
    return distance(got, want)[1] <= FLIPPED or distance(want, exact)[1] > 0


def strides_that_count(x: torch.Tensor) -> list[int]:
    return [step for size, step in zip(x.shape, x.stride(), strict=True) if size > 1] if x.numel() else []


def distance(x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
    """The greatest distance of two elements, and the share of those that differ. Not-a-number is equal to itself."""
    if not x.numel():
        return 0.0, 0.0
    kind = torch.complex128 if x.dtype.is_complex else torch.float64 if y.dtype.is_floating_point else None
    x, y = (each.detach() if kind is None else each.detach().to(kind) for each in (x, y))
    differs = (x != y) & ~((x != x) & (y != y))
    far = 0.0
    if kind is not None and bool(differs.any()):
        far = float((x - y).abs()[differs].nan_to_num(nan=float("inf"), posinf=float("inf")).max())
    return far, float(differs.double().mean())


def largest(x: torch.Tensor) -> float:
    numbers = x.detach().abs().double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    return float(numbers.max()) if numbers.numel() else 0.0


def allowed(want: torch.Tensor) -> float:
    return NEAR.get(want.dtype, NEAR_HALF) * max(largest(want), LEAST)
