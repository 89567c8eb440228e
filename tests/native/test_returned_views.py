"""Several views of one tensor returned by a compiled function: they share memory, writes and gradients, as in eager."""

import pytest
import torch
from torch import nn

import burnish

from .compare_training import alike


def parts(model, x):
    return model(x).sin().chunk(2)


def whole_and_parts(model, x):
    y = model(x).sin()
    return y, y[:2], y.t(), y.detach()


def heads(model, x):
    q, k, v = model(x)[:, :6].reshape(-1, 3, 2).unbind(1)
    return q, k, v, (q * k).sum()


def of_a_product(model, x):
    y = model(x).t()
    return y[0], y[1:], x.cos()


def of_two(model, x):
    y, z = model(x), x * 2
    return y[1:], z.view(-1), y[:1], z


def beside_an_input(model, x):
    y = model(x)
    return x[:2], y[:2], y[2:], x


PROGRAMS = [parts, whole_and_parts, heads, of_a_product, of_two, beside_an_input]


def facts(outputs):
    first = outputs[0].untyped_storage().data_ptr()
    return [
        (
            out.stride(),
            out.storage_offset(),
            out.requires_grad,
            out._is_view(),
            out.untyped_storage().data_ptr() == first,
        )
        for out in outputs
    ]


def world(program, use):
    def build(compiler):
        model = nn.Linear(8, 8)
        run = compiler(lambda x: program(model, x))

        def step(x):
            model.zero_grad()
            outputs = run(x)
            seen = facts(outputs)
            use(list(outputs)).backward()
            return seen, [out.detach().clone() for out in outputs], x.grad

        return step, (model,)

    return build


def weighed(outputs):
    return sum((out * (k + 1)).square().sum() for k, out in enumerate(outputs) if out.requires_grad)


def first_alone(outputs):
    return outputs[0].square().sum()


@pytest.mark.parametrize("use", [weighed, first_alone], ids=["all", "one"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_views_are_returned_with_their_gradients(program, use):
    seen = alike(world(program, use), lambda i: (torch.randn(4, 8, requires_grad=True),), steps=3)
    assert (seen.breaks, seen.refused, seen.segments) == ([], [], 1)


def test_a_write_to_one_is_seen_by_the_others_and_their_gradients():
    def write(outputs):
        y, part, turned, _ = outputs
        part.mul_(3)
        turned.add_(part.sum())
        return weighed((y, part, turned))

    seen = alike(world(whole_and_parts, write), lambda i: (torch.randn(4, 8, requires_grad=True),), steps=3)
    assert seen.refused == []


def one_of_several(model, x):
    return model(x).split(2)[0]


def row_of_one(model, x):
    return model(x).unbind(0)[1][2:], model(x).sum()


def one_of_an_input(model, x):
    return x.cos().sum(), x.split(2)[1]


@pytest.mark.parametrize("program", [parts, heads, one_of_several, row_of_one, one_of_an_input])
def test_views_from_a_function_that_returns_several_cannot_be_written_to(program):
    model, calls = nn.Linear(8, 8), []
    compiled = burnish.compile(lambda x: program(model, x))
    for _ in range(3):
        x = torch.randn(4, 8, requires_grad=True) * 1
        for run in (lambda x: program(model, x), compiled):
            (view,) = [out for out in (run(x) if program is not one_of_several else [run(x)]) if out.dim()][:1]
            with pytest.raises(RuntimeError, match="of a function that returns multiple views"):
                view.mul_(2)
            (gradient,) = torch.autograd.grad(view.sum(), x, allow_unused=True)
            calls.append(gradient)
        torch.testing.assert_close(calls[-1], calls[-2])
        with torch.no_grad():
            torch.testing.assert_close(*[run(x.detach()) for run in (lambda x: program(model, x), compiled)])
    assert burnish.was_compiled(compiled)


@pytest.mark.falls_back("refused")
def test_view_of_several_whose_base_was_written_to_is_refused_without_a_warning(recwarn):
    def fn(x):
        y = x * 2
        first = y.unbind(0)[0]
        y.add_(1)
        return first * 2

    compiled = burnish.compile(fn)
    for _ in range(3):
        for run in (fn, compiled):
            with pytest.raises(RuntimeError, match="its base or another view of its base has been modified inplace"):
                run(torch.ones(2, 3, requires_grad=True))
    assert not recwarn


def test_gradients_of_gradients_go_through_them():
    def build(compiler):
        model = nn.Linear(8, 8)
        run = compiler(lambda x: parts(model, x))

        def step(x):
            model.zero_grad()
            a, b = run(x)
            (gradient,) = torch.autograd.grad((a * 2).square().sum() + b.sum(), x, create_graph=True)
            gradient.square().sum().backward()
            return x.grad

        return step, (model,)

    seen = alike(build, lambda i: (torch.randn(4, 8, requires_grad=True),), steps=3)
    assert seen.refused == []


def test_views_of_symbolic_sizes():
    sizes = [4, 6, 9, 12, 5]
    seen = alike(world(parts, weighed), lambda i: (torch.randn(sizes[i], 8, requires_grad=True),), steps=5)
    assert seen.refused == []


def test_a_products_result_is_made_in_its_shape():
    """A product of three dimensions is one of two: its result is not a view of it. (The first call may be eager's.)"""
    block = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)).eval()
    compiled = burnish.compile(block, fullgraph=True)
    with torch.no_grad():
        x = torch.randn(1, 32, 64)
        want = block(x)
        results = [compiled(x) for _ in range(3)]
    for got in results:
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
    assert not any(got._is_view() for got in results[1:])


@pytest.mark.falls_back("refused")
@pytest.mark.parametrize(
    "made", [lambda: torch.ones(1, 4).expand(3, 4), lambda: torch.ones(6).as_strided((3, 4), (1, 1))]
)
def test_views_of_an_input_that_overlaps_itself(made):
    """Autograd's formula for `as_strided`, which makes other views, gives all elements at an address one gradient."""

    def fn(x):
        return x[1:], x * 2

    compiled = burnish.compile(fn)
    for _ in range(3):
        x = made().requires_grad_()
        view, _ = compiled(x)
        (gradient,) = torch.autograd.grad((view * torch.arange(8.0).view(2, 4)).sum(), x)
        assert torch.equal(gradient, torch.cat([torch.zeros(1, 4), torch.arange(8.0).view(2, 4)]))


EMPTY = {
    "slice": lambda x: x[2:2],
    "behind the end": lambda x: x[:, 7:],
    "slice of nothing": lambda x: x[2:2][:, 1:],
    "select": lambda x: x[3:3].select(1, 2),
    "permuted": lambda x: x.t()[2:2],
    "diagonal": lambda x: x.diagonal(9),
    "split": lambda x: x.split([2, 0, 3])[1],
}


@pytest.mark.parametrize("name", EMPTY)
def test_views_without_elements_begin_where_eagers_do(name):
    def fn(x):
        y = x * 2
        return EMPTY[name](x), EMPTY[name](y), y

    compiled = burnish.compile(fn, options={"never_slower": False})
    x = torch.arange(20.0).view(5, 4)
    for _ in range(3):
        for a, b in zip(compiled(x), fn(x), strict=True):
            assert (a.storage_offset(), a.stride()) == (b.storage_offset(), b.stride())
            torch.testing.assert_close(a, b)
