"""Generation with a static cache, which suits a GPU: every token runs one program, and always the same one.

    python -m bench.static_cache --device cuda --dtype bf16 --model llama_1b --modes default,reduce-overhead
    python -m bench.static_cache --model tiny --tokens 8            in seconds, on a CPU

Each contestant has a process of its own with empty caches. The first text is timed by the wall clock, compiling
included. Later ones are timed by the device's clock, after some in which compilers settle, and the median counts.
Transformers itself compiles nothing here. Tokens have to equal eager's; in a short dtype two equally likely ones may
swap, so the number of equal tokens is reported.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import caches, fallbacks
from .apart import hand_back, run_in_own_process
from .command import contestants, dtype, natural
from .contestants import contestant_of
from .record import BURNISH, EAGER, TORCH_COMPILE
from .table import NONE, Table, as_text, seconds, times

PROMPT, TOKENS, SETTLING, TEXTS = 64, 64, 10, 5
MODELS = ("gpt2", "llama_1b", "tiny")


def model_of(name: str) -> Any:
    from .large import LLAMA_1B
    from .models import transformers

    hf = transformers()
    if name == "gpt2":
        return hf.GPT2LMHeadModel(hf.GPT2Config())
    if name == "llama_1b":
        return hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA_1B))
    return hf.LlamaForCausalLM(
        hf.LlamaConfig(
            vocab_size=200,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
        )
    )


def measure(name: str, model: str, device: str, dtype: str, tokens: int, batch: int) -> dict[str, Any]:
    import torch

    from .clocks import clock_for, wait

    torch.manual_seed(0)
    with torch.device(device):
        network = model_of(model).eval().to(getattr(torch, dtype))
    made = torch.Generator().manual_seed(0)
    prompt = torch.randint(5, network.config.vocab_size, (batch, PROMPT), generator=made).to(device)
    contestant = contestant_of(name)
    contestant.bring()
    if contestant.kind == BURNISH:
        import burnish

        burnish.compile_(network, mode=contestant.mode)
    elif contestant.kind == TORCH_COMPILE:
        network.compile(mode=contestant.mode)

    def write() -> Any:
        return network.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
            cache_implementation="static",
            disable_compile=True,
        )

    clock = clock_for(device)
    with torch.no_grad():
        begun = time.perf_counter()
        text = write()
        wait(device)
        first = time.perf_counter() - begun
        for _ in range(SETTLING):
            write()
        later = [clock.sample(write) for _ in range(TEXTS)]
        last = write()
    return {
        "clock": clock.name,
        "first": first,
        "later": later,
        "tokens": text[:, PROMPT:].flatten().tolist(),
        "last": last[:, PROMPT:].flatten().tolist(),
    }


def report(results: dict[str, dict[str, Any]], tokens: int) -> str:
    table = Table(
        f"Texts of {tokens} tokens with a static cache",
        ["by", "first text", "a later one", "a token", "over eager", "same tokens"],
    )
    notes = []
    eager = results.get(EAGER, {})
    for name, result in results.items():
        if "why" in result:
            notes.append(f"— {name}: {result['why']}")
            continue
        middle = statistics.median(result["later"])
        ratio = statistics.median(eager["later"]) / middle if "later" in eager else None
        table.rows.append(
            [
                name.replace(":", " "),
                seconds(result["first"]),
                seconds(middle),
                f"{middle / tokens * 1e3:.3f} ms",
                times(ratio),
                same(eager["tokens"], result["last"]) if "tokens" in eager else NONE,
            ]
        )
    return "\n".join([as_text(table), *notes])


def same(wanted: list[int], got: list[int]) -> str:
    return f"{sum(a == b for a, b in zip(wanted, got, strict=True))} of {len(wanted)}"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m bench.static_cache", description=__doc__.splitlines()[0])
    made.add_argument("--device", default="cpu")
    made.add_argument("--dtype", type=dtype, default="float32")
    made.add_argument("--model", choices=MODELS, default="gpt2")
    made.add_argument("--tokens", type=natural, default=TOKENS)
    made.add_argument("--batch", type=natural, default=1)
    made.add_argument("--against", metavar="NAMES")
    made.add_argument("--modes", metavar="NAMES")
    made.add_argument("--limit", type=float, default=600.0, help="seconds for each contestant")
    made.add_argument("--json", type=Path)
    made.add_argument("--worker", metavar="NAME", help=argparse.SUPPRESS)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.worker:
        hand_back(measure(options.worker, options.model, options.device, options.dtype, options.tokens, options.batch))
        return 0
    results: dict[str, dict[str, Any]] = {}
    for name in contestants(options.against, options.modes):
        with tempfile.TemporaryDirectory(prefix="burnish-bench-", ignore_cleanup_errors=True) as folder:
            result, why = run_in_own_process(
                [
                    "-m",
                    "bench.static_cache",
                    "--worker",
                    name,
                    "--device",
                    options.device,
                    "--dtype",
                    options.dtype,
                    "--model",
                    options.model,
                    "--tokens",
                    str(options.tokens),
                    "--batch",
                    str(options.batch),
                ],
                caches.folder_of(folder, name),
                options.limit,
            )
        results[name] = result if why is None else {"why": why}
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(results, indent=1) + "\n")
    print(report(results, options.tokens))
    return int(any("why" in result for result in results.values()))


if __name__ == "__main__":
    fallbacks.exit_with(main)
