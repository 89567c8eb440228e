"""The file an exported graph is saved in: a zip archive of one JSON text and raw memory. No pickle, no code.

    burnish.json     the graph, its inputs, outputs and attributes
    storage/0 …      the memory of the tensors, as it lies there; tensors that share memory go on sharing it
    program/…        what is compiled of the graph, by the digests of its keys (`export_native`), if anything
    signature        of all but the memory, by the user who wrote it

An operation is written as the name under which torch documents it ("torch.nn.functional.linear"), and read by looking
that name up in the table of those operations (``operations``): a file cannot name anything else, so reading one from a
stranger runs nothing of his. What has no such name, a Python function of the user's in the graph for one, cannot be
written, and the error says which it is. Programs are machine code: they are left aside unless the signature is this
user's, or the caller trusts the file. Memory is mapped, not read: a page comes from the disk when it is first needed.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import hmac
import json
import keyword
import mmap
import operator
import os
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch.utils import _pytree as pytree

from .capture.pytorch.torch_calls import READS, STATE, Getter
from .capture.pytorch.torch_state import SWITCHES
from .errors import UserError, warn
from .export_native import Held, NativeGraph, signature
from .once import once
from .tensors.graph_module import graph_module

if TYPE_CHECKING:
    from .export import Exported

FORMAT = 1
DESCRIPTION, SIGNATURE, PROGRAM = "burnish.json", "signature", "program/"
ALIGNMENT = 64
LOCAL_HEADER, ZIP64_FIELD, PADDING_FIELD = 30, 20, 0xD935
"""Of the zip format: bytes before an entry's name, of the field for long files, and the field that aligns entries."""

# Not among the functions that torch lets classes override, but a trace meets them.
FACTORIES = (
    "arange", "as_tensor", "bartlett_window", "blackman_window", "empty", "empty_permuted", "empty_strided", "eye",
    "full", "hamming_window", "hann_window", "kaiser_window", "linspace", "logspace", "normal", "ones", "rand",
    "randint", "randn", "randperm", "scalar_tensor", "tensor", "tril_indices", "triu_indices", "vander", "zeros",
    "rand_like", "randn_like", "randint_like", "_assert",
)
ARITHMETIC = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
METHODS = frozenset((
    *(f"__{way}{name}__" for name in ARITHMETIC for way in ("", "r", "i")),
    "__abs__", "__eq__", "__ge__", "__gt__", "__invert__", "__le__", "__lt__", "__ne__", "__neg__", "__pos__",
    "__getitem__", "__setitem__", "_conj", "as_strided", "new_empty", "new_empty_strided", "new_full", "new_ones",
    "new_tensor", "new_zeros", "unflatten",
))
GETTERS = frozenset(("T", "mT", "H", "mH", "real", "imag", "data", "grad"))
# What would let a graph out of the world of tensors, or at memory that is not its own.
NEVER = READS | STATE | {"as_subclass", "from_file", "_make_subclass", "_make_wrapper_subclass", "__setstate__",
                         "__reduce__", "__dir__", "__class__", "backward", "is_shared", "share_memory"}
CONSTANTS: dict[type, tuple[str, ...]] = {
    torch.dtype: tuple(name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype)),
    torch.layout: tuple(name for name in dir(torch) if isinstance(getattr(torch, name), torch.layout)),
    torch.memory_format: ("contiguous_format", "channels_last", "channels_last_3d", "preserve_format"),
}


class Unwritable(Exception):
    """Something that the file has no form for."""


# ---- operations by name

@once
def operations() -> dict[str, Callable[..., Any]]:
    """Every function a file may name."""
    found: dict[str, Callable[..., Any]] = {"operator.getitem": operator.getitem}
    for prefix, namespace in (("torch", torch), ("torch.nn.functional", torch.nn.functional),
                              ("torch.linalg", torch.linalg), ("torch.fft", torch.fft),
                              ("torch.special", torch.special)):
        for function in torch.overrides.get_overridable_functions().get(namespace, ()):
            name = getattr(function, "__name__", "")
            if getattr(namespace, name, None) is function and name not in NEVER:
                found[f"{prefix}.{name}"] = function
    for name, function in vars(torch.nn.functional).items():
        # hardswish and a few more are called by their Python names as well.
        if isinstance(function, FunctionType) and function.__module__ == "torch.nn.functional" and name[0] != "_":
            found.setdefault(f"torch.nn.functional.{name}", function)
    found.update((f"torch.{name}", getattr(torch, name)) for name in FACTORIES if hasattr(torch, name))
    found.update((f"torch._C.{name}", getattr(torch._C, name)) for name in SWITCHES if hasattr(torch._C, name))
    found.update((f"torch.{name}", getattr(torch, name)) for name in SWITCHES if hasattr(torch, name))
    found.update((f"torch.Tensor.{name}", Getter(name)) for name in GETTERS)
    return found


@once
def names() -> dict[Any, str]:
    """The inverse; of several names the one that stands first."""
    found: dict[Any, str] = {}
    for name, function in operations().items():
        found.setdefault(function, name)
    return found


COMMON = frozenset(
    "add contiguous detach div expand flatten float masked_fill matmul mean mul permute pow reshape size split squeeze "
    "sub sum to transpose type_as unsqueeze view view_as __getitem__".split()
)
"""Methods that most graphs have, known without asking torch for all there are, which takes as long as linking."""


def is_method(name: Any) -> bool:
    """Whether a file may name a tensor method."""
    return name in COMMON or name in methods()


@once
def methods() -> frozenset[str]:
    known = torch.overrides.get_overridable_functions().get(torch.Tensor, ())
    return frozenset(getattr(function, "__name__", "") for function in known) - NEVER | METHODS


def name_of(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return f"torch.ops.{target}"
    try:
        name = names().get(target)
    except TypeError:
        name = None
    if name is None:
        known = getattr(target, "__qualname__", None) or getattr(target, "__name__", None) or repr(target)
        raise Unwritable(f"the operation {getattr(target, '__module__', '?')}.{known}, which is not one of torch's own")
    return name


def operation(name: str) -> Callable[..., Any]:
    found = operations().get(name)
    if found is None and name.startswith("torch.ops."):
        at: Any = torch.ops
        for part in name.removeprefix("torch.ops.").split("."):
            at = getattr(at, part, None)
        if isinstance(at, torch._ops.OpOverload) and at._opname not in NEVER:
            found = at
    if found is None:
        raise UserError(f"it asks for the operation {name!r:.100}, which this version of torch ({torch.__version__}) "
                        f"does not have, or which no exported graph may use")
    return found


# ---- values

def encode(value: Any, nodes: dict[torch.fx.Node, str]) -> Any:
    """A value as JSON has it: plain where JSON has the very type, else one entry that says what it is."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if isinstance(value, torch.fx.Node):
        return {"node": nodes[value]}
    if kind is float:
        return {"float": repr(value)}
    if kind is complex:
        return {"complex": [repr(value.real), repr(value.imag)]}
    if kind is bytes:
        return {"bytes": value.hex()}
    if isinstance(value, list):  # an immutable one, in a graph
        return {"list": [encode(part, nodes) for part in value]}
    if kind is torch.Size:
        return {"size": list(value)}
    if kind is tuple:
        return {"tuple": [encode(part, nodes) for part in value]}
    if kind in (dict, torch.fx.immutable_collections.immutable_dict):
        return {"dict": [[encode(key, nodes), encode(part, nodes)] for key, part in value.items()]}
    if kind is collections.OrderedDict:
        return {"ordered": [[encode(key, nodes), encode(part, nodes)] for key, part in value.items()]}
    if kind is slice:
        return {"slice": [encode(part, nodes) for part in (value.start, value.stop, value.step)]}
    if value is Ellipsis:
        return {"ellipsis": True}
    if kind is torch.device:
        return {"device": str(value)}
    if kind in CONSTANTS:
        return {kind.__name__: str(value).removeprefix("torch.")}
    if kind.__module__ == "torch.return_types":
        return {"struct": [kind.__name__, [encode(part, nodes) for part in value]]}
    raise Unwritable(f"a {kind.__module__}.{kind.__qualname__}")


def decode(value: Any, nodes: dict[str, torch.fx.Node]) -> Any:
    if not isinstance(value, dict):
        return value
    (what, content), = value.items()
    match what:
        case "node":
            return nodes[content]
        case "float":
            return float(content)
        case "complex":
            return complex(*map(float, content))
        case "bytes":
            return bytes.fromhex(content)
        case "list" | "tuple" | "size" | "slice":
            made = {"list": list, "tuple": tuple, "size": torch.Size, "slice": lambda parts: slice(*parts)}[what]
            return made([decode(part, nodes) for part in content])
        case "dict" | "ordered":
            pairs = [(decode(key, nodes), decode(part, nodes)) for key, part in content]
            return dict(pairs) if what == "dict" else collections.OrderedDict(pairs)
        case "ellipsis":
            return ...
        case "device":
            return torch.device(content)
        case "struct":
            kind = getattr(torch.return_types, content[0], None)
            if not (isinstance(kind, type) and issubclass(kind, tuple)):
                raise UserError(f"it holds a value of the unknown kind {content[0]!r:.60}")
            return kind([decode(part, nodes) for part in content[1]])
    for kind, known in CONSTANTS.items():
        if what == kind.__name__ and content in known:
            return getattr(torch, content)
    raise UserError(f"it holds a value of the unknown kind {what!r:.60}")


def encode_nesting(nesting: Any) -> Any:
    """How leaves nest, with the leaves' numbers in their places."""
    return encode(pytree.tree_unflatten(range(nesting.num_leaves), nesting), {})


def decode_nesting(written: Any) -> Any:
    return pytree.tree_flatten(decode(written, {}))[1]


# ---- graphs

def encode_graph(graph: torch.fx.Graph) -> list[dict[str, Any]]:
    nodes: dict[torch.fx.Node, str] = {}
    written: list[dict[str, Any]] = []
    for node in graph.nodes:
        nodes[node] = node.name
        entry: dict[str, Any] = {"name": node.name, "op": node.op}
        try:
            if node.op == "call_function":
                entry["target"] = name_of(node.target)
            elif node.op == "call_method" and not is_method(node.target):
                raise Unwritable(f"the method Tensor.{node.target}")
            elif node.op != "output":
                entry["target"] = node.target
            entry["args"] = [encode(part, nodes) for part in node.args]
            entry["kwargs"] = {key: encode(part, nodes) for key, part in node.kwargs.items()}
        except Unwritable as what:
            line = node.meta.get("stack_trace")
            raise UserError(f"The graph cannot be saved: it holds {what}{f' ({line.strip()})' if line else ''}. A file "
                            f"holds torch's own operations, on tensors and plain values. The exported graph itself "
                            f"works; to save it, write that part with torch operations.") from None
        if line := node.meta.get("stack_trace"):
            entry["line"] = line
        written.append(entry)
    return written


def decode_graph(written: list[dict[str, Any]], attributes: dict[str, Any]) -> torch.fx.Graph:
    graph = torch.fx.Graph()
    nodes: dict[str, torch.fx.Node] = {}
    for entry in written:
        op, name = entry["op"], _identifier(entry["name"])
        args = tuple(decode(part, nodes) for part in entry["args"])
        kwargs = {_identifier(key): decode(part, nodes) for key, part in entry["kwargs"].items()}
        if op == "call_function":
            node = graph.create_node(op, operation(entry["target"]), args, kwargs, name)
        elif op == "call_method" and is_method(entry["target"]) and args and isinstance(args[0], torch.fx.Node):
            node = graph.create_node(op, entry["target"], args, kwargs, name)
        elif op == "placeholder":
            node = graph.create_node(op, _identifier(entry["target"]), (), {}, name)
        elif op == "get_attr" and entry["target"] in attributes:
            node = graph.create_node(op, entry["target"], (), {}, name)
        elif op == "output":
            node = graph.create_node(op, "output", args, {}, name)
        else:
            raise UserError(f"it asks for {op!r:.40} of {entry.get('target')!r:.80}, which no exported graph may use")
        if "line" in entry:
            node.meta["stack_trace"] = str(entry["line"])
        nodes[entry["name"]] = node
    graph.lint()
    return graph


def _identifier(name: Any) -> str:
    # Names become Python source when the graph is compiled, so nothing but a name may stand there.
    if not (isinstance(name, str) and name.isidentifier() and name.isascii()) or keyword.iskeyword(name):
        raise UserError(f"{name!r:.60} stands where a name should")
    return name


# ---- tensors

class Storages:
    """Memory, each piece once."""

    def __init__(self) -> None:
        self.pieces: list[torch.UntypedStorage] = []
        self.at: dict[int, int] = {}

    def describe(self, name: str, tensor: torch.Tensor) -> dict[str, Any]:
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta or tensor.is_conj() \
                or tensor.is_neg() or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            kind = type(tensor).__qualname__ if type(tensor) is not torch.nn.Parameter else "Parameter"
            raise UserError(f"The graph cannot be saved: its attribute {name} is a {kind} with layout {tensor.layout} "
                            f"on {tensor.device.type}, and a file holds plain strided tensors.")
        storage = tensor.untyped_storage()
        number = self.at.setdefault(storage._cdata, len(self.pieces))
        if number == len(self.pieces):
            self.pieces.append(storage)
        return {"name": name, "storage": number, "dtype": str(tensor.dtype).removeprefix("torch."),
                "shape": list(tensor.shape), "strides": list(tensor.stride()), "offset": tensor.storage_offset(),
                "device": str(tensor.device), "parameter": isinstance(tensor, torch.nn.Parameter),
                "requires_grad": tensor.requires_grad}


def memory_of(storage: torch.UntypedStorage) -> Any:
    """A storage's bytes, not copied where it is in main memory."""
    on_cpu = storage if storage.device.type == "cpu" else storage.cpu()
    size = on_cpu.nbytes()
    if not size:
        return b""
    made = (ctypes.c_char * size).from_address(on_cpu.data_ptr())
    made._storage = on_cpu  # alive for as long as the bytes are
    return made


def read_tensor(entry: dict[str, Any], storages: list[torch.Tensor]) -> torch.Tensor:
    dtype = decode({"dtype": entry["dtype"]}, {})
    shape, strides, offset = entry["shape"], entry["strides"], entry["offset"]
    memory = storages[entry["storage"]]
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if min([offset, *shape, *strides], default=0) < 0 \
            or 0 not in shape and (last + 1) * dtype.itemsize > memory.untyped_storage().nbytes():
        raise UserError(f"the tensor {entry['name']} does not fit into its memory")
    device = torch.device(entry["device"])
    try:
        moved = memory.to(device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"its tensor {entry['name']} belongs on {device}, which is not there: {error}") from error
    tensor = torch.empty(0, dtype=dtype, device=device).set_(moved.untyped_storage(), offset, shape, strides)
    if entry["parameter"]:
        return torch.nn.Parameter(tensor, requires_grad=entry["requires_grad"])
    return tensor.requires_grad_(entry["requires_grad"])


# ---- files

def save(exported: Exported, path: str | os.PathLike[str]) -> None:
    storages = Storages()
    module = exported.graph_module
    attributes: dict[str, torch.Tensor] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            attributes[node.target] = operator.attrgetter(node.target)(module)
    description = {
        "format": FORMAT, "torch": torch.__version__, "name": exported.name,
        "graph": encode_graph(module.graph),
        "attributes": [storages.describe(name, tensor) for name, tensor in attributes.items()],
        "inputs": list(_encode_inputs(exported)),
        "outputs": [_writable(lambda o=o: {"node": o.node} if o.node is not None else {"value": encode(o.value, {})})
                    for o in exported.outputs],
        "arguments": _writable(lambda: encode_nesting(exported.arguments)),
        "result": _writable(lambda: encode_nesting(exported.result)),
        "ready": exported.native.ready if exported.native is not None else {},
        "writes_inputs": exported.writes_inputs, "guards": exported.guards, "left_out": exported.left_out,
    }
    path = Path(path)
    # Written beside its place and then moved there: a reader sees the old file or the new one, never half of one.
    handle, unfinished = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            content = json.dumps(description, indent=1).encode()
            archive.writestr(DESCRIPTION, content)
            programs = exported.native.programs if exported.native is not None else {}
            for digest, program in programs.items():
                archive.writestr(f"program/{digest}", program)
            if programs and (signed := signature(content, programs)) is not None:
                archive.writestr(SIGNATURE, signed)
            for number, storage in enumerate(storages.pieces):
                with archive.open(aligned(f"storage/{number}", file.tell()), "w", force_zip64=True) as entry:
                    entry.write(memory_of(storage))
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise


def _encode_inputs(exported: Exported) -> Iterator[dict[str, Any]]:
    from .export import TensorInput

    for described in exported.inputs:
        if isinstance(described, TensorInput):
            yield {"name": described.name, "node": described.node, "shape": list(described.shape),
                   "dtype": encode(described.dtype, {}), "device": str(described.device)}
        else:
            yield {"name": described.name, "value": encode(described.value, {})}


def _writable(encoded: Callable[[], Any]) -> Any:
    try:
        return encoded()
    except Unwritable as what:
        raise UserError(f"The graph cannot be saved: its arguments or its result hold {what}. A file holds tensors and "
                        f"plain values in tuples, lists and dictionaries. The exported graph itself works.") from None


def aligned(name: str, start: int) -> zipfile.ZipInfo:
    """An entry whose content will begin where memory may be mapped: a field of its header is padding."""
    entry = zipfile.ZipInfo(name)
    begins = start + LOCAL_HEADER + len(name) + ZIP64_FIELD + 4
    padding = -begins % ALIGNMENT
    entry.extra = struct.pack("<HH", PADDING_FIELD, padding) + bytes(padding)
    return entry


def load(path: str | os.PathLike[str], trust: bool | None = None) -> Exported:
    path = os.fspath(path)
    with what_is_wrong(path), open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        return _read(archive, Mapped(file), trust, path)


@contextlib.contextmanager
def what_is_wrong(path: str) -> Iterator[None]:
    """Errors in reading, in words."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path} cannot be loaded: {error}.") from error
    except zipfile.BadZipFile as error:
        raise UserError(f"{path} is not a file that Exported.save wrote: {error}.") from error
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, RuntimeError) as error:
        raise UserError(f"{path} is damaged, or was not written by Exported.save: "
                        f"{type(error).__name__}: {error}.") from error


class Mapped:
    """The file as memory. What is written to there stays in this process."""

    def __init__(self, file: Any):
        self.whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    def memory(self, entry: zipfile.ZipInfo) -> torch.Tensor:
        header = self.whole[entry.header_offset:entry.header_offset + LOCAL_HEADER]
        if header[:4] != b"PK\3\4" or entry.compress_type != zipfile.ZIP_STORED:
            raise UserError(f"its entry {entry.filename} is not as Exported.save writes it")
        name, extra = struct.unpack("<HH", header[26:30])
        begins = entry.header_offset + LOCAL_HEADER + name + extra
        if begins + entry.file_size > len(self.whole):
            raise UserError(f"its entry {entry.filename} is cut short")
        if not entry.file_size:
            return torch.empty(0, dtype=torch.uint8)
        found = torch.frombuffer(self.whole, dtype=torch.uint8, count=entry.file_size, offset=begins)
        return found if begins % ALIGNMENT == 0 else found.clone()


def _read(archive: zipfile.ZipFile, mapped: Mapped, trust: bool | None, path: str) -> Exported:
    from .export import Exported, FixedInput, Output, TensorInput

    if DESCRIPTION not in archive.namelist():
        raise UserError("it is a zip archive, but not one that Exported.save wrote")
    content = archive.read(DESCRIPTION)
    written = json.loads(content)
    if written["format"] != FORMAT:
        raise UserError(f"it is of format {written['format']!r:.20}, and this version of Burnish reads format {FORMAT}")
    count = 1 + max((entry["storage"] for entry in written["attributes"]), default=-1)
    storages = [mapped.memory(archive.getinfo(f"storage/{number}")) for number in range(count)]
    attributes: dict[str, Any] = {entry["name"]: read_tensor(entry, storages) for entry in written["attributes"]}

    def decoded() -> torch.fx.GraphModule:
        with what_is_wrong(path):
            graph = decode_graph(written["graph"], attributes)
        return graph_module(attributes, graph, "Exported")

    held = Held(attributes, decoded)
    inputs: list[TensorInput | FixedInput] = [
        TensorInput(entry["name"], entry["node"], decode(entry["dtype"], {}), tuple(entry["shape"]),
                    torch.device(entry["device"])) if "node" in entry
        else FixedInput(entry["name"], decode(entry["value"], {})) for entry in written["inputs"]]
    outputs = [Output(entry["node"]) if "node" in entry else Output(None, decode(entry["value"], {}))
               for entry in written["outputs"]]
    programs = {item.filename.removeprefix(PROGRAM): archive.read(item) for item in archive.infolist()
                if item.filename.startswith(PROGRAM)}
    native = None
    if programs:
        believed = trusted(archive, content, programs, trust, path)
        native = NativeGraph(held, believed, written.get("ready") if believed else None)
    if native is None or not native.ready:
        held.graph()  # it will be needed, and where it is damaged that is said now
    return Exported(written["name"], held, inputs, outputs, decode_nesting(written["arguments"]),
                    decode_nesting(written["result"]), written["writes_inputs"], written["guards"], written["left_out"],
                    native)


def trusted(archive: zipfile.ZipFile, content: bytes, programs: dict[str, bytes], trust: bool | None,
            path: str) -> dict[str, bytes]:
    """The programs, if their code may run."""
    if trust is None:
        expected = signature(content, programs) if SIGNATURE in archive.namelist() else None
        trust = expected is not None and hmac.compare_digest(expected.encode(), archive.read(SIGNATURE))
        if not trust:
            warn(f"{path} holds machine code that this user's Burnish did not write. It is left aside, and the graph "
                 f"is compiled anew. If you trust the file as you trust a program, load it with trust=True; with "
                 f"trust=False this is not said again.", UserWarning)
    return programs if trust else {}
