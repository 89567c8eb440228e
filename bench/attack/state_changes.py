"""What `state.py` changes between two calls. Each is a function of the world and a source of random choices."""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from . import state_worlds
from .state_worlds import World

Change = Callable[[World, random.Random], None]
CHANGES: dict[str, Change] = {}


def change(function: Change) -> Change:
    CHANGES[function.__name__] = function
    return function


@contextmanager
def restored_switches() -> Iterator[None]:
    """Torch's switches and the globals, as they were."""
    dtype, scale = torch.get_default_dtype(), state_worlds.SCALE
    is_deterministic, is_grad = torch.are_deterministic_algorithms_enabled(), torch.is_grad_enabled()
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(is_deterministic)
        torch.set_grad_enabled(is_grad)
        torch.set_autocast_enabled("cpu", False)
        torch.clear_autocast_cache()
        state_worlds.SCALE = scale


def part(world: World, pick: random.Random) -> nn.Module:
    return pick.choice([m for m in world.model.modules()])


@change
def nothing(world: World, pick: random.Random) -> None:
    pass


@change
def forward_hook(world: World, pick: random.Random) -> None:
    def hook(module: nn.Module, args: tuple, output: object) -> object:
        world.log.append(f"forward {type(module).__name__}")
        return output * 2 if isinstance(output, torch.Tensor) else None

    world.handles.append(part(world, pick).register_forward_hook(hook))


@change
def forward_pre_hook(world: World, pick: random.Random) -> None:
    def hook(module: nn.Module, args: tuple) -> tuple:
        world.log.append(f"before {type(module).__name__}")
        return (args[0] + 1,)

    world.handles.append(part(world, pick).register_forward_pre_hook(hook))


@change
def full_backward_hook(world: World, pick: random.Random) -> None:
    def hook(module: nn.Module, given: tuple, made: tuple) -> None:
        world.log.append(f"backward {type(module).__name__}")

    world.handles.append(world.model.first.register_full_backward_hook(hook))


@change
def gradient_hook(world: World, pick: random.Random) -> None:
    weight = world.model.second.weight
    if weight.requires_grad:
        world.handles.append(weight.register_hook(lambda gradient: gradient * 3))


@change
def remove_hooks(world: World, pick: random.Random) -> None:
    while world.handles:
        world.handles.pop().remove()


@change
def swap_parameter(world: World, pick: random.Random) -> None:
    layer = pick.choice((world.model.first, world.model.second))
    layer.weight = nn.Parameter(torch.full_like(layer.weight, 0.25), requires_grad=pick.random() < 0.7)


@change
def drop_bias(world: World, pick: random.Random) -> None:
    world.model.first.bias = None


@change
def swap_submodule(world: World, pick: random.Random) -> None:
    world.model.act = pick.choice((nn.ReLU, nn.Tanh, nn.Identity, nn.GELU))()


@change
def swap_layer(world: World, pick: random.Random) -> None:
    world.model.second = nn.Linear(8, 4, bias=pick.random() < 0.5).to(world.model.first.weight.dtype)


@change
def freeze(world: World, pick: random.Random) -> None:
    for parameter in part(world, pick).parameters():
        parameter.requires_grad_(not parameter.requires_grad)


@change
def other_dtype(world: World, pick: random.Random) -> None:
    world.dtype = torch.float64 if world.dtype is torch.float32 else torch.float32
    if pick.random() < 0.9:  # else the types do not fit, and eager raises
        world.model.to(world.dtype)


@change
def train_or_eval(world: World, pick: random.Random) -> None:
    world.model.train(not world.model.training)


@change
def part_in_eval(world: World, pick: random.Random) -> None:
    world.model.norm.eval()


@change
def patched_method(world: World, pick: random.Random) -> None:
    if "helper" in vars(world.model):
        del world.model.helper
    else:
        world.model.helper = types.MethodType(lambda self, x: x - self.gain, world.model)


@change
def patched_forward(world: World, pick: random.Random) -> None:
    layer = world.model.second
    if "forward" in vars(layer):
        del layer.forward
    else:
        layer.forward = lambda x: nn.functional.linear(x, layer.weight) * 2


@change
def data_edit(world: World, pick: random.Random) -> None:
    world.model.first.weight.data.mul_(-1)


@change
def other_data(world: World, pick: random.Random) -> None:
    weight = world.model.second.weight
    weight.data = (weight.data + 1).t().contiguous().t() if pick.random() < 0.5 else weight.data + 1


@change
def other_buffer(world: World, pick: random.Random) -> None:
    world.model.count = torch.full_like(world.model.count, 5.0)


@change
def clear_gradients(world: World, pick: random.Random) -> None:
    world.model.zero_grad(set_to_none=pick.random() < 0.5)


@change
def grad_mode(world: World, pick: random.Random) -> None:
    torch.set_grad_enabled(not torch.is_grad_enabled())


@change
def autocast(world: World, pick: random.Random) -> None:
    torch.set_autocast_enabled("cpu", not torch.is_autocast_enabled("cpu"))


@change
def deterministic(world: World, pick: random.Random) -> None:
    torch.use_deterministic_algorithms(not torch.are_deterministic_algorithms_enabled())


@change
def default_dtype(world: World, pick: random.Random) -> None:
    torch.set_default_dtype(torch.float64 if torch.get_default_dtype() is torch.float32 else torch.float32)


@change
def attribute_of_object(world: World, pick: random.Random) -> None:
    world.model.scaled.scale = pick.choice((1.0, 3, -2.0, True))


@change
def other_object(world: World, pick: random.Random) -> None:
    world.model.scaled = state_worlds.Scaled(4.0)


@change
def attribute_of_module(world: World, pick: random.Random) -> None:
    world.model.gain = pick.choice((1, 2.5, -1.0, 0.0))


@change
def cell(world: World, pick: random.Random) -> None:
    world.set_cell(pick.choice((1, 3.0, torch.tensor(2.0), -0.5)))


@change
def global_number(world: World, pick: random.Random) -> None:
    state_worlds.SCALE = pick.choice((1.5, 2, -3.0))


@change
def other_rows(world: World, pick: random.Random) -> None:
    world.rows = pick.choice((1, 2, 3, 7))


@change
def gradient_of_input(world: World, pick: random.Random) -> None:
    world.needs_gradient = not world.needs_gradient
