"""python -m bench.regions: it prints and plots the measured values."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch

import burnish
from bench import regions

ROWS = [
    {"layers": layers, "batch": batch, "name": name, "first": first, "steady": steady, "eager": 0.012}
    for batch in (1, 4)
    for layers in (4, 48)
    for name, first, steady in (
        ("burnish", 0.5, 0.006),
        ("burnish-regions", 0.6, 0.008),
        ("torch.compile", 18.0, 0.010),
        ("torch.compile-regions", 13.0, 0.012),
    )
]


def run_and_read(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["bench.regions", *map(str, arguments)])
    status = regions.main()
    return status, capsys.readouterr().out.splitlines()


def test_each_contestant_is_measured_at_each_depth_and_reported_with_its_speed(monkeypatch, capsys, tmp_path):
    asked = []

    def measured_in_own_process(name, layers, batch):
        asked.append((name, layers, batch))
        return {"first": 0.25, "steady": 0.004, "eager": 0.01} if name == "burnish" else None

    monkeypatch.setattr(regions, "measured_in_own_process", measured_in_own_process)
    status, lines = run_and_read(
        monkeypatch,
        capsys,
        "--layers",
        "4,48",
        "--batch",
        "1",
        "--against",
        "eager,burnish,torch.compile",
        "--json",
        tmp_path / "out" / "rows.json",
    )
    assert asked == [("burnish", 4, 1), ("torch.compile", 4, 1), ("burnish", 48, 1), ("torch.compile", 48, 1)]
    assert lines[1].split() == ["4", "1", "burnish", "0.25", "s", "4.00", "ms", "2.50×"]
    assert lines[2].split()[-1] == "failed" and status == 1
    assert [row["layers"] for row in json.loads((tmp_path / "out" / "rows.json").read_text())] == [4, 48]


class Small(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(layers)
        )

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return SimpleNamespace(last_hidden_state=x)


@pytest.mark.parametrize("name", ["burnish", "burnish-regions"])
def test_the_compiled_model_is_timed_against_eager(name, monkeypatch):
    def model_of(layers, batch):
        torch.manual_seed(0)
        return Small(layers), torch.ones(batch, 8)

    made, compiled = [], regions.compiled
    monkeypatch.setattr(regions, "compiled", lambda *args: made.append(compiled(*args)) or made[-1])
    monkeypatch.setattr(regions, "model_of", model_of)
    monkeypatch.setattr(regions, "SECONDS", 0.001)
    found = regions.measured(name, 3, 2)
    assert set(found) == {"first", "steady", "eager"} and all(value > 0 for value in found.values())
    assert burnish.was_compiled(made[0])


@pytest.mark.parametrize("ending", [".svg", ".png"])
def test_a_saved_run_is_plotted_without_measuring(ending, monkeypatch, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    kept, picture = tmp_path / "rows.json", tmp_path / "docs" / f"regions{ending}"
    kept.write_text(json.dumps(ROWS))
    monkeypatch.setattr(regions, "measured_in_own_process", None)
    status, lines = run_and_read(monkeypatch, capsys, "--read", kept, "--plot", picture)
    assert status == 0 and len(lines) == 1 + len(ROWS)
    if ending == ".png":
        assert picture.stat().st_size > 10_000
        return
    text = picture.read_text()
    for name in ("burnish, whole, batch 1", "burnish, regions, batch 4", "torch.compile, regions, batch 1"):
        assert f">{name}<" in text
    assert "first call in seconds" in text and "speed over eager" in text and len(text) < 100_000
    run_and_read(monkeypatch, capsys, "--read", kept, "--plot", picture)
    assert picture.read_text() == text, "the same figures are the same file"


def test_a_plot_that_cannot_be_made_is_refused_before_anything_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(regions, "measured_in_own_process", None)
    with pytest.raises(SystemExit):
        run_and_read(monkeypatch, capsys, "--plot", "picture.gif")
    assert "picture.gif" in capsys.readouterr().err
