"""`burnish inspect FILE`: what a file of `burnish.save` holds. Nothing of it runs, and no machine code is loaded.

print("\\n".join(as_text(contents("model.burnish"))))
json.dumps(contents("model.burnish"))                    the same for programs
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ..errors import UserError
from ..export.file_format import (
    DESCRIPTION,
    LONGEST_DESCRIPTION,
    PUBLISHER,
    SIGNATURE,
    STORAGE,
    Archive,
    explained,
    is_signed,
    read_exported,
)
from ..export.publisher_signature import fingerprint
from ..export.values_to_json import entry, parts, shown
from ..report.text_layout import count

LONGEST_NAME = 200
SIGNERS = {
    "none": "none",
    "own": "your own, so that its machine code runs",
    "another": "of another user, so that its machine code does not run",
}


def contents(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Plain values, for `json.dumps`. A damaged file is refused as by `burnish.load`."""
    path = os.fspath(path)
    with open(path, "rb") as file, explained(path), Archive(file) as archive:
        text = archive.read(DESCRIPTION, LONGEST_DESCRIPTION)
        written = json.loads(text.decode())
        exported = read_exported(archive, False, path)
        programs = archive.programs()
        return {
            "file": path,
            "bytes": len(archive.whole),
            "name": exported.name,
            "torch": shown(entry(written, "torch"), "the version of torch", LONGEST_NAME),
            "processor": shown(entry(written, "processor"), "a processor", LONGEST_NAME) or None,
            "signature": signer(archive, text, programs),
            "publisher": fingerprint(archive.read(PUBLISHER, 1000)) if PUBLISHER in archive.entries else None,
            "inputs": [f"{described.name}: {described}" for described in exported.inputs],
            "outputs": len(exported.outputs),
            "writes_inputs": exported.writes_inputs,
            "sizes": [{"name": s.name, "least": s.least, "most": s.most} for s in exported.ranges],
            "conditions": [str(condition) for condition in exported.conditions],
            "tensors": len(exported.held.names),
            "tensor_bytes": sum(x.file_size for name, x in archive.entries.items() if name.startswith(STORAGE)),
            "operators": operators_of(written),
            "programs": [describe_compiled_graph(digest, content) for digest, content in programs.items()],
            "entries": {name: item.file_size for name, item in archive.entries.items()},
        }


def signer(archive: Archive, text: bytes, programs: dict[str, bytes]) -> str:
    if SIGNATURE not in archive.entries:
        return "none"
    return "own" if is_signed(archive, text, programs) else "another"


def operators_of(written: Any) -> dict[str, int]:
    nodes = [node for node in parts(entry(written, "graph")) if entry(node, "op") in ("call_function", "call_method")]
    prefix = {"call_function": "", "call_method": "Tensor."}
    names = (prefix[node["op"]] + shown(entry(node, "target"), "an operation", LONGEST_NAME) for node in nodes)
    return dict(Counter(names).most_common())


def describe_compiled_graph(digest: str, content: bytes) -> dict[str, Any]:
    """The document of a compiled graph, which is JSON, without its code."""
    size = int.from_bytes(content[:8], "little")
    if size > min(LONGEST_DESCRIPTION, len(content)):
        raise UserError(f"its program {digest[:16]} is cut short")
    document = json.loads(content[8 : 8 + size].decode())
    found = list(lists_with_tag(document))
    return {
        "digest": digest,
        "bytes": len(content),
        "kernels": sum(tag == "kernel" for tag, _ in found),
        "library_calls": counted(parts[1] for tag, parts in found if tag == "of" and len(parts) > 1),
        "operators": counted(parts[0] for tag, parts in found if tag == "operator" and parts),
    }


def counted(names: Any) -> dict[str, int]:
    return dict(Counter(shown(name, "a name", LONGEST_NAME) for name in names).most_common())


def lists_with_tag(document: Any) -> Iterator[tuple[str, list[Any]]]:
    """The lists of the document that begin with a word."""
    waiting = [document]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
            if part and isinstance(part[0], str):
                yield part[0], part[1:]


def as_text(found: dict[str, Any]) -> Iterator[str]:
    yield f"{found['file']}: {found['name']}, {found['bytes']:,} bytes"
    yield f"  written with     torch {found['torch']}" + (f", for {found['processor']}" if found["processor"] else "")
    yield f"  signature        {SIGNERS[found['signature']]}"
    if found["publisher"] is not None:
        yield f"  publisher        the key {found['publisher']}, not checked"
    yield from listed("inputs", found["inputs"])
    yield f"  outputs          {found['outputs']}" + (", and it writes to its inputs" if found["writes_inputs"] else "")
    yield from listed("sizes", [size_text(size) for size in found["sizes"]])
    yield from listed("conditions", found["conditions"])
    yield f"  tensors          {found['tensors']}, {found['tensor_bytes']:,} bytes"
    yield from listed("operators", [f"{n:>5}  {name}" for name, n in found["operators"].items()])
    for each in found["programs"]:
        yield f"  program          {each['digest'][:16]}, {each['bytes']:,} bytes, {count(each['kernels'], 'kernel')}"
        yield from listed("  library calls", [f"{n:>5}  {name}" for name, n in each["library_calls"].items()])
        yield from listed("  operators", [f"{n:>5}  {name}" for name, n in each["operators"].items()])
    yield from listed("entries", [f"{size:>12,}  {name}" for name, size in found["entries"].items()])


def listed(title: str, lines: list[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield f"  {title if number == 0 else '':<16} {line}"


def size_text(size: dict[str, Any]) -> str:
    end = "on" if size["most"] is None else f"to {size['most']}"
    return f"{size['name']} from {size['least']} {end}"
