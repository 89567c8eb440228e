"""Assertions about tensors: ``assert x.min() >= 0`` does not end the graph.

    def scaled(x):
        assert (x >= 0).all(), "negative"       # _assert_async = torch._assert_async(all_1)
        return x.sqrt()

Python would need the truth of the condition to go on, but there is only one way to go on. While tracing the truth is
known; where it holds, the graph gets a check, and the trace goes on. When the check fails in a later run, nothing
outside has changed yet, so the segment is run again as plain Python, which raises the user's AssertionError at its line
(see ``engine.Program.rerun``).

Not where the graph writes to its inputs: it cannot be run again. Then what was traced is dropped, and the next trace
ends at the assertion as at any other question about data. Nor on devices where a failed check ends the process.
"""

from __future__ import annotations

from typing import Any

import torch

from .metadata import TENSOR_TYPES


def is_asserted(m: Any) -> bool:
    """Whether the current instruction asks for the truth that an ``assert`` statement jumps on: the jump itself, and
    from 3.13 the instruction before it."""
    frame = m.frame
    names, at = frame.code.opnames, frame.pc
    if names[at - 1] in ("TO_BOOL", "COMPARE_OP"):
        at += 1
    return at < len(names) and names[at] == "LOAD_ASSERTION_ERROR" and names[at - 1].endswith("IF_TRUE")


def holds(m: Any, condition: torch.Tensor) -> bool:
    """Whether ``condition`` is true, and the graph will see to it that it is on every run."""
    if not (m.keeps_assertions and m.options.runs_python and type(condition) in TENSOR_TYPES and condition.numel() == 1
            and condition.device.type == "cpu" and m.knows(condition) and m.plainly(bool, condition)):
        return False
    m.perform(torch._assert_async, condition)
    m.has_assertions = True
    return True


def all_true(m: Any, args: tuple, kwargs: dict) -> Any:
    """``_all_true_or_runtime_assert`` of torch.distributions, which checks its arguments by it."""
    condition = m.perform(torch._is_all_true, *args[:1])
    return holds(m, condition) or m.perform(bool, condition)
