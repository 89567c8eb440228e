"""Random numbers follow eager's stream here, because results are compared with eager."""

import pytest

from burnish.settings import patch


@pytest.fixture(autouse=True)
def as_eager_draws():
    with patch(eager_random=True):
        yield
