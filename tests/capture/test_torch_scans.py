"""torch.associative_scan is part of the graph; torch's other loops are nodes with graphs for each backend."""

import collections

import pytest
import torch
from torch._higher_order_ops import map as torch_map
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import burnish

from .. import frame_evaluation
from .harness import program
from .operator_backend import operators
from .torch_differences import COMPILES_OPERATORS

on_cpus = pytest.mark.skipif(
    "must be CUDA tensors" in str(associative_scan.__doc__),
    reason="this torch itself scans on GPUs alone, where Burnish scans on CPUs, too",
)


@pytest.fixture(autouse=True)
def forget_what_dynamo_compiled():
    """Eager's loops call Dynamo, which compiles a function of torch's eight times at most."""
    torch.compiler.reset()


def follow(left, right):
    """Of a line's state: times a, and b more."""
    (a, b), (c, d) = left, right
    return a * c, c * b + d


def states(a, b, dim):
    return associative_scan(follow, (a, b), dim)[1]


def one_by_one(a, b, dim):
    found, state = [], torch.zeros_like(b.select(dim, 0))
    for factor, added in zip(a.unbind(dim), b.unbind(dim), strict=True):
        state = factor * state + added
        found.append(state)
    return torch.stack(found, dim)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 16, 33])
@pytest.mark.parametrize("dim", [0, 1])
def test_states_and_gradients_are_those_of_a_loop(count, dim):
    shape = (count, 3) if dim == 0 else (3, count)
    a, b = (torch.rand(shape, dtype=torch.float64, requires_grad=True) for _ in range(2))
    compiled = burnish.compile(states, fullgraph=True)
    for _ in range(2):
        got, want = compiled(a, b, dim), one_by_one(a, b, dim)
        torch.testing.assert_close(got, want)
        weights = torch.randn_like(want)
        ours, theirs = (torch.autograd.grad(x, (a, b), weights, materialize_grads=True) for x in (got, want))
        torch.testing.assert_close(ours, theirs)


@on_cpus
def test_roundings_are_torchs():
    a, b = torch.rand(2, 37), torch.randn(2, 37)
    assert torch.equal(burnish.compile(states, fullgraph=True, backend="eager")(a, b, 1), states(a, b, 1))


def test_backwards_over_a_dict():
    def fn(x):
        most = associative_scan(lambda a, b: {"most": torch.maximum(a["most"], b["most"])}, {"most": x}, 0, True)
        return most

    x = torch.randn(9, 4)
    assert torch.equal(burnish.compile(fn, fullgraph=True)(x)["most"], x.flip(0).cummax(0)[0].flip(0))


@pytest.mark.parametrize(
    "arguments",
    [((), 0), (torch.ones(3), 1), (torch.ones(3), "0"), pytest.param((torch.ones(3), -1), marks=on_cpus)],
    ids=str,
)
def test_what_torch_refuses_it_refuses(arguments):
    def fn(xs, dim):
        return associative_scan(torch.add, xs, dim)

    def outcome(fn):
        try:
            return fn(*arguments)
        except Exception as error:
            return type(error)

    got, want = outcome(burnish.compile(fn)), outcome(fn)
    assert got is want or torch.equal(got, want)


# ---- loops that torch has Dynamo capture

BACKENDS = ("burnish", "eager", "aot_eager", operators)
OPERATORS = torch.ops.higher_order
PAIR = collections.namedtuple("PAIR", "first second")
KINDS = {
    "dictionaries": lambda a, b: {"a": a, "b": b},
    "nested": lambda a, b: {"a": [a, (b,)]},
    "lists": lambda a, b: [a, b],
    "with None": lambda a, b: {"a": a, "b": [b, None]},
}


def parts(tree):
    return [leaf for leaf in pytree.tree_leaves(tree) if leaf is not None]


@pytest.mark.parametrize(
    "kind, dim, reverse",
    [("dictionaries", 0, False), ("nested", 1, True), ("lists", 1, False), ("with None", 0, False)],
)
def test_scan_returns_the_program_structures(kind, dim, reverse):
    learns = kind != "with None"  # torch itself has no gradients there
    tree, weight = KINDS[kind], torch.randn(3, requires_grad=learns)

    def step(carry, given):
        a, b = parts(carry)
        following = a * given["x"] + weight, b + 1
        return tree(*following) if learns else following, tree(a * 2, b * given["x"])

    def fn(x):
        start = (torch.zeros(3), torch.ones(3))
        carry, found = scan(step, tree(*start) if learns else start, {"x": x * 2}, dim=dim, reverse=reverse)
        return carry, found, parts(carry)[0] + 1

    if not learns:
        try:
            fn(torch.randn(4, 3))
        except torch._dynamo.exc.TorchRuntimeError:
            pytest.skip("this torch takes no None there")
    same_as_eager(
        fn,
        lambda: torch.randn((4, 3) if dim == 0 else (3, 4), requires_grad=learns),
        weight,
        breaks=set() if learns else {"B205"},
    )


def test_while_loop_and_map_return_the_program_structures():
    weight = torch.randn(3, requires_grad=True)

    def loop(x):
        return while_loop(
            lambda i, state: i < 3,
            lambda i, state: (i + 1, {"x": [state["x"][0] * 2]}),
            (torch.tensor(0), {"x": [x.detach() + 1]}),
        )

    def mapped(x):
        return torch_map(
            lambda row, more: {"scaled": row["x"] * weight, "sum": [row["x"] + more]}, {"x": x}, torch.ones(3)
        )

    same_as_eager(loop, lambda: torch.randn(4, 3), weight)
    same_as_eager(mapped, lambda: torch.randn(4, 3, requires_grad=True), weight)


def test_structures_that_dynamo_refuses_raise_its_error():
    def fn(x):
        return associative_scan(lambda a, b: PAIR(a.first * b.first, b.second), PAIR(x, x * 2), 0)

    def cond(x):
        return torch.cond(x.sum() > 0, lambda pair: pair, lambda pair: pair, (PAIR(x, x + 1),))

    for function in (fn,) if COMPILES_OPERATORS else (fn, cond):  # else the operator's own error, and not Dynamo's
        with pytest.raises(Exception) as expected:
            function(torch.randn(4, 3))
        for _ in range(2):
            with pytest.raises(type(expected.value)):
                burnish.compile(function)(torch.randn(4, 3))


def test_an_error_of_dynamo_does_not_reach_later_tests():
    with pytest.raises(Exception):
        associative_scan(lambda a, b: PAIR(a.first * b.first, b.second), PAIR(torch.ones(4), torch.ones(4)), 0)
    frame_evaluation.restore()
    assert frame_evaluation.is_pythons()


def test_a_step_reads_its_closure_in_each_call():
    holder = type("Holder", (), {"scale": 2.0})()

    def fn(x):
        return scan(lambda carry, given: (carry + given * holder.scale, {"y": carry * holder.scale}), x[0] * 0, x)

    same_as_eager(fn, lambda: torch.randn(4, 3), None, lambda k: setattr(holder, "scale", float(k)))


def same_as_eager(fn, make, weight, change=lambda k: None, breaks=frozenset()):
    """In three calls with each backend: values, structures, gradients. Eager compiles with Dynamo, so it runs once."""
    burnish.reset()
    compiled = {backend: burnish.compile(fn, backend=backend, fullgraph=not breaks) for backend in BACKENDS}
    for k in range(3):
        change(k)
        x = make()
        want = observed(fn, x, weight)
        for backend, function in compiled.items():
            found = observed(function, x, weight)
            assert found[:2] == want[:2], backend
            torch.testing.assert_close(found[2:], want[2:], msg=lambda text, backend=backend: f"{backend}: {text}")
    assert {reason.source.kind.code for reason in burnish.explain(fn)(make()).break_reasons} == breaks


def observed(function, x, weight):
    """Structure, strides, values and gradients of a call's results."""
    got = function(x)
    leaves = parts(got)
    ends = [leaf.square().sum() for leaf in leaves if leaf.requires_grad]
    wanted = [t for t in (x, weight) if t is not None and t.requires_grad]
    gradients = torch.autograd.grad(sum(ends), wanted) if ends else ()
    return pytree.tree_structure(got), [leaf.stride() for leaf in leaves], leaves, gradients


def test_loops_of_modules_and_of_no_steps():
    layer = torch.nn.Linear(3, 3)

    def fn(x):
        steps, state = while_loop(
            lambda i, state: (i < 3) & (state.sum() < 100), lambda i, state: (i + 1, layer(state)), (x[0, 0].long(), x)
        )
        return steps, state, torch_map(layer, x), associative_scan(torch.mul, x, 0, combine_mode="generic")

    for start in (0.0, 5.0):
        same_as_eager(
            fn,
            lambda start=start: torch.full((4, 3), start),
            layer.weight,
            breaks={"B205"} if COMPILES_OPERATORS else set(),
        )


def test_loops_inside_loops_and_branches():
    def fn(x):
        def step(carry, row):
            return carry + torch_map(lambda r: r * 2, row[None])[0], carry * 2

        total, rows = scan(step, x[0] * 0, x)
        chosen = torch.cond(total.sum() > 0, lambda t: scan(step, t * 2, t[None])[0], lambda t: t * 3, (total,))
        return total, rows, chosen

    same_as_eager(fn, lambda: torch.randn(4, 3), None)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("change", ["prints", "appends", "draws", "aliases", "changes shape"])
def test_steps_that_no_graph_can_hold_end_the_graph_before_the_loop(change, backend, capsys):
    log = []

    def step(carry, row):
        if change == "prints":
            print("step")
        if change == "appends":
            log.append(1)
        following = carry + row
        if change == "draws":
            following = following + torch.rand(3) * 0
        if change == "changes shape":
            following = torch.cat([following, row])
        return following, carry if change == "aliases" else carry * 2

    def fn(x):
        return scan(step, x[0] * 0, x * 2)

    def outcome(fn, x):
        try:
            return fn(x)
        except Exception as error:
            return type(error)

    compiled = burnish.compile(fn, backend=backend)
    for _ in range(3):
        x = torch.randn(4, 3)
        got, want = outcome(compiled, x), outcome(fn, x)
        assert got is want or not isinstance(want, type)
        if not isinstance(want, type):
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("kind", ["scan", "while_loop", "map_impl"])
def test_a_backend_gets_the_operator_of_torch_with_graphs(kind):
    found = []

    def backend(gm, example_inputs):
        found.append(gm)
        return gm.forward

    functions = {
        "scan": lambda x: scan(lambda carry, row: (carry + row, carry * 2), x[0] * 0, x),
        "while_loop": lambda x: while_loop(lambda s: s.sum() < 9, lambda s: (s * 2 + 1,), (x.abs(),)),
        "map_impl": lambda x: torch_map(lambda row: row * 2, x),
    }
    burnish.compile(functions[kind], backend=backend, fullgraph=True)(torch.randn(4, 3))
    (node,) = (n for n in found[0].graph.nodes if isinstance(n.target, torch._ops.HigherOrderOperator))
    assert node.target is getattr(torch.ops.higher_order, kind)
    names = [arg.target for arg in node.args if isinstance(arg, torch.fx.Node) and arg.op == "get_attr"]
    assert len(names) == (2 if kind == "while_loop" else 1)
    assert all(isinstance(found[0].get_submodule(name), torch.fx.GraphModule) for name in names)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_tensor_that_is_carried_and_closed_over(backend):
    weight = torch.randn(3, 3)

    def fn(n, x):
        return while_loop(lambda i, a: (i < 4) & (a.sum() < 100), lambda i, a: (i + 1, a @ weight + x), (n, x))

    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for k in range(3):
        given = torch.tensor(k), torch.randn(3)
        torch.testing.assert_close(compiled(*given), fn(*given))


@program(breaks=0)
def test_while_loop_that_counts_in_python():
    def fn(x, steps):
        count, y = while_loop(lambda i, x: i < steps, lambda i, x: (i + 1, x * 2 + i), (0, x))
        return count + 1, y

    return fn, [(torch.randn(3), steps) for steps in (2, 0, 3, 1)]


@program
def test_while_loop_that_counts_in_python_and_asks_a_tensor():
    def fn(x):
        return while_loop(lambda i, x: x.sum() < 100, lambda i, x: (i + 1, x * 2), (0, x))

    return fn, lambda i: (torch.rand(3) + 1,)


# ---- in each other


OUTSIDE = torch.arange(1.0, 10.0).view(3, 3) / 10


def looped(x):
    return while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, (y @ OUTSIDE).sin()), (torch.tensor(0), x))[1]


def scanned(x):
    return scan(lambda carried, y: ((carried + y * OUTSIDE[0]).sin(), carried * y), x, torch.stack([x, x * 2]))[1][0]


def mapped(x):
    return torch_map(lambda y: (y @ OUTSIDE).cos(), torch.stack([x, x * 2]))[1]


def branched(x):
    return torch.cond(x.sum() > 1, lambda y: y * OUTSIDE[1], lambda y: y - OUTSIDE[2], (x,))


INNER = [looped, scanned, mapped, branched]
OUTER = {
    "cond": lambda inner, x: torch.cond(x.sum() > 0, lambda y: inner(y) + 1, lambda y: inner(y) - 1, (x,)),
    "while_loop": lambda inner, x: while_loop(
        lambda i, y: i < 2, lambda i, y: (i + 1, inner(y) + 0), (torch.tensor(0), x)
    )[1],
    "scan": lambda inner, x: scan(lambda carried, y: (inner(carried) + y, inner(y) * 2), x, torch.stack([x, x]))[1],
    "map": lambda inner, x: torch_map(lambda y: inner(y) * 2, torch.stack([x, x])),
}


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("outer", OUTER)
def test_operators_with_functions_in_each_other_read_tensors_from_outside(outer, inner):
    def fn(x):
        return OUTER[outer](inner, x)

    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    for x in (torch.tensor([0.1, 0.5, 0.9]), torch.tensor([-0.1, -0.5, 0.2]), torch.tensor([1.0, 2.0, 3.0])):
        torch.testing.assert_close(compiled(x), fn(x))
    OUTSIDE.mul_(2)
    try:
        torch.testing.assert_close(compiled(x), fn(x))
    finally:
        OUTSIDE.div_(2)


def checkpointed(x):
    return checkpoint(lambda y: (y @ OUTSIDE).sin(), x, use_reentrant=False)


@pytest.mark.parametrize("outer", OUTER)
def test_a_checkpoint_inside_is_part_of_the_function(outer):
    def with_checkpoint(x):
        return OUTER[outer](checkpointed, x)

    def without(x):
        return OUTER[outer](lambda y: (y @ OUTSIDE).sin(), x)

    compiled = burnish.compile(with_checkpoint, backend="eager", fullgraph=True)
    for values in ([0.1, 0.5, 0.9], [-0.1, -0.5, 0.2], [1.0, 2.0, 3.0]):
        given = [torch.tensor(values, requires_grad=outer in ("cond", "scan")) for _ in range(2)]
        out = [fn(x) for fn, x in zip((compiled, without), given, strict=True)]
        torch.testing.assert_close(*out)
        if given[0].requires_grad:
            for made in out:
                made.sum().backward()
            torch.testing.assert_close(given[0].grad, given[1].grad)


class ExportedLoops(torch.nn.Module):
    """Torch's loops over a layer, whose weights an exported graph gives to the operators as further arguments."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.layer = kind, torch.nn.Linear(3, 3)

    def forward(self, x):
        if self.kind == "scan":
            return scan(lambda carry, row: (self.layer(carry) + row, carry * 2), x[0] * 0, x)
        if self.kind == "map_impl":
            return torch_map(lambda row: self.layer(row) * 2, x)
        return while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, self.layer(a)), (torch.tensor(0), x))


@pytest.mark.parametrize("kind", ["scan", "while_loop", "map_impl"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_loops_of_an_exported_program_are_part_of_the_graph(kind, backend):
    torch.manual_seed(0)
    with torch.set_grad_enabled(kind != "while_loop"):
        model = torch.export.export(ExportedLoops(kind), (torch.randn(4, 3),)).module()
        compiled = burnish.compile(model, backend=backend, fullgraph=True)
        for _ in range(3):
            x = torch.randn(4, 3)
            outcomes = []
            for f in (model, compiled):
                model.zero_grad()
                made = pytree.tree_leaves(f(x))
                if torch.is_grad_enabled():
                    sum(t.sum() for t in made if t.requires_grad).backward()
                outcomes.append((made, [p.grad for p in model.parameters()]))
            torch.testing.assert_close(outcomes[1], outcomes[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_operators_of_loops_that_a_program_calls_itself(backend):
    weight = torch.randn(3)

    def fn(x, factor):
        carry, rows = OPERATORS.scan(lambda c, r, w: (c + r * w, c * r), [x[0] * 0], [x], (weight,))
        (mapped,) = OPERATORS.map_impl(lambda r, w, k: [r * w * k], [x], [weight, factor])
        count, last = OPERATORS.while_loop(
            lambda i, a, w: i < 3, lambda i, a, w: (i + 1, a + w), (torch.tensor(0), carry), (weight,)
        )
        return carry, rows, mapped, count, last

    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for factor in (2, 2, 3):
        x = torch.randn(4, 3)
        torch.testing.assert_close(compiled(x, factor), fn(x, factor))


def test_operator_of_a_loop_whose_closure_gets_gradients_raises_the_error_of_torch():
    weight = torch.randn(3, requires_grad=True)

    def fn(x):
        return OPERATORS.map_impl(lambda row: [row * weight], [x], [])[0].sum()

    compiled = burnish.compile(fn, backend=operators)
    for f in (fn, compiled, compiled, compiled):
        with pytest.raises(AssertionError, match="convert all Tensors to FakeTensors"):
            f(torch.ones(4, 3, requires_grad=True))


CLOSURES = {
    "map": lambda x, w: OPERATORS.map_impl(lambda row, v: [row * w], [x], [w])[0],
    "scan": lambda x, w: OPERATORS.scan(lambda c, row, v: [c * w, row * w], [x[0] * 0], [x], [w])[1],
    "while loop": lambda x, w: OPERATORS.while_loop(lambda c, v: c.sum() < 9, lambda c, v: [c * 2 + w], (x[0],), (w,))[
        0
    ],
}


@pytest.mark.parametrize("kind", CLOSURES)
def test_a_closure_that_is_also_an_argument_of_a_loop_raises_the_error_of_torch(kind):
    compiled = burnish.compile(CLOSURES[kind], backend=operators)
    for f in (CLOSURES[kind], compiled, compiled, compiled):
        with pytest.raises(AssertionError, match="convert all Tensors to FakeTensors"):
            f(torch.ones(4, 3, requires_grad=True), torch.ones(3, requires_grad=True)).sum().backward()
