"""The option `release_weights`: packed weights replace the module's own in memory, and nothing else changes."""

import copy
import ctypes
import mmap
import weakref

import pytest
import torch

import burnish
from burnish.runtime.program import frozen_prologue, release_weights
from burnish.settings import patch

from ..recorded_events import recorded

SIZE = 512


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with patch(cache_dir=tmp_path):
        yield tmp_path


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(SIZE, SIZE), torch.nn.ReLU(), torch.nn.Linear(SIZE, SIZE)).eval()


def called(model, x, calls=4, mode=torch.no_grad):
    compiled = burnish.compile(model, options={"release_weights": True})
    with mode():
        for _ in range(calls):
            found = compiled(x)
    assert burnish.was_compiled(compiled)
    return compiled, found


def bytes_in_memory(x):
    """How much of a tensor's memory is in the process's, by the kernel."""
    begin = x.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
    with open("/proc/self/smaps") as file:
        inside = False
        for line in file:
            if "-" in (head := line.split()[0]) and not head.endswith(":"):
                start, end = (int(part, 16) for part in head.split("-"))
                inside = start <= begin < end
            elif inside and line.startswith("Rss:"):
                return int(line.split()[1]) << 10
    raise AssertionError("not mapped")


def is_released(x):
    return x.data_ptr() % mmap.PAGESIZE == 0 and bytes_in_memory(x) < x.nbytes


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_packed_weights_leave_memory_and_come_back_when_read(mode):
    model, x = net(), torch.randn(64, SIZE)
    twin = copy.deepcopy(model)
    _, found = called(model, x, mode=mode)
    weight = model[0].weight
    assert is_released(weight)
    with torch.no_grad():
        torch.testing.assert_close(found, twin(x))
        assert torch.equal(weight, twin[0].weight) and bytes_in_memory(weight) >= weight.nbytes
        assert torch.equal(model(x), twin(x))
    assert model.state_dict().keys() == twin.state_dict().keys()


def test_tensors_stay_the_same_objects_with_their_properties():
    model = net()
    weight = model[0].weight
    version, properties = weight._version, (weight.shape, weight.stride(), weight.dtype, weight.requires_grad)
    called(model, torch.randn(64, SIZE))
    assert model[0].weight is weight and is_released(weight) and weight._version == version
    assert (weight.shape, weight.stride(), weight.dtype, weight.requires_grad) == properties and weight.is_leaf


@pytest.mark.parametrize("change", ["in place", "by data", "loaded", "replaced"])
def test_changed_weights_are_packed_again(change):
    model, x = net(), torch.randn(64, SIZE)
    compiled, _ = called(model, x)
    with torch.no_grad():
        if change == "in place":
            model[0].weight.mul_(2)
        elif change == "by data":
            model[0].weight.data *= 2
        elif change == "loaded":
            model.load_state_dict({name: value * 2 for name, value in model.state_dict().items()})
        else:
            model[0].weight = torch.nn.Parameter(model[0].weight * 2)
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x))


def test_the_function_is_compiled_once():
    with recorded("segment") as made:
        compiled, _ = called(net(), torch.randn(64, SIZE), calls=12)
    assert len(made) == 1


@pytest.mark.parametrize("holder", ["view", "numpy", "detached", "tied", "storage"])
def test_memory_that_something_else_refers_to_stays(holder):
    model, x = net(), torch.randn(64, SIZE)
    weight = model[0].weight
    if holder == "tied":
        model[2].weight = torch.nn.Parameter(weight.detach())
    held = {
        "view": lambda: weight.detach()[3],
        "numpy": lambda: weight.detach().numpy(),
        "detached": lambda: weight.detach(),
        "tied": lambda: model[2].weight,
        "storage": lambda: weight.untyped_storage(),
    }[holder]()
    place = weight.data_ptr()
    compiled, _ = called(model, x)
    assert weight.data_ptr() == place
    with torch.no_grad():
        held.fill_(0) if holder == "storage" else held.fill(0) if holder == "numpy" else held.zero_()
        assert not weight[3].any()
        torch.testing.assert_close(compiled(x), model(x))


def test_weights_that_compiled_code_reads_itself_stay():
    torch.manual_seed(0)
    table = torch.nn.Embedding(4096, 64).eval()
    place = table.weight.data_ptr()
    called(lambda i: table(i) + 1, torch.arange(50))
    assert table.weight.data_ptr() == place


def test_nothing_is_released_without_the_option():
    model, x = net(), torch.randn(64, SIZE)
    place = model[0].weight.data_ptr()
    compiled = burnish.compile(model)
    with torch.no_grad():
        for _ in range(4):
            compiled(x)
    assert model[0].weight.data_ptr() == place


def test_a_released_weight_can_be_trained_and_copied():
    model, x = net(), torch.randn(64, SIZE)
    twin = copy.deepcopy(model)
    compiled, _ = called(model, x)
    assert is_released(model[0].weight)
    for each in (model, twin):
        optimizer = torch.optim.SGD(each.parameters(), 0.1)
        each(x).square().mean().backward()
        optimizer.step()
    assert torch.equal(copy.deepcopy(model)[0].weight, twin[0].weight)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), twin(x))


def test_former_memory_is_freed_after_some_calls(monkeypatch):
    """Another thread may be reading it in the call that releases it."""
    seen = []
    release = frozen_prologue.release

    def noted(*args):
        former = release(*args)
        seen.extend(weakref.ref(storage) for storage in former)
        return former

    monkeypatch.setattr(frozen_prologue, "release", noted)
    model, x = net(), torch.randn(64, SIZE)
    compiled, _ = called(model, x, calls=3)
    assert len(seen) == 2 and all(ref() is not None for ref in seen)
    with torch.no_grad():
        for _ in range(frozen_prologue.WATCHED_AFTER):
            compiled(x)
    assert all(ref() is None for ref in seen)


def test_a_full_disk_is_no_error(monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(release_weights.tempfile, "TemporaryFile", full)
    model, x = net(), torch.randn(64, SIZE)
    place = model[0].weight.data_ptr()
    with pytest.warns(UserWarning, match="release_weights has no effect: .* No space left"):
        _, found = called(model, x)
    assert model[0].weight.data_ptr() == place
    with torch.no_grad():
        torch.testing.assert_close(found, model(x))


def test_writes_do_not_reach_the_file(folder):
    first, second = torch.zeros(SIZE, SIZE), torch.ones(SIZE, SIZE)
    release_weights.release([first, second], folder)
    first.fill_(3)
    assert torch.equal(second, torch.ones(SIZE, SIZE)) and not any(folder.iterdir())
    assert ctypes.c_float.from_address(first.data_ptr()).value == 3
