"""Two hundred tokens with GPT-2, including the first one: eager against compiled, with compile time.

    python -m bench.generation                     processes in turns: eager, Burnish with empty, with full caches
    python -m bench.generation --tokens 50 --repeat 3

Greedy, with the key-value cache of transformers, which grows with every token. The clock starts before the first token.
Models and imports are loaded by then, except for what Burnish imports when it compiles: that counts, read from bytecode
as in an installed package. The tokens have to equal eager's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import caches, fallbacks

CONTESTANTS = ("eager", "burnish cold", "burnish warm")
PROMPT = 16
FEW = 6


def generated(name: str, tokens: int) -> tuple[float, list[int]]:
    """The duration in seconds, and the tokens."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    import burnish

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config()).eval()
    prompt = torch.randint(0, 50257, (1, PROMPT))
    if name != "eager":
        burnish.compile_(model)
    begun = time.perf_counter()
    with torch.no_grad():
        out = model.generate(prompt, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0)
    return time.perf_counter() - begun, out[0, PROMPT:].tolist()


def generated_in_own_process(name: str, tokens: int, folder: str) -> tuple[float, list[int]]:
    environment = {**os.environ, **caches.variables(Path(folder))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "bench.generation", "--worker", name, "--tokens", str(tokens)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=Path(__file__).parent.parent
    )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    seconds, made = json.loads(done.stdout.splitlines()[-1])
    return seconds, made


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.generation", description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--worker", choices=CONTESTANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(generated(options.worker, options.tokens)))
        return 0
    seconds: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    wanted: list[int] | None = None
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        generated_in_own_process("burnish cold", FEW, folder)  # makes the bytecode, which pip would have made
    for _ in range(options.repeat):
        with tempfile.TemporaryDirectory() as folder:
            for name in CONTESTANTS:  # the warm one finds what the cold one left
                took, made = generated_in_own_process(name, options.tokens, folder)
                seconds[name].append(took)
                wanted = wanted or made
                wrong += made != wanted
    for name in CONTESTANTS:
        middle = statistics.median(seconds[name])
        ratio = statistics.median(seconds["eager"]) / middle
        print(f"{name:<14} {middle:6.2f} s for {options.tokens} tokens, {ratio:5.2f}× eager")
    print("the tokens are eager's" if not wrong else f"{wrong} runs gave other tokens")
    return int(wrong > 0)


if __name__ == "__main__":
    fallbacks.exit_with(main)
