"""Launches of Triton kernels: one break each, or a node inside `torch.library.triton_op`. In Triton's interpreter."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

PROGRAM = """
import torch
import triton
import triton.language as tl

import burnish


@triton.jit
def added(x, y, out, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    tl.store(out + at, tl.load(x + at, inside) + tl.load(y + at, inside), inside)


def grid(meta):
    return (triton.cdiv(100, meta["BLOCK"]),)


def launches(x, y):
    x = x * 2
    out = torch.empty_like(x)
    added[grid](x, y, out, x.numel(), BLOCK=64)
    added[(2,)](out, out, x, x.numel(), BLOCK=64)
    return out + x


@torch.library.triton_op("triton_tests::summed", mutates_args=())
def summed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(added)[(2,)](x, y, out, x.numel(), BLOCK=64)
    return out


class Counter:
    calls = 0


counter = Counter()


def counts(x, y):
    counter.calls += 1
    return summed(x.sin(), y) * counter.calls


x, y = torch.randn(100), torch.randn(100)
for fn, count in ((launches, 2), (counts, 0)):
    reasons = burnish.explain(fn)(x, y).break_reasons
    print(fn.__name__, len(reasons), *{reason.source.kind.code for reason in reasons})
    compiled = burnish.compile(fn)
    for k in range(4):
        counter.calls = k
        found = compiled(x + k, y)
        counter.calls = k
        torch.testing.assert_close(found, fn(x + k, y))
"""


@pytest.mark.slow
def test_a_launch_is_one_break_and_an_operator_that_launches_is_a_node(tmp_path):
    path = tmp_path / "launches.py"  # Triton reads the source of kernels
    path.write_text(PROGRAM)
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    made = subprocess.run([sys.executable, path], env=environment, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines() == ["launches 2 B205", "counts 0"]
