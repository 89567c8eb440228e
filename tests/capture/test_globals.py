"""Module-level names: read, rebound, deleted, written with ``global`` and through the module itself."""

import importlib
import sys
import types

import torch

import burnish

from .call_sequences import Before, ordinary, swinging
from .harness import program

HERE = sys.modules[__name__]

scale = 2.0
count = 0
history: list = []
table: dict = {}
weight = torch.ones(4)


def layer(x):
    return x * scale


def bump():
    global count
    count += 1
    return count


def reset():
    """Give every name of this module the value a program begins with."""
    HERE.scale, HERE.count, HERE.weight, HERE.layer = 2.0, 0, torch.ones(4), first_layer
    history.clear()
    table.clear()
    HERE.__dict__.pop("late", None)
    HERE.__dict__.pop("abs", None)


first_layer = layer


class Names:
    """The module's names, for the frame to look at after each call."""

    @property
    def __dict__(self):
        return {"scale": scale, "count": count, "history": history, "table": table, "weight": weight}


@program
def test_global_number_changed_between_calls():
    reset()

    def fn(x):
        return x * scale + 1

    x = torch.randn(3)
    return fn, [(x,), *((x, Before(lambda n=n: setattr(HERE, "scale", n))) for n in (3.0, 2.0))]


@program
def test_global_changed_between_calls_is_seen_by_a_callee():
    reset()

    def fn(x):
        return layer(x) + 1

    x = torch.randn(3)
    return fn, [(x,), (x, Before(lambda: setattr(HERE, "scale", 3.0))), (x,)]


@program
def test_global_function_replaced_between_calls():
    reset()

    def fn(x):
        return layer(x)

    x = torch.randn(3)
    return fn, [
        (x,),
        (x, Before(lambda: setattr(HERE, "layer", torch.sin))),
        (x, Before(lambda: setattr(HERE, "layer", first_layer))),
    ]


@program
def test_global_tensor_replaced_between_calls():
    reset()

    def fn(x):
        return x + weight

    x = torch.randn(4)
    return fn, [
        (x,),
        (x, Before(lambda: setattr(HERE, "weight", torch.zeros(4)))),
        (x, Before(lambda: setattr(HERE, "weight", torch.ones(2, 4)))),
        (x, Before(reset)),
    ]


@program
def test_global_tensor_written_in_place_between_calls():
    reset()

    def fn(x):
        return x + weight

    x = torch.randn(4)
    return fn, [(x,), (x, Before(lambda: weight.fill_(5.0))), (x, Before(lambda: weight.zero_()))], Names()


@program
def test_global_counter_written_by_the_function():
    reset()

    def fn(x):
        global count
        count += 1
        return x * count

    return fn, ordinary, Names()


@program
def test_global_counter_written_by_a_callee_around_a_break():
    reset()

    def fn(x):
        bump()
        if x.sum() > 0:
            bump()
        return x + bump()

    return fn, swinging, Names()


@program
def test_global_tensor_rebound_by_the_function():
    reset()

    def fn(x):
        global weight
        weight = weight * 0.5 + x
        return weight.sum()

    return fn, ordinary, Names()


@program
def test_global_list_and_dict_are_filled():
    reset()

    def fn(x):
        history.append(x.sum())
        table[len(history)] = x * 2
        return len(history), sum(history)

    return fn, ordinary, Names()


@program
def test_global_written_before_an_error_stays_written():
    reset()

    def fn(x):
        global scale
        scale = scale + 1
        if x.sum() < 0:
            raise ValueError(f"scale {scale}")
        return x * scale

    return fn, swinging, Names()


@program
def test_missing_global_appears_later():
    reset()

    def fn(x):
        try:
            return x * late  # noqa: F821
        except NameError as error:
            return x, str(error)

    x = torch.randn(2)
    return fn, [(x,), (x, Before(lambda: setattr(HERE, "late", 4.0))), (x, Before(reset))]


@program
def test_global_deleted_by_the_function():
    reset()

    def fn(x):
        global late
        late = x.shape[0]
        y = x * late
        del late
        return y, "late" in globals()

    return fn, ordinary


@program
def test_builtin_hidden_by_a_global_later():
    reset()

    def fn(x):
        return abs(x) + 1

    x = torch.randn(3)
    return fn, [(x,), (x, Before(lambda: setattr(HERE, "abs", lambda y: y * 100))), (x, Before(reset))]


@program
def test_globals_dict_is_read_and_written():
    reset()

    def fn(x):
        globals()["count"] = globals()["count"] + 3
        return x * count, globals() is HERE.__dict__

    return fn, ordinary, Names()


@program
def test_attribute_of_a_module_changed_between_calls():
    reset()

    def fn(x):
        return x * HERE.scale

    x = torch.randn(2)
    return fn, [(x,), (x, Before(lambda: setattr(HERE, "scale", 8.0))), (x, Before(reset))]


@program
def test_module_attribute_written_through_the_module():
    reset()

    def fn(x):
        HERE.count = HERE.count + 2
        setattr(HERE, "scale", HERE.scale * 2)
        return x * count + scale

    return fn, ordinary, Names()


@program
def test_import_inside_the_function():
    reset()

    def fn(x):
        import math
        from math import sqrt as root

        import torch.nn.functional as functional

        return functional.relu(x) * math.pi + root(4.0)

    return fn, ordinary


@program
def test_import_that_fails_is_caught():
    reset()

    def fn(x):
        try:
            import no_such_module_anywhere  # noqa: F401

            return x
        except ImportError as error:
            return x * 2, error.name

    return fn, ordinary


@program
def test_global_used_in_a_comprehension_and_a_lambda():
    reset()

    def fn(x):
        return [(lambda y: y * scale + i)(x) for i in range(2)]

    x = torch.randn(2)
    return fn, [(x,), (x, Before(lambda: setattr(HERE, "scale", 9.0))), (x, Before(reset))]


@program
def test_global_flag_decides_between_paths():
    reset()

    def fn(x):
        if table.get("training"):
            return x * 2
        return x + len(table)

    x = torch.randn(2)
    return fn, [
        (x,),
        *((x, Before(lambda flag=flag: table.update(training=flag))) for flag in (True, False)),
        (x, Before(table.clear)),
    ]


@program(breaks=0)
def test_attributes_of_a_module_by_its_class_and_by_its_own_function():
    class Module(types.ModuleType):
        scale = 2

        @property
        def doubled(self):
            return self.scale * 2

    config, lazy, values = Module("config"), types.ModuleType("lazy"), {"shift": 1}
    lazy.__getattr__ = lambda name: values[name]

    def fn(x):
        return x * config.scale + config.doubled + lazy.shift

    def change(i):
        Module.scale, values["shift"] = i, 3 * i

    return fn, lambda i: (torch.ones(2), Before(lambda: change(i)))


def test_module_imported_by_name_for_the_first_time(tmp_path, monkeypatch):
    class Finder:
        """Code of the program's that an import runs."""

        @staticmethod
        def find_spec(name, path=None, target=None):
            looked_for.append(name)

    name, looked_for = "imported_by_name", []
    (tmp_path / f"{name}.py").write_text("factor = 3")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])

    def fn(x):
        return x * importlib.import_module(name).factor

    compiled = burnish.compile(fn, backend="eager")
    for imports in (True, False, True, False):
        if imports:
            monkeypatch.delitem(sys.modules, name, raising=False)
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
        assert looked_for == [name] * imports
        looked_for.clear()
