"""How close token generation comes to memory bandwidth: tokens per second, and the weights' bytes over a token's time.

    python -m bench.decoding                                          a Llama of 240 M parameters, bf16 and f32
    python -m bench.decoding --layers 2 --dtypes bf16 --tokens 12     in a minute
    python -m bench.decoding --format int4 --dtypes bf16              with weights that `burnish.quantize_` makes

A model from transformers generates greedily, with a cache that grows and with one of fixed size. Eager and Burnish take
turns, text by text, in one process. A token's time is measured from one token to the next, as a streamer sees them;
prefill and the first tokens are left out. `sum` is the rate at which a plain `torch.sum` reads 256 MB in the same
process. The error is that of the last token's logits, relative to the float64 model's for the same text; for a
quantized model, the float64 model has the quantized weights. The loss by quantizing is measured against the model
before it, over the generated text: the mean KL divergence of the next token, and how often both models agree on the
most likely token.

    python -m bench.decoding --products --format int4

measures single products of one row by our kernels, each in turns with `sum`.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import burnish
from burnish.schedule.library.autotune_library_calls import choose
from burnish.schedule.library.call_specs import LinearSpec, QuantizedSpec
from burnish.schedule.library.candidate import bound, empty
from burnish.targets import cpu  # noqa: F401  registers our kernels
from burnish.tensors.tensor_types import TensorType

from . import fallbacks
from .command import natural
from .table import Table, as_text, seconds, times

GROUP = 128
SHAPES = [(4096, 4096), (11008, 4096), (4096, 11008), (1024, 1024)]
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
        """The times of the tokens after the first ones."""
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
    """Bytes of the weights read for a token: all but the embedding: only one of its rows is read."""
    named = [*model.named_parameters(), *((name, b) for name, b in model.named_buffers() if "rotary" not in name)]
    return sum(tensor.nbytes for name, tensor in named if "embed_tokens" not in name)


def rate_of_sum() -> float:
    """Bytes per second, at best."""
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
    """The logits of the last token."""
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


def in_float64(model: Any) -> Any:
    """The model in float64 with the same weight values, dequantized where they are quantized."""
    made = copy.deepcopy(model)
    for parent in list(made.modules()):
        for name, child in parent.named_children():
            if isinstance(child, burnish.QuantizedLinear):
                plain = torch.nn.Linear(child.in_features, child.out_features, child.bias is not None)
                plain.weight = torch.nn.Parameter(child.dequantized(), requires_grad=False)
                plain.bias = child.bias
                setattr(parent, name, plain)
    return made.double()


def cost_of_quantizing(tokens: torch.Tensor, quantized: Any, before: Any) -> list[str]:
    """The mean KL divergence, and the share of positions with the same most likely token. Both use float64."""
    with torch.no_grad():
        wanted, found = (model(tokens).logits[0].log_softmax(-1) for model in (before, quantized))
    divergence = (wanted.exp() * (wanted - found)).sum(-1).mean().item()
    same = (wanted.argmax(-1) == found.argmax(-1)).double().mean().item()
    return [f"{divergence:.1e}", f"{same:.0%}"]


def measure(name: str, cache: str, layers: int, tokens: int, rounds: int, format: str | None) -> list[str]:
    eager = model_of(layers, DTYPES[name])
    before = in_float64(eager) if format else None
    if format:
        burnish.quantize_(eager, format, GROUP)
    ours = burnish.compile_(copy.deepcopy(eager))
    made = torch.Generator().manual_seed(0)
    prompt = torch.randint(5, 32000, (1, PROMPT), generator=made)
    begun = time.perf_counter()
    write(ours, prompt, tokens, cache)
    first = time.perf_counter() - begun
    spent: dict[str, list[float]] = {"eager": [], "burnish": []}
    texts: dict[str, Text] = {}
    for number in range(rounds):
        for side in sorted(spent, reverse=bool(number % 2)):
            texts[side] = write(eager if side == "eager" else ours, prompt, tokens, cache)
            spent[side].append(texts[side].token_seconds)
    token = {side: statistics.median(found) for side, found in spent.items()}
    ratio = statistics.median(a / b for a, b in zip(spent["eager"], spent["burnish"], strict=True))
    exact = in_float64(eager)
    errors = [error_of(texts[side], exact) for side in ("eager", "burnish")]
    rate = read_each_token(eager) / token["burnish"]
    same = (texts["eager"].tokens == texts["burnish"].tokens)[:, PROMPT:].float().mean().item()
    cost = cost_of_quantizing(texts["burnish"].tokens, exact, before) if format else []
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
        *cost,
    ]


def product_rates(name: str, format: str | None, outputs: int, depth: int) -> list[str]:
    """The rates of one product with one row. There are so many weights that none is in a CPU cache."""
    x, numbers = torch.randn(1, depth, dtype=DTYPES[name]), torch.zeros(SUM_BYTES // 4)
    runs, bytes = cold_products(x, format, outputs)
    spent = {"sum": [1.0], "ours": [1.0]}
    for _ in range(12):
        for side, turn in (("sum", [numbers.sum]), ("ours", runs)):
            begun = time.perf_counter()
            for run in turn:
                run()
            spent[side].append(time.perf_counter() - begun)
    rate, wanted = bytes / min(spent["ours"]), SUM_BYTES / min(spent["sum"])
    time_each = seconds(min(spent["ours"]) / len(runs))
    return [
        f"{name} [{outputs}, {depth}]",
        time_each,
        *(f"{r / 1e9:.1f} GB/s" for r in (rate, wanted)),
        f"{rate / wanted:.0%}",
    ]


def cold_products(x: torch.Tensor, format: str | None, outputs: int) -> tuple[list[Callable[[], None]], int]:
    """Our kernel on one weight after the other, and the bytes that all of them read."""
    layer = torch.nn.Linear(x.shape[1], outputs, bias=False, dtype=x.dtype)
    given: dict[str, torch.Tensor | None] = {"x": x, "weight": layer.weight.detach()}
    spec: Any
    if format:
        made = burnish.QuantizedLinear(layer.weight, None, format, GROUP)
        given |= {"weight": made.weight, "scales": made.scales, "shifts": made.zeros, "bias": None}
        types = {key: value if value is None else TensorType.of(value) for key, value in given.items()}
        is_small = format == "int4"
        group = GROUP if is_small else x.shape[1]
        spec = QuantizedSpec(**types, bits=4 if is_small else 8, group=group, offset=8 if is_small else 0)
    else:
        spec = LinearSpec(TensorType.of(x), TensorType.of(given["weight"]))
    own = choose(spec, seconds=0.003, accept=lambda candidate: candidate.name.startswith("own")).candidate
    read = sum(value.nbytes for key, value in given.items() if value is not None and key != "x")
    count = max(SUM_BYTES // read, 1)
    runs = []
    for _ in range(count):
        cold = {**given, "weight": given["weight"].clone()}
        runs.append(bound(own, [empty(own.output)], [cold[key] for key in own.operands]))
    return runs, count * read


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m bench.decoding", description=__doc__.splitlines()[0])
    made.add_argument("--dtypes", default="bf16,f32")
    made.add_argument("--caches", default="dynamic,static")
    made.add_argument("--layers", type=natural, default=16)
    made.add_argument("--tokens", type=natural, default=48)
    made.add_argument("--rounds", type=natural, default=5)
    made.add_argument("--format", choices=["int8", "int4"], help="quantize the weights")
    made.add_argument("--products", action="store_true", help="measure single products")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    weights = f", {options.format} weights" if options.format else ""
    if options.products:
        print(as_text(products(options.dtypes.split(","), options.format, weights)))
        return end()
    table = Table(
        f"Tokens of a Llama with {options.layers} layers{weights}",
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
            *(["KL of quantizing", "same as before it"] if options.format else []),
        ],
    )
    for name in options.dtypes.split(","):
        for cache in options.caches.split(","):
            table.rows.append(measure(name, cache, options.layers, options.tokens, options.rounds, options.format))
    print(as_text(table))
    return end()


def products(dtypes: Sequence[str], format: str | None, weights: str) -> Table:
    table = Table(f"Products of one row{weights}", ["weight", "time", "weights read", "`sum`", "of `sum`"])
    for name in dtypes:
        table.rows += [product_rates(name, format, *shape) for shape in SHAPES]
    return table


def end() -> int:
    if hasattr(os, "getloadavg"):
        print(f"load of the machine: {os.getloadavg()[0]:.1f}, threads: {torch.get_num_threads()}")
    return 0


if __name__ == "__main__":
    fallbacks.exit_with(main)
