"""Library calls: the speed of each candidate on the shapes of real models, and which one is chosen.

    python -m bench.library                       all models
    python -m bench.library --only resnet50
    python -m bench.library --seconds 0.2         measure longer than a compilation would
    python -m bench.library --live                weights that may change, as in training

One line per shape: GFLOP/s of every candidate, eager's first, the chosen one marked. Convolutions are measured twice,
with x contiguous and channels-last. The last line of a model is the speedup over eager's kernels, each shape counted as
often as the model uses it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from burnish.schedule.library.autotune_library_calls import Measurements, candidates, choose
from burnish.schedule.library.call_candidates.convolution import in_channels_last
from burnish.schedule.library.call_specs import Activation, AttentionSpec, ConvSpec, LinearSpec, MatmulSpec, Spec
from burnish.tensors.tensor_types import TensorType

GELU, GELU_TANH = Activation("gelu", algorithm="none"), Activation("gelu", algorithm="tanh")
Counted = tuple[int, Spec]


def f32(*shape: int) -> TensorType:
    return TensorType.contiguous(shape, torch.float32)


def linear(
    rows: int,
    inputs: int,
    outputs: int,
    activation: Activation | None = None,
    *,
    residual: bool = False,
    bias: bool = True,
    transposed: bool = False,
) -> LinearSpec:
    weight = TensorType((outputs, inputs), (1, outputs), torch.float32) if transposed else f32(outputs, inputs)
    return LinearSpec(
        f32(rows, inputs),
        weight,
        f32(outputs) if bias else None,
        f32(rows, outputs) if residual else None,
        activation,
        is_frozen=True,
    )


def convolution(
    batch: int,
    inputs: int,
    size: int,
    outputs: int,
    window: int,
    stride: int = 1,
    groups: int = 1,
    activation: Activation | None = None,
) -> ConvSpec:
    return ConvSpec(
        f32(batch, inputs, size, size),
        f32(outputs, inputs // groups, window, window),
        f32(outputs),
        None,
        activation,
        (stride,) * 2,
        (window // 2,) * 2,
        (1, 1),
        groups=groups,
        is_frozen=True,
    )


def attention(batch: int, heads: int, rows: int, size: int, **rest: bool) -> AttentionSpec:
    """Attention over heads that were split from a projection."""
    apart = TensorType((batch, heads, rows, size), (rows * heads * size, size, heads * size, 1), torch.float32)
    return AttentionSpec(apart, apart, apart, **rest)


def bert(batch: int, rows: int) -> Iterator[Counted]:
    tokens = batch * rows
    yield 36, linear(tokens, 768, 768)
    yield 12, linear(tokens, 768, 768, residual=True)
    yield 12, linear(tokens, 768, 3072)
    yield 12, linear(tokens, 768, 3072, GELU)
    yield 12, linear(tokens, 3072, 768, residual=True)
    yield 12, linear(tokens, 3072, 768, residual=True, bias=False)
    yield 12, attention(batch, 12, rows, 64)


def gpt2(rows: int) -> Iterator[Counted]:
    yield 12, linear(rows, 768, 2304, transposed=True)
    yield 12, linear(rows, 768, 768, residual=True, transposed=True)
    yield 12, linear(rows, 768, 3072, transposed=True)
    yield 12, linear(rows, 768, 3072, GELU_TANH, transposed=True)
    yield 12, linear(rows, 3072, 768, residual=True, transposed=True)
    yield 1, linear(rows, 768, 50257, bias=False)
    yield 12, attention(1, 12, rows, 64, is_causal=True)


def vit_small() -> Iterator[Counted]:
    yield 1, replace(convolution(1, 3, 224, 384, 16, 16), padding=(0, 0))
    yield 12, linear(197, 384, 1152)
    yield 12, linear(197, 384, 384, residual=True)
    yield 12, linear(197, 384, 1536, GELU)
    yield 12, linear(197, 1536, 384, residual=True)
    yield 12, attention(1, 6, 197, 64)


def resnet50() -> Iterator[Counted]:
    yield 1, convolution(1, 3, 224, 64, 7, 2)
    inputs = 64
    for size, width, blocks in [(56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3)]:
        yield blocks, convolution(1, width, size, width, 3)
        yield blocks, convolution(1, width, size, 4 * width, 1)
        yield blocks - 1, convolution(1, 4 * width, size, width, 1)
        stride = 1 if size == 56 else 2
        yield 1, convolution(1, inputs, size * stride, 4 * width, 1, stride)
        inputs = 4 * width
    yield 1, linear(1, 2048, 1000)


def mobilenet_v3() -> Iterator[Counted]:
    yield 1, convolution(1, 3, 224, 16, 3, 2, activation=Activation("hardswish"))
    yield 1, convolution(1, 16, 112, 16, 3, groups=16)
    yield 1, convolution(1, 16, 112, 64, 1)
    yield 1, convolution(1, 64, 112, 64, 3, 2, groups=64)
    yield 2, convolution(1, 24, 56, 72, 1)
    yield 2, convolution(1, 120, 28, 120, 5, groups=120)
    yield 2, convolution(1, 40, 28, 120, 1)
    yield 3, convolution(1, 80, 14, 184, 1, activation=Activation("hardswish"))
    yield 3, convolution(1, 184, 14, 184, 3, groups=184, activation=Activation("hardswish"))
    yield 2, convolution(1, 112, 14, 672, 1, activation=Activation("hardswish"))
    yield 3, convolution(1, 160, 7, 960, 1, activation=Activation("hardswish"))
    yield 2, convolution(1, 960, 7, 960, 5, groups=960, activation=Activation("hardswish"))
    yield 1, linear(1, 960, 1280, Activation("hardswish"))


def densenet121() -> Iterator[Counted]:
    yield 1, convolution(1, 3, 224, 64, 7, 2)
    for size, inputs, layers in [(56, 160, 6), (28, 320, 12), (14, 640, 24), (7, 768, 16)]:
        yield layers, convolution(1, inputs, size, 128, 1)
        yield layers, convolution(1, 128, size, 32, 3)


def lstm() -> Iterator[Counted]:
    """Input and recurrent products of 512 units: a batch of 1 over 100 steps, and one of 32."""
    yield 1, linear(100, 512, 2048)
    yield 100, linear(1, 512, 2048)
    yield 100, linear(32, 512, 2048, residual=True, bias=False)
    yield 1, MatmulSpec(f32(32, 512), TensorType((512, 2048), (1, 512), torch.float32))


MODELS: dict[str, Callable[[], Iterator[Counted]]] = {
    "BERT-base 1x64": lambda: bert(1, 64),
    "BERT-base 8x128": lambda: bert(8, 128),
    "GPT-2 1x64": lambda: gpt2(64),
    "ViT-S": vit_small,
    "resnet50": resnet50,
    "mobilenet_v3": mobilenet_v3,
    "densenet121": densenet121,
    "LSTM": lstm,
}


@dataclass
class Total:
    eager: float = 0.0
    chosen: float = 0.0

    def add(self, count: int, eager: float, chosen: float) -> None:
        self.eager += count * eager
        self.chosen += count * chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--seconds", type=float, default=0.02, help="of measuring, for each shape")
    parser.add_argument("--live", action="store_true", help="weights may change: nothing is packed")
    arguments = parser.parse_args()
    print(f"{torch.get_num_threads()} threads, GFLOP/s, * is chosen")
    for name, shapes in MODELS.items():
        if arguments.only.lower() in name.lower():
            print(f"\n{name}")
            report(shapes(), arguments.seconds, arguments.live)


def report(shapes: Iterator[Counted], seconds: float, live: bool) -> None:
    memory, total, start = Measurements(), Total(), time.perf_counter()
    for count, spec in shapes:
        if live and isinstance(spec, LinearSpec | ConvSpec):
            spec = replace(spec, is_frozen=False)
        eager, best = line(spec, seconds, memory)
        if isinstance(spec, ConvSpec):
            best = min(best, line(in_channels_last(spec), seconds, memory)[1])
        total.add(count, eager, best)
    spent = time.perf_counter() - start
    print(
        f"  eager {total.eager * 1e3:.2f} ms -> {total.chosen * 1e3:.2f} ms, {total.eager / total.chosen:.2f}x, "
        f"chosen in {spent:.2f} s"
    )


def line(spec: Spec, seconds: float, memory: Measurements) -> tuple[float, float]:
    """Print a shape's line. Seconds of eager's kernel and of the chosen candidate."""
    choice = choose(spec, seconds=seconds, memory=memory, accept=lambda candidate: True)
    speeds = (
        f"{'*' if name == choice.candidate.name else ''}{name} {spec.flops / time / 1e9:.0f}"
        for name, time in choice.measured.items()
    )
    doubt = "" if choice.is_steady else "  (disturbed)"
    print(f"  {spec}\n      {'  '.join(speeds) or choice.candidate.name}{doubt}")
    eager = choice.measured.get(candidates(spec)[0].name, 0.0)
    return eager, choice.seconds or 0.0


if __name__ == "__main__":
    main()
