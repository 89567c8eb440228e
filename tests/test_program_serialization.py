"""The cache of compiled programs on disk: a later process runs exactly what an earlier one compiled."""

import json
import os
from types import SimpleNamespace

import pytest
import torch

import burnish
from burnish.compiler import compile_graph as native_compile
from burnish.compiler import graph_cache_key, program_serialization
from burnish.compiler.provide_guard_watch import new_watch
from burnish.ir.untraceable_graph import NumberLost, Untraceable
from burnish.lower.trace.build_joint_graph import UntraceableBackward
from burnish.runtime.disk.disk_cache import DiskCache
from burnish.tensors.fit_size_formulas import GivenSize, NoFormula, NoNumber

from .forked_programs import TORCH, run_program


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """An empty cache; `seen` records its events."""
    made = DiskCache(tmp_path / "cache")
    with burnish.settings.patch(cache=True, cache_dir=made.folder, check=False, never_slower=False):
        yield made


def run_twice(make, args, happened):
    """The results of two programs that know nothing of one another; the second is to come from disk."""
    results = []
    for _ in range(2):
        burnish.reset()
        happened.clear()
        compiled = burnish.compile(make())
        compiled(*args())
        results.append(compiled(*args()))
    return results


class Mixed(torch.nn.Module):
    """A library call with prepared weights, a kernel of ours, a constant, a buffer, attention."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.norm = torch.nn.Linear(48, 48), torch.nn.LayerNorm(48)
        self.register_buffer("scale", torch.linspace(0, 1, 48))

    def forward(self, x):
        y = torch.nn.functional.gelu(self.linear(x)) * self.scale + torch.tensor([0.5, -1.0] * 24)
        heads = self.norm(y).reshape(2, 8, 4, 12).transpose(1, 2)
        return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads).sum((1, 3))


def make_convolutions():
    torch.manual_seed(0)
    conv = torch.nn.Conv2d
    return torch.nn.Sequential(
        conv(3, 16, 3, padding=1),
        torch.nn.BatchNorm2d(16),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        conv(16, 8, 3, groups=8, padding=1),
        torch.nn.SiLU(),
    ).eval()


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.lstm = torch.nn.LSTM(6, 20, bidirectional=True)

    def forward(self, x):
        return self.lstm(x)[0] * 2


CASES = {
    "pointwise": (lambda: lambda x: x.sin() + x.cos() * 2, lambda: (torch.arange(12.0).reshape(3, 4),)),
    "library calls": (lambda: Mixed().eval(), lambda: (torch.linspace(-1, 1, 768).reshape(2, 8, 48),)),
    "convolutions": (make_convolutions, lambda: (torch.linspace(-1, 1, 1536).reshape(2, 3, 16, 16),)),
    "a recurrent layer": (lambda: Recurrent().eval(), lambda: (torch.linspace(-1, 1, 120).reshape(5, 4, 6),)),
    "a float that stays open": (lambda: lambda x, s: x * s + s, lambda: (torch.arange(4.0), 1.5)),
    "a float that becomes a constant": (
        lambda: lambda x, s: torch.nn.functional.elu(x, s),
        lambda: (torch.arange(-2.0, 4.0), 0.5),
    ),
    "a whole number": (lambda: lambda x, k: x.roll(k, 0) * k, lambda: (torch.arange(6.0), 2)),
    "integers and views": (
        lambda: lambda x: (x.T[1:, ::2].cumsum(0), x.argmax(1), x > 2),
        lambda: (torch.arange(24).reshape(4, 6),),
    ),
}


@pytest.mark.parametrize("make, args", CASES.values(), ids=CASES)
def test_a_later_program_runs_cached_code(make, args, shelf, happened, monkeypatch):
    with torch.no_grad():
        want = make()(*args())
        first, second = run_twice(make, args, happened)
    assert "cache.program" in happened and "lower" not in happened and "kernels" not in happened
    torch.testing.assert_close(first, want)
    torch.testing.assert_close(second, first, rtol=0, atol=0)


def test_gradients_come_from_disk_as_well(shelf, happened):
    def gradients():
        module, x = Mixed().double(), torch.linspace(-1, 1, 768).double().reshape(2, 8, 48).requires_grad_()
        compiled = burnish.compile(module)
        for _ in range(2):
            module.zero_grad()
            x.grad = None
            compiled(x).square().sum().backward()
        return [x.grad, *(p.grad for p in module.parameters())]

    first = gradients()
    burnish.reset()
    happened.clear()
    second = gradients()
    assert "cache.program" in happened and "lower" not in happened
    torch.testing.assert_close(second, first, rtol=0, atol=0)
    module, x = Mixed().double(), torch.linspace(-1, 1, 768).double().reshape(2, 8, 48).requires_grad_()
    module(x).square().sum().backward()
    torch.testing.assert_close(second, [x.grad, *(p.grad for p in module.parameters())])


def test_checkpointed_regions_come_from_disk_as_well(shelf, happened):
    def trained():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5))
        burnish.reset()
        happened.clear()
        compiled = burnish.compile(lambda x: torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).sum())
        for seed in range(3):
            torch.manual_seed(seed)
            compiled(torch.linspace(-1, 1, 128).reshape(16, 8)).backward()
        return [*(p.grad for p in model.parameters()), *model.buffers()]

    first = trained()
    assert "kernels" in happened
    second = trained()
    assert "cache.program" in happened and "kernels" not in happened
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_inputs_that_are_written_to_are_written_to(shelf, happened):
    def run():
        x, total = torch.arange(6.0), torch.zeros(6)

        @burnish.compile
        def add(x, total):
            total.add_(x)
            x.mul_(2)
            return total[1:]

        results = [add(x, total).clone() for _ in range(3)]
        both = torch.ones(6)
        add(both, both)  # both are one tensor: eager's rules hold
        return [*results, x, total, both]

    first = run()
    burnish.reset()
    happened.clear()
    assert torch.equal(torch.cat(run()), torch.cat(first)) and "cache.program" in happened


def test_weights_that_change_are_packed_again(shelf, happened):
    for _ in range(2):
        burnish.reset()
        module = Mixed().eval()
        compiled = burnish.compile(module)
        x = torch.linspace(-1, 1, 768).reshape(2, 8, 48)
        with torch.no_grad():
            for _ in range(3):
                torch.testing.assert_close(compiled(x), module(x))
                module.linear.weight.mul_(1.5)
    assert "cache.program" in happened


# Changes that make it another graph -----------------------------------------------------------------------------------


def key_of(function, *args, gradients=False, live_scalar_types=()):
    keys = []

    def backend(gm, example_inputs):
        keys.append(graph_cache_key.key_of(gm, example_inputs, gradients, live_scalar_types))
        return gm.forward

    burnish.compile(function, backend=burnish.register_backend(backend, "takes keys", runs_python=True))(*args)
    assert len(keys) == 1
    return keys[0]


X = torch.arange(12.0).reshape(3, 4)
OTHERS = {
    "another operator": lambda: key_of(lambda x: x.cos(), X),
    "another constant": lambda: key_of(lambda x: x.sin() * 2.0, X),
    "a whole number for a float": lambda: key_of(lambda x: x.sin() * 2, X),
    "another order": lambda: key_of(lambda x: 1 - x.sin(), X),
    "another shape": lambda: key_of(lambda x: x.sin(), X.reshape(4, 3)),
    "other strides": lambda: key_of(lambda x: x.sin(), X.reshape(4, 3).t()),
    "another offset": lambda: key_of(lambda x: x.sin(), torch.zeros(24)[12:].reshape(3, 4)),
    "another dtype": lambda: key_of(lambda x: x.sin(), X.double()),
    "a parameter": lambda: key_of(lambda x: x.sin(), torch.nn.Parameter(X, requires_grad=False)),
    "one that requires gradients": lambda: key_of(lambda x: x.sin(), X.clone().requires_grad_()),
    "two results": lambda: key_of(lambda x: (x.sin(), x.cos()), X),
    "minus zero": lambda: key_of(lambda x: x.sin() + -0.0, X),
    "zero": lambda: key_of(lambda x: x.sin() + 0.0, X),
}


def test_any_difference_gives_another_key():
    plain = key_of(lambda x: x.sin(), X)
    keys = [plain, *(make() for make in OTHERS.values())]
    assert None not in keys and len(set(keys)) == len(keys), [name for name, make in OTHERS.items() if make() == plain]
    assert key_of(lambda value: torch.sin(value), X.clone()) != plain, "a method and a function are not looked into"
    assert key_of(lambda value: value.sin(), X.clone()) == plain, "names do not matter"


@pytest.mark.parametrize(
    "change, back",
    [
        (lambda: torch.set_num_threads(1), lambda before=torch.get_num_threads(): torch.set_num_threads(before)),
        (lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)),
        (lambda: torch.use_deterministic_algorithms(True), lambda: torch.use_deterministic_algorithms(False)),
        (lambda: torch.set_float32_matmul_precision("medium"), lambda: torch.set_float32_matmul_precision("highest")),
        (lambda: torch.set_grad_enabled(False), lambda: torch.set_grad_enabled(True)),
        (lambda: torch.set_default_device("meta"), lambda: torch.set_default_device(None)),
        (lambda: torch.set_autocast_enabled("cpu", True), lambda: torch.set_autocast_enabled("cpu", False)),
    ],
    ids=["threads", "default dtype", "deterministic", "precision", "grad mode", "default device", "autocast"],
)
def test_torchs_switches_make_another_key(change, back):
    before = graph_cache_key.surroundings()
    if torch.get_num_threads() == 1:
        torch.set_num_threads(2)
        before = graph_cache_key.surroundings()
    change()
    try:
        assert graph_cache_key.surroundings() != before
    finally:
        back()


def test_settings_that_the_compiler_reads_make_another_key():
    before = graph_cache_key.surroundings()
    for name in ("eager_random", "max_autotune", "shape_padding"):
        with burnish.settings.patch(**{name: True}):
            assert graph_cache_key.surroundings() != before


def test_users_operators_are_identified_by_their_registrations():
    @torch.library.custom_op("kept_tests::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def key():
        return key_of(lambda x: torch.ops.kept_tests.double(x), X)

    def helper(gradient, by):
        return gradient * by

    def registered(by):
        double.register_autograd(lambda ctx, gradient: helper(gradient, by))
        return key()

    double.register_fake(torch.empty_like)
    bare = key()
    assert bare is not None and "kept_tests::double(Tensor x) -> Tensor" in bare
    keys = [registered(2), registered(3), registered(2)]
    assert len({bare, *keys}) == 3 and keys[0] == keys[2]
    assert registered([2]) is None and registered(torch.ones(1)) is None

    def calls_operators(ctx, gradient):
        return torch.ops.kept_tests.double(gradient) + torch.ops.aten.sin(gradient)

    double.register_autograd(calls_operators)
    assert key() not in (None, bare, *keys)


def test_functions_of_the_user_have_no_key(monkeypatch):
    def relu(x, inplace=False):
        return x.clamp(min=1)

    with pytest.raises(graph_cache_key.NoKey):
        graph_cache_key.name_of(relu)
    relu.__module__, relu.__qualname__ = "torch.nn.functional", "relu"
    monkeypatch.setattr(torch.nn.functional, "relu", relu)
    graph_cache_key.names.cache_clear()
    with pytest.raises(graph_cache_key.NoKey, match="replaced"):
        graph_cache_key.name_of(relu)
    monkeypatch.undo()
    graph_cache_key.names.cache_clear()


# The file -------------------------------------------------------------------------------------------------------------


def recipe_of(function, *args):
    made = []

    def backend(gm, example_inputs):
        made.append(native_compile.compile_graph(gm, example_inputs))
        return gm.forward

    burnish.compile(function, backend=burnish.register_backend(backend, "takes recipes", runs_python=True))(*args)
    return made[0]


def test_an_entry_is_text_and_bytes_and_writes_itself_again():
    with torch.no_grad():
        recipe = recipe_of(Mixed().eval(), torch.linspace(-1, 1, 768).reshape(2, 8, 48))
    content = program_serialization.packed(recipe, native_compile.tools(), "its key")
    size = int.from_bytes(content[:8], "little")
    assert set(json.loads(content[8 : 8 + size])) == {"key", "shared", "root", "bytes"}
    assert program_serialization.packed(*program_serialization.unpacked(content, "its key"), "its key") == content


def test_equal_layers_are_written_once():
    def stack(count):
        torch.manual_seed(0)
        return torch.nn.Sequential(
            *(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()) for _ in range(count))
        ).eval()

    with torch.no_grad():
        few, many = (
            len(program_serialization.packed(recipe_of(stack(n), torch.ones(32, 64)), native_compile.tools(), ""))
            for n in (2, 12)
        )
    assert many < 2 * few


def test_a_graph_with_a_large_constant_is_not_cached(shelf, happened, monkeypatch):
    monkeypatch.setattr(program_serialization, "LARGEST_CONSTANT", 8)

    def f(x):
        return x + torch.tensor([1.0, 2.0, 3.0])

    for _ in range(2):
        burnish.reset()
        compiled = burnish.compile(f)
        assert torch.equal(compiled(torch.ones(1)), f(torch.ones(1)))
    assert "cache.program" not in happened


@pytest.mark.falls_back("internal")
def test_an_unreadable_entry_is_compiled_again(shelf, happened, monkeypatch):
    make, args = CASES["pointwise"]
    run_twice(make, args, happened)
    put = DiskCache.get
    monkeypatch.setattr(
        DiskCache,
        "get",
        lambda self, kind, key: (
            b"\2" + bytes(7) + b"{}" if kind == program_serialization.KIND else put(self, kind, key)
        ),
    )
    burnish.reset()
    happened.clear()
    with burnish.settings.patch(on_error="fallback"):
        assert torch.equal(burnish.compile(make())(*args()), make()(*args()))
    assert "cache.unreadable" in happened and "lower" in happened


def test_stages_are_shown_on_request_despite_the_cache(shelf, happened, capsys):
    make, args = CASES["pointwise"]
    run_twice(make, args, happened)
    burnish.reset()
    happened.clear()
    with burnish.settings.patch(show={"loops"}):
        burnish.compile(make())(*args())
    assert "loops" in happened and "cache.program" not in happened


PROGRAM = """
import sys, torch, burnish
from burnish import events
seen = []
events.subscribe(lambda event: seen.append(event.kind))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32)).eval()
compiled = burnish.compile(model)
with torch.no_grad():
    for _ in range(3):
        out = compiled(torch.linspace(-1, 1, 64).reshape(4, 16))
print("cache.program" in seen, "burnish.lower.pipeline" in sys.modules and "lower" in seen, out.sum().item().hex())
"""


def test_a_new_process_finds_it(tmp_path):
    environment = os.environ | {"BURNISH_CACHE": "1", "BURNISH_CACHE_DIR": str(tmp_path), "BURNISH_CHECK": ""}
    runs = [run_program(PROGRAM, environment=environment, prepare=TORCH).stdout.split() for _ in range(2)]
    assert [run[:2] for run in runs] == [["False", "True"], ["True", "False"]] and runs[0][2] == runs[1][2]


WATCHED = """
import sys
import torch
import burnish
compiled = burnish.compile(torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU()).eval())
with torch.no_grad():
    for _ in range(8):
        compiled(torch.ones(4, 16))
segment, = vars(compiled)["__burnish_program__"].entry.segments
print(segment.check.watch_manager.fast is not None, "burnish.codegen.llvm" in sys.modules)
"""


@pytest.mark.skipif(new_watch() is None, reason="this Python keeps its objects in another way")
def test_a_new_process_watches_its_guards_without_the_compiler(tmp_path):
    environment = os.environ | {"BURNISH_CACHE": "1", "BURNISH_CACHE_DIR": str(tmp_path), "BURNISH_CHECK": ""}
    runs = [run_program(WATCHED, environment=environment, prepare=TORCH).stdout.split() for _ in range(2)]
    assert runs == [["True", "True"], ["True", "False"]]


# For many sizes -------------------------------------------------------------------------------------------------------


class Rows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.norm = torch.nn.Linear(24, 40), torch.nn.LayerNorm(40)

    def forward(self, x):
        return self.norm(torch.nn.functional.gelu(self.linear(x))).softmax(-1).cumsum(0)


@pytest.mark.parametrize("learns", [False, True], ids=["inference", "training"])
def test_a_program_for_many_sizes_comes_from_disk(learns, shelf, happened):
    for _ in range(2):
        burnish.reset()
        happened.clear()
        module = Rows().train(learns)
        compiled = burnish.compile(module)
        for rows in (4, 9, 9, 200, 17, 1, 31):
            x = torch.linspace(-1, 1, rows * 24).reshape(rows, 24)
            with torch.set_grad_enabled(learns):
                found, wanted = compiled(x), module(x)
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
            if learns:
                gradients = [torch.autograd.grad(y.square().sum(), list(module.parameters())) for y in (found, wanted)]
                for ours, theirs in zip(*gradients, strict=True):
                    assert (ours - theirs).norm() <= 1e-4 * theirs.norm() + 1e-4
    assert "lower" not in happened and "kernels" not in happened and happened.count("cache.program") >= 2


def test_how_far_a_program_reaches_comes_from_disk_with_it(shelf, monkeypatch):
    from burnish.lower.trace import trace_to_aten

    traced, real = [], trace_to_aten.trace
    monkeypatch.setattr(trace_to_aten, "trace", lambda *args: traced.append(args) or real(*args))
    for _ in range(2):
        burnish.reset()
        traced.clear()
        module = Rows().eval()
        compiled = burnish.compile(module)
        with torch.no_grad():
            for rows in (4, 9, 10, 11, 17, 60, 31):
                x = torch.linspace(-1, 1, rows * 24).reshape(rows, 24)
                torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-4)
    assert not traced


def test_graph_of_many_sizes_with_a_number_is_cached_and_found(shelf, happened):
    def f(x, s):
        return torch.relu(x @ x.T) * s

    for run in range(2):
        burnish.reset()
        happened.clear()
        compiled = burnish.compile(f)
        for rows in (4, 9, 10, 33, 70):
            x = torch.linspace(-1, 1, rows * 8).reshape(rows, 8)
            torch.testing.assert_close(compiled(x, rows * 0.5), f(x, rows * 0.5), rtol=1e-4, atol=1e-4)
        assert happened.count("segment") == 2, "one of fixed sizes, one for all of them"
        assert ("loops" in happened) == (run == 0)


def test_keys_of_many_sizes_distinguish_numbers_by_type_and_sizes_by_value():
    def key(second, third):
        gm = torch.fx.symbolic_trace(lambda x, s, n: x * s)
        points = ((4,), (9,))
        opened = SimpleNamespace(
            space=SimpleNamespace(points=points, names=("s0",)),
            shapes={0: (4, 3)},
            numbers={},
            examples=lambda point: [torch.ones(point[0], 3), second, third],
        )
        return graph_cache_key.symbolic_key_of(gm, opened, False)

    assert key(1.5, 2) == key(2.5, 2) == key(1.5, 3)
    assert len({key(1.5, 2), key(1, 2), key(True, 2), key(1.5, GivenSize(2)), key(1.5, GivenSize(3))}) == 5


@pytest.mark.falls_back("sizes", "numbers")
def test_failed_symbolic_compilation_is_not_tried_again(shelf, happened):
    def f(x):
        return x[: x.shape[0] // 2].sin()

    for _ in range(2):
        burnish.reset()
        happened.clear()
        compiled = burnish.compile(f)
        for rows in (4, 9, 9, 14, 14):
            x = torch.arange(float(rows))
            assert torch.allclose(compiled(x), f(x))
    assert "lower" not in happened


@pytest.mark.parametrize(
    "why",
    [NoNumber("sizes that fit no formula"), UntraceableBackward("a gradient"), NumberLost("a number")],
    ids=lambda why: type(why).__name__,
)
def test_refusals_of_each_kind_can_be_read(why, shelf):
    with burnish.settings.patch(on_error="raise"):
        program_serialization.put_refusal("a graph", why)
        with pytest.raises((NoFormula, Untraceable)) as read:
            program_serialization.get("a graph")
    assert isinstance(why, type(read.value)) and str(read.value) == str(why)


OFFERED = """
import torch
from burnish.compiler.program_serialization import find_candidate
from burnish.schedule.library.call_specs import LinearSpec
from burnish.tensors.tensor_types import TensorType

x, weight = (TensorType.contiguous(shape, torch.float32) for shape in ((1, 768), (768, 768)))
spec = LinearSpec(x, weight, is_frozen=True)
found = find_candidate(spec, "mkl packed")
from burnish.targets import cpu
from burnish.schedule.library.call_candidates.linear import why_not_mkl_packed
print(found is not None, why_not_mkl_packed(spec) is None)
"""


def test_a_process_that_only_loads_programs_finds_calls_offered_beside_the_code_generator():
    """A warm start of BERT did not find its product in MKL's layout, and ran eagerly."""
    found, offered = run_program(OFFERED, prepare=TORCH).stdout.split()
    assert found == offered
