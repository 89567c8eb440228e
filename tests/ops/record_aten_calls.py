"""Records every ATen call of eager code, and the results of the operator records for each.

    with Dispatched(seen):
        F.linear(x, w, b)             # seen(func, args, kwargs): t, addmm

A plain object on torch's stack of dispatch modes: `TorchDispatchMode` would import Dynamo.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from burnish.ops import import_all_operators  # noqa: F401
from burnish.ops.operator_record import RECORDS, NoRule, Op, View
from burnish.tensors.tensor_types import TensorType
from burnish.tensors.views.affine_indices import Affine, constant, identity
from burnish.tensors.views.view_maps import shapes_along, source_index

MOST_ELEMENTS = 64
"""Views of larger tensors are not followed element by element."""


class Dispatched:
    """Calls `seen(func, args, kwargs)` in place of each operator; what that returns is the operator's result."""

    def __init__(self, seen: Callable[[Any, tuple, dict[str, Any]], Any]):
        self.seen = seen

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self.seen(func, args, kwargs or {})

    def __enter__(self):
        torch._C._push_on_torch_dispatch_stack(self)
        return self

    def __exit__(self, *_):
        torch._C._pop_torch_dispatch_stack(None)


class NoType(Exception):
    """A sparse or nested tensor."""


def types_of(tree: Any) -> Any:
    """The same arguments with types for tensors."""
    if isinstance(tree, torch.Tensor):
        if tree.layout is not torch.strided or tree.is_nested:
            raise NoType
        return TensorType.of(tree)
    if isinstance(tree, (list, tuple)):
        return type(tree)(map(types_of, tree)) if type(tree) in (list, tuple) else tuple(map(types_of, tree))
    return tree


class Ledger:
    """Compares the rules with eager on every call it sees."""

    def __init__(self) -> None:
        self.agreed: Counter[str] = Counter()
        self.declined: dict[str, str] = {}
        self.missing: Counter[str] = Counter()
        self.wrong: dict[str, list[str]] = {}
        self.followed: set[Any] = set()
        self.where = ""

    def __call__(self, func, args, kwargs):
        name = str(func)
        found = RECORDS.get(name)
        if found is None or found.shape is None:
            self.missing[name] += 1
            return func(*args, **kwargs)
        try:
            arg_types, kwarg_types = types_of(args), {key: types_of(value) for key, value in kwargs.items()}
        except NoType:
            return func(*args, **kwargs)
        said: Any
        try:
            said = found.shape(*arg_types, **kwarg_types)
        except Exception as error:
            said = error
        result = func(*args, **kwargs)
        try:
            want = types_of(result)
        except NoType:
            return result
        want = tuple(want) if isinstance(want, list) else want
        call = f"{self.where}: {name}({', '.join(map(str, arg_types))}, {kwarg_types})"
        if isinstance(said, NoRule):
            self.declined.setdefault(name, f"{call}: {said}")
            return result
        if type(said) is not type(want) or said != want:
            self.wrong.setdefault(name, []).append(f"{call}: {want} expected, got {said!r}")
            return result
        self.agreed[name] += 1
        try:
            fault = self.fault_of_maps(found, args, kwargs, arg_types, kwarg_types, result)
        except Exception as error:
            fault = f"maps: {error!r}"
        if fault:
            self.wrong.setdefault(name, []).append(f"{call}: {fault}")
        return result

    def fault_of_maps(self, op: Op, args, kwargs, arg_types, kwarg_types, result) -> str:
        """The errors in the maps of a view, which are followed element by element."""
        rule = op.rule.maps if isinstance(op.rule, View) else op.notes.get("maps")
        key = (op.name, str(arg_types), str(kwarg_types))
        if rule is None or key in self.followed or args[0].numel() > MOST_ELEMENTS or args[0].is_complex():
            return ""
        self.followed.add(key)
        try:
            chains = rule(*arg_types, **kwarg_types)
        except NoRule:
            return ""
        results = result if isinstance(result, (list, tuple)) else [result]
        chains = chains if isinstance(chains, tuple) else (chains,)
        if len(chains) != len(results):
            return f"{len(chains)} chains of maps for {len(results)} results"
        for chain, shown in zip(chains, results, strict=True):
            fault = fault_of_chain(tuple(chain), args[0], shown)
            if fault:
                return f"{chain}: {fault}"
        return ""


def fault_of_chain(chain: tuple, source: torch.Tensor, shown: torch.Tensor) -> str:
    shapes = shapes_along(chain, tuple(source.shape))
    if shapes[-1] != tuple(shown.shape):
        return f"shape {shapes[-1]}"
    if any(
        before == after and type(step).__name__ in ("Reshape", "Expand") and is_plain(source)
        for step, before, after in zip(chain, shapes, shapes[1:], strict=False)
    ):
        return "a map that does nothing"
    if not 0 < shown.numel() <= MOST_ELEMENTS:
        return ""
    shape, places = tuple(shown.shape), list(itertools.product(*map(range, shown.shape)))
    found = [source_index(chain, tuple(constant(k, 0) for k in place), tuple(source.shape), ()) for place in places]
    indices = [tuple(x.offset for x in index) for index in found]
    if any(not 0 <= k < n for index in indices for k, n in zip(index, source.shape, strict=True)):
        return "an index out of bounds"
    numbers = torch.arange(source.numel()).reshape(source.shape)
    read = source.flatten()[torch.stack([numbers[index] for index in indices])].reshape(shape)
    if not torch.allclose(read, shown, rtol=0, atol=0, equal_nan=True):
        return f"other elements: {indices}"
    symbolic = source_index(chain, identity(shape), tuple(source.shape), shape)
    if symbolic is not None and indices != [tuple(evaluated(x, place) for x in symbolic) for place in places]:
        return f"{symbolic} does not give {indices}"
    return ""


def is_plain(x: torch.Tensor) -> bool:
    return x.is_contiguous() and x.stride() == torch.empty(x.shape).stride()


def evaluated(x: Affine, place: tuple[int, ...]) -> int:
    return x.offset + sum(c * k for c, k in zip(x.coefficients, place, strict=True))
