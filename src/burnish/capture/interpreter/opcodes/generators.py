"""Opcodes for generators: creation, yield, delegation. Coroutines run natively (their calls are never interpreted)."""

from __future__ import annotations

from types import CoroutineType

from ..frames import PUSHED, Generator, Raised
from ..versions.behavior import BEHAVIOR
from .handler_registry import op, refuse
from .stack import put_result

refuse(
    "async code runs natively: its calls are made by an event loop, not by this function",
    "GET_AITER",
    "GET_ANEXT",
    "BEFORE_ASYNC_WITH",
    "END_ASYNC_FOR",
    "GET_AWAITABLE",
    "ASYNC_GEN_WRAP",
)
refuse("only the interactive prompt and modules use it", "PRINT_EXPR", "IMPORT_STAR")
refuse("a marker of the interpreter itself, never in a code object read from Python", "RESERVED", "ENTER_EXECUTOR")


@op("RETURN_GENERATOR")
def return_generator(m, f, arg):
    if f.code.is_async:
        m.refuse_opcode("RETURN_GENERATOR of a coroutine")
    generator = Generator(f)
    m.made(generator)
    return m.leave(f, generator)


@op("YIELD_VALUE")
def yield_value(m, f, arg):
    return m.yield_from_frame(f, f.stack.pop())


@op("GET_YIELD_FROM_ITER")
def get_yield_from_iter(m, f, arg):
    if isinstance(f.stack[-1], Generator):
        return None
    if isinstance(f.stack[-1], CoroutineType):
        raise Raised(TypeError("cannot 'yield from' a coroutine object in a non-coroutine generator"))
    return put_result(f, 1, m.iterate(f.stack[-1]))


@op("SEND")
def send(m, f, arg):
    """``receiver, value``: a yielded value goes on the stack; a return value ends the delegation at ``arg``."""
    receiver, value = f.stack[-2:]
    ended, answer = m.send(receiver, value)
    if answer is PUSHED:
        f.stack.pop()
        return True
    f.stack.pop()
    if ended:
        end_send(f, arg, answer)
    else:
        f.stack.append(answer)
    return None


def end_send(frame, target: int, value) -> None:
    """The receiver on top of the stack has returned. On 3.11 the value replaces it; later END_SEND drops it."""
    if BEHAVIOR.end_send_drops_receiver:
        frame.stack.append(value)
    else:
        frame.stack[-1] = value
    frame.pc = target


@op("END_SEND")
def end_send_op(m, f, arg):
    value = f.stack.pop()
    f.stack[-1] = value
