"""Trace rules: which functions are interpreted, which run natively as one call, and which names need no guards.

* torch's functional interface and a few pure parts of the standard library run natively, as leaves;
* all other Python code is interpreted: the user's code, libraries, torch's modules and optimizers;
* names inside torch's or the standard library's own modules are assumed to be fixed, so they need no guard; but not
  names that a function of the module assigns, such as ``parametrize._cache_enabled``.
"""

from __future__ import annotations

import builtins
import dis
import enum
import functools
import inspect
import os.path
import re
import sys
import threading
import types
import typing
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

import torch

from ...errors import OURS
from ...foundation.torch_private import legacy_get_string
from ..interpreter.reads_past_overrides import table_of_class

# Torch's Python files whose functions are leaves: they compute with tensors and hold no user state.
LEAVES = frozenset(
    """
    torch torch.functional torch.nn.functional torch._tensor torch._jit_internal torch._C torch._lowrank torch.special
    torch.linalg torch.fft torch.overrides torch._ops torch._utils torch._VF torch.types
    torch._linalg_utils torch.nn._reduction
    torch.nested torch.sparse torch.masked torch.nn.init
    torch._classes torch.utils.dlpack torch.nn.attention.bias torch.signal.windows.windows
    torch._namedtensor_internals torch.jit torch.jit._trace torch.jit._script
    torch.jit.annotations torch._six torch._sources torch.version torch.return_types torch._numpy
    torch._higher_order_ops
    torch.nn.modules.utils torch.nn.grad
    torch.nn.modules._functions
""".split()
) - {"torch.nn.init"}

# Standard library modules with functions that may run natively in a trace: they call no user code and keep nothing.
PURE_MODULES = frozenset(
    """
    re re._parser re._compiler re._constants sre_parse sre_compile inspect typing string textwrap ast keyword token
    tokenize
    numbers math cmath fractions decimal json json.encoder json.decoder importlib importlib._bootstrap enum abc _py_abc
    operator types posixpath os.path genericpath ntpath fnmatch struct packaging.version packaging difflib
    _weakrefset weakref sysconfig platform annotationlib importlib.util importlib.metadata dis opcode linecache
    importlib._bootstrap_external _collections_abc.bool typing_extensions
""".split()
)

STDLIB = frozenset(sys.stdlib_module_names)


# ... except these functions, which call back into the user's objects (`List[int]()`), or read files or the environment.
NO_LEAVES = frozenset(
    (
        typing._BaseGenericAlias.__call__,  # type: ignore[attr-defined]
        enum.Enum.__format__,  # calls the member's __str__
        typing._no_init_or_replace_init,  # type: ignore[attr-defined]  # assigns to the class
        types.new_class,  # each call makes another class, and asks the bases
        types.prepare_class,
        types.resolve_bases,
        re.split,  # these warn about their callers' positional arguments
        re.sub,
        re.subn,
        re.Scanner.scan,  # type: ignore[attr-defined]  # calls functions in its table
        # So do these, about deprecated arguments. Interpreted, gaussian_nll_loss has its check of data in the graph.
        *(
            getattr(torch.nn.functional, name, None)
            for name in "gaussian_nll_loss upsample upsample_nearest upsample_bilinear _canonical_mask".split()
        ),
        legacy_get_string,
        torch.jit.enable_onednn_fusion,  # these ask for a setting, or change it
        torch.jit.onednn_fusion_enabled,
        *(
            getattr(function, "__func__", function)
            for function in vars(torch.sparse.check_sparse_tensor_invariants).values()
            if isinstance(function, (FunctionType, staticmethod))
        ),
        *(
            getattr(os.path, name)
            for name in """
        exists lexists isfile isdir islink ismount getsize getmtime getatime getctime samefile sameopenfile
        abspath realpath relpath expanduser expandvars
    """.split()
        ),
        # Signatures are bound to values of the program: the objects that hold them are made, and read, step by step.
        *(
            getattr(member, "fget", getattr(member, "__func__", member))
            for kind in (inspect.Signature, inspect.Parameter, inspect.BoundArguments)
            for member in vars(kind).values()
            if isinstance(member, (FunctionType, property))
        ),
    )
)


def is_trusted(module: Any) -> bool:
    """Whether the meaning of names in ``module`` is assumed to be fixed. A program may give a module any name."""
    return type(module) is str and _is_trusted(module)


@functools.lru_cache(maxsize=8192)
def _is_trusted(module: str) -> bool:
    root = module.partition(".")[0]
    return root in ("torch", "burnish", "builtins") or (root in STDLIB and root != "__main__")


def is_trusted_namespace(namespace: dict) -> bool:
    return is_trusted(namespace.get("__name__"))


STORES = frozenset(dis.opmap[name] for name in ("STORE_GLOBAL", "DELETE_GLOBAL"))

REBOUND: dict[int, tuple[dict, frozenset[str]]] = {}
"""By the id of a namespace of a trusted module, which stays."""


def is_rebound(namespace: dict, name: str) -> bool:
    """Whether a function of the module whose names these are assigns or deletes ``name``."""
    found = REBOUND.get(id(namespace))
    if found is None:
        if getattr(sys.modules.get(namespace.get("__name__", "")), "__dict__", None) is not namespace:
            return False
        names = {name for function in functions_in(namespace) for name in stored(function.__code__)}
        found = REBOUND[id(namespace)] = (namespace, frozenset(names))
    return name in found[1]


def functions_in(namespace: dict) -> Iterator[FunctionType]:
    """The functions that a module defines, methods and those in wrappers of other modules among them."""
    module = namespace.get("__name__")
    values = list(namespace.values())
    for value in tuple(values):
        if issubclass(type(value), type) and module_of(value) == module:
            values.extend(table_of_class(value).values())
    for value in values:
        kind = type(value)
        parts = (value.fget, value.fset, value.fdel) if kind is property else (value,)
        for part in parts:
            function = part.__func__ if type(part) in (staticmethod, classmethod) else part
            while type(function) is FunctionType and function.__globals__ is not namespace:
                function = function.__dict__.get("__wrapped__")
            if type(function) is FunctionType:
                yield function


def stored(code: CodeType) -> Iterator[str]:
    if not STORES.isdisjoint(code.co_code[::2]):
        yield from (step.argval for step in dis.get_instructions(code) if step.opcode in STORES)
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from stored(constant)


_module_of = type.__dict__["__module__"].__get__


def module_of(kind: type) -> str:
    """The module of a class, past a property of that name, on a metaclass or in the class."""
    module = _module_of(kind)
    return module if type(module) is str else ""


def is_trusted_function(function: FunctionType) -> bool:
    """A program may assign any name to ``__module__``; and a wrapper has the name of what it wraps."""
    return is_trusted(function.__module__) and is_trusted_namespace(function.__globals__)


def is_trusted_type(kind: type) -> bool:
    module = module_of(kind)
    return is_trusted(module) and (module != "builtins" or not kind.__flags__ & HEAP_TYPE or kind in BUILTIN_CLASSES)


HEAP_TYPE = 1 << 9
BUILTIN_CLASSES = frozenset(value for value in vars(builtins).values() if issubclass(type(value), type))
"""Classes that ``exec`` makes in a namespace without a name are said to be of ``builtins``, too."""


def is_leaf(function: FunctionType) -> bool:
    """Whether a Python function runs natively, as one recorded or constant call."""
    if function.__code__.co_flags & 0x20:
        return False  # a generator created natively could not be rebuilt
    module = function.__globals__.get("__name__") or ""
    if not _leaf_module(module) or function in NO_LEAVES:
        return False
    # A wrapper around a foreign function calls it (typing_extensions.deprecated and torch.overrides.wrap_torch_function
    # make such wrappers).
    wrapped = function.__dict__.get("__wrapped__", function)
    is_known = is_pure_module if is_pure_module(module) else is_trusted
    return wrapped is function or is_known(getattr(wrapped, "__module__", None))


@functools.lru_cache(maxsize=8192)
def _leaf_module(module: str) -> bool:
    return module in LEAVES or module in PURE_MODULES


def is_pure_module(module: str | None) -> bool:
    return module in PURE_MODULES


PEEKERS = frozenset(("_getframe", "currentframe", "_getframemodulename", "getouterframes"))


OBSERVERS = frozenset(("settrace", "setprofile", "settrace_all_threads", "setprofile_all_threads", "monitoring"))
OBSERVING_MODULES = (sys, threading)
OBSERVING_VALUES = tuple(
    vars(module)[name] for module in OBSERVING_MODULES for name in sorted(OBSERVERS & vars(module).keys())
)


OBSERVES = "it sets a function that observes the interpreter"


def may_observe(co: types.CodeType) -> bool:
    return not OBSERVERS.isdisjoint(co.co_names)


def observes(function: FunctionType) -> bool:
    """Whether a function sets a trace function, which would see the frames of our interpreter and not the program's."""
    co = function.__code__
    if not may_observe(co):
        return False
    is_likely, reads = observing_reads(co)
    if is_likely:
        return True
    cells = dict(zip(co.co_freevars, function.__closure__ or (), strict=False))
    for name, attribute in reads:
        try:
            value = cells[name].cell_contents if name in cells else dict.get(function.__globals__, name)
        except ValueError:  # the cell is empty
            continue
        for known in OBSERVING_MODULES if attribute else OBSERVING_VALUES:
            if value is known:
                return True
    return False


@functools.lru_cache(maxsize=1024)
def observing_reads(co: types.CodeType) -> tuple[bool, frozenset[tuple[str, bool]]]:
    """Whether the code imports or is given a module that has observers, as far as its names tell, and the variables
    that they may be read from: ``("sys", True)`` of ``sys.settrace``, and ``("settrace", False)``."""
    reads, before, is_likely = set(), None, False
    for instruction in dis.get_instructions(co):
        name, kind = instruction.argval, instruction.opname
        if kind == "EXTENDED_ARG":
            continue
        if kind == "IMPORT_NAME":
            is_likely |= name in ("sys", "threading")
        elif type(name) is str and name in OBSERVERS:
            if "ATTR" not in kind and "METHOD" not in kind:
                reads.add((name, False))
            elif before is not None and before.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"):
                reads.add((before.argval, True))
            else:  # of an object that only a call can tell
                is_likely |= name != "monitoring" or before is not None and before.argval in ("sys", "threading")
        before = instruction
    return is_likely, frozenset(reads)


def why_not_interpret(function: FunctionType) -> str | None:
    """Why a Python function must run natively as a whole, or None."""
    co = function.__code__
    if co.co_flags & 0x380:
        return "it is a coroutine, run by an event loop"
    if observes(function):
        return OBSERVES
    if PEEKERS & set(co.co_names) and not is_trusted(function.__globals__.get("__name__")):
        return "it looks at the interpreter's frames"
    return None


def is_user_type(kind: type) -> bool:
    """A class written in Python outside torch and the standard library."""
    return bool(kind.__flags__ & HEAP_TYPE) and not is_trusted_type(kind)


def find_on_type(kind: type, name: str) -> Any:
    for base in kind.__mro__:
        table = table_of_class(base)
        if name in table:
            return table[name]
    return None


def hashes_in_python(key: Any) -> bool:
    """Parameters have a hash in Python, too, but it is their address."""
    found = find_on_type(type(key), "__hash__")
    return issubclass(type(found), types.FunctionType) and not (
        found is torch.Tensor.__hash__ and isinstance(key, torch.nn.Parameter)
    )


OUR_PATH = OURS
TORCH_PATH = os.path.join(os.path.dirname(torch.__file__), "")
