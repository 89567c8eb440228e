"""BURNISH_DUMP writes every stage of the compiler as a file that reads back."""

import torch

import burnish
from burnish.ir.verifier import verify

from ..schedule.parse_loops import kernels_in
from .parse_graph import parse_graph


def test_dump_holds_every_stage_and_each_reads_back(tmp_path):
    def fn(x, y):
        x = torch.softmax(x + y, -1)
        return x.sum(), x

    burnish.reset()
    with burnish.settings.patch(dump=tmp_path):
        burnish.compile(fn, backend="burnish")(torch.ones(4, 8), torch.ones(8))
    (place,) = tmp_path.iterdir()
    stages = sorted(place.glob("?-*.txt"))
    assert stages[0].name == "1-trace.txt" and stages[1].name == "2-functionalize.txt" and len(stages) > 5
    for file in stages:
        graph = parse_graph(file.read_text())
        verify(graph, file.name)
        assert f"{graph}\n" == file.read_text()
    kernels = kernels_in((place / "plan.txt").read_text())
    assert kernels and any(kernel.loops[0].rows == 1 for kernel in kernels)


def test_stages_of_one_segment_do_not_go_to_the_next(tmp_path):
    def fn(x):
        if x.sum() > 0:
            return x + 1
        return x - 1

    burnish.reset()
    with burnish.settings.patch(dump=tmp_path):
        burnish.compile(fn, backend="burnish")(torch.ones(4))
    for place in tmp_path.iterdir():
        (graph,) = place.glob("1-trace.txt")
        assert ("gt" in graph.read_text()) == (place / "break.txt").exists()
