"""Custom backends get symbolic sizes and numbers as from torch.compile: one compilation for many."""

import math
import types

import pytest
import torch
from torch._guards import TracingContext
from torch.nn import functional as F

import burnish
from burnish.errors import BackendError

from .recorded_events import recorded


def numbered(*shape):
    return torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape) / 7


class Backend:
    """Runs the graph, and records its inputs."""

    def __init__(self):
        self.given = []

    def __call__(self, gm, example_inputs):
        self.given.append([type(value).__name__ for value in example_inputs])
        return gm.forward


def check(fn, backend, calls, **options):
    compiled = burnish.compile(fn, backend=backend, **options)
    for args in (*calls, *calls):
        torch.testing.assert_close(compiled(*args), fn(*args), equal_nan=True)


def sizes(*numbers):
    return [(numbered(n, 4),) for n in numbers]


def stored(x, n):
    y = x.clone()
    y[1] = n
    return y


CALLS = {
    "sizes": (lambda x: x.sin() + 1, sizes(2, 3, 5, 9), 2),
    "size that is read": (lambda x: x.sin() * x.shape[0], sizes(2, 3, 5, 9), 2),
    "size that is branched on": (lambda x: x.sin() if x.shape[0] > 4 else x.cos(), sizes(2, 3, 5, 9), 3),
    "view": (lambda x: x.view(-1, 2).sin(), sizes(2, 3, 5, 9), 2),
    "two sizes": (lambda x: (x @ x.t()).sum(), [(numbered(n, n + 1),) for n in (2, 3, 5)], 2),
    "chunks": (lambda x: [part.sin() for part in x.chunk(2)], sizes(4, 6, 8, 9, 11), 2),
    "last chunk": (lambda x: x.chunk(4)[-1].sin(), sizes(8, 12, 16, 24), 2),
    "scaled image": (lambda x: F.interpolate(x[None], scale_factor=2).sin(), sizes(2, 3, 5, 9), 2),
    "attention": (
        lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
        [(numbered(1, 2, n, 4),) for n in (3, 4, 6)],
        2,
    ),
    "whole number": (lambda x, n: x * n, [(numbered(4), n) for n in (1, 2, -3, 0, 1 << 40)], 2),
    "float": (lambda x, f: x * f, [(numbered(4), f) for f in (1.5, 2.5, -3.0, 0.0)], 2),
    "shift": (lambda x, n: x.roll(n, 0) + x.triu(n), [(numbered(4, 4), n) for n in (1, 2, -3, 9)], 2),
    "step of a slice": (lambda x, n: x[::n] + 1, [(numbered(9), n) for n in (2, 3, 4, 5)], 2),
    "order of a norm": (lambda x, p: x.norm(p), [(numbered(4), p) for p in (1.5, 2.5, 3.0, 0.5)], 2),
    "assigned number": (stored, [(numbered(4), n) for n in (1.5, 2.5, -3.0, 0.0)], 2),
    "resized image": (lambda x, n: F.interpolate(x, size=(n, n)), [(numbered(1, 1, 4, 4), n) for n in (8, 4, 3, 9)], 2),
    "padding": (lambda x, n: F.conv1d(x, x, padding=n), [(numbered(2, 2, 4), n) for n in (2, 3, 4, 9)], 2),
    "random": (lambda x, n: torch.randint(3, n, (4,)).clamp(max=1) * x, [(numbered(4), n) for n in (4, 5, 6, 9)], 2),
    "counter": (lambda x, n, f: x * (n + f) + n, [(numbered(4), n, n / 4) for n in (1, 2, 3, 4)], 2),
}


@pytest.mark.parametrize("name", CALLS)
def test_sizes_and_numbers_that_change_compile_once_more(name):
    fn, calls, most = CALLS[name]
    backend = Backend()
    check(fn, backend, calls)
    assert len(backend.given) == most
    check(fn, "aot_eager", calls)


@pytest.mark.parametrize("options", ({"dynamic": True}, {"dynamic": False}, {}), ids=("all", "none", "changed"))
def test_size_arguments_of_compile_hold_for_custom_backends(options):
    backend = Backend()
    check(lambda x: x.sin() + 1, backend, sizes(2, 3, 5), **options)
    assert len(backend.given) == {True: 1, False: 3, None: 2}[options.get("dynamic")]


def test_infinite_and_missing_floats_are_constants():
    backend = Backend()
    check(lambda x, f: x * f, backend, [(numbered(4), f) for f in (1.5, 2.5, math.inf, math.nan, 3.5)])
    assert [given[1:] for given in backend.given] == [[], ["SymFloat"], ["float"], ["float"]]


def test_symbols_are_inputs_before_the_others_and_known_to_the_tracing_context():
    seen = []

    def backend(gm, example_inputs):
        nodes = gm.graph.find_nodes(op="placeholder")
        assert len(nodes) == len(example_inputs)
        context = TracingContext.try_get()
        if context is not None:
            seen.append([tuple(map(str, getattr(node.meta["example_value"], "shape", ("number",)))) for node in nodes])
            assert all(
                value.fake_mode is context.fake_mode
                for node in nodes
                if isinstance(value := node.meta["example_value"], torch.Tensor)
            )
        return gm.forward

    check(lambda x, n: x * n, backend, [(numbered(k, 4), k) for k in (2, 3, 5)])
    ((size, tensor, number),) = seen
    assert size == number == ("number",) and tensor[1] == "4" and tensor[0].startswith("s")


def test_a_backends_questions_about_a_size_are_conditions_of_its_code():
    asked = []

    def backend(gm, example_inputs):
        size = next((value for value in example_inputs if isinstance(value, torch.SymInt)), None)
        is_large = size is not None and bool(size > 4)
        asked.append(is_large)
        return gm.forward

    check(lambda x: x.sin(), backend, sizes(2, 3, 4, 5, 9, 3))
    assert asked == [False, False, True]


def test_backend_that_takes_no_symbols_gets_constants():
    given = []

    def backend(gm, example_inputs):
        if any(isinstance(value, torch.SymInt) for value in example_inputs):
            raise ValueError("no symbols here")
        given.append(tuple(example_inputs[0].shape))
        return gm.forward

    with recorded("backend.constants", datum="text") as texts:
        check(lambda x: x.sin(), backend, sizes(2, 3, 4))
    assert given == [(2, 4), (3, 4), (4, 4), (2, 4)] and len(texts) == 1 and "no symbols here" in texts[0]


def test_backend_that_fails_for_constants_too_is_an_error():
    def backend(gm, example_inputs):
        if example_inputs[0] is not first:
            raise ValueError("no more")
        return gm.forward

    first = numbered(2, 4)
    compiled = burnish.compile(lambda x: x.sin(), backend=backend)
    compiled(first)
    with pytest.raises(BackendError, match="no more"):
        compiled(numbered(3, 4))


def test_nodes_show_their_line_of_source():
    seen = []

    def backend(gm, example_inputs):
        seen.append(gm.print_readable(print_output=False))
        return gm.forward

    burnish.compile(lambda x: torch.sin(x), backend=backend)(numbered(2))
    assert "code: burnish.compile(lambda x: torch.sin(x), backend=backend)(numbered(2))" in seen[0]


def test_gradients_flow_through_symbolic_sizes():
    for backend in (Backend(), "aot_eager"):
        compiled = burnish.compile(lambda x: (x.sin() * x.shape[0]).sum(), backend=backend)
        for n in (2, 3, 5, 8):
            x = numbered(n, 4).requires_grad_()
            compiled(x).backward()
            torch.testing.assert_close(x.grad, x.detach().cos() * n)


def test_backend_that_keeps_a_number_gets_the_next_one():
    """Its code computes with the symbol itself, which then stands for the number of its example."""
    kept = []

    def backend(gm, example_inputs):
        kept.append(example_inputs)
        return lambda *inputs: gm.forward(*inputs[:-1], example_inputs[-1]) if len(inputs) > 1 else gm.forward(*inputs)

    compiled = burnish.compile(lambda x, n: x * n, backend=backend)
    for n in (1, 2, 2, 3, 4, 3, 2):
        assert torch.equal(compiled(torch.ones(3), n), torch.full((3,), float(n)))


SIZES_THAT_MAY_NOT_FIT = {
    "select": lambda x, i: x.select(1, i),
    "narrow": lambda x, i: x.narrow(1, 1, i),
    "reflect": lambda x, i: F.pad(x, (i, i), "reflect"),
    "topk": lambda x, i: x.topk(i)[0],
    "kthvalue": lambda x, i: x.kthvalue(i)[0],
    "written": lambda x, i: x.add_(1).select(1, i),
}


@pytest.mark.parametrize("name", SIZES_THAT_MAY_NOT_FIT)
def test_number_that_does_not_fit_raises_the_error_of_the_program(name):
    fn = SIZES_THAT_MAY_NOT_FIT[name]
    compiled = burnish.compile(fn, backend="aot_eager")
    for i in (1, 1, 2, 3, 7, 1, 9, 2):
        x, expected = numbered(5, 4), numbered(5, 4)
        try:
            result = fn(expected, i)
        except (IndexError, RuntimeError) as error:
            with pytest.raises(type(error)) as caught:
                compiled(x, i)
            assert str(caught.value) == str(error)
        else:
            assert torch.equal(compiled(x, i), result)
        assert torch.equal(x, expected)


def test_error_that_only_the_backend_has_changes_no_input():
    def backend(gm, example_inputs):
        if 3 in example_inputs[1:]:
            raise ValueError("no more")
        return gm.forward

    compiled = burnish.compile(lambda x, n: x.add_(n).sin(), backend=backend)
    x = torch.zeros(3)
    compiled(x, 1)
    compiled(x, 2)
    with pytest.raises(BackendError, match="no more"):
        compiled(x, 3)
    assert torch.equal(x, torch.full((3,), 3.0))


def test_backward_of_symbolic_code_may_keep_the_graph():
    compiled = burnish.compile(lambda x, i: x.topk(i)[0].sum(-1) / i, backend="aot_eager")
    for i in (1, 2, 3, 4, 2):
        x = numbered(5, 4).requires_grad_()
        result = compiled(x, i).sum()
        result.backward(retain_graph=True)
        result.backward()
        expected = torch.autograd.grad((x.topk(i)[0].sum(-1) / i).sum(), x)[0]
        torch.testing.assert_close(x.grad, 2 * expected)


def keeps_in_method(gm, kept):
    gm.run = types.MethodType(lambda gm, *inputs: gm.forward(*kept(inputs)), gm)
    return gm.run


def keeps_in_hook(gm, kept):
    gm.register_forward_pre_hook(lambda gm, inputs: kept(inputs))
    return gm


def keeps_in_forward(gm, kept):
    forward = gm.forward
    gm.forward = lambda *inputs: forward(*kept(inputs))
    return gm


@pytest.mark.parametrize("keeps", [keeps_in_method, keeps_in_hook, keeps_in_forward])
def test_graph_that_the_backend_has_changed_may_keep_a_number(keeps):
    def backend(gm, example_inputs):
        hints = [each.node.hint if isinstance(each, torch.SymInt) else None for each in example_inputs]
        return keeps(gm, lambda inputs: tuple(v if k is None else k for k, v in zip(hints, inputs, strict=True)))

    compiled = burnish.compile(lambda x, n: x * n, backend=backend)
    for n in (2, 3, 4, 5, 6):
        assert torch.equal(compiled(torch.ones(3), n), torch.full((3,), float(n)))
