"""Serialize the tensors of an exported graph: each storage once, and each tensor's view of it.

    storages.describe("weight", weight)      {"name": "weight", "storage": 0, "shape": [3, 3], "strides": [3, 1], …}
    read_tensors(written, memory_of)         {"weight": the tensor}, over memory that is mapped, not read

A tensor is made only if it fits into its memory, which the file contains: sizes that a file merely claims allocate
nothing.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.fx

from ..concurrency.first_value_cache import once
from ..errors import UserError
from ..tensors.device_facts import is_host
from .values_to_json import decode, entry, flag, parts, read_device, sizes, text, whole

MOST_DIMENSIONS = 64
QUANTIZED = frozenset((torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4))
NAME = re.compile(r"[\w+:/ -]{1,200}", re.ASCII)
"""A part of a tensor's name: a number for a module in a list, a key for one in a dictionary."""


class Storages:
    """Memory, each storage once."""

    def __init__(self) -> None:
        self.pieces: list[torch.UntypedStorage] = []
        self.at: dict[int, int] = {}

    def describe(self, name: str, tensor: torch.Tensor) -> dict[str, Any]:
        if (
            tensor.layout is not torch.strided
            or tensor.is_quantized
            or tensor.is_meta
            or tensor.is_conj()
            or tensor.is_neg()
            or type(tensor) not in (torch.Tensor, torch.nn.Parameter)
        ):
            kind = type(tensor).__qualname__ if type(tensor) is not torch.nn.Parameter else "Parameter"
            raise UserError(
                f"The graph cannot be saved: its attribute {name} is a {kind} with layout {tensor.layout} "
                f"on {tensor.device.type}, and a file holds plain strided tensors."
            )
        try:
            attribute_path(name)
        except UserError as error:
            raise UserError(f"The graph cannot be saved: of its attribute {name}, {error}. Rename it.") from None
        storage = tensor.untyped_storage()
        number = self.at.setdefault(storage._cdata, len(self.pieces))
        if number == len(self.pieces):
            self.pieces.append(storage)
        return {
            "name": name,
            "storage": number,
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
            "strides": list(tensor.stride()),
            "offset": tensor.storage_offset(),
            "device": str(tensor.device),
            "parameter": isinstance(tensor, torch.nn.Parameter),
            "requires_grad": tensor.requires_grad,
        }


def memory_of(storage: torch.UntypedStorage) -> Any:
    """A storage's bytes, not copied if it is in main memory."""
    on_cpu = storage if is_host(storage.device) else storage.cpu()
    size = on_cpu.nbytes()
    if not size:
        return b""
    made = (ctypes.c_char * size).from_address(on_cpu.data_ptr())
    made._storage = on_cpu  # keeps it alive as long as the bytes
    return made


# ---- reading

Memory = dict[tuple[int, torch.device], torch.Tensor]
"""Each storage once on each device, so that tensors that share one still do."""


def read_tensors(written: Any, memory: Callable[[int], torch.Tensor]) -> dict[str, torch.Tensor]:
    """By name. `memory(number)` returns a storage of the file."""
    found: dict[str, torch.Tensor] = {}
    pieces: Memory = {}
    for number, what in enumerate(parts(written)):
        name = entry(what, "name")
        try:
            path = attribute_path(name)
            if path in found:
                raise UserError("there are two of this name")
            found[path] = read_tensor(what, memory, pieces)
        except UserError as error:
            raise UserError(f"the tensor {name!r:.80}, number {number} of its attributes: {error}") from error
    for path in found:
        for at, letter in enumerate(path):
            if letter == "." and path[:at] in found:
                raise UserError(f"the tensor {path!r:.80} would be a part of the tensor {path[:at]!r:.80}")
    return found


def read_tensor(what: Any, memory: Callable[[int], torch.Tensor], pieces: Memory) -> torch.Tensor:
    dtype = decode({"dtype": entry(what, "dtype")}, {})
    shape, strides = sizes(entry(what, "shape"), "a size"), sizes(entry(what, "strides"), "a stride")
    offset, number = whole(entry(what, "offset"), "an offset"), whole(entry(what, "storage"), "a storage", 1 << 31)
    device = read_device(entry(what, "device"), {}, 0)
    is_parameter = flag(entry(what, "parameter"), "whether it is a parameter")
    learns = flag(entry(what, "requires_grad"), "whether it requires gradients")
    if len(shape) != len(strides) or len(shape) > MOST_DIMENSIONS:
        raise UserError(f"it has {len(shape)} sizes and {len(strides)} strides")
    if learns and not (dtype.is_floating_point or dtype.is_complex):
        raise UserError(f"it is of {dtype} and requires gradients, which only floating-point numbers do")
    if dtype in QUANTIZED:
        raise UserError(f"it is of {dtype}, and a file holds plain strided tensors")
    if device.type == "meta":
        raise UserError("it is on the device meta, where there is no memory")
    if (number, device) not in pieces:
        pieces[number, device] = moved(memory(number), device)
    on_device = pieces[number, device]
    elements = 1
    for size in shape:
        elements *= size
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if (
        elements >= 1 << 60
        or offset * dtype.itemsize > on_device.nbytes
        or elements
        and (last + 1) * dtype.itemsize > on_device.nbytes
    ):
        raise UserError(
            f"it does not fit into its memory: {list(shape)} of {dtype} with strides {list(strides)} from "
            f"{offset} on, in {on_device.nbytes} bytes"
        )
    tensor = torch.empty(0, dtype=dtype, device=device).set_(on_device.untyped_storage(), offset, shape, strides)
    return torch.nn.Parameter(tensor, requires_grad=learns) if is_parameter else tensor.requires_grad_(learns)


def moved(memory: torch.Tensor, device: torch.device) -> torch.Tensor:
    # For a device type that is missing, torch would import a module of that name.
    backend = vars(torch).get(device.type)
    if not is_host(device) and not (isinstance(backend, ModuleType) and backend.is_available()):
        raise UserError(f"it belongs on {device}, which is not there")
    try:
        return memory.to(device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"it belongs on {device}, which is not there: {error}") from error


def attribute_path(name: Any) -> str:
    """`layers.0.weight`: plain names that modules do not use themselves."""
    path = text(name, "the name of a tensor", 1000)
    used = of_graph_modules()
    for part in path.split("."):
        if not NAME.fullmatch(part) or part.startswith("__"):
            raise UserError(f"{part!r:.60} stands where a name should")
        if part in used:
            raise UserError(f"{part!r:.60} is a name that modules use themselves")
        used = of_modules()
    return path


@once
def of_graph_modules() -> frozenset[str]:
    made = torch.fx.GraphModule({}, torch.fx.Graph())
    return frozenset((*dir(made), *vars(made)))


@once
def of_modules() -> frozenset[str]:
    made = torch.nn.Module()
    return frozenset((*dir(made), *vars(made)))
