"""Finds modules that are loaded already, without importing them.

    graph_key = loaded("burnish.compiler.graph_cache_key")        None where it is not loaded, or not completely

`sys.modules` holds a module from the start of its import. While another thread imports it, its functions may not
exist yet. An `import` statement waits for that thread; a lookup in `sys.modules` does not.
"""

from __future__ import annotations

import sys
from typing import Any


def loaded(name: str) -> Any:
    module = sys.modules.get(name)
    is_begun = getattr(getattr(module, "__spec__", None), "_initializing", False)  # set by CPython during the import
    return None if is_begun else module
