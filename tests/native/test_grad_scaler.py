"""Mixed precision with `torch.amp.GradScaler`: one graph a step, in which a step with infinite gradients is skipped."""

import pytest
import torch
from torch import nn

from .compare_training import alike


def world(dtype, clips=False, whole=True, fused=False):
    def build(compiler):
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, fused=fused)
        scaler = torch.amp.GradScaler("cpu", growth_interval=2)

        def loss_of(x, y):
            with torch.autocast("cpu", dtype=dtype, enabled=dtype is not torch.float32):
                return nn.functional.mse_loss(model(x).float(), y)

        def update(loss):
            scaler.scale(loss).backward()
            if clips:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

        run = loss_of if whole else compiler(loss_of)

        def step(x, y):
            optimizer.zero_grad()
            loss = run(x, y)
            update(loss)
            return loss.detach()

        return compiler(step) if whole else step, (model, optimizer, scaler)

    return build


def batches(i):
    """Gradients of two of the steps are infinite: the parameters stay as they are, and the scale shrinks."""
    x = torch.randn(16, 8)
    if i in (3, 6):
        x[0, 0] = float("inf")
    return x, torch.randn(16, 4)


@pytest.mark.parametrize("clips", [False, True], ids=["plain", "clipped"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_a_whole_step_is_one_graph_once_the_optimizer_has_state(dtype, clips):
    tolerance = 1e-4 if dtype is torch.float32 else 3e-2
    seen = alike(world(dtype, clips), batches, steps=10, tolerance=tolerance)
    assert (seen.refused, seen.given_up) == ([], [])
    assert (seen.breaks, seen.segments) == (["B103"], 3)  # the first step makes the scale and the momentum


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_compiled_loss_is_scaled_outside(dtype):
    seen = alike(world(dtype, clips=True, whole=False), batches, steps=10, tolerance=3e-2)
    assert (seen.refused, seen.given_up, seen.breaks, seen.segments) == ([], [], [], 1)


def test_a_fused_optimizer_that_knows_of_the_scaler_needs_no_break():
    """The optimizer gets the scaler's result, and skips the step itself."""
    seen = alike(world(torch.float32, fused=True), batches, steps=10)
    assert seen.refused == [] and seen.given_up == []


def test_the_state_of_a_scaler_is_loaded_midway():
    def build(compiler):
        step, (model, optimizer, scaler) = world(torch.float32)(compiler)
        saved = []

        def run(x, y, i):
            if i == 4:
                saved.append((scaler.state_dict(), scaler.get_scale()))
            if i == 7:
                scaler.load_state_dict(saved[0][0])
            return step(x, y), scaler.get_scale()

        return run, (model, optimizer, scaler)

    seen = alike(build, lambda i: (*batches(i), i), steps=10)
    assert seen.given_up == [] and seen.refused == []


def test_the_address_of_an_object_is_a_key_as_long_as_it_is_that_object():
    class Owner:
        pass

    owners = [Owner(), Owner()]

    def build(compiler):
        table = {id(owner): k for k, owner in enumerate(owners)}

        def look_up(x, owner):
            return x + table[id(owner)]

        run = compiler(look_up)
        return lambda i: run(torch.ones(2), owners[i % 2]), ()

    seen = alike(build, lambda i: (i,), steps=5)
    assert seen.breaks == []


def test_a_dictionary_is_read_whole_after_one_of_its_keys_was_written():
    def build(compiler):
        states = {"first": {"stage": "ready", "factor": torch.tensor(2.0)}}

        def go(x):
            states["first"]["stage"] = "done"
            return [x * state["factor"] for state in states.values() if state["stage"] == "done"]

        run = compiler(go)

        def step(x):
            states["first"]["stage"] = "ready"
            return run(x), dict(states["first"])

        return step, ()

    seen = alike(build, lambda i: (torch.randn(2),), steps=4)
    assert (seen.breaks, seen.segments) == ([], 1)
