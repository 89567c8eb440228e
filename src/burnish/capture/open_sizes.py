"""Open sizes: dimensions of inputs that may be of another size in the next call.

    first call    x: f32[64, 768]                every size is guarded
    second call   x: f32[65, 768]                a size has changed: dimension 0 is open from now on
                  x.shape        (s, 768)        s is a live number: its value is guarded only where Python looks at it
                  x.view(s, 12, 64)              an input of the graph

A segment with open sizes serves them all, from 2 on: sizes of 0 and 1 mean other things to broadcasting. Dimensions
that are equal, or that changed by the same amount, are one symbol, and that this holds is guarded.

What size a computed tensor has is found by asking (``Shapes``): the calls that made it are repeated, without data, for
a few other sizes. What fits all answers is a formula of the symbols (``Space``), and so a live number again. Where none
fits, or where a size decides what is written down, the symbols are settled: guarded by value, and constants from there
on.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from .. import events
from ..backends.shapes import Shapes
from ..marks import size_marks
from ..tensors.sizes import Formula, NoFormula, Point, Space
from ..tensors.strides import packed_order, packed_stride
from . import live, torch_calls
from .growing import NOTHING
from .guards import Guard
from .metadata import TENSOR_TYPES, open_facts
from .recorder import Handle
from .sources import Source, is_module_state

LEAST = 2
"""Sizes below this are guarded by value."""

OTHER = 1
"""The point of sizes other than those that were seen."""

FAR = (16, 4, 2)
"""How far beyond the size that was seen formulas are tried, as factors: the first that the program can have. It may
have an end, as a table of positions has."""

MOST_SIZE = 1 << 40

MOST_ELEMENTS = 1 << 26
"""Inputs that would have more are not tried: some operators are asked for shapes by running them."""


class Place(NamedTuple):
    """A dimension of an input."""

    path: tuple
    dim: int


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be open."""

    changed: Mapping[Place, tuple[int, int]]
    """Dimensions that were another size before, and both sizes: `growing.NOTHING`, where that is only expected."""
    all: bool = False
    """Every dimension of every tensor that is no parameter or buffer."""
    closed: frozenset[Place] = frozenset()
    """But not these: their size decided something before."""

    @property
    def is_expected(self) -> bool:
        """Whether one of them has not been seen to change."""
        return any(before == NOTHING for before, _ in self.changed.values())


class Like(NamedTuple):
    """What an example of a tensor must have, without holding on to the tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    offset: int
    is_inference: bool

    @classmethod
    def of(cls, x: torch.Tensor) -> Like:
        return cls(tuple(x.shape), x.stride(), x.dtype, x.device, x.requires_grad, x.storage_offset(), x.is_inference())

    def made(self) -> torch.Tensor:
        """Of memory that nobody touches."""
        with torch.inference_mode(self.is_inference):
            if not self.offset:
                x = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)
            else:
                far = sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True)) + 1
                x = torch.empty(self.offset + max(far, 0), dtype=self.dtype, device=self.device).as_strided(
                    self.shape, self.stride, self.offset)
        return x.requires_grad_() if self.requires_grad else x


@dataclass(frozen=True, slots=True)
class OpenInputs:
    """What a backend is told of a graph with open sizes: which examples there could be besides the one seen."""

    space: Space
    given: Sequence[Any]
    """The inputs as they were: a Like for each tensor, and numbers."""
    shapes: Mapping[int, Sequence[int | Formula]]
    """Of the inputs that are tensors with open dimensions."""
    orders: Mapping[int, tuple[int, ...]]
    """The order of dimensions in which these lie in memory, from the fastest to the slowest."""
    numbers: Mapping[int, Callable[[Point], Any]]
    """Of the inputs that are numbers and follow from the sizes: how."""

    def examples(self, point: Point) -> list[Any]:
        """The inputs for these sizes."""
        made: list[Any] = []
        for k, like in enumerate(self.given):
            if k in self.shapes:
                sizes = tuple([size if isinstance(size, int) else size.at(point) for size in self.shapes[k]])
                like = like._replace(shape=sizes, stride=packed_stride(sizes, self.orders[k]))
            if isinstance(like, Like):
                made.append(like.made())
            else:
                made.append(self.numbers[k](point) if k in self.numbers else like)
        return made


class OpenSizes:
    """Of one trace."""

    def __init__(self, tracer: Any, wish: Wish):
        self.tracer, self.wish = tracer, wish
        self.leaves: list[live.Expression] = []
        """A symbol is known by the expression that reads it."""
        self.hints: list[int] = []
        self.places: list[Place] = []
        self.moves: list[tuple[int, int] | None] = []
        self.most: dict[int, int] = {}
        """Of symbols that the program compares with the end of something, as of a table of positions: that end."""
        self.settled: set[int] = set()
        """Symbols that are guarded by value."""
        self.given: dict[int, tuple[torch.Tensor, tuple[Any, ...], tuple[int, ...]]] = {}
        """Of inputs with open dimensions, by id, the shape, of numbers and live numbers, and the order in memory."""
        self.of_leaf: dict[int, tuple[int, int]] = {}
        """By the expression's id: the symbol, and what is added to it."""
        self.canonical: dict[tuple[int, ...], live.Expression] = {}
        """By its values at the points."""
        self.answers: dict[tuple, Any] = {}
        """Of inputs and calls, at the points."""
        self.closed: set[Any] = set()
        """Those among them that are the same at all points: the answer at the first stands for all."""
        self.parts: dict[int, list[Any]] = {}
        """What each call is given, as handles."""
        self.probe: Shapes | None = None
        self.around: tuple[Space, list[Point]] | None = None
        self.far = 0
        """Which of FAR; behind the last, formulas are known to hold near the sizes that were seen only."""

    # ---- inputs

    def admit(self, tensor: torch.Tensor, source: Source) -> Guard | None:
        """The guard of an input that has open dimensions; None where it has none."""
        order = None
        if tensor.layout is torch.strided and not is_module_state(source):
            order = packed_order(tuple(tensor.shape), tensor.stride())
        dims = () if order is None else self.wanted(tensor, source)
        if order is None or not dims:
            return None
        shape: list[Any] = list(tensor.shape)
        for dim in dims:
            leaf = live.Expression(None, (source.attr("shape").item(dim),))
            shape[dim] = self.opened(leaf, Place(source.path(), dim), tensor.shape[dim])
            least, most = size_marks(tensor).bounds.get(dim, (None, None))
            if least is not None and least > LEAST:
                self.tracer.guard_outcome(live.Expression(operator.ge, (leaf, least)), True)
            if most is not None:
                self.tracer.guard_outcome(live.Expression(operator.le, (leaf, most)), True)
        self.given[id(tensor)] = tensor, tuple(shape), order
        while self.far < len(FAR) and self.largest() * FAR[self.far] ** len(self.hints) > MOST_ELEMENTS:
            self.come_nearer()
        return Guard("open tensor", source, (open_facts(tensor, dims, order), dims, order))

    def wanted(self, tensor: torch.Tensor, source: Source) -> tuple[int, ...]:
        path = source.path()
        marks = size_marks(tensor)
        return tuple(dim for dim, size in enumerate(tensor.shape)
                     if size >= LEAST and dim not in marks.static and Place(path, dim) not in self.wish.closed
                     and (self.wish.all or dim in marks.open or Place(path, dim) in self.wish.changed))

    def opened(self, leaf: live.Expression, place: Place, size: int) -> Any:
        """The size as a live number: a new symbol, or one that is known, and something added to it."""
        move = self.wish.changed.get(place)
        for number, hint in enumerate(self.hints):
            other = self.moves[number]
            if size == hint and (move is None or other is None or move == other):
                added = 0
            elif move is not None and other is not None and move[1] - move[0] == other[1] - other[0] != 0:
                added = size - hint
            else:
                continue
            base = self.leaves[number]
            expected = base if not added else live.Expression(operator.add, (base, added))
            self.tracer.guard_outcome(live.Expression(operator.eq, (leaf, expected)), True)
            break
        else:
            number, added = len(self.hints), 0
            self.hints.append(size)
            self.leaves.append(leaf)
            self.places.append(place)
            self.moves.append(move)
            self.forget()
            if self.far == len(FAR):
                self.bound(number)
        self.of_leaf[id(leaf)] = number, added
        self.tracer.guard_outcome(live.Expression(operator.ge, (leaf, LEAST)), True)
        return live.make(size, leaf, self.tracer)

    # ---- numbers

    @property
    def is_any(self) -> bool:
        return len(self.settled) < len(self.hints)

    def space(self) -> Space:
        return self.surroundings()[0]

    def points(self) -> list[Point]:
        """Those of the space, and one far away."""
        return self.surroundings()[1]

    def surroundings(self) -> tuple[Space, list[Point]]:
        if self.around is None:
            space = Space.around({f"s{k}": hint for k, hint in enumerate(self.hints)},
                                 {f"s{k}": most for k, most in self.most.items()})
            points = list(space.points)
            if self.far < len(FAR):
                points.append(tuple(min(FAR[self.far] * hint + 5 + k, self.most.get(k, MOST_SIZE))
                                    for k, hint in enumerate(self.hints)))
            self.around = space, points
        return self.around

    def largest(self) -> int:
        """How many elements the largest input of open sizes has."""
        return max((tensor.numel() for tensor, *_ in self.given.values()), default=1)

    def values(self, expression: Any) -> tuple[int, ...] | None:
        """What a number that follows from the sizes alone is at the points."""
        if not isinstance(expression, live.Expression):
            return (expression,) * len(self.points()) if type(expression) is int else None
        if expression.in_graph:
            return None
        if expression.operation is None:
            known = self.of_leaf.get(id(expression))
            return None if known is None else tuple([point[known[0]] + known[1] for point in self.points()])
        operands = [self.values(operand) for operand in expression.operands]
        if None in operands:
            return None
        try:
            found = tuple([expression.operation(*values) for values in zip(*operands, strict=True)])  # type: ignore
        except (ArithmeticError, TypeError, ValueError):
            return None
        return found if all(type(value) is int for value in found) else None

    def takes(self, value: Any) -> bool:
        """Whether a live number follows from the sizes alone: calls may have it as it is."""
        return type(value) is live.LiveInt and self.is_any and self.values(value.expression) is not None

    def one_of(self, value: Any) -> Any:
        """Of equal numbers always the same, so that a graph has one input for them."""
        values = self.values(value.expression)
        if values is None:
            return value
        expression = self.canonical.setdefault(values, value.expression)
        return value if expression is value.expression else live.make(value.plain(), expression, self.tracer)

    def note_settled(self, expression: live.Expression) -> None:
        """A number is guarded by value."""
        self.settled.update(self.symbols_of(expression))

    def symbols_of(self, expression: Any) -> set[int]:
        if not isinstance(expression, live.Expression) or expression.in_graph:
            return set()
        known = self.of_leaf.get(id(expression))
        if known is not None:
            return {known[0]}
        if expression.operation is None:
            return set()
        return {symbol for operand in expression.operands for symbol in self.symbols_of(operand)}

    def settle_all(self, why: str) -> None:
        """From here on every size is a constant."""
        if self.is_any:
            events.emit("guards.sizes", text=f"compiled for one size: {why}")
        for number, leaf in enumerate(self.leaves):
            if number not in self.settled:
                self.settled.add(number)
                self.tracer.guard_value(leaf, self.hints[number])

    # ---- shapes

    def shape_of(self, tensor: torch.Tensor) -> tuple[Any, ...] | None:
        """The shape with live numbers in it; None where it is the same for all sizes, or not to be told."""
        if not self.is_any:
            return None
        given = self.given.get(id(tensor))
        if given is not None and given[0] is tensor:
            return given[1]
        recorder = self.tracer.recorder
        handle = recorder.handle_of(tensor)
        if handle is None:
            return None  # an input whose shape is guarded
        found = None
        while found is None:
            try:
                found = self.computed(handle, tuple(tensor.shape))
            except Exception as error:  # whatever cannot be told is not open
                if self.far == len(FAR):
                    self.settle_all(f"{error}")
                    return None
                self.come_nearer()
        return found if any(isinstance(size, live.LiveInt) for size in found) else None

    def come_nearer(self) -> None:
        """The program cannot have sizes so far away."""
        self.far += 1
        self.forget()
        if self.far == len(FAR):
            for number in range(len(self.hints)):
                self.bound(number)

    def bound(self, number: int) -> None:
        most = max(point[number] for point in self.space().points)
        self.tracer.guard_outcome(live.Expression(operator.le, (self.leaves[number], most)), True)

    def forget(self) -> None:
        self.probe = self.around = None
        self.answers.clear()
        self.closed.clear()
        self.canonical.clear()

    def computed(self, handle: Any, seen: tuple[int, ...]) -> tuple[Any, ...]:
        """The shape of a value that calls have made, of which this one was seen."""
        shapes = [tuple(self.made(handle, 0).shape)]
        if self.key(handle) not in self.closed:
            shapes += [tuple(self.made(handle, k).shape) for k in range(1, len(self.points()))]
        if shapes[0] != seen or len({len(shape) for shape in shapes}) > 1:
            raise NoFormula(f"a tensor of shape {list(seen)} is thought to be {list(shapes[0])}")
        return tuple(map(self.size, zip(*shapes, strict=True)))

    def size(self, values: tuple[int, ...]) -> Any:
        if len(set(values)) == 1:
            return values[0]
        expression = self.canonical.get(values)
        if expression is None:
            space = self.space()
            fit = space.fit(values[:len(space.points)])
            assert isinstance(fit, Formula)
            if any(fit.at(point) != value for point, value in zip(self.points(), values, strict=True)):
                raise NoFormula(f"{fit} does not hold far away")
            expression = self.canonical[values] = self.expression(fit)
        return live.make(values[0], expression, self.tracer)

    def expression(self, formula: Formula) -> live.Expression:
        total: Any = None
        for factor, powers in formula.terms:
            term: Any = factor if factor != 1 or not any(powers) else None
            for leaf, power in zip(self.leaves, powers, strict=True):
                for _ in range(power):
                    term = leaf if term is None else live.Expression(operator.mul, (term, leaf))
            total = term if total is None else live.Expression(operator.add, (total, term))
        return total

    def made(self, handle: Any, number: int) -> Any:
        """What the calls that lead to a value answer at a point.

        Most calls of a model have to do with no open size, or what comes of it has none: what follows from there is
        asked once for all points. A trace takes no call that gives a tensor another shape in place, so it does not
        matter that points share tensors."""
        calls = self.tracer.recorder.calls
        if self.probe is None:
            self.probe = Shapes()
        stack = [handle]
        while stack:
            at = stack[-1]
            key = self.key(at)
            if self.place(key, number) in self.answers:
                stack.pop()
                continue
            if at.call is None:
                if not self.is_open_input(at):
                    self.closed.add(key)
                self.answers[self.place(key, number)] = self.input_at(at, number)
                continue
            given = self.given_to(at.call)
            missing = [part for part in given if self.place(self.key(part), number) not in self.answers]
            if missing:
                stack += missing
                continue
            if all(self.key(part) in self.closed for part in given):
                self.closed.add(key)
            call = calls[at.call]
            self.answers[self.place(key, number)] = self.probe.call(
                call.target, self.filled(call.args, number), self.filled(call.kwargs, number))
            if number == len(self.points()) - 1 and key not in self.closed and all(
                    (key, k) in self.answers and is_alike(self.answers[key, k], self.answers[key, number])
                    for k in range(number)):
                self.closed.add(key)
        return self.part(handle, number)

    def key(self, handle: Any) -> Any:
        return ("input", handle.key) if handle.call is None else handle.call

    def place(self, key: Any, number: int) -> tuple:
        """Where among the answers the one at a point is."""
        return key, 0 if key in self.closed else number

    def given_to(self, call: int) -> list[Any]:
        found = self.parts.get(call)
        if found is None:
            made = self.tracer.recorder.calls[call]
            found = self.parts[call] = _handles((made.args, made.kwargs))
        return found

    def is_open_input(self, handle: Any) -> bool:
        example = self.tracer.recorder.examples[handle.key]
        if isinstance(example, torch.Tensor):
            return id(example) in self.given
        return self.values(handle.source) is not None

    def part(self, handle: Any, number: int) -> Any:
        value = self.answers[self.place(self.key(handle), number)]
        for step in handle.path:
            value = value[step]
        return value

    def input_at(self, handle: Any, number: int) -> Any:
        example = self.tracer.recorder.examples[handle.key]
        if isinstance(example, torch.Tensor):
            given = self.given.get(id(example))
            if given is None:
                return self.probe.input(example)
            shape = [size if type(size) is int else self.values(size.expression)[number]  # type: ignore[index]
                     for size in given[1]]
            return self.probe.input(example, shape, given[2])
        values = self.values(handle.source)
        return example if values is None else values[number]

    def filled(self, tree: Any, number: int) -> Any:
        if hasattr(tree, "call") and hasattr(tree, "path"):
            return self.part(tree, number)
        if type(tree) in (tuple, list):
            return type(tree)(self.filled(part, number) for part in tree)
        if type(tree) is dict:
            return {key: self.filled(part, number) for key, part in tree.items()}
        if type(tree) is slice:
            return slice(*(self.filled(part, number) for part in (tree.start, tree.stop, tree.step)))
        return tree

    def check_calls(self) -> None:
        """At the end: every call must be one for other sizes too. ``x @ w`` is not, where the size is that of ``w``."""
        if not self.is_any:
            return
        recorder = self.tracer.recorder
        cannot: set[int] = set()
        for at, call in enumerate(recorder.calls):
            parts = self.given_to(at)
            if any(part.call in cannot for part in parts):
                cannot.add(at)
                continue
            if torch_calls.name_of(call.target) == "squeeze" and parts:
                self.ask_whether_one(parts[0])
            try:
                self.made(Handle(at), OTHER)
            except Exception as error:
                try:
                    self.made(Handle(at), 0)
                except Exception:
                    cannot.add(at)  # it cannot be repeated for the size that was seen either: this tells nothing
                else:
                    self.settle_all(f"{torch_calls.name_of(call.target)} needs this size: {error}")
                    return

    def ask_whether_one(self, handle: Any) -> None:
        """A dimension of one element would be gone: whether it is one is guarded."""
        try:
            shapes = [tuple(self.made(handle, k).shape) for k in range(len(self.points()))]
            for size in map(self.size, zip(*shapes, strict=True)):
                size == 1  # noqa: B015  # asking is what guards
        except Exception as error:
            self.settle_all(f"{error}")

    # ---- what a size decides

    def asked(self, name: str, tensor: torch.Tensor, arguments: Sequence[Any]) -> Any:
        """The answer to ``x.size(0)`` and the like, or None where the plain answer is right."""
        shape = self.shape_of(tensor)
        if shape is None:
            return None
        if name in ("shape", "size") and not arguments:
            return torch.Size(shape)
        if name == "size" and type(arguments[0]) is int and -len(shape) <= arguments[0] < len(shape):
            return shape[arguments[0]]
        if name == "__len__":
            return shape[0]
        if name in ("numel", "nelement"):
            total: Any = 1
            for size in shape:
                total = size * total if isinstance(size, live.LiveInt) else total * size
            return total
        self.close(tensor)
        return None

    def close(self, tensor: Any) -> None:
        """Somebody learns of a tensor's size without our seeing the number."""
        shape = self.shape_of(tensor) if type(tensor) in TENSOR_TYPES else None
        for size in shape or ():
            live.settled(size)

    def close_first(self, tensor: Any) -> None:
        """It is taken apart along its first dimension."""
        shape = self.shape_of(tensor) if type(tensor) in TENSOR_TYPES else None
        if shape:
            live.settled(shape[0])

    def close_parted(self, name: str, given: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        """A call has answered several tensors: how many there are may depend on a size."""
        if name in torch_calls.ALSO_PARTING:
            for value in given:
                self.close(value)
        position = torch_calls.PARTING.get(name)
        if position is None or not given:
            return
        shape = self.shape_of(given[0])
        dim = keywords.get("dim", given[position] if len(given) > position else 0)
        if shape is not None and type(dim) is int and -len(shape) <= dim < len(shape):
            live.settled(shape[dim])
        elif shape is not None:
            self.close(given[0])

    def check_slices(self, tensor: torch.Tensor, key: Any) -> None:
        """A bound beyond the end is the end: on which side of it a live one lies is guarded."""
        parts = key if type(key) is tuple else (key,)
        shape = self.shape_of(tensor) or tuple(tensor.shape)
        consumed = [part for part in parts if part is not None and part is not Ellipsis]
        at = 0
        for part in parts:
            if part is None:
                continue
            if part is Ellipsis:
                at += len(shape) - len(consumed)
                continue
            if isinstance(part, (torch.Tensor, bool)):
                at += part.ndim if isinstance(part, torch.Tensor) and part.dtype is torch.bool else 1
                continue
            if at < len(shape):
                self.check_part(part, shape[at])
            at += 1

    def check_part(self, part: Any, size: Any) -> None:
        if type(part) is not slice:
            return
        if isinstance(part.step, live.Live) or part.step not in (None, 1) and isinstance(size, live.Live):
            live.settled(part.step)
            live.settled(size)
        for bound in (part.start, part.stop):
            if bound is None or not (isinstance(bound, live.Live) or isinstance(size, live.Live)):
                continue
            if bound < 0:
                bound = bound + size
                bound < 0  # noqa: B015  # asking is what guards
            if bound <= size and type(size) is int:
                self.note_end(bound, size)
        if part.start is not None and part.stop is not None and (
                isinstance(part.start, live.Live) or isinstance(part.stop, live.Live)):
            part.start <= part.stop  # noqa: B015

    def note_end(self, bound: Any, end: int) -> None:
        """A size, or a size and something added, is at most this: no other ones are tried."""
        known = self.of_leaf.get(id(bound.expression)) if isinstance(bound, live.LiveInt) else None
        if known is None:
            operation, operands = getattr(bound, "expression", None) and (
                bound.expression.operation, bound.expression.operands) or (None, ())
            if operation is not operator.add or len(operands) != 2 or type(operands[1]) is not int:
                return
            known = self.of_leaf.get(id(operands[0]))
            if known is None:
                return
            known = known[0], known[1] + operands[1]
        symbol, added = known
        if end - added < self.most.get(symbol, MOST_SIZE):
            self.most[symbol] = end - added
            self.forget()

    # ---- for the backend

    def inputs(self) -> OpenInputs | None:
        """None where every size turned out to be a constant."""
        left = [k for k in range(len(self.hints)) if k not in self.settled]
        if not left:
            return None
        space = Space.around({f"s{k}": self.hints[k] for k in left},
                             {f"s{k}": most for k, most in self.most.items()})
        leaves, hints = dict(self.of_leaf), tuple(self.hints)

        def number(expression: live.Expression) -> Callable[[Point], Any]:
            def at(point: Point) -> Any:
                whole = list(hints)
                for k, value in zip(left, point, strict=True):
                    whole[k] = value
                return evaluated(expression, leaves, whole)
            return at

        recorder = self.tracer.recorder
        shapes, orders, numbers = {}, {}, {}
        for k, (handle, example) in enumerate(zip(recorder.inputs, recorder.examples, strict=True)):
            if isinstance(example, torch.Tensor):
                given = self.given.get(id(example))
                if given is not None and any(isinstance(size, live.LiveInt) for size in given[1]):
                    shapes[k] = [size if type(size) is int else space.fit(list(map(
                        number(size.expression), space.points))) for size in given[1]]
                    orders[k] = given[2]
            elif self.follows(handle.source):
                numbers[k] = number(handle.source)
        likes = [Like.of(x) if is_plain(x) else x for x in recorder.examples]
        return OpenInputs(space, likes, shapes, orders, numbers)

    def follows(self, expression: Any) -> bool:
        """Whether a number is known where the sizes are."""
        if not isinstance(expression, live.Expression):
            return not hasattr(expression, "base")
        if expression.in_graph:
            return False
        return id(expression) in self.of_leaf or expression.operation is not None and all(
            map(self.follows, expression.operands))


def is_plain(x: Any) -> bool:
    """Whether it is a tensor that another one can stand for. The compiler refuses what is not."""
    return type(x) in TENSOR_TYPES and x.layout is torch.strided and not (x.is_conj() or x.is_neg())


def is_alike(a: Any, b: Any) -> bool:
    """Whether two answers are the same but for being other tensors."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        known, other = getattr(a, "value", None), getattr(b, "value", None)  # of those without data
        return a is b or known is not None and other is not None and known.type == other.type and (
            a.storage_offset(), a.is_conj(), a.is_neg()) == (b.storage_offset(), b.is_conj(), b.is_neg())
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(is_alike, a, b))
    return type(a) is type(b) and type(a) in (int, bool, type(None)) and a == b


def evaluated(expression: Any, leaves: Mapping[int, tuple[int, int]], point: Sequence[int]) -> Any:
    if not isinstance(expression, live.Expression):
        return expression
    if expression.operation is None:
        symbol, added = leaves[id(expression)]
        return point[symbol] + added
    return expression.operation(*(evaluated(operand, leaves, point) for operand in expression.operands))


def _handles(tree: Any) -> list[Any]:
    if hasattr(tree, "call") and hasattr(tree, "path"):
        return [tree]
    if type(tree) in (tuple, list):
        return [handle for part in tree for handle in _handles(part)]
    if type(tree) is dict:
        return [handle for part in tree.values() for handle in _handles(part)]
    if type(tree) is slice:
        return _handles((tree.start, tree.stop, tree.step))
    return []


def changed_sizes(guards: Iterable[Guard], read: Callable[[Source], Any]) -> dict[Place, tuple[int, int]]:
    """The dimensions of tensors that are another size now than the guards say.

    Guards stand in the order in which the program read things: what comes after one that says what something is may be
    read only where that holds."""
    found: dict[Place, tuple[int, int]] = {}
    for kind, source, expected in guards:
        if kind == "type" and type(read(source)) is not expected:  # type: ignore[arg-type]
            break
        if kind == "is" and read(source) is not expected:  # type: ignore[arg-type]
            break
        if kind not in ("tensor", "open tensor") or not expected:
            continue
        now = read(source)  # type: ignore[arg-type]
        facts = expected[0] if kind == "open tensor" else expected
        if not facts or type(now) is not facts[0]:
            break
        shape = facts[2]
        if shape is not None and now.layout is torch.strided and now.ndim == len(shape):
            for dim, (before, size) in enumerate(zip(shape, now.shape, strict=True)):
                if before is not None and before != size and before >= LEAST <= size:
                    found[Place(source.path(), dim)] = before, size  # type: ignore[union-attr]
    return found
