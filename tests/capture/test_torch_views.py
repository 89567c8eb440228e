"""Views: a write through one is seen through all, whatever made the view."""

import torch

import burnish

from .caller_programs import program_with_caller
from .harness import program


@program(breaks=0)
def test_write_through_a_view_is_seen_by_the_base():
    def fn(x):
        row = x[1]
        row.add_(10)
        return x * 2, row

    return fn, lambda i: (torch.randn(3, 2),)


@program(breaks=0)
def test_view_after_mutation_sees_new_data():
    def fn(x):
        flat = x.view(-1)
        before = flat.clone()
        x.mul_(3)
        return before, flat + 0, x.view(-1)[2:]

    return fn, lambda i: (torch.randn(2, 3),)


@program(breaks=0)
def test_chain_of_views_writes_to_the_bottom():
    def fn(x):
        x.transpose(0, 1)[1:].unsqueeze(0).squeeze(0).narrow(1, 0, 2).fill_(7)
        return x.sum(0)

    return fn, lambda i: (torch.randn(3, 4),)


@program(breaks=0)
def test_diagonal_is_filled_in_place():
    def fn(x):
        x.diagonal().fill_(1)
        torch.diagonal(x, offset=1).zero_()
        return x @ x

    return fn, lambda i: (torch.randn(3, 3),)


@program(breaks=0)
def test_chunks_are_written_one_by_one():
    def fn(x):
        for i, part in enumerate(x.chunk(3)):
            part.add_(i)
        for part in x.split([1, 5]):
            part.mul_(2)
        return x.cumsum(0)

    return fn, lambda i: (torch.randn(6),)


@program(breaks=0)
def test_unbind_gives_writable_rows():
    def fn(x):
        a, b, c = x.unbind(0)
        a.copy_(b)
        c -= a
        return x

    return fn, lambda i: (torch.randn(3, 2),)


@program(breaks=0)
def test_iteration_over_a_tensor_gives_views():
    def fn(x):
        for row in x:
            row /= row.sum()
        first, *rest = x
        return first, len(rest), x

    return fn, [(torch.rand(2, 3),), (torch.rand(4, 2),), (torch.rand(2, 3),), (torch.rand(4, 2),)]


@program(breaks=0)
def test_as_strided_windows_overlap():
    def fn(x):
        windows = x.as_strided((3, 2), (1, 1))
        total = windows.sum(1)
        x[1] = 100
        return total, windows.sum(1), windows.stride()

    return fn, lambda i: (torch.randn(4),)


@program(breaks=0)
def test_unfold_and_fold_of_a_signal():
    def fn(x, step):
        frames = x.unfold(0, 4, step)
        frames = frames * torch.hann_window(4)
        return frames.mean(-1), frames.shape

    return fn, [(torch.randn(10), 2), (torch.randn(12), 2), (torch.randn(10), 3), (torch.randn(10), 2)]


@program
def test_reshape_is_a_view_or_a_copy_by_stride():
    def fn(x):
        flat = x.reshape(-1)
        flat.zero_()
        return x.sum(), x.is_contiguous()

    return fn, [(torch.ones(2, 3),), (torch.ones(3, 2).t(),), (torch.ones(2, 3),), (torch.ones(3, 2).t(),)]


@program
def test_contiguous_copies_only_when_it_must():
    def fn(x):
        y = x.contiguous()
        y.add_(1)
        return y, x, y is x

    return fn, [(torch.ones(3, 2).t(),), (torch.ones(2, 3),), (torch.ones(3, 2).t(),), (torch.ones(2, 3),)]


@program
def test_to_returns_self_when_nothing_changes():
    def fn(x, dtype):
        y = x.to(dtype)
        y.mul_(2)
        return x, y, y is x

    return fn, [
        (torch.ones(2), torch.float32),
        (torch.ones(2), torch.float64),
        (torch.ones(2), torch.float32),
        (torch.ones(2, dtype=torch.float64), torch.float64),
    ]


@program(breaks=0)
def test_bits_of_a_float_are_changed_through_an_integer_view():
    def fn(x):
        bits = x.view(torch.int32)
        bits &= 0x7FFFFFFF
        return x.sum(), bits

    return fn, lambda i: (torch.randn(4),)


@program
def test_real_and_imaginary_parts_are_views():
    def fn(z):
        z.real.add_(1)
        z.imag = z.real * 2
        return torch.view_as_real(z), z.abs()

    return fn, lambda i: (torch.randn(3, dtype=torch.complex64),)


@program(breaks=0)
def test_expand_reads_later_writes():
    def fn(x):
        wide = x.expand(4, 3)
        x.add_(1)
        return wide.sum(0), wide.stride(), wide.is_contiguous()

    return fn, lambda i: (torch.randn(3),)


@program(breaks=0)
def test_permuted_view_is_assigned_into():
    def fn(x, y):
        x.permute(2, 0, 1)[0] = y
        x.movedim(0, -1)[..., 0] += 1
        return x.mT, x.swapaxes(0, 2).shape

    return fn, lambda i: (torch.randn(2, 3, 4), torch.randn(2, 3))


@program
def test_select_with_a_position_given_by_the_caller():
    def fn(x, i):
        x.select(0, i).neg_()
        return x.narrow(0, i, 1), x[-i - 1]

    return fn, [(torch.randn(4, 2), i) for i in (0, 1, 3, 0, 2)]


@program_with_caller
def test_write_through_a_returned_view_reaches_the_argument():
    def fn(x):
        return x[1:], x.t(), x.view(-1)[:2]

    def caller(fn, x):
        tail, turned, head = fn(x)
        tail.fill_(5)
        turned[0].add_(1)
        head.neg_()
        return tail._base is x, head.data_ptr() == x.data_ptr(), turned.stride()

    return fn, caller, lambda i: (torch.randn(3, 2),)


@program_with_caller
def test_returned_view_of_an_intermediate_shares_with_its_sibling():
    def fn(x):
        y = x * 2
        return y[0], y

    def caller(fn, x):
        row, whole = fn(x)
        row.zero_()
        return row, whole

    return fn, caller, lambda i: (torch.randn(2, 3),)


@program
def test_view_held_in_the_closure_sees_each_call():
    base = torch.zeros(4)
    tail = base[2:]

    def fn(x):
        base.add_(x)
        tail.mul_(2)
        return tail + base[:2]

    return fn, lambda i: (torch.randn(4),), base, tail


@program_with_caller
def test_view_of_a_leaf_is_written_under_no_grad():
    def fn(w, x):
        with torch.no_grad():
            w[0].zero_()
        return w * x

    def caller(fn, w, x):
        fn(w, x).sum().backward()
        return w.grad

    return fn, caller, lambda i: (torch.randn(3, 2, requires_grad=True), torch.randn(3, 2))


@program
def test_view_of_the_wrong_size_is_refused():
    def fn(x, n):
        try:
            return x.view(n, -1)
        except RuntimeError:
            return x.reshape(-1)[:n]

    return fn, [(torch.randn(6), 3), (torch.randn(7), 3), (torch.randn(6), 3), (torch.randn(7), 2)]


@program
def test_view_of_a_transposed_tensor_needs_reshape():
    def fn(x):
        try:
            return "view", x.view(-1)
        except RuntimeError as error:
            return str(error), x.reshape(-1)

    return fn, [(torch.randn(2, 3),), (torch.randn(3, 2).t(),), (torch.randn(2, 3),), (torch.randn(3, 2).t(),)]


@program(breaks=0)
def test_detached_view_shares_memory_without_history():
    def fn(x):
        y = x * 2
        d = y.detach()
        d += 1
        return y.clone(), d.requires_grad, d

    return fn, lambda i: (torch.randn(3, requires_grad=True),)


def test_a_view_that_torch_refuses_the_history_of():
    """It was made without gradients, and its base was written to: only ``no_grad`` code may use it."""

    def made():
        base = torch.nn.Parameter(torch.ones(4))
        with torch.no_grad():
            view = base.view(2, 2)
            base.add_(1)
        return view

    def fn(view, y):
        with torch.no_grad():
            view.mul_(2)
            return y.copy_(view) + 1

    for backend in ("burnish", "eager"):
        compiled, views = burnish.compile(fn, backend=backend, fullgraph=True), (made(), made())
        for _ in range(3):
            assert torch.equal(compiled(views[0], torch.zeros(2, 2)), fn(views[1], torch.zeros(2, 2)))


@program(breaks=0)
def test_conjugation_and_negation_are_told_apart():
    def fn(z):
        return z.is_conj(), z.is_neg(), z.conj().is_conj(), z.imag.is_neg(), z * 2

    z = torch.randn(3, dtype=torch.complex64)
    return fn, [(x,) for x in (z.conj(), torch._neg_view(z), torch._neg_view(z).conj(), z, torch._neg_view(z))]
