"""`burnish doctor`: what works on this machine (versions, processors, compilers, backends), tried out, not guessed.

A check is a function that returns what it found, or raises. `examine` turns both into findings, so that one broken
part never hides the others.

    for finding in examine():
        print(finding.name, finding.works, finding.text)
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Literal

import torch

from .. import settings
from ..backends.registry import list_backends, lookup
from ..report.rich_output import console_on, grid_of
from ..runtime.linking.cuda_module_loader import why_not as why_no_kernels

QUICK = ("burnish", "eager")
"""The backends tried unless all are requested: the others take seconds to load and compile."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `works` is None where nothing can fail."""

    name: str
    works: bool | None
    text: str


class Missing(Exception):
    """Something a check needs is not installed. The text says what that costs the user."""


def examine(try_all: bool = False) -> Iterator[Finding]:
    """Every finding, in the order of the report, each made on demand."""
    yield Finding("python", None, f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for package in ("torch", "llvmlite", "triton"):
        yield Finding(package, None, version(package) or "not installed")
    yield Finding("cores", None, cores())
    yield Finding("settings", *check_settings())
    for name, check in (("LLVM", check_llvm), ("GPU", check_gpu), ("C++ compiler", check_cpp)):
        yield run_check(name, check)
    for name in list_backends():
        if try_all or name in QUICK:
            yield run_check(f"backend {name}", lambda name=name: check_backend(name))
        else:
            yield Finding(f"backend {name}", None, "not tried: burnish doctor --all does")


def show(findings: Iterable[Finding]) -> int:
    """Print each as it is found, and return how many say that something is broken."""
    console, broken = console_on(sys.stdout), 0
    for finding in findings:
        mark = {True: "ok", False: "FAILS", None: ""}[finding.works]
        broken += finding.works is False
        if console is None:
            print(f"{finding.name:<20} {mark:<6} {finding.text}", flush=True)
        else:
            style = {True: "green", False: "bold red", None: ""}[finding.works]
            console.print(grid_of([(finding.name, 20, "bold"), (mark, 6, style), (finding.text, None, "")]))
    return broken


def run_check(name: str, check: Callable[[], str]) -> Finding:
    """Run a check. `Missing` is reported as absent, any other exception as broken, with its text."""
    try:
        return Finding(name, True, check())
    except Missing as missing:
        return Finding(name, None, str(missing))
    except Exception as error:
        return Finding(name, False, f"{type(error).__name__}: {error}")


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def cores() -> str:
    """How many cores the process may use; in a container that can be fewer than the machine has."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{usable} usable of {os.cpu_count()}, {torch.get_num_threads()} torch threads"


def check_settings() -> tuple[Literal[False] | None, str]:
    """The settings from the environment. A variable that no setting reads is probably misspelt."""
    unknown = settings.unknown_variables(os.environ)
    if unknown:
        return False, f"{', '.join(unknown)}: no such setting. Check the spelling, or unset it."
    try:
        asked = settings.from_environment(os.environ)
    except settings.UserError as error:
        return False, str(error)
    default = settings.Settings()
    changed = [f.name for f in fields(default) if getattr(asked, f.name) != getattr(default, f.name)]
    return None, ", ".join(f"{name}={getattr(asked, name)!r}" for name in changed) or "all at their defaults"


def check_llvm() -> str:
    """Compile a function to machine code and call it."""
    from llvmlite import binding

    from ..codegen.llvm.target_cpu import host

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine()
    module = binding.parse_assembly("define i32 @twice(i32 %x) { %y = add i32 %x, %x\n ret i32 %y }")
    with binding.create_mcjit_compiler(module, machine) as engine:
        engine.finalize_object()
        twice = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(engine.get_function_address("twice"))
        if twice(21) != 42:
            raise RuntimeError("a function compiled with LLVM returned a wrong result")
    return f"{'.'.join(map(str, binding.llvm_version_info))} generates code for {host().cpu}"


def check_gpu() -> str:
    if not torch.cuda.is_available():
        raise Missing("none that torch can use; programs run on the CPU")
    names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    why = why_no_kernels()
    return f"{names}; graphs are compiled for it through Triton" if why is None else f"{names}; {why}"


def check_cpp() -> str:
    found = shutil.which(os.environ.get("CXX", "")) or shutil.which("g++") or shutil.which("clang++")
    if found is None:
        raise Missing('none found; only backend="inductor" on a CPU needs one')
    return found


def check_backend(name: str) -> str:
    """Compile sin(x) + cos(y) twice, without and with gradients, and compare with eager."""

    class Wave(torch.nn.Module):
        def forward(self, x, y):
            return (torch.sin(x) + torch.cos(y),)

    for with_gradient in (False, True):
        x, y = (torch.linspace(-3, 3, 64).requires_grad_(with_gradient) for _ in range(2))
        graph = torch.fx.symbolic_trace(Wave())
        (found,) = lookup(name)(graph, [x, y])(x, y)
        torch.testing.assert_close(found, torch.sin(x) + torch.cos(y))
        if with_gradient:
            found.sum().backward()
            torch.testing.assert_close(x.grad, torch.cos(x.detach()))
    return "compiles sin(x) + cos(y) and its gradient"
