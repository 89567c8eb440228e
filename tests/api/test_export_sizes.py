"""Exported graphs with symbolic sizes: `dynamic_shapes`, in the form of torch.export."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim
from torch.utils import _pytree as pytree

import burnish
from burnish import UserError

from ..recorded_events import recorded

B = Dim("b")


def rows(*counts, columns=3):
    return tuple(torch.randn(n, columns) for n in counts)


def assert_same(found, expected):
    found, expected = pytree.tree_leaves(found), pytree.tree_leaves(expected)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert type(one) is type(other)
        if isinstance(one, torch.Tensor):
            assert torch.equal(one, other) and one.dtype == other.dtype and one.stride() == other.stride()
        else:
            assert one == other


def checked(fn, args, dynamic_shapes, calls, path):
    """Exports, and compares the graph and its file with eager for each of the calls."""
    exported = burnish.export(fn, args, dynamic_shapes=dynamic_shapes)
    exported.save(path)
    loaded = burnish.load(path, trust=False)
    assert (loaded.ranges, loaded.conditions) == (exported.ranges, exported.conditions)
    assert loaded.inputs == exported.inputs
    for call in calls:
        assert_same(exported(*call), fn(*call))
        assert_same(loaded(*call), fn(*call))
    return exported


@pytest.fixture
def path(tmp_path):
    return tmp_path / "saved.burnish"


# ---- what one graph serves


def test_size_as_argument_of_a_view_and_as_result(path):
    def halves(x):
        return x.view(x.shape[0] * 2, 2).relu(), x.shape[0] + 1, x.shape

    calls = [(torch.randn(n, 4),) for n in (0, 1, 2, 4, 7, 64)]
    checked(halves, (torch.randn(5, 4),), {"x": {0: B}}, calls, path)


def test_two_sizes_that_are_equal_by_chance_stay_apart(path):
    def sums(x, y):
        return x.sum(0) + y.sum(0), x.shape[0] - y.shape[0], x.new_zeros(x.shape[0], y.shape[0])

    calls = [rows(n, m) for n, m in ((4, 4), (5, 4), (4, 5), (1, 7), (0, 2), (2, 1), (0, 0))]
    exported = checked(sums, rows(4, 4), {"x": {0: Dim("n")}, "y": {0: Dim("m")}}, calls, path)
    assert [symbol.name for symbol in exported.ranges] == ["n", "m"]


def test_one_dim_in_two_inputs_and_a_multiple_of_it(path):
    def pairs(x, y, z):
        return x + y, z.view(x.shape[0], 2, 3) * y[:, None]

    shapes = {"x": {0: B}, "y": (B, None), "z": {0: 2 * B}}
    exported = checked(pairs, rows(4, 4, 8), shapes, [rows(n, n, 2 * n) for n in (0, 1, 2, 9)], path)
    with pytest.raises(UserError, match=r"y\.shape\[0\] is 5, and was exported as b, where b is 4 by x\.shape\[0\]"):
        exported(*rows(4, 5, 8))
    with pytest.raises(UserError, match=r"z\.shape\[0\] is 9, and was exported as 2\*b"):
        exported(*rows(4, 4, 9))


def test_multiple_alone_gives_the_program_its_divisor(path):
    def halves(x):
        assert x.shape[0] % 4 == 0
        return x.reshape(4, x.shape[0] // 4, 3).sum(0)

    exported = checked(halves, rows(8), {"x": {0: 4 * Dim("_b") + 0}}, [rows(n) for n in (0, 4, 8, 40)], path)
    with pytest.raises(UserError, match=r"x\.shape\[0\] is 6, and was exported as 4\*_b"):
        exported(*rows(6))


def test_branch_on_a_relation_is_a_condition_of_the_graph(path):
    def by_length(x, y):
        return x * 2 if x.shape[0] != y.shape[0] else x.sum()

    exported = checked(by_length, rows(4, 5), {"x": {0: Dim("n")}, "y": {0: Dim("m")}}, [rows(4, 6), rows(1, 0)], path)
    with pytest.raises(UserError, match=r"the graph holds where n != m .*in by_length\), and n is 4, m is 4"):
        exported(*rows(4, 4))
    with pytest.raises(UserError, match="the graph holds where n != m"):
        burnish.load(path)(*rows(4, 4))


def test_growing_cache_begins_empty(path):
    def step(x, keys):
        keys = torch.cat([keys, x], 0)
        return keys.softmax(0).sum(1), keys

    exported = checked(step, rows(2, 5), ({0: Dim("n")}, {0: Dim("past")}), [rows(1, 0), rows(3, 1)], path)
    keys, own = torch.empty(0, 3), torch.empty(0, 3)
    for n in (3, 1, 2, 2, 1):
        (x,) = rows(n)
        (found, keys), (expected, own) = exported(x, keys), step(x, own)
        assert_same((found, keys), (expected, own))


def test_writes_to_buffers_and_inputs_follow_the_size(path):
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(16, 3))

        def forward(self, x, cache):
            self.seen[: x.shape[0]] += x
            cache[: x.shape[0]] = x * 2
            return self.seen.sum(), cache

    shapes = {"x": {0: Dim("n", max=16)}}
    with torch.no_grad():
        burnish.save(Cache(), path, (*rows(3), torch.zeros(16, 3)), dynamic_shapes=shapes)
        loaded, eager = burnish.load(path, trust=True), Cache()
        ours, theirs = torch.zeros(16, 3), torch.zeros(16, 3)
        for n in (3, 1, 16, 0, 7, 7, 2):
            (x,) = rows(n)
            total, cache = loaded(x, ours)
            expected, _ = eager(x, theirs)
            assert cache is ours
            torch.testing.assert_close(total, expected)
            torch.testing.assert_close(ours, theirs)
            torch.testing.assert_close(loaded.seen, eager.seen)


def test_strided_inputs_are_read_as_they_lie(path):
    def both(x):
        return x * 2, x.t().reshape(-1)

    given = (torch.randn(6, 4).t(), torch.randn(8, 6)[::2], torch.randn(1, 6).expand(4, 6), torch.randn(5, 7)[:, 1:])
    calls = [(x,) for x in (*given, torch.randn(3, 0), torch.randn(0, 3), torch.randn(1, 5))]
    exported = checked(both, (torch.randn(4, 6),), {"x": (Dim("n"), Dim("m"))}, calls, path)
    with torch.no_grad():
        burnish.save(exported, path, (torch.randn(4, 6),))
        for call in calls:
            assert_same(burnish.load(path, trust=True)(*call), both(*call))


def test_layout_is_checked_if_the_program_asks_for_it(path):
    def by_layout(x):
        return x * 2 if x.is_contiguous() else x * 3

    exported = checked(by_layout, rows(4), {"x": {0: B}}, [rows(n) for n in (0, 1, 2, 9)], path)
    for graph in (exported, burnish.load(path), burnish.export(by_layout, rows(4))):
        with pytest.raises(UserError, match=r"x has the strides \(1, 4\), the program asks.* Pass x.contiguous\(\)"):
            graph(torch.randn(3, 4).t())


def test_default_range_is_narrowed_by_a_condition_and_then_by_calls(path):
    def greatest(x):
        return x * 3 if x.shape[0] == 0 else x[1:].amax(0)

    exported = checked(greatest, rows(6), {"x": {0: B}}, [rows(n) for n in (2, 3, 9)], path)
    assert [(symbol.name, symbol.least) for symbol in exported.ranges] == [("b", 2)]


def test_branches_of_cond_are_named_submodules(path):
    def chosen(x):
        return torch.cond(x.sum() > 0, lambda x: x * 2 + 1, lambda x: x - 1, (x,))

    calls = [(torch.full((n, 3), value),) for n in (0, 1, 2, 9) for value in (1.0, -1.0)]
    exported = checked(chosen, rows(4), {"x": {0: B}}, calls, path)
    assert [name for name, _ in exported.graph_module.named_children()] == ["cond_true_0", "cond_false_0"]


def test_registered_class_among_inputs_and_results(path):
    @dataclasses.dataclass
    class Pair:
        left: torch.Tensor
        right: torch.Tensor

    torch.export.register_dataclass(Pair)

    def swapped(pair):
        return Pair(pair.right * 2, pair.left)

    for shapes in ({"pair": {"left": {0: B}, "right": {0: B}}}, [[{0: B}, (B, None)]]):
        exported = burnish.export(swapped, (Pair(*rows(4, 4)),), dynamic_shapes=shapes)
        exported.save(path)
        found = burnish.load(path, trust=False)(Pair(*rows(6, 6)))
        assert type(found) is Pair and found.left.shape == (6, 3)
    pytree._deregister_pytree_node(Pair)
    with pytest.raises(UserError, match=r"Pair', which is not a class that this program registered"):
        burnish.load(path, trust=False)


def test_training_follows_the_size(path):
    linear = nn.Linear(3, 2)
    burnish.save(linear, path, rows(4), dynamic_shapes={"input": {0: B}})
    loaded = burnish.load(path, trust=True)
    for n in (2, 3, 7, 1, 0):
        (x,) = rows(n)
        linear.zero_grad()
        loaded.zero_grad()
        linear(x).sum().backward()
        loaded(x).sum().backward()
        torch.testing.assert_close(loaded.weight.grad, linear.weight.grad)


# ---- ranges


def test_range_is_checked_in_each_call_with_the_declaration_that_helps():
    exported = burnish.export(torch.sin, rows(4), dynamic_shapes=({0: Dim("b", min=2, max=8)},))
    for n in (1, 9):
        limit = f"min={min(n, 2)}, max={max(n, 8)}"
        with pytest.raises(UserError, match=rf'is {n}, .* with b from 2 to 8\. To take it: .*Dim\("b", {limit}\)'):
            exported(*rows(n))


def table(x):
    return x + torch.arange(128.0)[: x.shape[0]].unsqueeze(1)


def test_declared_range_beyond_what_the_program_can_is_an_error_with_its_line(path):
    with pytest.raises(UserError, match=r'holds from 0 to 128: it needs b <= 128 at ".*", line \d+, in table.*max=128'):
        burnish.export(table, rows(4), dynamic_shapes={"x": {0: B}})
    checked(table, rows(4), {"x": {0: Dim("b", max=128)}}, [rows(n) for n in (0, 1, 2, 128)], path)


def share(x):
    values = torch.linalg.svdvals(x)
    return values.sum() / values.shape[0]


def grows(x):
    return x.sum() * (x.shape[0] + x.shape[0] // 1000) + x.shape[0]


@pytest.mark.parametrize("fn, most", [(share, 50), (grows, 999)])
def test_formula_that_changes_far_from_the_example_limits_the_range(fn, most):
    """The results of both have the same sizes as the example's for all sizes near it."""
    (x,) = rows(4, columns=50)
    with pytest.raises(UserError, match=rf'holds from 0 to {most}: .*Dim\("b", max={most}\)'):
        burnish.export(fn, (x,), dynamic_shapes={"x": {0: B}})
    exported = burnish.export(fn, (x,), dynamic_shapes={"x": {0: Dim.AUTO}})
    for call in (rows(n, columns=50) for n in (1, 2, most)):
        assert_same(exported(*call), fn(*call))
    with pytest.raises(UserError, match=f"a size from 0 to {most}"):
        exported(*rows(most + 1, columns=50))


def test_numbers_computed_from_sizes_are_arguments_and_results(path):
    def numbers(x):
        n = x.shape[0]
        return x / math.sqrt(n + 1), x * min(n, 7), x * n**2, x[: n // 2], torch.tensor([n, 2]), round(n * 0.5)

    checked(numbers, rows(4), {"x": {0: B}}, [rows(n) for n in (0, 1, 2, 5, 9, 30)], path)


def test_text_of_a_size_is_no_part_of_a_graph():
    with pytest.raises(UserError, match=r"computes format of a dynamic size \(b\), which a graph cannot hold"):
        burnish.export(lambda x: (x, f"{x.shape[0]}"), rows(4), dynamic_shapes={"x": {0: B}})


def test_range_of_a_hint_is_narrowed_to_what_holds():
    exported = burnish.export(table, rows(4), dynamic_shapes={"x": {0: Dim.AUTO}})
    assert [(symbol.least, symbol.most) for symbol in exported.ranges] == [(0, 128)]
    with pytest.raises(UserError, match=r"is 129, .* a size from 0 to 128\. The program does other things there"):
        exported(*rows(129))


def unlike_one(x):
    return x if x.shape[0] > 1 else x * 5


def test_small_sizes_are_left_out_where_the_program_treats_them_otherwise(path):
    exported = checked(unlike_one, rows(4), {"x": {0: B}}, [rows(2), rows(9)], path)
    for n in (0, 1):
        with pytest.raises(UserError, match="with b from 2 on. The program does other things there: it needs b > 1"):
            exported(*rows(n))
    with pytest.raises(UserError, match=r'holds from 2 on: .*What to do: torch.export.Dim\("b", min=2\)'):
        burnish.export(unlike_one, rows(4), dynamic_shapes={"x": {0: Dim("b", min=1)}})


def test_size_of_one_that_disappears_is_left_out(path):
    checked(lambda x: x.squeeze(0), rows(4), {"x": {0: B}}, [rows(n) for n in (2, 3, 9)], path)
    exported = burnish.export(lambda x: x.squeeze(0), rows(4), dynamic_shapes={"x": {0: B}})
    with pytest.raises(UserError, match="from 2 on"):
        exported(*rows(1))


# ---- what the program does not do for every size


def even(x):
    return x * 2 if x.shape[0] % 2 == 0 else x.sum()


def steps(x):
    return [x * k for k in range(x.shape[0])]


@pytest.mark.parametrize(
    "fn, args, shapes, said",
    [
        (
            even,
            rows(4),
            {"x": {0: B}},
            r"it needs \(b % 2\) == 0 at .* in even\. What to do: _b = .* 2\*_b in place of b",
        ),
        (steps, rows(4), {"x": {0: B}}, r"declared dynamic \(b\), .* to be 4 at .* in steps.*Dim\.STATIC, None or 4"),
        (lambda x: x @ torch.ones(3, 2), rows(4), {"x": {1: Dim.DYNAMIC}}, r"needs it to be 3: matmul needs this size"),
        (torch.add, rows(4, 4), ({0: Dim("n")}, {0: Dim("m")}), "must be equal.* What to do: the same Dim n for both"),
        (lambda x, y: x if x.shape[0] == y.shape[0] else y, rows(4, 4), ({0: Dim("n")}, {0: Dim("m")}), "needs n == m"),
    ],
)
def test_what_the_program_specializes_is_an_error_with_a_declaration_that_holds(fn, args, shapes, said):
    with pytest.raises(UserError, match=said):
        burnish.export(fn, args, dynamic_shapes=shapes)


def test_hints_that_the_program_specializes_are_constants(path):
    shapes = {"x": {0: Dim.AUTO, 1: Dim.AUTO}}
    exported = checked(lambda x: x @ torch.ones(3, 2), rows(4), shapes, [rows(n) for n in (1, 2, 9)], path)
    assert [symbol.name for symbol in exported.ranges] == ["x.shape[0]"]
    exported = checked(torch.add, rows(4, 4), ({0: Dim.AUTO}, {0: Dim.DYNAMIC}), [rows(6, 6), rows(1, 1)], path)
    with pytest.raises(UserError, match=r"\[1\]\.shape\[0\] is 4, and must be as .*\[0\]\.shape\[0\], which is 5"):
        exported(*rows(5, 4))


@pytest.mark.parametrize(
    "shapes, said",
    [
        (({0: B},), "has 1 entries, and there are 2 arguments"),
        ({"z": {0: B}}, "speaks of 'z', and the arguments are x, y"),
        ({"x": {0: 7}}, r"x\.shape\[0\] is 7, and in the example it is 4"),
        ({"x": {0: "b"}}, "It is a torch.export.Dim"),
        ({"x": {0: Dim("b", max=3)}}, r"range is from 0 to 3, .*in the example b is 4\. .*Dim\(\"b\", max=4\)"),
        ({"x": {5: B}}, "dimension 5 of x, which has 2"),
        ({"x": (B,)}, "has 1 entries for x, which has 2 dimensions"),
        ({"x": {0: B}, "y": {0: B}}, "the example b is 1 for one|1 in the example"),
        ({"x": {0: 3 * B}}, r"declared to be 3\*b, and in the example it is 4"),
        (7, "is a int"),
    ],
)
def test_declarations_that_do_not_fit_are_refused(shapes, said):
    with pytest.raises(UserError, match=said):
        burnish.export(lambda x, y: x + y, rows(4, 1), dynamic_shapes=shapes)


# ---- programs of torch.export


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 6)

    def forward(self, x, scale=None):
        y = self.linear(x).view(x.shape[0] * 2, 3)
        return {"y": y.relu()}


@pytest.mark.parametrize("dim", [Dim("b", min=2, max=64), 2 * Dim("b", min=2, max=64), Dim.AUTO])
def test_graph_goes_to_torch_export_with_its_sizes(dim, tmp_path):
    model = Scaled()
    program = burnish.export(model, rows(4), dynamic_shapes={"x": {0: dim}}).to_torch_export()
    torch.export.save(program, tmp_path / "program.pt2")
    module = torch.export.load(tmp_path / "program.pt2").module()
    for n in (4, 6, 10):
        (x,) = rows(n)
        torch.testing.assert_close(module(x), model(x))
    with pytest.raises(Exception, match=r"(?i)shape|guard|constraint"):
        module(torch.randn(4, 5))


def test_program_of_torch_export_is_compiled_and_exported_again(tmp_path):
    model = Scaled()
    program = torch.export.export(model, rows(4), dynamic_shapes={"x": {0: Dim("b", min=2, max=64)}})
    compiled = burnish.compile(program, fullgraph=True)
    exported = burnish.export(program)
    torch.export.save(program, tmp_path / "program.pt2")
    loaded = burnish.load(tmp_path / "program.pt2", trust=True)
    for n in (2, 5, 6, 64):
        (x,) = rows(n)
        for module in (compiled, exported, loaded, burnish.compile(program.module(), fullgraph=True)):
            torch.testing.assert_close(module(x), model(x))
    assert [(symbol.least, symbol.most) for symbol in exported.ranges] == [(2, 64)]
    with pytest.raises(UserError, match=r"is a file of torch\.export.* trust=True"):
        burnish.load(tmp_path / "program.pt2")


# ---- models, at 24 sizes each


def bert():
    transformers = pytest.importorskip("transformers")
    config = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "num_hidden_layers": 2}
    model = transformers.BertModel(transformers.BertConfig(vocab_size=100, max_position_embeddings=64, **config))
    dims = {0: Dim("batch", max=64), 1: Dim("length", max=64)}

    def call(n, length):
        return torch.randint(0, 100, (n, length)), torch.ones(n, length, dtype=torch.long)

    sizes = [(n, length) for n in (1, 2, 3, 5, 8, 13) for length in (2, 4, 17, 64)]
    return model, call(3, 7), {"input_ids": dims, "attention_mask": dims}, [call(*size) for size in sizes]


def gpt2():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=100, n_positions=64, use_cache=False)
    dims = {0: Dim("batch", max=64), 1: Dim("length", max=64)}
    sizes = [(n, length) for n in (2, 3, 4, 5, 8, 13) for length in (2, 5, 17, 64)]
    calls = [(torch.randint(0, 100, size),) for size in sizes]
    return transformers.GPT2LMHeadModel(config), (torch.randint(0, 100, (3, 7)),), {"input_ids": dims}, calls


def resnet():
    torchvision = pytest.importorskip("torchvision")
    block = torchvision.models.resnet.BasicBlock
    model = torchvision.models.ResNet(block, [1, 1, 1, 1], num_classes=10)
    sizes = [(n, h, w) for n in (1, 2, 4) for h in (32, 48, 65, 80) for w in (33, 64)]
    dims = {0: Dim("n"), 2: Dim("h"), 3: Dim("w")}
    return model, (torch.randn(2, 3, 64, 40),), {"x": dims}, [(torch.randn(n, 3, h, w),) for n, h, w in sizes]


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.norm, self.middle = nn.GroupNorm(4, 16), nn.Conv2d(16, 16, 3, padding=1)
        self.up, self.third = nn.ConvTranspose2d(16, 16, 2, stride=2), nn.Conv2d(32, 8, 3, padding=1)
        self.last = nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x):
        wide = F.relu(self.first(x))
        half = F.silu(self.norm(self.second(F.max_pool2d(wide, 2))))
        deep = F.relu(self.middle(F.max_pool2d(half, 2)))
        back = F.relu(self.third(torch.cat([self.up(deep), half], 1)))
        back = F.interpolate(back, size=wide.shape[-2:], mode="nearest")
        return self.last(torch.cat([back, wide], 1))


def unet():
    dims = {0: Dim("n"), 2: 4 * Dim("_h", min=1, max=32), 3: 4 * Dim("_w", min=1, max=32)}
    sizes = [(n, h, w) for n in (1, 2, 4) for h in (4, 16, 28, 32) for w in (8, 36)]
    return UNet(), (torch.randn(2, 3, 16, 24),), {"x": dims}, [(torch.randn(n, 3, h, w),) for n, h, w in sizes]


@pytest.mark.parametrize("make", [bert, gpt2, resnet, unet])
def test_model_at_24_sizes_is_one_graph(make, path):
    torch.manual_seed(0)
    model, example, shapes, calls = make()
    model.eval()
    assert len(calls) == 24
    with torch.no_grad():
        exported = burnish.export(model, example, dynamic_shapes=shapes)
        for call in calls:
            assert_same(exported(*call), model(*call))
        exported.save(path)
        loaded = burnish.load(path, trust=False)
        for call in calls:
            assert_same(loaded(*call), model(*call))


def test_saved_program_serves_all_sizes_without_compiling_again(path):
    torch.manual_seed(0)
    model, example, shapes, calls = unet()
    with torch.no_grad():
        burnish.save(model.eval(), path, example, dynamic_shapes=shapes)
        loaded = burnish.load(path, trust=True)
        with recorded("kernels", "cache.program") as seen:
            for call in calls:
                torch.testing.assert_close(loaded(*call), model(*call), rtol=1e-4, atol=1e-5)
        assert [event.kind for event in seen] == ["cache.program"]
        assert len(loaded.native.made) == 1
