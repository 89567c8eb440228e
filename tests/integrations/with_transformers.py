"""transformers: its Trainer with compiled models, generation, blocks compiled in place. Random weights, no files."""

import copy

import pytest
import torch
from safetensors.torch import load_file
from torch.utils.data import Dataset
from transformers import (
    CompileConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import set_seed

import burnish
from burnish import events


def llama(layers=2):
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            bos_token_id=1,
            eos_token_id=None,
            pad_token_id=0,
        )
    ).eval()


def gpt2():
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=64,
            n_embd=32,
            n_layer=2,
            n_head=2,
            n_positions=64,
            bos_token_id=1,
            eos_token_id=2,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    )


class Texts(Dataset):
    """With a column the model does not take: the Trainer drops it by the signature of ``forward``."""

    def __len__(self):
        return 16

    def __getitem__(self, i):
        ids = torch.randint(3, 64, (8,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids, "comment": i}


def arguments(folder, **kwargs):
    options = {
        "max_steps": 4,
        "per_device_train_batch_size": 4,
        "use_cpu": True,
        "report_to": [],
        "logging_steps": 1,
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    return TrainingArguments(output_dir=str(folder), **options | kwargs)


def trained(model, tmp_path, **kwargs):
    set_seed(0)
    trainer = Trainer(model=model, args=arguments(tmp_path, **kwargs), train_dataset=Texts(), eval_dataset=Texts())
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return trainer, torch.tensor([*losses, trainer.evaluate()["eval_loss"]])


@pytest.mark.falls_back("numbers", "sizes", only=r"compile")
@pytest.mark.parametrize(
    "compile_",
    [
        burnish.compile,
        pytest.param(burnish.compile_, marks=pytest.mark.slow),
        pytest.param(burnish.compile_regions, marks=pytest.mark.slow),
    ],
    ids=["compile", "compile_", "compile_regions"],
)
def test_trainer_trains_a_compiled_model_as_an_eager_one(tmp_path, compile_):
    _, wanted = trained(gpt2(), tmp_path)
    model = compile_(gpt2())
    trainer, found = trained(model, tmp_path)
    torch.testing.assert_close(found, wanted)
    assert burnish.was_compiled(model)
    inside = trainer.accelerator.unwrap_model(model, keep_torch_compile=False)
    trainer.save_model(str(tmp_path / "saved"))
    assert not [key for key in load_file(tmp_path / "saved" / "model.safetensors") if key.startswith("_orig_mod")]
    again, loading_info = GPT2LMHeadModel.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not loading_info["missing_keys"] and not loading_info["unexpected_keys"]
    torch.testing.assert_close(again.state_dict(), inside.state_dict())


@pytest.mark.falls_back("numbers", "sizes")
def test_trainer_goes_on_from_a_checkpoint_of_a_compiled_model(tmp_path):
    whole, _ = trained(burnish.compile(gpt2()), tmp_path, save_steps=2, save_strategy="steps")
    kept = tmp_path / "checkpoint-2"
    assert not [key for key in load_file(kept / "model.safetensors") if key.startswith("_orig_mod")]
    for compile_ in (burnish.compile, lambda model: model):
        model = compile_(gpt2())
        resumed = arguments(tmp_path / "again")
        Trainer(model=model, args=resumed, train_dataset=Texts()).train(resume_from_checkpoint=str(kept))
        for parameter, wanted in zip(model.parameters(), whole.model.parameters(), strict=True):
            torch.testing.assert_close(parameter, wanted)


def test_the_compiled_module_has_the_class_of_a_model_that_saves_itself(tmp_path):
    model = gpt2()
    compiled = burnish.compile(model)
    assert isinstance(compiled, GPT2LMHeadModel) and isinstance(compiled, torch._dynamo.OptimizedModule)
    assert not isinstance(burnish.compile(torch.nn.Linear(2, 2)), torch.nn.Linear)
    compiled.save_pretrained(tmp_path)
    torch.testing.assert_close(GPT2LMHeadModel.from_pretrained(tmp_path).state_dict(), model.state_dict())
    assert (
        type(compiled) is burnish.frontend.compiled_module.CompiledModule
        and type(compiled._orig_mod) is GPT2LMHeadModel
    )


@pytest.mark.slow
def test_trainer_compiles_with_us_where_we_are_the_default(tmp_path, monkeypatch):
    _, wanted = trained(gpt2(), tmp_path)
    for name in ("BACKEND", "MODE"):
        monkeypatch.setenv(f"ACCELERATE_DYNAMO_{name}", "")  # the Trainer sets them; to be taken back
        monkeypatch.delenv(f"ACCELERATE_DYNAMO_{name}")
    with burnish.install(default=True):
        trainer, found = trained(gpt2(), tmp_path, torch_compile=True)
    torch.testing.assert_close(found, wanted)
    assert burnish.was_compiled(trainer.model_wrapped)


def test_trainer_takes_our_name_once_burnish_is_installed(tmp_path, monkeypatch):
    for name in ("BACKEND", "MODE"):
        monkeypatch.setenv(f"ACCELERATE_DYNAMO_{name}", "")
        monkeypatch.delenv(f"ACCELERATE_DYNAMO_{name}")
    with burnish.install():
        trainer = Trainer(
            model=Regression(),
            args=arguments(tmp_path, torch_compile=True, torch_compile_backend="burnish"),
            train_dataset=[{"x": torch.ones(4) * i, "labels": torch.ones(1)} for i in range(16)],
        )
        assert trainer.train().global_step == 4
    assert burnish.was_compiled(trainer.model_wrapped)


class Regression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)

    def forward(self, x, labels):
        out = self.linear(x)
        return {"loss": (out - labels).square().mean(), "logits": out}


PROMPT = torch.tensor([[1, 5, 9, 12], [1, 7, 3, 4]])


@pytest.mark.parametrize("cache", ["static", "dynamic"])
def test_generation_gives_eagers_tokens(cache):
    model = llama()
    options = {"max_new_tokens": 12, "do_sample": False, "cache_implementation": cache}
    wanted = model.generate(PROMPT, **options)
    compiled = burnish.compile(copy.deepcopy(model))
    for _ in range(2):
        assert torch.equal(compiled.generate(PROMPT, **options), wanted)
    in_place = burnish.compile_(copy.deepcopy(model))
    assert torch.equal(in_place.generate(PROMPT, **options), wanted)
    assert burnish.was_compiled(in_place)


@pytest.mark.parametrize("cache", ["static", "dynamic"])
def test_generation_with_a_compile_config_comes_to_us(cache):
    burnish.install()
    model = llama()
    wanted = model.generate(PROMPT, max_new_tokens=12, do_sample=False)
    seen = []
    stop = events.subscribe(lambda event: seen.append(event.kind))
    config = CompileConfig(backend="burnish", mode="default", fullgraph=False)
    config._compile_all_devices = True
    found = model.generate(
        PROMPT,
        max_new_tokens=12,
        do_sample=False,
        cache_implementation=cache,
        compile_config=config,
        disable_compile=False,
    )
    stop()
    assert torch.equal(found, wanted)
    assert "graph.dynamo" not in seen
    # transformers compiles for caches of one size alone.
    assert ("segment" in seen) is (cache == "static")


def test_blocks_compiled_in_place_by_the_method_of_the_module():
    burnish.install()
    model = llama(4)
    wanted = model(PROMPT).logits
    for layer in model.model.layers:
        layer.compile(backend="burnish")
    for _ in range(3):
        torch.testing.assert_close(model(PROMPT).logits, wanted)
    assert burnish.was_compiled(model.model.layers[3])


def test_regions_of_a_language_model_are_captured_once():
    with torch.no_grad():
        captured = {}
        for layers in (2, 8):
            model = llama(layers)
            wanted = model(PROMPT, use_cache=False).logits
            seen = []
            stop = events.subscribe(lambda event: seen.append(event.kind) if event.kind == "segment" else None)
            burnish.compile_regions(model)
            for _ in range(3):
                torch.testing.assert_close(model(PROMPT, use_cache=False).logits, wanted)
            stop()
            captured[layers] = len(seen)
        assert captured[2] == captured[8]
