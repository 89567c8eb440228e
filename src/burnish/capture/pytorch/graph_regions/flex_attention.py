"""FlexAttention while tracing: one node, whose score and mask functions are graphs.

    flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[h, i - j], block_mask=causal)

    flex_attention = flex_attention(q, k, v, bias)        `runtime/eager/flex_attention.py`
    getitem = flex_attention[0]

In eager this call compiles its functions with Dynamo and computes all scores at once. Here both functions are
interpreted once, on a few indices (`index_functions`). Their reads are guarded, and their tensors become operands.
Cases that eager rejects raise their error there, because the segment ends before the call.

A backend without Python in its graphs gets torch's own operator, with the two graphs as submodules.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from ....concurrency.outside_errors import reraise_from_outside
from ....errors import InternalError
from ....runtime.eager.flex_attention import FlexAttention
from ....runtime.eager.flex_tiles import FlexTiles
from ....tensors.device_facts import is_host
from ....tensors.dtypes import FLOATS, NAMES
from ... import breaks
from ...engine.torch_call_records import TorchCall
from ...guards.tensor_metadata import TENSOR_TYPES
from ...interpreter import argument_binding
from ...interpreter.frames import MISSING
from ...interpreter.program_or_tracer_errors import ask_torch
from ...numbers.live_scalars import Expression, settled
from ...python.trace_rollback import ask_region
from . import create_mask
from .graph_region import GraphRegion, drawing_from
from .index_functions import IndexFunctionRegion, constant_graph, identity_graph, with_bare_output


def attention(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    try:
        values = argument_binding.bind(function, args, kwargs)
    except TypeError:
        return MISSING
    given = dict(zip(function.__code__.co_varnames, values, strict=False))
    given = {name: settled(value) for name, value in given.items()}
    namespace = function.__globals__
    why = why_not_captured(m, namespace, given)
    if why is not None:
        m.stop(breaks.FOREIGN_COMPILED, f"flex_attention: {why}")
    query, key, value = given["query"], given["key"], given["value"]
    if m.symbolic_sizes is not None and not m.options.runs_python:
        m.symbolic_sizes.symbols.settle_all("flex_attention")
    m.heap.expose(given["kernel_options"])
    options = kernel_options(m, namespace, given)
    m.answer = None
    m.region = FlexCall(m, query, key, value, namespace["_create_empty_block_mask"])
    return m.call(
        attend,
        (
            query,
            key,
            value,
            given["enable_gqa"],
            given["score_mod"],
            given["block_mask"],
            given["scale"],
            options,
            given["return_lse"],
            given["return_aux"],
            namespace,
        ),
        {},
    )


def why_not_captured(m: Any, namespace: dict, given: dict) -> str | None:
    """Also for all that torch rejects, so that torch raises its own errors."""
    tensors = [given[name] for name in ("query", "key", "value")]
    for x in tensors:
        if type(x) not in TENSOR_TYPES or not m.knows(x) or x.layout is not torch.strided or x.ndim != 4:
            return "not plain tensors of four dimensions"
        if NAMES.get(x.dtype) not in FLOATS or x.dtype is not tensors[0].dtype or x.device != tensors[0].device:
            return "tensors of several types or devices, or not of floating point"
        if not x.numel():
            return "a tensor without elements"
        if x.requires_grad and is_host(x.device):
            return "torch computes no gradients of query, key and value on CPUs"
    if type(given["enable_gqa"]) is not bool:
        return "an argument enable_gqa that is not a bool"
    if given["block_mask"] is not None and type(given["block_mask"]) is not namespace["BlockMask"]:
        return "a block mask of a class of its own"
    if not isinstance(given["scale"], (float, int, type(None))) or type(given["return_lse"]) is not bool:
        return "a scale that is not a number"
    aux = given.get("return_aux")
    if aux is not None and (type(aux) is not namespace["AuxRequest"] or given["return_lse"] or aux.max_scores):
        return "auxiliary results other than lse"
    if torch.is_autocast_enabled(tensors[0].device.type):
        return "under autocast"
    if m.region is not None and not isinstance(m.region, GraphRegion):
        m.region.refuse("flex_attention")
    if given["return_lse"]:
        shown = namespace.get("_WARNINGS_SHOWN")
        if shown is not None:
            has_warned = Expression(WarnedAbout(shown), ())
            m.guard_outcome(has_warned, "deprecated_return_lse" in shown)
            if "deprecated_return_lse" not in shown:
                return "torch warns about return_lse once"
    return None


class WarnedAbout:
    """Whether torch has shown its warning about `return_lse`, which it shows once in a process."""

    def __init__(self, shown: set):
        self.shown = shown

    def __call__(self) -> bool:
        return "deprecated_return_lse" in self.shown


def kernel_options(m: Any, namespace: dict, given: dict) -> dict:
    """The options with torch's defaults. They do not change what our own kernels compute."""
    names = ("query", "key", "value", "return_lse", "kernel_options")
    arguments = [given[name] for name in names]
    if "return_aux" in given:
        arguments.append(given["return_aux"])
    try:
        made: dict = ask_torch(namespace["_apply_kernel_options"], *arguments)
    except InternalError:
        raise
    except Exception as error:
        reraise_from_outside(error)
        return m.stop(breaks.FOREIGN_COMPILED, f"flex_attention: {type(error).__name__}: {error}")
    return made


# ---- the function that is interpreted for the call


def attend(query, key, value, enable_gqa, score_mod, block_mask, scale, options, return_lse, return_aux, namespace):  # type: ignore[no-untyped-def]
    try:
        check_sizes(query.shape, key.shape, value.shape, enable_gqa)
        if score_mod is not None:
            ask_region("end", score_mod(*ask_region("begin", "score_mod")))
        if block_mask is None:
            parts = None
        else:
            parts = block_mask.as_tuple()
            check_mask(block_mask.shape, block_mask.BLOCK_SIZE, query.shape, key.shape)
            ask_region("end", parts[-1](*ask_region("begin", "mask_mod")))
        if scale is None:
            scale = 1.0 / math.sqrt(query.size(-1))
        out, lse, _ = ask_region("finish", parts, scale, options)
    except BaseException as error:
        ask_region("left_by_error", error)
        raise
    if return_aux is not None:
        return out, namespace["AuxOutput"](lse=lse * math.log(2.0) if return_aux.lse else None, max_scores=None)
    if return_lse:
        return out, lse * math.log(2.0)
    return out


def check_sizes(query, key, value, enable_gqa):  # type: ignore[no-untyped-def]
    """Interpreted, so that sizes that vary are guarded by the outcome of these comparisons."""
    if query[3] != key[3] or key[0] != value[0] or key[1] != value[1] or key[2] != value[2]:
        ask_region("refuse", "sizes of query, key and value that do not fit")
    if query[0] != key[0] and key[0] != 1:
        ask_region("refuse", "batches of query and key that do not fit")
    if query[1] != key[1] and (not enable_gqa or query[1] % key[1] != 0):
        ask_region("refuse", "heads of query and key that do not fit")


def check_mask(shape, block_size, query, key):  # type: ignore[no-untyped-def]
    is_made_for_a_length = block_size[0] < 1 << 30 or block_size[1] < 1 << 30
    if is_made_for_a_length and (shape[-2] != query[2] or shape[-1] != key[2]):
        ask_region("refuse", "a BlockMask of another length")
    if len(shape) != 4 or shape[0] != 1 and shape[0] != query[0] or shape[1] != 1 and shape[1] != query[1]:
        ask_region("refuse", "a BlockMask of other batches or heads")


class FlexCall(GraphRegion):
    """A call of flex attention that is being traced."""

    functions = "its functions"

    def __init__(self, m: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, empty_mask: Callable):
        super().__init__(m, "flex_attention", drawing_from([query, key, value]))
        self.given, self.empty_mask = (query, key, value), empty_mask
        self.functions: dict[str, IndexFunctionRegion] = {}

    def begin(self, name: str) -> tuple[torch.Tensor, ...]:
        query, key, _ = self.given
        working = torch.float64 if query.dtype is torch.float64 else torch.float32
        function = IndexFunctionRegion(
            self.m,
            f"{name} of flex_attention",
            (*query.shape[:3], key.shape[2]),
            query.device,
            working if name == "score_mod" else None,
        )
        self.functions[name] = self.m.region = function
        return function.given

    def finish(self, parts: tuple | None, scale: float, options: dict) -> Any:
        m, recorder = self.m, self.m.recorder
        score, mask = self.functions.get("score_mod"), self.functions.get("mask_mod")
        of_score, of_mask = ([] if f is None else list(f.operands.values()) for f in (score, mask))
        learns = torch.is_grad_enabled() and any(x.requires_grad for x in (*self.given, *of_score))
        if any(x.requires_grad for x in of_mask):
            self.refuse("a mask that reads a tensor with gradients")
        if learns and parts is not None and len(parts) > 7 and parts[7] is None:
            self.refuse("gradients without the BlockMask's q_indices")
        if learns and score is not None and not score.depends_on_first:
            self.refuse("a score that does not depend on the score it is given")
        tiles = FlexTiles(
            None if score is None or score.is_identity else score.graph,
            None if mask is None or mask.is_always else mask.graph,
            float(scale),
            0 if score is None or score.is_identity else len(of_score),
            as_it_is,
        )
        node = FlexAttention(tiles)
        captured = [x for x, graph in ((of_score, tiles.score), (of_mask, tiles.mask)) if graph is not None]
        operands = [*self.given, *[x for part in captured for x in part]]
        made = node(*operands)
        self.leave()
        if parts is None and not m.options.runs_python:
            parts = self.parts_without_mask()
        if m.options.runs_python:
            recorded = TorchCall(node, tuple(map(recorder.tensor, operands)), {}, m.user_line())
        else:
            recorded = TorchCall(
                torch.ops.higher_order.flex_attention,
                (
                    *map(recorder.tensor, self.given),
                    identity_graph() if score is None else with_bare_output(score.graph),
                    (
                        *map(recorder.argument, parts[:-1]),
                        constant_graph() if mask is None else with_bare_output(mask.graph),
                    ),
                    float(scale),
                    options,
                    tuple(map(recorder.tensor, of_score)),
                    tuple(map(recorder.tensor, of_mask)),
                ),
                {},
                m.user_line(),
            )
        recorder.register(made, recorder.add(recorded))
        m.answer = None
        return made

    def parts_without_mask(self) -> tuple:
        """The parts of the BlockMask with which torch masks nothing, as constants of the graph."""
        recorder = self.m.recorder
        parts = self.empty_mask(*self.given[:2]).as_tuple()
        for part in parts:
            if isinstance(part, torch.Tensor):
                known = {"dtype": part.dtype, "device": part.device}
                recorder.register(
                    part, recorder.add(TorchCall(torch.tensor, (part.tolist(),), known, self.m.user_line()))
                )
        return parts


def as_it_is(graph: torch.fx.GraphModule) -> Callable:
    return graph


BY_NAME = {"flex_attention": attention, **create_mask.BY_NAME}
