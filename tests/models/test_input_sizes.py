"""Real models with inputs of many sizes: eager's results, at most three compilations.

python -m pytest -m slow tests/models/test_input_sizes.py
"""

import os

import pytest
import torch

import burnish

from ..recorded_events import recorded

os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytestmark = pytest.mark.slow

NEAR = 1e-4
MOST = 3


@pytest.fixture
def segments():
    with recorded("segment") as seen:
        yield seen


def assert_near(found, wanted):
    assert found.shape == wanted.shape
    assert (found.double() - wanted.double()).norm() <= NEAR * wanted.double().norm()


def in_random_order(least, most, count):
    """Among them the ends, and one."""
    sizes = [least, most, *torch.randint(least, most + 1, (count - 2,)).tolist()]
    return [sizes[k] for k in torch.randperm(count).tolist()]


@pytest.mark.parametrize("name", ["Bert", "GPT2"])
def test_24_lengths(name, segments):
    import transformers

    model = getattr(transformers, f"{name}Model")(getattr(transformers, f"{name}Config")(use_cache=False)).eval()
    compiled = burnish.compile(model)
    with torch.no_grad():
        for length in in_random_order(1, 512, 24):
            ids = torch.randint(0, 1000, (1, length))
            assert_near(compiled(ids).last_hidden_state, model(ids).last_hidden_state)
    assert len(segments) <= MOST


def test_resnet_with_batches_of_1_to_64(segments):
    import torchvision

    model = torchvision.models.resnet18().eval()
    compiled = burnish.compile(model)
    with torch.no_grad():
        for batch in in_random_order(1, 64, 12):
            x = torch.randn(batch, 3, 96, 96)
            assert_near(compiled(x), model(x))
    assert len(segments) <= MOST


def test_gpt2_writes_200_tokens_over_a_growing_cache(segments):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=1000, bos_token_id=0, eos_token_id=0)).eval()
    prompt = torch.randint(0, 1000, (1, 16))

    def written(run):
        out, tokens = run(prompt, use_cache=True), []
        for _ in range(200):
            tokens.append(out.logits[:, -1:].argmax(-1))
            out = run(tokens[-1], past_key_values=out.past_key_values, use_cache=True)
        return torch.cat(tokens, 1)

    with torch.no_grad():
        assert torch.equal(written(burnish.compile(model)), written(model))
    assert len(segments) <= MOST
