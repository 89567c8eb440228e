"""Many authors' models give eager's results and gradients, through capture and the native compiler. Captured by us, and
by Dynamo, which a process has that names the backend "burnish" to torch.compile.

    python -m pytest -m slow tests/models/test_model_zoo.py
    python -m pytest -m slow tests/models/test_model_zoo.py -k dynamo
"""

import copy
import os

import pytest
import torch
from torch.utils._pytree import tree_leaves

import burnish
from burnish.settings import patch

from .model_zoo import MODELS

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def by_dynamo(module):
    torch._dynamo.reset()
    return torch.compile(module, backend="burnish")


pytestmark = [pytest.mark.slow, pytest.mark.parametrize("name", MODELS)]
by_both = pytest.mark.parametrize("compile", [burnish.compile, by_dynamo], ids=["burnish", "dynamo"])

NEAR = 1e-4
"""Of a tensor's norm: float32 through a dozen layers, in another order of sums."""
SINGLE = {"mixtral"}
"""Torch has no float64 kernel for the products of its experts."""
DROPS = {"p": 0.0, "drop_prob": 0.0}


def tensors(output) -> list[torch.Tensor]:
    output = output.to_tuple() if hasattr(output, "to_tuple") else output
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]


def assert_near(got: list[torch.Tensor], want: list[torch.Tensor], least: float = 1e-6) -> None:
    assert [(x.shape, x.dtype) for x in got] == [(x.shape, x.dtype) for x in want]
    for a, b in zip(got, want, strict=True):
        if not a.dtype.is_floating_point:
            assert torch.equal(a, b)
            continue
        assert torch.equal(a.isnan(), b.isnan())
        a, b = a.detach().double().nan_to_num(), b.detach().double().nan_to_num()
        assert (a - b).norm() <= NEAR * max(b.norm().item(), least)


@by_both
def test_inference(name, compile):
    module, inputs = MODELS[name]()
    module.eval()
    compiled = compile(module)
    with torch.no_grad(), patch(never_slower=False, on_error="raise"):
        want = tensors(module(**inputs))
        for _ in range(3):
            assert_near(tensors(compiled(**inputs)), want)


def to_train(name):
    module, inputs = MODELS[name]()
    if name not in SINGLE:
        module.double()
        inputs = {
            key: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for key, x in inputs.items()
        }
    for part in module.modules():  # dropout uses another random stream
        if isinstance(part, torch.nn.Dropout) or type(part).__name__ in ("StochasticDepth", "DropPath"):
            vars(part).update(DROPS)
    return module.train(), inputs


@by_both
def test_gradients(name, compile):
    """In float64: where rounding decides a relu or a maximum, gradients have no unique value in float32. The second
    call is the first one that our trace compiles."""
    module, inputs = to_train(name)
    other = copy.deepcopy(module)
    with patch(never_slower=False, on_error="raise", eager_random=True):
        compiled = compile(module)
        for seed in range(2):
            torch.manual_seed(seed)
            want = gradients(other, other, inputs)
            torch.manual_seed(seed)
            got = gradients(compiled, module, inputs)
            whole = sum(x.double().square().sum() for x in want[1:]) ** 0.5
            assert_near(got, want, least=max(1e-3 * float(whole), 1e-7))


def test_whole_steps(name):
    """Four of them, forward to optimizer in one function."""
    sides = []
    for _ in range(2):
        torch.manual_seed(0)
        module, inputs = to_train(name)
        optimizer = torch.optim.SGD(module.parameters(), lr=1e-2, momentum=0.9)
        sides.append((module, optimizer))
    (module, optimizer), (other, others) = sides

    def step(module, optimizer, inputs):
        optimizer.zero_grad()
        loss = loss_of(module, inputs)
        loss.backward()
        optimizer.step()
        return loss.detach()

    with patch(never_slower=False, on_error="raise", eager_random=True):
        compiled = burnish.compile(step)
        for seed in range(4):
            torch.manual_seed(seed)
            want = step(other, others, inputs)
            torch.manual_seed(seed)
            got = compiled(module, optimizer, inputs)
            whole = sum(x.detach().double().square().sum() for x in other.parameters()) ** 0.5
            assert_near([got, *module.parameters()], [want, *other.parameters()], least=1e-3 * float(whole))


def loss_of(fn, inputs) -> torch.Tensor:
    outputs = [x for x in tensors(fn(**inputs)) if x.is_floating_point() and x.requires_grad]
    return torch.stack([x.float().square().mean() for x in outputs]).sum()


def gradients(fn, module, inputs) -> list[torch.Tensor]:
    module.zero_grad()
    loss = loss_of(fn, inputs)
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in module.parameters() if p.grad is not None)]
