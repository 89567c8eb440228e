"""An image model of timm, for batches of any size."""

# %%
import timm
import torch

import burnish

torch.manual_seed(0)
model = timm.create_model("mobilenetv3_small_050", pretrained=False, num_classes=10).eval()
compiled = burnish.compile(model, dynamic=True)

# %% `dynamic=True` makes one program for all sizes from the start; without it the second size makes it.
with torch.inference_mode():
    for size in (4, 3, 7, 2):
        images = torch.randn(size, 3, 64, 64)
        torch.testing.assert_close(compiled(images), model(images), rtol=1e-3, atol=1e-4)

# %%
print(compiled.extra_repr())
assert burnish.was_compiled(compiled)
