"""Facts for tracing from the schema of an ATen operator: which arguments it writes to, which kinds of results."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch

from ...foundation.torch_private import OpOverload, dispatch_has_kernel_for_dispatch_key
from ...tensors.collective_operators import is_collective_operator


@dataclass(frozen=True, slots=True)
class Signature:
    """Facts of a schema."""

    written: tuple[int | str, ...]
    """Positions of the arguments that are written to, or names of those that are keyword-only."""
    returns_written: bool
    changes_type: bool
    returns_list: bool
    returns_lengths: bool
    """Some results are numbers, which follow from the shapes."""
    is_composite: bool
    why_not: str | None


@functools.cache
def signature_of(func: OpOverload) -> Signature:
    schema = func._schema
    returns = schema.returns
    written = [
        k
        for k, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    answered = [r.alias_info is not None and r.alias_info.is_write for r in returns]
    returns_lengths = func.name().startswith("aten::_scaled_dot_product_")
    why = None
    if any(
        str(r.type) not in ("Tensor", "List[Tensor]", "Optional[Tensor]")
        and not (returns_lengths and str(r.type) in ("int", "SymInt"))
        for r in returns
    ):
        why = f"{func} returns something that is not a tensor"
    elif any(str(schema.arguments[k].type) != "Tensor" for k in written):
        why = f"{func} writes to a list of tensors"
    elif written and (any(answered) and len(answered) != len(written) or any(answered) != all(answered) or not returns):
        why = f"{func} writes to one tensor and returns another"
    elif is_collective_operator(func):
        why = f"{func} waits for other processes"
    composite = dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    changes = torch.Tag.inplace_view in func.tags or func.name() in ("aten::resize_", "aten::set_")
    places = tuple(schema.arguments[k].name if schema.arguments[k].kwarg_only else k for k in written)
    returns_list = bool(returns) and str(returns[0].type) == "List[Tensor]"
    return Signature(places, any(answered), changes, returns_list, returns_lengths, composite, why)


def declared(func: Any, args: tuple) -> Any:
    """The same operator with a schema that lists what it writes to. A batch norm's schema omits running statistics."""
    if func is torch.ops.aten.native_batch_norm.default and args[5] and args[3] is not None and args[4] is not None:
        return torch.ops.aten._native_batch_norm_legit.default
    return func
