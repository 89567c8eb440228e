"""Native calls during a trace: runs them for real, under the recorder where they may call torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from ...concurrency.outside_errors import came_from_outside, reraise_from_outside
from ...errors import InternalError
from ...foundation.torch_private import check_sparse_tensor_invariants, pop_mode, push_mode, tree_leaves, tree_map
from ...foundation.torch_private import len_torch_function_stack as _count_modes
from .. import breaks
from ..guards.detect_unseen_user_code import UntracedCallDetector
from ..guards.tensor_metadata import TENSOR_TYPES, WithoutRules
from ..interpreter.frames import MISSING, Raised
from ..interpreter.program_or_tracer_errors import is_ours, raise_internal_error
from ..python.operators import guard_before_native_read, value_kinds
from ..pytorch import recorder_fast_path, torch_call_roles, torch_switches
from .break_signals import BreakAfterOperation, Stop
from .interpreted_or_native import OUR_PATH

if TYPE_CHECKING:
    from .tracer import Tracer

# Modules whose functions are effects: they run again with each run of the segment, user handlers included.
RUN_AGAIN = (
    "burnish.capture.python.messages.print_and_format",
    "burnish.capture.python.messages.effect_functions",
    "burnish.capture.python.messages.logging_calls",
    "burnish.capture.python.messages.warnings_warn",
)

SPARSE = ("sparse_", "_sparse_")
ABOUT_TENSORS = (TypeError, ValueError, RuntimeError, IndexError)


def perform(tracer: Tracer, function: Callable, /, *args: Any, **kwargs: Any) -> Any:
    """Call native code under the recorder. Torch calls it makes become part of the graph, or a late break."""
    if tracer.ends_before is not None and len(tracer.recorder.calls) >= tracer.ends_before:
        tracer.stop(breaks.TENSOR_STATE, "the use of a tensor that gets a hook later")
    name = None if tracer.modes else recorder_fast_path.name_of_call(function, args, kwargs)
    shown = None if name is None else recorder_fast_path.learned_form(name)
    if shown is not None:
        value = recorder_fast_path.perform(tracer, shown, function, args, kwargs)
        if value is not MISSING:
            return value
    as_shown = None if shown is None else shown.arguments(function, args, kwargs)
    return tracer.perform_as(function, args, kwargs, name, None if as_shown is None else (shown.function, *as_shown))


def perform_as(tracer: Tracer, function: Callable, args: tuple, kwargs: dict, name: Any, as_shown: tuple | None) -> Any:
    """``as_shown``: the call as modes receive it, if known; otherwise it is learned under ``name``."""
    recorder = tracer.recorder
    mark, seen = (len(recorder.calls), len(recorder.inputs)), recorder.seen
    recorder.pending_break = None
    try:
        if as_shown is not None:
            value = recorder.call(function, args, kwargs, *as_shown)
        else:
            value = tracer.under_recorder(name, function, args, kwargs)
    except (Stop, BreakAfterOperation, Raised, InternalError):
        raise
    except BaseException as caught:
        error = caught
        if isinstance(error, RecursionError) and not came_from_outside(error):
            if recorder.seen != seen:
                recorder.undo_to(mark)
            run_out_of_stack(tracer, error)
        if as_shown is not None and is_ours(tracer, error):
            raise
        if as_shown is not None and type(error) is TypeError:
            recorder.seen = seen  # an error about the arguments: torch raises it before modes receive the call
    else:
        if recorder.pending_break is not None:
            recorder.undo_to(mark)
            raise BreakAfterOperation(*recorder.pending_break, value=value)
        if tracer.frame is not None:
            tracer.answer = (tracer.frame, tracer.frame.pc, value)
        return value
    try:
        tracer.fail_call(function, error, mark, seen, args, kwargs)
    finally:
        del error


def is_of_torch(function: Callable) -> bool:
    """Whether a function may be called once more: of an iterator, say, the next element is another one."""
    if isinstance(getattr(function, "__self__", None), torch.Tensor):
        return True
    owner = getattr(function, "__objclass__", None)
    if owner is not None:
        return issubclass(torch.Tensor, owner)
    module = str(getattr(function, "__module__", ""))
    return module in ("_operator", "operator") or module.partition(".")[0] == "torch"


def fails_by_shape(function: Callable, args: tuple, kwargs: dict) -> bool:
    """Whether a call raises an error for tensors without data, too."""
    given = tree_leaves((args, kwargs))
    if not is_of_torch(function) or any(
        type(x) not in TENSOR_TYPES if isinstance(x, torch.Tensor) else isinstance(x, value_kinds.BUFFERS)
        for x in given
    ):
        return False
    if isinstance(getattr(function, "__self__", None), torch.Tensor):
        function = functools.partial(getattr(type(function.__self__), function.__name__), function.__self__)
        args, function = (*function.args, *args), function.func
    try:
        with torch.no_grad(), WithoutRules():
            function(*tree_map(torch_call_roles.without_data, args), **tree_map(torch_call_roles.without_data, kwargs))
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        reraise_from_outside(error)
        return not isinstance(error, NotImplementedError) and "meta" not in str(error)  # about the lack of data
    return False


def fail_call(
    tracer: Tracer, function: Callable, error: BaseException, mark: tuple, seen: int, args: tuple, kwargs: dict
) -> NoReturn:
    """A call has raised ``error``. ``mark`` and ``seen``: the recorder's state before it."""
    recorder = tracer.recorder
    name = str(getattr(function, "__name__", ""))
    try:
        if tracer.symbolic_sizes is not None:
            tracer.symbolic_sizes.symbols.settle_all("a call raised an error")
        if name.startswith(SPARSE) and is_of_torch(function):
            torch_switches.call(tracer, check_sparse_tensor_invariants, (), {})  # without it, no error
        if recorder.seen != seen or recorder.pending_break is not None:
            recorder.undo_to(mark)
            if (
                recorder.pending_break is None
                and not tracer.modes  # whose rules may have raised it
                and tracer.will_be_handled(error)
                and not reads_own_sequence(tracer, name, args)
                and fails_by_shape(function, args, kwargs)
            ):
                guard_before_native_read.settle_all(tracer, (args, kwargs), converts=False)
                raise Raised(error)  # in each run, for such tensors and numbers
            kind, what = recorder.pending_break or (breaks.TENSOR_ERROR, f"{type(error).__name__}: {error}")
            raise BreakAfterOperation(kind, what, error=error)
        given = (getattr(function, "__self__", None), args, kwargs)
        if isinstance(error, ABOUT_TENSORS) and (
            value_kinds.mentions_tensor(args, kwargs)
            or value_kinds.holds_buffer(given)
            or reads_own_sequence(tracer, name, args)
        ):  # no constant: for what they hold later, the call may not raise it
            raise BreakAfterOperation(breaks.TENSOR_ERROR, f"{type(error).__name__}: {error}", error=error)
        note_consumed(tracer, error, args)
        guard_before_native_read.settle_all(tracer, (args, kwargs), converts=False)
        raise Raised(error)
    finally:
        tracer.program_error = None
        del error


def reads_own_sequence(tracer: Tracer, name: str, args: tuple) -> bool:
    """Whether torch makes a tensor of a sequence of the program's, which may return the content of a buffer."""
    return name in torch_call_roles.BY_ELEMENT_TYPE and any(
        value_kinds.python_method(tracer, value, "__getitem__") for value in args
    )


def note_consumed(tracer: Tracer, error: BaseException, args: tuple) -> None:
    """A failed call has advanced these iterators. If nothing handles the error, each run repeats the call as plain
    Python, on iterators as they were before it, which cannot be rebuilt."""
    iterators = [value for value in args if hasattr(type(value), "__next__")]
    if iterators and not tracer.will_be_handled(error):
        tracer.consumed += iterators


def under_recorder(tracer: Tracer, name: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
    """``name``: the key under which to learn the call that modes receive, or None."""
    recorder = tracer.recorder
    shown: list | None = None if name is None else []
    recorder.shown = shown
    modes = _count_modes()
    try:
        push_mode(recorder)  # in here: an interrupt may come right behind it
        value = with_keywords(function, args, kwargs) if not tracer.checks else tracer.watched(function, args, kwargs)
    finally:
        if _count_modes() > modes:
            pop_mode()
        recorder.shown = None
    if shown is not None and recorder.pending_break is None:
        learn(tracer, name, function, args, kwargs, shown)
    return value


def learn(tracer: Tracer, name: Any, function: Callable, args: tuple, kwargs: dict, shown: list) -> None:
    try:
        recorder_fast_path.learn(name, function, args, kwargs, shown)
    except Exception as error:  # the caller takes errors for the program's
        raise_internal_error("tracing", error)


def run_out_of_stack(tracer: Tracer, error: RecursionError) -> NoReturn:
    """The stack is deeper than the program's own, so no segment may hold this error. If code of the program raised it,
    that has run, and is not run again."""
    tracer.is_short_of_stack = True
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None or at.tb_frame.f_code.co_filename.startswith(OUR_PATH):
        raise Stop(breaks.OPAQUE_CALL, str(error))
    raise BreakAfterOperation(None, str(error), error=error)


def plainly(tracer: Tracer, function: Callable, /, *args: Any, **kwargs: Any) -> Any:
    """Call native code that cannot touch tensors."""
    try:
        value = function(*args, **kwargs) if not tracer.checks else tracer.watched(function, args, kwargs)
        if tracer.frame is not None:
            tracer.answer = (tracer.frame, tracer.frame.pc, value)
        return value
    except (Stop, BreakAfterOperation, Raised, InternalError):
        raise
    except BaseException as error:
        trouble = error
    try:
        if isinstance(trouble, RecursionError) and not came_from_outside(trouble):
            run_out_of_stack(tracer, trouble)
        if isinstance(trouble, ABOUT_TENSORS) and value_kinds.holds_buffer((args, kwargs)):
            raise BreakAfterOperation(breaks.TENSOR_ERROR, f"{type(trouble).__name__}: {trouble}", error=trouble)
        note_consumed(tracer, trouble, args)
        raise Raised(trouble)
    finally:
        del trouble


def watched(tracer: Tracer, function: Callable, args: tuple, kwargs: dict) -> Any:
    if (
        getattr(function, "__module__", None) in RUN_AGAIN
        or isinstance(function, functools._lru_cache_wrapper)
        or getattr(function, "_burnish_constant", False)
        or getattr(function, "_dynamo_marked_constant", False)
    ):
        return function(*args, **kwargs)
    with UntracedCallDetector(function, tracer.recorder):
        return with_keywords(function, args, kwargs)


def with_keywords(function: Callable, args: tuple, kwargs: dict) -> Any:
    """C code passes modes None for no keywords at all, and a dictionary for an empty one."""
    return function(*args, **kwargs) if kwargs else function(*args)
