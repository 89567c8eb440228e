"""The contestants: how each one is imported, and how it turns a model into a callable.

    contestant = contestant_of("torch.compile:freezing")
    contestant.bring()                             # its imports, which should not count in a first call
    compiled = contestant.compile(model, args, kwargs)

A name is `eager`, `burnish`, `torch.compile`, `onnxruntime` or `openvino`. Variants follow a colon, with `+` between
them: `torch.compile:max-autotune+freezing`, `burnish:max-autotune`, `burnish:backend=eager`. Each contestant is used
as its own documentation says. One that does not find a package or a compiler it needs fails as it does on a model that
it cannot load.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from .record import BURNISH, EAGER, TORCH_COMPILE

COMPILER_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
BACKEND = "backend="


class UnknownContestant(ValueError):
    pass


class Contestant:
    """PyTorch as it is, and the base class of the others."""

    kind = EAGER
    variants: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    """The packages that have to be installed, by import name."""

    def __init__(self, name: str, variants: tuple[str, ...] = ()):
        self.name = name
        self.chosen = variants
        self.details: dict[str, Any] = {}

    def why_not(self, mode: str) -> str | None:
        """Why it does not take part in a mode."""
        return None

    def bring(self) -> None:
        """Import what it would otherwise import in its first call."""

    def compile(self, fn: Callable, args: tuple, kwargs: dict[str, Any]) -> Callable:
        return fn

    @property
    def returns_flat(self) -> bool:
        """Whether results are a flat list of tensors, whatever structure the model returns."""
        return False

    @property
    def backend(self) -> str | None:
        return next((word.removeprefix(BACKEND) for word in self.chosen if word.startswith(BACKEND)), None)

    @property
    def mode(self) -> str | None:
        return next((word for word in self.chosen if word in COMPILER_MODES), None)


class Burnish(Contestant):
    kind = BURNISH
    variants = (*COMPILER_MODES, BACKEND)
    packages = ("burnish",)

    compiler = ("tensors", "ops", "ir", "lower", "schedule", "codegen", "runtime", "backends")
    """The parts of the package that compiling may load late. They are imported whole: unneeded modules lengthen our own
    imports, never the first call. Capture is imported with the package, for the running version of Python."""

    def bring(self) -> None:
        package = importlib.import_module("burnish")
        for part in pkgutil.iter_modules(package.__path__):
            if part.name in self.compiler and part.ispkg:
                inner = importlib.import_module(f"burnish.{part.name}")
                for found in pkgutil.walk_packages(inner.__path__, f"{inner.__name__}.", onerror=lambda name: None):
                    # If compiling needs a module that cannot be imported, it will say so itself.
                    with contextlib.suppress(Exception):
                        importlib.import_module(found.name)

    def compile(self, fn: Callable, args: tuple, kwargs: dict[str, Any]) -> Callable:
        import burnish

        return burnish.compile(fn, mode=self.mode, backend=self.backend or "burnish")


class TorchCompile(Contestant):
    kind = TORCH_COMPILE
    variants = (*COMPILER_MODES, "freezing", BACKEND)

    lazy = """
        torch._dynamo torch._dynamo.backends.inductor torch._functorch.aot_autograd torch._inductor
        torch._inductor.compile_fx torch._inductor.async_compile torch._inductor.codecache torch._inductor.graph
        torch._inductor.lowering torch._inductor.scheduler torch._inductor.freezing torch._inductor.fx_passes.post_grad
        torch._inductor.fx_passes.joint_graph torch._inductor.fx_passes.freezing_patterns
        torch._inductor.fx_passes.quantization torch._inductor.mkldnn_lowerings
        torch._inductor.select_algorithm torch._inductor.codegen.cpp torch._inductor.codegen.cpp_gemm_template
        torch._inductor.codegen.cpp_wrapper_cpu torch._inductor.codegen.wrapper torch._inductor.utils sympy triton
    """.split()
    """The modules that its first call adds to `sys.modules`. Some are moved between versions of torch."""

    def why_not(self, mode: str) -> str | None:
        if mode != "inference" and "freezing" in self.chosen:
            return "freezing is for inference"
        return None

    def bring(self) -> None:
        for name in self.lazy:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        # What an earlier variant left in memory would give this one a head start. Files are in a folder for each.
        clear = getattr(importlib.import_module("torch._inductor.utils"), "clear_caches", None)
        if clear is not None:
            clear()

    def compile(self, fn: Callable, args: tuple, kwargs: dict[str, Any]) -> Callable:
        import torch

        if self.backend:
            return torch.compile(fn, backend=self.backend)
        if "freezing" not in self.chosen:
            return torch.compile(fn, mode=self.mode)
        # Freezing is an option, and torch takes either a mode or options.
        options = dict(torch._inductor.list_mode_options(self.mode)) if self.mode else {}
        return torch.compile(fn, options={**options, "freezing": True})


def kinds() -> dict[str, type[Contestant]]:
    from .exported import OnnxRuntime, OpenVino

    return {kind.kind: kind for kind in (Contestant, Burnish, TorchCompile, OnnxRuntime, OpenVino)}


def contestant_of(name: str) -> Contestant:
    """The contestant of a name such as `torch.compile:max-autotune`."""
    kind, _, rest = name.partition(":")
    known = kinds()
    if kind not in known:
        raise UnknownContestant(f'There is no contestant called "{kind}". There are: {", ".join(known)}.')
    variants = tuple(filter(None, rest.split("+")))
    for word in variants:
        if not any(
            word.startswith(BACKEND) and word != BACKEND if variant == BACKEND else word == variant
            for variant in known[kind].variants
        ):
            offered = ", ".join(variant + "NAME" * (variant == BACKEND) for variant in known[kind].variants) or "none"
            raise UnknownContestant(f'{kind} has no variant "{word}". Variants are: {offered}.')
    return known[kind](name, variants)
