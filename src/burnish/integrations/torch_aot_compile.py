"""``torch.compile(...).aot_compile(...)`` and ``torch.compiler.load_compiled_function``, by exported graphs in files.

compiled = torch.compile(fn, fullgraph=True).aot_compile(((x, y), {}))
compiled.save_compiled_function("fn.pt")
torch.compiler.load_compiled_function(open("fn.pt", "rb"))(x, y)

compiled = torch.compile(model, fullgraph=True).forward.aot_compile(((x,), {}))
compiled(model, x)                   # its parameters and buffers are inputs of the graph

Everything else is as it was at the export. A module that is in another mode, or whose plain attributes (numbers,
strings, None) have changed, is refused. Globals, closures and other objects are not looked at: the graph keeps theirs.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from ..errors import UserError
from ..export import export_save_load

Example = tuple[tuple[Any, ...], Mapping[str, Any]]
MISSING = "(missing)"
PLAIN = (int, float, bool, str, type(None))


class CompiledAhead:
    """What ``aot_compile`` returns. Globals, closures and other objects are those of the export.

    ``state``: what ``state_of`` gave for the module at the export. None for what a file holds, which has it as inputs.
    """

    def __init__(self, exported: Any, example: Example | None = None, state: dict[str, Any] | None = None):
        self.exported, self.example, self.state = exported, example, state

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.state is not None and args and isinstance(args[0], torch.nn.Module):
            refuse_changes(self.state, state_of(args[0]))
        args, kwargs = graph_inputs(args, kwargs)
        return self.exported(*args, **kwargs)

    def save_compiled_function(self, path: Any, external_data: Any = None) -> None:
        """``external_data``: accepted for torch's sake. What the function holds is in the file."""
        args, kwargs = self.example or ((), {})
        export_save_load.save(self.exported, path, args, kwargs)

    def disable_guard_check(self) -> None:
        """Does nothing: inputs of another kind are always refused."""


def of_function(function: Any, is_whole: bool, example_inputs: Example) -> CompiledAhead:
    """``is_whole``: whether ``fullgraph=True`` was asked for."""
    if not is_whole:
        raise UserError("aot_compile makes one graph: use torch.compile(fullgraph=True), which says what prevents it.")
    args, kwargs = example_inputs
    return CompiledAhead(export_save_load.export(function, tuple(args), kwargs), (tuple(args), dict(kwargs)))


def of_module(module: torch.nn.Module, is_whole: bool, example_inputs: Example) -> CompiledAhead:
    def forward(state: dict[str, torch.Tensor], plain: dict[str, str], args: Any, kwargs: Any) -> Any:
        return torch.func.functional_call(module, state, tuple(args), dict(kwargs))

    forward.__qualname__ = f"{type(module).__qualname__}.forward"
    args, kwargs = example_inputs
    state = state_of(module)
    compiled = of_function(forward, is_whole, graph_inputs((module, *args), kwargs))
    compiled.state = state
    return compiled


def state_of(module: torch.nn.Module) -> dict[str, Any]:
    """What a graph holds of a module and its submodules: ``training`` and other plain attributes, by their names."""
    return {
        f"{path}.{name}" if path else name: value
        for path, part in module.named_modules(remove_duplicate=False)
        for name, value in (("", type(part)), *vars(part).items())
        if name in ("", "training") or type(value) in PLAIN and name != "_compiled_call_impl"
    }


def refuse_changes(before: dict[str, Any], now: dict[str, Any]) -> None:
    for name in (*before, *now):
        was, value = before.get(name, MISSING), now.get(name, MISSING)
        if type(was) is not type(value) or repr(was) != repr(value):
            raise UserError(
                f"The module was compiled ahead with {name or 'class'} = {was!r:.80}, and it is now {value!r:.80}.\n"
                f"What to do: set it back, or call aot_compile again."
            )


def graph_inputs(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A module as the first argument stands for its parameters and buffers, and plain attributes as text: a graph is
    only called with the strings that it was made with."""
    if not args or not isinstance(args[0], torch.nn.Module):
        return args, dict(kwargs)
    state = {**dict(args[0].named_parameters()), **dict(args[0].named_buffers())}
    plain = {name: repr(value) for name, value in state_of(args[0]).items() if type(value) in PLAIN}
    return (state, plain, args[1:], dict(kwargs)), {}


def load_compiled_function(
    original: Callable[..., Any], /, file: Any, *, f_globals: Any = None, external_data: Any = None
) -> Any:
    """Reads what ``save_compiled_function`` above wrote, and with torch's ``original`` what torch has written."""
    data = file.read()
    if not data.startswith(b"PK"):
        return original(io.BytesIO(data), f_globals=f_globals, external_data=external_data)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "compiled"
        path.write_bytes(data)
        return CompiledAhead(export_save_load.load(path))
