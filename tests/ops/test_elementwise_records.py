"""Element-wise records against eager: on torch's own samples, on special values, for all dtypes and layouts."""

from __future__ import annotations

import collections
import contextlib
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from bench.operators import operators, quiet, set_seed
from torch.utils._pytree import tree_leaves

from burnish.ops.elementwise.activations import rounds_bound
from burnish.ops.elementwise.elementwise_record import Site, converted, holds, rounded
from burnish.ops.operator_record import RECORDS, NoRule, Pointwise
from burnish.ops.scalar_ir import Access, load
from burnish.tensors.dtypes import DTYPES, NAMES
from burnish.tensors.views.view_maps import Slice

from .elementwise_arguments import (
    INF,
    NAN,
    arguments,
    dtype_calls,
    layout_calls,
    number_choices,
    special_calls,
    tensor_names,
)
from .elementwise_calls import (
    Watcher,
    checked,
    difference,
    difference_of_values,
    expression_of,
    overload_of,
    records,
    refusal,
    typed,
    watching,
)
from .scalar_ir_evaluator import evaluated

COMMONEST = """
add.Tensor sub.Tensor mul.Tensor div.Tensor neg.default exp.default sqrt.default rsqrt.default pow.Tensor_Scalar
relu.default gelu.default silu.default sigmoid.default tanh.default erf.default sin.default cos.default where.self
clamp.default eq.Tensor ne.Scalar lt.Tensor logical_and.default logical_not.default _to_copy.default clone.default
hardswish.default hardsigmoid.default hardtanh.default leaky_relu.default elu.default maximum.default minimum.default
abs.default log.default masked_fill.Scalar addcmul.default bitwise_and.Tensor reciprocal.default rsub.Scalar
floor.default threshold_backward.default sigmoid_backward.default tanh_backward.default gelu_backward.default
silu_backward.default
""".split()
SAMPLED = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
)
QUICKLY_SAMPLED = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
KNOWN = tuple(DTYPES.values())

slow = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def calm():
    with quiet(), np.errstate(all="ignore"):
        yield


def rules() -> list[str]:
    return sorted(name for name, op in records().items() if isinstance(op.rule, Pointwise))


# -- torch's samples ---------------------------------------------------------------------------------------------------


class Tally:
    """Statistics of the calls made by the samples."""

    def __init__(self) -> None:
        self.overloads: set[str] = set()
        self.refused: set[str] = set()
        self.wrong: list[str] = []
        self.seen: collections.Counter[tuple] = collections.Counter()

    def __call__(self, func: Any, args: tuple, kwargs: dict, eager: Any) -> None:
        """Of calls with equal types and numbers two are enough."""
        key = (str(func), repr(typed(args)), repr(typed(kwargs)))
        self.seen[key] += 1
        if self.seen[key] > 2:
            return
        reason = refusal(func, args, kwargs)
        if reason is not None:
            self.refused.add(str(func))
            return
        self.overloads.add(str(func))
        wrong = difference(func, args, kwargs, eager)
        if wrong is not None:
            self.wrong.append(wrong)


def run_samples(dtype: torch.dtype, most: int | None, stride: int = 1) -> Tally:
    """Samples of all operators, forward and, for floats, backward."""
    tally = Tally()
    watcher = Watcher(tally)
    for op in operators()[::stride]:
        if dtype not in op.dtypes or "jiterator" in op.name:  # the latter is for GPUs alone
            continue
        set_seed(0)
        with_gradient = dtype.is_floating_point and op.supports_autograd
        try:
            samples = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=with_gradient), most))
        except Exception:
            continue  # torch has no samples of this operator in this dtype, whatever its record says
        for sample in samples:
            run_sample(op, sample, watcher)
    return tally


def run_sample(op: Any, sample: Any, watcher: Watcher) -> None:
    leaves = [
        x
        for x in tree_leaves((sample.input, sample.args, sample.kwargs))
        if isinstance(x, torch.Tensor) and x.requires_grad
    ]
    # Eager itself does not take every sample.
    with watching(watcher), contextlib.suppress(RuntimeError, ValueError, TypeError, NotImplementedError):
        results = [
            x
            for x in tree_leaves([op.op(sample.input, *sample.args, **sample.kwargs)])
            if isinstance(x, torch.Tensor) and x.requires_grad
        ]
        if results and leaves:
            torch.autograd.grad([x.sum() for x in results], leaves, allow_unused=True)


@pytest.mark.parametrize("dtype", QUICKLY_SAMPLED, ids=NAMES.get)
def test_types_and_elements_are_eagers_on_some_samples(dtype):
    tally = run_samples(dtype, most=1, stride=5)
    assert tally.wrong == []
    assert len(tally.overloads) > 15


@slow
@pytest.mark.parametrize("dtype", SAMPLED, ids=NAMES.get)
def test_types_and_elements_are_eagers_on_all_samples(dtype):
    tally = run_samples(dtype, most=None)
    assert tally.wrong == []
    assert len(tally.overloads) > (100 if dtype.is_floating_point else 50)


# -- special values ----------------------------------------------------------------------------------------------------


def special_differences(name: str, dtype: torch.dtype) -> list[str]:
    func = overload_of(name)
    found = (checked(func, *call) for call in special_calls(func, dtype))
    return [wrong for wrong in found if wrong is not None]


WITH_VALUES = [name for name in rules() if name not in ("aten._to_copy.default", "aten.clone.default")]


@pytest.mark.parametrize("dtype", (torch.float32, torch.int32, torch.uint8, torch.bool), ids=NAMES.get)
def test_special_values_are_eagers(dtype):
    assert [wrong for name in WITH_VALUES for wrong in special_differences(name, dtype)] == []


@slow
@pytest.mark.parametrize(
    "dtype", (torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int16, torch.int8), ids=NAMES.get
)
def test_special_values_are_eagers_in_the_other_dtypes(dtype):
    assert [wrong for name in WITH_VALUES for wrong in special_differences(name, dtype)] == []


@pytest.mark.parametrize(
    "source", (torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool, torch.float16), ids=NAMES.get
)
def test_casts_round_as_eagers(source):
    func = torch.ops.aten._to_copy.default
    # Beyond the integer's range the result depends on the processor.
    values = torch.tensor([0, 1, 2, 3, 7, 100, 255, 0.1, 0.999, 2.5, 1.00390625, 1.005859375, 65519.0, 1 / 3])
    values = torch.cat([values, -values]) if source.is_signed else values
    for target in KNOWN:
        given = (
            values
            if target.is_floating_point or target is torch.bool
            else values.clamp(max(torch.iinfo(target).min, -(2**30)), min(torch.iinfo(target).max, 2**30))
            if not target.is_complex
            else None
        )
        if given is not None:
            assert checked(func, (given.double().to(source),), {"dtype": target}) is None


# -- dtypes and layouts ------------------------------------------------------------------------------------------------


def typed_differences(name: str, calls: Any) -> list[str]:
    func = overload_of(name)
    found = (checked(func, *call, is_typed_only=True) for call in calls)
    return [wrong for wrong in found if wrong is not None]


def test_dtypes_that_eager_refuses_have_no_shape():
    wrong = [
        w
        for name in sorted(records())
        for w in typed_differences(
            name,
            dtype_calls(
                overload_of(name),
                (torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
            ),
        )
    ]
    assert wrong == []


@slow
def test_refused_dtypes_have_no_shape_with_any_operand():
    assert [
        w for name in sorted(records()) for w in typed_differences(name, dtype_calls(overload_of(name), KNOWN))
    ] == []


def test_results_have_eagers_strides():
    assert [w for name in sorted(records()) for w in typed_differences(name, layout_calls(overload_of(name), 17))] == []


@slow
def test_results_have_eagers_strides_for_all_pairs_of_layouts():
    assert [w for name in sorted(records()) for w in typed_differences(name, layout_calls(overload_of(name)))] == []


@pytest.mark.parametrize("format", (None, torch.preserve_format, torch.contiguous_format, torch.channels_last))
@pytest.mark.parametrize("name", ("clone", "_to_copy"))
def test_copies_have_the_requested_memory_format(name, format):
    func = getattr(torch.ops.aten, name).default
    for args, _ in layout_calls(torch.ops.aten.neg.default):
        if format is not torch.channels_last or args[0].ndim == 4:
            assert checked(func, args, {"memory_format": format}) is None


# -- the commonest are there -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMONEST)
def test_the_commonest_have_a_rule_for_floats_or_integers(name):
    func = overload_of(f"aten.{name}")
    dtypes = (torch.float32, torch.int64)
    assert any(refusal(func, *call) is None for dtype in dtypes for call in dtype_calls(func, (dtype,)))


@pytest.mark.parametrize(
    "call",
    [
        (torch.ops.aten.floor_divide.default, torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.int64)),
        (torch.ops.aten.remainder.Scalar, torch.ones(2, dtype=torch.int64), 0),
        (torch.ops.aten.pow.Tensor_Tensor, torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.int64)),
    ],
    ids=lambda call: str(call[0]),
)
def test_operators_that_may_raise_at_run_time_have_a_type_and_no_rule(call):
    func, *args = call
    assert refusal(func, tuple(args), {}, is_typed_only=True) is None
    assert refusal(func, tuple(args), {}) is not None


# -- operators taken apart ---------------------------------------------------------------------------------------------


class EagerBuilder:
    """Runs a decomposition at once, on tensors."""

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> Any:
        packet, _, overload = name.partition(".")
        return getattr(getattr(torch.ops.aten, packet), overload or "default")(*args, **kwargs)

    def convert(self, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return x.to(dtype)

    def view(self, x: torch.Tensor, step: Slice) -> torch.Tensor:
        return x.narrow(step.dim, step.start, step.size)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=NAMES.get)
@pytest.mark.parametrize("name", sorted(name for name, op in records().items() if op.decompose is not None))
def test_decompositions_are_eagers(name, dtype):
    func = overload_of(name)
    generator = torch.Generator().manual_seed(0)

    def random(_: str) -> torch.Tensor:
        return torch.randn(4, 6, generator=generator).to(dtype)

    compared = 0
    for numbers in ({**choice, "reduction": reduction} for choice in number_choices(func) for reduction in (0, 1, 2)):
        args, kwargs = arguments(func, random, numbers)
        try:
            got = RECORDS[name].decompose(EagerBuilder(), *args, **kwargs)
        except NoRule:
            continue
        eager = func(*args, **kwargs)
        assert typed(got) == typed(eager)
        exact = func(*(arg.double() if isinstance(arg, torch.Tensor) else arg for arg in args), **kwargs)
        for a, b, c in zip(*map(tree_leaves, (got, eager, exact)), strict=True):
            assert difference_of_values(a.reshape(-1), b.reshape(-1), lambda: [c.reshape(-1)]) is None  # noqa: B023
            compared += 1
    assert compared


# -- numbers and casts -------------------------------------------------------------------------------------------------

VALUES = (
    0.1,
    -0.1,
    1 / 3,
    65519.9,
    65520.0,
    -7e4,
    3.3961775292304e38,
    3.4e38,
    1e39,
    -1e39,
    1e-45,
    1e-41,
    6e-8,
    2.0,
    -0.0,
    INF,
    -INF,
    1.00390625,
    1.01171875,
)


@pytest.mark.parametrize("name", ("f16", "bf16", "f32", "f64"))
def test_numbers_are_rounded_as_tensors_round_them(name):
    for value in VALUES:
        assert repr(rounded(value, name)) == repr(torch.tensor(value, dtype=DTYPES[name]).item()), value
    assert math.isnan(rounded(NAN, name))


def test_a_number_is_rounded_before_comparison_with_a_half_precision_tensor():
    tenth = torch.full((64,), 0.1, dtype=torch.bfloat16)
    assert bool((tenth == 0.1).all()) and 0.1 != tenth[0].item()
    assert checked(torch.ops.aten.eq.Scalar, (tenth, 0.1), {}) is None
    assert RECORDS["aten.eq.Scalar"].notes["site"]
    eq = RECORDS["aten.eq.Scalar"].rule.rule
    assert "0.10009765625" in str(eq(load("f32", Access(0, 0, (1,))), 0.1, site=Site("bf16", 64)))


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16), ids=NAMES.get)
@pytest.mark.parametrize(
    "name",
    (
        "add.Tensor",
        "sub.Tensor",
        "rsub.Tensor",
        "mul.Tensor",
        "div.Tensor",
        "maximum.default",
        "addcmul.default",
        "floor_divide.default",
        "lt.Tensor",
        "eq.Tensor",
        "add.Scalar",
        "rsub.Scalar",
        "mul.Scalar",
        "div.Scalar",
        "lt.Scalar",
        "eq.Scalar",
        "leaky_relu.default",
        "lerp.Scalar",
        "softshrink.default",
    ),
)
def test_numbers_among_halves_are_as_exact_as_eagers(name, dtype):
    """Bit by bit: some operators round a number, or a tensor without dimensions, to the half precision, some do not."""
    if name == "softshrink.default" and not rounds_bound():
        pytest.skip("this torch does not round the bound, and its own kernel is called")
    func = overload_of(f"aten.{name}")
    x = torch.randn(512, generator=torch.Generator().manual_seed(0)).to(dtype)
    tenth = torch.tensor(0.1)
    calls: list[tuple[tuple, dict]]
    if name == "addcmul.default":
        calls = [((x, x, x.flip(0)), {"value": 0.1})]
    elif name == "lerp.Scalar":
        calls = [((x, x.flip(0), 0.1), {})]
    elif name.endswith("Scalar") or len(tensor_names(func)) == 1:
        calls = [((x, 0.1), {})]
    else:
        calls = [((x, tenth), {}), ((tenth, x), {})]
        if "alpha" in str(func._schema):
            calls.append(((x, x.flip(0)), {"alpha": 0.1}))
    for args, kwargs in calls:
        eager = func(*args, **kwargs)
        expression, tensors = expression_of(RECORDS[f"aten.{name}"], args, kwargs, typed(eager))
        assert torch.equal(evaluated(expression, [tensor.expand(512).contiguous() for tensor in tensors]), eager)


def test_a_dtype_holds_the_numbers_that_eager_fills_into_it():
    for dtype in (torch.uint8, torch.int8, torch.int32, torch.float16, torch.bfloat16, torch.float32):
        for number in (-1, -255, -256, 255, 256, 127, 128, -129, -1.5, 0.5, 7e4, 1e39, INF, NAN, 65504.0):
            try:
                torch.zeros(2, dtype=dtype).fill_(number)  # of one element it lets more pass
                is_held = True
            except RuntimeError:
                is_held = False
            assert holds(NAMES[dtype], number) is is_held, (dtype, number)


def test_a_double_becomes_a_half_by_way_of_a_float():
    between = torch.tensor([1 + 2.0**-11 + 2.0**-40], dtype=torch.float64)  # rounds up directly, to even in f32
    once = converted(load("f64", Access(0, 0, (1,))), "f16")
    assert evaluated(once, [between]).item() == between.to(torch.float16).item() == 1.0


# -- the checks can fail -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [lambda x: x + 1e-5, lambda x: x * 1.000001, lambda x: x * 0, lambda x: -(-x + 0)],
    ids=["a bit more", "in the sixth digit", "nothing", "a zero of the other sign"],
)
def test_a_wrong_rule_is_detected(monkeypatch, wrong):
    op = RECORDS["aten.relu.default"]
    x = torch.tensor([0.0, 1.0, 2.5, -1.0] * 16)
    rule = op.rule.rule
    assert checked(overload_of(op.name), (x,), {}) is None
    monkeypatch.setattr(op, "rule", Pointwise(lambda x: wrong(rule(x)), op.rule.promotion))
    assert checked(overload_of(op.name), (x,), {}) is not None


def test_a_wrong_type_is_detected(monkeypatch):
    op = RECORDS["aten.relu.default"]
    monkeypatch.setattr(op, "shape", lambda x: typed(torch.ones(3, 2)))
    assert checked(overload_of(op.name), (torch.ones(2, 3).t(),), {}) is not None
