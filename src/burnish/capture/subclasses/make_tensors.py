"""Tensors of subclasses that the program makes: by their constructors, by `as_subclass`, by torch's default rule."""

from __future__ import annotations

from typing import Any

import torch

from ...foundation.torch_private import OpOverload, make_wrapper_subclass, python_dispatch
from ...foundation.torch_private import make_subclass as torch_make_subclass
from .. import breaks
from ..engine.torch_call_records import NotRecordable
from ..guards.tensor_metadata import WithoutRules
from ..interpreter.frames import MISSING
from ..interpreter.program_or_tracer_errors import call_for_program, internal
from ..python.operators import guard_before_native_read
from .interpret_rules import DEFAULT_FUNCTION, as_subclass, convert_results
from .subclass_tensors import has_dispatch, is_subclass
from .tentative_dispatch_callbacks import NestedRegion


def make_wrapper(m: Any, args: tuple, kwargs: dict) -> Any:
    """``torch.Tensor._make_wrapper_subclass(cls, size, ...)``: a tensor without data."""
    for value in (*args, *kwargs.values()):
        guard_before_native_read.settle_all(m, value)
    args, kwargs = (
        guard_before_native_read.settled(args),
        {name: guard_before_native_read.settled(value) for name, value in kwargs.items()},
    )
    made = m.made(m.plainly(make_wrapper_subclass, *args, **kwargs))
    m.subclasses.wrappers[id(made)] = made, args, kwargs
    return made


def make_subclass(m: Any, args: tuple, kwargs: dict) -> Any:
    """``torch.Tensor._make_subclass(cls, data)``: a tensor that shows the memory of ``data``, without its history."""
    kind, data = args[:2] if len(args) > 1 else (None, None)
    requires = args[2] if len(args) > 2 else kwargs.get("require_grad", False)
    if (
        type(data) is not torch.Tensor
        or requires is not False
        or len(args) > 3
        or not kwargs.keys() <= {"require_grad"}
        or has_dispatch(kind)
    ):
        return m.stop(breaks.UNKNOWN_TENSOR, "torch's _make_subclass")
    shown = m.perform(torch.Tensor.detach, data)
    made = m.made(m.plainly(torch_make_subclass, *args, **kwargs))
    m.subclasses.note(made, shown, is_detached=True)
    return made


def shows_its_argument(m: Any, cls: type, args: tuple, kwargs: dict) -> bool:
    """Whether torch's own constructor of a subclass gets a plain tensor. Then it does what `as_subclass` does."""
    return (
        cls not in (torch.Tensor, torch.nn.Buffer)
        and len(args) == 1
        and not kwargs
        and type(args[0]) is torch.Tensor
        and m.knows(args[0])
        and not has_dispatch(cls)
    )


def show_as(m: Any, value: Any, kind: Any) -> Any:
    """``value.as_subclass(kind)``. No torch function mode receives it."""
    if not is_subclass(value) and not m.knows(value) or has_dispatch(type(value)) or has_dispatch(kind):
        return MISSING
    try:
        plain = m.subclasses.plain_of(m, value) if is_subclass(value) else value
    except NotRecordable:
        return MISSING
    if kind is torch.Tensor:
        return m.perform(torch.ops.aten.alias.default, plain)
    return m.plainly(as_subclass, m, plain, kind)


def default_rule(m: Any, args: tuple, kwargs: dict) -> Any:
    """``super().__torch_function__(func, types, args, kwargs)``."""
    given = dict(zip(("cls", "func", "types", "args", "kwargs"), args, strict=False)) | kwargs
    if len(given) != len(args) + len(kwargs) or not given.keys() >= {"cls", "func", "types"}:
        return MISSING
    return m.perform(by_default_rule, m, **given)


@internal
def by_default_rule(m: Any, cls: type, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
    if not all(issubclass(cls, other) for other in types):
        return NotImplemented
    with WithoutRules():
        return convert_results(m, call_for_program(m, func, args, kwargs or {}), func, cls)


def correct_aliasing(m: Any, args: tuple, kwargs: dict) -> Any:
    """``return_and_correct_aliasing(func, args, kwargs, out)``: a rule's result gets the storage of the wrapper that it
    is a view of, or is replaced by the argument that was written to."""
    if kwargs or len(args) != 4 or not isinstance(args[0], OpOverload):
        return MISSING
    func, given, _, out = args
    info = python_dispatch.get_alias_info(func)
    if info.is_inplace_view_op:
        m.stop(breaks.TENSOR_STATE, f"{func} by a rule")
    for argument, result in info.read_only_alias_match_indexes:
        owner, made = given[argument], (out if isinstance(out, tuple) else (out,))[result]
        for each in made if isinstance(made, list) else [made]:
            if is_subclass(each):
                m.subclasses.storages[id(each)] = each, owner
    return m.plainly(python_dispatch.return_and_correct_aliasing, *args)


HANDLERS = {DEFAULT_FUNCTION: default_rule, python_dispatch.return_and_correct_aliasing: correct_aliasing}
BUILTINS = {make_wrapper_subclass: make_wrapper, torch_make_subclass: make_subclass}


def without_rules(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    """``torch._C.DisableTorchFunctionSubclass()``. A segment that ends inside its block is not kept."""
    is_allowed = m.capabilities.enters_modes if m.region is None else isinstance(m.region, NestedRegion)
    return m.made(m.plainly(cls, *args, **kwargs)) if is_allowed else MISSING


CONSTRUCTORS = {WithoutRules: without_rules}
