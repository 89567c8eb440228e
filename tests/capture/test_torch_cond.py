"""torch.cond: data-dependent branches inside a graph. Both branches are captured, or the call runs in Python."""

import pytest
import torch
from torch import nn

import burnish

from ..recorded_events import recorded
from .harness import program

X = torch.tensor([0.5, -1.5, 2.0])


def both(fn, *made, backend="eager", fullgraph=True):
    """Results and gradients of eager and compiled, over calls in which the branches alternate."""
    burnish.reset()
    torch.compiler.reset()  # eager compiles as well, and its limit of compilations is for all callers together
    compiled = burnish.compile(fn, backend=backend, fullgraph=fullgraph)
    for sign in (1, 1, -1, -1, 1, -1):
        seen = []
        for function in (fn, compiled):
            given = [(make * sign).requires_grad_() for make in made]
            parameters = list(fn.parameters()) if isinstance(fn, nn.Module) else []
            for parameter in parameters:
                parameter.grad = None
            out = function(*given)
            outs = [o for o in torch.utils._pytree.tree_leaves(out) if isinstance(o, torch.Tensor)]
            loss = sum(o.double().sum() for o in outs if o.requires_grad)
            if isinstance(loss, torch.Tensor):
                loss.backward()
            seen.append((out, [o.requires_grad for o in outs], [x.grad for x in (*given, *parameters)]))
        torch.testing.assert_close(seen[1], seen[0])
    return compiled


BACKENDS = ["eager", "burnish", lambda gm, inputs: gm.forward]
with_all_backends = pytest.mark.parametrize("backend", BACKENDS, ids=["eager", "burnish", "custom"])


@with_all_backends
def test_a_tensor_chooses_between_two_branches_in_one_graph(backend):
    def fn(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos(), (x,)) + 1

    both(fn, X, backend=backend)


@with_all_backends
def test_inputs_of_the_other_branch_alone_get_zero_gradients(backend):
    def fn(x, y, unused):
        return torch.cond(x.sum() > 0, lambda x, y, z: x * 2, lambda x, y, z: y * 3, (x, y, unused))

    both(fn, X, X + 1, X + 2, backend=backend)


@with_all_backends
def test_branches_read_modules_and_closures(backend):
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.yes, self.no = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.GELU())
            self.scale = 3

        def forward(self, x):
            shift = x * 2
            return torch.cond(x.sum() > 0, self.yes, lambda x: self.no(x) * self.scale + shift, (x,)).tanh()

    both(Gated(), X, backend=backend)


@with_all_backends
def test_branches_in_branches(backend):
    def fn(x, y):
        small = y.sum() < 1

        def inner(x):
            return torch.cond(small, lambda x: x + y, lambda x: x - 1, (x,)).exp()

        return torch.cond(x.sum() > 0, inner, lambda x: x * 5, (x,))

    both(fn, X, X * 2, backend=backend)


@with_all_backends
def test_results_are_trees_of_tensors(backend):
    def fn(x):
        made = torch.cond(
            x.sum() > 0,
            lambda d: {"a": d["x"] + 1, "b": [d["x"].sum(), d["x"].abs()]},
            lambda d: {"a": d["x"] * 2, "b": [d["x"].prod(), d["x"].exp()]},
            ({"x": x},),
        )
        return made["a"], made["b"][0] * 2, made["b"]

    both(fn, X, backend=backend)


def test_two_conditions_one_after_the_other():
    def fn(x):
        y = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
        return torch.cond(y.max() > 0.9, lambda y: y * 2, lambda y: y + x, (y,)), y

    both(fn, X)
    both(fn, X, backend="burnish")


def test_gradients_of_gradients():
    def fn(x, w):
        return torch.cond(x.sum() > 0, lambda x: (x * w).sin() * x, lambda x: x.exp() * w, (x,))

    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    for sign in (1, -1, 1):
        found = []
        for function in (lambda x, w: (x * w).sin() * x if sign > 0 else x.exp() * w, compiled):
            x, w = (X * sign).requires_grad_(), (X * 3).requires_grad_()
            u = x * w  # an operand that depends on another one
            first = torch.autograd.grad(function(x, u).sum(), (x, w), create_graph=True)
            found.append([*first, *torch.autograd.grad(sum(g.square().sum() for g in first), (x, w))])
        torch.testing.assert_close(found[1], found[0])


def test_a_result_that_is_written_to_afterwards():
    def fn(x):
        return torch.cond(x.sum() > 0, torch.sigmoid, torch.exp, (x,)).mul_(2)

    both(fn, X)


def test_a_second_backward_needs_saved_tensors():
    compiled = burnish.compile(
        lambda x: torch.cond(x.sum() > 0, torch.sin, torch.exp, (x,)), backend="eager", fullgraph=True
    )
    for sign in (1, -1, 1):
        x = (X * sign).requires_grad_()
        out = compiled(x).sum()
        out.backward(retain_graph=True)
        once = x.grad.clone()
        out.backward()
        torch.testing.assert_close(x.grad, once * 2)
        with pytest.raises(RuntimeError, match="second time"):
            out.backward()


@program(breaks=0)
def test_a_number_chooses_while_tracing():
    def fn(x, flag):
        y = torch.cond(flag, lambda x: x + 1, lambda x: x - 1, (x,))
        return torch.cond(x.shape[0] > 2, lambda x: x.sin(), lambda x: x.cos(), (y,))

    return fn, [(torch.ones(3), True), (torch.ones(2), False), (torch.ones(3), False), (torch.ones(4), True)]


@program(breaks=0)
def test_without_gradients_and_of_integers():
    def fn(x):
        with torch.no_grad():
            return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    return fn, [(torch.arange(3),), (-torch.arange(3),), (torch.arange(3) + 1,)]


def test_the_branch_that_is_not_chosen_leaves_nothing_behind():
    """Where capture cannot tell, the branch is given up before it does something, and eager decides."""
    log, state = [], {"n": 0}

    def appends(x):
        log.append(1)
        return x + 1

    def sets(x):
        state["n"] += 1
        return x + 1

    def writes(x):
        return x.detach().add_(1) + 0

    for other in (
        appends,
        sets,
        writes,
        lambda x: print("no") or x + 1,
        lambda x: x,
        lambda x: x.view(-1),
        lambda x: x[:2] + 1,
        lambda x: x.double(),
    ):
        burnish.reset()
        compiled = burnish.compile(
            lambda x: torch.cond(x.sum() > 0, torch.sin, other, (x,)), backend="eager", fullgraph=True
        )  # noqa: B023
        x, before = X.clone(), torch.get_rng_state()
        with pytest.raises(burnish.Unsupported, match="torch.cond"):
            compiled(x)
        assert (log, state) == ([], {"n": 0})
        assert torch.equal(x, X) and torch.equal(before, torch.get_rng_state())


def test_an_error_in_the_branch_that_is_not_chosen_is_eagers_to_raise():
    def fails(x):
        raise ValueError("not this one")

    compiled = burnish.compile(lambda x: torch.cond(x.sum() > 0, torch.sin, fails, (x,)), backend="eager")
    plain = lambda x: torch.cond(x.sum() > 0, torch.sin, fails, (x,))  # noqa: E731
    for _ in range(3):
        with pytest.raises(Exception) as expected:
            plain(X)
        with pytest.raises(type(expected.value)):
            compiled(X)


def test_random_numbers_in_a_branch_are_eagers():
    compiled = burnish.compile(
        lambda x: torch.cond(x.sum() > 0, lambda x: torch.nn.functional.dropout(x, 0.5), torch.cos, (x,)) * 2,
        backend="eager",
    )
    for _ in range(3):
        torch.manual_seed(0)
        expected = torch.cond(X.sum() > 0, lambda x: torch.nn.functional.dropout(x, 0.5), torch.cos, (X,)) * 2
        torch.manual_seed(0)
        torch.testing.assert_close(compiled(X), expected)


def test_objects_made_in_a_branch_may_change():
    def fn(x):
        def summed(x):
            parts, total = [], 0
            for k in range(3):
                parts.append(x * k)
            for part in parts:
                total += part
            seen = {"total": total}
            seen["more"] = total.relu_() + 1
            return seen["more"]

        return torch.cond(x.sum() > 0, summed, lambda x: x.clone().mul_(2), (x,))

    both(fn, X)


def test_partitions_around_a_cond_are_compiled():
    from burnish.compiler.partition_uncompiled_calls import SubgraphSequence

    seen = []
    compiled = burnish.compile(
        lambda x: torch.cond((x * 2).sum() > 0, torch.sin, torch.cos, (x + 1,)) * 2 + 1, fullgraph=True
    )
    for k in range(4):
        compiled(X * (-1) ** k)
    for point in (compiled.__burnish_program__.entry,):
        seen += [segment.graph for segment in point.segments]
    assert [type(graph) for graph in seen] == [SubgraphSequence] and [step.is_subgraph for step in seen[0].steps] == [
        True,
        False,
        False,
        True,
    ]
    assert all(step.function.compiled is not None for step in seen[0].steps if step.is_subgraph)


def test_the_operator_behind_it_is_captured_as_well():
    operator = torch.ops.higher_order.cond

    def fn(x):
        y = operator(x.sum() > 0, lambda x: (x.sin(),), lambda x: (x.cos(),), (x,))[0]
        return operator(True, lambda x: x + 1, lambda x: x - 1, (y,))

    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    for sign in (1, -1, 1):
        torch.testing.assert_close(compiled(X * sign), (X.sin() if sign > 0 else (-X).cos()) + 1)


def test_gradients_of_values_that_are_no_operands_are_eagers():
    operator = torch.ops.higher_order.cond
    w = torch.ones(3, requires_grad=True)
    compiled = burnish.compile(
        lambda x: operator(x.sum() > 0, lambda x: x * w, lambda x: x + w, (x,)), backend="eager", fullgraph=True
    )
    with pytest.raises(burnish.Unsupported, match="not among the operands"):
        compiled(X.clone().requires_grad_())


@pytest.mark.parametrize("backend", ["eager", "burnish", "aot_eager", lambda gm, inputs: gm.forward])
@pytest.mark.parametrize("learns", [False, True])
def test_branches_may_differ_in_what_they_learn(backend, learns):
    """As in torch, the results require gradients if any operand does."""
    weight = torch.randn(3, requires_grad=True)

    def fn(x):
        return torch.cond(x.sum() > 0, lambda a: a.sin() * weight, lambda a: a.detach().cos(), (x,))

    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for sign in (1, -1, 1, -1):
        x = (torch.rand(3) * sign).requires_grad_(learns)
        found = []
        for function in (fn, compiled):
            made = function(x)
            wanted = [weight, x] if learns else [weight]
            found.append((made, torch.autograd.grad(made.sum(), wanted, materialize_grads=True)))
        torch.testing.assert_close(*found)
        assert found[0][0].requires_grad == found[1][0].requires_grad


@pytest.mark.falls_back("refused")
def test_other_operators_of_a_higher_order_run_as_they_are():
    from torch._higher_order_ops import while_loop
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 16, 16, device="cpu")

    def fn(x):
        count, y = while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * 1.1), (torch.tensor(0), x))
        return count, y, flex_attention(y, y, y, block_mask=mask)

    for backend in ("eager", "burnish"):
        compiled = burnish.compile(fn, backend=backend)
        for n in (1, 1, 2, 3):
            x = torch.randn(n, 2, 16, 8)
            torch.testing.assert_close(compiled(x), fn(x))


def test_items_of_one_list_before_and_after_a_cond():
    """The list is made in the piece before the call, and one of its tensors is first used in the piece behind it."""

    def fn(x):
        first, second = (x * 2).split([1, 2])
        chosen = torch.cond(first.sum() > 0, lambda v: v + 1, lambda v: v - 1, (x,))
        return chosen[1:] + second

    both(fn, X, backend="burnish")


OPEN = {
    "operands": lambda x: torch.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos() * 2, (x,)),
    "outside": lambda x: (y := x * 2, torch.cond(x.sum() > 0, lambda t: t + y, lambda t: t * y, (x,)))[1],
    "a size in a branch": lambda x: torch.cond(
        x.sum() > 0, lambda t: t.view(-1).sin().view(t.shape[0], 2), lambda t: t / t.shape[0], (x,)
    ),
    "uses of the result": lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)).reshape(-1) * x.shape[0],
    "nested": lambda x: torch.cond(
        x.sum() > 0, lambda t: torch.cond(t.max() > 1, torch.sin, torch.cos, (t,)), lambda t: t * 2, (x,)
    ),
}


@pytest.mark.falls_back("refused", only=".*nested.*")
@pytest.mark.falls_back("numbers", only=".*a size in a branch.*")  # a branch is compiled for each size that it views by
@pytest.mark.parametrize("backend", ["eager", "burnish"])
@pytest.mark.parametrize("kind", OPEN)
def test_sizes_stay_open(kind, backend):
    fn = OPEN[kind]
    with recorded("segment") as graphs:
        compiled = burnish.compile(fn, backend=backend, fullgraph=True)
        for size in (3, 4, 5, 7, 2, 9):
            x = (torch.randn(size, 2) + (size % 2 - 0.5) * 3).requires_grad_()
            found = []
            for function in (fn, compiled):
                made = function(x)
                found.append((made, torch.autograd.grad(made.square().sum(), x)))
            torch.testing.assert_close(*found)
    assert len(graphs) == 2


@pytest.mark.parametrize("backend", ["eager", "burnish"])
def test_sizes_that_only_one_branch_depends_on(backend):
    """The results are of one size where both are."""

    def fn(x, y):
        scaled = torch.cond(x.sum() > 0, lambda t: t * t.shape[0], lambda t: t - 1, (x,))
        return scaled, torch.cond(x.sum() > 0, lambda t, u: t.sin(), lambda t, u: u * 2, (x, y))

    compiled = burnish.compile(fn, backend=backend)
    for size in (3, 4, 5, 7, 2):
        x, y = torch.randn(size, 2), torch.randn(size, 2)
        torch.testing.assert_close(compiled(x, y), fn(x, y))


@pytest.mark.parametrize("backend", ["eager", "burnish"])
def test_numbers_in_branches_may_change(backend):
    """Whole numbers and fractions, in one branch or both. One that Python looks at is guarded by its outcome."""
    factor = [0]

    def fn(x, n):
        doubled = torch.cond(x.sum() > 0, lambda t: t * n + factor[0] / 7, lambda t: t.cos() - n, (x,))
        limited = torch.cond(x.sum() > 0, lambda t: t.clamp(-n, n) if n > 1 else t, lambda t: t.sin(), (doubled,))
        return torch.cond(x.sum() > 0, inner, lambda t: t - n, (limited,))

    def inner(t):
        return torch.cond(t.max() > 2, lambda u: u / factor[0], lambda u: u + 1, (t,))

    with recorded("segment") as graphs:
        compiled = burnish.compile(fn, backend=backend, fullgraph=True)
        for k, n in enumerate([2, 3, 4, 7, 5, 9, 11, 6, 8, 12]):
            factor[0] = k * k + 1
            x = (torch.randn(5) + (k % 2 - 0.5) * 3).requires_grad_()
            found = []
            for function in (fn, compiled):
                made = function(x, n)
                found.append((made, torch.autograd.grad(made.square().sum(), x)))
            torch.testing.assert_close(*found)
    assert len(graphs) <= 3
