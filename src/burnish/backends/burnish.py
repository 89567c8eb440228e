"""The backend "burnish": Burnish's own compiler."""

from ..compiler import background_imports, driver
from ..compiler.adapters.eager_rng import call_with_compiled_rng
from .registry import Backend

BACKEND = Backend(
    "burnish",
    driver.burnish,
    runs_python=True,
    perform=call_with_compiled_rng,
    ahead=background_imports.begin,
    recomputes=True,
    restores=True,
)
