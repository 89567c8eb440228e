"""NumPy's functions on data, one by one and by dtype: compiled they return what NumPy returns, special values included.

Each expression is compiled for itself. It may break the graph, but not where the table says that it is part of it.
"""

import numpy as np
import pytest

import burnish
from burnish import events

EXPRESSIONS = """
    np.add(a,b)  a-b  a*b  a/b  a//b  a%b  a**2  a**b  a@b.T  -a  +a  ~a  abs(a)  a+1  a+1.5  1-a  2/a  a*True  a<<1
    a>>1  a&b  b  a^b  a<b  a<=1  a==b  a!=0  a>0.5  a>=b  np.exp(a)  np.exp2(a)  np.expm1(a)  np.log(abs(a)+1)
    np.log2(abs(a)+1)  np.log10(abs(a)+1)  np.log1p(abs(a))  np.sqrt(abs(a))  np.square(a)  np.sin(a)  np.cos(a)
    np.tan(a)  np.arcsin(np.sin(a))  np.arccos(np.cos(a))  np.arctan(a)  np.arctan2(a,b)  np.hypot(a,b)  np.sinh(a)
    np.cosh(a)  np.tanh(a)  np.arcsinh(a)  np.deg2rad(a)  np.rad2deg(a)  np.radians(a)  np.degrees(a)  np.floor(a)
    np.ceil(a)  np.trunc(a)  np.rint(a)  np.sign(a)  np.fabs(a)  np.absolute(a)  np.reciprocal(a)  np.conjugate(a)
    np.positive(a)  np.negative(a)  np.logical_and(a,b)  np.logical_or(a,b)  np.logical_not(a)  np.logical_xor(a,b)
    np.maximum(a,b)  np.minimum(a,0)  np.fmax(a,b)  np.fmin(a,b)  np.isnan(a)  np.isinf(a)  np.isfinite(a)
    np.signbit(a)  np.copysign(a,b)  np.logaddexp(a,b)  np.heaviside(a,0.5)  np.gcd(a,b)  np.lcm(a,b)
    np.divmod(a,b)  np.floor_divide(a,2)  np.remainder(a,3)  np.fmod(a,b)  np.power(a,3)  np.power(a,0.5)
    np.float_power(a,2)  np.nextafter(a,b)  np.add(a,b,dtype=np.float64)  np.multiply(a,np.float32(2))
    np.multiply(a,np.float64(2))  a*np.int8(3)  np.subtract(a,b)  np.true_divide(a,2)  np.logaddexp2(a,b)
    np.less(a,b)  np.equal(a,1)  a.sum()  a.sum(axis=0)  a.sum(axis=(0,1))  a.sum(axis=1,keepdims=True)
    a.sum(dtype=np.float32)  np.sum(a,-1)  np.nansum(a)  np.prod(a)  a.prod(axis=0)  a.mean()  a.mean(axis=1)
    a.mean(axis=0,keepdims=True)  np.mean(a,dtype=np.float64)  np.nanmean(a,axis=0)  a.std()  a.std(axis=0)
    a.std(ddof=1)  a.var(axis=1,ddof=1)  a.max()  a.max(axis=0)  np.min(a,axis=(0,1))  np.amax(a,1)  np.ptp(a)
    a.any(axis=0)  a.all(axis=1)  np.any(a,axis=1,keepdims=True)  np.count_nonzero(a)  np.count_nonzero(a,axis=0)
    a.argmax()  a.argmax(axis=1)  np.argmin(a,axis=0,keepdims=True)  a.cumsum()  a.cumsum(axis=1)
    np.cumprod(a,axis=0)  np.median(a)  np.median(a,axis=0)  np.median(a,axis=1,keepdims=True)  np.quantile(a,0.3)
    np.percentile(a,40,axis=0)  np.sort(a)  np.sort(a,axis=None)  np.argsort(a,kind='stable')
    a.argsort(axis=0,kind='stable')  np.trace(a)  a.reshape(-1)  a.reshape(4,3)  a.reshape((2,6))
    np.reshape(a,(3,-1))  a.T  a.T.reshape(-1)  np.transpose(a)  a.transpose(1,0)  a.ravel()  a.T.ravel()
    a.flatten()  a[None].squeeze()  np.squeeze(a[None],0)  np.expand_dims(a,1)  np.swapaxes(a,0,1)
    np.moveaxis(a[None],0,-1)  a.copy()  a.T.copy()  np.array(a)  np.array(a,dtype=np.float64)  np.asarray(a)
    np.asarray(a,dtype=np.float32)  np.ascontiguousarray(a.T)  a.astype(np.float32)  a.astype('int64')
    a.astype(bool)  a.astype(float)  a.astype(a.dtype,copy=False)  np.atleast_1d(a[0])  np.atleast_2d(a[0])
    np.concatenate([a,b])  np.concatenate((a,b),axis=1)  np.concatenate([a,b],axis=None)  np.stack([a,b])
    np.stack([a,b],axis=-1)  np.vstack([a,b[0]])  np.hstack([a,b])  np.dstack([a,b])  np.column_stack([a[0],b[0]])
    np.split(a,3)  np.array_split(a,2,axis=1)  np.split(a,[1,2])  np.tile(a,2)  np.tile(a,(2,1))  np.repeat(a,2)
    np.repeat(a,2,axis=1)  a.repeat(3,axis=0)  np.roll(a,1)  np.roll(a,(1,2),axis=(0,1))  np.diff(a)
    np.diff(a,axis=0)  np.where(a>0,a,b)  np.where(a>0,a,0)  np.where(a>0,1.0,0.0)  np.where(a,a,b)  np.clip(a,-1,1)
    np.clip(a,0,None)  a.clip(min=0)  np.clip(a,b,b)  np.round(a)  a.round(2)  np.take(a,[0,1],axis=1)  np.take(a,5)
    a.take([1,-1])  np.take_along_axis(a,np.argsort(a,axis=1,kind='stable'),axis=1)  np.tril(a)  np.triu(a,1)
    np.diag(a[0])  np.nan_to_num(a)  np.isclose(a,b)  np.isclose(a,a,equal_nan=True)  np.real(a)  np.imag(a)  a.real
    a.imag  np.zeros_like(a)  np.ones_like(a,dtype=np.float32)  np.full_like(a,2)  np.meshgrid(a[0],b[0])
    np.meshgrid(a[0],b[0],indexing='ij')  np.pad(a,1)  np.pad(a,((1,0),(0,2)))  np.pad(a,(1,2),constant_values=1)
    np.dot(a,b.T)  a.dot(b[0])  np.dot(a[0],b[0])  np.inner(a,b)  np.vdot(a,b)  np.outer(a[0],b[1])
    np.tensordot(a,b,axes=2)  np.tensordot(a,b,axes=((1,),(1,)))  np.kron(a[0],b[0])  np.cross(a[:,:3],b[:,:3])
    np.einsum('ij,kj->ik',a,b)  np.matmul(a,b.T)  a[0]@b[0]  np.linalg.norm(a)  np.linalg.norm(a,axis=1)
    np.linalg.norm(a[0],1)  np.linalg.norm(a,2)  np.linalg.norm(a,axis=0,keepdims=True)
    np.linalg.det(a[:,:3]+np.eye(3)*9)  np.linalg.cholesky(np.eye(3)*2+a[:,:3]*0)  a[0]  a[-1]  a[:,1]  a[1:,::2]
    a[...,0]  a[None]  a[:,None]  a[0,1]  a[a>0]  a[[0,2]]  a[np.array([0,1]),np.array([1,2])]  a[0,[1,2]]
    a[:,[1,1]]  a[::-1]  a[np.array([True,False,True])]  a[a.argmax(axis=1)%3]  a[1:1]  a[...]  a[()]  a.sum()*b
    a.mean()+1  a.sum()+np.float32(1)  a.sum()/a.max()  -a.sum()  np.sqrt(abs(a).sum())  a.sum()>a  a-a.mean()
    (a-a.mean(axis=0))/(a.std(axis=0)+1)  a.sum().astype(np.float32)  np.exp(a-a.max())/np.exp(a-a.max()).sum()
    a.sum()**2  a.max()-b.min()  np.maximum(a.sum(),b)  np.stack([a.sum(),b.sum()])  float(a.sum())  int(a.sum())
    a.shape  a.dtype  a.size  len(a)  a.ndim  sum(a)
""".split()
BREAKS = """
    np.imag(a)  a.imag  np.linalg.norm(a,2)  a[a>0]  a[::-1]  a[np.array([True,False,True])]
    ~a  a<<1  a>>1  a&b  a^b  np.gcd(a,b)  np.lcm(a,b)
""".split()
"""The expressions that break the graph for float32: NumPy returns a read-only or reversed view, raises an error, or the
size of its result depends on the data."""
DTYPES = ("float32", "float64", "int64", "int32", "uint8", "bool", "float16", "complex64")
TOLERANCE = {"float16": 2e-2, "float32": 1e-4, "complex64": 1e-4}


def data(dtype, seed, is_special):
    random = np.random.RandomState(seed)
    values = random.randn(3, 4) * 3
    if dtype == "complex64":
        values = values + 1j * random.randn(3, 4)
    if dtype == "uint8":
        values = np.abs(values)
    array = values > 0 if dtype == "bool" else values.astype(dtype)
    if is_special and dtype.startswith("float"):
        array[0, :2], array[1, :2], array[2, 2] = (np.nan, 0), (-0.0, np.inf), -np.inf
    return array


def assert_same(want, got, tolerance):
    assert type(want) is type(got)
    if isinstance(want, (list, tuple)):
        assert len(want) == len(got)
        for one, other in zip(want, got, strict=True):
            assert_same(one, other, tolerance)
    elif isinstance(want, (np.ndarray, np.generic)):
        assert want.dtype == got.dtype and want.shape == got.shape
        if isinstance(want, np.ndarray) and want.size:
            steps = zip(want.shape, want.strides, got.strides, strict=True)
            assert all(size == 1 or one == other for size, one, other in steps)
        np.testing.assert_allclose(got.astype(complex), want.astype(complex), rtol=tolerance, atol=tolerance)
    else:
        assert want == pytest.approx(got, rel=1e-3, nan_ok=True) if isinstance(want, (float, complex)) else want == got


def called(fn, *args):
    """The result, or the error as a text."""
    try:
        return fn(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_return_what_numpy_returns(dtype):
    broken = []
    for text in EXPRESSIONS:
        fn = eval(f"lambda a, b: {text}")
        found = []
        compiled = burnish.compile(fn, backend="eager")
        stop = events.subscribe(lambda event, found=found: found.append(event) if event.kind == "breaks" else None)
        for call in range(4):
            args = data(dtype, call, call in (1, 3)), data(dtype, call + 10, call == 3)
            want, got = called(fn, *map(np.copy, args)), called(compiled, *map(np.copy, args))
            try:
                assert_same(want, got, TOLERANCE.get(dtype, 1e-6))
            except AssertionError as error:
                raise AssertionError(f"{text}, call {call}: {error}") from None
        stop()
        broken += [text] if found else []
    if dtype == "float32":
        assert set(broken) <= set(BREAKS)


WRITES = """
    np.multiply(a,3,a)  np.negative(a,a)  np.add(a,1,out=(a,))  np.clip(a,0.2,0.7,a)  a.clip(0.2,0.7,a)
    np.cumsum(a,0,None,a)  a.cumsum(0,None,a)  np.sum(a,0,None,a[0])  a.max(0,a[1])  np.mean(a,0,None,a[2])
    np.dot(a.copy(),a.copy(),a)  np.round(a,1,a)  np.modf(a,a,a.copy())  np.matmul(a.copy(),a.copy(),a)
    np.take(a,[1,0,2,3],0,a)
"""


@pytest.mark.parametrize("text", WRITES.split())
@pytest.mark.parametrize("ends", [False, True])
def test_an_array_that_is_written_to_by_position(text, ends):
    """`ends`: what comes after it is a break, which sees the array."""
    write = eval(f"lambda a: {text}")

    def fn(a):
        made = a * 1.5
        write(made)
        return (np.linalg.det(made) if ends else None), made

    compiled = burnish.compile(fn, backend="eager")
    for call in range(3):
        a = np.random.default_rng(call).random((4, 4))
        for want, got in zip(fn(a.copy()), compiled(a.copy()), strict=True):
            assert want is got is None or np.allclose(want, got)
