"""Enum members that are also numbers or strings are single objects, so what C code reads of them is constant."""

import enum
import types

import torch

import burnish

from .caller_programs import program_with_caller
from .harness import program


class Axis(enum.IntEnum):
    ROWS = 0
    COLUMNS = 1


class Mode(str, enum.Enum):
    MEAN = "mean"
    SUM = "sum"


class Parts(enum.IntFlag):
    LEFT = 1
    RIGHT = 2


class Plain(enum.Enum):
    ONE = 1
    TWO = 2


@program(breaks=0)
def test_members_are_compared_with_members_and_with_values():
    def fn(x, axis, mode):
        y = x + 1 if axis == Axis.ROWS else x - 1
        z = y * 2 if mode == "mean" else y * 3
        return z, axis == 1, axis < Axis.COLUMNS, "sum" == mode, mode != Mode.SUM

    return fn, [
        (torch.ones(3), Axis.ROWS, Mode.MEAN),
        (torch.ones(3), Axis.COLUMNS, Mode.SUM),
        (torch.ones(3), Axis.ROWS, Mode.SUM),
    ]


@program(breaks=0)
def test_members_compute_like_their_values():
    def fn(x, axis):
        return x.sum(axis) + (axis + 1), x * axis, max(axis, Axis.ROWS), bool(axis), 2 - axis

    return fn, [(torch.ones(2, 3), Axis.ROWS), (torch.ones(2, 3), Axis.COLUMNS), (torch.ones(2, 3), Axis.ROWS)]


@program(breaks=0)
def test_text_members_are_texts():
    def fn(x, mode):
        return x, mode + "!", mode.upper(), len(mode), mode.startswith("m"), f"{mode.value}"

    return fn, [(torch.ones(1), Mode.MEAN), (torch.ones(1), Mode.SUM), (torch.ones(1), Mode.MEAN)]


@program(breaks=0)
def test_flags_are_combined_and_tested():
    def fn(x, parts):
        both = parts | Parts.RIGHT
        return (x + 1 if parts & Parts.LEFT else x), both == 3, both

    return fn, [(torch.ones(1), Parts.LEFT), (torch.ones(1), Parts.RIGHT), (torch.ones(1), Parts.LEFT | Parts.RIGHT)]


@program(breaks=0)
def test_an_enum_is_iterated():
    def fn(x):
        return x + sum(member.value for member in Plain), [member.name for member in Axis]

    return fn, [(torch.ones(1),)]


@program_with_caller(breaks=0)
def test_an_attribute_of_a_member_is_set_between_calls():
    class Unit(enum.Enum):
        METRE = 1

    def fn(x, unit):
        return x * unit.scale, Unit.METRE.scale

    def caller(fn, x, scale):
        Unit.METRE.scale = scale
        return fn(x, Unit.METRE)

    return fn, caller, [(torch.ones(2), 2.0), (torch.ones(2), 3.0), (torch.ones(2), 2.0)]


@program(breaks=0)
def test_an_attribute_of_a_member_is_set_by_the_function():
    class Unit(enum.Enum):
        METRE = 1

    def fn(x):
        Unit.METRE.uses = getattr(Unit.METRE, "uses", 0) + 1
        return x * Unit.METRE.uses

    return fn, [(torch.ones(2),)] * 3


@program
def test_class_decides_what_an_unknown_value_means():
    class Level(enum.Enum):
        LOW = 1
        HIGH = 2

        @classmethod
        def _missing_(cls, value):
            asked.append(value)
            return cls.HIGH if value < 9 else None

    asked = []

    def fn(x, value):
        return x * Level(value).value

    return fn, [(torch.ones(2), value) for value in (1, 5, 5, 9, 2, 5)], asked


def test_flag_keeps_a_number_that_changes_as_a_number():
    class Bits(enum.Flag):
        A = 1
        B = 2
        C = 4

    compiled = burnish.compile(lambda x, value: (x * value, Bits(value & 7)), backend="eager")
    for value in (3, 5, 6, 7):
        assert compiled(torch.ones(2), value)[1]._value_ == value
    assert {type(value) for value in Bits._value2member_map_} == {int}
    assert {type(member._value_) for member in Bits._value2member_map_.values()} == {int}


def test_properties_of_members_that_enum_makes_are_followed():
    class Size(enum.Enum):
        SMALL = 1
        LARGE = 4

        @enum.property
        def scaled(self):
            return self.value * factor

        @types.DynamicClassAttribute
        def doubled(self):
            return self.scaled * 2

    factor = 1

    def fn(x, size):
        return x * size.scaled + size.doubled, size.name, size.value

    compiled = burnish.compile(fn, fullgraph=True, backend="eager")
    for factor in (1, 2, 3, 3, 1):
        for size in Size:
            found, *facts = compiled(torch.ones(3), size)
            expected, *expected_facts = fn(torch.ones(3), size)
            assert torch.equal(found, expected) and facts == expected_facts


def test_text_of_a_member_is_what_its_class_makes_of_it():
    class Size(enum.Enum):
        SMALL = 1

        def __str__(self):
            return f"{self.name} of {count}"

    compiled = burnish.compile(lambda x: (x + 1, f"{Size.SMALL}"), backend="eager")
    for count in (1, 2, 2, 3):  # noqa: B007
        assert compiled(torch.ones(1))[1] == f"SMALL of {count}"
