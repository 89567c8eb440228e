"""The cache key of a captured graph: text that is equal whenever the compiler would make the same program.

    key_of(gm, example_inputs, gradients=False, live_scalar_types=())      'input … call_function torch.sin …', or None

It contains each node's target and arguments, the layouts of the inputs, and all that the compiler reads from torch, the
machine and the settings. Everything in it needs a name that means the same in another process. Without one, as for
a user's function or an extension's operator, the graph has no key.
"""

from __future__ import annotations

import builtins
import math
import operator
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch.fx import GraphModule, Node

from ..captured_graph.checkpoint_hooks import MARK
from ..captured_graph.compile_request import facts_of_input, request_of
from ..concurrency.first_value_cache import once
from ..foundation import plugins
from ..foundation.torch_private import (
    OpOverload,
    OpOverloadPacket,
    get_flash_sdp_enabled,
    get_math_sdp_enabled,
    get_mem_efficient_sdp_enabled,
    is_torch_function_enabled,
    len_torch_function_stack,
)
from ..runtime.disk.compiler_identity import compiler_identity
from ..settings import current
from ..tensors.device_facts import DEVICES, gpus_of
from ..tensors.fit_size_formulas import SCALES, GivenSize, NoFormula
from .adapters.specialize_numbers import live_scalars_beside_sizes
from .operator_identity import identity_of

NAMESPACES = """
    torch torch.nn.functional torch.linalg torch.fft torch.special torch._C._nn torch._C._linalg torch._C._fft
    torch._C._special torch._C torch.functional
""".split()
OPERATORS = ("aten", "prims", "mkldnn", "mkl")
PLAIN = (torch.dtype, torch.layout, torch.memory_format, torch.device)


class NoKey(Exception):
    """Something in the graph has no name that means the same in every process."""


def key_of(
    gm: GraphModule, example_inputs: Sequence[Any], gradients: bool, live_scalar_types: tuple[type, ...]
) -> str | None:
    try:
        return "\n".join(
            [
                *surroundings(),
                f"gradients {gradients}",
                f"open {[kind.__name__ for kind in live_scalar_types]}",
                f"overwritten {request_of(gm).overwritten_inputs}",
                *graph_lines(gm, example_inputs, live_scalar_types),
            ]
        )
    except NoKey:
        return None


def symbolic_key_of(gm: GraphModule, symbolic_inputs: Any, gradients: bool) -> str | None:
    """The key of a graph that is compiled for symbolic sizes: `symbolic_inputs` are capture's SymbolicExampleInputs."""
    space = symbolic_inputs.space
    try:
        first, *others = ([*symbolic_inputs.examples(point)] for point in space.points)
        live_scalar_types = live_scalars_beside_sizes(first)
        varied = [k for k in range(len(first)) if k in symbolic_inputs.shapes or k in symbolic_inputs.numbers]
        return "\n".join(
            [
                *surroundings(),
                f"gradients {gradients}",
                f"open {list(symbolic_inputs.shapes)}",
                f"overwritten {request_of(gm).overwritten_inputs}",
                f"{space.names} {space.points}",
                *(f"input {k} {input_text(example[k], live_scalar_types)}" for example in others for k in varied),
                *piecewise_lines(symbolic_inputs),
                *graph_lines(gm, first, live_scalar_types),
            ]
        )
    except NoKey:
        return None


def piecewise_lines(symbolic_inputs: Any) -> list[str]:
    """The numbers without a formula at all the points that a program may be compiled from: what they are there is all
    that it knows of them."""
    numbers = [symbolic_inputs.numbers[k] for k in symbolic_inputs.numbers if k in symbolic_inputs.piecewise]
    if not numbers:
        return []
    try:
        spaces = [symbolic_inputs.space, *map(symbolic_inputs.space.coprime_points, SCALES)]
        points = [point for space in spaces for point in (*space.points, *space.further)]
        return [f"piecewise {[number(point) for point in points]}" for number in numbers]
    except (NoFormula, ArithmeticError, TypeError, ValueError) as error:
        raise NoKey("a number without a formula") from error


def graph_lines(gm: GraphModule, example_inputs: Sequence[Any], live_scalar_types: tuple[type, ...]) -> list[str]:
    numbers: dict[Node, int] = {}
    inputs = iter(example_inputs)
    lines = []
    for node in gm.graph.nodes:
        numbers[node] = len(numbers)
        if node.op == "placeholder":
            example = next(inputs)
            if gpus_of([example]):
                raise NoKey("a kernel for a GPU is known by its address there")
            lines.append(f"input {facts_of_input(node).is_module_state} {input_text(example, live_scalar_types)}")
            continue
        if node.op == "call_function":
            target = name_of(node.target)
        elif node.op in ("call_method", "output"):
            target = str(node.target)
        else:
            raise NoKey(node.op)
        args = ", ".join([text_of(arg, numbers) for arg in node.args])
        keywords = ", ".join([f"{name}={text_of(arg, numbers)}" for name, arg in node.kwargs.items()])
        lines.append(f"{node.op} {target} ({args}) {keywords}")
        if MARK in node.meta:
            lines[-1] += f" {node.meta[MARK]}"
    return lines


def input_text(example: Any, live_scalar_types: tuple[type, ...]) -> str:
    if isinstance(example, torch.Tensor):
        return str(input_facts(example))
    if type(example) in live_scalar_types:
        return type(example).__name__
    return text_of(int(example) if isinstance(example, GivenSize) else example, {})


def input_facts(example: torch.Tensor) -> tuple:
    """The layout of a tensor, and its other properties that the compiler reads."""
    kind = type(example)
    if (
        kind not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
        or example.layout is not torch.strided
        or example.is_quantized
        or example.is_nested
        or example._is_zerotensor()
    ):
        raise NoKey(str(kind))
    return (
        kind.__name__,
        tuple(example.shape),
        example.stride(),
        example.storage_offset(),
        example.dtype,
        example.device,
        example.requires_grad,
        example.is_inference(),
        example.is_conj(),
        example.is_neg(),
    )


def text_of(value: Any, numbers: dict[Node, int]) -> str:
    kind = type(value)
    if kind is Node:
        return f"%{numbers[value]}"
    if value is None or kind in (bool, int, str) or value is Ellipsis:
        return repr(value)
    if kind is float:
        return f"{value!r}{' -nan' if math.isnan(value) and math.copysign(1, value) < 0 else ''}"
    if kind is complex:
        return f"complex({text_of(value.real, numbers)}, {text_of(value.imag, numbers)})"
    if kind in PLAIN:
        return str(value)
    if isinstance(value, (list, tuple)):
        name = "list" if isinstance(value, list) else kind.__name__
        if kind not in (list, tuple, torch.Size) and kind.__module__ not in (
            "torch.fx.immutable_collections",
            "torch.return_types",
        ):
            raise NoKey(str(kind))
        return f"{name}({', '.join([text_of(part, numbers) for part in value])})"
    if isinstance(value, dict):
        pairs = [f"{text_of(key, numbers)}: {text_of(part, numbers)}" for key, part in value.items()]
        return f"dict({', '.join(pairs)})"
    if kind is slice:
        return f"slice({', '.join(text_of(part, numbers) for part in (value.start, value.stop, value.step))})"
    raise NoKey(str(kind))


def name_of(target: Any) -> str:
    """The name of a function of torch, of a Python operator, or of an attribute of tensors."""
    if isinstance(target, OpOverload | OpOverloadPacket):
        name = str(target)
        if name.partition(".")[0] in OPERATORS:
            return name
        identity = identity_of(target)
        if identity is None:
            raise NoKey(name)
        return f"{name} {identity}"
    attribute = getattr(target, "torch_attribute", None)
    if attribute is not None:
        return f"attribute {attribute}"
    text = getattr(target, "text", None)  # a function of TorchScript
    if isinstance(text, str):
        return text
    known = names().get(target) if isinstance(target, BuiltinFunctionType | FunctionType | type) else None
    if known is None:
        # Methods of tensors, and functions in a module of torch under their own names.
        known = f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', '')}"
        if not known.startswith("torch.") or reached(known) is not target:
            raise NoKey(known)
    if isinstance(target, FunctionType) and not target.__code__.co_filename.startswith(folder()):
        raise NoKey(f"{known} has been replaced")
    return known


def reached(path: str) -> Any:
    module, _, rest = path.partition(".")
    found: Any = sys.modules.get(module)
    for part in rest.split("."):
        found = getattr(found, part, None)
    return found


@once
def names() -> dict[Any, str]:
    found: dict[Any, str] = {}
    for prefix in NAMESPACES:
        namespace = sys.modules.get(prefix) or reached(prefix)
        for name, value in list(vars(namespace).items()):  # other threads import into it
            if isinstance(value, BuiltinFunctionType | FunctionType):
                found.setdefault(value, f"{prefix}.{name}")
    for module in (operator, math, builtins):
        for name, value in list(vars(module).items()):
            if isinstance(value, BuiltinFunctionType | type):
                found[value] = f"{module.__name__}.{name}"
    return found


def warm_up() -> None:
    """Computes the parts that stay the same as long as the process lives."""
    names()
    compiler_identity()


@once
def folder() -> str:
    return str(Path(torch.__file__).parent) + os.sep


def surroundings() -> list[str]:
    """The compiler's other inputs: Burnish and the machine, then the settings, and torch's switches in force."""
    return [compiler_identity(), str(switches())]


def switches() -> tuple:
    asked = current()
    backends = torch.backends
    modes = len_torch_function_stack()  # a default device is one of them
    return (
        "without",
        *plugins.left_out_of_compiler(),
        "eager random",
        asked.eager_random,
        "max autotune",
        asked.max_autotune,
        "memory budget",
        asked.memory_budget,
        "shape padding",
        asked.shape_padding,
        "threads",
        torch.get_num_threads(),
        "default",
        torch.get_default_dtype(),
        "device",
        torch.get_default_device() if modes else None,
        "modes",
        modes,
        is_torch_function_enabled(),
        "gradients",
        torch.is_grad_enabled(),
        "inference",
        torch.is_inference_mode_enabled(),
        "autocast",
        *(about(device) for device in DEVICES for about in (torch.is_autocast_enabled, torch.get_autocast_dtype)),
        "deterministic",
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        "mkldnn",
        backends.mkldnn.enabled,
        backends.mkldnn.matmul.fp32_precision,
        backends.mkldnn.conv.fp32_precision,
        "GPU",
        backends.cuda.matmul.fp32_precision,
        backends.cudnn.conv.fp32_precision,
        "attention",
        get_flash_sdp_enabled(),
        get_math_sdp_enabled(),
        get_mem_efficient_sdp_enabled(),
    )
