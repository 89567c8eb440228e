"""Contestants that run an exported file: ONNX Runtime and OpenVINO, common choices for inference on a CPU.

Both get the same ONNX file from `torch.onnx`, compute in float32 and with as many threads as torch has. Of a model in
bfloat16 OpenVINO gets the float32 model and a hint to compute in bfloat16, as its users do: it loads no convolutions in
bfloat16. Their first call includes the export, because without it there is nothing to call; `details` has its duration,
so that the rest can be seen alone. They read the input tensors without a copy, those of bfloat16 as float32; their
results are tensors that share their memory.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .contestants import Contestant


class Exported(Contestant):
    """The part common to both; each has its own `load`."""

    lazy = (
        "onnx",
        "onnxscript",
        "torch.onnx",
        "torch.onnx._internal.exporter._core",
        "torch.export",
        "torch._dynamo",
        "torch.onnx._internal.exporter._registration",
        "torch.onnx._internal.exporter._onnx_program",
    )

    def why_not(self, mode: str) -> str | None:
        return None if mode == "inference" else "runs inference only"

    @property
    def returns_flat(self) -> bool:
        return True

    def bring(self) -> None:
        for name in self.packages:
            importlib.import_module(name)
        for name in self.lazy:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)

    def compile(self, fn: Callable, args: tuple, kwargs: dict[str, Any]) -> Callable:
        with tempfile.TemporaryDirectory(prefix="burnish-bench-") as folder:
            path = Path(folder) / "model.onnx"
            begun = time.perf_counter()
            export(fn, args, kwargs, path)
            exported = time.perf_counter()
            run = self.load(path)
            self.details = {"export_seconds": exported - begun, "load_seconds": time.perf_counter() - exported}
        return run

    def load(self, path: Path) -> Callable:
        raise NotImplementedError


class OnnxRuntime(Exported):
    kind = "onnxruntime"
    packages = ("onnx", "onnxscript", "onnxruntime")

    def load(self, path: Path) -> Callable:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        names = [given.name for given in session.get_inputs()]

        def run(*args: Any, **kwargs: Any) -> list[torch.Tensor]:
            arrays = [tensor.numpy() for tensor in tensors_in(args, kwargs)]
            return [torch.from_numpy(array) for array in session.run(None, dict(zip(names, arrays, strict=True)))]

        return run


class OpenVino(Exported):
    kind = "openvino"
    packages = ("onnx", "onnxscript", "openvino")
    precision = "f32"

    def compile(self, fn: Callable, args: tuple, kwargs: dict[str, Any]) -> Callable:
        weights = fn.state_dict().values() if isinstance(fn, torch.nn.Module) else ()
        if any(tensor.dtype is torch.bfloat16 for tensor in (*weights, *tensors_in(args, kwargs))):
            self.precision = "bf16"
            fn = copy.deepcopy(fn).float() if isinstance(fn, torch.nn.Module) else fn
            args, kwargs = pytree.tree_map_only(torch.Tensor, without_bfloat16, (args, kwargs))
        return super().compile(fn, args, kwargs)

    def load(self, path: Path) -> Callable:
        import openvino

        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": self.precision,
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        }
        request = openvino.Core().compile_model(str(path), "CPU", settings).create_infer_request()

        def run(*args: Any, **kwargs: Any) -> list[torch.Tensor]:
            arrays = [without_bfloat16(tensor).numpy() for tensor in tensors_in(args, kwargs)]
            # The results are the request's own memory, valid until it runs again.
            results = request.infer(arrays, share_inputs=True, share_outputs=True)
            return [torch.from_numpy(array) for array in results.values()]

        return run


class AsModule(torch.nn.Module):
    """A function as a module, because the exporter accepts only modules."""

    def __init__(self, fn: Callable):
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


def export(fn: Callable, args: tuple, kwargs: dict[str, Any], path: Path) -> None:
    module = fn if isinstance(fn, torch.nn.Module) else AsModule(fn)
    torch.onnx.export(module, args, str(path), kwargs=kwargs, dynamo=True, verbose=False)


def without_bfloat16(tensor: torch.Tensor) -> torch.Tensor:
    """NumPy has no such dtype."""
    return tensor.float() if tensor.dtype is torch.bfloat16 else tensor


def tensors_in(args: tuple, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors among the arguments, in the order of an exported file's inputs, which is the order of the call."""
    return [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
