"""Specs of library calls: one frozen value for each kind of call, from which everything else is derived.

The first step of choosing a library call. The scheduler makes a spec, `candidates` lists the ways to compute it, and
`choose` measures them. A spec is a key: calls with equal specs have the same best candidate.

    >>> f32 = lambda *shape: TensorType.contiguous(shape, torch.float32)
    >>> LinearSpec(f32(64, 768), f32(3072, 768), f32(3072), activation=Activation("gelu", algorithm="tanh"))
    linear f32[64, 768] f32[3072, 768] bias f32[3072] gelu(tanh)

The epilogue has one order: `activation(product + bias + residual)`. That is what the libraries fuse. Where a program
adds the residual after the activation, the addition is not part of the call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from math import prod

import torch

from ...tensors.tensor_types import TensorType
from .own_kernels.matmul_tiling_and_packing import Shape


@dataclass(frozen=True, slots=True)
class Activation:
    """An element-wise function at the end of a call. `parameters` are hardtanh's bounds or leaky_relu's slope;
    `algorithm` is gelu's "none" or "tanh"."""

    name: str
    parameters: tuple[float, ...] = ()
    algorithm: str = ""

    def __post_init__(self) -> None:
        if self.name not in _EAGER:
            raise ValueError(f"no library call has the activation {self.name!r}; there are {', '.join(_EAGER)}")
        if self.name == "gelu" and self.algorithm not in ("none", "tanh"):
            raise ValueError(f"gelu's algorithm is 'none' or 'tanh', not {self.algorithm!r}")

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """What eager computes."""
        return _EAGER[self.name](self, x)

    @property
    def keeps_nan(self) -> bool:
        """Whether the libraries' fused form propagates NaN, as eager does. Those that clamp return a bound instead:
        x86's max and min return the second operand if one is NaN."""
        return self.name not in _CLAMPS

    def __repr__(self) -> str:
        inner = [str(value) for value in self.parameters] + ([self.algorithm] if self.algorithm else [])
        return f"{self.name}({', '.join(inner)})" if inner else self.name


_EAGER: dict[str, Callable[[Activation, torch.Tensor], torch.Tensor]] = {
    "relu": lambda self, x: torch.relu(x),
    "gelu": lambda self, x: torch.nn.functional.gelu(x, approximate=self.algorithm),
    "silu": lambda self, x: torch.nn.functional.silu(x),
    "sigmoid": lambda self, x: torch.sigmoid(x),
    "tanh": lambda self, x: torch.tanh(x),
    "hardswish": lambda self, x: torch.nn.functional.hardswish(x),
    "hardsigmoid": lambda self, x: torch.nn.functional.hardsigmoid(x),
    "hardtanh": lambda self, x: torch.nn.functional.hardtanh(x, *self.parameters),
    "leaky_relu": lambda self, x: torch.nn.functional.leaky_relu(x, *self.parameters),
}
_CLAMPS = {"relu", "hardsigmoid", "hardtanh"}


class _Call:
    """A library call. Its tensors are the fields of that type, in their order."""

    __slots__ = ()

    @property
    def inputs(self) -> dict[str, TensorType]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in values.items() if isinstance(value, TensorType)}


class _ProductOfRows(_Call):
    """Of x, [M, K], with a weight whose first dimension is that of the outputs."""

    __slots__ = ()
    x: TensorType
    weight: TensorType

    @property
    def output_shape(self) -> tuple[int, ...]:
        return self.x.shape[0], self.weight.shape[0]

    @property
    def flops(self) -> int:
        return 2 * prod(self.x.shape) * self.weight.shape[0]


@dataclass(frozen=True, slots=True, repr=False)
class LinearSpec(_ProductOfRows):
    """`activation(x @ weight.T + bias + residual)`: x is [M, K], weight [N, K], bias [N], residual [M, N].

    Strides are free: the [K, N] parameter of `addmm(b, x, w)` is the [N, K] weight with strides (1, N).
    """

    x: TensorType
    weight: TensorType
    bias: TensorType | None = None
    residual: TensorType | None = None
    activation: Activation | None = None
    is_frozen: bool = False
    """Weight and bias stay the same between calls: they may be packed once."""
    keeps_nan: bool = True
    """A NaN in the product is a NaN in the result, as in eager. Otherwise clamping activations can be fused."""
    tiles: Shape | None = None
    """Tiles of our own kernel, where other than the usual ones were faster."""

    def __post_init__(self) -> None:
        (m, k), (n, weight_k) = self.x.shape, self.weight.shape
        if k != weight_k:
            raise ValueError(f"{self}: x has {k} columns, weight {weight_k}")
        _require(self, self.bias, (n,))
        _require(self, self.residual, (m, n))

    def __repr__(self) -> str:
        return _sentence("linear", self.inputs, _epilogue(self))


@dataclass(frozen=True, slots=True, repr=False)
class QuantizedSpec(_ProductOfRows):
    """`x @ w.T + bias` of a weight of integers, see `tensors.quantized_linear_reference`: x is [M, K], the integers
    [N, K], or [N, K / 2] bytes of two."""

    x: TensorType
    weight: TensorType
    scales: TensorType | None
    shifts: TensorType | None
    bias: TensorType | None
    bits: int
    group: int
    offset: int

    def __post_init__(self) -> None:
        (_, k), (n, packed) = self.x.shape, self.weight.shape
        if 8 * packed != self.bits * k or k % self.group:
            raise ValueError(f"{self}: x has {k} columns, in groups of {self.group}; weight has {packed} bytes a row")
        for type in (self.scales, self.shifts):
            if type is not None and type.shape != (n, k // self.group):
                raise ValueError(f"{self}: expected {[n, k // self.group]}, got {type}")
        if self.bias is not None and self.bias.shape != (n,):
            raise ValueError(f"{self}: expected {[n]}, got {self.bias}")

    def __repr__(self) -> str:
        words = [f"{self.bits} bits", f"groups of {self.group}", f"offset {self.offset}"]
        return _sentence("quantized linear", self.inputs, words)


@dataclass(frozen=True, slots=True, repr=False)
class IntegerSpec(_ProductOfRows):
    """`x @ weight.T` of int8: x is [M, K], weight [N, K], the sums are int32."""

    x: TensorType
    weight: TensorType

    def __repr__(self) -> str:
        return _sentence("integer linear", self.inputs, [])


@dataclass(frozen=True, slots=True, repr=False)
class ConvSpec(_Call):
    """`activation(convolution(x, weight) + bias + residual)` of 1, 2 or 3 dimensions, batched; `transposed` too."""

    x: TensorType
    weight: TensorType
    bias: TensorType | None
    residual: TensorType | None
    activation: Activation | None
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool = False
    output_padding: tuple[int, ...] = ()
    groups: int = 1
    is_frozen: bool = False
    """Weight and bias stay the same between calls: they may be packed once."""
    keeps_nan: bool = True
    """A NaN in the product is a NaN in the result, as in eager. Otherwise clamping activations can be fused."""
    tiles: Shape | None = None
    """Tiles of our own kernel, where other than the usual ones were faster."""

    def __post_init__(self) -> None:
        if not self.output_padding:
            object.__setattr__(self, "output_padding", (0,) * self.dims)
        for name in ("stride", "padding", "dilation", "output_padding"):
            if len(getattr(self, name)) != self.dims:
                raise ValueError(f"{self}: {name} needs {self.dims} numbers")
        _require(self, self.bias, (self.output_channels,))
        _require(self, self.residual, self.output_shape)

    @property
    def dims(self) -> int:
        return self.x.ndim - 2

    @property
    def output_channels(self) -> int:
        return self.weight.shape[1] * self.groups if self.transposed else self.weight.shape[0]

    @property
    def output_shape(self) -> tuple[int, ...]:
        sizes = []
        for axis in range(self.dims):
            size, reach = self.x.shape[axis + 2], self.dilation[axis] * (self.weight.shape[axis + 2] - 1)
            if self.transposed:
                extra = reach + self.output_padding[axis] + 1 - 2 * self.padding[axis]
                sizes.append((size - 1) * self.stride[axis] + extra)
            else:
                sizes.append((size + 2 * self.padding[axis] - reach - 1) // self.stride[axis] + 1)
        return self.x.shape[0], self.output_channels, *sizes

    @property
    def flops(self) -> int:
        window = prod(self.weight.shape[1:])
        pixels = prod(self.x.shape) if self.transposed else prod(self.output_shape)
        return 2 * pixels * window

    def __repr__(self) -> str:
        words = [f"stride {self.stride} padding {self.padding} dilation {self.dilation}"]
        if self.transposed:
            words.append(f"transposed {self.output_padding}")
        if self.groups != 1:
            words.append(f"groups {self.groups}")
        return _sentence("convolution", self.inputs, [*words, *_epilogue(self)])


@dataclass(frozen=True, slots=True, repr=False)
class MatmulSpec(_Call):
    """`a @ b` of two values: [M, K] x [K, N], or batched [B, M, K] x [B, K, N]. Strides are free."""

    a: TensorType
    b: TensorType

    def __post_init__(self) -> None:
        if self.a.ndim != self.b.ndim or self.a.ndim not in (2, 3):
            raise ValueError(f"{self}: two matrices, or two batches of them")
        if self.a.shape[-1] != self.b.shape[-2] or self.a.shape[:-2] != self.b.shape[:-2]:
            raise ValueError(f"{self}: the shapes do not go together")

    @property
    def output_shape(self) -> tuple[int, ...]:
        return *self.a.shape[:-1], self.b.shape[-1]

    @property
    def flops(self) -> int:
        return 2 * prod(self.a.shape) * self.b.shape[-1]

    def __repr__(self) -> str:
        return _sentence("matmul", self.inputs, [])


@dataclass(frozen=True, slots=True, repr=False)
class AttentionSpec(_Call):
    """`softmax(q @ k.T * scale + mask) @ v` without dropout and without gradients. q is [B, H, L, E], k and v
    [B, H, S, E] and [B, H, S, Ev]. The mask, boolean or additive, broadcasts to [B, H, L, S].

    With `enable_gqa` k and v have fewer heads, each of which serves several of q's.
    """

    q: TensorType
    k: TensorType
    v: TensorType
    mask: TensorType | None = None
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False

    @property
    def output_shape(self) -> tuple[int, ...]:
        return *self.q.shape[:-1], self.v.shape[-1]

    @property
    def flops(self) -> int:
        return 2 * prod(self.q.shape[:-1]) * self.k.shape[-2] * (self.q.shape[-1] + self.v.shape[-1])

    def __repr__(self) -> str:
        words = [f"scale {self.scale}"] if self.scale is not None else []
        return _sentence("attention", self.inputs, words + ["causal"] * self.is_causal + ["gqa"] * self.enable_gqa)


@dataclass(frozen=True, slots=True, repr=False)
class RecurrentSpec:
    """A layer of a recurrent network without gradients, in one direction or in both: x is [positions, batch, columns],
    the result [positions, batch, directions * size], with the last states as [directions, batch, size]."""

    x: TensorType
    size: int
    is_reversed: tuple[bool, ...]
    """For each direction."""
    has_biases: bool
    gates: int = 4
    """4 for an LSTM."""

    @property
    def weights(self) -> dict[str, TensorType]:
        """The weights of each direction, in the order of eager's operators."""
        rows = self.gates * self.size
        shapes = {"weight": (rows, self.x.shape[2]), "hidden_weight": (rows, self.size)}
        if self.has_biases:
            shapes |= {"bias": (rows,), "hidden_bias": (rows,)}
        return self._contiguous(shapes)

    @property
    def states(self) -> dict[str, TensorType]:
        shape = self.x.shape[1], self.size
        return self._contiguous({"hidden": shape, "cell": shape})

    @property
    def inputs(self) -> dict[str, TensorType]:
        return {"x": self.x} | self.weights | self.states

    def _contiguous(self, shapes: dict[str, tuple[int, ...]]) -> dict[str, TensorType]:
        return {
            f"{name}_{direction}": TensorType.contiguous(shape, self.x.dtype, self.x.device)
            for direction in range(len(self.is_reversed))
            for name, shape in shapes.items()
        }

    @property
    def output_shape(self) -> tuple[int, ...]:
        return *self.x.shape[:2], len(self.is_reversed) * self.size

    @property
    def flops(self) -> int:
        return 2 * prod(self.output_shape) * self.gates * (self.x.shape[2] + self.size)

    def __repr__(self) -> str:
        words = [{(False,): "forwards", (True,): "backwards"}.get(self.is_reversed, "both ways")]
        return _sentence(f"lstm {self.size}", {"x": self.x}, words + ["biases"] * self.has_biases)


Spec = LinearSpec | QuantizedSpec | IntegerSpec | ConvSpec | MatmulSpec | AttentionSpec | RecurrentSpec


def _require(spec: LinearSpec | ConvSpec, type: TensorType | None, shape: tuple[int, ...]) -> None:
    if type is not None and type.shape != shape:
        raise ValueError(f"{spec}: expected {list(shape)}, got {type}")


def _epilogue(spec: LinearSpec | ConvSpec) -> list[str]:
    words = [repr(spec.activation)] if spec.activation is not None else []
    tiles = [f"tiles {spec.tiles}"] if spec.tiles is not None else []
    return words + ["frozen"] * spec.is_frozen + ["loses-nan"] * (not spec.keeps_nan) + tiles


def _sentence(verb: str, inputs: dict[str, TensorType], words: list[str]) -> str:
    plain = {"x", "weight", "a", "b", "q", "k", "v"}
    types = [repr(type) if name in plain else f"{name} {type}" for name, type in inputs.items()]
    return " ".join([verb, *types, *words])
