"""diffusers: its models, blocks, schedulers and pipelines, small and with random weights. Nothing is downloaded."""

import copy
import importlib.util

import pytest
import torch

import burnish
from burnish import events

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("diffusers") is None, reason="diffusers is not installed"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

TEXT = {"encoder_hidden_states": torch.randn(2, 7, 32)}
LATENTS = torch.randn(2, 4, 16, 16)
BLOCKS = {
    "block_out_channels": (32, 64),
    "layers_per_block": 1,
    "cross_attention_dim": 32,
    "attention_head_dim": 8,
    "norm_num_groups": 8,
}


def unet():
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=16,
        in_channels=4,
        out_channels=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        **BLOCKS,
    )
    return model, {"sample": LATENTS, "timestep": torch.tensor(10), **TEXT}


def control_net():
    from diffusers import ControlNetModel

    model = ControlNetModel(
        in_channels=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        conditioning_embedding_out_channels=(16, 32),
        **BLOCKS,
    )
    hint = torch.randn(2, 3, 32, 32)
    return model, {"sample": LATENTS, "timestep": torch.tensor(10), "controlnet_cond": hint, **TEXT}


def dit():
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=16,
        in_channels=4,
        out_channels=8,
        num_layers=3,
        sample_size=8,
        patch_size=2,
        num_embeds_ada_norm=1000,
    )
    return model, {
        "hidden_states": torch.randn(2, 4, 8, 8),
        "timestep": torch.tensor([3, 3]),
        "class_labels": torch.tensor([1, 2]),
    }


def sd3():
    from diffusers import SD3Transformer2DModel

    model = SD3Transformer2DModel(
        sample_size=16,
        patch_size=2,
        in_channels=4,
        num_layers=3,
        attention_head_dim=8,
        num_attention_heads=4,
        joint_attention_dim=32,
        caption_projection_dim=32,
        pooled_projection_dim=64,
        out_channels=4,
        pos_embed_max_size=32,
    )
    return model, {
        "hidden_states": LATENTS,
        "pooled_projections": torch.randn(2, 64),
        "timestep": torch.full((2,), 3.0),
        **TEXT,
    }


def flux():
    from diffusers import FluxTransformer2DModel

    model = FluxTransformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=2,
        num_single_layers=3,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
        guidance_embeds=True,
    )
    places = torch.zeros(16, 3)
    places[:, 1], places[:, 2] = torch.arange(16) // 4, torch.arange(16) % 4
    return model, {
        "hidden_states": torch.randn(2, 16, 16),
        "pooled_projections": torch.randn(2, 32),
        "timestep": torch.full((2,), 0.5),
        "img_ids": places,
        "txt_ids": torch.zeros(7, 3),
        "guidance": torch.full((2,), 3.5),
        **TEXT,
    }


def vae():
    from diffusers import AutoencoderKL

    model = AutoencoderKL(
        block_out_channels=(16, 32),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=8,
        sample_size=16,
        shift_factor=0.1,
    )
    return model, {"sample": torch.randn(2, 3, 16, 16)}


def small(kind):
    """A model and its arguments. Zero-initialized layers, such as the last ones, would hide everything before them."""
    torch.manual_seed(0)
    model, inputs = kind()
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.normal_(std=0.05)
    return model.eval(), inputs


def door(model):
    burnish.install()
    return torch.compile(model, backend="burnish", fullgraph=True)


def repeated(model):
    burnish.install()
    model.compile_repeated_blocks(backend="burnish", fullgraph=True)
    return model


WAYS = {
    "compile": burnish.compile,
    "compile_": burnish.compile_,
    "regions": burnish.compile_regions,
    "door": door,
    "repeated": repeated,
}


@pytest.fixture
def breaks():
    """Breaks, and graphs that ran eagerly."""
    seen = []
    stop = events.subscribe(
        lambda event: seen.append(event.data["text"]) if event.kind in ("breaks", "lower.refused") else None
    )
    yield seen
    stop()


slow = pytest.mark.slow


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "kind",
    [unet, *(pytest.param(kind, marks=slow) for kind in (flux, dit, sd3, control_net, vae))],
    ids=lambda k: k.__name__,
)
def test_models_give_eagers_results_without_a_break(kind, way, breaks):
    model, inputs = small(kind)
    if way == "repeated" and not model._repeated_blocks:
        pytest.skip("diffusers names no repeated blocks of this model")
    with torch.no_grad():
        wanted, wanted_tuple = model(**inputs), model(**inputs, return_dict=False)
        compiled = WAYS[way](copy.deepcopy(model))
        for _ in range(2):
            torch.testing.assert_close(compiled(**inputs, return_dict=False), wanted_tuple)
            found = compiled(**inputs)
            assert type(found) is type(wanted)
            torch.testing.assert_close(found.to_tuple(), wanted.to_tuple())
    assert burnish.was_compiled(compiled) and not breaks


@pytest.mark.parametrize(
    "kind", [unet, pytest.param(flux, marks=slow), pytest.param(sd3, marks=slow)], ids=lambda k: k.__name__
)
@pytest.mark.parametrize("way", ["compile", pytest.param("regions", marks=slow)])
def test_gradients_are_eagers(kind, way, breaks):
    model, inputs = small(kind)
    gradients = []
    for compiled in (model, WAYS[way](copy.deepcopy(model))):
        compiled.train()
        for _ in range(2):
            compiled.zero_grad()
            compiled(**inputs, return_dict=False)[0].square().mean().backward()
        gradients.append([parameter.grad for parameter in compiled.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0])
    assert burnish.was_compiled(compiled) and not breaks


@pytest.mark.parametrize(
    "scheduler",
    [
        "EulerDiscreteScheduler",
        *(pytest.param(name, marks=slow) for name in ("DPMSolverMultistepScheduler", "PNDMScheduler")),
    ],
)
def test_a_denoising_loop_is_captured_once(scheduler, breaks):
    import diffusers

    model, inputs = small(unet)

    def denoised(model):
        schedule = getattr(diffusers, scheduler)()
        schedule.set_timesteps(5)
        x = LATENTS * schedule.init_noise_sigma
        for t in schedule.timesteps:
            noise = model(schedule.scale_model_input(x, t), t, **TEXT).sample
            x = schedule.step(noise, t, x).prev_sample
        return x

    captured = []
    stop = events.subscribe(lambda event: captured.append(event) if event.kind == "segment" else None)
    compiled = burnish.compile(copy.deepcopy(model), fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(denoised(compiled), denoised(model), rtol=1e-5, atol=1e-4)
    stop()
    assert len(captured) == 1 and not breaks and burnish.was_compiled(compiled)


def test_residuals_of_a_control_net_steer_a_unet(breaks):
    model, inputs = small(unet)
    control, hint = small(control_net)

    def steered(model, control):
        down, middle = control(**hint, conditioning_scale=0.7, return_dict=False)
        return model(**inputs, down_block_additional_residuals=down, mid_block_additional_residual=middle).sample

    with torch.no_grad():
        wanted = steered(model, control)
        assert not torch.allclose(wanted, model(**inputs).sample)
        compiled = burnish.compile(copy.deepcopy(model)), burnish.compile(copy.deepcopy(control))
        for _ in range(2):
            torch.testing.assert_close(steered(*compiled), wanted)
    assert all(map(burnish.was_compiled, compiled)) and not breaks


def test_another_attention_processor_is_guarded(breaks):
    from diffusers.models.attention_processor import AttnProcessor

    class Louder(AttnProcessor):
        def __call__(self, *args, **kwargs):
            return 2 * super().__call__(*args, **kwargs)

    model, inputs = small(unet)
    compiled = burnish.compile(model)
    with torch.no_grad():
        before = compiled(**inputs).sample
        model.set_attn_processor(Louder())
        wanted = copy.deepcopy(model)(**inputs).sample
        assert not torch.allclose(before, wanted)
        for _ in range(2):
            torch.testing.assert_close(compiled(**inputs).sample, wanted)
    assert burnish.was_compiled(compiled) and not breaks


def image_of(pipeline, **inputs):
    pipeline.set_progress_bar_config(disable=True)
    seeded = torch.Generator().manual_seed(0)
    return torch.from_numpy(pipeline(num_inference_steps=3, generator=seeded, output_type="np", **inputs).images)


def stable_diffusion():
    from diffusers import EulerDiscreteScheduler, StableDiffusionPipeline

    pipeline = StableDiffusionPipeline(
        vae=small(vae)[0],
        text_encoder=None,
        tokenizer=None,
        unet=small(unet)[0],
        safety_checker=None,
        scheduler=EulerDiscreteScheduler(steps_offset=1),
        feature_extractor=None,
        requires_safety_checker=False,
    )
    prompts = {"prompt_embeds": TEXT["encoder_hidden_states"][:1], "negative_prompt_embeds": torch.zeros(1, 7, 32)}
    return pipeline, "unet", {"height": 32, "width": 32, **prompts}


def diffusion_transformer():
    from diffusers import DDIMScheduler, DiTPipeline

    return DiTPipeline(small(dit)[0], small(vae)[0], DDIMScheduler()), "transformer", {"class_labels": [1, 2]}


def flux_text_to_image():
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline

    pipeline = FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=small(vae)[0],
        text_encoder=None,
        tokenizer=None,
        text_encoder_2=None,
        tokenizer_2=None,
        transformer=small(flux)[0],
    )
    prompts = {"prompt_embeds": TEXT["encoder_hidden_states"][:1], "pooled_prompt_embeds": torch.randn(1, 32)}
    return pipeline, "transformer", {"height": 32, "width": 32, **prompts}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "make", [stable_diffusion, diffusion_transformer, flux_text_to_image], ids=lambda make: make.__name__
)
def test_pipelines_give_eagers_images(make, way, breaks):
    pipeline, part, inputs = make()
    model = getattr(pipeline, part)
    if way == "repeated" and not model._repeated_blocks:
        pytest.skip("diffusers names no repeated blocks of this model")
    wanted = image_of(pipeline, **inputs)
    assert 0 < wanted.std()
    setattr(pipeline, part, WAYS[way](model))
    pipeline.vae.decode = burnish.compile(pipeline.vae.decode, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(image_of(pipeline, **inputs), wanted, rtol=1e-4, atol=1e-4)
    assert burnish.was_compiled(getattr(pipeline, part)) and burnish.was_compiled(pipeline.vae.decode) and not breaks
