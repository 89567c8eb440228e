"""Reading and assigning by slices, numbers, None, Ellipsis, masks and index tensors, data-dependent shapes included."""

import torch

from .harness import program


@program(breaks=0)
def test_slices_none_and_ellipsis():
    def fn(x):
        return x[..., 0], x[None], x[:, None, 1:], x[-1, ..., ::2], x[1:0], x[...], x[:, -2:]

    return fn, [(torch.randn(3, 4),), (torch.randn(2, 5, 6),), (torch.randn(3, 4),), (torch.randn(2, 2),)]


@program(breaks=0)
def test_assignment_to_slices_broadcasts():
    def fn(x, row):
        x[1] = row
        x[:, 0] = 7
        x[..., -1:] = torch.tensor([[2.0]])
        x[::2, 1:3] += 1
        return x.sum(1)

    return fn, lambda i: (torch.randn(4, 4), torch.randn(4))


@program(breaks=0)
def test_mask_assignment_of_a_number_and_of_a_tensor():
    def fn(x, y):
        x[x < 0] = 0
        x[y > 1] = 1
        x[torch.isnan(y)] = torch.tensor(5.0)
        return x * 2

    return fn, [(torch.randn(5), torch.tensor([0.0, 2.0, float("nan"), 0.5, i])) for i in range(4)]


@program
def test_mask_assignment_of_as_many_values_as_are_true():
    def fn(x, values):
        mask = x > 0
        x[mask] = values[: mask.sum()]
        return x, mask

    return fn, [
        (torch.tensor(v), torch.arange(10.0, 14.0))
        for v in ([1.0, -1.0, 1.0], [-1.0, -1.0, -1.0], [1.0, 1.0, 1.0], [1.0, -1.0, 1.0])
    ]


@program
def test_mask_selection_gives_a_different_size_each_call():
    def fn(x):
        kept = x[x > 0]
        return kept, kept.shape[0], kept.sum() if len(kept) else torch.tensor(-1.0)

    return fn, [(torch.tensor(v),) for v in ([1.0, -1.0, 2.0], [-1.0, -2.0, -3.0], [1.0, 2.0, 3.0], [1.0, -1.0, 5.0])]


@program
def test_nonzero_drives_a_python_loop():
    def fn(x):
        total = torch.zeros(())
        for i, j in x.nonzero().tolist():
            total = total * 2 + x[i, j] * (i + j)
        return total, torch.nonzero(x, as_tuple=True)

    return fn, [
        (torch.tensor(v).view(2, 2),)
        for v in ([0.0, 1.0, 2.0, 0.0], [0.0, 0.0, 0.0, 0.0], [3.0, 1.0, 2.0, 5.0], [0.0, 1.0, 7.0, 0.0])
    ]


@program
def test_unique_counts_size_the_next_tensor():
    def fn(x):
        values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
        weights = torch.zeros(len(values)) + counts
        return values, weights[inverse], values.numel() == x.numel()

    return fn, [(torch.tensor(v),) for v in ([1, 2, 1, 3], [5, 5, 5, 5], [4, 3, 2, 1], [1, 2, 1, 7])]


@program(breaks=0)
def test_index_tensors_broadcast_against_each_other():
    def fn(x, rows, cols):
        return x[rows[:, None], cols], x[rows], x[rows, 1:], x[..., cols, None]

    return fn, lambda i: (torch.randn(4, 3), torch.tensor([i, 3, 0]), torch.tensor([0, i % 3]))


@program(breaks=0)
def test_lists_of_numbers_as_index():
    def fn(x, rows):
        return x[rows], x[:, [0, 2]], x[[True, False, True, False]], x[rows, rows]

    return fn, [
        (torch.randn(4, 4), [0, 2]),
        (torch.randn(4, 4), [3, 3, 1]),
        (torch.randn(4, 4), [0, 2]),
        (torch.randn(4, 4), []),
    ]


@program
def test_zero_dimensional_index_tensor():
    def fn(x, i):
        return x[i], x[i, :2], x[i:], x[: i + 1]

    return fn, [(torch.randn(4, 4), torch.tensor(i)) for i in (1, 3, 0, 1)]


@program
def test_argmax_selects_the_row_to_change():
    def fn(x):
        best = x.sum(1).argmax()
        x[best] = 0
        return x, best

    return fn, [
        (torch.tensor(v).view(2, 2),) for v in ([1.0, 2.0, 3.0, 4.0], [5.0, 2.0, 3.0, 1.0], [0.0, 2.0, 3.0, 4.0])
    ]


@program
def test_python_number_from_a_tensor_as_slice_bound():
    def fn(x, lengths):
        out = [row[:n] for row, n in zip(x, lengths.tolist(), strict=True)]
        return out, x[:, : int(lengths.max())]

    return fn, [(torch.randn(3, 5), torch.tensor(v)) for v in ([1, 2, 3], [5, 0, 5], [1, 1, 1], [1, 2, 3])]


@program(breaks=0)
def test_boolean_and_integer_python_scalars_as_index():
    def fn(x, flag):
        return x[True], x[False], x[flag, 0] if flag else x[0], x[None, ..., None]

    return fn, [(torch.randn(2, 3), True), (torch.randn(2, 3), False), (torch.randn(2, 3), True)]


@program
def test_index_out_of_range_is_caught():
    def fn(x, i):
        try:
            return x[i] * 2
        except IndexError as error:
            return str(error)

    return fn, [(torch.randn(3), i) for i in (0, 5, -3, -4, 2, 0)]


@program
def test_index_tensor_out_of_range_is_caught():
    def fn(x, index):
        try:
            return x[index]
        except IndexError as error:
            return type(error).__name__, x.sum()

    return fn, [(torch.randn(3), torch.tensor(i)) for i in ([0, 1], [0, 7], [2, 2], [-1, -9])]


@program
def test_negative_step_is_refused_and_flip_is_used():
    def fn(x):
        try:
            return x[::-1]
        except ValueError as error:
            return str(error), x.flip(0)

    return fn, lambda i: (torch.randn(4),)


@program(breaks=0)
def test_index_tuple_is_built_by_the_program():
    def fn(x, dim, start, stop):
        index = [slice(None)] * x.dim()
        index[dim] = slice(start, stop)
        x[tuple(index)] *= 2
        return x[tuple(index)]

    return fn, [
        (torch.randn(3, 4), 0, 1, 2),
        (torch.randn(3, 4), 1, 0, 3),
        (torch.randn(3, 4, 2), -1, None, 1),
        (torch.randn(3, 4), 0, 1, 2),
    ]


@program(breaks=0)
def test_slice_object_is_an_argument():
    def fn(x, where):
        y = x.clone()
        y[where] = -1
        return x[where].sum(), y

    return fn, [(torch.randn(6), s) for s in (slice(1, 4), slice(None, None, 2), slice(-2, None), slice(1, 4))]


@program(breaks=0)
def test_loop_writes_rows_by_number():
    def fn(x):
        for i in range(1, len(x)):
            x[i] += x[i - 1]
        return x[-1]

    return fn, [(torch.randn(3, 2),), (torch.randn(5, 2),), (torch.randn(1, 2),), (torch.randn(3, 2),)]


@program(breaks=0)
def test_accumulating_index_put_counts_duplicates():
    def fn(x, index):
        x.index_put_((index,), torch.ones(()), accumulate=True)
        y = torch.zeros(4)
        y[index] += 1
        return x, y

    return fn, lambda i: (torch.zeros(4), torch.tensor([0, i, i, 3]))


@program(breaks=0)
def test_take_gather_and_index_select():
    def fn(x, order):
        values, index = x.sort(dim=1, descending=True)
        return torch.take_along_dim(x, index, 1), x.gather(1, index), x.index_select(0, order), x.take(order), values

    return fn, lambda i: (torch.randn(3, 3), torch.randperm(3))


@program(breaks=0)
def test_where_with_tensors_and_numbers():
    def fn(x, y):
        return torch.where(x > 0, x, y), torch.where(x > y, 1.0, 0.0), x.where(y > 0, torch.tensor(9.0))

    return fn, lambda i: (torch.randn(4), torch.randn(4))


@program
def test_where_with_one_argument_is_nonzero():
    def fn(x):
        rows, cols = torch.where(x > 0)
        x[rows, cols] = rows.float()
        return x, torch.argwhere(x == 0)

    return fn, lambda i: (torch.randn(3, 3),)


@program(breaks=0)
def test_assignment_of_a_view_to_a_place_it_overlaps():
    def fn(x):
        x[1:] = x[:-1].clone()
        x[0] = 0
        return x

    return fn, lambda i: (torch.randn(5),)


@program
def test_tensor_scalars_as_list_index():
    def fn(x, i):
        names = ["zero", "one", "two"]
        return names[i], names[int(i)], x * [10, 20, 30][i]

    return fn, [(torch.ones(2), torch.tensor(i)) for i in (0, 2, 1, 0)]


@program
def test_length_and_contains():
    def fn(x, value):
        return len(x), value in x, 3 not in x, x.tolist().index(value) if value in x else -1

    return fn, [(torch.arange(4), 2), (torch.arange(3), 9), (torch.arange(6), 5), (torch.arange(4), 2)]


@program(breaks=0)
def test_assignment_of_a_higher_dtype_is_cast():
    def fn(x, value):
        x[0] = value
        x[1:] = torch.tensor([1.9, 2.9])
        return x

    return fn, [
        (torch.zeros(3, dtype=torch.int64), 5),
        (torch.zeros(3), 2.5),
        (torch.zeros(3, dtype=torch.bool), 1),
        (torch.zeros(3, dtype=torch.int64), True),
    ]


@program
def test_a_number_of_classes_that_is_given_is_no_size_from_data():
    def fn(x, label):
        return x + torch.nn.functional.one_hot(label, 3)

    return fn, [(torch.ones(3), torch.tensor(label)) for label in (0, 1, 2, 3, -1, 2)]


@program(breaks=0)
def test_a_truth_in_a_constant_tensor_is_an_index():
    def fn(x):
        kept, none = x[torch.tensor(True)], x[torch.tensor(False)]
        return kept + 1, none, none.shape, x[..., 0][torch.tensor(True), None]

    return fn, lambda i: (torch.ones(2 + i, 2),)
