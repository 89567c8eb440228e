"""Results of graphs that enter or leave inference mode are inference tensors where eager's are."""

import pytest
import torch

import burnish


def inside(x):
    with torch.inference_mode():
        return x * 2


def views(x):
    with torch.inference_mode():
        y = x * 2
        return y.view(-1), y


@torch.inference_mode()
def left_inside(x):
    with torch.inference_mode(False):
        trained = torch.ones(2) * 2
    return x.clone(), trained.is_inference()


TABLE = torch.arange(12.0).view(6, 2)


@torch.inference_mode()
def view_of_a_table(x):
    return x * TABLE[1:2] + TABLE.select(0, 2), TABLE[:1].is_inference(), (x * 2)[:1]


def kinds(found):
    return [
        value.is_inference()
        for value in (found if isinstance(found, tuple) else (found,))
        if isinstance(value, torch.Tensor)
    ]


@pytest.mark.parametrize("fn", [inside, views, left_inside, view_of_a_table])
@pytest.mark.parametrize("dynamic", [False, True])
def test_results_are_inference_tensors_where_eagers_are(fn, dynamic):
    compiled = burnish.compile(fn, dynamic=dynamic)
    for rows in (3, 3, 4, 5, 5):
        x = torch.randn(rows, 2)
        assert kinds(compiled(x)) == kinds(fn(x))
        torch.testing.assert_close(compiled(x), fn(x))
    assert burnish.was_compiled(compiled)


def test_results_made_outside_the_callers_inference_mode_are_not_inference_tensors():
    def outside(x):
        with torch.inference_mode(False):
            return torch.ones(3) * 2

    compiled = burnish.compile(outside)
    with torch.inference_mode():
        for _ in range(3):
            assert kinds(compiled(torch.ones(3))) == [False]
    assert burnish.was_compiled(compiled)


@pytest.mark.falls_back("refused")
def test_a_graph_with_results_of_both_kinds_runs_eagerly():
    def both(x):
        with torch.inference_mode():
            y = x * 2
        return y, x * 3

    compiled = burnish.compile(both)
    for _ in range(3):
        assert kinds(compiled(torch.ones(3))) == [True, False]
