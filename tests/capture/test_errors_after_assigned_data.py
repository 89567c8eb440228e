"""An error behind ``tensor.data = value`` leaves what was written before, once."""

import pytest
import torch

import burnish


def asserted(a, m, q):
    a.data = m
    a.add_(1)
    torch._assert_async(q[0, 0] > 0)
    return a * 2


def factored(a, m, q):
    a.data = m
    a.add_(1)
    return torch.linalg.cholesky(q) * 2


def gathered(a, m, q):
    a.data = m
    a.add_(1)
    return torch.ops.aten.gather.default(a, 0, 1 - q.long())


def selected_behind_a_write(a, m, q):
    torch.ops.aten.add_.Tensor(a, 1)
    return torch.ops.aten.index.Tensor(a, [1 - q[0].long()])


def before(a, m, q):
    m.add_(1)
    a.data = m
    found = torch.linalg.cholesky(q)
    a.add_(1)
    return found


def behind(a, m, q):
    found = torch.linalg.cholesky(q)
    a.data = m
    a.add_(1)
    return found


@pytest.mark.parametrize("backend", ["eager", "burnish"])
@pytest.mark.parametrize("fn", [asserted, factored, gathered, before, behind])
def test_an_error_leaves_the_writes_before_it(fn, backend):
    check(fn, backend)


def test_an_error_of_an_operator_leaves_the_writes_before_it():
    check(selected_behind_a_write, "aot_eager")


def check(fn, backend):
    compiled = burnish.compile(fn, backend=backend)
    for sign in (1, 1, 1, -1, 1):
        found = []
        for function in (fn, compiled):
            a, m = torch.zeros(2, 2), torch.ones(2, 2)
            try:
                result = function(a, m, torch.eye(2) * sign).tolist()
            except (RuntimeError, IndexError):
                result = None
            found.append((result, a.tolist(), m.tolist(), a.data_ptr() == m.data_ptr()))
        assert found[0] == found[1]
