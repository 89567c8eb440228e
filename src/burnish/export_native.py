"""An exported graph, compiled: for the inputs it was exported with, and kept in its file.

    exported = burnish.save(model, "model.burnish", (x,))
    burnish.load("model.burnish")(x)                       no capture, no lowering, no code generation

The graph's own tensors become inputs, which is what backends take. What was compiled is looked up by the key that the
disk cache uses: a program from the file runs where it would have been found in the cache, else the graph is compiled.
A file holds machine code then, and code is only run if this user's Burnish wrote it, which its signature says, or if
the caller trusts the file.
"""

from __future__ import annotations

import hashlib
import hmac
import operator
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _make_graph_module, _use_lazy_graph_module

from .backends import lookup
from .backends.graph_key import input_text, surroundings
from .runtime import forks
from .runtime.disk_cache import disk_cache

MOST = 8
"""Variants, for other modes of torch or other layouts of the inputs. Further ones run uncompiled."""


class NativeGraph:
    """Calls like the graph module. `programs` are compiled graphs by the digests of their keys."""

    def __init__(self, module: GraphModule, programs: Mapping[str, bytes] | None = None):
        self.module = module
        self.programs: dict[str, bytes] = dict(programs or {})
        self.lifted, names = lifted(module)
        self.lifted.meta["burnish_kept"] = self.programs
        self.tensors: Callable[[Any], Any] = operator.attrgetter(*names) if names else lambda module: ()
        self.is_one = len(names) == 1
        reads = "".join(f"a[{k}].shape, a[{k}].stride(), a[{k}].dtype, a[{k}].requires_grad, "
                        for k in range(len(names)))
        self.stamp_of: Callable[[Sequence[torch.Tensor]], tuple] = eval(f"lambda a: ({reads})")
        self.made: dict[tuple, Callable[..., Any]] = {}
        self.lock = forks.lock()

    def __call__(self, *inputs: torch.Tensor) -> Any:
        tensors = self.tensors(self.module)
        own = (tensors,) if self.is_one else tensors
        key = (*surroundings(), self.stamp_of(own), *[input_text(x, False) for x in inputs])
        found = self.made.get(key)
        if found is None:
            with self.lock:
                found = self.made.get(key)
                if found is None:
                    if len(self.made) >= MOST:
                        return self.lifted(*inputs, *own)
                    found = self.made[key] = self.compiled([*inputs, *own])
        return found(*inputs, *own)

    def prepare(self, inputs: Sequence[torch.Tensor]) -> None:
        """Compile for these inputs, and run nothing."""
        tensors = self.tensors(self.module)
        self.compiled([*inputs, *((tensors,) if self.is_one else tensors)])

    def compiled(self, given: list[Any]) -> Callable[..., Any]:
        return lookup("burnish")(self.lifted, given)


def lifted(module: GraphModule) -> tuple[GraphModule, list[str]]:
    """The graph with its own tensors as further inputs, and their names."""
    graph = Graph()
    values: dict[Node, Node] = {}
    names = list(dict.fromkeys(str(node.target) for node in module.graph.nodes if node.op == "get_attr"))
    for node in module.graph.nodes:
        if node.op == "placeholder":
            values[node] = graph.node_copy(node)
    own = {}
    for name in names:
        own[name] = graph.placeholder(f"own_{name.replace('.', '_')}")
        own[name].meta["burnish_state"] = True
    for node in module.graph.nodes:
        if node.op == "get_attr":
            values[node] = own[str(node.target)]
        elif node.op != "placeholder":
            values[node] = graph.node_copy(node, values.__getitem__)
    with _use_lazy_graph_module(True):  # its Python code is generated if somebody runs it
        return _make_graph_module({}, graph, "Lifted"), names


# ---- who wrote a file

def signature(content: bytes, programs: Mapping[str, bytes]) -> str | None:
    """Made with a secret of this user's; None where there is no place for one."""
    secret = own_secret()
    if secret is None:
        return None
    signed = hmac.new(secret, hashlib.sha256(content).digest(), "sha256")
    for digest, program in sorted(programs.items()):
        signed.update(digest.encode() + hashlib.sha256(program).digest())
    return signed.hexdigest()


def own_secret() -> bytes | None:
    """Beside the cache on disk, where nobody else may write: whoever may could run code as this user anyway."""
    shelf = disk_cache()
    if shelf is None or shelf.why_not is not None:
        return None
    path: Path = shelf.folder / "secret"
    try:
        if not path.exists():
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(32))
        found = path.read_bytes()
    except OSError:
        return None
    return found if len(found) == 32 else None
