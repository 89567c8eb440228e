"""What is asked before a program serves other sizes, beside eager's kernels.

    python -m bench.attack.rules                      every operator that torch has samples of
    python -m bench.attack.rules --only diagonal      those whose name contains it

A program for symbolic sizes is accepted for others where shape rules give the same formulas and `confirm` passes. If
both accept what the kernel refuses, a program reads foreign memory. Each ATen call with a rule that occurs in torch's
samples is repeated with other integers, and with other sizes of its operands: 0, 1, 2, the neighbours, and numbers
beyond all sizes. Types must be those of the kernel's results. Refusing more is not an error: the graph is made again.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from burnish.ir import infer_types
from burnish.ir.graph import Value
from burnish.ir.untraceable_graph import Untraceable
from burnish.lower.trace.validate_call_in_eager import base_name, is_dilated_up, verify_accepted_by_eager
from burnish.ops.operator_record import NoRule, Op, lookup
from burnish.tensors.dtypes import NAMES
from burnish.tensors.tensor_types import TensorType

from ..operator_samples import operator_records

LARGEST = 1 << 12
"""The most elements of an operand or a product of arguments: eager runs all of them."""


UNSAFE = (
    "aten.native_batch_norm.default",
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "aten._local_scalar_dense.default",
)
"""The first writes beyond running statistics that are too short, and the second divides by zero for more keys' heads
than queries': only the functions above them check. The third has a number as its result."""


class Calls(TorchDispatchMode):
    """Collects the ATen calls below a sample that have a shape rule."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[tuple, tuple[Op, tuple, dict]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        op, kwargs = lookup(func), kwargs or {}
        if op.shape is not None and op.name not in UNSAFE and is_plain((args, kwargs)):
            self.found.setdefault(form_of(func, args, kwargs), (op, *tree_map(copied, (args, kwargs))))
        return func(*args, **kwargs)


def copied(x: Any) -> Any:
    return x.detach().clone(memory_format=torch.preserve_format) if isinstance(x, torch.Tensor) else x


def is_plain(tree: Any) -> bool:
    tensors = [x for x in tree_flatten(tree)[0] if isinstance(x, torch.Tensor)]
    return all(
        type(x) is torch.Tensor and x.layout is torch.strided and x.dtype in NAMES and x.numel() <= LARGEST
        for x in tensors
    ) and not any(x.is_conj() or x.is_neg() for x in tensors)


def form_of(func: Any, args: tuple, kwargs: dict) -> tuple:
    """Calls of one form differ in numbers only."""
    leaves, spec = tree_flatten((args, kwargs))
    return func, str(spec), tuple((x.dim(), x.dtype) if isinstance(x, torch.Tensor) else type(x) for x in leaves)


def variations(args: tuple, kwargs: dict) -> Iterator[tuple[str, tuple, dict]]:
    """The call with one integer or one size changed. A size is changed in all operands that share it, then in one."""
    leaves, spec = tree_flatten((args, kwargs))
    sizes = {size for x in leaves if isinstance(x, torch.Tensor) for size in x.shape}

    def call(changed: dict[int, Any]) -> tuple[tuple, dict]:
        return tree_unflatten([changed.get(k, x) for k, x in enumerate(leaves)], spec)

    for k, x in enumerate(leaves):
        if type(x) is int:
            near = {x + d for d in (-2, -1, 1, 2)} | {-1, 0, 1, 2}
            for number in sorted(
                (near | {s + d for s in sizes for d in (-1, 0, 1)} | {-s for s in sizes} | {100}) - {x}
            ):
                yield f"argument {k}: {x} -> {number}", *call({k: number})
        elif isinstance(x, torch.Tensor):
            for dim in range(x.dim()):
                for size in sorted({0, 1, 2, x.shape[dim] - 1, x.shape[dim] + 1} - {x.shape[dim], -1}):
                    yield f"operand {k}, dim {dim}: {x.shape[dim]} -> {size}", *call({k: resized(x, dim, size)})
    for before in sorted(sizes):
        for size in sorted({0, 1, 2, 3, before - 1, before + 1} - {before, -1}):
            changed = {}
            for k, x in enumerate(leaves):
                if isinstance(x, torch.Tensor) and before in x.shape:
                    for dim in [dim for dim, old in enumerate(x.shape) if old == before]:
                        x = resized(x, dim, size)
                    changed[k] = x
            yield f"sizes {before} -> {size}", *call(changed)


def resized(x: torch.Tensor, dim: int, size: int) -> torch.Tensor:
    """The first rows, or the first one several times."""
    if size <= x.shape[dim]:
        return x.narrow(dim, 0, size).clone()
    if not x.shape[dim]:
        return x.new_zeros([*x.shape[:dim], size, *x.shape[dim + 1 :]])
    return torch.cat([x, x.narrow(dim, 0, 1).expand(*x.shape[:dim], size - x.shape[dim], *x.shape[dim + 1 :])], dim)


def type_of_rule(op: Op, args: tuple, kwargs: dict) -> Any:
    """What the tracer would find; None where the rule gives up."""
    args, kwargs = tree_map(lambda x: TensorType.of(x) if isinstance(x, torch.Tensor) else x, (args, kwargs))
    try:
        return op.shape(*args, **kwargs)  # type: ignore[misc]
    except NoRule:
        return None


def value_of(x: Any) -> Any:
    return Value(TensorType.of(x), "x") if isinstance(x, torch.Tensor) else x


def type_of_kernel(op: Op, args: tuple, kwargs: dict) -> Any:
    found = op.target(*tree_map(copied, args), **tree_map(copied, kwargs))
    if isinstance(found, torch.Tensor):
        return infer_types.type_of(found)
    if isinstance(found, (tuple, list)):
        return tuple(part if isinstance(part, int) else infer_types.type_of(part) for part in found)
    return found


def why_wrong(op: Op, args: tuple, kwargs: dict) -> str | None:
    if any(isinstance(x, torch.Tensor) and not x.numel() for x in tree_flatten(args)[0]):
        return None  # the tracer asks the kernel
    if is_dilated_up(base_name(op.target), args):
        return None  # torch's kernel writes outside of its result
    try:
        given = type_of_rule(op, args, kwargs)
    except Exception:
        return None
    if given is None:
        return None
    try:
        verify_accepted_by_eager(op.target, *tree_map(value_of, (args, kwargs)), given)
    except Untraceable:
        return None
    try:
        wanted = type_of_kernel(op, args, kwargs)
    except Untraceable:
        return None
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
        return f"the rule gives {given}, the kernel raises {' '.join(str(error).split())[:100]}"
    if isinstance(given, list):
        given = tuple(given)
    return None if given == wanted else f"the rule gives {given}, the kernel {wanted}"


def check(name_contains: str, say: Callable[[str], Any]) -> int:
    seen: set[tuple] = set()
    wrong = tried = 0
    for record in operator_records():
        if name_contains not in record.name:
            continue
        for dtype in (torch.float32, torch.int64):
            if dtype not in record.dtypes:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for sample in record.sample_inputs("cpu", dtype):
                    calls = Calls()
                    try:
                        with torch.no_grad(), calls:
                            record.op(sample.input, *sample.args, **sample.kwargs)
                    except Exception:
                        continue
                    for form, (op, args, kwargs) in calls.found.items():
                        if form in seen:
                            continue
                        seen.add(form)
                        say_of: list[str] = []
                        for change, other, other_kwargs in [("as it is", args, kwargs), *variations(args, kwargs)]:
                            tried += 1
                            why = why_wrong(op, other, other_kwargs)
                            if why is not None:
                                say_of.append(f"    {change}: {why}")
                        if say_of:
                            wrong += len(say_of)
                            say(f"{op}({shown(args)}, {shown(kwargs)}): {len(say_of)}")
                            for line in say_of[:4]:
                                say(line)
    say(f"{len(seen)} calls of operators, {tried} variations, {wrong} with other types or errors than eager's")
    return wrong


def shown(tree: Any) -> str:
    return str(tree_map(lambda x: TensorType.of(x) if isinstance(x, torch.Tensor) else x, tree))[:200]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    raise SystemExit(bool(check(asked.only, lambda text: print(text, flush=True))))


if __name__ == "__main__":
    main()
