"""The attack programs pass on a few seeds, run compiled, and detect a defect that is put in."""

import pytest
import torch
from bench.attack import databases, trial
from bench.attack.trial import Program

NAMES = (
    "module_db nn.LayerNorm training 0",
    "module_db nn.GRUCell training 0",
    "module_db nn.Bilinear training 0",
    "optim_db SGD default",
    "optim_db AdamW default",
)


@pytest.mark.parametrize("name", NAMES)
def test_programs_of_torchs_databases_run_compiled_as_in_eager(name):
    make = dict(databases.programs(name.split()[0]))[name]
    with trial.as_attacked():
        verdict = trial.tried(name, make)
    assert verdict.differences == [] and verdict.refused == []
    assert verdict.compiled >= 1 and verdict.ratios


def test_a_model_of_nnsmith_runs_compiled_as_in_eager():
    pytest.importorskip("nnsmith")
    from bench.attack import models

    with trial.as_attacked():
        verdict = trial.tried(*models.sample(1))
    assert verdict.differences == [] and verdict.refused == [] and verdict.compiled >= 1


def test_a_shared_gradient_is_found(monkeypatch):
    """The check sees two gradients in one memory, which compiled code avoids by returning one tensor."""
    from burnish.codegen.driver.generate_driver import DriverWriter

    write = DriverWriter.output

    def two_tensors(writer, out):
        if out in writer.returned:
            return f"shown({writer.tensor(out)}, {out.shape}, {out.type.stride}, 0)"
        return write(writer, out)

    monkeypatch.setattr(DriverWriter, "output", two_tensors)
    with trial.as_attacked():
        verdict = trial.tried(
            "shared",
            lambda: Program(
                lambda p, q: (0 + p + q) * torch.arange(1.0, 4),
                (torch.zeros(3, requires_grad=True), torch.ones(3, requires_grad=True)),
            ),
        )
    assert any("gradient 0 overlaps gradient 1" in text for text in verdict.differences)


@pytest.mark.parametrize("draws", [0, trial.DRAWS])
def test_errors_above_twice_eagers_are_measured_over_more_inputs(monkeypatch, draws):
    """Less than is allowed, so that nothing differs: by chance on the first input, or on all."""
    wrong_in = iter([True, *[draws > 0] * trial.DRAWS])

    def compiled(run):
        factor = 1 + 3 * torch.finfo(torch.float32).eps if next(wrong_in) else 1
        return lambda x: run(x) * factor

    monkeypatch.setattr(trial.burnish, "compile", compiled)
    verdict = trial.tried("scaled", lambda: Program(torch.sin, (torch.linspace(1.0, 1.5, 8),)))
    assert verdict.differences == [] and min(ratio for ratio, _ in verdict.over_draws) >= 1
    assert [name for ratio, name in verdict.ratios if ratio > 2] == [name for _, name in verdict.over_draws] != []
    assert all((ratio > 2) == (draws > 0) for ratio, _ in verdict.over_draws)
    assert "root mean squares" in trial.report([verdict], 0)
