"""How near token generation comes to the speed of memory: tokens a second, and the weights' bytes over a token's time.

    python -m bench.decoding                                          a Llama of 240 M parameters, bf16 and f32
    python -m bench.decoding --layers 2 --dtypes bf16 --tokens 12     in a minute

A model from transformers writes greedily, with a cache that grows and with one of fixed size. Eager and Burnish take
turns, text by text, in one process. A token's time is measured from one token to the next, as a streamer sees them;
prefill and the first tokens are left out. `sum` is the rate at which a plain `torch.sum` reads 256 MB in the same
process. The error is that of the last token's logits, relative to the float64 model's for the same text.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

import burnish

from . import fallbacks
from .command import natural
from .table import Table, as_text, seconds, times

PROMPT, SETTLING, SUM_BYTES = 16, 4, 256 << 20
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
CACHES: dict[str, dict[str, Any]] = {
    "dynamic": {},
    "static": {"cache_implementation": "static", "disable_compile": True},
}


class Arrivals:
    """A streamer that notes when each token came."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        self.at.append(time.perf_counter())

    def end(self) -> None:
        pass

    def times(self) -> list[float]:
        """Of the tokens behind the first ones."""
        return [b - a for a, b in zip(self.at[SETTLING:], self.at[SETTLING + 1 :], strict=False)]


def model_of(layers: int, dtype: torch.dtype) -> Any:
    from .models import transformers

    hf = transformers()
    torch.manual_seed(0)
    config = hf.LlamaConfig(
        vocab_size=32000,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=4,
        max_position_embeddings=1024,
    )
    return hf.LlamaForCausalLM(config).eval().to(dtype)


def read_each_token(model: Any) -> int:
    """Bytes of the weights that a token reads: all but the embedding, of which it is one row."""
    return sum(p.numel() * p.element_size() for name, p in model.named_parameters() if "embed_tokens" not in name)


def rate_of_sum() -> float:
    """Bytes a second, at best."""
    numbers = torch.zeros(SUM_BYTES // 4)
    spent = []
    for _ in range(8):
        begun = time.perf_counter()
        numbers.sum()
        spent.append(time.perf_counter() - begun)
    return SUM_BYTES / min(spent)


@dataclass(frozen=True, slots=True)
class Text:
    tokens: torch.Tensor
    logits: torch.Tensor
    """Of the last token."""
    token_seconds: float


def write(model: Any, prompt: torch.Tensor, tokens: int, cache: str) -> Text:
    arrivals = Arrivals()
    with torch.no_grad():
        made = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
            streamer=arrivals,
            output_logits=True,
            return_dict_in_generate=True,
            **CACHES[cache],
        )
    return Text(made.sequences, made.logits[-1], statistics.median(arrivals.times()))


def error_of(text: Text, exact: Any) -> float:
    with torch.no_grad():
        right = exact(text.tokens[:, :-1]).logits[:, -1]
    return ((text.logits.double() - right).norm() / right.norm()).item()


def measure(name: str, cache: str, layers: int, tokens: int, rounds: int) -> list[str]:
    eager = model_of(layers, DTYPES[name])
    ours = burnish.compile_(copy.deepcopy(eager))
    made = torch.Generator().manual_seed(0)
    prompt = torch.randint(5, 32000, (1, PROMPT), generator=made)
    begun = time.perf_counter()
    write(ours, prompt, tokens, cache)
    first = time.perf_counter() - begun
    spent: dict[str, list[float]] = {"eager": [], "burnish": []}
    texts: dict[str, Text] = {}
    for number in range(rounds):
        for who in sorted(spent, reverse=bool(number % 2)):
            texts[who] = write(eager if who == "eager" else ours, prompt, tokens, cache)
            spent[who].append(texts[who].token_seconds)
    token = {who: statistics.median(found) for who, found in spent.items()}
    ratio = statistics.median(a / b for a, b in zip(spent["eager"], spent["burnish"], strict=True))
    exact = copy.deepcopy(eager).double()
    errors = [error_of(texts[who], exact) for who in ("eager", "burnish")]
    rate = read_each_token(eager) / token["burnish"]
    same = (texts["eager"].tokens == texts["burnish"].tokens)[:, PROMPT:].float().mean().item()
    return [
        f"{name} {cache}",
        seconds(first),
        f"{1 / token['eager']:.1f}",
        f"{1 / token['burnish']:.1f}",
        times(ratio),
        f"{rate / 1e9:.1f} GB/s",
        f"{rate / rate_of_sum():.0%}",
        f"{errors[0]:.2e}",
        f"{errors[1]:.2e}",
        f"{same:.0%}",
    ]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m bench.decoding", description=__doc__.splitlines()[0])
    made.add_argument("--dtypes", default="bf16,f32")
    made.add_argument("--caches", default="dynamic,static")
    made.add_argument("--layers", type=natural, default=16)
    made.add_argument("--tokens", type=natural, default=48)
    made.add_argument("--rounds", type=natural, default=5)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    table = Table(
        f"Tokens of a Llama with {options.layers} layers",
        [
            "dtype, cache",
            "first text",
            "eager tokens/s",
            "tokens/s",
            "over eager",
            "weights read",
            "of `sum`",
            "error of eager",
            "error",
            "same tokens",
        ],
    )
    for name in options.dtypes.split(","):
        for cache in options.caches.split(","):
            table.rows.append(measure(name, cache, options.layers, options.tokens, options.rounds))
    print(as_text(table))
    if hasattr(os, "getloadavg"):
        print(f"load of the machine: {os.getloadavg()[0]:.1f}, threads: {torch.get_num_threads()}")
    return 0


if __name__ == "__main__":
    fallbacks.exit_with(main)
