"""Small models of many families, built from their configurations with random weights.

    module, kwargs = MODELS["llama"]()

Half a hundred of transformers' and those of torchvision. What they compute does not matter; that capture and compiler
meet the code of many authors does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Build = Callable[[], tuple[torch.nn.Module, dict[str, Any]]]
Inputs = Callable[[], dict[str, Any]]

WORDS, LENGTH = 100, 12
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
TEXT = {**SMALL, "vocab_size": WORDS}
SHORT = {"n_layer": 2, "n_head": 4, "vocab_size": WORDS}
PATCHES = {"image_size": 32, "patch_size": 8}
GROUPED = {**TEXT, "num_key_value_heads": 2}


def words(length: int = LENGTH, batch: int = 2) -> torch.Tensor:
    return torch.randint(5, WORDS - 10, (batch, length))


def text() -> dict[str, Any]:
    ids = words()
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def only_words() -> dict[str, Any]:
    return {"input_ids": words()}


def two_texts() -> dict[str, Any]:
    return {"input_ids": words(), "decoder_input_ids": words(7)}


def image(size: int = 32) -> Inputs:
    return lambda: {"pixel_values": torch.randn(2, 3, size, size)}


def speech() -> dict[str, Any]:
    return {"input_features": torch.randn(1, 80, 100), "decoder_input_ids": words(6, 1)}


def sound() -> dict[str, Any]:
    return {"input_values": torch.randn(1, 4000)}


def series() -> dict[str, Any]:
    return {"past_values": torch.randn(2, 32, 3)}


def of(name: str, model: str = "Model", inputs: Inputs = text, **settings: Any) -> Build:
    """transformers' `{name}{model}` with a `{name}Config`."""

    def build() -> tuple[torch.nn.Module, dict[str, Any]]:
        import transformers

        config = getattr(transformers, f"{name}Config")(**settings)
        config.use_cache = False
        return getattr(transformers, f"{name}{model}")(config), inputs()

    return build


CODER = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "vocab_size": WORDS,
    "d_model": 32,
}
CAUSAL, STAGES = "ForCausalLM", {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4}

MODELS: dict[str, Build] = {
    # One direction after the other: encoders,
    "bert": of("Bert", **TEXT),
    "roberta": of("Roberta", "ForMaskedLM", **TEXT),
    "ernie": of("Ernie", **TEXT),
    "distilbert": of("DistilBert", dim=32, n_layers=2, n_heads=4, hidden_dim=64, vocab_size=WORDS),
    "albert": of("Albert", embedding_size=16, **TEXT),
    "mpnet": of("MPNet", **TEXT),
    "electra": of("Electra", "ForPreTraining", embedding_size=16, **TEXT),
    "deberta": of("DebertaV2", **TEXT),
    "deberta, relative": of("DebertaV2", relative_attention=True, pos_att_type=["p2c", "c2p"], **TEXT),
    "squeezebert": of("SqueezeBert", embedding_size=32, **TEXT),
    "roformer": of("RoFormer", embedding_size=32, **TEXT),
    "xlnet": of("XLNet", d_model=32, n_layer=2, n_head=4, d_inner=64, vocab_size=WORDS),
    "funnel": of("Funnel", block_sizes=[1, 1], d_model=32, n_head=4, d_head=8, d_inner=64, vocab_size=WORDS),
    "longformer": of("Longformer", attention_window=4, pad_token_id=1, max_position_embeddings=64, **TEXT),
    "bigbird": of("BigBird", attention_type="original_full", **TEXT),
    "modernbert": of("ModernBert", pad_token_id=0, **TEXT),
    "fnet": of("FNet", inputs=only_words, hidden_size=32, num_hidden_layers=2, intermediate_size=64, vocab_size=WORDS),
    "rembert": of("RemBert", input_embedding_size=16, output_embedding_size=16, **TEXT),
    "mobilebert": of(
        "MobileBert", **{**TEXT, "hidden_size": 64}, true_hidden_size=64, embedding_size=32, intra_bottleneck_size=64
    ),
    # decoders,
    "gpt2": of("GPT2", "LMHeadModel", n_embd=32, **SHORT),
    "bloom": of("Bloom", CAUSAL, hidden_size=32, **SHORT),
    "gpt neo": of(
        "GPTNeo",
        CAUSAL,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        vocab_size=WORDS,
        attention_types=[[["global", "local"], 1]],
    ),
    "gptj": of("GPTJ", CAUSAL, n_embd=32, rotary_dim=8, **SHORT),
    "gpt neox": of("GPTNeoX", CAUSAL, **TEXT),
    "opt": of(
        "OPT",
        CAUSAL,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=64,
        vocab_size=WORDS,
        word_embed_proj_dim=32,
    ),
    "llama": of("Llama", CAUSAL, **GROUPED),
    "mistral": of("Mistral", CAUSAL, sliding_window=6, **GROUPED),
    "mixtral": of("Mixtral", CAUSAL, num_local_experts=4, **GROUPED),
    "qwen2": of("Qwen2", CAUSAL, **GROUPED),
    "qwen3": of("Qwen3", CAUSAL, head_dim=8, **GROUPED),
    "gemma": of("Gemma", CAUSAL, head_dim=8, **GROUPED),
    "gemma2": of("Gemma2", CAUSAL, head_dim=8, **GROUPED),
    "phi": of("Phi", CAUSAL, **TEXT),
    "phi3": of("Phi3", CAUSAL, pad_token_id=0, **GROUPED),
    "stablelm": of("StableLm", CAUSAL, **GROUPED),
    "falcon": of("Falcon", CAUSAL, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=WORDS),
    "mpt": of("Mpt", CAUSAL, d_model=32, n_layers=2, n_heads=4, vocab_size=WORDS),
    "mamba": of("Mamba", CAUSAL, hidden_size=32, num_hidden_layers=2, vocab_size=WORDS, state_size=4),
    # both,
    "t5": of(
        "T5",
        "ForConditionalGeneration",
        two_texts,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        vocab_size=WORDS,
    ),
    "bart": of("Bart", "ForConditionalGeneration", two_texts, max_position_embeddings=64, **CODER),
    "whisper": of("Whisper", inputs=speech, max_source_positions=50, pad_token_id=0, **CODER),
    # and other senses.
    "vit": of("ViT", inputs=image(), **PATCHES, **SMALL),
    "beit": of("Beit", inputs=image(), **PATCHES, **TEXT),
    "deit": of("DeiT", inputs=image(), **PATCHES, **SMALL),
    "clip, text": of("CLIPText", eos_token_id=99, **TEXT),
    "clip, vision": of("CLIPVision", inputs=image(), **PATCHES, **SMALL),
    "dinov2": of("Dinov2", inputs=image(), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, **PATCHES),
    "swin": of("Swin", inputs=image(), image_size=32, patch_size=4, **STAGES),
    "swinv2": of("Swinv2", inputs=image(), image_size=32, patch_size=4, **STAGES),
    "convnext": of("ConvNext", inputs=image(64), hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1]),
    "segformer": of(
        "Segformer",
        "ForSemanticSegmentation",
        image(64),
        hidden_sizes=[8, 16, 16, 32],
        depths=[1, 1, 1, 1],
        decoder_hidden_size=16,
    ),
    "wav2vec2": of(
        "Wav2Vec2",
        inputs=sound,
        conv_dim=[16] * 7,
        mask_time_prob=0.0,
        layerdrop=0.0,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        **SMALL,
    ),
    "patchtst": of(
        "PatchTST",
        inputs=series,
        num_input_channels=3,
        context_length=32,
        patch_length=8,
        patch_stride=8,
        d_model=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        ffn_dim=32,
    ),
}

IMAGES = (
    "alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_v2_s googlenet inception_v3 mnasnet0_5 "
    "mobilenet_v2 mobilenet_v3_small regnet_x_400mf regnet_y_400mf resnet18 resnext50_32x4d shufflenet_v2_x0_5 "
    "squeezenet1_0 squeezenet1_1 swin_t swin_v2_t vgg11 vgg11_bn vit_b_32 wide_resnet50_2"
).split()


def of_torchvision(name: str) -> Build:
    def build() -> tuple[torch.nn.Module, dict[str, Any]]:
        import torchvision

        plain = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        size = {"vit_b_32": 224, "inception_v3": 299}.get(name, 64)
        return torchvision.models.get_model(name, weights=None, **plain), {"x": torch.randn(2, 3, size, size)}

    return build


MODELS.update({name: of_torchvision(name) for name in IMAGES})
