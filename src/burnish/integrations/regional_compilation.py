"""Regional compilation: the repeated blocks of a model share one capture.

    burnish.compile_regions(model)          # in place: 48 layers are captured and compiled once
    model(x)

Layers of a transformer run the same code with other parameters. A captured segment reads everything through its
arguments, so one program serves all blocks: parameters are inputs. A difference that changes control flow (a layer's
number that selects a cache) becomes another segment.

The rest of the model is compiled in place, module by module. The code between runs as plain Python until
`regional_trunk_graph` captures it. A model compiled as a whole shares equal kernels, too. Regional compilation pays if
capture of many layers takes too long.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from ..capture.engine.engine import Program
from ..capture.engine.program_options import Options
from ..errors import UserError
from ..frontend.compile_callable import stays_plain, why_not_compile
from ..frontend.compile_options import options_of
from ..frontend.compiled_module import CompiledModule, CompiledRegion, call_block, compile_
from ..frontend.live_programs import keep_track
from .regional_trunk_graph import Trunk, TrunkProgram

FEWEST = 2
"""The minimum number of equal blocks that count as repeated."""


def compile_regions(model: Any, *, disable: bool = False, **kwargs: Any) -> Any:
    """Compile the repeated blocks of a model, each kind once, and its other modules. In place; returns the model.

    The arguments are those of ``burnish.compile``. Repeated blocks are the members of an ``nn.ModuleList`` or
    ``nn.Sequential`` that all have the same class and have submodules. Without any, the model is compiled as a whole.
    With ``disable`` the blocks run as plain Python again.
    """
    if not isinstance(model, torch.nn.Module):
        raise UserError(why_not_compile(model) or f"burnish.compile_regions takes a module, not {model!r:.80}.")
    disable = disable or stays_plain()
    if isinstance(model, CompiledModule):
        model = model._orig_mod
    arguments: dict[str, Any] = {
        "fullgraph": False,
        "dynamic": None,
        "backend": "burnish",
        "mode": None,
        "options": None,
        **kwargs,
    }
    options = options_of(**arguments)
    groups = list(repeated_blocks(model))
    if not groups:
        return compile_(model, disable=disable, **kwargs)
    programs = []
    for blocks in groups:
        program = SharedProgram(options, len(blocks))
        programs.append(program)
        for block in blocks:
            block._compiled_call_impl = None if disable else RepeatedBlock(program, block)
    inside = {id(part) for blocks in groups for block in blocks for part in block.modules()}
    for module in _without_blocks(model, inside):
        compile_(module, disable=disable, **kwargs)
    model._compiled_call_impl = None if disable else trunk_of(model, options, programs)
    for program in programs:
        keep_track(program)
    return model


def trunk_of(model: torch.nn.Module, options: Options, blocks: list[SharedProgram]) -> Trunk | None:
    """The program for the code around the blocks; None for backends other than "burnish", whose graphs cannot call
    blocks."""
    if options.backend_name != "burnish":
        return None
    around = dataclasses.replace(options, keeps_blocks=True, dynamic=False, fullgraph=False)
    program = TrunkProgram(model, around, blocks)
    keep_track(program)
    return Trunk(program, model)


class RepeatedBlock(CompiledRegion):
    """One of the blocks that share a program."""

    is_repeated_block = True


def repeated_blocks(model: torch.nn.Module) -> Iterator[list[torch.nn.Module]]:
    """The outermost lists of equal blocks in a model."""
    members = list(model.children())
    kinds = {type(member) for member in members}
    if (
        isinstance(model, (torch.nn.ModuleList, torch.nn.Sequential))
        and len(members) >= FEWEST
        and len(kinds) == 1
        and any(True for _ in members[0].children())
    ):
        yield members
        return
    for member in members:
        yield from repeated_blocks(member)


def _without_blocks(module: torch.nn.Module, inside: set[int]) -> Iterator[torch.nn.Module]:
    """The largest submodules that contain no repeated block and have their own forward."""
    for child in module.children():
        if id(child) in inside:
            continue
        if any(id(part) in inside for part in child.modules()):
            yield from _without_blocks(child, inside)
        elif type(child).forward is not torch.nn.ModuleList.forward:
            yield child


class SharedProgram(Program):
    """One program for several modules. The segment limit is multiplied by their number."""

    def __init__(self, options: Options, modules: int):
        super().__init__(call_block, options, call_block)
        self.modules = modules
