"""Generate text with weights of 8 bits: each token reads a quarter of the bytes."""

# %%
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import burnish

torch.manual_seed(0)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=200, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=None,
    )
).eval()  # fmt: skip

# %% Quantize, then compile in place: `generate` calls the model itself.
burnish.quantize_(model, "int8")
burnish.compile_(model)
prompt = torch.randint(2, 200, (1, 12))
with torch.inference_mode():
    tokens = model.generate(prompt, max_new_tokens=24, do_sample=False, cache_implementation="static")

# %%
print(tokens[0, 12:].tolist())
assert tokens.shape == (1, 36) and burnish.was_compiled(model)
