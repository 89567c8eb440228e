"""In a process where torch.compile has been at work as well."""

import subprocess
import sys

CHAIN = """
import torch, burnish

class Chain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = layer(x)
        return x

model, x = Chain(), torch.randn(2, 4)
torch.compile(model, backend="eager")(x)
output = burnish.explain(model)(x)
assert output.graph_break_count == 0, output.break_reasons
"""


def test_modules_made_in_forward_are_no_break():
    subprocess.run([sys.executable, "-c", CHAIN], check=True)


STEP = """
import torch, burnish

model = torch.nn.Linear(4, 4)
torch.compile(model, backend="eager")(torch.randn(2, 4))

for make in (torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop):
    optimizer = make(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        model(x).pow(2).sum().backward()
        optimizer.step()

    output = burnish.explain(step)(torch.randn(2, 4))
    assert output.graph_break_count == 0, (make, output.break_reasons)

@torch.compiler.disable(reason="the user's own wish")
def kept_out(x):
    return x + 1

output = burnish.explain(lambda x: kept_out(x) * 2)(torch.randn(2, 4))
assert output.graph_break_count == 1, output
"""


def test_what_dynamo_disables_in_torch_optim_is_no_break():
    subprocess.run([sys.executable, "-c", STEP], check=True)
