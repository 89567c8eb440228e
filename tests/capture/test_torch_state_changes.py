"""What the world outside changes between two calls: flags, attributes, parameters, dtypes, layers, globals."""

import types

import torch
from torch import nn

from .caller_programs import program_with_caller

OPTIONS = {"scale": 2.0}
LIMIT = 3


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


@program_with_caller
def test_train_and_eval_between_calls():
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.BatchNorm1d(8))

    def caller(fn, x, training):
        model.train(training)
        return fn(x), model.training

    return model, caller, [(torch.randn(4, 3), t) for t in (True, False, True, True, False)], model


@program_with_caller
def test_only_one_submodule_is_switched_to_eval():
    model = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5))

    def caller(fn, x, first, second):
        model[0].train(first)
        model[1].train(second)
        return fn(x)

    flags = [(True, True), (False, True), (False, False), (True, False), (True, True)]
    return model, caller, [(torch.ones(6), *f) for f in flags]


@program_with_caller
def test_number_attribute_changes_between_calls():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 1

        def forward(self, x):
            return x * self.scale

    model = Model()

    def caller(fn, x, scale):
        model.scale = scale
        return fn(x)

    return model, caller, [(torch.arange(3), s) for s in (1, 2, 2.5, True, 2, 1)]


@program_with_caller
def test_attribute_changes_its_type_between_calls():
    class Model(nn.Module):
        def forward(self, x):
            gate = self.gate
            if gate is None:
                return x
            return gate(x) if callable(gate) else x * gate

    model = Model()

    def caller(fn, x, gate):
        model.gate = gate
        return fn(x)

    gates = (None, torch.relu, 2.0, torch.ones(3), torch.sin, None, nn.Tanh(), None, nn.ReLU())
    return model, caller, [(torch.randn(3), g) for g in gates]


@program_with_caller
def test_attribute_is_deleted_between_calls():
    class Model(nn.Module):
        bias = 10.0

        def forward(self, x):
            return x + self.bias

    model = Model()

    def caller(fn, x, own):
        if own:
            model.bias = 1.0
        elif "bias" in vars(model):
            del model.bias
        return fn(x)

    return model, caller, [(torch.randn(2), own) for own in (False, True, False, True)]


@program_with_caller
def test_class_attribute_changes_between_calls():
    class Model(nn.Module):
        factor = 2

        def forward(self, x):
            return x * self.factor

    model = Model()

    def caller(fn, x, factor):
        Model.factor = factor
        return fn(x)

    return model, caller, [(torch.randn(2), f) for f in (2, 3, 2, 5)]


@program_with_caller
def test_parameter_object_is_replaced_between_calls():
    model = nn.Linear(2, 2)

    def caller(fn, x, value):
        if value is not None:
            model.weight = nn.Parameter(torch.full((2, 2), value))
        return fn(x)

    return model, caller, [(torch.randn(1, 2), v) for v in (None, 2.0, None, -1.0)]


@program_with_caller
def test_parameter_of_another_shape_is_put_in():
    model = nn.Linear(2, 2)

    def caller(fn, x, width):
        model.weight = nn.Parameter(torch.ones(width, 2))
        model.bias = None if width == 3 else nn.Parameter(torch.zeros(width))
        return fn(x)

    return model, caller, [(torch.randn(1, 2), w) for w in (2, 3, 4, 2, 3)]


@program_with_caller
def test_load_state_dict_between_calls():
    model = net()
    states = [{k: torch.full_like(v, float(i)) for k, v in model.state_dict().items()} for i in range(2)]

    def caller(fn, x, which, assign):
        if which is not None:
            model.load_state_dict(states[which], assign=assign)
        return fn(x)

    calls = [(None, False), (0, False), (1, False), (0, True), (1, False), (None, False)]
    return model, caller, [(torch.randn(1, 3), *c) for c in calls]


@program_with_caller
def test_weights_written_in_place_between_calls():
    model = net()

    def caller(fn, x, k):
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(k)
        model[0].weight.data[0] = k
        return fn(x)

    return model, caller, [(torch.randn(1, 3), k) for k in (1.0, 2.0, -1.0, 0.5)]


@program_with_caller
def test_double_and_float_between_calls():
    model = net()

    def caller(fn, dtype):
        model.to(dtype)
        return fn(torch.linspace(0, 1, 6, dtype=dtype).view(2, 3))

    return model, caller, [(d,) for d in (torch.float32, torch.float64, torch.float32, torch.bfloat16, torch.float64)]


@program_with_caller
def test_half_weights_refuse_float_inputs():
    model = nn.Linear(3, 2)

    def caller(fn, x, half):
        model.half() if half else model.float()
        return fn(x)

    return model, caller, [(torch.randn(1, 3), h) for h in (False, True, False, True)]


@program_with_caller
def test_layers_are_appended_between_calls():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(2, 2)])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x, len(self.layers)

    model = Model()

    def caller(fn, x, change):
        if change == "append":
            model.layers.append(nn.Linear(2, 2))
        elif change == "drop":
            del model.layers[0]
        return fn(x)

    return model, caller, [(torch.randn(1, 2), c) for c in ("", "append", "", "append", "drop", "drop", "")]


@program_with_caller
def test_submodule_is_swapped_between_calls():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    kinds = {"relu": nn.ReLU(), "tanh": nn.Tanh(), "none": nn.Identity()}

    def caller(fn, x, kind):
        model[1] = kinds[kind]
        return fn(x)

    return model, caller, [(torch.randn(2, 2), k) for k in ("relu", "tanh", "relu", "none", "tanh")]


@program_with_caller
def test_method_is_patched_on_the_class_between_calls():
    class Model(nn.Module):
        def forward(self, x):
            return self.act(x)

        def act(self, x):
            return x.relu()

    model = Model()

    def caller(fn, x, act):
        Model.act = act
        return fn(x)

    acts = (lambda self, x: x.sin(), lambda self, x: x * 2)
    return model, caller, [(torch.randn(3), acts[i]) for i in (0, 1, 0, 1)]


@program_with_caller
def test_forward_is_patched_on_the_instance_between_calls():
    model = net()

    def noisy(self, x):
        return nn.Linear.forward(self, x) + 100

    def caller(fn, x, patched):
        if patched:
            model[0].forward = types.MethodType(noisy, model[0])
        else:
            vars(model[0]).pop("forward", None)
        return fn(x)

    return model, caller, [(torch.randn(1, 3), p) for p in (False, True, False, True)]


@program_with_caller
def test_parameters_are_frozen_between_calls():
    model = net()

    def caller(fn, x, trainable):
        model[0].requires_grad_(trainable)
        model.zero_grad()
        out = fn(x)
        out.sum().backward()
        return out, [None if p.grad is None else p.grad.clone() for p in model.parameters()]

    return model, caller, [(torch.randn(1, 3), t) for t in (True, False, True, False)]


@program_with_caller
def test_all_frozen_gives_outputs_without_history():
    model = net()

    def fn(x):
        return model(x) * 2

    def caller(fn, x, trainable):
        model.requires_grad_(trainable)
        return fn(x).requires_grad

    return fn, caller, [(torch.randn(1, 3), t) for t in (True, False, True, False)]


@program_with_caller
def test_global_number_and_dictionary_change_between_calls():
    def fn(x):
        return (x * OPTIONS["scale"]).clamp(max=LIMIT), OPTIONS.get("bias", 0)

    def caller(fn, x, scale, limit):
        global LIMIT
        before, OPTIONS["scale"], LIMIT = (OPTIONS["scale"], LIMIT), scale, limit
        try:
            return fn(x)
        finally:
            OPTIONS["scale"], LIMIT = before

    return fn, caller, [(torch.randn(3), *c) for c in ((2.0, 3), (2.0, 0), (5.0, 3), (2.0, 3))]


@program_with_caller
def test_closure_cell_is_rebound_between_calls():
    weight, k = torch.ones(2), 1

    def fn(x):
        return x * weight + k

    def caller(fn, x, new, number):
        nonlocal weight, k
        weight, k = new, number
        return fn(x)

    a, b = torch.full((2,), 2.0), torch.full((1,), 3.0)
    return fn, caller, [(torch.randn(2), *c) for c in ((a, 1), (b, 1), (a, 2), (a, 1), (b, 2.0))]


@program_with_caller
def test_configuration_object_is_changed_between_calls():
    config = types.SimpleNamespace(layers=2, activation="relu", dropout=None)
    layer = nn.Linear(2, 2)

    def fn(x):
        for _ in range(config.layers):
            x = getattr(torch, config.activation)(layer(x))
        return nn.functional.dropout(x, config.dropout) if config.dropout is not None else x

    def caller(fn, x, changes):
        vars(config).update(changes)
        return fn(x)

    changes = [{}, {"layers": 3}, {"activation": "tanh"}, {"layers": 2, "activation": "relu"}, {"dropout": 0.5}]
    return fn, caller, [(torch.randn(2, 2), c) for c in changes]


@program_with_caller
def test_default_argument_and_code_are_replaced_between_calls():
    def helper(x, k=2):
        return x * k

    def other(x, k=2):
        return x - k

    def fn(x):
        return helper(x)

    codes = helper.__code__, other.__code__

    def caller(fn, x, k, which):
        helper.__defaults__ = (k,)
        helper.__code__ = codes[which]
        return fn(x)

    return fn, caller, [(torch.randn(2), *c) for c in ((2, 0), (3, 0), (3, 1), (2, 0))]


@program_with_caller
def test_memory_format_of_weights_changes_between_calls():
    model = nn.Conv2d(2, 3, 3)

    def caller(fn, x, last):
        model.to(memory_format=torch.channels_last if last else torch.contiguous_format)
        out = fn(x.to(memory_format=torch.channels_last) if last else x)
        return out, out.stride(), model.weight.stride()

    return model, caller, [(torch.randn(1, 2, 5, 5), last) for last in (False, True, False, True)]


@program_with_caller
def test_gradients_are_reset_in_different_ways_between_calls():
    model = nn.Linear(2, 1)

    def fn(x):
        loss = model(x).sum()
        loss.backward()
        return loss

    def caller(fn, x, how):
        if how == "none":
            model.zero_grad(set_to_none=True)
        elif how == "zero":
            model.zero_grad(set_to_none=False)
        return fn(x), model.weight.grad.clone()

    return fn, caller, [(torch.randn(3, 2), how) for how in ("none", "keep", "zero", "none", "keep")]
