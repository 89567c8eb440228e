"""Whether a function runs on tensors without data: then the types of its results do not depend on data.

    RunWithoutData(Scaled.apply, (x, 2.0)).succeeds()      True
    RunWithoutData(Positive.apply, (x,)).succeeds()        False: x[x > 0] has a size that only data tells

The function gets tensors that have the types of its arguments and no memory, and so are all that it makes: a buffer of
zeros may get data later. Whatever it reads out of one raises, in torch or in Python. No list of calls that read is
needed, which would never be complete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ....captured_graph import warnings_already_given
from ....concurrency.outside_errors import reraise_from_outside
from ....foundation.torch_private import (
    DisableTorchDispatch,
    are_functorch_transforms_active,
    disabled_torch_function_impl,
    len_torch_dispatch_stack,
    make_wrapper_subclass,
    pop_torch_dispatch_stack,
    push_on_torch_dispatch_stack,
    top_saved_tensors_default_hooks,
)
from ....ir.graph import Value
from ....ir.infer_types import types_without_data
from ....ir.side_effect_free_kernels import has_meta_kernel
from ....runtime.argument_trees import mapped
from ....tensors.tensor_types import TensorType
from ...guards.tensor_metadata import TENSOR_TYPES

META = torch.device("meta")


class WithoutData(torch.Tensor):
    """A tensor on the device of another one. `type_only` is on the device meta, where operators compute types."""

    type_only: torch.Tensor

    @staticmethod
    def make(type_only: torch.Tensor, device: torch.device, requires_grad: bool = False) -> WithoutData:
        made = make_wrapper_subclass(
            WithoutData,
            type_only.shape,
            strides=type_only.stride(),
            dtype=type_only.dtype,
            device=device,
            requires_grad=requires_grad,
        )
        made.type_only = type_only
        return made

    __torch_function__ = disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run_on_types(func, args, kwargs or {})


class OperatorsWithoutData:
    """Receives the operators that run, as a raw entry of the dispatch stack: also those that no tensor is given to."""

    def __init__(self) -> None:
        self.have_failed = False
        """The function may catch the error."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return run_on_types(func, args, kwargs or {})
        except BaseException:
            self.have_failed = True
            raise


def run_on_types(func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Run an operator on types only."""
    known: dict[int, WithoutData] = {}
    devices: list[torch.device] = []

    def type_only(tensor: torch.Tensor) -> torch.Tensor:
        devices.insert(len(devices) if tensor.ndim == 0 else 0, tensor.device)
        if not isinstance(tensor, WithoutData):
            return like(tensor)
        known[id(tensor.type_only)] = tensor
        return tensor.type_only

    schema = func._schema
    for k, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            mapped(args[k] if k < len(args) else kwargs.get(argument.name), torch.Tensor, must_have_no_data)
    given, named = mapped((args, kwargs), torch.Tensor, type_only)
    named = {name: value for name, value in named.items() if name not in ("generator", "pin_memory")}
    device = torch.device(named.get("device") or (devices[0] if devices else "cpu"))
    changes_shapes = torch.Tag.inplace_view in func.tags
    if has_meta_kernel(func.name()) or changes_shapes:
        if "device" in named or not devices and any(argument.name == "device" for argument in schema.arguments):
            named["device"] = META
        made = func(*mapped(given, torch.device, lambda _: META), **named)
    else:
        made = made_without_data(func, args, kwargs)
    if changes_shapes:
        with DisableTorchDispatch():
            func(*args, **kwargs)
    for tensor in known.values():
        if tensor.shape != tensor.type_only.shape or tensor.stride() != tensor.type_only.stride():
            raise RuntimeError("an operator gives a tensor another shape")

    def wrapped(tensor: torch.Tensor) -> torch.Tensor:  # an operator that writes returns what it was given
        found = known.get(id(tensor))
        return WithoutData.make(tensor, device) if found is None else found

    return mapped(made, torch.Tensor, wrapped)


def made_without_data(func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """The results of an operator that torch would import Dynamo for, by the compiler's rules for types. What an
    operator writes to it returns itself."""
    written = {
        name: args[k] if k < len(args) else kwargs.get(argument.name)
        for k, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
        for name in argument.alias_info.before_set
    }

    def made_of(type: TensorType, returned: Any) -> torch.Tensor:
        if returned.alias_info is not None and returned.alias_info.is_write:
            found = written[next(iter(returned.alias_info.before_set))]
            if TensorType.of(found) != type:
                raise RuntimeError(f"{func} gives a tensor another type")
            return found.type_only
        return torch.empty_strided(type.shape, type.stride, dtype=type.dtype, device=META)

    given, named = mapped((args, kwargs), torch.Tensor, lambda tensor: Value(TensorType.of(tensor), "x"))
    types, returns = types_without_data(func, given, named), func._schema.returns
    if len(returns) != 1:
        types = list(zip(types, returns, strict=True))
        return tuple([made_of(*part) if isinstance(part[0], TensorType) else part[0] for part in types])
    return mapped(types, TensorType, lambda type: made_of(type, returns[0]))


def must_have_no_data(tensor: torch.Tensor) -> None:
    if not isinstance(tensor, WithoutData):
        raise RuntimeError("an operator writes to a tensor that has data")


def like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META)


class RunWithoutData:
    """A call, as its arguments are now: the function may run before on those that have data, so that it has given its
    warnings when it runs without."""

    def __init__(self, function: Callable, args: tuple):
        self.function = function
        tensors: list[torch.Tensor] = []
        mapped(args, torch.Tensor, tensors.append)
        self.is_possible = all(type(x) in TENSOR_TYPES and x.layout is torch.strided for x in tensors)
        if self.is_possible:
            self.args = mapped(args, torch.Tensor, Argument)

    def succeeds(self) -> bool:
        """False also where running the function could be seen, or tensors are not plain."""
        if not self.is_possible or is_seen():
            return False
        operators = OperatorsWithoutData()
        with warnings_already_given.filtered("ignore"):
            try:
                push_on_torch_dispatch_stack(operators)
                self.function(*mapped(self.args, Argument, Argument.without_data))
            except Exception as error:
                reraise_from_outside(error)
                return False
            finally:
                while len_torch_dispatch_stack():
                    pop_torch_dispatch_stack(None)
        return not operators.have_failed


class Argument:
    """The properties of a tensor among the arguments."""

    def __init__(self, x: torch.Tensor):
        self.type_only, self.device = like(x), x.device
        self.requires_grad, self.is_leaf = x.requires_grad, x.is_leaf

    def without_data(self) -> torch.Tensor:
        made = WithoutData.make(self.type_only, self.device, self.requires_grad)
        if self.is_leaf or torch.is_inference_mode_enabled():
            return made
        with torch.enable_grad():
            return torch.clone(made, memory_format=torch.preserve_format)  # functions may write to it


def is_seen() -> bool:
    """Whether the program, or a transform, receives the operators that run, or the tensors that they save."""
    return (
        len_torch_dispatch_stack() > 0
        or are_functorch_transforms_active()
        or top_saved_tensors_default_hooks(True) is not None
    )
