"""`burnish.save` and `burnish.load`: a compiled graph in a file, which runs without capture or compilation."""

import json
import os
import warnings
import zipfile

import pytest
import torch
from torch import nn

import burnish
from burnish.compiler import load_precompiled
from burnish.errors import UserError
from burnish.export.file_format import ALIGNMENT, DESCRIPTION, PROGRAM, SIGNATURE
from burnish.runtime.disk import compiler_identity
from burnish.runtime.state_watch.native_watch import is_supported

from ..forked_programs import TORCH, run_program

X = torch.linspace(-1, 1, 96).reshape(4, 24)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.norm = nn.Linear(24, 40), nn.LayerNorm(40)
        self.register_buffer("scale", torch.linspace(0, 1, 40))

    def forward(self, x, *, power=2):
        return {"y": self.norm(torch.nn.functional.gelu(self.linear(x))) * self.scale**power, "x": x}


@pytest.fixture
def path(tmp_path):
    with burnish.settings.patch(cache=True, cache_dir=tmp_path / "cache", check=False, never_slower=False):
        yield tmp_path / "model.burnish"


COMPILING = {"traced", "lower", "kernels", "loops"}


def test_a_loaded_program_runs_without_being_captured_or_compiled(path, happened):
    model = Model().eval()
    with torch.no_grad():
        burnish.save(model, path, (X,))
        happened.clear()
        loaded = burnish.load(path)
        for x in (X, X * 2):
            torch.testing.assert_close(loaded(x), model(x))
    assert not COMPILING & set(happened) and "cache.program" in happened


def test_it_runs_in_another_process(path, tmp_path):
    model = Model().eval()
    with torch.no_grad():
        burnish.save(model, path, (X,))
        want = model(X)["y"]
    program = f"""
import sys, torch, burnish
torch.set_num_threads({torch.get_num_threads()})
loaded = burnish.load({str(path)!r})
with torch.no_grad():
    y = loaded(torch.linspace(-1, 1, 96).reshape(4, 24))["y"]
torch.save(y, {str(tmp_path / "y")!r})
print("burnish.lower.pipeline" in sys.modules)
"""
    environment = os.environ | {"BURNISH_CACHE": "1", "BURNISH_CACHE_DIR": str(tmp_path / "cache")}
    done = run_program(program, environment=environment, prepare=TORCH)
    assert done.stdout.strip() == "False" and not done.stderr
    torch.testing.assert_close(torch.load(tmp_path / "y"), want)


def test_gradients_flow_through_a_loaded_program(path, happened):
    model = Model()
    burnish.save(model, path, (X.clone().requires_grad_(),))
    happened.clear()
    loaded, x = burnish.load(path), X.clone().requires_grad_()
    loaded(x)["y"].sum().backward()
    assert not COMPILING & set(happened)
    reference = X.clone().requires_grad_()
    model(reference)["y"].sum().backward()
    torch.testing.assert_close(x.grad, reference.grad)
    torch.testing.assert_close(loaded.graph_module.linear.weight.grad, model.linear.weight.grad)


def test_another_mode_than_it_was_saved_for_is_compiled(path, happened):
    model = Model()
    with torch.no_grad():
        burnish.save(model, path, (X,))
    loaded = burnish.load(path)
    loaded(X)["y"].sum().backward()
    model(X)["y"].sum().backward()
    torch.testing.assert_close(loaded.graph_module.linear.weight.grad, model.linear.weight.grad)
    assert "lower" in happened


def test_weights_that_change_are_seen(path):
    model = Model().eval()
    with torch.no_grad():
        burnish.save(model, path, (X,))
        loaded = burnish.load(path)
        loaded(X)
        for module in (model, loaded.graph_module):
            module.linear.weight.mul_(2)
        torch.testing.assert_close(loaded(X), model(X))
        for module in (model, loaded.graph_module):
            module.linear.weight = nn.Parameter(torch.ones(40, 24))
        torch.testing.assert_close(loaded(X), model(X))
        for module in (model, loaded.graph_module):
            module.double()
        with pytest.raises(UserError, match="float32"):
            loaded(X.double())


def test_inputs_with_other_strides_are_right(path):
    with torch.no_grad():
        burnish.save(Model().eval(), path, (X,))
        loaded = burnish.load(path)
        turned = X.t().contiguous().t()
        torch.testing.assert_close(loaded(turned), Model().eval()(X))
        for _ in range(3):
            wide = torch.randn(8, 48)[::2, ::2]
            torch.testing.assert_close(loaded(wide), Model().eval()(wide))


def test_other_arguments_are_refused(path):
    with torch.no_grad():
        burnish.save(Model().eval(), path, (X,), {"power": 3})
        loaded = burnish.load(path)
        torch.testing.assert_close(loaded(X, power=3), Model().eval()(X, power=3))
        for call in (lambda: loaded(X), lambda: loaded(X, power=2), lambda: loaded(X[:2], power=3)):
            with pytest.raises(UserError):
                call()


def test_an_exported_graph_can_be_saved_compiled(path, happened):
    with torch.no_grad():
        exported = burnish.export(Model().eval(), (X,))
        assert burnish.save(exported, path, (X,)) is exported
        happened.clear()
        torch.testing.assert_close(burnish.load(path)(X), Model().eval()(X))
    assert not COMPILING & set(happened)


def test_a_function_that_writes_to_its_argument(path):
    def add(x, total):
        total.add_(x)
        return total * 2

    burnish.save(add, path, (X, torch.zeros_like(X)))
    loaded, total = burnish.load(path), torch.zeros_like(X)
    for _ in range(3):
        assert torch.equal(loaded(X, total), total * 2)
    assert torch.equal(total, X * 3)


# Whose code runs ------------------------------------------------------------------------------------------------------


def rewritten(path, change):
    """The archive with some of its entries changed or left out."""
    with zipfile.ZipFile(path) as archive:
        entries = [(item, archive.read(item)) for item in archive.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for item, content in entries:
            made = change(item.filename, content)
            if made is not None:
                archive.writestr(item.filename, made)


def edited(**entries):
    """The description with some of its parts replaced."""

    def change(name, content):
        if name != DESCRIPTION:
            return content
        written = json.loads(content)
        for part, edit in entries.items():
            edit(written[part])
        return json.dumps(written, indent=1).encode()

    return change


def turned(attributes):
    """The first weight, [40, 24], described with a transposed layout."""
    first = next(entry for entry in attributes if entry["name"] == "linear.weight")
    first["strides"] = [1, 40]


@pytest.mark.parametrize(
    "change",
    [
        lambda name, content: None if name == SIGNATURE else content,
        lambda name, content: b"0" * 64 if name == SIGNATURE else content,
        lambda name, content: content + b"x" if name.startswith("program/") else content,
        lambda name, content: content.replace(b"gelu", b"silu") if name == "burnish.json" else content,
        edited(ready=lambda load_precompiled: load_precompiled.update({"0" * 64: load_precompiled.popitem()[1]})),
        edited(attributes=turned),
    ],
    ids=["no signature", "another signature", "other code", "another graph", "other inputs", "weights lie otherwise"],
)
def test_code_that_this_user_did_not_write_does_not_run(path, change, happened, monkeypatch):
    monkeypatch.setattr(load_precompiled, "ready", lambda content, digest, eager: pytest.fail("its code was linked"))
    with torch.no_grad():
        burnish.save(Model().eval(), path, (X,))
        rewritten(path, change)
        with pytest.warns(UserWarning, match="nothing shows that this user"):
            loaded = burnish.load(path)
        burnish.runtime.disk.disk_cache.disk_cache().clear()
        happened.clear()
        torch.testing.assert_close(loaded(X), run_eagerly(loaded))
    assert "lower" in happened, "it was compiled again"


def run_eagerly(loaded):
    native, loaded.native = loaded.native, None
    try:
        return loaded(X)
    finally:
        loaded.native = native


def test_an_unsigned_file_runs_if_it_is_trusted(path, happened):
    with torch.no_grad():
        burnish.save(Model().eval(), path, (X,))
        rewritten(path, lambda name, content: None if name == SIGNATURE else content)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loaded = burnish.load(path, trust=True)
            burnish.load(path, trust=False)
        happened.clear()
        torch.testing.assert_close(loaded(X), Model().eval()(X))
    assert "lower" not in happened


def test_a_program_is_not_taken_for_inputs_it_was_not_made_for(path, happened):
    """Its name is in the file under its key: the name alone does not make it another program's."""
    with torch.no_grad():
        burnish.save(lambda x: x.sin(), path, (X,))
        other = path.with_name("other")
        burnish.save(lambda x: x.cos(), other, (X,))
        with zipfile.ZipFile(other) as archive:
            theirs = next(archive.read(name) for name in archive.namelist() if name.startswith(PROGRAM))
        rewritten(path, lambda name, content: theirs if name.startswith(PROGRAM) else content)
        with pytest.warns(UserWarning, match="nothing shows that this user"):
            loaded = burnish.load(path)
        torch.testing.assert_close(loaded(X), X.sin())


def test_the_graph_of_a_trusted_file_is_decoded_on_demand(path, happened):
    with torch.no_grad():
        burnish.save(Model().eval(), path, (X,))
        happened.clear()
        loaded = burnish.load(path)
        torch.testing.assert_close(loaded(X), Model().eval()(X))
        assert loaded.held.module is None, "it has not been requested"
        runs = dict(loaded.native.made)
        loaded.graph_module.scale.mul_(2)
        other = Model().eval()
        other.scale.mul_(2)
        torch.testing.assert_close(loaded(X), other(X))
        assert loaded.native.made == runs, "the program goes on being used"
    assert not COMPILING & set(happened)


@pytest.mark.parametrize("surroundings", ["threads", "mode", "machine", "burnish"])
def test_a_program_for_other_surroundings_is_not_taken(surroundings, path, happened, monkeypatch):
    model = Model().eval()
    with torch.no_grad():
        burnish.save(model, path, (X,))
    loaded = burnish.load(path)
    happened.clear()
    threads = torch.get_num_threads()
    try:
        with torch.set_grad_enabled(surroundings == "mode"):
            if surroundings == "threads":
                torch.set_num_threads(threads + 1)
            if surroundings == "machine":
                monkeypatch.setattr(compiler_identity, "machine", lambda: "another")
                compiler_identity.compiler_identity.cache_clear()
            if surroundings == "burnish":
                monkeypatch.setattr(compiler_identity, "source_digest", lambda: "another")
                compiler_identity.compiler_identity.cache_clear()
            torch.testing.assert_close(loaded(X), model(X))
    finally:
        torch.set_num_threads(threads)
        compiler_identity.compiler_identity.cache_clear()
    assert "lower" in happened


def test_an_input_of_a_class_of_its_own_runs_the_graph(path):
    class Own(torch.Tensor):
        pass

    with torch.no_grad():
        burnish.save(Model().eval(), path, (X,))
        loaded = burnish.load(path)
        torch.testing.assert_close(loaded(X.as_subclass(Own))["y"].as_subclass(torch.Tensor), Model().eval()(X)["y"])


def test_a_damaged_graph_is_reported_when_it_is_decoded(path):
    with torch.no_grad():
        burnish.save(Model().eval(), path, (X,))
        rewritten(
            path,
            lambda name, content: (
                content.replace(b"nn.functional.gelu", b"nn.functional.tool") if name == DESCRIPTION else content
            ),
        )
        loaded = burnish.load(path, trust=True)
        with pytest.raises(UserError, match="cannot be loaded: at 'gelu', number 7 of its graph, it asks for"):
            loaded.graph_module


def test_memory_is_mapped_where_it_may_be(path):
    with torch.no_grad():
        burnish.save(Model().eval(), path, (X,))
        before = path.read_bytes()
        loaded = burnish.load(path)
        weight = loaded.graph_module.linear.weight
        assert weight.data_ptr() % ALIGNMENT == 0
        weight.zero_()
    assert path.read_bytes() == before, "a tensor that is written to stays in this process"


def test_without_a_cache_a_file_is_not_signed_and_is_compiled(tmp_path):
    path = tmp_path / "model.burnish"
    with torch.no_grad(), burnish.settings.patch(cache=False):
        burnish.save(Model().eval(), path, (X,))
        with pytest.warns(UserWarning, match="nothing shows that this user"):
            loaded = burnish.load(path)
        torch.testing.assert_close(loaded(X), Model().eval()(X))


# Its own tensors ------------------------------------------------------------------------------------------------------


def another_weight(module):
    module.linear.weight = nn.Parameter(torch.ones(40, 24))


def another_layer(module):
    made = nn.Module()
    made.weight, made.bias = nn.Parameter(torch.ones(40)), nn.Parameter(torch.ones(40))
    module.norm = made


def other_data(module):
    module.linear.weight.data = torch.ones(24, 40).t()


def written_into_the_table(module):
    module.linear._parameters["bias"] = nn.Parameter(torch.ones(40))


def another_buffer(module):
    module.scale = torch.ones(40)


def a_plain_attribute_in_front(module):
    module.linear.__dict__["bias"] = torch.ones(40)


def in_place(module):
    module.linear.weight.mul_(2)


CHANGES = [
    another_weight,
    another_layer,
    other_data,
    written_into_the_table,
    another_buffer,
    a_plain_attribute_in_front,
    in_place,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_of_its_tensors_is_seen_by_the_next_call(change, path):
    model = Model().eval()
    with torch.no_grad():
        burnish.save(model, path, (X,))
        loaded = burnish.load(path)
        module = loaded.graph_module
        for _ in range(4):
            torch.testing.assert_close(loaded(X), model(X))
        assert (loaded.held.watched is not None) == is_supported
        change(module)
        for _ in range(4):
            torch.testing.assert_close(loaded(X), run_eagerly(loaded))
        assert not torch.allclose(loaded(X)["y"], model(X)["y"])
        assert (loaded.held.watched is not None) == is_supported, "the current state is watched"


def test_a_weight_that_asks_for_gradients_is_seen(path):
    model = Model().eval().requires_grad_(False)
    burnish.save(model, path, (X,))
    loaded = burnish.load(path)
    weight = loaded.graph_module.linear.weight
    for _ in range(4):
        assert not loaded(X)["y"].requires_grad
    weight.requires_grad_()
    loaded(X)["y"].sum().backward()
    model.linear.weight.requires_grad_()
    model(X)["y"].sum().backward()
    torch.testing.assert_close(weight.grad, model.linear.weight.grad)
