"""Gradients of compiled operators against differences of their own results, in double precision.

Unlike `bench.gradients`, this does not use eager's formulas: `torch.autograd.gradcheck` calls the compiled function at
nearby points. Samples for which eager fails the same check are skipped, because they show nothing.
"""

import functools
import itertools

import pytest
import torch
from bench.operator_samples import operator_records
from torch.utils._pytree import tree_flatten, tree_unflatten

import burnish
from burnish.settings import patch

from ..recorded_events import recorded

MOST = 60
"""The most numbers with respect to which a sample is differentiated."""
PARTS = 8
FAMILIAR = {
    "mul",
    "matmul",
    "softmax",
    "sigmoid",
    "tanh",
    "var",
    "cumsum",
    "gather",
    "nn.functional.layer_norm",
    "nn.functional.batch_norm",
    "nn.functional.conv2d",
    "nn.functional.gelu",
    "nn.functional.cross_entropy",
    "nn.functional.scaled_dot_product_attention",
    "logsumexp",
    "native_batch_norm",
}


@pytest.fixture(scope="module")
def op_db():
    return operator_records()


def checks(function, leaves):
    try:
        return torch.autograd.gradcheck(function, leaves, check_undefined_grad=False, nondet_tol=1e-9)
    except Exception as error:
        return str(error)


def is_small(leaves):
    return (
        leaves
        and sum(x.numel() for x in leaves) <= MOST
        and all(x.numel() and not x.dtype.is_complex and x.layout is torch.strided for x in leaves)
    )


def samples(op):
    """Functions of tensors alone, and the tensors."""
    for sample in itertools.islice(op.sample_inputs("cpu", torch.float64, requires_grad=True), 40):
        flat, form = tree_flatten((sample.input, sample.args, sample.kwargs))
        places = [k for k, x in enumerate(flat) if isinstance(x, torch.Tensor) and x.requires_grad]
        leaves = [flat[k] for k in places]
        if is_small(leaves):

            def call(*given, flat=flat, form=form, places=places):
                values = dict(enumerate(flat)) | dict(zip(places, given, strict=True))
                first, args, kwargs = tree_unflatten(list(values.values()), form)
                made = tree_flatten(op.op(first, *args, **kwargs))[0]
                return tuple(
                    x for x in made if isinstance(x, torch.Tensor) and x.requires_grad and not x.dtype.is_complex
                )

            yield call, leaves


def check_operator(op, most):
    """The number of compiled samples, and the errors."""
    compiled, wrong = 0, []
    with recorded("loops") as planned:
        for call, leaves in itertools.islice(samples(op), most):
            if checks(call, leaves) is not True:
                continue
            burnish.reset()
            planned.clear()
            with patch(never_slower=False, on_error="raise"):
                found = checks(burnish.compile(call), leaves)
            compiled += bool(planned)
            wrong += [] if found is True else [f"{op.name}: {found}"]
    return compiled, wrong


def differentiable(op_db):
    return [op for op in op_db if op.supports_autograd and torch.float64 in op.supported_dtypes("cpu")]


def test_familiar_operators_are_the_gradients_of_themselves(op_db):
    found = [check_operator(op, 1) for op in differentiable(op_db) if op.name in FAMILIAR]
    assert [text for _, wrong in found for text in wrong] == []
    assert sum(compiled for compiled, _ in found) >= len(FAMILIAR) - 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_all_operators_are_the_gradients_of_themselves(op_db, part):
    found = list(map(functools.partial(check_operator, most=2), differentiable(op_db)[part::PARTS]))
    assert [text for _, wrong in found for text in wrong] == []
    assert sum(compiled for compiled, _ in found) > 60
