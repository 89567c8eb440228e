"""Makes eager code that runs in place of compiled code draw the same random numbers.

A graph runs eagerly while it is recorded, before it is compiled, and if it cannot be compiled. If it drew eager's
numbers then and compiled code's numbers later, one seed would give different results. Activation checkpointing, which
runs a function again in backward, would drop other elements than forward did.

    call_with_compiled_rng(torch.rand, (3,), {})     what compiled code draws for torch.rand(3), from the same generator
    run_eagerly_with_compiled_rng(gm)                the graph, with such calls in place of those that may draw

A raw entry of the dispatch stack intercepts the operators that a call comes down to, as in
`lower.trace.trace_to_aten`. The rules of `ops.random_numbers` are then executed at once. The setting `eager_random`
disables all this.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule

from ...captured_graph.compile_request import request_of
from ...concurrency.first_value_cache import once
from ...foundation.torch_private import (
    OpOverload,
    len_torch_dispatch_stack,
    pop_torch_dispatch_stack,
    push_on_torch_dispatch_stack,
)
from ...runtime.eager.drawing_calls import draws_nothing, has_name_of_drawing, may_draw
from ...runtime.eager.eager_philox import FUNCTIONS
from ...runtime.linking import cuda_module_loader
from ...runtime.program.restore_inputs_on_error import restoring
from ...settings import current, patch
from ...tensors.device_facts import is_host
from .. import CompiledFn
from .eager_checkpoint_regions import run_eagerly, with_regions
from .specialize_numbers import own_copy

CHUNK = 1 << 14
"""Elements that the kernel for random bits computes at a time."""

CHUNK_ON_GPU = 1 << 18


def call_with_compiled_rng(function: Callable, args: tuple, kwargs: dict) -> Any:
    """Calls a function of torch so that it draws what compiled code draws."""
    if (
        not has_name_of_drawing(getattr(function, "__name__", ""))
        or current().eager_random
        or draws_nothing(function.__name__, args, kwargs)
    ):
        return function(*args, **kwargs)
    return intercepted(function, args, kwargs)


def intercepted(function: Callable, args: tuple, kwargs: dict) -> Any:
    if current().eager_random:  # set after the graph was recorded; the rules read it
        with patch(eager_random=False):
            return intercepted(function, args, kwargs)
    modes = len_torch_dispatch_stack()
    try:
        push_on_torch_dispatch_stack(interceptor())  # inside the try: an interrupt may come right after it
        return function(*args, **kwargs)
    finally:
        if len_torch_dispatch_stack() > modes:
            pop_torch_dispatch_stack(None)


def run_eagerly_with_compiled_rng(gm: GraphModule) -> CompiledFn:
    """The graph as it runs eagerly, except for what it draws."""
    if draws_as_eager(gm) or not any(may_draw(node) for node in gm.graph.nodes):
        return restoring(gm, run_eagerly(gm))
    forward: Any = None

    def call(*args: Any) -> Any:
        nonlocal forward
        if forward is None:
            made = own_copy(gm)
            for node in made.graph.nodes:
                if may_draw(node):
                    name = node.target
                    node.target = with_compiled_rng(getattr(torch.Tensor, name) if node.op == "call_method" else name)
                    node.op = "call_function"
            made.recompile()
            forward = with_regions(made).forward
        return forward(*args)

    return restoring(gm, call)


def draws_as_eager(gm: GraphModule) -> bool:
    """As requested when the graph was recorded: it may be compiled later, under other settings."""
    request = request_of(gm)
    if request.draws_as_eager is None:
        request.draws_as_eager = current().eager_random
    return request.draws_as_eager


@once
def with_compiled_rng(function: Callable) -> Callable:
    def call(*args: Any, **kwargs: Any) -> Any:
        return intercepted(function, args, kwargs)

    # torch.fx names a global of its generated code after it, so it must be an identifier.
    call.__name__ = call.__qualname__ = f"drawing_{getattr(function, '__name__', 'call').replace('.', '_')}"
    return call


@once
def interceptor() -> Any:
    """Made on the first draw, so that `ops` and `lower` are not imported before there is something to compile."""
    from ...ops import import_all_operators, random_numbers  # noqa: F401  (families fills the records)
    from ...ops.functional_overloads import functional_form
    from ...ops.operator_record import NoRule, Op, lookup
    from ...targets import cuda  # noqa: F401  (says whether numbers on a GPU are drawn so)

    @once
    def rule_of(func: Any) -> tuple[Op | None, str | None]:
        """The operator whose rule draws, and the argument that an in-place or `out` call writes to."""
        if not isinstance(func, OpOverload):
            return None, None  # a higher-order operator: it runs unchanged
        written = [a for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        functional = functional_form(func) if written else func
        op = None if functional is None else lookup(functional)
        if op is None or op.name not in random_numbers.OPERATORS or len(written) > 1:
            return None, None
        return op, written[0].name if written else None

    class Interceptor:
        supports_higher_order_operators = True

        def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            op, written = rule_of(func)
            if op is None:
                return func(*args, **kwargs)
            is_out = written is not None and written in kwargs
            given = {name: value for name, value in kwargs.items() if not is_out or name != written}
            try:
                made = op.decompose(Now(), *args, **given)  # type: ignore[misc]
            except NoRule:
                return func(*args, **kwargs)
            if written is None:
                return made
            target = kwargs[written] if is_out else args[0]
            return target.resize_(made.shape).copy_(made) if is_out else target.copy_(made)

    class Now:
        """The builder of a decomposition without a graph: it runs each operator at once."""

        def __call__(self, name: str, *args: Any, **kwargs: Any) -> Any:
            packet, _, overload = name.partition(".")
            return getattr(getattr(torch.ops.aten, packet), overload or "default")(*args, **kwargs)

        def apply(self, op: Op, args: tuple) -> Any:
            return bits_of(*args) if op is random_numbers.BITS_OF else FUNCTIONS[op.name](*args)

        def convert(self, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
            return x.to(dtype)

    return Interceptor()


def bits_of(seed: torch.Tensor, size: tuple[int, ...]) -> torch.Tensor:
    """Random bits, by a kernel that serves any size."""
    if not is_host(seed.device):
        return bits_on_gpu(seed, size)
    count = math.prod(size)
    start = torch.tensor([int(seed), 0])
    made = torch.empty(-(-count // CHUNK) * CHUNK, dtype=torch.int64)
    table = (ctypes.c_void_p * 2)(start.data_ptr())
    launch = kernel().launch
    for at in range(0, count, CHUNK):
        start[1] = at
        table[1] = made.data_ptr() + at * made.itemsize
        launch(table)
    return made[:count].reshape(size)


def bits_on_gpu(seed: torch.Tensor, size: tuple[int, ...]) -> torch.Tensor:
    """Does not read the seed, which would mean to wait for the GPU."""
    count = math.prod(size)
    made = torch.empty(-(-count // CHUNK_ON_GPU), CHUNK_ON_GPU, dtype=torch.int64, device=seed.device)
    starts = torch.arange(0, count, CHUNK_ON_GPU, device=seed.device)
    for start, chunk in zip(starts, made, strict=True):
        cuda_module_loader.start(kernel_on_gpu(seed.device), seed, start, chunk)
    return made.view(-1)[:count].reshape(size)


@once
def kernel() -> Any:
    from ...targets.cpu import compile_kernel

    return compile_kernel(bits_kernel(CHUNK, (0, 1)))


@once
def kernel_on_gpu(device: torch.device) -> Any:
    from ...targets.cuda import compile_kernel_for_gpu

    return compile_kernel_for_gpu(bits_kernel(CHUNK_ON_GPU, (1, 0)), device)


def bits_kernel(count: int, start: tuple[int, int]) -> Any:
    """Stores `random_bits(seed, start + i)` for `count` numbers i. The seed is the first word of the first buffer;
    `start` gives the buffer and the word of the number to begin with."""
    from ...ops.scalar_ir import Access, binary, index, load, random_bits
    from ...schedule.loops.loop_ir import Kernel, Loop, Stage, Store

    at = binary("add", load("i64", Access(start[0], start[1], (0,))), index(0))
    out = start[0] + 1
    store = Store(Access(out, 0, (1,)), random_bits(load("i64", Access(0, 0, (0,))), at))
    return Kernel("random_bits", ("i64",) * (out + 1), frozenset((out,)), (Loop((count,), 0, (Stage((), (store,)),)),))
