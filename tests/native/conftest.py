"""What several files here choose the compiler's kernels by."""

import pytest

from burnish.schedule import choose_calls


@pytest.fixture
def own_kernels_only(monkeypatch):
    """Every product is one of ours, which reads and writes where it is told to."""
    def choose(spec, **_):
        candidate = choose_calls.own_candidate(spec)
        if candidate is None:
            pytest.skip("there are no kernels of our own for this machine")
        return choose_calls.Choice(candidate, 1e-9, {choose_calls.OWN: 1e-9})

    monkeypatch.setattr(choose_calls, "choose", choose)
