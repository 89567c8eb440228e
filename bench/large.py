"""Models of a size that is usual on GPUs, with random weights like those of `bench.models`.

    work = Workload.of("llama_1b", "inference", device="cuda", dtype="bfloat16")

They are not part of "all models", because one call takes seconds on two cores. The builders make tensors on the default
device, so that a billion weights are generated where they will be used. `resnet50`, `bert` and `gpt2` of `bench.models`
already have the usual size; `--batch 32` makes their batches large.
"""

from __future__ import annotations

from typing import Any

import torch

from .models import Build, Built, images, model, tokens, transformers

LARGE: dict[str, Build] = {}

LLAMA_1B: dict[str, Any] = dict(
    vocab_size=128256,
    hidden_size=2048,
    intermediate_size=8192,
    num_hidden_layers=16,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=64,
    max_position_embeddings=4096,
    tie_word_embeddings=True,
)
"""The shape of Llama 3.2 with 1.2 billion parameters."""


@model("vit_b", LARGE)
def vit_b(times: int) -> Built:
    import torchvision

    return torchvision.models.vit_b_16(weights=None), (images(224, times),), {}


@model("bert_512", LARGE)
def bert_512(times: int) -> Built:
    """BERT-base on texts of its maximal length."""
    hf = transformers()
    config = hf.BertConfig()
    inputs = tokens(config.vocab_size, times, 512)
    return hf.BertModel(config), (), {"input_ids": inputs, "attention_mask": torch.ones_like(inputs)}


@model("gpt2_1024", LARGE)
def gpt2_1024(times: int) -> Built:
    hf = transformers()
    config = hf.GPT2Config()
    return hf.GPT2LMHeadModel(config), (), {"input_ids": tokens(config.vocab_size, times, 1024), "use_cache": False}


@model("llama_1b", LARGE)
def llama_1b(times: int) -> Built:
    hf = transformers()
    config = hf.LlamaConfig(**LLAMA_1B)
    return hf.LlamaForCausalLM(config), (), {"input_ids": tokens(config.vocab_size, times, 128), "use_cache": False}
