"""Interpreter frames as plain data: locals, the value stack, closure cells, generators.

A frame is CPython's record of a running function: locals, value stack, position. Ours are ordinary objects linked by
``caller``. So the state of a program between two instructions, with nested calls and suspended generators, can be split
into slots and rebuilt.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from types import CellType, CodeType, GeneratorType, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from .versions.behavior import BEHAVIOR

if TYPE_CHECKING:
    from .decoded_code import Code


class _Marker:
    """Without fields, an object that the garbage collector does not know: no program gets it from ``gc``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{self.__reduce__().lower()}>"

    def __reduce__(self) -> str:
        return next(name for name, value in globals().items() if value is self)


NULL = _Marker()  # CPython's NULL on the value stack, below a callable that takes no self
UNBOUND = _Marker()  # a local that has no value
PUSHED = _Marker()  # the result of an operation that pushed a frame: its value will come later
EXHAUSTED = _Marker()  # the result of advancing an iterator that has no more elements
MISSING = _Marker()  # the result of a lookup that found nothing
RAISES = _Marker()  # the result of a call that raises an error

# The completion of a frame: how its return changes the caller.
PUSH = 0  # the result goes on the caller's stack
DISCARD = 1  # the result is dropped (a setter, __setitem__)
RETRY = 2  # the result goes on the stack and the instruction runs again (bool() of a user object at a jump)
FOR_ITER = 3  # the next element of a loop: StopIteration, or a generator's return, leaves the loop
SEND = 4  # yield from: a return value ends the delegation
NEXT = 5  # next(generator): a generator's return becomes StopIteration
CLOSE = 6  # generator.close(): GeneratorExit, StopIteration and return all mean closed
REPLACE = 7  # the result replaces the operand at depth ``spare`` and the instruction runs again
PUSH_NULL = 8  # the result, then NULL (a method loaded on 3.13)
CLOSE_DELEGATE = 11  # a generator closes its delegate; then the error on top of its stack is raised in it
PUSH_NONE = 10  # None, whatever the result (setattr() as a function)
JUMP_OR_POP = 9  # ``spare`` is (target, jump on): the caller's value stays when the jump is taken


class Raised(BaseException):
    """Carries an exception of the user's program through the interpreter, to tell it from our own exceptions."""

    def __init__(self, error: BaseException):
        self.error = error


class Frame:
    __slots__ = """
        __weakref__ began builtins caller code completion depth generator globals handling instructions locals namespace
        pc spare stack
    """.split()

    def __init__(self, code: Code, namespace: dict, builtins: dict, values: list):
        self.code = code
        self.instructions = code.instructions
        self.globals = namespace
        self.builtins = builtins
        self.locals = values
        self.stack: list[Any] = []
        self.pc = 0
        self.depth = 0
        self.began = -1  # the torch calls before it in its trace; -1: it is older than the trace
        self.caller: Frame | None = None
        self.completion = PUSH
        self.generator: Generator | None = None
        self.handling: BaseException | None = None
        self.namespace: dict | None = None  # what locals() has returned here, or the names of a class body
        self.spare: Any = None  # a further value that the completion needs

    def release(self) -> None:
        """Release the objects of the program."""
        self.locals.clear()
        self.stack.clear()
        self.handling = None

    def at_start(self) -> Frame:
        """A frame of the same generator with the parameters of this one, before its first instruction."""
        code = self.code
        values = self.locals[: code.args_total]
        started = Frame(code, self.globals, self.builtins, [*values, *[UNBOUND] * (code.n_locals - code.args_total)])
        started.pc = code.opnames.index("RETURN_GENERATOR") + 1
        return started

    @property
    def line(self) -> int:
        return self.code.lines[max(0, min(self.pc - 1, len(self.code.lines) - 1))]

    # What a program sees of the frame of a generator, `generator.gi_frame`.

    @property
    def f_back(self) -> Frame | None:
        return self.caller

    @property
    def f_code(self) -> CodeType:
        return self.code.co

    @property
    def f_globals(self) -> dict:
        return self.globals

    @property
    def f_builtins(self) -> dict:
        return self.builtins

    @property
    def f_lineno(self) -> int:
        return self.line

    @property
    def f_locals(self) -> dict[str, Any]:
        cells, held = self.code.cells, zip(self.code.names, self.locals, strict=True)
        values = ((n, cell_value(v) if n in cells and type(v) is CellType else v) for n, v in held)
        return {name: value for name, value in values if value is not UNBOUND}

    def __repr__(self) -> str:
        return f"<Frame {self.code.co.co_qualname}:{self.line}>"


class GeneratorNames(NamedTuple):
    """The names of a generator function, in ``Frame.spare``, if they are not those of its code."""

    name: str
    qualname: str


class BuiltinIterator(NamedTuple):
    """An iterator of a builtin class (``map``, ``zip`` and so on) that the interpreter steps through itself.

    Such an iterator is a function that is called for each element. Its parameters are the iterator's state:

        def enumerate_(iterator, at):
            value = next(iterator)       # StopIteration is the end, as in C code
            at += 1
            yield at - 1, value

    Each step starts at the top, and what it has assigned to its parameters stays for the next one. So an iterator goes
    on after an error and after its end as C code does: the parameters say whether it can. A step that runs inside of
    another, in what the iterator calls, reads and assigns the same parameters. ``yield`` gives the element,
    and the object is one of our generators, with the class of the builtin iterator.
    """

    kind: type
    sample: Any
    """An iterator of that class, for the attributes and errors of C code."""
    make: Callable[..., Any] | None = None
    """Makes the equivalent object of plain Python from the parameters."""
    is_makeable: Callable[..., bool] = lambda *state: True
    """Whether C code can make an object in this state."""
    end: Callable[[list], None] | None = None
    """Changes the parameters at the iterator's end, and after an error of a step, to what C code lets go of then."""


BY_CODE: dict[CodeType, BuiltinIterator] = {}
"""By the code of the function: ``iterator_polyfills`` and ``itertools_polyfills``."""


class Generator:
    """A generator with one of our frames. Replaces ``types.GeneratorType`` inside and outside compiled code, and the
    classes of ``BuiltinIterator``."""

    __slots__ = ("__name__", "__qualname__", "__weakref__", "code", "frame", "noted_by", "running", "started")

    advance: ClassVar[Callable[[Any, Any, BaseException | None], Any]]
    """Runs the generator to its next value, from native code. Set by ``instruction_loop``, which runs frames."""

    def __init__(self, frame: Frame):
        self.frame: Frame | None = frame  # None once exhausted
        self.code = frame.code.co
        self.started = False
        self.running = False
        self.noted_by: Any = None  # a weak reference to the heap of the trace that made it
        names = frame.spare if type(frame.spare) is GeneratorNames else None
        self.__name__ = frame.code.co.co_name if names is None else names.name
        self.__qualname__ = frame.code.co.co_qualname if names is None else names.qualname

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class for ``isinstance``, in plain Python too."""
        builtin = BY_CODE.get(self.code)
        return GeneratorType if builtin is None else builtin.kind

    @property
    def builtin(self) -> BuiltinIterator | None:
        """What it is an iterator of, if its class is not a generator."""
        return BY_CODE.get(self.code)

    def stop(self, frame: Frame, caller: Frame | None) -> None:
        """Its frame has returned or raised an error."""
        self.running = frame is not self.frame
        builtin = BY_CODE.get(self.code)
        if builtin is not None:
            if builtin.end is not None:
                builtin.end(frame.locals)
            self.rewind(frame, caller)
        else:
            self.frame = None

    def rewind(self, frame: Frame, caller: Frame | None) -> None:
        """The next step of a builtin iterator starts at the top, with the parameters as this one has left them. So do
        the steps around this one, if it runs inside of itself, when they read them again."""
        assert self.frame is not None
        count, is_inside = frame.code.args_total, frame is not self.frame
        for around in [self.frame, *frames_from(caller)] if is_inside else ():
            if around is self.frame or around.generator is self:
                around.locals[:count] = frame.locals[:count]
        if not is_inside:
            self.frame = frame.at_start()

    def __iter__(self) -> Generator:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, *args: Any) -> Any:
        if len(args) != 1:
            SAMPLE.send(*args)  # raises the TypeError
        return self.advance(args[0], None)

    def throw(self, *args: Any) -> Any:
        if not 1 <= len(args) <= 3:
            SAMPLE.throw(*args)
        if len(args) > 1 and BEHAVIOR.throw_of_class_and_value_warns:
            warnings.warn(THROW_OF_CLASS_AND_VALUE, DeprecationWarning, stacklevel=2)
        return self.advance(None, thrown(*args))

    def close(self, *args: Any) -> Any:
        if args:
            SAMPLE.close(*args)
        if self.frame is None:
            return None
        if not self.started:
            self.frame = None
            return None
        try:
            self.throw(GeneratorExit)
        except GeneratorExit:
            return None
        except StopIteration as stop:
            return stop.value if BEHAVIOR.close_returns_value else None
        raise RuntimeError("generator ignored GeneratorExit")

    def __del__(self) -> None:
        # At interpreter shutdown, the modules needed to run the rest are gone.
        if self.frame is not None and self.started and not (self.running or self.builtin) and not sys.is_finalizing():
            heap = None if self.noted_by is None else self.noted_by()
            if heap is not None:
                heap.note_dropped(self)
            self.close()

    def parts(self) -> tuple[Callable[..., Any], list] | None:
        """How plain Python makes the builtin iterator for which this object stands: a function and its arguments."""
        builtin = BY_CODE.get(self.code)
        if builtin is None or builtin.make is None or self.frame is None or self.running:
            return None
        state = self.frame.locals[: self.frame.code.args_total]
        return (builtin.make, state) if builtin.is_makeable(*state) else None

    @property
    def gi_frame(self) -> Any:
        return self.frame

    @property
    def gi_suspended(self) -> bool:
        return self.started and not self.running and self.frame is not None

    @property
    def gi_code(self) -> CodeType:
        return self.code

    @property
    def gi_yieldfrom(self) -> Any:
        return delegate_of(self.frame) if self.gi_suspended else None

    def __reduce_ex__(self, protocol: Any = 2) -> Any:
        """Used by copies, too: two objects sharing one frame would be one generator."""
        parts = self.parts()
        if parts is None:
            raise TypeError(f"cannot pickle '{self.__class__.__name__}' object")
        kind, given, *state = parts[0](*parts[1]).__reduce_ex__(protocol)
        # A strict zip or map, which a state makes strict: that of a copy would be asked of a generator.
        if kind in (map, zip) and state:
            return functools.partial(kind, strict=True), given
        return kind, given, *state

    def __reduce__(self) -> Any:
        return self.__reduce_ex__(2)

    @property
    def gi_running(self) -> bool:
        return self.running

    def __repr__(self) -> str:
        builtin = self.builtin
        shown = (
            f"<generator object {self.__qualname__}" if builtin is None else repr(builtin.sample).rpartition(" at ")[0]
        )
        return f"{shown} at {id(self):#x}>"


Generator.__name__ = "generator"  # in the messages of C code


SAMPLE: Any = (i for i in ())  # a native generator, for its error messages about wrong arguments


THROW_OF_CLASS_AND_VALUE = (
    "the (type, exc, tb) signature of throw() is deprecated, use the single-arg signature instead."
)


def thrown(kind: Any, value: Any = None, traceback: Any = None) -> BaseException:
    """The exception that ``throw(kind, value, traceback)`` raises in the generator."""
    if traceback is not None and not isinstance(traceback, TracebackType):
        raise TypeError("throw() third argument must be a traceback object")
    if isinstance(kind, BaseException):
        if value is not None:
            raise TypeError("instance exception may not have a separate value")
        return kind if traceback is None else kind.with_traceback(traceback)
    if not isinstance(kind, type) or not issubclass(kind, BaseException):
        text = f"exceptions must be classes or instances deriving from BaseException, not {type(kind).__name__}"
        raise TypeError(text)
    try:
        if isinstance(value, kind):
            error = value
        elif isinstance(value, tuple):
            error = kind(*value)
        else:
            error = kind() if value is None else kind(value)
        if not isinstance(error, BaseException):
            raise made_no_error(kind, type(error).__name__)
    except BaseException as raised:
        error = raised.with_traceback(None)  # it is thrown in place of the other
    return error.with_traceback(traceback) if traceback is not None else error


def made_no_error(kind: type, made: Any) -> TypeError:
    """``made``: the class of what ``kind`` has made, or its name. ``raise`` shows the one, ``throw()`` the other."""
    return TypeError(f"calling {kind!r} should have returned an instance of BaseException, not {made}")


def frames_from(frame: Frame | None) -> Iterator[Frame]:
    """A frame and its callers, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.caller


def delegate_of(frame: Frame) -> Any:
    """The delegate of a suspended generator, or None."""
    at = frame.pc
    names = frame.code.opnames
    if at < len(names) and at >= 2 and names[at - 2] == "SEND":
        return frame.stack[-1]
    return None


def cell_value(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return UNBOUND
