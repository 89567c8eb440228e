"""A Python or a torch that Burnish was not tested with: one warning, and everything runs eagerly."""

import functools
import importlib.util

import pytest
import torch

from burnish.foundation.torch_private import NEWEST, OLDEST

from .. import forked_programs

run_program = functools.partial(forked_programs.run_program, prepare=forked_programs.TORCH)

OTHER_PYTHON = """
import sys, torch

class Version(tuple):
    major, minor, micro, releaselevel, serial = 3, 99, 0, "final", 0

sys.version_info = Version((3, 99, 0, "final", 0))
"""
PROGRAM = """
import tempfile, warnings
import burnish

def fn(x):
    return x.sin() + 1

model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()) for _ in range(3)))
x = torch.ones(2, 2)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    compiled = burnish.compile(fn)
    decorated = burnish.compile(backend="eager", fullgraph=True)(fn)
    for _ in range(3):
        assert torch.equal(compiled(x), fn(x)) and torch.equal(decorated(x), fn(x))
        expected = model(x)
        assert torch.equal(burnish.compile(model)(x), expected)
        assert torch.equal(burnish.compile_regions(model)(x), expected)
        assert torch.equal(burnish.compile_(model)(x), expected)
print(*(str(each.message) for each in caught if "burnish" in str(each.message)), sep="\\n")
try:
    burnish.explain(fn)(x)
except burnish.UserError as error:
    print(error)
"""
TORCHS_OWN_COMPILER = """
from burnish.integrations.torch_compile import dynamo_backend

with warnings.catch_warnings(record=True):
    assert torch.equal(torch.compile(fn, backend=dynamo_backend)(x), fn(x))
try:
    burnish.load(tempfile.gettempdir())
except burnish.UserError as error:
    print(error)
"""


def test_an_unknown_python_runs_everything_eagerly():
    found = run_program(OTHER_PYTHON + PROGRAM)
    known = "this is Python 3.99, and capture knows the bytecode of Python 3.11 to 3.14."
    assert found.stdout.splitlines() == [
        f"burnish: {known} Nothing is compiled: functions and modules run as plain Python.",
        known,
    ], found.stderr


def test_a_python_without_the_global_lock_runs_everything_eagerly():
    found = run_program("import sys, torch\nsys.abiflags += 't'\n" + PROGRAM)
    known = "this Python was built without the global interpreter lock."
    assert found.stdout.splitlines() == [
        f"burnish: {known} Nothing is compiled: functions and modules run as plain Python.",
        known,
    ], found.stderr


def test_a_python_without_the_global_lock_is_known_by_its_version():
    """On Windows, there is no ``sys.abiflags``."""
    program = "import sys, torch\ndel sys.abiflags\nsys.version = '3.13.1 experimental free-threading build (v3)'\n"
    found = run_program(program + PROGRAM)
    assert found.stdout.splitlines()[1:] == ["this Python was built without the global interpreter lock."], found.stderr


def why_outside(version):
    oldest, newest = (".".join(map(str, each)) for each in (OLDEST, NEWEST))
    hint = "; BURNISH_UNTESTED_TORCH=1 compiles all the same" if version > newest else ""
    return f"this is PyTorch {version}, and Burnish was tested with {oldest} to {newest}{hint}."


@pytest.mark.parametrize(("version", "more"), [("2.10.1", ""), ("2.99.0.dev20270101+cpu", TORCHS_OWN_COMPILER)])
def test_a_torch_outside_the_tested_releases_runs_everything_eagerly(version, more):
    found = run_program(f"import torch\ntorch.__version__ = {version!r}\n" + PROGRAM + more)
    why = why_outside(version)
    plain = f"burnish: {why} Nothing is compiled: functions and modules run as plain Python."
    assert found.stdout.splitlines() == [plain, why, *[why] * bool(more)], found.stderr


def test_a_tested_torch_compiles_whatever_is_behind_its_release():
    program = "import burnish\nprint(burnish.explain(lambda x: x.sin() + 1)(torch.ones(2)).graph_count)"
    assert run_program(f"import torch\ntorch.__version__ = '2.14a0+nv25.11'\n{program}").stdout == "1\n"


@pytest.fixture
def imported_beside(monkeypatch):
    """The only module that compares torch's version, as it is imported beside a torch of the given one."""

    def imported(version):
        monkeypatch.setattr(torch, "__version__", version)
        spec = importlib.util.find_spec("burnish.foundation.torch_private")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return imported


@pytest.mark.parametrize("version", ["1.13.1+cu117", "3.0.0a0+git1234", "2.99a0+nv25.11", "v2.99", "parrot"])
def test_a_version_outside_the_tested_releases_is_known_however_it_is_written(version, imported_beside):
    module, is_newer = imported_beside(version), version > "2"
    assert module.why_not_usable(untested=False) == why_outside(version)
    assert module.why_not_usable(untested=True) == (None if is_newer else why_outside(version))


@pytest.mark.parametrize("version", ["2.14+cu130", "2.15rc1", "v2.14.1"])
def test_a_tested_version_is_known_however_it_is_written(version, imported_beside):
    assert imported_beside(version).why_not_usable(untested=False) is None


def test_an_untested_torch_compiles_where_that_is_asked_for():
    program = """
import torch
torch.__version__ = "2.99.0"
import burnish
burnish.settings.configure(untested_torch=True)
print(burnish.explain(lambda x: x.sin() + 1)(torch.ones(2)).graph_count)
"""
    assert run_program(program).stdout == "1\n"


NAMES_THAT_ARE_GONE = """
import torch
for holder, name in {gone}:
    delattr(holder, name)
"""


@pytest.mark.parametrize(
    "names",
    [
        ["_C._len_torch_dispatch_stack", "_C._dispatch_keys"],
        ["_C.DispatchKey"],
        ["_C.DispatchKeySet"],
        ["nn.Module._get_backward_hooks", "nn.Module._load_from_state_dict"],
    ],
    ids=" ".join,
)
def test_a_torch_without_a_private_name_runs_everything_eagerly(names):
    gone = ", ".join(f"(torch.{holder}, {name!r})" for holder, _, name in (path.rpartition(".") for path in names))
    found = run_program(NAMES_THAT_ARE_GONE.format(gone=f"[{gone}]") + PROGRAM)
    names = ", ".join(f"torch.{path}" for path in names)
    why = f"this is PyTorch {torch.__version__}, which has no {names}."
    plain = f"burnish: {why} Nothing is compiled: functions and modules run as plain Python."
    assert found.stdout.splitlines() == [plain, why], found.stderr


def test_a_torch_without_a_function_that_programs_call_compiles():
    gone = "[(torch, '_check_is_size'), (torch, '_check_tensor_all')]"
    program = "import burnish\nprint(burnish.explain(lambda x: x.sin() + 1)(torch.ones(2)).graph_count)"
    assert run_program(NAMES_THAT_ARE_GONE.format(gone=gone) + program).stdout == "1\n"


ALL_GONE = """
import importlib.util, pathlib, sys, torch, types

place = pathlib.Path(importlib.util.find_spec("burnish").origin).parent / "foundation/torch_private.py"
module = sys.modules["burnish.foundation.torch_private"] = types.ModuleType("burnish.foundation.torch_private")
module.find = lambda *given: object().nothing
exec(place.read_text().replace("reduce(getattr, ", "find("), vars(module))
assert len(module.MISSING) > 100
"""


def test_a_torch_without_any_private_name_can_import_burnish():
    found = run_program(ALL_GONE + PROGRAM)
    lines = found.stdout.splitlines()
    assert len(lines) == 2 and " more names. Nothing is compiled" in lines[0], found.stdout + found.stderr


WITHOUT_SCRIPTS = """
scripted = torch.jit.CompilationUnit('''
def pair(x: Tensor):
    return x * 2, x + 1

def powers(x: Tensor, n: Tensor):
    for k in range(int(n)):
        x = x * x
    return x
''')
pair, powers = scripted.pair, scripted.powers

def fn(x):
    return pair(x.sin())[1] + powers(x, torch.tensor(2))
"""
WITHOUT_STEPS = """
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], lr=0.0, momentum=0.5)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

def fn(x):
    optimizer.zero_grad()
    loss = (weight * x).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return x * 2 + weight.detach()
"""
WITHOUT_OPERATORS = """
@torch.library.custom_op("burnish_without::some", mutates_args=())
def some(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()

@some.register_fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())

def fn(x):
    y = some(x)
    return y * 2 + torch.ones(y.shape[0])
"""


@pytest.mark.parametrize(
    ("path", "program"),
    [
        ("_C.TensorType", WITHOUT_SCRIPTS),
        ("_C.TupleType", WITHOUT_SCRIPTS),
        ("_C.Graph", WITHOUT_SCRIPTS),
        ("_C._jit_pass_constant_propagation", WITHOUT_SCRIPTS),
        ("_C._create_function_from_graph", WITHOUT_SCRIPTS),
        ("_debug_has_internal_overlap", WITHOUT_STEPS),
        ("_library.fake_impl.set_ctx_getter", WITHOUT_OPERATORS),
        ("_library.triton.triton_ops_to_kernels", WITHOUT_OPERATORS),
    ],
)
def test_a_torch_without_a_name_of_rare_paths_compiles_the_rest(path, program):
    """Each program comes to where the name is used, one of them with `fullgraph=True` only."""
    calls = """
import burnish
from burnish.foundation import torch_private
x = torch.tensor([1.0, -2.0, 3.0])
compiled = burnish.compile(fn, options={"never_slower": False})
for _ in range(4):
    assert torch.allclose(compiled(x), fn(x), atol=1e-5)
    x = -x
try:
    burnish.compile(fn, fullgraph=True)(x)
except burnish.Unsupported:
    pass
print(torch_private.MISSING, burnish.explain(lambda x: x.sin() + 1)(x).graph_count)
"""
    holder, _, name = f"torch.{path}".rpartition(".")
    gone = NAMES_THAT_ARE_GONE.format(gone=f"[({holder}, {name!r})]")
    found = run_program(f"import torch._library.fake_impl, torch._library.triton\n{program}{gone}{calls}")
    assert found.stdout == "[] 1\n", found.stderr
