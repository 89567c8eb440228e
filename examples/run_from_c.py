"""Ship compiled code to a program in C: a file with graph, weights and machine code, which run_from_c.c loads.

The C program holds the Python interpreter and calls it with its own memory; torch and Burnish are installed beside it,
the model's source is not. It needs a C compiler, and a Python with a shared library.
"""

# %%
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import torch

import burnish

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2)).eval()
batch = torch.export.Dim("batch", max=64)
source = Path(__file__).with_suffix(".c")

# %% What `python3-config --embed --cflags --ldflags` prints, for this Python.
include, library, version = sysconfig.get_path("include"), *sysconfig.get_config_vars("LIBDIR", "LDVERSION")
flags = [f"-I{include}", f"-L{library}", f"-Wl,-rpath,{library}", f"-lpython{version}"]

# %% `burnish inspect model.burnish` says what is in the file, without running any of it.
with tempfile.TemporaryDirectory() as folder, torch.no_grad():
    path, host = Path(folder) / "model.burnish", Path(folder) / "run_from_c"
    burnish.save(model, path, (torch.randn(4, 8),), dynamic_shapes=({0: batch},))
    subprocess.run(["cc", source, "-o", host, *flags], check=True)
    ran = subprocess.run([host, sys.executable, path], capture_output=True, text=True, check=True)
    wanted = [model(torch.full((5, 8), float(call)))[0] for call in (1, 2, 3)]

# %%
print(ran.stdout, end="")
found = torch.tensor([[*map(float, line.split())] for line in ran.stdout.splitlines()])
torch.testing.assert_close(found, torch.stack(wanted))
