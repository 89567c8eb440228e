"""``torch.vmap`` over objects that have parts of their own: one graph, with the effects of the code that has them."""

import warnings

import pytest
import torch
from torch.func import grad, vmap
from torch.utils import _pytree as pytree

import burnish
from burnish import events

TAKEN = []


class Pair:
    def __init__(self, x, scale):
        self.x, self.scale = x, scale


def parts_of(pair):
    TAKEN.append("apart")
    return [pair.x], pair.scale


def made_of(parts, scale):
    TAKEN.append("together")
    return Pair(parts[0], scale)


pytree.register_pytree_node(Pair, parts_of, made_of)


def shown(value):
    if isinstance(value, Pair):
        return "Pair", shown(value.x), value.scale
    if isinstance(value, torch.Tensor):
        return value.tolist(), value.stride(), value.dtype, value.requires_grad
    return [*map(shown, value)] if isinstance(value, (list, tuple)) else value


def outcome(function, scale, rows):
    TAKEN.clear()
    torch.manual_seed(rows)
    try:
        found = shown(function(Pair(torch.arange(2.0 * rows).view(rows, 2), scale)))
    except Exception as error:
        found = type(error), str(error)
    return found, [*TAKEN], torch._C._functorch.get_dynamic_layer_stack_depth()


def nested(pair):
    return vmap(lambda row: vmap(lambda r: r.x * row.x.sum() * row.scale)(Pair(torch.ones(3), 1)))(pair)


IN_ONE_GRAPH = {
    "a tensor": lambda pair: vmap(lambda row: row.x * row.scale)(pair),
    "an object": lambda pair: vmap(lambda row: [Pair(row.x, 7), row.x.sum()])(pair),
    "another size in front": lambda pair: vmap(lambda row: row.x * row.scale, in_dims=-1, out_dims=1)(pair),
    "not batched": lambda pair: vmap(lambda row, y: row.x.sum() + y, in_dims=(None, 0))(pair, torch.ones(2)),
    "a result that is not batched": lambda pair: vmap(lambda row: (row.x, torch.ones(2)), out_dims=(0, None))(pair),
    "chunks": lambda pair: vmap(lambda row: row.x + row.scale, chunk_size=2)(pair),
    "gradients": lambda pair: vmap(lambda row: grad(lambda x: (x * x * row.scale).sum())(row.x))(pair),
    "in a gradient": lambda pair: grad(lambda x: vmap(lambda row: row.x.sin())(Pair(x, 1)).sum())(pair.x),
    "nested": nested,
}


@pytest.mark.parametrize("name", IN_ONE_GRAPH)
def test_objects_are_taken_apart_in_the_graph(name):
    compiled = burnish.compile(IN_ONE_GRAPH[name], fullgraph=True)
    for scale, rows in ((1, 3), (1, 3), (2, 3), (2, 4)):
        assert outcome(compiled, scale, rows) == outcome(IN_ONE_GRAPH[name], scale, rows)


def with_break(pair):
    return vmap(lambda row: (burnish.graph_break(), row.x + row.scale)[1])(pair)


LEFT_EARLY = {
    "a break": with_break,
    "a break in a gradient": lambda pair: grad(lambda x: with_break(Pair(x, 1)).sum())(pair.x),
    "an error": lambda pair: vmap(lambda row: row.missing)(pair),
    "sizes that differ": lambda pair: vmap(lambda row, y: row.x + y)(pair, torch.ones(7)),
    "no tensor": lambda pair: vmap(lambda row: 3)(pair),
    "a change of what is not its own": lambda pair: (vmap(lambda row: row.x.add_(1))(pair), pair.x),
}


@pytest.mark.parametrize("name", LEFT_EARLY)
def test_what_leaves_early_leaves_no_level(name):
    compiled = burnish.compile(LEFT_EARLY[name])
    for scale in (1, 1, 2):
        assert outcome(compiled, scale, 3) == outcome(LEFT_EARLY[name], scale, 3)


def test_nothing_is_compiled_anew_for_the_same_parts():
    compiled = burnish.compile(IN_ONE_GRAPH["a tensor"])
    segments = []
    stop = events.subscribe(segments.append, ["segment"])
    for _ in range(4):
        outcome(compiled, 2, 3)
    stop()
    assert len(segments) == 1


def warns_deeply(level):
    warnings.warn("deep", DeprecationWarning, stacklevel=level)


def warned(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = function(Pair(torch.ones(3, 2), 1))
    return shown(found), [(str(one.message), one.category, one.filename, one.lineno) for one in caught]


@pytest.mark.parametrize("level, is_one_graph", [(1, True), (2, True), (3, False)])
def test_warnings_appear_once_and_about_their_line(level, is_one_graph):
    """Three calls up is torch's code, which has no frame here."""

    def fn(pair):
        warnings.warn("before")
        y = vmap(lambda row: (warnings.warn("in"), warns_deeply(level), row.x * 2)[2])(pair)
        warnings.warn("after")
        return y

    compiled = burnish.compile(fn, fullgraph=is_one_graph)
    for _ in range(3):
        assert warned(compiled) == warned(fn)


def test_warnings_before_a_break_appear_once():
    def fn(pair):
        return vmap(lambda row: (warnings.warn("in"), burnish.graph_break(), row.x)[2])(pair)

    compiled = burnish.compile(fn)
    for _ in range(3):
        assert warned(compiled) == warned(fn)
