"""Consecutive native calls become one call of the driver."""

import ctypes
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import burnish
from burnish.backends.registry import lookup
from burnish.captured_graph.compile_request import INPUT, InputFacts
from burnish.codegen.llvm.compile_to_machine_code import compile_kernel
from burnish.codegen.llvm.kernel_sequence import compile_sequence
from burnish.compiler import compile_graph
from burnish.runtime.program.native_call_sequence import Fixed, InArena, Moving, NativeCalls
from burnish.schedule.library import choose_calls
from burnish.schedule.library.autotune_library_calls import Choice
from burnish.schedule.library.own_kernels.own_matmul_and_convolution import own_candidate

from . import example_kernels as examples


@pytest.fixture
def own_kernels_only(monkeypatch):
    """Wherever a kernel of our own can compute a product, it does."""

    def choose(spec, **rest):
        own = own_candidate(spec) if hasattr(spec, "weight") else None
        return chosen(spec, **rest) if own is None else Choice(own, 1e-9, {own.name: 1e-9})

    chosen = choose_calls.choose
    monkeypatch.setattr(choose_calls, "choose", choose)


@pytest.fixture
def sources(monkeypatch):
    """The drivers that are built."""
    built = []

    def build(*args, **kwargs):
        built.append(write_driver(*args, **kwargs))
        return built[-1]

    write_driver = compile_graph.write_driver
    monkeypatch.setattr(compile_graph, "write_driver", build)
    return lambda: [draft.source for draft in built]


def table_of(entries, arena, moving):
    def address(entry):
        match entry:
            case InArena(offset):
                return arena + offset
            case Fixed(number):
                return number
            case Moving(text):
                return moving[text]

    return (ctypes.c_void_p * len(entries))(*map(address, entries))


def test_several_functions_read_one_table():
    add = compile_kernel(examples.add(16))
    arena, x = torch.zeros(64), torch.randn(32)
    behind = torch.randn(16)
    calls = NativeCalls()
    calls.add(add, [Moving("x"), Fixed(behind.data_ptr()), InArena(128)])
    calls.add(add, [InArena(128), Moving("x", 64), InArena(64)])
    launch, table = calls.launch(compile_sequence), calls.table()
    assert [entry for entry in table if isinstance(entry, Moving)] == [Moving("x")], "it moves once"
    del calls  # `launch` holds the functions that are called by address
    launch(table_of(table, arena.data_ptr(), {"x": x.data_ptr()}))
    assert torch.equal(arena[32:48], x[:16] + behind)
    assert torch.equal(arena[16:32], x[:16] + behind + x[16:])


def test_one_function_needs_no_joining():
    add = compile_kernel(examples.add(16))
    calls = NativeCalls()
    entries = [Moving("x"), Moving("y"), InArena(0)]
    calls.add(add, entries)
    assert calls.launch(lambda steps: pytest.fail("joined")) == add.launch
    assert calls.table() == entries


def convolutions():
    torch.manual_seed(0)
    conv = torch.nn.Conv2d
    return torch.nn.Sequential(
        conv(3, 16, 3, padding=1),
        torch.nn.GELU(),
        conv(16, 16, 3, 2, padding=1, groups=16),
        torch.nn.SiLU(),
        conv(16, 24, 1),
        torch.nn.Softmax(1),
    ).eval()


def linears():
    torch.manual_seed(0)
    linear = torch.nn.Linear
    return torch.nn.Sequential(
        linear(9, 33), torch.nn.LayerNorm(33), linear(33, 7), torch.nn.ReLU(), linear(7, 40)
    ).eval()


@pytest.mark.parametrize(
    "model, x",
    [
        (convolutions(), torch.randn(2, 3, 12, 10)),
        (linears(), torch.randn(5, 9)),
        (torch.nn.Linear(1100, 8).eval(), torch.randn(200, 1100)),
    ],
    ids=["images", "rows", "a sum in parts"],
)
def test_a_frozen_model_of_own_kernels_is_one_native_call(model, x, own_kernels_only, sources):
    compiled = burnish.compile(model)
    with torch.no_grad(), burnish.settings.patch(never_slower=False):
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x))
        torch.testing.assert_close(compiled(-x), model(-x))
    main = [source for source in sources() if "prepare" in source][-1]
    assert main.count("launch") == 1, main


def test_intermediate_torch_calls_read_and_write_in_order(sources):
    def f(x):
        y = torch.linalg.inv(x.exp() + 3 * torch.eye(4))
        return (y * 2).sin() + torch.linalg.inv(y), y

    x = torch.randn(4, 4)
    compiled = burnish.compile(f)
    with burnish.settings.patch(never_slower=False):
        for x in (x, -x):
            torch.testing.assert_close(compiled(x), f(x))
    assert any("launch" in source and "call" in source for source in sources())


# Parameters that are bound once -------------------------------------------------------------------------------------


def linear_graph():
    """A linear layer whose weight belongs to the module that is passed."""
    graph = torch.fx.Graph()
    x, weight, bias = (graph.placeholder(name) for name in ("x", "weight", "bias"))
    weight.meta[INPUT] = bias.meta[INPUT] = InputFacts(is_module_state=True)
    product = graph.call_function(torch.nn.functional.linear, (x, weight, bias))
    graph.output((graph.call_function(torch.tanh, (product,)),))
    return torch.fx.GraphModule({}, graph)


def layers(count):
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(48, 64, generator=generator), torch.randn(48, generator=generator)) for _ in range(count)]


@pytest.fixture
def compiled_linear(own_kernels_only, sources):
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad(), burnish.settings.patch(never_slower=False, cache=False):
        yield lookup("burnish")(linear_graph(), [x, *layers(1)[0]]), x


def right(compiled, x, layer):
    torch.testing.assert_close(compiled(x, *layer)[0], torch.tanh(torch.nn.functional.linear(x, *layer)))


def test_packed_weights_are_put_into_tables_once(compiled_linear, sources):
    compiled, x = compiled_linear
    (layer,) = layers(1)
    right(compiled, x, layer)
    (text,) = (source for source in sources() if "def bind" in source)
    assert "weight" not in text.partition("def run")[2], "the driver is not handed what it does not read"
    calls = []
    bind, compiled.main.bind = compiled.main.bind, lambda *args: (calls.append(1), bind(*args))
    for _ in range(3):
        right(compiled, x, layer)
    layer[0].mul_(2)
    for _ in range(3):
        right(compiled, x, layer)
    assert len(calls) == 1, "when the weight had changed"


def test_alternating_layers_use_their_own_weights(compiled_linear):
    compiled, x = compiled_linear
    several = layers(3)
    for number in (0, 1, 1, 2, 0, 2, 1, 0, 0):
        right(compiled, x, several[number])
    for weight, _ in several:
        weight.data.neg_()
    for number in (0, 1, 2, 2, 0):
        right(compiled, x, several[number])


def test_threads_with_layers_of_their_own_do_not_mix_them_up(compiled_linear):
    compiled, x = compiled_linear
    several = layers(4)

    def work(layer):
        with torch.no_grad():
            for _ in range(50):
                right(compiled, x, layer)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, layer) for layer in several]:
            done.result()


def test_packed_memory_is_freed_with_its_weight(compiled_linear):
    compiled, x = compiled_linear
    (layer,) = layers(1)
    right(compiled, x, layer)
    (kept,) = compiled.kept.values()
    packed = weakref.ref(kept.made[0])
    del kept
    layer[0].mul_(2)
    right(compiled, x, layer)
    assert packed() is None, "a frame that was bound to it does not keep it"
