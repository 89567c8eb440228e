"""In-place operators: which tensors they change, in which order, and the errors of autograd."""

import torch

from .caller_programs import program_with_caller
from .harness import program


@program(breaks=0)
def test_in_place_add_changes_the_argument():
    def fn(x):
        x.add_(1)
        x.mul_(2)
        return x.sum()

    return fn, lambda i: (torch.randn(3),)


@program(breaks=0)
def test_reads_before_and_after_a_write_differ():
    def fn(x):
        before = x.sum()
        x.zero_()
        after = x.sum()
        x.fill_(3)
        return before, after, x.sum()

    return fn, lambda i: (torch.randn(3),)


@program(breaks=0)
def test_augmented_assignment_mutates_but_plain_assignment_rebinds():
    def fn(x, y):
        x += 1
        y = y + 1
        y += 1
        return x, y

    return fn, lambda i: (torch.randn(3), torch.randn(3))


@program
def test_closure_tensor_counts_calls():
    counter = torch.zeros(1)

    def fn(x):
        counter.add_(1)
        return x * counter

    return fn, lambda i: (torch.randn(3),), counter


@program(breaks=0)
def test_copy_into_argument_of_other_dtype_and_shape():
    def fn(x, y):
        x.copy_(y)
        return x + 1

    return fn, [
        (torch.zeros(2, 3), torch.arange(3)),
        (torch.zeros(2, 3, dtype=torch.int64), torch.tensor([1.5, -2.5, 3.5])),
        (torch.zeros(2, 3), torch.arange(3) + 4),
        (torch.zeros(2, 3, dtype=torch.float64), torch.randn(2, 1)),
    ]


@program
def test_leaf_that_requires_grad_refuses_and_the_error_is_caught():
    def fn(x):
        try:
            x.add_(1)
        except RuntimeError as error:
            text = str(error)
        with torch.no_grad():
            x.mul_(2)
        return text, x * 3

    return fn, lambda i: (torch.randn(3, requires_grad=True),)


@program_with_caller
def test_relu_in_place_on_an_intermediate_keeps_gradients():
    def fn(x):
        y = x * 2
        y.mul_(3)
        y.relu_()
        return y

    def caller(fn, x):
        y = fn(x)
        y.sum().backward()
        return y, x.grad

    return fn, caller, lambda i: (torch.randn(5, requires_grad=True),)


@program_with_caller
def test_write_to_a_row_of_an_intermediate_reaches_its_gradient():
    def fn(x, w):
        y = x * 2
        y[0].mul_(w)
        y[1:] = 0
        return y

    def caller(fn, x, w):
        fn(x, w).pow(2).sum().backward()
        return x.grad, w.grad

    return fn, caller, lambda i: (torch.randn(3, 2, requires_grad=True), torch.randn(2, requires_grad=True))


@program(breaks=0)
def test_masked_fill_index_add_and_index_fill():
    def fn(x, mask, index):
        x.masked_fill_(mask, -1)
        x.index_add_(0, index, torch.ones(2, 4))
        x.index_fill_(1, index, 9)
        return x.cumsum_(0)

    return fn, lambda i: (torch.randn(3, 4), torch.randn(3, 4) > 0, torch.tensor([i % 3, (i + 1) % 3]))


@program(breaks=0)
def test_loop_scales_each_tensor_of_a_list():
    def fn(tensors, k):
        for t in tensors:
            t.mul_(k)
        return sum(t.sum() for t in tensors)

    return fn, lambda i: ([torch.randn(2), torch.randn(3), torch.randn(1)], float(i + 1))


@program
def test_data_attribute_is_assigned_and_mutated():
    def fn(x, y):
        x.data.add_(1)
        seen = x.sum()
        x.data = y
        return seen, x * 2

    return fn, lambda i: (torch.randn(3, requires_grad=True), torch.randn(3))


@program_with_caller
def test_data_assignment_shares_memory_with_its_source():
    def fn(x, y):
        x.data = y
        return x.sum()

    def caller(fn, x, y):
        out = fn(x, y)
        y.add_(1)
        return out, x, x.data_ptr() == y.data_ptr()

    return fn, caller, lambda i: (torch.randn(3), torch.randn(3))


@program
def test_transpose_and_unsqueeze_in_place_change_the_argument():
    def fn(x):
        x.t_()
        x.unsqueeze_(0)
        return x.shape, x.stride(), x * 2

    return fn, lambda i: (torch.randn(2, 3),)


@program
def test_a_view_of_an_argument_that_is_transposed_in_place_afterwards():
    def fn(x):
        v = x.view(-1)
        y = x + 1
        x.transpose_(0, 1)
        return y, v[1:], v * 2, x.stride()

    return fn, lambda i: (torch.randn(3, 4),)


@program
def test_resize_of_an_argument():
    def fn(x, n):
        x.resize_(n)
        x.fill_(n)
        return x.sum(), x.numel()

    return fn, [(torch.randn(2), 4), (torch.randn(2), 1), (torch.randn(4), 4), (torch.randn(2), 4)]


@program
def test_set_points_the_argument_at_another_storage():
    def fn(x, y):
        x.set_(y)
        x.add_(1)
        return y * 2

    return fn, lambda i: (torch.randn(2), torch.randn(3))


@program
def test_requires_grad_in_place_on_the_argument():
    def fn(x):
        x.requires_grad_()
        return (x * 2).sum()

    return fn, lambda i: (torch.randn(3),)


@program(breaks=0)
def test_swap_through_a_temporary():
    def fn(x, y):
        keep = x.clone()
        x.copy_(y)
        y.copy_(keep)
        return x - y

    return fn, lambda i: (torch.randn(3), torch.randn(3))


@program(breaks=0)
def test_swap_without_a_copy_loses_the_first_value():
    def fn(x, y):
        keep = x.view(-1)
        x.copy_(y)
        y.copy_(keep)
        return x - y

    return fn, lambda i: (torch.randn(3), torch.randn(3))


@program
def test_mutation_before_an_exception_stays():
    def fn(x, y):
        x.add_(1)
        x.mul_(y)
        x.sub_(100)
        return x

    return fn, [
        (torch.ones(3), torch.ones(3)),
        (torch.ones(3), torch.ones(2)),
        (torch.zeros(3), torch.ones(1)),
        (torch.ones(3), torch.ones(2)),
        (torch.ones(3) * 5, torch.ones(3)),
    ]


@program
def test_expanded_tensor_refuses_a_write():
    def fn(x):
        wide = x.expand(3, 2)
        try:
            wide.add_(1)
        except RuntimeError as error:
            return "refused", str(error).split("\n")[0], x
        return "written", wide, x

    return fn, [(torch.randn(2),), (torch.randn(3, 2),), (torch.randn(2),), (torch.randn(3, 2),)]


@program_with_caller
def test_backward_complains_about_a_saved_tensor_written_over():
    def fn(x, spoil):
        y = x * 2
        z = y * y
        if spoil:
            y.add_(1)
        return z

    def caller(fn, x, spoil):
        z = fn(x, spoil)
        try:
            z.sum().backward()
        except RuntimeError as error:
            return "modified by an inplace operation" in str(error), x.grad
        return z, x.grad

    return fn, caller, [(torch.randn(3, requires_grad=True), spoil) for spoil in (True, False, True, False)]


@program_with_caller
def test_version_counter_moves_as_often_as_in_eager():
    def fn(x):
        x.add_(1)
        x[0] = 4
        x.view(-1).mul_(2)
        return x * 2

    def caller(fn, x):
        before = x._version
        out = fn(x)
        return out, x._version > before

    return fn, caller, lambda i: (torch.randn(3),)


@program(breaks=0)
def test_in_place_comparison_and_logic():
    def fn(x, y):
        flags = torch.zeros(3, dtype=torch.bool)
        flags.logical_or_(x > 0)
        flags &= y > 0
        flags ^= torch.tensor([True, False, True])
        x.gt_(y)
        return flags, x

    return fn, lambda i: (torch.randn(3), torch.randn(3))


@program(breaks=0)
def test_floor_division_in_place_follows_the_dtype():
    def fn(x, k):
        x //= k
        x **= 2
        return x

    return fn, [(torch.arange(6), 2), (torch.arange(6.0), 4), (torch.arange(6), 3), (torch.arange(6.0), 0.5)]


@program
def test_result_type_that_cannot_be_cast_back():
    def fn(x):
        try:
            x.div_(2)
        except RuntimeError as error:
            x.add_(1)
            return str(error)
        return "ok"

    return fn, [(torch.arange(3),), (torch.arange(3.0),), (torch.arange(3),)]


@program
def test_operators_in_place_change_constants():
    """``t |= x`` and ``t **= x`` are calls of ``__ior__`` and ``__ipow__``, named like calls that write nothing."""

    def fn(x):
        flags, powers = torch.arange(1, 5), torch.arange(1, 5)
        flags |= x
        powers **= x
        return x * 2 if flags.sum() > 12 else x * 3, x + 1 if powers.sum() > 12 else x - 1

    return fn, [(torch.full((4,), k),) for k in (2, 0, 3, 1)]


@program
def test_operators_in_place_run_once_before_an_error():
    def fn(x, k):
        x <<= 1
        try:
            return x[k]
        except IndexError:
            return x + 1

    return fn, [(torch.arange(1, 5), torch.tensor([k])) for k in (0, 1, 9, 2)]
