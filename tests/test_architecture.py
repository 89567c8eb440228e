"""The tree mirrors the pipeline: which packages may import each other, and how a source file may look.

The directions are those of the design: capture and the compiler do not know each other, the runtime knows neither,
reports know only events. All imports count, also those inside functions and under TYPE_CHECKING.
"""

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from burnish.foundation.torch_private import LIVE

PACKAGE = "burnish"
SOURCE = Path(__file__).parent.parent / "src" / PACKAGE

BASE = {"concurrency", "errors", "events", "foundation", "settings"}
COMPILER = {"lower", "schedule", "codegen"}
EVERYTHING = {"anything"}

# What each part of the package may import, besides itself.
MAY_IMPORT = {
    "errors": set(),
    "events": {"concurrency", "errors", "foundation"},
    "concurrency": set(),
    "settings": {"concurrency", "errors"},
    "foundation": {"concurrency", "errors"},
    "runtime": BASE | {"tensors", "captured_graph"},
    "report": {"concurrency", "errors", "events", "foundation"},
    "tensors": BASE,
    # What capture notes beside a graph, for the compiler and for run time.
    "captured_graph": BASE | {"tensors"},
    "ops": BASE | {"tensors"},
    "ir": BASE | {"tensors", "captured_graph", "ops"},
    "capture": BASE | {"frontend", "tensors", "captured_graph", "ir", "backends", "runtime"},
    "lower": BASE | {"tensors", "captured_graph", "ops", "ir"},
    "schedule": BASE | {"tensors", "ops", "ir"},
    "codegen": BASE | {"tensors", "ops", "ir", "schedule", "runtime"},
    # For each kind of device, its code generator and its machine facts.
    "targets": BASE | {"tensors", "ops", "schedule", "codegen", "runtime"},
    # From a captured graph to a program: the one place that knows all the stages.
    "compiler": BASE | COMPILER | {"targets", "tensors", "captured_graph", "ops", "ir", "runtime"},
    # Where compilers are put behind names that capture can look up.
    "backends": BASE | COMPILER | {"compiler", "tensors", "captured_graph", "ops", "ir", "runtime"},
    # What users call sits on top.
    "integrations": EVERYTHING,
    "frontend": EVERYTHING,
    "__main__": {"cli"},
    "cli": EVERYTHING,
    "export": EVERYTHING,
    "api": EVERYTHING,
    "__init__": EVERYTHING,
}

CAPTURE = "burnish.capture."
EVERY_ROOM = {"breaks", "engine", "guards", "interpreter", "numbers", "python", "pytorch", "segments", "subclasses"}
EVERY_ROOM |= {"symbolic_sizes", "numpy_calls"}

# What each package inside capture may import of the others. Breaks and guards are the ground, the interpreter knows
# Python only; rules for Python, torch, subclasses and sizes stand on them; the engine knows all.
MAY_IMPORT_IN_CAPTURE = {
    "breaks": set(),
    "guards": {"engine", "interpreter", "numbers"},
    "interpreter": {"breaks", "engine", "guards", "numbers"},
    "numpy_calls": {"breaks", "engine", "guards", "interpreter", "numbers", "python"},
    "numbers": {"breaks", "engine", "guards", "interpreter", "python", "pytorch", "symbolic_sizes"},
    "symbolic_sizes": {"breaks", "engine", "guards", "numbers", "pytorch"},
    "subclasses": {"breaks", "engine", "guards", "interpreter", "python", "pytorch"},
    "segments": {"breaks", "engine", "guards", "interpreter", "numbers", "python", "pytorch"},
    "pytorch": {"breaks", "engine", "guards", "interpreter", "numbers", "python", "segments"},
    "python": EVERY_ROOM,
    "engine": EVERY_ROOM,
}

PEERS = ("torch._dynamo", "torch._functorch", "torch._inductor", "functorch")
PARTED = (PACKAGE, CAPTURE.rstrip("."), "torch")
"""Packages whose parts have directions of their own."""
MAY_IMPORT_PEERS = {"backends", "integrations"}

LONGEST_FILE = 500
MOST_FILES = 20
EMPTY_NAMES = {"utils", "common", "helpers", "misc"}

SHARED_CLASS_NAMES = {"Table": "codegen/math"}
"""Classes that are the same idea in all modules of a folder: the constants of a function, in one precision."""

FILES = sorted(SOURCE.rglob("*.py"))

IMPORTED_BY_USERS = {"__init__", "__main__", "api", "errors", "events", "settings"}


def test_modules_at_top_level_are_those_that_users_import():
    assert {path.stem for path in SOURCE.glob("*.py")} == IMPORTED_BY_USERS


def test_imports_point_one_way():
    sources = sources_of(FILES)
    assert [why for module, source in sources.items() for why in why_not_imported(module, *source)] == []


def test_packages_inside_capture_import_in_these_directions():
    rooms = {path.name for path in (SOURCE / "capture").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms == set(MAY_IMPORT_IN_CAPTURE), "say in MAY_IMPORT_IN_CAPTURE what a new package may import"
    wrong = [
        f"{module}:{line} imports {imported}"
        for module, (source, package) in sources_of(FILES).items()
        if module.startswith(CAPTURE)
        for line, imported in imports(module, source, package)
        if room_of(imported) not in (None, room_of(module), *MAY_IMPORT_IN_CAPTURE[room_of(module)])
    ]
    assert wrong == []


def room_of(module: str) -> str | None:
    """The package inside capture that a module belongs to."""
    return module.removeprefix(CAPTURE).split(".")[0] if module.startswith(CAPTURE) else None


def test_modules_named_in_text_exist():
    """A module that is looked up by its name is not found after it has moved, and nothing else says so."""
    for path in FILES:
        for node in nodes_of(path.read_text(encoding="utf-8")):
            if isinstance(node, ast.Constant) and re.fullmatch(r"burnish(\.\w+){2,}", str(node.value)):
                place = SOURCE.joinpath(*node.value.split(".")[1:])
                assert place.is_dir() or place.with_suffix(".py").is_file(), f"{path}: {node.value}"


def test_differences_between_python_versions_are_in_two_places():
    naming = {
        str(path.relative_to(SOURCE))
        for path in FILES
        if any(isinstance(node, ast.Attribute) and node.attr == "version_info" for node in nodes_of(path.read_text()))
    }
    assert naming == {"capture/interpreter/versions/behavior.py", "runtime/state_watch/native_watch.py"}


NAMES_A_DEVICE = {
    "codegen/triton/compilation/invoke_triton.py": "Triton's name for its own backend",
    "lower/trace/run_autograd.py": "torch's switch for autocast",
    "ops/elementwise/activations.py": "asks one of torch's kernels for CPUs",
    "ops/target_record.py": "the record",
    "schedule/library/measure_candidates.py": "torch's switch for autocast",
}
"""Modules of the compiler that name a kind of device, and why. Others ask `tensors.device_facts` or the target."""


def test_the_compiler_asks_records_what_a_device_can_do():
    assert naming({"ops", "ir", "compiler", *COMPILER}, {"cpu", "cuda"}) == set(NAMES_A_DEVICE)


def naming(parts: set[str], texts: set[str]) -> set[str]:
    """The modules in which one of the texts is a constant."""
    return {
        path.relative_to(SOURCE).as_posix()
        for path in FILES
        if part_of(module_name(path)) in parts
        for node in nodes_of(path.read_text(encoding="utf-8"))
        if isinstance(node, ast.Constant) and node.value in texts
    }


FILLS_ANOTHER = {"api.py": "frontend calls the API, which imports frontend"}


def test_no_module_outside_capture_fills_another_when_it_is_imported():
    """In capture, modules of rules add to tables of the tracer."""
    filling = {
        path.relative_to(SOURCE).as_posix()
        for path in FILES
        if part_of(module_name(path)) != "capture" and fills_another(path.read_text(encoding="utf-8"))
    }
    assert filling == set(FILLS_ANOTHER)


@pytest.mark.parametrize("statement", ["a.MAKER = f", "A['b'] = f", "a.FOUND += [f]", "A.b['c'].d = f"])
def test_a_module_that_fills_another_is_found(statement):
    assert fills_another(f"from ..ops import A, a\n{statement}")
    assert not fills_another(f"from ..ops import B\nA = a = {{}}\n{statement}")
    assert not fills_another(f"from ..ops import A, a\ndef g():\n    {statement}")


def fills_another(source: str) -> bool:
    """Whether a statement outside functions assigns to a part of something of ours that is imported."""
    body = parsed(source).body
    ours = {name.asname or name.name for x in body if isinstance(x, ast.ImportFrom) and x.level for name in x.names}
    for statement in body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        for target in targets:
            inner = target
            while isinstance(inner, ast.Attribute | ast.Subscript):
                inner = inner.value
            if inner is not target and isinstance(inner, ast.Name) and inner.id in ours:
                return True
    return False


KEEPS_ERRORS = {
    "capture/interpreter/keyboard_interrupts.py": "the context of another error",
    "capture/pytorch/backward_and_grad.py": "the program's: fail_call() raises it",
    "capture/pytorch/custom_functions/autograd_function_nodes.py": "the program's: fail_call() raises it",
    "capture/pytorch/higher_order/native_callbacks.py": "the program's",
    "capture/python/polyfills/object_polyfills.py": "the program's: raised behind the handler",
    "capture/pytorch/opaque_nodes.py": "the program's: fail_call() raises it",
    "codegen/triton/compilation/compile_worker.py": "of a process of its own",
    "codegen/triton/compilation/compile_worker_pool.py": "of a thread of its own",
    "compiler/background_imports.py": "of a thread of its own",
    "foundation/plugins.py": "a plug-in may raise SystemExit",
    "runtime/linking/cuda_module_loader.py": "called from C, and raised later",
}
"""Modules that may handle an error of a signal handler or of another thread, and why."""


def test_handlers_of_every_error_let_those_from_outside_pass():
    keeping = set()
    for path in FILES:
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(("cli/", "export/", "frontend/", "integrations/", "report/")):
            keeping |= {name for node in nodes_of(path.read_text(encoding="utf-8")) if keeps_errors(node)}
    assert keeping == set(KEEPS_ERRORS)


def keeps_errors(node: ast.AST) -> bool:
    """Whether code handles every Exception, whatever it came from."""
    if isinstance(node, ast.Call):
        return ast.unparse(node).startswith("contextlib.suppress(Exception")
    if not isinstance(node, ast.ExceptHandler):
        return False
    kinds = {kind.id for kind in ast.walk(node.type) if isinstance(kind, ast.Name)} if node.type else {"Exception"}
    called = {getattr(call.func, "id", "") for call in ast.walk(node) if isinstance(call, ast.Call)}
    is_raised = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
    return "Exception" in kinds and not is_raised and not called & {"reraise_from_outside", "raise_internal_error"}


def test_files_are_short_enough_to_have_one_subject():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {str(path): length for path, length in lengths.items() if length > LONGEST_FILE} == {}


def test_no_folder_holds_too_many_files():
    counts = Counter(path.parent for path in FILES)
    assert not {str(folder.relative_to(SOURCE)): n for folder, n in counts.items() if n > MOST_FILES}


def test_modules_have_a_docstring_of_their_purpose():
    assert [path for path in FILES if not ast.get_docstring(parsed(path.read_text(encoding="utf-8")))] == []


def test_modules_are_named_after_their_subjects():
    names = {path: path.relative_to(SOURCE).with_suffix("").parts for path in FILES}
    assert [path for path, parts in names.items() if EMPTY_NAMES & {part.strip("_") for part in parts}] == []


def test_a_class_name_stands_in_one_module():
    places: dict[str, set[str]] = {}
    for path in FILES:
        for node in parsed(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                is_shared = path.parent == SOURCE / SHARED_CLASS_NAMES.get(node.name, "-")
                places.setdefault(node.name, set()).add(str(path.parent if is_shared else path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
    assert places.keys() >= SHARED_CLASS_NAMES.keys()


def test_packages_below_the_top_hold_no_code():
    """It runs while the first of its modules is imported, so a second thread may see the package half made."""
    for path in FILES:
        if is_package(path) and path.parent != SOURCE:
            for node in parsed(path.read_text(encoding="utf-8")).body[1:]:
                assert isinstance(node, ast.ImportFrom) or ast.unparse(node).startswith("__all__ ="), path


def test_every_part_is_in_the_table_of_directions():
    parts = {part_of(module_name(path)) for path in FILES}
    unlisted = parts - set(MAY_IMPORT)
    assert not unlisted, f"say in MAY_IMPORT, in {Path(__file__).name}, what {sorted(unlisted)} may import"


def test_table_of_directions_has_no_cycle():
    def below(part, path):
        assert part not in path, " -> ".join([*path, part])
        for other in MAY_IMPORT[part] - EVERYTHING:
            below(other, [*path, part])

    for part in MAY_IMPORT:
        below(part, [])


def test_imports_form_no_circle():
    """In capture a class and a module that it hands parts to name each other's types: two files."""
    circles = circles_of(sources_of(FILES))
    assert [circle for circle in circles if len(circle) > 2 or {*map(part_of, circle)} != {"capture"}] == []


@pytest.mark.parametrize(
    "third",
    [
        "from .. import first",
        "from ..first import compile",
        "import burnish.first",
        "def f():\n    from ..first import compile",
        "if TYPE_CHECKING:\n    from burnish.first import compile",
    ],
)
def test_a_circle_of_imports_is_found(third):
    sources = {
        "burnish": ("", True),
        "burnish.first": ("from .part import second", False),
        "burnish.part": ("", True),
        "burnish.part.second": ("from .third import f", False),
        "burnish.part.third": (third, False),
        "burnish.part.fourth": ("from . import third", False),
    }
    assert circles_of(sources) == [["burnish.first", "burnish.part.second", "burnish.part.third"]]
    assert circles_of({**sources, "burnish.part.third": ("from .. import settings", False)}) == []


def test_pairs_of_a_class_and_its_parts_are_circles_of_two():
    sources = {
        "burnish": ("", True),
        "burnish.whole": ("from . import part, other", False),
        "burnish.part": ("from .whole import Whole", False),
        "burnish.other": ("from .whole import Whole", False),
    }
    assert circles_of(sources) == [["burnish.other", "burnish.whole"], ["burnish.part", "burnish.whole"]]


@pytest.mark.parametrize(
    "module,source",
    [
        ("burnish.capture.engine.engine", "from burnish.codegen import llvm"),
        ("burnish.capture.engine.engine", "from ...codegen.llvm import printer"),
        ("burnish.capture.engine.engine", "from ... import codegen"),
        ("burnish.capture.interpreter.opcodes.control_flow", "from ....lower import pipeline"),
        ("burnish.capture.engine.engine", "def f():\n    import burnish.schedule.fusion.fuse_loops"),
        ("burnish.capture.engine.engine", "from burnish import compile"),
        ("burnish.capture.engine.engine", "import burnish"),
        ("burnish.capture.engine.engine", "import importlib\nimportlib.import_module('burnish.codegen')"),
        ("burnish.lower.pipeline", "from ..capture import breaks"),
        ("burnish.runtime.program.program", "if TYPE_CHECKING:\n    from ...capture import frames"),
        ("burnish.report.show_stages", "from .. import settings"),
        ("burnish.settings", "from .events import emit"),
        ("burnish.capture.engine.engine", "import torch._dynamo"),
        ("burnish.capture.engine.engine", "from torch import _inductor"),
        ("burnish.capture.engine.engine", "from torch._functorch.aot_autograd import aot_function"),
        ("burnish.capture.engine.engine", "import functorch.compile"),
        ("burnish.capture.engine.engine", "import torch\ntorch._dynamo.reset()"),
        ("burnish.capture.engine.engine", "__import__('torch._inductor')"),
        ("burnish.runtime.program.program", "import torch\ndef f():\n    return torch._functorch.config"),
    ],
)
def test_wrong_import_is_found(module, source):
    assert len(list(why_not_imported(module, source))) == 1


@pytest.mark.parametrize(
    "module,source",
    [
        (
            "burnish.capture.engine.engine",
            "from . import heap\nfrom ..guards import guards\nfrom ...errors import UserError",
        ),
        ("burnish.capture.engine.engine", "from ... import events, settings\nfrom ...backends import lookup"),
        ("burnish.capture.engine.engine", "from burnish.ir import graph\nimport torch, torch.fx"),
        ("burnish.backends.aot_eager", "from torch._functorch.aot_autograd import aot_module_simplified"),
        ("burnish.integrations.accelerate", "import torch._dynamo\nfrom .. import api"),
        ("burnish.api", "from .capture import program\nfrom .report import explain"),
        ("burnish.capture.polyfills", "import torch.func\nimport functools"),
    ],
)
def test_right_import_is_let_through(module, source):
    assert list(why_not_imported(module, source)) == []


def test_relative_import_of_a_package_starts_at_the_package():
    assert list(why_not_imported("burnish.capture", "from . import frames", package=True)) == []
    assert list(why_not_imported("burnish.capture", "from ..codegen import llvm", package=True)) != []


def why_not_imported(module: str, source: str, package: bool = False) -> Iterator[str]:
    """A sentence for each import that points the wrong way."""
    part = part_of(module)
    allowed = MAY_IMPORT.get(part, set()) | {part}
    for line, imported in imports(module, source, package):
        peer = next((peer for peer in PEERS if imported == peer or imported.startswith(f"{peer}.")), None)
        if peer and part not in MAY_IMPORT_PEERS:
            yield f"{module}:{line} uses {imported}: only {' and '.join(sorted(MAY_IMPORT_PEERS))} may use {peer}"
        elif imported.split(".")[0] == PACKAGE and allowed.isdisjoint(EVERYTHING) and part_of(imported) not in allowed:
            yield f"{module}:{line} imports {imported}: {part} may import only {', '.join(sorted(allowed))}"


def test_private_names_of_torch_are_in_one_module():
    wrong = [
        f"{module}:{line} {name}"
        for module, (source, _) in sources_of(FILES).items()
        if part_of(module) not in {"foundation", *MAY_IMPORT_PEERS}
        for line, name in private_names(source)
    ]
    assert wrong == [], "give each a line in torch_private.py"


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch._C._is_tracing()",
        "import torch\ndef f(x: torch._ops.OpOverload): pass",
        "from torch import _C",
        "from torch.overrides import _pop_mode",
        "import torch.utils._pytree as pytree",
        "from torch.utils import checkpoint as c\nc._checkpoint_impl",
        "import torch\ngetattr(torch.fx.graph_module, '_loader', None)",
        "from ..foundation.torch_private import C\nC._is_tracing()",
        "def f():\n    from ..foundation.torch_private import python_dispatch as d\n    d._get_current_dispatch_mode()",
    ],
)
def test_a_private_name_of_torch_is_found(source):
    assert len(list(private_names(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.ops.aten._to_copy.default, torch.__version__",
        "from ..foundation.torch_private import C, pytree\npytree.tree_map\nC.Graph",
        "from torch.autograd import forward_ad\nforward_ad._current_level",
        "import torch\ntorch.nn.modules.module._global_backward_hooks",
    ],
)
def test_other_names_of_torch_are_let_through(source):
    assert list(private_names(source)) == []


def private_names(source: str) -> Iterator[tuple[int, str]]:
    """Private names below torch, by import, by path or by ``getattr``; not operators, and not variables that change."""
    origins: dict[str, str] = {}
    for node in nodes_of(source):
        match node:
            case ast.Import(names=names):
                found = [
                    (alias.asname or "torch", alias.name if alias.asname else "torch", alias.name) for alias in names
                ]
            case ast.ImportFrom(module=str(base), names=names):
                base = "torch" if base.endswith("torch_private") else base
                paths = [(alias.asname or alias.name, f"{base}.{alias.name}") for alias in names]
                found = [(name, path, path) for name, path in paths]
            case _:
                continue
        for name, held, path in found:
            if path.split(".")[0] == "torch":
                origins[name] = held
                if is_private(path):
                    yield node.lineno, path
    inner = {id(node.value) for node in nodes_of(source) if isinstance(node, ast.Attribute)}
    for node in nodes_of(source):
        path = None
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            path = dotted(node, origins)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            held = dotted(node.args[0], origins)
            path = held and isinstance(node.args[1], ast.Constant) and f"{held}.{node.args[1].value}"
        if path and is_private(path) and path not in LIVE and not path.startswith("torch.ops."):
            yield node.lineno, path


def dotted(node: ast.AST, origins: Mapping[str, str]) -> str | None:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names, node = [node.attr, *names], node.value
    return ".".join([origins[node.id], *names]) if isinstance(node, ast.Name) and node.id in origins else None


def is_private(path: str) -> bool:
    return any(re.match("_(?!_)", name) for name in path.split("."))


@functools.cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


@functools.cache
def nodes_of(source: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parsed(source)))


def imports(module: str, source: str, package: bool) -> Iterator[tuple[int, str]]:
    """Line and full name of every module that is imported, by a statement, by a call, or by its path below torch.

    `from burnish import x` is an import of `burnish.x` where there is such a part, and of the package otherwise.
    """
    inside = module.split(".") if package else module.split(".")[:-1]
    for node in nodes_of(source):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield node.lineno, alias.name
            case ast.ImportFrom(module=base, names=names, level=level):
                start = inside[: len(inside) - level + 1] if level else []
                origin = ".".join([*start, base] if base else start)
                # Two names from one module are one import of it, two modules from one package are two.
                for name in sorted({f"{origin}.{a.name}" if origin in PARTED else origin for a in names}):
                    yield node.lineno, name
            case ast.Call(func=ast.Name("__import__") | ast.Attribute(attr="import_module"), args=[ast.Constant(name)]):
                yield node.lineno, str(name)
            case ast.Attribute(value=ast.Name("torch"), attr=attribute):
                # `torch._dynamo` loads itself when it is first touched, without an import statement.
                yield node.lineno, f"torch.{attribute}"


def circles_of(sources: Mapping[str, tuple[str, bool]]) -> list[list[str]]:
    """The circles of modules: for each import, the shortest way back that is not itself two modules long, else those
    two. Sources: text, and whether it is a package's.

    A name that is imported from a package is a module if there is one of that name.
    """
    below: dict[str, set[str]] = {}
    for module, (source, package) in sources.items():
        inside = module.split(".") if package else module.split(".")[:-1]
        below[module] = set()
        for node in nodes_of(source):
            if isinstance(node, ast.Import):
                below[module] |= {alias.name for alias in node.names} & sources.keys()
            elif isinstance(node, ast.ImportFrom):
                start = inside[: len(inside) - node.level + 1] if node.level else []
                origin = ".".join([*start, node.module] if node.module else start)
                names = {f"{origin}.{alias.name}" for alias in node.names}
                modules = names & sources.keys()
                below[module] |= modules | ({origin} & sources.keys() if modules < names else set())
    circles = set()
    for module, others in below.items():
        for other in others:
            longer = way(other, module, {**below, other: below[other] - {module}})
            if longer or module in below[other]:
                circles.add(tuple(sorted(longer or [module, other])))
    return sorted(map(list, circles))


def way(start: str, end: str, below: Mapping[str, set[str]]) -> list[str]:
    """The modules on a shortest way along imports, empty if there is none."""
    before, level = {start: ""}, [start]
    while level and end not in before:
        found = {other: module for module in level for other in below[module] if other not in before}
        before, level = {**before, **found}, list(found)
    path, at = [], end if end in before else ""
    while at:
        path.append(at)
        at = before[at]
    return path


def sources_of(files: Iterable[Path]) -> dict[str, tuple[str, bool]]:
    return {module_name(path): (path.read_text(encoding="utf-8"), is_package(path)) for path in files}


def reached_from(module: str, below: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    left = [module]
    while left:
        new = below[left.pop()] - found
        found |= new
        left += new
    return found


def part_of(module: str) -> str:
    """The part of the package a module belongs to: "capture" for burnish.capture.frames. For the package itself and
    for names that are no part of it, "__init__"."""
    _, _, below = module.partition(".")
    part = below.split(".")[0]
    exists = part and ((SOURCE / part).is_dir() or (SOURCE / f"{part}.py").is_file())
    return part if exists or part in MAY_IMPORT else "__init__"


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join([PACKAGE, *(parts[:-1] if is_package(path) else parts)])


def is_package(path: Path) -> bool:
    return path.name == "__init__.py"
