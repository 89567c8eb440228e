"""Stand-ins for the API of torch's compiler, while Burnish replaces it by default.

    torch._dynamo.explain(fn)(x)                 burnish.explain
    torch._dynamo.export(fn)(x)                  burnish.export, see `dynamo_export`
    torch._dynamo.optimize("inductor")(fn)       torch.compile, which is ours
    torch._dynamo.reset(), torch.compiler.reset()                   both forget
    torch._dynamo.utils.counters["stats"]["unique_graphs"]          counts our graphs and breaks, too
    torch.compiler.save_cache_artifacts()        the cache on disk as bytes, and load_cache_artifacts takes them back
    torch._logging.set_logs(graph_breaks=True)   shows our breaks, too: see `torch_logs`

The functions of Dynamo are replaced once it is loaded, which happens elsewhere. Everything is put back by
``answer(False)``.
"""

from __future__ import annotations

import functools
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .. import events
from ..cli import cache_archive
from ..frontend.live_programs import forget_all
from ..runtime.disk.disk_cache import disk_cache
from . import torch_logs
from .after_import import after_import, forget

DYNAMO = "torch._dynamo"
COUNTED = ("segment", "breaks")

_replaced: list[tuple[Any, str, Any]] = []
_stop_counting: Callable[[], None] | None = None


def answer(is_default: bool) -> None:
    """Replace the readers, or put them back."""
    global _stop_counting
    if is_default == (_stop_counting is not None):
        return
    if is_default:
        _stop_counting = events.subscribe(count, COUNTED)
        for name, stand_in in OF_COMPILER.items():
            replace(torch.compiler, name, stand_in)
        replace(torch._logging, "set_logs", torch_logs.set_logs)
        torch_logs.follow()
        after_import(DYNAMO, replace_in_dynamo)
        return
    if _stop_counting is not None:
        _stop_counting()
    _stop_counting = None
    torch_logs.stop()
    forget(DYNAMO)
    while _replaced:
        owner, name, original = _replaced.pop()
        if getattr(getattr(owner, name, None), "__burnish_reader__", False):
            setattr(owner, name, original)


def replace_in_dynamo(dynamo: Any) -> None:
    for name, stand_in in OF_DYNAMO.items():
        replace(dynamo, name, stand_in)


def replace(owner: Any, name: str, stand_in: Callable[..., Any]) -> None:
    """`stand_in` is called with the original function and the arguments."""
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def made(*args: Any, **kwargs: Any) -> Any:
        return stand_in(original, *args, **kwargs)

    made.__burnish_reader__ = True  # type: ignore[attr-defined]
    _replaced.append((owner, name, original))
    setattr(owner, name, made)


# ---- torch.compiler


def _reset(original: Any, /) -> None:
    forget_all()
    if DYNAMO in sys.modules:  # else Dynamo has nothing to forget, and loading it takes a second
        original()


def _save_cache_artifacts(original: Any, /) -> Any:
    cache = disk_cache()
    if cache is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cache.zip"
        if not cache_archive.export_cache(cache, file):
            return None
        return file.read_bytes(), _info()


def _load_cache_artifacts(original: Any, /, serialized_artifacts: bytes) -> Any:
    if not serialized_artifacts.startswith(b"PK"):
        return original(serialized_artifacts)  # written by torch
    cache = disk_cache()
    if cache is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cache.zip"
        file.write_bytes(serialized_artifacts)
        cache_archive.import_cache(cache, file)
    return _info()


def _info() -> Any:
    from torch.compiler._cache import CacheInfo

    return CacheInfo()


def _load_compiled_function(original: Any, /, *args: Any, **kwargs: Any) -> Any:
    from .torch_aot_compile import load_compiled_function

    return load_compiled_function(original, *args, **kwargs)


OF_COMPILER: dict[str, Callable[..., Any]] = {
    "load_compiled_function": _load_compiled_function,
    "reset": _reset,
    "save_cache_artifacts": _save_cache_artifacts,
    "load_cache_artifacts": _load_cache_artifacts,
}


# ---- torch._dynamo


def _explain(original: Any, /, f: Any, *extra_args: Any, **extra_kwargs: Any) -> Any:
    from ..frontend.explain_call import explain

    explained = explain(f)
    return explained(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else explained


def _export(original: Any, /, *args: Any, **options: Any) -> Any:
    from .dynamo_export import export

    return export(original, *args, **options)


def _reset_dynamo(original: Any, /) -> None:
    forget_all()
    original()


def _optimize(
    original: Any, /, backend: Any = "inductor", *, nopython: bool = False, dynamic: Any = None, **others: Any
) -> Any:
    """torch.compile itself calls this one for backends that are not ours."""
    if not isinstance(backend, (str, types.FunctionType)) or not KEPT.issuperset(others):
        return original(backend, nopython=nopython, dynamic=dynamic, **others)
    return lambda fn: torch.compile(fn, backend=backend, fullgraph=nopython, dynamic=dynamic, **others)


KEPT = frozenset(("disable", "recompile_limit", "isolate_recompiles"))
"""Further arguments of ``torch._dynamo.optimize`` that ``torch.compile`` has as well."""

OF_DYNAMO: dict[str, Callable[..., Any]] = {
    "explain": _explain,
    "export": _export,
    "reset": _reset_dynamo,
    "optimize": _optimize,
}


def count(event: events.Event) -> None:
    """Count a graph or a break in Dynamo's counters, if they exist."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    if counters is None:
        return
    if event.kind == "breaks":
        reason = event.data.get("break_")
        counters["graph_break"][str(reason) if reason is not None else event.data.get("text", "")] += 1
        return
    segment = event.data["segment"]
    counters["frames"]["total"] += 1
    counters["frames"]["ok"] += 1
    if segment.graph_module is not None:
        operations = [node for node in segment.graph_module.graph.nodes if node.op.startswith("call_")]
        counters["stats"]["calls_captured"] += len(operations)
        counters["stats"]["unique_graphs"] += 1
