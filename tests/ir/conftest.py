"""What draws is compared with eager, so eager's numbers are drawn."""

import pytest

from burnish.settings import patch


@pytest.fixture(autouse=True)
def as_eager_draws():
    with patch(eager_random=True):
        yield
