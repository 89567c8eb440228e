"""Tensor assertions: ``assert x.min() >= 0`` does not end the graph.

    def scaled(x):
        assert (x >= 0).all(), "negative"       # _assert_async = torch._assert_async(all_1)
        return x.sqrt()

Python needs the truth of the condition to continue, but only one outcome continues. While tracing the truth is known.
If the assertion holds, the graph gets a check, and the trace continues. If the check fails in a later run, nothing
outside has changed yet, so the segment runs again as plain Python, which raises the user's AssertionError at its line
(see ``engine.Program.rerun``). The same applies to any ``if`` with one side that only raises.

It does not apply if the graph may write to its inputs before the check: it cannot run again. The trace is then dropped,
and the next one ends at the assertion as at any other branch on data. Nor does it apply on devices where a failed check
ends the process.
"""

from __future__ import annotations

from typing import Any

import torch

from ...foundation.torch_private import assert_async, is_all_true
from ...tensors.device_facts import is_host
from ..guards.tensor_metadata import TENSOR_TYPES
from ..interpreter.decoded_code import Code
from ..interpreter.frames import MISSING
from ..interpreter.opcodes.instruction_table import flow

LONGEST_RAISE = 200
"""Maximum number of instructions from a test to its ``raise``: a message and its values."""


def wanted(m: Any) -> bool | None:
    """The truth value with which the program continues; the other one only raises. None if both continue. The test is a
    jump, and from 3.13 on the instruction before it."""
    return wanted_at(m.frame.code, m.frame.pc)


def wanted_at(code: Code, at: int) -> bool | None:
    if code.opnames[at - 1] in ("TO_BOOL", "COMPARE_OP"):
        at += 1
    name, target = code.opnames[at - 1], code.instructions[at - 1][1]
    if not name.startswith("POP_JUMP") or not name.endswith(("IF_TRUE", "IF_FALSE")):
        return None
    jumps_when = name.endswith("IF_TRUE")
    if only_raises(code, at):
        return jumps_when
    return not jumps_when if only_raises(code, target) else None


def only_raises(code: Code, start: int) -> bool:
    """Whether all paths from instruction ``start`` end in a ``raise``, soon and without a loop."""
    ways, seen = [start], 0
    while ways:
        at = ways.pop()
        while code.opnames[at] != "RAISE_VARARGS":
            name, argument = code.opnames[at], code.instructions[at][1]
            _, _, jumps, falls = flow(name, argument, code)
            seen += 1
            if seen > LONGEST_RAISE or not (jumps or falls) or jumps and argument <= at or name == "YIELD_VALUE":
                return False
            if jumps and falls:
                ways.append(argument)
            at = at + 1 if falls else argument
    return True


def settled(m: Any, condition: torch.Tensor) -> bool | None:
    """The truth of ``condition``, if the program continues with it: the graph then checks it on every run."""
    truth = wanted(m) if can_check(m, condition) else None
    if truth is None or m.plainly(bool, condition) is not truth:
        return None
    check(m, condition if truth else m.perform(torch.logical_not, condition))
    return truth


def can_check(m: Any, condition: torch.Tensor) -> bool:
    return (
        is_checked_by_graph(m)
        and type(condition) in TENSOR_TYPES
        and condition.numel() == 1
        and is_host(condition.device)
        and m.knows(condition)
    )


def is_checked_by_graph(m: Any) -> bool:
    """Whether the graph may check for the program. A backend of others may leave a check out, so with them only an
    error is the alternative, or numbers that are checked."""
    return m.capabilities.keeps_assertions and m.options.keeps_numbers


def check(m: Any, condition: torch.Tensor) -> None:
    # Functionalization, which backends of others may use, drops a check without a message.
    m.perform(assert_async, condition, *(() if m.options.runs_python else ("assertion error",)))
    m.has_assertions = True


def compared(m: Any, tensor: Any) -> Any:
    """``assert x.max().item() <= limit``: the program continues with a tensor in place of the number, of a type that
    holds it exactly. MISSING if it does anything with the number other than comparing it."""
    if not (m.frame is not None and m.frame.code.opnames[m.frame.pc - 1] == "CALL" and can_check(m, tensor)):
        return MISSING
    limit, at = value_pushed_next(m.frame)
    code = m.frame.code
    if (
        type(limit) not in (int, float)
        or abs(limit) >= EXACT
        or code.opnames[at] != "COMPARE_OP"
        or wanted_at(code, at + 1) is None
    ):
        return MISSING
    if tensor.is_floating_point():
        return m.perform(torch.Tensor.to, tensor, torch.float64)
    if type(limit) is int and not tensor.is_complex() and tensor.dtype not in (torch.bool, torch.uint64):
        return m.perform(torch.Tensor.to, tensor, torch.int64)
    return MISSING


EXACT = 1 << 53
"""Integers below it are exact as floats."""


def value_pushed_next(frame: Any) -> tuple[Any, int]:
    """The value that the next instructions push, as far as it is known without running them, and where they end."""
    code, at = frame.code, frame.pc
    name, argument = code.opnames[at], code.instructions[at][1]
    if name in ("LOAD_CONST", "LOAD_SMALL_INT"):
        value = argument
    elif name in ("LOAD_FAST", "LOAD_FAST_BORROW"):
        value = frame.locals[argument]
    elif name == "LOAD_GLOBAL" and not argument[1]:
        value = frame.globals.get(argument[0], MISSING)
    else:
        return MISSING, at
    while code.opnames[at + 1] == "LOAD_ATTR":
        at += 1
        argument = code.instructions[at][1]
        name = argument[0] if type(argument) is tuple else argument
        value = getattr(value, "__dict__", {}).get(name, MISSING) if isinstance(value, torch.nn.Module) else MISSING
    return value, at + 1


def all_true(m: Any, args: tuple, kwargs: dict) -> Any:
    """``_all_true_or_runtime_assert``: argument checks of torch.distributions before torch 2.14."""
    condition = m.perform(is_all_true, *args[:1])
    if can_check(m, condition) and m.plainly(bool, condition):
        check(m, condition)
        return True
    return m.perform(bool, condition)


def tensor_all(m: Any, args: tuple, kwargs: dict) -> Any:
    """``torch._check_tensor_all(condition, message)``, an assertion for libraries."""
    condition = args[0] if args else kwargs.get("cond")
    if type(condition) in TENSOR_TYPES and condition.dtype is torch.bool and m.knows(condition):
        found = m.perform(is_all_true, condition)
        if can_check(m, found) and m.plainly(bool, found):
            check(m, found)
            return None
    return MISSING
