"""A Python that is newer than all that capture knows: one warning, and everything runs eagerly."""

from ..forked_programs import run_program

PROGRAM = """
import sys, warnings, torch

class Version(tuple):
    major, minor, micro, releaselevel, serial = 3, 99, 0, "final", 0

sys.version_info = Version((3, 99, 0, "final", 0))
import burnish

def fn(x):
    return x.sin() + 1

model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()) for _ in range(3)))
x = torch.ones(2, 2)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    compiled = burnish.compile(fn)
    decorated = burnish.compile(backend="eager", fullgraph=True)(fn)
    for _ in range(3):
        assert torch.equal(compiled(x), fn(x)) and torch.equal(decorated(x), fn(x))
        expected = model(x)
        assert torch.equal(burnish.compile(model)(x), expected)
        assert torch.equal(burnish.compile_regions(model)(x), expected)
        assert torch.equal(burnish.compile_(model)(x), expected)
print(*(str(each.message) for each in caught if "burnish" in str(each.message)), sep="\\n")
try:
    burnish.explain(fn)(x)
except burnish.UserError as error:
    print(error)
"""


def test_an_unknown_python_runs_everything_eagerly():
    found = run_program(PROGRAM)
    known = "this is Python 3.99, and capture knows the bytecode of Python 3.11 to 3.14."
    assert found.stdout.splitlines() == [
        f"burnish: {known} Nothing is compiled: functions and modules run as plain Python.",
        known,
    ]
