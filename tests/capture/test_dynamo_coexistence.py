"""Burnish in a process where torch.compile has been used as well."""

from ..forked_programs import run_program

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
    run_program(CHAIN)


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


def test_functions_that_dynamo_disables_in_torch_optim_cause_no_break():
    run_program(STEP)


BREAK = """
import torch, torch._dynamo, burnish
from torch._dynamo import graph_break

def fn(x):
    y = x.sin()
    torch._dynamo.graph_break()
    y = y.cos()
    graph_break("here, please")
    return y * 2

x = torch.randn(3)
output = burnish.explain(fn)(x)
assert output.graph_break_count == 2 and "here, please" in str(output.break_reasons), output.break_reasons
compiled = burnish.compile(fn)
for _ in range(3):
    torch.testing.assert_close(compiled(x), fn(x))
"""


def test_a_break_requested_through_dynamos_name_is_one():
    run_program(BREAK)


COMPILED = """
import functools, warnings
import torch, burnish
from torch._dynamo.utils import counters

warnings.simplefilter("error")

def fn(x):
    return x.sin() * 2

class Owner:
    @torch.compile(backend="eager")
    def method(self, x):
        return fn(x)

module, x = torch.nn.Linear(3, 3), torch.randn(3)
optimized = torch.compile(fn, backend="eager")
for called, wanted in (
    (burnish.compile(optimized), fn),
    (burnish.compile(burnish.compile(torch.compile(burnish.compile(fn), backend="eager"))), fn),
    (burnish.compile(lambda x: optimized(x) + 1), lambda x: fn(x) + 1),
    (burnish.compile(functools.partial(optimized)), fn),
    (burnish.compile(Owner().method), fn),
    (burnish.compile(torch.compile(module, backend="eager")), module),
):
    for _ in range(4):
        torch.testing.assert_close(called(x), wanted(x))
    assert burnish.was_compiled(called)
assert burnish.explain(optimized)(x).graph_break_count == 0
assert not counters["frames"], "Dynamo has traced nothing"
"""


def test_results_of_torch_compile_are_compiled_from_their_original():
    run_program(COMPILED)


METHOD = """
import copy
import torch, burnish

class Scaled:
    scale = 3.0

    def run(self, x):
        return x.sin() * self.scale

first = Scaled()
first.run = burnish.compile(first.run, backend="eager")
second = copy.deepcopy(first)
second.scale = 5.0
for each in (first, second):
    outer = torch.compile(lambda x: each.run(x + 1).cos(), backend="eager", fullgraph=True)
    torch.testing.assert_close(outer(torch.ones(3)), ((torch.ones(3) + 1).sin() * each.scale).cos())
"""


def test_dynamo_follows_compiled_methods_of_an_object_and_of_its_copy():
    run_program(METHOD)
