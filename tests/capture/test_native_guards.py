"""Native guards: every change of a watched value is detected by the next call.

Each program below is compiled and called until its guards are watched natively. Then one thing is changed, and the
next call must compute what eager computes. The watch is on its own here: with the setting ``check`` it would be caught
by the check it stands for.
"""

import contextlib
import functools
import gc
import threading
import types
import weakref

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import nn

import burnish
from burnish.compiler.provide_guard_watch import new_watch
from burnish.settings import patch

pytestmark = pytest.mark.skipif(new_watch() is None, reason="this Python keeps its objects in another way")
X = torch.arange(6.0).reshape(2, 3)


def first_segments(compiled):
    return vars(compiled)["__burnish_program__"].entry.segments


def is_watched(compiled):
    return any(segment.check.watch_manager.fast is not None for segment in first_segments(compiled))


def same(found, expected):
    if not isinstance(expected, torch.Tensor):
        assert found == expected
        return
    assert (found.dtype, found.shape, found.requires_grad) == (expected.dtype, expected.shape, expected.requires_grad)
    assert torch.equal(found, expected)


def watched(fn, *args):
    """``fn`` compiled and called until one native call tells whether its guards hold."""
    with patch(check=False):
        compiled = burnish.compile(fn, backend="eager")
        for _ in range(5):
            same(compiled(*args), fn(*args))
    assert is_watched(compiled)
    return compiled


def sees(compiled, fn, *args):
    with patch(check=False):
        for _ in range(4):
            same(compiled(*args), fn(*args))


# -- modules that are passed through one check ------------------------------------------------------------------------


def through(module, x):
    return module(x) * 2


def test_equal_modules_that_take_turns_have_a_watch_each():
    blocks = [nn.Sequential(nn.Linear(3, 3), nn.ReLU()) for _ in range(4)]
    with patch(check=False):
        compiled = burnish.compile(through, backend="eager")
        for _ in range(6):
            for block in blocks:
                same(compiled(block, X), through(block, X))
        manager = first_segments(compiled)[0].check.watch_manager
        assert len(first_segments(compiled)) == 1 and len(manager.others) == 3
        assert all(each.fast is not None and not each.fickle for each in (manager, *manager.others.values()))
        passed = [each.passed for each in (manager, *manager.others.values())]
        for block in blocks:
            compiled(block, X)
        assert [each.passed for each in (manager, *manager.others.values())] == passed  # nothing was asked in Python


@pytest.mark.parametrize(
    "change",
    [
        lambda block: block.eval(),
        lambda block: setattr(block[0], "bias", None),
        lambda block: setattr(block[0], "weight", nn.Parameter(torch.ones(3, 3))),
        lambda block: block.register_forward_hook(lambda module, args, result: result + 1),
        lambda block: block.append(nn.Tanh()),
    ],
)
@pytest.mark.parametrize("which", [0, 2])
def test_a_change_of_one_of_them_is_seen(change, which):
    blocks = [nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0)) for _ in range(3)]
    with patch(check=False):
        compiled = burnish.compile(through, backend="eager")
        for _ in range(6):
            for block in blocks:
                same(compiled(block, X), through(block, X))
        change(blocks[which])
        for _ in range(4):
            for block in blocks:
                same(compiled(block, X), through(block, X))


def test_a_module_at_the_address_of_a_freed_one_is_another():
    with patch(check=False):
        compiled = burnish.compile(through, backend="eager")
        for number in range(30):
            block = nn.Sequential(nn.Linear(3, 3), nn.ReLU() if number % 3 else nn.Tanh())
            for _ in range(5):
                same(compiled(block, X), through(block, X))
            del block


# -- one module, and each thing that can be changed about it -----------------------------------------------------------


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.bias = nn.Parameter(torch.ones(3))
        self.register_buffer("offset", torch.full((3,), 2.0))
        self.scale, self.names, self.list = 2.0, {"a": 1, "b": 2}, [1, 2.5]
        self.maybe = None
        self.pair = (3, [4])

    def forward(self, x):
        for number, name in enumerate(self.names):
            x = x + number * self.names[name]
        if self.training:
            x = x * 3
        if self.maybe is not None:
            x = x - self.maybe
        if hasattr(self, "extra"):
            x = x * self.extra
        for part in self.list:
            x = x * part
        return (self.linear(x) + self.bias) * self.scale + self.offset + self.pair[1][0]


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList([Inner(), Inner()])
        self.act = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Dropout(0.0))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.act(x)


def doubling(module, args, output):
    return output * 2


def adding(module, args):
    return (args[0] + 1,)


def set_data(m):
    m.blocks[0].bias.data = torch.zeros(1, 3)


def grow(m):
    m.blocks[0].offset.resize_(1, 3).fill_(1)


def history(m):
    m.blocks[0].offset.mul_(m.blocks[1].bias)


def of_other_class(m):
    class Shifted(Inner):
        def forward(self, x):
            return super().forward(x) - 1

    m.blocks[1].__class__ = Shifted


def other_dictionary(m):
    m.blocks[1].__dict__ = {**vars(m.blocks[1]), "scale": 5.0}


def swap_with_another(m):
    torch.utils.swap_tensors(m.blocks[0].bias, nn.Parameter(torch.full((1, 3), 4.0)))


def reorder(m):
    m.blocks[0].names["a"] = m.blocks[0].names.pop("a")


def at_the_same_address(m):
    """An object is freed, and another one may get its address."""
    for value in (2.5, 3.5, 4.5):
        m.blocks[0].list[1] = None
        m.blocks[0].list[1] = value * 2
    m.blocks[1].maybe = None


CHANGES = {
    "attribute": lambda m: setattr(m.blocks[0], "scale", 3.0),
    "attribute of another type": lambda m: setattr(m.blocks[0], "scale", 2),
    "attribute that was None": lambda m: setattr(m.blocks[1], "maybe", 1.0),
    "attribute that was not there": lambda m: setattr(m.blocks[1], "extra", 2.0),
    "attribute written past setattr": lambda m: vars(m.blocks[1]).update(scale=7.0),
    "parameter object": lambda m: setattr(m.blocks[0], "bias", nn.Parameter(torch.zeros(3))),
    "parameter of another shape": lambda m: setattr(m.blocks[0], "bias", nn.Parameter(torch.zeros(1, 3))),
    "parameter's data": set_data,
    "parameter of the same memory": lambda m: m.blocks[0].bias.data.add_(1),
    "parameter wants no gradient": lambda m: m.requires_grad_(False),
    "parameter's dtype": lambda m: m.double(),
    "parameter's class": lambda m: setattr(m.blocks[0].bias, "__class__", torch.Tensor),
    "parameter swapped": swap_with_another,
    "parameter is None": lambda m: m.act[0].register_parameter("bias", None),
    "buffer": lambda m: setattr(m.blocks[0], "offset", torch.zeros(3)),
    "buffer's dtype": lambda m: setattr(m.blocks[0], "offset", torch.full((3,), 2.0).half()),
    "buffer resized": grow,
    "buffer with a history": history,
    "buffer wants a gradient": lambda m: m.blocks[0].offset.requires_grad_(),
    "hook": lambda m: m.blocks[0].register_forward_hook(doubling),
    "hook before": lambda m: m.act[1].register_forward_pre_hook(adding),
    "hook on the whole": lambda m: m.register_forward_hook(doubling),
    "hook without a doing": lambda m: m.act[1].register_forward_hook(lambda *args: None),
    "training of all": lambda m: m.eval(),
    "training of one": lambda m: m.blocks[1].eval(),
    "module of a list": lambda m: m.blocks.__setitem__(0, Inner()),
    "module of a sequence": lambda m: m.act.__setitem__(1, nn.Tanh()),
    "module more": lambda m: m.blocks.append(Inner()),
    "module less": lambda m: m.blocks.__delitem__(0),
    "modules in another order": lambda m: m.act._modules.update({"0": m.act[1], "1": m.act[0]}),
    "module's class": of_other_class,
    "module's dictionary": other_dictionary,
    "module's forward": lambda m: setattr(m.blocks[0], "forward", types.MethodType(lambda self, x: x * 2, m.blocks[0])),
    "dictionary's entry": lambda m: m.blocks[0].names.update(a=5),
    "dictionary's new entry": lambda m: m.blocks[0].names.update(c=5),
    "dictionary's lost entry": lambda m: m.blocks[0].names.pop("a"),
    "dictionary's order": reorder,
    "dictionary": lambda m: setattr(m.blocks[0], "names", {"a": 1, "b": 3}),
    "list's item": lambda m: m.blocks[0].list.__setitem__(1, 4.0),
    "list's new item": lambda m: m.blocks[0].list.append(4.0),
    "list's lost item": lambda m: m.blocks[0].list.pop(),
    "list's order": lambda m: m.blocks[0].list.reverse(),
    "list in a tuple": lambda m: m.blocks[0].pair[1].__setitem__(0, 7),
    "same address": at_the_same_address,
    "nothing": lambda m: None,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("whole", [True, False], ids=["module", "function"])
def test_change_in_a_module_is_seen_by_the_next_call(change, whole):
    model = Outer().train()

    def call(x):
        return model(x)

    fn = model if whole else call
    compiled = watched(fn, X)
    with torch.no_grad() if change is grow else contextlib.nullcontext():
        change(model)
    sees(compiled, fn, X if change is not CHANGES["parameter's dtype"] else X.double())


def test_hook_for_all_modules_is_seen_and_its_end_as_well():
    model = Outer()
    compiled = watched(model, X)
    handle = nn.modules.module.register_module_forward_hook(doubling)
    try:
        sees(compiled, model, X)
    finally:
        handle.remove()
    sees(compiled, model, X)


def test_class_attribute_and_replaced_method_are_seen():
    class Halving(nn.Module):
        factor = 0.5

        def forward(self, x):
            return self.halved(x)

        def halved(self, x):
            return x * self.factor

    class Below(Halving):
        pass

    model = Below()
    compiled = watched(model, X)
    Halving.factor = 0.25
    sees(compiled, model, X)
    Halving.halved = lambda self, x: x - self.factor
    sees(compiled, model, X)
    Halving.forward = lambda self, x: x * 3
    sees(compiled, model, X)


# -- functions: globals, closures, defaults, code ----------------------------------------------------------------------

FACTOR, TABLE, ITEMS = 2.0, {"a": 2.0}, [1.0, 2.0]


def test_global_is_seen(monkeypatch):
    def fn(x):
        return x * FACTOR + TABLE["a"] + ITEMS[1] + len(ITEMS)

    compiled = watched(fn, X)
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    sees(compiled, fn, X)
    monkeypatch.setitem(TABLE, "a", 3.0)
    sees(compiled, fn, X)
    monkeypatch.setattr(torch, "FACTOR", 3.0, raising=False)  # nothing that it reads
    sees(compiled, fn, X)
    monkeypatch.setitem(globals(), "ITEMS", [1.0, 7.0, 8.0])
    sees(compiled, fn, X)


def test_builtin_that_is_covered_by_a_global_is_seen(monkeypatch):
    def fn(x):
        return x * max(2, 3)

    compiled = watched(fn, X)
    monkeypatch.setitem(globals(), "max", min)
    sees(compiled, fn, X)


def test_closure_cell_is_seen():
    scale, table, weight = 2.0, [1.0, 2.0], torch.ones(3)

    def fn(x):
        return x * scale + table[0] + weight

    def rebind(value=None, other=None, third=None):
        nonlocal scale, table, weight
        scale = scale if value is None else value
        table = table if other is None else other
        weight = weight if third is None else third

    compiled = watched(fn, X)
    rebind(3.0)
    sees(compiled, fn, X)
    rebind(None, [5.0])
    sees(compiled, fn, X)
    rebind(None, None, torch.ones(2, 3).double())
    sees(compiled, fn, X)


def test_defaults_code_and_keyword_defaults_are_seen():
    def inner(x, factor=2.0, *, offset=1.0):
        return x * factor + offset

    def fn(x):
        return inner(x)

    compiled = watched(fn, X)
    inner.__defaults__ = (3.0,)
    sees(compiled, fn, X)
    inner.__kwdefaults__ = {"offset": 5.0}
    sees(compiled, fn, X)
    inner.__kwdefaults__["offset"] = 6.0
    sees(compiled, fn, X)
    inner.__code__ = (lambda x, factor, *, offset: x - factor).__code__
    sees(compiled, fn, X)


def test_method_and_partial_are_guarded_by_their_contents():
    class Scaled:
        def __init__(self, factor):
            self.factor = factor

        def times(self, x, more):
            return x * self.factor * more

    holder = types.SimpleNamespace(call=functools.partial(Scaled(2.0).times, more=3.0))

    def fn(x):
        return holder.call(x)

    compiled = watched(fn, X)
    holder.call.keywords["more"] = 4.0
    sees(compiled, fn, X)
    holder.call.func.__self__.factor = 5.0
    sees(compiled, fn, X)
    holder.call.__setstate__((Scaled(7.0).times, (), {"more": 1.0}, {}))
    sees(compiled, fn, X)


class Slotted:
    __slots__ = ("factor", "other")

    def __init__(self, factor, other):
        self.factor, self.other = factor, other


def test_slots_are_seen():
    holder = Slotted(2.0, Slotted(3.0, None))

    def fn(x):
        return x * holder.factor + holder.other.factor

    compiled = watched(fn, X)
    holder.factor = 4.0
    sees(compiled, fn, X)
    holder.other.factor = 5.0
    sees(compiled, fn, X)
    holder.other = Slotted(6.0, None)
    sees(compiled, fn, X)
    del holder.factor
    with pytest.raises(AttributeError):
        compiled(X)


class Plain:
    """Its attributes are stored inline until its dictionary is read."""

    def __init__(self, factor):
        self.factor, self.other = factor, None


def write(plain, factor):
    plain.factor = factor


def test_object_without_a_dictionary_of_its_own_is_seen():
    plain, others = Plain(2.0), [Plain(k) for k in range(50)]
    for other in others:
        write(other, 1.0)  # by now the interpreter writes attributes straight to their place

    def fn(x):
        return x * plain.factor if plain.other is None else x - 1

    compiled = watched(fn, X)
    for factor in (3.0, 4.0, 5.0):
        write(plain, factor)
        sees(compiled, fn, X)
        for _ in range(20):
            write(plain, factor + 0.5)
        sees(compiled, fn, X)
    del plain.other
    plain.other = 3
    sees(compiled, fn, X)


def test_argument_may_be_another_object_of_the_same_class():
    def fn(plain, x):
        return x * plain.factor

    one, two = Plain(2.0), Plain(2.0)
    compiled = watched(fn, one, X)
    sees(compiled, fn, two, X)
    two.factor = 3.0
    sees(compiled, fn, two, X)
    sees(compiled, fn, one, X)


def test_argument_that_is_recreated_at_the_same_address_is_detected():
    def fn(plain, x):
        return x * plain.factor

    compiled = watched(fn, Plain(2.0), X)
    for factor in (2.0, 3.0, 4.0, 3.0):
        same(compiled(Plain(factor), X), X * factor)


# -- tensor arguments -------------------------------------------------------------------------------------------------

OTHERS = {
    "dtype": lambda: X.double(),
    "shape": lambda: torch.zeros(3, 2),
    "rank": lambda: torch.zeros(2, 3, 1),
    "strides": lambda: torch.arange(6.0).reshape(3, 2).t(),
    "requires_grad": lambda: X.clone().requires_grad_(),
    "no leaf": lambda: X.clone().requires_grad_() * 1,
    "view": lambda: torch.arange(12.0).reshape(4, 3)[:2],
    "expanded": lambda: torch.ones(1, 3).expand(2, 3),
    "complex": lambda: X.to(torch.complex64),
    "conjugate": lambda: X.to(torch.complex64).conj(),
    "negative": lambda: torch.complex(X, X).conj().imag,
    "sparse": lambda: X.to_sparse(),
    "subclass": lambda: X.as_subclass(type("Mine", (torch.Tensor,), {})),
    "parameter": lambda: nn.Parameter(X),
    "inference": lambda: made_in_inference_mode(),
    "empty": lambda: torch.zeros(0, 3),
    "six dimensions": lambda: torch.zeros(1, 1, 1, 1, 2, 3),
    "number": lambda: 3,
}


def made_in_inference_mode():
    with torch.inference_mode():
        return torch.ones(2, 3)


def kind_of(x):
    if not isinstance(x, torch.Tensor):
        return x * 2
    return (
        x * 2,
        type(x).__name__,
        tuple(x.shape),
        x.dtype,
        x.requires_grad,
        x.is_leaf,
        x._is_view(),
        x.is_conj(),
        x.is_neg(),
        x.is_inference(),
        x.layout,
        x.stride() if x.layout is torch.strided else None,
    )


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize(
    "first",
    [lambda: X.clone(), lambda: torch.ones(4, 3)[1:3], lambda: nn.Parameter(X.clone())],
    ids=["tensor", "view", "parameter"],
)
def test_another_kind_of_tensor_is_seen(first, other):
    compiled = burnish.compile(kind_of, backend="eager", dynamic=False)
    with patch(check=False):
        for _ in range(5):
            assert compiled(first())[1:] == kind_of(first())[1:]
        assert is_watched(compiled)
        for _ in range(4):
            found, expected = compiled(other()), kind_of(other())
            assert found == expected if isinstance(expected, int) else found[1:] == expected[1:]


def test_tensor_that_changes_in_place_is_seen():
    x, y = X.clone(), torch.ones(3)
    compiled = burnish.compile(kind_of, backend="eager", dynamic=False)
    with patch(check=False):
        for _ in range(5):
            compiled(x)
        assert is_watched(compiled)
        for change in (
            lambda: x.requires_grad_(),
            lambda: x.requires_grad_(False),
            lambda: x.t_(),
            lambda: x.t_(),
            lambda: setattr(x, "data", X.double()),
            lambda: setattr(x, "data", X),
            lambda: x.resize_(3, 2),
            lambda: x.set_(y),
            lambda: x.mul_(y.requires_grad_()),
        ):
            change()
            for _ in range(3):
                assert compiled(x)[1:] == kind_of(x)[1:]


# -- torch's switches --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def called(function, value, before):
    function(value)
    try:
        yield
    finally:
        function(before)


SWITCHES = {
    "grad mode": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast to float16": lambda: torch.autocast("cpu", torch.float16),
    "autocast without its cache": lambda: torch.autocast("cpu", torch.bfloat16, cache_enabled=False),
    "autocast that is off": lambda: torch.autocast("cpu", torch.float16, enabled=False),
    "autocast on other devices": lambda: torch.autocast("cuda", torch.bfloat16, enabled=False),
    "default dtype": lambda: called(torch.set_default_dtype, torch.float64, torch.float32),
    "deterministic mode": lambda: called(torch.use_deterministic_algorithms, True, False),
    "default device": lambda: called(torch.set_default_device, "meta", None),
    "device block": lambda: torch.device("meta"),
    "thread count": lambda: called(torch.set_num_threads, 1, torch.get_num_threads()),
    "torch function off": torch._C.DisableTorchFunction,
    "subclasses off": torch._C.DisableTorchFunctionSubclass,
}


@pytest.mark.parametrize("switch", SWITCHES.values(), ids=SWITCHES)
def test_switch_of_torch_is_seen(switch):
    weight = nn.Parameter(torch.ones(3, 3))

    def fn(x):
        made = torch.full((2,), 1.5)
        facts = (
            made.dtype,
            made.device.type,
            torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            torch.is_inference_mode_enabled(),
        )
        return (x @ weight).dtype, (x @ weight).requires_grad, *facts

    compiled = watched(fn, X)
    for _ in range(3):
        with switch():
            assert compiled(X) == fn(X)
        assert compiled(X) == fn(X)


# -- what is seen is seen at random as well ----------------------------------------------------------------------------


def mutations(draw):
    """One change in the world of a module, at random."""
    kind = draw(st.sampled_from(sorted(set(CHANGES) - {"parameter's dtype", "hook without a doing", "buffer resized"})))
    return CHANGES[kind]


@given(st.data())
@hypothesis_settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_changes_are_seen_at_once(data):
    model = Outer().train(data.draw(st.booleans()))
    compiled = burnish.compile(model, backend="eager")
    with patch(check=False, segment_limit=100), torch.no_grad():
        for _ in range(data.draw(st.integers(2, 12))):
            with contextlib.suppress(KeyError, IndexError, AttributeError):
                mutations(data.draw)(model)
            for _ in range(data.draw(st.integers(1, 6))):
                try:
                    expected = model(X)
                except Exception as error:  # modules that do not fit together
                    with pytest.raises(type(error)):
                        compiled(X)
                else:
                    same(compiled(X), expected)


# -- what changes on every call ----------------------------------------------------------------------------------------


def test_a_counter_does_not_spoil_the_watch_for_good():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.linear = 0, nn.Linear(3, 3)

        def forward(self, x):
            self.calls += 1
            return self.linear(x) * self.calls

    model, twin = Counting(), Counting()
    twin.load_state_dict(model.state_dict())
    with patch(check=False):
        compiled = burnish.compile(model, backend="eager")
        for _ in range(200):
            same(compiled(X), twin(X))
        assert model.calls == twin.calls == 200
        manager = first_segments(compiled)[0].check.watch_manager
        assert manager.fast is not None
        asked = manager.passed
        for _ in range(20):
            same(compiled(X), twin(X))
        assert manager.passed == asked
        model.linear.bias.requires_grad_(False)
        twin.linear.bias.requires_grad_(False)
        model.linear.bias.data = twin.linear.bias.data = torch.zeros(1, 3)
        same(compiled(X), twin(X))


def test_own_writes_of_a_segment_do_not_fail_its_watch():
    class Layer:
        def __init__(self):
            self.kept = torch.zeros(2, 3)

    def step(layers, x):
        for layer in layers:
            layer.kept = torch.cat([layer.kept, x])
        return sum(layer.kept.sum() for layer in layers)

    layers, twins = [Layer() for _ in range(20)], [Layer() for _ in range(20)]
    with patch(check=False):
        compiled = burnish.compile(step, backend="eager")
        for _ in range(8):
            same(compiled(layers, X), step(twins, X))
        (manager,) = (
            segment.check.watch_manager for segment in first_segments(compiled) if segment.check.watch_manager.fast
        )
        asked = manager.passed
        for _ in range(20):
            same(compiled(layers, X), step(twins, X))
        assert manager.passed == asked and manager.fast is not None
        layers[7].kept = twins[7].kept = torch.ones(2, 3)
        same(compiled(layers, X), step(twins, X))


def test_python_reads_only_what_comes_anew_with_the_call():
    compiled = watched(Outer(), X)
    source = first_segments(compiled)[0].check.watch_manager.made.check.__source__
    assert "__dict__" not in source and len(source.splitlines()) < 12


def test_modes_that_take_turns_are_each_seen_and_spoil_nothing():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0)) for _ in range(10)))
    with patch(check=False):
        compiled = burnish.compile(model, backend="eager")
        for step in range(60):
            model.train(step % 2 == 0)
            same(compiled(X), model(X))
        manager = first_segments(compiled)[0].check.watch_manager
        assert not manager.fickle
        for _ in range(2 * manager.wait):
            same(compiled(X), model(X))
        assert is_watched(compiled)


def test_function_that_is_called_with_one_module_after_another_sees_each():
    blocks = [Inner() for _ in range(3)]
    for number, block in enumerate(blocks):
        block.bias.data.fill_(number)

    def run(block, x):
        return block(x)

    with patch(check=False):
        compiled = burnish.compile(run, backend="eager")
        for step in range(120):
            block = blocks[step % 3]
            if step % 40 == 39:
                block.scale += 1.0
                block.bias.data.add_(1)
            same(compiled(block, X), run(block, X))


# -- lifetimes and threads ---------------------------------------------------------------------------------------------


def test_watched_module_and_its_tensors_go_when_they_are_dropped():
    model = Outer()
    compiled = watched(model, X)
    references = [weakref.ref(model), weakref.ref(model.blocks[0]), weakref.ref(model.blocks[0].bias)]
    del model, compiled
    gc.collect()
    assert [reference() for reference in references] == [None] * 3


def test_replaced_parts_of_a_watched_module_go_at_once():
    model = Outer()
    compiled = watched(model, X)
    block = weakref.ref(model.blocks[0])
    bias = weakref.ref(model.blocks[1].bias)
    gc.collect()
    gc.disable()
    try:
        model.blocks[1].bias = nn.Parameter(torch.zeros(3))
        assert bias() is None
    finally:
        gc.enable()
    model.blocks[0] = Inner()
    gc.collect()
    assert block() is None
    sees(compiled, model, X)


def test_arguments_are_not_held():
    compiled = watched(lambda x: x + 1, X)
    x = X.clone()
    compiled(x)
    reference = weakref.ref(x)
    del x
    assert reference() is None


def test_collections_that_change_the_module_within_a_check_are_seen():
    model = Outer()

    class Replacing:
        def __init__(self):
            self.me = self

        def __del__(self):
            model.blocks[0].bias = nn.Parameter(torch.rand(3))
            model.act[1] = nn.ReLU()

    compiled = watched(model, X)
    threshold = gc.get_threshold()
    try:
        with patch(check=False):
            for _ in range(20):
                Replacing()
                gc.set_threshold(1)
                found = compiled(X)
                gc.set_threshold(*threshold)
                gc.collect(0)
                assert found.shape == X.shape
                sees(compiled, model, X)
    finally:
        gc.set_threshold(*threshold)


def test_value_at_the_address_of_a_freed_one_is_detected_after_a_watch_failed(monkeypatch):
    """A segment goes on asking by the last watch. The values that it knows by their addresses must live as long."""
    from burnish.capture.guards import watch_after_first_check as module

    def copy(text):
        return "".join(list(text))  # equal, and another object

    names, others = [copy("first name")], [copy("other name")]

    def fn(x):
        return x * (2 if names[0] == "first name" else 3) + (1 if others[0] == "other name" else 0)

    compiled = watched(fn, X)
    names[0] = copy("first name")  # from here on only the list and a watch hold it
    for _ in range(8):
        sees(compiled, fn, X)
    assert is_watched(compiled)
    monkeypatch.setattr(module, "new_watch", lambda: None)
    before, others[0] = others[0], copy("other name")
    for _ in range(8):
        sees(compiled, fn, X)  # the watch says no, the guards hold, and another watch cannot be made
    assert not is_watched(compiled)
    others[0] = before
    sees(compiled, fn, X)
    address, names[0] = id(names[0]), ""
    tried = []
    for k in range(1000):
        tried.append(copy(f"name {k:05}"))
        if id(tried[-1]) == address:
            break
    names[0] = tried[-1]
    with patch(check=False):
        same(compiled(X), fn(X))


@pytest.mark.parametrize("place", ["dictionary", "members", "list", "cell"])
def test_writes_of_another_thread_while_a_watch_is_made_are_detected(place, monkeypatch):
    """The watch must not hand out the tensor that was there before: it may be gone."""
    from burnish.runtime.state_watch.native_watch import Watch

    def tensor():
        return torch.full((3,), float(next(numbers)))

    numbers, replaced = iter(range(100)), []
    table, items, cell, holder = {"scale": tensor()}, [tensor()], tensor(), types.SimpleNamespace(shift=tensor())

    def fn(x):
        return x * table["scale"] + items[0] - cell + holder.shift

    def replace():
        nonlocal cell
        if place == "dictionary":
            table["scale"] = tensor()
        elif place == "members":
            holder.shift = tensor()
        elif place == "list":
            items[0] = tensor()
        else:
            cell = tensor()

    method = {"list": "list_item", "cell": "cell"}.get(place, "dictionary")
    enter = getattr(Watch, method)

    def interrupted(watch, *args):
        if len(replaced) < 2 and (method != "dictionary" or args[0] is table or args[0] is vars(holder)):
            replaced.append(args)  # as if the other thread ran just here
            replace()
        return enter(watch, *args)

    monkeypatch.setattr(Watch, method, interrupted)
    compiled = burnish.compile(fn, backend="eager")
    with patch(check=False):
        for _ in range(400):
            before, found = fn(X), compiled(X)
            assert any(torch.equal(found, wanted) for wanted in (before, fn(X)))
    monkeypatch.undo()
    assert len(replaced) == 2 and is_watched(compiled)
    sees(compiled, fn, X)
    replace()
    sees(compiled, fn, X)


def test_one_thread_makes_a_watch_and_the_others_go_on(monkeypatch):
    from burnish.capture.guards import watch_after_first_check as module

    compiled = burnish.compile(lambda x: x * 2, backend="eager")
    begun, may_end, made = threading.Event(), threading.Event(), []
    plan = module.WatchPlan

    def slow(*args):
        made.append(args)
        begun.set()
        assert may_end.wait(60)
        return plan(*args)

    monkeypatch.setattr(module, "WatchPlan", slow)

    def call():
        with patch(check=False):
            for _ in range(8):
                same(compiled(X), X * 2)

    with patch(check=False):
        compiled(X)
    first = threading.Thread(target=call)
    first.start()
    assert begun.wait(60)
    call()  # while the other thread makes the watch
    may_end.set()
    first.join(60)
    assert len(made) == 1 and is_watched(compiled)


@pytest.mark.falls_back("raced")  # where a thread traces while the module gets another parameter
def test_threads_call_while_another_one_changes_the_module():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor, self.weight = 1.0, nn.Parameter(torch.ones(3))
            self.inner = nn.ModuleList([Plainly() for _ in range(4)])

        def forward(self, x):
            for module in self.inner:
                x = module(x)
            return x * self.weight * self.factor

    class Plainly(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return x * self.weight

    model, x = Scaled(), torch.ones(3)
    wrong, stop = [], threading.Event()
    with patch(check=False), torch.no_grad():
        compiled = burnish.compile(model, backend="eager")
        for _ in range(5):
            compiled(x)
        assert is_watched(compiled)

    def call():
        with torch.no_grad():
            while not stop.is_set():
                found = compiled(x)
                if float(found[0]) not in (1.0, 2.0):
                    wrong.append(found)

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        for step in range(300):
            model.factor = 1.0 + step % 2
            model.inner[step % 4] = Plainly()
            model.inner[(step + 1) % 4].weight = nn.Parameter(torch.ones(3))
            if step % 50 == 0:
                gc.collect()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong
    with torch.no_grad():
        sees(compiled, model, x)


# -- the setting, and the judge ----------------------------------------------------------------------------------------


def test_without_the_setting_nothing_is_watched():
    with patch(native_guards=False):
        compiled = burnish.compile(lambda x: x + 1, backend="eager")
        for _ in range(5):
            compiled(X)
    assert not hasattr(first_segments(compiled)[0].check, "watch_manager")


def test_under_the_setting_check_a_watch_that_passes_too_much_is_an_error():
    state = types.SimpleNamespace(factor=2.0)
    with patch(check=True):
        compiled = burnish.compile(lambda x: x * state.factor, backend="eager")
        for _ in range(5):
            compiled(X)
        manager = first_segments(compiled)[0].check.watch_manager
        assert manager.fast is not None
        manager.fast = manager.verified(lambda slots: ((slots[0],), ()))
        state.factor = 3.0
        with pytest.raises(burnish.errors.InternalError, match="guards do not hold"):
            compiled(X)


def test_segments_ask_by_the_check_of_their_watch_and_by_the_general_one_where_modules_take_turns():
    @burnish.compile(backend="eager")
    def run(model, x):
        return model(x)

    one, other, x = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), torch.ones(2, 3)
    with patch(check=False), torch.no_grad():
        for _ in range(6):
            run(one, x)
        (segment,) = first_segments(run)
        manager, straight = segment.check.watch_manager, segment.check
        assert straight.__code__ is manager.made.check.__code__
        for _ in range(6):
            assert torch.equal(run(other, x), other(x)) and torch.equal(run(one, x), one(x))
        assert first_segments(run) == [segment] and segment.check is straight.general
        assert {id(one), id(other)} == {manager.module, *manager.others} and manager.others[id(other)].fast is not None
        one.weight = torch.nn.Parameter(torch.zeros(3, 3))
        assert torch.equal(run(one, x), one(x)) and torch.equal(run(other, x), other(x))
