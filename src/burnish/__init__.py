"""Burnish: a just-in-time compiler for PyTorch programs.

import burnish

@burnish.compile
def f(x): ...
"""

from __future__ import annotations

from . import settings
from .api import compile, disable, profile, reset, substitute_in_graph
from .backends.registry import list_backends, register_backend
from .errors import BackendError, BurnishError, InternalError, Unsupported, UserError
from .export.exported_program import Exported, export, load, save
from .frontend.compiled_module import compile_, was_compiled
from .frontend.explain_call import explain
from .frontend.marks import (
    allow_in_graph,
    assume_constant_result,
    cudagraph_mark_step_begin,
    graph_break,
    is_compiling,
    mark_dynamic,
    mark_static,
)
from .frontend.modes_and_options import list_mode_options, list_options
from .frontend.stance import set_stance
from .integrations.regional_compilation import compile_regions
from .integrations.torch_compile import install, uninstall
from .report.explain_report import ExplainOutput
from .report.profile_segments import Profile, SegmentProfile

__all__ = [
    "BackendError",
    "BurnishError",
    "ExplainOutput",
    "Exported",
    "InternalError",
    "Profile",
    "SegmentProfile",
    "Unsupported",
    "UserError",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "compile_",
    "compile_regions",
    "cudagraph_mark_step_begin",
    "disable",
    "explain",
    "export",
    "graph_break",
    "install",
    "is_compiling",
    "list_backends",
    "list_mode_options",
    "list_options",
    "load",
    "mark_dynamic",
    "mark_static",
    "profile",
    "register_backend",
    "reset",
    "save",
    "set_stance",
    "settings",
    "substitute_in_graph",
    "uninstall",
    "was_compiled",
]
__version__ = "0.1.0"
