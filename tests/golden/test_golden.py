"""The output of each stage for each program equals its golden file.

Read the files: they show the purpose of every pass. After an intended change, run
`pytest tests/golden --update-golden` and read the difference.
"""

from dataclasses import replace

import pytest

from burnish.schedule.loops.loop_ir import print_kernel

from ..ir.parse_graph import parse_graph
from ..schedule.parse_loops import kernels_in
from .cases import all_cases, files, read, write
from .stages import printed

CASES = all_cases()
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.stage}-{case.name}")


@each_case
def test_stage_output_equals_the_golden_file(case, request):
    out = printed(case)
    if request.config.getoption("--update-golden", default=False):
        path = next(path for path in files() if path.stem == case.stage)
        intro, cases = read(path)
        write(path, intro, [replace(other, out=out) if other.name == case.name else other for other in cases])
    else:
        assert out.splitlines() == case.out.splitlines()


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.out.startswith("graph(")], ids=lambda case: f"{case.stage}-{case.name}"
)
def test_golden_graph_parses_to_itself(case):
    assert str(parse_graph(case.out)) == case.out


@pytest.mark.parametrize("case", [case for case in CASES if "kernel " in case.out], ids=lambda case: case.name)
def test_golden_kernels_parse_to_themselves(case):
    kernels = kernels_in(case.out)
    assert len(kernels) == case.out.count("kernel ") and all(print_kernel(kernel) in case.out for kernel in kernels)


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_file_says_what_its_stage_does(path):
    intro, cases = read(path)
    assert intro.startswith("# ") and cases
    assert len({case.name for case in cases}) == len(cases)
