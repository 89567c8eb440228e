"""The argument ``dynamic_shapes`` of ``export``, in the form of ``torch.export``: which sizes are symbolic.

    b = torch.export.Dim("b", max=64)
    dynamic_shapes={"x": {0: b}, "state": [{0: b, 1: 2 * b}, None]}       by the names of arguments
    dynamic_shapes=({0: torch.export.Dim.AUTO}, None)                     by their positions

``Dim`` and its hints are recognized by their classes, without importing torch.export, which is slow: where it is not
imported, there are none.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..errors import UserError, did_you_mean
from ..foundation.torch_private import pytree
from .symbolic_sizes import SizeRange, SymbolicSize

LEAST_EXAMPLE = 2
"""In the example: a size of 0 or 1 has other meanings."""

MOST = 1 << 62
"""From here on there is no limit, as torch.export writes that."""


@dataclass
class Declared:
    """What was declared: symbols by name, in order, and the sizes that they are, by leaf of the arguments."""

    ranges: dict[str, SizeRange] = field(default_factory=dict[str, SizeRange])
    hints: dict[str, str] = field(default_factory=dict[str, str])
    """By name of the symbol: AUTO or DYNAMIC, where it is not a ``Dim`` with a name."""
    sizes: dict[int, dict[int, SymbolicSize]] = field(default_factory=dict[int, dict[int, SymbolicSize]])
    places: dict[str, str] = field(default_factory=dict[str, str])
    """By name of the symbol: a dimension with it, for messages."""


def declared_sizes(given: Any, original: Any, args: tuple, kwargs: Mapping[str, Any], names: Sequence[str]) -> Declared:
    """``names`` are those of the leaves of ``(args, kwargs)``."""
    found = Declared()
    if given is None:
        return found
    if hasattr(given, "dynamic_shapes"):  # a ShapesCollection or AdditionalInputs
        given = given.dynamic_shapes(original, args, dict(kwargs))
        if given is None:
            return found
    leaves = pytree.tree_leaves((args, kwargs))
    for number, (name, leaf, said) in enumerate(
        zip(names, leaves, said_of(given, original, args, kwargs), strict=True)
    ):
        for dim, what in dimensions(name, leaf, said):
            add(found, number, name, leaf.shape[dim], dim, what)
    return found


def said_of(given: Any, original: Any, args: tuple, kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """What is said about each leaf of ``(args, kwargs)``."""
    parameters = parameters_of(original)
    named = [*argument_names(parameters, len(args)), *kwargs]
    if isinstance(given, Mapping):
        given = by_name(given, parameters, named)
        said = [given.get(name) for name in named]
    elif isinstance(given, (tuple, list)):
        rest = next((k for k, name in enumerate(named) if name.startswith("*")), None)
        given = list(given)
        if (
            rest is not None
            and len(given) > rest
            and len(given) < len(named)
            and isinstance(given[rest], (tuple, list))
        ):
            given[rest : rest + 1] = given[rest]  # torch.export gives *args one entry
        if len(given) != len(named):
            raise UserError(
                f"burnish.export: dynamic_shapes has {len(given)} entries, and there are {len(named)} arguments "
                f"({', '.join(named)}). What to do: an entry for each, None where no size is dynamic, or a "
                f"dictionary by their names."
            )
        said = given
    else:
        example = f"{{{named[0] if named else 'x'!r}: {{0: torch.export.Dim.AUTO}}}}"
        raise UserError(
            f"burnish.export: dynamic_shapes={given!r:.80} is a {type(given).__name__}. What to do: a dictionary by "
            f"the names of the arguments, such as {example}, or a tuple by their positions."
        )
    for name, value, spec in zip(named, [*args, *kwargs.values()], said, strict=True):
        for path, _ in pytree.tree_flatten_with_path(value)[0]:
            yield specification_of_part(spec, path, value, name)


def by_name(given: Mapping[Any, Any], parameters: list[inspect.Parameter], named: list[str]) -> dict[str, Any]:
    """The same with an entry for each of ``*args`` and ``**kwargs``."""
    found: dict[str, Any] = {}
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    others = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
    for name, spec in given.items():
        if name == rest and isinstance(spec, (tuple, list)):
            found.update({f"*{rest}[{k}]": part for k, part in enumerate(spec)})
        elif name == others and name not in named and isinstance(spec, Mapping):
            found.update(spec)
        elif name in named or spec is None:
            found[name] = spec
        else:
            raise UserError(
                f"burnish.export: dynamic_shapes speaks of {name!r}, and the arguments are {', '.join(named)}."
                f"{did_you_mean(str(name), named)}"
            )
    return found


def parameters_of(original: Any) -> list[inspect.Parameter]:
    try:
        function = original.forward if isinstance(original, torch.nn.Module) else original
        return list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return []


def argument_names(parameters: Sequence[inspect.Parameter], count: int) -> list[str]:
    """Names of positional arguments. ``*args[0]`` is one that has no parameter of its own."""
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    return [known[k] if k < len(known) else f"*{rest}[{k - len(known)}]" for k in range(count)]


def children(value: Any) -> list[tuple[Any, Any]]:
    return pytree.tree_flatten_with_path(value, is_leaf=lambda part: part is not value)[0]


def specification_of_part(spec: Any, path: Sequence[Any], value: Any, name: str) -> Any:
    """The part of a specification for a part of an argument. The fields of a registered class are taken by name, or in
    their order."""
    for step in path:
        if spec is None:
            return None
        node = children(value)
        at = next(k for k, (keys, _) in enumerate(node) if keys == (step,))
        value = node[at][1]
        key = getattr(step, "key", getattr(step, "idx", getattr(step, "name", at)))
        if isinstance(spec, Mapping):
            spec = spec.get(key)
        elif isinstance(spec, (tuple, list)):
            if at >= len(spec):
                raise UserError(
                    f"burnish.export: of {name}, dynamic_shapes describes {len(spec)} parts, and it has {len(node)}."
                )
            spec = spec[at]
        elif hasattr(spec, "__dataclass_fields__"):
            spec = getattr(spec, str(key), None)
        else:
            raise UserError(
                f"burnish.export: of {name}{step}, dynamic_shapes says {spec!r:.60}, where a dictionary, a list or "
                f"None should stand."
            )
    return spec


def dimensions(name: str, leaf: Any, said: Any) -> Iterator[tuple[int, Any]]:
    """What is said about the dimensions of a leaf."""
    if said is None:
        return
    if not isinstance(leaf, torch.Tensor):
        raise UserError(
            f"burnish.export: dynamic_shapes says {said!r:.60} of {name}, which is {leaf!r:.40} and no tensor. "
            f"Numbers are fixed: pass it as a tensor, or leave it out."
        )
    if isinstance(said, (tuple, list)):
        if len(said) != leaf.ndim:
            raise UserError(
                f"burnish.export: dynamic_shapes has {len(said)} entries for {name}, which has {leaf.ndim} dimensions."
            )
        said = dict(enumerate(said))
    if not isinstance(said, Mapping):
        raise UserError(
            f"burnish.export: dynamic_shapes says {said!r:.60} of {name}. What to do: a dictionary by dimension, such "
            f"as {{0: torch.export.Dim.AUTO}}, or a tuple with an entry for each."
        )
    for dim, what in said.items():
        if type(dim) is not int or not -leaf.ndim <= dim < leaf.ndim:
            raise UserError(
                f"burnish.export: dynamic_shapes speaks of dimension {dim!r:.20} of {name}, which has {leaf.ndim}."
            )
        yield dim % leaf.ndim, what


def add(found: Declared, number: int, name: str, size: int, dim: int, what: Any) -> None:
    """Note a dimension that is declared."""
    place, kind = f"{name}.shape[{dim}]", kind_of(what)
    if kind == "constant":
        if type(what) is int and what != size:
            raise UserError(
                f"burnish.export: dynamic_shapes says that {place} is {what}, and in the example it is {size}."
            )
        return
    if kind is None:
        raise UserError(
            f"burnish.export: dynamic_shapes says {what!r:.60} of {place}. It is a torch.export.Dim, Dim.AUTO, "
            f"Dim.DYNAMIC, Dim.STATIC, None, or the size in the example."
        )
    if kind == "AUTO" and size < LEAST_EXAMPLE:
        return
    if size < LEAST_EXAMPLE:
        raise UserError(
            f"burnish.export: {place} is dynamic ({what}), and {size} in the example. A size of {size} has another "
            f"meaning than others, so one example cannot show both. What to do: call export with a {name} that has "
            f"2 or more there. The graph then also takes {size}, if the program does the same for it."
        )
    if kind in ("AUTO", "DYNAMIC"):
        symbol = SizeRange(place, size, *limits(what), False)
        opened, found.hints[place] = SymbolicSize(place), kind
    else:
        root, factor, added = linear(what)
        opened = SymbolicSize(root.__name__, factor, added)
        value = opened.solved(size)
        if value is None:
            raise UserError(
                f"burnish.export: {place} is declared to be {what.__name__}, and in the example it is {size}."
            )
        symbol = SizeRange(root.__name__, value, *limits(root))
    known = found.ranges.setdefault(symbol.name, symbol)
    if known.example != symbol.example:
        raise UserError(
            f"burnish.export: {place} and {found.places[symbol.name]} are both declared by {symbol.name}, and in the "
            f"example {symbol.name} is {symbol.example} for one and {known.example} for the other. What to do: Dims "
            f"with other names, or an example in which they agree."
        )
    if (known.least, known.most) != (symbol.least, symbol.most):
        raise UserError(f"burnish.export: there are two Dims {symbol.name!r}, of other ranges. Give one another name.")
    if not symbol.holds(symbol.example):
        raise UserError(
            f"burnish.export: {place} is declared by {what}, whose range is {symbol.limits}, and in the example "
            f"{symbol.name} is {symbol.example}. {symbol.widened(symbol.example)}, or pass another example."
        )
    found.places.setdefault(symbol.name, place)
    found.sizes.setdefault(number, {})[dim] = opened


def kind_of(what: Any) -> str | None:
    if what is None or type(what) is int:
        return "constant"
    torchs: Any = sys.modules.get("torch.export.dynamic_shapes")
    if torchs is None:
        return None
    if isinstance(what, torchs._DimHint):
        name = what.type.name
        return "constant" if name == "STATIC" else name
    if isinstance(what, torchs._StaticDim):
        return None
    return "Dim" if isinstance(what, torchs.Dim) else None


def linear(what: Any) -> tuple[Any, int, int]:
    """The ``Dim`` that a derived one is made of, the factor, and what is added."""
    if not hasattr(what, "root"):
        return what, 1, 0
    root, factor, added = linear(what.root)
    own_added = what.fn(0)
    own_factor = what.fn(1) - own_added
    return root, factor * own_factor, added * own_factor + own_added


def limits(what: Any) -> tuple[int, int | None]:
    least, most = what.min, what.max
    return (least if isinstance(least, int) else 0), (most if isinstance(most, int) and most < MOST else None)
