"""The backend "burnish": Burnish's own compiler."""

from ..compiler import background_imports, compile_or_fall_back
from ..compiler.adapters.eager_with_compiled_rng import call_with_compiled_rng
from .registry import Backend

BACKEND = Backend(
    "burnish",
    compile_or_fall_back.burnish,
    runs_python=True,
    perform=call_with_compiled_rng,
    ahead=background_imports.begin,
    recomputes=True,
    restores=True,
)
