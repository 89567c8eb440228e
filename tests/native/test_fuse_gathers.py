"""Fused gathers and values computed from indices: computed where they are used."""

import pytest
import torch
from torch.nn import functional as F

import burnish
from burnish.schedule.plan_steps import Call
from burnish.settings import patch

from ..recorded_events import recorded
from .compare_calls import equal_calls

PICKS = {
    "embedding": lambda w, i: F.embedding(i, w) * 2,
    "embedding, summed": lambda w, i: F.embedding(i, w).sum(-1),
    "embedding and norm": lambda w, i: (e := F.embedding(i, w)) + F.layer_norm(e, (8,)),
    "embedding of a softmax": lambda w, i: F.embedding(i, torch.softmax(w, 1)).exp(),
    "embedding, turned": lambda w, i: F.embedding(i, w).transpose(0, 2).contiguous(),
    "embedding, cut and turned": lambda w, i: F.embedding(i, w)[1:, :, ::2].reshape(-1, 6).t().exp(),
    "embedding, seen twice": lambda w, i: (e := F.embedding(i, w)).mT.sin() + e.mT[:, 1:2] + e.flatten().sum(),
    "embedding whose view is returned": lambda w, i: ((e := F.embedding(i, w).mT), e + 1),
    "embedding that is returned": lambda w, i: F.embedding(i, w),
    "rows": lambda w, i: w[i].relu(),
    "rows from the end": lambda w, i: w[-1 - i] + 1,
    "columns": lambda w, i: w[:, i % 8] * 3,
    "rows of a turned tensor": lambda w, i: w.t()[i % 8].exp(),
    "rows of a slice": lambda w, i: w[2:][i % 8].exp(),
    "rows backwards": lambda w, i: w.flip(0)[i].exp(),
    "selected": lambda w, i: w.index_select(0, i[0]) * 2,
    "selected columns": lambda w, i: w.index_select(1, i[0] % 8) * 2,
    "gathered": lambda w, i: w.gather(1, i % 8).sigmoid(),
    "gathered in front": lambda w, i: w.gather(0, i).sigmoid(),
    "gathered one": lambda w, i: w.log_softmax(1).gather(1, i[:, :1] % 8).neg().mean(),
    "picked by what is computed": lambda w, i: w[w.argmax(0)] + w.argmax(1).sum(),
    "picked twice": lambda w, i: F.embedding(i, w) + w[i] * F.embedding(i.flip(0), w),
    "joined": lambda w, i: torch.cat([w[i], w[i] * 2], -1).tanh(),
    "two indices": lambda w, i: w[i, i % 8] * 2,
    "whole numbers of 32 bits": lambda w, i: w[i.int()] * 2,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", PICKS)
def test_gathered_elements_are_eagers(name, dtype):
    if not dtype.is_floating_point and any(word in name for word in ("norm", "softmax", "one")):
        pytest.skip("of floats")
    torch.manual_seed(0)
    equal_calls(PICKS[name], (torch.randn(10, 8) * 3).to(dtype), torch.randint(0, 10, (5, 3)))


PLACES = {
    "triangles": lambda x: (x.tril(), x.triu(1) * 2, x.tril(-3) + x.triu(5)),
    "causal": lambda x: x.masked_fill(torch.ones(6, 7, dtype=torch.bool).triu(1), -1e9),
    "asked directly": lambda x: torch.where(torch.arange(6)[:, None] >= torch.arange(7), x, 0.0),
    "ranges": lambda x: x * torch.arange(7) + torch.arange(3, 21, 3, dtype=torch.float32)[:, None],
    "constants": lambda x: x * torch.full((7,), 2.5) + torch.ones(6, 1) - torch.zeros(()),
    "unit": lambda x: x[:, :6] @ torch.ones(6, 6) + torch.eye(6) * x[:, :6],
    "like another": lambda x: (torch.zeros_like(x) + x, torch.full_like(x, 3) * x, x.new_ones(7) + x),
    "like what is computed": lambda x: torch.ones_like(x.exp() * 2),
    "returned": lambda x: (torch.zeros(3, 2), torch.arange(5), torch.eye(3), torch.full_like(x, 2)),
    "written to": lambda x: ((z := torch.zeros(6, 7))[1:3].copy_(x[:2]), z.add_(1), z),
    "of other dtypes": lambda x: (
        torch.arange(7, dtype=torch.int32) * x.int(),
        torch.ones(7, dtype=torch.bool) & (x > 0),
    ),
    "half steps": lambda x: torch.arange(0, 3.5, 0.5) + x,
    "turned": lambda x: torch.arange(6).flip(0)[:, None] + x,
    "as many": lambda x: (x.argmax(1)[:, None] == torch.arange(7)).float(),
    "like transposed": lambda x: torch.zeros_like(x.t()) + 1,
}


@pytest.mark.parametrize("name", PLACES)
def test_places_and_constants_are_eagers(name):
    torch.manual_seed(0)
    equal_calls(PLACES[name], torch.randn(6, 7))


@pytest.mark.parametrize("index", [10, -1, -11, 1 << 40])
@pytest.mark.parametrize(
    "pick",
    [
        lambda w, i: F.embedding(i, w) * 2,
        lambda w, i: w.index_select(0, i) + 1,
        lambda w, i: w.gather(0, i[:, None]).exp(),
        lambda w, i: w[i].exp(),
    ],
    ids=["embedding", "index_select", "gather", "index"],
)
def test_index_out_of_range_raises_eagers_error(pick, index):
    equal_calls(pick, torch.randn(10, 8), torch.tensor([1, index, 2]))


@pytest.mark.parametrize(
    "pick", [lambda w, i: F.embedding(i, w) * 2, lambda w, i: w[i].exp()], ids=["embedding", "index"]
)
def test_index_that_goes_out_of_range_later_is_detected(pick):
    weight, index = torch.randn(10, 8), torch.tensor([1, 9, 2])
    with torch.no_grad(), patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(pick)
        for _ in range(3):
            torch.testing.assert_close(compiled(weight, index), pick(weight, index))
        with pytest.raises(IndexError):
            compiled(weight, index + 1)
        torch.testing.assert_close(compiled(weight, index), pick(weight, index))


class Residual(torch.nn.Module):
    """The gathered rows are normalised, and added to a product of the result."""

    def __init__(self):
        super().__init__()
        self.pick, self.norm, self.mix = torch.nn.Embedding(40, 64), torch.nn.LayerNorm(64), torch.nn.Linear(64, 64)

    def forward(self, i):
        e = self.pick(i)
        return e + self.mix(self.norm(e))


def test_other_addend_of_a_product_is_stored_by_the_loops_that_read_it(own_kernels_only):
    model = Residual()
    with torch.no_grad(), recorded("loops", datum="plan") as plans:
        compiled = burnish.compile(model)
        for _ in range(3):
            i = torch.randint(0, 40, (6, 5))
            torch.testing.assert_close(compiled(i), model(i))
        called = [step.node.op.name for plan in plans for step in plan.steps if isinstance(step, Call)]
        assert "run" in called and "aten.embedding.default" not in called
        with pytest.raises(IndexError):
            compiled(i + 40)


def test_repeats_with_a_given_output_size_are_compiled():
    def fn(x, repeats):
        return torch.repeat_interleave(x * 2, repeats, 0, output_size=6).sin()

    x = torch.randn(3, 4)
    for repeats in ([1, 2, 3], [0, 6, 0]):
        equal_calls(fn, x, torch.tensor(repeats), ways=("native", "library"))
    equal_calls(fn, x, torch.tensor([1, 1, 1]), ways=("native", "library", "refused", "views"))  # an error of eager's
