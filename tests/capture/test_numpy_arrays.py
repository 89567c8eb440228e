"""NumPy arrays made from constants in captured functions: constants until something may have written to them."""

import math

import numpy as np
import pytest
import torch

import burnish

from .caller_programs import program_with_caller
from .harness import program


@program(breaks=0)
def test_tensors_are_made_of_them():
    def fn(x):
        n = x.shape[-1]
        window = torch.from_numpy(np.linspace(0, 1, n).astype(np.float32))
        table = torch.tensor(np.arange(n * 2).reshape(2, n) % 3)
        row = torch.as_tensor(np.array([0.5] * n), dtype=torch.float64)
        return x * window, table, row, window.dtype, row.stride(), torch.tensor(np.eye(2)[::-1].copy())

    return fn, [(torch.randn(2, n),) for n in (3, 3, 4, 3)]


@program(breaks=0)
def test_numbers_are_read_out_of_them():
    def fn(x):
        weights = np.array([0.2, 0.3, 0.5])
        total = 0
        for weight in weights:
            total = total + x * weight
        for rate in np.linspace(0, 0.5, 3).tolist():
            total = total + rate
        last = weights[-1] * len(weights) + weights[1:].sum() + weights.max()
        return total * last, weights.shape, weights.dtype, (weights > 0.25).any(), weights.T.ndim, int(weights.argmax())

    return fn, lambda i: (torch.randn(3),)


@program(breaks=0)
def test_arrays_are_new_objects_in_every_call():
    kept = []

    def fn(x):
        made = np.arange(3) * 2
        kept.append(made)
        return x + 1, made, made * 1.5, [np.zeros((2, 2))]

    return fn, lambda i: (torch.randn(3),), kept


@program_with_caller
def test_the_caller_may_write_to_what_comes_back():
    def fn(x):
        made = np.ones(3)
        return x + torch.tensor(made), made

    def caller(fn, x):
        out, made = fn(x)
        before = made.copy()
        made[:] = 7
        return out, before, made

    return fn, caller, lambda i: (torch.randn(3),)


@program_with_caller
def test_memory_that_torch_shares():
    def fn(x):
        made = np.zeros(3, dtype=np.float32)
        shown = torch.from_numpy(made)
        shown.add_(x)
        return made, shown

    def caller(fn, x):
        made, shown = fn(x)
        shown[0] = 9
        return made, shown, np.shares_memory(made, shown.numpy())

    return fn, caller, lambda i: (torch.randn(3),)


@program
def test_arrays_that_are_written_to():
    def fn(x):
        a = np.zeros(4)
        a[1] = 5
        a += 1
        b = np.arange(4.0)
        np.add(b, 1, out=b)
        b[::2] *= 3
        a.sort()
        return x + torch.from_numpy(a) + torch.tensor(b), a, b

    return fn, lambda i: (torch.randn(4),)


@program
def test_writing_through_a_view():
    def fn(x):
        a = np.arange(6.0)
        b = a.reshape(2, 3)
        c = a[1:4]
        c[0] = 10
        return x * torch.tensor(b), a, b.sum(), c

    return fn, lambda i: (torch.randn(3),)


@program_with_caller(breaks=0)
def test_views_stay_views():
    def fn(x):
        a = np.arange(6.0)
        b = a.reshape(2, 3)
        return x + 1, b.T[1:], a, b

    def caller(fn, x):
        out, c, a, b = fn(x)
        a[2] = 9
        c[0, 1] = 7
        return out, a, b, c, c.strides

    return fn, caller, lambda i: (torch.randn(3),)


@program
def test_memory_is_shared_and_then_asked_for():
    def fn(x):
        a = np.ones(3)
        t = torch.from_numpy(a)
        t.mul_(4)
        total = a.sum()
        a[0] = 2
        return t * x, float(total)

    return fn, lambda i: (torch.randn(3),)


@program
def test_arrays_around_a_break():
    def fn(x):
        a = np.arange(3.0)
        b = a * 2
        if x.sum() > 0:
            a = a + 1
        t = torch.from_numpy(a)
        return t + x, b, a[0]

    return fn, lambda i: (torch.full((3,), 1.0 - 2 * (i % 2)),)


@program
def test_arrays_of_the_program_are_no_constants():
    held = np.arange(3.0)

    def fn(x, given):
        held[0] += 1
        return x * torch.tensor(held), x + torch.from_numpy(given), held.sum() + given.max()

    return fn, lambda i: (torch.randn(3), np.arange(3.0) + i), held


@pytest.mark.parametrize("make,code", [(lambda: np.random.rand(3), "B207"), (lambda: np.array([object()]), "B201")])
def test_non_constants_break_the_graph(make, code):
    with pytest.raises(burnish.Unsupported, match=code):
        burnish.compile(lambda x: (x, make()), backend="eager", fullgraph=True)(torch.ones(3))


def test_tensors_made_of_them_are_compiled():
    def fn(x):
        return x * torch.from_numpy(np.arange(4.0)) + torch.tensor(np.ones(4))

    compiled = burnish.compile(fn, fullgraph=True)
    for _ in range(3):
        x = torch.randn(4, dtype=torch.float64)
        torch.testing.assert_close(compiled(x), x * torch.arange(4.0, dtype=torch.float64) + 1)


BACKWARDS = np.ones((2, 2))[::-1]


@pytest.mark.parametrize(
    ("convert", "arrays"),
    [
        (torch.from_numpy, [BACKWARDS, np.eye(2), BACKWARDS.copy()]),
        (torch.as_tensor, [BACKWARDS, np.eye(2), BACKWARDS.copy()]),
        (torch.tensor, [np.array([1, "a"], dtype=object), np.ones(2), np.zeros(2)]),
        (lambda buffer: torch.frombuffer(buffer, dtype=torch.int32), [bytearray(3), bytearray(4), bytearray(8)]),
        (lambda index: torch.tensor([5, 6][index]), [np.array(0.5), np.array(0), np.array(1)]),
    ],
)
def test_an_error_about_an_array_is_not_that_of_later_arrays(convert, arrays):
    def fn(array):
        try:
            return convert(array)
        except (TypeError, ValueError) as error:
            return str(error)

    compiled = burnish.compile(fn)
    for array in (*arrays, *arrays):
        want, got = fn(array), compiled(array)
        assert torch.equal(got, want) if isinstance(want, torch.Tensor) else got == want


READERS = {
    "added": lambda x, a: x + a.max(),
    "taken from": lambda x, a: a.max() - x,
    "root": lambda x, a: x * math.sqrt(a.sum()),
    "two numbers": lambda x, a: x * math.hypot(a[0], a[2]) + math.atan2(1.0, a[2]),
    "text": lambda x, a: (x * 2, f"{a.max():.2f}"),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_break_at_the_number_of_an_array_comes_before_the_operation_that_takes_it(read):
    fn = burnish.compile(read, backend=lambda graph, inputs: graph.forward)
    for k in range(4):
        x, a = torch.ones(2), np.array([1.0, 2.0, k])
        found, expected = fn(x, a), read(x, a)
        assert type(found) is type(expected) and str(found) == str(expected)
