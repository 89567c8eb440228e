"""Shape rules and view maps against eager: every call that torch's samples make, and tensors laid out in many ways."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Iterable

import pytest
import torch
from bench.models import MODELS
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves, tree_map_only

from burnish.ops.operator_record import RECORDS, NoRule, View, record
from burnish.tensors.tensor_types import TensorType
from burnish.tensors.views.view_maps import Expand, Permute, Reshape, Slice

from .operator_samples import LAYOUTS, Call, laid_out, module_calls, operator_calls
from .record_aten_calls import Dispatched, Ledger

FLOATING = (torch.float32, torch.bfloat16)
DTYPES = (torch.float32, torch.int64, torch.bool, torch.bfloat16)

COMMON = frozenset(
    """
    addmm arange bmm cat chunk cumsum diagonal expand flip full gather index_add index_put index_select linspace max
    mean mm narrow new_zeros nn.functional.adaptive_avg_pool2d nn.functional.avg_pool2d nn.functional.batch_norm
    nn.functional.conv1d nn.functional.conv2d nn.functional.conv_transpose2d nn.functional.cross_entropy
    nn.functional.embedding nn.functional.group_norm nn.functional.layer_norm nn.functional.linear
    nn.functional.max_pool2d nn.functional.nll_loss nn.functional.pad nn.functional.rms_norm
    nn.functional.scaled_dot_product_attention permute prod repeat reshape rot90 scatter select slice softmax sort split
    squeeze stack sum t topk transpose tril unbind unfold unsqueeze var view zeros_like __getitem__
""".split()
)


def observed(ledger: Ledger, calls: Iterable[Call], gradients: bool = False) -> Ledger:
    """Run the calls; those that eager refuses are ignored."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings(), torch.set_grad_enabled(gradients):
            warnings.simplefilter("ignore")
            for ledger.where, call, args, kwargs in calls:
                if gradients:
                    args, kwargs = tree_map_only(torch.Tensor, leaf, (args, kwargs))
                with Dispatched(ledger):
                    try:
                        result = call(*args, **kwargs)
                        if gradients:
                            backward(result)
                    except Exception:
                        continue
    finally:
        torch.set_num_threads(threads)
    return ledger


def leaf(x: torch.Tensor) -> torch.Tensor:
    return x.detach().requires_grad_() if x.is_floating_point() else x


def backward(result: object) -> None:
    outputs = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor) and x.requires_grad]
    torch.autograd.backward(outputs, [torch.ones_like(x) for x in outputs])


def equal_to_eager(ledger: Ledger) -> None:
    lines = [
        f"{name}: {len(faults)} calls, as {faults[0]}"
        for name, faults in sorted(ledger.wrong.items())
        if name != "aten._local_scalar_dense.default"
    ]  # its result is a number, and has no tensor's type
    assert not lines, "\n".join(lines)


def drawn_calls(seed: int, count: int, *rules: str) -> Iterable[Call]:
    """Calls of the named operators with random shapes (sizes 0 and 1 among them) in random layouts."""
    drawn = random.Random(seed)

    def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return laid_out(torch.randn(shape).to(dtype), drawn.choice(LAYOUTS))

    def size() -> int:
        return drawn.choice((0, 1, 1, 2, 3, 4))

    for number in range(count):
        for name in rules:
            yield f"{name} {number}", *DRAWN[name](drawn, tensor, size), {}


def drawn_convolution(drawn, tensor, size):
    rank, groups, transposed = drawn.choice((1, 2, 3)), drawn.choice((1, 2, 4)), drawn.random() < 0.4
    dtype = drawn.choice((torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16))
    channels, window = drawn.choice((4, 8)), [drawn.choice((1, 2, 4))] * rank
    weight = (4, channels // groups, *window) if transposed else (channels, 4 // groups, *window)
    x = tensor(drawn.choice((1, 2, 17)), 4, *[drawn.choice((5, 6))] * rank, dtype=dtype)
    stride, padding, dilation = ([drawn.choice(of)] * rank for of in ((1, 2), (0, 1), (1, 2)))
    bias = tensor(channels, dtype=dtype) if drawn.random() < 0.5 else None
    return torch.convolution, (
        x,
        tensor(*weight, dtype=dtype),
        bias,
        stride,
        padding,
        dilation,
        transposed,
        [0] * rank,
        groups,
    )


def drawn_index(drawn, tensor, size):
    rank = drawn.choice((2, 3, 4))
    x = tensor(*(drawn.choice((1, 2, 3)) for _ in range(rank)))
    shapes = drawn.choice((((2,), (2,)), ((2, 1), (3,)), ((), (2, 3)), ((0,), (1,))))
    places = sorted(drawn.sample(range(rank), drawn.choice((1, 2))))
    indices = [None] * rank
    for place, shape in zip(places, shapes, strict=False):
        indices[place] = laid_out(torch.zeros(shape, dtype=torch.int64), drawn.choice(LAYOUTS))
    return torch.ops.aten.index.Tensor, (x, indices)


def drawn_attention(drawn, tensor, size):
    batch, heads, length, width = drawn.choice((1, 2)), drawn.choice((1, 3)), drawn.choice((1, 5)), 8

    def operand():
        x = tensor(batch, heads, length, width)
        return drawn.choice((x, tensor(batch, length, heads, width).transpose(1, 2)))

    return F.scaled_dot_product_attention, (operand(), operand(), operand())


def drawn_view(drawn, tensor, size):
    x = tensor(*(size() for _ in range(drawn.choice((1, 2, 3, 4)))))
    dim = drawn.randrange(-x.ndim, x.ndim)
    return drawn.choice(
        (
            (torch.unsqueeze, (x, dim)),
            (torch.squeeze, (x,)),
            (torch.squeeze, (x, dim)),
            (torch.flip, (x, [dim])),
            (torch.Tensor.view, (x, x.shape)),
            (torch.Tensor.view, (x, (-1,))),
            (torch.Tensor.view, (x, (*x.shape, 1))),
            (torch.select, (x, dim, 0)),
            (torch.Tensor.expand, (x, (2, *x.shape))),
            (torch.unbind, (x, dim)),
            (
                torch.ops.aten.slice.Tensor,
                (x, dim, drawn.choice((None, 0, 1, -2)), drawn.choice((None, 1, 3, -1)), drawn.choice((1, 1, 2))),
            ),
            (torch.split, (x, drawn.choice((1, 2)), dim)),
            (torch.transpose, (x, dim, 0)),
            (torch.Tensor.t, (x,)),
            (torch.Tensor.unfold, (x, dim, drawn.choice((1, 2, 3)), drawn.choice((1, 2, 3)))),
            (torch.diagonal, (x, drawn.choice((-1, 0, 2)), dim, 0)),
            (torch.Tensor.repeat, (x, *[2, 1, 1, 2][: x.ndim])),
            (torch.rot90, (x, drawn.randrange(4), [0, dim])),
            (torch.roll, (x, drawn.choice((-4, 0, 1)), dim)),
        )
    )


def drawn_rows(drawn, tensor, size):
    x = tensor(*(size() for _ in range(drawn.choice((1, 2, 3, 4, 5)))))
    dim, other = drawn.randrange(-x.ndim, x.ndim), tensor(*x.shape)
    return drawn.choice(
        (
            (torch.sum, (x, dim)),
            (torch.mean, (x, [dim], True)),
            (torch.amax, (x, dim)),
            (torch.max, (x, dim)),
            (torch.softmax, (x, dim)),
            (torch.cumsum, (x, dim)),
            (torch.sort, (x, dim)),
            (torch.topk, (x, 1, dim)),
            (torch.var, (x, dim)),
            (torch.argmax, (x, dim)),
            (torch.logsumexp, (x, dim)),
            (torch.cat, ([x, other], dim)),
            (torch.stack, ([x, other], dim)),
            (F.layer_norm, (x, x.shape[-1:])),
            (F.pad, (x, (1, 2))),
            (torch.empty_like, (x,)),
            (torch.tril, (x,)),
            (torch.gather, (x, dim, torch.zeros_like(x, dtype=torch.int64))),
            (torch.select_scatter, (x, x.select(dim, 0), dim, 0) if x.shape[dim] else (x, x, dim, 0)),
        )
    )


def drawn_image(drawn, tensor, size):
    x = tensor(drawn.choice((1, 2)), drawn.choice((1, 4)), *[drawn.choice((4, 5))] * 2)
    channels = x.shape[1]
    return drawn.choice(
        (
            (F.max_pool2d, (x, 2)),
            (F.avg_pool2d, (x, 3, 1, 1)),
            (F.adaptive_avg_pool2d, (x, 1)),
            (F.adaptive_avg_pool2d, (x, 2)),
            (F.batch_norm, (x, None, None, None, None, True)),
            (torch.native_batch_norm, (x, None, None, torch.zeros(channels), torch.ones(channels), False, 0.1, 1e-5)),
            (F.group_norm, (x, 1)),
            (F.interpolate, (x, None, 2)),
            (F.interpolate, (x, (7, 7), None, "bilinear")),
            (F.adaptive_max_pool2d, (x, 2)),
            (F.pixel_unshuffle, (x[..., :4, :4], 2)),
            (F.pad, (x, (1, 1), "reflect")),
        )
    )


def drawn_thin(drawn, tensor, size):
    """Images with many dimensions of one element, whose strides mean nothing and yet decide on formats."""
    rank, dtype = drawn.choice((1, 2, 3)), drawn.choice((torch.float32, torch.float64, torch.bfloat16))
    order = drawn.sample(range(rank + 2), rank + 2)
    shape = [drawn.choice((1, 1, 2)) for _ in order]
    x = torch.randn([shape[dim] for dim in order]).permute([order.index(dim) for dim in range(rank + 2)]).to(dtype)
    channels, one = x.shape[1], [1] * rank
    window = torch.randn(drawn.choice((1, 2)), channels, *one).to(dtype)
    return drawn.choice(
        (
            (
                torch.convolution,
                (x, window, None, [drawn.choice((1, 2))] * rank, [0] * rank, one, False, [0] * rank, 1),
            ),
            (F.batch_norm, (x, None, None, None, None, True)),
            (F.group_norm, (x, 1)),
            (
                torch.native_batch_norm,
                (x, None, None, torch.zeros(channels).to(dtype), torch.ones(channels).to(dtype), False, 0.1, 1e-5),
            ),
            ((F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[rank - 1], (x, 1)),
            ((F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1], (x, 1)),
        )
    )


DRAWN = {
    "convolution": drawn_convolution,
    "index": drawn_index,
    "attention": drawn_attention,
    "view": drawn_view,
    "rows": drawn_rows,
    "image": drawn_image,
    "thin": drawn_thin,
}


# -- quick -------------------------------------------------------------------------------------------------------------


def test_common_operators_have_eagers_types():
    ledger = observed(Ledger(), operator_calls((torch.float32, torch.int64), most=4, times=1, only=COMMON))
    equal_to_eager(ledger)
    assert len(ledger.agreed) > 75 and len(ledger.followed) > 200


def test_generated_calls_have_eagers_types():
    ledger = observed(Ledger(), drawn_calls(0, 150, *DRAWN))
    equal_to_eager(ledger)
    assert all(ledger.agreed[name] for name in ("aten.convolution.default", "aten.index.Tensor", "aten.unfold.default"))


def test_gradients_of_generated_calls_have_eagers_types():
    ledger = observed(Ledger(), drawn_calls(1, 60, "convolution", "attention", "rows", "image", "thin"), gradients=True)
    equal_to_eager(ledger)
    assert ledger.agreed["aten.convolution_backward.default"]
    assert ledger.agreed["aten.native_batch_norm_backward.default"]


def test_batch_norms_that_return_new_statistics_have_eagers_types():
    aten, found = torch.ops.aten, Ledger()

    def calls():
        for dtype, kept in ((torch.float32, torch.float32), (torch.bfloat16, torch.float32), (torch.bfloat16,) * 2):
            for layout in (torch.contiguous_format, torch.channels_last):
                x = torch.randn(2, 3, 4, 5).to(dtype).to(memory_format=layout)
                # Every second element of a longer tensor: the result is dense.
                mean, var = torch.zeros(6).to(kept)[::2], torch.ones(3).to(kept)
                for trains in (True, False):
                    given = x, var, None, mean, var, trains, 0.1, 1e-5
                    yield "legit", aten._native_batch_norm_legit_functional, given, {}
                yield "update", aten._batch_norm_with_update_functional, (x, var, None, mean, var, 0.1, 1e-5), {}

    equal_to_eager(observed(found, calls()))
    assert found.agreed["aten._native_batch_norm_legit_functional.default"] == 12
    assert found.agreed["aten._batch_norm_with_update_functional.default"] == 6


def test_distances_are_real():
    found = Ledger()
    one, other = torch.randn(3, dtype=torch.complex64), torch.randn(3)
    pairs = itertools.product((one, other), repeat=2)
    equal_to_eager(observed(found, (("dist", torch.ops.aten.dist, pair, {}) for pair in pairs)))
    assert found.agreed["aten.dist.default"] == 2


def test_more_than_150_overloads_have_shape_rules():
    assert sum(found.shape is not None for found in RECORDS.values()) >= 350


def test_every_record_names_an_operator_of_torchs():
    unknown = []
    for name in RECORDS:
        namespace, *rest = name.split(".")
        if namespace != "aten":
            continue  # our own, of ops.prims
        base, overload = rest
        packet = getattr(torch.ops.aten, base, None)
        if packet is None or overload not in packet.overloads():
            unknown.append(name)
    assert not unknown


@pytest.mark.parametrize(
    "name, args, chain",
    [
        ("aten.view.default", ([2, 3],), []),
        ("aten.view.default", ([-1],), [Reshape((6,))]),
        ("aten.t.default", (), [Permute((1, 0))]),
        ("aten.permute.default", ([0, -1],), []),
        ("aten.expand.default", ([-1, 3],), []),
        ("aten.expand.default", ([4, -1, -1],), [Expand((4, 2, 3))]),
        ("aten.slice.Tensor", (0, 0, 2**63 - 1), []),
        ("aten.slice.Tensor", (-1, -2, 2**63 - 1), [Slice(1, 1, 1, 2)]),
        ("aten.select.int", (0, -1), [Slice(0, 1, 1, 1), Reshape((3,))]),
        ("aten.detach.default", (), []),
        ("aten.flip.default", ([0],), [Slice(0, 1, -1, 2)]),
        ("aten.as_strided.default", ([2, 3], [3, 1]), []),
        ("aten.repeat.default", ([2, 1],), [Reshape((1, 2, 1, 3)), Expand((2, 2, 1, 3)), Reshape((4, 3))]),
    ],
)
def test_maps_are_the_shortest(name, args, chain):
    x = TensorType.contiguous((2, 3), torch.float32)
    assert list(record(name).rule.maps(x, *args)) == chain


@pytest.mark.parametrize(
    "name, args",
    [
        ("aten.nonzero.default", ((2, 3),)),
        ("aten.index.Tensor", ((2, 3), [(2, 3)])),
        ("aten.mm.default", ((2, 3), (4, 5))),
        ("aten.cat.default", ([(2, 3), (2, 4)],)),
        ("aten.view.default", ((2, 3), [4])),
        ("aten.select.int", ((2, 3), 0, 2)),
    ],
)
def test_rules_decline_unknown_result_types(name, args):
    def typed(arg):
        if isinstance(arg, tuple):
            return TensorType.contiguous(arg, torch.bool if "index" in name else torch.float32)
        return [typed(part) for part in arg] if isinstance(arg, list) else arg

    with pytest.raises(NoRule):
        record(name).shape(*map(typed, args))


def test_several_results_of_a_view_have_a_chain_each():
    x = TensorType.contiguous((5, 2), torch.float32)
    chains = record("aten.split.Tensor").notes["maps"](x, 2)
    assert chains == ([Slice(0, 0, 1, 2)], [Slice(0, 2, 1, 2)], [Slice(0, 4, 1, 1)])
    assert isinstance(record("aten.view.default").rule, View)


# -- all of it ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_all_samples_of_operators_have_eagers_types(dtype):
    equal_to_eager(observed(Ledger(), operator_calls((dtype,), times=1)))


@pytest.mark.slow
@pytest.mark.parametrize("gradients", [False, True])
def test_all_samples_of_modules_have_eagers_types(gradients):
    equal_to_eager(observed(Ledger(), module_calls(FLOATING, times=1), gradients))


@pytest.mark.slow
def test_gradients_of_all_samples_have_eagers_types():
    equal_to_eager(observed(Ledger(), operator_calls((torch.float32,), most=20, times=1), gradients=True))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_generated_calls_have_eagers_types(seed):
    ledger = observed(Ledger(), drawn_calls(seed, 2000, *DRAWN))
    equal_to_eager(ledger)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_all_operators_of_models_have_rules(name):
    """But for those that write to an argument or hand a number to Python."""
    module, args, kwargs = MODELS[name]()
    ledger = Ledger()
    with torch.no_grad(), Dispatched(ledger):
        module(*args, **kwargs)
    equal_to_eager(ledger)
    assert set(ledger.declined) <= {"aten._local_scalar_dense.default"}
    left = {call for call in ledger.missing if not call.split(".")[1].endswith("_")}
    assert left <= {"aten._local_scalar_dense.default"}


MIXED = {
    "aten.mul.Tensor": torch.mul,
    "aten.add.Tensor": torch.add,
    "aten.eq.Tensor": torch.eq,
    "aten.div.Tensor": torch.div,
    "aten.pow.Tensor_Tensor": torch.pow,
    "aten.maximum.default": torch.maximum,
    "aten.where.self": lambda a, b: torch.where(torch.ones(8, 3, dtype=torch.bool).t(), a, b),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("first", [torch.int64, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("second", [torch.int64, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("swapped", [False, True], ids=["", "swapped"])
def test_an_expanded_operand_of_another_dtype_is_dense_after_the_cast(name, first, second, swapped):
    given = [torch.ones(3, 1, dtype=first).expand(3, 8), torch.ones(8, 3, dtype=second).t()]
    if swapped:
        given.reverse()
    want = MIXED[name](*given)
    types = [TensorType.of(x) for x in given]
    if name == "aten.where.self":
        types.insert(0, TensorType.of(torch.ones(8, 3, dtype=torch.bool).t()))
    assert record(name).shape(*types) == TensorType.of(want)
