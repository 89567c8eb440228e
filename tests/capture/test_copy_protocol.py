"""Copies: shallow and deep, of containers and objects, of tensors, with hooks."""

import copy
import dataclasses
import pickle

import torch

import burnish

from .call_sequences import Before, ordinary, swinging
from .harness import program


class Layer:
    """An object with a tensor and a list."""

    def __init__(self, weight, tags):
        self.weight, self.tags = weight, tags


@program
def test_shallow_copy_shares_its_parts():
    def fn(x):
        layer = Layer(x, ["a"])
        other = copy.copy(layer)
        other.tags.append("b")
        other.weight = x * 2
        return layer.weight, layer.tags, other.weight, layer.tags is other.tags

    return fn, ordinary


@program
def test_deep_copy_shares_nothing():
    def fn(x):
        layer = Layer(x, ["a", [1]])
        other = copy.deepcopy(layer)
        other.tags[1].append(2)
        other.weight.add_(1)
        return layer.weight, layer.tags, other.weight, other.tags

    return fn, ordinary


@program
def test_deep_copy_keeps_shared_parts_shared():
    def fn(x):
        pair = [x, x, [x]]
        a, b, (c,) = copy.deepcopy(pair)
        a.mul_(2)
        return a is b, b is c, b, x

    return fn, ordinary


@program
def test_deep_copy_of_an_outside_object_that_changes():
    template = Layer(torch.ones(2), [1.0])

    def fn(x):
        layer = copy.deepcopy(template)
        layer.weight.mul_(x.shape[0])
        layer.tags.append(5.0)
        return x * layer.weight * sum(layer.tags)

    return (
        fn,
        [
            (torch.randn(2),),
            (torch.randn(2), Before(lambda: template.tags.append(2.0))),
            (torch.randn(2), Before(lambda: template.weight.fill_(3.0))),
        ],
        template,
    )


@program(breaks=0)
def test_copies_of_containers():
    def fn(x, items, table):
        a, b, c = items.copy(), items[:], list(items)
        a.append(x)
        b[0] = x + 1
        d = table.copy()
        d["x"] = x
        return a, b, c, d, dict(table), items is c

    return fn, lambda i: (torch.randn(2), [1, 2], {"k": i % 2})


@program
def test_copy_hooks_of_a_class():
    log = []

    class Counted:
        def __init__(self, x):
            self.x = x

        def __copy__(self):
            log.append("copy")
            return Counted(self.x + 1)

        def __deepcopy__(self, memo):
            log.append("deepcopy")
            return Counted(copy.deepcopy(self.x, memo) * 2)

    def fn(x):
        c = Counted(x)
        return copy.copy(c).x, copy.deepcopy([c])[0].x

    return fn, ordinary, log


@program
def test_deep_copy_of_a_cycle():
    def fn(x):
        ring = [x]
        ring.append(ring)
        other = copy.deepcopy(ring)
        return other[0] + 1, other[1] is other, other[1] is ring

    return fn, ordinary


@program
def test_state_hooks_of_a_class():
    class Model:
        def __init__(self, x):
            self.x, self.cache = x, {"big": 1}

        def __getstate__(self):
            return {"x": self.x}

        def __setstate__(self, state):
            self.__dict__.update(state, cache={})

    def fn(x):
        m = copy.copy(Model(x))
        return m.x * 2, m.cache

    return fn, ordinary


@program
def test_copy_of_a_tensor_is_independent_under_breaks():
    def fn(x):
        y = copy.copy(x)
        z = copy.deepcopy(x)
        z += 1
        if z.sum() > 0:
            y = y * 2
        return y, z, x

    return fn, swinging


@program
def test_copy_of_immutable_values_is_the_value():
    def fn(x, value):
        return x * 2, copy.copy(value) is value, copy.deepcopy(value) is value

    return fn, [(torch.randn(2), v) for v in (1, "a", (1, 2), ([1],), None, 1)]


@program
def test_snapshot_of_parameters_before_an_update():
    params = {"w": torch.ones(4), "b": torch.zeros(4)}

    def fn(x):
        before = {k: v.clone() for k, v in params.items()}
        params["w"].add_(x)
        params["b"] = params["b"] - x
        return before, [params[k] - before[k] for k in before]

    return fn, ordinary, params


@program(breaks=0)
def test_deep_copies_of_plain_structures_break_nothing():
    config = {"sizes": [1, 2, [3]], "names": {"a", "b"}, "pair": (1, [2])}

    def fn(x, given):
        mine, theirs = copy.deepcopy(config), copy.deepcopy(given)
        mine["sizes"].append(4)
        theirs[0].append("more")
        return x * mine["sizes"][0], mine, theirs, theirs[0] is theirs[1]

    shared = [7]
    calls = [[[7], [7]], [shared, shared], [[7], [7]], [shared, shared]]
    return fn, [(torch.randn(2), given) for given in calls], config


@program(breaks=0)
def test_a_deep_copy_preserves_sharing_and_cycles():
    def fn(x):
        ring, part = [1], {"a": [2]}
        ring += [ring, part, part]
        other = copy.deepcopy(ring)
        other[2]["a"].append(3)
        return other[1] is other, other[2] is other[3], other[3], ring[3], x * len(other)

    return fn, ordinary


class Point:
    def __init__(self, x, tags):
        self.x, self.tags = x, tags


class Slotted:
    __slots__ = ("__hidden", "other", "unset")

    def __init__(self, x):
        self.__hidden, self.other = x, [x]

    def hidden(self):
        return self.__hidden


class Both(Slotted):
    def __init__(self, x):
        super().__init__(x)
        self.free = {"x": x}


@program(breaks=0)
def test_copies_of_plain_objects_break_nothing():
    template = Point(2.0, [1])

    def fn(x, given):
        given.tags.append(5)
        shallow, deep, mine = copy.copy(given), copy.deepcopy(given), copy.deepcopy(template)
        shallow.tags.append(3)
        deep.tags.append(4)
        mine.x += 1
        empty = copy.copy(Point.__new__(Point))
        return x * mine.x, shallow, deep, given, shallow.tags is given.tags, vars(empty), vars(shallow) is vars(given)

    return fn, lambda i: (torch.randn(2), Point(i % 2, [i])), template


@program(breaks=0)
def test_copies_of_objects_with_slots():
    def fn(x):
        one, both = Slotted([1]), Both([2])
        a, b, c, d = copy.copy(one), copy.deepcopy(one), copy.copy(both), copy.deepcopy(both)
        a.other.append(1)
        c.free["y"] = 3
        return (
            x + 1,
            a.hidden() is one.hidden(),
            b.hidden() is one.hidden(),
            b.other,
            one.other,
            d.free,
            both.free,
            c.hidden(),
            d.hidden() is d.other[0],
            hasattr(d, "unset"),
        )

    return fn, ordinary


@program(breaks=0)
def test_copies_by_the_hooks_of_a_class():
    class Reduced:
        def __init__(self, x):
            self.x = x

        def __reduce__(self):
            return Reduced, (self.x * 2,)

    class Stated:
        def __init__(self, x):
            self.x, self.cache = x, {"big": 1}

        def __getstate__(self):
            return {**super().__getstate__(), "cache": {}}

        def __setstate__(self, state):
            self.__dict__.update(state, restored=True)

    def fn(x):
        a, b, c = copy.copy(Reduced(3)), copy.copy(Stated(4)), copy.deepcopy(Stated([5]))
        return x * a.x, b.x, b.cache, b.restored, c.x, c.cache

    return fn, ordinary


@program
def test_copies_of_objects_with_state_besides_attributes():
    class Number(float):
        pass

    class Named(dict):
        pass

    def fn(x):
        number, named = Number(3.0), Named(a=1)
        number.unit, named.title = "m", "t"
        a, b, c = copy.copy(number), copy.copy(named), copy.deepcopy(named)
        b["b"] = 2
        return x * float(a), a.unit, b, b.title, c, c.title, named

    return fn, ordinary


@program
def test_pickled_keyword_arguments_are_a_key():
    cache = {}

    def remember(**options):
        key = pickle.dumps(options)
        if key not in cache:
            cache[key] = len(cache)
        return cache[key]

    def fn(x, scale, name):
        return x * remember(scale=scale, name=name, flag=True) + remember(), pickle.dumps([scale, None])

    return (
        fn,
        [(torch.ones(3), 2, "a"), (torch.ones(3), 3, "a"), (torch.ones(3), 2, "b"), (torch.ones(3), 2, "a")],
        cache,
    )


@program
def test_keys_of_a_memo_are_those_of_this_call():

    @burnish.disable
    def eagerly(tensor):
        return tensor + 1

    class Holder:
        def __init__(self, tensor):
            self.tensor = tensor

        def __deepcopy__(self, memo):
            return Holder(eagerly(self.tensor))

    def fn(x, holder):
        memo = {}
        made = copy.deepcopy(holder, memo)
        again = copy.deepcopy(holder, memo)
        return x + made.tensor, id(holder) in memo, len(memo), again is made

    return fn, lambda i: (torch.ones(2), Holder(torch.full((2,), float(i))))


@program
def test_fields_of_a_data_class_that_are_tensors_are_copied():
    @dataclasses.dataclass
    class State:
        x: torch.Tensor
        scale: float = 2.0

    def fn(x):
        fields = dataclasses.asdict(State(x))
        fields["x"].add_(1)
        return {name: value * 2 for name, value in fields.items()}

    return fn, lambda i: (torch.full((2,), float(i)),)
