"""Buffers and other state a module carries from call to call: running statistics, caches, counters, dropout."""

import torch
from torch import nn

from .caller_programs import program_with_caller
from .harness import program


@program(breaks=0)
def test_batch_norm_updates_its_running_statistics():
    model = nn.BatchNorm1d(3)
    return model, lambda i: (torch.randn(4, 3) + i,), model


@program_with_caller
def test_batch_norm_between_train_and_eval():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))

    def caller(fn, x, training):
        model.train(training)
        return fn(x), model[1].num_batches_tracked.clone()

    return model, caller, [(torch.randn(2, 1, 4, 4) + i, t) for i, t in enumerate((True, False, True, False))], model


@program
def test_batch_norm_with_cumulative_average():
    model = nn.BatchNorm1d(2, momentum=None)
    return model, lambda i: (torch.randn(3, 2) * i,), model


@program_with_caller
def test_momentum_and_tracking_change_between_calls():
    model = nn.BatchNorm1d(2)

    def caller(fn, x, momentum, track):
        model.momentum, model.track_running_stats = momentum, track
        return fn(x)

    calls = [(0.1, True), (0.5, True), (0.5, False), (0.1, True)]
    return model, caller, [(torch.randn(3, 2), *c) for c in calls], model


@program
def test_batch_norm_of_one_value_raises():
    model = nn.BatchNorm1d(2)
    return model, [(torch.randn(n, 2),) for n in (3, 1, 3, 1)], model


@program(breaks=0)
def test_instance_norm_tracks_statistics():
    model = nn.InstanceNorm1d(2, affine=True, track_running_stats=True)
    return model, lambda i: (torch.randn(2, 2, 5) + i,), model


@program(breaks=0)
def test_buffer_written_in_place():
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(2))
            self.register_buffer("count", torch.tensor(0), persistent=False)

        def forward(self, x):
            self.total += x.sum(0)
            self.count.add_(len(x))
            return self.total / self.count

    model = Mean()
    return model, [(torch.randn(n, 2),) for n in (2, 3, 2, 1)], model


@program
def test_buffer_rebound_by_assignment():
    class Average(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("ema", torch.zeros(2))

        def forward(self, x):
            self.ema = 0.9 * self.ema + 0.1 * x.detach().mean(0)
            return x - self.ema

    model = Average()
    return model, lambda i: (torch.randn(3, 2, requires_grad=True),), model


@program_with_caller
def test_buffer_rebound_by_assignment_keeps_earlier_values():
    model = nn.Module()
    model.register_buffer("state", torch.zeros(2))
    history = []

    def fn(x):
        model.state = model.state * 2 + x
        return model.state

    def caller(fn, x):
        history.append(fn(x))
        return history[-1] is model.state, list(history)

    return fn, caller, lambda i: (torch.randn(2),)


@program
def test_buffer_is_registered_in_the_first_forward():
    class Mask(nn.Module):
        def forward(self, x):
            if not hasattr(self, "mask"):
                self.register_buffer("mask", torch.ones(x.shape[-1], x.shape[-1]).tril(), persistent=False)
            return x @ self.mask

    model = Mask()
    return model, lambda i: (torch.randn(2, 3),), model


@program
def test_buffer_declared_none_and_filled_later():
    class Center(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("center", None)

        def forward(self, x):
            if self.center is None:
                self.center = x.mean(0)
            return x - self.center, "center" in self.state_dict()

    model = Center()
    return model, lambda i: (torch.randn(3, 2),), model


@program
def test_cached_table_grows_when_a_longer_input_comes():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.length, self.table = 0, None

        def forward(self, x):
            if x.shape[0] > self.length:
                self.length = x.shape[0]
                self.table = torch.arange(self.length).float().sin()
            return x + self.table[: x.shape[0], None]

    model = Positions()
    return model, [(torch.randn(n, 2),) for n in (2, 4, 3, 6, 2)], model


@program
def test_key_value_cache_grows_by_concatenation():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.proj, self.keys = nn.Linear(2, 2), None

        def forward(self, x):
            k = self.proj(x)
            self.keys = k if self.keys is None else torch.cat([self.keys, k], dim=0)
            return (x @ self.keys.T).softmax(-1), self.keys.shape

    model = Cache()
    return model, lambda i: (torch.randn(1, 2),) if i != 1 else (torch.randn(3, 2),), model


@program
def test_preallocated_cache_with_a_position_number():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.zeros(8, 2))
            self.position = 0

        def forward(self, x):
            end = self.position + x.shape[0]
            self.keys[self.position : end] = x
            self.position = end
            return self.keys[:end].sum(0), end

    model = Cache()
    return model, [(torch.randn(n, 2),) for n in (1, 2, 1, 1, 3)], model


@program
def test_preallocated_cache_with_a_position_tensor():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.zeros(6, 2))
            self.register_buffer("position", torch.tensor(0))

        def forward(self, x):
            self.keys.index_copy_(0, self.position[None], x)
            self.position += 1
            visible = torch.arange(6) < self.position
            return torch.where(visible[:, None], self.keys, torch.tensor(-1.0))

    model = Cache()
    return model, [(torch.randn(1, 2),) for _ in range(4)], model


@program
def test_plain_counter_attribute_scales_the_output():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * self.calls, self.calls

    model = Counter()
    return model, [(torch.ones(2),) for _ in range(5)], model


@program(breaks=0)
def test_teacher_follows_by_exponential_average():
    student, teacher = nn.Linear(2, 2), nn.Linear(2, 2)

    def fn(x, decay):
        with torch.no_grad():
            for t, s in zip(teacher.parameters(), student.parameters(), strict=True):
                t.mul_(decay).add_(s, alpha=1 - decay)
        return student(x) - teacher(x)

    return fn, [(torch.randn(1, 2), d) for d in (0.5, 0.9, 0.5)], teacher


@program(breaks=0)
def test_dropout_uses_new_masks_each_call():
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 6), nn.AlphaDropout(0.2))
    return model, [(torch.ones(2, 6),) for _ in range(4)]


@program_with_caller
def test_dropout_probability_changes_between_calls():
    model = nn.Dropout(0.5)

    def caller(fn, x, p, inplace):
        model.p, model.inplace = p, inplace
        return fn(x), x

    calls = [(0.5, False), (0.1, False), (0.5, True), (0.0, False), (0.5, False)]
    return model, caller, [(torch.ones(8), *c) for c in calls]


@program_with_caller
def test_buffers_are_loaded_and_moved_between_calls():
    model = nn.BatchNorm1d(2)
    start = {k: v.clone() for k, v in model.state_dict().items()}

    def caller(fn, x, reset):
        if reset == "load":
            model.load_state_dict(start)
        elif reset == "reset":
            model.reset_running_stats()
        elif reset == "replace":
            model.running_mean = torch.ones(2)
        return fn(x)

    return model, caller, [(torch.randn(3, 2), r) for r in ("", "load", "", "replace", "reset", "")], model


@program
def test_spectral_power_iteration_by_hand():
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 2))
            self.register_buffer("u", torch.ones(3))

        def forward(self, x):
            if self.training:
                with torch.no_grad():
                    v = nn.functional.normalize(self.weight.T @ self.u, dim=0)
                    self.u.copy_(nn.functional.normalize(self.weight @ v, dim=0))
            sigma = self.u @ self.weight @ (self.weight.T @ self.u)
            return x @ self.weight.T / sigma.sqrt()

    model = Norm()
    return model, lambda i: (torch.randn(1, 2),), model
