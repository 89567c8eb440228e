"""Ship compiled code: one process writes a file, another runs it without the model's source.

A host in C embeds Python the same way: `PyRun_SimpleString("import burnish; run = burnish.load('model.burnish')")`.
"""

# %%
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import burnish

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2)).eval()
batch = torch.export.Dim("batch", max=64)

HOST = """
import sys, torch, burnish
run, x = burnish.load(sys.argv[1]), torch.ones(5, 8)
print(run(x).sum().item())
"""

# %% `burnish inspect model.burnish` says what is in the file, without running any of it.
with tempfile.TemporaryDirectory() as folder, torch.no_grad():
    path = Path(folder) / "model.burnish"
    burnish.save(model, path, (torch.randn(4, 8),), dynamic_shapes=({0: batch},))
    ran = subprocess.run([sys.executable, "-c", HOST, path], capture_output=True, text=True, check=True)
    wanted = model(torch.ones(5, 8)).sum().item()

# %%
print(f"{float(ran.stdout):.4f} in the other process, {wanted:.4f} here")
assert abs(float(ran.stdout) - wanted) < 1e-4
