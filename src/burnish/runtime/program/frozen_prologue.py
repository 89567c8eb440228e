"""Runs the frozen prologue (packed weights) of a program once per module state, and again after the state changes.

    program = FrozenProgram(main, prologue, state=[1, 2], memory_comparer, eager)
    program(x, weight, bias)        packs weight and bias
    program(x, weight, bias)        uses the packed ones
    weight.add_(1)
    program(x, weight, bias)        packs again

A tensor is unchanged if its address, its version counter and a sample of its elements, spread over all of it, are
the same. The counter sees every write through a tensor. The sample sees writes that bypass it, such as
`weight.data -= rate * weight.grad`. An equal number in another counter says nothing: that of
`Parameter(weight.data.add_(1))` has counted other writes to the same memory. A program that is given other counters of
the same memory again and again (`functional_call(model, {"weight": weight.data})`) runs eagerly from then on.

Where the layout of torch's objects is known (`state_watch`), one native call checks a module that has been used a
few times.

One program may serve many modules, as the repeated blocks of a model. So the prologue's results are kept for each of
them, as long as its tensors are alive at the same addresses.

If the prologue returns None for some result, the chosen kernels are wrong for these numbers, such as an infinite
weight. The graph then runs eagerly for this state.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...concurrency import thread_locks
from ...tensors.device_facts import is_host
from ..state_watch.native_watch import Watch
from ..state_watch.tensor_mutation_watch import identity_reader, state_watch
from .native_kernels import NativeKernel
from .program import LinkedProgram

SAMPLES = 16
"""Elements compared in each tensor. They cost about a nanosecond each."""

WORD = 4
"""Bytes compared at each place."""


MOST_RENEWALS = 16
"""Packing the same memory again costs more than it saves."""

WATCHED_AFTER = 8
"""Calls with unchanged state before a native watch is made; this factor times more before another one is."""


class Samples:
    """Copies of words of memory. After `look()`, `found` is nonzero if one has changed."""

    def __init__(self, tensors: Sequence[torch.Tensor], memory_comparer: NativeKernel):
        places = self.places = [place for tensor in tensors for place in sampled_places(tensor)]
        count = len(places)
        self.addresses = (ctypes.c_uint64 * max(count, 1))(*places)
        self.words = (ctypes.c_uint32 * max(count, 1))(*(ctypes.c_uint32.from_address(p).value for p in places))
        self.count, self.found = ctypes.c_int64(count), ctypes.c_uint32(0)
        self.table = memory_comparer.table(
            *(ctypes.addressof(x) for x in (self.addresses, self.words, self.count, self.found))
        )
        self.look: Callable[[], None] = functools.partial(memory_comparer.launch, ctypes.addressof(self.table))


def sampled_places(tensor: torch.Tensor) -> list[int]:
    """Addresses spread over a tensor's memory."""
    if not tensor.numel() or not is_host(tensor.device):
        return []
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    words = reach * tensor.element_size() // WORD
    if words <= SAMPLES:
        return [tensor.data_ptr() + WORD * k for k in range(words)]
    # Not at even distances: those could all be in one column of a matrix.
    return [tensor.data_ptr() + WORD * ((k * words + (k * 7919) % words) // SAMPLES % words) for k in range(SAMPLES)]


@dataclass(slots=True, eq=False)
class PrologueResults:
    """The prologue's results and the state they were made from. It keeps the old tensors alive, so that their addresses
    are not reused."""

    stamp: tuple
    samples: Samples
    made: tuple | None
    """None where the graph runs eagerly."""
    state: list[torch.Tensor]
    owners: list[weakref.ref[torch.Tensor]]
    """The tensors themselves, as the caller holds them."""
    bound: tuple
    """Addresses of the results in `made` that the main program binds; then (`handed`) those that it takes as
    arguments."""
    handed: tuple
    token: object
    """Identifies what a frame has been bound to. Unlike this object, it keeps nothing alive."""
    wait: int
    calls: int = 0
    """The number of calls that found it unchanged without a watch."""
    same: Callable[..., Any] | None = None
    """Its native watch, a function of all inputs."""

    def is_current(self) -> bool:
        """Whether its tensors are alive at the same addresses."""
        tensors = [owner() for owner in self.owners]
        return all(x is not None and x.data_ptr() == old.data_ptr() for x, old in zip(tensors, self.state, strict=True))


class FrozenProgram:
    """The last inputs of `main` are the results of `prologue` for the inputs at the positions `state`."""

    takes_gradients = False

    def __init__(
        self,
        main: LinkedProgram,
        prologue: LinkedProgram,
        state: Sequence[int],
        memory_comparer: NativeKernel,
        eager: Callable[..., Any],
        new_watch: Callable[[], Watch | None] = lambda: None,
    ):
        self.main, self.prologue, self.positions, self.memory_comparer, self.eager = (
            main,
            prologue,
            state,
            memory_comparer,
            eager,
        )
        self.new_watch = new_watch
        reads = "".join(f"identity(i[{k}]), i[{k}]._version, i[{k}].data_ptr(), " for k in state)
        self.stamp_of: Callable[[tuple], tuple] = eval(f"lambda i: ({reads})", {"identity": identity_reader()})
        self.first = state[0] if state else 0  # with constants only, nothing is watched
        self.watched: dict[int, PrologueResults] = {}  # by the id of a module's first tensor
        self.takes = getattr(main, "takes", None)
        """The inputs that the main program takes, with the prologue's results last. None: all."""
        self.handed_to_main: Callable[[tuple, tuple], tuple] | None = None
        self.lock = thread_locks.lock()
        self.kept: dict[tuple, PrologueResults] = {}  # by the addresses of the tensors
        self.by_stamp: dict[tuple, PrologueResults] = {}  # the same by counter, number and address, for lookups
        self.renewals = 0  # how often only the counters were others, without a lookup that found results since
        self.served = 0  # the maximum size of `kept`: a call that raised it did extra work

    @property
    def source(self) -> str:
        return f"# once\n{self.prologue.source}\n# every call\n{self.main.source}"

    def __call__(self, *inputs: Any) -> tuple:
        return self.__burnish_call_with_tuple__(inputs)

    def __burnish_call_with_tuple__(self, inputs: tuple) -> tuple:
        """The same, as a function of the tuple of its inputs."""
        kept = self.watched.get(id(inputs[self.first])) if self.watched else None
        if kept is None or kept.same(*inputs) is None:  # type: ignore[misc]
            kept = self.looked_up(inputs)
        if kept.made is None:
            return self.eager(*inputs)
        if self.handed_to_main is None:
            return self.main(*inputs, *kept.made)
        return self.main.run_bound(kept.token, kept.bound, self.handed_to_main(inputs, kept.handed))

    def looked_up(self, inputs: tuple) -> PrologueResults:
        kept = self.by_stamp.get(self.stamp_of(inputs))
        if kept is None:
            return self.refreshed(inputs)
        kept.samples.look()
        if kept.samples.found.value:
            return self.refreshed(inputs)
        self.renewals = 0
        kept.calls += 1
        if kept.calls >= kept.wait and self.positions:
            kept.wait *= WATCHED_AFTER
            self.watch(kept, inputs)
        return kept

    def watch(self, kept: PrologueResults, inputs: tuple) -> None:
        """Make a native watch for a state that was just found unchanged. If it has changed since, it is looked up
        again."""
        owners = [inputs[k] for k in self.positions]
        kept.same = state_watch(self.new_watch(), owners, kept.samples.places, self.positions, len(inputs))
        kept.samples.look()
        if kept.same is not None and self.by_stamp.get(self.stamp_of(inputs)) is kept and not kept.samples.found.value:
            self.watched = {**self.watched, id(owners[0]): kept}

    def refreshed(self, inputs: tuple) -> PrologueResults:
        with self.lock:
            owners = [inputs[k] for k in self.positions]
            state = [x.detach() for x in owners]
            # Sampled before it is used: the next call notices changes made since.
            samples, stamp = Samples(state, self.memory_comparer), self.stamp_of(inputs)
            before = self.kept.pop(stamp[2::3], None)  # so that old and new results are not in memory together
            self.by_stamp = {}
            if before is not None and before.stamp[::3] != stamp[::3] and before.stamp[1::3] == stamp[1::3]:
                self.renewals += 1
            if self.renewals >= MOST_RENEWALS:
                return PrologueResults(stamp, samples, None, state, [], (), (), object(), WATCHED_AFTER)
            made = self.prologue(*inputs)
            count = len(inputs)
            bound = handed = ()
            if self.takes is not None:
                if all(x is not None for x in made):
                    bound = tuple([made[k - count].data_ptr() for k in self.main.binds])
                handed = tuple([made[k - count] for k in self.takes if k >= count])
                reads = "".join(f"i[{k}], " for k in self.takes if k < count)
                self.handed_to_main = eval(f"lambda i, made: ({reads}*made,)")
            kept = PrologueResults(
                stamp,
                samples,
                None if any(x is None for x in made) else made,
                state,
                [weakref.ref(x) for x in owners],
                bound,
                handed,
                object(),
                WATCHED_AFTER,
            )
            self.kept = {key: other for key, other in self.kept.items() if other.is_current()}
            self.kept[stamp[2::3]] = kept
            current = {id(other) for other in self.kept.values()}
            self.watched = {key: other for key, other in self.watched.items() if id(other) in current}
            self.by_stamp = {each.stamp: each for each in self.kept.values()}
            self.served = max(self.served, len(self.kept))
            return kept
