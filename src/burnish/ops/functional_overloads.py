"""Functional overloads: for an ATen operator that writes to its arguments, the one that returns new tensors.

functional_form(torch.ops.aten.add_.Tensor)        # aten.add.Tensor
factory_form(torch.ops.aten.eye.m_out)             # aten.eye.m, with the dtype and the device of ``out``
"""

from __future__ import annotations

from typing import Any

import torch


def functional_form(func: Any) -> Any:
    """The overload with the same arguments that writes to none of them."""
    name = func._schema.name.split("::")[1]
    wanted = [(a.name, str(a.type)) for a in func._schema.arguments if not a.is_out]
    # `x <<= 1` becomes `x << 1`; other in-place operators have a trailing underscore that the functional form lacks.
    plain = name.replace("__i", "__", 1) if name.endswith("__") else name.removesuffix("_")
    for base in (plain, f"{plain}_functional"):
        packet = getattr(torch.ops.aten, base, None)
        for overload in packet.overloads() if packet is not None else ():
            found = getattr(packet, overload)
            arguments = found._schema.arguments
            if (
                not any(a.alias_info and a.alias_info.is_write for a in arguments)
                and len(found._schema.returns)
                and same_arguments([(a.name, str(a.type)) for a in arguments], wanted)
            ):
                return found
    return None


FACTORIES = ("eye", "arange", "linspace", "logspace", "full", "ones", "zeros")
KIND_OF_RESULT = ("dtype", "layout", "device", "pin_memory")


def is_factory(func: Any) -> bool:
    return func._schema.name.split("::")[1] in FACTORIES


def factory_form(func: Any) -> Any:
    """The overload of a factory with the same arguments, plus those for the properties of ``out=``."""
    name = func._schema.name.split("::")[1]
    if not is_factory(func):
        return None
    wanted = [(a.name, str(a.type)) for a in func._schema.arguments if not a.is_out]
    packet = getattr(torch.ops.aten, name)
    for overload in packet.overloads():
        found = getattr(packet, overload)
        arguments = [(a.name, str(a.type)) for a in found._schema.arguments if a.name not in KIND_OF_RESULT]
        if same_arguments(arguments, wanted) and found is not func:
            return found
    return None


def same_arguments(found: list[tuple[str, str]], wanted: list[tuple[str, str]]) -> bool:
    """An optional argument in one may be required in the other."""
    return len(found) == len(wanted) and all(
        a == b and s.removeprefix("Optional[").rstrip("]") == t.removeprefix("Optional[").rstrip("]")
        for (a, s), (b, t) in zip(found, wanted, strict=True)
    )
