"""Backends are found by name, and each computes what eager computes."""

import functools
import importlib.metadata
import math
import shutil
import sys
import threading
import types

import pytest
import torch
from torch.fx import Graph, GraphModule

import burnish
from burnish import events
from burnish.backends import registry
from burnish.backends.registry import Backend, list_backends, lookup, register_backend
from burnish.compiler.adapters import specialize_numbers
from burnish.errors import BackendError, UserError

from .forked_programs import TORCH, run_program

NAMES = ["burnish", "eager", "aot_eager", "inductor"]

needs_cpp = pytest.mark.skipif(not shutil.which("g++"), reason="inductor on a CPU needs a C++ compiler")
every_backend = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[needs_cpp, pytest.mark.slow] if n == "inductor" else []) for n in NAMES]
)
functorch_backend = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[needs_cpp, pytest.mark.slow] if n == "inductor" else []) for n in NAMES[2:]]
)


@pytest.fixture(autouse=True)
def restore_registry(monkeypatch):
    monkeypatch.setattr(registry, "_backends", dict(registry._backends))


@pytest.fixture
def entry_points(monkeypatch):
    """Stand-ins for the entry points of installed packages, as {name: "module:function"}."""

    def offer(**points):
        group = registry.ENTRY_POINTS
        made = [importlib.metadata.EntryPoint(name, value, group) for name, value in points.items()]
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: made)
        registry._entry_points.cache_clear()

    yield offer
    registry._entry_points.cache_clear()


def graph_of(fn, inputs):
    """The graph of `fn(*inputs)`, written by calling it with proxies; it returns a tuple."""
    graph = Graph()
    tracer = torch.fx.proxy.GraphAppendingTracer(graph)
    outputs = fn(*(torch.fx.Proxy(graph.placeholder(f"arg{i}"), tracer) for i in range(inputs)))
    graph.output(tuple(getattr(out, "node", out) for out in outputs))
    return GraphModule(torch.nn.Module(), graph)


def wave(x, y):
    return (torch.sin(x) + torch.cos(y),)


def scaled(x, n):
    return (x * n,)


def as_is(gm, example_inputs):
    return gm.forward


class FirstNumbersForever:
    """A backend that never looks at a number again after it compiled. Symbols are given to it once, and found out."""

    def __init__(self):
        self.compiled_for = []

    def __call__(self, gm, example_inputs):
        numbers = [v for v in example_inputs if not isinstance(v, torch.Tensor)]
        if not any(isinstance(v, (torch.SymInt, torch.SymFloat)) for v in numbers):
            self.compiled_for.append(numbers)
        return lambda *args: gm(*(a if torch.is_tensor(a) else e for a, e in zip(args, example_inputs, strict=True)))


@every_backend
def test_backend_computes_sin_plus_cos_like_eager(name):
    compiled = lookup(name)(graph_of(wave, 2), [torch.randn(5), torch.randn(5)])
    for _ in range(3):
        x, y = torch.randn(5), torch.randn(5)
        found = compiled(x, y)
        assert type(found) is tuple
        torch.testing.assert_close(found, wave(x, y))


@every_backend
def test_backend_passes_gradients_to_the_inputs(name):
    def inputs():
        return [torch.randn(5, requires_grad=True), torch.randn(5, requires_grad=True)]

    compiled = lookup(name)(graph_of(wave, 2), inputs())
    for _ in range(3):
        x, y = inputs()
        (found,) = compiled(x, y)
        assert found.requires_grad
        grads = torch.autograd.grad(found.sum(), [x, y])
        torch.testing.assert_close(grads, (torch.cos(x.detach()), -torch.sin(y.detach())))


@every_backend
def test_backend_writes_to_its_inputs_and_returns_aliases_like_eager(name):
    def touch(x, y):
        return (x.add_(y), y.view(-1), x)

    compiled = lookup(name)(graph_of(touch, 2), [torch.zeros(2, 2), torch.ones(2, 2)])
    for _ in range(3):
        x, y = torch.randn(2, 2), torch.randn(2, 2)
        want = x + y
        added, flat, same = compiled(x, y)
        torch.testing.assert_close(x, want)
        assert added is x and same is x
        y.zero_()
        assert not flat.any() and flat.shape == (4,)


@every_backend
def test_backend_computes_with_the_number_of_each_call(name):
    compiled = lookup(name)(graph_of(scaled, 2), [torch.ones(3), 2])
    x = torch.randn(3)
    for n in (2, 3, 2.5, -1, 2):
        torch.testing.assert_close(compiled(x, n), (x * n,))


@every_backend
def test_backend_keeps_the_dtype_a_number_gives(name):
    compiled = lookup(name)(graph_of(scaled, 2), [torch.ones(3, dtype=torch.int64), 1])
    x = torch.arange(3)
    for n in (1, 1.0, True, 1):
        (found,) = compiled(x, n)
        assert found.dtype == (x * n).dtype


@every_backend
def test_backend_returns_constants_and_none_in_their_places(name):
    compiled = lookup(name)(graph_of(lambda x: (torch.sin(x), None, 3, x.exp()), 1), [torch.ones(3)])
    for _ in range(3):
        x = torch.randn(3)
        found = compiled(x)
        assert found[1:3] == (None, 3)
        torch.testing.assert_close((found[0], found[3]), (x.sin(), x.exp()))


@functorch_backend
def test_backend_leaves_the_callers_graph_and_tensors_as_they_were(name):
    gm = graph_of(lambda x, y: ((x + 0).add_(y),), 2)
    before, x, y = str(gm.graph), torch.ones(3), torch.ones(3)
    lookup(name)(gm, [x, y])
    assert str(gm.graph) == before
    assert x.eq(1).all() and y.eq(1).all()


def test_only_backends_that_run_each_node_take_opaque_python():
    assert {name: lookup(name).runs_python for name in NAMES} == {
        "burnish": True,
        "eager": True,
        "aot_eager": False,
        "inductor": False,
    }


def test_backend_that_runs_python_runs_an_opaque_callable_in_the_graph():
    seen = []

    def note(value):
        seen.append(value)

    graph = Graph()
    x = graph.placeholder("x")
    graph.call_function(note, (x,))
    graph.output((x,))
    gm = GraphModule(torch.nn.Module(), graph)
    assert lookup("eager")(gm, [torch.ones(1)])("anything") == ("anything",)
    assert seen == ["anything"]


def test_list_names_ours_and_registered_backends():
    register_backend(as_is, name="mine")
    assert set(NAMES) | {"mine"} <= set(list_backends())
    assert list_backends() == sorted(list_backends())


def test_decorator_registers_under_the_functions_name_and_gives_the_function_back():
    def bare(gm, example_inputs):
        return gm.forward

    assert register_backend(bare) is bare
    assert register_backend(name="named")(bare) is bare
    assert lookup("bare").fn is bare and lookup("named").fn is bare


def test_function_looked_up_keeps_its_registration():
    register_backend(as_is, runs_python=True)
    assert lookup(as_is) == Backend("as_is", as_is, runs_python=True)


def test_unregistered_function_is_a_backend_that_does_not_run_python():
    backend = lookup(as_is)
    assert (backend.name, backend.runs_python) == ("as_is", False)
    assert lookup(backend) is backend
    assert lookup(functools.partial(as_is)).name == "as_is"
    assert lookup(FirstNumbersForever()).name == "FirstNumbersForever"


def test_name_of_another_backend_cannot_be_taken():
    with pytest.raises(UserError, match='already a backend called "eager"'):
        register_backend(as_is, name="eager")


def test_definition_that_is_run_again_replaces_its_backend():
    def cell():
        @register_backend
        def again(gm, example_inputs):
            return gm.forward

        return again

    first, second = cell(), cell()
    assert first is not second and lookup("again").fn is second


def test_unknown_name_offers_near_ones_and_lists_all():
    with pytest.raises(UserError, match='no backend called "inducter".*Did you mean "inductor"') as caught:
        lookup("inducter")
    assert all(name in str(caught.value) for name in NAMES)


@pytest.mark.parametrize("use", [lookup, register_backend])
def test_neither_name_nor_function_is_refused(use):
    with pytest.raises(UserError, match="function"):
        use(3)


def test_exception_of_a_backend_is_the_cause_of_an_error_that_names_it():
    def faulty(gm, example_inputs):
        raise ZeroDivisionError("no graph today")

    with pytest.raises(BackendError, match='"faulty" raised.*ZeroDivisionError: no graph today') as caught:
        lookup(faulty)(graph_of(wave, 2), [torch.ones(1), torch.ones(1)])
    assert caught.value.backend == "faulty"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert 'backend="eager"' in str(caught.value)


def test_backend_that_returns_no_callable_is_refused():
    with pytest.raises(BackendError, match="returned None, which cannot be called"):
        lookup(lambda gm, example_inputs: None)(graph_of(wave, 2), [torch.ones(1), torch.ones(1)])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda outputs: outputs[0], "a Tensor, which is not a tuple"),
        (lambda outputs: None, "a NoneType, which is not a tuple"),
        (lambda outputs: outputs[:1], "1 values, and the graph has 2 outputs"),
        (lambda outputs: (*outputs, outputs[0]), "3 values, and the graph has 2 outputs"),
        (lambda outputs: dict(enumerate(outputs)), "a dict, which is not a tuple"),
        (lambda outputs: (x for x in outputs), "a generator, which is not a tuple"),
        (lambda outputs: (outputs[0], "sum"), "a str as output 1, which is not a tensor"),
    ],
)
def test_outputs_that_are_not_the_graphs_are_refused_in_its_first_run(change, text):
    def changing(gm, example_inputs):
        return lambda *inputs: change(gm.forward(*inputs))

    compiled, x = burnish.compile(lambda x: (x * 2, x + 1), backend=changing), torch.ones(2)
    compiled(x)  # traced: the graph runs from the second call on
    for _ in range(2):
        with pytest.raises(BackendError, match=text) as caught:
            compiled(x)
        assert caught.value.backend == "changing" and "2 here" in str(caught.value)


def test_outputs_of_a_backend_are_checked_once():
    made, x = [], torch.ones(2)

    def fn(x):
        return x * 2, x + 1

    def as_list(gm, example_inputs):
        made.append(lambda *inputs: list(gm.forward(*inputs)))
        return made[-1]

    compiled = burnish.compile(fn, backend=as_list)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), fn(x))
    (segment,) = compiled.__burnish_program__.entry.segments
    assert segment.graph is made[0]


def test_backend_may_rewrite_the_graph_it_is_given():
    def erase(gm, example_inputs):
        forward = gm.forward
        gm.graph.erase_node(next(iter(reversed(gm.graph.nodes))))
        example_inputs.clear()
        return forward

    gm, inputs = graph_of(wave, 2), [torch.ones(1), torch.ones(1)]
    lookup(erase)(gm, inputs)
    assert "return" in gm.code and len(inputs) == 2


def test_copy_of_a_graph_keeps_tensors_metadata_and_names():
    gm = graph_of(wave, 2)
    gm.register_buffer("weight", torch.ones(2))
    with gm.graph.inserting_before(next(iter(gm.graph.nodes))):
        gm.graph.get_attr("weight").meta["from"] = "line 3"
    gm.recompile()
    gm.meta["what"] = "wave"
    copied = specialize_numbers.own_copy(gm)
    assert copied.weight is gm.weight and copied.meta == gm.meta and copied.graph is not gm.graph
    assert [(n.name, n.meta) for n in copied.graph.nodes] == [(n.name, n.meta) for n in gm.graph.nodes]


def test_each_number_compiles_once():
    backend = FirstNumbersForever()
    compiled = lookup(backend)(graph_of(scaled, 2), [torch.ones(2), 2])
    for n in (2, 3, 2, 3):
        assert compiled(torch.ones(2), n)[0].eq(n).all()
    assert sorted(backend.compiled_for) == [[2], [3]]


def test_numbers_equal_but_not_identical_compile_separately():
    backend = FirstNumbersForever()
    compiled = lookup(backend)(graph_of(lambda x, n: (torch.atan2(x, x * n),), 2), [torch.zeros(1), 0.0])
    assert compiled(torch.ones(1) * 0, 0.0)[0].item() == 0.0
    assert compiled(torch.ones(1) * 0, -0.0)[0].item() == pytest.approx(math.pi)
    for n in (1, 1.0, True, math.nan, math.nan):
        compiled(torch.ones(1), n)
    assert sorted(repr(n) for (n,) in backend.compiled_for) == sorted(["-0.0", "1", "1.0", "True", "nan"])


def test_number_that_keeps_changing_runs_eagerly_after_the_limit():
    backend = FirstNumbersForever()
    compiled = lookup(backend)(graph_of(scaled, 2), [torch.ones(2), 0])
    for n in range(3 * specialize_numbers.LIMIT):
        assert compiled(torch.ones(2), n)[0].eq(n).all()
    assert len(backend.compiled_for) == specialize_numbers.LIMIT


def test_threads_that_bring_the_same_number_compile_it_once():
    backend = FirstNumbersForever()
    compiled = lookup(backend)(graph_of(scaled, 2), [torch.ones(2), 0])
    threads = [threading.Thread(target=compiled, args=(torch.ones(2), 1)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert backend.compiled_for == [[1]]


def test_backends_of_installed_packages_are_found_and_loaded_when_named(entry_points, monkeypatch):
    monkeypatch.setitem(sys.modules, "their_package", types.SimpleNamespace(compiler=as_is))
    entry_points(theirs="their_package:compiler", absent="package_that_is_not_there:compiler")
    assert {"theirs", "absent"} < set(list_backends())
    assert lookup("theirs") == Backend("theirs", as_is)
    with pytest.raises(BackendError, match='"absent" could not be imported from package_that_is_not_there'):
        lookup("absent")


def test_installed_package_does_not_take_one_of_our_names(entry_points):
    entry_points(eager="package_that_is_not_there:compiler")
    assert lookup("eager").runs_python
    assert list_backends().count("eager") == 1


def test_eager_runs_without_loading_the_compiler_of_torch():
    code = (
        "import sys, torch, burnish.backends.registry as b\n"
        "gm = torch.fx.symbolic_trace(torch.nn.ReLU())\n"
        "b.lookup('eager')(gm, [torch.ones(1)]); b.list_backends()\n"
        "print([m for m in ('torch._dynamo', 'torch._inductor', 'torch._functorch.aot_autograd') if m in sys.modules])"
    )
    ran = run_program(code, environment={"PATH": ""}, prepare=TORCH)
    assert ran.stdout == "[]\n", ran.stderr


def test_a_failing_backends_graph_runs_eagerly_if_dynamo_suppresses_errors():
    import torch._dynamo.config

    def failing(gm, example_inputs):
        raise ValueError("no such device")

    x = torch.randn(3)
    with (
        torch._dynamo.config.patch(suppress_errors=True),
        pytest.warns(UserWarning, match="ValueError: no such device"),
    ):
        compiled = burnish.compile(lambda x: x * 2, backend=failing)
        for _ in range(3):
            assert torch.equal(compiled(x), x * 2)
    with pytest.raises(burnish.BackendError):
        burnish.compile(lambda x: x * 2, backend=failing)(x)


class CountedCalls(torch.Tensor):
    """A tensor whose class counts the calls that ask it."""

    calls = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls += 1
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.falls_back("refused")
@pytest.mark.parametrize("backend", ["own", "aot_eager"])
def test_backends_do_not_ask_the_rules_of_a_tensor_class(backend):
    def fn(x):
        return (x * 2 + 1).sin()

    compiled = burnish.compile(fn, backend="aot_eager" if backend == "aot_eager" else lambda gm, inputs: gm.forward)
    for _ in range(4):
        x = torch.randn(3).as_subclass(CountedCalls)
        wanted = fn(x)
        CountedCalls.calls = 0
        found = compiled(x)
        assert CountedCalls.calls == 3
        assert type(found) is CountedCalls and torch.equal(found, wanted)


@pytest.mark.falls_back("refused")
def test_a_graph_that_aot_eager_leaves_to_a_tensor_class_is_reported():
    refused = []
    stop = events.subscribe(lambda event: refused.append(event.data["text"]) if event.kind == "lower.refused" else None)
    compiled = burnish.compile(lambda x: x * 2, backend="aot_eager")
    for _ in range(3):
        compiled(torch.randn(3).as_subclass(CountedCalls))
    stop()
    assert refused and "CountedCalls" in refused[0]
