"""PyTorch Lightning: Trainer callbacks that compile steps and compare with eager.

    trainer.fit(burnish.compile(model))            # needs no callback: training_step and the other steps are compiled

`BurnishCallback` compiles the steps if the Trainer rejects a compiled module, as it does for all strategies except
single devices, DDP and FSDP. `EagerComparison` measures the speedup during training.

    trainer = Trainer(strategy="model_parallel", callbacks=[BurnishCallback(), EagerComparison()])
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import torch

from ..api import compile
from ..frontend import stance

if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback  # type: ignore[import-not-found]
else:
    from lightning.pytorch import Callback

STEPS = ("forward", "training_step", "validation_step", "test_step", "predict_step")


class BurnishCallback(Callback):
    """Compiles the steps of the trained module while the Trainer runs.

    steps: the methods to compile.
    compile_kwargs: the arguments of ``burnish.compile``.
    """

    def __init__(self, steps: tuple[str, ...] = STEPS, **compile_kwargs: Any):
        super().__init__()
        self.steps, self.compile_kwargs = steps, compile_kwargs
        self._before: dict[str, Any] = {}

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if self._before or getattr(pl_module, "_compiler_ctx", None) is not None:
            return  # already compiled
        for name in self.steps:
            self._before[name] = vars(pl_module).get(name)
            setattr(pl_module, name, compile(getattr(pl_module, name), **self.compile_kwargs))

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._take_back(pl_module)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._take_back(pl_module)

    def _take_back(self, pl_module: Any) -> None:
        for name, own in self._before.items():
            if own is None:
                vars(pl_module).pop(name, None)
            else:
                setattr(pl_module, name, own)
        self._before.clear()


class EagerComparison(Callback):
    """Runs blocks of training batches alternately compiled and in eager, and prints the medians at the end.

    Both compute the same, so the training result does not change. The first batches of each block are not measured:
    they may compile, and they warm up caches.

    block: batches per block. skip: the first batches of a block that are not measured.
    """

    def __init__(self, block: int = 20, skip: int = 3, print_to: Any = print):
        super().__init__()
        if skip >= block:
            raise ValueError(f"skip={skip} leaves nothing of a block of {block} batches")
        self.block, self.skip, self.print_to = block, skip, print_to
        self.seconds: dict[str, list[float]] = {"eager": [], "compiled": []}
        self._batches, self._started = 0, 0.0

    @property
    def medians(self) -> dict[str, float]:
        """Median seconds per batch for each kind ("eager", "compiled") that has run."""
        return {kind: statistics.median(found) for kind, found in self.seconds.items() if found}

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self._is_eager():
            self._stance = stance.set_stance("force_eager")
            self._stance.__enter__()
        self._wait()
        self._started = time.perf_counter()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._wait()
        seconds = time.perf_counter() - self._started
        if self._batches % self.block >= self.skip:
            self.seconds["eager" if self._is_eager() else "compiled"].append(seconds)
        self._leave()
        self._batches += 1

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        medians = self.medians
        if len(medians) < 2:
            self.print_to(f"EagerComparison: {self._batches} batches are too few for blocks of {self.block}.")
            return
        ratio = medians["eager"] / medians["compiled"]
        self.print_to(
            f"EagerComparison: a batch takes {medians['eager'] * 1e3:.2f} ms eagerly and "
            f"{medians['compiled'] * 1e3:.2f} ms compiled, {ratio:.2f}x "
            f"(medians of {len(self.seconds['eager'])} and {len(self.seconds['compiled'])})"
        )

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._leave()

    def _is_eager(self) -> bool:
        return self._batches // self.block % 2 == 1

    def _leave(self) -> None:
        entered = vars(self).pop("_stance", None)
        if entered is not None:
            entered.__exit__()

    def _wait(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
