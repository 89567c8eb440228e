"""Real models in one graph each: three calls on different data, equal to eager; training with gradients."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import pytest
import torch
from bench.capture import other_data
from bench.compare import why_different
from bench.models import MODELS, TRAINING

import burnish

from ..forked_programs import TORCH, run_program

LIBRARIES = {
    "bert": "transformers",
    "gpt2": "transformers",
    "llama": "transformers",
    "t5": "transformers",
    "vit": "timm",
    "resnet18": "torchvision",
    "resnet50": "torchvision",
    "densenet121": "torchvision",
    "inception_v3": "torchvision",
    "mobilenet_v3": "torchvision",
}
CALLS = 3


@pytest.mark.parametrize("name", MODELS)
def test_model_is_one_graph_and_replays_as_eager(name):
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name])
    module, args, kwargs = MODELS[name]()
    compiled = burnish.compile(module, backend="eager", fullgraph=True)
    with torch.no_grad():
        for call in range(CALLS):
            want = module(*args, **kwargs)
            wrong = why_different(want, compiled(*args, **kwargs))
            assert wrong is None, f"call {call}: {wrong}"
            args, kwargs = other_data(args), dict(zip(kwargs, other_data(tuple(kwargs.values())), strict=True))


@pytest.mark.parametrize("name", TRAINING)
def test_training_step_has_the_gradients_of_eager(name):
    module, args, kwargs = MODELS[name]()
    twin = copy.deepcopy(module)
    module.train(), twin.train()
    compiled = burnish.compile(twin, backend="eager", fullgraph=True)
    for call in range(CALLS):
        want, got = trained(module, module, args, kwargs, call), trained(twin, compiled, args, kwargs, call)
        for part, expected in want.items():
            wrong = why_different(expected, got[part])
            assert wrong is None, f"call {call}, {part}: {wrong}"
        args = other_data(args)


def trained(module, run, args, kwargs, seed):
    """One step of gradient descent: the results, and every gradient and parameter after it."""
    torch.manual_seed(seed)  # dropout
    module.zero_grad()
    result = run(*args, **kwargs)
    result[-1].backward()
    with torch.no_grad():
        for weight in module.parameters():
            weight.sub_(weight.grad, alpha=0.1)
    return {
        "result": tuple(part.detach() for part in result),
        "gradients": {name: weight.grad.clone() for name, weight in module.named_parameters()},
        "weights": {name: weight.detach().clone() for name, weight in module.named_parameters()},
        "random state": torch.rand(2),
    }


def test_training_and_evaluation_mode_are_distinguished():
    module, args, _ = MODELS["nanogpt"]()
    compiled = burnish.compile(module, backend="eager", fullgraph=True)
    with torch.no_grad():
        for mode in (True, False, True, False):
            module.train(mode)
            torch.manual_seed(3)
            want = module(*args)
            torch.manual_seed(3)
            assert why_different(want, compiled(*args)) is None


def test_model_takes_batches_of_changing_size():
    module, (text, targets), _ = MODELS["nanogpt"]()
    compiled = burnish.compile(module, backend="eager", fullgraph=True)
    with torch.no_grad():
        for batch in (4, 2, 1, 4, 3):
            args = text[:batch], targets[:batch]
            assert why_different(module(*args), compiled(*args)) is None


ALONE = """
import sys
import torch
before = set(sys.modules)
import burnish
from bench.models import MODELS

module, args, kwargs = MODELS["nanogpt"]()
compiled = burnish.compile(module, backend="eager")
with torch.no_grad():
    for _ in range(3):
        compiled(*args, **kwargs)
avoided = ("torch._dynamo", "torch._inductor", "torch._functorch", "sympy")
loaded = sorted(name for name in set(sys.modules) - before if name.startswith(avoided))
assert "torch._dynamo" not in before and not loaded, loaded
"""


def test_capture_leaves_torch_compile_and_sympy_unimported():
    root = Path(__file__).resolve().parents[2]
    paths = os.pathsep.join([str(root / "src"), str(root)])
    run_program(ALONE, environment={**os.environ, "PYTHONPATH": paths}, prepare=TORCH)
