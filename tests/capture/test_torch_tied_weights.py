"""Tied weights: one parameter under several names, tied and untied between calls, gradients summed."""

import torch
from torch import nn

from .caller_programs import program_with_caller
from .harness import program


class Language(nn.Module):
    def __init__(self, tied=True):
        super().__init__()
        self.embed = nn.Embedding(6, 3)
        self.mix = nn.Linear(3, 3)
        self.head = nn.Linear(3, 6, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.mix(self.embed(tokens)).tanh())


def tokens(i):
    return torch.randint(0, 6, (2, 4))


@program(breaks=0)
def test_embedding_and_head_share_one_weight():
    return Language(), lambda i: (tokens(i),)


@program_with_caller
def test_gradients_of_both_uses_are_summed():
    model = Language()

    def caller(fn, x):
        model.zero_grad()
        fn(x).pow(2).sum().backward()
        return model.embed.weight.grad, model.head.weight.grad is model.embed.weight.grad, len(list(model.parameters()))

    return model, caller, lambda i: (tokens(i),)


@program_with_caller
def test_tied_and_untied_between_calls():
    model = Language(tied=False)
    own = model.head.weight

    def caller(fn, x, tied):
        model.head.weight = model.embed.weight if tied else own
        model.zero_grad()
        out = fn(x)
        out.sum().backward()
        return out, own.grad, model.embed.weight.grad

    return model, caller, [(tokens(i), t) for i, t in enumerate((False, True, False, True))]


@program_with_caller
def test_update_through_one_name_is_seen_by_the_other():
    model = Language()

    def caller(fn, x, k):
        with torch.no_grad():
            model.head.weight.mul_(k)
        return fn(x), model.embed.weight[0]

    return model, caller, [(tokens(i), k) for i, k in enumerate((1.0, 2.0, -1.0))]


@program(breaks=0)
def test_one_layer_object_in_two_places():
    shared = nn.Linear(2, 2)
    model = nn.Sequential(shared, nn.ReLU(), shared, nn.Tanh(), shared)
    return model, lambda i: (torch.randn(2, 2),), model


@program
def test_identity_of_weights_is_compared_inside():
    model = Language()
    other = Language(tied=False)

    def fn(x, tied):
        m = model if tied else other
        same = m.head.weight is m.embed.weight
        return m(x) * 2 if same else m(x), same, len({id(p) for p in m.parameters()})

    return fn, [(tokens(i), t) for i, t in enumerate((True, False, True, False))]


@program_with_caller
def test_state_dict_of_tied_weights_is_loaded():
    model = Language()
    saved = {k: v.clone() + 1 for k, v in model.state_dict().items()}

    def caller(fn, x, load):
        if load:
            model.load_state_dict(saved)
        return fn(x), model.head.weight is model.embed.weight

    return model, caller, [(tokens(i), load) for i, load in enumerate((False, True, False))]


@program_with_caller
def test_double_breaks_no_tie():
    model = Language()

    def caller(fn, x, dtype):
        model.to(dtype)
        return fn(x), model.head.weight is model.embed.weight

    return model, caller, [(tokens(i), d) for i, d in enumerate((torch.float32, torch.float64, torch.float32))]


@program
def test_tied_buffers_see_one_update():
    a, b = nn.Module(), nn.Module()
    a.register_buffer("state", torch.zeros(2))
    b.state = a.state

    def fn(x):
        a.state += x
        return b.state * 2, b.state is a.state

    return fn, lambda i: (torch.randn(2),), a, b


@program_with_caller
def test_training_step_updates_a_tied_weight_once():
    model = Language()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def fn(x):
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def caller(fn, x):
        return fn(x), model.embed.weight, model.head.weight is model.embed.weight

    return fn, caller, lambda i: (tokens(i),)
