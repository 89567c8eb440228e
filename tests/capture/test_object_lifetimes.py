"""Compiled code does not keep its inputs alive: they are freed as in eager, without garbage collection."""

import gc
import os
import weakref

import pytest
import torch

import burnish
from burnish.capture.interpreter import frames


@pytest.fixture(autouse=True)
def without_collections():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("backend", ["eager", "burnish"])
def test_an_argument_goes_after_the_call_that_traced(backend):
    compiled = burnish.compile(lambda x: x.sin() + x, backend=backend)
    x = torch.rand(4)
    reference = weakref.ref(x)
    compiled(x)
    del x
    assert reference() is None


def test_dropped_objects_are_freed_before_the_call_at_a_break():
    seen = []

    @burnish.disable
    def outside(y):
        seen.append(reference() is None)
        return y

    def fn(box):
        x = box.pop()
        y = x + 1
        del x
        return outside(y) * 2

    compiled = burnish.compile(fn, backend="eager")
    box = [torch.rand(4)]
    reference = weakref.ref(box[0])
    compiled(box)
    assert seen == [True]


def test_gradients_and_optimizer_states_go_when_they_are_dropped():
    model = torch.nn.Linear(8, 8, bias=False)
    # A process's first one may stay: torch imports its compiler for it, and an error that is met there holds frames.
    torch.optim.Adadelta(model.parameters())
    optimizer = torch.optim.Adadelta(model.parameters(), lr=0.01)

    def fn():
        optimizer.step()

    model(torch.ones(8)).sum().backward()
    burnish.compile(fn, backend="eager")()
    gradient = weakref.ref(model.weight.grad)
    optimizer.zero_grad(set_to_none=True)
    assert gradient() is None
    state = weakref.ref(optimizer.state[model.weight]["square_avg"])
    del fn
    optimizer = None
    assert state() is None


def test_a_model_goes_that_was_an_argument():
    compiled = burnish.compile(lambda model, x: model(x), backend="eager")
    model = torch.nn.Linear(4, 4)
    references = weakref.ref(model), weakref.ref(model.weight)
    compiled(model, torch.rand(2, 4))
    del model
    assert [reference() for reference in references] == [None, None]


def test_a_class_inside_a_function_is_not_held_with_what_its_methods_know():
    def run():
        weight = torch.nn.Parameter(torch.rand(3))

        class Scaled(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = weight

            def forward(self, x):
                return x * self.weight

        burnish.compile(Scaled(), backend="eager")(torch.ones(3))
        return weakref.ref(weight)

    reference = run()
    gc.collect()  # a class is part of a cycle
    assert reference() is None


def test_objects_held_by_an_error_are_freed_once_it_is_handled():
    """By counting alone, as in eager: code may wait for its end, as torch's checkpoint does to put hooks back."""
    gone = []

    @burnish.disable
    def fails(x):
        held = torch.empty(1)
        weakref.finalize(held, gone.append, True)
        raise ValueError(len(x))

    def fn(x):
        try:
            fails(x)
        except ValueError as error:
            return x * error.args[0]

    compiled = burnish.compile(fn, backend="eager")
    gc.disable()
    try:
        for call in (fn, compiled, compiled, compiled):
            gone.clear()
            call(torch.ones(2))
            assert gone == [True]
    finally:
        gc.enable()


class Held:
    """What weak references point to."""


@pytest.mark.falls_back("refused", only=r"finalize|callback")
@pytest.mark.parametrize(
    "watch",
    [
        lambda held, gone: weakref.finalize(held, gone.append, "gone"),
        lambda held, gone: weakref.ref(held, lambda _: gone.append("gone")),
    ],
    ids=["finalize", "callback"],
)
def test_function_that_waits_for_the_end_of_an_object_is_called_then_on_every_run(watch):
    events = []

    def fn(x):
        held = Held()
        reference = watch(held, events)
        del held
        events.append("dropped")
        return x + 1, reference

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(4):
        events.clear()
        compiled(torch.ones(2))
        assert events == ["gone", "dropped"]


def test_object_that_a_proxy_points_to_as_well_is_dropped_inside():
    class Keeper:
        def __init__(self):
            self.held = Held()

    def fn(x, keeper):
        kept = keeper.held
        keeper.held = None
        del kept
        return x + 1

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        keeper = Keeper()
        proxy, reference = weakref.proxy(keeper.held), weakref.ref(keeper.held)
        compiled(torch.ones(2), keeper)
        assert reference() is None
        with pytest.raises(ReferenceError):
            proxy.anything  # noqa: B018


def test_proxy_of_an_object_that_is_gone_raises_its_error_at_its_place():
    held = Held()
    proxy = weakref.proxy(held)
    del held

    def fn(x):
        try:
            return x * proxy.scale
        except ReferenceError:
            return x - 1

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.zeros(2))


@pytest.mark.falls_back("refused")
def test_object_that_its_constructor_wrote_to_goes_at_once():
    order = []

    class Noted:
        def __init__(self, value):
            self.value = value

        def __del__(self):
            order.append("gone")

    def fn(x):
        held = Noted(x.shape)
        held = None
        order.append("after")
        return x, held

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        order.clear()
        compiled(torch.ones(2))
        assert order == ["gone", "after"]


@pytest.mark.falls_back("refused")
def test_del_of_an_object_in_a_cycle_runs_in_each_call_when_it_is_collected():
    done = []

    class Noted:
        def __del__(self):
            done.append(1)

    def fn(x):
        held = Noted()
        held.itself = held
        held = None
        before = len(done)
        gc.collect()
        return x + 1, len(done) - before

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        assert compiled(torch.ones(2))[1] == 1


@pytest.mark.falls_back("refused")
@pytest.mark.parametrize("base", [int, list])
def test_element_that_runs_code_when_it_goes_does_so_at_once(base):
    def fn(x):
        class Noted(base):
            def __del__(self):
                table.clear()

        table = {i: Noted() for i in range(8)}
        try:
            for key, _ in table.items():
                if key == 2:
                    table[2] = None
        except RuntimeError as error:
            return x + 1, str(error)
        return x, None

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        assert compiled(torch.ones(2))[1] == "dictionary changed size during iteration"


def test_the_collector_shows_no_marks_of_the_interpreter():
    assert not [each for each in gc.get_objects() if each is frames.UNBOUND or each is frames.MISSING]


@pytest.mark.falls_back("refused")
def test_a_view_of_a_buffer_lives_as_long_as_its_variable():
    def fn():
        data = bytearray(4)
        shown = memoryview(data)  # noqa: F841  # the buffer keeps its size as long as this variable is there
        os.getpid()
        try:
            data.append(1)
        except BufferError as error:
            return str(error)

    compiled = burnish.compile(fn, backend="eager")
    assert [compiled() for _ in range(3)] == [fn() for _ in range(3)]


@pytest.mark.parametrize("refer", [weakref.proxy, weakref.ref], ids=lambda refer: refer.__name__)
def test_an_object_lives_as_long_as_its_variable(refer):
    class Held:
        value = 3

    def referring(held):
        return refer(held)

    def fn():
        first, second = Held(), Held()
        shown, other = refer(first), referring(second)
        os.getpid()
        return [made.value if refer is weakref.proxy else made().value for made in (shown, other)]

    compiled = burnish.compile(fn, backend="eager")
    assert [compiled() for _ in range(3)] == [fn() for _ in range(3)]
