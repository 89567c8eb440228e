"""Formats a source as the user knows it: a parameter or global, then attribute and index steps.

    S[0]                             L['x']           of a compiled function
    S[1][0]                          L['x']           of a compiled module, which is entered with all its arguments
    S[0].__dict__['_modules']['a']   L['self']._modules['a']

``frontend.dynamic_shapes_and_sources`` speaks of sizes by these places.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any

import torch

from ...frontend import dynamic_shapes_and_sources
from ...frontend.dynamic_shapes_and_sources import DynamicSpec, ParameterPath, SizeRequests, Step
from ..guards.object_sources import Source

CALL = ("fn", "block")
"""The first parameter of the functions that call a subject; the others are its arguments, `args` and `kwargs`."""


def requests_for(spec: DynamicSpec | None, function: Any, subject: Any) -> SizeRequests:
    """Declared sizes for a trace that begins now. ``subject``: what ``function`` only calls, if any."""
    sources, values = dynamic_shapes_and_sources.dynamic_sources(), dynamic_shapes_and_sources.dynamic_values()
    if spec is None and not sources and not values:
        return dynamic_shapes_and_sources.NO_REQUESTS
    signature = signature_of(function if subject is None else subject)
    return SizeRequests(spec, sources, values, signature, place_finder(subject is not None, signature))


def signature_of(subject: Any) -> inspect.Signature | None:
    """The signature of the compiled function, without ``self``; a module's is that of its ``forward``."""
    inside = getattr(subject, "__self__", None)
    if isinstance(subject, MethodType) and isinstance(inside, torch.nn.Module) and subject.__name__ == "_call_impl":
        subject = inside
    try:
        return inspect.signature(subject.forward if isinstance(subject, torch.nn.Module) else subject)
    except (TypeError, ValueError):
        return None


def place_finder(has_subject: bool, signature: inspect.Signature | None) -> Callable[[Source], ParameterPath | None]:
    kinds = [] if signature is None else list(signature.parameters.values())
    positional = [p.name for p in kinds if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in kinds if p.kind is p.VAR_POSITIONAL), None)
    named = {p.name for p in kinds if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    others = next((p.name for p in kinds if p.kind is p.VAR_KEYWORD), None)

    def place_of(source: Source) -> ParameterPath | None:
        root, chain = root_and_chain(source)
        if root.kind == "const" and isinstance(root.key, dict) and chain:
            return ParameterPath(str(chain[0].key), steps_of(chain[1:]), is_global=True)
        if root.kind != "slot":
            return None
        index, label = root.key
        if not has_subject or not (label in CALL or label in ("args", "kwargs")):
            return ParameterPath(label, steps_of(chain))
        if index == 0:
            return ParameterPath("self", steps_of(chain))
        if not chain:
            return None
        key, after = chain[0].key, steps_of(chain[1:])
        if index == 1 and isinstance(key, int):
            if key < len(positional):
                return ParameterPath(positional[key], after)
            return None if rest is None else ParameterPath(rest, (("item", key - len(positional)), *after))
        if key in named:
            return ParameterPath(str(key), after)
        return None if others is None else ParameterPath(others, (("item", key), *after))

    return place_of


def root_and_chain(source: Source) -> tuple[Source, list[Source]]:
    chain: list[Source] = []
    while source.base is not None:
        chain.append(source)
        source = source.base
    chain.reverse()
    return source, chain


def steps_of(chain: list[Source]) -> tuple[Step, ...]:
    """The steps of a path as the program takes them: an item of the instance dictionary is an attribute."""
    steps: list[Step] = []
    for at, part in enumerate(chain):
        if part.kind == "members":
            continue
        is_member = at > 0 and chain[at - 1].kind == "members"
        steps.append(("attr" if is_member or part.kind == "attr" else "item", part.key))
    return tuple(steps)
