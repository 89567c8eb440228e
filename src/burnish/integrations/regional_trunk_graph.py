"""Captures the trunk of a regionally compiled model: the code around its blocks, as a graph that calls each block.

    masks, positions, embedding            compiled
    block 0, block 1, ...                  the shared compiled program, called once for each block
    the last norm                          compiled

At first this code runs as plain Python, which keeps the first call short. After repeated calls of the same kind, with
the blocks compiled, the trunk is captured as well. Then a call checks the blocks and runs them without Python in
between. This is only for inference: with gradients, each block runs by itself.

If the trunk is not supported (a block writes to a cache, a graph break), it stays plain Python permanently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import events
from ..capture.engine.engine import Program
from ..capture.engine.program_options import Options
from ..capture.engine.recompile_decisions import give_up
from ..capture.engine.tracer import Tracer
from ..capture.pytorch import writes_of_calls
from ..capture.pytorch.modules.compiled_block_calls import BlockCall
from ..frontend import stance
from ..frontend.compiled_module import CompiledRegion, call_block
from ..runtime.segment_records import Continuation, Segment

WAITS = 16
"""Consecutive calls of one kind before the trunk is captured for it. Capture costs about as much as a hundred calls
save."""

MOST = 4
"""The maximum number of kinds of calls that a trunk is captured for."""

DROPPED = 3
"""After this many invalidated captures the trunk stays plain Python."""


class Trunk(CompiledRegion):
    """Runs a model with compiled blocks."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        program = self.__burnish_program__
        if program.entry.given_up or torch.is_grad_enabled() or stance.forces_eager():
            return self.block._call_impl(*args, **kwargs)
        return program.run([self.block, args, kwargs])


class TrunkProgram(Program):
    def __init__(self, model: torch.nn.Module, options: Options, blocks: Sequence[Program]):
        super().__init__(call_block, options, model)
        self.blocks = blocks
        self.kind: tuple = ()
        self.calls, self.dropped = 0, 0

    def why_not_trace(self, continuation: Continuation, slots: list) -> str | None:
        if continuation is not self.entry:
            return "the trunk did not become a graph"
        if len(continuation.segments) >= MOST or self.options.stance() != "default":
            return "it is called in too many ways, or a stance asks for no more graphs"
        kind = (
            *(kind_of(value) for value in (*slots[1], *slots[2], *slots[2].values())),
            *(len(program.entry.segments) for program in self.blocks),
        )
        self.calls = self.calls + 1 if kind == self.kind else 0
        self.kind = kind
        if self.calls < WAITS:
            return "it is not known yet that it will be called so again"
        self.calls = 0
        parts = set(map(id, slots[0].modules()))
        current = [segment for segment in continuation.segments if parts.issuperset(blocks_of(segment))]
        if len(current) < len(continuation.segments):
            continuation.segments = current
        return super().why_not_trace(continuation, slots)

    def finish_trace(self, tracer: Tracer, continuation: Continuation, signal: Any, *others: Any) -> None:
        if continuation is not self.entry:
            return
        why = (
            signal.what
            if signal is not None
            else "it writes to its inputs"
            if writes_of_calls.written_inputs(tracer.recorder)
            else "it leaves a context variable set"
            if tracer.set_variables
            else None
        )
        if why is not None:
            give_up(continuation, why, is_told=False)
            return
        super().finish_trace(tracer, continuation, signal, *others)

    def rerun(self, continuation: Continuation, slots: list, met: set[type] | None = None) -> Any:
        """Called if a block has changed or raised. There are no side effects yet, so the whole model can run again."""
        events.emit("trunk.dropped", text=f"{self.entry.location}: the code around the blocks is plain Python again")
        continuation.segments = []
        self.calls = 0
        self.dropped += 1
        if self.dropped >= DROPPED:
            give_up(continuation, "blocks change between calls", is_told=False)
        return self.function(*slots)


def blocks_of(segment: Segment) -> set[int]:
    """The ids of the blocks that the segment calls. It keeps them alive, so the ids stay valid."""
    return {id(node.target.block) for node in segment.graph_module.graph.nodes if isinstance(node.target, BlockCall)}


def kind_of(value: Any) -> Any:
    """The kind of an argument that a trunk is captured for: tensors by shape and dtype, constants by value, others by
    class."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.dtype
    return value if isinstance(value, (bool, int, str, type(None))) else type(value)
