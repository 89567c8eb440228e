"""Makes the types of Triton's interpreter cheaper, while it runs a kernel.

    with quick_types():
        run(...)

Each operation of a kernel makes the types and the shapes of its operands and of its result, several times, out of
Python numbers in boxes. That takes longer than numpy. Here a type that was made before gets the attributes of the
first of its kind, and operands of equal shapes are returned as they are. Each kernel also looks for the functions of
Triton's language among all that a module has. What is computed is the same.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import triton.language as tl
from triton.language import core
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

facts_of_blocks: dict[tuple, dict[str, Any]] = {}
"""The attributes of block types, by element type and shape. With those of a tensor of the type, once there was one."""


@contextlib.contextmanager
def quick_types() -> Iterator[None]:
    with (
        patch.object(core, "_unwrap_if_constexpr", unwrapped(core._unwrap_if_constexpr)),
        patch.object(tl.block_type, "__init__", block_type_maker(tl.block_type.__init__)),
        patch.object(tl.tensor, "__init__", tensor_maker(tl.tensor.__init__)),
        patch.object(TritonSemantic, "broadcast_impl_value", broadcaster(TritonSemantic.broadcast_impl_value)),
        patch.object(interpreter, "_get_np_dtype", numpy_type_finder(interpreter._get_np_dtype)),
        patch.object(interpreter, "_patch_builtin", patch_functions),
    ):
        yield


def unwrapped(plain: Callable) -> Callable:
    return lambda value: value if type(value) is int else plain(value)


def block_type_maker(plain: Callable) -> Callable:
    def make(block: tl.block_type, element_ty: tl.dtype, shape: Any) -> None:
        key = (element_ty, *shape)
        try:
            found = facts_of_blocks.get(key)
        except TypeError:  # the key cannot be hashed
            return plain(block, element_ty, shape)
        if found is None:
            plain(block, element_ty, shape)
            found = facts_of_blocks[key] = {**vars(block), "facts_of_tensors": {}}
        vars(block).update(found)

    return make


def tensor_maker(plain: Callable) -> Callable:
    def make(tensor: tl.tensor, handle: Any, type: tl.dtype) -> None:
        found = vars(type).get("facts_of_tensors")
        if not found:
            plain(tensor, handle, type)
            if found is not None:
                found.update((name, value) for name, value in vars(tensor).items() if name not in ("handle", "type"))
            return
        vars(tensor).update(found, handle=handle, type=type)

    return make


def broadcaster(plain: Callable) -> Callable:
    def broadcast(semantic: TritonSemantic, left: tl.tensor, right: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
        if left.type.is_block() and right.type.is_block() and [*left.type.shape] == [*right.type.shape]:
            return left, right
        return plain(semantic, left, right)

    return broadcast


def numpy_type_finder(plain: Callable) -> Callable:
    return lambda type: found_type(plain, type) if isinstance(type, tl.dtype) and type.name in SCALARS else plain(type)


SCALARS = {type.name for type in vars(tl).values() if type.__class__ is tl.dtype}


@functools.cache
def found_type(plain: Callable, type: tl.dtype) -> Any:
    return plain(type)


def patch_functions(module: Any, *rest: Any) -> None:
    for name in functions_of(module):
        function = getattr(module, name)
        if core.is_builtin(function):  # it is not patched yet
            interpreter._patch_attr(module, name, function, *rest)


@functools.cache
def functions_of(module: Any) -> list[str]:
    """The first kernel asks, when none is patched."""
    return [name for name, function in inspect.getmembers(module) if core.is_builtin(function)]
