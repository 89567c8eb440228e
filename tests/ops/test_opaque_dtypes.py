"""Floats of 8 bits and unsigned integers of 16 to 64: eager's kernels run on them, inside compiled graphs."""

import pytest
import torch

import burnish
from burnish import events
from burnish.settings import patch
from burnish.tensors.dtypes import has_loops

OPAQUE = [
    *(torch.uint16, torch.uint32, torch.uint64),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
]
OF_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

PROGRAMS = {
    "cast to it": lambda x, d: (x * 2).to(d),
    "cast and back": lambda x, d: (x * 2).to(d).float() + 1,
    "scaled by rows": lambda x, d: ((x / x.amax(-1, keepdim=True)).to(d), x.amax(-1)),
    "its bits": lambda x, d: (x + 1).to(d).view(OF_BITS[d.itemsize]) + 1,
    "of bits": lambda x, d: (x + 1).to(OF_BITS[d.itemsize]).view(d).float() * 2,
    "views": lambda x, d: (x.to(d).t(), x.to(d)[1:, ::2].float() * 3, x.to(d)[:, None].expand(3, 2, 4).float()),
    "copies": lambda x, d: (x.to(d).t().contiguous(), x.to(d).clone(), torch.cat([x.to(d), x.to(d)], 1)),
    "writes": lambda x, d: torch.zeros(3, 4, dtype=d).copy_(x + 1),
    "one row is written": lambda x, d: torch.zeros(3, 4, dtype=d).select_scatter((x[0] + 1).to(d), 0, 1),
    "created": lambda x, d: (torch.zeros_like(x, dtype=d), torch.full((3,), 2, dtype=d), x + 1),
    "padded": lambda x, d: torch.nn.functional.pad(x.to(d), (1, 1)),
    "a product of casts": lambda x, d: x.to(d).float() @ x.to(d).t().float(),
    "a number": lambda x, d: x.to(d)[0, 0].item() + x,
}
REFUSED = {
    "sum": lambda x, d: x.to(d).sum(),
    "two dtypes": lambda x, d: x.to(d) + x.to(torch.int32),
    "addition": lambda x, d: x.to(d) + x.to(d),
    "random integers": lambda x, d: torch.randint(0, 5, (3,), dtype=d) * 0,
    "maximum": lambda x, d: x.to(d).amax(),
    "rows by index": lambda x, d: torch.zeros(3, 4, dtype=d).index_put_((torch.tensor([1]),), x[0].to(d)),
    "joined dtypes": lambda x, d: torch.cat([x.to(d), x.to(torch.int32)]),
}
"""What eager has a kernel for in some of these dtypes only."""


def bits(value):
    found = value if isinstance(value, tuple) else (value,)
    return [(x.dtype, x.shape, x.stride(), x.detach().flatten().contiguous().view(torch.uint8).tolist()) for x in found]


def outcome(function, *args):
    try:
        return bits(function(*args))
    except (RuntimeError, NotImplementedError, TypeError) as error:
        return type(error)


@pytest.fixture(autouse=True)
def compiled_code():
    with patch(never_slower=False, on_error="raise"):
        yield


@pytest.fixture
def refused():
    found = []
    stop = events.subscribe(lambda event: event.data.get("fallback") and found.append(event.data["text"]))
    yield found
    stop()


@pytest.mark.parametrize("dtype", OPAQUE, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_graph_with_an_opaque_dtype_is_compiled(name, dtype, refused):
    program, x = PROGRAMS[name], torch.tensor([[1.0, 2.0, 3.0, 0.5], [7.0, 6.0, 5.0, 4.0], [9.0, 2.0, 1.0, 8.0]])
    compiled = burnish.compile(program)
    for _ in range(3):
        assert bits(compiled(x.clone(), dtype)) == bits(program(x.clone(), dtype))
    assert not refused


@pytest.mark.parametrize("dtype", OPAQUE, ids=str)
@pytest.mark.parametrize("name", REFUSED)
def test_operator_without_a_kernel_raises_as_in_eager(name, dtype):
    program, x = REFUSED[name], torch.arange(12.0).view(3, 4)
    compiled = burnish.compile(program)
    for _ in range(2):
        assert outcome(compiled, x.clone(), dtype) == outcome(program, x.clone(), dtype)


@pytest.mark.parametrize("dtype", OPAQUE[3:5], ids=str)
def test_gradients_flow_through_casts_to_floats_of_8_bits(dtype, refused):
    def program(x, w):
        scale = x.detach().abs().amax() / 16
        return ((x / scale).to(dtype).float() * scale @ w.to(dtype).float()).relu().square().sum()

    compiled = burnish.compile(program)
    for rows in (4, 4, 6, 9):
        given = torch.randn(rows, 8), torch.randn(8, 5)
        found = []
        for function in (program, compiled):
            leaves = [x.clone().requires_grad_() for x in given]
            function(*leaves).backward()
            found.append([x.grad for x in leaves])
        torch.testing.assert_close(found[1], found[0])
    assert not refused


def test_weights_of_8_bits_are_read_again_after_a_write(refused):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(8, 16).to(torch.float8_e4m3fn), requires_grad=False)
            self.scale = torch.nn.Parameter(torch.rand(8, 1))

        def forward(self, x):
            return torch.nn.functional.silu(x @ (self.weight.to(x.dtype) * self.scale).t()) + 1

    layer = Layer()
    compiled = burnish.compile(layer)
    with torch.no_grad():
        for rows in (3, 3, 5):
            x = torch.randn(rows, 16)
            torch.testing.assert_close(compiled(x), layer(x))
            layer.weight.copy_(torch.randn(8, 16).to(torch.float8_e4m3fn))
    assert not refused


def test_there_are_no_loops_of_opaque_dtypes():
    assert not any(map(has_loops, (*OPAQUE, torch.complex64, None)))
    assert has_loops(torch.bfloat16) and has_loops(torch.bool)
