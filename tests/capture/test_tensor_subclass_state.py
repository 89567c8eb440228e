"""Tensor subclasses: attributes that vary from call to call, facts that rules compute, rules of `torch.library`."""

import itertools
import warnings

import pytest
import torch
from torch.masked import masked_tensor

import burnish

from .harness import program

COUNT = itertools.count()


class Counted(torch.Tensor):
    """Carries a number from operand to result."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(out, cls) and isinstance(args[0], cls) and hasattr(args[0], "number"):
            out.number = args[0].number + 1
        return out


def test_attributes_of_results_are_plain_numbers():
    compiled = burnish.compile(lambda x: x * 2 + 1, backend="eager", fullgraph=True)
    for number in range(4):
        x = torch.randn(3).as_subclass(Counted)
        x.number = number
        found = compiled(x).number
        assert type(found) is int and found == number + 2


@program
def test_wrapper_whose_rules_compute_its_layout():
    def fn(data, mask):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return (masked_tensor(data, mask) * 2).sum().get_data()

    return fn, [(torch.randn(4), torch.tensor([True, False, True, True])) for _ in range(3)]


class Held(torch.Tensor):
    """Has a rule of its own for no operator."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


def test_rule_that_a_library_registers_for_a_class():
    @torch.library.custom_op(f"subclass_state::twice{next(COUNT)}", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    class Other(Held):
        pass

    compiled = burnish.compile(lambda x: twice(x) + 1, backend="eager")
    twice.register_torch_dispatch(Held, lambda mode, func, types, args, kwargs: func(args[0].inner) * 10)
    for kind in (Held, Held, Other):
        inner = torch.randn(3)
        if kind is Other:
            twice.register_torch_dispatch(Other, lambda mode, func, types, args, kwargs: args[0].inner)
        factor = 20 if kind is Held else 1
        torch.testing.assert_close(compiled(kind(inner)), inner * factor + 1)
    assert burnish.was_compiled(compiled)


class Scaled(torch.Tensor):
    """Its rule for every function assigns to a property."""

    @property
    def scale(self):
        return self.__dict__.get("_scale", 1.0)

    @scale.setter
    def scale(self, value):
        self._scale = value * 2

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(out, cls) and isinstance(args[0], cls):
            out.scale = args[0].scale
        return out


def test_setter_of_a_property_of_a_subclass_is_interpreted():
    def set_scale(x, value):
        x.scale = value
        return x * 2

    compiled = burnish.compile(set_scale, backend="eager", fullgraph=True)
    for value in (1.5, 1.5, 3.0, "ab"):
        x, y = (torch.arange(3.0).as_subclass(Scaled) for _ in range(2))
        found, expected = compiled(x, value), set_scale(y, value)
        assert (x.scale, found.scale) == (y.scale, expected.scale) == (value * 2, value * 4)
        assert found.tolist() == expected.tolist()
    assert burnish.was_compiled(compiled)


class Slotted(torch.Tensor):
    __slots__ = ("mark",)


class Noted(torch.Tensor):
    notes = []

    def __setattr__(self, name, value):
        self.notes.append(name)
        super().__setattr__(name, value)


class OwnProperty(property):
    def __set__(self, obj, value):
        Noted.notes.append("own")
        super().__set__(obj, value)


class Described(torch.Tensor):
    @OwnProperty
    def mark(self):
        return self.kept

    @mark.setter
    def mark(self, value):
        self.kept = value


def test_assignments_to_a_subclass_by_its_own_rules():
    def mark(x, value):
        x.mark = value
        return x.mark

    for cls in (Slotted, Noted, Described):
        compiled = burnish.compile(mark, backend="eager")
        for value in range(4):
            x, y = (torch.ones(2).as_subclass(cls) for _ in range(2))
            notes = []
            for function, given in ((mark, x), (compiled, y)):
                Noted.notes.clear()
                assert function(given, value) == given.mark == value
                notes.append([*Noted.notes])
            assert notes[0] == notes[1]


def test_a_slot_of_a_subclass_is_read_each_time():
    compiled = burnish.compile(lambda x: (x * 2, x.mark), backend="eager")
    for value in range(4):
        x = torch.ones(2).as_subclass(Slotted)
        x.mark = value
        assert compiled(x)[1] == value


def test_a_subclass_is_made_to_require_gradients():
    def require(x):
        x.requires_grad = True
        return torch.ones(2)

    compiled = burnish.compile(require, backend="eager")
    for _ in range(4):
        x = torch.ones(2).as_subclass(Scaled)
        compiled(x)
        assert x.requires_grad


def test_a_sparse_result_that_cannot_take_on_the_class_is_the_programs_error():
    compiled = burnish.compile(lambda x: x.to_sparse(), backend="eager")
    for _ in range(2):
        with pytest.raises(NotImplementedError, match="storage"):
            compiled(torch.ones(2, 2).as_subclass(Slotted))
