"""Fine-tune a classifier with the Trainer of Transformers."""

# %% A model and data. Use `from_pretrained` and your data set here.
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import burnish

torch.manual_seed(0)
config = BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
model = BertForSequenceClassification(config)
labels = torch.arange(64) % 2
texts = torch.randint(4, 100, (64, 16)) // (1 + labels[:, None])
data = [{"input_ids": text, "labels": label} for text, label in zip(texts, labels, strict=True)]

# %% The model is compiled in place, so that the Trainer saves ordinary checkpoints.
burnish.compile_(model)
with tempfile.TemporaryDirectory() as folder:
    asked = TrainingArguments(
        folder, num_train_epochs=6, per_device_train_batch_size=16, learning_rate=1e-3, use_cpu=True, report_to=[],
        save_strategy="no", logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    result = Trainer(model, asked, train_dataset=data).train()

# %%
print(f"loss {result.training_loss:.3f}, compiled: {burnish.was_compiled(model)}")
assert burnish.was_compiled(model) and result.training_loss < 0.69
