"""torch.func for backends that run no Python: the graph has the operators that a transform performs."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, functionalize, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils import _pytree as pytree

import burnish

from ..recorded_events import recorded
from .operator_backend import operators
from .torch_differences import JACOBIANS_READ_DATA

BACKENDS = pytest.mark.parametrize("backend", [pytest.param(operators, id="operators"), "aot_eager"])


def randn(*shape, learns=False):
    return torch.randn(*shape, requires_grad=learns)


def leaf(*shape):
    return randn(*shape, learns=True)


def agrees(fn, make, backend, calls=3, **options):
    """``make(k)`` returns the arguments of call ``k``. Results, their strides and gradients, and what happened to the
    arguments are as in eager."""
    burnish.reset()
    compiled = burnish.compile(fn, backend=backend, **options)
    for k in range(calls):
        found = []
        for function in (fn, compiled):
            torch.manual_seed(k)
            args = make(k)
            torch.manual_seed(k + 100)
            made, inputs = function(*args), [x for x in pytree.tree_leaves(args) if isinstance(x, torch.Tensor)]
            results = [x for x in pytree.tree_leaves(made) if isinstance(x, torch.Tensor)]
            ends, starts = [x for x in results if x.requires_grad], [x for x in inputs if x.requires_grad]
            gradients = (
                torch.autograd.grad([x.abs().square().sum() for x in ends], starts, allow_unused=True)
                if ends and starts
                else ()
            )
            kinds = [(x.stride(), x.requires_grad, x.dtype) for x in results]
            found.append((made, inputs, [x for x in gradients if x is not None], kinds, torch.rand(1)))
        (*expected, kinds, drawn), (*actual, own_kinds, own_drawn) = found
        torch.testing.assert_close(actual, expected)
        if backend is operators:
            assert own_kinds == kinds, f"call {k}"
            assert torch.equal(own_drawn, drawn), f"call {k}: other random numbers were drawn"
    return compiled


def jvp_is_warm():
    """The first jvp of a process imports torch code that warns."""
    jvp(torch.sin, (torch.ones(1),), (torch.ones(1),))


def without_gradients(x):
    def loss(v):
        with torch.no_grad():
            scale = v.sin()
        return (v * scale).sum()

    return grad(loss)(x)


def transform_without_gradients(x):
    with torch.no_grad():
        y = grad(lambda v: (v**3).sum())(x)
    return y * x


def under_autocast(x):
    def one(v):
        with torch.autocast("cpu", torch.bfloat16):
            return (v @ v).float()

    return vmap(one)(x)


def two_products(x):
    made, back = vjp(torch.sigmoid, x)
    return made, back(torch.ones_like(made))[0], back(made)[0]


def set_an_element(row):
    row = row.clone()
    row[0] = 1.0
    return row


def add_constants(row):
    return row * torch.tensor(2.0) + torch.arange(3) + torch.zeros_like(row) + torch.tensor([1.0, 2.0, 3.0])


def loss_of_inner_gradient(v):
    return torch.autograd.grad((v.sin() * v).sum(), v, create_graph=True)[0].sum()


layer, convolution, norm = nn.Linear(3, 2), nn.Conv2d(2, 3, 3), nn.LayerNorm(3)
attention, recurrent = nn.MultiheadAttention(8, 2, batch_first=True), nn.LSTM(3, 4)


def sample_loss(parameters, image):
    return functional_call(convolution, parameters, (image[None],)).square().sum()


PROGRAMS = {
    "vmap": (lambda x: vmap(lambda v: (v.tanh() * v).sum())(x), lambda k: (leaf(4, 3),)),
    "vmap of a module": (lambda x: vmap(layer)(x), lambda k: (leaf(4, 3),)),
    "vmap with other sizes": (lambda x: vmap(lambda v: v.softmax(0))(x), lambda k: (leaf(3 + k, 4),)),
    "dimensions": (
        lambda x: vmap(lambda v, d: (v.sin(), d["z"] * 2), in_dims=(1, {"z": 0}), out_dims=(1, 0))(x, {"z": x}),
        lambda k: (leaf(3, 3),),
    ),
    "keywords": (lambda x, y: vmap(lambda v, s=None: v * s)(x, s=y), lambda k: (leaf(3, 3), leaf(3, 3))),
    "chunks": (lambda x: vmap(torch.sin, chunk_size=2)(x), lambda k: (leaf(5, 3),)),
    "closure": (lambda x, w: vmap(lambda v: norm(v) @ w)(x), lambda k: (leaf(3, 2, 3), leaf(3, 5))),
    "number": (lambda x, n: vmap(lambda v: v * n + n)(x), lambda k: (leaf(3), float(k))),
    "exponent": (lambda x, n: grad(lambda v, n: (v**n).sum())(x, n), lambda k: (leaf(3), k % 2 + 2)),
    "grad": (lambda x: grad(lambda v: (v.tanh() ** 2).sum())(x), lambda k: (leaf(3),)),
    "grad of grad": (lambda x: grad(lambda y: grad(lambda v: (v.tanh() ** 3).sum())(y).sum())(x), lambda k: (leaf(3),)),
    "value and auxiliary": (
        lambda x: grad_and_value(lambda v: (v.sin().sum(), {"double": v * 2}), has_aux=True)(x),
        lambda k: (leaf(3),),
    ),
    "per sample": (
        lambda x: vmap(grad(sample_loss), in_dims=(None, 0))(dict(convolution.named_parameters()), x),
        lambda k: (randn(2, 2, 5, 5),),
    ),
    "jvp": (lambda x: jvp(torch.tanh, (x,), (x.detach(),)), lambda k: (leaf(3),)),
    "jvp of jvp": (
        lambda x: jvp(lambda w: jvp(lambda v: v.tanh() * v, (w,), (w,))[1], (x,), (x.detach(),)),
        lambda k: (leaf(3),),
    ),
    "vmap of jvp": (lambda x: vmap(lambda t: jvp(torch.tanh, (x,), (t,))[1])(torch.eye(3)), lambda k: (leaf(3),)),
    "vjp": (two_products, lambda k: (leaf(3),)),
    "jacrev": (lambda x, y: jacrev(lambda v, w: v * w.sin(), argnums=(0, 1))(x, y), lambda k: (leaf(3), leaf(3))),
    "jacrev with auxiliary": (lambda x: jacrev(lambda v: (v.sin(), v * 2), has_aux=True)(x), lambda k: (leaf(3),)),
    "jacfwd": (lambda d: jacfwd(lambda d: {"o": d["a"] * d["b"]})(d), lambda k: ({"a": leaf(3), "b": randn(3)},)),
    "hessian": (lambda x: hessian(lambda v: (v.tanh() ** 3).sum())(x), lambda k: (leaf(3),)),
    "functionalize": (lambda x: functionalize(lambda v: v.clone().add_(1).view(-1))(x), lambda k: (leaf(3, 3),)),
    "different numbers": (lambda x: vmap(F.dropout, randomness="different")(x), lambda k: (leaf(5, 8),)),
    "same numbers": (lambda x: vmap(F.dropout, randomness="same")(x), lambda k: (leaf(5, 8),)),
    "no_grad inside": (without_gradients, lambda k: (leaf(3),)),
    "no_grad around": (transform_without_gradients, lambda k: (leaf(3),)),
    "detach": (lambda x: grad(lambda v: (v * v.sin().detach()).sum())(x), lambda k: (leaf(3),)),
    "autocast": (under_autocast, lambda k: (leaf(3, 3, 3),)),
    "element": (lambda x: vmap(set_an_element)(x), lambda k: (leaf(5, 3),)),
    "constants": (lambda x: vmap(add_constants)(x), lambda k: (leaf(3, 3),)),
    "memory format": (lambda x: vmap(lambda v: v.is_contiguous() and v.sin())(x), lambda k: (leaf(3, 3),)),
    "list index": (lambda x: vmap(lambda v: v[[0, 2]])(x), lambda k: (leaf(5, 3),)),
    "tensor index": (lambda x, i: vmap(lambda v, j: v[j])(x, i), lambda k: (leaf(3, 3), torch.tensor([0, 2, 1]))),
    "sorting": (lambda x: vmap(lambda v: v.sort().values + v.topk(1).values)(x), lambda k: (leaf(3, 3),)),
    "solve": (lambda x: vmap(lambda a: torch.linalg.solve(a @ a.T + torch.eye(3), a))(x), lambda k: (leaf(2, 3, 3),)),
    "complex": (lambda x: grad(lambda v: torch.fft.fft(v).abs().sum())(x), lambda k: (leaf(4),)),
    "cross entropy": (lambda x, y: grad(F.cross_entropy)(x, y), lambda k: (leaf(4, 5), torch.randint(5, (4,)))),
    "attention": (lambda x: vmap(lambda v: attention(v[None], v[None], v[None])[0])(x), lambda k: (leaf(2, 3, 8),)),
    "recurrent": (lambda x: grad(lambda v: recurrent(v)[0].sum())(x), lambda k: (leaf(4, 2, 3),)),
    "autograd.grad inside": (lambda x: grad(loss_of_inner_gradient)(x), lambda k: (randn(3),)),
}


@BACKENDS
@pytest.mark.parametrize("kind", PROGRAMS)
def test_transforms_are_operators_of_one_graph(kind, backend):
    jvp_is_warm()
    fn, make = PROGRAMS[kind]
    if backend == "aot_eager" and "numbers" in kind:
        pytest.skip("AOTAutograd draws its own random numbers")
    leaves = JACOBIANS_READ_DATA and kind in ("jacrev", "jacrev with auxiliary", "jacfwd", "hessian")
    compiled = agrees(fn, make, backend, fullgraph=not leaves)
    assert codes(fn, *make(0)) == ["B202"] if leaves else burnish.was_compiled(compiled)


def codes(fn, *args):
    """The breaks of a function for a backend that runs no Python."""
    burnish.reset()
    with recorded("breaks", datum="break_") as found:
        burnish.compile(fn, backend=operators)(*args)
    return [break_.kind.code for break_ in found]


def test_functions_with_data_dependent_branches_run_as_they_are():
    def fn(x):
        return grad(lambda v: v.sum() if v.sum() > 0 else -v.sum())(x * 2) + 1

    agrees(fn, lambda k: (randn(3) + 1 - k,), operators)
    assert codes(fn, torch.ones(3)) == ["B101"]


def test_writes_of_the_function_are_effects():
    class Counted:
        calls = 0

        def __call__(self, v):
            self.calls += 1
            return (v * self.calls).sum()

    worlds = [Counted(), Counted()]
    compiled = burnish.compile(lambda x, counted: grad(counted)(x) + counted.calls, backend=operators, fullgraph=True)
    for k in range(5):
        found = [compiled(torch.ones(3), worlds[0]), grad(worlds[1])(torch.ones(3)) + worlds[1].calls]
        torch.testing.assert_close(*found)
        assert worlds[0].calls == worlds[1].calls == k + 1


def test_writes_are_undone_before_a_break():
    log, state, cell = [1], {"calls": 0}, 0

    def fn(x):
        nonlocal cell

        def loss(v):
            nonlocal cell
            cell += 1
            state["calls"] += 1
            log.append(2)
            print("inside")
            return v.sum()

        return grad(loss)(x)

    compiled = burnish.compile(fn, backend=operators)
    for k in range(1, 4):
        compiled(torch.ones(3))
        assert (cell, state["calls"], len(log)) == (k, k, k + 1)


def test_a_tensor_of_a_transform_that_leaves_it_is_a_break():
    log = []

    def fn(x):
        log.clear()
        made = vmap(lambda v: (log.append(v.sum()), v * 2)[1])(x * 2)
        return made, len(log)

    agrees(fn, lambda k: (randn(5),), operators)
    assert codes(fn, torch.ones(3)) == ["B202"]


def test_inputs_that_a_function_writes_to_are_left_to_eager():
    agrees(lambda x: (vmap(lambda v: v.add_(1))(x), x * 2), lambda k: (randn(5, 3),), operators)


def test_errors_are_those_of_eager():
    compiled = burnish.compile(lambda x: vmap(F.dropout)(x), backend=operators)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="randomness"):
            compiled(torch.ones(3, 3))


def branch_of_a_module(x):
    return torch.cond(x.sum() > 0, lambda a: vmap(layer)(a), lambda a: a[:, :2].cos(), (x,))


def branch_for_each_example(x, y):
    return vmap(lambda v: torch.cond(v.sum() > 0, lambda a: a.sin() + y, lambda a: a.cos() * 2, (v,)))(x)


def writes_in_a_branch(x):
    log = []

    def on_true(a):
        log.append(1)
        return a.sin()

    return vmap(lambda v: torch.cond(v.sum() > 0, on_true, torch.cos, (v,)))(x)


@BACKENDS
def test_branches_inside_vmap(backend):
    """Both run, as in eager, and each example takes the result of one."""
    jvp_is_warm()
    assert burnish.was_compiled(
        agrees(branch_for_each_example, lambda k: (randn(5, 3), randn(3)), backend, fullgraph=True)
    )
    assert "B202" in {code for code in codes_or_error(writes_in_a_branch, randn(3, 2))}


def codes_or_error(fn, *args):
    """The breaks of a function that eager refuses to run."""
    burnish.reset()
    with recorded("breaks", datum="break_") as found, pytest.raises(Exception, match="side effect|mutat"):
        burnish.compile(fn, backend=operators)(*args)
    return [break_.kind.code for break_ in found]


@BACKENDS
def test_transforms_inside_branches(backend):
    agrees(branch_of_a_module, lambda k: (torch.rand(3, 3).sub_(k % 2).requires_grad_(),), backend, fullgraph=True)


@pytest.mark.parametrize("backend", ["burnish", "eager"])
@pytest.mark.parametrize("fn", [two_products, lambda x: vjp(layer, x)[1](vmap(layer)(x))], ids=["function", "module"])
def test_a_vjp_is_part_of_the_graph_of_each_backend(fn, backend):
    assert burnish.was_compiled(agrees(fn, lambda k: (leaf(3, 3),), backend, fullgraph=True))


@BACKENDS
def test_a_vjp_function_may_leave(backend):
    compiled = burnish.compile(lambda x: vjp(torch.sigmoid, x * 2), backend=backend)
    for k in range(4):
        x = randn(3)
        made, back = compiled(x)
        expected, expected_back = vjp(torch.sigmoid, x * 2)
        torch.testing.assert_close((made, back(made)), (expected, expected_back(made)))
        assert burnish.was_compiled(compiled) or k == 0


class Square(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, gradient):
        return 7 * gradient * ctx.saved_tensors[0]


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * scale

    @staticmethod
    def backward(ctx, gradient):
        return 3 * gradient * ctx.saved_tensors[0] * ctx.scale, None


CUSTOM = {
    "vmap": lambda x: vmap(Square.apply)(x),
    "grad": lambda x: grad(lambda v: Square.apply(v).sum())(x),
    "per sample": lambda x: vmap(grad(lambda v: Square.apply(v).sum()))(x),
}


@BACKENDS
@pytest.mark.parametrize("kind", CUSTOM)
def test_custom_functions_inside_transforms(kind, backend):
    agrees(CUSTOM[kind], lambda k: (randn(3, 3),), backend, fullgraph=True)
    agrees(CUSTOM[kind], lambda k: (leaf(3, 3),), backend)  # a break: autograd needs their formulas


@pytest.mark.parametrize("backend", [lambda gm, inputs: gm.forward, "aot_eager"], ids=["own", "aot_eager"])
def test_custom_functions_are_nodes_for_any_backend(backend):
    agrees(lambda x, s: Scaled.apply(x, s) * 2, lambda k: (leaf(3), float(k)), backend, fullgraph=True)


def test_custom_functions_with_state_are_breaks():
    log = []

    class Logged(Scaled):
        @staticmethod
        def forward(ctx, x, scale):
            log.append(scale)
            return Scaled.forward(ctx, x, scale)

    agrees(lambda x: Logged.apply(x * 2, 3.0) + 1, lambda k: (leaf(3),), operators)
    assert len(log) == 6
    assert codes(lambda x: Logged.apply(x * 2, 3.0) + 1, leaf(3)) == ["B202"]


@BACKENDS
@pytest.mark.parametrize("transform", [grad, vmap, jacrev, jacfwd, hessian])
def test_a_transformed_function_is_compiled_itself(transform, backend):
    jvp_is_warm()

    class State:
        factor = 2.0

    def changed(k):
        State.factor = float(k)
        return (randn(3),)

    transformed = transform(lambda x: (x.sin() * State.factor).sum())
    agrees(
        transformed, changed, backend, fullgraph=not (JACOBIANS_READ_DATA and transform in (jacrev, jacfwd, hessian))
    )
