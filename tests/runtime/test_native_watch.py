"""A native watch passes while memory is unchanged, fails after a change, and returns the watched objects."""

import collections
import gc
import random
import sys
import types
import weakref

import pytest
import torch

from burnish.compiler.provide_guard_watch import new_watch
from burnish.runtime.state_watch.native_watch import (
    Unwatchable,
    argument,
    dictionary_behind,
    function_field,
    has_versions,
    hits,
    slot_offset,
)
from burnish.runtime.state_watch.tensor_guard_layout import tensor_layout
from burnish.runtime.state_watch.torch_switch_queries import ASKED, PRECISIONS, ask, switches

pytestmark = pytest.mark.skipif(new_watch() is None, reason="this Python keeps its objects in another way")


class Plain:
    kind = 1

    def __init__(self):
        self.one, self.two = 1, object()


def watching(enter, inputs=(), values=()):
    watch = new_watch()
    enter(watch)
    return watch.function([id(x) for x in inputs], [id(x) for x in values])


def test_check_returns_the_requested_objects_and_counts_its_calls():
    one, two = object(), object()
    watch = new_watch()
    watch.arguments = 2
    check = watch.function([id(one), argument(1), argument(0)], [id(two)])
    assert check(3, "x") == ((one, "x", 3), (two,))
    assert check([], one) == ((one, one, []), (two,))
    assert hits(check) == 2
    assert check(1) is None and check() is None and check(1, 2, 3) is None
    assert hits(check) == 2


def test_check_with_nothing_to_hand_out_passes():
    assert new_watch().function([], [])() == ((), ())


def test_references_to_returned_objects_are_counted():
    held, missed = Plain(), Plain()
    check = watching(lambda watch: watch.type(held), [held] * 30, [held])
    no = watching(lambda watch: watch.word(id(missed) + 8), [held])
    missed.__class__ = type("Other", (Plain,), {})
    before = sys.getrefcount(held)
    for _ in range(1000):
        assert check() is not None and no() is None
    assert sys.getrefcount(held) == before


def test_pin_is_one_object():
    one = Plain()
    watch = new_watch()
    watch.arguments = 1
    watch.pin(0, id(one))
    check = watch.function([], [])
    assert check(one) and check(Plain()) is None and check(one)


CHANGES = {
    "set": lambda d: d.__setitem__("a", 3.5),
    "new": lambda d: d.__setitem__("new", 1),
    "deleted": lambda d: d.__delitem__("b"),
    "popped": lambda d: d.pop("b"),
    "last popped": lambda d: d.popitem(),
    "updated": lambda d: d.update(a=7),
    "cleared": lambda d: d.clear(),
    "default set": lambda d: d.setdefault("c", 7),
    "merged": lambda d: d.__ior__({"a": 5}),
    "away and back": lambda d: d.__setitem__("a", d.pop("a")),
    "grown": lambda d: [d.__setitem__(k, k) for k in range(100)],
    "grown and shrunk": lambda d: [d.__setitem__(k, k) or d.pop(k) for k in range(100)],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize(
    "make",
    [
        lambda: {"a": 1, "b": 2},
        lambda: collections.OrderedDict(a=1, b=2),
        lambda: collections.defaultdict(int, a=1, b=2),
        lambda: vars(types.SimpleNamespace(a=1, b=2)),
    ],
    ids=["dict", "OrderedDict", "defaultdict", "namespace"],
)
def test_every_change_of_a_dictionary_is_seen(make, change):
    table = make()
    check = watching(lambda watch: watch.dictionary(table))
    assert check()
    table["a"] = table["a"]  # the same once more
    change(table)
    assert check() is None


@pytest.mark.parametrize("kinds", [("a", "b", "c", "d"), (1, "a", None, 2.5)], ids=["names", "keys of any kind"])
def test_a_dictionary_that_passes_holds_what_it_held(kinds):
    """Tables are emptied and filled again, so that their memory is used again."""
    seed = random.Random(0)
    passed = 0
    for _ in range(300):
        table = {key: seed.randrange(2) for key in seed.sample(kinds, seed.randrange(5))}
        held = list(table.items())
        check = watching(lambda watch, table=table: watch.dictionary(table))
        assert check()
        for _ in range(12):
            key = seed.choice(kinds)
            step = seed.randrange(5)
            if step == 0:
                table.pop(key, None)
            elif step == 1 and table:
                table.popitem()
            elif step == 2:
                table.clear()
                table.update(held if seed.randrange(2) else {})
            else:
                table[key] = seed.randrange(2)
            if check():
                assert list(table.items()) == held
                passed += 1
    assert has_versions or passed


@pytest.mark.skipif(has_versions, reason="its version is watched")
def test_a_dictionary_with_many_entries_is_not_watched():
    with pytest.raises(Unwatchable):
        new_watch().dictionary(dict.fromkeys(range(5000)))


def test_keys_live_as_long_as_the_watch():
    class Name(str):
        pass

    table = {Name("a"): 1}
    held = weakref.ref(next(iter(table)))
    check = watching(lambda watch: watch.dictionary(table))
    assert check()
    table.clear()
    assert has_versions or held() is not None
    del check
    assert held() is None


ATTRIBUTES = {
    "set": lambda x: setattr(x, "one", 5),
    "new": lambda x: setattr(x, "three", 5),
    "deleted": lambda x: delattr(x, "two"),
    "away and back": lambda x: [delattr(x, "one"), setattr(x, "one", 1)],
    "in the dictionary": lambda x: vars(x).update(one=3),
    "order": lambda x: vars(x).__setitem__("one", vars(x).pop("one")),
    "dictionary": lambda x: setattr(x, "__dict__", dict(vars(x))),
    "class": lambda x: setattr(x, "__class__", type("Other", (Plain,), {})),
    "many": lambda x: [setattr(x, f"a{k}", k) for k in range(60)],
}


@pytest.mark.parametrize("change", ATTRIBUTES.values(), ids=ATTRIBUTES)
@pytest.mark.parametrize("more", [0, 40], ids=["few attributes", "many attributes"])
def test_every_change_of_an_object_is_seen(change, more):
    one = Plain()
    for k in range(more):
        setattr(one, f"more{k}", k)
    check = watching(lambda watch: watch.dictionary(watch.members(one)))
    assert check()
    change(one)
    assert check() is None


def test_attribute_of_another_object_of_the_class_is_not_a_change():
    one, other = Plain(), Plain()
    check = watching(lambda watch: watch.dictionary(watch.members(one)))
    other.one, other.further = 5, 6
    del other.two
    assert check()


def test_class_attribute_is_seen():
    check = watching(lambda watch: watch.dictionary(dictionary_behind(vars(Plain))))
    assert check()
    Plain.kind = 2
    assert check() is None


def test_list_tuple_cell_and_slot_are_seen():
    class Slotted:
        __slots__ = ("a",)

    items, cell, slotted = [1, 2, object()], types.CellType(5), Slotted()
    slotted.a = items
    checks = [
        watching(lambda watch: watch.list_item(items, 1, items[1])),
        watching(lambda watch: watch.list_length(items)),
        watching(lambda watch: watch.cell(cell, cell.cell_contents)),
        watching(lambda watch: watch.field(slotted, slot_offset(Slotted.a), items)),
    ]
    assert all(check() for check in checks)
    items[1] = 3
    assert [bool(check()) for check in checks] == [False, True, True, True]
    items.append(1)
    cell.cell_contents = 6
    slotted.a = None
    assert not any(check() for check in checks)
    with pytest.raises(Unwatchable):
        watching(lambda watch: watch.list_item(items, 7, None))


@pytest.mark.parametrize(
    "name,value", [("__code__", (lambda: 1).__code__), ("__defaults__", (1,)), ("__kwdefaults__", {"x": 1})]
)
def test_fields_of_a_function_are_found_and_seen(name, value):
    def function():
        pass

    check = watching(lambda watch: watch.field(function, function_field(name), getattr(function, name)))
    assert check()
    setattr(function, name, value)
    assert check() is None


# -- torch -------------------------------------------------------------------------------------------------------------


def test_where_torch_keeps_tensors_is_understood():
    assert tensor_layout() is not None


def test_switches_of_torch_are_found():
    assert switches() is not None and len(switches()) == len(ASKED)


def test_each_switch_reads_as_in_python():
    for switch, (*_, query) in zip(switches(), ASKED, strict=True):
        assert query is None or ask(*switch) == query()


@pytest.mark.parametrize("said", ["tf32", "ieee"])
def test_precision_on_gpus_is_asked_for_where_torch_keeps_it(said):
    before = torch.backends.cuda.matmul.fp32_precision
    with torch.backends.__allow_nonbracketed_mutation():  # torch's own tests forbid it
        torch.backends.cuda.matmul.fp32_precision = said
        try:
            assert ask(*switches()[-1]) == PRECISIONS[said] == ASKED[-1][-1]()
        finally:
            torch.backends.cuda.matmul.fp32_precision = before


def test_description_of_a_tensor_fits_its_like_alone():
    layout = tensor_layout()
    x = torch.zeros(2, 3)
    others = [
        x.double(),
        torch.zeros(3, 2),
        torch.zeros(3, 2).t(),
        torch.zeros(2, 3, 1),
        x.to("meta"),
        x.clone().requires_grad_(),
        torch.nn.Parameter(x, requires_grad=False),
        x[:],
        x.to_sparse(),
        x.to(torch.complex64).conj(),
        torch.zeros(4, 6)[::2, ::2],
        torch.zeros(2, 3).clone().requires_grad_() * 2,
    ]
    descriptions = [layout.describe(y) for y in (x, *others)]
    assert descriptions.count(None) == 2  # sparse, and computed: of these the words do not tell all
    for i, description in enumerate(descriptions):
        watch = new_watch()
        watch.arguments = 1
        if description is not None:
            watch.tensor(argument(0), tuple(description))
            check = watch.function([], [])
            assert [check(y) is not None for y in (x, *others)] == [i == k for k in range(len(descriptions))]


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(1, 1, 1, 1, 2, 3),
        lambda: torch.zeros(2).requires_grad_() * 2,
        lambda: torch.zeros(2).requires_grad_()[:],
        lambda: torch.zeros(2).to_sparse(),
    ],
    ids=["six dimensions", "computed", "view with a history", "sparse"],
)
def test_tensors_that_words_do_not_fully_describe_are_not_described(make):
    assert tensor_layout().describe(make()) is None


# -- what may happen in the middle -------------------------------------------------------------------------------------


def test_garbage_collection_within_a_check_cannot_free_its_results():
    holder = Plain()

    class Replacing:
        def __init__(self):
            self.me = self

        def __del__(self):
            holder.two = [object() for _ in range(3)]

    def made():
        watch = new_watch()
        watch.dictionary(watch.members(holder))
        return watch.function([id(holder.two)] * 300, [])

    threshold = gc.get_threshold()
    refused = 0
    try:
        for _ in range(50):
            check = made()
            Replacing()
            gc.set_threshold(1)
            found = check()
            gc.set_threshold(*threshold)
            refused += found is None
            assert found is None or all(type(x) in (list, object) for x in found[0])
            del found
    finally:
        gc.set_threshold(*threshold)
    if sys.version_info < (3, 12):  # later ones collect between two instructions of Python
        assert refused


def test_hooks_on_saved_tensors_see_none_of_the_tensors_that_are_made_to_find_their_layout():
    seen = []
    tensor_layout.cache_clear()
    with torch.autograd.graph.saved_tensors_hooks(seen.append, lambda x: x):
        found = tensor_layout()
    assert found is not None and seen == []
