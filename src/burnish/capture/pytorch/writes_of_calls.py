"""Writes of torch calls: which tensors a call writes to, and which of the recorded calls of a segment write.

writes("add_", {})                         whether a call writes to a tensor
changes_after(recorder.calls, 3)           whether a recorded call from the fourth on does
written_inputs(recorder)                   the inputs of the graph that it writes to
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn.parameter import UninitializedTensorMixin

from ...foundation.torch_private import OpOverload, assert_async
from ...runtime.argument_trees import tensors_in
from ...runtime.eager.tensor_object_change_nodes import WATCHING
from ...runtime.program.restore_inputs_on_error import is_of_torch
from ...tensors.in_place_names import is_in_place_name
from ..engine.torch_call_records import Handle, TorchCall, handles_in
from ..guards.tensor_metadata import TENSOR_TYPES, WithoutRules
from .number_arguments import OPERATORS as OF_LIBRARIES
from .torch_call_roles import DELETER, SETTER, STATE, STATE_IN_GRAPH, name_of


def writes(target: Any, kwargs: dict) -> bool:
    """Whether a call changes a tensor in place (by torch's naming rule), or may do so."""
    if "out" in kwargs or kwargs.get("inplace") is True:
        return True
    name = target if isinstance(target, str) else getattr(target, "__name__", "_")
    if isinstance(target, OF_LIBRARIES) and writes_by_schema(target):
        return True
    return is_in_place_name(name) or name in WITH_STATISTICS or name in ("rnn_tanh", "apply")


WITH_STATISTICS = ("batch_norm", "instance_norm")


def written_tensors(function: Any, args: tuple, kwargs: dict) -> Iterator[torch.Tensor]:
    """The tensors that a call writes to."""
    name = name_of(function)
    if name in WITH_STATISTICS:
        if updates_statistics(name, args, kwargs):
            places = slice(1, 3) if getattr(function, "__module__", "") == torch.nn.functional.__name__ else slice(3, 5)
            yield from tensors_in((args[places], [kwargs.get("running_mean"), kwargs.get("running_var")]))
    elif writes(function, kwargs) or writes(name, kwargs):
        yield from tensors_in((args[:1], kwargs.get("out")))


UPDATES = {"batch_norm": ("training", False), "instance_norm": ("use_input_stats", True)}
"""The switch that makes a norm compute statistics, and its default. It is the sixth argument of `torch.batch_norm` as
of `torch.nn.functional.batch_norm`, which take the statistics in other places."""


def updates_statistics(name: str, args: tuple, kwargs: dict) -> bool:
    switch, default = UPDATES[name]
    return (args[5] if len(args) > 5 else kwargs.get(switch, default)) is not False


def written_or_changed_tensors(function: Any, args: tuple, kwargs: dict) -> Iterator[torch.Tensor]:
    """The tensors that a call writes to, or whose state it changes."""
    if changes_object(function):
        yield from tensors_in((args[:1], kwargs.get("out")))
    else:
        yield from written_tensors(function, args, kwargs)


def changes_object(function: Any) -> bool:
    """Whether a call may change the tensor object that it is given first: its memory, its shape, its hooks, or an
    attribute."""
    return getattr(function, "__name__", "") in (SETTER, DELETER) or name_of(function) in STATE


def writes_by_schema(operator: Any) -> bool:
    """Whether a registered operator says that it writes to an argument: any overload, if the call names none."""
    if operator.__name__.partition(".")[0] in STATE_IN_GRAPH:  # as transforms do to views of their own
        return False
    return any(written_names(overload) for overload in overloads_of(operator))


def overloads_of(operator: Any) -> list[Any]:
    if isinstance(operator, OpOverload):
        return [operator]
    overloads = [getattr(operator, name) for name in operator.overloads()]
    return [one for one in overloads if not any(a.is_out for a in one._schema.arguments)]  # they are seen by ``out=``


def written_names(overload: Any) -> list[str]:
    arguments = overload._schema.arguments
    return [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]


def written_arguments(target: Any, args: tuple, kwargs: dict) -> list[Any]:
    """The arguments to which a call may write: the first one and those of the schema."""
    written = [*args[:1], kwargs.get("out")]
    for overload in overloads_of(target) if isinstance(target, OF_LIBRARIES) else ():
        names = [argument.name for argument in overload._schema.arguments]
        for name in written_names(overload):
            at = names.index(name)
            written += [*args[at : at + 1], kwargs.get(name)]
    return [part for value in written for part in (value if isinstance(value, (list, tuple)) else (value,))]


def is_python(target: Any) -> bool:
    """Whether a call runs Python that the trace has not seen, and that may write to any tensor."""
    return getattr(target, "stands_alone", False) is True and target not in WATCHING


def may_write(target: Any, kwargs: dict) -> bool:
    """Whether a call may change an older tensor: in place, or as a function that is not torch's."""
    if isinstance(target, str) or writes(target, kwargs):
        return writes(target, kwargs)
    return not is_torch_code(target)


def is_torch_code(target: Any) -> bool:
    """Whether a call runs torch alone: neither the user's Python nor a function of ours, which may stand for it."""
    if isinstance(target, str):
        return target not in ("apply_", "map_", "map2_")
    return is_of_torch(target) and not str(getattr(target, "__module__", "")).startswith("burnish.")


def writes_silently(target: Any) -> bool:
    """Whether a call may write to an argument without increasing its version: running statistics."""
    return (target if isinstance(target, str) else getattr(target, "__name__", "")) in WITH_STATISTICS


# ---- of the recorded calls of a segment


def changes_after(calls: Sequence[TorchCall], position: int, or_python: bool = False) -> bool:
    """Whether any call from ``position`` on writes to a tensor, ``or_python`` that may."""
    return any(
        writes(call.target, call.kwargs) or or_python and is_python(call.target)
        for call in reversed(calls[position:])  # an optimizer asks after each of many writes
    )


def may_change_after(calls: Sequence[TorchCall], position: int) -> bool:
    """The same, where functions of ours count as well."""
    return any(may_write(call.target, call.kwargs) for call in reversed(calls[position:]))


def changes_before(calls: Sequence[TorchCall], position: int) -> bool:
    return any(writes(call.target, call.kwargs) for call in calls[:position])


def assertions(calls: Sequence[TorchCall]) -> list[int]:
    """The positions of assertions about tensors."""
    return [at for at, call in enumerate(calls) if call.target is assert_async]


def writes_before_assertion(recorder: Any) -> bool:
    """Whether an input may have been written when an assertion fails: the graph could not run again."""
    end = max(assertions(recorder.calls), default=0)
    return bool(written_inputs(recorder)) and writes_older(recorder.calls[:end])


def writes_older(calls: Sequence[TorchCall]) -> bool:
    """Whether one of the calls may write to a tensor that the graph has not made from nothing, as it made those of
    ``torch.empty(3).normal_()``. What no input had a part in shares no memory with one."""
    made_here: set[int | None] = set()
    for at, call in enumerate(calls):
        used = {handle.call for handle in handles_in((call.args, call.kwargs))}
        is_apart = used <= made_here and is_torch_code(call.target)
        if may_write(call.target, call.kwargs) and not (is_apart and used):
            return True
        if is_apart:
            made_here.add(at)
    return False


def written_inputs(recorder: Any) -> list[Handle]:
    """The inputs of the graph that its calls write to."""
    written = {
        id(argument)
        for call in recorder.calls
        if writes_silently(call.target)
        for argument in (*call.args, *call.kwargs.values())
        if isinstance(argument, Handle)
    }
    for call in recorder.calls:  # the call that introduces an input may also be the one that writes to it
        if writes(call.target, call.kwargs):
            written.update(map(id, written_arguments(call.target, call.args, call.kwargs)))
    uncounted = {memory_of(data) for data in recorder.data_read if version_of(data)} - {0}
    return [
        handle
        for handle, version, example in zip(recorder.inputs, recorder.versions, recorder.examples, strict=True)
        if version != version_of(example) or id(handle) in written or uncounted and memory_of(example) in uncounted
    ]


def memory_of(value: Any) -> int:
    """The address of a tensor's memory, or 0."""
    if type(value) not in TENSOR_TYPES or value.layout is not torch.strided:
        return 0
    return value.untyped_storage().data_ptr()


def version_of(value: Any) -> int:
    """How often torch has counted a write to a tensor; 0 where it does not count, and for other objects."""
    if type(value) in TENSOR_TYPES:
        return 0 if value.is_inference() else value._version
    if not isinstance(value, torch.Tensor) or isinstance(value, UninitializedTensorMixin):
        return 0
    with WithoutRules():
        return 0 if value.is_inference() else value._version
