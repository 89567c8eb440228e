"""Function transforms in the graph: ``torch.func``'s, as the plain operators that they perform.

    torch.func.grad(lambda t: t.sin().sum())(x)         sin = aten.sin(x);  ones = aten.full([], 1) …
                                                        cos = aten.cos(x);  mul = aten.mul(expand, cos)

A backend that runs Python gets one node for such a call (`lambda_lifting`). Any other backend gets operators.
Torch's own Python (``vmap_impl``, ``vjp``) runs natively, as in eager. Where it calls a function of the program, that
function is interpreted (`native_callbacks`), so everything that it reads is guarded. Below all transforms, a
dispatch mode records the operators on plain tensors (`lowered_calls`). They replace the calls that the interpreter has
recorded, whose tensors belong to a level of a transform.

Like a branch of ``torch.cond``, the call is a *region*: before it prints or breaks, it is given up: the segment ends
before it. Writes to objects of the program are effects as elsewhere; until the end of the call, they can be undone.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any, NoReturn

import torch

from ....concurrency.outside_errors import came_from_outside, reraise_from_outside
from ....foundation.torch_private import is_functorch_wrapped_tensor
from ....runtime.argument_trees import mapped, tensors_in
from ... import breaks
from ...engine.break_signals import BreakAfterOperation, Stop
from ...engine.torch_call_records import TorchCall
from ...interpreter.bytecode_decoder import decode
from ...interpreter.frames import UNBOUND, cell_value
from ...interpreter.program_or_tracer_errors import call_for_program, is_ours
from ...numbers import specialize_inexact_scalars
from ...numbers.live_scalars import Expression, Live
from ...python.operators import guard_before_native_read
from ...python.trace_rollback import CallStart, Region
from ...segments.effects import Effect
from .. import function_modes, number_arguments, torch_call_roles
from ..cond import Branch, facts_of
from ..custom_functions.autograd_function_traceability import ClassReader, Names, NotTraceable
from ..graph_regions.graph_region import drawing_from
from . import interpreted_vmap
from .find_tensors_and_functions import find_tensors_and_functions
from .native_callbacks import call_nested, landing_place
from .undo_log import UndoLog

DIRECT = frozenset("jvp vjp".split())
"""Transforms that take the function and its arguments in one call."""


def is_transformed(function: FunctionType) -> bool:
    """Whether it is a function that a transform has returned: ``vmap(f)``, or what ``vjp`` returns."""
    return function.__closure__ is not None


def call(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    """Call a transform (one of `DIRECT`), or a transformed function."""
    name = function.__code__.co_name if not is_transformed(function) else function.__qualname__.partition(".")[0]
    function_modes.refuse(m, f"torch.func's {name}")
    if isinstance(m.region, Transform):
        if m.region.lowered.repeats_calls:  # a dual level
            m.region.refuse(f"torch.func's {name} inside a dual level")
        return m.region.call_native(function, args, kwargs)
    if m.region is not None and not isinstance(m.region, Branch):
        m.region.refuse(f"torch.func's {name}")
    if m.symbolic_sizes is not None and m.region is not None:
        m.symbolic_sizes.symbols.settle_all("a function transform in a branch of torch.cond")
    region = m.region = Transform(m, name, list(tensors_in((args, kwargs))))
    region.keeps_numbers = region.outer is None
    try:
        return region.run(function, args, kwargs)
    except Stop:
        if not region.lowered.has_numbers:
            raise
    m.region = Transform(m, name, list(tensors_in((args, kwargs))))
    return m.region.run(function, args, kwargs)


class Transform(Region):
    """A call of a transformed function that is being traced."""

    runs_both = True
    """Python that runs natively is refused."""
    lowers = True
    """The graph gets the operators that are performed, those of backward passes included."""
    delays_warnings = True

    def __init__(self, m: Any, name: str, given: list[torch.Tensor]):
        from .lowered_calls import LoweredCalls  # few programs transform functions

        super().__init__(m)
        self.name, self.start = name, CallStart(m, drawing_from(given))
        self.kept: list[Any] = []
        """Objects of torch's code. While they are held, no other object has their id."""
        self.branches = 0
        """How many branches of ``torch.cond`` are being run."""
        self.writes = UndoLog(m.heap)
        self.lowered = LoweredCalls(m.recorder, self.start.calls, self.outer)
        self.keeps_numbers = False
        """Whether numbers may differ in the next call."""
        self.log = self.lowered.log = self.begun_log()
        """With symbolic sizes: what is needed to repeat the call at other sizes."""
        self.delayed: list[Effect] = []
        """Warnings. They appear when the call has ended, because a call that is given up warns again."""

    def begun_log(self) -> Any:
        sizes = self.m.symbolic_sizes
        if sizes is None or not sizes.symbols.is_any:
            return None
        return sizes.begin_transform(self.start.calls, is_functorch)

    def leave(self) -> None:
        super().leave()
        if self.log is not None:
            self.m.symbolic_sizes.replay.inside = None

    # ---- side effects that a region forbids

    def will_write(self, target: Any) -> None:
        """An object other than a tensor is about to be changed."""
        if self.branches:
            self.refuse(f"a change of a {type(target).__qualname__} in a branch of torch.cond")
        super().will_write(target)

    def may_change(self, target: Any) -> bool:
        return super().may_change(target) or self.writes.will_change(target)

    def refuse(self, what: str) -> NoReturn:
        raise Stop(breaks.OPAQUE_FUNCTION, what)

    def before_node(self, call: Any) -> None:
        self.refuse(f"a call of {call.function.__qualname__}")

    def delay(self, effect: Effect) -> None:
        if self.branches or self.outer is not None:
            self.refuse("a warning in a branch of torch.cond")
        self.delayed.append(effect)

    def will_call(self, function: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        """A torch call of the program is about to be made. Returns the arguments to call it with, if they are others.
        Numbers that may differ in the next call are symbolic, or constants. Those of powers are constants: gradients
        have other formulas for some."""
        target, name = torch_call_roles.target_of(function), torch_call_roles.name_of(function)
        if self.keeps_numbers and "pow" not in name and number_arguments.takes_live_numbers(target):
            args, kwargs = specialize_inexact_scalars.with_exact_numbers(name, args, kwargs)
            args, kwargs = mapped((args, kwargs), Live, lambda n: n if self.is_size(name, n) else self.symbolic(n))
        guard_before_native_read.settle_all(
            self.m, mapped((args, kwargs), Live, lambda n: None if self.is_size(name, n) else n)
        )
        self.lowered.begin((function, args, kwargs))
        return (args, kwargs) if self.lowered.has_numbers else None

    def is_size(self, name: str, number: Live) -> bool:
        """Whether a number is one that is found in the operators, as a formula of sizes."""
        return self.log is not None and self.m.symbolic_sizes.takes(number, name)

    def symbolic(self, number: Live) -> Any:
        from . import symbolic_numbers

        self.lowered.has_numbers = True
        return symbolic_numbers.symbolic(number)

    def begin_branches(self) -> None:
        self.branches += 1

    def choose(self, predicate: torch.Tensor, *sides: Any) -> torch.Tensor:
        """The result of ``torch.cond`` with a predicate for each example."""
        self.branches -= 1
        if any(type(side) is not torch.Tensor for side in sides) or facts_of(sides[0]) != facts_of(sides[1]):
            self.refuse("results of a branch of torch.cond that are not one tensor each, or differ")
        return self.m.perform(torch.where, predicate, *sides)

    # ---- native code

    def run(self, function: FunctionType, args: tuple, kwargs: dict) -> Any:
        """Make the call, and record its operators."""
        try:
            with self.lowered:
                value = self.call_native(function, args, kwargs)
            value = self.end(value)
        except (Stop, BreakAfterOperation) as signal:
            if came_from_outside(getattr(signal, "error", None)):
                self.undo()
                raise
            stop = Stop(signal.kind or breaks.RAISED, f"torch.func's {self.name}: {signal.what}")
        except Exception as error:
            reraise_from_outside(error)
            if is_ours(self.m, error):
                self.undo()
                raise
            stop = Stop(breaks.RAISED, f"{type(error).__name__} leaves torch.func's {self.name}")
        except BaseException:
            self.undo()
            raise
        else:
            for effect in self.delayed:
                self.m.effects.append(effect._replace(position=len(self.m.recorder.calls)))
                self.m.plainly(effect.function, *effect.args)
            return value
        self.undo()
        raise stop

    def call_native(self, function: FunctionType, args: tuple, kwargs: dict) -> Any:
        """Torch's code, in which calls of the program's functions are interpreted."""
        m = self.m
        if interpreted_vmap.is_needed(function, args):
            self.cannot_repeat("a vmap of objects")
            return interpreted_vmap.run(self, function, args, kwargs)
        for value in (*args, *kwargs.values()):
            m.heap.expose(value)
            # Torch's code passes numbers on to the function.
            guard_before_native_read.settle_all(
                m, mapped(value, Live, lambda number: None) if self.keeps_numbers else value
            )
        args, kwargs = mapped((args, kwargs), Live, lambda number: number)
        if self.log is not None:
            self.log.begins(function, args, kwargs)
        if is_transformed(function):
            function = self.made_again(function)
        else:
            guard_before_native_read.settle_all(m, kwargs)  # ``has_aux=n``
            args = (self.called_back(args[0]), *args[1:]) if args else args
            kwargs = {k: self.called_back(v) if k == "func" else v for k, v in kwargs.items()}
        self.meet((args, kwargs))
        value = call_for_program(m, function, args, kwargs)
        self.meet(value)
        if self.log is not None:
            self.log.ends(value)
        return value

    def cannot_repeat(self, why: str) -> None:
        if self.log is not None:
            self.log.why_not = why

    def made_again(self, function: FunctionType) -> FunctionType:
        """A function of torch's, around functions that are interpreted."""
        cells = function.__closure__
        code = decode(function.__code__)
        self.m.put_cells(function, [UNBOUND] * code.n_locals, code)
        held = cells and tuple([CellType(self.called_back(self.held_by(cell))) for cell in cells])
        made = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, held)
        made.__kwdefaults__ = function.__kwdefaults__
        return made

    def held_by(self, cell: CellType) -> Any:
        """The value of a closure cell. A cell from outside is read, and guarded, as if its function read it."""
        return cell_value(cell) if self.m.heap.origin_of(cell) is None else self.m.load_cell(cell)

    def called_back(self, value: Any) -> Any:
        """A function as native code should call it; other values unchanged."""
        if isinstance(value, Live):
            return value.settle()
        if isinstance(value, (torch.Tensor, type)) or not callable(value):
            self.m.heap.expose(value)
            guard_before_native_read.settle_all(self.m, value, converts=False)  # ``in_dims=(n, None)``
            return value
        if type(value) is FunctionType and is_functorch(value):
            return self.made_again(value) if is_transformed(value) else value

        def interpreted(*args: Any, **kwargs: Any) -> Any:
            self.meet((args, kwargs))
            outer, self.lowered.current = self.lowered.current, None
            if self.log is not None:
                self.log.calls_back(args, kwargs)
            try:
                result = call_nested(self.m, value, args, kwargs)
            finally:
                self.lowered.current = outer
            if self.log is not None:
                self.log.goes_on(result)
            return result

        self.kept.append(value)
        return interpreted

    def apply_custom(self, cls: type, args: tuple, kwargs: dict) -> Any:
        """A custom ``autograd.Function``. It runs natively, if its bytecode shows that this is safe."""
        names = Names(cls)
        why = why_not_transformed(cls, names)
        if why is not None:
            self.refuse(f"{cls.__qualname__}.apply: {why}")
        self.m.heap.guard("outcome", None, (Expression(names.are_as_they_were, ()), True))
        self.cannot_repeat("a custom autograd function")
        self.will_call(cls.apply, args, kwargs)  # type: ignore[attr-defined]
        self.lowered.has_custom = True
        value = call_for_program(self.m, cls.apply, args, kwargs)  # type: ignore[attr-defined]
        self.lowered.current = None
        self.meet(value)
        return value

    def meet(self, values: Any) -> None:
        """Make tensors that native code hands to the program known, for as long as the region lasts."""
        recorder = self.m.recorder
        new = [
            t for t in find_tensors_and_functions(self.m, values) if isinstance(t, torch.Tensor) and not self.m.knows(t)
        ]
        if new:
            recorder.register(new, recorder.add(TorchCall(landing_place, (), {}, None)))
            self.kept += new

    # ---- the end

    def end(self, value: Any) -> Any:
        m = self.m
        if self.start.has_switched():
            self.refuse("a change of a global switch")
        written = [part for part, before in self.writes.contents() if not any(map(is_wrapped, before))]
        leaves = find_tensors_and_functions(m, (value, written))
        functions = [leaf for leaf in find_tensors_and_functions(m, value) if isinstance(leaf, FunctionType)]
        if functions and not m.capabilities.keeps_functions:
            self.refuse("it returns a function that holds tensors of this run")
        results = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if self.lowered.has_numbers and (functions or any(result.requires_grad for result in results)):
            self.refuse("a symbolic number that autograd has saved")  # its tensor there has another value
        if not all(map(self.lowered.knows_outside, filter(is_wrapped, results))):
            self.refuse("a tensor of its own in an object from outside")
        self.lowered.take_sizes()
        self.forget()
        self.lowered.put_in_place(results, keeps_all=bool(functions), line=m.user_line())
        self.leave()
        for function in functions:
            m.made(function)
        return value

    def forget(self) -> None:
        """Forget what the interpreter has recorded. `lowered` has the operators."""
        recorder, start = self.m.recorder, self.start.calls
        recorder.drop_calls(start)
        recorder.grown = {at: dim for at, dim in recorder.grown.items() if at < start}

    def undo(self) -> None:
        """Return to the start of the call."""
        self.leave()
        self.writes.undo()
        self.forget()
        self.start.go_back(self.m)


def why_not_transformed(cls: type, names: Names) -> str | None:
    """Why a custom function may not run natively, its rules for `vmap` and `jvp` included."""
    reader = ClassReader(names)
    try:
        reader.function_class(cls)
        for rule in ("vmap", "jvp"):
            method = getattr(cls, rule)
            if not method.__module__.startswith("torch."):
                reader.function(method, takes_ctx=rule == "jvp")
    except NotTraceable as why:
        return str(why)
    return None


def is_wrapped(value: Any) -> bool:
    """Whether a tensor belongs to a level of a transform."""
    return isinstance(value, torch.Tensor) and is_functorch_wrapped_tensor(value)


def is_functorch(function: Callable) -> bool:
    module = getattr(function, "__globals__", {}).get("__name__") or ""
    return module.startswith("torch._functorch") and module != "torch._functorch.functional_call"
