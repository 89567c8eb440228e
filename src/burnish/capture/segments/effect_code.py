"""Code generation for side effects: changes of outside objects as lines of a segment's template.

print(t0)                    # a call, with its arguments as they were then
d1['count'] = 4              # a change
"""

from __future__ import annotations

import collections
import weakref
from types import CellType, MappingProxyType
from typing import Any

import torch

from ..engine.break_signals import Unrebuildable
from ..engine.container_changes import KEYED, MANY, SELF, OtherSet
from ..engine.object_lifetimes import Origin, runs_code_at_the_end
from ..guards import set_iteration_order
from ..guards.container_reads_past_overrides import items_of
from ..interpreter.frames import UNBOUND, cell_value
from ..pytorch import writes_of_calls
from ..pytorch.backward_and_grad import set_gradients
from .rebuild_functions import build_frame
from .template_runtime import refill, suspend_generator
from .template_writer import TemplateWriter


class EffectWriter:
    """`to`: the rebuilder that receives the lines."""

    def __init__(self, to: TemplateWriter):
        self.to = to

    def write(self) -> None:
        """Calls in order, then the changes of outside objects."""
        for effect in self.to.tracer.effects:
            args = [self.moment(a, effect.position) for a in effect.args]
            args += [f"{k}={self.moment(v, effect.position)}" for k, v in effect.kwargs.items()]
            self.to.do(effect.function, *args)
        for origin in list(self.to.heap.origins.values()):
            if self.to.heap.changed(origin):
                self.change(origin)
        changed = self.to.tracer.gradients.changed()
        if changed:
            tensors = "".join(f"{self.to.load(origin.source)}, " for origin, _ in changed)
            gradients = "".join(f"{self.to.build(gradient)}, " for _, gradient in changed)
            self.to.do(set_gradients, f"({tensors})", f"({gradients})")
        self.to.is_hidden = True
        for reference, source in self.to.heap.taken_over:
            generator = reference()
            if generator is None or id(generator) not in self.to.active:
                frame = "None"
                if generator is not None and generator.frame is not None:
                    frame = build_frame(self.to, generator.frame)
                started = generator is None or generator.started
                self.to.do(suspend_generator, self.to.load(source), frame, str(started))
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
        calls = self.to.tracer.recorder.calls
        if issubclass(type(value), torch.Tensor) and writes_of_calls.changes_after(calls, position):
            handle = self.to.tracer.clone_at(value, position)
            return self.to.output(handle)
        if type(value) in (list, tuple) and any(issubclass(type(v), torch.Tensor) for v in value):
            parts = ", ".join(self.moment(v, position) for v in value)
            return f"[{parts}]" if type(value) is list else f"({parts}{',' if len(value) == 1 else ''})"
        return self.to.build(value)

    def change(self, origin: Origin) -> None:
        obj, target = origin.obj, self.to.load(origin.source)
        if issubclass(type(obj), dict):
            self.change_dict(origin, target)
        elif issubclass(type(obj), MappingProxyType):
            cls = self.to.load(origin.source.base)
            for name in origin.written:
                self.to.do(type.__setattr__, cls, repr(name), self.to.build(obj[name]))
        elif issubclass(type(obj), CellType):
            content = cell_value(obj)
            if content is UNBOUND:
                self.to.lines.append(f"del {target}.cell_contents")
            else:
                self.to.lines.append(f"{target}.cell_contents = {self.to.build(content)}")
        elif issubclass(type(obj), list):
            if origin.appended_from is not None:
                appended = list.__getitem__(obj, slice(origin.appended_from, None))
                self.to.do(list.extend, target, self.to.list_of(appended))
            else:
                self.to.do(list.__setitem__, target, "slice(None)", self.to.list_of(list.__iter__(obj)))
        elif origin.steps and origin.steps is not MANY:
            self.change_set(origin.steps, target)
        elif origin.snapshot is None and issubclass(type(obj), (set, collections.deque)):
            self.change_fields(origin, target)
        elif issubclass(type(obj), set) and set(map(id, origin.snapshot)) <= set(map(id, set.__iter__(obj))):
            before = set(map(id, origin.snapshot))
            self.to.do(set.update, target, self.to.list_of(v for v in set.__iter__(obj) if id(v) not in before))
        elif issubclass(type(obj), (set, collections.deque)):
            kind = set if issubclass(type(obj), set) else collections.deque
            self.to.do(refill, self.to.constant(kind), target, self.to.list_of(kind.__iter__(obj)))
        else:
            self.change_fields(origin, target)

    def change_set(self, steps: tuple, target: str) -> None:
        """Step by step: the order of the elements comes from all that was done."""
        for step in steps:
            if step is None:
                raise Unrebuildable(None, "a set from outside is changed by native code")
            method, args = step
            self.to.do(
                getattr(set, method), target, *(target if arg is SELF else self.argument(method, arg) for arg in args)
            )

    def argument(self, method: str, value: Any) -> str:
        if method in KEYED:
            return self.to.build(value)
        parts = self.to.list_of(value.elements if type(value) is OtherSet else value)
        if type(value) is OtherSet:
            return self.to.call(set_iteration_order.make, *map(self.to.constant, (value.kind, value.steps)), parts)
        return f"dict.fromkeys({parts})" if type(value) is dict else parts

    def change_fields(self, origin: Origin, target: str) -> None:
        for name in origin.written:
            self.to.do(object.__setattr__, target, repr(name), self.to.build(getattr(origin.obj, name)))

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
                parts = ", ".join(map(self.to.tuple_of, after))
                self.to.do(refill, self.to.constant(kind), target, f"[{parts}]")
            return
        now = {k: v for k, v in after if self.to.heap.is_constant_key(k)}
        for key, removed in origin.written.items():
            if removed or key not in now:
                self.to.lines.append(pop.format(self.to.build(key)))
        for key in now:  # new keys in their order of insertion
            if key in origin.written:
                self.to.lines.append(store.format(self.to.build(key), self.to.build(now[key])))
