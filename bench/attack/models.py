"""Random models of NNSmith (`pip install 'burnish[attack]'`), compiled and run beside eager.

    python -m bench.attack.models --seed 0 --count 100

Each model is a graph of operators whose shapes and dtypes a solver makes fit one another. Inputs and weights of floats
take gradients. Model `number` of a seed is the same in each run: `--first` goes on from there.
"""

from __future__ import annotations

import argparse
import random
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from . import trial
from .databases import attacked
from .trial import Program

ELEMENTS = 4096
"""The largest tensor of a model."""


class Model(nn.Module):
    """NNSmith's instructions, without what it looks at meanwhile: that would break the graph."""

    def __init__(self, ir: Any):
        super().__init__()
        from nnsmith.materialize.torch.symbolnet import SymbolNet

        net = SymbolNet(ir)
        self.layers, self.instructions = net.mlist, [(run, given, made) for run, given, made, _ in net.instructions]
        self.names, self.results = list(net.input_map), list(net.output_map)
        self.inputs = net.get_random_inps(base="center")

    def forward(self, *inputs: torch.Tensor) -> tuple:
        values = dict(zip(self.names, inputs, strict=True))
        for run, given, made in self.instructions:
            found = run(*[values[name] for name in given])
            values.update(zip(made, found if isinstance(found, list) else [found], strict=True))
        return tuple([values[name] for name in self.results])


def graph_of(seed: int, size: int) -> Any:
    """Of about so many operators."""
    from nnsmith.abstract.extension import activate_ext
    from nnsmith.graph_gen import model_gen
    from nnsmith.materialize import Model as Kind
    from nnsmith.materialize.torch.forward import ALL_TORCH_OPS

    Kind.init("torch", backend_target="cpu").add_seed_setter()
    activate_ext(opset=ALL_TORCH_OPS, factory=None)
    made = model_gen(
        opset=list(ALL_TORCH_OPS),
        method="symbolic-cinit",
        seed=seed,
        max_nodes=size,
        timeout_ms=5000,
        max_elem_per_tensor=ELEMENTS,
    )
    return made.make_concrete()


def program(graph: Any, seed: int) -> Program:
    torch.manual_seed(seed)
    model = Model(graph)
    inputs = tuple(x.requires_grad_(x.is_floating_point() or x.is_complex()) for x in model.inputs.values())
    return Program(model, inputs)


def sample(seed: int) -> tuple[str, Callable[[], Program]]:
    graphs: list[Any] = []

    def make() -> Program:
        if not graphs:
            graphs.append(graph_of(seed, random.Random(seed).choice((4, 8, 16))))
        return program(graphs[0], seed)

    return f"model {seed}", make


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    numbers = range(options.first, options.first + options.count)
    with trial.as_attacked():
        verdicts, left_out = attacked(
            [sample((options.seed * 1_000_000 + number) % 2**32) for number in numbers],
            lambda text: print(text, flush=True),
        )
    print(trial.report(verdicts, options.seed, left_out))
    raise SystemExit(any(verdict.differences for verdict in verdicts))


if __name__ == "__main__":
    main()
