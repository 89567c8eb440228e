"""The names of TorchInductor's options, in the torch that is installed.

Asked only about names that Burnish has no rule for: a misspelt option is an error, and a rare one of TorchInductor is
none.
"""

from __future__ import annotations


def is_inductor_option(name: str) -> bool:
    """Whether ``torch._inductor.list_options()`` has this name. Imports the settings, which costs a second or so."""
    import torch._inductor.config as config

    return name in config._config  # pyright: ignore[reportAttributeAccessIssue]
