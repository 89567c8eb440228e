"""A force field: forces are minus the gradient of the energy, and training takes gradients of those."""

# %%
import torch

import burnish

torch.manual_seed(0)
pairs = torch.combinations(torch.arange(6))


class Energy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.SiLU(), torch.nn.Linear(32, 1))

    def forward(self, positions):
        difference = positions[pairs[:, 0]] - positions[pairs[:, 1]]
        return self.net((difference.square().sum(-1, keepdim=True) + 1e-6).sqrt()).sum()


energy = Energy()
forces_of = torch.func.grad(lambda positions, parameters: -torch.func.functional_call(energy, parameters, (positions,)))


# %% One function holds both gradients, and one graph.
@burnish.compile
def loss_of(positions, wanted):
    forces = forces_of(positions, dict(energy.named_parameters()))
    return (forces - wanted).square().mean()


def wanted_forces(positions):
    """Springs of length one."""
    difference = positions[:, None] - positions[None]
    distance = (difference.square().sum(-1, keepdim=True) + 1e-6).sqrt()
    return (difference * (1 - distance) / distance).sum(1)


# %%
optimizer = torch.optim.Adam(energy.parameters(), lr=1e-2)
losses = []
for _ in range(60):
    positions = torch.randn(6, 3)
    loss = loss_of(positions, wanted_forces(positions))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"loss {sum(losses[:10]) / 10:.2f} -> {sum(losses[-10:]) / 10:.2f}")
assert burnish.was_compiled(loss_of) and sum(losses[-10:]) < sum(losses[:10])
