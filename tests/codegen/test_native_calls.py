"""Native functions that follow one another are one call of the driver."""

import ctypes

import pytest
import torch

import burnish
from burnish.backends import native_compile
from burnish.codegen.llvm import compile_kernel, compile_sequence
from burnish.runtime.native_calls import Fixed, InArena, Moving, NativeCalls
from burnish.schedule import choose_calls
from burnish.schedule.library.choose import Choice
from burnish.schedule.library.own_calls import own_candidate

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

    write_driver = native_compile.write_driver
    monkeypatch.setattr(native_compile, "write_driver", build)
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
    del calls  # what is called by address is held by `launch`
    launch(table_of(table, arena.data_ptr(), {"x": x.data_ptr()}))
    assert torch.equal(arena[32:48], x[:16] + behind)
    assert torch.equal(arena[16:32], x[:16] + behind + x[16:])


def test_one_function_needs_nobody_to_join_it():
    add = compile_kernel(examples.add(16))
    calls = NativeCalls()
    entries = [Moving("x"), Moving("y"), InArena(0)]
    calls.add(add, entries)
    assert calls.launch(lambda steps: pytest.fail("joined")) == add.launch
    assert calls.table() == entries


def convolutions():
    torch.manual_seed(0)
    conv = torch.nn.Conv2d
    return torch.nn.Sequential(conv(3, 16, 3, padding=1), torch.nn.GELU(), conv(16, 16, 3, 2, padding=1, groups=16),
                               torch.nn.SiLU(), conv(16, 24, 1), torch.nn.Softmax(1)).eval()


def linears():
    torch.manual_seed(0)
    linear = torch.nn.Linear
    return torch.nn.Sequential(linear(9, 33), torch.nn.LayerNorm(33), linear(33, 7), torch.nn.ReLU(),
                               linear(7, 40)).eval()


@pytest.mark.parametrize("model, x", [(convolutions(), torch.randn(2, 3, 12, 10)), (linears(), torch.randn(5, 9)),
                                      (torch.nn.Linear(1100, 8).eval(), torch.randn(200, 1100))],
                         ids=["images", "rows", "a sum in parts"])
def test_a_frozen_model_of_own_kernels_is_one_native_call(model, x, own_kernels_only, sources):
    compiled = burnish.compile(model)
    with torch.no_grad(), burnish.settings.patch(never_slower=False):
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x))
        torch.testing.assert_close(compiled(-x), model(-x))
    main = [source for source in sources() if "prepare" in source][-1]
    assert main.count("launch") == 1, main


def test_what_torch_computes_in_between_is_read_and_written_in_order(sources):
    def f(x):
        y = torch.linalg.inv(x.exp() + 3 * torch.eye(4))
        return (y * 2).sin() + torch.linalg.inv(y), y

    x = torch.randn(4, 4)
    compiled = burnish.compile(f)
    with burnish.settings.patch(never_slower=False):
        for x in (x, -x):
            torch.testing.assert_close(compiled(x), f(x))
    assert any("launch" in source and "call" in source for source in sources())
