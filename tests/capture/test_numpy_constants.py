"""NumPy functions and numbers on constants cause no break; on other values the break remains."""

import warnings

import numpy as np
import pytest
import torch

import burnish

from .caller_programs import program_with_caller
from .harness import program

ROOT = np.float32(2.0)


@program(breaks=0)
def test_functions_of_sizes():
    def fn(x):
        scaled = x / np.sqrt(x.shape[-1])
        flat = x.reshape(np.prod(x.shape))
        return scaled, flat * np.log(x.dim()), flat.view(np.int64(-1)), x.sum(np.int64(0)), type(np.sqrt(4)).__name__

    return fn, [(torch.randn(2, n),) for n in (3, 3, 5, 3)]


@program(breaks=0)
def test_limits_and_dtypes():
    def fn(x):
        lowest = np.finfo(np.float32).min
        most = np.iinfo(np.int32).max
        kind = np.dtype("float64")
        return x.masked_fill(x > 0, lowest), x * 0 + most, kind.name, kind == np.float64, np.result_type(np.int8, kind)

    return fn, lambda i: (torch.randn(3),)


@program(breaks=0)
def test_arithmetic_of_numbers():
    def fn(x):
        a, b = np.int64(7), np.float32(0.5)
        total = a // 2 + a % 4 - b
        y = x * total + b**2
        if total > 3 and not np.bool_(False):
            y = y + 1
        return y, total, -b, a == 7, int(a), float(b), f"{abs(-b)}", str(a), np.round(2.5), b.item(), a.real, max(a, b)

    return fn, lambda i: (torch.randn(3),)


@program(breaks=0)
def test_types_of_results_are_those_of_eager():
    def fn(x, n):
        return (
            x * np.float32(2),
            x + np.int64(3),
            np.float64(2) * n,
            n + np.int8(1),
            x[np.int64(0)],
            torch.zeros(np.int64(2), dtype=n.dtype),
            torch.clamp(n, max=np.int64(2)),
            np.float16(2) - x,
        )

    return fn, [
        (torch.randn(3).to(kind), torch.arange(3, dtype=other))
        for kind, other in ((torch.float32, torch.int32), (torch.float16, torch.int64), (torch.float64, torch.uint8))
    ]


@program
def test_tensors_made_of_numbers_have_their_types():
    def fn(x):
        return (
            torch.tensor(np.float64(2)),
            torch.tensor([np.float32(1), 2.0]),
            torch.as_tensor(np.int8(3)),
            x.new_tensor(np.float16(1)),
            torch.full((2,), np.float32(1)),
            x * np.bool_(True),
            x * np.complex64(2j),
        )

    return fn, lambda i: (torch.randn(3),)


@program_with_caller
def test_a_global_number_is_read_again():
    def fn(x):
        return x * ROOT + np.sqrt(ROOT)

    def caller(fn, x, value):
        global ROOT
        ROOT = value
        return fn(x)

    return fn, caller, [(torch.ones(2), np.float32(v)) for v in (2, 2, 3, 2, -0.0, 0.0, -0.0)]


@program
def test_numbers_that_change_in_an_attribute():
    class State:
        value = np.float64(0)

    state = State()

    def fn(x):
        state.value = state.value + 1.5
        return x * float(state.value), state.value

    return fn, lambda i: (torch.ones(2),)


@program
def test_the_sign_of_a_zero():
    class State:
        value = None

    state = State()

    def fn(x, which):
        state.value = (np.float64(0.0), np.float64(-0.0), np.float64("nan"))[which]
        return read(x)

    def read(x):
        return x / state.value

    return fn, [(torch.ones(2), w) for w in (0, 1, 0, 2, 1, 2)]


@program
def test_numbers_out_of_data_are_no_constants():
    def fn(x):
        total = x.numpy().sum()
        y = x * 2
        return y * float(total), total + 1, total > 0, bool(total > 2), total.real, np.sqrt(abs(total)), f"{total}"

    return fn, [(torch.full((3,), v),) for v in (1.0, 1.0, -2.0, 3.0)]


@program
def test_arguments_that_are_numbers_of_numpys():
    def fn(x, a):
        return x * float(a), a * 2, np.sqrt(a), -a

    return fn, [(torch.ones(2), np.float32(v)) for v in (1, 2, 3, 4)]


def test_calls_that_warn_run_in_plain_python():
    def fn(x, n):
        return x + np.log(n - n) * 0, np.float32(1e38) * 1000

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            compiled(torch.ones(2), 3)
        assert [w.category for w in seen if not str(w.message).startswith("burnish")] == [RuntimeWarning] * 3


def test_numbers_that_change_do_not_compile_for_ever():
    def fn(x, a):
        y = x * 2
        return y * float(a) + np.sqrt(a).item()

    compiled = burnish.compile(fn, backend="eager")
    for k in range(12):
        torch.testing.assert_close(compiled(torch.ones(2), np.float64(k)), torch.full((2,), 2.0 * k + k**0.5))
    program = compiled.__burnish_program__
    assert sum(len(point.segments) for point in (program.entry, *program.continuations.values())) < 8


@pytest.mark.parametrize(
    "use",
    [
        lambda x, k: x * {1: 10.0, 2: 20.0, 3: 30.0}[k],
        lambda x, k: x * [1.0, 2.0, 3.0, 4.0, 5.0][k],
        lambda x, k: x * (k in (1, 2)),
        lambda x, k: [1, 2, 3, 4][:k],
        lambda x, k: [1, 2, 3].index(k),
        lambda x, k: (1, k) in [(1, 2)],
        lambda x, k: {k: x},
        lambda x, k: x + 1 if k < 2 else x - 1,
        lambda x, k: x * float(k),
        lambda x, k: (k, [k, 1].count(1)),
        lambda x, k: f"{k}",
        lambda x, k: x * k,
    ],
    ids=range(12),
)
@pytest.mark.parametrize("is_argument", [True, False], ids=["argument", "attribute"])
def test_numbers_that_change_are_read_on_every_call(use, is_argument):
    class State:
        k = None

    def fn(x, k):
        return use(x, k) if is_argument else use(x, State.k)

    compiled = burnish.compile(fn, backend="eager")
    for value in (2, 2, 3, 1, 2, 1):
        State.k = np.int64(value)
        x = torch.arange(3.0)
        want, got = fn(x, State.k), compiled(x, State.k if is_argument else 0)
        assert type(want) is type(got)
        torch.testing.assert_close(torch.as_tensor(got), torch.as_tensor(want)) if isinstance(
            want, torch.Tensor
        ) else None
        assert isinstance(want, torch.Tensor) or repr(want) == repr(got)


@program
def test_texts_of_numbers_that_are_arguments():
    def fn(x, a, b):
        return x + 1, f"{a:.2f}", f"{b:03d}", f"{a}", format(b, "x")

    return fn, [(torch.ones(2), np.float32(v), np.int64(v)) for v in (1, 2, 3, 2)]


@program(breaks=0)
def test_numpy_numbers_that_change_are_inputs_of_the_graph():
    """As Python numbers, which is what torch makes of them."""

    def fn(x, number):
        return x * number, x.long() + number, torch.where(x > 0, x, number)

    numbers = [np.float64(0.5), np.float64(1.5), np.float64("nan"), np.float64(-0.0), np.float32(0.1), np.float32(0.2)]
    return fn, [(torch.ones(3), number) for number in [*numbers, *map(np.int64, range(4)), 2, np.uint8(200)]]


SCALARS = [np.float32(0.1), np.float64(0.1), np.int16(3)]


@program(breaks=0)
def test_tensors_of_numpy_scalars_have_their_dtypes():
    def fn(x):
        made = [torch.tensor(number) for number in SCALARS] + [torch.as_tensor(number) for number in SCALARS]
        made += [torch.asarray(SCALARS[0]), torch.tensor([[SCALARS[2], 3], [4, 5]]), torch.tensor([SCALARS[0], 2.5])]
        made += [x.new_tensor(SCALARS[1]), torch.scalar_tensor(SCALARS[1])]
        return x + made[0], *made, torch.tensor(SCALARS[1], dtype=torch.float16)

    return fn, lambda i: (torch.randn(3),)


def test_a_tensor_of_a_numpy_scalar_that_changes_has_its_value():
    compiled = burnish.compile(lambda x, number: x * torch.tensor(number))
    for number in (np.float32(1.5), np.float32(2.5), np.float64(2.5), np.float32(3.5)):
        torch.testing.assert_close(
            compiled(torch.ones(2), number), torch.ones(2) * torch.tensor(number), rtol=0, atol=0
        )
