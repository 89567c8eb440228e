"""Memory planning for symbolic sizes: buffers share slots, in the same way for all sizes.

    slots = share_slots([plan for 64, plan for 65, ...], space)
    slots.sizes                     [768*4*s0, 12*4*s0*s0, ...]   in bytes
    plan.offsets[value]             the start of its slot for that plan's sizes; slots follow one another

A value takes over a free slot whose formula is at least as large for all sizes. Values do not share an output's buffer
as they may with static sizes (`liveness`): which of them fit would depend on the sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir import fuel
from ...tensors.fit_size_formulas import Formula, Space, StructureDiffers, slot_starts
from ..plan_steps import Plan
from .liveness import lies_in_arena, liveness_of


@dataclass(frozen=True, slots=True)
class Slots:
    sizes: tuple[int | Formula, ...]
    starts: tuple[tuple[int, ...], ...]
    """The start of each slot, for each of the plans."""


def share_slots(plans: Sequence[Plan], space: Space) -> Slots:
    """Gives the values of all plans their offsets."""
    found = [liveness_of(plan) for plan in plans]
    for liveness in found:  # values on a GPU are allocated when they are needed
        liveness.ranges = [live for live in liveness.ranges if lies_in_arena(live.value)]
    if len({len(liveness.ranges) for liveness in found}) > 1:
        raise StructureDiffers("other values need memory for other sizes")
    ranges = list(zip(*(liveness.ranges for liveness in found), strict=True))
    if any(len({(s.first, s.last, len(s.inside)) for s in same}) > 1 for same in ranges):
        raise StructureDiffers("values live otherwise for other sizes")
    sizes: list[int | Formula] = []
    taken: dict[int, int] = {}
    """The last step at which each slot is in use."""
    places: list[int] = []
    for same in ranges:
        size = space.fit([live.value.type.bytes for live in same])
        slot = next((k for k, until in taken.items() if until < same[0].first and holds(sizes[k], size)), None)
        if slot is None or not fuel.allows("share_slots", same[0].value.node, "in slot", slot):
            slot = len(sizes)
            sizes.append(size)
        taken[slot] = same[0].last
        places.append(slot)
    starts: list[tuple[int, ...]] = []
    for plan, point, liveness in zip(plans, space.points, found, strict=True):
        begin = slot_starts([size if isinstance(size, int) else size.at(point) for size in sizes])
        for same, slot in zip(ranges, places, strict=True):
            live = same[len(starts)]
            plan.offsets[live.value] = begin[slot]
            plan.offsets.update((part, begin[slot] + offset) for part, offset in live.inside.items())
        plan.offsets.update(
            (value, plan.offsets[root]) for value, root in liveness.in_place.items() if root in plan.offsets
        )
        plan.arena = begin[-1]
        starts.append(tuple(begin))
    return Slots(tuple(sizes), tuple(starts))


def holds(slot: int | Formula, size: int | Formula) -> bool:
    """Whether the slot is at least as large for all sizes. No size is negative."""
    if slot == size:
        return True
    if isinstance(slot, int):
        return isinstance(size, int) and size <= slot
    if isinstance(size, int):
        return False
    terms = {powers: factor for factor, powers in slot.terms}
    for factor, powers in size.terms:
        terms[powers] = terms.get(powers, 0) - factor
    return all(factor >= 0 for factor in terms.values())
