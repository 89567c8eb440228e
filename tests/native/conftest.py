"""Settings by which the tests of this folder choose between own kernels and library calls."""

import pytest

from burnish.schedule.library import choose_calls
from burnish.schedule.library.own_kernels import matmul_tiling_and_packing


@pytest.fixture
def own_kernels_only(monkeypatch):
    """Every product uses an own kernel, which reads and writes the given memory."""
    if not matmul_tiling_and_packing.shapes_here():
        pytest.skip("there are no kernels of our own for this machine")

    def choose(spec, **_):
        candidate = choose_calls.own_candidate(spec)
        assert candidate is not None, spec
        return choose_calls.Choice(candidate, 1e-9, {choose_calls.OWN: 1e-9})

    monkeypatch.setattr(choose_calls, "choose", choose)
