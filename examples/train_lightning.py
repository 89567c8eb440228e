"""Train with Lightning: a training and a validation step, the last batch smaller than the others."""

# %%
import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

import burnish


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.log("accuracy", (self.net(x).argmax(-1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


# %%
lightning.seed_everything(0, verbose=False)
x = torch.randn(500, 16)
y = x[:, :4].argmax(-1)
batches = DataLoader(TensorDataset(x, y), batch_size=64)
model = burnish.compile(Classifier())
trainer = lightning.Trainer(
    max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
)
trainer.fit(model, batches, batches)

# %%
print(f"accuracy {trainer.callback_metrics['accuracy']:.2f}")
assert trainer.callback_metrics["accuracy"] > 0.6
