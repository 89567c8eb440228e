"""The names of TorchInductor's options, in the torch that is installed.

Read only for names that Burnish has no rule for: a misspelt option is an error, and a rare one of TorchInductor is
none.
"""

from __future__ import annotations

from collections.abc import Collection


def inductor_option_names() -> Collection[str]:
    """What ``torch._inductor.list_options()`` lists. Imports the settings, which costs a second or so."""
    import torch._inductor.config as config

    return config._config.keys()  # pyright: ignore[reportAttributeAccessIssue]
