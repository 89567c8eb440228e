"""Exceptions raised by tensor operators: caught inside, passed on, replaced, and the state afterwards."""

import contextlib
import operator

import pytest
import torch
from torch import nn

import burnish

from .harness import program


@program
def test_error_leaves_the_function_every_other_call():
    def fn(x, y):
        return (x @ y).relu()

    return fn, [(torch.randn(2, 3), torch.randn(n, 2)) for n in (3, 2, 3, 4)]


@program
def test_error_inside_a_loop_skips_one_element():
    def fn(tensors, w):
        done, failed = [], 0
        for t in tensors:
            try:
                done.append(t @ w)
            except RuntimeError:
                failed += 1
        return done, failed

    return fn, [([torch.randn(n) for n in ns], torch.randn(2)) for ns in ((2, 3, 2), (3, 3), (2, 2), (2, 3, 2))]


@program
def test_finally_runs_after_a_failed_operator():
    log = []

    def fn(x, y):
        log.append("in")
        try:
            x.add_(1)
            return x + y
        finally:
            log.append(x.sum())
            x.mul_(2)

    return fn, [(torch.ones(2), torch.ones(n)) for n in (2, 3, 1, 3)], log


@program
def test_error_is_replaced_by_another():
    def fn(x, y):
        try:
            return torch.cat([x, y])
        except RuntimeError as error:
            raise ValueError(f"shapes {tuple(x.shape)} and {tuple(y.shape)}") from error

    return fn, [(torch.randn(1, 2), torch.randn(1, n)) for n in (2, 3, 2, 3)]


@program
def test_error_of_a_submodule_is_caught_by_its_parent():
    class Careful(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.fallback = nn.Linear(3, 2), nn.Linear(2, 2)

        def forward(self, x):
            try:
                return self.inner(x)
            except RuntimeError:
                return self.fallback(x)

    return Careful(), [(torch.randn(1, n),) for n in (3, 2, 3, 2)]


@program
def test_python_error_with_a_tensor_in_its_message():
    def fn(x, limit):
        if x.shape[0] > limit:
            raise ValueError(f"too long: {x.tolist()}")
        return x * limit

    return fn, [(torch.ones(n), 2) for n in (1, 3, 2, 4)]


@program
def test_error_carries_a_tensor():
    class Found(Exception):
        def __init__(self, value):
            super().__init__("found")
            self.value = value

    def search(x):
        for i, row in enumerate(x):
            if row.sum() > 2:
                raise Found(row * i)
        return x

    def fn(x):
        try:
            return "nothing", search(x)
        except Found as found:
            return "found", found.value

    rows = ([1.0, 1.0, 2.0, 2.0], [0.0] * 4, [3.0, 1.0, 0.0, 0.0], [0.0, 1.0, 2.0, 3.0])
    return fn, [(torch.tensor(v).view(2, 2),) for v in rows]


@program
def test_suppressed_error_goes_on_after_the_block():
    def fn(x, y):
        z = x * 0
        with contextlib.suppress(RuntimeError):
            z = z + 1
            z = z + x @ y
        return z + 10

    return fn, [(torch.ones(2), torch.ones(n)) for n in (2, 3, 2, 3)]


@program
def test_error_in_the_handler_shows_the_second():
    def fn(x, y):
        try:
            return x @ y
        except RuntimeError:
            return x.view(7)

    return fn, [
        (torch.ones(2), torch.ones(2)),
        (torch.ones(2), torch.ones(3)),
        (torch.ones(7), torch.ones(3)),
        (torch.ones(3), torch.ones(2)),
    ]


@program
def test_type_and_attribute_errors_of_tensors():
    def fn(x, kind):
        try:
            if kind == "type":
                return torch.sin("text")
            if kind == "attribute":
                return x.no_such_thing
            if kind == "keyword":
                return x.sum(dimension=0)
            return x.sum()
        except (TypeError, AttributeError) as error:
            return type(error).__name__, str(error).split("\n")[0][:60]

    return fn, [(torch.randn(2), k) for k in ("none", "type", "attribute", "keyword", "none", "type")]


@program
def test_error_after_a_break_sees_the_mutations_before():
    def fn(x, y):
        x.add_(1)
        n = x.sum().item()
        x.mul_(n)
        return x + y, n

    return fn, [(torch.ones(2), torch.ones(n)) for n in (2, 3, 2, 3)]


@program
def test_retry_with_a_smaller_size():
    def fn(x):
        n = x.shape[0]
        while True:
            try:
                return x.view(n, -1), n
            except RuntimeError:
                n -= 1

    return fn, [(torch.randn(*s),) for s in ((4, 2), (3, 3), (2, 2))] + [(torch.randn(3, 2).t(),)]


@program
def test_stop_iteration_over_parameters():
    empty, full = nn.ReLU(), nn.Linear(2, 2)

    def fn(x, which):
        module = full if which else empty
        try:
            dtype = next(module.parameters()).dtype
        except StopIteration:
            dtype = torch.float64
        return module(x.to(dtype)), next(iter(module.buffers()), None)

    return fn, [(torch.randn(1, 2), w) for w in (True, False, True, False)]


@program
def test_error_of_an_operator_that_writes_meets_the_programs_handlers():
    log = []

    class Logged:
        def __enter__(self):
            log.append("in")

        def __exit__(self, *error):
            log.append(error[0] and error[0].__name__)

    def fn(x, i):
        with torch.no_grad(), Logged():
            try:
                n = x.sum().item()
                x.add_(n)
                return x[i] * n
            except IndexError:
                log.append("caught")
                raise

    return fn, [(torch.ones(3), torch.tensor([k])) for k in (1, 0, 7, 2, 7)], log


def test_error_of_a_backend_leaves_torchs_switches_as_they_were():
    def careful(gm, example_inputs):
        if any(node.target == "add_" for node in gm.graph.nodes):
            raise ValueError("not this one")
        return gm.forward

    def fn(x):
        with torch.no_grad():
            n = x.sum().item()
            x.add_(n)
            return x * n

    compiled = burnish.compile(fn, backend=careful)
    for _ in range(3):
        with pytest.raises(burnish.BackendError):
            compiled(torch.ones(3))
        assert torch.is_grad_enabled()


@program
def test_message_about_operands_names_the_type_of_a_number():
    def fn(x, scale):
        try:
            return scale @ x, ""
        except TypeError as error:
            return x * scale, str(error)

    return fn, [(torch.ones(2), s) for s in (2.5, 3.5, 4.5)]


@program(breaks=0)
def test_errors_about_shapes_are_handled_in_the_graph():
    def fn(x, index):
        seen = []
        for attempt in (
            lambda: x @ x,
            lambda: x.view(5),
            lambda: torch.cat([x, x[0]]),
            lambda: x[index],
            lambda: x + 1,
        ):
            try:
                seen.append(attempt())
            except (RuntimeError, IndexError) as error:
                seen.append(f"{type(error).__name__}: {error}")
        return seen

    return fn, [(torch.randn(n, 4), i) for n, i in ((3, 0), (3, 5), (4, 1), (3, 7))]


@program
def test_errors_about_data_are_handled_by_plain_python():
    def fn(x, index):
        try:
            return x[index]
        except IndexError:
            return x * 2

    return fn, [(torch.randn(3), torch.tensor([i])) for i in (1, 5, 2, 5)]


CALLS = {
    "index": lambda x, i: x[0, i],
    "slices": lambda x, i: x[0:2, 1:2][None, :, i],
    "store": lambda x, i: operator.setitem(x, (0, i), 1),
    "shape": lambda x, i: x.view((i, -1)),
    "list": lambda x, i: x.reshape([i, -1]),
    "keyword": lambda x, i: x.sum(dim=(0, i)),
    "no tensor": lambda x, i: x + torch.ones((i, 4)),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dynamic", [True, None])
def test_an_error_of_a_nested_number_is_that_of_this_call(name, dynamic):
    call = CALLS[name]

    def fn(x, i):
        i = i + 0
        burnish.graph_break()
        try:
            return call(x, i)
        except (IndexError, RuntimeError) as error:
            return str(error)

    compiled = burnish.compile(fn, dynamic=dynamic, backend="eager")
    for i in (5, 5, 6, 3, 1, 0, 7):
        expected, found = (run(torch.arange(16.0).view(4, 4), i) for run in (fn, compiled))
        assert type(found) is type(expected)
        if isinstance(expected, torch.Tensor):
            torch.testing.assert_close(found, expected)
        else:
            assert found == expected
