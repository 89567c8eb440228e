"""Classification losses (nll_loss, binary_cross_entropy): shape rules, and the negative log likelihood in loops.

    nll_loss_forward(f32[4, 10], i64[4], None, 1, -100)     f32[], f32[]

`reduction` is 0 for none, 1 for the mean, 2 for the sum. In loops, on devices whose kernels check indices as they load
(GPUs):

    y = log_softmax(x)                  m, s = max(x), sum(exp(x - m))
    l = nll_loss_forward(y, t)    =>    l = mean(-(x[k, t[k]] - m - log(s)))         y is stored nowhere

    g = nll_loss_backward(1, y, t)                       g = where(arange == t, -1 / n, 0)
    d = log_softmax_backward(g, y)                =>     d = g - exp(x - m - log(s)) * (-1 / n)      one pass

The library's kernel reads one element of each row, and needs the whole tensor in memory for it; its gradient, almost
all zeros, is stored too. Here that element alone is computed, from the elements of the operands.
"""

from __future__ import annotations

from typing import Any

import torch

from ...tensors.tensor_types import TensorType
from ..burnish_primitives import RESTRIDE, VIEW
from ..memory_format import copied
from ..operator_record import NoRule, Pointwise, call_shape, decomposition, fresh, shape
from ..reductions.reduction_dims_and_dtypes import floats, widened
from ..target_record import target_of

# -- shape rules -------------------------------------------------------------------------------------------------------


@shape("aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default")
def nll_loss_forward_shape(
    x: TensorType, target: TensorType, weight: TensorType | None, reduction: int, ignore_index: int
) -> tuple[TensorType, TensorType]:
    one_each = reduction == 0 and x.ndim > 1
    return fresh(x, (x.shape[0], *x.shape[2:]) if one_each else ()), fresh(x, ())


call_shape("aten.nll_loss_backward.default", "aten.nll_loss2d_backward.default")(lambda a: fresh(a.self, a.self.shape))
call_shape("aten.binary_cross_entropy.default")(lambda a: copied(a.self) if a.reduction == 0 else fresh(a.self, ()))


# -- decompositions ----------------------------------------------------------------------------------------------------


MEAN = 1


DEEPEST = 16
"""Through so many operators the element of a row is followed."""


@decomposition("aten.nll_loss_forward.default")
def nll_loss_forward(g: Any, x: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    in_loops(x, target)
    is_valid, inside = labels(g, target, ignore_index)
    share = weights(g, x, weight, is_valid, inside)
    picked = widened(g, element_of_row(g, x, inside))
    losses = g("where.ScalarOther", is_valid, g("neg", g("mul.Tensor", picked, share)), 0.0)
    if not reduction:
        return losses, g.full((), 0.0, x.type)
    loss, total = g.reduce("sum", losses, (0,), False), g.reduce("sum", share, (0,), False)
    return g("div.Tensor", loss, total) if reduction == MEAN else loss, total


@decomposition("aten.nll_loss_backward.default")
def nll_loss_backward(
    g: Any, grad: Any, x: Any, target: Any, weight: Any, reduction: int, ignore_index: int, total: Any
) -> Any:
    in_loops(x, target)
    is_valid, inside = labels(g, target, ignore_index)
    share = weights(g, x, weight, is_valid, inside)
    grad = widened(g, grad)
    if reduction == MEAN:
        grad = g("div.Tensor", grad, widened(g, total))
    each = g("where.ScalarOther", is_valid, g("neg", g("mul.Tensor", share, grad)), 0.0)
    count, classes = x.shape
    hit = g("eq.Tensor", g("arange", classes, device=x.type.device), g.reshape(inside, (count, 1)))
    each = g.reshape(g.convert(each, x.dtype), (count, 1))
    found = g("where.ScalarOther", hit, each, 0.0)
    g.row_sums[found] = each
    return found


def in_loops(x: Any, target: Any) -> None:
    floats(x)
    machine = target_of(x.type.device)
    if x.ndim != 2 or 0 in x.shape or target.dtype is not torch.int64 or target.shape != x.shape[:1]:
        raise NoRule("one row, none, or other labels")
    if machine is None or machine.has_checks:
        raise NoRule("the host checks the labels")


def labels(g: Any, target: Any, ignore_index: int) -> tuple[Any, Any]:
    """Which count, and labels that are in range where they do not count."""
    is_valid = g("ne.Scalar", target, ignore_index)
    return is_valid, g("where.ScalarOther", is_valid, target, 0)


def weights(g: Any, x: Any, weight: Any, is_valid: Any, inside: Any) -> Any:
    if weight is None:
        return g.convert(is_valid, widened_type(x))
    return g("where.ScalarOther", is_valid, widened(g, g("index_select", weight, 0, inside)), 0.0)


def widened_type(x: Any) -> torch.dtype:
    return torch.float64 if x.dtype is torch.float64 else torch.float32


def element_of_row(g: Any, x: Any, index: Any, depth: int = 0) -> Any:
    """`x[k, index[k]]` for each row k. The elements of a tensor in memory are loaded; those of a computed one are
    computed from its operands, so that it need not be stored for them."""
    rows = x.shape[0]
    if x.ndim < 2:
        return x if not x.ndim else g("index_select", x, 0, index)
    if x.shape[1] == 1:
        return g.reshape(x, (rows,))
    node = x.node
    if node is not None and depth < DEEPEST:
        if node.op is RESTRIDE:
            return element_of_row(g, node.args[0], index, depth + 1)
        if node.op is VIEW:
            inner = through_view(g, node)
            if inner is not None:
                return element_of_row(g, inner, index, depth + 1)
        elif isinstance(node.op.rule, Pointwise) and all(
            not is_tensor(arg) or arg.ndim < 2 or arg.shape[0] == rows for arg in node.args
        ):
            args = [element_of_row(g, a, index, depth + 1) if is_tensor(a) else a for a in node.args]
            return g.apply(node.op, tuple(args), dict(node.kwargs))
    return g.reshape(g("gather", x, 1, g.reshape(index, (rows, 1))), (rows,))


def is_tensor(arg: Any) -> bool:
    return hasattr(arg, "node")


def through_view(g: Any, node: Any) -> Any:
    """A view of `f(x)` as `f` of the view of x; None if there is no such f."""
    x, steps = node.args
    made = x.node
    if made is None:
        return None
    if made.op is RESTRIDE:
        return g.view(made.args[0], *steps)
    operands = [arg for arg in made.args if is_tensor(arg)]
    if not isinstance(made.op.rule, Pointwise) or len(operands) != 1 or operands[0].shape != x.shape:
        return None
    args = tuple(g.view(arg, *steps) if is_tensor(arg) else arg for arg in made.args)
    return g.apply(made.op, args, dict(made.kwargs))


@decomposition("aten.nll_loss2d_backward.default")
def nll_loss2d_backward(g: Any, grad_output: Any, x: Any, *rest: Any) -> Any:
    """torch gives the gradient the strides of `x`, and raises if they are not contiguous. In eager they always are: `x`
    comes from torch's log_softmax. Here it comes from loops that keep the strides of their operands."""
    if x.type.is_contiguous:
        raise NoRule("its strides are those that torch needs")
    return g("nll_loss2d_backward", grad_output, g("clone", x, memory_format=torch.contiguous_format), *rest)
