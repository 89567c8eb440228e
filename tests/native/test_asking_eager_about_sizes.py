"""Asking eager about sizes that the program has not had leaves no traces, and costs little."""

import warnings

import pytest
import torch
import torch.nn.functional as F

import burnish
from burnish.ir.graph import Value
from burnish.ir.infer_types import result_types
from burnish.ir.untraceable_graph import Untraceable
from burnish.lower.trace import validate_call_in_eager
from burnish.lower.trace.validate_call_in_eager import verify_accepted_by_eager
from burnish.ops.operator_record import lookup
from burnish.tensors.tensor_types import TensorType

from ..forked_programs import run_program

ATEN = torch.ops.aten
SIZES = (4, 5, 7, 6, 9, 20, 41, 3)


def tensor(*shape, dtype=torch.float32):
    return Value(TensorType.contiguous(shape, dtype), "x")


def asked(func, *args):
    """The kernels that run."""
    ran = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validate_call_in_eager, "run", lambda func, *_: ran.append(func))
        verify_accepted_by_eager(func, args, {}, result_types(lookup(func), args, {}))
    return ran


def test_global_generator_is_left_alone(monkeypatch):
    def forks(*args, **kwargs):
        raise AssertionError("another thread may draw meanwhile")

    monkeypatch.setattr(torch.random, "fork_rng", forks)
    before = torch.get_rng_state()
    for func, *args in (
        (ATEN.bernoulli.default, tensor(4)),
        (ATEN.poisson.default, tensor(4)),
        (ATEN.native_dropout.default, tensor(4), 0.5, True),
        (ATEN.native_dropout.default, tensor(0), 0.5, True),
        (ATEN.normal.Tensor_Tensor, tensor(4), tensor(4)),
    ):
        assert asked(func, *args) == []
    assert torch.equal(torch.get_rng_state(), before)


def test_generator_of_the_program_is_left_alone():
    generator = torch.Generator()
    before = generator.get_state()
    result_types(lookup(ATEN.exponential.default), (tensor(4), 1.0), {"generator": generator})
    assert torch.equal(generator.get_state(), before)


def test_kernel_of_the_user_runs_for_the_program_alone():
    library = torch.library.Library("burnish_tests_asking", "DEF")
    library.define("observed(Tensor x) -> Tensor")
    seen = []
    library.impl("observed", lambda x: seen.append(tuple(x.shape)) or x.log1p(), "CPU")
    library.impl("observed", torch.empty_like, "Meta")
    compiled = burnish.compile(lambda x: (torch.ops.burnish_tests_asking.observed(x) * 2, x.shape[0]))
    for size in SIZES:
        compiled(torch.ones(size, 3))
    assert seen == [(size, 3) for size in SIZES]


def test_kernel_of_the_user_without_a_function_for_types_is_refused():
    library = torch.library.Library("burnish_tests_asking_none", "DEF")
    library.define("observed(Tensor x) -> Tensor")
    library.impl("observed", lambda x: pytest.fail("it runs"), "CPU")
    func = torch.ops.burnish_tests_asking_none.observed.default
    with pytest.raises(Untraceable):
        result_types(lookup(func), (tensor(3),), {})


@pytest.mark.parametrize(
    "func, args",
    [
        (ATEN.mul.Tensor, (tensor(3, 1), tensor(3))),
        (ATEN.cat.default, ([tensor(1 << 13), tensor(1)],)),
        (ATEN.addr.default, (tensor(1), tensor(100), tensor(100))),
        (ATEN.zeros_like.default, (tensor(3),)),
        (ATEN.var.correction, (tensor(1), [0])),
        (ATEN._prelu_kernel.default, (tensor(3), tensor(3))),
        (ATEN.max_pool2d_with_indices.default, (tensor(2, 9, 9), [3, 3], [3, 3], [1, 1], [1, 2], True)),
    ],
    ids=["elementwise", "large", "large result", "maker", "warns", "private", "writes outside"],
)
def test_kernels_that_do_not_run(func, args):
    assert asked(func, *args) == []


def test_kernels_that_run():
    assert asked(ATEN.cumsum.default, tensor(3), 0) == [ATEN.cumsum.default]
    assert asked(ATEN.avg_pool2d.default, tensor(1, 9, 9), [3, 3]) == [ATEN.avg_pool2d.default]


def test_written_operand_has_the_shape_of_the_result():
    verify_accepted_by_eager(ATEN.add_.Tensor, (tensor(3, 4), tensor(4)), {})
    for x, y in ((tensor(4), tensor(3, 4)), (tensor(3), tensor(2))):
        with pytest.raises(Untraceable):
            verify_accepted_by_eager(ATEN.add_.Tensor, (x, y), {})


def test_warnings_are_those_of_eager():
    def fn(x):
        return F.mse_loss(x, torch.zeros(1)), x.shape[0]

    compiled = burnish.compile(fn, backend="eager")
    for size in (8, 9, 10, 11, 50, 200, 7):
        said = []
        for function in (fn, compiled):
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                function(torch.ones(size))
            said.append({str(one.message) for one in found})
        assert said[1] <= said[0]


def test_sympy_is_not_imported():
    source = """
import sys, torch, burnish
f = burnish.compile(lambda x: (torch.full_like(x, 2.0) + x.unfold(0, 3, 1).sum(), x.shape[0]), backend="eager")
before = "sympy" in sys.modules
for n in (8, 9, 11, 30): f(torch.ones(n))
assert ("sympy" in sys.modules) == before
"""
    run_program(source)


def test_size_without_a_formula_is_tried_once(monkeypatch):
    from burnish.capture.symbolic_sizes.size_symbols import SizeSymbols

    tries = []
    make_way = SizeSymbols.make_way
    monkeypatch.setattr(SizeSymbols, "make_way", lambda self, *args: tries.append(args) or make_way(self, *args))
    compiled = burnish.compile(lambda x: x.unfold(0, 3, 2).sum(-1)[::2].exp().shape[0], backend="eager")
    for size in (60, 67, 74, 81, 88, 95):
        compiled(torch.ones(size))
    assert len(tries) <= 1


def test_dimension_of_a_large_tensor_is_asked_for():
    verify_accepted_by_eager(ATEN._softmax.default, (tensor(1 << 14, 2), -1, False), {})
    with pytest.raises(Untraceable):
        verify_accepted_by_eager(ATEN._softmax.default, (tensor(1 << 14, 2), 2, False), {})
