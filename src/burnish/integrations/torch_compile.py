"""Replaces torch.compile, so that frameworks that call it use Burnish.

    burnish.install()
    torch.compile(model, backend="burnish")      # burnish.compile(model): our capture, our compiler
    model.compile(backend="burnish")             # nn.Module.compile calls torch.compile
    torch.compile(model)                         # unchanged, like every other backend

    with burnish.install(default=True):          # inside the block, also without a backend, and for "inductor"
        framework.train(model)

With `default=True`, functions of the user's as backends and "eager" and "aot_eager" get graphs that Burnish captured,
and `dynamo_api_stand_ins` serves programs' calls to the API of torch's compiler.

The replacement of `torch.compile` looks at the backend and forwards calls that are not for Burnish. Other libraries
replace it as well (Lightning does on import). Each forwards its calls, so the order does not matter. If another
replacement wraps ours at `uninstall`, ours stays below it and forwards everything.

Without `install`, torch.compile finds "burnish" through the entry point "torch_dynamo_backends". Then Dynamo captures,
and `dynamo_backend` compiles its graphs.
"""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import sys
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from .. import events
from ..backends.registry import lookup
from ..captured_graph.lazy_graph_module import graph_module
from ..frontend import late_bound_api, torch_errors
from ..frontend.compile_callable import stays_plain

OURS = (
    *("fullgraph", "dynamic", "backend", "mode", "options"),
    *("name", "recompile_limit", "isolate_recompiles", "dynamic_shapes"),
)
DEFAULTS: dict[str, Any] = {"fullgraph": False, "dynamic": None, "backend": "burnish", "mode": None, "options": None}
GRAPH_BACKENDS = ("eager", "aot_eager")
"""Backends of both, which run the captured graphs."""
DYNAMOS = ("torch._dynamo.backends", "torch._inductor")
"""Modules of backends that need Dynamo's graphs."""
MARK = "__burnish_door__"  # our replacement itself: wrappers copy the attribute
BEHIND = "__burnish_behind__"

# None: all calls are forwarded. False: Burnish takes "burnish". True: it also takes torch.compile's default backend.
_default: bool | None = None
_lock = threading.RLock()


def install(default: bool = False) -> Installed:
    """Make ``torch.compile(..., backend="burnish")`` and ``nn.Module.compile(backend="burnish")`` use Burnish.

    default: also calls without a backend, with "inductor", "eager" or "aot_eager", or with a function of yours as the
        backend; and what programs ask torch about its compiler (``torch._dynamo.explain``, ``torch.compiler.reset``).

    It applies from here on, or for a ``with`` block.
    """
    before = _default
    _set(bool(default))
    return Installed(before)


def uninstall() -> None:
    """Restore ``torch.compile``. Functions that are already compiled stay compiled."""
    _set(None)


def know_burnish() -> None:
    """Install unless already installed."""
    if _default is None:
        _set(False)


class Installed:
    """The result of ``install``. As a context manager it restores the previous state on exit."""

    def __init__(self, before: bool | None):
        self.before = before

    def __enter__(self) -> Installed:
        return self

    def __exit__(self, *exc: object) -> None:
        _set(self.before)


def _set(default: bool | None) -> None:
    global _default
    with _lock:
        had_readers, _default = bool(_default), default
        if default is not None and not _stands_in(torch.compile):
            torch.compile = _door_before(torch.compile)
        from . import accelerate_backend_name

        if default is not None:
            accelerate_backend_name.know_name()
            torch_errors.load_dynamo = load_dynamo
        else:
            accelerate_backend_name.stop_waiting()
            torch_errors.load_dynamo = None
        if default or had_readers:
            from . import dynamo_api_stand_ins

            dynamo_api_stand_ins.answer(bool(default))
        while default is None and vars(torch.compile).get(MARK) is torch.compile:
            torch.compile = vars(torch.compile)[BEHIND]


def load_dynamo() -> None:
    """Called before an error is raised that code written for ``torch.compile`` may catch by Dynamo's classes."""
    importlib.import_module("torch._dynamo.exc")


def _stands_in(function: Any) -> bool:
    """Whether the function, or a function that it wraps, is our replacement."""
    while function is not None:
        if MARK in getattr(function, "__dict__", {}):
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def _door_before(further: Callable[..., Any]) -> Callable[..., Any]:
    def compile(model: Any = None, **kwargs: Any) -> Any:
        if not _is_ours(kwargs.get("backend")):
            return further(**kwargs) if model is None else further(model, **kwargs)
        unknown = next((name for name in kwargs if name not in known), None)
        if unknown is not None:
            raise TypeError(f"compile() got an unexpected keyword argument {unknown!r}")
        compiled = late_bound_api.compile(model, disable=kwargs.get("disable", False), **own_arguments(kwargs))
        if compiled is not model and isinstance(model, torch.nn.Module):
            compiled._compile_kwargs = copy.deepcopy(kwargs)  # as Lightning's replacement does
        elif compiled is not model and isinstance(compiled, (types.FunctionType, types.MethodType)):
            function = getattr(compiled, "__func__", compiled)  # a bound method takes no attributes
            function.aot_compile = functools.partial(compile_ahead, compiled, bool(kwargs.get("fullgraph")))
        return compiled

    # Set `__wrapped__` only if `further` has it: code that unwraps functions would bypass ours.
    functools.update_wrapper(compile, further, updated=())
    vars(compile).pop("__wrapped__")
    if hasattr(further, "__wrapped__"):
        vars(compile)["__wrapped__"] = further.__wrapped__
    signature = inspect.signature(further)
    known = frozenset(signature.parameters)
    vars(compile).update({"__signature__": signature, MARK: compile, BEHIND: further})
    return compile


def compile_ahead(compiled: Any, is_whole: bool, example_inputs: Any) -> Any:
    """``torch.compile(fn).aot_compile(example_inputs)``"""
    from .torch_aot_compile import of_function

    return of_function(compiled, is_whole, example_inputs)


def _is_ours(backend: Any) -> bool:
    if _default is None:
        return False
    if isinstance(backend, ChosenBackend) or backend is dynamo_backend:
        return True
    if _default and (isinstance(backend, str) and backend in GRAPH_BACKENDS or is_users(backend)):
        return True
    if backend is None and not _default:
        # torch.compiler.set_default_backend may have set another one for the process.
        registry = sys.modules.get("torch._dynamo.backends.registry")
        backend = getattr(registry, "_default_backend", None)
    if backend is None or isinstance(backend, str) and backend == "inductor":
        return _default
    return isinstance(backend, str) and backend == "burnish"


def is_users(backend: Any) -> bool:
    """Whether a backend is a function of the user's. Torch's own wrappers of a backend, and its compilers, need
    Dynamo."""
    if backend is None or isinstance(backend, str) or not callable(backend):
        return False
    modules = str(type(backend).__module__), str(getattr(backend, "__module__", ""))
    return not any(module == "torch" or module.startswith(DYNAMOS) for module in modules)


@dataclass(frozen=True)
class ChosenBackend:
    """A backend of ``burnish.compile`` as an argument of ``torch.compile``, whose backends have the same names."""

    backend: Any

    def __call__(self, gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        return AfterDynamo(gm, lookup(self.backend))


def own_arguments(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Convert arguments of ``torch.compile`` to those of ``burnish.compile``."""
    found = DEFAULTS | {name: kwargs[name] for name in OURS if name in kwargs}
    if kwargs.get("shapes_spec") is not None:
        found["dynamic_shapes"] = kwargs["shapes_spec"]  # its name in torch 2.13
    backend = found["backend"]
    if isinstance(backend, ChosenBackend):
        found["backend"] = backend.backend
    elif backend is None or backend is dynamo_backend or backend == "inductor":
        found["backend"] = "burnish"
    return found


def torch_arguments(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Convert arguments of ``burnish.compile`` to those of ``torch.compile``."""
    backend = kwargs["backend"]
    return kwargs if backend == "burnish" else {**kwargs, "backend": ChosenBackend(backend)}


# ---- graphs captured by Dynamo


def dynamo_backend(gm: GraphModule, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """The backend "burnish" of a ``torch.compile`` that Burnish has not replaced."""
    if stays_plain():
        return gm.forward
    events.emit(
        "graph.dynamo",
        graph_module=gm,
        text=f"a graph of {len(gm.graph.nodes)} nodes was captured by Dynamo and is compiled by Burnish. "
        f"With burnish.install(), or burnish.compile in place of torch.compile, Burnish captures too.",
    )
    return AfterDynamo(gm, lookup("burnish"))


class AfterDynamo:
    """A graph from Dynamo. It comes with fake tensors, so it is compiled when the first real inputs arrive. It is
    compiled once for each kind of inputs, because a Dynamo graph may be dynamic and ours is static.
    """

    KINDS = 8

    def __init__(self, gm: GraphModule, compiler: Callable[[GraphModule, list[Any]], Callable[..., Any]]):
        self.gm, self.constants = _with_tensors_as_inputs(gm)
        self.compiler = compiler
        self.compiled: dict[tuple[Any, ...], Callable[..., Any]] = {}
        self.lock = threading.Lock()

    def __call__(self, *inputs: Any) -> Any:
        inputs = (*inputs, *self.constants)
        kind = tuple([_kind(value) for value in inputs])
        found = self.compiled.get(kind)
        if found is None:
            with self.lock:
                found = self.compiled.get(kind)
                if found is None and len(self.compiled) < self.KINDS:
                    found = self.compiled[kind] = self.compiler(self.gm, list(inputs))
        return (found or self.gm.forward)(*inputs)


def _kind(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return type(value), value
    return (
        type(value),
        value.dtype,
        value.device,
        value.requires_grad,
        tuple(value.shape),
        tuple(value.stride()) if value.layout is torch.strided else value.layout,
    )


def _with_tensors_as_inputs(gm: GraphModule) -> tuple[GraphModule, tuple[torch.Tensor, ...]]:
    """A copy whose own tensors are additional inputs at the end: our backends take every tensor as an input."""
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
    own = [
        (node, value)
        for node in gm.graph.nodes
        if node.op == "get_attr" and isinstance(value := _member(gm, node.target), torch.Tensor)
    ]
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
    for node, _ in own:
        copies[node] = graph.placeholder(node.name)
    for node in gm.graph.nodes:
        if node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        copies[node].meta = {}  # Dynamo's metadata describes fake tensors
    graph.lint()
    return graph_module(gm, graph), tuple(value for _, value in own)


def _member(module: Any, path: str) -> Any:
    return functools.reduce(getattr, path.split("."), module)
