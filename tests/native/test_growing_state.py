"""State that grows in the first call (caches, optimizer state): compiled once later objects reach the same point."""

import torch
from torch import nn

import burnish
from burnish import events
from burnish.settings import patch


def compiled_at(calls):
    """The numbers of the calls in which a graph was compiled."""
    found, now = [], 0
    stop = events.subscribe(lambda event: found.append(now) if event.kind == "loops" else None)
    try:
        with patch(never_slower=False, on_error="raise", cache=False):
            for now, call in enumerate(calls):
                call()
    finally:
        stop()
    return sorted(set(found))


class Cache:
    def __init__(self):
        self.kept = None


def fill(cache, x):
    cache.kept = x * 2 if cache.kept is None else torch.cat([cache.kept, x * 2])
    return cache.kept.sum(0)


def calls_of(compiled, caches, lengths):
    def call(cache, length):
        x = torch.randn(length, 8)
        want = (x * 2 if cache.kept is None else torch.cat([cache.kept, x * 2])).sum(0)
        torch.testing.assert_close(compiled(cache, x), want)

    return [
        lambda cache=cache, length=length: call(cache, length) for cache, length in zip(caches, lengths, strict=True)
    ]


def test_a_cache_is_filled_eagerly_and_its_growth_compiled_once():
    burnish.reset()
    assert compiled_at(calls_of(burnish.compile(fill), [Cache()] * 7, [5, 4, 4, 4, 4, 4, 4])) == [3]


def begin(cache, x):
    """The first call appends to an empty tensor, as those of transformers do."""
    cache.kept = torch.cat([torch.empty(0, 8) if cache.kept is None else cache.kept, x * 2])
    return cache.kept.sum(0)


def segments_of(compiled):
    return vars(compiled)["__burnish_program__"].entry.segments


def test_tensor_appended_to_an_empty_one_is_known_to_grow():
    burnish.reset()
    compiled = burnish.compile(begin)
    assert compiled_at(calls_of(compiled, [Cache()] * 7, [5, 4, 4, 4, 4, 4, 4])) == [3]
    assert len(segments_of(compiled)) == 2  # none for the size that the second call happened to have


def test_a_second_call_is_not_compiled_for_all_sizes_before_it_is_asked_for_twice():
    burnish.reset()
    compiled = burnish.compile(begin)
    assert compiled_at(calls_of(compiled, [Cache()] * 3, [5, 4, 4])) == []


def test_tensor_appended_to_an_empty_one_may_stay_as_it_is():
    burnish.reset()

    def once(cache, x):
        if cache.kept is None:
            cache.kept = torch.cat([torch.empty(0, 8), x * 2])
        return cache.kept.sum(0) + x

    compiled, cache = burnish.compile(once), Cache()
    for length in (5, 1, 1, 1):
        x = torch.randn(length, 8)
        found = compiled(cache, x)
        torch.testing.assert_close(found, cache.kept.sum(0) + x)
    assert cache.kept.shape == (5, 8)


def test_the_first_call_with_a_cache_is_compiled_when_another_cache_comes():
    burnish.reset()
    assert compiled_at(calls_of(burnish.compile(fill), [Cache() for _ in range(3)], [5, 5, 5])) == [1]


def test_an_optimizer_s_first_step_is_not_compiled_and_the_second_is():
    burnish.reset()
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)

    @burnish.compile
    def step():
        optimizer.zero_grad()
        loss = net(torch.ones(3, 4)).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    assert compiled_at([step] * 5) == [1]


def test_function_that_changes_nothing_it_reads_is_compiled_at_once():
    burnish.reset()
    net, seen = nn.Linear(4, 4), []
    compiled = burnish.compile(lambda x: seen.append(0) or net(x).relu())
    assert compiled_at([lambda: compiled(torch.ones(3, 4))] * 3) == [0]
