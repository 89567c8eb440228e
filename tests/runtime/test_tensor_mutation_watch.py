"""One native call detects whether tensors were mutated."""

import ctypes
import gc

import pytest
import torch

from burnish.compiler.provide_guard_watch import new_watch
from burnish.runtime.program.frozen_prologue import sampled_places
from burnish.runtime.state_watch import tensor_mutation_watch as module
from burnish.runtime.state_watch.tensor_mutation_watch import state_layout, state_watch, words_around

pytestmark = pytest.mark.skipif(new_watch() is None, reason="watches know other Pythons")


def watch_of(*tensors):
    made = state_watch(new_watch(), tensors, [place for x in tensors for place in sampled_places(x)])
    assert made is not None
    assert made(*tensors) is not None
    return made


@pytest.fixture
def tensors():
    return torch.nn.Parameter(torch.randn(40, 30)), torch.randn(7), torch.arange(10)


def test_the_layout_is_known_on_the_torch_that_is_tested():
    assert state_layout() is not None


CHANGES = {
    "in place": lambda p: p.add_(1),
    "a part, in place": lambda p: p[3].zero_(),
    "by a view": lambda p: p.view(-1)[5:6].fill_(3),
    "all of it, past the counter": lambda p: p.data.mul_(1.5),
    "by NumPy": lambda p: p.detach().numpy().__imul__(2),
    "other data": lambda p: setattr(p, "data", torch.randn(40, 30)),
    "other memory of the same content": lambda p: setattr(p, "data", p.data.clone()),
    "a part of its memory": lambda p: setattr(p, "data", p.data[1:]),
    "set_": lambda p: p.detach().set_(torch.randn(40, 30)),
    "shared memory": lambda p: p.share_memory_(),
    "copied from a checkpoint": lambda p: p.copy_(torch.ones(40, 30)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_detected(tensors, change):
    same = watch_of(*tensors)
    with torch.no_grad():
        CHANGES[change](tensors[0])
    assert same(*tensors) is None


def test_other_objects_are_others(tensors):
    same = watch_of(*tensors)
    p, b, n = tensors
    assert same(p.detach(), b, n) is None and same(b, p, n) is None and same(p, b) is None
    assert same(p, b, n) is not None


def test_a_tensor_at_the_address_of_a_freed_one():
    x = torch.randn(16)
    same, place = watch_of(x), id(x)
    del x
    gc.collect()
    for _ in range(200):
        y = torch.randn(16)
        if id(y) == place:
            assert same(y) is None
        z = torch.randn(8)
        del y, z


def test_reverted_changes_stay_detected(tensors):
    same = watch_of(*tensors)
    with torch.no_grad():
        tensors[0].add_(1).sub_(1)
    assert same(*tensors) is None  # its counter has moved


def test_words_are_within_the_memory():
    memory = (ctypes.c_uint32 * 9)()
    start = ctypes.addressof(memory)
    reach = start, start + ctypes.sizeof(memory)
    for place in range(start, start + 36, 4):
        (word,) = words_around([place], [reach])
        assert reach[0] <= word <= place and place + 4 <= word + 8 <= reach[1]
    assert words_around([start], [(start, start + 4)]) is None
    assert words_around([start], []) is None


@pytest.mark.parametrize("count", [2, 3, 5, 15, 16])
def test_each_element_of_a_small_one_is_looked_at(count):
    for k in range(count):
        x = torch.nn.Parameter(torch.zeros(count))
        same = watch_of(x)
        x.data[k] = 1.0  # past the counter
        assert same(x) is None


def test_one_number_alone_is_not_watched():
    x = torch.zeros(1)
    assert state_watch(new_watch(), [x], sampled_places(x)) is None


def test_it_is_disabled_if_torch_lays_out_tensors_differently(tensors, monkeypatch):
    monkeypatch.setattr(module, "state_layout", lambda: None)
    assert state_watch(new_watch(), tensors, []) is None
    assert state_watch(None, tensors, []) is None
