"""Serialization of exported graphs: a zip archive of one JSON text and raw tensor memory. No pickle, no code.

    burnish.json     the graph, its inputs, outputs and attributes
    storage/0 …      the raw memory of the tensors; tensors that share memory still share it
    program/…        the compiled graph, by the digests of its keys (`precompile`), if any
    signature        of everything but the memory, by the user who wrote it, if there is something to trust
    publisher        of everything, with a key that others know (`publisher_signature`), if asked for

An operation is written as the name under which torch documents it ("torch.nn.functional.linear"). Reading looks the
name up in a table (`allowed_operators`) and checks values and names one by one (`values_to_json`, `graph_to_json`).
So reading an untrusted file runs none of its code: what does not fit is refused with a `UserError` that names the
part. Values that the format cannot represent, such as a user's Python function, cannot be written, and the error
names them.

Programs are machine code, and operators of other libraries are code that Burnish does not know. Both are accepted
only if the signature is this user's or a trusted publisher's, or the caller trusts the file. Memory is mapped, not
read: a page is read from the disk when it is first needed. Nothing in an archive is compressed, so that reading takes
no more memory than the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import mmap
import operator
import os
import platform
import re
import struct
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.fx

from ..captured_graph.lazy_graph_module import graph_module
from ..errors import UserError, warn
from . import publisher_signature
from .allowed_operators import Unwritable
from .exported_graph import ExportedGraph, FixedInput, Output, TensorInput
from .graph_to_json import decode_graph, encode_graph, needs_trust, sets_switches
from .nesting_to_json import decode_nesting, encode_nesting
from .precompile import Held, NativeGraph, own_secret, signature
from .sizes_to_json import (
    encode_condition,
    encode_range,
    encode_size,
    encode_term,
    read_conditions,
    read_ranges,
    read_size,
    read_term,
)
from .symbolic_sizes_for_compiler import open_inputs
from .tensor_storage import Storages, attribute_path, memory_of, read_tensors
from .values_to_json import decode, encode, entry, flag, identifier, parts, read_device, shown, sizes, text, whole

FORMAT = 2
DESCRIPTION, SIGNATURE, PROGRAM, STORAGE = "burnish.json", "signature", "program/", "storage/"
PUBLISHER = "publisher"
NAMES = re.compile(r"burnish\.json|signature|publisher|program/[0-9a-f]{64}|storage/\d{1,9}", re.ASCII)
"""What an archive may contain."""

LONGEST_DESCRIPTION = 128 << 20
"""Bytes. As Python objects it takes some twenty times as many; a graph of 100,000 operations has half of it."""

ALIGNMENT = 64
LOCAL_HEADER, ZIP64_FIELD, PADDING_FIELD = 30, 20, 0xD935
"""Of the zip format: bytes before an entry's name, of the field for long files, and the field that aligns entries."""

DAMAGED = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    MemoryError,
    EOFError,
    OSError,
    struct.error,
)
"""Exceptions that Python and torch raise for a damaged file where none of our checks came first."""


# ---- writing


def save(exported: ExportedGraph, path: str | os.PathLike[str], sign: str | os.PathLike[str] | None = None) -> None:
    """``sign``: the file of a private key, whose signature is added."""
    storages = Storages()
    module = exported.graph_module
    attributes: dict[str, torch.Tensor] = {}
    graphs: dict[str, torch.fx.GraphModule] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            found = operator.attrgetter(str(node.target))(module)
            (graphs if isinstance(found, torch.fx.GraphModule) else attributes)[str(node.target)] = found
    description = {
        "format": FORMAT,
        "torch": torch.__version__,
        "processor": _processor() if exported.native is not None and exported.native.programs else "",
        "name": exported.name,
        "graph": encode_graph(module.graph),
        "graphs": {name: encode_graph(inner.graph, is_inner=True) for name, inner in graphs.items()},
        "attributes": [storages.describe(name, tensor) for name, tensor in attributes.items()],
        "inputs": list(_encode_inputs(exported)),
        "outputs": [_writable(lambda o=o: _encode_output(o)) for o in exported.outputs],
        "sizes": [encode_range(symbol) for symbol in exported.ranges],
        "conditions": [encode_condition(condition) for condition in exported.conditions],
        "arguments": _writable(lambda: encode_nesting(exported.arguments)),
        "result": _writable(lambda: encode_nesting(exported.result)),
        "ready": exported.native.ready if exported.native is not None else {},
        "writes_inputs": exported.writes_inputs,
        "guards": exported.guards,
        "left_out": exported.left_out,
    }
    path = Path(path)
    # Written to a temporary file and renamed: a reader sees the old file or the new one, never half of one.
    digests: dict[str, bytes] = {}
    handle, unfinished = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            content = json.dumps(description, indent=1).encode()
            archive.writestr(DESCRIPTION, content)
            programs = exported.native.programs if exported.native is not None else {}
            for digest, program in programs.items():
                archive.writestr(f"{PROGRAM}{digest}", program)
            if programs or any(map(needs_trust, (module.graph, *(inner.graph for inner in graphs.values())))):
                signed = signature(content, programs)
                if signed is not None:
                    archive.writestr(SIGNATURE, signed)
            for number, storage in enumerate(storages.pieces):
                with archive.open(align_entry(f"{STORAGE}{number}", file.tell()), "w", force_zip64=True) as written:
                    written.write(memory_of(storage))
                    if sign is not None:
                        digests[f"{STORAGE}{number}"] = hashlib.sha256(memory_of(storage)).digest()
            if sign is not None:
                digests[DESCRIPTION] = hashlib.sha256(content).digest()
                digests |= {f"{PROGRAM}{name}": hashlib.sha256(code).digest() for name, code in programs.items()}
                archive.writestr(PUBLISHER, publisher_signature.sign(sign, digests))
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise


def _processor() -> str:
    """For people: a program's key says what it was compiled for."""
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def _encode_inputs(exported: ExportedGraph) -> Iterator[dict[str, Any]]:
    for described in exported.inputs:
        if isinstance(described, TensorInput):
            yield {
                "name": described.name,
                "node": described.node,
                "shape": [encode_size(size) for size in described.shape],
                "dtype": encode(described.dtype, {}),
                "device": str(described.device),
                "order": None if described.order is None else list(described.order),
            }
        else:
            yield {"name": described.name, "value": encode(described.value, {})}


def _encode_output(output: Output) -> dict[str, Any]:
    if output.node is not None:
        return {"node": output.node}
    return {"value": encode(output.value, {})} if output.size is None else {"size": encode_term(output.size)}


def _writable(encoded: Callable[[], Any]) -> Any:
    try:
        return encoded()
    except Unwritable as what:
        raise UserError(
            f"The graph cannot be saved: its arguments or its result hold {what}. A file holds tensors and "
            f"plain values in tuples, lists and dictionaries. The exported graph itself works."
        ) from None


def align_entry(name: str, start: int) -> zipfile.ZipInfo:
    """An entry whose content will start at an address that can be mapped: a field of its header is padding."""
    made = zipfile.ZipInfo(name)
    begins = start + LOCAL_HEADER + len(name) + ZIP64_FIELD + 4
    padding = -begins % ALIGNMENT
    made.extra = struct.pack("<HH", PADDING_FIELD, padding) + bytes(padding)
    return made


# ---- reading


Trust = bool | publisher_signature.Keys | None


def load(path: str | os.PathLike[str], trust: Trust = None) -> ExportedGraph:
    path = os.fspath(path)
    with open(path, "rb") as file, explained(path), Archive(file) as archive:
        exported = read_exported(archive, trust, path)
    # Without precompiled programs the graph will be needed; if it is damaged, report that now.
    if exported.native is None or not exported.native.ready:
        module = exported.held.graph()
        graph, inner = (
            module.graph,
            [part.graph for part in module.children() if isinstance(part, torch.fx.GraphModule)],
        )
        exported.keeps_switches = not exported.is_trusted and any(map(sets_switches, (graph, *inner)))
        with explained(path):
            _check_numbers(exported, graph)
    return exported


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
    """Errors in reading, in words."""
    try:
        yield
    except UserError as error:
        raise UserError(
            f"{path} cannot be loaded: {error}. Nothing of it has run. If you expected a sound file, get "
            f"it once more, or save the function again."
        ) from error
    except zipfile.BadZipFile as error:
        raise UserError(
            f"{path} is damaged, or is not a file that burnish.save wrote: {error}. Get it once more, or save the "
            f"function again."
        ) from error
    except DAMAGED as error:
        raise UserError(
            f"{path} is damaged, or was not written by Exported.save: {type(error).__name__}: {error}. Get it once "
            f"more, or save the function again."
        ) from error


class Archive:
    """The file, mapped as memory; writes to it stay in this process."""

    def __init__(self, file: Any):
        self.zip = zipfile.ZipFile(file)
        self.whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self.entries: dict[str, zipfile.ZipInfo] = {}
        self.copies: dict[int, torch.Tensor] = {}
        """Memory that has been checked: in the file it could still change."""
        total = 0
        for item in self.zip.infolist():
            name, total = item.filename, total + item.file_size
            if DESCRIPTION not in self.zip.NameToInfo:
                raise UserError("it is a zip archive, but not one that burnish.save wrote")
            if not NAMES.fullmatch(name):
                raise UserError(f"its entry {name!r:.60} is none that Exported.save writes")
            if name in self.entries:
                raise UserError(f"it has two entries {name!r:.60}")
            # A stored entry cannot unpack to more than its size; entries that overlap would exceed the total.
            if (
                item.compress_type != zipfile.ZIP_STORED
                or item.flag_bits & 1
                or item.file_size != item.compress_size
                or total > len(self.whole)
            ):
                raise UserError(
                    f"its entry {name!r:.60} is not as Exported.save writes it: stored, without packing, "
                    f"{item.file_size} bytes of a file of {len(self.whole)}"
                )
            self.entries[name] = item
        if not self.entries:
            raise UserError("it is a zip archive, but not one that burnish.save wrote")

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *error: object) -> None:
        self.zip.close()

    def read(self, name: str, longest: int) -> bytes:
        item = self.entries[name]
        if item.file_size > longest:
            raise UserError(f"its entry {name!r:.60} has {item.file_size} bytes, and at most {longest} are read")
        return self.zip.read(item)

    def memory(self, number: int) -> torch.Tensor:
        if number in self.copies:
            return self.copies[number]
        begins, size = self.span(number)
        if not size:
            return torch.empty(0, dtype=torch.uint8)
        found = torch.frombuffer(self.whole, dtype=torch.uint8, count=size, offset=begins)
        return found if begins % ALIGNMENT == 0 else found.clone()

    def span(self, number: int) -> tuple[int, int]:
        """Where the memory begins in the file, and its size."""
        item = self.entries.get(f"{STORAGE}{number}")
        if item is None:
            raise UserError(f"its memory, the entry {STORAGE}{number}, is not there: the file is damaged")
        header = self.whole[item.header_offset : item.header_offset + LOCAL_HEADER]
        if header[:4] != b"PK\3\4" or len(header) < LOCAL_HEADER:
            raise UserError(f"its entry {item.filename!r} is not where the archive says: the file is damaged")
        name, extra = struct.unpack("<HH", header[26:30])
        begins = item.header_offset + LOCAL_HEADER + name + extra
        if begins + item.file_size > len(self.whole):
            raise UserError(f"its entry {item.filename!r} is cut short: the file is damaged")
        return begins, item.file_size

    def programs(self) -> dict[str, bytes]:
        return {
            name.removeprefix(PROGRAM): self.read(name, len(self.whole))
            for name in self.entries
            if name.startswith(PROGRAM)
        }


def read_exported(archive: Archive, trust: Trust, path: str) -> ExportedGraph:
    content = archive.read(DESCRIPTION, LONGEST_DESCRIPTION)
    written = json.loads(content.decode())  # as text: given bytes, json would guess the encoding
    version = entry(written, "format")
    if type(version) is not int or version != FORMAT:
        raise UserError(
            f"it is of format {version!r:.20}, and this version of Burnish reads format {FORMAT}: save the "
            f"function again with this version, or load the file with the one that wrote it"
        )
    programs = archive.programs()
    keys = publisher_signature.keys_in(trust)
    if keys is None:
        is_trusted = bool(trust) or trust is None and is_signed(archive, content, programs)
    else:
        check_publisher(archive, content, programs, keys)
        is_trusted = True
    if programs and not is_trusted and trust is None:
        why = "" if own_secret() else " (that takes a secret in the cache, which is off or cannot be used)"
        warn(
            f"{path} holds machine code, and nothing shows that this user's Burnish wrote it{why}. It is ignored, and "
            f"the graph is compiled again. If you trust the file as you trust a program, load it with trust=True; with "
            f"trust=False this is not said again.",
            UserWarning,
        )
    attributes = read_tensors(entry(written, "attributes"), archive.memory)

    def decoded() -> torch.fx.GraphModule:
        with explained(path):
            graphs = _read_graphs(written, attributes, is_trusted)
            graph = decode_graph(entry(written, "graph"), {*attributes, *graphs}, is_trusted)
            return graph_module({**attributes, **graphs}, graph, "Exported")

    held = Held(attributes, decoded)
    ranges = read_ranges(entry(written, "sizes"))
    symbols = {symbol.name for symbol in ranges}
    inputs = [_read_input(what, symbols) for what in parts(entry(written, "inputs"))]
    outputs = [_read_output(what, symbols) for what in parts(entry(written, "outputs"))]
    opened = {size.symbol for what in inputs if isinstance(what, TensorInput) for size in what.symbolic_sizes}
    if missing := symbols - opened:
        raise UserError(f"no input has the size {min(missing)!r:.60}, which it declares")
    native = None
    if programs:
        ready = _read_ready(written) if is_trusted else {}
        native = NativeGraph(held, programs if is_trusted else {}, ready, open_inputs(inputs, ranges))
    return ExportedGraph(
        shown(entry(written, "name"), "a name"),
        held,
        inputs,
        outputs,
        _read_nesting(written, "arguments", len(inputs)),
        _read_nesting(written, "result", len(outputs)),
        flag(entry(written, "writes_inputs"), "whether it writes to its inputs"),
        _read_lines(written, "guards"),
        _read_lines(written, "left_out"),
        ranges,
        read_conditions(entry(written, "conditions"), symbols),
        native,
        is_trusted,
    )


def _read_graphs(written: Any, attributes: Collection[str], is_trusted: bool) -> dict[str, torch.fx.GraphModule]:
    """Graphs inside the graph: the branches of `torch.cond`. They take tensors, and hold none."""
    found = entry(written, "graphs")
    if type(found) is not dict:
        raise UserError(f"{found!r:.60} stands where graphs should")
    taken = {name.partition(".")[0] for name in attributes}
    for name in found:
        if attribute_path(identifier(name)) in taken:
            raise UserError(f"its graph {name!r:.60} has the name of a tensor")
    return {name: graph_module({}, decode_graph(nodes, (), is_trusted), "Inner") for name, nodes in found.items()}


def _read_input(what: Any, symbols: Collection[str]) -> TensorInput | FixedInput:
    name = shown(entry(what, "name"), "the name of an input")
    if "node" not in what:
        return FixedInput(name, decode(entry(what, "value"), {}))
    shape = tuple([read_size(size, symbols) for size in parts(entry(what, "shape"))])
    order = entry(what, "order")
    if order is not None:
        order = sizes(order, "a dimension")
        if sorted(order) != list(range(len(shape))):
            raise UserError(f"{order!r:.60} stands where the order of {len(shape)} dimensions should")
    return TensorInput(
        name,
        whole(what["node"], "the number of an input"),
        decode(entry(what, "dtype"), {}),
        shape,
        read_device(entry(what, "device"), {}, 0),
        order,
    )


def _read_output(what: Any, symbols: Collection[str]) -> Output:
    if type(what) is dict and "node" in what:
        return Output(whole(what["node"], "the number of an output"))
    if type(what) is dict and "size" in what:
        return Output(None, size=read_term(what["size"], symbols))
    return Output(None, decode(entry(what, "value"), {}))


def _read_nesting(written: Any, which: str, leaves: int) -> Any:
    found = decode_nesting(entry(written, which))
    if found.num_leaves != leaves:
        raise UserError(f"its {which} nest {found.num_leaves} values, and it describes {leaves}")
    return found


def _read_lines(written: Any, which: str) -> list[str]:
    return [shown(line, "a line of text", 1 << 20) for line in parts(entry(written, which))]


def _read_ready(written: Any) -> dict[str, str]:
    found = entry(written, "ready")
    if type(found) is not dict:
        raise UserError(f"{found!r:.60} stands where the programs' surroundings should")
    return {key: text(digest, "the digest of a program", 64) for key, digest in found.items()}


def _check_numbers(exported: ExportedGraph, graph: torch.fx.Graph) -> None:
    """Inputs and outputs refer to the graph by number."""
    takes = sum(node.op == "placeholder" for node in graph.nodes)
    if {described.node for described in exported.inputs if isinstance(described, TensorInput)} != set(range(takes)):
        raise UserError(f"its graph takes {takes} inputs, and it describes others")
    results: Any = next(iter(reversed(graph.nodes))).args[0]  # no iterator itself before torch 2.13
    for output in exported.outputs:
        if output.node is not None and output.node >= len(results):
            raise UserError(f"its graph has {len(results)} results, and it asks for number {output.node}")


def check_publisher(
    archive: Archive, content: bytes, programs: dict[str, bytes], keys: Sequence[publisher_signature.PathLike]
) -> None:
    """Refuse the file unless one of the keys has signed all of it."""
    if PUBLISHER not in archive.entries:
        raise UserError("no publisher has signed it, and a key was given to trust")
    # What has been read already is not read again: the file might change in between.
    digests = {f"{PROGRAM}{name}": hashlib.sha256(program).digest() for name, program in programs.items()}
    digests[DESCRIPTION] = hashlib.sha256(content).digest()
    for name in archive.entries:
        if name.startswith(STORAGE):
            number = int(name.removeprefix(STORAGE))
            begins, size = archive.span(number)
            copy = bytearray(archive.whole[begins : begins + size])
            digests[name] = hashlib.sha256(copy).digest()
            if size:
                archive.copies[number] = torch.frombuffer(copy, dtype=torch.uint8)
    if not publisher_signature.is_signed_with(keys, archive.read(PUBLISHER, 1000), digests):
        raise UserError("no key that was given to trust has signed it, or it was changed since it was signed")


def is_signed(archive: Archive, content: bytes, programs: dict[str, bytes]) -> bool:
    """Whether this user's Burnish wrote it."""
    if SIGNATURE not in archive.entries:
        return False
    expected = signature(content, programs)
    return expected is not None and hmac.compare_digest(expected.encode(), archive.read(SIGNATURE, 1000))
