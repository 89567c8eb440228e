"""Models of transformers with gradient checkpointing: one graph, eager's gradients, and less is saved."""

import pytest
import torch

import burnish
from burnish.settings import patch

SIZES = {
    "num_hidden_layers": 3,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "vocab_size": 50,
}


def llama(transformers):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, attention_dropout=0.1))


def bert(transformers):
    return transformers.BertForSequenceClassification(transformers.BertConfig(**SIZES))


@pytest.mark.parametrize("make", [llama, bert])
def test_gradient_checkpointing_is_part_of_the_graph(make):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = make(transformers).train()
    words = torch.randint(0, 50, (2, 16))
    labels = words if make is llama else torch.tensor([0, 1])
    saved = []
    with patch(never_slower=False, on_error="raise", eager_random=True):
        for checkpoints in (False, True):
            if checkpoints:
                model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

            def loss_of(words, labels):
                return model(input_ids=words, labels=labels).loss

            compiled = burnish.compile(loss_of, fullgraph=True)
            for seed in range(3):
                want, got = (trained(model, run, words, labels, seed) for run in (loss_of, compiled))
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)
            kept = compiled(words, labels).grad_fn.kept
            saved.append(sum({x.data_ptr(): x.nbytes for x in kept if isinstance(x, torch.Tensor)}.values()))
    assert saved[1] < saved[0] / 2


def trained(model, run, words, labels, seed):
    torch.manual_seed(seed)
    model.zero_grad()
    loss = run(words, labels)
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
