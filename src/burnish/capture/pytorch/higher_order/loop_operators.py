"""Torch's loops in the graph: ``scan``, ``while_loop``, ``map``, ``associative_scan``, each a node with graphs.

    scan(step, start, xs)           scan = torch.ops.higher_order.scan(graph_0, [start], [xs], (weight,))

Torch's own Python around the operator (the checks, the flattening of arguments) is interpreted. Where it would call
``torch.compile``, the operator is called directly. Its functions are interpreted once, on the first element, and
recorded as graphs, like the branches of ``torch.cond``. Outside tensors that they read are further arguments. The
operator then runs on the values of this call, as in eager.

``switch`` is interpreted as calls of ``torch.cond`` in each other.

``torch.associative_scan`` with functions of single numbers (``combine_mode="pointwise"``) is interpreted instead, where
torch would pass its function to Dynamo. Others go to ``torch.vmap`` and end the graph.

If a function cannot be recorded, the segment ends before the call, and torch runs it.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from types import FunctionType
from typing import Any, NoReturn

import torch

from ....concurrency.outside_errors import came_from_outside
from ....foundation.torch_private import associative_scan_module, pytree
from ....runtime.argument_trees import mapped, tensors_in
from ....runtime.eager.loop_operators import LoopOperator, with_numbers
from ... import breaks
from ...engine.break_signals import BreakAfterOperation, Stop
from ...engine.build_fx_graph import GRAPH_NAME
from ...engine.torch_call_records import Handle, TorchCall
from ...guards.tensor_metadata import TENSOR_TYPES
from ...interpreter.frames import MISSING, Raised
from ...numbers.live_scalars import Live
from ...python.operators import guard_before_native_read
from ...python.trace_rollback import CallStart
from ..cond import Branch, is_plain_tree
from ..graph_regions.graph_region import drawing_from
from .native_callbacks import call_natively, landing_place, run_nested

NAMES = {
    "scan": ("scan_combine_fn",),
    "while_loop": ("cond_fn", "body_fn"),
    "map": ("map_body",),
    "register_hook": ("hook_body",),
}
"""The names of the graphs, as `torch.compile` gives them."""


class Functions(Branch):
    """The functions of one operator while they are traced: all of them take the same arguments."""

    def __init__(self, m: Any, name: str, examples: list[torch.Tensor]):
        recorder = m.recorder
        place = recorder.add(TorchCall(landing_place, (), {}, None))
        recorder.register(examples, place)
        super().__init__(m, examples[0], True, examples)
        self.name, self.examples, self.at = name, examples, place.call
        self.may_draw = name in OPERATORS or name == "map"
        self.may_call_functions = name in ("map", "while_loop")  # torch differentiates a scan by its own formulas
        self.operands = {id(recorder.handle_of(x)): x for x in examples}
        self.handles = [recorder.handle_of(x) for x in examples]
        m.region = self

    def record(self, function: Callable, args: tuple) -> Any:
        """Interpret a function, and keep what it computes as a side. Returns its result."""
        answer = run_nested(self.m, function, args, {})
        self.end_side(answer)
        return answer

    def will_call(self, function: Any, args: tuple, kwargs: dict) -> None:
        rest = mapped((args, kwargs), Live, lambda number: number if self.settles(number) else None)
        guard_before_native_read.settle_all(self.m, rest)
        super().will_call(function, args, kwargs)

    def settles(self, number: Any) -> bool:
        """Torch's operators take integers besides tensors, and ours every number."""
        if self.outer is not None or number.expression.in_graph or self.m.options.exports:
            return True
        return self.m.options.shows_operators and super().settles(number)

    def number(self, handle: Handle) -> Any:
        if handle.call is not None or handle.key is None:
            self.refuse("a number that is computed in the graph")
        return self.m.recorder.examples[handle.key]

    def end(self) -> None:
        """After the second function: nothing yet."""

    def graphs(self) -> list[torch.fx.GraphModule]:
        self.given_numbers = list(self.numbers().values())
        self.count = len(self.operands)
        self.operands |= {id(handle): self.m.recorder.examples[handle.key] for handle in self.given_numbers}
        made = [self.graph_of(side.calls, side.outputs) for side in self.sides]
        for graph, name in zip(made, NAMES[self.name], strict=True):
            graph.meta[GRAPH_NAME] = name
        self.leave()
        recorder = self.m.recorder
        for value in self.examples:
            recorder.known.pop(id(value), None)
        del recorder.calls[self.at :]
        return made

    def arguments(self, *values: Any) -> tuple:
        """The examples, and the numbers among the values that they stand for."""
        examples = iter(self.examples)
        return tuple([x if isinstance(x, (int, float)) else next(examples) for x in values])

    def check_flat(self, answer: Any) -> None:
        """Of an operator that the program calls itself. In eager, gradients flow to its arguments only, of which the
        functions are given copies."""
        if type(answer) not in (tuple, list) or not all(isinstance(x, torch.Tensor) for x in answer):
            self.refuse("a result that is not a list of tensors")
        read = list(self.operands.values())[len(self.examples) :]
        if torch.is_grad_enabled() and any(x.requires_grad for x in read):
            self.refuse("gradients of a tensor that is not among the arguments")

    def lifted(self) -> list[torch.Tensor]:
        """The outside tensors that the functions read."""
        return list(self.operands.values())[len(self.examples) : self.count]

    def give_up(self, kind: breaks.BreakKind, what: str) -> NoReturn:
        raise Stop(kind, what)


# ---- the operators


def scan(m: Any, args: tuple, more: Given) -> Any:
    combine, init, xs, *_ = args[1:]
    tensors = tensors_among(more)
    functions = Functions(m, "scan", [*carried(m, init, xs), *elements(m, xs), *carried(m, tensors, ())])
    answer = functions.record(combine, functions.arguments(*init, *xs, *(more or ())))
    if more is None:
        check_carried(functions, init, pytree.tree_leaves(answer[0]))
        return perform(m, args[0], functions, (list(init), list(xs)), answer)
    functions.check_flat(answer)
    check_carried(functions, init, list(answer[: len(init)]))
    return tuple(perform(m, args[0], functions, (list(init), list(xs)), answer, tensors))


def while_loop(m: Any, args: tuple, more: Given) -> Any:
    go_on, body, init, *_ = args[1:]
    if more is None and is_unrolled(go_on, init):
        from ...python.polyfills import loop_polyfills  # few programs have such loops

        return m.call(loop_polyfills.while_loop, (go_on, body, tuple(init)), {})
    tensors = tensors_among(more)
    functions = Functions(m, "while_loop", [*carried(m, init, ()), *carried(m, tensors, ())])
    given = functions.arguments(*init, *(more or ()))
    truth = functions.record(go_on, given)
    if not isinstance(truth, torch.Tensor) or truth.numel() != 1:
        functions.refuse("a condition that is not a tensor of one element")
    answer = functions.record(body, given)
    if more is not None:
        functions.check_flat(answer)
    check_carried(functions, init, pytree.tree_leaves(answer))
    return perform(m, args[0], functions, (tuple(init),), answer, tensors, has_condition=True)


def is_unrolled(function: FunctionType, init: Any) -> bool:
    """Whether Python numbers are carried, which count the steps. With gradients torch raises. ``function``: torch's
    own, which closes over the structure of the carried values."""
    if not any(isinstance(x, int) for x in init) or function.__closure__ is None:
        return False
    if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in init):
        return False
    cells = dict(zip(function.__code__.co_freevars, function.__closure__, strict=True))
    return "in_spec" in cells and cells["in_spec"].cell_contents == pytree.tree_structure((tuple(init), ()))


def stop_unrolling(m: Any, args: tuple, kwargs: dict) -> Any:
    return m.stop(breaks.FOREIGN_COMPILED, args[0])


def map_elements(m: Any, args: tuple, more: Given) -> Any:
    function, xs, others, *_ = args[1:]
    tensors = tensors_among(others)
    functions = Functions(m, "map", [*elements(m, xs), *carried(m, tensors, xs)])
    answer = functions.record(function, functions.arguments(*xs, *others))
    if more is not None:
        functions.check_flat(answer)
    return perform(m, args[0], functions, (list(xs),), answer, tensors)


def tensors_among(more: Given) -> tuple:
    return tuple([x for x in more or () if not isinstance(x, (int, float))])


OPERATORS = {"scan": scan, "while_loop": while_loop, "map_impl": map_elements}


def perform(
    m: Any,
    operator: Any,
    functions: Functions,
    given: tuple,
    answer: Any,
    more: tuple = (),
    has_condition: bool = False,
) -> Any:
    """Call the operator, and record the call. ``has_condition``: the first function returns one tensor, in no tuple."""
    recorder = m.recorder
    graphs = functions.graphs()
    if has_condition:
        (end,) = (node for node in graphs[0].graph.nodes if node.op == "output")
        end.args = end.args[0]
        graphs[0].recompile()
    given = (*given, (*more, *functions.lifted()))
    for value in tensors_in(given) if m.region is not None else ():
        m.region.reads(value)
    numbers = functions.given_numbers
    values = [recorder.examples[number.key] for number in numbers]
    made = call_natively(operator, *[with_numbers(graph, values) for graph in graphs], *given)
    handles = [recorder.argument(part) for part in given]
    if m.options.wants_operators:
        handles[-1] = copy_shared_operands(m, handles[:-1], handles[-1])
    if not m.options.wants_operators:
        call = TorchCall(LoopOperator(operator, graphs, len(numbers)), (*handles, *numbers), {}, m.user_line())
    else:
        handles[-1] = (*handles[-1], *numbers)
        call = TorchCall(operator, (*graphs, *handles), {}, m.user_line())
    recorder.register(made, recorder.add(call))
    return pytree.tree_unflatten(list(made), pytree.tree_structure(answer))


def copy_shared_operands(m: Any, carried_or_mapped: list, others: tuple) -> tuple:
    """Handles of the further arguments. Compilers take no tensor that is carried as well, so that one is copied."""
    recorder, known = m.recorder, {id(handle) for part in carried_or_mapped for handle in part}
    made = []
    for handle in others:
        if id(handle) in known:
            handle = recorder.add(TorchCall(torch.clone, (handle,), {}, m.user_line()))
        made.append(handle)
    return tuple(made)


def elements(m: Any, xs: Any) -> list[torch.Tensor]:
    """The first element of each, as examples."""
    if any(x.shape[0] == 0 for x in xs):
        m.stop(breaks.FOREIGN_COMPILED, "no elements")
    return [example(m, x[0], (x,)) for x in plain_tensors(m, xs)]


def carried(m: Any, init: Any, others: Any) -> list[torch.Tensor]:
    return [example(m, x, (*init, *others)) for x in plain_tensors(m, init)]


def example(m: Any, value: torch.Tensor, like: tuple) -> torch.Tensor:
    """A copy, which requires gradients if any of the tensors does."""
    made = value.detach().clone()
    if made.is_floating_point() or made.is_complex():
        made.requires_grad_(torch.is_grad_enabled() and any(x.requires_grad for x in like))
    return made


def plain_tensors(m: Any, values: Any) -> list[torch.Tensor]:
    for value in values:
        if type(value) not in TENSOR_TYPES or not m.knows(value) or value.layout is not torch.strided:
            m.stop(breaks.FOREIGN_COMPILED, f"a {type(value).__qualname__} among its arguments")
    return list(values)


def check_carried(functions: Functions, init: Any, following: list[Any]) -> None:
    """What one step carries to the next has the metadata of the start."""
    if [(x.shape, x.dtype, x.device) for x in init] != [(x.shape, x.dtype, x.device) for x in following]:
        functions.refuse("a step that returns other shapes or dtypes than it takes")


def operator_called(m: Any, args: tuple, kwargs: dict) -> Any:
    """``torch.ops.higher_order.scan(...)``: from torch's own code, or from a program, such as an exported one."""
    rule = OPERATORS.get(getattr(args[0], "_name", None))
    if rule is None or any(kwargs.values()) or m.frame is None:
        return MISSING
    is_own = not is_torchs(m.frame.globals)
    if is_own and not takes_lists_of_tensors(args[1:]):
        return MISSING
    if m.symbolic_sizes is not None:
        m.symbolic_sizes.symbols.settle_all("a loop operator")
    for value in args[1:]:
        m.heap.expose(value)
    if not is_own:
        return rule(m, args, None)
    guard_before_native_read.settle_all(m, args[-1])
    return or_before(m, f"the operator {args[0].name()}", lambda: rule(m, args, tuple(args[-1])))


Given = tuple[Any, ...] | None
"""The further arguments of a program's own call. None if torch's code calls, which leaves them to the closures."""


def takes_lists_of_tensors(args: tuple) -> bool:
    """Whether torch would accept the arguments, too: functions, then lists of tensors."""
    functions = [value for value in args if callable(value)]
    lists = args[len(functions) :]
    return (
        len(args) in (3, 4)
        and args[: len(functions)] == tuple(functions)
        and all(type(value) in (tuple, list) for value in lists)
        and all(isinstance(x, torch.Tensor) for value in lists[:-1] for x in value)
        and all(isinstance(x, (torch.Tensor, int)) for x in lists[-1])
    )


def is_torchs(table: dict) -> bool:
    return (table.get("__name__") or "").startswith("torch._higher_order_ops.")


# ---- the functions of torch's that call them


def interpreted(function: FunctionType) -> Callable:
    """A handler that interprets one of torch's functions."""
    again = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    again.__kwdefaults__ = function.__kwdefaults__

    def handler(m: Any, args: tuple, kwargs: dict) -> Any:
        return or_before(m, f"torch's {function.__name__}", lambda: run_nested(m, again, args, kwargs))

    return handler


def or_before(m: Any, name: str, run: Callable[[], Any]) -> Any:
    """What ``run`` returns. If the trace would end inside, it ends before."""
    outer = m.region
    if outer is not None and not isinstance(outer, Branch):
        outer.refuse(name)
    start = CallStart(m, drawing_from([]))
    try:
        return run()
    except (Stop, BreakAfterOperation) as signal:
        why = signal.what
        if came_from_outside(getattr(signal, "error", None)):
            raise
    except Raised as raised:
        why = f"{type(raised.error).__name__}: {raised.error}"
    except Exception:
        m.region = outer
        start.go_back(m)
        raise
    m.region = outer
    start.go_back(m)
    return m.stop(breaks.FOREIGN_COMPILED, f"{name}: {why}")


def call_directly(m: Any, args: tuple, kwargs: dict) -> Any:
    """``_maybe_compile_and_run_fn(function, *args)``, which would compile the function in eager."""
    return call_of_a_loop(m, args[0], tuple(args[1:]), kwargs)


def call_directly_with(m: Any, args: tuple, kwargs: dict) -> Any:
    """``_hop_compile_and_call(function, args, kwargs)``."""
    return call_of_a_loop(m, args[0], tuple(args[1]), args[2] if len(args) > 2 and args[2] else {})


def call_of_a_loop(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    if type(function) is not FunctionType or function.__globals__.get("__name__") not in LOOPS:
        m.stop(breaks.FOREIGN_COMPILED, "a higher-order operator, whose function torch.compile captures in eager, too")
    return m.call(function, args, kwargs)


LOOPS = {f"torch._higher_order_ops.{name}": name for name in ("scan", "while_loop", "map")}
"""Torch's modules, and the function of each."""


def associative_scan(m: Any, args: tuple, kwargs: dict) -> Any:
    if not is_scanned_in_pairs(*args, **kwargs):
        return MISSING
    from ...python.polyfills import loop_polyfills

    return m.call(loop_polyfills.associative_scan, args, kwargs)


def is_scanned_in_pairs(
    combine_fn: Any = None,
    xs: Any = None,
    dim: Any = None,
    reverse: Any = False,
    combine_mode: Any = "pointwise",
    *others: Any,
    **more: Any,
) -> bool:
    """Whether torch would accept the arguments, too: otherwise torch must raise its own error."""
    leaves = pytree.tree_leaves(xs)
    return (
        callable(combine_fn)
        and is_plain_tree(xs)
        and type(dim) is int
        and type(reverse) is bool
        and combine_mode == "pointwise"
        and bool(leaves)
        and not others
        and not more
        and all(type(x) in TENSOR_TYPES and x.layout is torch.strided and -x.ndim <= dim < x.ndim for x in leaves)
    )


def switch(m: Any, args: tuple, kwargs: dict) -> Any:
    """``switch(index, branches, operands)``: a `torch.cond` in the other. A Python number chooses while tracing."""
    index = args[0] if args else kwargs.get("index")
    if type(index) not in TENSOR_TYPES or not m.knows(index) or index.numel() != 1 or index.dtype not in INTEGERS:
        return MISSING
    from ...python.polyfills import loop_polyfills

    return or_before(m, "torch's switch", lambda: run_nested(m, loop_polyfills.switch, args, kwargs))


INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def leave_to_torch(why: str) -> None:
    """Called by the loops of `loop_polyfills`: the trace ends before them."""


HANDLERS: dict[Any, Callable] = {leave_to_torch: stop_unrolling}
for _module, _name in LOOPS.items():
    _function = getattr(importlib.import_module(_module), _name, None)
    if isinstance(_function, FunctionType):
        HANDLERS[_function] = interpreted(_function)
for _name, _handler in (("_maybe_compile_and_run_fn", call_directly), ("_hop_compile_and_call", call_directly_with)):
    _function = getattr(importlib.import_module("torch._higher_order_ops.utils"), _name, None)
    if _function is not None:
        HANDLERS[_function] = _handler
with contextlib.suppress(ImportError, AttributeError):  # a release of torch without it
    HANDLERS[importlib.import_module("torch._higher_order_ops.switch").switch] = switch
for _name in OPERATORS:
    _operator = getattr(torch.ops.higher_order, _name, None)
    if _operator is not None:
        HANDLERS[type(_operator).__call__] = operator_called
_scan = getattr(
    associative_scan_module, "associative_scan", associative_scan_module
)  # the function, or the module that contains it
if _scan is not None:
    HANDLERS[_scan] = associative_scan
