"""In a process where torch.compile has been at work as well."""

import subprocess
import sys

PROGRAM = """
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
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
