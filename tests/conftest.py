"""Tests run with internal errors raised, not swallowed into a fallback, and with the tripwire for user code run natively."""

import os

os.environ.setdefault("BURNISH_ON_ERROR", "raise")
os.environ.setdefault("BURNISH_CHECK", "1")
