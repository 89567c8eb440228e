"""Code generation for side effects: changes of outside objects as lines of a segment's template.

print(t0)                    # a call, with its arguments as they were then
d1['count'] = 4              # a change
"""

from __future__ import annotations

import collections
import weakref
from types import CellType, MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from ..engine.break_signals import Unrebuildable
from ..engine.container_changes import KEYED, MANY, SELF, OtherSet
from ..engine.object_lifetimes import Origin, runs_code_at_the_end
from ..guards import set_iteration_order
from ..guards.builtin_container_subclasses import items_of
from ..interpreter.frames import UNBOUND, cell_value
from ..pytorch.backward_and_grad import set_gradients
from .rebuild_functions import build_frame
from .template_runtime import refill, suspend_generator

if TYPE_CHECKING:
    from .templates import Rebuilder


class Effects:
    """`to`: the rebuilder that receives the lines."""

    def __init__(self, to: Rebuilder):
        self.to = to

    def write(self) -> None:
        """Calls in order, then the changes of outside objects."""
        for effect in self.to.tracer.effects:
            args = [self.moment(a, effect.position) for a in effect.args]
            args += [f"{k}={self.moment(v, effect.position)}" for k, v in effect.kwargs.items()]
            self.to.lines.append(f"{self.to.constant(effect.function)}({', '.join(args)})")
        for origin in list(self.to.heap.origins.values()):
            if self.to.heap.changed(origin):
                self.change(origin)
        changed = self.to.tracer.gradients.changed()
        if changed:
            tensors = "".join(f"{self.to.source(origin.source)}, " for origin, _ in changed)
            gradients = "".join(f"{self.to.build(gradient)}, " for _, gradient in changed)
            self.to.lines.append(f"{self.to.constant(set_gradients)}(({tensors}), ({gradients}))")
        self.to.is_hidden = True
        for reference, source in self.to.heap.taken_over:
            generator = reference()
            if generator is None or id(generator) not in self.to.active:
                frame = "None"
                if generator is not None and generator.frame is not None:
                    frame = build_frame(self.to, generator.frame)
                started = generator is None or generator.started
                self.to.lines.append(
                    f"{self.to.constant(suspend_generator)}({self.to.source(source)}, {frame}, {started})"
                )
        self.check_dropped()

    def check_dropped(self) -> None:
        """Reject dropped objects whose end runs code: a generator suspended inside ``try``, or an object with
        ``__del__``. That moment cannot be replayed."""
        if self.to.heap.dropped is not None:
            raise Unrebuildable(None, f"{self.to.heap.dropped} is let go here")
        for key, held in self.to.heap.fresh.items():
            value = held() if type(held) is weakref.ref else None
            if id(value) == key and key not in self.to.memo and runs_code_at_the_end(type(value)):
                raise Unrebuildable(None, f"a {type(value).__qualname__}, whose __del__ runs later, is let go here")

    def moment(self, value: Any, position: int) -> str:
        """A value of an effect as it was after ``position`` torch calls."""
        if issubclass(type(value), torch.Tensor) and self.to.tracer.recorder.changes_after(position):
            handle = self.to.tracer.clone_at(value, position)
            return self.to.output(handle)
        if type(value) in (list, tuple) and any(issubclass(type(v), torch.Tensor) for v in value):
            parts = ", ".join(self.moment(v, position) for v in value)
            return f"[{parts}]" if type(value) is list else f"({parts}{',' if len(value) == 1 else ''})"
        return self.to.build(value)

    def change(self, origin: Origin) -> None:
        obj, target = origin.obj, self.to.source(origin.source)
        if issubclass(type(obj), dict):
            self.change_dict(origin, target)
        elif issubclass(type(obj), MappingProxyType):
            cls = self.to.source(origin.source.base)
            for name in origin.written:
                value = self.to.build(obj[name])
                self.to.lines.append(f"{self.to.constant(type.__setattr__)}({cls}, {name!r}, {value})")
        elif issubclass(type(obj), CellType):
            content = cell_value(obj)
            if content is UNBOUND:
                self.to.lines.append(f"del {target}.cell_contents")
            else:
                self.to.lines.append(f"{target}.cell_contents = {self.to.build(content)}")
        elif issubclass(type(obj), list):
            if origin.appended_from is not None:
                parts = ", ".join(self.to.build(v) for v in list.__getitem__(obj, slice(origin.appended_from, None)))
                self.to.lines.append(f"{self.to.constant(list.extend)}({target}, [{parts}])")
            else:
                parts = ", ".join(self.to.build(v) for v in list.__iter__(obj))
                self.to.lines.append(f"{self.to.constant(list.__setitem__)}({target}, slice(None), [{parts}])")
        elif origin.steps and origin.steps is not MANY:
            self.change_set(origin.steps, target)
        elif origin.snapshot is None and issubclass(type(obj), (set, collections.deque)):
            self.change_fields(origin, target)
        elif issubclass(type(obj), set) and set(map(id, origin.snapshot)) <= set(map(id, set.__iter__(obj))):
            before = set(map(id, origin.snapshot))
            parts = ", ".join(self.to.build(v) for v in set.__iter__(obj) if id(v) not in before)
            self.to.lines.append(f"{self.to.constant(set.update)}({target}, [{parts}])")
        elif issubclass(type(obj), (set, collections.deque)):
            kind = set if issubclass(type(obj), set) else collections.deque
            parts = ", ".join(self.to.build(v) for v in kind.__iter__(obj))
            self.to.lines.append(f"{self.to.constant(refill)}({self.to.constant(kind)}, {target}, [{parts}])")
        else:
            self.change_fields(origin, target)

    def change_set(self, steps: tuple, target: str) -> None:
        """Step by step: the order of the elements comes from all that was done."""
        for step in steps:
            if step is None:
                raise Unrebuildable(None, "a set from outside is changed by native code")
            method, args = step
            parts = "".join(f", {target if arg is SELF else self.argument(method, arg)}" for arg in args)
            self.to.lines.append(f"{self.to.constant(getattr(set, method))}({target}{parts})")

    def argument(self, method: str, value: Any) -> str:
        if method in KEYED:
            return self.to.build(value)
        parts = "[" + ", ".join(map(self.to.build, value.elements if type(value) is OtherSet else value)) + "]"
        if type(value) is OtherSet:
            kind, steps = self.to.constant(value.kind), self.to.constant(value.steps)
            return f"{self.to.constant(set_iteration_order.make)}({kind}, {steps}, {parts})"
        return f"dict.fromkeys({parts})" if type(value) is dict else parts

    def change_fields(self, origin: Origin, target: str) -> None:
        for name in origin.written:
            value = self.to.build(getattr(origin.obj, name))
            self.to.lines.append(f"{self.to.constant(object.__setattr__)}({target}, {name!r}, {value})")

    def change_dict(self, origin: Origin, target: str) -> None:
        after = list(items_of(origin.obj))
        kind: Any = type(origin.obj)
        if kind is not dict:  # the subclass's own methods must not be called
            kind = collections.OrderedDict if issubclass(type(origin.obj), collections.OrderedDict) else dict
            store, pop = (
                f"{self.to.constant(kind.__setitem__)}({target}, {{}}, {{}})",
                f"{self.to.constant(kind.pop)}({target}, {{}}, None)",
            )
        else:
            store, pop = f"{target}[{{}}] = {{}}", f"{target}.pop({{}}, None)"
        if origin.snapshot is not None:
            before = origin.snapshot  # compared by identity: keys may have their own ``==``
            if len(before) <= len(after) and all(old[0] is new[0] for old, new in zip(before, after, strict=False)):
                for i, (k, v) in enumerate(after):
                    if i >= len(before) or before[i][1] is not v:
                        self.to.lines.append(store.format(self.to.build(k), self.to.build(v)))
            else:
                parts = ", ".join(f"({self.to.build(k)}, {self.to.build(v)})" for k, v in after)
                self.to.lines.append(f"{self.to.constant(refill)}({self.to.constant(kind)}, {target}, [{parts}])")
            return
        now = {k: v for k, v in after if self.to.heap.is_constant_key(k)}
        for key, removed in origin.written.items():
            if removed or key not in now:
                self.to.lines.append(pop.format(self.to.build(key)))
        for key in now:  # new keys in their order of insertion
            if key in origin.written:
                self.to.lines.append(store.format(self.to.build(key), self.to.build(now[key])))
