"""Records of benchmark runs are read back without loss."""

import json
import math

import pytest
from bench.record import Cold, Overhead, Result, Row, Run


def small_run():
    cold = Cold(
        process=2.0,
        torch_import=1.0,
        build=0.5,
        own_import=0.1,
        first_call=0.25,
        memory_built=1 << 20,
        memory_peak=1 << 22,
        memory_steady=1 << 21,
        foreign_load=0.01,
    )
    results = {
        "eager": Result(seconds=2.0, ratio=1.0, ratio_low=1.0, ratio_high=1.0, blocks=[2.0, 2.0], first_call=3.0),
        "burnish": Result(
            seconds=1.0,
            ratio=2.0,
            ratio_low=1.9,
            ratio_high=2.1,
            blocks=[1.0, 1.0],
            first_call=0.25,
            cold=cold,
            error=1e-7,
            error_ratio=1.0,
            details={"events": ["graph: …"]},
        ),
        "openvino": Result(error=math.inf, error_ratio=math.inf),
        "onnxruntime": Result(why="it does not load"),
    }
    return Run(
        {"cpu": "some"},
        {"mode": "inference"},
        list(results),
        [Row("bert", "inference", results, 0, 1, 0.0)],
        [Overhead("one operator", 0, 2e-6, {"burnish": 3e-6}, {"torch.compile": "it is not there"})],
    )


def test_run_comes_back_from_its_file(tmp_path):
    run = small_run()
    run.write(tmp_path / "deep" / "run.json")
    assert Run.read(tmp_path / "deep" / "run.json") == run


def test_file_is_strict_json_though_errors_may_be_infinite(tmp_path):
    small_run().write(tmp_path / "run.json")

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    json.loads((tmp_path / "run.json").read_text(), parse_constant=refuse)


def test_failing_write_leaves_the_last_complete_run(tmp_path):
    run, path = small_run(), tmp_path / "run.json"
    run.write(path)
    spoilt = small_run()
    spoilt.machine["cpu"] = object()
    with pytest.raises(TypeError):
        spoilt.write(path)
    assert Run.read(path) == run


@pytest.mark.parametrize("data", [{}, [], {"format": 0}])
def test_file_of_another_format_is_refused(data):
    with pytest.raises(ValueError, match="it is not a benchmark of format"):
        Run.from_data(data)
