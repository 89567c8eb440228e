"""Whether this Python has the global interpreter lock."""

import sys

has_global_lock = "t" not in getattr(sys, "abiflags", "") and "free-threading" not in sys.version
"""Before 3.14, ``sys.abiflags`` is missing on Windows."""
