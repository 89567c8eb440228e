"""Lightning's Trainer with compiled modules: the steps are compiled, and all metrics are eager's."""

import math
import os
from unittest import mock

import pytest
import torch
from bench.contestants import contestant_of
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities.compile import from_compiled, to_uncompiled
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import burnish
from bench import tutorials
from burnish.integrations.lightning import BurnishCallback, EagerComparison

from ..recorded_events import recorded

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore:.*:lightning.fabric.utilities.rank_zero.LightningDeprecationWarning"),
]


class Kept(Logger):
    """A logger that stores its arguments."""

    name, version = "kept", 0

    def __init__(self):
        super().__init__()
        self.metrics = []

    def log_metrics(self, metrics, step=None):
        self.metrics.append((step, dict(metrics)))

    def log_hyperparams(self, params, *args, **kwargs):
        pass


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x):
        return self.net(x)

    def loss(self, batch):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("train_loss", loss, prog_bar=True, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        logits = self(batch[0])
        self.log_dict(
            {
                "val_loss": nn.functional.cross_entropy(logits, batch[1]),
                "accuracy": (logits.argmax(-1) == batch[1]).float().mean(),
            },
            prog_bar=True,
        )

    def test_step(self, batch, batch_idx):
        self.log("test_loss", self.loss(batch))

    def predict_step(self, batch, batch_idx):
        return self(batch[0]).softmax(-1)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def batches(count=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count * 4, 8, generator=generator)
    return DataLoader(TensorDataset(x, torch.randint(0, 3, (count * 4,), generator=generator)), batch_size=4)


def trainer(tmp_path, **kwargs):
    options = {
        "max_epochs": 2,
        "accelerator": "cpu",
        "devices": 1,
        "enable_checkpointing": False,
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "log_every_n_steps": 1,
        "default_root_dir": tmp_path,
    }
    return Trainer(**options | kwargs)


def both(run, kind=Model, **compile_kwargs):
    """The results of ``run(model)`` for an eager and a compiled model, with the parameters; and the graph breaks."""
    found, breaks = [], []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = kind()
        with recorded("breaks", datum="text") as there:
            answer = run(burnish.compile(model, **compile_kwargs) if compiled else model)
        breaks += there
        assert burnish.was_compiled(model) is compiled
        found.append((answer, {name: p.detach().clone() for name, p in model.named_parameters()}))
    return (*found, breaks)


def assert_same(run, kind=Model, breaks=0, **compile_kwargs):
    eager, compiled, there = both(run, kind, **compile_kwargs)
    assert_close(compiled, eager)
    assert len(there) == breaks, there
    return compiled[0]


def metrics_of_fit(tmp_path):
    def run(model):
        fitting = trainer(tmp_path)
        fitting.fit(model, batches())
        return dict(fitting.callback_metrics)

    return run


def assert_close(found, wanted):
    """Like torch.testing.assert_close, for containers with strings and None as well."""
    assert type(found) is type(wanted)
    if isinstance(wanted, dict):
        assert list(found) == list(wanted)
        found, wanted = list(found.values()), list(wanted.values())
    if isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted)
        for pair in zip(found, wanted, strict=True):
            assert_close(*pair)
    elif isinstance(wanted, (torch.Tensor, float)):
        # A float is a float32 that was passed to a logger.
        torch.testing.assert_close(torch.as_tensor(found), torch.as_tensor(wanted))
    else:
        assert found == wanted


# ---- what the Trainer does with a compiled module


def test_fit_gives_eagers_metrics_and_weights_without_a_break(tmp_path):
    def run(model):
        logger = Kept()
        fitting = trainer(tmp_path, logger=logger)
        fitting.fit(model, batches(), batches(2, seed=1))
        return dict(fitting.callback_metrics), dict(fitting.progress_bar_metrics), logger.metrics

    callback_metrics, progress_bar, logged = assert_same(run)
    assert {"train_loss", "train_loss_step", "train_loss_epoch", "val_loss", "accuracy"} <= set(callback_metrics)
    assert {"train_loss_step", "val_loss"} <= set(progress_bar) and len(logged) > 8


def test_validate_test_and_predict_give_eagers_results(tmp_path):
    def run(model):
        running = trainer(tmp_path)
        return (
            running.validate(model, batches(), verbose=False),
            running.test(model, batches(), verbose=False),
            running.predict(model, batches()),
        )

    assert_same(run)


def test_every_step_is_compiled_and_to_uncompiled_restores_them():
    model = Model()
    compiled = burnish.compile(model)
    assert from_compiled(compiled) is model
    assert model._compiler_ctx["compiler"] == "dynamo"
    for name in ("forward", "training_step", "validation_step", "test_step", "predict_step"):
        step = getattr(model, name)
        assert any(mark.startswith("_torchdynamo") for mark in dir(step)), name
        assert step.__self__ is model and step.__wrapped__ is getattr(Model, name)
        assert is_overridden(name, model) is is_overridden(name, Model()), name
    assert to_uncompiled(compiled) is model and model._compiler_ctx is None
    assert model.training_step == Model.training_step.__get__(model)
    with pytest.raises(ValueError, match="required to be a compiled LightningModule"):
        to_uncompiled(model)
    assert from_compiled(burnish.compile(model)) is model, "and again"


def test_steps_that_are_not_written_stay_not_overridden():
    class Bare(LightningModule):
        def forward(self, x):
            return x

    model = from_compiled(burnish.compile(Bare()))
    assert is_overridden("training_step", model) is False


@pytest.mark.slow
def test_torch_compile_with_our_backend_is_the_same(tmp_path):
    for default, kwargs in ((False, {"backend": "burnish"}), (True, {})):
        with burnish.install(default=default):
            model = Model()
            compiled = torch.compile(model, **kwargs)
            assert model._compiler_ctx is compiled._compiler_ctx is None
            trainer(tmp_path).fit(compiled, batches())
            assert model._compiler_ctx is compiled._compiler_ctx is not None
            assert burnish.was_compiled(model)
            to_uncompiled(compiled)
            trainer(tmp_path).fit(model, batches())


def test_strategies_that_cannot_be_compiled_for_are_refused_by_the_trainer(tmp_path):
    running = trainer(tmp_path)

    class Other(type(running.strategy).__mro__[1]):
        pass

    running.strategy.__class__ = type("Other", (type(running.strategy).__mro__[1],), {})
    with pytest.raises(RuntimeError, match="incompatible with the current strategy"):
        running.fit(burnish.compile(Model()), batches())


# ---- self.log

EVERY_ARGUMENT = {
    "a": {"prog_bar": True},
    "b": {"logger": False, "on_step": True},
    "c": {"on_step": True, "on_epoch": True, "reduce_fx": "max"},
    "d": {"on_step": False, "on_epoch": True, "reduce_fx": torch.sum},
    "e": {"enable_graph": True},
    "f": {"sync_dist": True, "add_dataloader_idx": False},
    "g": {"on_epoch": True, "batch_size": 3},
    "h": {"rank_zero_only": True, "metric_attribute": None, "sync_dist_group": None},
}


class LogsAll(Model):
    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        for i, (name, options) in enumerate(EVERY_ARGUMENT.items()):
            self.log(name, loss * i, **options)
        self.log("number", 2.5)
        self.log("count", batch_idx)
        self.log("rows", float(batch[0].shape[0]), on_epoch=True)
        return loss

    validation_step = None


def test_log_with_every_argument_reaches_everybody_with_eagers_values(tmp_path):
    seen = []

    class Watching(Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            seen.append({name: value.clone() for name, value in trainer.callback_metrics.items()})

    def run(model):
        seen.clear()
        logger = Kept()
        fitting = trainer(tmp_path, logger=logger, callbacks=[Watching()])
        fitting.fit(model, batches())
        return list(seen), dict(fitting.logged_metrics), dict(fitting.progress_bar_metrics), logger.metrics

    each_batch, *_ = assert_same(run, LogsAll)
    assert {"a", "c_step", "number", "count"} <= set(each_batch[-1]) and len(each_batch) == 8


def test_logged_values_are_those_of_their_moment(tmp_path):
    class Changes(Model):
        def training_step(self, batch, batch_idx):
            loss = self.loss(batch)
            seen = loss.detach().clone()
            self.log("before", seen)
            seen.add_(100)
            self.log("after", seen)
            return loss

    metrics = assert_same(metrics_of_fit(tmp_path), Changes)
    assert metrics["after"] - metrics["before"] > 99


def test_a_step_that_reads_logged_values_back_sees_its_own(tmp_path):
    class Reads(Model):
        def training_step(self, batch, batch_idx):
            loss = self.loss(batch)
            self.log("loss", loss)
            return loss * (1 + self.trainer.callback_metrics["loss"])

    class ReadsFirst(Model):
        def training_step(self, batch, batch_idx):
            before = self.trainer.callback_metrics.get("loss", torch.tensor(0.0))
            loss = self.loss(batch)
            self.log("loss", loss + before)
            return loss

    for kind in (Reads, ReadsFirst):
        eager, compiled, breaks = both(metrics_of_fit(tmp_path), kind)
        assert_close(compiled, eager)
        assert breaks


def what_of(text):
    """What a break says of its place, below its title."""
    return text.split("\n")[1].strip()


def test_a_metric_object_breaks_at_the_call_of_log_for_a_reason_of_its_own(tmp_path):
    metrics = pytest.importorskip("torchmetrics")

    class Seen(metrics.Metric):
        def __init__(self):
            super().__init__()
            self.add_state("total", torch.tensor(0.0))

        def update(self, value):
            self.total += value

        def compute(self):
            return self.total

    class LogsMetric(Model):
        def __init__(self):
            super().__init__()
            self.seen = Seen()

        def training_step(self, batch, batch_idx):
            loss = self.loss(batch)
            self.seen.update(loss.detach())
            self.log("seen", self.seen, on_step=True, on_epoch=True)
            self.log_dict({"loss": loss, "again": self.seen})
            return loss * 2

        validation_step = None

    eager, compiled, breaks = both(metrics_of_fit(tmp_path), LogsMetric)
    assert_close(compiled, eager)
    assert {"seen_epoch", "loss"} <= set(compiled[0])
    assert breaks and all(text.startswith("LightningModule.log of an object: Seen") for text in map(what_of, breaks))


def test_an_error_of_log_is_raised_at_its_place(tmp_path):
    class Twice(Model):
        def training_step(self, batch, batch_idx):
            loss = self.loss(batch)
            self.log("loss", loss)
            try:
                self.log("loss", loss, prog_bar=True)
            except Exception as error:
                return loss * (2 if "twice" in str(error) else 3)
            return loss

    eager, compiled, _ = both(metrics_of_fit(tmp_path), Twice)
    assert_close(compiled, eager)

    class InPredict(Model):
        def predict_step(self, batch, batch_idx):
            self.log("x", 1.0)

    with pytest.raises(Exception, match="it doesn't support logging"):
        trainer(tmp_path).predict(burnish.compile(InPredict()), batches())


@pytest.mark.slow
def test_metric_objects_are_logged_as_in_eager(tmp_path):
    from torchmetrics import MeanMetric
    from torchmetrics.classification import MulticlassAccuracy

    class Measures(Model):
        def __init__(self):
            super().__init__()
            self.mean, self.accuracy = MeanMetric(), MulticlassAccuracy(3)

        def training_step(self, batch, batch_idx):
            loss = self.loss(batch)
            self.mean(loss.detach())
            self.accuracy(self(batch[0]), batch[1])
            self.log("mean", self.mean, on_step=True, on_epoch=True)
            self.log("accuracy", self.accuracy, on_epoch=True)
            return loss

    eager, compiled, _ = both(metrics_of_fit(tmp_path), Measures)
    assert_close(compiled, eager)


@pytest.mark.parametrize("kind", ["metric", "text"])
def test_log_of_an_object_without_a_trainer_is_eagers_in_one_graph(kind):
    value = pytest.importorskip("torchmetrics").MeanMetric() if kind == "metric" else "text"

    class Logs(Model):
        def __init__(self):
            super().__init__()
            self.value = value

        def forward(self, x):
            y = self.net(x)
            self.log("value", self.value)
            return y * 2

    model, x = Logs(), torch.ones(2, 8)
    for run in (model, burnish.compile(model, fullgraph=True)):
        if kind == "metric":
            torch.testing.assert_close(run(x), model.net(x) * 2)
        else:
            with pytest.raises(ValueError, match="`str` values cannot be logged"):
                run(x)


def test_log_without_a_trainer_warns_as_in_eager():
    model = Model()
    step = burnish.compile(model.training_step)
    batch = next(iter(batches()))
    for _ in range(2):
        torch.testing.assert_close(step(batch, 0), model.loss(batch))


# ---- ways to train


@pytest.mark.parametrize(
    "options",
    [
        {"accumulate_grad_batches": 2, "gradient_clip_val": 0.1},
        {"gradient_clip_val": 0.05, "precision": "bf16-mixed"},
        *[
            pytest.param(options, marks=pytest.mark.slow)
            for options in (
                {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value", "overfit_batches": 2},
                {"precision": "64-true"},
                {"precision": "bf16-true"},
                {"limit_train_batches": 3, "val_check_interval": 1},
                {"detect_anomaly": True},
                {"inference_mode": False},
                {"barebones": True},
            )
        ],
    ],
    ids=str,
)
def test_options_of_the_trainer_change_nothing(tmp_path, options):
    def run(model):
        if options.get("barebones"):
            fitting = Trainer(max_epochs=1, accelerator="cpu", devices=1, barebones=True)
        else:
            fitting = trainer(tmp_path, **options)
        fitting.fit(model, batches(), batches(2, seed=1))
        return dict(fitting.callback_metrics)

    if "bf16" not in str(options.get("precision")):
        assert_same(run)
        return
    (eager, eager_weights), (compiled, weights), breaks = both(run)
    assert not breaks
    for name, value in eager.items():  # half precision: the two round at other places
        assert math.isclose(compiled[name], value, rel_tol=0.03, abs_tol=0.03), name
    for name, value in eager_weights.items():
        torch.testing.assert_close(weights[name], value, rtol=0.03, atol=0.03)


def test_checkpoints_have_clean_keys_and_are_loaded_by_either(tmp_path):
    model = Model()
    keep = ModelCheckpoint(dirpath=tmp_path, monitor="val_loss", save_top_k=-1, save_last=True)
    fitting = trainer(tmp_path, callbacks=[keep], enable_checkpointing=True)
    fitting.fit(burnish.compile(model), batches(), batches(2, seed=1))
    state = torch.load(keep.best_model_path, weights_only=False)["state_dict"]
    assert list(state) == list(Model().state_dict())
    loaded = Model.load_from_checkpoint(keep.last_model_path)
    torch.testing.assert_close(loaded.state_dict(), model.state_dict())
    again = Model()
    going_on = trainer(tmp_path, max_epochs=3)
    going_on.fit(
        burnish.compile(again), batches(), batches(2, seed=1), ckpt_path=keep.last_model_path, weights_only=False
    )
    assert going_on.current_epoch == 3 and burnish.was_compiled(again)


@pytest.mark.slow
def test_early_stopping_stops_where_eager_does(tmp_path):
    def run(model):
        fitting = trainer(tmp_path, max_epochs=20, callbacks=[EarlyStopping("val_loss", patience=1, min_delta=0.02)])
        fitting.fit(model, batches(), batches(2, seed=1))
        return fitting.current_epoch

    assert assert_same(run) < 20


class Manual(Model):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        loss = self.loss(batch)
        optimizer.zero_grad()
        self.manual_backward(loss)
        self.clip_gradients(optimizer, gradient_clip_val=0.1, gradient_clip_algorithm="norm")
        optimizer.step()
        self.log("loss", loss)


@pytest.mark.slow
def test_manual_optimization_trains_as_in_eager(tmp_path):
    def run(model):
        fitting = trainer(tmp_path)
        fitting.fit(model, batches())
        return dict(fitting.callback_metrics), fitting.global_step

    eager, compiled, _ = both(run, Manual)
    assert_close(compiled, eager)


# ---- our callbacks


def test_callback_compiles_the_steps_and_takes_it_back(tmp_path):
    ran = []

    class Asks(Callback):
        def on_train_batch_end(self, trainer, pl_module, *_):
            ran.append(burnish.was_compiled(pl_module))

    models = []
    for callbacks in ([], [BurnishCallback(fullgraph=True), Asks()]):
        torch.manual_seed(0)
        models.append(Model())
        trainer(tmp_path, callbacks=callbacks).fit(models[-1], batches(), batches(2, seed=1))
    assert ran and all(ran)
    torch.testing.assert_close(models[1].state_dict(), models[0].state_dict())
    assert "training_step" not in vars(models[1]) and "forward" not in vars(models[1])


@pytest.mark.slow
@mock.patch.dict(os.environ)  # where the processes find each other, for those that are started later
def test_callback_compiles_under_a_strategy_that_the_trainer_refuses(tmp_path):
    from lightning.pytorch.strategies import ModelParallelStrategy
    from torch.distributed import destroy_process_group, is_initialized

    ran = []

    class Divided(Model):
        def configure_model(self):
            assert self.device_mesh["tensor_parallel"].size() == 1

        def on_train_batch_end(self, *_):
            ran.append(burnish.was_compiled(self))

    def fitted(model, callbacks):
        strategy = ModelParallelStrategy(data_parallel_size=1, tensor_parallel_size=1, process_group_backend="gloo")
        running = trainer(tmp_path, strategy=strategy, callbacks=callbacks)
        running.fit(model, batches(), batches(2, seed=1))
        return {name: value for name, value in running.callback_metrics.items()}

    try:
        with pytest.raises(RuntimeError, match="incompatible with the current strategy"):
            fitted(burnish.compile(Divided()), [])
        found, models = [], []
        for callbacks in ([], [BurnishCallback()]):
            torch.manual_seed(0)
            models.append(Divided())
            found.append(fitted(models[-1], callbacks))
        torch.testing.assert_close(found[1], found[0])
        torch.testing.assert_close(models[1].state_dict(), models[0].state_dict())
        assert ran == [False] * 8 + [True] * 8
    finally:
        if is_initialized():
            destroy_process_group()


def test_callback_takes_it_back_after_an_error(tmp_path):
    class Fails(Model):
        def training_step(self, batch, batch_idx):
            raise ValueError("mine")

    model = Fails()
    with pytest.raises(ValueError, match="mine"):
        trainer(tmp_path, callbacks=[BurnishCallback()]).fit(model, batches())
    assert "training_step" not in vars(model)


@pytest.mark.slow
def test_comparison_times_both_and_leaves_the_training_as_it_is(tmp_path):
    said = []
    comparison = EagerComparison(block=3, skip=1, print_to=said.append)

    def run(model):
        trainer(tmp_path, max_epochs=3, callbacks=[comparison]).fit(model, batches())

    torch.manual_seed(0)
    plain, watched = Model(), Model()
    watched.load_state_dict(plain.state_dict())
    trainer(tmp_path, max_epochs=3).fit(plain, batches())
    run(burnish.compile(watched))
    torch.testing.assert_close(watched.state_dict(), plain.state_dict())
    assert set(comparison.medians) == {"eager", "compiled"} and len(comparison.seconds["eager"]) == 4
    assert "eagerly and" in said[-1]
    with pytest.raises(ValueError, match="leaves nothing"):
        EagerComparison(block=3, skip=3)


def test_the_benchmark_of_the_tutorial_has_a_time_for_each_batch():
    found = tutorials.lightning(contestant_of("eager"), "cpu", True, 3)
    assert len(found["ten"]) == len(found["later"]) == tutorials.CALLS and found["size"] is None
    assert found["first"] > 0 and min(found["ten"]) > 0
