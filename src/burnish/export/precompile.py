"""Ahead-of-time compilation of an exported graph: compile for the exported inputs, and keep the code in its file.

    exported = burnish.save(model, "model.burnish", (x,))
    burnish.load("model.burnish")(x)                       no capture, no lowering, no code generation

The graph's own tensors become inputs, as backends expect. Compiled code is looked up by the cache key of the disk
cache: a program from the file runs where the cache would have found it; else the graph is compiled. Such a file
contains machine code. It runs only if this user's Burnish wrote the file, which its signature shows, or if the
caller trusts the file.

The file also says what its programs are for (`ready`): the environment and the inputs, without the graph, which is
the one in the file. So a program from it runs before the graph is decoded.
"""

from __future__ import annotations

import copy
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

from ..backends.registry import lookup
from ..captured_graph.compile_request import INPUT, InputFacts, request_of
from ..captured_graph.lazy_graph_module import graph_module
from ..compiler.graph_cache_key import NoKey, input_facts, switches
from ..compiler.provide_guard_watch import is_at_hand, new_watch
from ..concurrency import thread_locks
from ..runtime.disk.compiler_identity import compiler_identity
from ..runtime.disk.disk_cache import disk_cache
from ..runtime.disk.file_trust import Distrusted, read_trusted
from ..runtime.state_watch.module_tensor_lookup import tensors_of_module
from .symbolic_sizes_for_compiler import OpenInputs, SizeNumbers

MOST = 8
"""Variants, for other modes of torch or other layouts of the inputs. Further ones run uncompiled."""

UNPREPARED = 64
"""Calls without a watch before part of the compiler is loaded for it."""

AS_FIRST = ("as first",)
"""The stamp of a graph's own tensors, as long as they are unchanged."""


class Held:
    """The graph of an exported function with its own tensors. A graph from a file is decoded on demand; until then its
    tensors cannot have been replaced."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], decode: Callable[[], GraphModule]):
        self.names, self.tensors = list(tensors), tuple(tensors.values())
        self.decode: Callable[[], GraphModule] | None = decode
        self.module: GraphModule | None = None
        self.lock = thread_locks.lock()
        self.read: Callable[[Any], Any] = operator.attrgetter(*self.names) if self.names else lambda module: ()
        self.first: tuple = ()
        self.watched: tuple[Callable[..., Any], tuple] | None = None
        """A watch that finds the tensors if they are unchanged since it was made, and their stamp."""
        self.wait = UNPREPARED

    @staticmethod
    def of(module: GraphModule) -> Held:
        names = dict.fromkeys(str(node.target) for node in module.graph.nodes if node.op == "get_attr")
        values = {name: operator.attrgetter(name)(module) for name in names}
        held = Held({k: x for k, x in values.items() if not isinstance(x, torch.nn.Module)}, lambda: module)
        held.graph()
        return held

    def copied(self, memo: dict[int, Any]) -> Held:
        return Held.of(copy.deepcopy(self.graph(), memo))

    def graph(self) -> GraphModule:
        with self.lock:
            if self.decode is not None:
                self.first = stamp_of(self.tensors)
                self.module, self.decode = self.decode(), None
            assert self.module is not None
            return self.module

    def current(self) -> tuple[tuple[torch.Tensor, ...], tuple]:
        """The tensors, and a stamp that shows whether code compiled for them is still valid."""
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
        self.wait = 0  # there is one, or none can be made
        watch = new_watch()
        find = tensors_of_module(module, self.names, watch) if watch is not None else None
        if find is not None:
            own, stamp = self.looked_at(module)
            found = find(module)  # check again: something may have changed in between
            if found is not None and all(map(operator.is_, found[0], own)):
                self.watched = find, stamp


def stamp_of(tensors: Sequence[torch.Tensor]) -> tuple:
    return tuple([(x.shape, x.stride(), x.dtype, x.requires_grad) for x in tensors])


class NativeGraph:
    """Calls like the graph module. `programs` are compiled graphs by the digests of their keys. `ready` maps a digest
    of environment and inputs, without the graph, to one of them."""

    def __init__(
        self,
        held: Held,
        programs: Mapping[str, bytes] | None = None,
        ready: Mapping[str, str] | None = None,
        sizes: OpenInputs | None = None,
    ):
        self.held, self.sizes = held, sizes
        self.programs: dict[str, bytes] = dict(programs or {})
        self.ready: dict[str, str] = dict(ready or {})
        self.made: dict[tuple, Callable[..., Any]] = {}
        self.lock = thread_locks.lock()

    def __call__(self, *inputs: torch.Tensor) -> Any:
        own, stamp = self.held.current()
        numbers = self.lifted_with_numbers[1].of(inputs) if self.sizes is not None else ()
        return self.program(inputs, own, stamp)(*inputs, *own, *numbers)

    def program(self, inputs: Sequence[torch.Tensor], own: Sequence[torch.Tensor], stamp: tuple) -> Callable[..., Any]:
        """The function that computes the graph for such inputs: known already, read from the file, or compiled."""
        try:
            key = (switches(), stamp, *(map(input_facts, inputs) if self.sizes is None else self.sizes.facts(inputs)))
        except NoKey:
            return self.eager
        found = self.made.get(key)
        if found is None:
            with self.lock:
                found = self.made.get(key)
                if found is None:
                    if len(self.made) >= MOST:
                        return self.eager
                    found = self.made[key] = self.found_ready(key, own) or self.compiled(inputs, own)
        return found

    @functools.cached_property
    def lifted_with_numbers(self) -> tuple[GraphModule, SizeNumbers]:
        made, numbers = lifted(self.held.graph(), self.held.names, self.sizes)
        request_of(made).programs = self.programs
        return made, numbers

    @property
    def lifted(self) -> GraphModule:
        return self.lifted_with_numbers[0]

    def prepare(self, inputs: Sequence[torch.Tensor]) -> None:
        """Compile for these inputs without running."""
        own, stamp = self.held.current()
        request_of(self.lifted).digest = None
        self.compiled(inputs, own)
        digest = request_of(self.lifted).digest
        if digest in self.programs and stamp is AS_FIRST and self.sizes is None:
            try:
                self.ready[ready_digest((switches(), stamp, *map(input_facts, inputs)), own)] = digest
            except NoKey:
                return

    def compiled(self, inputs: Sequence[torch.Tensor], own: Sequence[torch.Tensor]) -> Callable[..., Any]:
        module, numbers = self.lifted_with_numbers
        if self.sizes is not None:
            request_of(module).symbolic_inputs = self.sizes.symbolic(inputs, own, numbers)
            request_of(module).guards_number_types = True
        return lookup("burnish")(module, [*inputs, *own, *numbers.of(inputs)])

    def found_ready(self, key: tuple, own: Sequence[torch.Tensor]) -> Callable[..., Any] | None:
        """A program that can be found and run without the graph."""
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
        from ..compiler.adapters.eager_with_compiled_rng import run_eagerly_with_compiled_rng

        return run_eagerly_with_compiled_rng(self.lifted)


def ready_digest(key: tuple, own: Sequence[torch.Tensor]) -> str:
    """Digest of a graph's cache key without the graph and its own tensors: they are in the same file."""
    text = "\n".join([compiler_identity(), f"inference {any(x.is_inference() for x in own)}", *map(str, key)])
    return hashlib.sha256(text.encode()).hexdigest()


def lifted(
    module: GraphModule, names: Sequence[str], sizes: OpenInputs | None = None
) -> tuple[GraphModule, SizeNumbers]:
    """The graph with its own tensors, of these names, as further inputs, and then the numbers computed from sizes."""
    graph = Graph()
    values: dict[Node, Node] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            values[node] = graph.node_copy(node)
    own = {}
    for number, name in enumerate(names):
        own[name] = graph.placeholder(re.sub(r"\W", "_", f"own_{number}_{name}", flags=re.ASCII))
        own[name].meta[INPUT] = InputFacts(is_module_state=True)
    numbers = SizeNumbers() if sizes is None else SizeNumbers(list(module.graph.nodes), sizes.hidden)
    for number in range(len(numbers.readers)):
        made = graph.placeholder(f"size_{number}")
        if number < len(numbers.needed):
            values[numbers.needed[number]] = made
    for node in module.graph.nodes:
        if node.op == "get_attr" and node.target in own:
            values[node] = own[str(node.target)]
        elif node.op != "placeholder" and node not in numbers.formulas:
            values[node] = graph.node_copy(node, values.__getitem__)
    graph.set_codegen(module.graph._codegen)  # a loaded graph checks the source it prints
    graphs = {node.target: getattr(module, str(node.target)) for node in graph.nodes if node.op == "get_attr"}
    return graph_module(graphs, graph, "Lifted"), numbers


# ---- signatures of files


def signature(content: bytes, programs: Mapping[str, bytes]) -> str | None:
    """Made with a secret of this user; None if the secret cannot be stored."""
    secret = own_secret()
    if secret is None:
        return None
    signed = hmac.new(secret, hashlib.sha256(content).digest(), "sha256")
    for digest, program in sorted(programs.items()):
        signed.update(digest.encode() + hashlib.sha256(program).digest())
    return signed.hexdigest()


def own_secret() -> bytes | None:
    """Stored beside the disk cache, where only this user can write: anyone else who could write there could run code as
    this user anyway."""
    cache = disk_cache()
    if cache is None or cache.why_not is not None:
        return None
    path: Path = cache.folder / "secret"
    try:
        if not os.path.lexists(path):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(os.urandom(32))
        found = read_trusted(path, cache.folder, private=True)
    except OSError:
        return None
    except Distrusted as error:
        cache.refuse(f"{error}, so files are neither signed with it nor believed for it")
        return None
    return found if len(found) == 32 else None
