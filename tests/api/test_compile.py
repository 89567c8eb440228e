"""burnish.compile: what can be compiled, what the result looks like, and which errors are raised."""

import asyncio
import copy
import functools
import gc
import inspect
import pickle
import warnings
import weakref
from pathlib import Path

import pytest
import torch

import burnish
from burnish.errors import UserError

from .recording_backend import Recording


def same_three_times(compiled, plain, *args):
    for _ in range(3):
        torch.testing.assert_close(compiled(*args), plain(*args), rtol=0, atol=0)


def double(x, scale=2):
    """Twice."""
    return x * scale


@burnish.compile(backend="eager")
def compiled_at_module_level(x):
    return x + 1


class Scaler:
    def __init__(self, scale):
        self.scale = scale

    def method(self, x):
        return x * self.scale

    @burnish.compile(backend="eager")
    def decorated(self, x):
        return x * self.scale + 1

    @burnish.compile(backend="eager")
    @staticmethod
    def static(x):
        return x * 5

    @staticmethod
    @burnish.compile(backend="eager")
    def static_inside(x):
        return x * 6

    @burnish.compile(backend="eager")
    @classmethod
    def of_class(cls, x):
        return x * cls.factor

    @property
    @burnish.compile(backend="eager")
    def computed(self):
        return torch.full((2,), self.scale)

    def __call__(self, x):
        return x - self.scale

    factor = 7


X = torch.arange(4.0)


@pytest.mark.parametrize(
    "plain",
    [
        pytest.param(double, id="function"),
        pytest.param(lambda x: x * 3, id="lambda"),
        pytest.param(Scaler(3.0).method, id="bound method"),
        pytest.param(Scaler(3.0), id="callable object"),
        pytest.param(functools.partial(double, scale=4), id="partial"),
        pytest.param(torch.sin, id="builtin of torch"),
        pytest.param(torch.nn.functional.relu, id="function of torch"),
        pytest.param(torch.Tensor.abs, id="method of Tensor"),
        pytest.param(X.add, id="bound method of a tensor"),
        pytest.param(torch.nn.Linear(4, 2), id="module"),
        pytest.param(torch.nn.Linear(4, 2).forward, id="method of a module"),
        pytest.param(burnish.compile(double, backend="eager"), id="compiled function"),
        pytest.param(burnish.compile(torch.nn.Linear(4, 2), backend="eager"), id="compiled module"),
        pytest.param(torch.jit.script(torch.nn.Linear(4, 2)), id="scripted module"),
    ],
)
def test_every_kind_of_callable_is_compiled(plain):
    recording = Recording()
    compiled = burnish.compile(plain, backend=recording)
    same_three_times(compiled, plain, X)
    if not isinstance(plain, torch.jit.ScriptModule):
        assert recording.graphs


def test_decorated_methods_work_on_each_object_and_each_kind_of_method():
    for scale in (2.0, 3.0, 2.0):
        scaler = Scaler(scale)
        same_three_times(scaler.decorated, lambda x: x * scale + 1, X)
        torch.testing.assert_close(scaler.computed, torch.full((2,), scale))
    same_three_times(Scaler.static, lambda x: x * 5, X)
    same_three_times(Scaler(1.0).static, lambda x: x * 5, X)
    same_three_times(Scaler(1.0).static_inside, lambda x: x * 6, X)
    same_three_times(Scaler.of_class, lambda x: x * 7, X)
    same_three_times(Scaler(1.0).of_class, lambda x: x * 7, X)


def test_generator_functions_give_generators_each_time():
    def steps(x):
        for _ in range(3):
            x = x + 1
            yield x
        return "done"

    compiled = burnish.compile(steps, backend="eager")
    for i in range(3):
        x = torch.full((2,), float(i))
        torch.testing.assert_close(list(compiled(x)), list(steps(x)))


def test_coroutine_functions_run_plainly_and_say_so():
    async def fetch(x):
        await asyncio.sleep(0)
        return x + 1

    with pytest.warns(UserWarning, match="async def.*Compile the plain functions it calls"):
        compiled = burnish.compile(fetch)
    torch.testing.assert_close(asyncio.run(compiled(X)), X + 1)
    with pytest.raises(UserError, match="async def"):
        burnish.compile(fetch, fullgraph=True)


def test_result_looks_like_the_function():
    compiled = burnish.compile(double, backend="eager")
    assert (compiled.__name__, compiled.__qualname__, compiled.__doc__) == ("double", "double", "Twice.")
    assert compiled.__module__ == __name__
    assert inspect.signature(compiled) == inspect.signature(double)
    assert compiled.__wrapped__ is double
    assert burnish.compile(functools.partial(double, scale=3)).__name__ == "partial"
    assert burnish.compile(Scaler(2.0)).__name__ == "Scaler"


def test_attributes_of_a_callable_object_are_not_copied_onto_the_result():
    assert not hasattr(burnish.compile(Scaler(2.0)), "scale")


def test_object_that_changes_is_seen_by_the_compiled_call():
    scaler = Scaler(2.0)
    compiled = burnish.compile(scaler, backend="eager")
    for scale in (2.0, 5.0, 2.0):
        scaler.scale = scale
        same_three_times(compiled, scaler, X)


def test_compiling_again_starts_from_the_original():
    first, second = Recording(), Recording()
    once = burnish.compile(double, backend=first)
    twice = burnish.compile(once, backend=second)
    assert twice is not once
    same_three_times(twice, double, X)
    assert (len(first.graphs), len(second.graphs)) == (0, 1)


def test_disable_returns_the_same_object():
    module = torch.nn.Linear(2, 2)
    assert burnish.compile(double, disable=True) is double
    assert burnish.compile(module, disable=True) is module
    assert burnish.compile(disable=True)(double) is double


def test_compiled_function_of_a_module_can_be_pickled():
    again = pickle.loads(pickle.dumps(compiled_at_module_level))
    assert again is compiled_at_module_level


def test_reset_forgets_graphs_and_leaves_the_function_usable():
    recording = Recording()
    compiled = burnish.compile(double, backend=recording)
    compiled(X)
    burnish.reset()
    same_three_times(compiled, double, X)
    assert len(recording.graphs) == 2


def test_compiled_functions_that_are_dropped_are_freed():
    def make():
        weight = torch.randn(3)
        compiled = burnish.compile(lambda x: x * weight, backend="eager")
        compiled(torch.ones(3))
        compiled(torch.ones(3))
        return weakref.ref(compiled), weakref.ref(weight)

    found = make()
    gc.collect()
    assert [ref() for ref in found] == [None, None]


def test_backend_none_is_the_default_as_in_torch():
    same_three_times(burnish.compile(double, backend=None), double, X)


def test_modes_and_options_of_torch_are_accepted():
    for mode in ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", None):
        same_three_times(burnish.compile(double, mode=mode), double, X)
    same_three_times(burnish.compile(double, options={"max_autotune": True}), double, X)


class Uncallable:
    pass


@pytest.mark.parametrize(
    "model, said",
    [
        (Uncallable, r"the class Uncallable.*burnish\.compile\(Uncallable\(\.\.\.\)\)"),
        (torch.nn.Linear, r"the class Linear.*burnish\.compile\(Linear\(\.\.\.\)\)"),
        (int, "the class int"),
        (property(double), "@property above @burnish.compile"),
        (functools.cached_property(double), "@property above @burnish.compile"),
        (X, r"a tensor.*Give the function itself.*burnish\.compile\(fn\)\(x\)"),
        (3, "takes a function, a module or another callable, not 3"),
        ("inductor", "not 'inductor'.*by name: backend="),
        ([double], "takes a function"),
    ],
)
@pytest.mark.parametrize(
    "use", [burnish.compile, burnish.explain, lambda fn: burnish.export(fn, (X,))], ids=["compile", "explain", "export"]
)
def test_uncompilable_objects_raise_a_user_error_with_advice(use, model, said):
    with pytest.raises(
        UserError,
        match=said.replace("burnish\\.compile", "burnish\\.[a-z]+").replace("burnish.compile", "burnish.[a-z]+"),
    ):
        use(model)


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"mode": "max-autotun"}, 'Did you mean "max-autotune".*The modes are'),
        ({"mode": "default", "options": {}}, "Either mode or options"),
        ({"options": ["max_autotune"]}, "options is a dictionary"),
        ({"backend": "inducter"}, 'Did you mean "inductor"'),
        ({"backend": 3}, "neither a name nor a function"),
        ({"dynamic": "yes"}, "dynamic='yes' is not True, False or None"),
        ({"fullgraph": 1}, "fullgraph=1 is not True or False"),
    ],
)
@pytest.mark.parametrize("model", [double, None], ids=["call", "decorator"])
def test_wrong_argument_is_a_user_error_at_once(model, wrong, said):
    with pytest.raises(UserError, match=said):
        burnish.compile(model, **wrong)


def test_wrong_arguments_of_the_function_are_its_own_type_error():
    compiled = burnish.compile(double, backend="eager")
    for _ in range(2):
        with pytest.raises(TypeError, match="double\\(\\) got an unexpected keyword argument 'scal'"):
            compiled(X, scal=3)
        with pytest.raises(TypeError, match="double\\(\\) missing 1 required positional argument: 'x'"):
            compiled()


@pytest.mark.falls_back("limit")
def test_warning_names_the_users_function_when_a_module_changes_too_often():
    class Changing(torch.nn.Module):
        def forward(self, x):
            return getattr(torch, self.function)(x)

    module = Changing()
    compiled = burnish.compile(module, backend="eager")
    with warnings.catch_warnings(record=True) as caught, burnish.settings.patch(segment_limit=2):
        warnings.simplefilter("always")
        for module.function in ("sin", "cos", "tanh", "exp"):
            torch.testing.assert_close(compiled(X), module(X))
    about = [str(w.message) for w in caught if str(w.message).startswith("burnish")]
    assert len(about) == 1
    assert f"{__file__}:" in about[0] and "Changing.forward" in about[0]


def test_error_for_a_break_under_no_grad_leaves_gradients_on():
    def fn(x):
        with torch.no_grad(), torch.autocast("cpu"):
            if x.sum() > 0:
                return x
            return -x

    with pytest.raises(burnish.Unsupported):
        burnish.compile(fn, backend="eager", fullgraph=True)(X)
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    # A context that counted as open would keep what eager casts: weights that learn would stay as they were.
    nesting = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    assert nesting == 0


def closing_over(weight):
    return burnish.compile(lambda x: x * weight, backend="eager")


@pytest.mark.parametrize(
    "inner",
    [
        pytest.param(burnish.compile(double, backend="eager"), id="function"),
        pytest.param(closing_over(torch.full((4,), 3.0)), id="closure"),
        pytest.param(burnish.compile(torch.nn.Linear(4, 4).forward, backend="eager"), id="bound method"),
        pytest.param(burnish.compile(torch.nn.Linear(4, 4), backend="eager"), id="module"),
        pytest.param(burnish.compile(functools.partial(double, scale=4), backend="eager"), id="partial"),
        pytest.param(burnish.compile(torch.sin, backend="eager"), id="builtin"),
    ],
)
def test_compiled_code_is_part_of_its_callers_graph(inner):
    recording = Recording()
    same_three_times(
        burnish.compile(lambda x: inner(x) + 1, backend=recording, fullgraph=True), lambda x: inner(x) + 1, X
    )
    assert len(recording.graphs) == 1


def test_compiled_functions_passed_in_are_distinguished():
    compiled = burnish.compile(lambda f, x: f(x) + 1, backend="eager", fullgraph=True)
    both = [closing_over(torch.full((4,), 3.0)), closing_over(torch.full((4,), 5.0))]
    for f in (*both, *both):
        torch.testing.assert_close(compiled(f, X), f(X) + 1)


def test_a_wrapper_that_copies_the_marks_of_a_compiled_function_is_itself():
    inner = burnish.compile(lambda x: x * 2, backend="eager")

    @functools.wraps(inner)
    def outer(x):
        return inner(x) + 1

    x = torch.ones(2)
    for compiled in (
        burnish.compile(outer, backend="eager"),
        burnish.compile(lambda x: outer(x), backend="eager"),
        burnish.disable(outer),
    ):
        for _ in range(2):
            assert torch.equal(compiled(x), x * 2 + 1)


class Owner:
    def __init__(self, scale=2.0):
        self.scale = scale

    def scaled(self, x, power=1):
        return x * self.scale**power


def test_wrapper_of_a_compiled_method_has_its_signature():
    method = Owner().scaled
    compiled = burnish.compile(method, backend="eager")
    wrapper = functools.wraps(compiled)(lambda *args, **kwargs: compiled(*args, **kwargs))
    assert inspect.signature(wrapper) == inspect.signature(compiled) == inspect.signature(method)


def test_copy_of_an_object_with_a_compiled_method_does_not_keep_the_object():
    owner, x = Owner(), torch.ones(3)
    owner.scaled = burnish.compile(owner.scaled, backend="eager")
    owner.scaled(x)
    copied, alive = copy.deepcopy(owner), weakref.ref(owner)
    del owner
    gc.collect()
    assert alive() is None
    for copied.scale in (2.0, 3.0, 4.0):
        assert copied.scaled(x, power=2).tolist() == [copied.scale**2] * 3


def test_object_whose_compiled_method_is_wrapped_can_be_copied():
    owner, x = Owner(), torch.ones(3)
    compiled = burnish.compile(owner.scaled, backend="eager")
    owner.scaled = functools.update_wrapper(
        functools.partial(lambda self, x: compiled(x) * self.scale, owner), compiled
    )
    copied = copy.deepcopy(owner)
    copied.scale = 5.0
    assert copied.scaled(x).tolist() == [10.0] * 3 and owner.scaled(x).tolist() == [4.0] * 3


def test_html_of_a_function_stays_the_users_partial():
    def function(x):
        return x

    function._repr_html_ = functools.partial(lambda text: text, "mine")
    assert burnish.compile(function)._repr_html_() == "mine"


def test_a_compiled_method_of_an_object_is_compiled_with_the_object():
    class Scale:
        factor = 3.0

        @burnish.compile
        def of(self, x):
            return x * self.factor

    x = torch.ones(2)
    assert torch.equal(burnish.compile(Scale().of, backend="eager")(x), x * 3)


def test_a_class_of_callable_objects_is_compiled_in_place():
    recording = Recording()

    @burnish.compile(backend=recording)
    class Shift:
        def __init__(self, by):
            self.by = by

        def __call__(self, x):
            return x + self.by

    class Twice(Shift):
        def __call__(self, x):
            return super().__call__(x) * 2

    assert isinstance(Shift, type) and isinstance(Shift(1), Shift)
    same_three_times(Shift(1), lambda x: x + 1, X)
    assert recording.runs == 2
    same_three_times(Twice(2), lambda x: (x + 2) * 2, X)
    assert recording.runs > 2


def test_a_class_of_modules_is_compiled_in_place():
    recording = Recording()

    @burnish.compile(backend=recording)
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.arange(4.0))

        def forward(self, x):
            return x * self.weight

    layer = Layer()
    same_three_times(layer, lambda x: x * layer.weight, X)
    assert recording.runs == 2
    layer.register_forward_hook(lambda module, args, out: out + 1)
    same_three_times(layer, lambda x: x * layer.weight + 1, X)
    outer = burnish.compile(lambda x: layer(x).sin(), backend=recording, fullgraph=True)
    same_three_times(outer, lambda x: (x * layer.weight + 1).sin(), X)


def test_a_class_without_callable_objects_or_of_torch_is_an_error():
    before = torch.nn.Linear.__call__
    for cls in (torch.nn.Linear, Uncallable):
        with pytest.raises(UserError, match="the class"):
            burnish.compile(cls)
    assert torch.nn.Linear.__call__ is before


def test_a_misspelt_parameter_is_named_beside_the_right_one():
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'fullgrph'. Did you mean \"fullgraph\"\?"):
        burnish.compile(lambda x: x, fullgrph=True)


def test_the_module_lists_what_users_call_and_is_typed():
    assert set(dir(burnish)) == {*burnish.__all__, "__version__"}
    assert all(hasattr(burnish, name) for name in dir(burnish))
    assert Path(burnish.__file__).with_name("py.typed").is_file()
