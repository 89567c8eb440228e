"""Tests run with internal errors raised, not swallowed into a fallback, and with the tripwire of capture on."""

import os

os.environ.setdefault("BURNISH_ON_ERROR", "raise")
os.environ.setdefault("BURNISH_CHECK", "1")
os.environ.setdefault("BURNISH_CACHE", "0")  # nor code that an earlier run left on disk
os.environ.setdefault("BURNISH_NEVER_SLOWER", "0")  # a test of compiled code must not end up testing eager
