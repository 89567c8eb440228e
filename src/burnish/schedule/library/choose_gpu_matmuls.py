"""Dispatch of GPU matmuls to our own Triton kernels where they are faster than torch's library.

    y = linear x, w, b, None, None         =>    z = run '128x128x64 warps 4 stages 3', x, w, b
    z = aten.gelu.default y

Runs with the setting `max_autotune`, before other calls are chosen. Each product is measured with its prologue and
epilogue: see `gpu_matmul_prologue_epilogue_fusion` and `autotune_gpu_matmul.choose_matrix`. Where torch is as fast, the
graph is unchanged.
"""

from __future__ import annotations

from typing import Any

from ... import events
from ...ir import fuel
from ...ir.graph import Graph, Node
from ...ir.rewriter import Rewriter
from ...ops.burnish_primitives import RUN
from ...ops.target_record import target_of
from ..fusion.gpu_matmul_prologue_epilogue_fusion import FusedWork, ValueReaders, find_fused_work, why_not_matrix
from .autotune_gpu_matmul import choose_matrix
from .candidate import Candidate


def choose_gpu_matmuls(graph: Graph) -> Graph:
    products = [node for node in graph.nodes if why_not_matrix(node) is None]
    return MatrixChooser(graph, products).run() if products else graph


class MatrixChooser(Rewriter):
    def __init__(self, graph: Graph, products: list[Node]):
        super().__init__(graph)
        self.made: dict[Node, tuple[FusedWork, Candidate]] = {}
        """By the node whose result our kernel makes."""
        around = ValueReaders(graph)
        self.absorbed: set[Node] = set(around.idle)
        """The other nodes that such kernels compute."""
        for done, node in enumerate(products):
            events.emit("kernels.measuring", done=done, total=len(products), what=node.op.name)
            self.choose(node, around)
        events.emit("kernels.measuring", done=len(products), total=len(products), what="all of it")

    def choose(self, node: Node, around: ValueReaders) -> None:
        found, target = find_fused_work(node, around), target_of(node.args[0].type.device)
        if found is None or target is None or target.matmul_compiler is None:
            return
        candidate = choose_matrix(found.work, target.matmul_compiler())
        if candidate is None or not fuel.allows("choose_gpu_matmuls", node, candidate.name):
            return
        inside = found.after | (found.before if candidate.spec == found.work.ways[0] else frozenset())
        self.made[found.last] = found, candidate
        self.absorbed |= {*inside, node} - {found.last}
        around.taken |= {*inside, node, found.last}

    def rewrite(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> Any:
        if node in self.absorbed:
            # Only the kernel that replaces it reads this.
            return (self.env[node.operands[0]],) * len(node.results)
        if node not in self.made:
            return None
        found, candidate = self.made[node]
        operands = tuple(self.env[found.values[name]] for name in candidate.operands)
        return self.build.apply_typed(RUN, (candidate, operands), {}, (candidate.output,))
