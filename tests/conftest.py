"""Tests run with internal errors raised, not swallowed into a fallback."""

import os

os.environ.setdefault("BURNISH_ON_ERROR", "raise")
