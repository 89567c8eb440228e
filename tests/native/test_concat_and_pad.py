"""Concatenated, padded, rolled and sliced tensors: read and written in place."""

import pytest
import torch
from torch.nn import functional as F

from .compare_calls import equal_calls

NAN, INF = float("nan"), float("inf")


def sample(*shape, dtype=torch.float32):
    torch.manual_seed(len(shape))
    if dtype is torch.bool:
        return torch.rand(shape) > 0.5
    if not dtype.is_floating_point:
        return torch.randint(-100, 100, shape).to(dtype)
    made = torch.randn(shape, dtype=torch.float64).to(dtype)
    if made.numel() > 3:
        made.view(-1)[0], made.view(-1)[1], made.view(-1)[2] = NAN, -INF, -0.0
    return made


PROGRAMS = {
    "joined and used": lambda x, y: torch.cat([x, y * 2], 1).relu(),
    "joined in front": lambda x, y: torch.cat([x, y, x], 0) * 2,
    "joined and returned": lambda x, y: torch.cat([x + 1, y], -1),
    "joined of views": lambda x, y: torch.cat([x.t(), y[:, ::2].t(), x.t()[1:3]], 0).exp(),
    "one part": lambda x, y: torch.cat([x], 1) + y,
    "parts without elements": lambda x, y: torch.cat([x, y[:, :0], torch.empty(0), y], 1) + 1,
    "one element wide": lambda x, y: torch.cat([x[:, :1], y[:, :1]], 1) + 1,
    "halves turned": lambda x, y: x * y + torch.cat([-x[:, 3:], x[:, :3]], 1) * y,
    "joined of joined": lambda x, y: torch.cat([torch.cat([x, y], 1), torch.cat([y, x], 1)], 0).sigmoid(),
    "joined and summed": lambda x, y: torch.cat([x, y], 1).sum(0),
    "joined along what is summed": lambda x, y: torch.cat([x, y], 1).sum(1),
    "joined rows of a softmax": lambda x, y: torch.softmax(torch.cat([x, y], 0), 1),
    "joined of a softmax": lambda x, y: torch.cat([torch.softmax(x, 1), y], 0),
    "joined twice": lambda x, y: ((z := torch.cat([x, y], 0)) + 1, z * 2, z),
    "joined and turned": lambda x, y: torch.cat([x, y], 1).t().contiguous() + 1,
    "joined and reshaped": lambda x, y: torch.cat([x, y], 1).reshape(-1, 3) + 1,
    "reshaped across the parts": lambda x, y: torch.cat([x[:, :5], y], 1).reshape(11, 4) * 2,
    "stacked": lambda x, y: torch.stack([x, y * 3, x], 1) - 1,
    "stacked in front": lambda x, y: torch.stack([x, y]).sum(0),
    "stacked behind": lambda x, y: torch.stack([x, y], -1).exp(),
    "padded": lambda x, y: F.pad(x * y, (1, 2, 0, 3), value=2.5) + 1,
    "padded by nothing": lambda x, y: F.pad(x, (0, 0, 0, 0)) + y,
    "padded and returned": lambda x, y: F.pad(x, (2, 0)),
    "cut off by padding": lambda x, y: F.pad(x, (-1, 2, 1, -1), value=-INF) * 2,
    "reflected": lambda x, y: F.pad(x[None], (2, 3), mode="reflect") * 2,
    "continued": lambda x, y: F.pad(x[None], (2, 3), mode="replicate") * 2,
    "rolled": lambda x, y: torch.roll(x, 2, 1) + y,
    "rolled both ways": lambda x, y: torch.roll(x, (-1, 4), (0, 1)).exp(),
    "rolled as one row": lambda x, y: torch.roll(x, 5) + y,
    "rolled and cut": lambda x, y: torch.roll(x, 1, 1)[:, 2:] + y[:, :4],
    "written into": lambda x, y: torch.slice_scatter(x, y[:, 1:3], 1, 2, 4) * 2,
    "one row written": lambda x, y: torch.select_scatter(x, y[1], 0, -1).relu(),
    "written in steps": lambda x, y: torch.slice_scatter(x, y[:, :3], 1, 0, 6, 2) * 2,
    "turned round and joined": lambda x, y: torch.cat([x.flip(1), y, x.flip(0)], 1) * 2,
    "three dtypes": lambda x, y: torch.cat([x, y.double(), (x > 0)], 1) + 1,
    "constants": lambda x, y: torch.cat([torch.zeros_like(x), y, torch.full((4, 2), 3.0)], 1) * 2,
    "norm of joined": lambda x, y: F.layer_norm(torch.cat([x, y], 0).nan_to_num(), (6,)),
    "product of joined": lambda x, y: torch.cat([x.nan_to_num(0, 0, 0), y.nan_to_num(0, 0, 0)], 0) @ torch.ones(6, 5),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_equals_eager(name):
    equal_calls(PROGRAMS[name], sample(4, 6), sample(4, 6).flip(0))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.bfloat16, torch.float64, torch.uint8], ids=str)
@pytest.mark.parametrize(
    "name",
    [
        "joined in front",
        "halves turned",
        "stacked",
        "rolled both ways",
        "one row written",
        "padded by nothing",
        "turned round and joined",
    ],
)
def test_program_equals_eager_in_other_dtypes(name, dtype):
    def program(x, y):
        if dtype is torch.bool:
            return torch.cat([~x, torch.roll(y, 1, 1)], 1), torch.stack([x, y], 1), F.pad(x, (1, 1), value=1)
        return PROGRAMS[name](x, y)

    equal_calls(program, sample(4, 6, dtype=dtype), sample(4, 6, dtype=dtype).flip(0))


@pytest.mark.parametrize("size", [(2, 4, 8, 8), (1, 3, 5, 7), (2, 1, 1, 1)], ids=str)
@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_images_are_joined_in_either_layout(size, format):
    def program(x, y):
        joined = torch.cat([x, y.relu(), x], 1)
        return joined, joined.sigmoid(), F.pad(joined, (1, 0, 0, 1)), torch.roll(joined, (1, 1), (2, 3)) * 2

    x = sample(*size).contiguous(memory_format=format)
    equal_calls(program, x, x.flip(0).contiguous(memory_format=format))


def grown(x, weights, layers):
    """As a DenseNet: each layer reads all features so far."""
    features = [x]
    for k in range(layers):
        every = torch.cat(features, 1)
        features.append(F.conv2d((every * 0.5).relu(), weights[k]))
    return torch.cat(features, 1)


def weights_of(layers, first=4, growth=3):
    torch.manual_seed(0)
    return [torch.randn(growth, first + k * growth, 1, 1) for k in range(layers)]


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize(
    "end",
    [
        lambda y: y.relu(),
        lambda y: y,
        lambda y: (y, y + 1),
        lambda y: F.max_pool2d(y, 2),
        lambda y: y.flatten(1)[:, 5:] * 2,
    ],
    ids=["computed with", "returned", "both", "read by a library", "a view"],
)
def test_growing_features_share_one_buffer(format, end):
    weights = weights_of(5)
    equal_calls(lambda x: end(grown(x, weights, 5)), torch.randn(2, 4, 8, 8).contiguous(memory_format=format))


def test_buffers_of_several_blocks_are_distinct():
    weights, others = weights_of(4), weights_of(4)

    def program(x):
        first, second = grown(x, weights, 4).relu(), grown(x * 2, others, 4).relu()
        return first - second, first.sum()

    equal_calls(program, torch.randn(2, 4, 6, 6))


def test_parts_of_a_shared_buffer_are_read_by_others_and_twice():
    def program(x):
        a, b, c = x * 2, x.exp(), torch.softmax(x, 1)
        one = torch.cat([a, b], 1)
        two = torch.cat([one, c], 1)
        three = torch.cat([two, a], 1)
        return (one + 1).sum(1), two * 2, three.relu(), a, torch.cat([b, c], 1).sin()

    equal_calls(program, torch.randn(16, 40))


def test_more_parts_than_loops_are_joined_by_the_library():
    equal_calls(lambda x: torch.cat([x + k for k in range(40)], 1) * 2, torch.randn(8, 3))


def test_two_joined_values_of_other_parts_meet():
    equal_calls(
        lambda x, y: torch.cat([x, y, x], 1) + torch.cat([y[:, :2], x, y, x[:, :4]], 1),
        torch.randn(4, 6),
        torch.randn(4, 6),
    )


def test_written_into_input_through_a_slice():
    def program(x, y):
        x[:, 1:3] = y[:, :2]
        x[0] += 1
        return x * 2

    equal_calls(program, torch.randn(4, 6), torch.randn(4, 6))
