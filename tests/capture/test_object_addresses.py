"""Hashes and texts of objects, which follow from their addresses."""

import weakref

import torch

import burnish

from .call_sequences import ordinary
from .harness import program


class Sentinel:
    """An object without contents."""


class Named:
    """Its class is renamed between calls."""


NAMED = Named()


@program
def test_text_of_an_object_follows_the_names_of_its_class():
    def fn(x, name):
        return x + 1, repr(NAMED), f"{NAMED}"

    def renamed(name):
        Named.__qualname__ = Named.__module__ = name
        return name

    return fn, lambda i: (torch.ones(2), renamed("abca"[i % 4]))


@program
def test_hash_of_an_object_does_not_keep_it_with_its_address():
    def fn(x):
        made = Sentinel()
        reference, same = weakref.ref(made), (hash(made) == hash(made), id(made) == id(made), repr(made) is None)
        del made
        return x + 1, reference() is None, same

    return fn, ordinary


def test_texts_of_new_objects_as_keys_leave_the_rest_compiled():
    kept, runs = [], []

    def backend(module, inputs):
        return lambda *args: runs.append(module) or module(*args)

    def fn(x, given):
        y = torch.sin(x) + 1
        return y, {repr(given): 1, hash(given): 2}

    compiled = burnish.compile(fn, backend=backend)
    for _ in range(12):
        kept.append(Sentinel())
        assert compiled(torch.ones(2), kept[-1])[1] == {repr(kept[-1]): 1, hash(kept[-1]): 2}
    assert len(runs) >= 11


class Overriding:
    def __hash__(self):
        return object.__hash__(self)

    def __repr__(self):
        return "of " + super().__repr__()

    def __format__(self, spec):
        return "as " + object.__format__(self, spec)

    def __eq__(self, other):
        return object.__eq__(self, other) is True

    def __ne__(self, other):
        return super().__ne__(other) is True


ONE, TWO, LAYER = Overriding(), Overriding(), torch.nn.Linear(2, 2)


@program
def test_methods_of_object_that_a_class_overrides():
    def fn(x, other):
        texts = repr(ONE), str(ONE), f"{ONE}", object.__str__(ONE), object.__repr__(LAYER)
        return x + 1, texts, hash(ONE), {ONE: 1}[ONE], ONE == other, ONE != other, object.__eq__(LAYER, other)

    return fn, [(torch.ones(2), other) for other in (ONE, TWO, ONE, LAYER)]


def test_text_of_a_function_follows_its_address():
    def fn(x, given):
        def made():
            return given

        return x + 1, repr(given), made, f"{made}"

    compiled, kept = burnish.compile(fn, backend="eager"), []
    for _ in range(3):
        kept.append(lambda: 1)
        _, text, made, told = compiled(torch.ones(2), kept[-1])
        kept.append(made)
        assert (text, told) == (repr(kept[-2]), repr(made))


def test_what_is_computed_from_the_address_of_a_made_object_is_decided_in_each_run():
    kept = []

    def fn(x):
        made = Sentinel()
        return x + 1, made, (hash(made) & 3) == 0, (id(made) >> 6) % 2 == 0

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(20):
        _, made, *facts = compiled(torch.ones(2))
        kept.append(made)
        assert facts == [(hash(made) & 3) == 0, (id(made) >> 6) % 2 == 0]
