"""Recorded launches on the pretended GPU, and what they show about plans for a real one."""

import pytest

pytest.importorskip("triton")

from bench.launches import instructions, read, summary_of

from bench import launches, pretend

from ..forked_programs import ProgramServer

CALL = """
import ctypes, os, torch, burnish
from bench.pretend import leave
from torch import nn
os.environ["PRETEND_CODE"] = "{code}"
torch.backends.cuda.enable_cudnn_sdp(False)

{model}

def call():
    compiled(x).float().sum().backward()

compiled = burnish.compile(model)
for _ in range(3):
    call()
gpu = ctypes.CDLL(None)
gpu.pretended_note(b"{notes}")
call()
gpu.pretended_note(None)
leave()
"""

LAYERS = """
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.drop = nn.Linear(256, 256), nn.LayerNorm(256), nn.Dropout(0.1)

    def forward(self, x):
        return self.norm(x + self.drop(self.linear(x)))

model = nn.Sequential(*(Layer() for _ in range(LAYERS))).to("cuda", torch.bfloat16)
x = torch.randn(8, 512, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
"""

NORMS = """
model = nn.Sequential(nn.Conv2d(64, 256, 1), nn.BatchNorm2d(256), nn.ReLU(), nn.Conv2d(256, 64, 1), nn.BatchNorm2d(64))
model = model.to("cuda", memory_format=FORMAT)
x = torch.randn(8, 64, 64, 64, device="cuda").to(memory_format=FORMAT).requires_grad_()
"""


@pytest.fixture(scope="module")
def server():
    if (why := pretend.why_not()) is not None:  # asked here, for it compiles the GPU
        pytest.skip(why)
    environment = {**pretend.environment(), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    made = ProgramServer("import torch, burnish, bench.pretend", environment)
    yield made
    made.close()


@pytest.fixture
def noted(server, tmp_path):
    def run(model):
        code, notes = tmp_path / "code", tmp_path / "notes"
        code.mkdir(exist_ok=True)
        ran = server.run(CALL.format(model=model, code=code, notes=notes))
        assert ran.returncode == 0, ran.stderr
        return read(notes.read_text(), code)

    return run


@pytest.fixture
def without_instructions(monkeypatch):
    """To count them takes longer than all else, and few tests look at them."""
    monkeypatch.setattr(launches, "instructions", lambda cubin: 0)


def test_kernels_are_noted_with_their_memory_and_their_code(noted, tmp_path):
    model = 'model, x = torch.sin, torch.randn(1 << 20, device="cuda", requires_grad=True)'
    found = noted(model)
    kernels = list(found.kernels.values())
    assert len(kernels) == 2, "forward and backward"
    assert all(kernel.calls == 1 and kernel.instructions > 50 and kernel.programs == 1024 for kernel in kernels)
    assert kernels[0].bytes == 2 << 22 and kernels[1].bytes == 3 << 22
    assert instructions(next((tmp_path / "code").glob("*.cubin"))) > 50
    assert "2 kernels over 21 MB" in summary_of("burnish", found, 5)


@pytest.mark.usefixtures("without_instructions")
def test_memory_traffic_of_a_layer_does_not_grow_with_later_layers(noted):
    """In half precision too: a value that several kernels read is stored, and in its own dtype, not as float32."""
    moved = []
    for layers in (4, 8):
        found = noted(f"LAYERS = {layers}\n{LAYERS}")
        moved.append(sum(kernel.calls * kernel.bytes for kernel in found.kernels.values()))
        assert len({kernel.name for kernel in found.kernels.values()}) < 20
    assert moved[1] < 2.1 * moved[0]
    # Of a layer's size: four in forward, and ten in backward, for the norm, its parameters, the bias and the sum.
    assert moved[1] / 8 < 15 * 8 * 512 * 256 * 2


@pytest.mark.usefixtures("without_instructions")
@pytest.mark.parametrize("format", ["torch.contiguous_format", "torch.channels_last"])
def test_norms_of_channels_are_shared_out_among_programs(noted, format):
    """A channel is a row, and there are few of them."""
    found = noted(f"FORMAT = {format}\n{NORMS}")
    large = [kernel for kernel in found.kernels.values() if kernel.bytes > 8 << 20]
    few = [kernel for kernel in large if kernel.programs < 100 and kernel.threads > 64]  # others look at an element
    assert len(large) >= 5 and not few, few
