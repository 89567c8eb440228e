"""The API has the parameter names, order and defaults of torch.compile's API, so that swapping the import is enough."""

import inspect

import pytest
import torch

import burnish

# What torch.compile has grown since 2.11, the oldest torch that Burnish runs with. Ours has all of it with any torch.
NEWER = {"name", "recompile_limit", "isolate_recompiles", "dynamic_shapes"}


def parameters(fn):
    return [(p.name, p.kind, p.default) for p in inspect.signature(fn).parameters.values()]


def test_compile_has_the_parameters_of_torch_compile_but_for_the_default_backend():
    theirs = [p for p in parameters(torch.compile) if p[0] != "shapes_spec"]  # `dynamic_shapes` in torch 2.13
    names = {name for name, _, _ in theirs}
    ours = [p for p in parameters(burnish.compile) if p[0] in names or p[0] not in NEWER]
    assert [p[:2] for p in ours] == [p[:2] for p in theirs]
    assert [p[2] for p in ours if p[0] != "backend"] == [p[2] for p in theirs if p[0] != "backend"]
    assert dict((name, default) for name, _, default in ours)["backend"] == "burnish"


@pytest.mark.parametrize(
    "name", ["disable", "allow_in_graph", "assume_constant_result", "substitute_in_graph", "is_compiling", "reset"]
)
def test_the_rest_has_the_parameters_of_torch_compiler(name):
    assert parameters(getattr(burnish, name)) == parameters(getattr(torch.compiler, name))


def test_set_stance_has_the_parameters_of_torch_compiler():
    assert parameters(burnish.set_stance.__init__)[1:] == parameters(torch.compiler.set_stance)


def test_register_backend_takes_the_function_and_the_name_first_as_torchs_does():
    assert [name for name, _, _ in parameters(burnish.register_backend)][:2] == ["compiler_fn", "name"]


def test_export_has_the_first_parameters_of_torch_export():
    ours = [name for name, _, _ in parameters(burnish.export)]
    assert ours[1:] == [name for name, _, _ in parameters(torch.export.export)][1:4]
