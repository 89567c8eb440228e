"""Records the ATen operators that a call performs below autograd and function transforms.

    with lowered: torch.vmap(torch.dot)(x, y)           x * y, then its sums, as calls of aten operators

The mode is below autograd and below all function transforms, so no tensor that it meets belongs to a transform. The
operators run once more as the graph, where autograd records them again: gradients flow through them as in eager.
Operators whose results are not needed are removed.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple, NoReturn

import torch

from ....foundation.torch_private import OpOverload, TorchDispatchMode, set_grad_enabled, unwrap_if_dead
from ....runtime.argument_trees import mapped
from ....tensors.in_place_names import VIEW_OF_RESHAPING
from ... import breaks
from ...engine.break_signals import Stop
from ...engine.torch_call_records import Handle, TorchCall
from ...guards.tensor_metadata import TENSOR_TYPES
from ...interpreter.program_or_tracer_errors import call_for_program, internal
from ...numbers.live_scalars import Live, plain_of, settled
from .. import torch_call_roles
from . import symbolic_numbers

DETACH = torch.ops.aten.detach.default
INDEX = torch.ops.aten.index.Tensor
DETACHING = frozenset(("detach", "detach_", "data"))
NUMBERS = (int, float, complex, bool)
PLAIN = (*NUMBERS, str, type(None), torch.Tensor, torch.dtype, torch.device, torch.layout, torch.memory_format)
MOST_NUMBERS = 1024
"""The most elements of a tensor that becomes a constant of the graph."""
FACTS = NUMBERS
"""The results of operators that only look at metadata. What the program asks for is guarded by the recorder."""
DATA_TAGS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)


class Operation(NamedTuple):
    call: TorchCall
    made: list[Handle]
    """The handles of its results."""
    has_gradients: bool
    """Whether grad mode was on."""
    is_needed: bool
    """Even if its results are not used: it writes, or draws random numbers."""
    is_cut: bool
    """Whether it is a ``detach`` by autograd, not by the program."""


class LoweredCalls(TorchDispatchMode):
    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would import Dynamo, to exclude this class from it."""
        return False

    def __init__(self, recorder: Any, start: int, outer: Any = None):
        """``outer``: the branch of `torch.cond` that the calls are in. It must know what they read."""
        super().__init__()
        self.recorder, self.start, self.outer = recorder, start, outer
        self.tracer = recorder.tracer
        self.operations: list[Operation] = []
        self.table: dict[int, tuple[torch.Tensor, Handle]] = {}
        """The tensors made here, which it keeps alive, by id."""
        self.memory: set[int] = set()
        """The storages made here."""
        self.foreign: set[int] = set()
        """The storages of tensors from outside, which their views share."""
        self.repeats_calls = False
        """Whether the program's call runs again after a refusal, on the same tensors."""
        self.current: tuple[Any, tuple, dict] | None = None
        """The torch call that the program is making."""
        self.reads_data: str | None = None
        """An operator that reads data. A read by the program is a break of its own."""
        self.has_numbers = False
        """Whether a torch call was given a symbolic number."""
        self.has_custom = False
        """Whether a custom autograd function was called: autograd has its formula, and not that of its operators."""
        self.log: Any = None
        """With symbolic sizes: what the call does, to be repeated at others."""
        self.grad_mode = torch.is_grad_enabled()

    @internal
    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, OpOverload):
            self.refuse(f"the operator {func}")
        if any(tag in func.tags for tag in DATA_TAGS) and not (func is INDEX and not has_masks(args[1])):
            self.reads_data = self.reads_data or f"{func}, which reads data"
        args = tuple(self.number(func, at, value) for at, value in enumerate(args))
        kwargs = {name: self.number(func, name, value) for name, value in kwargs.items()}
        given, numbers = self.argument((args, kwargs)), (args, kwargs)
        args, kwargs = mapped((args, kwargs), Live, plain_of)
        if self.outer is not None:
            self.outer.will_call(func, args, kwargs)
        if self.repeats_calls and torch.Tag.nondeterministic_seeded in func.tags:
            self.refuse("random numbers")
        for target in written_by(func, args, kwargs):
            if target.untyped_storage()._cdata not in self.memory:
                self.refuse("a change of a tensor from outside")
        made, before = call_for_program(self.tracer, func, args, kwargs), len(self.operations)
        self.note(func, args, given, made)
        if self.log is not None:
            self.log.performed(func, *numbers, made, before if len(self.operations) > before else None)
        return made

    def refuse(self, what: str) -> NoReturn:
        raise Stop(breaks.OPAQUE_FUNCTION, what)

    def begin(self, call: tuple[Any, tuple, dict]) -> None:
        """The program makes a torch call. If it may run again, it must not write what an earlier one has made."""
        self.current = call
        if self.repeats_calls:
            self.foreign |= self.memory
            self.memory.clear()

    # ---- recording

    def note(self, func: Any, args: tuple, given: Any, made: Any) -> None:
        handles: list[Handle] = []
        if type(made) in FACTS and not func._schema.is_mutable:
            return
        self.register(made, self.start + len(self.operations), (), handles)
        view = VIEW_OF_RESHAPING.get(func)
        if view is not None:  # the tensor is from now on this view of its memory
            handles = [Handle(self.start + len(self.operations))]
            self.table[id(made)] = made, handles[0]
            func = view
        schema = func._schema
        self.operations.append(
            Operation(
                TorchCall(func, *given, None),
                handles,
                torch.is_grad_enabled(),
                schema.is_mutable or torch.Tag.nondeterministic_seeded in func.tags or not schema.returns,
                func is DETACH and args[0].requires_grad and not self.detaches(),
            )
        )

    def detaches(self) -> bool:
        return self.current is not None and torch_call_roles.name_of(self.current[0]) in DETACHING

    def register(self, made: Any, call: int, path: tuple, handles: list[Handle]) -> None:
        if isinstance(made, torch.Tensor):
            if id(made) not in self.table and self.outside(made) is None:
                handles.append(Handle(call, path))
                self.table[id(made)] = made, handles[-1]
                storage = made.untyped_storage()._cdata
                if storage not in self.foreign:
                    self.memory.add(storage)
        elif isinstance(made, (tuple, list)):
            for k, part in enumerate(made):
                self.register(part, call, (*path, k), handles)
        elif made is not None:
            self.refuse(f"a {type(made).__name__} as a result of an operator")

    def number(self, func: Any, at: int | str, value: Any) -> Any:
        """An argument, with the live scalars that symbolic numbers stand for."""
        if isinstance(value, symbolic_numbers.SYMBOLIC) and symbolic_numbers.takes_scalar(func._schema, at):
            return symbolic_numbers.number_of(value)
        return mapped(value, symbolic_numbers.SYMBOLIC, lambda number: settled(symbolic_numbers.number_of(number)))

    def argument(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.handle(value)
        if issubclass(type(value), Live):
            self.recorder.filled = None
            return self.recorder.argument(value, True)
        if type(value) in (tuple, list):
            return type(value)([self.argument(part) for part in value])
        if type(value) is dict:
            return {key: self.argument(part) for key, part in value.items()}
        if isinstance(value, torch.Generator):
            self.refuse("a random number generator")
        return value

    def handle(self, value: torch.Tensor) -> Handle:
        found = self.table.get(id(value))
        if found is not None:
            return found[1]
        return self.outside(value) or self.constant(value)

    def outside(self, value: torch.Tensor) -> Handle | None:
        """The handle of a value from before the call."""
        if type(value) not in TENSOR_TYPES:
            self.refuse(f"a tensor of the class {type(value).__qualname__}")
        handle = self.recorder.handle_of(value)
        if handle is not None and isinstance(handle.call, int) and handle.call >= self.start:
            return None
        if handle is None and self.recorder.tracer.heap.origin_of(value) is None:
            return None
        if value.layout is not torch.strided:
            self.refuse("a tensor that is not strided")
        self.foreign.add(value.untyped_storage()._cdata)
        return handle or self.recorder.tensor(value)

    def constant(self, value: torch.Tensor) -> Handle:
        """Records a tensor that torch itself created: from Python numbers, or as the zero tangent of a constant. The
        graph creates it again."""
        if self.log is not None:
            self.log.meets_constant(value, self.current)
        if type(value) is torch.Tensor and value._is_zerotensor():
            call = TorchCall(torch.zeros, (tuple(value.shape),), {"dtype": value.dtype, "device": value.device}, None)
            return self.made_by(call, value)
        if self.has_numbers and symbolic_numbers.may_stand_for_number(value):
            return self.made_by(TorchCall(symbolic_numbers.meaningless, (), {}, None), value)
        if (
            self.current is None
            or not is_made_of_numbers(self.current[1:])
            or value.numel() > MOST_NUMBERS
            or value.requires_grad
            or type(value) is not torch.Tensor
            or value.layout is not torch.strided
        ):
            return self.refuse("a tensor whose origin is not known")
        call = TorchCall(torch.tensor, (value.tolist(),), {"dtype": value.dtype, "device": value.device}, None)
        return self.made_by(call, value)

    def made_by(self, call: TorchCall, value: torch.Tensor) -> Handle:
        handle = Handle(self.start + len(self.operations))
        self.table[id(value)] = value, handle
        self.memory.add(value.untyped_storage()._cdata)
        self.operations.append(Operation(call, [handle], torch.is_grad_enabled(), False, False))
        return handle

    # ---- the end

    def take_sizes(self) -> None:
        """With symbolic sizes: those in the operators become numbers of the graph."""
        if self.log is None or not self.log.fit():
            return
        for index, expected in zip(self.log.indices, self.log.expected, strict=True):
            if index is not None:
                operation = self.operations[index]
                args, kwargs = self.with_sizes((operation.call.args, operation.call.kwargs), expected[:2])
                self.operations[index] = operation._replace(call=operation.call._replace(args=args, kwargs=kwargs))

    def with_sizes(self, given: Any, expected: Any) -> Any:
        if issubclass(type(expected), Live):
            return self.argument(expected) if type(given) in (int, float) else given
        if type(expected) in (tuple, list):
            return type(given)([self.with_sizes(*parts) for parts in zip(given, expected, strict=True)])
        if type(expected) is dict:
            return {key: self.with_sizes(given[key], part) for key, part in expected.items()}
        return given

    def put_in_place(self, results: list[torch.Tensor], keeps_all: bool, line: str | None) -> None:
        """Append the operations to the recorded calls. ``keeps_all``: results may still be used by a function that
        torch has returned, so all are kept."""
        recorder = self.recorder
        if self.reads_data is not None:
            self.refuse(self.reads_data)
        needed = {id(self.known(result)) for result in results}
        kept: list[Operation] = []
        for operation in reversed(self.operations):
            if keeps_all or operation.is_needed or any(id(h) in needed for h in operation.made):
                needed.update(id(h) for h in handles_in((operation.call.args, operation.call.kwargs)))
                kept.append(operation)
        if any(operation.call.target is symbolic_numbers.meaningless for operation in kept):
            self.refuse("a number whose tensor C++ has copied")
        learns = self.grad_mode and any(x.requires_grad for x in self.read_outside(kept))
        if learns and not keeps_all and any(operation.is_cut for operation in kept):
            self.refuse("gradients through a tensor that autograd has saved")
        if learns and self.has_custom:
            self.refuse("gradients through a custom autograd function")
        mode = self.grad_mode
        for operation in reversed(kept):
            if learns and operation.has_gradients != mode:
                mode = operation.has_gradients
                recorder.calls.append(TorchCall(set_grad_enabled, (mode,), {}, line))
            for handle in operation.made:
                handle.call = len(recorder.calls)
            recorder.calls.append(operation.call._replace(line=line))
        if mode != self.grad_mode:
            recorder.calls.append(TorchCall(set_grad_enabled, (self.grad_mode,), {}, line))
        stays = {id(h) for operation in kept for h in operation.made}
        for key, (value, handle) in self.table.items():
            if id(handle) in stays:
                recorder.known[key] = weakref.ref(value), handle
        if keeps_all:
            recorder.kept.append(self.table)

    def knows_outside(self, wrapped: torch.Tensor) -> bool:
        """Whether a tensor that has left its transform, as an element of a list, is the one below it from now on."""
        inner = unwrap_if_dead(wrapped)
        entry = self.table.get(id(inner))
        if entry is None or inner.requires_grad != wrapped.requires_grad:
            return False
        self.table[id(wrapped)] = wrapped, entry[1]
        return True

    def known(self, result: torch.Tensor) -> Handle:
        found = self.table.get(id(result))
        handle = self.outside(result) if found is None else found[1]
        if handle is None:
            self.refuse("a result that is not a tensor computed there")
        return handle

    def read_outside(self, kept: list[Operation]) -> list[torch.Tensor]:
        handles = {id(h) for operation in kept for h in handles_in((operation.call.args, operation.call.kwargs))}
        inputs = [
            example
            for handle, example in zip(self.recorder.inputs, self.recorder.examples, strict=True)
            if id(handle) in handles and isinstance(example, torch.Tensor)
        ]
        values = [entry[0]() for entry in self.recorder.known.values() if id(entry[1]) in handles]
        return inputs + [value for value in values if isinstance(value, torch.Tensor)]


def written_by(func: Any, args: tuple, kwargs: dict) -> list[torch.Tensor]:
    """The tensors that an operator writes to."""
    if not func._schema.is_mutable:
        return []
    found: list[torch.Tensor] = []
    for k, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[k] if k < len(args) else kwargs.get(argument.name)
            parts = value if isinstance(value, (tuple, list)) else (value,)
            found += [part for part in parts if isinstance(part, torch.Tensor)]
    return found


def handles_in(tree: Any) -> list[Handle]:
    if isinstance(tree, Handle):
        return [tree]
    if isinstance(tree, (tuple, list)):
        return [handle for part in tree for handle in handles_in(part)]
    return [handle for part in tree.values() for handle in handles_in(part)] if isinstance(tree, dict) else []


def has_masks(indices: Any) -> bool:
    """Whether the size of what they select depends on their data."""
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)


def is_made_of_numbers(tree: Any) -> bool:
    """Whether the arguments of a call hold no data but that of tensors, numbers and lists of them."""
    if isinstance(tree, (tuple, list)):
        return all(map(is_made_of_numbers, tree))
    if isinstance(tree, slice):
        return is_made_of_numbers((tree.start, tree.stop, tree.step))
    return (
        tree is ... or isinstance(tree, PLAIN) or isinstance(tree, dict) and all(map(is_made_of_numbers, tree.values()))
    )
