"""Two hundred training steps follow eager's loss curve and are compiled four times.

A step accumulates gradients; every fourth clips them, steps the optimizer and the schedule, and clears them. Every
fifty steps the model is evaluated, midway everything is saved to a file and loaded from it. The reference trains in
double precision: compiled code's error must be at most twice eager's.
"""

import copy
import io

import torch
from torch import nn

import burnish
from burnish.settings import patch

from ..recorded_events import recorded

STEPS = 200


def build(dtype, compiler):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3)).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS // 4)

    def train(x, y, is_last):
        loss = nn.functional.cross_entropy(model(x), y, label_smoothing=0.1) / 4
        loss.backward()
        if is_last:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        return loss.detach()

    return compiler(train), model, optimizer, scheduler


def curve(dtype, compiler=lambda function: function):
    """The losses of all steps and evaluations."""
    train, *parts = build(dtype, compiler)
    model = parts[0]
    batches = torch.Generator().manual_seed(1)
    kept = io.BytesIO()
    losses = []
    for i in range(STEPS):
        x = torch.randn(8, 6, generator=batches).to(dtype)
        y = (x[:, :3] * torch.tensor([1.0, -2.0, 0.5], dtype=dtype)).argmax(1)
        losses.append(train(x, y, i % 4 == 3))
        if i % 50 == 49:
            model.eval()
            with torch.no_grad():
                losses.append(nn.functional.cross_entropy(model(x), y))
            model.train()
        if i == STEPS // 2 - 1:
            torch.save([part.state_dict() for part in parts], kept)
        if i == STEPS // 2 + 11:  # it turns out that some steps have to be done again
            kept.seek(0)
            for part, state in zip(parts, torch.load(kept), strict=True):
                part.load_state_dict(copy.deepcopy(state))
    return torch.stack([loss.detach().double() for loss in losses]), train


def test_two_hundred_steps_follow_eagers_curve_and_each_compile_says_why():
    with recorded("guards.missed", datum="failures") as misses, patch(never_slower=False, on_error="raise"):
        exact, _ = curve(torch.float64)
        eager, _ = curve(torch.float32)
        found, train = curve(torch.float32, burnish.compile)
    assert exact[-40:].mean() < 0.9 * exact[:40].mean()  # it learns
    off, allowed = (found - exact).abs().max(), 2 * (eager - exact).abs().max()
    assert off <= max(allowed, 1e-6), f"off by {off}, eager by {allowed / 2}"
    program = train.__burnish_program__
    points = (program.entry, *program.continuations.values())
    segments = [segment for point in points for segment in point.segments]
    assert len(segments) <= 4 and not any(point.given_up for point in points)
    assert all(segment.break_ is None for segment in segments)
    # Each recompile is reported with its reason, in the user's names.
    reasons = [str(source) for failures in misses for _, source, *_ in failures]
    assert len(misses) == len(segments) - 1 and all(misses)
    assert any("is_last" in reason for reason in reasons) and any(".grad" in reason for reason in reasons), reasons
