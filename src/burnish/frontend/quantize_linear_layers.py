"""Quantization of a model's linear layers: `burnish.quantize_` replaces each `nn.Linear` by a `QuantizedLinear`.

    burnish.quantize_(model, "int4", group_size=64)
    model = burnish.compile_(model)

A QuantizedLinear is an `nn.Linear` whose weight is a parameter of integers without gradients, beside its scales. In
eager it computes the weight before the product. In a graph the compiler finds that computation, and fuses it into the
product's kernel (`lower.passes.fuse_dequantization`): the numbers in memory stay integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from ..errors import UserError
from ..foundation.torch_private import disable_current_modes, int_mm
from ..tensors.device_facts import is_host
from ..tensors.dtypes import SINGLES
from ..tensors.quantized_linear_reference import unpacked

M = TypeVar("M", bound=nn.Module)

FORMATS = ("int8", "int4", "int8_dynamic")
MIDDLE = 8
"""Of the 16 numbers of 4 bits."""


def multiplies_integers_exactly() -> bool:
    """Whether torch's product of int8 is right here. On processors without VNNI, oneDNN cuts sums of two products to 16
    bits."""
    with disable_current_modes():  # of a program that imports this inside one
        extreme = torch.full((32, 64), 127, dtype=torch.int8, device="cpu")
        return bool((int_mm(extreme, extreme.t()) == 64 * 127**2).all())


HAS_EXACT_PRODUCT = multiplies_integers_exactly()
LONGEST_EXACT = 2**24 // 128**2
"""Products of int8 that float32 sums exactly."""


class QuantizedLinear(nn.Linear):
    """A linear layer whose weight is integers.

    int8           weight int8 [out, in], scales [out, 1]
    int4           weight uint8 [out, in / 2], the lower half of a byte first; scales and zeros [out, in / group_size]:
                   `(number - 8) * scale + zero`
    int8_dynamic   as int8; each row of the input is rounded to 8 bits too, and the product is one of integers
    """

    scales: torch.Tensor
    zeros: torch.Tensor | None

    def __init__(self, weight: torch.Tensor, bias: nn.Parameter | None, format: str, group_size: int):
        nn.Module.__init__(self)
        self.out_features, self.in_features = weight.shape
        self.format, self.group_size = format, group_size
        if format == "int4":
            numbers, scales, zeros = grouped_integers(weight, group_size)
        else:
            (numbers, scales), zeros = row_integers(weight), None
        self.weight = nn.Parameter(numbers, requires_grad=False)
        self.register_buffer("scales", scales)
        self.register_buffer("zeros", zeros)
        self.register_parameter("bias", bias)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if self.format == "int8_dynamic":
            return self._product_of_integers(input)
        return nn.functional.linear(input, self.dequantized().to(input.dtype), self.bias)

    def dequantized(self) -> torch.Tensor:
        """The weight that this layer multiplies with, in float32."""
        if self.zeros is None:
            return self.weight.to(torch.float32) * self.scales
        numbers = unpacked(self.weight, 4).view(self.out_features, -1, self.group_size).to(torch.float32)
        return ((numbers - MIDDLE) * self.scales[:, :, None] + self.zeros[:, :, None]).flatten(1)

    def _product_of_integers(self, input: torch.Tensor) -> torch.Tensor:
        rows = input.reshape(-1, self.in_features)
        wide = rows.to(torch.float32)
        scales = wide.abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / 127
        numbers = (wide / scales).round().clamp(-127, 127).to(torch.int8)
        made = product_of_integers(numbers, self.weight.t()) * scales * self.scales.view(1, -1)
        if self.bias is not None:
            made = made + self.bias
        return made.to(input.dtype).view(*input.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        group = f", group_size={self.group_size}" if self.format == "int4" else ""
        return f"{super().extra_repr()}, format={self.format!r}{group}"


def product_of_integers(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if HAS_EXACT_PRODUCT or not is_host(x.device):
        return int_mm(x, y).to(torch.float32)
    exact = torch.float32 if x.shape[1] <= LONGEST_EXACT else torch.float64
    with torch.autocast("cpu", enabled=False):
        return (x.to(exact) @ y.to(exact)).to(torch.float32)


def row_integers(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """From -127 to 127, and a scale for each row."""
    wide = weight.detach().to(torch.float32)
    scales = wide.abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / 127
    return (wide / scales).round().clamp(-127, 127).to(torch.int8), scales


def grouped_integers(weight: torch.Tensor, group_size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two numbers from 0 to 15 in each byte, and a scale and the number that 8 stands for in each group, in bfloat16.
    Numbers are rounded with these as they are kept."""
    wide = weight.detach().to(torch.float32).view(weight.shape[0], -1, group_size)
    least, most = wide.amin(2), wide.amax(2)
    scales = ((most - least) / 15).clamp(min=torch.finfo(torch.float32).tiny).bfloat16()
    zeros = (least + MIDDLE * scales.to(torch.float32)).bfloat16()
    numbers = ((wide - zeros[:, :, None]) / scales[:, :, None] + MIDDLE).round().clamp(0, 15).to(torch.uint8).flatten(1)
    return numbers[:, ::2] | numbers[:, 1::2] << 4, scales, zeros


def quantize_(
    model: M, format: str = "int8", group_size: int = 128, filter: Callable[[nn.Module, str], bool] | None = None
) -> M:
    """Quantizes the weights of a model's linear layers in place, and returns the model.

    `format`: "int8" (a scale for each output), "int4" (a scale and a zero for each group of `group_size` inputs), or
    "int8_dynamic" (as "int8", with inputs that are rounded to 8 bits as well). `filter(module, name)` says which layers
    to quantize; without it, all that are of the class `nn.Linear`.
    """
    if format not in FORMATS:
        raise UserError(f"quantize_: the format {format!r} is not one of {', '.join(map(repr, FORMATS))}.")
    if not isinstance(model, nn.Module):
        raise UserError(f"quantize_: expected a module, got {type(model).__name__}.")
    if type(model) is nn.Linear:
        raise UserError(
            "quantize_: the model is itself an nn.Linear, which cannot be replaced in place. "
            "Put it into a module, for example nn.Sequential(linear)."
        )
    places: list[tuple[nn.Module, str, nn.Linear]] = []
    found: dict[nn.Linear, str] = {}
    for path, parent in model.named_modules():
        for name, child in parent._modules.items():  # `named_children` leaves out a second place of a layer
            if child is None:
                continue
            place = f"{path}.{name}" if path else name
            if child in found or is_wanted(child, place, filter):
                assert isinstance(child, nn.Linear)
                places.append((parent, name, child))
                found.setdefault(child, place)
    for layer, place in found.items():
        check(layer, place, format, group_size)
    if not found:
        raise UserError("quantize_: the model has no nn.Linear to quantize, or the filter accepts none.")
    made = {layer: quantized(layer, format, group_size) for layer in found}
    for parent, name, layer in places:
        setattr(parent, name, made[layer])
    return model


def is_wanted(module: nn.Module, place: str, filter: Callable[[nn.Module, str], bool] | None) -> bool:
    if filter is None:
        return type(module) is nn.Linear
    if not filter(module, place):
        return False
    if not isinstance(module, nn.Linear):
        raise UserError(f"quantize_: {place} is a {type(module).__name__}. Only nn.Linear is quantized; exclude it.")
    return True


def check(layer: nn.Linear, place: str, format: str, group_size: int) -> None:
    if isinstance(layer, QuantizedLinear):
        raise UserError(f"quantize_: {place} is quantized already, as {layer.format!r}. Start from the original model.")
    if layer.weight.dtype not in SINGLES:
        raise UserError(
            f"quantize_: the weight of {place} is {layer.weight.dtype}. Convert the model to float32, bfloat16 or "
            f"float16 first: model.to(torch.bfloat16)."
        )
    if format == "int4" and (group_size < 2 or group_size % 2 or layer.in_features % group_size):
        fitting = [size for size in (256, 128, 64, 32, 16) if not layer.in_features % size]
        hint = f"take group_size={fitting[0]}" if fitting else "take format='int8'"
        raise UserError(
            f"quantize_: {place} has {layer.in_features} inputs, which are not groups of {group_size}. "
            f"Either {hint}, or leave the layer out with filter=."
        )


def quantized(layer: nn.Linear, format: str, group_size: int) -> QuantizedLinear:
    made = QuantizedLinear(layer.weight, layer.bias, format, group_size)
    made.train(layer.training)
    copy_hooks(layer, made)
    return made


def copy_hooks(layer: nn.Linear, made: nn.Linear) -> None:
    """The hooks of a layer stay with its place in the model."""
    for name, value in vars(layer).items():
        if name.endswith("_hooks") or "_hooks_" in name:
            setattr(made, name, value)


__all__: list[Any] = ["QuantizedLinear", "quantize_"]
