"""What several files here choose the compiler's kernels by."""

import pytest

from burnish.schedule import choose_calls
from burnish.schedule.library import own


@pytest.fixture
def own_kernels_only(monkeypatch):
    """Every product is one of ours, which reads and writes where it is told to."""
    if not own.shapes_here():
        pytest.skip("there are no kernels of our own for this machine")

    def choose(spec, **_):
        candidate = choose_calls.own_candidate(spec)
        assert candidate is not None, spec
        return choose_calls.Choice(candidate, 1e-9, {choose_calls.OWN: 1e-9})

    monkeypatch.setattr(choose_calls, "choose", choose)
