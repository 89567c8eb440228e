"""`as_strided` of intermediates: their memory is laid out as in eager as far as the view shows it."""

import itertools

import pytest
import torch

import burnish
from burnish.runtime.eager.eager_primitives import view
from burnish.settings import patch
from burnish.tensors.tensor_types import TensorType
from burnish.tensors.views.as_strided_views import Strided, line_of
from burnish.tensors.views.view_maps import view_type

from ..recorded_events import recorded
from .compare_calls import equal_calls

MADE = {
    "a row of it": lambda x: (x + 1).as_strided((3,), (1,), 2),
    "every other element": lambda x: (x + 1).as_strided((3,), (2,)) * 2,
    "elements before a part": lambda x: (x + 1)[1:].as_strided((3,), (1,), 0),
    "elements after the start of a part": lambda x: (x + 1)[1:, 1:].as_strided((2, 2), (3, 1)),
    "a transposed layout": lambda x: (x.t() + 1).as_strided((2, 3), (6, 2), 1),
    "windows": lambda x: (x + 1).as_strided((5, 4), (2, 1)).softmax(-1),
    "windows in two directions": lambda x: (x + 1).as_strided((2, 3, 2, 2), (6, 1, 6, 1)).sum((2, 3)),
    "the same again and again": lambda x: (x + 1).as_strided((3, 4), (0, 2)),
    "of a flipped copy": lambda x: x.flip(1).as_strided((4,), (3,), 1) * 2,
    "a copy": lambda x: torch.as_strided_copy(x.t() + 1, (3, 2), (3, 2), 1),
    "a copy of windows": lambda x: torch.as_strided_copy(x.t() + 1, (3, 2), (1, 1), 1),
    "a part of it beside it": lambda x: ((y := x + 1), y.as_strided((3,), (1,), 2)),
    "windows beside it": lambda x: ((y := x + 1), y.as_strided((3, 1, 2), (1, 7, 1))),
    "written through": lambda x: ((y := x + 1), y.as_strided((3,), (2,), 1).mul_(x[0, 0]), y * 1)[2],
    "read after a write": lambda x: ((y := x + 1), (v := y.as_strided((3,), (2,), 1)), y.mul_(2), v + 1)[3],
}


@pytest.mark.parametrize("name", MADE)
def test_a_view_shows_the_memory_that_eager_shows(name):
    equal_calls(MADE[name], torch.randn(4, 6), ways=("native", "library"))


GRADIENTS = (
    "a row of it",
    "elements before a part",
    "elements after the start of a part",
    "windows",
    "a transposed layout",
    "a copy of windows",
    "written through",
)


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_go_where_eagers_go(name):
    fn, x = MADE[name], torch.randn(4, 6, requires_grad=True)
    with recorded("lower.refused", datum="text") as refusals, patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(fn)
        compiled(x)
        (found,) = torch.autograd.grad(compiled(x).sin().sum(), x)
    torch.testing.assert_close(found, *torch.autograd.grad(fn(x).sin().sum(), x))
    assert not refusals


@pytest.mark.falls_back("refused", only=r"1")
@pytest.mark.parametrize("offset", [None, 1])
def test_gradients_of_an_input_with_another_storage_offset_in_a_later_call(offset):
    def fn(x):
        return torch.as_strided(x, (3,), (2,), offset) * 2

    compiled, memory = burnish.compile(fn), torch.randn(16)
    for begin in (0, 1, 0, 1):
        x = memory[begin : begin + 12].view(3, 4).requires_grad_()
        torch.testing.assert_close(*(torch.autograd.grad(f(x).sum(), x)[0] for f in (compiled, fn)))


@pytest.mark.falls_back("refused")
def test_a_view_reads_outside_its_base_but_no_gradient_goes_there():
    def fn(x):
        whole = x * 2
        return whole, whole[:, 1:2].as_strided((3,), (1,))

    compiled, x = burnish.compile(fn), torch.randn(3, 4, requires_grad=True)
    compiled(x)
    tangents = [torch.zeros(3, 4), torch.ones(3)]
    torch.testing.assert_close(*(torch.autograd.grad(f(x), x, tangents)[0] for f in (compiled, fn)))


def test_maps_say_the_same_as_strides():
    line, seen = torch.arange(20), 0
    for size in itertools.product((1, 2, 3), repeat=3):
        for stride in itertools.product((0, 1, 2, 3, 7), repeat=3):
            for offset in (0, 1, 4):
                shown = Strided(size, stride, offset)
                maps = shown.maps(20)
                if maps is not None:
                    assert torch.equal(view(line, maps), line.as_strided(size, stride, offset)), shown
                    made = view_type(maps, TensorType.of(line))
                    assert made is not None and made.shape == size
                    assert all(a == b for n, a, b in zip(size, made.stride, stride, strict=True) if n != 1), shown
                    seen += 1
    assert seen > 500


def test_a_dense_tensor_as_a_line():
    x = torch.arange(24).view(2, 3, 4).permute(2, 0, 1)
    assert view(x, line_of(TensorType.of(x))).tolist() == list(range(24))
