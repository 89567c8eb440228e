"""Alias check at run time: compiled code that writes to inputs runs only if they do not overlap other inputs.

    call = AliasCheckedProgram(program, eager, written, reaches)
    call(x, y)                        x is written to: runs the program
    call(base[:4], base[2:])          runs eagerly: y overlaps x

The addresses of the last call are remembered, since parameters do not move. Comparing them costs little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


class AliasCheckedProgram:
    """`reaches` gives the number of bytes each input tensor spans, by its position. `symbolic_inputs` are contiguous
    and may have a different size in each call."""

    def __init__(
        self,
        program: Any,
        eager: Callable,
        written: Sequence[int],
        reaches: Mapping[int, int],
        symbolic_inputs: Sequence[int] = (),
    ):
        self.program, self.eager = program, eager
        self.positions = [k for k, reach in reaches.items() if reach]
        self.reaches = [reaches[k] for k in self.positions]
        is_written = set(written)
        self.written = [k in is_written for k in self.positions]
        self.symbolic = [self.positions.index(k) for k in symbolic_inputs if k in self.positions]
        reads = "".join(
            [
                *(f"i[{k}].data_ptr(), " for k in self.positions),
                *(f"i[{self.positions[at]}].nbytes, " for at in self.symbolic),
            ]
        )
        self.addresses_of: Callable[[Sequence[Any]], tuple] = eval(f"lambda i: ({reads})")
        self.seen: tuple | None = None

    @property
    def takes_gradients(self) -> bool:
        return self.program.takes_gradients

    @property
    def source(self) -> str:
        return self.program.source

    def __call__(self, *inputs: Any) -> Any:
        return self.program(*inputs) if self.has_no_overlap(inputs) else self.eager(*inputs)

    def has_no_overlap(self, inputs: Sequence[Any]) -> bool:
        addresses = self.addresses_of(inputs)
        if addresses != self.seen:
            if self.any_shared(addresses):
                return False
            self.seen = addresses
        return True

    def any_shared(self, addresses: tuple) -> bool:
        """Whether an input that is written to overlaps another input."""
        count, reaches = len(self.positions), list(self.reaches)
        for at, size in zip(self.symbolic, addresses[count:], strict=True):
            reaches[at] = size
        ranges = sorted(zip(addresses[:count], reaches, self.written, strict=True))
        end, written_end = 0, 0
        for start, reach, is_written in ranges:
            if start < written_end or is_written and start < end:
                return True
            end = max(end, start + reach)
            if is_written:
                written_end = max(written_end, start + reach)
        return False
