"""`burnish bisect SCRIPT` writes the smallest graph that fails: defects planted in ten stages of the compiler."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import burnish
from burnish.cli import command_line
from burnish.cli.bisect_rewrites import bisect
from burnish.cli.minimize.judge import PASSES, judged
from burnish.cli.minimize.record_graphs import NotPrintable, recorded, source_of
from burnish.cli.minimize.reduce_graph import smallest
from burnish.cli.minimize.straight_line import straight_line
from burnish.cli.minimize.write_script import write_script
from burnish.codegen.llvm import scalar_operations
from burnish.compiler import compare_with_eager
from burnish.errors import UserError
from burnish.ir.rewriter import Rewriter
from burnish.lower import pipeline as lowering
from burnish.lower.passes import eliminate_dead_and_common_nodes
from burnish.lower.passes.canonicalize_products import ProductCanonicalizer
from burnish.lower.passes.fold_batch_norm import BatchNormFolder
from burnish.ops.scalar_ir import make
from burnish.schedule import pipeline as scheduling


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)
        self.first, self.second = torch.nn.Linear(72, 40), torch.nn.Linear(40, 40)
        self.register_buffer("seen", torch.zeros(40))

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x))).flatten(1)
        x = self.first(x)
        x = x + self.second(F.gelu(x - x.mean(-1, keepdim=True)))
        self.seen.copy_(x.detach().amax(0))
        pairs = torch.cat([x.exp() - 1, x.exp() - 2], 1)
        return torch.softmax(pairs, -1).square().sum(0)


def graph_of(model, *args):
    """What `burnish bisect` records of a program."""
    kept = []

    def backend(gm, inputs):
        kept.append(straight_line(**recorded(gm, inputs)))
        return gm.forward

    burnish.compile(model, backend=backend)(*args)
    (graph,) = kept
    return graph.with_written_inputs()


def doubled(cls):
    """A pass whose rewrites come out twice as large."""

    def plant(monkeypatch):
        right = cls.rewrite

        def rewrite(self, node, args, kwargs):
            made = right(self, node, args, kwargs)
            return made if made is None or isinstance(made, tuple) else self.build("mul.Tensor", made, 2)

        monkeypatch.setattr(cls, "rewrite", rewrite)

    return plant


def outputs_dropped(monkeypatch):
    """Functionalization loses what is written."""
    first, *others = lowering.PASSES

    def functionalize(graph):
        made = first(graph)
        made.writes = []
        return made

    monkeypatch.setattr(lowering, "PASSES", (functionalize, *others))


def equal_up_to_constants(monkeypatch):
    """Common subexpressions are found without looking at numbers."""
    right = eliminate_dead_and_common_nodes.frozen
    monkeypatch.setattr(
        eliminate_dead_and_common_nodes, "frozen", lambda tree: 0 if type(tree) in (int, float) else right(tree)
    )


def negative_kernels(monkeypatch):
    """Loops store the opposite of what they compute."""
    right = scheduling.build_kernel

    def build_kernel(*args):
        launch = right(*args)
        loop, *rest = launch.kernel.loops
        *others, stage = loop.stages
        if not stage.stores:
            return launch
        store, *more = stage.stores
        negative = replace(store, value=make("neg", store.value.dtype, (store.value,), None))
        loop = replace(loop, stages=(*others, replace(stage, stores=(negative, *more))))
        return replace(launch, kernel=replace(launch.kernel, loops=(loop, *rest)))

    monkeypatch.setattr(scheduling, "build_kernel", build_kernel)


def memory_shared(monkeypatch):
    """All values of the arena begin at its start."""
    right = scheduling.place_in_arena

    def place_in_arena(plan, *args):
        right(plan, *args)
        plan.offsets.update(dict.fromkeys(plan.offsets, 0))

    monkeypatch.setattr(scheduling, "place_in_arena", place_in_arena)


def wrong_instruction(monkeypatch):
    """The code generator prints an addition for a subtraction."""
    monkeypatch.setitem(scalar_operations._FLOAT_INSTRUCTIONS, "sub", "fadd")


def no_instruction(monkeypatch):
    """The code generator fails."""

    def apply(self, op, *args, right=scalar_operations.LlvmOperations.apply):
        assert op != "div"
        return right(self, op, *args)

    monkeypatch.setattr(scalar_operations.LlvmOperations, "apply", apply)


def gradients_exchanged(monkeypatch):
    """Backward hands gradients of one shape to each other's inputs."""
    right = Rewriter.run

    def run(self):
        graph = right(self)
        if isinstance(self, ProductCanonicalizer):
            by_type = {}
            for k, value in enumerate(graph.outputs[1:], 1):
                by_type.setdefault(value.type if value is not None else None, []).append(k)
            for places in by_type.values():
                values = [graph.outputs[k] for k in places]
                for k, value in zip(places, reversed(values), strict=True):
                    graph.outputs[k] = value
        return graph.with_written_inputs()

    monkeypatch.setattr(Rewriter, "run", run)


DEFECTS = {
    "a pass": (doubled(ProductCanonicalizer), False),
    "folding batch norm": (doubled(BatchNormFolder), False),
    "functionalization": (outputs_dropped, False),
    "common subexpressions": (equal_up_to_constants, False),
    "loops": (negative_kernels, False),
    "memory": (memory_shared, False),
    "instructions": (wrong_instruction, False),
    "an error of the code generator": (no_instruction, False),
    "gradients": (gradients_exchanged, True),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_planted_defect_is_reduced_to_a_short_script(name, monkeypatch, tmp_path):
    plant, trains = DEFECTS[name]
    monkeypatch.setattr(compare_with_eager, "is_on", True)
    model = Net() if trains else Net().eval().requires_grad_(False)
    graph = graph_of(model, torch.randn(6, 3, 5, 5))
    assert judged(graph) == PASSES
    plant(monkeypatch)
    verdict = judged(graph)
    assert verdict != PASSES

    def fails(smaller):
        return judged(smaller) == verdict

    small = smallest(graph, fails)
    script = tmp_path / "repro.py"
    write_script(small, fails, script)
    assert len(small.statements) <= 3 and fails(small)
    assert len([line for line in script.read_text().splitlines() if line and line[0] != "#"]) <= 12


def test_graphs_of_all_kinds_are_read_back_and_pass(monkeypatch):
    """In-place writes without results, overlapping inputs, names of builtins, random numbers, gradients off."""
    monkeypatch.setattr(compare_with_eager, "is_on", True)

    def named(input, len):
        return input * len.exp()

    def noisy(x):
        return F.dropout(x, 0.5) + torch.rand(64)

    weight = torch.nn.Parameter(torch.ones(3))

    @torch.no_grad()
    def step(x):
        return weight.mul_(x)

    for fn, args in (
        (lambda x: x.add_(1) and None, (torch.ones(1),)),
        (lambda x: x.exp().sum(0), (torch.ones(3, 1).expand(3, 4),)),
        (named, (torch.ones(3), torch.ones(3))),
        (noisy, (torch.ones(64),)),
    ):
        graph = graph_of(fn, *args)
        assert judged(graph) == PASSES, graph.source()
    with torch.no_grad():
        graph = graph_of(step, torch.full((3,), 2.0))
    assert not graph.grad and judged(graph) == PASSES


def test_script_makes_its_inputs_wherever_it_is(monkeypatch, tmp_path):
    odd = torch.tensor([0.1, float("nan"), float("inf")] * 8)
    graph = graph_of(lambda x, y: (x + y).sin(), odd, torch.ones(24, dtype=torch.complex64))
    (tmp_path / "sub").mkdir()
    script = tmp_path / "sub" / "repro.py"
    assert write_script(graph, lambda smaller: False, script) == tmp_path / "sub" / "repro.pt"
    monkeypatch.chdir(tmp_path)
    text = script.read_text().replace("burnish.settings.configure(", "dict(")  # for this process too
    exec(compile(text, str(script), "exec"), {"__file__": str(script)})


def test_script_of_others_is_not_overwritten(tmp_path, capsys):
    script = tmp_path / "model.py"
    script.write_text("import torch")
    assert command_line.main(["bisect", "-o", str(script), __file__]) == 2
    assert "is there already" in capsys.readouterr().err and script.read_text() == "import torch"


PLANTED = """
import os
from burnish.codegen.llvm.scalar_operations import LlvmOperations
right = LlvmOperations.apply
def apply(self, op, *args):
    if op == "div":
        os._exit(7)
    return right(self, op, *args)
LlvmOperations.apply = apply
"""


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """Put code into each process of the command: it runs before Burnish is imported."""

    def plant(code):
        site = f"import sys\nif 'burnish' in ' '.join(sys.orig_argv):\n    exec({code!r})\n"
        (tmp_path / "sitecustomize.py").write_text(site)
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}")
        monkeypatch.delenv("_BURNISH_COMPARE_RESULTS")

    return plant


@pytest.mark.slow  # six processes that import torch
def test_script_whose_compilation_ends_the_process_is_reduced(tmp_path, planted, capsys):
    planted(PLANTED)
    script, output = tmp_path / "train.py", tmp_path / "burnish-repro.py"
    script.write_text(
        "import torch, burnish\n"
        "f = burnish.compile(lambda x: torch.softmax(x.sin() @ x.T, -1).exp())\n"
        "for _ in range(3):\n    f(torch.randn(30, 40))\n"
    )
    assert command_line.main(["bisect", "-o", str(output), str(script)]) == 0
    printed = capsys.readouterr()
    assert "calls crashes" in printed.out and f"written to {output}" in printed.out
    assert "softmax" in output.read_text() and "sin" not in output.read_text()
    assert "The command fails from rewrite" in printed.out and "div = aten.div.Tensor" in printed.out


@pytest.mark.slow  # a process that trains, and one that judges
def test_setting_writes_the_graph_that_differs(tmp_path, planted):
    planted(
        "from burnish.codegen.llvm import scalar_operations\nscalar_operations._FLOAT_INSTRUCTIONS['sub'] = 'fadd'\n"
    )
    (tmp_path / "burnish_train.py").write_text(
        "import torch, burnish\n"
        "model = torch.nn.Linear(30, 40)\n"
        "def step(x):\n    y = torch.tanh(model(x))\n    return (y - y.exp()).cos().sum()\n"
        "compiled = burnish.compile(step)\n"
        "for _ in range(3):\n    compiled(torch.randn(20, 30)).backward()\n"
    )
    environment = os.environ | {"BURNISH_CHECK": "bisect"}
    command = [sys.executable, "burnish_train.py"]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 1 and "written to burnish-repro.py" in run.stderr
    assert "InternalError" in run.stderr and "gives something else than eager does" in run.stderr
    text = (tmp_path / "burnish-repro.py").read_text()
    assert "tanh" in text and "cos" not in text and len(text.splitlines()) <= 14  # its kernel subtracts


@pytest.mark.slow
def test_slower_graph_is_reduced_and_its_script_says_by_how_much(tmp_path, planted, capsys):
    planted(
        "import dataclasses, burnish\n"
        "from burnish.ops.elementwise import activations\n"
        "from burnish.ops.operator_record import RECORDS\n"
        "from burnish.ops.scalar_ir import make, maximum, minimum\n"
        "def slow(x):\n"
        "    y = x\n"
        "    for _ in range(60):\n        y = make('sin', y.dtype, (y,), None)\n"
        "    return maximum(x, 0) + minimum(y * y, 0)\n"
        "relu = RECORDS['aten.relu.default']\n"
        "relu.rule = dataclasses.replace(relu.rule, rule=slow)\n"
    )
    script, output = tmp_path / "train.py", tmp_path / "burnish-repro.py"
    script.write_text(
        "import torch, burnish\nburnish.compile(lambda x: (x.cos().relu() + 1) @ x.T)(torch.ones(300, 300))\n"
    )
    with pytest.raises(UserError, match="fails without any rewrite"):  # it is a rule that is slow
        bisect([str(script)], output, slower=True)
    assert "ms more than eager" in capsys.readouterr().out
    text = output.read_text()
    assert "relu" in text and "cos" not in text and "@" not in text and "sys.exit(seconds > eager + 0.0" in text


def test_script_that_is_right_is_refused(tmp_path, capsys):
    script = tmp_path / "right.py"
    script.write_text("import torch, burnish\nburnish.compile(torch.sin)(torch.ones(3))\n")
    assert command_line.main(["bisect", str(script)]) == 2
    assert "ends well when each compiled graph is compared" in capsys.readouterr().err
    assert command_line.main(["bisect", str(tmp_path / "missing.py")]) == 2
    assert "There is no file" in capsys.readouterr().err


def test_graph_that_calls_what_no_import_finds_is_not_kept():
    def local(x):
        return x

    gm = torch.fx.symbolic_trace(lambda x: x + 1)
    next(node for node in gm.graph.nodes if node.op == "call_function").target = local
    with pytest.raises(NotPrintable, match="local"):
        source_of(gm)
