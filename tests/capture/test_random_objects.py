"""``random.Random(seed)`` made by the function: constants of its seed, wherever the generator goes."""

import random

import torch

import burnish

from .harness import program


@program(breaks=0)
def test_all_methods_of_a_seeded_generator():
    def fn(x, seed):
        r, items = random.Random(seed), [1, 2, 3, 4]
        r.shuffle(items)
        drawn = r.random(), r.randint(1, 5), r.choice(items), r.uniform(0, 1), r.gauss(0, 1), r.gauss(0, 1)
        more = r.sample(range(10), 3), r.choices([1, 2], k=3), r.getrandbits(8), r.randrange(7), r.betavariate(1, 2)
        return x + r.random(), items, drawn, more

    return fn, [(torch.ones(2), seed) for seed in (3, 3, "abc", 3, 4)]


@program(breaks=0)
def test_a_generator_is_seeded_again():
    def fn(x):
        r = random.Random(1)
        first = r.random()
        r.seed(1)
        return x + first, r.random() == first, r.random()

    return fn, [(torch.ones(2),)] * 3


@program
def test_a_generator_is_returned_with_its_state():
    def fn(x):
        r = random.Random(1)
        return x + r.random(), r.getstate(), r

    def world(x):
        y, before, r = fn(x)
        return y, before == r.getstate(), r.random()

    return world, [(torch.ones(2),)] * 3


@program
def test_a_generator_from_outside_goes_on():
    r = random.Random(7)

    def fn(x):
        return x + r.random(), r.randint(0, 9)

    return fn, [(torch.ones(2),)] * 4, lambda: r.getstate()


@program
def test_a_generator_lives_across_a_break():
    def fn(x):
        r = random.Random(3)
        y = x + r.random()
        if x.sum() > 0:
            y = y * r.random()
        return y, r.random()

    return fn, [(torch.ones(2),), (-torch.ones(2),), (torch.ones(2),), (-torch.ones(2),)]


def test_one_graph_draws_from_the_states_of_generators_outside():
    own = random.Random(9)

    def fn(x, other):
        items = [random.randrange(100) for _ in range(5)]
        random.shuffle(items)
        drawn = random.random(), random.gauss(0, 1), random.getrandbits(70), random.getrandbits(0), own.random()
        before = random.getstate()
        first = random.random()
        random.setstate(before)
        own.seed(4 if random.random() > 0.5 else 5)
        return x * first, items, drawn, random.random() == first, other.random(), other.gauss(0, 1)

    def run(function, other):
        return function(torch.ones(2), other), random.getstate(), own.getstate(), other.getstate()

    compiled = burnish.compile(fn, fullgraph=True)
    for is_seeded in (True, False):
        for seed in (3, 3, 3, 5):
            if is_seeded:
                random.seed(1)
                own.seed(2)
            states = random.getstate(), own.getstate()
            expected = run(fn, random.Random(seed))
            random.setstate(states[0])
            own.setstate(states[1])
            assert str(run(compiled, random.Random(seed))) == str(expected)
