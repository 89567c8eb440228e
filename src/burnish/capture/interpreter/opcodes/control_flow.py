"""Opcodes for jumps, loops and returns."""

from __future__ import annotations

from ..frames import EXHAUSTED, PUSHED
from ..versions.behavior import BEHAVIOR
from .handler_registry import constant, op
from .stack import put_result


@op("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", falls_through=False)
def jump(m, f, arg):
    f.pc = arg


def _pop_jump(condition: str, jump_on: bool):
    @op(f"POP_JUMP_IF_{condition}", f"POP_JUMP_FORWARD_IF_{condition}", f"POP_JUMP_BACKWARD_IF_{condition}")
    def handler(m, f, arg):
        value = f.stack[-1]
        if value is not True and value is not False:
            value = m.truth(value)
            if value is PUSHED:
                f.stack.pop()
                return True
        f.stack.pop()
        if bool(value) is jump_on:
            f.pc = arg


_pop_jump("FALSE", False)
_pop_jump("TRUE", True)


@op("POP_JUMP_IF_NONE", "POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NONE")
def pop_jump_if_none(m, f, arg):
    if f.stack.pop() is None:
        f.pc = arg


@op("POP_JUMP_IF_NOT_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE")
def pop_jump_if_not_none(m, f, arg):
    if f.stack.pop() is not None:
        f.pc = arg


op("JUMP_IF_FALSE_OR_POP")(lambda m, f, arg: _jump_or_pop(m, f, arg, False))
op("JUMP_IF_TRUE_OR_POP")(lambda m, f, arg: _jump_or_pop(m, f, arg, True))


def _jump_or_pop(m, f, target: int, jump_on: bool):
    """The tested value stays on the stack when the jump is taken, so its truth is computed on a copy above it."""
    value = f.stack[-1]
    if m.answers_truth_by_frame(value):
        # The result of a user's __bool__ cannot replace the value: keep the value below, compute its truth in a helper
        # frame.
        m.push_truth_and_keep(value, target, jump_on)
        return True
    if m.truth(value) == jump_on:
        f.pc = target
    else:
        f.stack.pop()
    return None


@op("GET_ITER")
def get_iter(m, f, arg):
    return put_result(f, 1, m.iterate_in_loop(f.stack[-1]))


@op("FOR_ITER")
def for_iter(m, f, arg):
    value = m.next_for(f.stack[-1])
    if value is PUSHED:
        return True
    if value is EXHAUSTED:
        leave_loop(f, arg)
    else:
        f.stack.append(value)


def leave_loop(frame, target: int) -> None:
    """End a loop: pop the iterator; on versions with END_FOR, skip it and its POP_TOP or POP_ITER."""
    frame.stack.pop()
    names, n = frame.code.opnames, len(frame.code.opnames)
    if target < n and names[target] == "END_FOR":
        target += 1
        if target < n and names[target] in ("POP_TOP", "POP_ITER") and BEHAVIOR.pop_top_follows_end_for:
            target += 1
    frame.pc = target


@op("RETURN_VALUE", falls_through=False)
def return_value(m, f, arg):
    return m.return_from(f, f.stack.pop())


@op("RETURN_CONST", resolve=constant, falls_through=False)
def return_const(m, f, arg):
    return m.return_from(f, arg)
