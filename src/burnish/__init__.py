"""Burnish: a just-in-time compiler for PyTorch programs.

import burnish

@burnish.compile
def f(x): ...
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import (
    concurrency,  # noqa: F401  # with our builtins, before all other modules
    settings,
)
from .api import compile, disable, profile, report, reset, substitute_in_graph, trace
from .backends.registry import list_backends, register_backend
from .errors import BackendError, BurnishError, InternalError, Unsupported, UserError
from .export.export_save_load import export, load, save
from .frontend.compiled_module import compile_, was_compiled
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
from .integrations.torch_compile import install, uninstall

if TYPE_CHECKING:
    from .export.exported_program import Exported
    from .frontend.cost_of_call import cost
    from .frontend.explain_call import explain
    from .frontend.quantize_linear_layers import QuantizedLinear, quantize_
    from .integrations.regional_compilation import compile_regions
    from .report.cost_report import Cost
    from .report.explain_report import ExplainOutput
    from .report.profile_segments import Profile, SegmentProfile

__all__ = [
    "BackendError",
    "BurnishError",
    "Cost",
    "ExplainOutput",
    "Exported",
    "InternalError",
    "Profile",
    "QuantizedLinear",
    "SegmentProfile",
    "Unsupported",
    "UserError",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "compile_",
    "compile_regions",
    "cost",
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
    "quantize_",
    "register_backend",
    "report",
    "reset",
    "save",
    "set_stance",
    "settings",
    "substitute_in_graph",
    "trace",
    "uninstall",
    "was_compiled",
]
__version__ = "0.1.0"

ON_FIRST_USE = {
    "Cost": "burnish.report.cost_report",
    "ExplainOutput": "burnish.report.explain_report",
    "Exported": "burnish.export.exported_program",
    "Profile": "burnish.report.profile_segments",
    "QuantizedLinear": "burnish.frontend.quantize_linear_layers",
    "SegmentProfile": "burnish.report.profile_segments",
    "compile_regions": "burnish.integrations.regional_compilation",
    "cost": "burnish.frontend.cost_of_call",
    "explain": "burnish.frontend.explain_call",
    "quantize_": "burnish.frontend.quantize_linear_layers",
}
"""Names whose modules most programs never need, and so are imported when the name is first read."""


def __getattr__(name: str) -> Any:
    if name not in ON_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(ON_FIRST_USE[name]), name)
    return value


def __dir__() -> list[str]:
    """What users call, without the packages and names that this module imports."""
    return sorted([*__all__, "__version__"])
