"""Compiles captured graphs to programs: the driver, the program cache, adapters around a compiled graph."""

from ..captured_graph.compile_request import CompiledFn

__all__ = ["CompiledFn"]
