"""The out= argument: where the result goes, what it returns and what it resizes."""

import torch

from .caller_programs import program_with_caller
from .harness import program


@program(breaks=0)
def test_result_goes_into_an_argument():
    def fn(x, y, out):
        r = torch.add(x, y, out=out)
        return r * 2, r is out

    return fn, lambda i: (torch.randn(3), torch.randn(3), torch.zeros(3))


@program(breaks=0)
def test_out_is_one_of_the_inputs():
    def fn(x, y):
        torch.mul(x, y, out=x)
        torch.add(x, x, out=y)
        return x - y

    return fn, lambda i: (torch.randn(3), torch.randn(3))


@program(breaks=0)
def test_rows_of_a_buffer_are_filled():
    def fn(x):
        buffer = torch.zeros(3, 4)
        for i in range(3):
            torch.sin(x * i, out=buffer[i])
        return buffer

    return fn, lambda i: (torch.randn(4),)


@program
def test_buffer_of_the_closure_is_used_again():
    buffer = torch.zeros(2, 2)

    def fn(x, y):
        return torch.mm(x, y, out=buffer), buffer.sum()

    return fn, lambda i: (torch.randn(2, 2), torch.randn(2, 2)), buffer


@program_with_caller
def test_results_in_one_buffer_overwrite_each_other():
    buffer, held = torch.zeros(2), []

    def fn(x):
        return torch.exp(x, out=buffer)

    def caller(fn, x):
        held.append(fn(x))
        return [h.clone() for h in held], held[0] is held[-1]

    return fn, caller, lambda i: (torch.randn(2),)


@program
def test_two_results_into_a_pair():
    def fn(x, values, indices):
        found = torch.max(x, dim=1, out=(values, indices))
        torch.sort(x[0], out=(values, indices[:]))
        return found.values, indices

    return fn, lambda i: (torch.randn(3, 3), torch.zeros(3), torch.zeros(3, dtype=torch.int64))


@program
def test_empty_out_is_resized():
    def fn(x):
        out = torch.empty(0)
        torch.cat([x, x], out=out)
        return out, out.shape

    return fn, [(torch.randn(n),) for n in (2, 3, 2)]


@program
def test_out_of_the_wrong_dtype_raises():
    def fn(x, out):
        try:
            return torch.sin(x, out=out)
        except RuntimeError as error:
            return str(error), out

    dtypes = (torch.float32, torch.int64, torch.float64, torch.int64)
    return fn, [(torch.randn(2), torch.zeros(2, dtype=d)) for d in dtypes]


@program
def test_out_with_history_is_refused():
    def fn(x, w):
        try:
            torch.mul(x, w, out=x)
        except RuntimeError as error:
            return str(error)[:40]
        return x + 1

    return fn, [(torch.randn(2), torch.randn(2, requires_grad=g)) for g in (False, True, False, True)]


@program(breaks=0)
def test_out_into_transposed_and_strided_views():
    def fn(x, big):
        torch.add(x, 1, out=big.t())
        torch.neg(x[0], out=big[::2, 0])
        return big.clone(), big.stride()

    return fn, lambda i: (torch.randn(2, 4), torch.zeros(4, 2))


@program
def test_out_keyword_passed_through_a_helper():
    def apply(op, *args, out=None, **options):
        return op(*args, out=out, **options) if out is not None else op(*args, **options)

    def fn(x, out):
        return apply(torch.sum, x, dim=0, out=out), apply(torch.clamp, x, min=0.0)

    return fn, [(torch.randn(2, 3), o) for o in (None, torch.zeros(3), None, torch.ones(3))]


@program
def test_empty_out_of_the_caller_is_resized():
    def fn(x, out):
        torch.cat([x, x], out=out)
        return out, out.shape, out.numel() + x.shape[0]

    return fn, [(torch.randn(n), torch.empty(0)) for n in (2, 3, 2, 4, 1)]


@program(same_text=False)
def test_out_of_the_caller_fits_until_it_does_not():
    def fn(x, out):
        made = torch.cat([x, x], out=out)
        return made.shape, made * 2

    return fn, [(torch.randn(n), torch.empty(size)) for n, size in ((2, 4), (3, 6), (4, 8), (5, 0), (6, 16), (2, 6))]


@program
def test_pair_of_the_caller_is_resized():
    def fn(x, values, places):
        torch.sort(x, out=(values, places))
        return values.shape, places * 2

    return fn, [(torch.randn(n), torch.empty(0), torch.empty(0, dtype=torch.int64)) for n in (2, 3, 2, 4)]
