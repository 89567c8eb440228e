"""Programs that replace builtins: their own code sees it, and Burnish does not."""

import builtins
import types
from unittest import mock

import pytest
import torch

import burnish
from burnish.capture.engine import recompile_decisions

from ..forked_programs import TORCH, run_program

REPLACED = {
    "len": (lambda: len([1, 2]), lambda items: 7),
    "isinstance": (lambda: isinstance(1, str), lambda value, kind: "yes"),
    "range": (lambda: [i for i in range(3)], lambda end: [end] * 2),
    "open": (lambda: open("/no/such/file").read(), mock.mock_open(read_data="text")),
    "print": (lambda: print("text"), lambda text: f"no {text}"),
}


def imported():
    import json

    return json.dumps([1])


def class_made():
    class Made:
        value = 3

    return Made.value


def other_import(name, *given, real=__import__):
    return mock.Mock(dumps=lambda value: name) if name == "json" else real(name, *given)


def other_class(body, name, *bases, real=__build_class__, **options):
    made = real(body, name, *bases, **options)
    made.value = name
    return made


REPLACED |= {
    "abs": (lambda: builtins.abs(-3), lambda value: 50),
    "__import__": (imported, other_import),
    "__build_class__": (class_made, other_class),
}


def outcome(run):
    try:
        return run()
    except OSError as error:
        return type(error)


@pytest.mark.parametrize("name", REPLACED)
def test_builtin_replaced_inside_the_program(name):
    use, other = REPLACED[name]

    def fn(x):
        with mock.patch(f"builtins.{name}", other):
            inside = use()
        return x + 1, inside, getattr(builtins, name) is other

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        result, *rest = compiled(torch.ones(2))
        assert torch.equal(result, torch.full((2,), 2.0)) and rest == [*fn(torch.ones(2))[1:]]


@pytest.mark.parametrize("name", REPLACED)
def test_builtin_replaced_between_two_calls(name):
    use, other = REPLACED[name]

    def fn(x):
        return x + 1, outcome(use)

    compiled = burnish.compile(fn, backend="eager")
    for is_replaced in (False, False, True, True, False):
        with mock.patch(f"builtins.{name}", other if is_replaced else getattr(builtins, name)):
            result, found = compiled(torch.ones(2))
            expected = outcome(use)
        assert torch.equal(result, torch.full((2,), 2.0)) and found == expected


def test_each_import_calls_the_replaced_function_once():
    def noted(name, *given, real=__import__):
        log.append(name)
        return real(name, *given)

    def fn(x):
        import json

        return x + len(json.dumps([1]))

    compiled, log = burnish.compile(fn, backend="eager"), []
    for is_replaced in (False, True, True, True, False):
        log.clear()
        with mock.patch("builtins.__import__", noted if is_replaced else __import__):
            assert torch.equal(compiled(torch.ones(1)), torch.full((1,), 4.0))
        assert log.count("json") == is_replaced


@pytest.mark.parametrize("name, use", [("__import__", imported), ("__build_class__", class_made)])
def test_statements_whose_builtin_is_missing_raise_what_python_raises(name, use):
    def fn(x):
        try:
            found = made()
        except (ImportError, NameError) as error:
            return x + 1, type(error), str(error), error.name
        return x + 1, found

    own = dict(vars(builtins))
    made = types.FunctionType(use.__code__, {"__builtins__": own, "__name__": __name__})
    compiled, function = burnish.compile(fn, backend="eager"), own[name]
    for is_missing in (False, True, True, False):
        own.pop(name, None) if is_missing else own.update({name: function})
        result, *found = compiled(torch.ones(2))
        assert torch.equal(result, torch.full((2,), 2.0)) and found == list(fn(torch.ones(2))[1:])
        assert (f"{name} not found" in found) == is_missing


def test_class_statements_of_torch_do_not_call_the_replaced_function():
    def noted(body, name, *bases, real=__build_class__, **options):
        log.append(name)
        return real(body, name, *bases, **options)

    def fn(x):
        class Made:
            value = 3

        return x + Made.value

    compiled, log = burnish.compile(fn, backend="eager"), []
    for is_replaced in (False, True, True, False):
        log.clear()
        with mock.patch("builtins.__build_class__", noted if is_replaced else __build_class__):
            assert torch.equal(compiled(torch.ones(1)), torch.full((1,), 4.0))
        assert log == ["Made"] * is_replaced


def test_namespaces_get_the_builtins_of_the_program():
    class Names(dict):
        pass

    def empty():
        return len([])

    def fn(x, run):
        namespace, names = {}, Names()
        run("size = len([1])", namespace, names)
        made = types.FunctionType(empty.__code__, {})
        return x + names["size"], namespace["__builtins__"], made.__builtins__, made

    compiled, seen = burnish.compile(fn, backend="eager"), []
    for _ in range(3):
        result, of_text, of_function, made = compiled(torch.ones(2), exec)
        assert torch.equal(result, torch.full((2,), 2.0))
        assert of_text is of_function is vars(builtins)
        assert made not in seen
        seen.append(made)


def test_graph_that_first_runs_while_builtins_are_replaced():
    compiled = burnish.compile(lambda x: (x.sin() + 1,))
    for is_replaced in (False, True, True, False):
        with mock.patch("builtins.len", (lambda items: 7) if is_replaced else len):
            (result,) = compiled(torch.ones(2))
        assert torch.equal(result, torch.ones(2).sin() + 1)


def test_replaced_builtin_is_told_once_and_no_part_of_one_graph():
    recompile_decisions.warn_of_replaced_builtin.cache_clear()
    other = mock.patch("builtins.isinstance", lambda value, kind, known=isinstance: known(value, kind))
    with pytest.warns(UserWarning, match="builtins.isinstance is replaced") as warned, other:
        for _ in range(3):
            burnish.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        with pytest.raises(burnish.Unsupported, match="builtins.isinstance is replaced"):
            burnish.compile(lambda x: x + 1, backend="eager", fullgraph=True)(torch.ones(2))
    assert len(warned) == 1


def test_builtins_replaced_while_burnish_is_imported():
    text = """
import builtins, unittest.mock
import torch
real, builtins.display = len, lambda: 1
with unittest.mock.patch("builtins.len", lambda items: real(items)):
    import burnish
    from burnish.concurrency.own_builtins import OWN, replaced
    assert replaced() == ["len"] and OWN["len"] is real and builtins.len is not real
del builtins.display
assert not replaced()
compiled = burnish.compile(lambda x: x + 1, backend="eager", fullgraph=True)
compiled(torch.ones(2)), compiled(torch.ones(2))
assert burnish.was_compiled(compiled)
"""
    run_program(text, prepare=TORCH)


def test_function_of_code_and_a_name_is_part_of_the_graph():
    def add(x):
        return x + 1

    def fn(x):
        made = types.FunctionType(add.__code__, globals(), name="other")
        return made(x), made.__name__

    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        result, name = compiled(torch.ones(2))
        assert torch.equal(result, torch.full((2,), 2.0)) and name == "other"


def test_number_that_the_program_keeps_in_builtins_changes():
    def fn(x):
        return x + 1, kept_number  # noqa: F821

    compiled = burnish.compile(fn, backend="eager")
    try:
        for number in (0, 1, 2, 3, 2.5):
            builtins.kept_number = number
            assert compiled(torch.ones(2))[1] == number
    finally:
        del builtins.kept_number
