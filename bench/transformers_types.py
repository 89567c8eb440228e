"""Every type of model in Transformers, small and with random weights, compiled and compared with eager.

    python -m bench.transformers_types                              all types: inference, training, generation
    python -m bench.transformers_types gemma2 mamba --kind dynamic  some of them, with a cache that grows

A line for each: graphs, breaks, fallbacks, and the error against float64 beside eager's. The run fails if a result
is further from float64 than `MOST` times eager's (and `FLOOR`), if tokens differ, or if something fell back.
Configurations are shrunk by the names of their fields; `OF_TYPE` has what some types need in addition. Dropout and
similar rates are zero.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

import burnish
from burnish import events

KINDS = ("inference", "training", "dynamic", "static")
CALLS = 3
MOST, FLOOR = 2.0, 1e-4

CAUSAL = (
    "gpt2 llama mistral qwen2 qwen3 gemma gemma2 gemma3_text phi phi3 gpt_neox gpt_neo gptj opt bloom falcon mpt "
    "codegen starcoder2 stablelm olmo olmo2 cohere granite persimmon mixtral qwen2_moe qwen3_moe olmoe phimoe "
    "granitemoe mamba mamba2 falcon_mamba jamba bamba rwkv recurrent_gemma qwen3_next nemotron glm biogpt xglm ctrl "
    "xlnet smollm3 gpt_oss"
).split()
MASKED = (
    "bert roberta distilbert albert electra deberta-v2 mpnet funnel xlm-roberta modernbert camembert longformer "
    "big_bird mobilebert squeezebert convbert fnet layoutlm nystromformer roformer"
).split()
TWO_SIDED = "t5 bart pegasus mbart marian blenderbot led prophetnet m2m_100 umt5 bigbird_pegasus".split()
IMAGES = (
    "vit swin convnext resnet mobilevit regnet poolformer mobilenet_v2 dinov2 segformer efficientnet bit hiera".split()
)

SIZES: dict[str, Any] = {
    **dict.fromkeys("hidden_size d_model n_embd dim embedding_size word_embed_proj_dim lru_width".split(), 64),
    **dict.fromkeys("num_hidden_layers n_layer encoder_layers decoder_layers num_layers n_layers".split(), 2),
    **dict.fromkeys(
        "num_attention_heads n_head encoder_attention_heads decoder_attention_heads num_heads n_heads".split(), 4
    ),
    **dict.fromkeys("intermediate_size n_inner encoder_ffn_dim decoder_ffn_dim d_ff ffn_dim hidden_dim".split(), 96),
    **dict.fromkeys("max_position_embeddings n_positions".split(), 128),
    **dict.fromkeys("head_dim d_kv mamba_d_head linear_key_head_dim linear_value_head_dim sliding_window".split(), 16),
    **dict.fromkeys("num_experts num_local_experts".split(), 4),
    **dict.fromkeys("moe_intermediate_size shared_expert_intermediate_size".split(), 48),
    **dict.fromkeys("state_size time_step_rank mamba_d_state mamba_n_heads rotary_dim patch_size".split(), 8),
    **dict.fromkeys(
        "num_key_value_heads num_experts_per_tok expand num_decoder_layers linear_num_key_heads".split(), 2
    ),
    **dict.fromkeys("mamba_n_groups n_groups bos_token_id".split(), 1),
    **dict.fromkeys("qk_rope_head_dim qk_nope_head_dim v_head_dim qk_head_dim".split(), 16),
    **dict.fromkeys("q_lora_rank kv_lora_rank".split(), 32),
    **{"vocab_size": 256, "attention_window": 16, "linear_num_value_heads": 4, "chunk_size": 16, "image_size": 32},
    **{"pad_token_id": 0, "eos_token_id": 2},
}
OF_TYPE: dict[str, dict[str, Any]] = {
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "jamba": {
        **{"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1},
        "use_mamba_kernels": False,
    },
    "falcon": {"num_kv_heads": 2},
    "bamba": {"attn_layer_indices": [1]},
    "mamba2": {"num_heads": 8, "head_dim": 16},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "phimoe": {"router_jitter_noise": 0.0},
    **{name: {"decoder_start_token_id": 1} for name in TWO_SIDED},
}
PICTURE = {"image_size": 32, "patch_size": 8}
KEPT = "vit dinov2".split()
"""Image types whose sizes are shrunk as well; the others have a size for each stage."""


def configuration(name: str) -> Any:
    from transformers import AutoConfig

    usual = AutoConfig.for_model(name)
    known = {*usual.to_dict(), *getattr(usual, "attribute_map", {})}
    given = {key: value for key, value in SIZES.items() if key in known and (name not in IMAGES or name in KEPT)}
    if getattr(usual, "layer_types", None):
        given["layer_types"] = (list(dict.fromkeys(usual.layer_types)) * 2)[:2]
    for key, value in usual.to_dict().items():
        if "drop" in key and isinstance(value, (float, list)) and value:
            given[key] = [0.0] * len(value) if isinstance(value, list) else 0.0
    return type(usual)(**given, **OF_TYPE.get(name, {}))


def model_of(name: str) -> tuple[Any, dict[str, Any]]:
    """A model and the arguments of a call."""
    import transformers as hf

    numbers = torch.Generator().manual_seed(0)
    tokens = torch.randint(3, 250, (2, 17), generator=numbers)
    made = configuration(name)
    if name in IMAGES:
        size = getattr(made, "image_size", 64)
        pictures = torch.randn(2, 3, size, size, generator=numbers)
        return hf.AutoModelForImageClassification.from_config(made), {
            "pixel_values": pictures,
            "labels": tokens[0, :2] % 2,
        }
    if name in MASKED:
        mask = torch.ones_like(tokens)
        mask[1, 12:] = 0
        given = {"input_ids": tokens, "attention_mask": mask, "labels": tokens}
        return hf.AutoModelForMaskedLM.from_config(made), given
    if name in TWO_SIDED:
        return hf.AutoModelForSeq2SeqLM.from_config(made), {"input_ids": tokens, "labels": tokens[:, :9].contiguous()}
    return hf.AutoModelForCausalLM.from_config(made), {"input_ids": tokens, "labels": tokens}


@dataclass
class Course:
    """Events of a model that runs compiled."""

    graphs: int = 0
    breaks: collections.Counter = field(default_factory=collections.Counter)
    fallbacks: list[str] = field(default_factory=list)

    def note(self, event: events.Event) -> None:
        if event.kind == "segment":
            self.graphs += event.data["segment"].graph is not None
        elif event.kind == "breaks":
            self.breaks[event.data["break_"].kind.code] += 1
        if event.data.get("fallback"):
            self.fallbacks.append(f"{event.data['fallback']}: {event.data['text']}")


@contextlib.contextmanager
def watched() -> Iterator[Course]:
    course = Course()
    stop = events.subscribe(course.note)
    try:
        yield course
    finally:
        stop()


def error(found: list[Any], exact: list[Any]) -> float:
    """The distance over all tensors together, relative to their norm."""
    pairs = [(a.double(), b.double()) for a, b in zip(found, exact, strict=True) if b is not None]
    far = sum(float((a - b).square().sum()) for a, b in pairs)
    return (far / max(sum(float(b.square().sum()) for _, b in pairs), 1e-300)) ** 0.5


def tensors(result: Any) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(dict(result))
    return [x for x in leaves if isinstance(x, torch.Tensor) and x.is_floating_point()]


def called(model: Any, fn: Callable, given: dict[str, Any], trains: bool) -> list[Any]:
    if not trains:
        with torch.no_grad():
            return tensors(fn(**given))
    model.zero_grad()
    loss = fn(**given).loss
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters())]


def computed(name: str, trains: bool) -> tuple[bool, str]:
    model, given = model_of(name)
    model.train(trains)
    if not trains and name not in TWO_SIDED:
        del given["labels"]
    eager, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    if hasattr(exact, "set_experts_implementation"):
        exact.set_experts_implementation("eager")  # grouped products take no float64
    doubles = {key: value.double() if value.is_floating_point() else value for key, value in given.items()}
    compiled, is_right, worst = burnish.compile(model), True, (0.0, 0.0)
    for _ in range(CALLS):  # each updates the statistics of batch norms
        wanted = called(exact, exact, doubles, trains)
        mine = error(called(model, compiled, given, trains), wanted)
        theirs = error(called(eager, eager, given, trains), wanted)
        is_right = is_right and mine <= max(MOST * theirs, FLOOR)
        worst = max(worst, (mine, theirs))
    return is_right, f"error {worst[0]:.1e}, eager's {worst[1]:.1e}"


def generated(name: str, cache: str) -> tuple[bool, str]:
    model, given = model_of(name)
    model.eval()
    tokens, how = given["input_ids"][:1], {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}
    if cache == "static":
        how["cache_implementation"] = "static"
    try:
        wanted = model.generate(tokens, **how)
    except Exception as why:
        return True, f"eager cannot: {type(why).__name__}"
    model.forward = burnish.compile(model.forward)
    is_right = all(torch.equal(model.generate(tokens, **how), wanted) for _ in range(2))
    return is_right, "equal tokens" if is_right else "OTHER TOKENS"


def run(name: str, kind: str) -> bool:
    burnish.reset()
    torch.manual_seed(0)
    with watched() as course:
        try:
            is_right, words = generated(name, kind) if kind in KINDS[2:] else computed(name, kind == "training")
        except Exception as why:
            is_right, words = False, f"{type(why).__name__}: {why}".splitlines()[0]
    broken = ", ".join(f"{code} {count}" for code, count in sorted(course.breaks.items()))
    verdict = "" if is_right else "WRONG "
    print(
        f"{name:18} {kind:10} {course.graphs:3} graphs  {verdict}{words:.200}{'  ' + broken if broken else ''}",
        flush=True,
    )
    for fallback in course.fallbacks:
        print(f"    FALLBACK {fallback:.300}", flush=True)
    return is_right and not course.fallbacks


def main(arguments: list[str] | None = None) -> int:
    made = argparse.ArgumentParser(
        prog="python -m bench.transformers_types", description=(__doc__ or "").splitlines()[0]
    )
    made.add_argument("types", nargs="*", help="(default: all)")
    made.add_argument("--kind", choices=KINDS, action="append", help="may be repeated (default: all)")
    options = made.parse_args(arguments)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    outcomes = []
    for name in options.types or CAUSAL + MASKED + TWO_SIDED + IMAGES:
        for kind in options.kind or KINDS:
            if kind in KINDS[:2] or name in CAUSAL + TWO_SIDED:
                with contextlib.redirect_stderr(io.StringIO()), burnish.settings.patch(never_slower=False):
                    outcomes.append(run(name, kind))
    print(f"{len(outcomes)} runs, {outcomes.count(False)} wrong or with a fallback")
    return int(not all(outcomes))


if __name__ == "__main__":
    sys.exit(main())
