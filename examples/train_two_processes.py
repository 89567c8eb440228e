"""Train on two processes with DistributedDataParallel: the model inside is compiled, gradients are shared as usual."""

# %%
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.nn.parallel import DistributedDataParallel

import burnish


def train(rank: int, store: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = burnish.compile(DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh())))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)  # each process has its own data
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
    weight = next(model.parameters()).detach()
    other = weight.clone()
    dist.broadcast(other, src=0)
    assert torch.equal(weight, other), "both processes have the same weights"
    if rank == 0:
        print("both processes have the same weights")
    dist.destroy_process_group()


# %%
if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(train, (os.path.join(folder, "store"),), nprocs=2)
