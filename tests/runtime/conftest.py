"""Fixtures for tests with threads."""

import sys

import pytest


@pytest.fixture
def hasty():
    """Threads take turns a hundred times as often as usual, so that they meet everywhere."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(interval)
