"""Every loss of torch.nn, forward and backward, compiled beside eager: all reductions, weights, smoothing, targets."""

import pytest
import torch
from torch import nn

from .compare_training import alike

SEED = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, generator=SEED)


X, Y, WIDE = normal(6, 5), normal(6, 5), normal(6, 5, 4)
CLASSES = torch.tensor([0, 4, -100, 2, 1, 3])
WIDE_CLASSES = torch.randint(0, 5, (6, 4), generator=SEED)
WEIGHT = torch.rand(5, generator=SEED) + 0.1
SIGNS = (torch.randint(0, 2, (6,), generator=SEED) * 2 - 1).float()
SIGNS_WIDE = (Y > 0).float() * 2 - 1
RANKED = torch.tensor([[3, 0, -1, 1, 2]] * 6)
SPEECH = normal(10, 3, 6).log_softmax(2)
SPOKEN = (torch.randint(1, 6, (3, 4), generator=SEED), torch.tensor([10, 9, 8]), torch.tensor([4, 3, 2]))


def fixed(tensor):
    """A target that takes no gradients."""
    return tensor.clone().requires_grad_(False), "fixed"


def similar(a, b):
    return 1 - nn.functional.cosine_similarity(a, b)


LOSSES = {
    "L1": (nn.L1Loss, {}, X, Y),
    "MSE": (nn.MSELoss, {}, X, Y),
    "Huber": (nn.HuberLoss, {"delta": 0.5}, X, Y),
    "SmoothL1": (nn.SmoothL1Loss, {"beta": 0.5}, X, Y),
    "SmoothL1 without a parabola": (nn.SmoothL1Loss, {"beta": 0.0}, X, Y),
    "CrossEntropy": (nn.CrossEntropyLoss, {}, X, CLASSES),
    "CrossEntropy weighted": (nn.CrossEntropyLoss, {"weight": WEIGHT}, X, CLASSES),
    "CrossEntropy smoothed": (nn.CrossEntropyLoss, {"weight": WEIGHT, "label_smoothing": 0.2}, X, CLASSES),
    "CrossEntropy that ignores a class": (nn.CrossEntropyLoss, {"ignore_index": 1}, X, CLASSES.clamp(0)),
    "CrossEntropy of images": (nn.CrossEntropyLoss, {"weight": WEIGHT, "label_smoothing": 0.2}, WIDE, WIDE_CLASSES),
    "CrossEntropy of probabilities": (nn.CrossEntropyLoss, {"weight": WEIGHT, "label_smoothing": 0.1}, X, Y.softmax(1)),
    "CrossEntropy of one": (nn.CrossEntropyLoss, {}, X[0], torch.tensor(3)),
    "NLL": (nn.NLLLoss, {"weight": WEIGHT}, X.log_softmax(1), CLASSES),
    "NLL of images": (nn.NLLLoss, {}, WIDE.log_softmax(1), WIDE_CLASSES),
    "PoissonNLL": (nn.PoissonNLLLoss, {"full": True}, X, fixed(Y.abs() * 4)),
    "PoissonNLL of rates": (nn.PoissonNLLLoss, {"log_input": False}, X.abs() + 0.1, fixed(Y.abs() * 4)),
    "GaussianNLL": (nn.GaussianNLLLoss, {"full": True}, X, Y, Y.abs() + 0.1),
    "KLDiv": (nn.KLDivLoss, {}, X.log_softmax(1), Y.softmax(1)),
    "KLDiv of logarithms": (nn.KLDivLoss, {"log_target": True}, X.log_softmax(1), Y.log_softmax(1)),
    "BCE": (nn.BCELoss, {"weight": WEIGHT}, X.sigmoid(), fixed(Y.sigmoid())),
    "BCE with a target that learns": (nn.BCELoss, {}, X.sigmoid(), Y.sigmoid()),
    "BCEWithLogits": (nn.BCEWithLogitsLoss, {"weight": WEIGHT, "pos_weight": WEIGHT * 3}, X, Y.sigmoid()),
    "MarginRanking": (nn.MarginRankingLoss, {"margin": 0.3}, X[:, 0], Y[:, 0], fixed(SIGNS)),
    "HingeEmbedding": (nn.HingeEmbeddingLoss, {"margin": 0.7}, X, fixed(SIGNS_WIDE)),
    "MultiLabelMargin": (nn.MultiLabelMarginLoss, {}, X, RANKED),
    "SoftMargin": (nn.SoftMarginLoss, {}, X, fixed(SIGNS_WIDE)),
    "MultiLabelSoftMargin": (nn.MultiLabelSoftMarginLoss, {"weight": WEIGHT}, X, fixed((Y > 0).float())),
    "MultiMargin": (nn.MultiMarginLoss, {"p": 2, "weight": WEIGHT, "margin": 0.5}, X, CLASSES.clamp(0)),
    "CosineEmbedding": (nn.CosineEmbeddingLoss, {"margin": 0.1}, X, Y, fixed(SIGNS)),
    "TripletMargin": (nn.TripletMarginLoss, {"swap": True}, X, Y, X.flip(0)),
    "TripletMargin by sums": (nn.TripletMarginLoss, {"p": 1.0}, X, Y, X.flip(0)),
    "TripletMarginWithDistance": (nn.TripletMarginWithDistanceLoss, {"distance_function": similar}, X, Y, X.flip(0)),
    "CTC": (nn.CTCLoss, {"zero_infinity": True}, SPEECH, *SPOKEN),
}


def world(loss, values):
    def build(compiler):
        run = compiler(lambda *args: loss(*args))

        def step():
            args = [
                v[0].clone() if isinstance(v, tuple) else v.detach().clone().requires_grad_(v.is_floating_point())
                for v in values
            ]
            made = run(*args)
            (made * torch.linspace(1, 2, made.numel()).view(made.shape)).sum().backward()
            return made, [x.grad for x in args if x.requires_grad]

        return step, ()

    return build


def check(name, reduction):
    kind, options, *values = LOSSES[name]
    seen = alike(world(kind(reduction=reduction, **options), values), lambda i: (), steps=3)
    assert seen.breaks == []
    assert (seen.refused, seen.planned) == ([], 2)


@pytest.mark.parametrize("name", LOSSES)
def test_means_of_losses_and_their_gradients_are_eagers(name):
    check(name, "mean")


@pytest.mark.slow
@pytest.mark.parametrize("reduction", ["none", "sum"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_their_gradients_are_eagers(name, reduction):
    check(name, reduction)


def test_no_loss_of_torch_was_forgotten():
    elsewhere = {"AdaptiveLogSoftmaxWithLoss", "LinearCrossEntropyLoss", "NLLLoss2d"}
    known = {kind.__name__ for kind, *_ in LOSSES.values()}
    assert {name for name in vars(nn) if name.endswith("Loss")} - elsewhere == known


@pytest.mark.falls_back("numbers", "refused", "sizes")
def test_a_loss_with_its_own_weights_may_break():
    def build(compiler):
        loss = nn.AdaptiveLogSoftmaxWithLoss(5, 20, [4, 10])
        run = compiler(lambda x, y: loss(x, y).loss)

        def step(x, y):
            loss.zero_grad()
            run(x, y).backward()

        return step, (loss,)

    assert alike(build, lambda i: (torch.randn(6, 5), torch.randint(0, 20, (6,))), steps=4).given_up == []


@pytest.mark.parametrize("shape", [(2, 6, 5), (2, 4, 6, 5)])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_cross_entropy_of_scores_with_classes_last(shape, weight):
    """As detectors call it: (batch, place, class), moved to where the loss wants the classes."""

    def build(compiler):
        head = nn.Linear(5, 5)
        loss = compiler(lambda x, y: nn.functional.cross_entropy(head(x).movedim(-1, 1), y, weight))

        def step(x, y):
            out = loss(x, y)
            out.backward()
            return out

        return step, (head,)

    seen = alike(build, lambda i: (torch.randn(shape), torch.randint(0, 5, shape[:-1])))
    assert (seen.breaks, seen.refused) == ([], [])
