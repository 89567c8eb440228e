"""Random numbers of torch, Python and NumPy: new on every call, in the same order as in eager."""

import random

import numpy as np
import torch
from torch import nn

from .caller_programs import program_with_caller
from .harness import program


@program(breaks=0)
def test_factories_give_new_numbers():
    def fn(x):
        return x + torch.rand(3), torch.randn(2), torch.rand_like(x), torch.randint(0, 100, (4,)), torch.randperm(5)

    return fn, lambda i: (torch.zeros(3),)


@program(breaks=0)
def test_in_place_distributions():
    def fn(x):
        x.normal_(1, 2)
        y = torch.empty(4).uniform_(-1, 1)
        return x, y, torch.empty(3).bernoulli_(0.5), torch.empty(2).exponential_(), y.clone().random_(5)

    return fn, lambda i: (torch.zeros(3),)


@program
def test_seed_inside_the_function():
    def fn(x, seed):
        torch.manual_seed(seed)
        return x + torch.rand(3), torch.initial_seed()

    return fn, [(torch.zeros(3), s) for s in (1, 2, 1, 1)]


@program
def test_generator_argument_advances():
    generator = torch.Generator().manual_seed(5)

    def fn(x):
        return x + torch.rand(3, generator=generator), torch.randperm(4, generator=generator), torch.rand(1)

    return fn, lambda i: (torch.zeros(3),)


@program
def test_generator_made_and_seeded_inside():
    def fn(x, seed):
        generator = torch.Generator()
        generator.manual_seed(seed)
        a = torch.randn(2, generator=generator)
        return x + a, generator.initial_seed()

    return fn, [(torch.zeros(2), s) for s in (3, 4, 3)]


@program
def test_python_random_with_torch():
    def fn(x):
        a = random.random()
        y = x * a + torch.rand(2)
        b = random.randint(0, 9)
        return y + b, random.uniform(-1, 1), random.gauss(0, 1)

    return fn, lambda i: (torch.ones(2),)


@program
def test_numpy_random_with_torch():
    def fn(x):
        noise = torch.from_numpy(np.random.randn(3))
        return x + noise, np.random.randint(10), torch.rand(1), np.random.rand()

    return fn, lambda i: (torch.ones(3),)


@program
def test_numpy_generator_object_advances():
    rng = np.random.default_rng(7)

    def fn(x):
        return x * rng.random(), torch.from_numpy(rng.permutation(4)), int(rng.integers(100))

    return fn, lambda i: (torch.ones(2),)


@program
def test_shuffled_order_of_layers():
    layers = [nn.Linear(2, 2), nn.ReLU(), nn.Tanh(), nn.Linear(2, 2)]

    def fn(x):
        order = list(range(4))
        random.shuffle(order)
        for i in order:
            x = layers[i](x)
        return x, order, random.choice("abc"), random.sample(range(10), 3)

    return fn, [(torch.randn(1, 2),) for _ in range(5)]


@program
def test_branch_on_a_coin_of_python():
    def fn(x, p):
        if random.random() < p:
            return x * 2 + torch.rand(1)
        return x - 1

    return fn, [(torch.ones(2), p) for p in (0.5, 0.5, 0.5, 0.9, 0.1, 0.5)]


@program
def test_branch_on_a_coin_of_torch():
    def fn(x):
        if torch.rand(()) < 0.5:
            return x.sin() * torch.rand(1)
        return x.cos()

    return fn, [(torch.ones(2),) for _ in range(6)]


@program
def test_layers_dropped_at_random():
    class Stochastic(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(4))

        def forward(self, x):
            used = 0
            for layer in self.layers:
                if self.training and torch.rand([]).item() < 0.4:
                    continue
                x = layer(x) + x
                used += 1
            return x, used

    return Stochastic(), [(torch.randn(1, 2),) for _ in range(5)]


@program
def test_fork_of_the_random_state():
    def fn(x):
        with torch.random.fork_rng():
            torch.manual_seed(11)
            inner = torch.rand(2)
        return x + inner, torch.rand(2)

    return fn, lambda i: (torch.randn(2),)


@program
def test_state_is_saved_and_put_back():
    def fn(x):
        state = torch.get_rng_state()
        a = torch.rand(2)
        torch.set_rng_state(state)
        b = torch.rand(2)
        return a, (a == b).all(), x + b

    return fn, lambda i: (torch.zeros(2),)


@program(breaks=0)
def test_categorical_samples():
    def fn(logits):
        probabilities = logits.softmax(-1)
        return torch.multinomial(probabilities, 3), torch.bernoulli(probabilities), torch.poisson(probabilities * 5)

    return fn, lambda i: (torch.randn(2, 5),)


@program
def test_distributions_package():
    def fn(mean, scale):
        normal = torch.distributions.Normal(mean, scale)
        sample = normal.rsample()
        kl = torch.distributions.kl_divergence(normal, torch.distributions.Normal(0.0, 1.0))
        return sample, normal.log_prob(sample), kl, torch.distributions.Categorical(logits=mean).sample((2,))

    return fn, lambda i: (torch.randn(3), torch.rand(3) + 0.5)


@program
def test_invalid_distribution_raises():
    def fn(scale):
        return torch.distributions.Normal(torch.zeros(2), scale).sample()

    return fn, [(torch.tensor(v),) for v in ([1.0, 2.0], [1.0, -1.0], [2.0, 2.0], [-1.0, -1.0])]


@program_with_caller
def test_functional_dropout_and_its_backward_use_one_mask():
    def fn(x):
        return nn.functional.dropout(x, 0.5) * 2 + nn.functional.dropout(x, 0.1, training=False)

    def caller(fn, x):
        out = fn(x)
        out.sum().backward()
        return out, x.grad

    return fn, caller, lambda i: (torch.ones(6, requires_grad=True),)


@program(breaks=0)
def test_seeded_noise_layer_in_training_only():
    def fn(x, training):
        noise = torch.randn_like(x) if training else torch.zeros_like(x)
        return x + noise, torch.rand(1)

    return fn, [(torch.ones(3), t) for t in (True, False, True, False)]


@program
def test_initialisers_use_random_numbers():
    def fn(w):
        nn.init.xavier_uniform_(w)
        a = w.clone()
        nn.init.kaiming_normal_(w, nonlinearity="relu")
        b = w.clone()
        nn.init.trunc_normal_(w, std=0.02)
        return a, b, w

    return fn, lambda i: (torch.empty(3, 4),)


@program(exact=False)
def test_negative_sizes_raise():
    def fn(x, n):
        try:
            return torch.rand(n).shape[0] + x, torch.randint(5, (2, n)).shape[1] + x
        except RuntimeError as error:
            return str(error), x * 2

    return fn, [(torch.ones(2), n) for n in (-1, 2, -2, 0)]
