"""The program cache: serialization of compiled graphs to disk, from which later processes load them.

    key = key_of(gm, example_inputs, gradients, live_scalar_types)         text; None where there is none
    program_serialization.put(key, recipe, tools)
    recipe, tools = program_serialization.get(key)                           the same, in another process

An entry is one JSON document, followed by the bytes it refers to: machine code, and constants. The document holds the
digest of the key that it was made for, and is not read for another key. Arrays are tagged with their types. Shared
objects (functions, words, kernels) are written once, in an order in which they can be created. Nothing is unpickled.
But an entry contains machine code and the source of drivers, so `disk_cache` only reads a folder that no other user can
write to.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch

from .. import events, settings
from ..concurrency.first_value_cache import once
from ..concurrency.outside_errors import reraise_from_outside
from ..foundation.torch_private import OpOverload, increment_version
from ..ir.untraceable_graph import NumberLost, Untraceable
from ..ops.elementwise import python_number_operators
from ..runtime.disk.disk_cache import disk_cache
from ..runtime.linking import torch_blas_symbols, torch_thread_pool, vector_math_symbols
from ..runtime.program.call_origins import CallOrigins
from ..runtime.program.native_kernels import NativeFunction, NativeKernel, Words, load
from ..runtime.program.unbound_driver import FunctionOf
from ..tensors.device_facts import is_host
from ..tensors.fit_size_formulas import NoFormula
from .program_recipe import NativeTools
from .provide_guard_watch import watch_at_hand

if TYPE_CHECKING:
    from .program_recipe import Recipe

KIND = "program"
LARGEST_CONSTANT = 1 << 20
"""Bytes of a constant of the graph."""

RECORDS: dict[str, str] = {
    name: module
    for module, names in {
        "compiler.check_symbolic_sizes": "Reach",
        "compiler.program_recipe": "Recipe Plain Frozen Halved Divided",
        "runtime.program.unbound_driver": "UnboundDriver ArenaView ArenaElement",
        "runtime.program.unbound_symbolic_driver": "UnboundSymbolicDriver SymbolicLaunch SymbolicEntry SymbolicView",
        "runtime.program.native_call_sequence": "NativeCalls InArena Fixed Moving",
        "runtime.program.autograd_function": "GradientLayout",
        "runtime.program.several_autograd_nodes": "PieceLayout OutputLayout",
        "captured_graph.aliased_gradients": "InputView TangentGradient",
        "tensors.weight_packing": "Panels TransformedPanels LayerPanels",
        "tensors.fit_size_formulas": "Formula SpecialSizes",
        "tensors.tensor_types": "TensorType",
        "tensors.views.view_maps": "Reshape Permute Expand Slice Diagonal",
        "schedule.library.call_specs": "LinearSpec ConvSpec MatmulSpec AttentionSpec Activation "
        "QuantizedSpec IntegerSpec",
    }.items()
    for name in names.split()
}
"""The modules of classes that are written field by field. They are imported on demand: most programs need few."""

TORCH: dict[type, str] = {torch.dtype: "dtype", torch.layout: "layout", torch.memory_format: "memory_format"}
OURS = f"{__name__.partition('.')[0]}."
"""The package of our own functions that drivers call."""

REFUSALS: dict[str, type[Exception]] = {kind.__name__: kind for kind in (Untraceable, NumberLost, NoFormula)}
"""Why a graph is not compiled, or not in this way."""


class NotSerializable(Exception):
    """Something that cannot be serialized."""


Programs = dict[str, bytes]
"""Compiled graphs in an exported graph's own file, by the digests of their keys."""


Lines = Sequence[Any]
"""The lines of the user's program, by node of the captured graph. An entry holds numbers of nodes in their place."""


def put(key: str, recipe: Recipe, tools: NativeTools, lines: Lines, programs: Programs | None = None) -> None:
    """Writes to disk, and into `programs`."""
    shelf = disk_cache()
    is_off = shelf is None or shelf.why_not is not None
    if is_off and programs is None:
        return
    try:
        content = packed(recipe, tools, digest_of(key), lines)
    except NotSerializable as why:
        events.emit("cache.not_kept", text=f"a compiled graph is not kept on disk: it holds {why}")
        return
    if programs is not None:
        programs[digest_of(key)] = content
    if shelf is not None:
        shelf.put(KIND, key, content)


def written_and_read(key: str, recipe: Recipe, tools: NativeTools, lines: Lines) -> tuple[Any, NativeTools]:
    """The program as a later process gets it, or the recipe itself if it cannot be serialized."""
    digest = digest_of(key)
    try:
        return unpacked(packed(recipe, tools, digest, lines), digest, lines)
    except NotSerializable:
        return recipe, tools


def digest_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def put_refusal(key: str, why: Exception) -> None:
    """Records that the graph is not supported, so that it is not tried again."""
    shelf = disk_cache()
    if shelf is not None:
        kind = next(kind.__name__ for kind in type(why).__mro__ if kind.__name__ in REFUSALS)
        shelf.put(
            KIND, key, framed({"key": digest_of(key), "refused": [kind, str(why), getattr(why, "call", None)]}, [])
        )


def get(key: str, lines: Lines = (), programs: Programs | None = None) -> tuple[Any, NativeTools] | None:
    """From `programs`, or from disk. Raises one of REFUSALS if compiling did."""
    digest = digest_of(key)
    found = None if programs is None else programs.get(digest)
    if found is None:
        shelf = disk_cache()
        found = None if shelf is None else shelf.get(KIND, key)
        if found is None:
            return None
        if programs is not None:
            programs[digest] = found
    return read(found, digest, lines)


def read(content: bytes, digest: str, lines: Lines = ()) -> tuple[Any, NativeTools] | None:
    """None if it cannot be read, or was made for a key with another digest."""
    try:
        return unpacked(content, digest, lines)
    except tuple(REFUSALS.values()):
        raise
    except Exception as error:
        reraise_from_outside(error)
        if settings.current().on_error == "raise":
            raise
        events.emit(
            "cache.unreadable", text=f"the stored form of a compiled graph cannot be read: {error}", fallback="internal"
        )
        return None


# ---- writing


def packed(recipe: Recipe, tools: NativeTools, digest: str, lines: Lines = ()) -> bytes:
    writer = EntryWriter(lines)
    root = [writer.value(recipe), writer.value(tools.runner), writer.value(tools.memory_comparer)]
    document = {"key": digest, "shared": writer.shared, "root": root, "bytes": [len(blob) for blob in writer.blobs]}
    return framed(document, writer.blobs)


def framed(document: dict[str, Any], blobs: list[bytes]) -> bytes:
    text = json.dumps(document, separators=(",", ":")).encode()
    return b"".join([len(text).to_bytes(8, "little"), text, *blobs])


def fields_of(x: Any) -> list[Any]:
    return [getattr(x, field.name) for field in fields(x)]


class EntryWriter:
    def __init__(self, lines: Lines) -> None:
        self.nodes = {id(line): node for node, line in enumerate(lines)}
        self.shared: list[Any] = []
        self.at: dict[int, int] = {}
        """The indices of what has been written, by id."""
        self.equal: dict[str, int] = {}
        """Indices by the text of the entry: equal layers share their tables."""
        self.held: list[Any] = []  # keeps objects alive, so that ids are unique
        self.blobs: list[bytes] = []
        self.blob_at: dict[bytes, int] = {}

    def value(self, x: Any) -> Any:
        kind = type(x)
        if x is None or kind in (bool, int, str):
            return x
        if kind is list or kind is tuple:
            return [kind.__name__, *map(self.value, x)]
        if kind.__name__ in RECORDS and kind is record(kind.__name__):
            return [kind.__name__, *map(self.value, x if isinstance(x, tuple) else fields_of(x))]
        if kind is CallOrigins:
            return ["origins", self.value(x.steps), self.value(x.names), [self.nodes.get(id(k), -1) for k in x.lines]]
        if kind in (NativeFunction, NativeKernel, Words, FunctionOf):
            return ["at", self.place(x)]
        if kind is float:
            return ["float", x.hex() if math.isfinite(x) else repr(x)]
        if kind is complex:
            return ["complex", self.value(x.real), self.value(x.imag)]
        if kind is dict:
            return ["dict", *[part for pair in x.items() for part in map(self.value, pair)]]
        if kind is torch.Size:
            return ["size", *x]
        if kind is torch.device:
            return ["device", str(x)]
        if kind in TORCH:
            return [TORCH[kind], str(x).removeprefix("torch.")]
        if kind is slice:
            return ["slice", *map(self.value, (x.start, x.stop, x.step))]
        if isinstance(x, torch.Tensor):
            return self.tensor(x)
        return self.function(x)

    def place(self, x: Any) -> int:
        found = self.at.get(id(x))
        if found is None:
            match x:
                case NativeFunction():
                    entry = ["function", x.symbol, self.blob(x.object_code)]
                case Words():
                    entry = ["words", *map(self.value, x.numbers)]
                case NativeKernel():
                    entry = ["kernel", x.name, self.place(x.function), x.buffers, x.cycles]
                case FunctionOf():
                    entry = self.function_of(x)
            found = self.at[id(x)] = self.equal.setdefault(repr(entry), len(self.shared))
            if found == len(self.shared):
                self.shared.append(entry)
            self.held.append(x)
        return found

    def blob(self, content: bytes) -> int:
        found = self.blob_at.get(content)
        if found is None:
            found = self.blob_at[content] = len(self.blobs)
            self.blobs.append(content)
        return found

    def function_of(self, x: FunctionOf) -> list:
        """A candidate, by its spec and its name. Candidates with an epilogue cannot be found that way, but the epilogue
        does not affect how their weights are prepared."""
        candidate = x.owner
        is_whole = x.attribute == "prepare" or candidate.steps is None
        if not is_whole or find_candidate(candidate.spec, candidate.name) is None:
            raise NotSerializable(f"the library call {candidate.name}")
        return ["of", x.attribute, candidate.name, self.value(candidate.spec)]

    def tensor(self, x: torch.Tensor) -> Any:
        if (
            type(x) is not torch.Tensor
            or not is_host(x.device)
            or x.layout is not torch.strided
            or x.requires_grad
            or not x.is_contiguous()
            or x.nbytes > LARGEST_CONSTANT
            or x.is_conj()
            or x.is_neg()
        ):
            raise NotSerializable(f"a tensor of shape {tuple(x.shape)}")
        content = bytes(x.detach().reshape(-1).view(torch.uint8).tolist())
        return ["tensor", self.value(x.dtype), list(x.shape), self.blob(content)]

    def function(self, x: Any) -> Any:
        if isinstance(x, OpOverload):  # the key identifies what is registered for it
            return ["operator", str(x)]
        if x is increment_version:
            return ["increment_version"]
        number = python_number_operators.name_of(x)
        if number is not None:
            return ["number", number]
        module, name = getattr(x, "__module__", None) or "", getattr(x, "__qualname__", "")
        if module.startswith(OURS) and getattr(sys.modules[module], name, None) is x:
            return ["ours", module.removeprefix(OURS), name]
        raise NotSerializable(f"{x!r:.80}")


# ---- reading


def unpacked(content: bytes, digest: str, lines: Lines = ()) -> tuple[Any, NativeTools]:
    size = int.from_bytes(content[:8], "little")
    written = json.loads(content[8 : 8 + size])
    if written["key"] != digest:
        raise ValueError(f"it was compiled for the graph {written['key']!r:.20}, and stands under {digest!r:.20}")
    if "refused" in written:
        kind, why, call = written["refused"]
        refusal = REFUSALS[kind](why)
        if isinstance(refusal, Untraceable):
            refusal.call = call
        raise refusal
    return EntryReader(written, memoryview(content)[8 + size :], lines).root()


class EntryReader:
    def __init__(self, written: Any, blobs: memoryview, lines: Lines):
        self.written, self.lines = written, lines
        ends = [0]
        for length in written["bytes"]:
            ends.append(ends[-1] + length)
        self.blobs = [bytes(blobs[start:stop]) for start, stop in zip(ends, ends[1:], strict=False)]
        self.shared: list[Any] = []

    def root(self) -> tuple[Any, NativeTools]:
        for entry in self.written["shared"]:
            self.shared.append(self.make(entry))
        recipe, runner, memory_comparer = map(self.value, self.written["root"])
        return recipe, NativeTools(runner, memory_comparer, watch_at_hand)

    def make(self, entry: list) -> Any:
        match entry:
            case ["function", symbol, blob]:
                return load(self.blobs[blob], symbol, symbols())
            case ["words", *numbers]:
                return Words([self.value(number) for number in numbers])
            case ["kernel", name, function, buffers, cycles]:
                return NativeKernel(name, self.shared[function], buffers, cycles)
            case ["of", attribute, name, spec]:
                candidate = find_candidate(self.value(spec), name)
                if candidate is None:  # not offered in this process: the graph is compiled again
                    raise ValueError(f"the library call {name}")
                return FunctionOf(candidate, attribute)

    def value(self, x: Any) -> Any:
        if type(x) is not list:
            return x
        what, *parts = x
        make = MAKE.get(what)
        if make is not None:
            return make([self.value(part) for part in parts])
        if what == "at":
            return self.shared[parts[0]]
        if what == "origins":
            steps, names, nodes = parts
            lines = [self.lines[k] if 0 <= k < len(self.lines) else None for k in nodes]
            return CallOrigins(self.value(steps), self.value(names), lines)
        if what == "tensor":
            dtype, shape, blob = parts
            content = bytearray(self.blobs[blob])
            flat = torch.frombuffer(content, dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
            return flat.clone().view(self.value(dtype)).reshape(shape)
        return record(what)(*map(self.value, parts))


@once
def record(name: str) -> Any:
    if name not in RECORDS:
        raise ValueError(f"an entry of the kind {name!r:.40}")
    return getattr(importlib.import_module(OURS + RECORDS[name]), name)


def operator(name: str) -> Any:
    namespace, operator, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), operator), overload)


def function_of_numbers(name: str) -> Any:
    found = python_number_operators.function_of(name)
    if python_number_operators.name_of(found) != name:
        raise ValueError(f"the function {name!r:.40} of numbers")
    return found


def constant(kind: type, name: str) -> Any:
    found = getattr(torch, name)
    if type(found) is not kind:
        raise ValueError(f"{name!r:.40} for a {kind.__name__}")
    return found


MAKE: dict[str, Callable[[list], Any]] = {
    "list": list,
    "tuple": tuple,
    "size": torch.Size,
    "complex": lambda parts: complex(*parts),
    "float": lambda parts: float.fromhex(parts[0]),
    "dict": lambda parts: dict(zip(parts[::2], parts[1::2], strict=True)),
    "device": lambda parts: torch.device(parts[0]),
    "slice": lambda parts: slice(*parts),
    **{name: lambda parts, kind=kind: constant(kind, parts[0]) for kind, name in TORCH.items()},
    "operator": lambda parts: operator(parts[0]),
    "ours": lambda parts: getattr(importlib.import_module(OURS + parts[0]), parts[1]),
    "number": lambda parts: function_of_numbers(parts[0]),
    "increment_version": lambda parts: increment_version,
}


def find_candidate(spec: Any, name: str) -> Any:
    """The candidate of this name, or None. Some are offered only where native calls can be made: by the code generator,
    which a process that only loads programs has not imported."""
    from ..schedule.library.autotune_library_calls import candidates

    def find() -> Any:
        return next((candidate for candidate in candidates(spec) if candidate.name == name), None)

    found = find()
    if found is None:
        from ..targets import cpu  # noqa: F401  (tells the candidates that it makes native calls)

        found = find()
    return found


@once
def symbols() -> dict[str, int]:
    """Addresses of the external functions that native code calls."""
    found = torch_thread_pool.addresses()
    if torch_thread_pool.PARALLEL in found:
        return found | vector_math_symbols.symbols() | torch_blas_symbols.symbols()
    from ..codegen.llvm.compile_to_machine_code import symbols as compiled  # compiles a replacement

    return compiled()
