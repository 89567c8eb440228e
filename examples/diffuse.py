"""The loop of a diffusion pipeline: the denoiser is compiled, the scheduler stays as it is."""

# %%
import torch
from diffusers import DDIMScheduler, UNet2DModel

import burnish

torch.manual_seed(0)
denoiser = UNet2DModel(
    sample_size=16, in_channels=3, out_channels=3, block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8,
    down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"),
).eval()  # fmt: skip
burnish.compile_(denoiser)
scheduler = DDIMScheduler()

# %% The time step is a tensor, and stays one: all steps run the same code.
scheduler.set_timesteps(8)
image = torch.randn(1, 3, 16, 16)
with torch.inference_mode():
    for step in scheduler.timesteps:
        image = scheduler.step(denoiser(image, step).sample, step, image).prev_sample

# %%
print(f"an image of {tuple(image.shape)}")
assert image.isfinite().all() and burnish.was_compiled(denoiser)
