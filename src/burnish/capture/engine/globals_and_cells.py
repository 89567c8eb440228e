"""Global variables and closure cells under a trace: reads become guards, writes become effects."""

from __future__ import annotations

from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any

from ...concurrency.own_builtins import OWN
from ..interpreter.frames import MISSING, UNBOUND, Frame, cell_value
from ..interpreter.instruction_loop import Machine
from ..python.operators import functions_called_by_guards
from .interpreted_or_native import is_rebound, is_trusted_namespace
from .object_lifetimes import Origin

if TYPE_CHECKING:
    from .tracer import Tracer


def load_global(tracer: Tracer, frame: Frame, name: str) -> Any:
    namespace = frame.globals
    if id(namespace) in tracer.heap.fresh:  # of a text that `exec` runs
        return Machine.load_global(tracer, frame, name)
    origin = tracer.origins.get(id(namespace))
    if origin is not None and origin.obj is namespace and name in origin.known:
        if name in namespace:
            value = namespace[name]
            return value if origin.known[name] == id(value) else tracer.heap.read_key(origin, name)
        return load_builtin(tracer, frame, name)
    names = tracer.fixed_names.get(id(namespace))
    if names is None and is_trusted_namespace(namespace):
        names = tracer.fixed_names[id(namespace)] = {}
    if names is not None and not is_rebound(namespace, name):
        if name in namespace:
            value = namespace[name]
            if names.get(name, MISSING) is not value:
                names[name] = tracer.heap.adopt_named(namespace, name, value)
            return value
        return load_builtin(tracer, frame, name)
    value = tracer.heap.read_key(tracer.heap.namespace(namespace), name)
    return load_builtin(tracer, frame, name) if value is MISSING else value


def load_builtin(tracer: Tracer, frame: Frame, name: str) -> Any:
    """A program may put other objects into ``builtins``."""
    table, heap = frame.builtins, tracer.heap
    if table is OWN or id(table) in heap.fresh:
        return frame.builtins[name]
    value = heap.read_key(heap.namespace(table), name)
    return Machine.load_builtin(tracer, frame, name) if value is MISSING else value  # which raises the error


def store_global(tracer: Tracer, frame: Frame, name: str, value: Any) -> None:
    if tracer.region is not None:
        tracer.region.will_write(frame.globals)
    if id(frame.globals) not in tracer.heap.fresh:
        tracer.heap.will_write_key(tracer.heap.namespace(frame.globals), name)
    frame.globals[name] = value


def delete_global(tracer: Tracer, frame: Frame, name: str) -> None:
    if tracer.region is not None:
        tracer.region.will_write(frame.globals)
    if name in frame.globals and id(frame.globals) not in tracer.heap.fresh:
        tracer.heap.will_write_key(tracer.heap.namespace(frame.globals), name, deletes=True)
    Machine.delete_global(tracer, frame, name)


def load_name(tracer: Tracer, namespace: dict, name: str) -> Any:
    origin = tracer.heap.origin_of(namespace)
    return Machine.load_name(tracer, namespace, name) if origin is None else tracer.heap.read_key(origin, name)


def store_name(tracer: Tracer, frame: Frame, name: str, value: Any) -> None:
    origin = tracer.heap.origin_of(frame.namespace)
    if origin is not None:
        tracer.heap.will_write_key(origin, name)
    Machine.store_name(tracer, frame, name, value)


def delete_name(tracer: Tracer, frame: Frame, name: str) -> None:
    origin = tracer.heap.origin_of(frame.namespace)
    if origin is not None and load_name(tracer, frame.namespace, name) is not MISSING:
        tracer.heap.will_write_key(origin, name, deletes=True)
    Machine.delete_name(tracer, frame, name)


def new_cell(tracer: Tracer, value: Any) -> CellType:
    cell = Machine.new_cell(tracer, value)
    tracer.own_cells[id(cell)] = cell
    if tracer.region is not None:
        tracer.region.made.add(id(cell))
    return cell


def put_cells(tracer: Tracer, function: FunctionType, values: list, code: Any) -> None:
    """Give a frame its free variables; a cell from outside is addressed through its function."""
    cells = function.__closure__ or ()
    at = code.n_locals - len(cells)
    origin = tracer.heap.origin_of(function)
    for i, cell in enumerate(cells):
        values[at + i] = cell
        if id(cell) not in tracer.own_cells and id(cell) not in tracer.origins:
            if origin is not None:
                source = origin.source.attr("__closure__").item(i)
            elif id(function) in tracer.heap.fresh:
                continue
            else:
                source = tracer.heap.sources.pin(cell)
            source.label = function.__code__.co_freevars[i]
            tracer.origins[id(cell)] = Origin(cell, source)


def load_cell(tracer: Tracer, cell: Any) -> Any:
    if id(cell) in tracer.own_cells:
        return cell_value(cell)
    origin = tracer.heap.origin_of(cell)
    value = cell_value(cell)
    if origin is None:
        return tracer.heap.adopt(value)
    if not origin.known and not origin.written:
        number = tracer.heap.changing_number(value, origin.source.child("cell"))
        if number is not None:
            return number
        origin.note_read("contents", value)
        if value is UNBOUND:
            tracer.heap.guard_answer(functions_called_by_guards.is_unbound, origin.source)
            return value
        return tracer.heap.admit(value, origin.source.child("cell"))
    if "contents" in origin.known and not origin.written:
        tracer.heap.read_again(origin, "contents", value)
    return value


def store_cell(tracer: Tracer, cell: Any, value: Any) -> None:
    if tracer.region is not None:
        tracer.region.will_write(cell)
    origin = tracer.heap.origin_of(cell)
    if origin is not None and id(cell) not in tracer.own_cells:
        origin.note_written("contents")
    Machine.store_cell(tracer, cell, value)
