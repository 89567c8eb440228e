"""State read by higher-order functions (modules, objects, closures) is guarded, an input, or read in each call."""

import contextlib
import copy
import functools

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, stack_module_state, vmap
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import burnish

from ..recorded_events import recorded
from .operator_backend import operators
from .torch_differences import JACOBIANS_READ_DATA

BACKENDS = pytest.mark.parametrize("backend", ["eager", "burnish", pytest.param(operators, id="operators")])


class Scaled:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, x):
        return x * self.scale

    def method(self, x):
        return x + self.scale


def call(x, module):
    return module(x)


def agrees(make, backend, count=4, breaks=frozenset()):
    """``make()`` returns a function, ``args(k)`` for call ``k``, a change before each call, and parameters whose
    gradients count. The function runs compiled, in one graph if nothing breaks it, and as it is, each in a world of its
    own."""
    torch.manual_seed(0)
    worlds = [make() for _ in range(2)]
    burnish.reset()
    compiled = burnish.compile(worlds[1][0], backend=backend)
    for k in range(count):
        found = []
        for function, (_, args, change, parameters) in zip((worlds[0][0], compiled), worlds, strict=True):
            torch.manual_seed(k)
            change(k)
            made = function(*args(k))
            ends = [x.sum() for x in pytree.tree_leaves(made) if x.requires_grad]
            if ends:
                sum(ends).backward()
            found.append(
                (
                    made,
                    [x.requires_grad for x in pytree.tree_leaves(made)],
                    [x.stride() for x in pytree.tree_leaves(made)],
                    [x.grad for x in parameters()],
                )
            )
        assert found[0][1:3] == found[1][1:3], f"call {k}"
        assert [x is None for x in found[0][3]] == [x is None for x in found[1][3]], f"call {k}"
        torch.testing.assert_close(found[1][0], found[0][0])
        for mine, theirs in zip(found[1][3], found[0][3], strict=True):
            if theirs is not None:
                torch.testing.assert_close(mine, theirs)
    report = burnish.explain(worlds[1][0])(*worlds[1][1](0))
    assert {reason.source.kind.code for reason in report.break_reasons} == breaks
    assert breaks or report.graph_count == 1


def seeded(make):
    """Both worlds are to hold the same weights."""

    def made():
        torch.manual_seed(1)
        return make()

    return made


MODULES_GIVEN = {
    "vmap": lambda x, m: vmap(call, (0, None))(x, m),
    "vmap in chunks": lambda x, m: vmap(call, (0, None), chunk_size=2)(x, m),
    "nested": lambda x, m: vmap(lambda v: vmap(m)(v[None]))(x),
    "grad": lambda x, m: grad(lambda v, m: m(v).sum())(x, m),
    "grad_and_value": lambda x, m: grad_and_value(lambda v, m: m(v).square().sum())(x, m),
    "jacobians": lambda x, m: (jacrev(m)(x[0]), jacfwd(m)(x[0]), hessian(lambda v: m(v).square().sum())(x[0])),
    "jvp": lambda x, m: jvp(m, (x,), (x,)),
    "per sample": lambda x, m: vmap(grad(lambda v: m(v).sum()))(x),
    "functional_call": lambda x, m: vmap(lambda v: functional_call(m, dict(m.named_parameters()), (v,)))(x),
}


@BACKENDS
@pytest.mark.parametrize("kind", MODULES_GIVEN)
@pytest.mark.falls_back(*["refused"] * JACOBIANS_READ_DATA, only="jacobians-operators")
def test_another_module_is_another_module(kind, backend):
    jvp(torch.sin, (torch.ones(1),), (torch.ones(1),))  # the first one of a process imports what warns

    @seeded
    def make():
        modules = [nn.Linear(3, 3) for _ in range(2)]
        return (
            MODULES_GIVEN[kind],
            lambda k: (torch.randn(4, 3), modules[k % 2]),
            lambda k: None,
            lambda: [p for m in modules for p in m.parameters()],
        )

    agrees(make, backend)


@BACKENDS
def test_a_replaced_submodule_is_seen(backend):
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x):
            return vmap(self.inner)(x), vmap(call, (0, None))(x, self.inner), vmap(lambda v: self.inner(v))(x)

    def make():
        holder = Holder()

        def change(k):
            holder.inner = nn.Linear(3, 3)

        return holder, lambda k: (torch.randn(4, 3),), change, lambda: list(holder.parameters())

    agrees(make, backend)


OBJECTS = {
    "object": lambda x, o: vmap(o)(x),
    "argument": lambda x, o: vmap(call, (0, None))(x, o),
    "closure": lambda x, o: vmap(lambda v: o(v))(x),
    "method": lambda x, o: vmap(o.method)(x),
    "partial": lambda x, o: vmap(functools.partial(lambda o, v: o(v), o))(x),
    "nested": lambda x, o: grad(lambda v: vmap(o)(v).sum())(x),
}


@BACKENDS
@pytest.mark.parametrize("kind", OBJECTS)
def test_attributes_of_objects_are_read_in_each_call(kind, backend):
    def make():
        objects = [Scaled(2.0), Scaled(3.0)]

        def change(k):
            objects[0].scale = float(k)

        return OBJECTS[kind], lambda k: (torch.randn(4, 3), objects[k % 2]), change, list

    agrees(make, backend)


def test_partials_and_methods_made_in_the_call_are_created_in_each_call():
    def make():
        weight = torch.ones(3, requires_grad=True)

        def fn(x, k, scale):
            held = functools.partial(lambda w, v, k: v * w * k, weight * scale, k=k)
            return vmap(held)(x), vmap(functools.partial(torch.mul, scale))(x)

        return fn, lambda k: (torch.randn(4, 3), float(k), torch.randn(3)), lambda k: None, lambda: [weight]

    for backend in ("eager", "burnish"):
        agrees(make, backend)


CHANGES = {
    "shape": lambda k: torch.randn(k + 1, 3),
    "dtype": lambda k: torch.randn(3, dtype=(torch.float32, torch.float64)[k // 2 % 2]),
    "gradient": lambda k: torch.randn(3, requires_grad=k > 1),
    "order": lambda k: torch.randn(3, 3) if k < 2 else torch.randn(3, 3).t(),
}


@pytest.mark.falls_back("refused", only=r"shape-.*")
@BACKENDS
@pytest.mark.parametrize("kind", CHANGES)
def test_results_of_another_kind_are_not_taken_for_those_of_before(kind, backend):
    def make():
        scaled = Scaled(None)

        def fn(x):
            made = vmap(scaled)(x) * 2
            return (
                made.sum(-1) * made.shape[1],
                made if made.dtype == torch.float32 else made * 3,
                made.detach() if made.requires_grad else made + 1,
            )

        def change(k):
            scaled.scale = CHANGES[kind](k)

        return fn, lambda k: (torch.randn(4, 3),), change, lambda: [scaled.scale] if scaled.scale.is_leaf else []

    agrees(make, backend, count=7)


@BACKENDS
def test_results_that_changed_are_compiled_for(backend):
    scaled = Scaled(torch.ones(3))
    compiled = burnish.compile(lambda x: vmap(scaled)(x).sum(-1) * 2, backend=backend)
    x, ran = torch.randn(4, 3), []
    for k in range(6):
        scaled.scale = torch.ones(3, dtype=torch.float32 if k < 3 else torch.float64)
        torch.testing.assert_close(compiled(x), (x * scaled.scale).sum(-1) * 2)
        ran.append(burnish.was_compiled(compiled))
    assert ran == [True] * 3 + [backend is operators] + [True] * 2


@pytest.mark.falls_back("refused")
def test_a_write_before_results_that_changed_is_made_once():
    buffer, scaled = torch.zeros(3), Scaled(torch.ones(3))

    def fn(x):
        buffer.add_(1)
        made = vmap(scaled)(x)
        buffer.add_(made.sum(0).float())
        return made * buffer

    expected = torch.zeros(3)
    compiled = burnish.compile(fn)
    x = torch.randn(4, 3)
    for k in range(6):
        scaled.scale = torch.ones(3, dtype=torch.float32 if k < 3 else torch.float64)
        found = compiled(x)
        made = x * scaled.scale
        expected.add_(1).add_(made.sum(0).float())
        torch.testing.assert_close(found, made * expected)
        torch.testing.assert_close(buffer, expected)


def test_results_that_are_no_tensors_are_compared():
    class Counted:
        count = 1

        def __call__(self, x):
            return (x,) * self.count

    def make():
        counted = Counted()

        def change(k):
            counted.count = 1 + k // 2

        return lambda x: [t * 2 for t in vmap(counted)(x)], lambda k: (torch.randn(4, 3),), change, list

    for backend in ("eager", "burnish"):
        agrees(make, backend)


@pytest.mark.falls_back("refused", only="burnish")
@BACKENDS
def test_custom_functions_may_return_something_else(backend):
    held = {"scale": torch.ones(4)}

    class Held(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * held["scale"]

        @staticmethod
        def backward(ctx, gradient):
            return gradient.float() * 2

    def fn(x):
        made = Held.apply(x)
        return made.sum(-1) * made.shape[0]

    compiled, x = burnish.compile(fn, backend=backend), torch.randn(4)
    for k in range(6):
        held["scale"] = torch.ones(4) if k < 3 else torch.ones(k, 4, dtype=torch.float64)
        torch.testing.assert_close(compiled(x), fn(x))


@BACKENDS
def test_an_ensemble_gives_gradients_to_its_dictionary(backend):
    @seeded
    def make():
        models = [nn.Linear(3, 2) for _ in range(3)]
        base = copy.deepcopy(models[0]).to("meta")
        parameters, buffers = stack_module_state(models)

        def change(k):
            if k > 1:
                for name, value in parameters.items():
                    parameters[name] = value.detach().clone().requires_grad_(k == 2)

        def one(parameters, buffers, x):
            return functional_call(base, (parameters, buffers), (x,))

        return (
            lambda x: vmap(one, (0, 0, None))(parameters, buffers, x) * 2,
            lambda k: (torch.randn(4, 3),),
            change,
            lambda: list(parameters.values()),
        )

    agrees(make, backend)


@BACKENDS
def test_functions_that_write_to_their_dictionary_run_once_in_each_call(backend):
    """As functional_call does. Hooks that come later run in the graph: twice, if it failed and ran again."""
    layer, calls = nn.Linear(4, 2), []

    def loss(parameters, x):
        return functional_call(layer, parameters, (x,)).sum()

    def fn(x):
        return grad(loss)(dict(layer.named_parameters()), x * 2)

    compiled, x = burnish.compile(fn, backend=backend), torch.randn(3, 4)
    with recorded("graph.failed") as failed:
        for k in range(4):
            if k == 2:
                layer.register_forward_hook(lambda module, args, made: calls.append(made))
            torch.testing.assert_close(compiled(x), fn(x))
    assert not failed and burnish.was_compiled(compiled)
    assert len(calls) == 4  # two of each


AFTER_WRITES = {
    "vmap": lambda x, scale: vmap(lambda t: t * scale)(x),
    "grad": lambda x, scale: grad(lambda t: (t * t * scale).sum())(x),
    "nested": lambda x, scale: vmap(grad(lambda t: (t.sin() * scale).sum()))(x),
    "hessian": lambda x, scale: hessian(lambda t: (t**3).sum() * scale)(x[0]),
}


@BACKENDS
@pytest.mark.parametrize("kind", AFTER_WRITES)
def test_a_transform_after_writes_is_in_the_same_graph(kind, backend):
    """A node that runs Python would read what the program has not written yet."""

    class Counter:
        scale = 1.0

    def make():
        counter, log = Counter(), []

        def fn(x):
            log.append(len(log))
            counter.scale = 2.0
            made = AFTER_WRITES[kind](x, counter.scale)
            counter.last = made
            return made + counter.scale

        return fn, lambda k: (torch.linspace(-1, 1, 6).reshape(2, 3) + k,), lambda k: log.clear(), list

    agrees(make, backend, breaks={"B202"} if kind == "hessian" and JACOBIANS_READ_DATA else set())


@BACKENDS
def test_a_transform_in_a_branch(backend):
    def make():
        def fn(x):
            return torch.cond(
                x.sum() > 0, lambda t: vmap(torch.sin)(t), lambda t: grad(lambda s: s.cos().sum())(t), (x,)
            )

        # No sum is near zero, where its sign depends on the order of the additions.
        return fn, lambda k: (torch.linspace(-1, 1, 6).reshape(2, 3) * (1 + k) + 1.5 - k,), lambda k: None, list

    agrees(make, backend)


@BACKENDS
def test_tangents_of_values_that_do_not_vary(backend):
    """Torch makes them without memory."""

    @seeded
    def make():
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()
        return (
            lambda x: jvp(model, (x,), (x.cos(),)),
            lambda k: (torch.linspace(-1, 1, 6).reshape(2, 3) + k,),
            lambda k: None,
            lambda: list(model.parameters()),
        )

    agrees(make, backend)


@pytest.mark.parametrize("backend", ["eager", "burnish"])
def test_forward_mode_runs_as_plain_python(backend):
    from torch.autograd import forward_ad

    def fn(x, tangent):
        y = x * 2
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(y, tangent)
            made = forward_ad.unpack_dual(dual.sin() * dual)
            tangent = made.tangent + 1
        return tangent * 3, made.primal

    compiled = burnish.compile(fn, backend=backend)
    for k in range(4):
        x, tangent = torch.randn(3) + k, torch.randn(3)
        torch.testing.assert_close(compiled(x, tangent), fn(x, tangent))
        assert forward_ad._current_level == -1


REGIONS = {
    "vmap": lambda function, x: vmap(function)(x),
    "checkpoint": lambda function, x: checkpoint(function, x, use_reentrant=False),
}


@pytest.mark.parametrize("region", REGIONS)
def test_a_generator_of_a_call_that_is_given_up_is_never_closed(region):
    """Its ``finally`` block would run twice: when it is freed, and in the call that counts."""
    seen = []

    @contextlib.contextmanager
    def block():
        seen.append("in")
        try:
            yield
        finally:
            seen.append("out")

    def inner(t):
        with block():
            burnish.graph_break()
            return t * 2

    compiled = burnish.compile(lambda x: REGIONS[region](inner, x))
    for _ in range(3):
        seen.clear()
        compiled(torch.ones(3))
        assert seen == ["in", "out"]


@BACKENDS
@pytest.mark.parametrize("transform", [grad, jacrev], ids=["grad", "jacrev"])
def test_a_list_collects_what_a_transformed_function_computes(transform, backend):
    def fn(x):
        logs, norms = {}, []

        def inner(t):
            logs["double"] = t.detach() * 2
            norms.append((t * 3).detach().norm())
            return t.sin().sum()

        return transform(inner)(x) / norms[0], logs["double"] + 1, len(norms)

    burnish.reset()
    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for n in (3, 3, 4, 5, 6):
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x), fn(x))


@BACKENDS
def test_a_collected_tensor_has_eagers_gradients(backend):
    def fn(x):
        logs = []

        def inner(t):
            logs.append(t * 2)
            return t.sin().sum()

        return grad(inner)(x), logs[0] ** 2

    burnish.reset()
    compiled = burnish.compile(fn, backend=backend)
    for requires_grad in (True, True, False, True):
        seen = []
        for function in (fn, compiled):
            x = torch.ones(3, requires_grad=requires_grad)
            cosines, squares = function(x)
            (squares.sum() + cosines.sum()).backward() if requires_grad else None
            seen.append((cosines.detach(), squares.detach(), squares.requires_grad, x.grad))
        torch.testing.assert_close(seen[1], seen[0])
