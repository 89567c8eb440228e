"""Loops over concatenations are split where parts meet: each element belongs to one box and one part."""

import itertools
import random

import pytest

from burnish.ops.shapes.concat_lowering import Concat, bordered, leaves, replaced_in
from burnish.schedule.fusion.split_concat_loops import IndexBox, Straddles, Uncuttable, boxes_of, part_at
from burnish.tensors.views.affine_indices import Affine, identity

JOINED = Concat(0, ((3, 10), (1, 11), (4, 12)))


def elements(box: IndexBox):
    return itertools.product(*(range(s, s + n) for s, n in zip(box.starts, box.extents, strict=True)))


def value_of(x: Affine, at):
    return x.offset + sum(c * i for c, i in zip(x.coefficients, at, strict=True))


def cut(part, index, extents, **options):
    """The boxes, and for each the part that it reads and the index within it."""
    return boxes_of(extents, lambda box: part_at(None, part, box.inside(index), box.extents), **options)


def test_box_is_cut_where_parts_meet():
    found = cut(JOINED, identity((8,)), (8,))
    assert [(box.starts, box.extents, part) for box, (part, _) in found] == [
        ((0,), (3,), 10),
        ((3,), (1,), 11),
        ((4,), (4,), 12),
    ]


def test_part_is_indexed_from_its_own_beginning():
    assert [(index[0].offset, index[0].coefficients) for _, (_, index) in cut(JOINED, identity((8,)), (8,))] == [
        (0, (1,)),
        (0, (1,)),
        (0, (1,)),
    ]


@pytest.mark.parametrize("seed", range(200))
def test_every_element_falls_into_the_part_that_holds_it(seed):
    chosen = random.Random(seed)
    lengths = [chosen.randint(1, 5) for _ in range(chosen.randint(2, 4))]
    part = Concat(0, tuple((n, k) for k, n in enumerate(lengths)))
    holder = [k for k, n in enumerate(lengths) for _ in range(n)]
    # Variables that walk the whole dimension in some mixed radix, perhaps backwards.
    outer = next((n for n in (2, 3, 4) if len(holder) % n == 0), 1)
    inner = len(holder) // outer
    x = Affine(0, (inner, 1)) if chosen.random() < 0.5 else Affine(len(holder) - 1, (-inner, -1))
    found = cut(part, (x,), (outer, inner), most=100)
    seen = [at for box, _ in found for at in elements(box)]
    assert sorted(seen) == sorted(itertools.product(range(outer), range(inner)))
    for box, (number, (inside,)) in found:
        for at in elements(box):
            place = value_of(x, at)
            assert holder[place] == number
            own = tuple(i - s for i, s in zip(at, box.starts, strict=True))
            assert value_of(inside, own) == place - sum(lengths[:number])


def test_inner_and_outer_index_undo_each_other():
    box = IndexBox((3, 0, 2), (5, 4, 6))
    index = (Affine(7, (1, 2, 3)), Affine(0, (0, -1, 4)))
    assert box.outside(box.inside(index)) == index


def test_rows_that_are_reduced_stay_whole():
    with pytest.raises(Uncuttable, match="along what is reduced"):
        cut(JOINED, identity((8,)), (8,), inner=frozenset((0,)))


def test_too_many_boxes_are_refused():
    with pytest.raises(Uncuttable, match="more than 2"):
        cut(JOINED, identity((8,)), (8,), most=2)


def test_index_across_parts_says_where_to_cut():
    with pytest.raises(Straddles) as raised:
        part_at(None, JOINED, identity((8,)), (8,))
    assert (raised.value.variable, raised.value.at) == (0, 3)


class Tensor:
    shape = (4, 6)
    ndim = 2


def test_border_goes_around_all_sides_and_none_is_none():
    assert len(list(leaves(bordered(Tensor(), [(1, 2), (0, 3)], 0)))) == 4
    assert not isinstance(bordered(Tensor(), [(0, 0), (0, 0)], 0), Concat)


def test_replaced_box_leaves_its_surroundings():
    parts = list(leaves(replaced_in(Tensor(), 5, [(1, 2), (2, 3)])))
    assert len(parts) == 5 and parts.count(5) == 1
