"""Comparisons of numbers that were read from tensors, and bools that were, which Python passes on without a look."""

import pytest
import torch

import burnish

X = torch.tensor([0.5, -1.5, 2.0])
BACKENDS = ["burnish", "eager", "aot_eager", lambda gm, inputs: gm.forward]
with_all_backends = pytest.mark.parametrize("backend", BACKENDS, ids=["burnish", "eager", "aot_eager", "custom"])


def alike(fn, backend, *calls):
    burnish.reset()
    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        for call in calls:
            got, want = compiled(call), fn(call)
            torch.testing.assert_close(got, want)
            assert list(map(type, got)) == list(map(type, want))


@with_all_backends
def test_a_bool_of_a_tensor_chooses_a_branch(backend):
    def fn(x):
        chosen = torch.cond((x > 1).any().item(), lambda t: t.sin(), lambda t: t.cos(), (x,))
        return chosen, torch.cond((x > 0).all().item(), lambda: x * 2, lambda: x * 3)

    alike(fn, backend, X, -X, X - 9, X + 9)


@with_all_backends
def test_a_comparison_of_numbers_chooses_a_branch(backend):
    def fn(x):
        count, total = int((x > 0).sum().item()), x.sum().item()
        chosen = torch.cond(count >= 2, lambda t: t.sin(), lambda t: t.cos(), (x,))
        return chosen, torch.cond(total < 0.1, lambda t: t * 2, lambda t: t * 3, (x,)), torch.tensor(count > 2)

    alike(fn, backend, X, -X, X - 9, X + 9)


@with_all_backends
def test_truths_are_returned(backend):
    def fn(x):
        total, has_large = x.sum().item(), (x > 1).any().item()
        return total > 0, has_large, torch.tensor(has_large, dtype=torch.float32), x * 2

    alike(fn, backend, X, -X, X - 9, X + 9)


def match_class(x, truth):
    match truth:
        case bool():
            return x * 2
        case int():
            return x


def match_value(x, truth):
    match truth:
        case True:
            return x * 2
        case 0:
            return x


USES = {
    "a class pattern": match_class,
    "a value pattern": match_value,
    "a branch": lambda x, truth: x * 2 if truth else x,
    "its negation": lambda x, truth: x * 2 if not truth else x,
    "identity": lambda x, truth: x * 2 if truth is True else x,
    "text": lambda x, truth: (x, f"{truth}", str(truth)),
    "arithmetic": lambda x, truth: x * (truth + 1),
    "bits": lambda x, truth: (x, truth | False, truth & True, ~(truth ^ True)),
    "a key": lambda x, truth: {True: x, False: x * 2}[truth],
    "an index": lambda x, truth: [x, x * 2][truth],
    "a conversion": lambda x, truth: (x, int(truth), float(truth), bool(truth)),
    "a type": lambda x, truth: (x, type(truth), isinstance(truth, bool), isinstance(truth, int)),
    "an argument": lambda x, truth: x * truth,
    "a size": lambda x, truth: x.sum(0, keepdim=truth),
    "a choice": lambda x, truth: (x, sum([truth, truth]), max(truth, False), [truth].count(True), truth in (1, 2)),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("fullgraph", [True, False])
def test_another_use_of_a_truth_is_eagers_or_a_break(use, fullgraph):
    for make in (lambda x: (x > 1).any().item(), lambda x: x.sum().item() > 0):
        burnish.reset()
        fn = lambda x, make=make: USES[use](x, make(x))  # noqa: E731
        compiled = burnish.compile(fn, backend="eager", fullgraph=fullgraph)
        for x in (X, -X, X - 9, X, X + 9):
            try:
                got = compiled(x)
            except burnish.Unsupported:
                assert fullgraph
                continue
            want = fn(x)
            assert repr(got) == repr(want)


WEIGHT = torch.nn.Parameter(torch.tensor([3.0, 4.0]))


@pytest.mark.parametrize("other", [lambda t: t + 1, lambda t: (t * WEIGHT).detach(), lambda t: t * WEIGHT * 2])
def test_gradients_are_those_of_the_chosen_branch(other):
    """Eager runs that branch alone: the result has no gradient where it has none, and a node's would have zeros."""

    def fn(x):
        return torch.cond(x.sum().item() > 0, lambda t: t * WEIGHT, other, (x,))

    compiled = burnish.compile(fn)
    for sign in (1, -1, 1, -1):
        x = torch.tensor([1.0, 2.0]) * sign
        found, wanted = compiled(x), fn(x)
        assert found.requires_grad == wanted.requires_grad and torch.equal(found, wanted)
    burnish.reset()
    with pytest.raises(burnish.Unsupported, match="gradients"):
        burnish.compile(fn, fullgraph=True)(torch.ones(2))
