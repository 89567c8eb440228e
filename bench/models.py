"""Real models with random weights, built from their configuration, and two plain functions: nothing is downloaded.

    module, args, kwargs = MODELS["bert"]()
    module, args, kwargs = MODELS["bert"](times=4)      # four times as many samples

Each builder returns a module in evaluation mode and the arguments of one call: images at the size that their network
was made for, batches for a machine with two cores. The same seed gives the same weights. `TRAINING` names those whose
`forward` returns a loss, `FUNCTIONS` those that are not modules. Each builder imports the libraries that it needs.
"""

from __future__ import annotations

import functools
import logging
import math
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Built = tuple[Callable, tuple, dict[str, Any]]
Build = Callable[..., Built]
MODELS: dict[str, Build] = {}
TRAINING = ("nanogpt",)
FUNCTIONS = ("sincos", "pointwise")


def model(name: str, among: dict[str, Build] = MODELS) -> Callable:
    def register(build: Callable[[int], Built]) -> Build:
        @functools.wraps(build)
        def seeded(times: int = 1) -> Built:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                module, args, kwargs = build(times)
                return module.eval() if isinstance(module, nn.Module) else module, args, kwargs

        among[name] = seeded
        return seeded

    return register


def tokens(vocabulary: int, batch: int, length: int) -> torch.Tensor:
    return torch.randint(5, vocabulary, (batch, length))


def images(size: int, batch: int) -> torch.Tensor:
    return torch.randn(batch, 3, size, size)


# -- functions ---------------------------------------------------------------------------------------------------------


def add_waves(x, y):
    return torch.sin(x) + torch.cos(y)


@model("sincos")
def sincos(times: int) -> Built:
    return add_waves, (torch.randn(times * 512, 512), torch.randn(times * 512, 512)), {}


def gate(x, y, z):
    """Five pointwise operators: eager goes over memory five times, a fused kernel once."""
    return torch.sigmoid(x) * y + torch.relu(z) - x


@model("pointwise")
def pointwise(times: int) -> Built:
    return gate, tuple(torch.randn(times * 1024, 1024) for _ in range(3)), {}


# -- transformers ------------------------------------------------------------------------------------------------------


def transformers() -> Any:
    """The library, set not to access the network."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers

    logging.getLogger("transformers").setLevel(logging.ERROR)
    return transformers


@model("bert")
def bert(times: int) -> Built:
    hf = transformers()
    config = hf.BertConfig()
    inputs = tokens(config.vocab_size, times, 64)
    return hf.BertModel(config), (), {"input_ids": inputs, "attention_mask": torch.ones_like(inputs)}


@model("gpt2")
def gpt2(times: int) -> Built:
    hf = transformers()
    config = hf.GPT2Config()
    return hf.GPT2LMHeadModel(config), (), {"input_ids": tokens(config.vocab_size, times, 64), "use_cache": False}


@model("llama")
def llama(times: int) -> Built:
    hf = transformers()
    config = hf.LlamaConfig(
        vocab_size=2000,
        hidden_size=128,
        intermediate_size=352,
        num_hidden_layers=12,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=256,
    )
    return hf.LlamaForCausalLM(config), (), {"input_ids": tokens(2000, 2 * times, 48), "use_cache": False}


@model("t5")
def t5(times: int) -> Built:
    hf = transformers()
    config = hf.T5Config(
        vocab_size=32128, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, decoder_start_token_id=0
    )
    return (
        hf.T5ForConditionalGeneration(config),
        (),
        {"input_ids": tokens(32128, times, 48), "decoder_input_ids": tokens(32128, times, 16), "use_cache": False},
    )


# -- vision ------------------------------------------------------------------------------------------------------------


@model("vit")
def vit(times: int) -> Built:
    import timm

    return timm.create_model("vit_small_patch16_224", pretrained=False), (images(224, times),), {}


def torchvision_model(name: str, times: int, size: int = 224, **settings: Any) -> Built:
    """Untrained, some of these networks let activations fade to 1e-14, and with them an error in any of their layers.
    Weights that keep the magnitude make errors visible."""
    import torchvision

    network = torchvision.models.get_model(name, weights=None, **settings)
    for part in network.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_in", nonlinearity="relu")
    return network, (images(size, times),), {}


@model("resnet18")
def resnet18(times: int) -> Built:
    return torchvision_model("resnet18", times)


@model("resnet50")
def resnet50(times: int) -> Built:
    return torchvision_model("resnet50", times)


@model("densenet121")
def densenet121(times: int) -> Built:
    return torchvision_model("densenet121", times)


@model("inception_v3")
def inception_v3(times: int) -> Built:
    # Without an explicit `init_weights` it warns that the default will change.
    return torchvision_model("inception_v3", times, size=299, init_weights=False)


@model("mobilenet_v2")
def mobilenet_v2(times: int) -> Built:
    return torchvision_model("mobilenet_v2", times)


@model("mobilenet_v3")
def mobilenet_v3(times: int) -> Built:
    return torchvision_model("mobilenet_v3_small", times)


@model("efficientnet_b0")
def efficientnet_b0(times: int) -> Built:
    return torchvision_model("efficientnet_b0", times)


@model("convnext_tiny")
def convnext_tiny(times: int) -> Built:
    # Its blocks are initialized to a millionth of what they are added to; those of a trained model are larger.
    return torchvision_model("convnext_tiny", times, layer_scale=0.1)


@model("swin_t")
def swin_t(times: int) -> Built:
    return torchvision_model("swin_t", times)


# -- our own -----------------------------------------------------------------------------------------------------------


class FeedForward(nn.Sequential):
    """The feed-forward half of a transformer alone, with a normalisation before each product."""

    def __init__(self, width: int = 512, layers: int = 3):
        super().__init__(
            *(
                layer
                for _ in range(layers)
                for layer in (nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            )
        )


@model("mlp")
def mlp(times: int) -> Built:
    return FeedForward(), (torch.randn(64 * times, 512),), {}


class Tagger(nn.Module):
    """An LSTM over tokens, with a label for each."""

    def __init__(self, vocabulary: int = 1000, width: int = 128, labels: int = 17):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.label = nn.Linear(2 * width, labels)

    def forward(self, text, state=None):
        out, state = self.lstm(self.embed(text), state)
        return F.log_softmax(self.label(out), dim=-1), state


@model("lstm")
def lstm(times: int) -> Built:
    return Tagger(), (tokens(1000, 4 * times, 32),), {}


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def attend(self, x):
        batch, length, width = x.size()
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        out = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        return self.proj(out.transpose(1, 2).contiguous().view(batch, length, width))

    def forward(self, x):
        x = x + F.dropout(self.attend(self.norm1(x)), self.dropout, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)))), self.dropout, self.training)


class NanoGPT(nn.Module):
    """A small GPT as people write their own: weights tied, the loss computed in `forward`."""

    def __init__(
        self,
        vocabulary: int = 256,
        length: int = 64,
        width: int = 128,
        heads: int = 4,
        layers: int = 4,
        dropout: float = 0.1,
    ):
        super().__init__()
        self.length = length
        self.transformer = nn.ModuleDict(
            {
                "token": nn.Embedding(vocabulary, width),
                "position": nn.Embedding(length, width),
                "drop": nn.Dropout(dropout),
                "norm": nn.LayerNorm(width, bias=False),
                "blocks": nn.ModuleList([Block(width, heads, dropout) for _ in range(layers)]),
            }
        )
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.transformer.token.weight = self.head.weight
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                deep = name.endswith(("proj.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * layers) if deep else 0.02)

    def forward(self, text, targets=None):
        length = text.size(1)
        assert length <= self.length, f"cannot read {length} tokens, at most {self.length}"
        position = torch.arange(length, dtype=torch.long, device=text.device)
        x = self.transformer.drop(self.transformer.token(text) + self.transformer.position(position))
        for block in self.transformer.blocks:
            x = block(x)
        x = self.transformer.norm(x)
        if targets is None:
            return self.head(x[:, [-1], :]), None
        logits = self.head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


@model("nanogpt")
def nanogpt(times: int) -> Built:
    return NanoGPT(), (tokens(256, 4 * times, 64), tokens(256, 4 * times, 64)), {}


class Twice(nn.Sequential):
    def __init__(self, inner: int, outer: int):
        super().__init__(
            *(
                layer
                for width in (inner, outer)
                for layer in (
                    nn.Conv2d(width, outer, 3, padding=1, bias=False),
                    nn.BatchNorm2d(outer),
                    nn.ReLU(inplace=True),
                )
            )
        )


class UNet(nn.Module):
    """Downsampling, upsampling, and a skip connection at each level."""

    def __init__(self, width: int = 16, levels: int = 3, classes: int = 5):
        super().__init__()
        widths = [width * 2**i for i in range(levels + 1)]
        self.down = nn.ModuleList(Twice(a, b) for a, b in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in zip(widths, widths[1:], strict=False))
        self.merge = nn.ModuleList(Twice(2 * a, a) for a in widths[:-1])
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        across = []
        for step in self.down[:-1]:
            x = step(x)
            across.append(x)
            x = F.max_pool2d(x, 2)
        x = self.down[-1](x)
        for up, merge in zip(reversed(self.up), reversed(self.merge), strict=True):
            x, other = up(x), across.pop()
            if x.shape != other.shape:
                x = F.interpolate(x, size=other.shape[2:], mode="nearest")
            x = merge(torch.cat([other, x], dim=1))
        return self.out(x)


@model("unet")
def unet(times: int) -> Built:
    return UNet(), (images(100, times),), {}
