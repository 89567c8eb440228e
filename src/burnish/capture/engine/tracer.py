"""The tracer: the interpreter that writes down what it does.

Same machine, same real objects, same results; but every operation first asks where its operands come from. What
existed before is guarded when read and remembered when written (``heap``), torch calls go through the ``recorder``,
calls are sorted by ``calls`` into interpreted, native and breaking ones. A break ends the trace *before* the
instruction that causes it:

* ``Stop`` is raised when the instruction must not run here (an unknown C function);
* ``Late`` when it has run already and turned out to be one (tensor data reached Python); its answer is kept, so nothing
  happens twice.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any, NoReturn

import torch
from torch._C import _len_torch_function_stack as _count_modes
from torch.overrides import _pop_mode, _push_mode

from ... import settings
from ...errors import InternalError
from .. import breaks
from ..interpreter import frames as fr
from ..interpreter.argument_binding import frame_for
from ..interpreter.decoded_code import Code
from ..interpreter.deferred_os_signals import Signals
from ..interpreter.frame_layout import FrameLayout, is_exhausted, is_suspended_as
from ..interpreter.frames import EXHAUSTED, MISSING, PUSHED, UNBOUND, Frame, Generator, Raised, cell_value, delegate_of
from ..interpreter.instruction_loop import Machine
from ..numbers import graph_numbers, live_scalars
from ..numbers.live_scalars import Live
from ..python import attribute_writes, attributes, builtin_polyfills, calls, object_creation, operators, subscripts
from ..python.messages import framework_logging
from ..pytorch import activation_checkpointing, recorder_fast_path
from ..pytorch.backward_and_grad import Gradients
from .graph_recorder import Handle, Recorder
from .heap import Heap
from .interpreted_or_native import OUR_PATH, is_trusted_namespace

# Modules whose functions are effects: they run again, user handlers and all, each time the segment does.
RUN_AGAIN = (
    "burnish.capture.python.messages.print_and_format",
    "burnish.capture.python.messages.framework_logging",
    "burnish.capture.python.messages.logging_calls",
    "burnish.capture.python.messages.warnings_warn",
)


ABOUT_TENSORS = (TypeError, ValueError, RuntimeError, IndexError)


class Stop(BaseException):
    """The segment ends before the current instruction, which has not been executed."""

    def __init__(self, kind: breaks.BreakKind, what: str):
        self.kind, self.what = kind, what


class Late(BaseException):
    """The segment ends before the current instruction, whose operation has been executed with this answer."""

    def __init__(self, kind: breaks.BreakKind | None, what: str, value: Any = None, error: BaseException | None = None):
        self.kind, self.what, self.value, self.error = kind, what, value, error


# The errors that end a frame's work without being raised in its caller.
ENDS = {fr.FOR_ITER: StopIteration, fr.SEND: StopIteration, fr.CLOSE: (StopIteration, GeneratorExit)}


class Tracer(Machine):
    # What an operation means under a trace.
    load_attr = attributes.load  # type: ignore[assignment]
    store_attr = attribute_writes.store  # type: ignore[assignment]
    delete_attr = attribute_writes.delete  # type: ignore[assignment]
    binary = operators.binary  # type: ignore[assignment]
    unary = operators.unary  # type: ignore[assignment]
    truth = operators.truth  # type: ignore[assignment]
    same = operators.same  # type: ignore[assignment]
    contains = operators.contains  # type: ignore[assignment]
    subscript = subscripts.subscript  # type: ignore[assignment]
    store_subscript = subscripts.store_subscript  # type: ignore[assignment]
    delete_subscript = subscripts.delete_subscript  # type: ignore[assignment]
    iterate = operators.iterate  # type: ignore[assignment]
    unpack = operators.unpack  # type: ignore[assignment]
    extend = operators.extend  # type: ignore[assignment]
    call = calls.call  # type: ignore[assignment]

    def __init__(self, frame: Frame, options: Any):
        super().__init__(frame)
        self.options = options
        self.heap = Heap(self)
        self.origins = self.heap.origins
        self.recorder = Recorder(self)
        self.gradients = Gradients(self)
        self.open_sizes: Any = None  # an OpenSizes, where a size may be another one in the next call
        self.region: Any = None  # a checkpointed call that is being interpreted (checkpointing.Region)
        self.effects: list[Any] = activation_checkpointing.Effects(self)
        self.filters: dict[int, Any] = {}  # blocks of warning_filters that make a difference to the segment's start
        self.arrays: dict[int, Any] = {}  # of NumPy's, made of constants: see numpy_arrays
        self.shared_arrays: dict[int, Any] = {}
        self.hooks: dict[int, Any] = {}  # that were registered here: see tensor_state
        self.keeps_assertions = True  # about tensors, in the graph
        self.may_run_opaquely = True  # whether Python may be a node of the graph: see opaque
        self.has_assertions = False
        self.logged_values_read = False  # of a framework's: see framework_logs
        framework_logging.meet()
        self.set_variables: list[Any] = []  # tokens of context variables that are to be reset: see context_variables
        self.views_of_blocks: dict[int, Any] = {}  # that blocks are given, by the tensors they show: see block_calls
        self.cells: set[int] = set()
        self.own_cells: dict[int, CellType] = {}
        self.lookups: dict[tuple[type, str], Any] = {}
        self.lookups_after: dict[tuple[type, type, str], Any] = {}  # by ``super()``
        self.plans: dict[tuple, Any] = {}  # how attributes are read
        self.fixed_names: dict[int, dict[str, Any]] = {}  # what trusted namespaces have been asked for
        self.ordinary: dict[int, tuple[FunctionType, Code]] = {}  # functions that are interpreted, and nothing else
        self.made_of: dict[int, tuple[Code, dict]] = {}  # code, and globals, of functions that are interpreted
        self.changing: frozenset = frozenset()  # paths of numbers that differ from run to run
        self.count = 0
        self.answer: tuple[Frame, int, Any] | None = None  # the last native answer, and for which instruction
        self.line_cache: dict[tuple[int, int], str] = {}
        self.global_hooks_guarded = False
        self.module_kinds: set[type] = set()  # classes of modules that are called the way ``nn.Module`` is
        self.own_call_kinds: set[type] = set()  # and those with a ``__call__`` of their own
        self.signatures: dict[tuple[type, int], Any] = {}
        self.without_hooks: set[int] = set()  # dictionaries of modules that have been guarded to have no hooks
        self.checks = settings.current().check
        self.signals = Signals()

    def release(self) -> None:
        """Let go of all that was met. The parts of a tracer know each other, so what they hold would otherwise live
        until Python looks for cycles: the tensors of a whole training step, say."""
        self.frame = self.answer = None
        kept = self.heap.guards  # the segment's
        for part in (self, self.heap, self.recorder, self.gradients):
            for value in vars(part).values():
                if isinstance(value, (dict, list, set)) and value is not kept:
                    value.clear()
        if self.open_sizes is not None:
            self.open_sizes.given.clear()

    # ---- the loop

    def trace(self) -> Stop | Late | None:
        """Run until the outermost frame returns (None) or a break (its signal)."""
        count, counter, signals = 0, itertools.count(1), self.signals.came
        try:
            while True:
                frame = self.frame
                if frame is None:
                    return None
                instructions = frame.instructions
                trouble: BaseException
                try:
                    for count in counter:  # noqa: B007  # of instructions
                        if signals:
                            self.signals.answer(frame)
                        handler, arg = instructions[frame.pc]
                        frame.pc += 1
                        if handler(self, frame, arg):
                            frame = self.frame
                            if frame is None:
                                return None
                            instructions = frame.instructions
                except Raised as raised:
                    trouble = raised.error
                try:
                    if not self.will_be_handled(trouble):
                        return Late(None, f"{type(trouble).__name__} leaves the function", error=trouble)
                    self.unwind(trouble)
                finally:
                    del trouble  # its traceback holds this frame: together they would outlive what they hold
        except (Stop, Late) as signal:
            # Its traceback holds frames, and so what the program may drop next.
            return signal.with_traceback(None) if self.region is None else self.region.after_break(signal)
        finally:
            self.count += count
            if self.region is not None:
                self.region.leave()
            if self.frame is None:
                self.answer = None  # it holds the frame that has returned

    def will_be_handled(self, error: BaseException) -> bool:
        frame = self.frame
        while frame is not None:
            if frame.code.handler_at(frame.pc - 1) is not None:
                return True
            if frame.generator is not None:
                error = self.stop_iteration_error(error)  # what it becomes on the way out
            if frame.caller is not None and isinstance(error, ENDS.get(frame.completion, ())):
                return True
            frame = frame.caller
        return False

    def user_line(self) -> str | None:
        """The innermost line of the user's code, for graph nodes."""
        frame = self.frame
        if frame is not None:
            line = self.line_cache.get((id(frame.code), frame.pc))
            if line is not None:
                return line
        while frame is not None and frame.code.co.co_filename.startswith(OUR_PATH):
            frame = frame.caller
        if frame is None:
            return None
        key = (id(frame.code), frame.pc)
        text = self.line_cache.get(key)
        if text is None:
            co = frame.code.co
            text = self.line_cache[key] = f'  File "{co.co_filename}", line {frame.line}, in {co.co_name}'
        return text

    def user_stack(self) -> tuple[breaks.Location, ...]:
        stack = []
        frame = self.frame
        while frame is not None:
            co = frame.code.co
            if not co.co_filename.startswith(OUR_PATH):
                stack.append(breaks.Location(co.co_filename, frame.line, co.co_qualname))
            frame = frame.caller
        return tuple(reversed(stack))

    def enter(self, frame: Frame, function: FunctionType) -> None:
        """The outermost frame starts: its function is fixed, its free variables are read through it."""
        if function.__closure__:
            calls.put_cells(self, function, frame.locals, frame.code)
        self.heap.guard("is", self.heap.sources.pin(function).attr("__code__"), function.__code__)

    def adopt_running_generators(self, frame: Frame | None) -> None:
        """Generators that run in the frames of this continuation belong to it, although they came in through slots."""
        while frame is not None:
            if frame.generator is not None:
                self.heap.take_over(frame.generator)
            frame = frame.caller

    def take_over(self, generator: Generator) -> None:
        """A generator from outside is about to be advanced: from here its frame is part of this trace.

        Where it stands is guarded like everything else outside, its locals are read through it, and how it is left is
        an effect. So a loop over a generator goes on being captured after a break in either of them.
        """
        origin = self.heap.origin_of(generator)
        if origin is None or self.heap.runs_here(generator):
            return
        frame = generator.frame
        if generator.running or frame is not None and frame.handling is not None:
            self.stop(breaks.OUTSIDE_ITERATOR, "a generator that is busy")
        guard, source = self.heap.guard, origin.source
        whole = live_scalars.Expression(None, (source,))
        self.heap.take_over(generator)
        if frame is None:
            guard("outcome", None, (live_scalars.Expression(is_exhausted, (whole,)), True))
            return
        layout = FrameLayout(frame)
        guard(
            "outcome", None, (live_scalars.Expression(is_suspended_as, (whole, (generator.started, layout.key))), True)
        )
        self.heap.sources.pin(frame.code)  # the key names it by address
        places, stack = source.attr("frame").attr("locals"), source.attr("frame").attr("stack")
        for i in layout.bound:
            frame.locals[i] = self.heap.admit(frame.locals[i], places.item(i), is_slot=True)
        for i, value in enumerate(frame.stack):
            if i not in layout.nulls:
                frame.stack[i] = self.heap.admit(value, stack.item(i), is_slot=True)

    def raise_here(self, error: BaseException) -> Any:
        if self.will_be_handled(error):
            raise Raised(error)
        # Nobody handles it, so the trace ends, before an instruction that raises it: this one cannot run again.
        return self.push(frame_for(builtin_polyfills.raise_error, [error, error.__context__]))

    def resume(self, generator: Generator, value: Any, completion: int) -> Any:
        if self.region is not None:
            self.region.will_write(generator)
        return super().resume(generator, value, completion)

    def throw(self, generator: Generator, error: BaseException, completion: int) -> Any:
        waiting = self.frame
        delegate = delegate_of(generator.frame) if generator.frame is not None else None
        while type(delegate) is Generator and delegate.frame is not None:
            self.take_over(delegate)  # the error goes on in it, and it may yield again
            delegate = delegate_of(delegate.frame)
        try:
            return super().throw(generator, error, completion)
        except Raised as raised:
            if self.frame is not waiting:
                raise
            trouble = raised.error
        return self.raise_here(trouble)

    # ---- running things for real

    def perform(self, function: Callable, /, *args: Any, **kwargs: Any) -> Any:
        """Call native code under the recorder. Torch calls it makes become part of the graph, or a late break."""
        name = recorder_fast_path.name_of_call(function, args, kwargs)
        shown = None if name is None else recorder_fast_path.learned(name)
        if shown is not None:
            value = recorder_fast_path.perform(self, shown, function, args, kwargs)
            if value is not MISSING:
                return value
        as_shown = None if shown is None else shown.arguments(function, args, kwargs)
        return self.perform_as(function, args, kwargs, name, None if as_shown is None else (shown.function, *as_shown))

    def perform_as(self, function: Callable, args: tuple, kwargs: dict, name: Any, as_shown: tuple | None) -> Any:
        """``as_shown``: the call as modes would be shown it, where that is known; else what to learn it under."""
        recorder = self.recorder
        mark, seen = (len(recorder.calls), len(recorder.inputs)), recorder.seen
        recorder.trouble = None
        try:
            if as_shown is not None:
                value = recorder.call(function, args, kwargs, *as_shown)
            else:
                value = self.under_recorder(name, function, args, kwargs)
        except (Stop, Late, Raised, InternalError):
            raise
        except BaseException as caught:
            error = caught
            if as_shown is not None and type(error) is TypeError:
                recorder.seen = seen  # of the arguments, as torch says before it shows the call
        else:
            if recorder.trouble is not None:
                recorder.undo_to(mark)
                raise Late(*recorder.trouble, value=value)
            if self.frame is not None:
                self.answer = (self.frame, self.frame.pc, value)
            return value
        try:
            self.fail_call(error, mark, seen, args, kwargs)
        finally:
            del error

    def fail_call(self, error: BaseException, mark: tuple, seen: int, args: tuple, kwargs: dict) -> NoReturn:
        """A call has raised ``error``. ``mark`` and ``seen``: how the recorder stood before it."""
        recorder = self.recorder
        try:
            if self.open_sizes is not None:
                self.open_sizes.symbols.settle_all("a call raised an error")
            if recorder.seen != seen or recorder.trouble is not None:
                recorder.undo_to(mark)
                kind, what = recorder.trouble or (breaks.TENSOR_ERROR, f"{type(error).__name__}: {error}")
                raise Late(kind, what, error=error)
            if isinstance(error, ABOUT_TENSORS) and operators.mentions_tensor(args, kwargs):
                raise Late(breaks.TENSOR_ERROR, f"{type(error).__name__}: {error}", error=error)
            raise Raised(error)
        finally:
            del error

    def under_recorder(self, name: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        """``name``: under what to learn how the call is shown to modes, or None."""
        recorder = self.recorder
        shown: list | None = None if name is None else []
        recorder.shown = shown
        modes = _count_modes()
        try:
            _push_mode(recorder)  # in here: an interrupt may come right behind it
            value = function(*args, **kwargs) if not self.checks else self.watched(function, args, kwargs)
        finally:
            if _count_modes() > modes:
                _pop_mode()
            recorder.shown = None
        if shown is not None and recorder.trouble is None:
            recorder_fast_path.learn(name, function, args, kwargs, shown)
        return value

    def plainly(self, function: Callable, /, *args: Any, **kwargs: Any) -> Any:
        """Call native code that cannot touch tensors."""
        try:
            value = function(*args, **kwargs) if not self.checks else self.watched(function, args, kwargs)
            if self.frame is not None:
                self.answer = (self.frame, self.frame.pc, value)
            return value
        except (Stop, Late, Raised, InternalError):
            raise
        except BaseException as error:
            trouble = error
        try:
            raise Raised(trouble)
        finally:
            del trouble

    def watched(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        from ..guards.untraced_call_detector import Tripwire

        if (
            getattr(function, "__module__", None) in RUN_AGAIN
            or isinstance(function, functools._lru_cache_wrapper)
            or getattr(function, "_burnish_constant", False)
        ):
            return function(*args, **kwargs)
        with Tripwire(function, self.recorder):
            return function(*args, **kwargs)

    def stop(self, kind: breaks.BreakKind, what: str) -> NoReturn:
        raise Stop(kind, what)

    def late(self, kind: breaks.BreakKind, what: str, value: Any) -> NoReturn:
        """The operation just executed turns out to be a break."""
        raise Late(kind, what, value=value)

    def fail(self, what: str, error: BaseException) -> NoReturn:
        """Torch raised this: the segment ends, and plain execution raises it at its place."""
        raise Late(breaks.TENSOR_ERROR, what, error=error)

    def check_readable(self, function: Any, value: Any) -> None:
        """Native code is about to read ``value``: stop where no guard covers what it would see."""
        why = self.heap.why_not_readable(value)
        if why is not None:
            self.stop(breaks.OPAQUE_CALL, f"{getattr(function, '__qualname__', function)} of {why}")

    def depth(self) -> int:
        return 0 if self.frame is None else self.frame.depth

    def refuse_opcode(self, opname: str) -> NoReturn:
        raise Stop(breaks.OPAQUE_OPCODE, opname)

    def refuse_state(self, what: str) -> NoReturn:
        raise Stop(breaks.UNSUPPORTED_WRITE, what)

    def is_constant(self, value: Any) -> bool:
        """Whether ``value`` may stand in a graph as it is."""
        if isinstance(value, (FunctionType, torch.nn.Module, torch.Generator)):
            return isinstance(value, FunctionType) and id(value) in self.heap.pinned_functions
        return self.heap.has_fixed_meaning(value)

    def knows(self, value: torch.Tensor) -> bool:
        """Whether ``value`` is an input of the graph, or computed in it."""
        return self.recorder.handle_of(value) is not None or self.heap.origin_of(value) is not None

    def changed_after(self, value: torch.Tensor, position: int) -> bool:
        return self.recorder.changes_after(position)

    def clone_at(self, value: torch.Tensor, position: int) -> Handle:
        recorder = self.recorder
        return recorder.clone_at(recorder.tensor(value), position)

    # ---- guards asked for by live values

    def guard_value(self, expression: live_scalars.Expression, value: Any) -> None:
        if expression.in_graph:
            graph_numbers.refuse(self)
        if self.open_sizes is not None:
            self.open_sizes.symbols.note_settled(expression)
        if expression.operation is None:
            self.heap.guard("equal", expression.operands[0], value)
        elif type(value) is float and value != value:
            self.heap.guard("outcome", None, (live_scalars.Expression(operators.is_nan, (expression,)), True))
        else:
            self.heap.guard("outcome", None, (live_scalars.Expression(operators.same_value, (expression, value)), True))

    def apply_in_graph(self, operation: Callable, operands: tuple) -> Any:
        return graph_numbers.apply(self, operation, operands)

    def guard_outcome(self, expression: live_scalars.Expression, value: bool) -> None:
        self.heap.guard("outcome", None, (expression, value))

    # ---- names

    def load_global(self, frame: Frame, name: str) -> Any:
        namespace = frame.globals
        origin = self.origins.get(id(namespace))
        if origin is not None and origin.obj is namespace and name in origin.known:
            if name in namespace:
                value = namespace[name]
                return value if origin.known[name] == id(value) else self.heap.read_key(origin, name)
            if name in frame.builtins:
                return frame.builtins[name]
        names = self.fixed_names.get(id(namespace))
        if names is None and is_trusted_namespace(namespace):
            names = self.fixed_names[id(namespace)] = {}
        if names is not None:
            if name in namespace:
                value = namespace[name]
                if names.get(name, MISSING) is not value:
                    names[name] = self.heap.adopt_named(namespace, name, value)
                return value
            if name in frame.builtins:
                return frame.builtins[name]
            return super().load_global(frame, name)
        value = self.heap.read_key(self.heap.namespace(namespace), name)
        if value is MISSING:
            return super().load_global(frame, name)
        return value

    def store_global(self, frame: Frame, name: str, value: Any) -> None:
        if self.region is not None:
            self.region.will_write(frame.globals)
        self.heap.will_write_key(self.heap.namespace(frame.globals), name)
        frame.globals[name] = value

    def delete_global(self, frame: Frame, name: str) -> None:
        if self.region is not None:
            self.region.will_write(frame.globals)
        if name in frame.globals:
            self.heap.will_write_key(self.heap.namespace(frame.globals), name, deletes=True)
        super().delete_global(frame, name)

    def new_cell(self, value: Any) -> CellType:
        cell = super().new_cell(value)
        self.own_cells[id(cell)] = cell
        if self.region is not None:
            self.region.made.add(id(cell))
        return cell

    def load_cell(self, cell: Any) -> Any:
        if id(cell) in self.own_cells:
            return cell_value(cell)
        origin = self.heap.origin_of(cell)
        value = cell_value(cell)
        if origin is None:
            return self.heap.adopt(value)
        if not origin.known and not origin.written:
            number = self.heap.changing_number(value, origin.source.child("cell"))
            if number is not None:
                return number
            origin.note_read("contents", value)
            if value is UNBOUND:
                self.heap.guard(
                    "outcome",
                    None,
                    (
                        live_scalars.Expression(
                            operators.is_unbound, (live_scalars.Expression(None, (origin.source,)),)
                        ),
                        True,
                    ),
                )
                return value
            return self.heap.admit(value, origin.source.child("cell"))
        if "contents" in origin.known and not origin.written:
            self.heap.read_again(origin, "contents", value)
        return value

    def store_cell(self, cell: Any, value: Any) -> None:
        if self.region is not None:
            self.region.will_write(cell)
        origin = self.heap.origin_of(cell)
        if origin is not None and id(cell) not in self.own_cells:
            origin.note_written("contents")
        super().store_cell(cell, value)

    def special(self, obj: Any, name: str) -> Any:
        found = attributes.special_method(self, obj, name)
        if found is MISSING:
            return super().special(obj, name)
        return found

    def plain_attr(self, obj: Any, name: str) -> Any:
        try:
            value = attributes.load(self, obj, name)
        except Raised as raised:
            if isinstance(raised.error, AttributeError):
                return MISSING
            raise
        if value is PUSHED:
            self.frame = self.frame.caller  # type: ignore[union-attr]
            self.stop(breaks.OPAQUE_OPCODE, f"a pattern reads the property {name}")
        return value

    def import_name(self, frame: Frame, name: str, level: int, names: Any) -> Any:
        return calls.import_module(self, frame, name, level, names)

    def import_from(self, module: Any, name: str) -> Any:
        try:
            return attributes.load(self, module, name)
        except Raised:
            return self.plainly(super().import_from, module, name)

    # ---- operators

    def answers_truth_by_frame(self, value: Any) -> bool:
        return operators.truth_method(self, value) is not None

    def push_truth_and_keep(self, value: Any, target: int, jump_on: bool) -> None:
        pushed = operators.truth(self, value)
        assert pushed is PUSHED and self.frame is not None
        self.frame.completion, self.frame.spare = fr.JUMP_OR_POP, (target, jump_on)

    def length(self, value: Any) -> Any:
        return calls.call(self, len, (value,), {})

    def format(self, value: Any, convert: Callable | None, spec: str) -> Any:
        return operators.format_value(self, value, convert, spec)

    def join_strings(self, parts: list) -> str:
        if any(isinstance(p, Live) for p in parts):
            return live_scalars.apply(operators.join, *parts)
        return "".join(parts)

    def reach_foreign(self, iterator: Any) -> None:
        if iterator is not None:
            self.stop(breaks.OUTSIDE_ITERATOR, "an error thrown into what a generator delegates to")

    # ---- iteration

    def next_for(self, iterator: Any) -> Any:
        if type(iterator) is Generator:
            self.take_over(iterator)
            return self.resume(iterator, None, fr.FOR_ITER)
        return operators.advance(self, iterator)

    def send(self, receiver: Any, value: Any) -> tuple[bool, Any]:
        if type(receiver) is Generator:
            self.take_over(receiver)
            return super().send(receiver, value)
        if value is not None:
            self.stop(breaks.OUTSIDE_ITERATOR, "a value sent to a foreign iterator")
        answer = operators.advance(self, receiver)
        if answer is PUSHED:
            assert self.frame is not None
            self.frame.completion = fr.SEND
            return False, PUSHED
        return (True, None) if answer is EXHAUSTED else (False, answer)

    def append(self, target: list, value: Any) -> None:
        origin = self.heap.origin_of(target)
        if origin is not None:
            self.heap.will_append(target, origin)
        target.append(value)

    def add(self, target: set, value: Any) -> None:
        operators.check_key(self, value)
        self.heap.will_write(target)
        target.add(value)

    def to_tuple(self, value: Any, function: Any) -> Any:
        if isinstance(value, list):
            self.heap.expose(value)
        elif not isinstance(value, tuple):
            return calls.call(self, tuple, (value,), {})
        return tuple(value)

    def to_dict(self, value: Any) -> dict:
        if type(value) is dict:
            self.heap.will_write(value)  # read as a whole; what its values hold is read where somebody reads it
            return dict(value)
        if isinstance(value, dict):
            self.heap.expose(value)
            return dict(value)
        if object_creation.needs_interpreting(self, value):
            return calls.call(self, dict, (value,), {})
        self.stop(breaks.OPAQUE_CALL, f"** of a {type(value).__name__}")

    def match_keys(self, subject: Any, keys: tuple) -> tuple | None:
        self.heap.expose(subject)
        return super().match_keys(subject, keys)

    # ---- calls

    def made(self, value: Any) -> Any:
        if self.region is not None:
            self.region.made.add(id(value))
        if type(value) not in (list, dict, set, tuple):
            self.heap.make(value)
            self.answer = None  # what the program makes is held by the program alone
        return value

    def check_keys(self, keys: list) -> None:
        for key in keys:
            operators.check_key(self, key)

    def raise_from(self, error: Any, cause: Any, has_cause: bool) -> Any:
        if isinstance(cause, type) and issubclass(cause, BaseException):
            cause = self.call(cause, (), {})
            if cause is PUSHED:
                self.frame = self.frame.caller  # type: ignore[union-attr]
                self.stop(breaks.RAISED, "the class of a cause has its own constructor")
        return super().raise_from(error, cause, has_cause)
