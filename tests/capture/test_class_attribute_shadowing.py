"""Class attributes added later: they shadow those of base classes that were captured."""

import pytest
import torch

import burnish

X = torch.ones(2)


class Base:
    factor = 2.0

    def scaled(self):
        return 3.0

    def __add__(self, other):
        return 5.0

    @classmethod
    def made(cls):
        return 7.0


class Module(torch.nn.Module):
    factor = 2.0

    def forward(self, x):
        return x * self.factor


def shadow(name, value):
    def change(kind):
        setattr(kind, name, value)

    return change


CASES = {
    "an attribute": (lambda x, obj: x * obj.factor, shadow("factor", 11.0)),
    "a method": (lambda x, obj: x * obj.scaled(), shadow("scaled", lambda self: 11.0)),
    "an operator": (lambda x, obj: x * (obj + 1), shadow("__add__", lambda self, other: 11.0)),
    "a class method": (lambda x, obj: x * type(obj).made(), shadow("made", classmethod(lambda cls: 11.0))),
    "a property": (lambda x, obj: x * obj.scaled(), shadow("scaled", property(lambda self: lambda: 11.0))),
    "a name that no class had": (lambda x, obj: x * (11.0 if hasattr(obj, "extra") else 1.0), shadow("extra", 1)),
    "a default": (lambda x, obj: x * getattr(obj, "extra", 1.0), shadow("extra", 11.0)),
    "a way to look further": (
        lambda x, obj: x * getattr(obj, "extra", 1.0),
        shadow("__getattr__", lambda self, name: 11.0),
    ),
}


@pytest.mark.parametrize("backend", ["eager", "burnish"])
@pytest.mark.parametrize("fn, change", CASES.values(), ids=CASES)
def test_a_name_in_a_class_below_is_seen(fn, change, backend):
    class Below(Base):
        pass

    obj, compiled = Below(), burnish.compile(fn, backend=backend)
    for _ in range(4):  # long enough for its guards to be watched
        assert torch.equal(compiled(X, obj), fn(X, obj))
    change(Below)
    for _ in range(4):
        assert torch.equal(compiled(X, obj), fn(X, obj))
    assert fn(X, obj)[0] == 11


@pytest.mark.parametrize(
    "name, value", [("factor", 11.0), ("forward", lambda self, x: x * 11), ("__call__", lambda self, x: x * 11)]
)
def test_a_name_in_a_modules_class_is_seen(name, value):
    class Below(Module):
        pass

    module = Below()
    compiled = burnish.compile(lambda x: module(x))
    for _ in range(4):
        assert torch.equal(compiled(X), X * 2)
    setattr(Below, name, value)
    for _ in range(4):
        assert torch.equal(compiled(X), X * 11)
