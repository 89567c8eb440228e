"""torch.distributed.checkpoint and torch.save: the checkpoint of a compiled module is one of the original module."""

import copy

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)

import burnish

X = torch.randn(4, 8)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))


def trained(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(X).pow(2).sum().backward()
        optimizer.step()
    return optimizer


def same_state(model, other):
    def plain(state):
        return {name.replace("_orig_mod.", ""): value for name, value in state.items()}

    torch.testing.assert_close(plain(model.state_dict()), plain(other.state_dict()), rtol=0, atol=0)


WAYS = {"compile": burnish.compile, "compile_": burnish.compile_, "compile_regions": burnish.compile_regions}


@pytest.mark.parametrize("way", WAYS)
def test_a_distributed_checkpoint_of_a_compiled_module_has_clean_keys_and_loads_anywhere(tmp_path, way):
    model = WAYS[way](net := Net())
    optimizer = trained(model)
    state, of_optimizer = get_state_dict(model, optimizer)
    assert list(state) == list(Net().state_dict())
    dcp.save({"model": state, "optimizer": of_optimizer}, checkpoint_id=tmp_path)
    names = set(dcp.FileSystemReader(tmp_path).read_metadata().state_dict_metadata)
    assert not [name for name in names if "_orig_mod" in name] and "model.first.weight" in names
    for compile_ in (*WAYS.values(), lambda m: m):
        other = compile_(Net())
        other_optimizer = torch.optim.Adam(other.parameters(), lr=0.1)
        wanted = dict(zip(("model", "optimizer"), get_state_dict(other, other_optimizer), strict=True))
        dcp.load(wanted, checkpoint_id=tmp_path)
        set_state_dict(other, other_optimizer, model_state_dict=wanted["model"], optim_state_dict=wanted["optimizer"])
        same_state(other, net)
        found = [entry["exp_avg"] for entry in other_optimizer.state_dict()["state"].values()]
        kept = [entry["exp_avg"] for entry in optimizer.state_dict()["state"].values()]
        torch.testing.assert_close(found, kept, rtol=0, atol=0)
        assert any(moment.abs().sum() > 0 for moment in kept)


def test_a_compiled_submodule_does_not_change_the_name():
    net = Net()
    keys = list(net.state_dict())
    net.first = burnish.compile(net.first)
    assert sorted(get_model_state_dict(net)) == sorted(keys)
    other = Net()
    set_model_state_dict(other, get_model_state_dict(net))
    same_state(other, net)


def test_a_compiled_module_loads_the_keys_of_the_module_and_its_own():
    net = Net()
    trained(net)
    for state in (net.state_dict(), burnish.compile(net).state_dict(), dict(net.state_dict())):
        before = list(state)
        compiled = burnish.compile(Net())
        answer = compiled.load_state_dict(state)
        assert not answer.missing_keys and not answer.unexpected_keys and list(state) == before
        same_state(compiled, net)
    outer = nn.Sequential(burnish.compile(Net()), nn.Linear(3, 2))
    plain = nn.Sequential(copy.deepcopy(net), nn.Linear(3, 2))
    outer.load_state_dict(plain.state_dict())
    same_state(outer, plain)


def test_keys_that_a_compiled_module_lacks_are_still_an_error():
    state = Net().state_dict()
    state["other.weight"] = state.pop("last.weight")
    with pytest.raises(RuntimeError, match=r"Missing key\(s\).*last\.weight[\s\S]*Unexpected key\(s\).*other\.weight"):
        burnish.compile(Net()).load_state_dict(state)
    answer = burnish.compile(Net()).load_state_dict(state, strict=False)
    assert answer.missing_keys == ["_orig_mod.last.weight"] and answer.unexpected_keys == ["_orig_mod.other.weight"]
