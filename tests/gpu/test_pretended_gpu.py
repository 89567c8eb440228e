"""GPU tensors without a GPU: what torch and Burnish do with them, apart from computing; see `bench.pretend`."""

import pytest

pytest.importorskip("triton")

from bench import pretend

from ..forked_programs import ProgramServer

PRELUDE = """
import ctypes, torch, burnish
from burnish import events
from torch import nn

torch.backends.cuda.enable_cudnn_sdp(False)  # its plans are not part of the pretended GPU
messages = []
events.subscribe(lambda e: messages.append(e.data["text"]) if e.kind in
                 ("lower.refused", "runtime.cuda_graphs", "breaks", "guards.sizes") else None)
cuda = ctypes.CDLL("libcuda.so.1")
cuda.pretended_launches.restype = ctypes.c_ulonglong

def types(x):
    return [(tuple(t.shape), t.stride(), t.dtype, t.device) for t in (x if isinstance(x, (tuple, list)) else [x])]

def trained(model, *args, mode="default", steps=3):
    "Some steps, compiled; results have eager's layout."
    def step(run):
        model.zero_grad()
        out = run(*args)
        out.float().sum().backward()
        return types(out) + types([p.grad for p in model.parameters()])
    want, begun = step(model), cuda.pretended_launches()
    compiled = burnish.compile(model, mode=mode, fullgraph=True)
    for _ in range(steps):
        got = step(compiled)
        assert got == want, [pair for pair in zip(got, want) if pair[0] != pair[1]]
    return cuda.pretended_launches() - begun
"""


@pytest.fixture(scope="module")
def servers():
    """By the number of GPUs."""
    if (why := pretend.why_not()) is not None:  # asked here, for it compiles the GPU
        pytest.skip(why)
    made = {}
    yield made
    for server in made.values():
        server.close()


@pytest.fixture
def contact(servers):
    def run(code: str, gpus: int = 1) -> None:
        if gpus not in servers:
            servers[gpus] = ProgramServer("import torch, burnish, bench.pretend", pretend.environment(gpus))
        ran = servers[gpus].run(f"{PRELUDE}{code}\nfrom bench.pretend import leave\nleave()\n")
        assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"

    return run


def test_torch_takes_it_for_a_gpu_and_burnish_makes_kernels_for_it(contact):
    contact("""
x = torch.ones(3, 4, device="cuda")
assert torch.cuda.get_device_capability() == (9, 0) and x.sum().item() == 0  # nothing is computed
compiled = burnish.compile(lambda x: torch.softmax(x.sin(), -1), fullgraph=True)
for _ in range(2):
    assert types(compiled(x)) == types(x)
assert cuda.pretended_launches() == 1 and not messages, messages
""")


def test_attention_and_batch_norms_of_a_gpu_are_compiled(contact):
    contact("""
class Attention(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.project, self.dropout = nn.Linear(64, 192), dropout

    def forward(self, x):
        q, k, v = self.project(x).view(*x.shape[:2], 3, 4, 16).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout, is_causal=True)
        return y.transpose(1, 2).flatten(2).sin()

for dtype in (torch.float32, torch.bfloat16):
    for mode in ("default", "reduce-overhead"):
        x = torch.randn(2, 24, 64, device="cuda", dtype=dtype)
        assert trained(Attention(0.1).to("cuda", dtype), x, mode=mode) >= 3
images = torch.randn(2, 3, 8, 8, device="cuda")
for format in (torch.contiguous_format, torch.channels_last):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).to("cuda", memory_format=format)
    assert trained(model, images.to(memory_format=format)) >= 4
    model.eval()
    with torch.no_grad():
        compiled = burnish.compile(model, fullgraph=True)
        assert types(compiled(images)) == types(model(images)) == types(compiled(images))
assert not messages, messages
""")


def test_the_rules_of_attention_equal_results_of_torchs_kernels(contact):
    contact("""
from burnish.ir.infer_types import result_types, type_of
from burnish.ops.operator_record import lookup
from burnish.tensors.tensor_types import TensorType

aten = torch.ops.aten

def check(operator, *args):
    given = [TensorType.of(x) if isinstance(x, torch.Tensor) else x for x in args]
    made = operator(*args)
    ruled = lookup(operator).shape(*given)
    assert [x if isinstance(x, int) else type_of_any(x) for x in made] == list(ruled), (operator, made, ruled)
    return made

def type_of_any(x):
    return None if x is None else TensorType.of(x)

for shape, length in (((2, 4, 24, 16), 40), ((1, 3, 5, 64), 7)):
    for heads_inside in (False, True):
        def made(n):
            b, h, _, d = shape
            x = torch.empty((b, n, h, d) if heads_inside else (b, h, n, d), device="cuda", dtype=torch.bfloat16)
            return x.transpose(1, 2) if heads_inside else x
        q, k, v = made(shape[2]), made(length), made(length)
        out, sums, _, _, *lengths, seed, offset, _ = check(
            aten._scaled_dot_product_flash_attention.default, q, k, v, 0.1, False, False)
        check(aten._scaled_dot_product_flash_attention_backward.default, out, q, k, v, out, sums, None, None, *lengths,
              0.1, False, seed, offset)
        for is_trained in (False, True):
            out, sums, seed, offset = check(
                aten._scaled_dot_product_efficient_attention.default, q, k, v, None, is_trained, 0.1, False)
        check(aten._scaled_dot_product_efficient_attention_backward.default, out, q, k, v, None, out, sums, seed,
              offset, 0.1, [True, True, True, False], False)
""")


def test_calls_are_recorded_as_cuda_graphs_and_replayed(contact):
    contact("""
from burnish.runtime.cuda_graphs.cuda_graph_recording import TorchGraphs
made = []
capture = TorchGraphs.capture
TorchGraphs.capture = lambda *args: made.append(capture(*args)) or made[-1]

model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(32), nn.Linear(32, 4)).cuda()
x = torch.randn(8, 16, device="cuda")
trained(model, x, mode="reduce-overhead", steps=6)
assert len(made) == 2, len(made)  # forward and backward
with torch.no_grad():
    compiled = burnish.compile(model, mode="reduce-overhead")
    for _ in range(4):
        compiled(x)
assert len(made) == 3 and not messages, (len(made), messages)
""")


def test_a_checkpointed_attention_is_computed_again_where_it_drops_nothing(contact):
    contact("""
from torch.utils.checkpoint import checkpoint

def attention(x):
    return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=dropped).sin()

class Saved(nn.Module):
    def forward(self, x):
        return checkpoint(attention, x, use_reentrant=False)

counted = []
flash = torch.ops.aten._scaled_dot_product_flash_attention
for dropped, runs in ((0.0, 2), (0.1, 1)):
    programs = []
    stop = events.subscribe(lambda e: programs.append(str(e.data["graph"])) if e.kind == "lower"
                            and e.data["stage"] == "unalias_outputs" else None)
    x = torch.randn(2, 4, 24, 16, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    compiled = burnish.compile(Saved())
    for _ in range(2):
        compiled(x).sum().backward()
    assert programs[-1].count("_scaled_dot_product_flash_attention.default") == runs, programs[-1]
    stop()
""")


def test_autocast_and_questions_about_the_gpu_break_no_graph(contact):
    contact(
        """
import os
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # as Lightning sets it

def f(x):
    with torch.autocast("cuda", torch.bfloat16):
        y = x @ x * torch.cuda.device_count()
    return y if torch.cuda.get_device_capability() >= (8, 0) and torch.cuda.current_device() == 0 else x

compiled = burnish.compile(f, fullgraph=True)
x = torch.randn(4, 4, device="cuda")
for _ in range(2):
    assert compiled(x).dtype is torch.bfloat16
with torch.cuda.device(1):  # what was asked has another answer there
    assert compiled(x).dtype is torch.float32

def loss(x):  # of lengths on the CPU
    return nn.functional.ctc_loss(x.log_softmax(-1)[:, None], target, torch.tensor([4]), torch.tensor([2]))

target = torch.tensor([[1, 2]], device="cuda")
assert types(burnish.compile(loss)(x)) == types(loss(x))
""",
        gpus=2,
    )


def test_recurrent_layers_are_one_call_forward_and_one_backward(contact):
    contact("""
torch.backends.cudnn.enabled = False  # the pretended GPU has no call that packs its weights

class Model(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layers, self.last = kind(8, 16, 2, batch_first=True), nn.Linear(16, 4)

    def forward(self, x):
        return self.last(self.layers(x)[0]).sin()

programs = []
events.subscribe(lambda e: programs.append(str(e.data["graph"])) if e.kind == "lower"
                 and e.data["stage"] == "unalias_outputs" else None)
for kind in (nn.LSTM, nn.GRU):
    trained(Model(kind).cuda(), torch.randn(2, 5, 8, device="cuda"))
    assert programs[-1].count("= recurrent ") == programs[-1].count("= recurrent_backward ") == 1, programs[-1]
assert not messages, messages
""")


def test_calls_in_a_users_recording_are_compiled_without_a_contest(contact):
    contact("""
decided = []
events.subscribe(lambda e: decided.append(e.data["text"]) if e.kind == "runtime.contest" else None)
compiled, x = burnish.compile(lambda x: x.sin() * 2), torch.randn(8, 16, device="cuda")
with burnish.settings.patch(never_slower=True):
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(2):
            compiled(x)
    graph, begun = torch.cuda.CUDAGraph(), cuda.pretended_launches()
    with torch.cuda.graph(graph):
        for _ in range(30):
            compiled(x)
    assert cuda.pretended_launches() - begun == 30 and not decided, decided
    for _ in range(30):
        compiled(x)
assert len(decided) == 1
""")


def test_gpu_control_calls_end_a_graph_once_at_the_users_line(contact):
    contact("""
x, stream, event = torch.ones(4, 4, device="cuda"), torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)

def waits(x):
    y = x + 1
    torch.cuda.synchronize()
    return y * 2

def aside(x):
    with torch.cuda.stream(stream):
        y = x + 1
    stream.synchronize()
    return y * 2

def timed(x):
    event.record()
    return x + 1

def weighed(x):
    return x + (torch.cuda.max_memory_allocated() >= 0)

def seeded(x):
    torch.cuda.manual_seed(3)
    return x + 1

for fn, wanted in ((waits, 1), (aside, 3), (timed, 1), (weighed, 1), (seeded, 1)):
    found = burnish.explain(fn)(x)
    assert found.graph_break_count == wanted, (fn, str(found))
    assert all("B404" in str(why) and f"in {fn.__name__}" in str(why) for why in found.break_reasons), str(found)
    compiled = burnish.compile(fn)
    for _ in range(3):
        assert types(compiled(x)) == types(fn(x))
""")


def test_a_gpu_that_is_the_current_one_and_older_names_of_autocast_stay_in_the_graph(contact):
    contact(
        """
def within(x, index):
    with torch.cuda.device(index), torch.cuda.amp.autocast(dtype=torch.bfloat16):
        return x @ x

x = torch.ones(4, 4, device="cuda")
compiled = burnish.compile(within, fullgraph=True)
for index in (0, x.device, None, -1):
    assert compiled(x, index).dtype is torch.bfloat16
assert torch.cuda.current_device() == 0
compiled = burnish.compile(within)
y = torch.ones(4, 4, device="cuda:1")
assert compiled(y, 1).device == y.device and compiled(x, 0).device == x.device
with torch.cuda.device(1):
    assert compiled(y, 1).device == y.device and compiled(y, 0).device == y.device
    assert torch.cuda.current_device() == 1
""",
        gpus=2,
    )


def test_a_thread_without_a_context_launches_all_the_same_and_graphs_do_not_fail(contact):
    contact("""
import threading

failed = []
events.subscribe(lambda e: failed.append(e.data["text"]) if e.kind == "runtime.failed" else None)
compiled, x = burnish.compile(lambda x: x.sin() * 2, fullgraph=True), torch.randn(8, 16, device="cuda")
for _ in range(3):
    compiled(x)
begun, contexts = cuda.pretended_launches(), []

def work():
    contexts.append(cuda.pretended_context())
    compiled(x)
    contexts.append(cuda.pretended_context())

for _ in range(2):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
assert contexts == [0, 1, 0, 1] and cuda.pretended_launches() - begun == 2 and not failed, (contexts, failed)
""")


def test_a_users_recording_is_not_disturbed_by_compiling_in_it_or_meanwhile(contact):
    contact("""
import threading

x, begun, failed = torch.randn(8, 16, device="cuda"), cuda.pretended_launches(), []
events.subscribe(lambda e: failed.append(e.data["text"]) if e.kind == "runtime.failed" else None)
graph, other = torch.cuda.CUDAGraph(), torch.cuda.Stream()
with torch.cuda.graph(graph):
    first = burnish.compile(lambda x: torch.softmax(x, -1), fullgraph=True)
    for _ in range(3):
        first(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        first(x)
    torch.cuda.current_stream().wait_stream(side)
graph.replay()
assert cuda.pretended_launches() - begun == 3 and not failed and not messages, (failed, messages)
try:  # one that fails: a GPU cannot be waited for while a stream is recorded
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        first(x)
        torch.cuda.synchronize()
except RuntimeError:
    for _ in range(2):
        assert types(first(x)) == types(x)
else:
    raise AssertionError("it did not fail")
assert not failed, failed
""")
