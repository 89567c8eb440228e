"""Evaluates a scalar index function once, on broadcast index tensors.

    def causal(b, h, q, k): return q >= k         q: [1, 1, 4, 1], k: [1, 1, 1, 5]  ->  [1, 1, 4, 5]

Torch maps such a function over batch, head, query and key with `torch.vmap`. Here it is interpreted once, on index
tensors that broadcast. That is the same if it computes each element by itself. The operators that it runs decide this:
they must work element by element, or take an element of a table for each index (`Elementwise`). Then the results for a
few indices are compared with those of `torch.vmap`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule
from torch.overrides import TorchFunctionMode

from ....foundation.torch_private import TorchDispatchMode
from ...engine.torch_call_records import TorchCall
from ...guards.tensor_metadata import TENSOR_TYPES
from .graph_region import GraphRegion

SAMPLES = (2, 3, 4, 5)
"""How many batches, heads, queries and keys a function is interpreted for."""


class IndexFunctionRegion(GraphRegion):
    """A call of such a function that is being traced, inside another region."""

    def __init__(
        self, m: Any, name: str, sizes: tuple[int, ...], device: torch.device, score: torch.dtype | None = None
    ):
        """`sizes`: of batch, heads, queries and keys. `score`: the type of the first argument, if it is a score."""
        super().__init__(m, name, [])
        self.indices = [spread_samples(size, count, device) for size, count in zip(sizes, SAMPLES, strict=True)]
        views = [x.view([-1 if at == dim else 1 for at in range(4)]) for dim, x in enumerate(self.indices)]
        self.has_score = score is not None
        scores = []
        if score is not None:
            shape = [len(x) for x in self.indices]
            count = len(self.indices) and torch.Size(shape).numel()
            scores = [torch.linspace(-3, 3, count, dtype=score, device=device).sin().mul_(2).view(shape)]
        self.given = (*scores, *views)
        self.graph: Any = None
        self.depends_on_first = False
        self.is_laid_out_as_mapped = True
        """Whether the results for a few indices have the strides that `torch.vmap` gives them."""
        for value in self.given:
            m.recorder.register(value, m.recorder.add(TorchCall(index, (), {}, m.user_line())))

    @property
    def is_identity(self) -> bool:
        node = output_of(self.graph)
        return node.op == "placeholder" and node is next(iter(self.graph.graph.nodes))

    @property
    def is_always(self) -> bool:
        """Whether a mask is torch's `noop_mask`: no node but the making of a constant True."""
        node = output_of(self.graph)
        return (
            node.target == "new_ones"
            and node.kwargs.get("dtype") is torch.bool
            and all(user.op == "output" for user in node.users)
        )

    def settles(self, number: Any) -> bool:
        return True

    def end(self, result: Any) -> None:
        """The function has returned."""
        self.check_end()
        handle = self.m.recorder.handle_of(result) if type(result) in TENSOR_TYPES else None
        if handle is None and type(result) in TENSOR_TYPES and self.m.knows(result):
            self.refuse("a result that the function has not computed")
        if handle is None:
            self.refuse(f"a result of the type {type(result).__qualname__}")
        for operand in self.operands.values():
            if operand.device != self.given[0].device and operand.ndim:
                self.refuse("a tensor on another device")
        self.graph = self.graph_of(self.m.recorder.calls[self.start.calls :], [handle], list(self.given))
        self.forget()
        self.leave()
        why = self.why_not_mapped(result)
        if why is not None:
            self.m.region.refuse(f"{self.name} {why}")

    def why_not_mapped(self, result: torch.Tensor) -> str | None:
        """Why the graph cannot run on whole blocks."""
        expected = self.given[0].dtype if self.has_score else torch.bool
        if result.dtype is not expected:
            return f"returns {result.dtype} in place of {expected}"
        operands = [x.detach() for x in self.operands.values()]
        watch = Elementwise(self.given)
        with torch.no_grad(), watch:
            found = self.graph(*self.given, *operands)[0]
        if watch.trouble is not None:
            return watch.trouble
        self.depends_on_first = self.has_score and id(found) in watch.mapped and self.learns_first(operands)
        shape = torch.broadcast_shapes(*[x.shape for x in self.given])
        with torch.no_grad(), IndexByTable():
            mapped = self.mapped(operands)
        self.is_laid_out_as_mapped = mapped.stride() == found.expand(shape).stride()
        if mapped.shape != shape or mapped.dtype is not found.dtype:
            return "returns something else for blocks of indices"
        same = torch.equal(mapped.nan_to_num(), found.expand(shape).nan_to_num()) if self.has_score else False
        if not same and not torch.equal(mapped, found.expand(shape)):
            return "returns something else for blocks of indices"
        return None

    def learns_first(self, operands: list[torch.Tensor]) -> bool:
        """Whether gradients flow from the result to the score."""
        with torch.enable_grad():
            score = self.given[0].clone().requires_grad_()
            result = self.graph(score, *self.given[1:], *operands)[0]
        return bool(result.requires_grad)

    def mapped(self, operands: list[torch.Tensor]) -> torch.Tensor:
        """The results as torch maps the function: one index after the other, from the last to the first."""
        function: Any = lambda *given: self.graph(*given)[0]  # noqa: E731
        first, rest = (0,) if self.has_score else (), (None,) * len(operands)
        for dim in (3, 2, 1, 0):
            places = tuple([0 if at == dim else None for at in range(4)])
            function = torch.vmap(function, in_dims=first + places + rest)
        scores = self.given[:1] if self.has_score else ()
        made: torch.Tensor = function(*scores, *self.indices, *operands)
        return made

    def inside(self, name: str) -> str:
        return self.name


def index() -> Any:
    """The target of the calls that stand for the arguments. They are not part of the graph."""


def spread_samples(size: int, count: int, device: torch.device) -> torch.Tensor:
    """Some of the numbers below `size`, in order: the first ones, the last one, and some between."""
    chosen = sorted({0, size - 1, *[k * size // count for k in range(count)], min(1, size - 1)})
    return torch.tensor(chosen[: count - 1] + chosen[-1:] if len(chosen) > count else chosen, device=device)


POINTWISE = torch.Tag.pointwise
CONSTANTS = frozenset("new_ones new_zeros new_full zeros ones full scalar_tensor lift_fresh".split())
LIKE = frozenset("zeros_like ones_like full_like clone alias detach _to_copy where lift_fresh".split())


class Elementwise(TorchDispatchMode):
    """Notes the first operator that does not compute each element by itself. `trouble`: its name."""

    def __init__(self, given: tuple[torch.Tensor, ...]):
        super().__init__()
        self.mapped = {id(x): x for x in given}
        """Tensors with an element for each index."""
        self.trouble: str | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        flat = [x for part in (*args, *(kwargs or {}).values()) for x in (part if isinstance(part, list) else [part])]
        mapped = [x for x in flat if id(x) in self.mapped]
        if func._schema.is_mutable:
            self.trouble = self.trouble or f"writes to a tensor ({func})"
        elif torch.Tag.nondeterministic_seeded in func.tags:
            self.trouble = self.trouble or f"draws random numbers ({func})"
        elif mapped and not self.is_constant(func, args):
            if not self.is_elementwise(func, args, flat):
                self.trouble = self.trouble or f"calls {func}, which is not computed element by element"
            elif isinstance(made, torch.Tensor):
                self.mapped[id(made)] = made
        return made

    def is_constant(self, func: Any, args: tuple) -> bool:
        """Whether a single number is made, which has the type and the device of a tensor."""
        return func.overloadpacket.__name__ in CONSTANTS and list(args[1]) == []

    def is_elementwise(self, func: Any, args: tuple, flat: list[Any]) -> bool:
        name = func.overloadpacket.__name__
        if name == "index":
            table, indices = args
            return id(table) not in self.mapped and len(indices) == table.ndim and None not in indices
        others = [x for x in flat if isinstance(x, torch.Tensor) and id(x) not in self.mapped]
        return (POINTWISE in func.tags or name in LIKE) and all(x.ndim == 0 for x in others)


class IndexByTable(TorchFunctionMode):
    """`table[i]` takes elements of a table also where `i` is a single number, as in torch's flex attention. Without
    this, torch reads the number."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__getitem__:
            key = args[1] if isinstance(args[1], (tuple, list)) else (args[1],)
            if all(isinstance(x, (torch.Tensor, int)) and not isinstance(x, bool) for x in key):
                device = args[0].device
                return torch.ops.aten.index(
                    args[0], [torch.tensor(x, device=device) if isinstance(x, int) else x for x in key]
                )
        return func(*args, **(kwargs or {}))


# ---- graphs


def output_of(graph: GraphModule) -> Any:
    """The node that a graph returns."""
    return next(node for node in reversed(graph.graph.nodes) if node.op == "output").args[0][0]


def with_bare_output(graph: GraphModule) -> GraphModule:
    """The graph with its value as the result, in place of a tuple of it."""
    made = Graph()
    copies: dict[Any, Any] = {}
    for node in graph.graph.nodes:
        if node.op == "output":
            made.output(copies[node.args[0][0]])
        else:
            copies[node] = made.node_copy(node, copies.__getitem__)
    return GraphModule(torch.nn.Module(), made)


def identity_graph() -> GraphModule:
    made = Graph()
    score, *_ = [made.placeholder(name) for name in ("score", "b", "h", "q", "k")]
    made.output(score)
    return GraphModule(torch.nn.Module(), made)


def constant_graph() -> GraphModule:
    made = Graph()
    batch, *_ = [made.placeholder(name) for name in ("b", "h", "q", "k")]
    made.output(made.call_method("new_ones", (batch, ()), {"dtype": torch.bool}))
    return GraphModule(torch.nn.Module(), made)
