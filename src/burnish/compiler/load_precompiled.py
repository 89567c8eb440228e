"""Loads a compiled graph that comes with an exported file, without the graph.

    run = ready(content, digest, eager)     None if it must be looked up, or compiled, from the graph

`content` comes from `program_serialization.packed`, for the key with that digest. It was compiled with no adapter
around the program, for the present settings and inputs; the caller has checked both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import events
from ..runtime.contest.inference_contest import Contest
from ..runtime.contest.training_contest import TrainingContest
from ..runtime.program.autograd_function import autograd_is_watched
from ..settings import current
from . import CompiledFn, program_serialization
from .load_or_compile import stages_are_watched


def ready(content: bytes, digest: str, eager: Callable[..., Any]) -> CompiledFn | None:
    settings = current()
    if (
        settings.null_device is not None
        or settings.cuda_graphs
        or stages_are_watched(settings)
        or autograd_is_watched()
    ):
        return None
    found = program_serialization.read(content, digest)
    if found is None:
        return None
    recipe, tools = found
    compiled: Any = recipe.assembled(tools, eager)
    events.emit("cache.program", text="a loaded graph was compiled before")
    if not settings.compares:
        return compiled
    contest = TrainingContest if compiled.takes_gradients else Contest
    return contest(compiled, eager, "a loaded graph")
