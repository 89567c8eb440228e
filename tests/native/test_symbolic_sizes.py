"""Symbolic sizes: one compilation for all of them, forward and backward, and eager's results for each."""

import re
import warnings
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import burnish
from burnish import events
from burnish.backends.shapes_at_other_sizes import Shapes
from burnish.codegen.llvm.functions.mkl_gemm import dtypes as dtypes_of_gemm
from burnish.compiler import compile_symbolic_sizes
from burnish.schedule.fusion import horizontal_fusion
from burnish.schedule.library.own_kernels.matmul_tiling_and_packing import shape_here

from .compare_sizes import called_with, same, watching

SIZES = (8, 9, 10, 77, 300, 2, 1, 0, 5, 3)
"""The first is compiled for by itself, the second for all; 1 and 0 by themselves again."""


def rows(*rest, sizes=SIZES, dtype=torch.float32):
    return [(torch.randn(n, *rest).to(dtype),) for n in sizes]


def columns(n_rows, sizes=SIZES):
    return [(torch.randn(n_rows, n),) for n in sizes if n]


def checked(is_right, message):
    if not is_right:
        raise ValueError(message)


# Programs of one tensor whose rows vary.
BY_ROWS = {
    "element by element": lambda x: torch.sin(x) + 1,
    "a view by its size": lambda x: (x * 2).view(x.shape[0], 2, 8).sum(1),
    "its size among the results": lambda x: (x + 1, x.shape, x.size(0) * 2, x.numel(), len(x), x.shape[:1]),
    "softmax over rows": lambda x: torch.softmax(x, 0),
    "layer norm": lambda x: F.layer_norm(x, (16,)),
    "joined with itself": lambda x: torch.cat([x, x * 2], 0),
    "neighbours": lambda x: x[1:] * x[:-1],
    "a range": lambda x: x + torch.arange(x.shape[0])[:, None],
    "zeros of its size": lambda x: torch.zeros(x.shape[0], 4) + x[:, :4],
    "ones like it": lambda x: torch.ones_like(x) + x,
    "its lower triangle": lambda x: torch.tril(x @ x.T),
    "its product": lambda x: x @ x.transpose(0, 1),
    "running sums down": lambda x: x.cumsum(0),
    "turned round": lambda x: x.flip(0),
    "written to": lambda x: (x + 1).add_(x).mul_(2),
    "repeated": lambda x: x.repeat(2, 3),
    "expanded": lambda x: x[:, None].expand(-1, 3, -1) + 1,
    "one row of all": lambda x: x.reshape(-1),
    "turned": lambda x: x.t().contiguous(),
    "a message that shows its shape": lambda x: checked(x.dim() == 2, f"{x.shape} of {len(x)}") or x * 2,
    "its shape as text": lambda x: (x + 1, str(x.shape), f"{x.shape!r} {x.shape}", "%s" % len(x)),
    "some of it": lambda x: x[:, torch.tensor([0, 3, 1])] * torch.tensor(2.5),
    "joined with a border": lambda x: torch.cat([x.sin(), torch.ones(3, 16), (x * 2).cos()]) @ torch.ones(16, 2),
    "any": lambda x: (x > 0).any(0),
    "a sum by letters": lambda x: torch.einsum("ij,kj->ik", x, x),
    "a choice": lambda x: torch.where(x > 0, x, -x),
    "stacked": lambda x: torch.stack([x, x, x]),
    "a layer": lambda x: F.linear(x, torch.ones(5, 16), torch.ones(5)),
    "sum of all": lambda x: x.sum(),
    "closed behind an open one": lambda x: (x.sum(0) + 1).view(x.sum(0).shape[0] // 2, -1) * x.sum(0).exp().shape[0],
    "open behind a closed one": lambda x: torch.cat([x.mean(0, keepdim=True).view(1, x.mean(0).numel()), x])[1:] * 2,
    "a closed one that is written to": lambda x: torch.zeros(x.mean(0).shape).add_(x.sum(0)).expand(x.shape[0], 16) + x,
    "divided by the root of its size": lambda x: x / x.shape[0] ** 0.5,
    "mean down": lambda x: x.sum(0) / x.shape[0],
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True) if len(x) else x,
}


@pytest.mark.falls_back("sizes")
def test_lazily_conjugated_inputs_of_many_sizes_are_compiled_for_each_and_say_so():
    calls = [(torch.randn(n, 8, dtype=torch.complex64).conj(),) for n in (3, 4, 5, 6)]
    seen = called_with(lambda x: x.clone().pow(2) * 1, calls)
    assert seen.why_apiece == [
        "compiled for each size by itself: an input is lazily conjugated, or not a plain strided tensor"
    ]


@pytest.mark.parametrize("name", BY_ROWS)
def test_one_compilation_serves_all_rows(name):
    seen = called_with(BY_ROWS[name], rows(16))
    assert seen.is_open and not seen.why_apiece and not seen.why_closed, seen.words
    assert seen.segments <= 4


BY_COLUMNS = {
    "softmax": lambda x: torch.softmax(x, -1),
    "log softmax": lambda x: torch.log_softmax(x, -1),
    "mean": lambda x: x.mean(-1),
    "variance": lambda x: x.var(-1),
    "best place": lambda x: x.argmax(1),
    "running sums": lambda x: x.cumsum(1),
    "with a border": lambda x: F.pad(x, (1, 2)),
    "normed": lambda x: F.layer_norm(x, x.shape[1:]),
    "normed by its root": lambda x: F.rms_norm(x, x.shape[1:]),
    "largest": lambda x: x.amax(1, keepdim=True) - x,
}


@pytest.mark.parametrize("name", BY_COLUMNS)
def test_one_compilation_serves_all_columns(name):
    seen = called_with(BY_COLUMNS[name], columns(33, sizes=(80, 81, 90, 700, 3, 2, 17, 64)))
    assert seen.is_open and not seen.why_apiece and not seen.why_closed, seen.words
    assert seen.segments == 2


IMAGES = {
    "batches": (lambda x: F.conv2d(x, torch.ones(4, 3, 3, 3)).relu(), [(n, 3, 8, 8) for n in (4, 5, 9, 2, 16)]),
    "heights and widths": (
        lambda x: F.conv2d(x, torch.ones(4, 3, 3, 3)),
        [(2, 3, n, n + 1) for n in (8, 9, 10, 77, 5, 4)],
    ),
    "pools": (lambda x: F.avg_pool2d(x, 2), [(n, 3, 8, 8) for n in (4, 5, 9, 2, 16)]),
    "enlarged": (lambda x: F.interpolate(x, scale_factor=2), [(2, 3, n, n) for n in (8, 9, 10, 77, 5, 4)]),
}


@pytest.mark.parametrize("name", IMAGES)
def test_images_of_many_sizes(name):
    fn, shapes = IMAGES[name]
    seen = called_with(fn, [(torch.randn(shape),) for shape in shapes])
    assert seen.is_open and not seen.why_apiece, seen.words
    assert seen.segments == 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64], ids=str)
def test_other_dtypes(dtype):
    seen = called_with(
        lambda x: (x * 3 + x.sum(0)).reshape(-1, 4), [((torch.randn(n, 12) * 9).to(dtype),) for n in (8, 9, 50, 3)]
    )
    assert seen.is_open and seen.segments == 2


@pytest.mark.parametrize("format", [torch.channels_last, torch.contiguous_format], ids=str)
def test_images_in_either_order(format):
    layer = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    seen = called_with(layer, [(torch.randn(n, 3, 9, 9).to(memory_format=format),) for n in (4, 5, 20, 2)])
    assert seen.is_open and not seen.why_apiece and seen.segments == 2


def test_an_order_that_changes_is_seen():
    seen = called_with(
        lambda x: x * 2 + 1,
        [(x,) for n in (4, 5, 6) for x in (torch.randn(n, 7), torch.randn(7, n).t(), torch.randn(n, 9)[:, :7])],
    )
    assert seen.is_open


def test_metadata_besides_sizes_is_guarded():
    """Each of these is another tensor than the one that is compiled for, and gets eager's result."""
    others = [
        torch.randn(6, 4).to_sparse().coalesce(),
        torch.randn(6, 4, dtype=torch.float64),
        torch.randn(6, 5),
        torch.randn(2, 6, 4),
        torch.randn(12, 4)[::2],
        torch.randn(6, 4, requires_grad=True),
        torch.randn(6, 4, dtype=torch.complex64).conj(),
        nn.Parameter(torch.randn(6, 4)),
    ]
    for other in others:
        burnish.reset()
        compiled = burnish.compile(lambda x: x * 2)
        for n in (3, 4):
            compiled(torch.randn(n, 4))
        for x in (other, torch.randn(7, 4)):
            found, wanted = compiled(x), x * 2
            assert found.requires_grad == wanted.requires_grad and found.dtype == wanted.dtype
            torch.testing.assert_close(found, wanted)


def test_two_sizes_that_vary_by_themselves():
    pairs = [(3, 4), (5, 4), (5, 9), (7, 20), (2, 2), (33, 3)]
    seen = called_with(
        lambda x, y: torch.softmax(x @ y, -1), [(torch.randn(a, 16), torch.randn(16, b)) for a, b in pairs]
    )
    assert seen.is_open and seen.segments == 3


def test_two_sizes_that_differ_by_one():
    def fn(x, y):
        return torch.cat([x, x[:1]]) + y

    seen = called_with(fn, [(torch.randn(n, 4), torch.randn(n + 1, 4)) for n in (5, 6, 30, 2)])
    assert seen.is_open and seen.segments == 2


@pytest.mark.parametrize("last", [25, 12], ids=["no multiple", "another multiple"])
def test_a_size_that_is_a_multiple_of_another(last):
    """Texts of 4 columns, and the words that follow in one row; spectra, and sounds of 4 samples for each frame."""

    def fn(x, y):
        return (x.reshape(-1) * y).sum() + y.shape[0]

    pairs = [(torch.randn(n, 4), torch.randn(4 * n)) for n in (5, 6, 30, 2, 11)]
    seen = called_with(fn, pairs)
    assert seen.is_open and seen.segments == 2 and not seen.why_closed

    def otherwise(x, y):
        try:
            return fn(x, y)
        except RuntimeError:
            return x.sum() + y.sum()

    called_with(otherwise, [*pairs, (torch.randn(6, 4), torch.randn(last)), (torch.randn(7, 4), torch.randn(28))])


def test_a_size_that_was_a_multiple_of_another_by_chance():
    def fn(x, y):
        return x.sum(0) * 2 + (y.sum() if y.shape[0] > 100 else y.mean())

    called_with(fn, [(torch.randn(a, 3), torch.randn(b)) for a, b in ((2, 8), (3, 12), (4, 15), (5, 200), (9, 18))])


def test_a_multiple_beside_the_end_of_a_table():
    """The longer size may not pass the end: the shorter one stays below a quarter of it."""
    table = torch.randn(200)

    def fn(x, y):
        return x.repeat_interleave(4) + y * table[: y.shape[0]]

    seen = called_with(fn, [(torch.randn(n), torch.randn(4 * n)) for n in (40, 45, 50, 43, 2)])
    assert seen.is_open and seen.segments == 2


def test_sizes_thought_to_be_equal_that_are_not():
    def fn(x, y):
        return x.sum() * y

    calls = [(4, 4), (5, 5), (6, 6), (6, 7), (9, 3), (3, 9)]
    seen = called_with(fn, [(torch.randn(a), torch.randn(b)) for a, b in calls])
    assert seen.is_open and seen.segments <= 3


def test_sizes_on_both_sides_of_a_threshold_share_one_compilation():
    """From sixteen rows on the table is small beside the sum, which is then computed again by each of its readers."""
    words, table, weight = torch.randn(64, 32), torch.randn(1, 16, 32), torch.randn(32, 32)

    def fn(ids):
        x = F.embedding(ids, words) + table
        return x + F.linear(F.layer_norm(x, (32,)), weight)

    seen = called_with(fn, [(torch.randint(0, 64, (n, 16)),) for n in (8, 9, 10, 5, 40)])
    assert seen.is_open and not seen.why_apiece, seen.words
    assert seen.segments == 2


def test_a_remainder_of_a_size_beside_other_sizes():
    seen = called_with(
        lambda x: (
            torch.arange(x.shape[0] * 8 * 16).view(x.shape[0], -1, 16)[:, ::3].sum()
            + F.pad(x, (0, 0, 0, -x.shape[0] % 8)).sum()
        ),
        rows(16, sizes=(8, 9, 10, 20)),
    )
    assert seen.is_open and not seen.why_apiece and seen.segments == 2


def test_a_remainder_of_a_size_is_a_symbol():
    """Remainders of 0 and 1 have programs of their own, as such sizes do."""
    seen = called_with(
        lambda x: F.pad(x, (0, 0, 0, -x.shape[0] % 8)), rows(16, sizes=(8, 9, 10, 20, 31, 16, 24, 15, 22, 40, 39))
    )
    assert seen.is_open and not seen.why_apiece and seen.segments == 4


@pytest.mark.parametrize(
    ("name", "fn"),
    {
        "a loop": lambda x: sum(x[k].sum() for k in range(x.shape[0])),
        "parts of four": lambda x: [part + 1 for part in x.split(4)],
        "rows": lambda x: torch.stack(x.unbind(0)[::-1]),
        "rows in a loop": lambda x: [row * 2 for row in x],
        "two parts": lambda x: x.chunk(2)[0] + 1,
        "text": lambda x: (x, "%s" % (x.shape,), "{:>30}".format(str(x.shape)), [*map(str, x.shape)]),
        "a weight of this size": lambda x: x.t() @ torch.ones(9, 2) if len(x) == 9 else x,
    }.items(),
)
def test_a_size_that_decides_the_computation_is_specialized(name, fn):
    called_with(fn, rows(16, sizes=(8, 9, 4, 6, 9)))


def test_both_sides_of_a_question_are_compiled_for():
    seen = called_with(lambda x: x + 1 if x.shape[0] > 50 else x - 1, rows(16, sizes=(8, 9, 70, 60, 3, 51, 50)))
    assert seen.segments == 3


@pytest.mark.falls_back("sizes")
def test_a_slice_that_goes_beyond_the_end():
    seen = called_with(lambda x: (x[:50] + 1, x[-3:]), rows(16, sizes=(8, 9, 70, 60, 3, 51, 50, 2)))
    assert seen.is_open and seen.segments <= 5


def test_a_table_that_has_an_end():
    table = torch.randn(40, 4)

    def fn(x):
        return x + table[: x.shape[0]]

    seen = called_with(fn, rows(4, sizes=(8, 9, 40, 39, 2)))
    assert seen.is_open and seen.segments == 2
    with pytest.raises(RuntimeError, match="must match"):
        burnish.compile(fn)(torch.randn(41, 4))


def test_a_size_that_eager_refuses_is_refused():
    weight = torch.randn(6, 3)

    def fn(x):
        return x @ weight

    compiled = burnish.compile(fn)
    for n in (6, 5, 6, 7, 6):
        x = torch.randn(4, n)
        if n == 6:
            torch.testing.assert_close(compiled(x), fn(x))
        else:
            with pytest.raises(RuntimeError, match="cannot be multiplied"):
                compiled(x)


def test_all_sizes_from_the_start():
    seen = called_with(
        lambda x, y: (x + 1) @ y,
        [(torch.randn(a, b), torch.randn(b, c)) for a, b, c in ((3, 4, 5), (6, 7, 8), (20, 30, 10))],
        dynamic=True,
    )
    assert seen.is_open and seen.segments == 1


def test_never():
    seen = called_with(lambda x: x + 1, rows(4, sizes=(3, 4, 5)), dynamic=False)
    assert not seen.words and seen.segments == 3


def test_a_marked_size():
    x = torch.randn(8, 4)
    burnish.mark_dynamic(x, 0, max=20)
    seen = called_with(lambda x: x.sum(0), [(x,), (torch.randn(9, 4),), (torch.randn(20, 4),), (torch.randn(21, 4),)])
    assert seen.segments == 2  # 21 is beyond the declared bound
    closed = torch.randn(9, 4)
    burnish.mark_static(closed)
    assert called_with(lambda x: x * 2, [(torch.randn(8, 4),), (closed,), (torch.randn(7, 4),)]).segments == 3


def test_marks_that_make_no_sense():
    x = torch.randn(8, 4)
    with pytest.raises(burnish.UserError, match="no dimension 2"):
        burnish.mark_dynamic(x, 2)
    with pytest.raises(burnish.UserError, match="at most 7, and it is 8"):
        burnish.mark_dynamic(x, 0, max=7)
    with pytest.raises(burnish.UserError, match="takes a tensor"):
        burnish.mark_static([1, 2])


def test_sizes_of_parameters_are_always_static():
    def fn(layer, x):
        return layer(x)

    layers = [nn.Linear(4, n) for n in (3, 5, 6)]
    burnish.reset()
    with watching() as seen, torch.no_grad():
        compiled = burnish.compile(fn)
        for layer in layers:
            x = torch.randn(2, 4)
            torch.testing.assert_close(compiled(layer, x), layer(x))
    assert not seen.words


class Placed(nn.Module):
    """The summand is a part of the module's state, at a position that depends on a size."""

    def __init__(self, pick):
        super().__init__()
        self.pick = pick
        self.register_buffer("places", torch.arange(400)[None])
        self.register_buffer("table", torch.randn(400, 16))

    def forward(self, x):
        return x.sum(0) + self.pick(self, x.shape[0])


PICKS = {
    "one row": lambda own, n: own.table[n : n + 1].sin(),
    "rows by places": lambda own, n: F.embedding(own.places[:, n : n + 1], own.table)[0],
    "every third number": lambda own, n: own.table.flatten()[n : n + 48 : 3].sin(),
    "a diagonal": lambda own, n: own.table.diagonal(-n)[:1].exp(),
    "a product": lambda own, n: (own.table[n : n + 3] @ own.table[n : n + 3].T) @ torch.ones(3, 16),
}


@pytest.mark.parametrize("name", PICKS)
def test_state_that_is_looked_up_at_a_size_is_not_prepared_once(name):
    model = Placed(PICKS[name]).eval()
    seen = called_with(model, rows(16, sizes=(8, 9, 10, 77, 300, 9)))
    assert seen.is_open, seen.words


class Growing(nn.Module):
    """Attention to all that has been seen."""

    def __init__(self, width=32):
        super().__init__()
        self.width = width
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, keys, values):
        qkv = self.qkv(x).split(self.width, -1)
        q, k, v = (part.view(1, -1, 4, self.width // 4).transpose(1, 2) for part in qkv)
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        y = F.scaled_dot_product_attention(q, keys, values)
        return self.out(y.transpose(1, 2).reshape(1, -1, self.width)), keys, values


def test_a_growing_cache():
    model = Growing().eval()
    burnish.reset()
    with watching() as seen, torch.no_grad():
        compiled = burnish.compile(model)
        mine = theirs = (torch.randn(1, 4, 5, 8), torch.randn(1, 4, 5, 8))
        for _ in range(40):
            x = torch.randn(1, 1, 32)
            y, *mine = compiled(x, *mine)
            wanted, *theirs = model(x, *theirs)
            torch.testing.assert_close(y, wanted, rtol=1e-4, atol=1e-5)
    assert seen.segments == 2 and seen.is_open
    holds = [words for words in seen.words if words.startswith("holds")]
    assert len(holds) == 2, "how far it reaches was known from the start"
    assert holds[1] == "holds for s0 = 8", "as many entries as a head has numbers"


class Window:
    """The last entries of a cache, which counts how many it has seen."""

    def __init__(self):
        self.kept, self.seen = torch.empty(2, 0, 4), 0


def attend_to_windows(window, whole, x, length):
    """Two layers: the mask of the first is made of a counter, that of the second of the size of its cache."""
    total = (window.seen if window.seen < length else length - 1) + x.shape[1]
    window.seen += x.shape[1]
    out = 0
    for layer, size, most in ((window, total, length - 1), (whole, whole.kept.shape[1] + x.shape[1], 1000)):
        entries = torch.cat([layer.kept, x], 1)
        layer.kept = entries[:, -most:] if layer is window else entries
        scores = x @ entries.transpose(1, 2) + torch.arange(size)[None, None] * 0.5
        out = out + scores.softmax(-1) @ entries
    return out


@pytest.mark.parametrize("length, segments", [(40, 4), (10, 5), (5, 3)])
def test_a_counter_that_has_to_be_equal_to_the_size_of_a_cache(length, segments):
    burnish.reset()
    ours, theirs = (Window(), Window()), (Window(), Window())
    compiled = burnish.compile(attend_to_windows)
    with watching() as seen:
        for n in (7, *[1] * 14):
            x = torch.randn(2, n, 4)
            same(compiled(*ours, x, length), attend_to_windows(*theirs, x, length))
            assert [layer.seen for layer in ours] == [layer.seen for layer in theirs]
    assert seen.segments == segments
    ours[0].seen += 3  # no longer the size of its cache
    with pytest.raises(RuntimeError, match="size of tensor"):
        compiled(*ours, torch.randn(2, 1, 4), length + 40)


def test_sizes_added_to_numbers_of_constant_value_stay_symbolic():
    burnish.reset()
    begun = {}

    def positions(x):
        total = begun["at"] + x.shape[1]
        begun["at"] = total
        return x.expand(3, -1) * torch.arange(total)[-x.shape[1] :]

    compiled = burnish.compile(positions)
    with watching() as seen:
        for length in (7, 9, 5, 12, 6, 20):
            for at in (0, 1):
                begun["at"] = at
                x = torch.randn(1, length)
                found = compiled(x)
                assert begun["at"] == at + length
                begun["at"] = at
                same(found, positions(x))
    assert seen.segments == 4 and not seen.why_apiece


@pytest.mark.skipif(not dtypes_of_gemm(), reason="products are called from Python")
def test_of_a_growing_cache_python_calls_attention_at_most():
    """With AVX2, attention has a kernel of ours too, and every token is one native call."""
    model = Growing().eval()
    burnish.reset()
    with watching() as seen, torch.no_grad(), burnish.settings.patch(never_slower=False):
        compiled = burnish.compile(model)
        cache = torch.randn(1, 4, 5, 8), torch.randn(1, 4, 5, 8)
        for _ in range(3):
            _, *cache = compiled(torch.randn(1, 1, 32), *cache)
    (program,) = seen.programs
    source = program.source.partition("# every call")[2]
    calls, launches = (len(re.findall(rf"{kind}_\w+\(", source)) for kind in ("call", "launch"))
    assert calls <= 1 and launches == calls + 1, source


@pytest.mark.skipif(shape_here() is None, reason="this machine has no kernels for products")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_of_a_growing_cache_python_calls_nothing_where_one_query_has_a_kernel(dtype):
    """Every token is one native call. Its error stays eager's."""
    model = Growing(128).to(dtype).eval()
    exact = Growing(128).double()
    exact.load_state_dict(model.state_dict())
    burnish.reset()
    with watching() as seen, torch.no_grad(), burnish.settings.patch(never_slower=False):
        compiled = burnish.compile(model)
        mine = theirs = torch.randn(1, 4, 5, 32).to(dtype), torch.randn(1, 4, 5, 32).to(dtype)
        best = [part.double() for part in mine]
        for _ in range(150):  # a block of keys, and the beginning of another one
            x = torch.randn(1, 1, 128).to(dtype)
            y, *mine = compiled(x, *mine)
            wanted, *theirs = model(x, *theirs)
            right, *best = exact(x.double(), *best)
            rounding = (right.to(dtype) - right).norm()
            assert (y - right).norm() <= 1.5 * max((wanted - right).norm(), rounding)
    (program,) = seen.programs
    source = program.source.partition("# every call")[2]
    assert not re.findall(r"call_\w+\(", source) and len(re.findall(r"launch_\w+\(", source)) == 1, source


def test_a_cache_of_many_tensors_has_its_contest():
    def fn(x, *cache):
        cache = [torch.cat([part, x + k]) for k, part in enumerate(cache)]
        return sum(part.sum(0) for part in cache), *cache

    decisions = []
    stop = events.subscribe(lambda event: decisions.append(event.data) if event.kind == "runtime.contest" else None)
    try:
        with torch.no_grad(), burnish.settings.patch(never_slower=True):
            compiled = burnish.compile(fn)
            cache = [torch.randn(30, 8) for _ in range(24)]
            for _ in range(30):
                x = torch.randn(1, 8)
                wanted = fn(x, *cache)
                found = compiled(x, *cache)
                torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
                cache = list(wanted[1:])
    finally:
        stop()
    assert decisions and decisions[0]["compiled"] is not None and decisions[0]["eager"] is not None


def test_equal_layers_that_transpose_in_place():
    def fn(x):
        for _ in range(3):
            y = x * 2
            y.t_()
            x = y.exp().transpose(0, 1) - y.shape[1]
        return x

    called_with(fn, rows(5))


def test_how_far_a_program_reaches_is_found_out_at_once():
    seen = called_with(lambda x: x.exp().sum(0), [(torch.randn(n, 4),) for n in (8, 9, 10, 11, 100, 150, 9, 5000)])
    said = [words for words in seen.words if words.startswith("holds")]
    assert len(said) == 2 and said[1].endswith("10000"), said


MODELS = {
    "perceptron": (lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8)), (16,)),
    "batch norm": (lambda: nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU()), (16,)),
    "convolution": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
        ),
        (3, 12, 12),
    ),
    "encoder": (lambda: nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), (7, 32)),
}


@pytest.mark.parametrize("name", MODELS)
def test_training_with_batches_of_many_sizes(name):
    make, rest = MODELS[name]
    model = make()
    twin = make()
    twin.load_state_dict(model.state_dict())
    burnish.reset()
    with watching() as seen, burnish.settings.patch(never_slower=False):
        compiled = burnish.compile(twin)
        for n in (8, 9, 10, 33, 2, 5, 70):
            x = torch.randn(n, *rest)
            mine, theirs = (x.clone().requires_grad_() for _ in range(2))
            for run, given in ((compiled, mine), (model, theirs)):
                run(given).square().mean().backward()
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-5)
            for (key, p), q in zip(model.named_parameters(), twin.parameters(), strict=True):
                torch.testing.assert_close(q.grad, p.grad, rtol=1e-3, atol=1e-4, msg=key)
            for p, q in zip(model.buffers(), twin.buffers(), strict=True):
                torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-5)
            model.zero_grad()
            twin.zero_grad()
    assert seen.is_open and not seen.why_apiece and seen.segments == 2, seen.words


def test_lengths_of_sentences_in_training():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(50, 16), nn.Embedding(100, 16)
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
            self.out = nn.Linear(16, 50)

        def forward(self, ids):
            return self.out(self.layer(self.words(ids) + self.places(torch.arange(ids.shape[1]))))

    model, twin = Reader(), Reader()
    twin.load_state_dict(model.state_dict())
    burnish.reset()
    with watching() as seen, burnish.settings.patch(never_slower=False):
        compiled = burnish.compile(twin)
        for n in (7, 8, 30, 11, 2):
            ids = torch.randint(0, 50, (3, n))
            for run in (compiled, model):
                F.cross_entropy(run(ids).flatten(0, 1), ids.flatten()).backward()
            for p, q in zip(model.parameters(), twin.parameters(), strict=True):
                torch.testing.assert_close(q.grad, p.grad, rtol=1e-3, atol=1e-5)
            model.zero_grad()
            twin.zero_grad()
    assert seen.is_open and not seen.why_apiece and seen.segments == 2, seen.words


def test_an_input_that_is_written_to():
    def fn(x, total):
        total.add_(x.sum(0))
        return x * total

    burnish.reset()
    compiled, mine, theirs = burnish.compile(fn), torch.zeros(4), torch.zeros(4)
    with torch.no_grad():
        for n in (5, 6, 20, 2, 1):
            x = torch.randn(n, 4)
            torch.testing.assert_close(compiled(x, mine), fn(x, theirs))
            torch.testing.assert_close(mine, theirs)
        # The old contents of the written tensor are visible, whatever its size.
        memory = torch.ones(10, 4)
        wanted = memory.clone()
        for n in (5, 9):
            torch.testing.assert_close(compiled(memory[:n], memory[1]), fn(wanted[:n], wanted[1]))


def test_a_changed_weight_is_seen_for_every_size():
    layer = nn.Linear(16, 8).eval()
    compiled = burnish.compile(layer)
    with torch.no_grad():
        for n in (4, 5, 6, 4):
            x = torch.randn(n, 16)
            torch.testing.assert_close(compiled(x), layer(x))
            layer.weight.mul_(1.5)
            torch.testing.assert_close(compiled(x), layer(x))


def test_threads_with_sizes_of_their_own():
    from concurrent.futures import ThreadPoolExecutor

    def fn(x):
        return torch.softmax(x * 2, -1).cumsum(0)

    compiled = burnish.compile(fn)
    with torch.no_grad():
        for n in (4, 5):
            compiled(torch.randn(n, 16))

    def work(n):
        with torch.no_grad():
            for k in range(20):
                x = torch.randn(n + k, 16)
                torch.testing.assert_close(compiled(x), fn(x), rtol=1e-4, atol=1e-5)
        return True

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, (6, 30, 50, 7, 100, 9)))


@pytest.mark.falls_back("sizes")
def test_sizes_of_one_in_the_middle():
    """The rest of a slice may be one row, or none, for some sizes."""
    calls = [(torch.randn(n, 4),) for n in (20, 21, 40, 11, 10, 12, 13, 100)]
    called_with(lambda x: x[10:].squeeze() * 2, calls)
    called_with(lambda x: (x[10:].squeeze().dim(), x[10:].squeeze(0) + 1), calls)
    called_with(lambda x: x[10:].sum(0) + x[10:].amax(1).numel(), calls)


def test_code_of_the_user_is_not_run_for_other_sizes():
    seen = []

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            seen.append(tuple(x.shape))
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    compiled = burnish.compile(lambda x: Twice.apply(x.sin()) + 1)
    for n in (4, 5, 6):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x), x.sin() * 2 + 1)
    assert {shape[0] for shape in seen} == {4, 5, 6}


def test_examples_do_not_hold_the_tensors_they_were_made_after():
    import gc
    import weakref

    compiled = burnish.compile(lambda x: x.sin() + 1)
    with torch.no_grad():
        for n in (4, 5, 6, 7):
            x = torch.randn(n, 3)
            compiled(x)
            seen = weakref.ref(x)
            del x
            gc.collect()
            assert seen() is None


def test_a_size_that_comes_once_is_not_compiled_for():
    compiled = burnish.compile(lambda x: x.sin() + 1)
    with watching() as seen, torch.no_grad():
        for n in (8, 8, 5):
            compiled(torch.randn(n, 3))
        assert not seen.is_open
        compiled(torch.randn(6, 3))
        assert seen.is_open


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_inputs_in_the_middle_of_something_larger(mode):
    layer = nn.Linear(4, 3)
    compiled = burnish.compile(lambda x: layer(x[:, :4]).relu())
    with mode():
        for n in (4, 5, 6, 7):
            x = torch.randn(2 * n, 6)[n:]
            torch.testing.assert_close(compiled(x), layer(x[:, :4]).relu())


def test_an_export_has_fixed_sizes():
    x = torch.randn(4, 3)
    burnish.mark_dynamic(x, 0)
    exported = burnish.export(lambda x: x.view(x.shape[0], 3) + 1, (x,))
    torch.testing.assert_close(exported(x), x + 1)


def test_shapes_independent_of_sizes_are_computed_once(monkeypatch):
    asked = []
    call = Shapes.call
    monkeypatch.setattr(
        Shapes, "call", lambda self, target, args, kwargs: asked.append(target) or call(self, target, args, kwargs)
    )

    def shapes(layers):
        def fn(x, w):
            y = x.sum(0)  # of 16 elements, whatever the size
            total = 0
            for _ in range(layers):
                w, y = torch.relu(w), torch.abs(y)
                total += w.shape[0] + y.shape[0]
            return y * w * total + x

        asked.clear()
        compiled = burnish.compile(fn)
        for n in (4, 5, 6):
            x, w = torch.randint(9, (n, 16)).float(), torch.arange(16.0)
            torch.testing.assert_close(compiled(x, w), fn(x, w))
        return len(asked)

    few, more = shapes(2), shapes(12)
    assert more - few == 40, "two for each layer, in the trace and for the box"


def test_gradients_of_a_norm_between_wide_layers():
    """The sums down the rows are in lanes, several vectors side by side, and how many rows there are is symbolic."""
    norm, first, second = nn.LayerNorm(256), nn.Linear(256, 256), nn.Linear(256, 256)
    parameters = [p for module in (norm, first, second) for p in module.parameters()]

    def block(x):
        return x + second(F.gelu(first(norm(x))))

    compiled = burnish.compile(block)
    for n in (64, 32, 48, 40, 100):
        x = torch.randn(n, 256)
        expected = torch.autograd.grad(block(x).square().mean(), parameters)
        found = torch.autograd.grad(compiled(x).square().mean(), parameters)
        torch.testing.assert_close(found, expected)
    assert burnish.was_compiled(compiled)


def test_variance_of_fewer_rows_than_its_correction(tmp_path):
    def spread(x):
        return x.var(0, correction=8) * 2, x.std((0, 1), correction=25)

    x, path = torch.randn(24, 3), tmp_path / "saved.burnish"
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about no degrees of freedom
        burnish.save(spread, path, (x,), dynamic_shapes=({0: torch.export.Dim("n")},))
        for compiled in (burnish.compile(spread, dynamic=True), burnish.load(path, trust=True)):
            for n in (24, 27, 9, 8, 7, 3, 31):
                x = torch.randn(n, 3)
                torch.testing.assert_close(compiled(x), spread(x), equal_nan=True)


def test_backward_is_planned_before_a_kernel_of_forward_is_compiled(monkeypatch):
    """Where backward has other steps for other sizes, nothing has been compiled in vain."""
    done = []

    def noting(name):
        made = getattr(compile_symbolic_sizes, name)
        monkeypatch.setattr(
            compile_symbolic_sizes, name, lambda *args, **kwargs: done.append(name) or made(*args, **kwargs)
        )

    noting("compiled_at")
    noting("make_plan")
    noting("symbolic_kernels")
    weight = torch.randn(16, requires_grad=True)
    compiled = burnish.compile(lambda x: (torch.sin(x * weight) * 3).sum())
    with watching() as seen, burnish.settings.patch(cache=False):
        for n in (8, 9, 10):
            compiled(torch.randn(n, 16)).backward()
    attempts = " ".join(done).split("compiled_at")
    assert seen.is_open and attempts[-1].split() == ["make_plan"] * 6 + ["symbolic_kernels"] * 2
    assert not any("make_plan" in attempt.partition("symbolic_kernels")[2] for attempt in attempts)


@pytest.mark.parametrize("limit", [150, 225, 300, 2000])
def test_kernels_share_a_launch_at_all_sizes_or_at_none(monkeypatch, limit):
    """Whether two kernels are little work is decided at the first size: a limit between the sizes changes no steps."""
    failed = []
    plans_of = compile_symbolic_sizes.plans_of

    def noting(*args):
        try:
            return plans_of(*args)
        except compile_symbolic_sizes.StructureDiffers as why:
            failed.append(str(why))
            raise

    def fn(x):
        return torch.sin(x), torch.cos(x[:, :8]) * 2

    monkeypatch.setattr(compile_symbolic_sizes, "plans_of", noting)
    monkeypatch.setattr(horizontal_fusion, "target_of", lambda device: SimpleNamespace(most_together=limit))
    compiled = burnish.compile(fn)
    with watching() as seen, burnish.settings.patch(cache=False):
        for n in (8, 9, 10, 33):
            x = torch.randn(n, 16)
            same(compiled(x), fn(x))
    assert seen.is_open and not failed


def test_rows_that_are_written_one_after_another():
    def substituted(x):
        x = x * 2
        for i in range(1, 8):
            row, above = x[..., i, :i].clone(), x[..., :i, :i].clone()
            x[..., i, :i] = row + (row.unsqueeze(-1) * above).sum(-2)
        return x + torch.eye(8)

    seen = called_with(substituted, [(torch.randn(n, 4, 8, 8) / 4,) for n in (3, 4, 5, 9, 2)])
    assert seen.is_open and not seen.why_apiece and seen.segments == 2, seen.words
