"""``burnish.cost``: numbers worked out by hand, by module, and that the function is left as it was."""

import io
import json

import pytest
import torch
from torch import nn

import burnish
from burnish.errors import UserError
from burnish.report.cost_report import modules_of, operations


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        return self.down(torch.sin(self.up(x)))


def test_operations_and_weights_of_two_layers():
    found = burnish.cost(Net())(torch.ones(8, 16))
    products = 2 * 8 * 16 * 64 * 2
    assert products <= found.operations <= products + 4 * 8 * 64 + 8 * 16
    assert found.weights == 4 * (2 * 16 * 64 + 64 + 16)
    assert found.peak_memory >= found.weights + 8 * 16 * 4 * 2
    assert found.breaks == 0 and found.graphs == 1 and found.not_counted == []
    assert found.whole.measured > 0 and found.whole.estimated > 0 and found.whole.name == "Net"


def test_modules_add_up_to_the_whole_and_names_are_paths():
    model = nn.Sequential(Net(), Net())
    with torch.enable_grad():
        found = burnish.cost(model)(torch.ones(8, 16))
    names = [one.name for one in found.whole.inside]
    assert set(names) == {"0", "1"}
    for total in ("operations", "bytes"):
        assert sum(getattr(one, total) for one in found.whole.inside) == getattr(found.whole, total)
    lines = str(found).splitlines()
    assert lines[0].startswith("Sequential: ") and any(line.startswith("  0 ") for line in lines)


def test_json_holds_the_tree():
    found = burnish.cost(Net())(torch.ones(8, 16))
    read = json.loads(found.to_json())
    assert read["whole"]["operations"] == found.operations and read["whole"]["inside"]


def test_function_runs_as_often_as_asked_and_is_not_compiled_after_it():
    calls = []
    compiled = burnish.compile(lambda x: (calls.append(1), x * 2)[1])
    burnish.cost(compiled, runs=4)(torch.ones(3))
    assert len(calls) == 4 and compiled.__burnish_program__.entry.segments == []


def test_break_and_operator_that_nobody_counts_are_named():
    def fn(x):
        y = torch.sort(x)[0]
        return y + 1 if y.sum() > 0 else y

    text = str(burnish.cost(fn)(torch.ones(8)))
    assert "Not counted: operations of aten.sort.default." in text and "1 graph break: " in text


def test_backward_counts_if_the_function_runs_it():
    model = Net()

    def step(x):
        model(x).sum().backward()

    forward = burnish.cost(model)(torch.ones(8, 16)).operations
    whole = burnish.cost(step)(torch.ones(8, 16)).operations
    assert 2 * forward < whole < 4 * forward


def test_wrong_arguments_are_refused():
    with pytest.raises(UserError, match="at least 3"):
        burnish.cost(torch.sin, runs=1)
    with pytest.raises(UserError, match="burnish.cost was given a tensor"):
        burnish.cost(torch.ones(2))


def test_paths_of_modules_are_cut_at_the_module_around():
    assert modules_of({"modules": ["L['self'].layers.0", "L['self'].layers.0.up"]}) == ["layers.0", "up"]
    assert modules_of({"modules": ["L['model']", "L['model'].up"]}) == ["up"] and modules_of({"modules": []}) == []
    assert (operations(12), operations(2_500), operations(3e6)) == ("12", "2.5 k", "3 M")


def test_notebooks_show_tables_and_escape_their_text():
    compiled, x = burnish.compile(torch.sin), torch.ones(3)
    with burnish.profile() as profiled:
        for _ in range(3):
            compiled(x)
    explained = burnish.explain(lambda x: x.sum().item() < 3)(x)
    costs = burnish.cost(Net())(torch.ones(8, 16))
    for each in (costs, profiled, explained):
        assert repr(each) == str(each)
    costs.whole.name = "<b>"
    assert costs._repr_html_().startswith("<pre>&lt;b&gt;: ") and "<b>" not in costs._repr_html_()
    assert profiled._repr_html_().startswith("<pre>") and "segment" in profiled._repr_html_()
    frame = explained._repr_html_()
    assert frame.startswith('<iframe srcdoc="&lt;!doctype html&gt;') and frame.count("<") == 2


def test_rich_shows_tables_and_takes_no_text_for_markup():
    console = pytest.importorskip("rich.console").Console(file=io.StringIO(), width=120)
    with burnish.profile() as profiled:
        pass
    console.print(profiled)
    compiled = burnish.compile(torch.sin)
    with burnish.profile() as profiled:
        for _ in range(3):
            compiled(torch.ones(3))
    console.print(profiled)
    costs = burnish.cost(Net())(torch.ones(8, 16))
    costs.whole.name = "[bold]"
    console.print(costs)
    shown = console.file.getvalue()
    assert "No compiled code ran." in shown and "in and out" in shown and shown.count("[bold]") == 2
