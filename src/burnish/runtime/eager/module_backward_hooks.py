"""Graph nodes around a module with backward hooks: the two functions of autograd between which gradients are watched.

    hook = MakeHook(module)()                  torch's own object, with the hooks that the module has now
    (x,) = set_up_inputs(hook, (x,))           x passes through the first function
    y = module.forward(x)
    (y,) = set_up_outputs(hook, (y,))          and the result through the second

The nodes run as they are, each at its place, and the parts of the graph between them are compiled.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.utils.hooks import BackwardHook


class MakeHook:
    """``module`` is held: the graph belongs to this module alone."""

    stands_alone = True
    __module__ = __name__

    def __init__(self, module: torch.nn.Module):
        self.module = module
        self.__name__ = self.__qualname__ = f"hook_of_{type(module).__name__}"

    def __call__(self) -> BackwardHook:
        return make_hook(self.module)

    def without_data(self, call: Callable) -> None:
        """Nothing is hooked where only sizes are asked for."""


def make_hook(module: torch.nn.Module) -> BackwardHook:
    """With the hooks for all modules, which come first."""
    full, _ = module._get_backward_hooks()
    return BackwardHook(module, full, module._get_backward_pre_hooks())


def set_up_inputs(hook: BackwardHook, given: tuple) -> tuple:
    """``given``: the module's arguments, with None for those that are not tensors."""
    return hook.setup_input_hook(given)


def set_up_outputs(hook: BackwardHook, made: tuple) -> tuple:
    return hook.setup_output_hook(made)


def without_data(call: Callable, hook: None, given: tuple) -> tuple:
    """The tensors at other sizes: ``call("view_as", (x, x), {})`` is a call on tensors without data."""
    return tuple([call("view_as", (x, x), {}) if isinstance(x, torch.Tensor) else x for x in given])


for _step in (set_up_inputs, set_up_outputs):
    _step.stands_alone = True  # type: ignore[attr-defined]
    _step.without_data = without_data  # type: ignore[attr-defined]
