"""`burnish inspect FILE`."""

import json

import pytest
import torch

import burnish
from burnish.cli.command_line import main


@pytest.fixture
def path(tmp_path):
    return tmp_path / "saved.burnish"


def halves(x):
    y = torch.nn.functional.linear(x, torch.ones(4, 3))
    return y.sin().view(x.shape[0] * 2, 2)


def test_saved_program_is_described_in_text_and_as_json(path, capsys):
    sizes = {"x": {0: torch.export.Dim("rows", max=64)}}
    with torch.no_grad():
        burnish.save(halves, path, (torch.ones(5, 3),), dynamic_shapes=sizes)
    assert main(["inspect", str(path)]) == 0
    text = capsys.readouterr().out
    for said in ("x: float32[rows, 3]", "rows from 0 to 64", "1  operator.mul", "1  Tensor.view", "burnish.json"):
        assert said in text
    assert main(["inspect", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sizes"] == [{"name": "rows", "least": 0, "most": 64}]
    assert found["operators"]["torch.nn.functional.linear"] == 1
    assert found["bytes"] == path.stat().st_size
    assert sum(found["entries"].values()) < found["bytes"]
    (program,) = found["programs"]
    assert program["kernels"] > 0 and program["bytes"] == found["entries"][f"program/{program['digest']}"]
    assert found["processor"].endswith(torch.backends.cpu.get_cpu_capability())


def test_graph_without_a_program_has_none(path, capsys):
    burnish.export(halves, (torch.ones(5, 3),)).save(path)
    assert main(["inspect", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["programs"], found["processor"], found["signature"], found["sizes"]) == ([], None, "none", [])


def test_file_that_is_none_is_refused_in_words(path, capsys):
    assert main(["inspect", str(path)]) == 2
    assert "cannot be read: No such file" in capsys.readouterr().err
    path.write_bytes(b"no archive")
    assert main(["inspect", str(path)]) == 2
    assert "is damaged, or is not a file that burnish.save wrote" in capsys.readouterr().err
