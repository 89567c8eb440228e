"""The operators that an exported file may name (allowlist), and how a name is resolved.

    operation("torch.nn.functional.linear")          torch's function
    operation("torch.ops.aten.add.Tensor")           an operator of ATen, pure by its schema
    operation("torch.ops.aten.from_file.default")    UserError: it takes the name of a file

A name is looked up in a table; it is never resolved through attributes. The table lists pure operators; it is not a
blocklist:

* an operator is pure if each of its arguments is a tensor, a number, a dtype, a device, or a word of a known kind
  (`rounding_mode`), and it returns only tensors (`why_not_pure`). Reading and writing files, printing, and returning
  memory or Python values need arguments or results of other types;
* operators that begin with an underscore are internal to torch, and check less: only those that Burnish has a record
  for may be named;
* a function or a method of torch that is written in C++ may be named if an operator of that name is pure;
* of functions written in Python, those of `torch.nn.functional` and `torch.functional` that torch documents, which
  only call such operators.

Burnish does not know the code of other libraries' operators (`torchvision.nms`): a file may name them if the caller
trusts it.
"""

from __future__ import annotations

import functools
import importlib
import math
import operator
import pkgutil
import re
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch
import torch.fx

from .. import ops
from ..capture.pytorch.torch_call_roles import READS, STATE, Getter
from ..capture.pytorch.torch_switches import SWITCHES
from ..concurrency.first_value_cache import once
from ..errors import UserError
from ..foundation.torch_private import C, OpOverload, OpOverloadPacket
from ..ops.operator_record import RECORDS

# Functions that classes cannot override, but that occur in traces.
FACTORIES = """
    arange as_tensor bartlett_window blackman_window empty empty_permuted empty_strided eye full hamming_window
    hann_window kaiser_window linspace logspace normal ones rand randint randn randperm scalar_tensor tensor
    tril_indices triu_indices vander zeros rand_like randn_like randint_like _assert
""".split()
ARITHMETIC = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
METHODS = frozenset(
    (
        *(f"__{way}{name}__" for name in ARITHMETIC for way in ("", "r", "i")),
        *"""
    __abs__ __eq__ __ge__ __gt__ __invert__ __le__ __lt__ __ne__ __neg__ __pos__ __getitem__ __setitem__ __div__
    __rdiv__ __idiv__ _conj as_strided new_empty new_empty_strided new_full new_ones new_tensor new_zeros unflatten
    bfloat16 bool byte cdouble cfloat char double float half int long short type cuda cpu lu unique
    """.split(),
    )
)
"""Pure methods whose operator has another name, or that have none."""

COMMON = frozenset(
    "add contiguous detach div expand flatten float masked_fill matmul mean mul permute pow reshape size split squeeze "
    "sub sum to transpose type_as unsqueeze view view_as __getitem__".split()
) - {"size"}
"""Methods that most graphs have, known without querying torch for all its methods, which takes as long as linking."""

GETTERS = frozenset(("T", "mT", "H", "mH", "real", "imag", "data", "grad"))
IN_PYTHON = frozenset(("torch.functional", "torch.nn.functional", "torch._jit_internal", "torch._lobpcg"))
"""Modules whose documented functions only call operators."""

NEVER = READS | STATE | {"as_subclass", "_make_wrapper_subclass", "backward", "is_shared", "share_memory"}
"""They return Python values, or change a tensor as an object: no exported graph contains them."""

TYPES = frozenset(
    """
    Tensor int bool float complex number Device Generator List[int] List[Tensor] List[bool] List[float] List[number]
    List[complex] List[Optional[Tensor]]
""".split()
)
WORDS = frozenset(
    """
    norm reduce rounding_mode driver interpolation UPLO approximate padding ord side mode activation equation indexing
    padding_side pad_mode reduction p assert_msg
""".split()
)
"""Operator arguments that take one of a few words."""

SIZE = torch.ops.aten.sym_size.int
"""Reads a size of a tensor: of the operators that return numbers the only one."""

ON_NUMBERS: dict[str, Callable[..., Any]] = {
    **{f"operator.{name}": getattr(operator, name) for name in "add sub mul floordiv mod truediv neg pow".split()},
    **{f"math.{name}": getattr(math, name) for name in ("sqrt", "floor", "ceil")},
    **{function.__name__: function for function in (min, max, round, int, float)},
}
"""What sizes are computed with. Their arguments are numbers, results or constants (`graph_to_json`)."""

OF_TORCH = ("aten", "prims")
OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(\w+)\.(\w+)", re.ASCII)


class Unwritable(Exception):
    """A value that the file format cannot represent."""


# ---- pure operators


def why_not_pure(overload: OpOverload) -> str | None:
    """Why an operator of torch could do more than compute tensors from tensors, by its schema."""
    schema, name = overload._schema, overload._opname
    if name in NEVER:
        return "it changes tensors as objects, or reads values out of them"
    for argument in schema.arguments:
        kind = str(argument.type)
        plain = kind.removeprefix("Optional[")[:-1] if kind.startswith("Optional[") else kind
        if plain == "str" and argument.name in WORDS:
            continue
        if plain not in TYPES:
            return f"it takes {argument.name}: {kind}"
    makes = [str(result.type) in ("Tensor", "List[Tensor]") for result in schema.returns]
    if not makes and not any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments):
        return "it returns nothing and writes to no tensor"
    if makes and not any(makes):
        return "it returns no tensor"
    if not all(makes) and str(overload) not in recorded():
        return "it returns something else than tensors"
    if is_internal(name) and str(overload) not in recorded():
        return "it is internal to torch, and Burnish has no record of it"
    return None


def is_internal(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def overloads(name: str) -> Iterator[OpOverload]:
    packet = getattr(torch.ops.aten, name, None)
    if isinstance(packet, OpOverloadPacket):
        for overload in packet.overloads():
            yield getattr(packet, overload)


@once
def is_pure(name: str) -> bool:
    """Whether torch has an operator of this name that computes tensors."""
    return not is_internal(name) and any(why_not_pure(overload) is None for overload in overloads(name))


@once
def recorded() -> frozenset[str]:
    """The operators that Burnish has records of."""
    for module in pkgutil.iter_modules(ops.__path__, f"{ops.__name__}."):
        importlib.import_module(module.name)
    return frozenset(RECORDS)


# ---- functions and methods by name


@once
def operations() -> dict[str, Callable[..., Any]]:
    """Every function a file may name, except for operators."""
    found: dict[str, Callable[..., Any]] = {"operator.getitem": operator.getitem, **ON_NUMBERS}
    found[f"torch.ops.{SIZE}"] = SIZE
    found["torch.ops.higher_order.cond"] = torch.ops.higher_order.cond  # of graphs in the file
    for prefix, namespace, family in (
        ("torch", torch, ""),
        ("torch.nn.functional", torch.nn.functional, ""),
        ("torch.linalg", torch.linalg, "linalg_"),
        ("torch.fft", torch.fft, "fft_"),
        ("torch.special", torch.special, "special_"),
    ):
        for function in torch.overrides.get_overridable_functions().get(namespace, ()):
            name = getattr(function, "__name__", "")
            if getattr(namespace, name, None) is function and is_harmless(function, name, family):
                found[f"{prefix}.{name}"] = function
    for name, function in vars(torch.nn.functional).items():
        # hardswish and some others are also called by their Python names.
        if isinstance(function, FunctionType) and function.__module__ == "torch.nn.functional" and name[0] != "_":
            found.setdefault(f"torch.nn.functional.{name}", function)
    found.update((f"torch.{name}", getattr(torch, name)) for name in FACTORIES if hasattr(torch, name))
    found.update((f"torch._C.{name}", getattr(C, name)) for name in SWITCHES if hasattr(C, name))
    found.update((f"torch.{name}", getattr(torch, name)) for name in SWITCHES if hasattr(torch, name))
    found.update((f"torch.Tensor.{name}", Getter(name)) for name in GETTERS)
    return found


def is_harmless(function: Any, name: str, family: str) -> bool:
    if name in NEVER:
        return False
    if isinstance(function, FunctionType):
        return function.__module__ in IN_PYTHON
    # torch.nn.functional.gelu, torch.linalg.det (linalg_det), torch.fft.fft (fft_fft), torch.sparse_coo_tensor
    return not isinstance(function, type) and (is_pure(name) or is_pure(family + name.removeprefix(family)))


@once
def names() -> dict[Any, str]:
    """The inverse of `operations`; of several names the first."""
    found: dict[Any, str] = {}
    for name, function in operations().items():
        found.setdefault(function, name)
    return found


def is_method(name: Any) -> bool:
    """Whether a file may name a tensor method."""
    return isinstance(name, str) and (name in COMMON or name in methods())


@once
def methods() -> frozenset[str]:
    known = torch.overrides.get_overridable_functions().get(torch.Tensor, ())
    named = {getattr(function, "__name__", "") for function in known} - NEVER
    return frozenset(name for name in named if name in METHODS or is_pure(name)) | METHODS


# ---- both ways


def name_of(target: Any) -> str:
    if isinstance(target, OpOverload):
        return f"torch.ops.{target}"
    try:
        name = names().get(target)
    except TypeError:
        name = None
    if name is None:
        known = getattr(target, "__qualname__", None) or getattr(target, "__name__", None) or repr(target)
        raise Unwritable(f"the operation {getattr(target, '__module__', '?')}.{known}, which is not one of torch's own")
    return name


def operation(name: Any, trust: bool = False) -> Callable[..., Any]:
    """The function that a file names. If the file is trusted, it may be any operator that a library has registered."""
    found = operations().get(name) if isinstance(name, str) else None
    if found is not None:
        return found
    match = OPERATOR.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise UserError(
            f"it asks for the operation {name!r:.100}, which this version of torch ({torch.__version__}) "
            f"does not have, or which no exported graph may use"
        )
    return registered(name, *match.groups(), trust=trust)


@functools.lru_cache(4096)
def registered(name: str, namespace: str, packet: str, overload: str, *, trust: bool) -> OpOverload:
    if namespace not in OF_TORCH and not trust:
        raise UserError(
            f"it asks for the operation {name!r:.100} of the library {namespace!r:.40}. Burnish does not "
            f"know what that does, so no exported graph may use it unless you trust the file as you trust "
            f"a program and load it with trust=True"
        )
    found: Any = getattr(getattr(torch.ops, namespace), packet, None)
    if isinstance(found, OpOverloadPacket) and overload in found.overloads():
        found = getattr(found, overload)
    if not isinstance(found, OpOverload):
        raise UserError(
            f"it asks for the operation {name!r:.100}, which torch {torch.__version__} does not have, and "
            f"no library that is imported here has registered"
        )
    why = why_not_pure(found) if namespace in OF_TORCH else None
    if why is not None:
        raise UserError(f"it asks for the operation {name!r:.100}, which no exported graph may use: {why}")
    return found
