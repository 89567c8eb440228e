"""Exported transforms, branches and loops are operators of torch; the exported graph is a module."""

import copy

import pytest
import torch
from torch import nn
from torch._higher_order_ops import map as torch_map
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.scan import scan
from torch.func import functional_call, grad, vmap

import burnish

layer = nn.Linear(3, 3)


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda a: self.inner(a), lambda a: a.cos(), (x,))


TRANSFORMS = {
    "vmap": lambda x: vmap(layer)(x),
    "grad": lambda x: grad(lambda v: (v**2).sum())(x),
    "per sample": lambda x: vmap(grad(lambda p, v: functional_call(layer, p, (v,)).square().sum()), in_dims=(None, 0))(
        dict(layer.named_parameters()), x
    ),
}
GRAPHS = {
    "cond": (Branching(), ["cond_true_0", "cond_false_0"]),
    "two": (
        lambda x: [torch.cond(x.sum() > n, torch.sin, torch.cos, (x,)) for n in range(2)],
        ["cond_true_0", "cond_false_0", "cond_true_1", "cond_false_1"],
    ),
    "scan": (lambda x: scan(lambda c, v: (c + v, c * 2), x[0] * 0, x), ["scan_combine_fn_0"]),
    "map": (lambda x: torch_map(layer, x), ["map_body_0"]),
    "while_loop": (
        lambda x: while_loop(lambda s: s.sum() < 9, lambda s: (s * 2 + 1,), (x,)),
        ["cond_fn_0", "body_fn_0"],
    ),
}


@pytest.mark.parametrize("kind", TRANSFORMS)
def test_transforms_are_exported_as_operators_and_saved(kind, tmp_path):
    fn, x = TRANSFORMS[kind], torch.randn(4, 3)
    exported = burnish.export(fn, (x,))
    assert all(
        isinstance(node.target, torch._ops.OpOverload)
        for node in exported.graph.nodes
        if node.op == "call_function" and node.target.__name__ != "getitem"
    )
    exported.save(tmp_path / "saved.burnish")
    x = torch.randn(4, 3)
    for found in (exported, burnish.load(tmp_path / "saved.burnish")):
        torch.testing.assert_close(found(x), fn(x))


@pytest.mark.parametrize("kind", GRAPHS)
def test_branches_and_steps_are_submodules(kind, tmp_path):
    fn, names = GRAPHS[kind]
    exported = burnish.export(fn, (torch.randn(4, 3),))
    assert isinstance(exported, nn.Module)
    modules = dict(exported.named_modules())
    assert all(isinstance(modules[name], torch.fx.GraphModule) for name in names)
    assert all(f"self.{name}" in exported.code for name in names)
    for scale in (1, -1):
        x = torch.rand(4, 3) * scale
        torch.testing.assert_close(exported(x), fn(x))
        torch.testing.assert_close(copy.deepcopy(exported)(x), fn(x))
    if kind in ("cond", "two"):
        exported.save(tmp_path / "saved.burnish")
        torch.testing.assert_close(burnish.load(tmp_path / "saved.burnish")(x), fn(x))
    else:
        with pytest.raises(burnish.UserError, match="cannot be saved"):
            exported.save(tmp_path / "saved.burnish")


def test_the_state_of_an_exported_graph_is_the_models():
    model = Branching()
    exported = burnish.export(model, (torch.randn(4, 3),))
    assert list(exported.state_dict()) == ["inner.weight", "inner.bias"]
    assert [p is q for p, q in zip(exported.parameters(), model.parameters(), strict=True)] == [True, True]
    x = torch.rand(4, 3)
    exported(x).sum().backward()
    assert model.inner.weight.grad is not None
    copied = copy.deepcopy(exported)
    with torch.no_grad():
        copied.get_parameter("inner.weight").zero_()
    torch.testing.assert_close(exported(x), model(x))
    assert not torch.equal(copied(x), model(x))


def test_to_torch_export_keeps_branches():
    exported = burnish.export(Branching(), (torch.randn(4, 3),))
    program = exported.to_torch_export()
    assert any(node.target is torch.ops.higher_order.cond for node in program.graph.nodes)
    for scale in (1, -1):
        x = torch.rand(4, 3) * scale
        torch.testing.assert_close(program.module()(x), exported(x))


def test_a_loaded_graph_is_a_module_too(tmp_path):
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()
    burnish.export(model, (torch.randn(4, 3),)).save(tmp_path / "saved.burnish")
    loaded = burnish.load(tmp_path / "saved.burnish")
    assert isinstance(loaded, nn.Module) and "def forward" in loaded.code
    assert {"0.weight", "1.running_mean"} <= set(loaded.state_dict())
    loaded.load_state_dict({name: torch.zeros_like(value) for name, value in loaded.state_dict().items()})
    assert loaded(torch.randn(4, 3)).abs().max() == 0


LAYOUTS = {
    "contiguous": lambda x: x.contiguous().view(-1),
    "the same tensor": lambda x: x.contiguous(),
    "twice": lambda x: (x * 2).contiguous().contiguous().view(-1),
    "float": lambda x: x.float(memory_format=torch.contiguous_format) * 2,
    "written to": lambda x: (x * 1).contiguous().add_(1).view(-1),
}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_a_layout_that_the_example_has_is_made_for_others(make, tmp_path):
    for _ in range(2):  # the second time it is known how torch shows the calls to modes
        exported = burnish.export(make, (torch.randn(4, 5),))
    exported.save(tmp_path / "saved.burnish")
    for graph in (exported, burnish.load(tmp_path / "saved.burnish", trust=False)):
        for x in (torch.randn(4, 5), torch.randn(5, 4).t(), torch.randn(4, 10)[:, ::2]):
            found, expected = graph(x), make(x)
            assert torch.equal(found, expected) and found.stride() == expected.stride()
            assert (found is x) == (expected is x)


def test_a_program_of_torch_export_has_its_modules_name():
    exported = burnish.export(torch.export.export(nn.Sequential(nn.Linear(3, 3)), (torch.randn(4, 3),)))
    with pytest.raises(burnish.UserError, match=r"^Sequential cannot be called with these arguments"):
        exported(torch.randn(2, 3))
