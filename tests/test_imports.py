"""Modules that are imported by importing and using burnish."""

import subprocess
import sys

from .forked_programs import TORCH, run_program

PROGRAM = """
import sys, torch
before = set(sys.modules)
import burnish
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten())
model(torch.ones(1, 3, 8, 8))

def fn(x):
    y = model(x)
    if y.sum() > 0:
        y = y * 2
    with torch.no_grad(), torch.autocast("cpu"):
        return y.sum() + torch.nn.functional.cross_entropy(y, torch.zeros(1, dtype=torch.long))
compiled = burnish.compile(fn, backend="eager")
for _ in range(3):
    compiled(torch.ones(1, 3, 8, 8))
new = set(sys.modules) - before
heavy = ("torch._dynamo", "torch._inductor", "torch._functorch", "sympy")
print(sorted(m for m in new if m in heavy or m.startswith(tuple(h + "." for h in heavy))))
"""


def test_capture_imports_neither_the_other_compiler_nor_sympy():
    found = run_program(PROGRAM, prepare=TORCH)
    assert found.stdout.strip() == "[]", found.stdout + found.stderr


LARGEST_IMPORT = 334
"""Modules that `import burnish` loads besides torch's. Each costs about a millisecond before any program runs. A rule
for something that few programs do is imported when it is first needed (`calls.function_calls`, `backends.registry`)."""
COUNT = """
import sys, torch
before = set(sys.modules)
import burnish
print(*sorted(set(sys.modules) - before))
"""


def test_import_loads_few_modules_and_neither_compiler_nor_reports():
    found = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True).stdout.split()
    assert len(found) <= LARGEST_IMPORT, found
    later = (
        "compiler.compile_or_fall_back",
        "runtime.cuda_graphs",
        "report.explain_report",
        "export.exported_graph",
        "codegen",
    )
    later += ("capture.pytorch.graph_regions.flex_attention",)
    assert not {f"burnish.{module}" for module in later} & {*found}


COMPILE = """
import sys, logging
if "without" in sys.argv:
    sys.modules["triton"] = None
import torch
import burnish
before = {"triton", "torch.utils.flop_counter"} & set(sys.modules)
with torch.no_grad():
    burnish.compile(torch.nn.Linear(8, 8))(torch.ones(5, 8))
if "with-report" not in sys.argv:
    print(sorted({"triton", "torch.utils.flop_counter"} & set(sys.modules) - before))
else:
    burnish.reset()
    with burnish.report(sys.argv[-1]), torch.no_grad():
        burnish.compile(torch.nn.Linear(8, 8))(torch.ones(5, 8))
"""


def test_compilation_for_the_cpu_imports_no_triton(tmp_path):
    found = run_program(COMPILE, prepare=TORCH)
    assert found.stdout.strip() == "[]", found.stdout + found.stderr
    found = run_program(COMPILE, "without", "with-report", str(tmp_path / "report.html"), prepare=TORCH)
    assert "triton not found" not in found.stderr and (tmp_path / "report.html").is_file()
