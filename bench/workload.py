"""The measured work of a model: one call, forward and backward, or a whole training step.

    work = Workload.of("bert", "train")
    side = work.side(contestant)
    side.prepare()                  # passes the model to the contestant
    side.begin()                    # its first call
    side.call_and_wait()            # the call that is timed
    side.results()                  # one more call, and all its tensors by name

In `train` the model is compiled and the loop around it is eager, as people write it. In `train-step` one function with
forward, backward and AdamW is compiled. Each contestant trains a model of its own; for inference all share one.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from .accuracy import NUDGE, differ, doubled, relative_error
from .clocks import wait
from .compare import tensors_of
from .contestants import Contestant
from .large import LARGE
from .models import MODELS
from .record import EAGER

Tensors = dict[str, torch.Tensor]

TRAINING_TIMES = 4
"""Batches for training: batch norm cannot train on one sample."""
LEARNING_RATE = 1e-5
"""So small that a thousand steps on the same data hardly change the weights: numbers that shrink to denormals would
slow down later steps."""


@dataclass
class Workload:
    fn: Callable
    args: tuple
    kwargs: dict[str, Any]
    mode: str
    device: str = "cpu"

    @classmethod
    def of(
        cls,
        model: str,
        mode: str,
        times: int | None = None,
        dropout: bool = True,
        device: str = "cpu",
        dtype: str | None = None,
    ) -> Workload:
        """`times`: a multiple of the model's usual batch."""
        # A billion random weights are generated where they will be used.
        with torch.device(device) if model in LARGE else contextlib.nullcontext():
            fn, args, kwargs = {**MODELS, **LARGE}[model](times=times or (1 if mode == "inference" else TRAINING_TIMES))
        if isinstance(fn, nn.Module) and mode != "inference":
            fn.train()
            if not dropout:
                remove_dropout(fn)
        if device != "cpu":
            fn = fn.to(device) if isinstance(fn, nn.Module) else fn
            args, kwargs = tree_map_only(torch.Tensor, lambda x: x.to(device), (args, kwargs))
        if dtype is not None:
            kind = getattr(torch, dtype)
            fn = fn.to(kind) if isinstance(fn, nn.Module) else fn
            args, kwargs = changed((args, kwargs), lambda x: x.to(kind))
        return cls(fn, args, kwargs, mode, device)

    def grad_mode(self) -> AbstractContextManager:
        return torch.no_grad() if self.mode == "inference" else torch.enable_grad()

    def side(self, contestant: Contestant, alone: bool = False) -> Side:
        """`alone`: no other side needs the model, so it need not be copied."""
        shared = alone or self.mode == "inference"
        side = SIDES[self.mode](contestant, self.fn if shared else copy.deepcopy(self.fn), self.args, self.kwargs)
        side.device = self.device
        if not alone:
            side.remember()
        return side

    def in_double(self) -> Workload:
        fn = copy.deepcopy(self.fn).double() if isinstance(self.fn, nn.Module) else self.fn
        return Workload(fn, doubled(self.args), doubled(self.kwargs), self.mode, self.device)

    def truth(self) -> tuple[Tensors | None, str | None]:
        """The results of eager in float64, or why there are none."""
        if self.mode != "inference":
            seen = []
            for seed in (0, 1):
                torch.manual_seed(seed)
                seen.append(self.side(Contestant(EAGER)).results())
            if differ(*seen):
                return None, "the model draws random numbers"
        try:
            return self.in_double().side(Contestant(EAGER), alone=True).results(), None
        except Exception as error:
            return None, f"it does not run in float64: {type(error).__name__}: {error}"

    def jumps(self, truth: Tensors) -> bool:
        """Whether slightly changed inputs have very different gradients."""
        if self.mode == "inference" or not isinstance(self.fn, nn.Module):
            return False
        sign = torch.Generator().manual_seed(0)

        def nudged(x: torch.Tensor) -> torch.Tensor:
            return x * (1 + NUDGE * (torch.rand(x.shape, generator=sign, dtype=x.dtype) * 2 - 1).sign().to(x.device))

        work = self.in_double()
        near = replace(work, args=changed(work.args, nudged), kwargs=changed(work.kwargs, nudged))
        return relative_error(truth, near.side(Contestant(EAGER), alone=True).results()) > 100 * NUDGE

    def shifted(self, steps: int) -> Workload:
        """The same workload on different inputs of the same kind."""

        def moved(x: torch.Tensor) -> torch.Tensor:
            return x.roll(steps, -1)

        return replace(self, args=changed(self.args, moved), kwargs=changed(self.kwargs, moved))

    def explain(self) -> tuple[int, int]:
        """The number of graph breaks and of graphs with Burnish."""
        import burnish

        side = self.side(Contestant(EAGER))
        output = burnish.explain(side.part())(*side.args, **side.kwargs)
        return output.graph_break_count, output.graph_count


def changed(inputs: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The inputs with all floating-point tensors changed."""
    return tree_map_only(torch.Tensor, lambda x: change(x.detach()) if x.is_floating_point() else x, inputs)


class Side:
    """One contestant's model, and how it is called."""

    device = "cpu"
    starting_calls = 1
    """Later calls behave like the last of these."""

    def __init__(self, contestant: Contestant, fn: Callable, args: tuple, kwargs: dict[str, Any]):
        self.contestant, self.fn, self.args, self.kwargs = contestant, fn, args, kwargs
        self.compiled = self.part()

    def part(self) -> Callable:
        """The callable passed to the contestant."""
        return self.fn

    def prepare(self) -> None:
        self.compiled = self.contestant.compile(self.part(), self.args, self.kwargs)

    def call(self) -> Any:
        raise NotImplementedError

    def call_and_wait(self) -> Any:
        """Call and wait for the GPU, which is still at work when a call returns."""
        result = self.call()
        wait(self.device)
        return result

    def begin(self) -> None:
        """The part that is timed as the first call."""
        for _ in range(self.starting_calls):
            self.call_and_wait()

    def remember(self) -> None:
        """Save the state that calls change, so that `results` can start where the first call did."""

    def results(self) -> Tensors:
        raise NotImplementedError


class Inference(Side):
    def call(self) -> Any:
        return self.compiled(*self.args, **self.kwargs)

    def results(self) -> Tensors:
        return copied(tensors_of(self.call()))


class Training(Side):
    """Forward and backward. A model without weights has gradients of its inputs."""

    def __init__(self, contestant: Contestant, fn: Callable, args: tuple, kwargs: dict[str, Any]):
        if not isinstance(fn, nn.Module):
            args = tuple(part.detach().clone().requires_grad_() for part in args)
        super().__init__(contestant, fn, args, kwargs)
        self.weights = (
            dict(fn.named_parameters())
            if isinstance(fn, nn.Module)
            else {f"input {number}": part for number, part in enumerate(args)}
        )

    def forget_gradients(self) -> None:
        for weight in self.weights.values():
            weight.grad = None

    def call(self) -> torch.Tensor:
        self.forget_gradients()
        loss = loss_of(self.compiled(*self.args, **self.kwargs))
        loss.backward()
        return loss.detach()

    def results(self) -> Tensors:
        return copied([("loss", self.call()), *gradients(self.weights)])


class TrainingStep(Training):
    starting_calls = 2
    """The first step creates the optimizer's state, which is a different program."""

    def __init__(self, contestant: Contestant, fn: nn.Module, args: tuple, kwargs: dict[str, Any]):
        self.optimizer = torch.optim.AdamW(fn.parameters(), lr=LEARNING_RATE)
        self.start: Tensors = {}
        super().__init__(contestant, fn, args, kwargs)

    def part(self) -> Callable:
        model, optimizer = self.fn, self.optimizer

        def step(*args, **kwargs):
            optimizer.zero_grad()
            loss = loss_of(model(*args, **kwargs))
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    def call(self) -> torch.Tensor:
        return self.compiled(*self.args, **self.kwargs)

    def results(self) -> Tensors:
        self.rewind()
        loss = self.call()
        return copied(
            [
                ("loss", loss),
                *gradients(self.weights),
                *((f"weight {name}", weight) for name, weight in self.weights.items()),
            ]
        )

    def remember(self) -> None:
        self.start = copied(self.state())

    def state(self) -> list[tuple[str, torch.Tensor]]:
        return [*self.fn.named_parameters(), *self.fn.named_buffers()]

    def rewind(self) -> None:
        """Restore the initial weights and moments, in place."""
        if not self.start:
            return
        with torch.no_grad():
            for name, part in self.state():
                part.copy_(self.start[name])
            for state in self.optimizer.state.values():
                for part in state.values():
                    part.zero_()


SIDES: dict[str, type[Side]] = {"inference": Inference, "train": Training, "train-step": TrainingStep}


def loss_of(result: Any) -> torch.Tensor:
    """The scalar loss that a model computes itself; else the mean square of everything it returns."""
    parts = floating(result)
    for part in parts:
        if part.dim() == 0:
            return part
    loss = parts[0].square().mean()
    for part in parts[1:]:
        loss = loss + part.square().mean()
    return loss


def floating(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result] if result.is_floating_point() else []
    if isinstance(result, dict):
        result = list(result.values())
    if not isinstance(result, (list, tuple)):
        return []
    return [part for inner in result for part in floating(inner)]


def remove_dropout(module: nn.Module) -> None:
    """Set the dropout rates of modules to zero: a dropout layer's `p`, or a number named for dropout."""
    for part in module.modules():
        kind = type(part).__name__.lower()
        for name, value in list(vars(part).items()):
            named = "drop" in name or (name in ("p", "drop_prob") and ("drop" in kind or "depth" in kind))
            if named and type(value) is float:
                setattr(part, name, 0.0)


def gradients(weights: dict[str, torch.Tensor]) -> Iterable[tuple[str, torch.Tensor]]:
    return ((f"gradient of {name}", weight.grad) for name, weight in weights.items() if weight.grad is not None)


def copied(named: Iterable[tuple[str, torch.Tensor]]) -> Tensors:
    return {name: part.detach().clone() for name, part in named}
