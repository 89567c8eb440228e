"""NumPy and SciPy between torch calls, memory shared and copied."""

import math

import numpy as np
import scipy.ndimage
import scipy.special
import torch

import burnish

from .caller_programs import program_with_caller
from .harness import program


@program(exact=False)
def test_round_trip_through_numpy():
    def fn(x):
        a = (x * 2).numpy()
        b = np.cumsum(a**2, axis=0)
        return torch.from_numpy(b) + x

    return fn, lambda i: (torch.randn(4),)


@program
def test_array_shares_memory_with_the_tensor():
    def fn(x):
        a = x.numpy()
        x.add_(1)
        before = a.copy()
        a *= 2
        return x + 0, before

    return fn, lambda i: (torch.randn(3),)


@program
def test_tensor_shares_memory_with_the_array_argument():
    def fn(a):
        t = torch.from_numpy(a)
        t.mul_(3)
        copied = torch.tensor(a)
        a += 1
        return t, copied, a.sum()

    return fn, lambda i: (np.arange(3.0) + i,)


@program_with_caller
def test_caller_keeps_the_array_and_changes_it():
    def fn(x):
        y = x * 2
        return y, y.numpy()

    def caller(fn, x):
        tensor, array = fn(x)
        array[0] = 100
        return tensor, np.shares_memory(tensor.numpy(), array)

    return fn, caller, lambda i: (torch.randn(3),)


@program
def test_as_tensor_and_asarray():
    def fn(a):
        shared, copied = torch.as_tensor(a), torch.as_tensor(a, dtype=torch.float64)
        back = np.asarray(shared)
        back[0] = 9
        return shared, copied, torch.asarray([1.5, float(a[1])])

    return fn, lambda i: (np.arange(3, dtype=np.float32) + i,)


@program
def test_scipy_in_the_middle():
    def fn(x):
        y = x.exp()
        z = torch.from_numpy(scipy.special.gammaln(y.numpy()))
        smooth = scipy.ndimage.gaussian_filter1d(z.numpy(), 1.0)
        return z * 2, torch.from_numpy(smooth)

    return fn, lambda i: (torch.rand(5, dtype=torch.float64),)


@program
def test_numpy_of_a_tensor_that_requires_grad():
    def fn(x):
        try:
            return x.numpy().sum()
        except RuntimeError as error:
            return str(error), float(x.detach().numpy().sum())

    return fn, [(torch.arange(3.0, requires_grad=g),) for g in (True, False, True, False)]


@program_with_caller(exact=False)
def test_gradient_flows_around_the_numpy_part():
    def fn(x):
        weight = torch.from_numpy(np.tanh(x.detach().numpy()))
        return (x * weight).sum()

    def caller(fn, x):
        out = fn(x)
        out.backward()
        return out, x.grad

    return fn, caller, lambda i: (torch.randn(3, requires_grad=True),)


@program
def test_numpy_scalars_as_factors():
    def fn(x, a):
        total = a.sum()
        y = x * float(total) + x * a.max() + int(a.argmax())
        return y, float(np.sqrt(total)), bool(a.any()), type(total).__name__

    return fn, [(torch.randn(2), np.array(v)) for v in ([1.0, 2.0], [0.0, 0.0], [3, 4], [1.0, 5.0])]


@program
def test_universal_function_called_on_a_tensor():
    def fn(x):
        y = np.sin(x)
        z = np.multiply(x.numpy(), x)
        return type(y).__name__, torch.as_tensor(y) + 1, torch.as_tensor(z)

    return fn, lambda i: (torch.randn(3, dtype=torch.float64),)


@program
def test_array_times_tensor_and_tensor_times_array():
    def fn(x, a):
        left = x * torch.from_numpy(a)
        return left, torch.as_tensor(a + x.numpy()), x + a.tolist()[0]

    return fn, lambda i: (torch.randn(3), np.arange(3, dtype=np.float32) + i)


@program
def test_branch_on_a_numpy_value():
    def fn(x):
        a = x.numpy()
        if np.isnan(a).any():
            return torch.nan_to_num(x)
        if a.mean() > 0:
            return x * 2
        return x - 1

    return fn, [(torch.tensor(v),) for v in ([1.0, 2.0], [-1.0, -2.0], [float("nan"), 1.0], [2.0, 1.0], [-3.0, 0.0])]


@program
def test_mask_and_index_arrays():
    def fn(x, mask, index):
        return x[torch.from_numpy(mask)], x[index], x[mask].sum()

    return fn, [
        (torch.arange(4.0), np.array(m), np.array(j))
        for m, j in (([True, False, True, False], [0, 3]), ([False] * 4, [1]), ([True] * 4, [2, 2, 2]))
    ]


@program
def test_closure_array_is_changed_by_each_call():
    history = np.zeros(3)

    def fn(x):
        history[:] = history * 0.5 + x.numpy()
        return torch.from_numpy(history.copy()) * 2

    return fn, lambda i: (torch.randn(3, dtype=torch.float64),), history


@program
def test_shape_arithmetic_with_numpy_integers():
    def fn(x):
        n = np.prod(x.shape)
        half = np.ceil(n / 2)
        return x.reshape(int(n)), torch.ones(int(half)) * int(n), isinstance(n, np.integer)

    return fn, [(torch.randn(2, 3),), (torch.randn(5),), (torch.randn(2, 3),), (torch.randn(1, 1, 7),)]


@program
def test_dtype_conversion_on_the_way():
    def fn(x, dtype):
        a = x.numpy().astype(dtype)
        t = torch.from_numpy(a)
        return t, t.dtype, (t + x).dtype

    return fn, [(torch.arange(4.0) * 60, d) for d in ("int32", "float64", "uint8", "int32", "float16")]


@program
def test_linear_algebra_of_numpy():
    def fn(m, v):
        solution = np.linalg.solve((m @ m.T + torch.eye(3, dtype=m.dtype)).numpy(), v.numpy())
        return torch.from_numpy(solution) @ m

    return fn, lambda i: (torch.randn(3, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64))


@program
def test_exception_of_numpy_is_caught():
    def fn(x, y):
        try:
            return torch.from_numpy(x.numpy() + y.numpy())
        except ValueError as error:
            return str(error), x * 2

    return fn, [(torch.randn(3), torch.randn(n)) for n in (3, 2, 3, 2)]


@program(exact=False)
def test_array_interface_functions_on_tensors():
    def fn(x):
        return np.array(x).tolist(), np.stack([x, x * 2]).sum(), np.allclose(x, x.clone()), list(np.shape(x))

    return fn, lambda i: (torch.randn(2, 2),)


@program
def test_frombuffer_reads_bytes():
    def fn(raw, x):
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8).float() * x

    return fn, [(b, torch.ones(1)) for b in (b"abc", b"zz", b"abc")]


@program(breaks=0, exact=False)
def test_functions_on_a_tensors_array_are_part_of_the_graph():
    def fn(x, scale):
        a = x.detach().cpu().numpy()
        centered = (a - a.mean(axis=0)) / (a.std(axis=0) + 1e-6)
        b = np.where(centered > 0, centered, 0.1 * centered)
        c = np.concatenate([b, np.sin(a)], axis=1) * scale
        return torch.from_numpy(c) + 1, c, c.sum(), c.dtype, c.shape, b.T @ a

    return fn, [(torch.randn(n, 2), s) for n, s in ((3, 2.0), (3, 0.5), (4, 2.0), (5, 2.0))]


@program(breaks=0, exact=False)
def test_arrays_are_arguments_and_results():
    def fn(a, b):
        total = a.sum(axis=1, keepdims=True)
        return {"sum": total, "parts": [a[1:], a.reshape(-1)[::2]], "max": a.max()}, np.dot(a, b), a

    return fn, lambda i: (np.random.randn(3, 2), np.random.randn(2, 4).astype(np.float32))


@program_with_caller(breaks=0)
def test_results_share_memory_as_in_numpy():
    def fn(a, x):
        return a[1:], a.T, a.reshape(-1), a.copy(), np.asarray(a), x.numpy(), torch.from_numpy(a), a.astype(np.float64)

    def caller(fn, a, x):
        results = fn(a, x)
        a[:] = 7
        x.fill_(9)
        results[0][0] = 5
        return results, a

    return fn, caller, lambda i: (np.random.randn(3, 2), torch.randn(3))


@program(breaks=0)
def test_writes_into_arrays_arrive():
    held = np.zeros(4, dtype=np.float32)

    def fn(x, a):
        shown = x.numpy()
        shown += 1
        shown[shown > 1] = 0
        held[1:] = shown[:3]
        a[0] *= 2
        a.fill(3) if a.ndim == 1 else np.multiply(a, 2, out=a)
        a[:, [0, 1]] -= x.numpy()[:2]
        view = a[1]
        view += 10
        return x, a, held + 0, view is a, shown

    return fn, lambda i: (torch.randn(4), np.random.randn(3, 2).astype(np.float32)), held


@program(breaks=0)
def test_one_array_twice_and_overlapping_arrays():
    def fn(a, b):
        a += 1
        return a * b, b

    def pair(i):
        whole = np.arange(6.0)
        return [(whole, whole), (whole[:3], whole[3:]), (whole[:4], whole[2:]), (whole, whole)][i % 4]

    return fn, [pair(i) for i in range(4)]


@program(breaks=0, exact=False)
def test_scalars_of_the_graph():
    def fn(a, x):
        mean, largest = a.mean(), a.max()
        ratio = mean / largest + np.float32(1)
        return (
            x * mean + largest * x,
            ratio,
            float(ratio),
            math.exp(mean),
            np.sqrt(abs(mean)),
            mean.astype(np.float16),
            f"{largest:.2f}",
            a.argmax(),
            int(a.argmax()) + 1,
            [float(row) for row in a.sum(axis=1)],
            torch.tensor(mean) * 2,
            torch.as_tensor(a.sum(), dtype=torch.float64),
        )

    return fn, lambda i: (np.random.randn(3, 2).astype(np.float32), torch.randn(2))


@program(breaks=0, exact=False)
def test_tensors_given_to_numpy():
    def fn(x):
        y = np.sin(x)
        parts = np.stack([x, x * 2]), np.asarray(x, dtype=np.float64), np.linalg.norm(x)
        return y, np.maximum(x, 0), np.isnan(x), parts, x + np.ones(3), x[np.array([0, 2])], x.numpy(force=True)

    return fn, lambda i: (torch.randn(3),)


@program(breaks=0, exact=False)
def test_wrapped_functions_of_numpy():
    fn = torch.compiler.wrap_numpy(lambda x, y: np.sum(x[:, :, None] * y[:, None, :], axis=(-2, -1)))
    return fn, lambda i: (torch.randn(3, 4), torch.randn(3, 2))


@program(breaks=0, exact=False)
def test_gradients_flow_beside_arrays():
    def fn(x, weight):
        scale = torch.from_numpy(np.tanh(x.detach().numpy()).mean(axis=0))
        loss = (x * weight * scale).sum()
        loss.backward()
        return loss

    return fn, lambda i: (torch.randn(3, 2), torch.ones(2, requires_grad=True))


@program(breaks=0)
def test_arrays_filled_by_the_program():
    def fn(x):
        table = np.zeros((2, 3))
        table[0] = [1, 2, 3]
        table[1, ::2] = 5
        out = np.empty(3, dtype=np.float32)
        out[:] = x.numpy() * 2
        sums = np.zeros(3)
        for row in table:
            sums += row
        sums += out
        return torch.tensor(table) * 2, table, out, sums

    return fn, lambda i: (torch.randn(3),)


@program
def test_what_has_no_torch_meaning_breaks():
    def fn(a):
        return np.unique(a), np.flip(a, 0), np.broadcast_to(a, (2, 3)), a[::-1] + 1, np.random.rand(2), a.base is None

    return fn, lambda i: (np.arange(3.0) + i,)


@program
def test_errors_of_numpy_come_from_numpy():
    def fn(a, b):
        try:
            return a + b
        except ValueError as error:
            a += 1
            return str(error), a

    return fn, [(np.ones(n), np.ones(m)) for n, m in ((3, 3), (3, 2), (3, 3), (3, 2))]


@program
def test_arrays_that_torch_cannot_show():
    def fn(a):
        return a * 2 + 1, a.sum()

    def reversed_(i):
        return [np.arange(3.0)[::-1], np.arange(3, dtype=">f8"), np.arange(3, dtype=np.uint16), np.arange(3.0)][i]

    def locked(a):
        a.flags.writeable = False
        return a

    return fn, [(reversed_(i),) for i in range(4)] + [(locked(np.arange(3.0)),), (np.ones((2, 2)).view(np.matrix),)]


@program
def test_errstate_that_raises():
    def fn(a):
        with np.errstate(divide="raise"):
            try:
                return 1 / a
            except FloatingPointError as error:
                return str(error)

    return fn, [(np.array(v),) for v in ([1.0, 2.0], [0.0, 1.0], [1.0, 4.0])]


@program(exact=False)
def test_arrays_across_a_break():
    def fn(x):
        a = x.numpy() * 2
        b = a[1:]
        total = a.sum()
        if x.sum() > 0:
            b += 1
        return a, b, total * 2, a + total

    return fn, [(torch.full((3,), v),) for v in (1.0, -1.0, 2.0, -2.0)]


def test_arrays_are_computed_by_kernels():
    def fn(a, x):
        b = np.exp(-(a**2)) * x.numpy()
        return (b / b.sum(axis=1, keepdims=True)).astype(np.float32), np.tanh(b[1:]).mean()

    compiled = burnish.compile(fn, fullgraph=True, options={"never_slower": False})
    for rows in (4, 4, 5, 6, 7):
        a, x = np.random.randn(rows, 3), torch.randn(rows, 3)
        want, got = fn(a, x), compiled(a, x)
        assert type(got[0]) is np.ndarray and got[0].dtype == np.float32 and type(got[1]) is np.float64
        np.testing.assert_allclose(got[0], want[0], rtol=1e-5)
        np.testing.assert_allclose(got[1], want[1], rtol=1e-5)
    assert burnish.was_compiled(compiled)


def test_a_number_of_the_graph_is_no_constant():
    compiled = burnish.compile(lambda a, items: items[int(a.sum())], backend="eager")
    for k in (0, 1, 2, 1):
        assert compiled(np.array([k, 0]), ["a", "b", "c"]) == "abc"[k]
    table = burnish.compile(lambda a, d: d[a.sum()], backend="eager")
    for k in (0, 1, 2, 1):
        assert table(np.array([k, 0]), {0: "a", 1: "b", 2: "c"}) == "abc"[k]
