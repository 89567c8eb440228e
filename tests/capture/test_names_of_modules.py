"""What the program's functions and classes say about their module is not a reason to trust them."""

import torch

import burnish

SOURCE = """
class Base:
    def scale(self, x):
        return x + 1

class Derived(Base):
    def scale(self, x):
        return super().scale(x) * 2

def fn(x):
    return Derived().scale(x)
"""


def test_classes_without_a_module_may_change():
    namespace: dict = {}
    exec(SOURCE, namespace)
    x, compiled = torch.ones(2), burnish.compile(namespace["fn"], backend="eager")
    for change in (lambda self, x: x - 1, lambda self, x: x * 5):
        assert torch.equal(compiled(x), namespace["fn"](x))
        namespace["Base"].scale = change
    assert torch.equal(compiled(x), x * 10)


def test_name_of_a_module_is_read_again():
    def named(x):
        return x

    def fn(x):
        return named(x) + 1, named.__module__

    compiled = burnish.compile(fn, backend="eager")
    for name in ("torch.nn", None, "builtins", "torch", "mine"):
        named.__module__ = name
        assert compiled(torch.ones(2))[1] == name
