"""Identity: which objects are the same, in results, arguments, aliases, singletons and small values."""

import decimal
import weakref

import pytest
import torch

import burnish

from ..recorded_events import recorded
from .call_sequences import Before, ordinary, swing, swinging
from .caller_programs import program_with_caller
from .harness import program


class Sentinel:
    """Marks a missing argument."""


MISSING = Sentinel()


@program
def test_argument_returned_is_the_argument():
    kept = []

    def fn(x):
        kept.append(x)
        return x, kept[-1] is x, x.view_as(x) is x

    return fn, ordinary


@program(breaks=0)
def test_no_op_methods_that_return_the_same_tensor():
    def fn(x):
        same = x.contiguous() is x, x.float() is x, x.to(torch.float32) is x, x.add_(0) is x
        return x * 2, same, (x + 0) is x, x.detach() is x

    return fn, lambda i: (torch.randn(2),)


@program
def test_result_is_the_tensor_an_outside_list_holds():
    held, same = [], []

    def fn(x):
        y = x * 2
        held.append(y)
        return [y, held[-1]]

    def write():
        held[-1].zero_()
        same.append(held[-1].sum())

    return fn, [(torch.randn(2),)] + [(torch.randn(2), Before(write)) for _ in range(2)], held, same


@program
def test_one_tensor_twice_in_the_result():
    def fn(x):
        y = x + 1
        out = [y, y, {"y": y}]
        return out, out[0] is out[2]["y"]

    return fn, ordinary


@program
def test_results_of_two_calls_are_different_objects():
    results = []

    def fn(x):
        y = x * 2
        results.append(y)
        return y, len({id(r) for r in results})

    x = torch.ones(2)
    return fn, [(x,), (x,), (x,)], results


@program
def test_fresh_list_is_fresh_in_every_call():
    made = []

    def fn(x):
        items = [1, 2]
        made.append(items)
        items.append(x)
        return items, sum(m is items for m in made)

    return fn, ordinary, made


@program
def test_same_tensor_for_two_parameters():
    def fn(x, y):
        x += 1
        return x + y, x is y

    a, b = torch.zeros(2), torch.zeros(2)
    return fn, [(a, b), (a, a), (b, a), (b, b), (a, b)], a, b


@program
def test_view_of_one_argument_passed_as_the_other():
    def fn(x, y):
        x.mul_(2)
        return x.sum() + y.sum(), y

    base = torch.arange(4.0)
    return fn, [(base, torch.ones(2)), (base, base[:2]), (base, base[2:]), (base, torch.ones(2))], base


@program
def test_sentinel_default():
    def fn(x, scale=MISSING):
        if scale is MISSING:
            return x
        return x * (scale if scale is not None else 0)

    return fn, [(torch.randn(2),), (torch.randn(2), 3), (torch.randn(2), None), (torch.randn(2),)]


@program
def test_none_true_and_ellipsis_are_themselves():
    def fn(x, flag):
        index = (Ellipsis, 0)
        return x[index], flag is None, flag is True, (flag is not None) is True, x[...] is x, NotImplemented is flag

    return fn, [(torch.randn(2, 2), f) for f in (None, True, 1, None)]


@program
def test_method_objects_differ_but_are_equal():
    class Layer:
        def forward(self, x):
            return x + 1

    layer = Layer()

    def fn(x):
        a, b = layer.forward, layer.forward
        return a(x), a is b, a == b, a.__func__ is b.__func__, layer.forward.__self__ is layer

    return fn, ordinary


@program
def test_object_identity_survives_containers():
    class Node:
        pass

    def fn(x):
        a, b = Node(), Node()
        a.x, b.x = x, x * 2
        nodes = {id(n): n for n in (a, b)}
        return nodes[id(a)] is a, [a, b].index(b), a in [b], a == b, nodes[id(b)].x

    return fn, ordinary


@program
def test_argument_object_replaced_by_an_equal_one():
    class Config:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return isinstance(other, Config) and self.n == other.n

        __hash__ = None

    held = Config(1)

    def fn(x, config):
        return x * config.n, config == held, config is held

    return fn, [(torch.randn(2), config) for config in (held, Config(1), Config(2), held)]


@program
def test_list_argument_replaced_by_another_with_other_contents():
    def fn(x, items):
        return x * items[0] + len(items)

    return fn, [(torch.randn(2), items) for items in ([1], [1, 2], (1,), [3], [1])]


@program
def test_identity_of_a_tensor_stored_in_an_object():
    class Module:
        last = None

    m = Module()

    def fn(x):
        same = m.last is x
        m.last = x
        return x * 2, same

    a, b = torch.randn(2), torch.randn(2)
    return fn, [(a,), (a,), (b,), (a,), (a,)]


@program
def test_alias_made_inside_sees_the_in_place_write():
    def fn(x):
        a = b = x * 1
        c = a
        a += 1
        d = a[1:]
        d *= 2
        return b, c is a, d

    return fn, ordinary


@program
def test_alias_of_an_argument_across_a_break():
    def fn(x):
        y = x
        z = x[1:]
        if x.sum() > 0:
            y += 1
        z.mul_(2)
        return x, y is x, z

    return fn, swinging


@program
def test_identity_of_an_outside_object_swapped_between_calls():
    class Layer:
        def __init__(self, by):
            self.by = by

    one, two = Layer(1), Layer(2)
    box = {"active": one}

    def fn(x):
        return x * box["active"].by, box["active"] is one

    x = torch.randn(2)
    return fn, [
        (x,),
        (x, Before(lambda: box.update(active=two))),
        (x, Before(lambda: box.update(active=one))),
        (x, Before(lambda: setattr(one, "by", 7))),
    ]


@program
def test_returned_closure_and_object_share_their_tensor():
    made, seen = [], []

    def fn(x):
        y = x * 2
        box = {"y": y}
        made.append((box, lambda: box["y"]))
        return y

    def use():
        box, read = made[-1]
        read().add_(100)
        box["other"] = 1
        seen.append((box["y"], read() is box["y"]))

    return fn, [(torch.randn(2),)] + [(torch.randn(2), Before(use)) for _ in range(3)], seen


@program
def test_result_tensor_of_an_earlier_call_is_passed_back_in():
    held = []

    def fn(x):
        y = x + (held[-1] if held else 0)
        held.append(y)
        if len(held) > 1:
            held[-2].zero_()
        return y

    return fn, lambda i: (swing(i),), held


@program_with_caller(breaks=0)
def test_addresses_are_keys_and_results():
    def fn(x, modules):
        y = x + 1
        seen, out = {id(x), id(None)}, y
        for module in modules:
            if id(module) in seen:
                out = out * 3
            seen.add(id(module))
            out = module(out)
        table = {id(y): "y", id(modules): "modules", id(x): "x"}
        names = [table[id(value)] for value in (x, y, modules)]
        return (
            x,
            y,
            out,
            modules,
            (id(x), id(y), list(table), id(y) == id(x), id(x) != id(x + 0), id(fn) == id(fn), names),
        )

    def caller(fn, x, modules):
        x, y, out, modules, (first, second, keys, *facts) = fn(x, modules)
        return out, first == id(x), second == id(y), keys == [id(y), id(modules), id(x)], facts

    one, two = torch.nn.Linear(2, 2), torch.nn.ReLU()
    return fn, caller, [(torch.randn(2), list(m)) for m in ((one, two), (one, one), (two, one), (one, two), (two, two))]


def test_addresses_of_new_arguments_do_not_compile_again():
    compiled = burnish.compile(lambda x: ({id(x): x + 1}[id(x)], id(x)), backend="eager", fullgraph=True)
    with recorded("segment") as made:
        for _ in range(12):
            x = torch.randn(2)
            result, address = compiled(x)
            assert torch.equal(result, x + 1) and address == id(x)
    assert len(made) == 1


@program_with_caller
def test_addresses_in_containers_from_outside():
    seen, numbers, table, pairs = set(), [], {}, set()

    def fn(x, keep):
        y = x * 2
        is_known = id(x) in seen, id(x) in numbers, table.get(id(x), "none")
        seen.add(id(x))
        numbers.append(id(x))
        table[id(x)] = len(table)
        pairs.add((id(keep), 1))
        if id(keep) in seen:
            y = y + 100
        return y, is_known

    def caller(fn, x, keep):
        held.append((x, keep))
        y, is_known = fn(x, keep)
        return y, is_known, id(x) in seen, numbers[-1] == id(x), table[id(x)], (id(keep), 1) in pairs, len(pairs)

    held, a, b = [], torch.ones(2), torch.zeros(2)
    return fn, caller, [(a, b), (b, a), (torch.randn(2), a), (a, torch.randn(2)), (torch.randn(2), torch.randn(2))]


@program
def test_addresses_of_made_objects_that_cannot_be_known():
    table = {}

    def fn(x):
        y = x + 1
        first = id(y) in table
        table[id(y)] = 1
        table.clear()
        return y, first, id(y) % 1 == 0, isinstance(hash(id(y)), int), (id(y) < 0)

    return fn, ordinary


@program(breaks=0)
def test_objects_compared_with_numbers_and_strings():
    """Neither knows the other's type as equal, so the answer is that they are not the same object."""

    def fn(x, given):
        return x + 1 if given == 3 or "a" == given or given != MISSING and MISSING == 5.0 else x - 1, given != None  # noqa: E711

    return fn, lambda i: (torch.randn(2), [MISSING, Sentinel(), 3, "a", Sentinel()][i])


def test_hash_and_text_of_an_object_follow_its_address():
    def fn(x, given, other):
        made = Sentinel()
        texts = repr(made), str(given), f"{made!r} {given}"
        same = hash(made) == hash(made), hash(given) == hash(other), hash(made) == hash(given), hash(made) == 5
        return x + 1, made, texts, hash(made), hash(given), same

    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    for is_same in (True, True, False, True):
        given = Sentinel()
        _, made, texts, *hashes, same = compiled(torch.ones(2), given, given if is_same else Sentinel())
        assert texts == (repr(made), repr(given), f"{made!r} {given!r}")
        assert hashes == [hash(made), hash(given)]
        assert same == (True, is_same, False, False)


@program
def test_an_address_does_not_keep_its_object():
    def fn(x, function):
        made = Sentinel()
        reference, told = weakref.ref(made), function(made)
        del made
        return x + 1, reference() is None, type(told)

    return fn, [(torch.ones(2), function) for function in (id, id, hash, hash, repr, repr)]


@pytest.mark.parametrize(
    "make",
    [lambda: slice(0, 2), lambda: torch.Size([2, 3]), lambda: decimal.Decimal("1.5")],
    ids=["slice", "size", "decimal"],
)
@pytest.mark.parametrize("first", ["one", "two"])
def test_equal_values_are_the_objects_they_are(make, first):
    def fn(x, held, b):
        return x + 1, held[0] is b, held[0], b

    compiled = burnish.compile(fn, backend="eager")
    for count in ("one", "two", "one") if first == "one" else ("two", "one", "two"):
        a = make()
        b = a if count == "one" else make()
        result = compiled(torch.zeros(2), [a], b)
        assert result[1] is (a is b) and result[2] is a and result[3] is b
