"""Batched guards on many tensors and switches, and checks of large models, detect what single guards detect."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import burnish
from burnish.capture.guards import guard_function
from burnish.capture.guards.tensor_metadata import SameManyTensors, SameState, global_state, tensor_facts
from burnish.capture.pytorch import recorder_fast_path
from burnish.settings import patch

X = torch.arange(6.0).reshape(2, 3)


def non_leaf():
    return X.clone().requires_grad_() * 1


OTHERS = {
    "type": lambda: nn.Parameter(X, requires_grad=False),
    "subclass": lambda: X.as_subclass(type("Mine", (torch.Tensor,), {})),
    "dtype": lambda: X.double(),
    "shape": lambda: torch.zeros(3, 2),
    "rank": lambda: torch.zeros(2, 3, 1),
    "strides": lambda: torch.zeros(3, 2).t().clone(memory_format=torch.preserve_format),
    "device": lambda: X.to("meta"),
    "requires_grad": lambda: X.clone().requires_grad_(),
    "no leaf": non_leaf,
    "view": lambda: torch.zeros(4, 3)[:2],
    "sparse": lambda: X.to_sparse(),
    "inference": lambda: made_in_inference_mode(),
    "no tensor": lambda: 3,
}


def made_in_inference_mode():
    with torch.inference_mode():
        return torch.zeros(2, 3)


def settled(*tensors):
    """A comparison that has passed once, so that the next one is made in one go."""
    same = SameManyTensors([tensor_facts(t) for t in tensors])
    assert same(tensors) and same(tensors)
    return same


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_each_metadata_change_is_detected_among_many_tensors(other):
    alike = [torch.zeros(2, 3) for _ in range(5)]
    same = settled(*alike)
    assert not same((*alike[:3], other(), alike[4]))
    assert same(tuple(alike))


def test_a_parameter_that_stops_being_a_leaf_is_detected():
    weight, other = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    same = settled(weight, other)
    changed = nn.Parameter(torch.zeros(2), requires_grad=False)
    changed.add_(other)  # from here on it has a history
    assert type(changed) is nn.Parameter and changed.requires_grad and not changed.is_leaf
    assert not same((weight, changed))


def test_lazy_conjugation_and_negation_are_detected():
    z = torch.zeros(3, dtype=torch.complex64)
    assert not settled(z, z.clone())((z.clone(), z.conj()))
    negative = z.conj().imag
    plain = torch.zeros(6)[::2]
    assert negative.is_neg() and negative.stride() == plain.stride()
    assert not settled(plain, plain.clone())((negative, plain.clone()))


def stale_view():
    """A view that has a history which torch refuses to tell."""
    base = torch.zeros(2, 3, requires_grad=True) * 2
    view = base.unbind()[1]
    base.view(6).sub_(1)
    return view


def test_a_view_whose_history_is_refused_has_facts_and_goes_through_compiled_code():
    view = stale_view()
    with pytest.raises(RuntimeError, match="modified inplace"):
        view.is_leaf  # noqa: B018
    same = settled(view, torch.zeros(3))
    assert not same((torch.zeros(3, requires_grad=True), torch.zeros(3)))
    compiled = burnish.compile(lambda x: x.detach() + 1, backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(stale_view()), torch.zeros(3))
    assert len(compiled.__burnish_program__.entry.segments) == 1


def test_a_tensor_given_for_two_inputs_passes_if_its_metadata_does():
    same = settled(torch.zeros(2), torch.zeros(2))
    x = torch.zeros(2)
    assert all(same((x, x)) for _ in range(20))


SWITCHES = {
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu"),
    "a mode": torch.overrides.BaseTorchFunctionMode,
    "the default device": lambda: torch.device("meta"),
    "no torch function": torch._C.DisableTorchFunctionSubclass,
    "a dispatch mode": TorchDispatchMode,
}


@pytest.mark.parametrize("switch", SWITCHES.values(), ids=SWITCHES)
def test_each_switch_of_torch_is_guarded(switch):
    same = SameState(global_state())
    assert same() and same()
    with switch():
        assert not same()
    assert same()


@pytest.mark.parametrize(
    ("change", "undo"),
    [
        (lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)),
        (lambda: torch.use_deterministic_algorithms(True), lambda: torch.use_deterministic_algorithms(False)),
        (
            lambda: torch.set_autocast_dtype("cpu", torch.float16),
            lambda: torch.set_autocast_dtype("cpu", torch.bfloat16),
        ),
        (lambda: torch.set_autocast_cache_enabled(False), lambda: torch.set_autocast_cache_enabled(True)),
    ],
)
def test_each_setting_of_torch_is_guarded(change, undo):
    same = SameState(global_state())
    assert same() and same()
    change()
    try:
        assert not same()
    finally:
        undo()
    assert same()


class Block(nn.Module):
    scale, offsets = 2.0, None

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 3), nn.LayerNorm(3)
        self.sizes, self.factor = (3, 1.5, "same"), 1.0

    def forward(self, x):
        y = self.norm(self.linear(x)) * self.scale * self.factor
        return y + self.sizes[1] if self.offsets is None else y + self.offsets


class Louder(Block):
    def forward(self, x):
        return 10 * super().forward(x)


def set_zero(model):
    model[4].factor = 0.0


CHANGES = {
    "an attribute": lambda model: setattr(model[3], "factor", 3.0),
    "an attribute's type": lambda model: setattr(model[3], "factor", 1),
    "minus zero": lambda model: setattr(model[4], "factor", -0.0),
    "an item of a tuple": lambda model: setattr(model[7], "sizes", (3, 2.5, "same")),
    "the length of a tuple": lambda model: setattr(model[7], "sizes", (3, 1.5)),
    "an attribute that hides the class's": lambda model: setattr(model[2], "scale", 5.0),
    "an attribute that was None": lambda model: setattr(model[2], "offsets", torch.ones(3)),
    "the class": lambda model: setattr(model[9], "__class__", Louder),
    "a parameter's shape": lambda model: setattr(model[5].linear, "bias", nn.Parameter(torch.ones(1))),
    "a parameter that is gone": lambda model: setattr(model[5].linear, "bias", None),
    "a submodule": lambda model: setattr(model[6], "norm", nn.Tanh()),
    "a hook": lambda model: model[1].linear.register_forward_hook(lambda m, args, y: y + 1),
    "a method on the object": lambda model: setattr(model[8], "forward", lambda x: x * 7),
    "one more": lambda model: model.append(Block()),
}


@pytest.mark.parametrize("twice", [True, False])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_anywhere_in_a_large_model_is_detected(change, twice):
    with patch(check=twice):  # the check written in layers beside the other one, and alone
        change_a_large_model(change)


def change_a_large_model(change):
    model = nn.Sequential(*[Block() for _ in range(10)])
    set_zero(model)
    compiled = burnish.compile(model, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(X), model(X), rtol=0, atol=0)
    program = compiled.__burnish_program__
    assert len(program.entry.segments) == 1 and len(program.entry.segments[0].guards) > guard_function.FEW
    change(model)
    for _ in range(2):
        want, got = model(X), compiled(X)
        assert torch.equal(want, got) and torch.equal(want.signbit(), got.signbit())


def test_a_check_that_two_ways_of_writing_disagree_on_is_an_internal_error(monkeypatch):
    monkeypatch.setitem(guard_function.GROUPED, "type", lambda writer, picked, expected: writer.condition("True"))
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    compiled = burnish.compile(model, backend="eager")
    with pytest.raises(burnish.InternalError, match="layer by layer"):
        compiled(X)


def graph_of(function, *args):
    seen = []

    def keep(gm, example_inputs):
        seen.append([(node.op, str(node.target), str(node.args), str(node.kwargs)) for node in gm.graph.nodes])
        return gm.forward

    got = burnish.compile(function, backend=keep)(*args)
    torch.testing.assert_close(got, function(*args), rtol=0, atol=0)
    return seen


def test_calls_recorded_directly_give_the_graph_that_torch_shows(monkeypatch):
    def fn(x, w):
        y = nn.functional.layer_norm(x, (3,), w) + nn.functional.dropout(x, 0.5, False)
        y = 2 - y.transpose(0, 1) @ x / 3
        return torch.where(y > 0, y, torch.sin(y)[0:1]).sum(dim=-1).view(-1, 1)

    monkeypatch.setattr(recorder_fast_path, "_learned", {})
    shown = graph_of(fn, X, torch.ones(3))
    assert any(found is not None for found in recorder_fast_path._learned.values())
    assert graph_of(fn, X, torch.ones(3)) == shown


def test_operations_on_subclasses_are_never_recorded_directly():
    class Loud(torch.Tensor):
        pass

    x = X.as_subclass(Loud)
    assert recorder_fast_path.name_of_call(torch.sin, (X,), {}) is torch.sin
    assert recorder_fast_path.name_of_call(torch.sin, (x,), {}) is None
    assert recorder_fast_path.name_of_call(torch.cat, ([X, x],), {}) is None
    with torch.device("cpu"):  # a mode, which must see the call
        assert recorder_fast_path.name_of_call(torch.sin, (X,), {}) is None


def test_arguments_that_do_not_fit_raise_the_same_error_each_time():
    def fn(x):
        try:
            return nn.functional.dropout(x, 0.5, False, False, 1)
        except TypeError:
            return x + 1

    dropout = burnish.compile(lambda x: nn.functional.dropout(x, 0.5, False), backend="eager")
    for _ in range(2):
        assert torch.equal(dropout(X), X)
        assert torch.equal(burnish.compile(fn, backend="eager")(X), X + 1)
        burnish.reset()
