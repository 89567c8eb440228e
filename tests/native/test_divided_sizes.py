"""Sizes that are divided, as by strides and pools: formulas with quotients, and one compilation for all of them."""

import itertools
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import burnish
from burnish.tensors.fit_size_formulas import NoFormula, Space

from .compare_sizes import called_with, same, watching


def test_a_half_holds_for_all_sizes():
    for added in (-3, -1, 0, 1, 2):
        space = Space.around({"s0": 24, "s1": 31})

        def number(size, added=added):
            return (size + added) // 2

        space = space.divided([[number(size) for size, _ in space.points]])
        formula = space.fit([64 * other * number(size) for size, other in space.points])
        for size in range(5, 200):
            assert formula.at((size, 7)) == 64 * 7 * number(size)
            assert eval(str(formula), {"s0": size, "s1": 7}) == formula.at((size, 7))


def test_quotients_of_quotients():
    space = Space.around({"s0": 40, "s1": 56})
    halved = [[(size + 1) // 2 for size in point] for point in space.points]
    again = [[(size + 1) // 2 for size in point] for point in halved]
    space = space.divided([*zip(*halved, strict=True), *zip(*again, strict=True)])
    formula = space.fit([16 * height * width for height, width in again])
    for height, width in itertools.product(range(4, 60, 7), repeat=2):
        assert formula.at((height, width)) == 16 * ((height + 3) // 4) * ((width + 3) // 4)


def decided(space, number):
    """The space that knows the quotient, and the formula found."""
    wide = space.decide(lambda points: [[number(*point) for point in points], *zip(*points, strict=True)])
    return wide, wide.fit([number(*point) for point in wide.points])


@pytest.mark.parametrize("divisor", range(2, 65))
def test_no_quotient_is_found_by_chance(divisor):
    chance = random.Random(divisor)
    for _ in range(5):
        size, added = chance.randrange(2 * divisor, 8 * divisor + 40), chance.randrange(-divisor, divisor)
        number = lambda size, added=added: (size + added) // divisor  # noqa: E731
        space = Space.around({"s0": size})
        if len({number(*point) for point in space.points}) == 1:
            continue  # a constant between them
        wide, formula = decided(space, number)
        assert len(wide.telling) <= 10
        for other in range(size, size + 40 * divisor):
            assert formula.at((other,)) == number(other), (size, added)


@pytest.mark.parametrize("divisor", (3, 5, 7, 12, 15, 16, 32))
def test_the_quotient_is_of_the_right_one_of_two_sizes(divisor):
    for number in (
        lambda one, other: (one + 5) // divisor,
        lambda one, other: (other - 1) // divisor,
        lambda one, other: (other + 2) // divisor + 3,
    ):
        _, formula = decided(Space.around({"s0": 4 * divisor - 6, "s1": 6 * divisor - 7}), number)
        for point in itertools.product(range(3 * divisor, 9 * divisor, 2), range(4 * divisor, 9 * divisor)):
            assert formula.at(point) == number(*point)


def test_sizes_up_to_a_limit_tell_quotients_apart():
    space = Space.within({"s0": (40, 2, 45)})
    _, formula = decided(space, lambda size: (size + 1) // 15)
    assert [formula.at((size,)) for size in range(20, 46)] == [(size + 1) // 15 for size in range(20, 46)]


def test_a_number_that_is_no_quotient_is_none():
    def number(size):
        return (size + 1) // 15 + (size >= 100)

    space = Space.around({"s0": 31}).decide(lambda points: [[number(*point) for point in points]])
    assert all(
        formula.at(point) == number(*point)
        for point in space.points
        for formula in [space.fit([number(*p) for p in space.points])]
    )


def test_products_of_padded_sizes():
    space = Space.around({"s0": 64, "s1": 48})
    space = space.divided(zip(*[[size + 1 for size in point] for point in space.points], strict=True))
    formula = space.fit([64 * (height + 1) * (width + 1) for height, width in space.points])
    assert formula.at((9, 5)) == 64 * 10 * 6
    with pytest.raises(NoFormula):
        space.fit([(-height) % 8 for height, _ in space.points])


def test_a_sum_of_sizes_of_which_one_is_a_multiple_of_the_other():
    space = Space(("s0", "s1"), [(16, 48), (17, 51), (20, 52), (29, 54)])
    assert str(space.fit([sum(point) for point in space.points])) in ("s0 + s1", "s1 + s0")


def test_products_of_many_sizes():
    space = Space.around({"s0": 13, "s1": 4, "s2": 7})
    formula = space.fit([2 * batch * choices * length**2 for batch, choices, length in space.points])
    assert formula.at((3, 5, 9)) == 2 * 3 * 5 * 9**2
    formula = space.fit([batch * choices**2 * length**2 for batch, choices, length in space.points])
    assert formula.at((3, 5, 9)) == 3 * 5**2 * 9**2
    with pytest.raises(NoFormula):
        space.fit([batch * choices * length**2 + length**3 for batch, choices, length in space.points])


def scores_of_several_sequences(tokens, table):
    table = table[tokens.view(-1, tokens.shape[-1])]
    heads = table.unflatten(-1, (2, 8)).transpose(1, 2)
    return ((heads @ heads.transpose(-1, -2)).softmax(-1) @ heads).sum((1, 2))


def test_one_compilation_serves_any_number_of_sequences_of_any_length():
    table = torch.randn(50, 16)
    shapes = [(13, 4, 7), (3, 5, 9), (2, 3, 4), (6, 2, 11)]
    seen = called_with(scores_of_several_sequences, [(torch.randint(50, shape), table) for shape in shapes])
    assert seen.is_open and not seen.why_apiece, seen.words


torch.manual_seed(0)
NARROW = nn.Sequential(
    *(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.GroupNorm(4, 8), nn.SiLU(), nn.Conv2d(8, 8, 3, stride=2)),
    *(nn.Upsample(scale_factor=2.0), nn.Conv2d(8, 4, 1)),
).eval()
POOLED = nn.Sequential(
    *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)),
    *(nn.Flatten(), nn.Linear(8, 3)),
).eval()
PROGRAMS = {
    "strides": NARROW,
    "pools": POOLED,
    "padded before a stride": lambda x: F.avg_pool2d(F.pad(x, (0, 1, 0, 1)), 3, 2) * 2,
    "its size is read": lambda x: F.interpolate(F.max_pool2d(x, 2), size=x.shape[2:]) + x,
    "a size after a stride is read": lambda x: (lambda y: y.reshape(y.shape[0], y.shape[1], y.shape[2] * y.shape[3]))(
        F.max_pool2d(x, 2)
    ),
    "patches that are counted": lambda x: (lambda y: y.reshape(y.shape[0], y.shape[1], 3, -1).permute(0, 2, 1, 3) + 1)(
        F.avg_pool2d(x, 4).flatten(2).transpose(1, 2)
    ),
    "half of its rows": lambda x: x[:, :, : x.shape[2] // 2] * 2,
}
SHAPES = [(2, 3, 8, 12), (2, 3, 10, 17), (2, 3, 9, 21), (2, 3, 16, 16), (2, 3, 33, 40), (2, 3, 12, 8)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_compilation_serves_images_of_all_sizes(name):
    seen = called_with(PROGRAMS[name], [(torch.randn(shape),) for shape in SHAPES])
    assert seen.is_open and not seen.why_apiece and not seen.why_closed, seen.words
    assert seen.segments == 2, seen.words


@pytest.mark.parametrize("name", ["strides", "pools"])
def test_training_with_images_of_all_sizes(name):
    model, found = PROGRAMS[name], []
    burnish.reset()
    with watching() as seen, burnish.settings.patch(never_slower=False):
        compiled = burnish.compile(model, dynamic=True)
        for fn in (compiled, model):
            for shape in SHAPES:
                x = torch.randn(shape, generator=torch.Generator().manual_seed(shape[2])).requires_grad_()
                fn(x).square().sum().backward()
                found.append(x.grad)
    assert not seen.why_apiece and seen.segments == 1, seen.words
    same(found[: len(SHAPES)], found[len(SHAPES) :])


@pytest.mark.falls_back("sizes")
def test_strides_follow_the_sizes_that_are_checked():
    convolution = nn.Conv2d(3, 4, 2, 2).requires_grad_(False)

    def fn(x):
        y = x.flatten(2).transpose(1, 2).softmax(1).transpose(1, 2).reshape(x.shape)
        y = F.avg_pool2d(convolution(y - y.mean((2, 3), keepdim=True)), 3, 4)
        return y, y.shape

    sizes = [(3, 18, 13), (3, 22, 39), (1, 21, 48), (1, 22, 48), (1, 23, 51), (1, 26, 49), (2, 17, 26)]
    called_with(fn, [(torch.randn(rows, 3, *size),) for rows, *size in sizes])


IN_BETWEEN = {
    "computed with": lambda x, kernel: F.avg_pool1d(x, kernel, 4) * 2,
    "read": lambda x, kernel: F.avg_pool1d(x, kernel, 4).shape,
}


@pytest.mark.falls_back("sizes")
@pytest.mark.parametrize("name", IN_BETWEEN)
@pytest.mark.parametrize("kernel", range(2, 9))
def test_every_size_in_between_is_checked(kernel, name):
    """Quotients by four may agree at all sizes that were tried, and differ at others."""
    called_with(lambda x: IN_BETWEEN[name](x, kernel), [(torch.randn(2, n),) for n in (20, *range(24, 60))])


def halved_and_joined(x):
    return torch.cat([x, F.interpolate(F.max_pool2d(x, 2), scale_factor=2.0)], 1)


JOINED = {
    "halved once": (halved_and_joined, 2),
    "halved twice": (lambda x: torch.cat([x, F.interpolate(F.avg_pool2d(x, 4), scale_factor=4.0)], 1), 4),
    "in parts of two rows": (lambda x: F.pixel_unshuffle(x, 2) * 2, 2),
}


@pytest.mark.parametrize("name", JOINED)
def test_sizes_that_have_to_be_even(name):
    fn, unit = JOINED[name]
    sizes = [(4, 5), (6, 8), (8, 3), (5, 5), (12, 7), (9, 20)]
    calls = [(torch.randn(2 + k, 3, unit * height, unit * width),) for k, (height, width) in enumerate(sizes)]
    seen = called_with(fn, calls)
    assert seen.is_open and not seen.why_apiece and not seen.why_closed, seen.words
    assert seen.segments == 2, seen.words


@pytest.mark.falls_back("sizes")
@pytest.mark.parametrize("name", JOINED)
def test_two_sizes_that_change_together(name):
    """Products of both are sums of products, for which the points are too few."""
    fn, unit = JOINED[name]
    called_with(fn, [(torch.randn(2, 3, unit * size, unit * (size + 1)),) for size in (4, 6, 8, 7, 11)])


@pytest.mark.falls_back("sizes")
@pytest.mark.parametrize("name", ["halved once", "in parts of two rows"])
def test_odd_sizes_are_refused_as_in_eager(name):
    fn, _ = JOINED[name]
    compiled = burnish.compile(fn)
    for size in (4, 6, 8):
        compiled(torch.randn(2, 3, size, 8))
    for size in (9, 11):
        with pytest.raises(RuntimeError) as expected:
            fn(torch.randn(2, 3, size, 8))
        with pytest.raises(RuntimeError) as found:
            compiled(torch.randn(2, 3, size, 8))
        assert str(found.value) == str(expected.value)


@pytest.mark.falls_back("sizes")  # how much is filled up has no formula
def test_odd_sizes_of_a_program_that_fills_them_up():
    def fn(x):
        height = x.shape[2]
        filled = F.pad(x, (0, 0, 0, height % 2))
        return halved_and_joined(filled)[:, :, :height], height

    called_with(fn, [(torch.randn(2, 3, n, 8),) for n in (8, 10, 9, 13, 12, 11, 30, 7)])


LAYERS = {
    "a convolution": (nn.Conv2d(6, 4, 3, padding=1), (6, 8, 9)),
    "a convolution of rows": (nn.Conv1d(6, 4, 3, padding=1), (6, 9)),
    "a convolution in groups": (nn.Conv2d(6, 6, 3, groups=3), (6, 8, 9)),
    "a transposed convolution": (nn.ConvTranspose2d(6, 4, 2, stride=2), (6, 8, 9)),
    "a norm of layers": (nn.LayerNorm(6), (9, 6)),
    "a norm by roots": (nn.RMSNorm(6), (9, 6)),
    "a norm of groups": (nn.GroupNorm(3, 6), (6, 8, 9)),
    "a norm of batches": (nn.BatchNorm2d(6).eval(), (6, 8, 9)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_of_all_sizes_those_of_weights_are_constants(name):
    layer, rest = LAYERS[name]
    of_weight = rest.index(6)
    calls = []
    for more in (0, 1, 4, 9):
        sizes = [size if k == of_weight else size + more for k, size in enumerate(rest)]
        calls.append((torch.randn(3 + more, *sizes),))
    seen = called_with(layer, calls, dynamic=True)
    assert seen.is_open and not seen.why_apiece and not seen.why_closed, seen.words
    assert seen.segments == 1, seen.words


def test_several_inputs_of_which_each_has_a_size_of_a_weight():
    first, second = nn.Linear(4, 8), nn.Linear(32, 8)

    def joined(x, y):
        both = torch.cat([first(x), second(y)], 1)
        return both.reshape(both.shape[0], -1, both.shape[1])

    calls = [(torch.randn(1, n, 4), torch.randn(1, m, 32)) for n, m in ((16, 48), (32, 48), (64, 20))]
    seen = called_with(joined, calls, dynamic=True)
    assert seen.is_open and not seen.why_apiece and not seen.why_closed, seen.words
    assert seen.segments == 1, seen.words


WINDOWS = {
    "windows of 15": lambda x: (F.pad(x, (0, 1)) * 4).unfold(1, 15, 15)[:, 0] * 2,
    "pairs, every third": lambda x: (x * 3).unfold(1, 2, 3)[:, :, 0] * 2,
    "every seventh": lambda x: (x * 2)[:, 1::7].sin(),
    "a convolution of stride 16": lambda x: F.conv1d(x[:, None], torch.ones(4, 1, 3), stride=16, padding=1) * 2,
    "pools of 9": lambda x: F.avg_pool1d(x * 2, 9, 9) + 1,
}


@pytest.mark.falls_back("sizes")
@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("first", (31, 47, 50))
def test_windows_are_counted_at_every_size_between_those_compiled_from(name, first):
    fn = WINDOWS[name]
    compiled = burnish.compile(fn)
    sizes = [first, first + 1, *range(first + 2, first + 20), 3 * first]
    for size in sizes:
        x = torch.randn(4, size, requires_grad=True)
        own = x.detach().clone().requires_grad_()
        expected, found = fn(own), compiled(x)
        same(found, expected, f"for {size}")
        expected.square().sum().backward()
        found.square().sum().backward()
        same(x.grad, own.grad, f"gradient for {size}")


EVERY_SO_MANY = {
    "every second": lambda x: x[:, ::2] * 2,
    "every third of a part": lambda x: x[:, 2:-1:3] * 3,
    "every fourth and its count": lambda x: x[:, ::4].sum(1) * x[:, ::2].shape[1],
    "up to the middle": lambda x: x[:, : x.shape[1] // 2 : 2] * 3,
    "written": lambda x: x.clone().index_fill(1, torch.tensor([0]), 2.0)[:, 1::5].add_(1) * 2,
}


@pytest.mark.parametrize("name", EVERY_SO_MANY)
def test_slices_with_a_step_are_compiled_once_for_all_sizes(name):
    fn = EVERY_SO_MANY[name]
    seen = called_with(fn, [(torch.randn(3, size, 8),) for size in (20, 21, 24, 25, 26, 29, 33, 40, 7, 61, 100)])
    assert seen.is_open and not seen.why_apiece and not seen.why_closed, seen.words
    assert seen.segments == 2, seen.words


JOINED_SIZES = {
    "every hundredth": lambda x, y: (torch.cat([x, y], 1) * 2)[:, ::100].sin().sum(1),
    "a convolution of stride 100": lambda x, y: F.conv1d(
        (torch.cat([x, y], 1) * 2)[:, None], torch.ones(1, 1, 3), stride=100
    ).sum((1, 2)),
    "windows of 20": lambda x, y: (torch.cat([x, y], 1) * 2).unfold(1, 1, 20).sin().sum((1, 2)),
}


@pytest.mark.falls_back("sizes")
@pytest.mark.parametrize("name", JOINED_SIZES)
def test_a_quotient_of_a_sum_is_none_of_one_of_the_sizes(name):
    fn = JOINED_SIZES[name]
    sizes = [(150, 49), (151, 53), (150, 55), (149, 60), (160, 49), (163, 62), (150, 50), (149, 49), (158, 62)]
    called_with(fn, [(torch.ones(3, one), torch.ones(3, other)) for one, other in sizes])


LAST_FIVE = {
    "a multiple": lambda x: x[:, -5::3] * 2,
    "to the third from the end": lambda x: x[:, -25:-3:16] * 2,
    "written": lambda x: x.clone()[:, -5::3].mul_(100),
}


@pytest.mark.parametrize("name", LAST_FIVE)
@pytest.mark.parametrize("sizes", [(9, 10, 2, 3, 4), (2, 3, 4), (3, 2, 4, 20, 21, 24), (20, 18, 19)], ids=str)
def test_a_slice_from_the_end_with_a_step_starts_in_the_tensor(name, sizes):
    fn = LAST_FIVE[name]
    called_with(fn, [(torch.arange(1.0, 2 * size + 1).view(2, size),) for size in sizes])
