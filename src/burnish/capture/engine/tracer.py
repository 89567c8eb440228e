"""The tracer: an interpreter of bytecode that records guards, torch calls and side effects.

It runs the same instructions on the same real objects, with the same results. Each operation also looks up the source
of its operands. State from outside is guarded when read and recorded when written (``heap``). Torch calls go through
the recorder. ``calls`` decides which calls are interpreted, native or a graph break. A break ends the trace *before*
the instruction that causes it:

* ``Stop`` is raised when the instruction must not run here (an unknown C function);
* ``BreakAfterOperation`` is raised after the operation, when it turned out to be a break (tensor data reached Python).
  The result is kept, so that nothing happens twice.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from types import CellType, FunctionType
from typing import Any, NoReturn

import torch

from ... import events, settings
from ...foundation.torch_private import get_torch_function_state
from ...frontend.dynamic_shapes_and_sources import SizeRequests
from .. import breaks
from ..interpreter import frames as fr
from ..interpreter.argument_binding import frame_for
from ..interpreter.decoded_code import Code
from ..interpreter.deferred_os_signals import Signals
from ..interpreter.exception_context import stop_iteration_error
from ..interpreter.frames import MISSING, PUSHED, Frame, Generator, Raised, frames_from, made_no_error
from ..interpreter.instruction_loop import Machine
from ..interpreter.versions.behavior import BEHAVIOR
from ..numbers import graph_numbers, live_scalars, object_addresses
from ..numbers.live_scalars import Live
from ..python import object_builtins
from ..python.attributes import attribute_reads, attribute_writes, descriptor_binding
from ..python.calls import call_dispatch, import_statements
from ..python.messages import effect_functions, print_and_format
from ..python.operators import (
    binary_operators,
    functions_called_by_guards,
    guard_before_native_read,
    iteration,
    membership,
    subscripts,
    truth_and_identity,
    value_kinds,
)
from ..python.polyfills import object_polyfills
from ..pytorch import activation_checkpointing
from ..pytorch.backward_and_grad import GradFields
from ..segments import leave_to_python
from ..subclasses import tentative_dispatch_callbacks
from ..subclasses.subclass_tensors import Subclasses
from ..symbolic_sizes.unbacked_sizes import UnbackedSizes
from . import adopt_outside_generators, globals_and_cells, run_native_call
from .break_signals import BreakAfterOperation, Stop
from .container_changes import table_read_at_once
from .graph_recorder import Recorder
from .heap import Heap
from .interpreted_or_native import TORCH_PATH
from .torch_call_records import Handle
from .trace_capabilities import TraceCapabilities

# Errors that end a frame without being raised in its caller.
ENDS = {fr.FOR_ITER: StopIteration, fr.SEND: StopIteration, fr.CLOSE: (StopIteration, GeneratorExit)}


class Tracer(Machine):
    # The operations under a trace.
    load_attr = attribute_reads.load  # type: ignore[assignment]
    store_attr = attribute_writes.store  # type: ignore[assignment]
    delete_attr = attribute_writes.delete  # type: ignore[assignment]
    binary = binary_operators.binary  # type: ignore[assignment]
    unary = binary_operators.unary  # type: ignore[assignment]
    truth = truth_and_identity.truth  # type: ignore[assignment]
    same = truth_and_identity.is_same  # type: ignore[assignment]
    contains = membership.contains  # type: ignore[assignment]
    subscript = subscripts.subscript  # type: ignore[assignment]
    store_subscript = subscripts.store_subscript  # type: ignore[assignment]
    delete_subscript = subscripts.delete_subscript  # type: ignore[assignment]
    iterate = iteration.iterate  # type: ignore[assignment]
    iterate_in_loop = iteration.iterate_in_loop  # type: ignore[assignment]
    unpack = iteration.unpack  # type: ignore[assignment]
    extend = iteration.extend  # type: ignore[assignment]
    call = call_dispatch.call  # type: ignore[assignment]
    load_global = globals_and_cells.load_global  # type: ignore[assignment]
    load_builtin = globals_and_cells.load_builtin  # type: ignore[assignment]
    store_global = globals_and_cells.store_global  # type: ignore[assignment]
    delete_global = globals_and_cells.delete_global  # type: ignore[assignment]
    load_name = globals_and_cells.load_name  # type: ignore[assignment]
    store_name = globals_and_cells.store_name  # type: ignore[assignment]
    delete_name = globals_and_cells.delete_name  # type: ignore[assignment]
    new_cell = globals_and_cells.new_cell  # type: ignore[assignment]
    put_cells = globals_and_cells.put_cells
    load_cell = globals_and_cells.load_cell  # type: ignore[assignment]
    store_cell = globals_and_cells.store_cell  # type: ignore[assignment]
    resume = adopt_outside_generators.resume  # type: ignore[assignment]
    throw = adopt_outside_generators.throw  # type: ignore[assignment]
    send = adopt_outside_generators.send  # type: ignore[assignment]
    reach_foreign = adopt_outside_generators.reach_foreign  # type: ignore[assignment]
    push = leave_to_python.push
    return_from = leave_to_python.return_from
    # Calls of native code.
    perform = run_native_call.perform
    perform_as = run_native_call.perform_as
    fail_call = run_native_call.fail_call
    under_recorder = run_native_call.under_recorder
    plainly = run_native_call.plainly
    watched = run_native_call.watched
    interpret = tentative_dispatch_callbacks.interpret
    interpret_purely = tentative_dispatch_callbacks.interpret_purely
    take_over = adopt_outside_generators.take_over
    adopt_running_generators = adopt_outside_generators.adopt_running_generators

    def __init__(self, frame: Frame, options: Any):
        super().__init__(frame)
        self.options = options
        self.capabilities = TraceCapabilities()
        self.heap = Heap(self)
        self.origins = self.heap.origins
        self.recorder = Recorder(self)
        self.gradients = GradFields(self)
        self.subclasses = Subclasses()
        self.go_on: Any = None  # how plain Python goes on after a break, as `trace_segment.machine_after_break`
        self.unbacked_sizes = UnbackedSizes(self)
        self.modes: list[Any] = []  # torch function modes that the program has entered: see function_modes
        self.ends_in_level = False  # see forward_dual_levels
        self.rules_at_start = get_torch_function_state()
        self.symbolic_sizes: Any = None  # SymbolicSizes, if a size may differ in the next call
        self.random_objects: dict[int, Any] = {}  # generators made in this trace: see random_objects
        self.settings_at_start: dict[str, Any] | None = None  # torch's, if the program has changed one
        self.size_requests: SizeRequests | None = None  # if the program says anything about sizes
        self.cached_answers: Any = None  # CachedAnswers, once a cached function gets a live number
        self.chosen: list[Any] = []  # results of min() and max() of tensors: see tensor_extremes
        self.region: Any = None  # a checkpointed call that is being interpreted (checkpointing.Region)
        self.effects: list[Any] = activation_checkpointing.TraceEffects(self)
        self.filters: dict[int, Any] = {}  # by block: warning filters that differ from the segment's start
        self.arrays: dict[int, Any] = {}  # NumPy arrays made of constants: see constant_arrays
        self.shared_arrays: dict[int, Any] = {}  # arrays and NumPy scalars, with their tensors: see graph_arrays
        self.addresses: dict[int, Any] = {}  # of objects made here, with these: see object_addresses
        self.user_keys: dict[int, list[Any]] = {}  # keys with methods in Python, by hash: see user_keys
        self.user_key_attributes: dict[int, list[Any]] = {}  # of such a key, when it was hashed first
        self.known_codes: set[Any] = set()  # of these methods: C code calls them after they were interpreted
        self.module_hooks: list[Any] = []  # of modules called in this trace
        self.consumed: list[Any] = []  # iterators that a call has advanced before its error left the function
        self.hooks: dict[int, Any] = {}  # registered in this trace: see tensor_object_change_nodes
        self.ends_before: int | None = None  # the number of recorded calls at which the segment has to end
        self.hooked_late: int | None = None  # the number at which the next one has to: see tensor_hooks_and_data
        self.traced_hooks: list[Any] = []  # whose bodies are graphs: see traced_gradient_hooks, unused_outputs
        self.has_classes = self.has_assertions = False
        effect_functions.register_loaded()
        self.set_variables: list[Any] = []  # tokens that reset context variables: see context_variables
        self.unwanted: frozenset[Any] = frozenset()  # functions that the program leaves out: see marks_of_dynamo
        self.context_values: dict[int, Any] = {}  # what context variables held: see context_variables
        self.views_of_blocks: dict[int, Any] = {}  # arguments of blocks, by the tensor they show: see repeated_blocks
        self.checked_depth = 0  # up to which calls may nest: see function_calls
        self.cells: set[int] = set()
        self.own_cells: dict[int, CellType] = {}
        self.lookups: dict[tuple[type, str], Any] = {}
        self.lookups_after: dict[tuple[type, type, str], Any] = {}  # by ``super()``
        self.plans: dict[tuple, Any] = {}  # how attributes are read
        self.fixed_names: dict[int, dict[str, Any]] = {}  # names read in trusted namespaces
        self.ordinary: dict[int, tuple[FunctionType, Code]] = {}  # functions that are simply interpreted
        self.made_of: dict[int, tuple[Code, dict]] = {}  # code and globals of interpreted functions
        self.changing: frozenset = frozenset()  # paths of numbers that differ from run to run
        self.count = 0
        self.left: Mapping[Any, str] = {}  # codes that are left to Python: see leave_to_python
        self.entered, self.returned = Counter[Any](), list[tuple[Any, int]]()  # see there
        self.is_short_of_stack = False  # in this call, by our own frames
        self.earlier_segments = 0  # of the continuation that is traced
        self.program_error: BaseException | None = None  # see program_or_tracer_errors
        self.answer: tuple[Frame, int, Any] | None = None  # the last native result, and its instruction
        self.line_cache: dict[tuple[int, int], tuple[str | None, bool]] = {}
        if not options.runs_python or events.is_asked_for("plan"):
            self.user_line = self.described_line  # type: ignore[method-assign]
        self.global_hooks_guarded = False
        self.module_kinds: set[type] = set()  # classes of modules with the ``__call__`` of ``nn.Module``
        self.own_call_kinds: set[type] = set()  # classes of modules with their own ``__call__``
        self.signatures: dict[tuple[type, int], Any] = {}
        self.without_hooks: set[int] = set()  # modules' dictionaries guarded to have no hooks
        self.checks = settings.current().check
        self.signals = Signals()

    def release(self) -> None:
        """Release all objects of the trace. The parts of a tracer reference each other, so these objects (all tensors
        of a training step, for example) would otherwise live until Python collects cycles."""
        self.frame = self.answer = self.program_error = self.cached_answers = None
        kept = self.heap.guards  # the segment's
        for part in (
            self,
            self.heap,
            self.heap.sources,
            self.recorder,
            self.gradients,
            self.subclasses,
            self.unbacked_sizes,
            self.unbacked_sizes.replay,
        ):
            for value in vars(part).values():
                if issubclass(type(value), (dict, list, set)) and value is not kept:
                    value.clear()
        if self.symbolic_sizes is not None:
            self.symbolic_sizes.given.clear()

    # ---- the loop

    def trace(self) -> Stop | BreakAfterOperation | None:
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
                            self.answer, instructions = None, frame.instructions  # it may hold a frame that returned
                except Raised as raised:
                    trouble = raised.error
                try:
                    if not self.will_be_handled(trouble):
                        return BreakAfterOperation(None, f"{type(trouble).__name__} leaves the function", error=trouble)
                    self.unwind(trouble)
                finally:
                    del trouble  # its traceback holds this frame: together they would outlive what they hold
        except (Stop, BreakAfterOperation) as signal:
            # Its traceback holds frames, and so objects that the program may drop next.
            return signal.with_traceback(None) if self.region is None else self.region.after_break(signal)
        finally:
            self.count += count
            if self.region is not None:
                self.region.leave()
            if self.frame is None:
                self.answer = None  # it holds the frame that has returned

    def will_be_handled(self, error: BaseException, base: Frame | None = None) -> bool:
        """Whether a frame above ``base`` handles the error."""
        frame = self.frame
        while frame is not base:
            assert frame is not None
            if frame.code.handler_at(frame.pc - 1) is not None:
                return True
            if frame.generator is not None and frame.generator.builtin is None:
                error = stop_iteration_error(error)  # the error that leaves the generator
            if frame.caller is not None and isinstance(error, ENDS.get(frame.completion, ())):
                return True
            frame = frame.caller
        return False

    def user_line(self) -> str | None:
        """The innermost line of the user's code, for graph nodes. Torch's own lines only if there are no others."""
        frame, line = self.frame, None
        while frame is not None:
            key = (id(frame.code), frame.pc)
            found = self.line_cache.get(key)
            if found is None:
                co = frame.code.co
                text = f'  File "{co.co_filename}", line {frame.line}, in {co.co_name}'
                found = self.line_cache[key] = (
                    None if frame.code.is_ours else text,
                    co.co_filename.startswith(TORCH_PATH),
                )
            if found[0] is not None:
                if not found[1]:
                    return found[0]
                line = line or found[0]
            frame = frame.caller
        return line

    def described_line(self) -> str | None:
        """The line for a graph of another compiler, which may ask for more."""
        from ..pytorch.modules.node_provenance import call_site  # loaded for those only

        text = Tracer.user_line(self)
        return None if text is None else call_site(self, text)

    def user_stack(self) -> tuple[breaks.Location, ...]:
        theirs = [(frame.code.co, frame.line) for frame in frames_from(self.frame) if not frame.code.is_ours]
        return tuple(breaks.Location(co.co_filename, line, co.co_qualname) for co, line in reversed(theirs))

    def enter(self, frame: Frame, function: FunctionType) -> None:
        """The outermost frame starts: its function is fixed, its free variables are read through it."""
        if function.__closure__:
            self.put_cells(function, frame.locals, frame.code)
        self.heap.guard("is", self.heap.sources.pin(function).attr("__code__"), function.__code__)

    def raise_here(self, error: BaseException) -> Any:
        if self.will_be_handled(error):
            raise Raised(error)
        # It is not handled, so the trace ends before an instruction that raises it: this one cannot run again.
        return self.push(frame_for(object_polyfills.raise_error, [error, error.__context__]))

    def stop(self, kind: breaks.BreakKind, what: str) -> NoReturn:
        raise Stop(kind, what)

    def late(self, kind: breaks.BreakKind, what: str, value: Any) -> NoReturn:
        """The operation just executed turns out to be a break."""
        raise BreakAfterOperation(kind, what, value=value)

    def fail(self, what: str, error: BaseException) -> NoReturn:
        """Torch raised this: the segment ends, and plain execution raises it at its place."""
        raise BreakAfterOperation(breaks.TENSOR_ERROR, what, error=error)

    def check_readable(self, function: Any, value: Any) -> None:
        """Native code is about to read ``value``: stop where no guard covers what it would see."""
        why = self.heap.why_not_readable(value)
        if why is not None:
            self.stop(breaks.OPAQUE_CALL, f"{getattr(function, '__qualname__', function)} of {why}")

    def depth(self) -> int:
        return 0 if self.frame is None else self.frame.depth

    def refuse_opcode(self, opname: str) -> NoReturn:
        raise Stop(breaks.OPAQUE_OPCODE, opname)

    leave_to_python = refuse_opcode

    def refuse_state(self, what: str) -> NoReturn:
        raise Stop(breaks.UNSUPPORTED_WRITE, what)

    def is_constant(self, value: Any) -> bool:
        """Whether ``value`` may be a constant of the graph."""
        if isinstance(value, (FunctionType, torch.nn.Module, torch.Generator)):
            return isinstance(value, FunctionType) and id(value) in self.heap.pinned_functions
        return self.heap.has_fixed_meaning(value)

    def knows(self, value: torch.Tensor) -> bool:
        """Whether ``value`` is an input of the graph, or computed in it."""
        return self.recorder.handle_of(value) is not None or self.heap.origin_of(value) is not None

    def clone_at(self, value: torch.Tensor, position: int) -> Handle:
        recorder = self.recorder
        return recorder.clone_at(recorder.tensor(value), position)

    # ---- guards asked for by live values

    def guard_value(self, expression: live_scalars.Expression, value: Any) -> None:
        if expression.in_graph:
            graph_numbers.refuse(self)
        if object_addresses.is_in(expression) and object_addresses.settle(self, expression, value):
            return
        if self.symbolic_sizes is not None:
            self.symbolic_sizes.symbols.note_settled(expression)
        if expression.operation is None:
            self.heap.guard("equal", expression.operands[0], value)
        else:
            is_it = (live_scalars.same_value, (expression, value))
            if type(value) is float and value != value:
                is_it = (functions_called_by_guards.is_nan, (expression,))
            self.heap.guard("outcome", None, (live_scalars.Expression(*is_it), True))

    def apply_in_graph(self, operation: Callable, operands: tuple) -> Any:
        return graph_numbers.apply(self, operation, operands)

    def guard_outcome(self, expression: live_scalars.Expression, value: bool) -> None:
        if not (object_addresses.is_in(expression) and object_addresses.decide(self, expression)):
            self.heap.guard("outcome", None, (expression, value))

    # ---- names

    def special(self, obj: Any, name: str) -> Any:
        found = descriptor_binding.special_method(self, obj, name)
        if found is MISSING:
            return super().special(obj, name)
        return found

    def plain_attr(self, obj: Any, name: str) -> Any:
        try:
            value = attribute_reads.load(self, obj, name)
        except Raised as raised:
            if isinstance(raised.error, AttributeError):
                return MISSING
            raise
        if value is PUSHED:
            self.frame = self.frame.caller  # type: ignore[union-attr]
            self.stop(breaks.OPAQUE_OPCODE, f"a pattern reads the property {name}")
        return value

    def is_instance(self, obj: Any, cls: type) -> bool:
        answer = object_builtins.is_instance(self, (obj, cls), {})
        if answer is PUSHED:
            self.frame = self.frame.caller  # type: ignore[union-attr]
            self.stop(breaks.OPAQUE_OPCODE, f"a pattern calls __instancecheck__ of {type(cls).__name__}")
        return answer

    def import_name(self, frame: Frame, name: str, level: int, names: Any) -> Any:
        return import_statements.import_module(self, frame, name, level, names)

    def import_from(self, module: Any, name: str) -> Any:
        try:
            return attribute_reads.load(self, module, name)
        except Raised:
            return self.plainly(super().import_from, module, name)

    # ---- operators

    def answers_truth_by_frame(self, value: Any) -> bool:
        return truth_and_identity.truth_method(self, value) is not None

    def push_truth_and_keep(self, value: Any, target: int, jump_on: bool) -> None:
        pushed = truth_and_identity.truth(self, value)
        assert pushed is PUSHED and self.frame is not None
        self.frame.completion, self.frame.spare = fr.JUMP_OR_POP, (target, jump_on)

    def length(self, value: Any) -> Any:
        return call_dispatch.call(self, len, (value,), {})

    def format(self, value: Any, convert: Callable | None, spec: str) -> Any:
        return print_and_format.format_value(self, value, convert, spec)

    def join_strings(self, parts: list) -> str:
        if any(isinstance(p, Live) for p in parts):
            return live_scalars.apply(functions_called_by_guards.join, *parts)
        return "".join(parts)

    # ---- iteration

    def next_for(self, iterator: Any) -> Any:
        if type(iterator) is not Generator:
            return iteration.advance(self, iterator)
        self.take_over(iterator)
        return self.resume(iterator, None, fr.FOR_ITER)

    def append(self, target: list, value: Any) -> None:
        with self.heap.appending(self.heap.origin_of(target)):
            target.append(value)

    def add(self, target: set, value: Any) -> None:
        (value,) = self.check_keys([value], set)
        with self.heap.changing_set(target, "add", (value,)):
            target.add(value)

    def to_tuple(self, value: Any, function: Any) -> Any:
        if not iteration.can_iterate(self, value):
            return super().to_tuple(value, function)
        if not issubclass(type(value), (list, tuple)) or iteration.needs_interpreting(self, value):
            return call_dispatch.call(self, tuple, (value,), {})
        return tuple(self.heap.items_read_at_once(value))

    def to_dict(self, value: Any) -> dict:
        if type(value) is dict:
            return dict(table_read_at_once(self.heap, value))  # its values' contents are guarded when they are read
        if iteration.needs_interpreting(self, value):
            return call_dispatch.call(self, dict, (value,), {})
        if issubclass(type(value), dict):
            self.heap.expose(value)
            return dict(value)
        self.stop(breaks.OPAQUE_CALL, f"** of a {type(value).__name__}")

    def match_keys(self, subject: Any, keys: tuple) -> tuple | None:
        if value_kinds.python_method(self, subject, "get"):
            self.stop(breaks.OPAQUE_OPCODE, f"a pattern calls get of {type(subject).__name__}")
        self.heap.expose(subject)
        return super().match_keys(subject, keys)

    # ---- calls

    def made(self, value: Any) -> Any:
        if self.region is not None:
            self.region.made.add(id(value))
        if type(value) not in (list, dict, set, tuple):
            self.heap.make(value)
            self.answer = None  # only the program may hold an object that it makes
        return value

    def refuse_key(self, key: Any) -> NoReturn:
        raise Stop(breaks.USER_HASH, f"a {type(key).__qualname__} in a set from outside")

    def check_keys(self, keys: list, container: type) -> list:
        for key in keys:
            if guard_before_native_read.check_key(self, key, container) is fr.RAISES:
                self.plainly(guard_before_native_read.hash_for, container, key)
        return [*map(guard_before_native_read.settled, keys)]

    def check_stored_keys(self, keys: list) -> None:
        for key in keys:
            guard_before_native_read.check_key(self, key)

    def raise_from(self, error: Any, cause: Any, has_cause: bool) -> Any:
        if isinstance(cause, type) and issubclass(cause, BaseException):
            kind, cause = cause, self.call(cause, (), {})
            if cause is PUSHED:
                self.frame = self.frame.caller  # type: ignore[union-attr]
                self.stop(breaks.RAISED, "the class of a cause has its own constructor")
            if BEHAVIOR.cause_of_class_is_checked and not isinstance(cause, BaseException):
                raise Raised(made_no_error(kind, type(cause)))
        return super().raise_from(error, cause, has_cause)
