"""Interpreters for the tests of the instruction set: plain ones, and one that interprets every Python callee.

``Machine`` calls Python functions natively, so on its own it never has more than one frame. ``Pushing`` pushes a frame
for every one of them, also where an operator, an attribute or a loop reaches a user's method: the state between two
instructions is then nested frames and running generators, as in a trace.
"""

from __future__ import annotations

import operator
from types import FunctionType, MethodType
from typing import Any

from burnish.capture.interpreter import frames as fr
from burnish.capture.interpreter.argument_binding import bind, frame_for
from burnish.capture.interpreter.frames import PUSHED, Frame, Generator
from burnish.capture.interpreter.frames_to_slots import take_apart
from burnish.capture.interpreter.instruction_loop import Machine

ASYNC = 0x280


def start(function: FunctionType, args: tuple, kwargs: dict) -> Frame:
    """A frame at the start of ``function``."""
    frame = frame_for(function, bind(function, args, kwargs))
    cells = function.__closure__ or ()
    frame.locals[frame.code.n_locals - len(cells) :] = cells
    return frame


def python_method(kind: type, name: str) -> FunctionType | None:
    for base in kind.__mro__:
        if name in base.__dict__:
            found = base.__dict__[name]
            return found if type(found) is FunctionType else None
    return None


SPECIAL = {
    operator.add: "__add__",
    operator.iadd: "__iadd__",
    operator.sub: "__sub__",
    operator.eq: "__eq__",
    operator.lt: "__lt__",
    operator.neg: "__neg__",
    operator.pos: "__pos__",
    operator.invert: "__invert__",
}


class Pushing(Machine):
    """Interprets the Python functions the program calls."""

    def push_call(self, function: Any, args: tuple, kwargs: dict | None = None, completion: int = fr.PUSH) -> Any:
        self.push(start(function, args, kwargs or {}), completion)
        return PUSHED

    def call(self, function: Any, args: tuple, kwargs: dict) -> Any:
        kind = type(function)
        if kind is MethodType:
            if type(function.__self__) is Generator:
                return self.call_generator(function.__self__, function.__name__, args)
            return self.call(function.__func__, (function.__self__, *args), kwargs)
        if kind is FunctionType and not function.__code__.co_flags & ASYNC:
            return self.push_call(function, args, kwargs)
        if function is next and type(args[0]) is Generator and len(args) == 1:
            return self.resume(args[0], None, fr.NEXT)
        if (
            isinstance(function, type)
            and python_method(function, "__init__")
            and type(function.__new__) is not FunctionType
        ):
            return self.push_call(make_instance, (function, function.__init__, args, kwargs))
        return super().call(function, args, kwargs)

    def call_generator(self, generator: Generator, name: str, args: tuple) -> Any:
        if name in ("send", "__next__"):
            return self.resume(generator, args[0] if args else None, fr.NEXT)
        if name == "throw":
            return self.throw(generator, fr.thrown(*args), fr.NEXT)
        if name == "close":
            if generator.frame is None or not generator.started:
                generator.frame = None
                return None
            return self.throw(generator, GeneratorExit(), fr.CLOSE)
        return super().call(getattr(generator, name), args, {})

    def load_attr(self, obj: Any, name: str) -> Any:
        found = getattr(type(obj), name, None)
        if isinstance(found, property) and type(found.fget) is FunctionType:
            return self.push_call(found.fget, (obj,))
        return super().load_attr(obj, name)

    def store_attr(self, obj: Any, name: str, value: Any) -> Any:
        found = getattr(type(obj), name, None)
        if isinstance(found, property) and type(found.fset) is FunctionType:
            return self.push_call(found.fset, (obj, value), completion=fr.DISCARD)
        return super().store_attr(obj, name, value)

    def delete_attr(self, obj: Any, name: str) -> Any:
        found = getattr(type(obj), name, None)
        if isinstance(found, property) and type(found.fdel) is FunctionType:
            return self.push_call(found.fdel, (obj,), completion=fr.DISCARD)
        return super().delete_attr(obj, name)

    def binary(self, operation: Any, left: Any, right: Any) -> Any:
        method = python_method(type(left), SPECIAL.get(operation, ""))
        return self.push_call(method, (left, right)) if method else super().binary(operation, left, right)

    def unary(self, operation: Any, value: Any) -> Any:
        method = python_method(type(value), SPECIAL[operation])
        return self.push_call(method, (value,)) if method else super().unary(operation, value)

    def truth(self, value: Any) -> Any:
        method = python_method(type(value), "__bool__")
        return self.push_call(method, (value,), completion=fr.RETRY) if method else super().truth(value)

    def answers_truth_by_frame(self, value: Any) -> bool:
        return python_method(type(value), "__bool__") is not None

    def push_truth_and_keep(self, value: Any, target: int, jump_on: bool) -> None:
        self.truth(value)
        self.frame.completion, self.frame.spare = fr.JUMP_OR_POP, (target, jump_on)

    def contains(self, container: Any, item: Any, invert: bool) -> Any:
        method = python_method(type(container), "__contains__")
        if method:
            return self.push_call(truth_of, (method, container, item, invert))
        return super().contains(container, item, invert)

    def subscript(self, container: Any, key: Any) -> Any:
        method = python_method(type(container), "__getitem__")
        return self.push_call(method, (container, key)) if method else super().subscript(container, key)

    def store_subscript(self, container: Any, key: Any, value: Any) -> Any:
        method = python_method(type(container), "__setitem__")
        if method:
            return self.push_call(method, (container, key, value), completion=fr.DISCARD)
        return super().store_subscript(container, key, value)

    def delete_subscript(self, container: Any, key: Any) -> Any:
        method = python_method(type(container), "__delitem__")
        if method:
            return self.push_call(method, (container, key), completion=fr.DISCARD)
        return super().delete_subscript(container, key)

    def format(self, value: Any, convert: Any, spec: str) -> Any:
        method = python_method(type(value), "__format__")
        return self.push_call(method, (value, spec)) if method and not convert else super().format(value, convert, spec)

    def iterate(self, value: Any) -> Any:
        method = python_method(type(value), "__iter__")
        return self.push_call(method, (value,)) if method else super().iterate(value)

    def next_for(self, iterator: Any) -> Any:
        method = python_method(type(iterator), "__next__")
        if method and type(iterator) is not Generator:
            return self.push_call(method, (iterator,), completion=fr.FOR_ITER)
        return super().next_for(iterator)

    def send(self, receiver: Any, value: Any) -> tuple[bool, Any]:
        method = python_method(type(receiver), "__next__")
        if method and type(receiver) is not Generator and value is None:
            return False, self.push_call(method, (receiver,), completion=fr.SEND)
        return super().send(receiver, value)

    def unpack(self, value: Any, count: int | None) -> Any:
        if type(value) is Generator or python_method(type(value), "__iter__"):
            return self.push_call(to_list, (value, count), completion=fr.RETRY)
        return super().unpack(value, count)

    def to_tuple(self, value: Any, function: Any) -> Any:
        if type(value) is Generator or python_method(type(value), "__iter__"):
            return self.push_call(to_tuple, (value,))
        return super().to_tuple(value, function)

    def special(self, obj: Any, name: str) -> Any:
        method = python_method(type(obj), name)
        return MethodType(method, obj) if method else super().special(obj, name)


class Forgetting(Pushing):
    """Lets go of every dead local before every instruction, and of nothing else."""

    def step(self) -> None:
        take_apart(self.frame)
        super().step()


class Rebuilding(Pushing):
    """Takes its frames apart before every instruction and goes on with new ones made of the slots."""

    def step(self) -> None:
        layout, slots = take_apart(self.frame)
        built = layout.build(slots)
        again, same_slots = take_apart(built)
        assert again.key == layout.key and hash(again.key) == hash(layout.key)
        assert [id(s) for s in same_slots] == [id(s) for s in slots]
        assert len(layout.labels()) == len(slots)
        self.frame = built
        super().step()


# ---- what C code does with user objects, in Python


def make_instance(cls, initialize, args, kwargs):
    made = cls.__new__(cls, *args, **kwargs)
    initialize(made, *args, **kwargs)
    return made


def truth_of(method, container, item, invert):
    return bool(method(container, item)) != invert


def to_list(items, count):
    found = []
    for item in items:
        found.append(item)
        if count is not None and len(found) > count:
            return range(len(found))  # an error counts the elements of a list
    return found


def to_tuple(items):
    return tuple([item for item in items])
