"""Restore inputs when a graph raises, or mark the error: the caller can then run the graph's code again in Python.

    b.add_(1)                  b is copied before; its old contents are restored when `10 // x` raises
    y = 10 // x
    b.add_(10)

The caller then runs the program from the graph's beginning as plain Python. This writes, prints and appends whatever
precedes the error, and raises at the user's line, under the user's handlers. Compiled code writes to inputs after
everything that can raise (`schedule.rewrites.hoist_error_checks`). A graph that runs uncompiled writes in the
program's order: inputs written before a call that may raise are copied first.

Where the copies would be too large, or a call raises unexpectedly, the error is marked: nothing runs again, and the
error is raised as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from ...captured_graph.compile_request import request_of
from ...concurrency.first_value_cache import once
from ...foundation.torch_private import OpOverload, OpOverloadPacket, unsafe_set_version_counter
from ...tensors.in_place_names import is_in_place_name
from ..eager.drawing_calls import RULED_PARTS

MOST_BYTES = 1 << 20
"""Copying more than this would slow the call noticeably."""

HALF_DONE = "__burnish_half_done__"


def half_done(error: BaseException) -> None:
    """Mark the error of a graph that has written to some of its inputs."""
    setattr(error, HALF_DONE, True)


def is_half_done(error: BaseException) -> bool:
    return getattr(error, HALF_DONE, False)


# -- which calls may raise depending on their data ---------------------------------------------------------------------

FAILING = frozenset(
    """
    __floordiv__ __rfloordiv__ __ifloordiv__ floordiv ifloordiv floor_divide floor_divide_ __mod__ __rmod__ __imod__ mod
    imod remainder remainder_ fmod fmod_ div div_ divide divide_ gcd lcm gather take take_along_dim put put_
    masked_scatter masked_scatter_ nll_loss nll_loss_nd nll_loss2d cross_entropy cross_entropy_loss one_hot bincount
    repeat_interleave index histc histogram histogramdd multinomial bernoulli bernoulli_ normal normal_ poisson binomial
    binary_cross_entropy ctc_loss segment_reduce cholesky inverse pinverse lu lu_factor lu_solve solve lstsq svd
    svdvals eig eigh eigvals eigvalsh pinv matrix_rank matrix_norm norm cond tensorinv tensorsolve inv lobpcg geqrf
    triangular_solve quantile nanquantile unravel_index multi_margin_loss multilabel_margin_loss max_unpool1d
    max_unpool2d max_unpool3d embedding embedding_bag embedding_renorm_ renorm _assert _assert_async
    _assert_scalar _functional_assert_async cholesky_solve cholesky_inverse logdet slogdet nuclear_norm
    fake_quantize_per_channel_affine searchsorted
""".split()
)
"""By name. A name that never raises does no harm: inputs written before it are copied."""

FAILING_PARTS = ("index_", "scatter", "cholesky", "linalg_", "inv_ex", "solve", "factor")
INDEXING = ("__getitem__", "getitem", "__setitem__", "setitem")
OF_TORCH = ("torch", "_operator", "builtins", "math", "burnish")
OF_NUMBERS = ("_operator", "builtins", "math")
NEVER_FAILING = frozenset("add sub mul neg pos abs and_ or_ xor invert min max float fabs atan tanh".split())
"""Of Python's functions of numbers. `math.pow(n, 0.5)` raises for a negative number, `operator.truediv(1, n)` for 0."""


def may_fail(node: Node) -> bool:
    if node.op not in ("call_function", "call_method"):
        return False
    name = name_of(node)
    if name in INDEXING:
        return any(isinstance(part, Node) for part in _parts(node.args[1]))
    if node.op == "call_function" and getattr(node.target, "__module__", None) in OF_NUMBERS:
        return name not in NEVER_FAILING
    return has_failing_name(name) or node.op == "call_function" and not is_of_torch(node.target)


@once
def has_failing_name(name: str) -> bool:
    return name in FAILING or any(part in name for part in FAILING_PARTS)


def _parts(index: Any) -> Iterator[Any]:
    for part in index if isinstance(index, (tuple, list)) else (index,):
        yield from (part.start, part.stop, part.step) if isinstance(part, slice) else (part,)


def name_of(node: Node) -> str:
    return str(node.target) if node.op == "call_method" else name_of_function(node.target)


def name_of_function(target: Any) -> str:
    """That of an operator is without its overload."""
    return str(getattr(target, "__name__", "")).partition(".")[0]


def is_of_torch(target: Any) -> bool:
    """Functions of other libraries may raise for any reason."""
    if isinstance(target, (OpOverload, OpOverloadPacket)):
        return str(target).startswith(("aten.", "prims."))
    module = getattr(target, "__module__", None) or type(target).__module__ or ""
    return module.partition(".")[0] in OF_TORCH


DRAWING_PARTS = (*RULED_PARTS, *"multinomial poisson exponential geometric cauchy binomial gamma dirichlet".split())


@once
def has_drawing_name(name: str) -> bool:
    return any(part in name for part in DRAWING_PARTS)


def draws_and_may_fail(gm: GraphModule) -> bool:
    """Whether torch's random state has to be restored when the graph raises."""
    nodes = [node for node in gm.graph.nodes if node.op in ("call_function", "call_method")]
    return any(has_drawing_name(name_of(node)) for node in nodes) and any(map(may_fail, nodes))


# -- inputs written before them ----------------------------------------------------------------------------------------

VIEWS = frozenset(
    """
    view reshape transpose permute select narrow expand expand_as squeeze unsqueeze flatten chunk split unbind t T mT H
    mH detach data diagonal real imag movedim moveaxis swapaxes swapdims as_strided unfold contiguous to view_as alias
    type float double half bfloat16 long int ravel unflatten broadcast_to view_as_real view_as_complex hsplit vsplit
    dsplit tensor_split split_with_sizes requires_grad_ conj resolve_conj adjoint getitem __getitem__ reshape_as
    atleast_1d atleast_2d atleast_3d get_T get_data get_mT get_H get_mH get_real get_imag
""".split()
)
DATA = ("data", "get_data")
"""Writes through them do not change the version of the tensor they are views of."""

STATISTICS = {"batch_norm": (1, 2), "instance_norm": (1, 2)}
"""The arguments that a call writes to although its name does not say so."""


def written_before_failing(gm: GraphModule, written: Collection[int]) -> tuple[list[int], bool]:
    """The inputs written before a call that may raise, and whether there is such a call. `written` are those whose
    versions changed in a run. A write missed here is detected after it has happened."""
    nodes, written = list(gm.graph.nodes), frozenset(written)
    last = next((k for k in range(len(nodes) - 1, -1, -1) if may_fail(nodes[k])), -1)
    inputs = [node for node in nodes if node.op == "placeholder"]
    base = {node: k for k, node in enumerate(inputs)}
    found: set[int] = set()
    uncounted: set[Node] = set()
    for node in nodes[: last + 1]:
        if node.op == "placeholder":
            continue
        name = name_of(node)
        is_in_place = is_in_place_name(name)
        targets = node.args[:1] if is_in_place else ()
        if name in STATISTICS:
            named = (node.kwargs.get("running_mean"), node.kwargs.get("running_var"))
            targets = (*(node.args[k] for k in STATISTICS[name] if k < len(node.args)), *named)
        for target in (*targets, node.kwargs.get("out")):
            for each in target if isinstance(target, (list, tuple)) else (target,):
                if each in base and (each in uncounted or base[each] in written):
                    found.add(base[each])
        if (is_in_place or name in VIEWS) and node.args and node.args[0] in base:
            base[node] = base[node.args[0]]
            if name in DATA or node.args[0] in uncounted:
                uncounted.add(node)
    return sorted(found), last >= 0


def restoring(gm: GraphModule, call: Callable[..., Any]) -> Callable[..., Any]:
    """For a graph that runs in the program's order: when it raises, its inputs are restored or the error is marked."""
    call = restoring_flags(gm, call)
    written = request_of(gm).written_inputs
    is_counted = not any(name_of(node) in DATA for node in gm.graph.nodes)
    if not written and is_counted:
        return call
    early, may_raise = written_before_failing(gm, written)
    known = set(early)
    late = [k for k in written if k not in known]

    if not (early or late):
        return call
    if not may_raise:

        @functools.wraps(call)
        def marked(*inputs: Any) -> Any:
            try:
                return call(*inputs)
            except BaseException as error:
                half_done(error)
                raise

        return marked

    @functools.wraps(call)
    def restored(*inputs: Any) -> Any:
        kept = copies([inputs[k] for k in early])
        watched = late if kept is not None else [*early, *late]
        before = [versions(inputs[k]) for k in watched]
        try:
            return call(*inputs)
        except BaseException as error:
            if (kept is None and not is_counted) or any(
                seen is None or versions(inputs[k]) != seen for k, seen in zip(watched, before, strict=True)
            ):
                half_done(error)
            elif kept is not None:
                for k, (copy, version) in zip(early, kept, strict=True):
                    restore(inputs[k], copy, version)
            raise

    return restored


def restoring_flags(gm: GraphModule, call: Callable[..., Any]) -> Callable[..., Any]:
    """For a graph that changes whether its inputs require gradients: when it raises, they require what they did."""
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
    changed = [k for k, node in enumerate(inputs) if any(user.target == "requires_grad_" for user in node.users)]
    if not changed:
        return call

    @functools.wraps(call)
    def restored(*inputs: Any) -> Any:
        before = [inputs[k].requires_grad for k in changed]
        try:
            return call(*inputs)
        except BaseException:
            for k, flag in zip(changed, before, strict=True):
                inputs[k].requires_grad_(flag)
            raise

    return restored


def copies(tensors: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, int | None]] | None:
    """Copies with their versions. None where they are too large, or of tensor subclasses."""
    if sum(x.nbytes for x in tensors) > MOST_BYTES or any(type(x) not in PLAIN for x in tensors):
        return None
    with torch.no_grad():
        return [(x.clone(), versions(x)) for x in tensors]


def restore(x: torch.Tensor, copy: torch.Tensor, version: int | None) -> None:
    x.data.copy_(copy)
    if version is not None:
        unsafe_set_version_counter((x,), (version,))


PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def versions(x: Any) -> int | None:
    """The number of writes to it; None where they are not counted."""
    return None if type(x) not in PLAIN or x.is_inference() else x._version
