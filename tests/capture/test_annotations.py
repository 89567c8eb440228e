"""Annotations: assigned again, and from Python 3.14 on computed by a function of the program when they are read."""

import functools
import inspect
import sys
import typing

import pytest
import torch

import burnish

X = torch.ones(2)
Kind = int
computed = pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are computed where they are written")


def of_function(x):
    def made(a: Kind) -> "text":  # noqa: F821
        return a

    return x + 1, made.__annotations__["a"]


def of_wrapped_function(x):
    def made(a: Kind):
        return a

    @functools.wraps(made)
    def wrapper(a):
        return made(a)

    return wrapper(x) + 1, wrapper.__annotations__, wrapper.__name__


def of_signature(x):
    def made(a: Kind):
        return a

    return x + 1, str(inspect.signature(made))


def of_hints(x):
    class Made:
        a: Kind

    return x + 1, typing.get_type_hints(Made)["a"]


def of_result(x):
    def made(a: Kind):
        return a

    return x + 1, made


@pytest.mark.falls_back("refused")  # a class whose annotations are read is made by plain Python
@pytest.mark.parametrize("fn", [of_function, of_wrapped_function, of_signature, of_hints], ids=lambda fn: fn.__name__)
def test_annotations_follow_the_names_they_read(fn, monkeypatch):
    compiled = burnish.compile(fn, backend="eager")
    for kind in (int, str, float, int, list):
        monkeypatch.setattr(sys.modules[__name__], "Kind", kind)
        assert repr(compiled(X)) == repr(fn(X))


def test_a_function_that_leaves_the_graph_has_its_annotations(monkeypatch):
    compiled = burnish.compile(of_result, backend="eager")
    for kind in (int, str, float):
        monkeypatch.setattr(sys.modules[__name__], "Kind", kind)
        assert compiled(X)[1].__annotations__ == {"a": kind}


@computed
def test_annotations_with_unknown_names_are_not_computed():
    def fn(x):
        def made(a: unknown):  # noqa: F821
            return a

        return made(x) + 1, made

    compiled = burnish.compile(fn, backend="eager")
    for k in range(3):
        assert torch.equal(compiled(X * k)[0], X * k + 1)
    with pytest.raises(NameError, match="unknown"):
        compiled(X)[1].__annotations__  # noqa: B018


@pytest.mark.falls_back("refused")  # it would compute them again
def test_a_function_that_leaves_the_graph_keeps_the_annotations_that_were_read(monkeypatch):
    def fn(x):
        def made(a: Kind):
            return a

        made.__annotations__["b"] = str(inspect.signature(made))
        return x + 1, made

    compiled = burnish.compile(fn, backend="eager")
    for kind in (int, str, float, str):
        monkeypatch.setattr(sys.modules[__name__], "Kind", kind)
        found = compiled(X)[1]
        monkeypatch.setattr(sys.modules[__name__], "Kind", list)
        assert found.__annotations__ == {"a": kind, "b": f"(a: {kind.__name__})"}


@computed
def test_annotations_shown_as_text_are_not_computed(monkeypatch):
    import annotationlib

    def fn(x, form):
        return x + 1, annotationlib.get_annotations(outside, format=form)

    def outside(a: Kind): ...

    compiled = burnish.compile(fn, backend="eager")
    for form in (annotationlib.Format.STRING, annotationlib.Format.STRING, annotationlib.Format.VALUE):
        monkeypatch.setattr(sys.modules[__name__], "Kind", float)
        assert compiled(X, form)[1] == {"a": "Kind" if form is annotationlib.Format.STRING else float}
        monkeypatch.setattr(sys.modules[__name__], "Kind", str)


@computed
def test_annotations_without_effects_end_no_graph():
    def outside(a: Kind) -> "int": ...

    def fn(x):
        def made(a: Kind) -> x.shape[0]: ...

        return x + 1, str(made.__annotations__), str(inspect.signature(outside)), typing.get_type_hints(outside)["a"]

    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    for _ in range(3):
        assert compiled(X)[1:] == ("{'a': <class 'int'>, 'return': 2}", "(a: int) -> 'int'", int)


def outside_function():
    def outside(a: int):
        return a

    return outside


def outside_class():
    class Outside:
        a: int

    return Outside


@pytest.mark.parametrize("is_computed", [True, False])
@pytest.mark.parametrize("make", [outside_function, outside_class])
def test_annotations_that_are_assigned_again_are_seen(make, is_computed):
    def fn(x):
        return x + 1, outside.__annotations__["a"]

    outside = make()
    if is_computed:
        assert outside.__annotations__ == {"a": int}
    compiled = burnish.compile(fn, backend="eager")
    changes = {2: {"a": str}, 4: {"a": float}}
    for call in range(6):
        if call in changes:
            outside.__annotations__ = changes[call]
        if call == 5:
            outside.__annotations__["a"] = list
        assert compiled(X)[1] is fn(X)[1]


@computed
@pytest.mark.parametrize("make", [outside_function, outside_class])
def test_functions_of_annotations_that_are_assigned_again_are_seen(make):
    def fn(x):
        return x + 1, outside.__annotations__["a"], outside.__annotate__(1)["a"]

    outside = make()
    compiled = burnish.compile(fn, backend="eager")
    for call, kind in enumerate((int, int, str, str, float)):
        if call in (2, 4):
            outside.__annotate__ = lambda version, kind=kind: {"a": kind}
        assert compiled(X)[1:] == fn(X)[1:] == (kind, kind)


LAZY = {
    "value": "type L = dict[int, n]\n    return x + 1, L.__value__",
    "value of an alias with a parameter": "type L[T] = dict[T, n]\n    return x + 1, str(L[int].__value__)",
    "alias": "type L = dict[int, n]\n    return x + 1, L",
    "bound of a function": "def g[T: n](a): return a\n    return x + 1, g",
}


@pytest.mark.falls_back("refused")  # what holds a variable of the call cannot be made again
@pytest.mark.skipif(sys.version_info < (3, 12), reason="there are no lazy values")
@pytest.mark.parametrize("body", LAZY.values(), ids=LAZY)
def test_lazy_values_are_those_of_the_call(body):
    names = {}
    exec(f"def fn(x, n):\n    {body}", names)
    compiled = burnish.compile(names["fn"], backend="eager")

    def shown(n):
        value = compiled(X, n)[1]
        if getattr(value, "__type_params__", ()):
            return value.__type_params__[0].__bound__
        return str(getattr(value, "__value__", value))

    for n in (1, 1, 2, 1, 3):
        assert shown(n) in (n, f"dict[int, {n}]", f"dict[T, {n}]")


class Called:
    def __call__(self, a=0):
        return a


def called(a, b=0):
    return a


@pytest.mark.parametrize(
    "make",
    [lambda: functools.partial(called, 1), Called, lambda: type("Derived", (Called,), {})()],
    ids=["partial", "instance", "instance of a derived class"],
)
def test_signature_of_what_is_made_of_changed_functions(make):
    def fn(x):
        return x + 1, str(inspect.signature(make()))

    compiled = burnish.compile(fn, backend="eager")
    for number in range(4):
        called.__defaults__ = Called.__call__.__defaults__ = (number,)
        assert compiled(X)[1] == fn(X)[1]
