"""A segment for symbolic sizes serves those for which its calls are the same; others get eager's results and errors."""

import pytest
import torch
import torch.nn.functional as F

import burnish
from burnish.capture.symbolic_sizes.size_box import SizeBox

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
