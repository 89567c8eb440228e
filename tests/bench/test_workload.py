"""Workloads (forward, forward and backward, training step): the timed calls and the compared results."""

import torch
from bench.contestants import contestant_of
from bench.large import LARGE
from bench.models import FUNCTIONS, MODELS
from bench.workload import Workload, loss_of, remove_dropout
from torch import nn


class Small(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(dropout), nn.Linear(8, 2))

    def forward(self, x):
        return self.net(x)


def small(mode, dropout=0.0):
    torch.manual_seed(0)
    return Workload(Small(dropout).train(mode != "inference"), (torch.randn(6, 4),), {}, mode)


def eager_side(work, **how):
    return work.side(contestant_of("eager"), **how)


def test_inference_shares_the_model_and_training_has_its_own():
    work = small("inference")
    assert eager_side(work).fn is work.fn
    work = small("train")
    assert eager_side(work).fn is not work.fn and eager_side(work, alone=True).fn is work.fn


def test_training_leaves_a_loss_and_all_gradients():
    found = eager_side(small("train")).results()
    assert set(found) == {"loss", *(f"gradient of {name}" for name, _ in Small().named_parameters())}


def test_gradients_do_not_add_up_over_calls():
    side = eager_side(small("train"))
    first = side.results()
    side.call()
    again = side.results()
    assert all(torch.equal(part, again[name]) for name, part in first.items())


def test_function_is_trained_by_its_inputs():
    work = Workload(torch.mul, (torch.tensor([2.0]), torch.tensor([3.0])), {}, "train")
    found = eager_side(work).results()
    assert found["gradient of input 0"].item() == 2 * 6 * 3 and not work.args[0].requires_grad


def test_step_moves_the_weights_and_results_start_from_the_beginning():
    work = small("train-step")
    side = eager_side(work)
    first = side.results()
    before = work.fn.state_dict()["net.0.weight"]
    assert not torch.equal(first["weight net.0.weight"], before)
    for _ in range(3):
        side.call()
    again = side.results()
    assert first.keys() == again.keys()
    assert all(torch.equal(part, again[name]) for name, part in first.items())


def test_truth_is_in_float64_and_near_eager():
    for mode in ("inference", "train", "train-step"):
        work = small(mode)
        with work.grad_mode():
            truth, why = work.truth()
            found = eager_side(work).results()
        assert why is None and all(part.dtype == torch.float64 for part in truth.values() if part.is_floating_point())
        assert truth.keys() == found.keys()
        for name, part in truth.items():
            torch.testing.assert_close(found[name].double(), part, rtol=1e-4, atol=1e-5)
        assert all(weight.dtype == torch.float32 for weight in work.fn.parameters())


def test_gradients_jump_where_an_activation_turns():
    for activation, jumps in ((nn.ReLU(), True), (nn.Tanh(), False)):
        torch.manual_seed(0)
        work = Workload(
            nn.Sequential(nn.Linear(64, 4096), activation, nn.Linear(4096, 3)), (torch.randn(256, 64),), {}, "train"
        )
        truth, _ = work.truth()
        assert work.jumps(truth) is jumps
        other = work.shifted(3)
        assert torch.equal(other.args[0], work.args[0].roll(3, -1)) and other.fn is work.fn


def test_dropout_has_no_truth_unless_it_is_removed():
    work = small("train", dropout=0.5)
    assert work.truth() == (None, "the model draws random numbers")
    remove_dropout(work.fn)
    truth, why = work.truth()
    assert truth is not None and why is None


def test_dropout_is_removed_wherever_a_module_keeps_it():
    work = Workload.of("nanogpt", "train", times=1, dropout=False)
    assert {part.dropout for part in work.fn.modules() if hasattr(part, "dropout")} == {0.0}
    assert Workload.of("nanogpt", "train", times=1).fn.transformer.drop.p > 0


def test_loss_is_the_models_own_or_the_mean_square_of_its_results():
    logits, loss = torch.full((2, 2), 3.0), torch.tensor(7.0)
    assert loss_of((logits, loss)) is loss
    assert loss_of({"a": logits, "ids": torch.tensor([5]), "b": [logits]}).item() == 18.0


def test_breaks_are_counted():
    def broken(x):
        if x.sum() > 0:
            x = x + 1
        return x

    assert Workload(broken, (torch.ones(2),), {}, "inference").explain() == (1, 2)


def test_models_are_seeded_and_take_larger_batches():
    for name in ("mlp", "sincos"):
        (one, *_), (same, *_), (three, *_) = MODELS[name]()[1], MODELS[name]()[1], MODELS[name](times=3)[1]
        assert torch.equal(one, same) and three.shape[0] == 3 * one.shape[0]
    assert all(not isinstance(MODELS[name]()[0], nn.Module) for name in FUNCTIONS)


def test_models_for_gpus_are_the_size_they_are_named_for():
    with torch.device("meta"):
        built = {name: build(times=2) for name, build in LARGE.items()}
    counts = {name: sum(part.numel() for part in module.parameters()) for name, (module, *_) in built.items()}
    assert 1.2e9 < counts["llama_1b"] < 1.3e9 and 86e6 < counts["vit_b"] < 87e6
    assert built["gpt2_1024"][2]["input_ids"].shape == (2, 1024)
    assert not set(LARGE) & set(MODELS), "a model of this size would slow down runs of all models"


def test_weights_and_inputs_take_the_dtype():
    work = Workload.of("mlp", "train", times=1, dtype="bfloat16")
    assert {weight.dtype for weight in work.fn.parameters()} == {torch.bfloat16}
    assert work.args[0].dtype == torch.bfloat16
    truth, why = work.truth()
    assert why is None and truth["loss"].dtype == torch.float64
    assert Workload.of("bert", "inference", dtype="bfloat16").kwargs["input_ids"].dtype == torch.int64
