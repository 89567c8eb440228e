"""Sentence embeddings as sentence-transformers makes them: the mean over the words that are there, of length one.

With that library, compile the encoder of a model in place: `burnish.compile_(model[0].auto_model)`.
"""

# %%
import torch
from transformers import BertConfig, BertModel

import burnish

torch.manual_seed(0)
config = BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
encoder = BertModel(config, add_pooling_layer=False).eval()


def embed(words, mask):
    states = encoder(input_ids=words, attention_mask=mask).last_hidden_state
    mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return torch.nn.functional.normalize(mean, dim=-1)


# %% Texts have all lengths: sizes that change are sizes of one program.
compiled = burnish.compile(embed, dynamic=True)
with torch.inference_mode():
    for count, length in ((4, 9), (4, 14), (2, 11), (7, 5)):
        words = torch.randint(1, 100, (count, length))
        mask = (torch.arange(length) < torch.randint(2, length + 1, (count, 1))).long()
        torch.testing.assert_close(compiled(words, mask), embed(words, mask), rtol=1e-4, atol=1e-5)
print("4 batches embedded")
assert burnish.was_compiled(compiled)
