"""Native guards of dictionaries that a program iterates over, such as the state of an optimizer."""

import collections
import gc
import re
import weakref

import pytest
import torch

import burnish
from burnish.settings import patch

from .test_native_guards import X, first_segments, pytestmark, same, sees, watched

__all__ = ["pytestmark"]


class Part:
    def __init__(self, scale):
        self.scale = scale


TABLES = {
    "dict": dict,
    "defaultdict": lambda parts: collections.defaultdict(Part, parts),
    "OrderedDict": collections.OrderedDict,
}
CHANGES = {
    "another value": lambda table: table.update(b=Part(7.0)),
    "another attribute of a value": lambda table: setattr(table["b"], "scale", 9.0),
    "another order": lambda table: table.update(a=table.pop("a")),
    "another key": lambda table: table.update(d=table.pop("b")),
    "one more": lambda table: table.update(d=Part(11.0)),
    "one less": lambda table: table.pop("b"),
    "an exchange": lambda table: table.update(a=table["b"], b=table["a"]),
    "the end moved": lambda table: table.move_to_end("a") if hasattr(table, "move_to_end") else None,
    "nothing left": lambda table: table.clear(),
}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_dictionary_that_is_iterated_over_is_seen(kind, change):
    table = TABLES[kind]({"a": Part(2.0), "b": Part(3.0), "c": Part(5.0)})

    def run(x):
        for name, part in table.items():
            x = x * part.scale - len(name)
        for name in table:
            x = x + ord(name)
        return x

    compiled = watched(run, X)
    CHANGES[change](table)
    sees(compiled, run, X)


def test_a_watch_keeps_no_entry_of_a_dictionary_alive():
    table = {name: Part(2.0) for name in "ab"}
    compiled = watched(lambda x: [x * part.scale for part in table.values()][0] + 1, X)
    kept = [weakref.ref(part) for part in table.values()]
    table["a"] = table["b"] = Part(3.0)
    gc.collect()
    assert [part() for part in kept] == [None, None]
    with patch(check=False):
        same(compiled(X), X * 3 + 1)


@pytest.mark.parametrize("kind", ["Adam", "RMSprop"])
def test_the_states_of_an_optimizer_are_read_by_its_watch(kind):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    with patch(check=False, never_slower=False):
        compiled = burnish.compile(step, backend="eager")
        for _ in range(8):
            compiled(X)
    managers = [manager for segment in first_segments(compiled) for manager in managers_of(segment.check)]
    texts = [manager.fast.__source__ for manager in managers if manager.fast is not None]
    assert len(texts) == 1, "the first call makes the states; all others are served by one segment"
    assert not re.search(r"exp_avg|square_avg|\.values\(\)|list\(", texts[0]), texts[0]


def managers_of(check):
    """Those of the check, or of the one inside it."""
    if hasattr(check, "watch_manager"):
        yield check.watch_manager
    for cell in check.__closure__ or ():
        if hasattr(cell.cell_contents, "watch_manager"):
            yield from managers_of(cell.cell_contents)
