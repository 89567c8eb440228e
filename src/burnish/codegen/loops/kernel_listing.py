"""Prints a kernel as text in which a value that is used more than once is named.

    loop i0 < 1024 rows
      stage
        t0 = exp(b0[i0])
        b1[i0] = add(t0, mul(t0, t0))

`schedule.loops.loop_ir.print_kernel` writes every use in full. That is easier to read while a kernel is small, but
doubles with every value that is used twice. This form is the comment above the IR, and equal kernels are recognized
by it.
"""

from __future__ import annotations

from collections import Counter

from ...ops.scalar_ir import Scalar, walk
from ...schedule.loops.loop_ir import Kernel, Loop, Store
from .coalesce_loops import LoopNest, expressions

_LEAVES = {"const", "size", "index", "reduced"}


def listing(kernel: Kernel) -> list[str]:
    """The lines, without the name and the origin of the kernel."""
    dtypes = ", ".join(f"b{n}: {dtype}{' out' if n in kernel.stored else ''}" for n, dtype in enumerate(kernel.dtypes))
    lines = [f"({dtypes})"]
    for loop in kernel.loops:
        lines += _Listing(loop).lines
    return lines


def listing_of(loop: Loop | LoopNest) -> list[str]:
    return _Listing(loop).lines


class _Listing:
    def __init__(self, loop: Loop | LoopNest):
        box = ", ".join(f"i{k} < {n}{' rows' if k < loop.rows else ''}" for k, n in enumerate(loop.extents))
        self.lines = [f"loop {box or 'once'}"]
        self.names: dict[Scalar, str] = {}
        self.uses = Counter(arg for x in walk(*expressions(loop.stages)) for arg in x.args)
        number = 0
        for stage in loop.stages:
            self.lines.append("  stage")
            for reduction in stage.reductions:
                value = self._text(reduction.value)
                self.lines.append(f"    r{number} = {reduction.op}.{reduction.dtype} {value}")
                number += 1
            for store in stage.stores:
                self._store("", store)
            for store in stage.row_stores:
                self._store("row ", store)

    def _store(self, prefix: str, store: Store) -> None:
        args = f"({', '.join(map(self._text, store.args))})" if store.args else ""
        masked = " if" if store.access.masked else ""
        sign = "+=" if store.adds else "="
        self.lines.append(f"    {prefix}{store.access}{masked}{args} {sign} {self._text(store.value)}")

    def _text(self, root: Scalar) -> str:
        if root in self.names:
            return self.names[root]
        texts: dict[Scalar, str] = {}
        for x in walk(root, known=self.names):
            args = f"({', '.join([texts[a] if a in texts else self.names[a] for a in x.args])})" if x.args else ""
            match x.op:
                case "const":
                    text = f"{x.payload!r}.{x.dtype}"
                case "index":
                    text = f"i{x.payload}"
                case "size":
                    text = str(x.payload)
                case "reduced":
                    text = f"r{x.payload}"
                case "load":
                    text = f"{x.payload}{' if' if x.payload.masked else ''}{args}"
                case "cast" | "bitcast":
                    text = f"{x.op}.{x.dtype}{args}"
                case _:
                    text = x.op + args
            if self.uses[x] > 1 and x.op not in _LEAVES:
                name = self.names[x] = f"t{len(self.names)}"
                self.lines.append(f"    {name} = {text}")
                text = name
            texts[x] = text
        return texts[root]
