"""The tutorials' benchmarks with small sizes, generation with a static cache, and shares of memory bandwidth.

Lightning's is in tests/integrations/with_lightning_trainer.py, where importing Lightning reaches no other test.
"""

import json
import math

import pytest
import torch
from bench.apart import hand_back, run_in_own_process
from bench.bandwidth import PROGRAMS, Found, Program, why_far
from bench.clocks import EventClock, WallClock
from bench.contestants import contestant_of
from bench.tutorials import BOTH, CALLS, PARTS

from bench import apart as apart_module
from bench import bandwidth, static_cache, tutorials

from ..gpu.simulated_gpu import interpreted
from .simulated_gpu_queue import Queue

EAGER, BURNISH = contestant_of("eager"), contestant_of("burnish:backend=eager")


@pytest.mark.parametrize("part", ["inference", "training"])
def test_densenet_gives_ten_calls_and_ten_later_ones(part):
    eager, burnish = (tutorials.MEASURES[part](contestant, "cpu", True, 2) for contestant in (EAGER, BURNISH))
    assert len(eager["ten"]) == len(burnish["later"]) == CALLS and burnish["first"] > 0
    assert burnish["size"] == pytest.approx(eager["size"], rel=1e-4)


def test_iterations_are_timed_by_events_where_there_is_a_gpu(monkeypatch):
    gpu = Queue()
    gpu.instead_of_cuda(monkeypatch)
    monkeypatch.setattr("bench.clocks.clock_for", lambda device: EventClock(device, gpu.now))
    durations = iter([9.0, *[1e-3] * CALLS, *[5.0] * 3, *[2e-3] * CALLS])

    def call(x):
        gpu.launch(0.0, next(durations))
        return x

    found = tutorials.timed(call, lambda: (torch.ones(2),), "cuda", 3)
    assert found["clock"] == "CUDA events" and found["size"] == 1.0
    assert found["ten"] == pytest.approx([1e-3] * CALLS) and found["later"] == pytest.approx([2e-3] * CALLS)


def test_contestants_take_the_mode_of_the_tutorial():
    assert PARTS["inference"] == PARTS["training"] == BOTH
    assert {contestant_of(name).mode for name in BOTH[1:]} == {"reduce-overhead"}
    assert {contestant_of(name).mode for name in PARTS["lightning"]} == {None}


def test_report_has_speedups_and_says_what_differs():
    def result(ten, later, size):
        return {"clock": "", "first": 1.0, "ten": [ten] * 10, "later": [later] * 10, "size": size}

    text = tutorials.report(
        {
            "training": {
                "eager": result(2e-3, 2e-3, 7.0),
                "burnish:reduce-overhead": result(1e-3, 5e-4, 7.5),
                "torch.compile:reduce-overhead": {"why": "not done after 5 s: compiling"},
            }
        }
    )
    line = next(line for line in text.splitlines() if "burnish" in line)
    assert line.split()[-4:] == ["ms", "2.00×", "0.500", "ms", "4.00×"][-4:] and "1.000 ms" in line
    assert "! training, burnish:reduce-overhead: its first result is of size 7.5" in text
    assert "— training, torch.compile:reduce-overhead: not done after 5 s" in text
    assert not tutorials.is_near(math.nan, 1.0)


def test_failure_of_one_contestant_leaves_the_others(monkeypatch, tmp_path, capsys):
    def prepared(arguments, folder, limit):
        name = arguments[arguments.index("--worker") + 2]
        found = {"clock": "", "first": 1.0, "ten": [1.0], "later": [1.0], "size": 1.0}
        return (None, "it broke") if name.startswith("torch") else (found, None)

    monkeypatch.setattr(tutorials, "run_in_own_process", prepared)
    path = tmp_path / "deep" / "out.json"
    assert tutorials.main(["--json", str(path)]) == 1
    results = json.loads(path.read_text())
    assert set(results) == {"inference", "training", "lightning"}
    assert results["lightning"]["torch.compile"] == {"why": "it broke"} and "first" in results["lightning"]["burnish"]
    assert "it broke" in capsys.readouterr().out


def test_process_apart_hands_back_or_says_why(monkeypatch, tmp_path, capsys):
    good = "from bench.apart import hand_back; hand_back([1]); print('more')"
    assert run_in_own_process(["-c", good], tmp_path, 60) == ([1], None)
    found, why = run_in_own_process(["-c", "print('before'); raise SystemExit('no such thing')"], tmp_path, 60)
    assert found is None and why == "its process ended with status 1: before / no such thing"
    found, why = run_in_own_process(["-c", "import time; print('waits', flush=True); time.sleep(60)"], tmp_path, 2)
    assert found is None and why == "not done after 2 s: waits"
    hand_back({"a": 1})
    assert capsys.readouterr().out == f'\n{apart_module.MARK}{{"a": 1}}\n'


# -- a static cache ----------------------------------------------------------------------------------------------------


def test_texts_with_a_static_cache_have_eagers_tokens():
    pytest.importorskip("transformers")
    eager, burnish = (
        static_cache.measure(name, "tiny", "cpu", "float32", 3, 2) for name in ("eager", "burnish:backend=eager")
    )
    assert len(eager["tokens"]) == 2 * 3 and eager["tokens"] == eager["last"] == burnish["tokens"] == burnish["last"]
    text = static_cache.report({"eager": eager, "burnish:backend=eager": burnish, "torch.compile": {"why": "no"}}, 3)
    assert text.count("6 of 6") == 2 and "— torch.compile: no" in text


# -- memory bandwidth --------------------------------------------------------------------------------------------------


def test_bytes_are_those_of_inputs_and_results():
    elements = 2 * 4096
    moved = {
        program.name: bandwidth.measure(program, elements, torch.bfloat16, "cpu", Instant()).bytes
        for program in PROGRAMS
    }
    two = 2 * elements
    assert moved == {
        "pointwise chain": 2 * two,
        "add, relu, mul": 3 * two,
        "softmax": 2 * two,
        "layer_norm": 2 * two,
        "sum of rows": two + 2 * 2,
        "sum of columns": two + 2 * 4096,
    }


class Instant(WallClock):
    """A clock for which every call takes a second."""

    def __init__(self):
        self.at = 0.0
        super().__init__(self.tick)

    def tick(self):
        self.at += 1.0
        return self.at


def test_share_is_of_the_bandwidth_of_a_copy():
    found = bandwidth.measure(PROGRAMS[1], 4096, torch.float32, "cpu", Instant())
    # As long as the copy, for three tensors instead of its two.
    assert found.share("burnish") == 1.5 and found.way == "native" and found.wrong is None
    text = bandwidth.report([found])
    assert "150%" in text and "the least of Burnish's: 1.50×" in text


def test_on_a_gpu_its_kernels_are_timed():
    with interpreted() as ran:
        found = bandwidth.measure(PROGRAMS[2], 4096, torch.bfloat16, "cpu", Instant())
    assert set(ran) == {"max_exp_sum_convert"} and found.way == "native" and found.wrong is None


def test_wrong_kernel_has_no_speed(monkeypatch):
    monkeypatch.setattr("burnish.compile", lambda fn: lambda *inputs: fn(*inputs) * 1.1)
    found = bandwidth.measure(Program("twice", lambda x: 2 * x), 4096, torch.float32, "cpu", Instant())
    assert found.wrong.startswith("off by") and "! twice float32" in bandwidth.report([found])
    assert why_far(torch.ones(2), torch.ones(3)) and why_far(torch.ones(2), torch.ones(2)) is None
    assert why_far(torch.ones(2), torch.tensor([1.0, math.nan])) is not None


def test_failing_program_leaves_the_others(monkeypatch, tmp_path, capsys):
    def measure(program, elements, kind, *_):
        if program.name == "softmax":
            raise RuntimeError("no kernel")
        return Found(program.name, "float32", 100, 100.0, {"copy_": 1.0, "eager": 1.0, "burnish": 2.0}, "native")

    monkeypatch.setattr(bandwidth, "measure", measure)
    assert bandwidth.main(["--dtype", "f32", "--json", str(tmp_path / "out.json")]) == 1
    assert len(json.loads((tmp_path / "out.json").read_text())["found"]) == len(PROGRAMS) - 1
    assert "! softmax torch.float32: RuntimeError: no kernel" in capsys.readouterr().err
