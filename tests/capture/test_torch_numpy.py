"""NumPy and SciPy between torch calls, memory shared and copied."""

import numpy as np
import scipy.ndimage
import scipy.special
import torch

from .caller_programs import program_with_caller
from .harness import program


@program
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


@program_with_caller
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


@program
def test_array_interface_functions_on_tensors():
    def fn(x):
        return np.array(x).tolist(), np.stack([x, x * 2]).sum(), np.allclose(x, x.clone()), list(np.shape(x))

    return fn, lambda i: (torch.randn(2, 2),)


@program
def test_frombuffer_reads_bytes():
    def fn(raw, x):
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8).float() * x

    return fn, [(b, torch.ones(1)) for b in (b"abc", b"zz", b"abc")]
