"""Views that a program makes of outside dictionaries: what is read through them is guarded."""

import types

import pytest
import torch

import burnish

VIEWS = {
    "membership": lambda view: "a" in view,
    "an item": lambda view: view.get("a"),
    "a subscript": lambda view: view["a"] if view else None,
    "the length": len,
    "the keys": lambda view: [*view, *sorted(view)],
    "the items": lambda view: list(view.items()),
    "a copy": lambda view: (dict(view), {**view}, view.copy(), view | {"z": 1}),
    "equality": lambda view: view == {"a": 1},
}


@pytest.mark.parametrize("read", VIEWS.values(), ids=VIEWS)
def test_view_made_inside_shows_the_dictionary_of_each_call(read):
    def fn(x, table):
        return x * 2, read(types.MappingProxyType(table))

    compiled = burnish.compile(fn)
    for table in ({"a": 1}, {"a": 1}, {}, {"a": 2}, {"b": 1, "a": 3}):
        assert compiled(torch.ones(2), table)[1] == fn(torch.ones(2), table)[1]
