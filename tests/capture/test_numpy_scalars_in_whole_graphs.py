"""NumPy scalars that change from call to call, under ``fullgraph=True``: a break is an error there."""

import math

import numpy as np
import pytest
import torch

import burnish

FNS = {
    "slice": lambda x, n: x[:n] * 2,
    "index": lambda x, n: x[n],
    "int": lambda x, n: x * int(n),
    "float": lambda x, n: x * float(n),
    "item": lambda x, n: x + n.item(),
    "product": lambda x, n: x * n,
    "size": lambda x, n: torch.zeros(int(n)) + x[0],
    "comparison": lambda x, n: x + 1 if n > 3 else x,
    "truth": lambda x, n: x if n else -x,
    "element of a list": lambda x, n: x * [1, 2, 3, 4, 5, 6][n],
    "key": lambda x, n: x * {2: 1, 3: 2, 4: 5, 5: 7}[n],
    "loop": lambda x, n: sum(x * i for i in range(n)),
    "text": lambda x, n: (x + 1, f"{n}", str(n)),
    "function": lambda x, n: x * np.sqrt(n) + math.gcd(n, 2),
    "twice": lambda x, n: x * np.add(n, n),
    "returned": lambda x, n: (x * 2, n, type(n + 1).__name__),
}


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("name", FNS)
def test_scalar_that_changes(name, kind):
    fn = FNS[name]
    burnish.reset()
    compiled = burnish.compile(fn, fullgraph=True, backend="eager")
    for n in (2, 3, 4, 5, 3):
        x = torch.randn(8)
        found, wanted = compiled(x, kind(n)), fn(x, kind(n))
        if type(wanted) is tuple:
            assert found[1:] == wanted[1:] and list(map(type, found)) == list(map(type, wanted))
            found, wanted = found[0], wanted[0]
        assert found.dtype == wanted.dtype and torch.equal(found, wanted)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_zeros_of_either_sign_and_fractions(kind):
    def fn(x, a):
        return x * 2, math.copysign(1.0, a), int(a), float(a), a.item(), np.float32(a) < 0, f"{a}"

    burnish.reset()
    compiled = burnish.compile(fn, fullgraph=True, backend="eager")
    for value in (0.5, -1.75, 0.0, -0.0, 0.1, -0.0, 0.0):
        x = torch.ones(3)
        found, wanted = compiled(x, kind(value)), fn(x, kind(value))
        assert repr(found[1:]) == repr(wanted[1:]) and torch.equal(found[0], wanted[0])


def test_a_number_read_from_a_scalar_is_compiled_once():
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    compiled = burnish.compile(lambda x, n: x * int(n) + n.item(), backend=backend)
    for n in range(2, 9):
        assert torch.equal(compiled(torch.ones(3), np.int64(n)), torch.full((3,), 2.0 * n))
    assert len(graphs) == 2


def test_texts_of_scalars():
    constant = np.float32(0.1)

    def fn(x, a):
        texts = f"{a}", format(a), "{}".format(a), f"{constant}", f"{a!s}", f"{a:.3f}", f"{np.float16(0.1)}"  # noqa: UP032
        y = x * 2
        return y, texts, f"{y.numpy().max()}", f"{np.bool_(True)} {np.complex64(1j)} {np.int8(3)}"

    compiled = burnish.compile(fn, backend="eager")
    for value in (0.1, 0.1, 0.2, 0.3):
        x = torch.full((2,), value)
        assert compiled(x, np.float32(value))[1:] == fn(x, np.float32(value))[1:]
