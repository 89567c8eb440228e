"""Which sizes and numbers a program wants dynamic, by the place where they are read.

    burnish.compile(fn, dynamic_shapes={"x": TensorSpec([ShapeVar("batch", max=64), None])})
    TORCH_COMPILE_DYNAMIC_SOURCES="L['x']:0, L['self'].cache"

``dynamic_shapes`` is a tree of specifications (``torch.fx.experimental.dynamic_spec``) along the parameters of the
function. It is read by its attributes: importing that module is slow. Whatever it leaves out is static. A dynamic
source is a place as Dynamo writes it, or a regular expression for such places; ``:0`` names one dimension.

Marks on a tensor (``frontend.marks``) say the same about one object.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..errors import UserError
from . import torch_config
from .marks import NO_MARKS, SizeMarks, size_marks

Step = tuple[str, Any]
"""A step of a path: ("attr", name) or ("item", key)."""

NOTHING = object()
PER_DIMENSION = re.compile(r"^(.*?):(\d+)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ParameterPath:
    """Where the function finds a value: a parameter, or a global, and the steps from there."""

    root: str
    steps: tuple[Step, ...]
    is_global: bool = False

    def as_dynamo_writes_it(self) -> str:
        text = f"{'G' if self.is_global else 'L'}[{self.root!r}]"
        for kind, key in self.steps:
            text += f".{key}" if kind == "attr" else f"[{key!r}]"
        return text


@dataclass(frozen=True)
class DynamicSpec:
    """The argument ``dynamic_shapes``."""

    named: dict[str, Any]
    varargs: list[Any] = field(default_factory=list[Any])
    varkw: dict[str, Any] = field(default_factory=dict[str, Any])

    def at(self, place: ParameterPath, signature: inspect.Signature | None) -> Any:
        """The specification of a place, or None."""
        if place.is_global:
            return None
        steps, found = place.steps, self.named.get(place.root, NOTHING)
        if found is NOTHING:
            kind = None if signature is None else getattr(signature.parameters.get(place.root), "kind", None)
            if kind is inspect.Parameter.VAR_POSITIONAL:
                found = self.varargs
            elif kind is inspect.Parameter.VAR_KEYWORD:
                found = self.varkw
            else:
                return None
        for kind, key in steps:
            found = _member(found, kind, key)
        return found


def _member(spec: Any, kind: str, key: Any) -> Any:
    """The part of a specification for an attribute or an item; None if it says nothing about it."""
    if isinstance(spec, list):
        return spec[key] if isinstance(key, int) and key < len(spec) else None
    if isinstance(spec, dict):
        return spec.get(key)
    entries = getattr(spec, "_entries", None)
    if isinstance(entries, list):
        return _member(entries, kind, key)
    if isinstance(entries, dict) or isinstance(entries := getattr(spec, "_fields", None), dict):
        return entries.get(key)
    return None


def checked_spec(given: Any, dynamic: bool | None, model: Any) -> DynamicSpec | None:
    """The argument ``dynamic_shapes`` of ``compile``, or what ``@dynamic_spec`` has attached to the model."""
    attached = getattr(model.forward if isinstance(model, torch.nn.Module) else model, "_dynamic_spec", None)
    if attached is not None and given is not None:
        raise UserError(
            "dynamic_shapes=... is given, and the function has a @dynamic_spec of its own. Leave out one of the two."
        )
    given = attached if given is None else given
    if given is None:
        return None
    if dynamic is not None:
        raise UserError(
            "dynamic and dynamic_shapes are both given. dynamic_shapes says it for each size: leave out dynamic."
        )
    if isinstance(given, dict):
        named = {str(name): spec for name, spec in given.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return DynamicSpec(
            {name: spec for name, spec in named.items() if not name.startswith("*")},
            named.get("*args", []),
            named.get("**kwargs", {}),
        )
    params = getattr(given, "_params", given)
    if not hasattr(params, "_named_args"):
        if hasattr(given, "_params") and params is None:
            return DynamicSpec({})
        raise UserError(
            f"dynamic_shapes={given!r:.80} is neither a dictionary by parameter names, nor a ShapesSpec or ParamsSpec "
            f"of torch.fx.experimental.dynamic_spec."
        )
    return DynamicSpec(params._named_args, params._varargs or [], params._varkw or {})


def marks_of_spec(spec: Any) -> SizeMarks:
    """The dimensions of a tensor with this specification: those of a ``TensorSpec`` with symbols are dynamic."""
    dims = getattr(spec, "_specs", None)
    if not isinstance(dims, list):
        return NO_MARKS
    opened = {k for k, dim in enumerate(dims) if isinstance(dim, torch.SymInt)}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    bounds = {k: (getattr(dims[k], "min", None), getattr(dims[k], "max", None)) for k in opened}
    return SizeMarks(frozenset(opened), frozenset(range(len(dims))) - opened, bounds)  # pyright: ignore[reportUnknownArgumentType]


@dataclass(frozen=True, slots=True)
class DynamicSource:
    """An entry of ``dynamic_sources``."""

    text: str
    dim: int | None

    def fits(self, name: str) -> bool:
        if name == self.text:
            return True
        try:
            return re.match(self.text, name) is not None
        except re.error:
            return False


def dynamic_sources() -> tuple[DynamicSource, ...]:
    """What ``torch.compiler.config`` says, or the environment."""
    texts = [torch_config.compiler(name) or "" for name in ("dynamic_sources", "unbacked_sources")]
    return tuple(_sources_in(",".join(texts)))


def _sources_in(text: str) -> Iterable[DynamicSource]:
    for entry in filter(None, (part.strip() for part in text.split(","))):
        found = PER_DIMENSION.match(entry)
        yield DynamicSource(entry, None) if found is None else DynamicSource(found[1], int(found[2]))


def dynamic_values() -> frozenset[int]:
    """Sizes and numbers that are dynamic wherever they occur."""
    text = torch_config.compiler("dynamic_values") or ""
    return frozenset(int(part) for part in text.split(",") if part.strip().lstrip("-").isdigit())


SPECIALIZED = (0, 1)
"""Numbers that mostly stand for something else, as the same sizes do. Each is compiled for."""


@dataclass(frozen=True)
class SizeRequests:
    """All that is said about sizes, for one trace. ``place_of`` gives the place of a source of the trace."""

    spec: DynamicSpec | None
    sources: Sequence[DynamicSource]
    values: frozenset[int]
    signature: inspect.Signature | None
    place_of: Callable[[Any], ParameterPath | None]
    takes_numbers: bool = False  # ``dynamic=True``: those given to the function are inputs from the first call on

    def __bool__(self) -> bool:
        return self.takes_numbers or self.spec is not None or bool(self.sources) or bool(self.values)

    def marks(self, tensor: torch.Tensor, source: Any) -> SizeMarks:
        own = size_marks(tensor)
        if not self:
            return own
        place = self.place_of(source)
        if place is None:
            return own
        name = place.as_dynamo_writes_it() if self.sources else ""
        opened = {k for k, size in enumerate(tensor.shape) if size in self.values}
        for entry in self.sources:
            if entry.fits(name):
                opened.update(range(tensor.ndim) if entry.dim is None else [entry.dim])
        static, bounds = set(own.static), own.bounds
        if self.spec is not None:
            said = marks_of_spec(self.spec.at(place, self.signature))
            static |= (set(range(tensor.ndim)) if said is NO_MARKS else said.static) - own.open
            opened, bounds = opened | said.open, {**said.bounds, **bounds}
        opened |= own.open
        return SizeMarks(frozenset(opened), frozenset(static - opened), bounds)

    def is_dynamic_number(self, value: Any, source: Any) -> bool:
        """Whether a number is to be an input from the first call on."""
        if type(value) not in (int, float) or not self:
            return False
        if value in self.values:
            return True
        if self.takes_numbers and value not in SPECIALIZED and is_given(source):
            return True
        place = self.place_of(source)
        if place is None:
            return False
        if self.spec is not None and isinstance(self.spec.at(place, self.signature), torch.SymInt):
            return True
        return bool(self.sources) and any(entry.fits(place.as_dynamo_writes_it()) for entry in self.sources)


def is_given(source: Any) -> bool:
    """Whether a value is an argument, or in a container that is one."""
    while source.kind == "item":
        source = source.base
    return bool(source.kind == "slot")


NO_REQUESTS = SizeRequests(None, (), frozenset(), None, lambda source: None)
