"""Eager kernels that are listed as taking any layout are called on operands with other strides."""

import itertools
from collections import Counter

import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves, tree_map_only

from burnish.ops.layouts_eager_accepts import ANY

from .operator_samples import laid_out, operator_calls
from .record_aten_calls import Dispatched

LAYOUTS = ("reversed", "channels last", "gaps")
MOST = 3
"""Calls of one kernel."""

OPERATORS = frozenset(
    """
    mm addmm bmm baddbmm addbmm addr mv dot nn.functional.conv1d nn.functional.conv2d nn.functional.conv3d
    nn.functional.conv_transpose2d nn.functional.adaptive_avg_pool2d nn.functional.avg_pool2d
    nn.functional.avg_pool3d nn.functional.max_pool2d nn.functional.adaptive_max_pool2d
    cat stack roll gather index_select __getitem__
    nn.functional.embedding index_add index_copy index_put scatter scatter_add sum mean amax amin prod max min argmax
    argmin all any var std var_mean linalg.vector_norm cumsum cumprod sort topk softmax log_softmax
    nn.functional.layer_norm tril triu masked_select nonzero select narrow nn.functional.linear matmul
""".split()
)


class Sweep:
    def __init__(self):
        self.seen, self.wrong = Counter(), []

    def __call__(self, func, args, kwargs):
        made = func(*args, **kwargs)
        name = str(func)
        if name in ANY and self.seen[name] < MOST:
            self.seen[name] += 1
            count = sum(isinstance(leaf, torch.Tensor) for leaf in tree_leaves((args, kwargs)))
            for which, layout in itertools.product(range(count), LAYOUTS):
                self.compare(name, func, args, kwargs, which, layout, made)
        return made

    def compare(self, name, func, args, kwargs, which, layout, made):
        numbers = itertools.count()

        def laid(x):
            return laid_out(x.clone(), layout) if next(numbers) == which else x

        again = func(*tree_map_only(torch.Tensor, laid, args), **tree_map_only(torch.Tensor, laid, kwargs))
        for want, found in zip(tree_leaves(made), tree_leaves(again), strict=True):
            if isinstance(want, torch.Tensor):
                try:
                    torch.testing.assert_close(found, want, equal_nan=True, rtol=1e-4, atol=1e-4)
                except AssertionError as error:
                    self.wrong.append(f"{name}, operand {which}, {layout}: {error}")


def image_calls():
    for mode in ("nearest", "bilinear", "bicubic"):
        yield "", F.interpolate, (torch.randn(2, 3, 4, 5),), {"scale_factor": 2, "mode": mode}
    for mode in ("constant", "reflect", "replicate"):
        yield "", F.pad, (torch.randn(2, 3, 4, 5), (1, 1, 2, 0)), {"mode": mode}


def test_kernels_that_take_any_layout_do():
    sweep = Sweep()
    for _, fn, args, kwargs in itertools.chain(image_calls(), operator_calls((torch.float32,), 3, only=OPERATORS)):
        leaves = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        for x in leaves:
            x.requires_grad_(x.is_floating_point())
        with Dispatched(sweep):
            made = [x for x in tree_leaves(fn(*args, **kwargs)) if isinstance(x, torch.Tensor) and x.requires_grad]
            if made and "reduce" not in kwargs:  # a scatter that reduces has no gradients
                torch.autograd.backward(made, [torch.ones_like(x) for x in made])
    assert not sweep.wrong, "\n".join(sweep.wrong)
    missed = sorted(ANY.difference(sweep.seen))
    assert not missed, "no sample calls them"
