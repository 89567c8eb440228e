"""A failing graph as a script that a person reads and runs.

import torch, burnish

def f(x0, x1):
    v0 = x0 @ x1
    return (v0,)

burnish.settings.configure(check=True, on_error="raise", never_slower=False)
for compiled in [burnish.compile(f)] * 3:
    results = compiled(torch.ones([8, 4]), torch.ones([4, 7]))
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ...tensors.device_facts import is_host
from .reduce_graph import Fails
from .straight_line import StraightLine


def write_script(graph: StraightLine, fails: Fails, path: Path, least: float | None = None) -> Path | None:
    """Write the script. Inputs that it cannot make are in a file beside it, which is returned. It fails where compiled
    code raises; with `least`, where it takes so many seconds more than eager."""
    texts: dict[str, str] = {}
    loaded: dict[str, Any] = {}
    for name, value in graph.inputs.items():
        for text in ways_to_make(value):
            changed = replace(graph, inputs={**graph.inputs, name: made(text, value)})
            if fails(changed):
                graph, texts[name] = changed, text
                break
        else:
            loaded[name] = value
            texts[name] = f"loaded[{name!r}]"
    beside = path.with_suffix(".pt") if loaded else None
    if beside is not None:
        torch.save(loaded, beside)
    is_trained = any(isinstance(x, torch.Tensor) and x.requires_grad for x in graph.inputs.values())
    state = ", ".join(f"{name!r}: {text}" for name, text in texts.items() if name in graph.state)
    given = ", ".join(text for name, text in texts.items() if name not in graph.state)
    lines = [
        HEADING,
        "import sys, timeit, torch, burnish" if least is not None else "import torch, burnish",
        *(line for line in graph.imports if line != "import torch"),
        "",
        *graph.source().split("\n")[len(graph.imports) + 1 :],
        "",
        *(['loaded = torch.load(__file__[:-3] + ".pt", weights_only=False)'] if beside is not None else []),
        *(
            [
                "state = torch.nn.Module()",
                f"for name, value in {{{state}}}.items():",
                "    state.register_buffer(name, value)",
            ]
            if state
            else []
        ),
        *(["torch.set_grad_enabled(False)"] if not graph.grad else []),
        f'burnish.settings.configure(check={least is None}, on_error="raise", never_slower=False)',
        *(
            [
                f"given, compiled = [{given}], burnish.compile(f)",
                "def call(function):",
                "    results = function(*given)",
            ]
            if least is not None
            else ["for compiled in [burnish.compile(f)] * 3:", f"    results = compiled({given})"]
        ),
        *(BACKWARD if is_trained else []),
        *([*TIMED, f"sys.exit(seconds > eager + {least:.2g})"] if least is not None else []),
    ]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return beside


HEADING = "# Written by `burnish bisect`: compiled code fails here."

BACKWARD = [
    "    for x in results:",
    "        if x.requires_grad:",
    "            torch.autograd.backward(x, torch.ones_like(x), retain_graph=True)",
]


TIMED = [
    "turns = [[timeit.timeit(lambda: call(each), number=1) for each in (compiled, f)] for _ in range(41)]",
    "seconds, eager = map(min, zip(*turns[1:]))  # in turns, as the machine's speed changes; the first turn compiles",
    'print(f"compiled {seconds * 1e3:.3f} ms, eager {eager * 1e3:.3f} ms")',
]


def is_ours(path: Path) -> bool:
    return path.is_file() and path.read_text("utf-8", errors="replace").startswith(HEADING)


def made(text: str, otherwise: Any) -> Any:
    """What an expression makes, or the value itself: not every dtype has every function."""
    try:
        return eval(text, {"torch": torch})
    except (NameError, NotImplementedError, RuntimeError):
        return otherwise


def ways_to_make(value: Any) -> Iterator[str]:
    """Expressions for an input like this one, the simplest first, and last for its own value."""
    if not isinstance(value, torch.Tensor):
        if type(value) in (bool, int, str, type(None)) or type(value) is float and math.isfinite(value):
            yield repr(value)
        return
    if value.numel() == 0 or value.dtype.is_complex:
        return
    kind = f", dtype={value.dtype}" * (value.dtype != torch.float32)
    kind += f", device={str(value.device)!r}" * (not is_host(value.device))
    end = ".requires_grad_()" * value.requires_grad
    shape, lay, again = [*value.shape], "", f".view({[*value.shape]})"
    if not value.is_contiguous():  # a row of numbers, with the layout over it
        shape = [1 + sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True))]
        lay = again = f".as_strided({[*value.shape]}, {[*value.stride()]})"
    yield f"torch.ones({shape}{kind}){lay}{end}"
    if value.dtype.is_floating_point:
        yield f"torch.linspace(-1, 1, {math.prod(shape)}{kind}){again}{end}"
    else:
        yield f"torch.zeros({shape}{kind}){lay}"
    if value.numel() <= 16:
        yield f"torch.tensor({value.tolist()}{kind}){end}"
