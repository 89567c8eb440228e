"""Training steps as programs write them: helpers, several models, mixed precision, schedules, bookkeeping."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

import burnish

from .training_harness import captured, rows, small_model, trained_alike

SGD, Adam = torch.optim.SGD, torch.optim.Adam


def test_backward_in_a_helper_and_a_trainer_object():
    class Trainer:
        def __init__(self, model):
            self.model, self.steps, self.total = model, 0, 0.0
            self.optimizer = Adam(model.parameters(), lr=0.01)

        def update(self, loss):
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

        def train(self, x):
            loss = self.model(x).square().mean()
            self.update(loss)
            self.steps += 1
            return loss

    def build():
        trainer = Trainer(small_model())
        return trainer.train, (trainer.model, trainer.optimizer, Steps(trainer))

    seen = trained_alike(build, rows, steps=8)
    assert (seen.breaks, seen.segments) == ([], 2)


class Steps:
    """The counters of a trainer, as state to compare."""

    def __init__(self, trainer):
        self.trainer = trainer

    def state_dict(self):
        return {"steps": self.trainer.steps, "total": self.trainer.total}


def test_several_optimizers_in_one_step():
    def build():
        body, head = small_model(), nn.Linear(3, 2)
        first, second = SGD(body.parameters(), lr=0.1, momentum=0.9), Adam(head.parameters())

        def train(x):
            for optimizer in (first, second):
                optimizer.zero_grad()
            loss = head(body(x)).square().mean()
            loss.backward()
            for optimizer in (first, second):
                optimizer.step()
            return loss

        return train, (body, head, first, second)

    seen = trained_alike(build, rows)
    assert (seen.breaks, seen.segments) == ([], 2)


def test_two_networks_against_each_other():
    def build():
        maker, judge = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        for_maker, for_judge = Adam(maker.parameters(), lr=0.01), Adam(judge.parameters(), lr=0.01)

        def train(x):
            made = maker(torch.randn_like(x))
            for_judge.zero_grad()
            judged = judge(x).sigmoid().log().mean() + (1 - judge(made.detach()).sigmoid()).log().mean()
            (-judged).backward()
            for_judge.step()
            for_maker.zero_grad()
            (1 - judge(made).sigmoid()).log().mean().backward()
            for_maker.step()
            return judged

        return train, (maker, judge, for_maker, for_judge)

    seen = trained_alike(build, rows)
    assert (seen.breaks, seen.segments) == ([], 2)


def test_dropout_and_running_statistics():
    def build():
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
        optimizer = Adam(model.parameters())

        def train(x):
            optimizer.zero_grad()
            loss = cross_entropy(model(x), torch.arange(5) % 3, label_smoothing=0.1)
            loss.backward()
            optimizer.step()
            return loss

        return train, (model, optimizer)

    seen = trained_alike(build, rows)
    assert (seen.breaks, seen.segments) == ([], 2)


@pytest.mark.parametrize("backward_inside", [False, True])
def test_mixed_precision(backward_inside):
    def build():
        model = small_model()
        optimizer = Adam(model.parameters())

        def train(x):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(x).float().square().mean()
                if backward_inside:
                    loss.backward()
            if not backward_inside:
                loss.backward()
            optimizer.step()
            return loss

        return train, (model, optimizer)

    seen = trained_alike(build, rows)
    assert (seen.breaks, seen.segments) == ([], 2)


def test_scaled_losses():
    """The scaler decides by data whether to step, so there are breaks; its scale grows as in eager."""

    def build():
        model = small_model()
        optimizer = SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

        def train(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            return loss

        return train, (model, optimizer, scaler)

    trained_alike(build, rows)


def test_gradients_accumulated_over_calls():
    def build():
        model = small_model()
        optimizer = Adam(model.parameters())
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

        def train(x, i):
            loss = model(x).square().mean() / 4
            loss.backward()
            if (i + 1) % 4 == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            return loss

        return train, (model, optimizer, scheduler)

    seen = trained_alike(build, lambda i: (*rows(i), i), steps=20)
    assert seen.breaks == [] and seen.given_up == []
    assert seen.segments <= 6


def test_averages_and_evaluation_between_the_steps():
    def build():
        model = small_model()
        optimizer = SGD(model.parameters(), lr=0.1)
        average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn())

        def train(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            average.update_parameters(model)
            model.eval()
            with torch.no_grad():
                score = average(x).sum()
            model.train()
            return loss.detach(), score

        return train, (model, optimizer, average)

    trained_alike(build, rows)


def test_losses_stored_in_a_list_and_a_sum():
    def build():
        model = small_model()
        optimizer = Adam(model.parameters())
        losses, sums = [], {"loss": 0.0, "count": 0}

        def train(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            sums["loss"] += loss.item()
            sums["count"] += 1
            return loss.item()

        return train, (model, optimizer, losses, sums)

    trained_alike(build, rows, steps=10)


def test_recurrent_and_attention_layers():
    def build():
        model = nn.ModuleDict(
            {
                "rnn": nn.LSTM(4, 6, batch_first=True),
                "attention": nn.TransformerEncoderLayer(6, 2, 12, batch_first=True),
            }
        )
        optimizer = torch.optim.AdamW(model.parameters())

        def train(x):
            optimizer.zero_grad()
            hidden, _ = model["rnn"](x.unsqueeze(0))
            loss = model["attention"](hidden).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return train, (model, optimizer)

    seen = trained_alike(build, rows)
    assert (seen.breaks, seen.segments) == ([], 2)


def test_checkpointed_layers():
    from torch.utils.checkpoint import checkpoint

    def build():
        model = small_model()
        optimizer = SGD(model.parameters(), lr=0.1)

        def train(x):
            optimizer.zero_grad()
            loss = checkpoint(model, x, use_reentrant=False).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return train, (model, optimizer)

    trained_alike(build, rows)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 + x * 0


def test_formulas_of_ones_own():
    def build():
        model = small_model()
        optimizer = SGD(model.parameters(), lr=0.1)

        def train(x):
            optimizer.zero_grad()
            loss = Doubled.apply(model(x)).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return train, (model, optimizer)

    seen = trained_alike(build, rows)
    assert (seen.breaks, seen.segments) == ([], 2)


def test_a_formula_that_answers_a_tensor_somebody_holds():
    def build():
        weight, kept = nn.Parameter(torch.ones(3)), torch.ones(3)
        optimizer = SGD([weight], lr=0.1)

        class Kept(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, g):
                return kept

        def train(x):
            optimizer.zero_grad()
            Kept.apply(weight).sum().backward()
            weight.grad.mul_(2)
            optimizer.step()
            return kept.sum(), weight.detach().clone()

        return train, (optimizer,)

    trained_alike(build, rows)


def test_gradients_that_share_memory_share_it_as_in_eager():
    def build():
        model = nn.Module()
        model.a, model.b = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))
        optimizer = SGD(model.parameters(), lr=0.1)

        def train(x):
            optimizer.zero_grad()
            ((model.a.view(-1) + model.b.view(-1)) * x[0]).sum().backward()
            model.a.grad.mul_(2)
            optimizer.step()
            return model.b.grad

        return train, (model, optimizer)

    trained_alike(build, rows)


def test_an_error_in_the_step_leaves_eagers_state():
    def build():
        model = small_model()
        optimizer = SGD(model.parameters(), lr=0.1)

        def train(x):
            optimizer.zero_grad()
            try:
                loss = model(x).square().mean()
                loss.backward()
            except RuntimeError:
                return "wrong shape"
            optimizer.step()
            return loss

        return train, (model, optimizer)

    trained_alike(build, lambda i: (torch.randn(5, 4 if i % 3 else 7),))


def test_many_steps_in_one_call():
    def build():
        model = small_model()
        optimizer = Adam(model.parameters())

        def train(x):
            for _ in range(4):
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
            return loss

        return train, (model, optimizer)

    seen = trained_alike(build, rows)
    assert (seen.breaks, seen.segments) == ([], 2)


def test_the_model_is_compiled_as_well():
    def build():
        model = small_model()
        optimizer = Adam(model.parameters())
        inner = burnish.compile(model, backend="eager")

        def train(x):
            optimizer.zero_grad()
            loss = inner(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return train, (model, optimizer)

    seen = trained_alike(build, rows)
    assert (seen.breaks, seen.segments) == ([], 2)


def test_a_batch_of_another_size_is_one_more_graph():
    def build():
        model = small_model()
        optimizer = Adam(model.parameters())

        def train(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return train, (model, optimizer)

    seen = trained_alike(build, lambda i: (torch.randn(3 if i == 4 else 5, 4),), steps=8)
    assert (seen.breaks, seen.segments) == ([], 3)


def test_a_fullgraph_step():
    model = nn.Linear(4, 1)
    optimizer = Adam(model.parameters())

    def train(x, y):
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    compiled = burnish.compile(train, backend="eager", fullgraph=True)
    for i in range(3):
        compiled(*rows(i), torch.zeros(5, 1))
    assert captured(compiled).segments == 2


def test_a_long_run_with_everything_is_compiled_four_times():
    """Accumulation over four calls, clipping, a schedule, evaluation, a checkpoint saved and loaded: one segment each
    for the first gradients and for more of them, with and without a step, the first of which makes the state."""

    def build(compiled):
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.ReLU(), nn.Linear(8, 3))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
        saved = []

        def train(x, is_last):
            loss = model(x).square().mean() / 4
            loss.backward()
            if is_last:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            return loss.detach()

        run = compiled(train)

        def step(x, i):
            if i == 16:
                saved.append(copy.deepcopy((model.state_dict(), optimizer.state_dict(), scheduler.state_dict())))
            if i == 24:
                for part, state in zip((model, optimizer, scheduler), saved.pop(), strict=True):
                    part.load_state_dict(state)
            loss = run(x, i % 4 == 3)
            if i % 10 == 9:
                model.eval()
                with torch.no_grad():
                    loss = loss + model(x).sum()
                model.train()
            return loss

        return step, (model, optimizer, scheduler)

    seen = trained_alike(build, lambda i: (*rows(i), i), steps=40)
    assert (seen.breaks, seen.given_up, seen.segments) == ([], [], 4)
