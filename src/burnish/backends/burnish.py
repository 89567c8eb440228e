"""The backend "burnish": Burnish's own compiler."""

from ..compiler import background_imports, driver
from ..compiler.adapters.eager_rng import perform
from .registry import register_backend

register_backend(runs_python=True, perform=perform, ahead=background_imports.begin, recomputes=True, restores=True)(
    driver.burnish
)
