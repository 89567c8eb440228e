"""A segment for symbolic sizes serves those for which its calls are the same; others get eager's results and errors."""

import gc
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F

import burnish
from burnish import events
from burnish.backends.shapes_at_other_sizes import switches_kept
from burnish.capture.symbolic_sizes.verified_size_ranges import SizeBox

TABLE = torch.arange(24.0).view(6, 4)
SIZES = (8, 9, 11, 10, 5, 4, 3, 2, 6, 7, 40, 1500, 4, 3)

PROGRAMS = {
    "the shorter of two sides": lambda x: (x.diagonal(2) * 2, x.diagonal(2).shape[0]),
    "the shorter of two sides, seen in Python": lambda x: torch.ones(x.diagonal().shape[0]) * 2,
    "a remainder that is the size": lambda x: torch.zeros(x.shape[0] % 1000) + 1,
    "half of it": lambda x: x[: x.shape[0] // 2].sum(0) + x[: x.shape[0] // 2].shape[0],
    "windows": lambda x: (F.avg_pool1d(x.t()[None], 5), F.avg_pool1d(x.t()[None], 5).shape[-1]),
    "a convolution": lambda x: F.conv1d(x.t()[None], torch.ones(2, 4, 5)) * 2,
    "written into a part": lambda x: torch.zeros(9, 4)[: x.shape[0]].copy_(x) + 1,
    "added to the first five": lambda x: x.clone()[:5].add_(torch.ones(5, 4)),
    "a normalized whole": lambda x: F.layer_norm(x, (x.shape[0], 4)) if len(x) != 4 else x,
    "groups": lambda x: F.group_norm(x.t()[None].expand(1, 4, -1), 2) * 2,
    "a diagonal that is replaced": lambda x: x.diagonal_scatter(torch.ones(2), -2) * 2,
    "a part of a table, after its sum": lambda x: (
        (part := TABLE.tensor_split((2, len(x)))[1]).sum(0).shape,
        part.shape,
        part * 2,
    ),
    "the second of two parts": lambda x: [(*part.shape, part * 2) for part in TABLE.tensor_split((2, len(x)))],
    "a view by strides": lambda x: x.as_strided((4, 4), (4, 1)) * 2,
}


@pytest.mark.parametrize("backend", ["eager", "burnish"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.falls_back("sizes", "refused")
def test_sizes_where_the_program_is_another_one(name, backend):
    fn = PROGRAMS[name]
    effects = []

    def program(x):
        effects.append(len(x))
        return fn(x)

    with burnish.settings.patch(never_slower=False, segment_limit=100):
        compiled = burnish.compile(program, backend=backend)
        for size in SIZES:
            x = torch.randn(size, 4)
            effects.clear()
            try:
                expected = fn(x)
            except (RuntimeError, IndexError) as error:
                with pytest.raises(type(error)):
                    compiled(x)
            else:
                torch.testing.assert_close(compiled(x), expected, equal_nan=True)
            assert effects == [size]


def test_a_box_between_two_sizes_is_not_asked_inside(monkeypatch):
    asked = []
    tried = SizeBox.facts_at
    monkeypatch.setattr(SizeBox, "facts_at", lambda self, point: asked.append(point) or tried(self, point))
    compiled = burnish.compile(lambda x: (x.sin() + 1).sum(0), backend="eager")
    for size in (8, 9, 11, 100, 50, 20, 199, 75):
        compiled(torch.randn(size, 4))
    assert len(asked) <= 6, asked


def test_images_of_any_size_through_strided_convolutions_have_a_box(monkeypatch):
    """The size of a result is half of one, rounded up: no formula."""
    asked = []
    tried = SizeBox.facts_at
    monkeypatch.setattr(SizeBox, "facts_at", lambda self, point: asked.append(point) or tried(self, point))
    convolution = torch.nn.Conv2d(2, 2, 3, stride=2, padding=1)
    model = torch.nn.Sequential(convolution, torch.nn.ReLU(), convolution, torch.nn.AdaptiveAvgPool2d(1)).eval()
    compiled = burnish.compile(model, backend="eager")
    sizes = [(40, 50), (41, 52), (43, 55), (80, 120), (44, 58), (61, 53), (79, 99), (77, 60), (45, 101)]
    with torch.no_grad():
        for height, width in sizes:
            x = torch.randn(1, 2, height, width)
            torch.testing.assert_close(compiled(x), model(x))
    assert asked and not {(61, 53), (79, 99), (77, 60), (45, 101)} & set(asked)


def test_no_finalizer_runs_while_sizes_are_tried(monkeypatch):
    is_on = []
    tried = SizeBox.facts_at
    monkeypatch.setattr(SizeBox, "facts_at", lambda self, point: is_on.append(gc.isenabled()) or tried(self, point))
    compiled = burnish.compile(lambda x: x.unfold(0, 3, 2).sum(-1), backend="eager")
    for size in (8, 9, 11, 100):
        compiled(torch.randn(size))
    assert is_on and not any(is_on) and gc.isenabled()


def test_sizes_that_are_tried_do_not_warn():
    def program(x):
        return F.mse_loss(x, torch.zeros(1)), x.shape[0]

    compiled = burnish.compile(program, backend="eager")
    for size in (8, 9, 10, 50, 200, 45):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            compiled(torch.randn(size))
        if size > 9:
            assert len(found) == 1 and f"torch.Size([{size}])" in str(found[0].message)


def test_the_default_dtype_that_another_thread_sets_is_kept():
    with switches_kept():
        torch.set_default_dtype(torch.float64)
    try:
        assert torch.get_default_dtype() is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_sizes_without_a_number_are_refused(monkeypatch):
    """As where one that decides is a remainder by 0."""
    tried = SizeBox.values_at
    decisions = []
    found = SizeBox.found

    def values_at(self, point):
        return 1 // 0 if point[0] > 50 else tried(self, point)

    monkeypatch.setattr(SizeBox, "values_at", values_at)
    monkeypatch.setattr(SizeBox, "found", lambda self, point: decisions.append(found(self, point)) or decisions[-1])
    compiled = burnish.compile(lambda x: x.sin() + 1, backend="eager")
    for size in (8, 9, 11, 100):
        compiled(torch.randn(size))
    assert decisions[-1] is False


def test_nothing_is_traced_or_repeated_while_python_ends(monkeypatch):
    """Finalizers may call compiled functions then, and torch takes its tensors apart."""
    compiled = burnish.compile(lambda x: torch.relu(x) + 1, backend="eager")
    for n in (8, 9):
        compiled(torch.ones(n))
    traced = []
    stop = events.subscribe(lambda event: traced.append(event.kind), {"traced", "guards.sizes"})
    with monkeypatch.context() as patch:
        patch.setattr(sys, "is_finalizing", lambda: True)
        assert torch.equal(compiled(torch.ones(50)), torch.full((50,), 2.0))
    stop()
    assert traced == []
    assert torch.equal(compiled(torch.ones(50)), torch.full((50,), 2.0))
