"""Torch's own testing databases, compiled and run beside eager.

    python -m bench.attack.databases --seed 0 --count 200             so many programs, drawn at random
    python -m bench.attack.databases --only module_db --count 0       all of one

Modules in training and in evaluation, higher-order operators, custom operators, autograd functions, optimizers. The
databases are data that torch installs for tests of operators (`torch.testing._internal`).
"""

from __future__ import annotations

import argparse
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from . import trial
from .trial import Program, TooLong, Verdict

Sample = tuple[str, Callable[[], Program]]


def modules() -> Iterator[Sample]:
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        for training in (True, False) if info.train_and_eval_differ else (True,):
            given = list(samples_of(info, training))
            for k in range(len(given)):
                yield (
                    f"module_db {info.name} {'training' if training else 'evaluation'} {k}",
                    lambda info=info, training=training, k=k: module(info, training, k),
                )


def samples_of(info: Any, training: bool) -> list[Any]:
    torch.manual_seed(0)
    return list(info.module_inputs_func(info, "cpu", torch.float32, True, training))


def module(info: Any, training: bool, k: int) -> Program:
    sample = samples_of(info, training)[k]
    built = sample.constructor_input
    made = info.module_cls(*built.args, **built.kwargs).to(torch.float32).train(training)
    return Program(made, sample.forward_input.args, sample.forward_input.kwargs)


def operators(database: str, path: str) -> Iterator[Sample]:
    for info in getattr(__import__(path, fromlist=[database]), database):
        for k in range(len(operator_samples(info)) if torch.float32 in info.dtypes else 0):
            yield f"{database} {info.name} {info.variant_test_name} {k}", lambda info=info, k=k: operator(info, k)


def operator_samples(info: Any) -> list[Any]:
    torch.manual_seed(0)
    return list(info.sample_inputs("cpu", torch.float32, requires_grad=info.supports_autograd))


def operator(info: Any, k: int) -> Program:
    sample = operator_samples(info)[k]

    def call(*args: Any, **kwargs: Any) -> Any:
        return info.op(*args, **kwargs)

    return Program(call, (sample.input, *sample.args), sample.kwargs)


def optimizers() -> Iterator[Sample]:
    from torch.testing._internal.common_optimizers import optim_db

    for info in optim_db:
        for k, given in enumerate(info.optim_inputs_func("cpu")):
            yield f"optim_db {info.optim_cls.__name__} {given.desc}", lambda info=info, k=k: optimizer(info, k)


class Training(nn.Module):
    """A model, an optimizer and a step. Two biases are added to one sum, so that their gradients are one."""

    def __init__(self, make: type, options: dict[str, Any]):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3, bias=False))
        self.biases = nn.ParameterList([torch.zeros(3), torch.ones(3)])
        parameters: Any = [*self.model.parameters(), *self.biases]
        if make.__name__ == "Muon":
            parameters = [x for x in parameters if x.ndim == 2]
        self.optimizer = make(parameters, **options)

    def gradients(self, x: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        first, second = self.biases
        loss = (self.model(x) + (0 + first + second)).square().mean()
        loss.backward()
        return loss

    def changed(self) -> Any:
        parameters = [x for group in self.optimizer.param_groups for x in group["params"]]
        return [parameters, [x.grad for x in parameters], self.optimizer.state_dict()]


def optimizer(info: Any, k: int) -> Program:
    torch.manual_seed(0)
    given = list(info.optim_inputs_func("cpu"))[k]
    training = Training(info.optim_cls, given.kwargs)
    x = torch.randn(5, 4)

    def step(x: torch.Tensor) -> torch.Tensor:
        if info.step_requires_closure:
            return training.optimizer.step(lambda: training.gradients(x))
        loss = training.gradients(x)
        torch.nn.utils.clip_grad_norm_(training.biases, 0.1)
        training.optimizer.step()
        return loss

    return Program(step, (x,), {}, training)


def programs(only: str = "") -> Iterator[Sample]:
    internal = "torch.testing._internal"
    found = {
        "module_db": modules,
        "optim_db": optimizers,
        "hop_db": lambda: operators("hop_db", f"{internal}.hop_db"),
        "custom_op_db": lambda: operators("custom_op_db", f"{internal}.custom_op_db"),
        "autograd_function_db": lambda: operators("autograd_function_db", f"{internal}.autograd_function_db"),
    }
    for name, samples in found.items():
        if not only or only in name:
            yield from samples()


def attacked(samples: list[Sample], say: Callable[[str], object] = lambda _: None) -> tuple[list[Verdict], list[str]]:
    """The verdicts, and what could not be tried."""
    verdicts, left_out = [], []
    for name, make in samples:
        try:
            verdicts.append(trial.tried(name, make))
        except TooLong:
            left_out.append(f"{name}: more than {trial.SECONDS} s")
        except Exception as error:
            left_out.append(f"{name}: {type(error).__name__}: {str(error)[:80]}")
        else:
            if verdicts[-1].differences:
                say(f"{name}: {verdicts[-1].differences[0]}")
    return verdicts, left_out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200, help="0: all")
    parser.add_argument("--only", default="", help="a part of a database's name")
    parser.add_argument("--match", default="", help="a part of a program's name")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    drawn = [sample for sample in programs(options.only) if options.match in sample[0]]
    random.Random(options.seed).shuffle(drawn)
    with trial.as_attacked():
        verdicts, left_out = attacked(drawn[: options.count or None], lambda text: print(text, flush=True))
    print(trial.report(verdicts, options.seed, left_out))
    raise SystemExit(any(verdict.differences for verdict in verdicts))


if __name__ == "__main__":
    main()
