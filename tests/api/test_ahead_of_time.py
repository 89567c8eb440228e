"""``torch.compile(...).aot_compile``, implemented by exported graphs while Burnish replaces torch's compiler."""

import pytest
import torch

import burnish


@pytest.fixture(autouse=True)
def installed():
    with burnish.install(default=True):
        yield


def saved_and_loaded(compiled, path):
    compiled.save_compiled_function(path)
    with open(path, "rb") as file:
        return torch.compiler.load_compiled_function(file)


def test_a_function_is_compiled_saved_and_loaded(tmp_path):
    scale = 2

    def fn(x, y, flag=False):
        return (x + y.sin()) * scale if flag else x

    compiled = torch.compile(fn, fullgraph=True).aot_compile(((torch.randn(3, 4), torch.randn(3, 4)), {"flag": True}))
    loaded = saved_and_loaded(compiled, tmp_path / "fn.pt")
    for _ in range(3):
        x, y = torch.randn(3, 4), torch.randn(3, 4)
        for made in (compiled, loaded):
            torch.testing.assert_close(made(x, y, flag=True), fn(x, y, True))
    with pytest.raises(burnish.UserError, match="3, 4"):
        compiled(torch.randn(5, 4), torch.randn(5, 4), flag=True)


def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


def test_a_module_is_the_first_argument_and_is_trained(tmp_path):
    compiled = torch.compile(make(), fullgraph=True).forward.aot_compile(((torch.randn(3, 4),), {}))
    loaded = saved_and_loaded(compiled, tmp_path / "model.pt")
    data = torch.randn(3, 4)
    trained = []
    for run in (lambda model, x: model(x), compiled, loaded):
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            run(model, data).square().sum().backward()
            optimizer.step()
        trained.append(dict(model.state_dict()))
    torch.testing.assert_close(trained[1], trained[0])
    torch.testing.assert_close(trained[2], trained[0])


def test_graph_breaks_are_errors():
    with pytest.raises(burnish.UserError, match="fullgraph=True"):
        torch.compile(lambda x: x + 1).aot_compile(((torch.ones(2),), {}))
    with pytest.raises(burnish.Unsupported, match="B101"):
        torch.compile(lambda x: x if x.sum() > 0 else -x, fullgraph=True).aot_compile(((torch.ones(2),), {}))


def test_other_files_go_to_torch(tmp_path):
    path = tmp_path / "other"
    path.write_bytes(b"nothing that anyone wrote")
    with open(path, "rb") as file, pytest.raises(Exception) as caught:
        torch.compiler.load_compiled_function(file)
    assert not isinstance(caught.value, burnish.BurnishError)


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = 2
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
        self.eval()

    def forward(self, x):
        return self.inner(x) * self.factor


CHANGES = {
    "factor": lambda model: setattr(model, "factor", 3),
    "training": lambda model: model.train(),
    "inner.1.training": lambda model: model.inner[1].train(),
    "inner.1.p": lambda model: setattr(model.inner[1], "p", 0.1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_module_in_another_state_is_refused(name, tmp_path):
    x = torch.randn(3, 4)
    model = Scaled()
    compiled = torch.compile(model, fullgraph=True).forward.aot_compile(((x,), {}))
    torch.testing.assert_close(compiled(model, x), model(x))
    loaded = saved_and_loaded(compiled, tmp_path / "model.pt")
    for made in (compiled, loaded):
        other = Scaled()
        torch.testing.assert_close(made(other, x), other(x))
        CHANGES[name](other)
        with pytest.raises(burnish.UserError, match=name):
            made(other, x)
