"""Sample calls for operator tests: torch's samples of operators and modules, on tensors in many layouts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from bench.operator_samples import operator_records
from torch.utils._pytree import tree_map_only

LAYOUTS = ("plain", "reversed", "channels last", "gaps", "wider rows", "odd strides")
Call = tuple[str, Callable, tuple, dict[str, Any]]


def laid_out(x: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values with another memory layout."""
    if x.layout is not torch.strided or x.is_nested or not x.ndim or layout == "plain":
        return x
    if layout == "reversed":
        back = tuple(reversed(range(x.ndim)))
        return x.permute(back).contiguous().permute(back)
    if layout == "channels last":
        format = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.ndim)
        return x.contiguous(memory_format=format) if format else x
    if layout == "gaps":
        return torch.stack((x, x), -1).select(-1, 0)
    if layout == "wider rows":
        return torch.cat((x, x[..., :1]), -1)[..., :-1]
    strides = [stride + 7 if size == 1 else stride for size, stride in zip(x.shape, x.stride(), strict=True)]
    return x.as_strided(x.shape, strides)


def in_layouts(args: tuple, kwargs: dict[str, Any], times: int, seed: int) -> Iterator[tuple[tuple, dict[str, Any]]]:
    """The arguments as they are, then with each tensor in a random layout, the given number of times."""
    yield args, kwargs
    drawn = random.Random(seed)
    for _ in range(times):
        yield tree_map_only(torch.Tensor, lambda x: laid_out(x, drawn.choice(LAYOUTS)), (args, kwargs))


def operator_calls(
    dtypes: tuple[torch.dtype, ...], most: int | None = None, times: int = 0, only: frozenset[str] | None = None
) -> Iterator[Call]:
    """Of each operator in `op_db` (or `only` of some) the first samples of each dtype."""
    for op in operator_records():
        if only is not None and op.name not in only:
            continue
        for dtype in dtypes:
            if dtype not in op.dtypes:
                continue
            torch.default_generator.manual_seed(0)
            name = f"{op.name} {op.variant_test_name} {str(dtype).removeprefix('torch.')}"
            for i, sample in enumerate(itertools.islice(op.sample_inputs("cpu", dtype), most)):
                for args, kwargs in in_layouts((sample.input, *sample.args), sample.kwargs, times, i):
                    yield f"{name} {i}", op.op, args, kwargs


def module_calls(dtypes: tuple[torch.dtype, ...], times: int = 0) -> Iterator[Call]:
    """Of each module in `module_db`, in training and in evaluation."""
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        for dtype, training in itertools.product(dtypes, (False, True)):
            if dtype not in info.dtypes:
                continue
            torch.default_generator.manual_seed(0)
            inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=False, training=training)
            for i, sample in enumerate(inputs):
                built = sample.constructor_input
                module = info.module_cls(*built.args, **built.kwargs).to(dtype).train(training)
                called = sample.forward_input
                if called is None:
                    continue
                for args, kwargs in in_layouts(called.args, called.kwargs, times, i):
                    yield f"{info.module_cls.__name__} {dtype} {i}", module, args, kwargs
