"""The interpreter: runs frames, instruction by instruction, on real objects.

In this class every operation has its plain Python meaning. It executes the instruction at a graph break, and all
instructions after a point that runs eagerly. ``tracer.Tracer`` is the same machine, whose operations also record
sources of values, reads and writes, and torch calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import invert
from types import BuiltinFunctionType, CellType, FunctionType, MethodType
from typing import Any, NoReturn

from . import frames as fr
from . import generator_resumption, pattern_matching, unwinding
from .emulated_frames import call_at_line, call_shown, looks_at_frames, makes_class_of_caller
from .exception_context import call_while_handling, set_context
from .frame_introspection import FRAME_CALLS
from .frames import EXHAUSTED, MISSING, PUSHED, UNBOUND, Frame, Generator, Raised, cell_value, made_no_error
from .generator_delegation import delegate_closed
from .opcodes.calls import callable_text
from .opcodes.control_flow import leave_loop
from .opcodes.exceptions import mark_as_raised, why_no_context_manager
from .opcodes.generators import end_send
from .tracebacks import Trail
from .versions.behavior import BEHAVIOR


class Machine:
    unwind = unwinding.unwind
    leave_by_error = unwinding.leave_by_error
    resume = generator_resumption.resume
    throw = generator_resumption.throw
    send = generator_resumption.send
    match_keys = pattern_matching.match_keys
    match_class = pattern_matching.match_class

    def __init__(self, frame: Frame | None):
        self.frame = frame
        self.result: Any = None
        self.trail = Trail()
        self.reraised: BaseException | None = None  # raised again as it is: context and traceback stay
        self.thrown: BaseException | None = None  # thrown into a generator: its context stays

    def as_plain(self) -> Machine:
        """The same program at the same place, with the plain operations."""
        plain = Machine(self.frame)
        plain.result, plain.trail = self.result, self.trail
        return plain

    # ---- the loop

    def run(self) -> Any:
        """Run until the outermost frame returns."""
        while self.frame is not None:
            self.step()
        self.let_go()
        return self.result

    def let_go(self) -> None:
        """Release all frames: the machine is done, or another one continues. The traceback of an error from torch holds
        our functions that called it. Their objects would live until Python collects cycles, with the error and open
        blocks of its frames (in older torch, checkpoint's hooks for saved tensors)."""
        self.trail.forget()
        top, self.frame = self.frame, None
        for frame in fr.frames_from(top):
            frame.release()

    def step(self) -> None:
        """Execute one instruction, or unwind to a handler. Raises the user's exception when no frame handles it."""
        frame = self.frame
        assert frame is not None
        handler, arg = frame.instructions[frame.pc]
        frame.pc += 1
        try:
            handler(self, frame, arg)
            return
        except Raised as raised:
            trouble = raised.error
        except BaseException as error:
            trouble = error
        try:
            self.unwind(trouble)  # outside the except block: the program's errors must not get ours as their context
        finally:
            del trouble  # its traceback holds this frame: no cycle, or the program's objects live until a collection

    # ---- frames

    def push(self, frame: Frame, completion: int = fr.PUSH, spare: Any = None) -> Any:
        caller = frame.caller = self.frame
        if completion or frame.completion:  # a generator's frame may have been resumed in another way before
            frame.completion, frame.spare = completion, spare
        frame.depth = 0 if caller is None else caller.depth + 1
        self.frame = frame
        return PUSHED

    def leave(self, frame: Frame, value: Any) -> bool:
        """Return ``value`` to the caller as an ordinary call's result."""
        caller = self.frame = frame.caller
        frame.caller = None
        if caller is None:
            self.result = value
        else:
            self._complete(caller, frame, value)
        return True

    def return_from(self, frame: Frame, value: Any) -> bool:
        generator = frame.generator
        caller = self.frame = frame.caller
        frame.caller = None
        if generator is None:
            if caller is None:
                self.result = value
            elif frame.completion:
                self._complete(caller, frame, value)
            else:
                caller.stack.append(value)
            return True
        completion = frame.completion
        generator.stop(frame, caller)
        if caller is None:
            raise self.trail.attach(StopIteration(value) if value is not None else StopIteration())
        if completion == fr.FOR_ITER:
            leave_loop(caller, caller.instructions[caller.pc - 1][1])
        elif completion == fr.SEND:
            end_send(caller, caller.instructions[caller.pc - 1][1], value)
        elif completion == fr.CLOSE:
            caller.stack.append(value if BEHAVIOR.close_returns_value else None)
        elif completion == fr.CLOSE_DELEGATE:
            return self.raise_here(delegate_closed(caller))
        else:
            return self.raise_here(StopIteration(value) if value is not None else StopIteration())
        return True

    def raise_here(self, error: BaseException) -> Any:
        """Raise the error of a call whose operands have left the current frame's stack."""
        raise Raised(error)

    def yield_from_frame(self, frame: Frame, value: Any) -> bool:
        generator = frame.generator
        assert generator is not None
        generator.running = frame is not generator.frame
        caller = self.frame = frame.caller
        frame.caller = frame.generator = None
        if caller is None:
            self.result = value
        elif frame.completion in (fr.CLOSE, fr.CLOSE_DELEGATE):
            return self.raise_here(RuntimeError("generator ignored GeneratorExit"))
        else:
            caller.stack.append(value)
        frame.completion, frame.spare = fr.PUSH, None  # the next resume sets it: all suspended frames have the same
        if generator.builtin is not None:
            generator.rewind(frame, caller)
        return True

    def _complete(self, caller: Frame, frame: Frame, value: Any) -> None:
        completion = frame.completion
        if completion == fr.DISCARD:
            return
        if completion == fr.RETRY:
            caller.stack.append(value)
            caller.pc -= 1
        elif completion == fr.REPLACE:
            caller.stack[frame.spare] = value
            caller.pc -= 1
        elif completion == fr.PUSH_NULL:
            caller.stack += (value, fr.NULL)
        elif completion == fr.PUSH_NONE:
            caller.stack.append(None)
        elif completion == fr.JUMP_OR_POP:
            target, jump_on = frame.spare
            if value == jump_on:
                caller.pc = target
            else:
                caller.stack.pop()
        else:
            caller.stack.append(value)

    def redo_with(self, frame: Frame, at: int) -> bool:
        """The frame just pushed computes the operand at ``at``; then ``frame``'s instruction runs again."""
        pushed = self.frame
        assert pushed is not None and pushed is not frame
        pushed.completion, pushed.spare = fr.REPLACE, at
        return True

    def null_after_result(self) -> None:
        assert self.frame is not None
        self.frame.completion = fr.PUSH_NULL

    def reach_foreign(self, iterator: Any) -> None:
        """Called before an error is thrown into ``iterator``, an object with the generator protocol (or None)."""

    def handled(self) -> BaseException | None:
        """The exception being handled at this point of the program."""
        frame = self.frame
        while frame is not None:
            if frame.handling is not None:
                return frame.handling
            frame = frame.caller
        return None

    # ---- names

    def load_global(self, frame: Frame, name: str) -> Any:
        try:
            return frame.globals[name]
        except KeyError:
            return self.load_builtin(frame, name)

    def load_builtin(self, frame: Frame, name: str) -> Any:
        try:
            return frame.builtins[name]
        except KeyError:
            raise Raised(NameError(f"name '{name}' is not defined", name=name)) from None

    def load_builtin_unasked(self, frame: Frame, name: str, kind: type[Exception]) -> Any:
        """``__import__`` or ``__build_class__``, for a statement that does not name it."""
        try:
            return self.load_builtin(frame, name)
        except Raised:
            raise Raised(kind(f"{name} not found")) from None

    def store_global(self, frame: Frame, name: str, value: Any) -> None:
        frame.globals[name] = value

    def delete_global(self, frame: Frame, name: str) -> None:
        try:
            del frame.globals[name]
        except KeyError:
            raise Raised(NameError(f"name '{name}' is not defined")) from None

    def load_name(self, namespace: dict, name: str) -> Any:
        """A name of a class body, or MISSING."""
        return namespace.get(name, MISSING)

    def store_name(self, frame: Frame, name: str, value: Any) -> None:
        assert frame.namespace is not None
        frame.namespace[name] = value

    def delete_name(self, frame: Frame, name: str) -> None:
        assert frame.namespace is not None
        if name not in frame.namespace:
            raise Raised(NameError(f"name '{name}' is not defined", name=name))
        del frame.namespace[name]

    def new_cell(self, value: Any) -> CellType:
        return CellType() if value is UNBOUND else CellType(value)

    def load_cell(self, cell: CellType) -> Any:
        return cell_value(cell)

    def store_cell(self, cell: CellType, value: Any) -> None:
        if value is UNBOUND:
            del cell.cell_contents
        else:
            cell.cell_contents = value

    def load_attr(self, obj: Any, name: str) -> Any:
        return getattr(obj, name)

    def store_attr(self, obj: Any, name: str, value: Any) -> Any:
        setattr(obj, name, value)

    def delete_attr(self, obj: Any, name: str) -> Any:
        delattr(obj, name)

    def special(self, obj: Any, name: str) -> Any:
        """A special method, found on the type."""
        kind = type(obj)
        method = next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), MISSING)
        if method is MISSING:
            raise Raised(TypeError(why_no_context_manager(kind, name)))
        return method.__get__(obj, kind) if hasattr(type(method), "__get__") else method

    def import_name(self, frame: Frame, name: str, level: int, names: Any) -> Any:
        function = self.load_builtin_unasked(frame, "__import__", ImportError)
        return function(name, frame.globals, None, names, level)

    def import_from(self, module: Any, name: str) -> Any:
        try:
            return getattr(module, name)
        except AttributeError:
            full = f"{getattr(module, '__name__', '?')}.{name}"
            if full in sys.modules:
                return sys.modules[full]
            origin = getattr(module, "__file__", None) or "unknown location"
            text = f"cannot import name '{name}' from '{getattr(module, '__name__', '?')}' ({origin})"
            raise Raised(ImportError(text, name=module.__name__, path=origin)) from None

    # ---- operators

    def binary(self, operation: Callable, left: Any, right: Any) -> Any:
        return call_at_line(self.frame, operation, (left, right), {})

    def unary(self, operation: Callable, value: Any) -> Any:
        if type(value) is bool and operation is invert:  # which may warn about the line that does so
            return call_at_line(self.frame, operation, (value,), {})
        return operation(value)

    def truth(self, value: Any) -> Any:
        if value is NotImplemented:  # as above
            return call_shown(self, bool, (value,), {})
        return bool(value)

    def answers_truth_by_frame(self, value: Any) -> bool:
        return False

    def push_truth_and_keep(self, value: Any, target: int, jump_on: bool) -> None:
        raise NotImplementedError

    def same(self, left: Any, right: Any) -> bool:
        return left is right

    def contains(self, container: Any, item: Any, invert: bool) -> Any:
        return (item in container) != invert

    def subscript(self, container: Any, key: Any) -> Any:
        return container[key]

    def store_subscript(self, container: Any, key: Any, value: Any) -> Any:
        container[key] = value

    def delete_subscript(self, container: Any, key: Any) -> Any:
        del container[key]

    def length(self, value: Any) -> Any:
        return len(value)

    def format(self, value: Any, convert: Callable | None, spec: str) -> Any:
        return format(value if convert is None else convert(value), spec)

    def join_strings(self, parts: list) -> str:
        return "".join(parts)

    # ---- iteration

    def iterate(self, value: Any) -> Any:
        return iter(value)

    iterate_in_loop = iterate

    def next_for(self, iterator: Any) -> Any:
        if type(iterator) is Generator:
            return self.resume(iterator, None, fr.FOR_ITER)
        return next(iterator, EXHAUSTED)

    def unpack(self, value: Any, count: int | None) -> Any:
        kind = type(value)
        if kind is tuple or kind is list:
            return value
        if not _can_iterate(kind):
            raise Raised(TypeError(f"cannot unpack non-iterable {kind.__name__} object"))
        items = iter(value)
        if count is None:
            return list(items)
        taken = []
        for item in items:
            taken.append(item)
            if len(taken) > count:  # CPython also takes one more and then stops
                break
        return taken

    def append(self, target: list, value: Any) -> None:
        """Append in a comprehension."""
        target.append(value)

    def add(self, target: set, value: Any) -> None:
        target.add(value)

    def extend(self, method: str, target: Any, other: Any) -> Any:
        if method == "list_extend":
            if not _can_iterate(type(other)):
                raise Raised(TypeError(f"Value after * must be an iterable, not {type(other).__name__}"))
            target.extend(other)
        elif method == "dict_update" and not hasattr(other, "keys"):
            raise Raised(TypeError(f"'{type(other).__name__}' object is not a mapping"))
        else:
            target.update(other)

    def to_tuple(self, value: Any, function: Any) -> Any:
        if not _can_iterate(type(value)):
            text = f"{callable_text(function)} argument after * must be an iterable, not {type(value).__name__}"
            raise Raised(TypeError(text))
        return tuple(value)

    def to_dict(self, value: Any) -> dict:
        return dict(value)

    def plain_attr(self, obj: Any, name: str) -> Any:
        return getattr(obj, name, MISSING)

    def is_instance(self, obj: Any, cls: type) -> bool:
        return isinstance(obj, cls)

    # ---- calls

    def call(self, function: Any, args: tuple, kwargs: dict) -> Any:
        if (
            type(function) is MethodType
            and type(function.__func__) is FunctionType
            and function.__func__ in FRAME_CALLS
        ):
            function, args = function.__func__, (function.__self__, *args)
        stand_in = FRAME_CALLS.get(function) if may_have_stand_in(function) else None
        if stand_in is not None:
            answer = stand_in(self, args, kwargs)
            if answer is not MISSING:
                return answer
        if looks_at_frames(function) or makes_class_of_caller(function, args):
            return call_shown(self, function, args, kwargs)
        handled = self.handled()
        if handled is not None:
            return call_while_handling(handled, function, args, kwargs)
        # Modes of the program see no keywords as None, as of a call in the program's own text.
        return call_at_line(self.frame, function, args, kwargs)

    def made(self, value: Any) -> Any:
        """Called after an instruction has made an object."""
        return value

    def check_keys(self, keys: list, container: type) -> list:
        """Called before keys are hashed for a dict or a set. Returns them without live scalars."""
        return keys

    def leave_to_python(self, opname: str) -> None:
        """Called before an instruction that runs in plain Python only."""

    def refuse_opcode(self, opname: str) -> NoReturn:
        raise RuntimeError(f"bytecode instruction {opname} has no meaning here")

    # ---- exceptions

    def raise_error(self, error: BaseException, again: bool = False) -> NoReturn:
        if again:
            self.reraised = error
        raise Raised(error)

    def raise_from(self, error: Any, cause: Any, has_cause: bool) -> Any:
        if isinstance(error, type) and issubclass(error, BaseException):
            kind, error = error, self.call(error, (), {})
            if error is PUSHED:
                return PUSHED
            if not isinstance(error, BaseException):
                raise Raised(made_no_error(kind, type(error)))
        if not isinstance(error, BaseException):
            raise Raised(TypeError("exceptions must derive from BaseException"))
        if has_cause:
            if isinstance(cause, type) and issubclass(cause, BaseException):
                kind, cause = cause, self.call(cause, (), {})
                if BEHAVIOR.cause_of_class_is_checked and not isinstance(cause, BaseException):
                    raise Raised(made_no_error(kind, type(cause)))
            if cause is not None and not isinstance(cause, BaseException):
                raise Raised(TypeError("exception causes must derive from BaseException"))
            error.__cause__ = cause
        if isinstance(error, BaseExceptionGroup):
            mark_as_raised(error)
        set_context(error, self.handled())
        raise Raised(error)


def resume_natively(generator: Generator, value: Any, error: BaseException | None) -> Any:
    """Advance one of our generators from native code: ``next``, ``send`` and ``throw`` outside captured code."""
    machine = Machine(None)
    trouble = None
    try:
        if error is not None:
            machine.throw(generator, error, fr.PUSH)
        else:
            machine.resume(generator, value, fr.PUSH)
    except Raised as raised:
        trouble = raised.error
    if trouble is not None:
        try:
            machine.unwind(trouble)
        finally:
            del trouble, error
    return machine.run()


Generator.advance = resume_natively


def _can_iterate(kind: type) -> bool:
    return hasattr(kind, "__iter__") or hasattr(kind, "__getitem__")


def may_have_stand_in(function: Any) -> bool:
    """Whether ``FRAME_CALLS`` may be asked: the hash of another object, and that of its class, may be the program's."""
    return type(function) in (FunctionType, BuiltinFunctionType, type)
