"""A user's program. `tests/test_typed_program.py` has pyright check it strictly; nothing runs it."""

from pathlib import Path

import torch

import burnish


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).relu()


@burnish.compile
def wave(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    return torch.sin(x) * factor


@burnish.compile(fullgraph=True, dynamic=True)
def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x @ y


@burnish.disable(reason="writes to a file")
def note(x: torch.Tensor) -> str:
    return str(x.shape)


def main(path: Path) -> None:
    x = torch.ones(4, 4)
    model = burnish.compile(Net())
    layer: torch.nn.Linear = model.layer  # a compiled module has the type of the original
    y: torch.Tensor = wave(product(x, x), factor=3.0)
    compiled: bool = burnish.was_compiled(wave)
    print(note(y), layer, compiled, burnish.list_backends())

    found: burnish.ExplainOutput = burnish.explain(wave)(x)
    print(found.graph_count, found.graph_break_count, found.summary())
    costs: burnish.Cost = burnish.cost(model)(x)
    print(costs.operations, costs.peak_memory, costs.to_json())
    with burnish.profile() as profile:
        wave(x)
    print([segment.kernels for segment in profile.segments])
    with burnish.report(path / "report.html"), burnish.trace(path / "trace.json"):
        wave(x)

    burnish.save(model, path / "model.burnish", (x,))
    print(burnish.load(path / "model.burnish")(x))
    with burnish.set_stance("fail_on_recompile"), burnish.settings.patch(check="bisect"):
        try:
            wave(x)
        except burnish.Unsupported as error:
            print(error)
    burnish.mark_dynamic(x, 0)
    burnish.reset()
