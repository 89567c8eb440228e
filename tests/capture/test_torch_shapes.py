"""Shapes as Python numbers: Size arithmetic, strides and inputs that change their sizes from call to call and back."""

import math

import torch
from torch import nn

import burnish

from .harness import Keywords, program


def sizes(*shapes):
    return [(torch.randn(*s),) for s in shapes]


@program(breaks=0)
def test_size_is_a_tuple_with_extras():
    def fn(x):
        s = x.shape
        more = s.numel(), list(s), tuple(reversed(s)), s == (2, 3), type(s[:1]).__name__, len(s)
        return s, s[0] * 2, s[1:] + (1,), more

    return fn, sizes((2, 3), (4,), (2, 3), (1, 2, 3))


@program(breaks=0)
def test_number_of_elements_of_a_shape_follows_its_sizes():
    def fn(x):
        return x * 2, x.shape.numel(), x.size()[1:].numel()

    return fn, sizes((3, 2), (3, 3), (3, 4), (3, 5), (0, 4))


@program(breaks=0)
def test_unpacked_shape_drives_a_reshape():
    def fn(x, heads):
        b, t, c = x.shape
        y = x.view(b, t, heads, c // heads).transpose(1, 2)
        return y.reshape(b * heads, t, -1), y.stride()

    return fn, [(torch.randn(2, t, 6), h) for t, h in ((3, 2), (4, 3), (1, 6), (3, 2))]


@program(breaks=0)
def test_sizes_in_float_and_integer_arithmetic():
    def fn(x):
        n = x.shape[0]
        scale = 1 / math.sqrt(n)
        half, rest = divmod(n, 2)
        return x * scale, x[:half], x[half:] * rest, x.new_zeros(max(n, 4)), n / 3, f"{n:03d}"

    return fn, sizes((4,), (5,), (2,), (4,), (7,))


@program(breaks=0)
def test_size_as_a_loop_bound():
    def fn(x):
        total = torch.zeros(x.shape[1:])
        for i in range(x.size(0)):
            total = total * 0.5 + x[i] * i
        return total

    return fn, sizes((2, 3), (4, 3), (1, 2), (2, 3), (0, 2))


@program(breaks=0)
def test_batch_size_returns_to_an_earlier_one():
    layer = nn.Linear(3, 2)
    return layer, sizes((4, 3), (5, 3), (6, 3), (4, 3), (1, 3), (5, 3))


@program(breaks=0)
def test_number_of_dimensions_changes():
    layer = nn.Linear(3, 2)

    def fn(x):
        return layer(x), x.dim(), x.shape[:-1]

    return fn, sizes((3,), (2, 3), (2, 2, 3), (3,), (2, 3))


@program(breaks=0)
def test_size_one_broadcasts_and_size_zero_is_empty():
    def fn(x, y):
        z = x + y
        return z, z.shape, torch.broadcast_shapes(x.shape, y.shape), x.expand(3, -1)

    return fn, [(torch.randn(a, 2), torch.randn(b, 2)) for a, b in ((3, 1), (1, 3), (3, 3), (1, 1), (3, 1))]


@program
def test_shapes_that_do_not_fit_raise():
    def fn(x, y):
        return x + y

    return fn, [(torch.randn(a), torch.randn(b)) for a, b in ((3, 3), (3, 2), (2, 1), (2, 3), (3, 3))]


@program(breaks=0)
def test_two_sizes_that_are_equal_by_chance():
    def fn(x, y):
        if x.shape[0] == y.shape[0]:
            return x + y
        return x.sum() * y

    return fn, [(torch.randn(a), torch.randn(b)) for a, b in ((3, 3), (3, 4), (5, 5), (4, 5), (3, 3))]


@program(breaks=0)
def test_strides_change_between_calls():
    def fn(x):
        return x * 2, x.stride(), x.is_contiguous(), x.storage_offset()

    base = torch.randn(4, 4)
    return fn, [(base,), (base.t(),), (base[::2],), (base[1:, 1:],), (base,), (base.t(),)]


@program(breaks=0)
def test_result_keeps_the_memory_format():
    def fn(x):
        y = x.relu() + 1
        return y, y.stride(), torch.empty_like(x).stride(), y.is_contiguous(memory_format=torch.channels_last)

    x = torch.randn(2, 3, 4, 4)
    last = x.to(memory_format=torch.channels_last)
    return fn, [(x,), (last,), (x,), (last,)]


@program(breaks=0)
def test_patches_by_shape_arithmetic():
    def fn(image, *, patch):
        c, h, w = image.shape
        pad_h, pad_w = -h % patch, -w % patch
        image = nn.functional.pad(image, (0, pad_w, 0, pad_h))
        rows, cols = image.shape[1] // patch, image.shape[2] // patch
        tiles = image.reshape(c, rows, patch, cols, patch).permute(1, 3, 0, 2, 4)
        return tiles.flatten(2).flatten(0, 1), (rows, cols)

    cases = (((4, 4), 2), ((5, 3), 2), ((6, 6), 3), ((4, 4), 2))
    return fn, [(torch.randn(1, *s), Keywords(patch=p)) for s, p in cases]


@program(breaks=0)
def test_negative_and_computed_dimensions():
    def fn(x, dim):
        dim = dim % x.dim()
        order = [d for d in range(x.dim()) if d != dim] + [dim]
        return x.permute(order), x.sum([d for d in range(x.dim()) if d != dim]), x.flatten(0, dim)

    return fn, [(torch.randn(2, 3, 4), d) for d in (0, -1, 1, -3, 0)]


@program(breaks=0)
def test_element_size_and_memory_in_bytes():
    def fn(x):
        return x.numel() * x.element_size(), x.nbytes, x.itemsize, x * (x.nbytes // 8)

    kinds = ((4, torch.float32), (3, torch.float64), (5, torch.int8), (4, torch.float32))
    return fn, [(torch.ones(n, dtype=d),) for n, d in kinds]


@program(breaks=0)
def test_shape_goes_into_a_dictionary_and_a_string():
    def fn(tensors):
        shapes = {name: tuple(t.shape) for name, t in tensors.items()}
        label = "x".join(str(n) for n in shapes["a"])
        return shapes, label, torch.zeros(shapes["a"]), sum(math.prod(s) for s in shapes.values())

    return fn, [({"a": torch.randn(*s), "b": torch.randn(2)},) for s in ((2, 3), (1,), (2, 3))]


@program(breaks=0)
def test_while_loop_halves_the_length():
    def fn(x):
        levels = []
        while x.shape[-1] > 1:
            x = x[..., ::2] + x[..., 1::2] if x.shape[-1] % 2 == 0 else x[..., :-1]
            levels.append(x.shape[-1])
        return x, levels

    return fn, sizes((8,), (7,), (1,), (2, 4), (8,))


@program(breaks=0)
def test_sizes_change_next_to_a_sparse_tensor():
    def fn(weights, x):
        return weights.to_dense().sum() + x * 2, weights @ x.new_ones(3, 2)

    return fn, [(torch.eye(3).to_sparse(), torch.ones(size)) for size in (3, 4, 5, 3)]


def test_number_of_elements_wraps_as_in_torch():
    def fixed(x, size):
        return x, size.numel()

    def live(x, n):
        return x, torch.Size((n, 2**31)).numel()

    compiled, compiled_live = (burnish.compile(fn, backend="eager") for fn in (fixed, live))
    for size in ((2, 3), (2**40, 2**40), (2**32, 2**31)):
        assert compiled(torch.ones(1), torch.Size(size))[1] == torch.Size(size).numel()
    for n in (1, 2, 3, 2**32, 2**33, 7):
        assert compiled_live(torch.ones(1), n)[1] == live(None, n)[1]


def test_sizes_of_tensors_that_are_given_by_name():
    square = torch.ones(3, 3)
    for fn in (lambda x: x * torch.numel(input=x), lambda x: x * torch.is_same_size(input=square, other=x)):
        compiled = burnish.compile(fn)
        for n in (2, 4, 5, 3, 6):
            torch.testing.assert_close(compiled(torch.ones(n, 3)), fn(torch.ones(n, 3)))
