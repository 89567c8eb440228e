"""Random number operators: each element comes from Philox with a seed drawn once per run and the element's number.

    y = aten.rand.default [2, 3]       =>    seed = random_seed
                                             bits = random_bits seed, (2, 3)
                                             y = uniform bits, 0.0, 1.0, f32

    random_seed                          i64[]: the next number of the default generator of the named device
    random_seeds n, device               n such seeds
    random_bits seed, shape              i64: 64 bits for each element, Philox4x32-10 of the seed and its number
    uniform     bits, low, high, dtype   in [low, high), except for rounding
    normal      bits, mean, std, dtype   by the Box-Muller transform
    chance      bits, p                  true with the probability p
    below       bits, n                  an integer from 0 to n - 1

All but the seed are fused into the kernels that read them and are rematerialized in backward. Only the seed, eight
bytes, is saved. torch's generator is the only state, so seeding it, reading it and restoring it work as in eager. The
numbers differ from eager's.

With the setting `eager_random` the numbers are eager's own, and no rule here applies. Eager's kernel is also called if
a program passes a generator, and for arguments that eager rejects or checks against data.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..settings import current
from ..tensors.device_facts import CPU, is_host
from ..tensors.dtypes import BITS, DIGITS, NAMES, UNSIGNED, has_loops
from ..tensors.tensor_types import TensorType
from .elementwise.elementwise_record import holds
from .memory_format import copied
from .operator_record import (
    Arguments,
    NoRule,
    Op,
    broadcast_shape,
    call_shape,
    decomposition,
    fresh,
    pointwise,
    record,
    registers_call,
    shape,
)
from .scalar_ir import Scalar, binary, cast, const, fma
from .shapes.creation import created, like
from .target_record import target_of

SEED: Op = record("random_seed")
SEEDS: Op = record("random_seeds")
BITS_OF: Op = record("random_bits")
UNIFORM: Op = record("uniform")
NORMAL: Op = record("normal")
CHANCE: Op = record("chance")
BELOW: Op = record("below")

WORD = (1 << 32) - 1
LARGEST = (1 << 63) - 1

SINE = (1.0, -0.16666658222675323, 0.008333050645887852, -0.00019809046352747828, 2.6051661734527443e-06)
"""sin(s) / s of s**2 for |s| <= pi / 2, to 2**-23."""

Size = Sequence[int]


# -- shape rules -------------------------------------------------------------------------------------------------------


@shape("random_seed")
def seed_type(device: torch.device = CPU) -> TensorType:
    return TensorType.contiguous((), torch.int64, device)


@shape("random_seeds")
def seeds_types(count: int, device: torch.device) -> tuple[TensorType, ...]:
    return (seed_type(device),) * count


@shape("random_bits")
def bits_type(seed: TensorType, size: Size) -> TensorType:
    return TensorType.contiguous(tuple(size), torch.int64, seed.device)


def typed(bits: TensorType, dtype: torch.dtype) -> TensorType:
    return TensorType.contiguous(bits.shape, dtype, bits.device)


call_shape("aten.rand.default", "aten.randn.default", "aten.rand.generator", "aten.randn.generator")(
    lambda a: created(a, a.size)
)
call_shape("aten.randint.default", "aten.randint.generator", "aten.randint.low", "aten.randint.low_generator")(
    lambda a: created(a, a.size, torch.int64)
)
call_shape("aten.randperm.default", "aten.randperm.generator")(lambda a: created(a, (a.n,), torch.int64))
call_shape(
    "aten.rand_like.default", "aten.randn_like.default", "aten.randint_like.default", "aten.randint_like.low_dtype"
)(lambda a: like(a.self, a))
call_shape("aten.bernoulli.default", "aten.bernoulli.p")(lambda a: fresh(a.self, a.self.shape))
call_shape("aten.native_dropout.default")(lambda a: (copied(a.input), copied(a.input, torch.bool)))
call_shape("aten.multinomial.default")(lambda a: fresh(a.self, (*a.self.shape[:-1], a.num_samples), torch.int64))


@call_shape("aten.normal.Tensor_float", "aten.normal.float_Tensor", "aten.normal.Tensor_Tensor")
def normal_shape(a: Arguments) -> TensorType:
    given = [x for x in (a.mean, a.std) if isinstance(x, TensorType)]
    return fresh(given[0], broadcast_shape([x.shape for x in given]))


RANDOM = (
    "aten.rand.default aten.rand.generator aten.randn.default aten.randn.generator aten.randint.default "
    "aten.randint.generator aten.randint.low aten.randint.low_generator aten.randperm.default aten.randperm.generator "
    "aten.rand_like.default aten.randn_like.default aten.randint_like.default aten.randint_like.low_dtype "
    "aten.bernoulli.default aten.bernoulli.p aten.native_dropout.default aten.multinomial.default "
    "aten.normal.Tensor_float aten.normal.float_Tensor aten.normal.Tensor_Tensor"
)
"""They draw from a generator: their order matters, and equal calls return different results."""

for name in RANDOM.split():
    record(name).notes["random"] = True


# -- elements ----------------------------------------------------------------------------------------------------------

# The expression printer supplies the element's number, which is not an operand.
pointwise("random_bits", promotion="first", cost=30)(lambda seed, size: seed)
shape("random_bits")(bits_type)


@pointwise("uniform", promotion="first", cost=4)
def uniform(bits: Scalar, low: float, high: float, dtype: torch.dtype) -> Scalar:
    # As many random bits as the dtype holds, so that none is rounded to 1.
    digits = DIGITS[NAMES[dtype]]
    computed = "f64" if dtype is torch.float64 else "f32"
    # Small integers are converted as i32, for which every machine has a vector instruction.
    kept = bits & const((1 << digits) - 1, "i64")
    fraction = cast(kept if computed == "f64" else cast(kept, "i32"), computed) * 2.0**-digits
    if (low, high) == (0, 1):
        return fraction
    # Rounded twice, as in torch's own operators, so that eager code draws the same numbers.
    return fraction * (high - low) + low


shape("uniform")(lambda bits, low, high, dtype: typed(bits, dtype))


@pointwise("normal", promotion="first", cost=20)
def normal(bits: Scalar, mean: float, std: float, dtype: torch.dtype) -> Scalar:
    computed = "f64" if dtype is torch.float64 else "f32"
    found = distance(bits, computed) * sine_of_angle(bits, computed)
    if (mean, std) == (0, 1):
        return found
    return fma(found, const(std, computed), const(mean, computed))


shape("normal")(lambda bits, mean, std, dtype: typed(bits, dtype))


def distance(bits: Scalar, dtype: str) -> Scalar:
    """sqrt(-2 log u) of the first word. u is the middle of its interval: never 0, and exact if it is small."""
    high = cast(cast(binary("shr", bits, 8) & const(0xFFFFFF, "i64"), "i32"), dtype)
    low = cast(cast(bits & const(0xFF, "i64"), "i32"), dtype) + 0.5
    u = fma(high, const(2.0**-24, dtype), low * 2.0**-32)
    return (u.log() * -2.0).sqrt()


def sine_of_angle(bits: Scalar, dtype: str) -> Scalar:
    """The sine of an angle from the second word. The half turn around 0 suffices: the other half has the same sines."""
    angle = cast(cast(binary("shr", bits, 32), "i32"), dtype) * (math.pi * 2.0**-32)
    if dtype == "f64":
        return angle.sin()
    square = angle * angle
    factor = const(SINE[-1], dtype)
    for coefficient in reversed(SINE[:-1]):
        factor = fma(factor, square, const(coefficient, dtype))
    return angle * factor


@pointwise("chance", promotion="first", cost=2)
def chance(bits: Scalar, p: float) -> Scalar:
    return (bits & const(WORD, "i64")) < round(p * 2.0**32)


shape("chance")(lambda bits, p: typed(bits, torch.bool))


@pointwise("below", promotion="first", cost=3)
def below(bits: Scalar, n: int) -> Scalar:
    if n <= 1 << 31:
        return binary("shr", (bits & const(WORD, "i64")) * n, 32)
    return binary("fmod", bits & const(LARGEST, "i64"), n)


shape("below")(lambda bits, n: typed(bits, torch.int64))


# -- operators ---------------------------------------------------------------------------------------------------------

OPERATORS: set[str] = set()
"""The operators with a rule in this file."""


def random_decomposition(*names: str) -> Callable[[Callable], Callable]:
    """Register the decomposition of a random operator."""
    OPERATORS.update(names)
    return decomposition(*names)


def call_draws(*names: str) -> Callable[[Callable], Callable]:
    """The same for a rule that takes the call's `Arguments`."""
    return registers_call(random_decomposition, names, 1)


def is_philox(op: Op, dtype: torch.dtype, generator: Any = None) -> bool:
    """Whether the operator uses Philox as defined here, and not eager's stream."""
    return op.name in OPERATORS and not current().eager_random and generator is None and not dtype.is_complex


def draw_bits(g: Any, size: Size, generator: Any, device: Any = None, dtype: torch.dtype | None = None) -> Any:
    """Random bits for each element."""
    if current().eager_random:
        raise NoRule("the setting eager_random")
    if generator is not None:
        raise NoRule("a generator of the program's own")
    if any(n <= 0 for n in size):
        raise NoRule("nothing is drawn, or eager raises an error")
    if dtype is not None and NAMES.get(dtype) not in DIGITS:
        raise NoRule(f"random numbers of {dtype}")
    on = place_of(device)
    return g.apply(BITS_OF, (g.apply(SEED, () if is_host(on) else (on,)), tuple(size)))


def place_of(device: Any) -> torch.device:
    found = CPU if device is None else torch.device(device)
    if target_of(found) is None:
        raise NoRule(f"no target makes kernels for {found}")
    if not is_host(found) and found.index is None:
        if torch.get_device_module(found).device_count() > 1:
            raise NoRule("the device that is the current one, of several")
        found = torch.device(found.type, 0)
    return found


def draw_uniform(
    g: Any, size: Size, dtype: torch.dtype, generator: Any, device: Any, low: float = 0.0, high: float = 1.0
) -> Any:
    if not (low <= high and holds(NAMES.get(dtype, ""), high - low) and math.isfinite(high - low)):
        raise NoRule(f"numbers from {low} to {high}")
    return g.apply(UNIFORM, (draw_bits(g, size, generator, device, dtype), float(low), float(high), dtype))


def draw_normal(
    g: Any, size: Size, dtype: torch.dtype, generator: Any, device: Any, mean: float = 0.0, std: float = 1.0
) -> Any:
    if not std >= 0:
        raise NoRule(f"a standard deviation of {std}")
    return g.apply(NORMAL, (draw_bits(g, size, generator, device, dtype), float(mean), float(std), dtype))


def draw_chance(g: Any, size: Size, p: float, generator: Any, device: Any) -> Any:
    if not 0 <= p <= 1:
        raise NoRule(f"a probability of {p}")
    return g.apply(CHANCE, (draw_bits(g, size, generator, device), float(p)))


def draw_integers(g: Any, size: Size, dtype: torch.dtype, generator: Any, device: Any, low: int, high: int) -> Any:
    if not has_loops(dtype):
        raise NoRule(f"{dtype}")
    name = NAMES[dtype]
    # Floats hold only integers up to a limit; an integer dtype must hold the whole range.
    room = 1 << DIGITS[name] if name in DIGITS else 1 << (BITS[name] - (name not in UNSIGNED))
    least = 0 if name in UNSIGNED or name == "b8" else -room
    if not low < high or low < least or high - 1 > room - (name not in DIGITS) or high - low > LARGEST or name == "b8":
        raise NoRule(f"integers from {low} to {high} in {dtype}")
    found = g.apply(BELOW, (draw_bits(g, size, generator, device), high - low))
    return g.convert(g("add.Scalar", found, low) if low else found, dtype)


def device_of(x: Any) -> torch.device:
    """The device of a graph value or of a tensor."""
    return x.device if isinstance(x, torch.Tensor) else x.type.device


def draw_by_options(draw_some: Any, g: Any, a: Arguments, size: Size, dtype: torch.dtype, device: Any = None) -> Any:
    """`dtype` and `device` are for calls that choose none."""
    if a.layout not in (None, torch.strided) or a.pin_memory:
        raise NoRule("a layout or pinned memory")
    dtype = a.dtype if isinstance(a.dtype, torch.dtype) else dtype  # in some schemas the default is a number
    return draw_some(g, size, dtype, getattr(a, "generator", None), a.device or device)


def draw_new(draw_some: Any, g: Any, a: Arguments) -> Any:
    return draw_by_options(draw_some, g, a, a.size, torch.get_default_dtype())


def draw_like(draw_some: Any, g: Any, a: Arguments) -> Any:
    return draw_by_options(draw_some, g, a, a.self.shape, a.self.dtype, device_of(a.self))


for kind, drawing in (("rand", draw_uniform), ("randn", draw_normal)):
    call_draws(f"aten.{kind}.default", f"aten.{kind}.generator")(functools.partial(draw_new, drawing))
    call_draws(f"aten.{kind}_like.default", f"aten.{kind}_like.generator")(functools.partial(draw_like, drawing))


@random_decomposition("aten.uniform.default")
def uniform_in(g: Any, x: Any, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> Any:
    return draw_uniform(g, x.shape, x.dtype, generator, device_of(x), low, high)


@random_decomposition("aten.normal_functional.default")
def normal_in(g: Any, x: Any, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Any:
    return draw_normal(g, x.shape, x.dtype, generator, device_of(x), mean, std)


@call_draws("aten.normal.float_float")
def normal_of(g: Any, a: Arguments) -> Any:
    return draw_new(functools.partial(draw_normal, mean=a.mean, std=a.std), g, a)


@random_decomposition("aten.normal.Tensor_float")
def normal_around(g: Any, mean: Any, std: float = 1.0, *, generator: Any = None) -> Any:
    return g("add.Tensor", draw_normal(g, mean.shape, mean.dtype, generator, device_of(mean), 0.0, std), mean)


@random_decomposition("aten.bernoulli.p")
def bernoulli(g: Any, x: Any, p: float = 0.5, *, generator: Any = None) -> Any:
    return g.convert(draw_chance(g, x.shape, p, generator, device_of(x)), x.dtype)


@random_decomposition("aten.native_dropout.default")
def native_dropout(g: Any, x: Any, p: float, train: bool | None) -> Any:
    if train is False:
        raise NoRule("nothing is dropped")
    mask = draw_chance(g, x.shape, 1 - p, None, device_of(x))
    return g("mul.Scalar", g("mul.Tensor", x, mask), 0.0 if p == 1 else 1 / (1 - p)), mask


def draw_between(g: Any, size: Size, dtype: torch.dtype, generator: Any, device: Any, a: Arguments) -> Any:
    return draw_integers(g, size, dtype, generator, device, getattr(a, "low", 0), a.high)


@call_draws("aten.randint.default", "aten.randint.generator", "aten.randint.low", "aten.randint.low_generator")
def randint(g: Any, a: Arguments) -> Any:
    return draw_by_options(functools.partial(draw_between, a=a), g, a, a.size, torch.int64)


@call_draws("aten.randint_like.default", "aten.randint_like.low_dtype")
def randint_like(g: Any, a: Arguments) -> Any:
    return draw_like(functools.partial(draw_between, a=a), g, a)


@random_decomposition("aten.random.from")
def random_from(g: Any, x: Any, low: int, high: int | None, *, generator: Any = None) -> Any:
    if high is None:
        raise NoRule("all numbers there are")
    return draw_integers(g, x.shape, x.dtype, generator, device_of(x), low, high)


@random_decomposition("aten.random.to")
def random_to(g: Any, x: Any, high: int, *, generator: Any = None) -> Any:
    return random_from(g, x, 0, high, generator=generator)
