"""Templates: how the results and side effects of a segment are made again on the next run.

At its end a segment holds real objects: tensors the graph computed, containers and instances it made, outside objects
it passes on. ``Rebuilder`` writes the Python function that makes the same structure from this run's values:

    def finish(V, G):            # V: values read by the check, G: the graph's outputs
        t0 = [G[0], V[2]]        # a fresh list
        d1 = V[0].__dict__
        d1['count'] = 4          # an effect
        return t0

Objects are built once each, so sharing and cycles survive.
"""

from __future__ import annotations

import collections
import functools
import gc
import types
import warnings
import weakref
from types import CellType, FunctionType, MethodType
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from ..engine.graph_recorder import Recorder
from ..engine.heap import Heap
from ..engine.interpreted_or_native import is_trusted_type, is_user_type
from ..engine.object_kinds import SINGLETON_IDS
from ..engine.recorded_calls import Handle
from ..guards.guards import CheckWriter
from ..guards.object_sources import Source
from ..guards.tensor_metadata import WithoutRules
from ..interpreter import tracebacks
from ..interpreter.frames import Frame, Generator, cell_value
from ..numbers import numpy_arrays, numpy_kinds
from ..numbers.live_scalars import Live
from ..python import operators
from ..python.dictionary_iterators import TABLE_ITERATORS, advanced, itself, keys_of, ordered_view, table_of
from ..python.messages import warning_filters
from ..pytorch import tensor_object_state
from ..pytorch.backward_and_grad import no_view
from .template_runtime import attributes_of_partial, generator_shell, link_generator, make_frame, set_state
from .unrebuildable_object import Unrebuildable

VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
PLAIN_OWNERS = frozenset((list, dict, set, tuple, str, int, float, bytes, collections.deque, torch.Tensor))
# C classes of which an empty object and its Python-side content are all there is.
LAID_OUT = frozenset(
    (
        object,
        dict,
        list,
        set,
        collections.deque,
        collections.OrderedDict,
        collections.defaultdict,
        torch.nn.Module,
        types.SimpleNamespace,
    )
)
LITERALS = frozenset((int, str, bytes, bool, type(None)))


class Rebuilder:
    def __init__(self, tracer: Any):
        self.m = tracer
        self.heap: Heap = tracer.heap
        self.recorder: Recorder = tracer.recorder
        self.writer = CheckWriter()  # for its constants only
        self.lines: list[str] = []
        self.memo: dict[int, str] = {}
        self.keep: list[Any] = []
        self.sources: dict[int, tuple[int, Source]] = {}
        self.outputs: list[Handle] = []
        self.output_at: dict[int, int] = {}
        self.in_inference_mode: list[bool | None] = []
        """Of each output whether it was made there; None of what is not a tensor."""
        self.active: dict[int, int] = {}  # generators whose frame is running: index of the frame
        self.clones: dict[int, str] = {}
        self.leaves = False  # what is built goes back to plain Python: nothing here will advance it
        self.own_gradients = tracer.gradients.without_views()

    # ---- pieces

    def constant(self, value: Any) -> str:
        return self.writer.constant(value)

    def variable(self) -> str:
        return f"t{len(self.keep)}"

    def name(self, value: Any, expression: str) -> str:
        """Bind ``expression`` to a variable that stands for ``value``."""
        name = self.variable()
        self.keep.append(value)
        self.memo[id(value)] = name
        self.lines.append(f"{name} = {expression}")
        return name

    def source(self, source: Source) -> str:
        if source.kind == "const":
            return self.constant(source.key)
        at = self.sources.get(id(source))
        if at is None:
            at = self.sources[id(source)] = (len(self.sources), source)
        return f"V[{at[0]}]"

    def output(self, handle: Handle, value: Any = None) -> str:
        at = self.output_at.get(id(handle))
        if at is None:
            at = self.output_at[id(handle)] = len(self.outputs)
            self.outputs.append(handle)
            with WithoutRules():
                self.in_inference_mode.append(value.is_inference() if isinstance(value, torch.Tensor) else None)
        return f"G[{at}]"

    # ---- values

    def build(self, value: Any) -> str:
        kind = type(value)
        if kind in LITERALS or id(value) in SINGLETON_IDS:
            return self.constant(value)
        known = self.memo.get(id(value))
        if known is not None:
            return known
        if issubclass(kind, Live):  # asked of the class: a weak proxy asks what it points to, which may be gone
            return self.live(value)
        if issubclass(kind, torch.Tensor):
            return self.tensor(value)
        origin = self.heap.origin_of(value)
        if origin is not None:
            return self.source(origin.source)
        handle = self.recorder.handle_of(value)
        if handle is not None:
            return self.name(value, self.output(handle, value))
        builder = BUILDERS.get(kind)
        if builder is not None:
            return builder(self, value)
        return self.other(value)

    def live(self, value: Any) -> str:
        expression = value.expression
        if expression.operation is None:
            return self.source(expression.operands[0])
        return expression.render(_SourceNames(self))

    def tensor(self, value: torch.Tensor) -> str:
        origin = self.heap.origin_of(value)
        handle = self.recorder.handle_of(value)
        if origin is not None:
            return self.source(origin.source)
        if handle is None:
            raise Unrebuildable(value)
        if handle.call is None:
            return self.name(value, self.source(handle.source))
        output = self.output(handle, value)
        name = self.name(value, f"{self.constant(no_view)}({output})" if id(value) in self.own_gradients else output)
        attributes = value.__dict__ if type(value) in (torch.Tensor, torch.nn.Parameter) else {}
        for key, part in attributes.items():
            self.lines.append(f"{name}.__dict__[{key!r}] = {self.build(part)}")
        if id(value) in self.m.gradients.made_here:
            self.lines.append(f"{name}.grad = {self.build(value.grad)}")
        return name

    def other(self, value: Any) -> str:
        kind = type(value)
        if isinstance(value, torch._C._InferenceMode):
            raise Unrebuildable(value)
        if self.heap.has_fixed_meaning(value) and id(value) not in self.heap.fresh:
            return self.constant(value)
        if kind in operators.ITERATORS or kind.__module__ == "itertools":
            return self.iterator(value)
        if isinstance(value, BaseException):
            return self.exception(value)
        if isinstance(value, tuple):
            return self.tuple_like(value)
        if kind.__module__ == "operator":  # itemgetter and the like
            maker, parts = value.__reduce__()
            return self.name(value, f"{self.constant(maker)}({', '.join([self.build(part) for part in parts])})")
        if (
            isinstance(value, (dict, list, set, collections.deque))
            or id(value) in self.heap.fresh
            or is_user_type(kind)
            and hasattr(value, "__dict__")
            and id(value) in self.heap.fresh
        ):
            return self.instance(value)
        if (
            kind in operators.SIMPLE
            or kind in numpy_kinds.VALUES
            or isinstance(value, (types.ModuleType, type, types.TracebackType))
        ):
            return self.constant(value)
        if is_trusted_type(kind) and kind.__module__ in SHARED_MODULES:
            return self.constant(value)
        raise Unrebuildable(value)

    def sequence(self, value: Any) -> str:
        kind = type(value)
        if kind is tuple:
            parts = [self.build(v) for v in value]
            return self.name(value, f"({', '.join(parts)}{',' if len(parts) == 1 else ''})")
        if kind is list:
            name = self.name(value, "[]")
            parts = [self.build(v) for v in value]
            if parts:
                self.lines.append(f"{name} += [{', '.join(parts)}]")
            return name
        parts = [self.build(v) for v in value]
        return self.name(value, f"{self.constant(kind)}([{', '.join(parts)}])")

    def dictionary(self, value: dict) -> str:
        name = self.name(value, "{}")
        for k, v in value.items():
            key, part = self.build(k), self.build(v)
            self.lines.append(f"{name}[{key}] = {part}")
        return name

    def ordered(self, value: Any) -> str:
        made = self.constant(type(value))
        factory = self.build(value.default_factory) if isinstance(value, collections.defaultdict) else ""
        name = self.name(value, f"{made}({factory})")
        for k, v in value.items():
            key, part = self.build(k), self.build(v)
            self.lines.append(f"{name}[{key}] = {part}")
        return name

    def deque(self, value: Any) -> str:
        name = self.name(value, f"{self.constant(collections.deque)}([], {value.maxlen})")
        parts = [self.build(v) for v in value]
        self.lines.append(f"{name}.extend([{', '.join(parts)}])")
        return name

    def tuple_like(self, value: tuple) -> str:
        kind = type(value)
        parts = [self.build(v) for v in value]
        items = f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if kind is torch.Size:
            return f"{self.constant(torch.Size)}({items})"
        if kind.__module__ == "torch.return_types":
            return self.name(value, f"{self.constant(kind)}({items})")
        name = self.name(value, f"{self.constant(tuple.__new__)}({self.constant(kind)}, {items})")
        self.attributes(value, name)
        return name

    def slice_(self, value: slice) -> str:
        return f"slice({self.build(value.start)}, {self.build(value.stop)}, {self.build(value.step)})"

    def range_(self, value: range) -> str:
        return f"range({self.build(value.start)}, {self.build(value.stop)}, {self.build(value.step)})"

    def method(self, value: MethodType) -> str:
        function, owner = self.build(value.__func__), self.build(value.__self__)
        return self.name(value, f"{self.constant(MethodType)}({function}, {owner})")

    def builtin(self, value: Any) -> str:
        owner = value.__self__
        if owner is None or isinstance(owner, (types.ModuleType, type)):
            return self.constant(value)
        name = value.__name__
        if type(owner) in PLAIN_OWNERS:
            return self.name(value, f"({self.build(owner)}).{name}")
        # A subclass may override the method: take it from the class it was taken from.
        home = getattr(value, "__objclass__", None) or next(
            (
                b
                for b in type(owner).__mro__
                if b.__qualname__ == value.__qualname__.rpartition(".")[0] and name in b.__dict__
            ),
            None,
        )
        if home is None:
            return self.name(value, f"({self.build(owner)}).{name}")  # of a number, too
        return self.name(value, f"{self.constant(home.__dict__[name].__get__)}({self.build(owner)})")

    def view(self, value: Any) -> str:
        table = next(r for r in gc.get_referents(value) if isinstance(r, dict))
        method = {
            "dict_keys": "keys",
            "dict_values": "values",
            "dict_items": "items",
            "odict_keys": "keys",
            "odict_values": "values",
            "odict_items": "items",
        }[type(value).__name__]
        return self.name(value, f"{self.build(table)}.{method}()")

    def function(self, value: FunctionType) -> str:
        if id(value) not in self.heap.fresh:
            return self.constant(value)
        cells = [self.build(c) for c in value.__closure__ or ()]
        closure = f"({', '.join(cells)},)" if cells else "None"
        name = self.name(
            value,
            f"{self.constant(FunctionType)}({self.constant(value.__code__)}, "
            f"{self.constant(value.__globals__)}, {value.__name__!r}, None, {closure})",
        )
        if value.__defaults__:
            self.lines.append(f"{name}.__defaults__ = {self.build(value.__defaults__)}")
        if value.__kwdefaults__:
            self.lines.append(f"{name}.__kwdefaults__ = {self.build(value.__kwdefaults__)}")
        self.lines.append(f"{name}.__qualname__ = {value.__qualname__!r}")
        if value.__doc__ != (value.__code__.co_consts[0] if value.__code__.co_consts else None):
            self.lines.append(f"{name}.__doc__ = {self.build(value.__doc__)}")
        if value.__module__ != value.__globals__.get("__name__"):
            self.lines.append(f"{name}.__module__ = {value.__module__!r}")
        if value.__annotations__:
            self.lines.append(f"{name}.__annotations__ = {self.build(value.__annotations__)}")
        for key, part in value.__dict__.items():
            self.lines.append(f"{name}.__dict__[{key!r}] = {self.build(part)}")
        return name

    def cell(self, value: CellType) -> str:
        name = self.name(value, f"{self.constant(CellType)}()")
        content = cell_value(value)
        if id(content) not in SINGLETON_IDS or content is None or isinstance(content, bool):
            self.lines.append(f"{name}.cell_contents = {self.build(content)}")
        return name

    def partial(self, value: functools.partial) -> str:
        function, args, kwargs = self.build(value.func), self.build(value.args), self.build(value.keywords)
        name = self.name(value, f"{self.constant(functools.partial)}({function}, *{args}, **{kwargs})")
        for key, part in (attributes_of_partial(value) or {}).items():
            self.lines.append(f"{name}.__dict__[{key!r}] = {self.build(part)}")
        return name

    def weak(self, value: weakref.ref) -> str:
        target = value()
        return self.name(
            value, f"{self.constant(weakref.ref)}({self.build(target)})" if target is not None else self.constant(value)
        )

    def bytes_(self, value: bytearray) -> str:
        return self.name(value, f"{self.constant(bytearray)}({bytes(value)!r})")

    def super_(self, value: Any) -> str:
        return self.name(value, f"super({self.constant(value.__thisclass__)}, {self.build(value.__self__)})")

    def refuse(self, value: Any) -> str:
        raise Unrebuildable(value)

    def iterator(self, value: Any) -> str:
        """Builtin iterators say how to make them again through pickling's protocol."""
        if type(value) in TABLE_ITERATORS:
            return self.table_iterator(value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                maker, args, *state = value.__reduce__()
            except TypeError as error:
                raise Unrebuildable(value) from error
        parts = [self.build(a) for a in args]
        name = self.name(value, f"{self.constant(maker)}({', '.join(parts)})")
        if state and state[0] is not None:
            self.lines.append(f"{self.constant(set_state)}({name}, {self.build(state[0])})")
        return name

    def table_iterator(self, value: Any) -> str:
        """An iterator over a dictionary or set: over the very table, so that it notices when the table changes."""
        table = table_of(value)
        if table is None:
            view, step = TABLE_ITERATORS[type(value)]
            empty = set() if view is itself else {} if view is not None else collections.OrderedDict()
            return self.name(
                value, f"{self.constant(step or iter)}({self.constant(view or itself)}({self.constant(empty)}))"
            )
        try:
            left = len(value.__reduce__()[1][0])
        except RuntimeError as error:  # the table has changed, which the next step will tell the program
            raise Unrebuildable(value) from error
        origin = self.heap.origin_of(table)
        if (
            origin is not None
            and self.heap.changed(origin)
            and (origin.snapshot is None or keys_of(origin.snapshot, table) != list(table))
        ):
            raise Unrebuildable(value)  # the table is changed after its iterator is made here
        view, step = TABLE_ITERATORS[type(value)]
        if view is None:  # an ordered dictionary's: keys, values and items look alike
            known = ordered_view(table, value)
            if known is None:
                raise Unrebuildable(value)
            view, step = known
        return self.name(
            value,
            f"{self.constant(advanced)}({self.constant(step)}({self.constant(view)}({self.build(table)})), "
            f"{len(table) - left})",
        )

    def exception(self, value: BaseException) -> str:
        args = ", ".join(self.build(a) for a in value.args)
        name = self.name(value, f"{self.constant(type(value))}.__new__({self.constant(type(value))}, {args})")
        self.lines.append(f"{name}.args = ({args}{',' if len(value.args) == 1 else ''})")
        self.attributes(value, name)
        for field in ("__cause__", "__context__"):
            part = getattr(value, field)
            if part is not None:
                self.lines.append(f"{name}.{field} = {self.build(part)}")
        self.lines.append(f"{name}.__suppress_context__ = {value.__suppress_context__}")
        passed = tracebacks.passed(value.__traceback__)
        if passed:
            self.lines.append(f"{name}.__traceback__ = {self.constant(tracebacks.of_passed)}({self.constant(passed)})")
        for field in {
            StopIteration: ("value",),
            AttributeError: ("name", "obj"),
            NameError: ("name",),
            ImportError: ("name", "path"),
            KeyError: (),
        }.get(type(value), ()):
            part = getattr(value, field, None)
            if part is not None and field != "obj":
                self.lines.append(f"{name}.{field} = {self.build(part)}")
        return name

    def instance(self, value: Any) -> str:
        kind = type(value)
        made = self.constant(kind)
        # The C class that lays the object out.
        base = next(
            b
            for b in kind.__mro__
            if not b.__flags__ & (1 << 9) or isinstance(b.__dict__.get("__new__"), types.BuiltinFunctionType)
        )
        if base not in LAID_OUT:
            raise Unrebuildable(value)
        name = self.name(value, f"{self.constant(base.__new__)}({made})")
        self.attributes(value, name)
        if isinstance(value, dict):
            store = self.constant(
                collections.OrderedDict.__setitem__ if isinstance(value, collections.OrderedDict) else dict.__setitem__
            )
            if isinstance(value, collections.defaultdict):
                self.lines.append(f"{name}.default_factory = {self.build(value.default_factory)}")
            for k, v in (
                dict.items(value)
                if not isinstance(value, collections.OrderedDict)
                else collections.OrderedDict.items(value)
            ):
                key, part = self.build(k), self.build(v)
                self.lines.append(f"{store}({name}, {key}, {part})")
        elif isinstance(value, list):
            parts = [self.build(v) for v in list.__iter__(value)]
            self.lines.append(f"{self.constant(list.extend)}({name}, [{', '.join(parts)}])")
        elif isinstance(value, (set, collections.deque)):
            parts = [self.build(v) for v in value]
            extend = set.update if isinstance(value, set) else collections.deque.extend
            self.lines.append(f"{self.constant(extend)}({name}, [{', '.join(parts)}])")
        return name

    def attributes(self, value: Any, name: str) -> None:
        for key, part in getattr(value, "__dict__", {}).items():
            self.lines.append(f"{name}.__dict__[{key!r}] = {self.build(part)}")
        for field, descriptor in slots_of(type(value)):
            try:
                part = descriptor.__get__(value)
            except AttributeError:
                continue
            self.lines.append(f"{self.constant(descriptor.__set__)}({name}, {self.build(part)})")
            del field

    def generator(self, value: Generator) -> str:
        parts = value.made_by() if self.leaves else None
        if parts is not None:
            args = [self.build(arg) for arg in parts[1]] + [f"{k}={self.build(arg)}" for k, arg in parts[2].items()]
            return self.name(value, f"{self.constant(parts[0])}({', '.join(args)})")
        name = self.name(
            value,
            f"{self.constant(generator_shell)}({value.__name__!r}, {value.__qualname__!r}, "
            f"{self.constant(value.code)}, {value.started})",
        )
        at = self.active.get(id(value))
        if at is None and value.frame is not None:
            frame = self.frame(value.frame)
            self.lines.append(f"{self.constant(link_generator)}({name}, {frame})")
        return name

    def frame(self, frame: Frame) -> str:
        values = ", ".join(self.build(v) for v in frame.locals)
        stack = ", ".join(self.build(v) for v in frame.stack)
        handling = self.build(frame.handling)
        return (
            f"{self.constant(make_frame)}({self.constant(frame.code)}, {self.constant(frame.globals)}, "
            f"{self.constant(frame.builtins)}, {frame.pc}, [{values}], [{stack}], {handling})"
        )


class _SourceNames:
    """Lets a live value's expression name its sources the way ``finish`` does."""

    def __init__(self, rebuilder: Rebuilder):
        self.rebuilder = rebuilder

    def load(self, source: Source) -> str:
        return self.rebuilder.source(source)

    def constant(self, value: Any) -> str:
        return self.rebuilder.constant(value)

    def graph_number(self, handle: Handle) -> str:
        return self.rebuilder.output(handle)


def slots_of(kind: type) -> list[tuple[str, Any]]:
    return [
        (name, member)
        for base in kind.__mro__
        if base.__flags__ & (1 << 9)
        for name, member in base.__dict__.items()
        if isinstance(member, types.MemberDescriptorType)
    ]


# Objects of these modules are immutable values: sharing one between runs is not seen.
SHARED_MODULES = frozenset(
    (
        "re",
        "inspect",
        "typing",
        "datetime",
        "decimal",
        "fractions",
        "torch",
        "types",
        "weakref",
        "operator",
        "string",
        "torch._C",
        "importlib.machinery",
    )
)
BUILDERS: dict[type, Any] = {
    list: Rebuilder.sequence,
    tuple: Rebuilder.sequence,
    set: Rebuilder.sequence,
    frozenset: Rebuilder.sequence,
    dict: Rebuilder.dictionary,
    collections.OrderedDict: Rebuilder.ordered,
    collections.defaultdict: Rebuilder.ordered,
    collections.Counter: Rebuilder.ordered,
    collections.deque: Rebuilder.deque,
    slice: Rebuilder.slice_,
    range: Rebuilder.range_,
    MethodType: Rebuilder.method,
    types.BuiltinFunctionType: Rebuilder.builtin,
    type("".__add__): Rebuilder.builtin,
    FunctionType: Rebuilder.function,
    CellType: Rebuilder.cell,
    functools.partial: Rebuilder.partial,
    super: Rebuilder.super_,
    bytearray: Rebuilder.bytes_,
    weakref.ref: Rebuilder.weak,
    Generator: Rebuilder.generator,
    RemovableHandle: tensor_object_state.build_handle,
    warnings.catch_warnings: warning_filters.build_block,
    numpy_kinds.ARRAY: numpy_arrays.build,
    **dict.fromkeys(
        (*VIEWS, *(type(getattr(collections.OrderedDict(), n)()) for n in ("keys", "values", "items"))), Rebuilder.view
    ),
}
