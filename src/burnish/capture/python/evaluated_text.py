"""``eval`` of a text in the calling frame: interpreted like a function of the names that it reads.

    eval("x * scale")        =>      (lambda x: (x * scale))(x), with the globals of the frame

The text must be an expression, without functions of its own (a lambda, or a comprehension before Python 3.12), whose
names are looked up in another way. With namespaces of its own, ``eval`` is interpreted like ``exec``: as the body of a
class, whose names are in a dictionary.
"""

from __future__ import annotations

import builtins
import functools
import warnings
from types import CodeType, FunctionType
from typing import Any

from ...captured_graph.warnings_already_given import filtered
from ...concurrency.outside_errors import Suppressing
from .. import breaks
from ..interpreter.bytecode_decoder import decode
from ..interpreter.decoded_code import Code
from ..interpreter.frame_introspection import frame_locals, inherited_flags, namespace_of
from ..interpreter.frames import MISSING, UNBOUND, Frame
from ..interpreter.opcodes.instruction_table import why_not_handled
from ..numbers.live_scalars import settled
from ..segments.effects import Effect
from .messages.warnings_warn import are_only_shown, compile_with_warnings, note_receiver

LOOK_AT_FRAMES = frozenset("locals vars dir eval exec super _getframe currentframe".split())
"""Names of what reads the frame that calls it."""


def evaluate(m: Any, args: tuple, kwargs: dict) -> Any:
    if len(args) != 1 or kwargs:
        return run_text(m, args, kwargs, "eval")
    if type(args[0]) is not str:
        return MISSING
    names = names_in(args[0])
    if names is None:
        stop_if_warned(m, args[0].lstrip(" \t"), "<string>", "eval")
        return MISSING
    warn_again(m, args[0].lstrip(" \t"), "<string>", "eval")
    values = frame_locals(m.frame, m.load_cell)
    parameters = tuple(name for name in names if name in values and name.isidentifier())
    code = code_of(args[0], parameters)
    function = FunctionType(code, m.frame.globals)
    m.heap.namespace(m.frame.globals)
    return m.call(function, tuple(values[name] for name in parameters), {})


def stop_if_warned(m: Any, text: str, filename: str, mode: str) -> None:
    """Stop where the compiler warns: Python compiles the text, in each run."""
    if outcome(text, filename, mode, inherited_flags(m.frame))[0]:
        m.stop(breaks.OPAQUE_CALL, "a text whose compilation gives warnings")


def warn_again(m: Any, text: str, filename: str, mode: str) -> None:
    """Give the compiler's warnings for a text that is interpreted as another one."""
    if outcome(text, filename, mode, inherited_flags(m.frame))[0]:
        compiled(m, text, filename, mode)


def compiled(m: Any, text: str, filename: str, mode: str) -> Any:
    """What Python's compiler makes of a text. Its warnings are an effect: each run compiles such a text once more,
    under the filters that the program has then."""
    given = text, filename, mode, inherited_flags(m.frame)
    warns, is_code = outcome(*given)
    if not warns:
        return m.plainly(compile, *given, True)
    if not is_code or m.region is not None or not are_only_shown(warnings):
        m.stop(breaks.OPAQUE_CALL, "a text whose compilation gives warnings")
    note_receiver(m, "compilation with warnings")
    m.heap.guard_answer(are_only_shown, m.heap.sources.pin(warnings))
    m.effects.append(Effect.of(m, compile_with_warnings, given))
    return m.plainly(compile_with_warnings, *given)


@functools.lru_cache(maxsize=1024)
def outcome(text: str, filename: str, mode: str, flags: int) -> tuple[bool, bool]:
    """Whether the compiler warns, and whether it makes code."""
    made = None
    with filtered("always") as noted, Suppressing(Exception):  # the caller gets it when it compiles the text
        made = compile(text, filename, mode, flags, True)
    return bool(noted), made is not None


@functools.lru_cache(maxsize=1024)
def names_in(text: str) -> tuple[str, ...] | None:
    """The names that an expression reads; None if it is not one, or has functions of its own."""
    try:
        with filtered("ignore"):
            code = compile(text.lstrip(" \t"), "<string>", "eval")
    except (SyntaxError, ValueError):
        return None
    if any(issubclass(type(part), CodeType) for part in code.co_consts) or not LOOK_AT_FRAMES.isdisjoint(code.co_names):
        return None
    return code.co_names


@functools.lru_cache(maxsize=1024)
def code_of(text: str, parameters: tuple[str, ...]) -> CodeType:
    source = f"lambda {', '.join(parameters)}: (\n{text.strip()}\n)"
    with filtered("ignore"):
        made = compile(source, "<string>", "eval")
    return next(part for part in made.co_consts if issubclass(type(part), CodeType))


def execute(m: Any, args: tuple, kwargs: dict) -> Any:
    return run_text(m, args, kwargs, "exec")


def compile_text(m: Any, args: tuple, kwargs: dict) -> Any:
    """``compile(text, filename, mode)``. Each run makes another object, so it must not leave the graph."""
    args = tuple(map(settled, args))
    if len(args) != 3 or kwargs or not all(type(arg) is str for arg in args):
        return MISSING
    if not m.capabilities.keeps_classes:
        return m.stop(breaks.OPAQUE_CALL, "compile(), whose result leaves the graph")
    code = compiled(m, *args)
    if type(code) is CodeType:
        m.heap.fresh[id(code)] = code
        m.has_classes = True
    return code


def is_interpreted(code: Code) -> bool:
    """Whether the interpreter knows all instructions. ``from module import *`` is left to Python."""
    return not code.is_async and not any(
        why_not_handled(name) or name == "CALL_INTRINSIC_1" and arg[0] in ("IMPORT_STAR", "PRINT")
        for name, (_, arg) in zip(code.opnames, code.instructions, strict=True)
    )


def run_text(m: Any, args: tuple, kwargs: dict, mode: str) -> Any:
    """``exec`` or ``eval`` of a text or a code object, with the given globals and names or those of the frame."""
    names = ("source", "globals", "locals")
    given = dict(zip(names, args, strict=False)) | kwargs
    source, table, names_of_text = map(given.get, names)
    if not given.keys() <= set(names) or len(args) > 3 or m.region is not None or not m.capabilities.keeps_classes:
        return MISSING
    if type(source) is str:
        text = source.lstrip(" \t") if mode == "eval" else source
        source = compiled(m, text, "<string>", mode)
    if type(source) is not CodeType or source.co_freevars:
        return MISSING
    if table is None:
        table = m.frame.globals
        names_of_text = namespace_of(m.frame, m.load_cell) if names_of_text is None else names_of_text
    elif names_of_text is None:
        names_of_text = table
    code = decode(source)
    is_plain = type(table) is dict and type(names_of_text) is dict
    if not is_plain or not is_interpreted(code):
        return MISSING
    found = builtins_in(m, table)
    m.has_classes = True  # nor can functions with these globals leave the graph
    frame = Frame(code, table, found if type(found) is dict else vars(found), [UNBOUND] * code.n_locals)
    frame.namespace = names_of_text
    return m.push(frame)


def builtins_in(m: Any, table: dict) -> Any:
    """The ``__builtins__`` of globals, which are set where they are missing."""
    if table is m.frame.globals and id(table) not in m.heap.fresh:
        m.heap.namespace(table)
    origin = m.heap.origin_of(table)
    if origin is None:
        found = table.get("__builtins__", MISSING)
        if (found is builtins or found is vars(builtins)) and id(table) not in m.heap.fresh:
            m.stop(breaks.OPAQUE_CALL, "a text that runs with globals that a function has, found unseen")
        m.heap.fresh[id(table)] = table
    else:
        found = m.heap.read_key(origin, "__builtins__")
    if found is MISSING:
        m.store_subscript(table, "__builtins__", m.frame.builtins)
        return m.frame.builtins
    is_usual = found is builtins or found is vars(builtins)
    if not is_usual and (origin is not None or type(found) is not dict or m.heap.origin_of(found) is not None):
        m.stop(breaks.OPAQUE_CALL, "a text that runs with builtins from outside")
    return found
