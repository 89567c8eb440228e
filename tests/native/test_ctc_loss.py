"""CTC losses of tensors of lengths: eager's kernels forward and backward, with the rest of the step fused."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import burnish
from burnish.settings import patch

from .compare_training import alike, trained


def speech(i):
    """Other sizes and other lengths in each call."""
    count, positions, longest = 5 + i, 20 + i, 8 + i
    lengths = torch.arange(count) % longest + 1
    return torch.randn(positions, count, 4), torch.randint(1, 6, (count, longest)), positions - lengths, lengths


def training(reduction, is_whole, compiler):
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 6))

    def loss_of(x, words, positions, lengths):
        scores = model(x).log_softmax(-1)
        return F.ctc_loss(scores, words, positions, lengths, reduction=reduction, zero_infinity=True).mean()

    return trained(loss_of, torch.optim.Adam(model.parameters(), 0.01), is_whole, compiler), (model,)


@pytest.mark.parametrize("is_whole", [False, True], ids=["forward", "whole step"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_ctc_losses_of_all_sizes_and_lengths_are_compiled(reduction, is_whole):
    seen = alike(lambda compiler: training(reduction, is_whole, compiler), speech, steps=6, never_slower=False)
    assert (seen.breaks, seen.refused, seen.given_up, seen.native) == ([], [], [], [])
    assert seen.segments == 2  # one for the sizes of the first call, one for all


def loss_with(form, dtype):
    def fn(x, words, positions, lengths):
        scores = (x * 2).log_softmax(-1)
        if form == "one sequence":
            return torch.ctc_loss(scores[:, 0], words[0], positions[0], lengths[0], 5, 0) * 2
        if form == "one line of targets":
            words = torch.cat([words[0, : int(words.shape[1])], words[1]])
            return nn.CTCLoss(blank=5, zero_infinity=True)(scores, words, positions, lengths.int())
        return F.ctc_loss(scores.transpose(0, 1).contiguous().transpose(0, 1), words - 1, positions, lengths, 5).sin()

    x = torch.randn(12, 2, 6, dtype=dtype, requires_grad=True)
    return fn, (x, torch.randint(1, 5, (2, 3)), torch.tensor([12, 10]), torch.tensor([3, 3]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("form", ["one sequence", "one line of targets", "computed targets"])
def test_all_forms_of_a_ctc_loss_are_one_graph(form, dtype):
    fn, (x, *given) = loss_with(form, dtype)
    with patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(fn, fullgraph=True)
        for _ in range(3):
            made, wanted = compiled(x, *given), fn(x, *given)
            torch.testing.assert_close(made, wanted)
            (mine,), (theirs,) = (torch.autograd.grad(loss, x) for loss in (made, wanted))
            torch.testing.assert_close(mine, theirs)
            assert (made.shape, made.dtype, mine.stride()) == (wanted.shape, wanted.dtype, theirs.stride())
            with torch.no_grad():
                torch.testing.assert_close(compiled(x, *given), wanted)
        assert burnish.was_compiled(compiled)


def outcomes(compiler):
    """What happens after a write to the targets, and in a second backward."""

    def fn(x, words, positions, lengths):
        return F.ctc_loss((x * 2).log_softmax(-1), words, positions, lengths, reduction="none", zero_infinity=True)

    run, found = compiler(fn), []
    for seed in range(4):
        torch.manual_seed(seed)
        x, words, positions, lengths = speech(0)
        x.requires_grad_()
        made = run(x, words, positions, lengths)
        first, second = (torch.autograd.grad(made.sum(), x, retain_graph=True)[0] for _ in range(2))
        torch.testing.assert_close(first, second)
        words.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            made.sum().backward()
        found.append(first)
    return found


def test_backward_of_a_ctc_loss_may_run_twice_and_a_write_to_its_targets_is_an_error():
    with patch(never_slower=False, on_error="raise"):
        torch.testing.assert_close(outcomes(burnish.compile), outcomes(lambda fn: fn))


def test_an_error_of_a_ctc_loss_comes_after_the_writes_before_it():
    def fn(x, noted, words, positions, lengths):
        noted.add_(1)
        loss = F.ctc_loss((x * 2).log_softmax(-1), words, positions, lengths)
        noted.mul_(2)
        return loss

    x, words, positions, lengths = speech(0)
    worlds = []
    with patch(never_slower=False):
        for run in (fn, burnish.compile(fn)):
            noted = torch.zeros(2)
            for _ in range(3):
                run(x, noted, words, positions, lengths)
            with pytest.raises(RuntimeError) as caught:
                run(x, noted, words, positions + 100, lengths)
            worlds.append((str(caught.value), noted.tolist()))
    assert worlds[0] == worlds[1]


def after_a_write(compiler, which, reduction, is_inside):
    """Gradients, or the kind of error, where something is written to between forward and backward."""

    def write(made, scores, words, positions, lengths):
        if which == "lengths":
            positions.sub_(1), lengths.sub_(1)
        elif which == "loss":
            made.mul_(2)
        else:
            scores.data.mul_(2)

    def fn(x, *given):
        scores = (x * 2).log_softmax(-1)
        made = F.ctc_loss(scores, *given, reduction=reduction)
        if is_inside:
            write(made, scores, *given)
        return made, scores

    run, found = compiler(fn), []
    for seed in range(3):
        torch.manual_seed(seed)
        x, *given = speech(0)
        x = torch.cat([x, x[..., :2]], -1).requires_grad_()
        made, scores = run(x, *given)
        if not is_inside:
            write(made, scores, *given)
        try:
            found.append(torch.autograd.grad(made.sum(), x)[0])
        except RuntimeError as error:
            found.append("modified by an inplace operation" in str(error))
    return found


@pytest.mark.falls_back("refused")
@pytest.mark.parametrize("is_inside", [True, False])
@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("which", ["lengths", "loss", "scores through .data"])
def test_a_write_between_a_ctc_loss_and_its_backward_is_eagers(which, reduction, is_inside):
    with patch(never_slower=False):
        mine, theirs = (after_a_write(c, which, reduction, is_inside) for c in (burnish.compile, lambda fn: fn))
    for found, wanted in zip(mine, theirs, strict=True):
        if isinstance(wanted, bool):
            assert found is wanted
        else:
            torch.testing.assert_close(found, wanted)
