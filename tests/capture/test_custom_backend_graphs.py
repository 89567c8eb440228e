"""Graphs that a custom backend gets: as many as from `torch.compile`, for calls whose numbers and sizes change."""

import math

import pytest
import torch
import torch._dynamo
from torch._higher_order_ops import map as map_elements
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import burnish

X = torch.tensor([0.5, -1.5, 2.0, 1.0])


class Graphs:
    """A backend that counts the graphs, and runs them as they are."""

    def __init__(self):
        self.made = []

    def __call__(self, gm, inputs):
        self.made.append(gm)
        return gm.forward


def run(fn, calls, graphs):
    """Compare with eager: results and gradients of the tensors given. ``graphs``: how many after each call."""
    burnish.reset()
    backend, found = Graphs(), []
    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for make in calls:
        seen = []
        for function in (fn, compiled):
            given = make()
            out = function(*given)
            if out.requires_grad:
                out.sum().backward()
            seen.append((out, [x.grad for x in given if isinstance(x, torch.Tensor)]))
        torch.testing.assert_close(seen[1], seen[0])
        found.append(len(backend.made))
    assert found == graphs
    return backend.made


def learning(size=4):
    return torch.arange(1.0, size + 1).requires_grad_()


# ---- custom autograd functions


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.n = n
        return x * n

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.n, None


class Repeated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.n = n
        return x.repeat(n)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.view(ctx.n, -1).sum(0), None


def test_a_custom_function_is_given_other_integers():
    calls = [lambda n=n: (learning(), n) for n in (2, 3, 4, 5)]
    run(lambda x, n: Scaled.apply(x, n) + 1, calls, [1, 2, 2, 2])


def test_a_custom_function_is_given_a_symbolic_size():
    calls = [lambda n=n: (learning(n),) for n in (3, 4, 5, 6)]
    run(lambda x: Scaled.apply(x, x.shape[0]), calls, [1, 2, 2, 2])
    run(lambda x: Repeated.apply(x, x.shape[0] - 1) + 1, calls, [1, 2, 2, 2])


def test_an_integer_that_changes_the_size_of_results_is_a_constant():
    calls = [lambda n=n: (learning(), n) for n in (2, 3, 4, 4, 5, 5, 4)]
    run(lambda x, n: Repeated.apply(x, n), calls, [1, 2, 3, 4, 5, 5, 5])


def test_class_methods_of_a_custom_function_are_guarded():
    class Base(torch.autograd.Function):
        scale = 3.0

        @classmethod
        def scaled(cls, x):
            return x * cls.scale + cls.shifted(x)

        @staticmethod
        def shifted(x):
            return x

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    class Derived(Base):
        @staticmethod
        def forward(ctx, x):
            return Derived.scaled(x)

        @staticmethod
        def shifted(x):
            return x * 10

    burnish.reset()
    backend = Graphs()
    compiled = burnish.compile(lambda x: Derived.apply(x) + 0, backend=backend, fullgraph=True)
    x = learning()
    for _ in range(2):
        assert torch.equal(compiled(x), x * 13)
    Derived.scale = 5.0
    assert torch.equal(compiled(x), x * 15)
    del Derived.shifted
    assert torch.equal(compiled(x), x * 6)


def test_a_class_method_that_passes_its_class_on_ends_the_graph():
    class Base(torch.autograd.Function):
        scale = 3.0

        @classmethod
        def scaled(cls, x):
            return (lambda y: y * cls.scale)(x)

        @staticmethod
        def forward(ctx, x):
            return Base.scaled(x)

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    burnish.reset()
    compiled = burnish.compile(lambda x: Base.apply(x) + 0, backend=Graphs())
    x = learning()
    assert torch.equal(compiled(x), x * 3)
    Base.scale = 5.0
    assert torch.equal(compiled(x), x * 5)


# ---- regions


def test_branches_read_integers_and_sizes_that_change():
    def by_number(x, n):
        return torch.cond(x.sum() > 0, lambda x: x * n, lambda x: x - n, (x,))

    def by_size(x):
        return torch.cond(x.sum() > 0, lambda x: x[: x.shape[0] - 1].sin(), lambda x: x[1:] * x.shape[0], (x,))

    calls = [lambda n=n: (X * (-1) ** n, n) for n in (2, 3, 4, 5)]
    graphs = run(by_number, calls, [1, 2, 2, 2])
    (node,) = (node for node in graphs[1].graph.nodes if node.target is torch.ops.higher_order.cond)
    assert len(node.args[3]) == 2
    run(by_size, [lambda n=n: (learning(n).detach() * (-1) ** n,) for n in (3, 4, 5, 6)], [1, 2, 2, 2])


def test_branches_take_integers_of_more_than_64_bits_as_constants():
    def fn(x, n):
        return torch.cond(x.sum() > 0, lambda x: x * n, lambda x: x - n, (x,))

    backend = Graphs()
    compiled = burnish.compile(fn, backend=backend)
    for n in (2, 3, 4):
        torch.testing.assert_close(compiled(X, n), fn(X, n))
    with pytest.raises(Exception, match="int too big to convert"):
        compiled(X, 10**20)
    assert len(backend.made) == 2


def test_nested_branches_read_an_integer_that_changes():
    def fn(x, n):
        inner = lambda x: torch.cond(x.max() > 1, lambda x: x * n, lambda x: x + n, (x,))  # noqa: E731
        return torch.cond(x.sum() > 0, inner, lambda x: x.cos(), (x,))

    run(fn, [lambda n=n: (X * (n - 3), n) for n in (2, 4, 5, 6, 1)], [1, 2, 2, 2, 2])


def test_branches_take_floats_as_constants():
    calls = [lambda f=f: (X, f) for f in (0.2, 0.3, 0.3)]
    run(lambda x, f: torch.cond(x.sum() > 0, lambda x: x * f, lambda x: x - f, (x,)), calls, [1, 2, 2])


@pytest.mark.parametrize("number", [3, 1.5])
def test_a_mapped_function_takes_a_number(number):
    torch.compiler.reset()
    run(lambda x, n: map_elements(lambda part, n: part.sin() * n, x, n), [lambda: (X, number)] * 3, [1, 1, 1])


def test_a_policy_object_is_asked_by_torch():
    class Policy:
        def __init__(self):
            self.asked = []
            self.note = lambda operator: self.asked.append(operator)

        def __call__(self, context, operator, *args, **kwargs):
            self.note(operator)
            return CheckpointPolicy.PREFER_RECOMPUTE

    def fn(x):
        contexts = lambda: create_selective_checkpoint_contexts(policy)  # noqa: E731
        return checkpoint(lambda x: (x @ x).sin(), x, use_reentrant=False, context_fn=contexts)

    x, counts = torch.eye(3).requires_grad_(), []
    for function in (fn, burnish.compile(fn, backend=Graphs())):
        policy = Policy()
        for _ in range(3):
            function(x).sum().backward()
        counts.append(len(policy.asked))
    assert counts[0] == counts[1] > 0


# ---- the kernels of attention


def kernels():
    names = ("flash", "math", "mem_efficient", "cudnn")
    return [getattr(torch._C, f"_get_{name}_sdp_enabled")() for name in names], torch._C._get_sdp_priority_order()


def attention(x):
    return torch.nn.functional.scaled_dot_product_attention(x, x, x)


Q = torch.arange(24.0).view(1, 2, 3, 4) / 24


def test_the_choice_of_kernels_is_in_the_graph():
    def fn(x):
        with sdpa_kernel(SDPBackend.MATH):
            y = attention(x)
        with sdpa_kernel([SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION], set_priority=True):
            return y + attention(y)

    before = kernels()
    (graph,) = run(fn, [lambda: (Q,)] * 3, [1, 1, 1])
    assert [node.target for node in graph.graph.nodes].count(torch._C._set_sdp_use_math) == 4
    assert kernels() == before


def test_kernels_are_chosen_where_a_backend_drops_the_calls():
    seen = []

    def fn(x):
        with sdpa_kernel(SDPBackend.MATH):
            y = attention(x)
            note()
            y = attention(y)
        note()
        return y

    @torch.compiler.disable
    def note():
        seen.append(kernels())

    def without_calls(gm, inputs):
        for node in list(gm.graph.nodes):
            if getattr(node.target, "__name__", "").startswith("_set_sdp_"):
                gm.graph.erase_node(node)
        gm.recompile()
        return gm.forward

    burnish.reset()
    before = kernels()
    compiled = burnish.compile(fn, backend=without_calls)
    for _ in range(4):
        torch.testing.assert_close(compiled(Q), fn(Q))
        assert seen[:2] == seen[2:]
        seen.clear()
    assert kernels() == before


def test_kernels_are_chosen_as_at_the_start_where_the_choice_changes_later():
    def change(x):
        y = attention(x)
        torch.backends.cuda.enable_flash_sdp(True)
        return y

    def split(x):
        with sdpa_kernel(SDPBackend.MATH):
            y = x + 1
            torch._dynamo.graph_break()
            return attention(y)

    before = kernels()
    for fn, flash in ((change, False), (split, True)):
        burnish.reset()
        for compiled in (burnish.compile(fn, backend="aot_eager"), burnish.compile(fn, backend="eager")):
            for _ in range(3):
                torch._C._set_sdp_use_flash(flash)
                expected = fn(Q)
                torch._C._set_sdp_use_flash(flash)
                assert torch.equal(compiled(Q), expected)
                assert kernels() == before
    torch._C._set_sdp_use_flash(True)


def test_kernels_are_as_before_after_an_error():
    def fn(x, i):
        with sdpa_kernel(SDPBackend.MATH):
            return attention(x)[i]

    burnish.reset()
    before = kernels()
    compiled = burnish.compile(fn, backend=Graphs(), fullgraph=True)
    for at in (0, 0, 5):
        index = torch.tensor(at)
        if at == 5:
            with pytest.raises(IndexError):
                compiled(Q, index)
        else:
            torch.testing.assert_close(compiled(Q, index), fn(Q, index))
        assert kernels() == before


# ---- classes of tensors


def test_the_first_call_with_a_nested_tensor_makes_a_graph():
    parts = [torch.ones(2, 3), torch.ones(4, 3)]
    given = torch.nested.nested_tensor(parts, layout=torch.jagged)
    burnish.reset()
    backend = Graphs()
    compiled = burnish.compile(lambda x: x.sin() + 1, backend=backend, fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(given).values(), given.values().sin() + 1)
        assert len(backend.made) == 1


def test_a_rule_that_counts_and_breaks_makes_no_graph_in_the_first_call():
    class Counting(torch.Tensor):
        calls = 0

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            if function is torch.sin:
                Counting.calls += 1
                torch.compiler.disable(id)(args)
            return super().__torch_function__(function, types, args, kwargs or {})

    burnish.reset()
    compiled = burnish.compile(lambda x: torch.sin(x) * 2, backend=Graphs())
    for number in range(1, 5):
        torch.testing.assert_close(compiled(X.as_subclass(Counting)).as_subclass(torch.Tensor), X.sin() * 2)
        assert Counting.calls == number


# ---- settings of Dynamo


@pytest.mark.parametrize("name", ["capture_scalar_outputs", "capture_dynamic_output_shape_ops"])
def test_numbers_and_sizes_from_data_are_in_the_graph_where_dynamo_is_set_to(name):
    def of_number(x):
        n = x.sum().item()
        torch._check(n >= 0)
        return x * n, n + 1

    def of_size(x):
        found = x.nonzero()
        return found + 1, found.shape[0]

    fn = of_number if name == "capture_scalar_outputs" else of_size
    graphs = []
    for is_set in (True, False):
        burnish.reset()
        backend = Graphs()
        compiled = burnish.compile(fn, backend=backend)
        with torch._dynamo.config.patch({name: is_set}):
            for values in ([1, 0, 2], [0, 3, 4], [0, 0, 0]):
                torch.testing.assert_close(compiled(torch.tensor(values)), fn(torch.tensor(values)))
        graphs.append(len(backend.made))
    assert graphs[0] == 1 < graphs[1]


def ends_between(x):
    found = x[x > 0]
    n = found.shape[0]
    torch._dynamo.graph_break()
    return found * 2, found.shape[0], torch.ones(n), n * 2


def decides_by_size(x):
    found = x.nonzero()
    return found + 1 if found.shape[0] > 1 else found - 1


def repeats_by_size(x):
    found, text = x[x > 0], ""
    for i in range(found.shape[0]):
        found, text = found + i, f"{text}{i}"
    return found, int(f"1{text}"), [part * 2 for part in found.unbind()]


def writes_by_size(x):
    found, x = x[x > 0], x.clone()
    x[0] = found.size(0)
    values = found.tolist()
    x[1] = len(values)
    return x, values, len(str(found.shape))


@pytest.mark.parametrize("fn", [ends_between, decides_by_size, repeats_by_size, writes_by_size])
def test_a_size_from_data_outlasts_a_break(fn):
    compiled = burnish.compile(fn, backend=Graphs())
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        for values in ([1, 0, 2, 0], [1, 3, 2, 0], [0, 0, 2, 0], [0, 0, 0, 0], [1, 0, 2, 0]):
            torch.testing.assert_close(compiled(torch.tensor(values)), fn(torch.tensor(values)))


# ---- numbers given to a function that is compiled for all sizes


def scaled(x, number):
    return x * number, number + 1


def filled(x, number):
    return torch.full((2,), number) + x.sum()


def of_nested(x, given):
    return x * given[0] + given[1]["offset"]


class ScaledByNumber(torch.nn.Module):
    def forward(self, x, number=3):
        return x * number


@pytest.mark.parametrize("values", [(2, 3, 4, 5), (0.5, 1.5, 2.5, 3.5)])
@pytest.mark.parametrize("fn", [scaled, filled, of_nested, ScaledByNumber()])
def test_dynamic_takes_the_numbers_of_the_first_call_as_inputs(fn, values):
    burnish.reset()
    backend = Graphs()
    compiled = burnish.compile(fn, backend=backend, dynamic=True, fullgraph=True)
    for value in values:
        given = [value, {"offset": value}] if fn is of_nested else value
        torch.testing.assert_close(compiled(X, given), fn(X, given))
    assert len(backend.made) == 1


def test_dynamic_compiles_for_the_numbers_0_and_1_and_for_numbers_that_python_needs():
    def fn(x, number):
        for i in range(number):
            x = x + i
        return x, number

    burnish.reset()
    compiled = burnish.compile(fn, dynamic=True, backend=Graphs(), fullgraph=True)
    for number in (0, 1, 2, 3, True, 1, 2):
        torch.testing.assert_close(compiled(X, number), fn(X, number))
        assert type(compiled(X, number)[1]) is type(number)


def test_dynamic_does_not_take_the_numbers_of_a_module_as_inputs():
    linear = torch.nn.Linear(4, 4)
    burnish.reset()
    backend = Graphs()
    compiled = burnish.compile(linear, backend=backend, dynamic=True, fullgraph=True)
    torch.testing.assert_close(compiled(X), linear(X))
    assert not any("in_features" in str(node) for node in backend.made[0].graph.nodes)
    assert len([node for node in backend.made[0].graph.nodes if node.op == "placeholder"]) <= 4


@pytest.mark.parametrize("is_float", [False, True])
def test_a_break_is_where_a_compiler_does_not_take_a_number_that_dynamo_is_set_to_keep(is_float):
    programs = (
        lambda x: x * float(x[1].item()),
        lambda x: (x + 1, max(x.tolist())),
        lambda x: x * min(x[0].item(), x[1].item()),
        lambda x: x * max(number for number in (x[0].item(), x[1].item())),
        lambda x: x * math.sqrt(x[0].item()),
        lambda x: x * (x[0].item() % 2),
    )
    x = torch.tensor([3, 1, 2], dtype=torch.float32 if is_float else torch.int64)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        for fn in programs:
            torch.testing.assert_close(burnish.compile(fn, backend="aot_eager")(x), fn(x))
