"""Tensor metadata: the facts of tensors and torch's switches that a trace may use without reading data, and their
checks.

``tensor_facts`` and ``global_state`` return them as tuples: a guard stores the tuple and compares. That costs a call
into torch for each fact. ``SameTensors`` and ``SameState`` compare many tensors, or all switches, in a few calls:

    same = SameManyTensors([facts of x, facts of y])
    same((x, y))                                  # the first time fact by fact, from then on in one call

Torch has compiled comparisons for both (made for its own compiler, part of ``torch._C``). If they pass, only the facts
they leave out remain to be tested. If they fail, the facts are compared one by one. So they may be too strict, or
missing, and only time is lost.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.nn.parameter import UninitializedTensorMixin

from ...concurrency.outside_errors import reraise_from_outside
from ...foundation.torch_private import (
    DisableTorchFunctionSubclass,
    compiler_guards,
    disabled_torch_dispatch_impl,
    get_tracing_state,
    is_torch_function_enabled,
    is_view,
    len_torch_dispatch_stack,
    len_torch_function_stack,
    mkldnn_layout,
    pop_torch_dispatch_stack,
    push_on_torch_dispatch_stack,
)
from ...tensors.device_facts import precision_on_gpus
from ...tensors.eager_strides import packed_stride
from ...tensors.tensor_types import is_leaf
from ...tensors.torch_state import TorchState

TENSOR_TYPES = frozenset((torch.Tensor, torch.nn.Parameter))


def has_no_strides(x: torch.Tensor) -> bool:
    return x.layout is not torch.strided or x.is_nested


def is_tensor(value: Any) -> bool:
    """``isinstance(value, torch.Tensor)``, faster, and without asking the object itself for its class."""
    return torch.Tensor in type(value).__mro__


STRIDED = torch.strided
FACT_NAMES = (
    "type",
    "dtype",
    "shape",
    "strides",
    "device",
    "requires_grad",
    "is_leaf",
    "lazy conjugation, negation and zeros",
    "inference mode",
    "being a view",
)
REQUIRES_GRAD, IS_LEAF, IS_VIEW = (FACT_NAMES.index(name) for name in ("requires_grad", "is_leaf", "being a view"))
WithoutRules = DisableTorchFunctionSubclass  # queries of our own must not run user code
NO_DISPATCH = disabled_torch_dispatch_impl
TRIES = 8  # how often the compiled comparison is rebuilt before facts are always compared one by one


def tensor_facts(t: Any) -> tuple:
    """Everything that a trace may read of a tensor without reading its data."""
    if type(t) not in TENSOR_TYPES:
        if not is_tensor(t):
            return ()
        with WithoutRules():
            if issubclass(type(t), UninitializedTensorMixin):
                return (type(t), t.dtype, None, None, t.device, t.requires_grad, True, (False,) * 3, False, False)
            return facts_of(t)
    return facts_of(t)


def facts_of(t: torch.Tensor) -> tuple:
    layout = t.layout
    try:
        shape, stride = t.shape, t.stride() if layout is STRIDED and not t.is_quantized else facts_of_layout(t)
    except RuntimeError as error:  # nested: each part has its own size
        reraise_from_outside(error)
        shape, stride = sizes_of_parts(t)
    return (
        type(t),
        t.dtype,
        shape,
        stride,
        t.device,
        t.requires_grad,
        is_leaf(t),
        (t.is_conj(), t.is_neg(), t._is_zerotensor()),  # a program may ask for each
        t.is_inference(),
        t._is_view(),
    )


def facts_of_layout(t: torch.Tensor) -> list:
    """What takes the place of strides in a sparse or quantized tensor. A list, unlike an ordinary tensor's tuple."""
    if t.is_quantized:
        if t.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            return [t.stride(), t.qscheme(), t.q_scale(), t.q_zero_point()]
        return [t.stride(), t.qscheme(), t.q_per_channel_axis()]  # its scales are read as data
    if t.layout is mkldnn_layout or t.layout is torch.jagged:  # type: ignore[attr-defined]
        return [t.layout]
    return [t.layout, t.sparse_dim(), t.dense_dim(), t.layout is torch.sparse_coo and t.is_coalesced()]


def sizes_of_parts(t: torch.Tensor) -> tuple[Any, Any]:
    """The sizes, strides and offsets of a nested tensor's parts. Lists, unlike an ordinary tensor's tuples."""
    asked = (t._nested_tensor_size(), t._nested_tensor_strides(), t._nested_tensor_storage_offsets())
    sizes, strides, offsets = (found.tolist() for found in asked)
    return sizes, [strides, offsets]


def open_facts(t: Any, dims: tuple[int, ...], order: tuple[int, ...]) -> tuple:
    """The facts of a tensor with None for the sizes of symbolic dimensions. The strides are replaced by a flag: whether
    the tensor is contiguous in this order of its dimensions, from the fastest to the slowest."""
    facts = tensor_facts(t)
    if type(t) not in TENSOR_TYPES or type(facts[3]) is not tuple or t.ndim != len(order):
        return ()
    shape = tuple([None if dim in dims else size for dim, size in enumerate(facts[2])])
    return (*facts[:2], shape, facts[3] == packed_stride(facts[2], order), *facts[4:])


_as_subclass = torch.Tensor.as_subclass


def plain_view(t: Any) -> Any:
    """A plain tensor that shows the memory of one of a subclass. A value of another kind, which a check may meet before
    its guards have refused it, stays as it is."""
    if not is_tensor(t) or type(t).__torch_dispatch__ is not NO_DISPATCH:
        return t
    return _as_subclass(t, torch.Tensor)  # which does not ask __torch_function__


def has_rules(value: Any) -> bool:
    """Whether the ``__torch_function__`` of a tensor's class is the user's."""
    return type(value) not in TENSOR_TYPES and is_tensor(value) and is_ruled_kind(type(value))


def is_ruled_kind(kind: type) -> bool:
    return getattr(kind.__torch_function__, "__func__", None) not in (None, torch.Tensor.__torch_function__.__func__)


def has_history(value: Any) -> bool:
    """Whether a tensor has an autograd history."""
    if type(value) in TENSOR_TYPES:
        return value.requires_grad and not is_leaf(value)
    with WithoutRules():
        return issubclass(type(value), torch.Tensor) and value.requires_grad and not is_leaf(value)


def never(*tensors: Any) -> bool:
    """The compiled comparison before one has been built."""
    return False


class SameTensors:
    """Whether tensors have the expected facts.

    ``compare`` looks at type, dtype, device, shape, strides and the dispatch keys, which show lazy conjugation and
    inference tensors. ``rest`` names the tests that remain when it passes. ``settle`` compares fact by fact. Torch ends
    the process when ``compare`` meets a nested tensor without ``torch.jagged``: ``first`` names the tests before it.
    """

    __slots__ = ("compare", "expected", "tries")

    def __init__(self, expected: Sequence[tuple]):
        self.expected = list(expected)
        self.compare: Callable[..., bool] = never
        self.tries = TRIES if compiler_guards is not None and all(map(is_comparable, expected)) else 0

    def first(self, names: Sequence[str], constant: Callable[[Any], str]) -> list[str]:
        """Conditions, as Python source, under which ``compare`` may see tensors of these names. ``constant``: the name
        of a value in that source."""
        return [
            f"type({name}) is {constant(facts[0])} and not {name}.is_nested"
            for name, facts in zip(names, self.expected, strict=True)
        ]

    def rest(self, names: Sequence[str], leaf: str) -> list[str]:
        """Conditions, as Python source, on tensors of these names that ``compare`` has passed; ``leaf``:
        ``is_leaf``."""
        conditions = []
        for name, facts in zip(names, self.expected, strict=True):
            conditions.append(f"{name}._is_view()" if facts[IS_VIEW] else f"not {name}._is_view()")
            if facts[REQUIRES_GRAD]:  # others are leaves
                conditions.append(f"{leaf}({name})" if facts[IS_LEAF] else f"not {leaf}({name})")
        return conditions

    def settle(self, tensors: tuple) -> bool:
        if list(map(tensor_facts, tensors)) != self.expected:
            return False
        if self.tries:
            self.tries -= 1
            made = compiler_guards.TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
            self.compare = made.check
        return True


_is_view, _is_nested = is_view, torch.Tensor.is_nested.__get__


class SameManyTensors(SameTensors):
    """The same for a number of tensors that would need too many lines of source."""

    __slots__ = ("kinds", "leaves", "views")

    def __init__(self, expected: Sequence[tuple]):
        super().__init__(expected)
        self.kinds = [facts[0] for facts in expected]
        self.views = [facts[IS_VIEW] for facts in expected]
        self.leaves = [facts[IS_LEAF] for facts in expected] if any(f[REQUIRES_GRAD] for f in expected) else None

    def __call__(self, tensors: tuple) -> bool:
        if list(map(type, tensors)) != self.kinds or any(map(_is_nested, tensors)):
            return False
        return (
            self.compare(*tensors)
            and list(map(_is_view, tensors)) == self.views
            and (self.leaves is None or list(map(is_leaf, tensors)) == self.leaves)
        ) or self.settle(tensors)


def is_comparable(facts: tuple) -> bool:
    """Whether torch's comparison works for a tensor: it needs strides, and a class that cannot override attributes."""
    return bool(facts) and facts[0] in TENSOR_TYPES and type(facts[3]) is tuple


def has_plain_facts(value: Any, facts: tuple) -> bool:
    """Whether torch keeps the facts of a subclass's tensor itself. Wrappers may have rules that compute them."""
    if not facts or type(facts[3]) is not tuple or not is_tensor(value):
        return False
    if type(value).__torch_dispatch__ is NO_DISPATCH:
        return True
    listener = DispatchListener()
    modes = len_torch_dispatch_stack()
    try:
        push_on_torch_dispatch_stack(listener)
        tensor_facts(value)
    finally:
        if len_torch_dispatch_stack() > modes:
            pop_torch_dispatch_stack(None)
    return not listener.has_heard


class DispatchListener:
    """An entry of the dispatch stack that notes whether torch asks Python."""

    supports_higher_order_operators = False
    has_heard = False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        self.has_heard = True
        return NotImplemented


def default_device() -> Any:
    """The argument of ``torch.set_default_device``, without importing the module that stores it."""
    return getattr(sys.modules.get("torch.utils._device"), "CURRENT_DEVICE", None)  # its import may have only begun


def global_state() -> tuple:
    """The switches of torch that change the effect of the recorded calls."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        len_torch_function_stack(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_enabled("cuda"),
        torch.get_autocast_dtype("cuda"),
        torch.is_autocast_cache_enabled(),
        is_torch_function_enabled(),
        default_device(),
        precision_on_gpus(),
        len_torch_dispatch_stack(),
        get_tracing_state() is not None,
    )


def restore_state(state: tuple, nesting: int | None = None) -> None:
    """Restore torch's global switches to an earlier result of `global_state` and ``autocast_nesting``."""
    TorchState(state[0], (state[5:7], state[7:9]), state[9], nesting).restore()


def leave_dual_levels() -> None:
    """Leave the levels of forward-mode differentiation. Traces begin outside of them."""
    while forward_ad._current_level >= 0:
        forward_ad.exit_dual_level()


STATE_NAMES = (
    "grad mode",
    "inference mode",
    "default dtype",
    "number of torch function modes",
    "deterministic mode",
    "CPU autocast",
    "CPU autocast dtype",
    "CUDA autocast",
    "CUDA autocast dtype",
    "autocast cache",
    "torch function dispatch",
    "default device",
    "float32 precision on GPUs",
    "number of torch dispatch modes",
    "TorchScript tracing",
)


class SameState:
    """Whether torch's switches have the expected values."""

    __slots__ = ("compare", "expected", "others", "tries")

    def __init__(self, expected: tuple):
        self.expected = expected
        values = dict(zip(STATE_NAMES, expected, strict=True))
        self.others = tuple(values[name] for name in NOT_COMPARED)
        self.compare: Callable[[], bool] = never
        self.tries = TRIES if compiler_guards is not None else 0

    def __call__(self) -> bool:
        if self.compare() and self.others == (
            _is_inference(),
            _count_modes(),
            _count_dispatch_modes(),
            _autocast_dtype("cpu"),
            _autocast_dtype("cuda"),
            getattr(sys.modules.get("torch.utils._device"), "CURRENT_DEVICE", None),
            precision_on_gpus(),
            _tracing_state() is not None,
        ):
            return True
        return self.settle()

    def settle(self) -> bool:
        if global_state() != self.expected:
            return False
        if self.tries:
            self.tries -= 1
            self.compare = compiler_guards.GlobalStateGuard().check
        return True


# Torch's comparison leaves these out. It looks at the autocast dtypes only where autocast is on.
NOT_COMPARED = (
    "inference mode",
    "number of torch function modes",
    "number of torch dispatch modes",
    "CPU autocast dtype",
    "CUDA autocast dtype",
    "default device",
    "float32 precision on GPUs",
    "TorchScript tracing",
)
_is_inference, _count_modes = torch.is_inference_mode_enabled, len_torch_function_stack
_count_dispatch_modes = len_torch_dispatch_stack
_autocast_dtype, _tracing_state = torch.get_autocast_dtype, get_tracing_state
