"""The code around a model's repeated blocks, as one graph in which each block is a call.

    masks, positions, embedding            one piece, compiled
    block 0, block 1, ...                  what was compiled for all of them, called once for each
    the last norm                          one piece, compiled

A model compiled by regions runs this code as plain Python at first, which is what makes its first call short. Where it
is called again and again in one way, and its blocks are compiled, the trunk is captured as well: then a call checks the
blocks, runs them and has no Python in between. Only for inference: gradients go through each block by itself.

What does not fit (a block that writes to a cache, a graph break on the way) leaves the trunk plain Python, for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import events
from ..capture.engine.engine import Program
from ..capture.engine.program_options import Options
from ..capture.engine.recompile_decisions import give_up
from ..capture.pytorch.repeated_blocks import BlockCall
from ..frontend import stance
from ..frontend.compiled_module import CompiledRegion, call_block
from ..runtime.segments import Continuation, Segment

WAITS = 16
"""Calls of one kind, one after the other, before the trunk is captured for it. That costs about as much as is spared
by a hundred calls."""

MOST = 4
"""Kinds of calls that a trunk is captured for."""

DROPPED = 3
"""So many times what was captured turned out to be no longer right: then the trunk stays plain Python."""


class Trunk(CompiledRegion):
    """How a model runs whose blocks are compiled."""

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

    def finish_trace(self, tracer: Any, continuation: Any, signal: Any, *others: Any) -> None:
        if continuation is not self.entry:
            return
        why = (
            signal.what
            if signal is not None
            else "it writes to its inputs"
            if tracer.recorder.written_inputs()
            else "it leaves a context variable set"
            if tracer.set_variables
            else None
        )
        if why is not None:
            give_up(continuation, why, is_told=False)
            return
        super().finish_trace(tracer, continuation, signal, *others)

    def rerun(self, continuation: Continuation, slots: list, met: set[type] | None = None) -> Any:
        """A block has changed, or raised: nothing outside has changed yet, so all of it can run again."""
        events.emit("trunk.dropped", text=f"{self.entry.location}: the code around the blocks is plain Python again")
        continuation.segments = []
        self.calls = 0
        self.dropped += 1
        if self.dropped >= DROPPED:
            give_up(continuation, "blocks change between calls", is_told=False)
        return self.function(*slots)


def blocks_of(segment: Segment) -> set[int]:
    """The ids of blocks that it calls, and so keeps alive."""
    return {id(node.target.block) for node in segment.graph_module.graph.nodes if isinstance(node.target, BlockCall)}


def kind_of(value: Any) -> Any:
    """What a trunk is captured for: tensors by their shapes, anything else by what it is."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.dtype
    return value if isinstance(value, (bool, int, str, type(None))) else type(value)
