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
