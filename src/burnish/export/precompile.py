"""An exported graph, compiled: for the inputs it was exported with, and kept in its file.

    exported = burnish.save(model, "model.burnish", (x,))
    burnish.load("model.burnish")(x)                       no capture, no lowering, no code generation

The graph's own tensors become inputs, which is what backends take. What was compiled is looked up by the key that the
disk cache uses: a program from the file runs where it would have been found in the cache, else the graph is compiled.
A file holds machine code then, and code is only run if this user's Burnish wrote it, which its signature says, or if
the caller trusts the file.

Such a file also says what its programs are for (`ready`): the surroundings and the inputs, without the graph, which is
the one in the file. So a program from it runs before anybody has decoded the graph.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from ..backends import lookup
from ..compiler.graph_cache_key import NoKey, built, input_facts, switches
from ..compiler.guard_watch_function import is_at_hand, new_watch
from ..concurrency import fork_safe_locks
from ..runtime.disk.disk_cache import disk_cache
from ..runtime.disk.file_trust import Distrusted, read_trusted
from ..runtime.state_watch.module_tensor_lookup import owned
from ..tensors.lazy_graph_module import graph_module

MOST = 8
"""Variants, for other modes of torch or other layouts of the inputs. Further ones run uncompiled."""

UNPREPARED = 64
"""Calls without a watch before part of the compiler is loaded for it."""

AS_FIRST = ("as first",)
"""The stamp of a graph's own tensors, as long as they are what they were."""


class Held:
    """The graph of an exported function with its own tensors. One from a file is decoded when somebody asks for it, and
    until then nobody can have changed which tensors it has."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], decode: Callable[[], GraphModule]):
        self.names, self.tensors = list(tensors), tuple(tensors.values())
        self.decode: Callable[[], GraphModule] | None = decode
        self.module: GraphModule | None = None
        self.lock = fork_safe_locks.lock()
        self.read: Callable[[Any], Any] = operator.attrgetter(*self.names) if self.names else lambda module: ()
        self.first: tuple = ()
        self.watched: tuple[Callable[..., Any], tuple] | None = None
        """What finds the tensors as they were when it was made, and their stamp."""
        self.wait = UNPREPARED

    @staticmethod
    def of(module: GraphModule) -> Held:
        names = dict.fromkeys(str(node.target) for node in module.graph.nodes if node.op == "get_attr")
        held = Held({name: operator.attrgetter(name)(module) for name in names}, lambda: module)
        held.graph()
        return held

    def graph(self) -> GraphModule:
        with self.lock:
            if self.decode is not None:
                self.first = stamp_of(self.tensors)
                self.module, self.decode = self.decode(), None
            assert self.module is not None
            return self.module

    def current(self) -> tuple[tuple[torch.Tensor, ...], tuple]:
        """The tensors, and a stamp that tells whether what was compiled for them is still right."""
        module, watched = self.module, self.watched
        if module is None:
            return self.tensors, AS_FIRST
        if watched is not None:
            find, stamp = watched
            found = find(module)
            if found is not None:
                return found[0], stamp
            self.watched, self.wait = None, 2
        self.wait -= 1
        if self.wait == 0 or self.wait > 1 and is_at_hand():
            self.watch(module)
        return self.looked_at(module)

    def looked_at(self, module: GraphModule) -> tuple[tuple[torch.Tensor, ...], tuple]:
        found = self.read(module)
        own = (found,) if len(self.names) == 1 else found
        stamp = stamp_of(own)
        return own, AS_FIRST if stamp == self.first else stamp

    def watch(self, module: GraphModule) -> None:
        self.wait = 0  # there is one, or there can be none
        watch = new_watch()
        find = owned(module, self.names, watch) if watch is not None else None
        if find is not None:
            own, stamp = self.looked_at(module)
            found = find(module)  # still: something may have changed meanwhile
            if found is not None and all(map(operator.is_, found[0], own)):
                self.watched = find, stamp


def stamp_of(tensors: Sequence[torch.Tensor]) -> tuple:
    return tuple([(x.shape, x.stride(), x.dtype, x.requires_grad) for x in tensors])


class NativeGraph:
    """Calls like the graph module. `programs` are compiled graphs by the digests of their keys; `ready` says which
    of them is right for what digest of surroundings and inputs, without the graph."""

    def __init__(self, held: Held, programs: Mapping[str, bytes] | None = None, ready: Mapping[str, str] | None = None):
        self.held = held
        self.programs: dict[str, bytes] = dict(programs or {})
        self.ready: dict[str, str] = dict(ready or {})
        self.made: dict[tuple, Callable[..., Any]] = {}
        self.lock = fork_safe_locks.lock()

    def __call__(self, *inputs: torch.Tensor) -> Any:
        own, stamp = self.held.current()
        return self.program(inputs, own, stamp)(*inputs, *own)

    def program(self, inputs: Sequence[torch.Tensor], own: Sequence[torch.Tensor], stamp: tuple) -> Callable[..., Any]:
        """What computes the graph for such inputs: found where it was met before, else read from the file or made."""
        try:
            key = (switches(), stamp, *map(input_facts, inputs))
        except NoKey:
            return self.eager
        found = self.made.get(key)
        if found is None:
            with self.lock:
                found = self.made.get(key)
                if found is None:
                    if len(self.made) >= MOST:
                        return self.eager
                    found = self.made[key] = self.found_ready(key, own) or self.compiled([*inputs, *own])
        return found

    @functools.cached_property
    def lifted(self) -> GraphModule:
        made = lifted(self.held.graph(), self.held.names)
        made.meta["burnish_kept"] = self.programs
        return made

    def prepare(self, inputs: Sequence[torch.Tensor]) -> None:
        """Compile for these inputs, and run nothing."""
        own, stamp = self.held.current()
        self.lifted.meta.pop("burnish_digest", None)
        self.compiled([*inputs, *own])
        digest = self.lifted.meta.get("burnish_digest")
        if digest in self.programs and stamp is AS_FIRST:
            try:
                self.ready[ready_digest((switches(), stamp, *map(input_facts, inputs)), own)] = digest
            except NoKey:
                return

    def compiled(self, given: list[Any]) -> Callable[..., Any]:
        return lookup("burnish")(self.lifted, given)

    def found_ready(self, key: tuple, own: Sequence[torch.Tensor]) -> Callable[..., Any] | None:
        """A program that needs nothing of the graph to be found and to run."""
        if key[1] is not AS_FIRST or not self.ready:
            return None
        digest = self.ready.get(ready_digest(key, own), "")
        content = self.programs.get(digest)
        if content is None:
            return None
        from ..compiler.load_precompiled import ready

        return ready(content, digest, self.eager)

    def eager(self, *inputs: Any) -> Any:
        return self.drawn(*inputs)

    @functools.cached_property
    def drawn(self) -> Callable[..., Any]:
        from ..compiler.adapters.eager_rng import drawing

        return drawing(self.lifted)


def ready_digest(key: tuple, own: Sequence[torch.Tensor]) -> str:
    """Of all that the key of a graph says, but for the graph and its own tensors: they are in the same file."""
    text = "\n".join([built(), f"inference {any(x.is_inference() for x in own)}", *map(str, key)])
    return hashlib.sha256(text.encode()).hexdigest()


def lifted(module: GraphModule, names: Sequence[str]) -> GraphModule:
    """The graph with its own tensors, of these names, as further inputs."""
    graph = Graph()
    values: dict[Node, Node] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            values[node] = graph.node_copy(node)
    own = {}
    for number, name in enumerate(names):
        own[name] = graph.placeholder(re.sub(r"\W", "_", f"own_{number}_{name}", flags=re.ASCII))
        own[name].meta["burnish_state"] = True
    for node in module.graph.nodes:
        if node.op == "get_attr":
            values[node] = own[str(node.target)]
        elif node.op != "placeholder":
            values[node] = graph.node_copy(node, values.__getitem__)
    graph.set_codegen(module.graph._codegen)  # one from a file checks what it prints
    return graph_module({}, graph, "Lifted")


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
        if not os.path.lexists(path):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(os.urandom(32))
        found = read_trusted(path, shelf.folder, private=True)
    except OSError:
        return None
    except Distrusted as error:
        shelf.refuse(f"{error}, so files are neither signed with it nor believed for it")
        return None
    return found if len(found) == 32 else None
