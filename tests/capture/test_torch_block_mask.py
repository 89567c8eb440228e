"""`create_block_mask` and `create_mask` of flex attention: one graph, and torch's own functions compiled directly."""

import pytest
import torch
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import create_block_mask, create_mask, flex_attention, noop_mask

import burnish

LENGTH = 300


@pytest.fixture(autouse=True)
def warned_already(monkeypatch):
    monkeypatch.setattr(flex, "_WARNINGS_SHOWN", {"flex_attention_performance"})
    torch.compiler.reset()  # eager compiles as well, and remembers all calls


def documents(limit):
    return torch.arange(LENGTH) // limit


def same_masks(found, expected):
    assert type(found) is type(expected) and found.shape == expected.shape
    for one, other in zip(found.as_tuple()[:-1], expected.as_tuple()[:-1], strict=True):
        if isinstance(one, torch.Tensor):
            assert torch.equal(one, other) and one.dtype == other.dtype and one.stride() == other.stride()
        else:
            assert one == other


@pytest.mark.parametrize("backend", ["eager", "burnish", lambda gm, inputs: gm.forward])
def test_a_block_mask_is_made_in_one_graph(backend):
    def fn(x, of):
        mask = create_block_mask(
            lambda b, h, q, k: (q >= k) & (of[q] == of[k]) & (h < 2), 2, 3, LENGTH, LENGTH, "cpu", BLOCK_SIZE=64
        )
        return mask, x + 1

    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for limit in (70, 10, 150):
        found, expected = compiled(torch.ones(2), documents(limit)), fn(torch.ones(2), documents(limit))
        same_masks(found[0], expected[0])
        at = torch.tensor(0), torch.tensor(0), torch.arange(LENGTH).view(-1, 1), torch.arange(LENGTH)
        assert torch.equal(found[0].mask_mod(*at), expected[0].mask_mod(*at))


def test_a_mask_that_is_made_and_used_in_one_graph():
    def fn(x, of):
        mask = create_block_mask(lambda b, h, q, k: of[q] == of[k], None, None, LENGTH, LENGTH, device="cpu")
        return flex_attention(x, x, x, block_mask=mask)

    compiled, x = burnish.compile(fn, fullgraph=True), torch.randn(1, 2, LENGTH, 16)
    for limit in (70, 10, 150):
        torch.testing.assert_close(compiled(x, documents(limit)), fn(x, documents(limit)))


def test_masks_lie_in_memory_as_in_eager():
    def fn(of):
        return (
            create_mask(lambda b, h, q, k: q >= k, 2, 3, 30, 20, "cpu"),
            create_mask(lambda b, h, q, k: (q >= k) & (b > h), 2, 3, 30, 20, "cpu"),
            create_mask(lambda b, h, q, k: of[q] == 0, 2, 3, 30, 20, "cpu"),
            create_mask(lambda s, b, h, q, k: torch.where(q > k, s, -float("inf")), 2, 3, 30, 20, "cpu"),
        )

    compiled = burnish.compile(fn, fullgraph=True)
    for limit in (5, 10, 15):
        for found, expected in zip(compiled(documents(limit)), fn(documents(limit)), strict=True):
            assert torch.equal(found, expected) and found.stride() == expected.stride()


@pytest.mark.parametrize("function", [noop_mask, lambda b, h, q, k: (q >= k).view(-1).any()])
def test_masks_that_are_not_computed_for_blocks_are_eagers(function):
    def fn(x):
        return create_mask(function, 2, 3, 30, 20, "cpu"), x + 1

    compiled = burnish.compile(fn)
    for _ in range(3):
        found, expected = compiled(torch.ones(2)), fn(torch.ones(2))
        assert torch.equal(found[0], expected[0]) and found[0].stride() == expected[0].stride()
    with pytest.raises(burnish.Unsupported, match="create_mask"):
        burnish.compile(fn, fullgraph=True)(torch.ones(2))


def test_a_branch_on_an_index_raises_as_in_eager():
    def fn(x):
        return create_mask(lambda b, h, q, k: q >= k if q > 2 else k > q, 1, 1, 30, 20, "cpu"), x

    compiled = burnish.compile(fn)
    for function in (fn, compiled, compiled):
        with pytest.raises(RuntimeError, match="data-dependent control flow"):
            function(torch.ones(2))


def test_torchs_functions_compiled_directly():
    attend = burnish.compile(flex_attention, fullgraph=True)
    make = burnish.compile(create_block_mask, fullgraph=True)
    x = torch.randn(1, 2, LENGTH, 16)
    for limit in (70, 10, 150):
        of = documents(limit)

        def same(b, h, q, k, of=of):
            return of[q] == of[k]

        mask, expected = (f(same, None, None, LENGTH, LENGTH, device="cpu") for f in (make, create_block_mask))
        same_masks(mask, expected)
        torch.testing.assert_close(attend(x, x, x, block_mask=mask), flex_attention(x, x, x, block_mask=expected))
