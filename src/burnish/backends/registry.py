"""Backend registry: register, list and look up backends by name.

A backend is a function `fn(gm, example_inputs) -> callable`, the contract of a `torch.compile` custom backend.
`gm` is a `torch.fx.GraphModule` with every tensor as a placeholder, parameters included; Python numbers may be
placeholders too. The callable takes the same flat inputs and returns the graph's flat tuple of outputs.

    @register_backend
    def count_nodes(gm, example_inputs):
        print(len(gm.graph.nodes))
        return gm.forward

    burnish.compile(model, backend="count_nodes")

Backends that packages register for `torch.compile` (entry point group "torch_dynamo_backends") are found as well.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from torch.fx import GraphModule

from ..captured_graph.lazy_graph_module import without_hooks
from ..compiler import CompiledFn
from ..compiler.adapters.specialize_numbers import compile_per_number, has_numbers, own_copy
from ..concurrency import thread_locks
from ..concurrency.first_value_cache import once
from ..concurrency.outside_errors import reraise_from_outside
from ..errors import BackendError, BurnishError, UserError, did_you_mean, warn
from .tracing_context import tracing_context

CompilerFn = Callable[[GraphModule, list[Any]], CompiledFn]
Perform = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
F = TypeVar("F", bound=CompilerFn)

ENTRY_POINTS = "torch_dynamo_backends"
OURS = {name: f"burnish.backends.{name}" for name in ("aot_eager", "burnish", "eager", "inductor")}
"""Our own backends: the modules that hold them as `BACKEND`, each imported when the backend is first used."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A registered backend. Calling it compiles a graph.

    `runs_python`: the backend runs the graph by calling each node's Python target. It gets graphs with opaque Python
    callables, and accepts any numbers. Other backends get symbols for sizes and numbers that change, as from
    `torch.compile` (`symbolic_compile`). A backend that does not take symbols compiles once for each combination.

    `perform(function, args, kwargs)`: makes the torch calls while a graph is recorded; None for a plain call.
    `ahead()`: called when a trace begins whose graph the backend will get.
    `recomputes`: the backend recomputes checkpointed regions (`captured_graph/checkpoint_hooks.py`) in backward.
    `restores`: if compiled code raises, it has not written to any input, or it marks the error
    (`runtime/program/restore_inputs_on_error.py`).
    `asked`: the settings to compile under, if a mode or options request any.
    """

    name: str
    fn: CompilerFn
    runs_python: bool = False
    perform: Perform | None = None
    ahead: Callable[[], None] | None = None
    recomputes: bool = False
    restores: bool = False
    asked: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __call__(self, gm: GraphModule, example_inputs: list[Any]) -> CompiledFn:
        """Compile a graph. `gm` is not changed, unless the backend runs it directly."""
        if self.runs_python:
            return self._compile(gm, example_inputs)
        from .symbolic_compile import (
            compile_symbolic,
            has_symbols,
            with_own_errors,
        )  # other backends than ours, when they compile

        if has_symbols(gm, example_inputs, may_run_graph=not self.is_ours()):
            return compile_symbolic(self._compile, gm, example_inputs)
        if has_numbers(example_inputs):
            return with_own_errors(gm, compile_per_number(self._compile, gm, example_inputs))
        return self._compile(own_copy(gm), list(example_inputs))

    def _compile(self, gm: GraphModule, example_inputs: list[Any]) -> CompiledFn:
        from .check_backend_outputs import FirstRun, count_outputs

        count = None if self.is_ours() else count_outputs(gm)  # a backend may rewrite the graph
        try:
            with contextlib.nullcontext() if self.runs_python else tracing_context(gm, example_inputs):
                if not self.runs_python:
                    from .describe_nodes import describe_nodes

                    describe_nodes(gm, example_inputs, has_examples=not self.is_ours())
                compiled = self.fn(gm, example_inputs)
        except BurnishError:
            raise
        except Exception as error:
            reraise_from_outside(error)
            if suppresses_errors():
                warn(
                    f'burnish: the backend "{self.name}" raised {type(error).__name__}: {error}. '
                    f"Its graph runs eagerly, because torch._dynamo.config.suppress_errors is set."
                )
                return gm.forward
            raise BackendError(
                self.name,
                f'The backend "{self.name}" raised while it compiled a graph of {len(gm.graph.nodes)} nodes: '
                f"{type(error).__name__}: {error}\n"
                f"What to do: the traceback above is the backend's own, so look there first. To see whether the "
                f'backend is the cause, run with backend="eager".',
            ) from error
        if not callable(compiled):
            raise BackendError(
                self.name,
                f'The backend "{self.name}" returned {compiled!r:.80}, which cannot be called.\n'
                f"What to do: return a function that takes the graph's inputs and returns the tuple of its outputs. "
                f"`gm.forward` is one.",
            )
        return compiled if count is None else FirstRun(self.name, without_hooks(compiled), count)

    def is_ours(self) -> bool:
        fn: object = getattr(self.fn, "func", self.fn)  # of a partial with options
        return str(getattr(fn, "__module__", "")).startswith("burnish.")


def suppresses_errors() -> bool:
    """Whether the program has asked Dynamo to run a graph eagerly if its backend fails."""
    return bool(getattr(sys.modules.get("torch._dynamo.config"), "suppress_errors", False))


_backends: dict[str, Backend] = {}
_lock = thread_locks.lock()


@overload
def register_backend(
    compiler_fn: F,
    name: str | None = None,
    *,
    runs_python: bool = False,
    perform: Perform | None = None,
    ahead: Callable[[], None] | None = None,
    recomputes: bool = False,
    restores: bool = False,
) -> F: ...


@overload
def register_backend(
    compiler_fn: None = None,
    name: str | None = None,
    *,
    runs_python: bool = False,
    perform: Perform | None = None,
    ahead: Callable[[], None] | None = None,
    recomputes: bool = False,
    restores: bool = False,
) -> Callable[[F], F]: ...


def register_backend(
    compiler_fn: CompilerFn | None = None,
    name: str | None = None,
    *,
    runs_python: bool = False,
    perform: Perform | None = None,
    ahead: Callable[[], None] | None = None,
    recomputes: bool = False,
    restores: bool = False,
) -> Any:
    """Register a function for `burnish.compile(backend=name)`. Call it, or use it as a decorator with or without
    arguments.

    `name` defaults to the function's own. Registering the same function again, or a new definition of it (a
    notebook cell that runs again), replaces it. If another function has the name, it raises a UserError. For
    `runs_python`, `perform`, `ahead`, `recomputes` and `restores` see `Backend`.
    """
    if compiler_fn is None:
        return functools.partial(
            register_backend,
            name=name,
            runs_python=runs_python,
            perform=perform,
            ahead=ahead,
            recomputes=recomputes,
            restores=restores,
        )
    if not callable(compiler_fn):
        raise UserError(
            f"register_backend was given {compiler_fn!r:.80}, which cannot be called. Give it a function that takes "
            f"a graph and its example inputs and returns a callable."
        )
    name = name or _name_of(compiler_fn)
    with _lock:
        taken = _registered(name)
        if taken is not None and _definition(taken.fn) != _definition(compiler_fn):
            raise UserError(
                f'There is already a backend called "{name}", from {_definition(taken.fn)}. Register this one under '
                f"another name: register_backend(fn, name=...)."
            )
        _backends[name] = Backend(name, compiler_fn, runs_python, perform, ahead, recomputes, restores)
    return compiler_fn


def list_backends() -> list[str]:
    """The names that `burnish.compile(backend=...)` accepts, in alphabetical order."""
    return sorted({*OURS, *_backends, *_entry_points()})


def lookup(backend: str | CompilerFn) -> Backend:
    """The backend of this name, or a function as a backend.

    A registered function keeps its registration. Any other function becomes a backend with `runs_python` off.
    """
    if isinstance(backend, Backend):
        return backend
    if isinstance(backend, str):
        found = _registered(backend)
        return found if found is not None else _load_entry_point(backend)
    if not callable(backend):
        raise UserError(
            f"backend={backend!r:.80} is neither a name nor a function. Give the name of a backend "
            f"({', '.join(list_backends())}) or a function that takes a graph and its example inputs."
        )
    known = [registered for registered in list(_backends.values()) if registered.fn is backend]
    return known[0] if known else Backend(_name_of(backend), backend)


def _registered(name: str) -> Backend | None:
    found = _backends.get(name)
    if found is None and name in OURS:
        found = _backends.setdefault(name, importlib.import_module(OURS[name]).BACKEND)
    return found


@once
def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    """The backends of installed packages: found once, imported only when used."""
    return {point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}


def _load_entry_point(name: str) -> Backend:
    point = _entry_points().get(name)
    if point is None:
        raise UserError(
            f'There is no backend called "{name}".{did_you_mean(name, list_backends())} '
            f"The backends are: {', '.join(list_backends())}. A function is accepted in place of a name."
        )
    try:
        fn: Any = point.load()
    except Exception as error:
        reraise_from_outside(error)
        raise BackendError(
            name,
            f'The backend "{name}" could not be imported from {point.value}: {type(error).__name__}: {error}\n'
            f"What to do: mend or reinstall the package that offers it, or choose another backend.",
        ) from error
    with _lock:
        return _backends.setdefault(name, Backend(name, fn))


def _name_of(fn: object) -> str:
    """A function's own name; for a partial, the wrapped function's; otherwise the name of its class."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__name__", type(fn).__name__)


def _definition(fn: object) -> str:
    """The module and qualified name of a function. A notebook cell or module that runs again gives the same one."""
    return f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', repr(fn))}"
