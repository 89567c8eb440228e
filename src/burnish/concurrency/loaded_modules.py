"""Modules that are loaded already, without importing them.

    graph_key = loaded("burnish.compiler.graph_cache_key")        None where it is not loaded, or not to the end

`sys.modules` holds a module from the moment at which its import begins. While another thread imports it, its functions
may not be there yet. An `import` statement waits for that thread; a look into `sys.modules` does not.
"""

from __future__ import annotations

import sys
from typing import Any


def loaded(name: str) -> Any:
    module = sys.modules.get(name)
    is_begun = getattr(getattr(module, "__spec__", None), "_initializing", False)  # CPython's own mark
    return None if is_begun else module
