"""Losses: functional and as modules, reductions, weights, ignored targets, and their gradients."""

import torch
from torch import nn
from torch.nn import functional as F

from .caller_programs import program_with_caller
from .harness import program


def logits(i):
    return torch.randn(4, 3, requires_grad=True)


@program(breaks=0)
def test_cross_entropy_with_its_options():
    def fn(x, y, smoothing, reduction):
        return F.cross_entropy(x, y, label_smoothing=smoothing, reduction=reduction)

    options = ((0.0, "mean"), (0.1, "sum"), (0.0, "none"), (0.0, "mean"))
    return fn, [(torch.randn(4, 3), torch.randint(0, 3, (4,)), *o) for o in options]


@program(breaks=0)
def test_ignored_targets_and_class_weights():
    criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5]), ignore_index=-100)

    def fn(x, y):
        return criterion(x, y)

    targets = ([0, 1, 2, -100], [-100, -100, 1, 1], [-100] * 4, [0, 1, 2, 0])
    return fn, [(torch.randn(4, 3), torch.tensor(y)) for y in targets]


@program_with_caller
def test_gradient_of_cross_entropy_outside():
    def fn(x, y):
        return F.cross_entropy(x, y) + F.nll_loss(F.log_softmax(x, -1), y)

    def caller(fn, x, y):
        loss = fn(x, y)
        loss.backward()
        return loss, x.grad

    return fn, caller, lambda i: (logits(i), torch.randint(0, 3, (4,)))


@program(breaks=0)
def test_regression_losses_side_by_side():
    def fn(x, y):
        losses = [f(x, y) for f in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss)]
        return losses, F.mse_loss(x, y, reduction="sum")

    return fn, lambda i: (torch.randn(3, 2), torch.randn(3, 2))


@program
def test_broadcast_of_the_target_warns():
    def fn(x, y):
        return F.mse_loss(x, y)

    return fn, [(torch.randn(3, 1), torch.randn(*s)) for s in ((3, 1), (3,), (3, 1), (3,))]


@program(breaks=0)
def test_binary_losses_with_and_without_logits():
    def fn(x, y, weight):
        a = F.binary_cross_entropy_with_logits(x, y, pos_weight=weight)
        return a, F.binary_cross_entropy(x.sigmoid(), y), F.soft_margin_loss(x, y * 2 - 1)

    return fn, [(torch.randn(4), (torch.randn(4) > 0).float(), w) for w in (None, torch.tensor(3.0), None)]


@program
def test_binary_target_out_of_range_raises():
    def fn(x, y):
        return F.binary_cross_entropy(x, y)

    return fn, [(torch.tensor([v, 0.5]), torch.ones(2)) for v in (0.5, 1.5, 0.25, -1.0)]


@program
def test_target_class_out_of_range_raises():
    def fn(x, y):
        try:
            return F.cross_entropy(x, y)
        except IndexError as error:
            return str(error)

    return fn, [(torch.randn(2, 3), torch.tensor(y)) for y in ([0, 2], [0, 3], [1, 1], [5, 0])]


@program(breaks=0)
def test_distances_between_distributions_and_vectors():
    def fn(x, y):
        p, q = x.log_softmax(-1), y.softmax(-1)
        distances = F.cosine_similarity(x, y), F.pairwise_distance(x, y), torch.cdist(x, y)
        return F.kl_div(p, q, reduction="batchmean"), distances

    return fn, lambda i: (torch.randn(2, 3), torch.randn(2, 3))


@program(breaks=0)
def test_margin_losses():
    def fn(a, p, n, margin):
        return (
            F.triplet_margin_loss(a, p, n, margin=margin),
            F.margin_ranking_loss(a, p, n.sign(), margin=margin),
            F.cosine_embedding_loss(a, p, torch.ones(3)),
            F.multi_margin_loss(a, torch.tensor([0, 1, 0])),
        )

    return fn, [(torch.randn(3, 2), torch.randn(3, 2), torch.randn(3, 2), m) for m in (1.0, 0.2, 1.0)]


@program
def test_sequence_loss_with_lengths():
    def fn(x, targets, lengths):
        loss = F.ctc_loss(x.log_softmax(-1), targets, torch.tensor([5, 5]), lengths)
        (grad,) = torch.autograd.grad(loss, x)
        return loss, grad

    return fn, [
        (torch.randn(5, 2, 4, requires_grad=True), torch.randint(1, 4, (2, 3)), torch.tensor(n))
        for n in ([2, 3], [1, 1], [3, 2])
    ]


@program_with_caller
def test_loss_written_by_hand_with_a_mask():
    def fn(x, y, mask):
        losses = (x - y).pow(2) * mask
        return losses.sum() / mask.sum().clamp(min=1)

    def caller(fn, x, y, mask):
        fn(x, y, mask).backward()
        return x.grad

    return (
        fn,
        caller,
        [
            (torch.randn(4, requires_grad=True), torch.randn(4), torch.tensor(m))
            for m in ([1.0, 1.0, 0.0, 0.0], [0.0] * 4, [1.0] * 4)
        ],
    )


@program
def test_loss_module_is_chosen_by_name():
    losses = nn.ModuleDict({"mse": nn.MSELoss(), "l1": nn.L1Loss(reduction="sum")})

    def fn(x, y, names):
        parts = {n: losses[n](x, y) for n in names}
        return sum(parts.values()), {n: v.item() for n, v in parts.items()}

    return fn, [(torch.randn(3), torch.randn(3), n) for n in (("mse",), ("mse", "l1"), ("l1",), ("mse",))]
