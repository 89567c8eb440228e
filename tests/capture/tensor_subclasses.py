"""Tensor subclasses with rules, as libraries write them, and how their programs are compared with eager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

import burnish
from burnish import events

from ..seeding import seed


class Pair(torch.Tensor):
    """Two tensors that go the same way; only the dispatcher's rule knows."""

    @staticmethod
    def __new__(cls, left, right):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            left.shape,
            strides=left.stride(),
            dtype=left.dtype,
            device=left.device,
            requires_grad=left.requires_grad,
        )

    def __init__(self, left, right):
        self.left, self.right = left, right

    def __tensor_flatten__(self):
        return ["left", "right"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, outer_size, outer_stride):
        return Pair(inner["left"], inner["right"])

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        left, right = (
            func(*tree_map(lambda x: side(x, name), args), **tree_map(lambda x: side(x, name), kwargs))  # noqa: B023
            for name in ("left", "right")
        )
        if isinstance(left, torch.Tensor):
            return Pair(left, right)
        if isinstance(left, (tuple, list)):
            return type(left)(Pair(*both) for both in zip(left, right, strict=True))
        return left

    def __repr__(self, **_):
        return f"Pair({self.left}, {self.right})"


def side(x, name):
    return getattr(x, name) if isinstance(x, Pair) else x


class Quantized(torch.Tensor):
    """Integers with a scale for each row. One rule computes; the dispatcher's is there for nn.Parameter."""

    @staticmethod
    def __new__(cls, q, scale, dtype=torch.float32):
        return torch.Tensor._make_wrapper_subclass(cls, q.shape, strides=q.stride(), dtype=dtype, device=q.device)

    def __init__(self, q, scale, dtype=torch.float32):
        self.q, self.scale = q, scale

    @classmethod
    def of(cls, x):
        scale = x.abs().amax(1, keepdim=True) / 127
        return cls((x / scale).round().to(torch.int8), scale, x.dtype)

    def __tensor_flatten__(self):
        return ["q", "scale"], self.dtype

    @classmethod
    def __tensor_unflatten__(cls, inner, dtype, outer_size, outer_stride):
        return cls(inner["q"], inner["scale"], dtype)

    def dequantize(self):
        return self.q.to(self.dtype) * self.scale

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is nn.functional.linear:
            x, weight, *bias = args
            return func(x, weight.dequantize(), *bias)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return cls(args[0].q, args[0].scale, args[0].dtype)
        if func is torch.ops.aten.t.default:
            return cls(args[0].q.t(), args[0].scale.t(), args[0].dtype)
        raise NotImplementedError(str(func))

    def __repr__(self, **_):
        return f"Quantized({self.q})"


class Tagged(torch.Tensor):
    """No rules of its own."""


class Doubled(torch.Tensor):
    """Doubles what is added."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        made = super().__torch_function__(func, types, args, kwargs or {})
        return made * 2 if func in (torch.add, torch.Tensor.add) else made


class Unit(torch.Tensor):
    """A length with a unit: its metadata says how to convert."""

    @staticmethod
    def __new__(cls, data, unit):
        return torch.Tensor._make_subclass(cls, data)

    def __init__(self, data, unit):
        self.unit = unit

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        made = super().__torch_function__(func, types, args, kwargs or {})
        if type(made) is cls:
            made.unit = next(x.unit for x in args if isinstance(x, cls))
        return made

    def in_metres(self):
        return self.as_subclass(torch.Tensor) * {"m": 1.0, "km": 1000.0, "cm": 0.01}[self.unit]


def pair(*size):
    return Pair(torch.randn(*size), torch.randn(*size))


@dataclass
class Course:
    """How the results came about."""

    segments: int = 0
    breaks: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)

    def listen(self, event: Any) -> None:
        if event.kind == "segment":
            self.segments += 1
        elif event.kind == "breaks":
            self.breaks.add(event.data["break_"].kind.code)
        elif event.kind == "lower.refused" or event.data.get("fallback"):
            self.refused.append(event.data["text"])


def as_in_eager(fn: Callable, make: Callable, calls: int = 4, see: Callable | None = None, **options: Any) -> Course:
    """Calls ``fn`` with ``make(i)``, eagerly and compiled: results, errors and what is left of the arguments must be
    equal. ``see(result, *args)`` may look further."""
    course = Course()

    def run(called: Callable) -> list[Any]:
        found = []
        for i in range(calls):
            seed(i)
            args = make(i)
            try:
                result = called(*args)
            except Exception as error:
                result = type(error).__name__, str(error)
            further = None if see is None else see(result, *args)
            found.append([seen(result), seen(args), seen(further)])
        return found

    expected = run(fn)
    burnish.reset()
    stop = events.subscribe(course.listen)
    try:
        found = run(burnish.compile(fn, **options))
    finally:
        stop()
    for i, (want, got) in enumerate(zip(expected, found, strict=True)):
        assert_same(want, got, f"call {i}")
    return course


def seen(x: Any) -> Any:
    """What can be seen of a value, without its rules."""
    if isinstance(x, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            facts = [type(x), tuple(x.shape), x.stride(), x.dtype, x.requires_grad, x.is_leaf, x.storage_offset()]
            facts.append(seen(x.grad) if x.is_leaf else None)
            if type(x).__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl:
                facts.append(x.detach().as_subclass(torch.Tensor).clone())
        return [*facts, {name: seen(part) for name, part in vars(x).items()}]
    if isinstance(x, (tuple, list)):
        return [type(x).__name__, *map(seen, x)]
    if isinstance(x, dict):
        return {key: seen(part) for key, part in x.items()}
    return x


def assert_same(want: Any, got: Any, path: str) -> None:
    if type(want) is torch.Tensor:
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6, equal_nan=True, msg=lambda m: f"{path}: {m}")
    elif isinstance(want, list):
        assert len(want) == len(got), f"{path}: {want} and {got}"
        for i, both in enumerate(zip(want, got, strict=True)):
            assert_same(*both, f"{path}[{i}]")
    elif isinstance(want, dict):
        assert list(want) == list(got), path
        for key in want:
            assert_same(want[key], got[key], f"{path}[{key!r}]")
    else:
        assert want == got, f"{path}: {want!r} and {got!r}"
