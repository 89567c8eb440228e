"""Tensor factories: new tensors on each call, default dtype and device, numbers and lists as content."""

import numpy as np
import torch

import burnish

from .caller_programs import program_with_caller
from .harness import program


@program(breaks=0)
def test_constant_is_fresh_on_each_call():
    def fn(x):
        c = torch.zeros(3)
        c += x
        d = torch.tensor([1.0, 2.0, 3.0])
        d[0] = x[0]
        return c, d

    return fn, lambda i: (torch.randn(3),)


@program_with_caller
def test_returned_constant_belongs_to_the_caller():
    def fn(x):
        return torch.ones(2), torch.tensor([1, 2]), torch.arange(2), x + 1

    def caller(fn, x):
        outs = fn(x)
        for out in outs:
            out.mul_(5)
        return outs

    return fn, caller, lambda i: (torch.randn(2),)


@program_with_caller
def test_default_dtype_changes_between_calls():
    def fn(x):
        return torch.ones(2), torch.tensor(1.5), torch.arange(0, 1, 0.5), x / 2, torch.zeros(1, dtype=torch.float16)

    def caller(fn, x, dtype):
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            return fn(x)
        finally:
            torch.set_default_dtype(before)

    return fn, caller, [(torch.arange(3), d) for d in (torch.float32, torch.float64, torch.float32, torch.float64)]


@program
def test_default_dtype_is_set_inside():
    def fn(x, dtype):
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            y = torch.ones(2) * x.sum()
        finally:
            torch.set_default_dtype(before)
        return y, torch.ones(1)

    return fn, [(torch.randn(2), d) for d in (torch.float64, torch.float32, torch.float64)]


@program
def test_device_as_a_context_manager():
    def fn(x, device):
        with torch.device(device):
            y = torch.ones(x.shape)
        return y.device.type, torch.ones(1).device, x * 2

    return fn, [(torch.randn(2), d) for d in ("cpu", "meta", "cpu", "meta")]


@program_with_caller
def test_caller_sets_the_default_device():
    def fn():
        return torch.zeros(2).device.type, torch.get_default_device().type

    def caller(fn, device):
        torch.set_default_device(device)
        try:
            return fn()
        finally:
            torch.set_default_device(None)

    return fn, caller, [(d,) for d in ("cpu", "meta", "cpu", "meta")]


@program(breaks=0)
def test_new_and_like_factories_follow_their_tensor():
    def fn(x):
        return (
            x.new_zeros(2),
            x.new_full((1, 2), 3),
            torch.zeros_like(x),
            torch.ones_like(x, dtype=torch.int32),
            torch.full_like(x, 7),
            x.new_tensor([1, 2]),
            torch.empty_like(x).copy_(x),
        )

    return fn, [(torch.randn(2, 3),), (torch.arange(4),), (torch.randn(3, 2).t(),), (torch.randn(2, 3),)]


@program(breaks=0)
def test_ranges_with_numbers_of_the_caller():
    def fn(x, n, step):
        ranges = torch.arange(n), torch.arange(0, n, step), torch.linspace(0, n, 3)
        return x + ranges[0].sum(), ranges, torch.eye(n), torch.full((n,), step)

    return fn, [(torch.ones(1), *c) for c in ((3, 1), (4, 2), (3, 0.5), (3, 1))]


@program
def test_tensor_of_live_numbers_and_tensors():
    def fn(x):
        n = x.sum().item()
        return torch.tensor([n, 2.0, len(x)]), torch.stack([x[0], torch.tensor(n)]), torch.tensor([[n], [n + 1]])

    return fn, lambda i: (torch.randn(3),)


@program
def test_tensor_of_tensors_is_a_copy():
    def fn(x):
        y = torch.tensor([x[0], x[1]])
        z = torch.as_tensor(x)
        z[0] = 9
        return y, z is x, x

    return fn, lambda i: (torch.randn(3),)


@program
def test_list_argument_becomes_a_tensor():
    def fn(values):
        t = torch.tensor(values)
        return t, t.dtype, t * 2

    return fn, [([1, 2],), ([1.5],), ([[1, 2], [3, 4]],), ([True, False],), ([],), ([1, 5],)]


@program
def test_ragged_list_raises():
    def fn(values):
        try:
            return torch.tensor(values)
        except ValueError as error:
            return str(error)

    return fn, [([[1, 2], [3, 4]],), ([[1, 2], [3]],), ([[1, 2], [3, 5]],), ([[1], [3, 4]],)]


@program
def test_module_constant_is_mutated_through_its_copy():
    table = [1.0, 2.0]
    tensor = torch.tensor(table)

    def fn(x):
        table[0] += 1
        y = torch.tensor(table)
        tensor.add_(1)
        return x * y, tensor.clone(), torch.tensor(tensor.tolist())

    return fn, lambda i: (torch.ones(2),), table, tensor


@program(breaks=0)
def test_masks_of_the_input_size():
    def fn(x):
        n = x.shape[-1]
        causal = torch.ones(n, n, dtype=torch.bool).tril()
        return x.masked_fill(~causal, float("-inf")).softmax(-1), torch.triu_indices(n, n, 1)

    return fn, [(torch.randn(n, n),) for n in (2, 3, 2, 4)]


@program(breaks=0)
def test_meshgrid_and_cartesian_product():
    def fn(x, y):
        rows, cols = torch.meshgrid(x, y, indexing="ij")
        return rows + cols, torch.cartesian_prod(x, y), torch.combinations(x), torch.outer(x, y)

    return fn, [(torch.randn(a), torch.randn(b)) for a, b in ((2, 3), (3, 2), (2, 3))]


@program
def test_requires_grad_at_birth():
    def fn(x):
        w = torch.ones(2, requires_grad=True)
        loss = (w * x).sum()
        loss.backward()
        return w.grad, w.is_leaf, loss

    return fn, lambda i: (torch.randn(2),)


@program
def test_empty_tensor_is_filled_row_by_row():
    def fn(x):
        out = torch.empty(len(x), 2)
        for i, v in enumerate(x):
            out[i, 0], out[i, 1] = v, v * 2
        return out, torch.empty(0).shape, torch.cat([torch.empty(0), x])

    return fn, [(torch.randn(n),) for n in (2, 3, 2)]


@program
def test_dtype_given_as_a_name():
    def fn(x, name):
        dtype = getattr(torch, name)
        return (
            x.to(dtype),
            torch.zeros(1, dtype=dtype),
            dtype.is_floating_point,
            torch.finfo(dtype).max if dtype.is_floating_point else torch.iinfo(dtype).max,
        )

    return fn, [(torch.tensor([1.5]), n) for n in ("float64", "int8", "float16", "float64")]


@program
def test_scalars_of_numpy_and_python_mix():
    def fn(x, n):
        return x + n, torch.full((2,), n), torch.tensor(n).dtype, x.clamp(min=n)

    return fn, [(torch.zeros(2), n) for n in (1, np.float32(2.5), np.int64(3), 1.5, True, 1)]


@program(breaks=0)
def test_a_size_says_how_large_where_a_tuple_is_data():
    def fn(x):
        made = x.new(x.shape).fill_(2), x.new(x.size()[:1]).zero_(), torch.Tensor(x.shape).fill_(3), x.new((1, 2))
        return *made, torch.tensor(x.shape), x.new(size=x.shape).fill_(1), x * 2

    return fn, [(torch.randn(n, 2),) for n in (3, 3, 3, 4, 5)]


@program(breaks=0)
def test_old_tensor_types_take_sequences_of_numbers():
    def fn(x):
        places = torch.LongTensor([2, 0, 1])
        scale = torch.FloatTensor([[1, 2.5, x.shape[0]]])
        return x[:, places] * scale, torch.BoolTensor((True, False)), torch.HalfTensor([])

    return fn, lambda i: (torch.randn(i + 2, 3),)


@program(breaks=0)
def test_variables_from_before_tensors_had_gradients():
    Variable = torch.autograd.Variable

    def fn(x, w):
        mask = Variable(x.new_empty(3).fill_(2.0), requires_grad=False) / 2
        seen = Variable(x)
        x.add_(1)
        leaf = Variable(w * 3, requires_grad=True)
        (leaf * mask).sum().backward()
        return seen + mask, seen.requires_grad, leaf.grad, leaf.is_leaf, w.grad, type(Variable(w))

    return fn, lambda i: (torch.randn(3), torch.nn.Parameter(torch.randn(3)))


def test_a_variable_of_a_sparse_tensor():
    compiled = burnish.compile(lambda x: torch.autograd.Variable(x.to_sparse()), backend="eager")
    for _ in range(3):
        x = torch.randn(3, 3)
        assert compiled(x).to_dense().tolist() == x.tolist()


def test_a_variable_that_cannot_have_a_gradient():
    def fn(x):
        try:
            return torch.autograd.Variable(x, requires_grad=True)
        except RuntimeError as error:
            return str(error)

    compiled = burnish.compile(fn)
    for dtype in (torch.float32, torch.int64, torch.float32, torch.int64):
        x = torch.ones(2, dtype=dtype)
        got, expected = compiled(x), fn(x)
        assert got == expected if dtype == torch.int64 else got.requires_grad and torch.equal(got, expected)
