"""Gets the recipe of a captured graph from the disk cache, or compiles it.

    recipe, tools = recipe_of(gm, example_inputs, gradients, live_scalar_types)
    recipe, tools = symbolic_recipe_of(gm, symbolic_inputs, gradients)        for symbolic sizes

The compiler is imported when the first graph is not on disk, not by `import burnish`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.fx import GraphModule

from .. import events
from ..captured_graph.compile_request import request_of
from ..foundation import plugins
from ..ir.untraceable_graph import Untraceable
from ..settings import Settings, current
from ..tensors.fit_size_formulas import NoFormula
from . import background_imports

if TYPE_CHECKING:
    from .program_recipe import NativeTools, Recipe

COMPILED_STAGES = frozenset(("lower", "loops", "kernels"))


def stages_are_watched(settings: Settings) -> bool:
    """Whether someone wants to see the compiler's stages: then it has to run."""
    return bool(settings.show & COMPILED_STAGES) or settings.dump is not None or events.is_asked_for("plan")


def recipe_of(
    gm: GraphModule, example_inputs: list[Any], gradients: bool, live_scalar_types: tuple[type, ...]
) -> tuple[Recipe, NativeTools]:
    def key() -> str | None:
        from .graph_cache_key import key_of

        return key_of(gm, example_inputs, gradients, live_scalar_types)

    def compiled() -> Recipe:
        from .compile_graph import compile_graph

        return compile_graph(gm, example_inputs, gradients, live_scalar_types)

    return found_or_made(gm, key, compiled)


def symbolic_recipe_of(gm: GraphModule, symbolic_inputs: Any, gradients: bool) -> tuple[Recipe, NativeTools]:
    """`symbolic_inputs` are capture's SymbolicExampleInputs."""

    def key() -> str | None:
        from .graph_cache_key import symbolic_key_of

        return symbolic_key_of(gm, symbolic_inputs, gradients)

    def compiled() -> Recipe:
        from .compile_symbolic_sizes import compile_symbolic

        return compile_symbolic(
            gm, symbolic_inputs.space, symbolic_inputs.examples, list(symbolic_inputs.shapes), gradients
        )

    return found_or_made(gm, key, compiled)


@events.stage("compile", "graph_module")
def found_or_made(
    gm: GraphModule, key_of: Callable[[], str | None], compiled: Callable[[], Any]
) -> tuple[Any, NativeTools]:
    background_imports.end()
    is_complete = plugins.start_in_compiler()
    settings = current()
    key, programs = None, request_of(gm).programs
    lines = [node.meta.get("stack_trace") for node in gm.graph.nodes]
    if is_complete and settings.fuel is None and (settings.cache or programs is not None or settings.check):
        from . import program_serialization

        key = key_of()
        if key is not None and not stages_are_watched(settings):
            found = program_serialization.get(key, lines, programs)
            if found is not None:
                request_of(gm).digest = program_serialization.digest_of(key)
                events.emit("cache.program", text=f"a graph of {len(gm.graph.nodes)} nodes was compiled before")
                return found
    from .compile_graph import tools

    try:
        recipe = compiled()
    except (Untraceable, NoFormula) as why:
        if key is not None:
            program_serialization.put_refusal(key, why)
        raise
    if key is not None:
        program_serialization.put(key, recipe, tools(), lines, programs)
        request_of(gm).digest = program_serialization.digest_of(key)
        if settings.check:  # a program from disk must behave the same, so run the reloaded one
            return program_serialization.written_and_read(key, recipe, tools(), lines)
    return recipe, tools()
