"""Detect tensor mutation with one native call: compare address, version counter and sampled elements.

    same = state_watch(new_watch(), tensors, samples)        None where torch's layout of tensors is not known
    same(*tensors)                                           None where one of them has changed

A tensor is unchanged if it is the same object, with the same implementation, storage, offset and memory. Its version
counter and sampled words of memory have to be the same too. They are compared in that order, so nothing is read that
earlier comparisons do not keep alive. `None` need not mean a change: the caller then runs the slower check.

As in `tensor_guard_layout`, offsets are found by trial.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.weak import WeakIdRef

from ...concurrency.first_value_cache import once
from ...concurrency.outside_errors import reraise_from_outside
from ...foundation.torch_private import DisableTorchFunctionSubclass
from ...settings import current
from .native_watch import Unwatchable, Watch
from .tensor_guard_layout import LONGEST, WORD, tensor_layout, word_behind, words_at

STORAGE = 8
"""Words of a storage that are searched for the address of its memory."""

COUNTER = 3
"""Words of a version counter."""

COUNTED = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class StateLayout:
    """Offsets in words."""

    implementation: int
    storage: int
    offset: int
    counter: int
    """These are in the implementation: the storage, the offset into it and the version counter."""
    memory: tuple[int, ...]
    """In a storage."""
    version: int
    """In a version counter."""


def state_watch(
    watch: Watch | None,
    tensors: Sequence[torch.Tensor],
    places: Sequence[int],
    positions: Sequence[int] | None = None,
    arguments: int | None = None,
) -> Callable[..., Any] | None:
    """`places`: addresses of elements that must not change. The watch takes the tensors as its arguments, or
    `arguments` arguments with the tensors at `positions`."""
    layout = state_layout()
    if watch is None or layout is None:
        return None
    watch.arguments = len(tensors) if arguments is None else arguments
    for k, x in zip(range(len(tensors)) if positions is None else positions, tensors, strict=True):
        watch.pin(k, id(x))
        at, storage = x._cdata, x.untyped_storage()._cdata
        if watch.word(id(x) + WORD * layout.implementation) != at or watch.word(at + WORD * layout.storage) != storage:
            return None
        watch.word(at + WORD * layout.offset)
        counter = watch.word(at + WORD * layout.counter)
        for word in layout.memory:
            watch.word(storage + WORD * word)
        if watch.word(counter + WORD * layout.version) & COUNTED != x._version:
            return None
    words = words_around(places, [reach_of(x) for x in tensors])
    if words is None:
        return None
    for word in words:
        watch.word(word)
    try:
        return watch.function([], [], takes_tuple=True)
    except (Unwatchable, RuntimeError) as error:
        reraise_from_outside(error)
        return None


def identity_reader() -> Callable[[torch.Tensor], Hashable]:
    """Gives a key for a tensor's version counter. No other live counter has the same key. Where torch's
    layout is not known, and without native guards, the key is a weak reference to the tensor itself."""
    layout = state_layout() if current().native_guards else None
    if layout is None:
        return WeakIdRef
    implementation, counter = WORD * layout.implementation, layout.counter
    return lambda x: word_behind(id(x) + implementation, counter)


def reach_of(x: torch.Tensor) -> tuple[int, int]:
    storage = x.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def words_around(places: Sequence[int], reaches: Sequence[tuple[int, int]]) -> list[int] | None:
    """Whole words that contain these places and nothing outside the storages. None where a storage is smaller than a
    word, or a place is in none."""
    found: dict[int, None] = {}
    for place in places:
        start, end = next((reach for reach in reaches if reach[0] <= place < reach[1]), (0, 0))
        if end - start < WORD:
            return None
        word = place & -WORD
        found[word if start <= word and word + WORD <= end else min(max(place - WORD // 2, start), end - WORD)] = None
    return list(found)


@once
def state_layout() -> StateLayout | None:
    layout = tensor_layout()
    if layout is None:
        return None
    try:
        with DisableTorchFunctionSubclass(), torch.inference_mode(False):
            return _found(layout.implementation, layout.rank)
    except (ValueError, AttributeError, RuntimeError) as error:
        reraise_from_outside(error)
        return None


def _found(implementation: int, rank: int) -> StateLayout:
    """The fields for shared data precede the sizes; flags follow. Memory beside some flags is uninitialized."""
    x, y = torch.zeros(61, dtype=torch.float32, device="cpu"), torch.zeros(61, dtype=torch.float32, device="cpu")
    view, alias = x[17:19], x.detach()
    words, others, of_view, of_alias = (words_at(z._cdata, LONGEST) for z in (x, y, view, alias))
    (storage,) = (k for k, word in enumerate(words) if word == x.untyped_storage()._cdata)
    (offset,) = (k for k, word in enumerate(of_view) if word == 17 and words[k] == 0 == others[k])
    (counter,) = (
        k
        for k, word in enumerate(words[:rank])
        if word not in (0, others[k]) and k != storage and word == of_view[k] == of_alias[k]
    )
    memory = tuple(k for k, word in enumerate(words_at(words[storage], STORAGE)) if word == x.data_ptr())
    before = words_at(words[counter], COUNTER)
    x.add_(1)
    view.add_(1)
    after = words_at(words[counter], COUNTER)
    (version,) = (k for k in range(COUNTER) if before[k] != after[k])
    if (
        not memory
        or after[version] - before[version] != 2
        or after[version] & COUNTED != x._version
        or words_at(others[counter], COUNTER)[version] & COUNTED != y._version
    ):
        raise ValueError("where the version is counted is not known")
    return StateLayout(implementation, storage, offset, counter, memory, version)
