"""Builtin functions: map, filter, zip, sorted, min, max, sum, any, all, enumerate, reversed, introspection."""

import collections
import decimal
import enum
import functools
import itertools
import struct

import numpy as np
import torch

import burnish

from .call_sequences import Before, ordinary, swing, swinging
from .harness import program


@program
def test_map_with_a_function_and_two_lists():
    def fn(xs, ys):
        return list(map(lambda a, b: a * 2 + b, xs, ys)), [*map(torch.sin, xs)]

    return fn, lambda i: ([torch.randn(2), torch.randn(2)], [torch.randn(2)] * (1 + i % 2))


@program
def test_map_is_lazy():
    log = []

    def double(x):
        log.append(len(log))
        return x * 2

    def fn(x):
        doubled = map(double, x.unbind())
        log.append("made")
        return next(doubled), next(doubled)

    return fn, ordinary, log


@program
def test_filter_with_and_without_a_function():
    def fn(xs):
        return list(filter(lambda x: x.dim() > 1, xs)), list(filter(None, [0, 1, "", "a", [], None]))

    return fn, [([torch.randn(2), torch.randn(2, 2)],), ([torch.randn(2)],), ([torch.randn(2), torch.randn(2, 2)],)]


@program
def test_filter_on_data():
    def fn(*xs):
        return [x + 1 for x in filter(lambda x: x.sum() > 0, xs)]

    return fn, lambda i: (swing(i), swing(i + 1))


@program
def test_zip_strict_raises_when_lengths_differ():
    def fn(xs, ys):
        out = []
        try:
            for x, y in zip(xs, ys, strict=True):
                out.append(x * y)
        except ValueError as error:
            return out, str(error)
        return out

    return fn, [
        ([torch.randn(2)], [1]),
        ([torch.randn(2), torch.randn(2)], [1]),
        ([torch.randn(2)], [1, 2]),
        ([torch.randn(2)], [1]),
    ]


@program(breaks=0)
def test_zip_transposes_and_enumerate_counts_from_a_start():
    def fn(pairs):
        firsts, seconds = zip(*pairs)  # noqa: B905
        return [x * i for i, x in enumerate(firsts, 3)], seconds, dict(zip("ab", seconds))  # noqa: B905

    return fn, lambda i: ([(torch.randn(2), i % 2), (torch.randn(2), 5)],)


@program
def test_sorted_with_key_and_reverse():
    def fn(xs):
        by_size = sorted(xs, key=lambda x: x.shape[0])
        return by_size, sorted(xs, key=len, reverse=True), sorted([3, 1, 2], reverse=True)

    return fn, [([torch.randn(n) for n in sizes],) for sizes in ((3, 1, 2), (1, 2), (3, 1, 2))]


@program
def test_sorted_is_stable_and_calls_the_key_once_each():
    log = []

    def key(pair):
        log.append(pair[1])
        return pair[0]

    def fn(x):
        ordered = sorted([(2, "a"), (1, "b"), (2, "c"), (1, "d")], key=key)
        return x * len(ordered), [name for _, name in ordered]

    return fn, ordinary, log


@program
def test_sorted_by_tensor_data():
    def fn(*xs):
        return [x * 2 for x in sorted(xs, key=lambda x: x.sum().item())]

    return fn, lambda i: (swing(i), swing(i + 1), swing(i + 2) * 3)


@program
def test_list_sort_in_place_of_an_argument():
    def fn(items):
        items.sort(key=lambda pair: -pair[0])
        return items[0][1] + 1

    return fn, lambda i: ([(i % 2, torch.randn(2)), (0.5, torch.randn(2))],)


@program
def test_sort_that_cannot_compare():
    def fn(x, items):
        try:
            return x * sorted(items)[0]
        except TypeError as error:
            return x, str(error)

    return fn, [(torch.randn(2), [2, 1]), (torch.randn(2), [2, "a"]), (torch.randn(2), [2, 1])]


@program
def test_min_and_max_with_key_and_default():
    def fn(xs):
        widest = max(xs, key=lambda x: x.shape[-1], default=None)
        least = min((x.dim() for x in xs), default=-1)
        return widest, least, max(1, 3, 2), min("bca"), max([(1, "z"), (1, "a")])

    return fn, [
        ([torch.randn(2), torch.randn(1, 3)],),
        ([],),
        ([torch.randn(2)],),
        ([torch.randn(2), torch.randn(1, 3)],),
    ]


@program
def test_min_of_nothing():
    def fn(x, items):
        try:
            return x * min(items)
        except ValueError as error:
            return x, type(error).__name__

    return fn, [(torch.randn(2), [2, 1]), (torch.randn(2), []), (torch.randn(2), [2, 1])]


@program
def test_max_of_tensors_reads_their_data():
    def fn(x, y):
        return max(x.sum(), y.sum()) * 2, min(x, y, key=lambda t: t.abs().sum())

    return fn, lambda i: (swing(i), torch.randn(4))


@program(breaks=0)
def test_sum_with_a_start():
    def fn(xs):
        return sum(xs), sum(xs, start=torch.ones(2)), sum([[1], [2]], []), sum(x.shape[0] for x in xs)

    return fn, [([torch.randn(2)],), ([torch.randn(2)] * 3,), ([torch.randn(2)],)]


class Size(enum.IntEnum):
    ONE = 1


class AddsAfterwards:
    def __radd__(self, other):
        return 0.1


@program
def test_sum_rounds_floats_as_c_code_does():
    """Since 3.12 that is corrected for what rounding loses, from the first float to the first other object."""

    def fn(x, s):
        tenths = [0.1] * 10
        return (
            x + 1,
            [
                sum(0.1 for _ in tenths),
                sum(map(lambda v: v, tenths), s),
                sum(tenths, s),
                sum((v for v in tenths), -0.0),
            ],
            [sum([s * 0.1, 0.2, s * 0.3, 1, 0.1]), sum([1, 2, s], s), sum([s], 0.7), sum([], s), sum([s, True, s])],
            sum(v for v in [1, 0.1, Size.ONE, 0.1, True, 0.1, 1j, 0.1, 0.2]),
            sum(v for v in [1, AddsAfterwards(), *tenths]),
            sum(v for v in [0.1, AddsAfterwards(), *tenths]),
        )

    return fn, [(torch.ones(2), s) for s in (0.1, 0.7, 0.3, -0.9, 1e308, 0.3)]


def test_sum_of_floats_after_ints_of_more_than_64_bits_is_not_corrected():
    def fn(x, first, second):
        return x + 1, sum(v for v in (first, second, 1e16, 1.0, -1e16)), sum((v for v in (1e16, 1.0, -1e16)), first)

    compiled = burnish.compile(fn, backend="eager")
    for numbers in ((2**63, -(2**63)), (2**62, 2**62), (5, 2**63), (-(2**63), 1), (True, 2)):
        assert compiled(torch.ones(2), *numbers)[1:] == fn(torch.ones(2), *numbers)[1:]


@program
def test_sum_raises_before_it_asks_for_more():
    def fn(x, start):
        asked = []

        def numbers(*values):
            for value in values:
                asked.append(value)
                yield value

        for values in ((0.1, 10**400, 0.2), (10**400, 0.1, 0.2), (0.1, "a", 0.2), (0.1, 2**70, 0.1, 0.1)):
            try:
                asked.append(sum(numbers(*values), start))
            except (OverflowError, TypeError) as error:
                asked.append(str(error))
        return x + 1, asked

    return fn, [(torch.ones(2), start) for start in (0, 0.5, "", b"", 0.25, 1j)]


@program
def test_any_and_all_stop_early():
    log = []

    def note(v):
        log.append(v)
        return v

    def fn(x, flags):
        return x * any(note(f) for f in flags) + all(note(f) for f in flags), all([]), any([])

    return fn, [(torch.randn(2), f) for f in ([0, 1, 0], [1, 1], [0, 0], [0, 1, 0])], log


@program
def test_any_and_all_over_tensor_conditions():
    def fn(*xs):
        if any(x.sum() > 0 for x in xs):
            return xs[0] * 2
        if all(x.min() < -0.5 for x in xs):
            return xs[0] * 3
        return xs[0]

    return fn, [
        (a, b)
        for a, b in (
            (torch.ones(2), -torch.ones(2)),
            (-torch.ones(2), -torch.ones(2)),
            (torch.zeros(2), torch.zeros(2)),
            (-torch.ones(2), torch.ones(2)),
        )
    ]


@program(breaks=0)
def test_reversed_of_lists_ranges_and_dicts():
    def fn(xs):
        out = torch.zeros(2)
        for i, x in zip(reversed(range(3)), reversed(xs)):  # noqa: B905
            out = out * 2 + x * i
        return out, list(reversed({"a": 1, "b": 2}))

    return fn, lambda i: ([torch.randn(2) for _ in range(3)],)


@program
def test_iter_with_a_sentinel():
    def fn(x):
        numbers = [3, 2, 1, 0, 5]
        for n in iter(numbers.copy().__iter__().__next__, 0):
            x = x + n
        left = list(iter(lambda: numbers.pop(0), 0))
        return x, left, numbers

    return fn, ordinary


@program(breaks=0)
def test_next_with_a_default():
    def fn(x, items):
        it = iter(items)
        return x * next(it, 10), next(it, None)

    return fn, [(torch.randn(2), [2, 3]), (torch.randn(2), []), (torch.randn(2), [4]), (torch.randn(2), [2, 3])]


@program
def test_isinstance_hasattr_and_callable():
    def fn(x, thing):
        score = 0
        if isinstance(thing, (int, float)) and not isinstance(thing, bool):
            score += 1
        if callable(thing):
            score += 10
        if hasattr(thing, "shape"):
            score += 100
        return x * score, type(thing).__name__, issubclass(type(thing), int)

    return fn, [(torch.randn(2), t) for t in (1, True, 2.5, len, torch.ones(1), lambda: 0, 1)]


@program
def test_vars_and_dir_of_an_object():
    class Config:
        width = 3

        def __init__(self, **kw):
            self.__dict__.update(kw)

    def fn(x, config):
        own = {k: v * 2 for k, v in vars(config).items()}
        names = [n for n in dir(config) if not n.startswith("_")]
        return x * sum(own.values()), names

    return fn, [(torch.randn(2), Config(a=1)), (torch.randn(2), Config(a=1, b=2)), (torch.randn(2), Config(a=1))]


@program
def test_locals_of_the_function():
    def fn(x):
        scale = 3
        names = sorted(locals())
        return x * locals()["scale"], names, scale

    return fn, ordinary


@program
def test_type_makes_a_class():
    def fn(x):
        Layer = type("Layer", (), {"scale": 4, "forward": lambda self, y: y * self.scale})
        layer = Layer()
        return layer.forward(x), Layer.__name__, type(layer) is Layer

    return fn, ordinary


@program(breaks=0)
def test_number_functions():
    def fn(x, n):
        return (
            x * abs(-n) + round(2.567, n) + pow(2, n) + divmod(7, n)[1],
            pow(3, n, 5),
            int("12") + int(-2.7),
            float("1.5"),
            bool(n),
            hash(n),
            bin(n),
            hex(255),
            complex(n, 1),
        )

    return fn, [(torch.randn(2), n) for n in (1, 2, 3, 1)]


@program(breaks=0)
def test_range_objects():
    def fn(x, n):
        r = range(n, 0, -2)
        return x[list(r)], r[0], r[-1], len(r), 2 in r, list(r[1:]), r == range(n, 1, -2), r.index(n)

    return fn, [(torch.randn(7), n) for n in (6, 5, 6)]


@program
def test_len_and_truth_of_tensors():
    def fn(x):
        n = len(x)
        if x.numel() == 1 and x:
            return x + n
        return x - n, bool(n)

    return fn, [(torch.tensor([1.0]),), (torch.tensor([0.0]),), (torch.randn(2),), (torch.tensor([3.0]),)]


@program
def test_conversions_of_tensors_to_numbers():
    def fn(x):
        y = x * 2
        return y + 1, int(y[0]), float(y[1]), bool(y[2] > 0), y.tolist(), complex(y[0])

    return fn, ordinary


@program
def test_slice_objects_and_their_indices():
    def fn(x, s):
        return x[s], s.indices(x.shape[0]), x[slice(None)] * 2

    return fn, [(torch.randn(5), s) for s in (slice(1, 3), slice(None, None, 2), slice(-2, None), slice(1, 3))]


@program
def test_conversions_between_containers():
    def fn(x):
        pairs = tuple([("a", x), ("b", x + 1)])
        d = dict(pairs)
        return list(d), tuple(d.values()), dict(d, c=2), sorted(set("hello")), list("ab"), len(frozenset([1, 1]))

    return fn, ordinary


@program
def test_builtin_shadowed_by_a_local_name():
    def fn(x, sum):  # noqa: A002
        len = 5
        return x * len + sum

    return fn, [(torch.randn(2), n) for n in (1, 2, 1)]


@program
def test_eval_and_exec_and_compile():
    def fn(x, text):
        scope = {"x": x, "torch": torch}
        exec("y = x * 2", scope)
        return eval(text, scope), scope["y"]

    return fn, [(torch.randn(2), t) for t in ("x + y", "torch.sin(y)", "x + y")]


@program
def test_id_and_hash_are_stable_within_a_call():
    def fn(x):
        y = x + 1
        same = id(y) == id(y) and hash(y) == hash(y)
        return y, same, id(x) == id(y)

    return fn, ordinary


@program
def test_callbacks_with_state_run_in_order():
    log = []

    def note(name):
        def run(v):
            log.append(name)
            return v

        return run

    def fn(x):
        rows = list(map(note("map"), filter(note("filter"), [1, 0, 2])))
        return x * sum(rows), sorted(rows, key=note("key"))

    return fn, ordinary, log


@program
def test_callback_with_a_break_inside_map():
    def fn(*xs):
        def step(x):
            return x * 2 if x.sum() > 0 else x - 1

        return list(map(step, xs))

    return fn, lambda i: (swing(i), swing(i + 1))


@program
def test_key_function_replaced_between_calls():
    order = {"key": lambda x: x.shape[0]}

    def fn(xs):
        return [x + 1 for x in sorted(xs, key=order["key"])]

    xs = [torch.randn(2), torch.randn(1), torch.randn(3)]
    return fn, [
        (xs,),
        (xs, Before(lambda: order.update(key=lambda x: -x.shape[0]))),
        (xs, Before(lambda: order.update(key=lambda x: x.shape[0] % 3))),
    ]


@program
def test_input_errors_of_builtins_on_tensors():
    def fn(x):
        out = []
        for attempt in (lambda: int(x), lambda: bool(x), lambda: len(x.sum()), lambda: iter(x.sum()), lambda: x + "a"):
            try:
                out.append(attempt())
            except (TypeError, ValueError, RuntimeError) as error:
                out.append(type(error).__name__)
        return x * 2, out

    return fn, swinging


@program
def test_builtins_refuse_arguments_they_do_not_take():
    def fn(x):
        wrong = [
            lambda: isinstance(x, torch.Tensor, strict=True),
            lambda: len(x, x),
            lambda: next(),
            lambda: hash(),
            lambda: getattr(x),
            lambda: any(),
            lambda: callable(x, x),
            lambda: repr(obj=x),
        ]
        texts = []
        for call in wrong:
            try:
                call()
            except TypeError as error:
                texts.append(str(error))
        return x + len(texts), texts

    return fn, ordinary


@program(breaks=0)
def test_callable_reads_the_class():
    class Silent:
        pass

    class Spoken:
        def __call__(self):
            return 1

    silent, spoken = Silent(), Spoken()
    silent.__call__ = spoken

    def fn(x):
        return x + 1 if callable(spoken) and not callable(silent) else x, callable(Silent), callable(len), callable(1)

    return fn, ordinary


@program
def test_builtins_refuse_the_arguments_that_python_refuses():
    class Plain:
        pass

    def fn(x):
        obj, items, table, texts = Plain(), [1], {1: 2}, []
        for use in (
            lambda: len(obj),
            lambda: sum(),
            lambda: sum([1], 2, 3),
            lambda: sorted(),
            lambda: min(1, 2, foo=3),
            lambda: functools.reduce(function=max, iterable=[1]),
            lambda: setattr(obj, 3, 4),
            lambda: object.__getattribute__(obj),
            lambda: object.__getattribute__(obj, "shift", 1),
            lambda: object.__getattribute__(obj, 1),
            lambda: object.__delattr__(obj),
            lambda: object.__new__(),
            lambda: list.__setitem__(items),
            lambda: items.extend(),
            lambda: items.append(1, 2),
            lambda: table.update({}, {}),
            lambda: table.update([(1, 2, 3)]),
            lambda: table.update(1),
            lambda: reversed(),
            lambda: list(x=1),
            lambda: dict({}, {}),
            lambda: dict(**{1: 2}),
            lambda: fn(**{1: 2}),
            lambda: print(sep=3),
            lambda: print(text=3),
            lambda: globals(3),
            lambda: itertools.tee([1], -1),
            lambda: (n for n in ()).send(),
            lambda: (n for n in ()).throw(3),
        ):
            try:
                texts.append(use())
            except (TypeError, ValueError) as error:
                texts.append((type(error), str(error)))
        return x, texts

    return fn, [(torch.ones(2),)]


@program
def test_keywords_may_have_any_name():
    def fn(x):
        table = dict(self=1, function=2, m=3)
        text = "{self}{function}{m}".format(**table)
        made = functools.partial(dict, self=1, function=2)()
        return x, table, text, made, collections.OrderedDict(self=1, function=2), collections.Counter(self=2, m=1)

    return fn, [(torch.ones(2),)]


def test_method_of_a_number_leaves_the_function():
    read = burnish.compile(getattr, backend="eager")
    assert [read(3, "__add__")(4) for _ in range(3)] == [7] * 3


@program
def test_numbers_too_large_for_a_float_or_for_text():
    def fn(x, power):
        big, texts = 10**power, []
        for use in (float, str, lambda n: f"{n}", lambda n: n / 3.0, lambda n: n > 1.5):
            try:
                texts.append(len(str(use(big))))
            except (OverflowError, ValueError) as error:
                texts.append((type(error), str(error)))
        return x, texts, 10**5000 + power > 1

    return fn, [(torch.ones(2), 400), (torch.ones(2), 5000), (torch.ones(2), 401)]


@program
def test_container_that_holds_itself_is_shown():
    def fn(x):
        items, table, users = [1], {}, collections.UserList([1])
        items.append(items)
        table["table"] = table
        users.append(users)
        return x, repr(items), str(table), repr(users), f"{items}"

    return fn, [(torch.ones(2),)]


def test_locals_are_one_dictionary():
    def fn(x):
        first = locals()
        y = 2
        return first is locals(), sorted(first), y

    assert burnish.compile(fn, backend="eager")(1) == fn(1)


@program
def test_sum_refuses_bytes():
    def asked(start):
        try:
            return sum([b"a", bytearray(b"b")], start)
        except TypeError as error:
            return str(error)

    def fn(x):
        return x + 1, asked(b""), asked(bytearray())

    return fn, lambda i: (torch.ones(2),)


def test_dir_of_objects_and_classes_that_change():
    class Base:
        kept = 1

    class Named:
        def __dir__(self):
            return ["b", *Base.__dict__.get("more", ()), "a"]

    outer = Base()

    def fn(x, given):
        class Local(Base):
            inner = 1

        made = Local()
        made.new = 1
        Local.late = 1
        before = dir(given)
        given.fresh = 1
        names = before, dir(given), dir(made), dir(Local), dir(Base), dir(outer), dir(Named()), dir(3), dir([])
        return names

    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    for i in range(6):
        if i == 2:
            outer.other = 1
        if i == 3:
            Base.more = "k"
        given = Base(), Base()
        if i == 4:
            given[0].y = given[1].y = 1
        assert compiled(torch.ones(2), given[0]) == fn(torch.ones(2), given[1])


@program(breaks=0)
def test_numbers_of_strict_subclasses_are_made_plain_with_a_warning():
    class Number(int):
        pass

    def of(name, value):
        return type("Of", (), {name: lambda self: value})()

    def fn(x, n):
        found = [int(of("__int__", True)), int(of("__index__", Number(n))), float(of("__float__", 1.5))]
        return x + 1, found, [type(value) for value in found]

    return fn, [(torch.ones(2), n) for n in (3, 3, 4)]


@program(breaks=0)
def test_struct_packs_plain_values():
    def fn(x, n):
        return x + 1, struct.pack("<if", n, 2.5), struct.unpack("<i", struct.pack("<i", n)), struct.calcsize("3d")

    return fn, [(torch.ones(2), n) for n in (3, 3, 4)]


@program
def test_refused_numbers_are_named_as_in_c():
    class Odd:
        def __init__(self, value):
            self.value = value

        def __int__(self):
            return self.value

        __float__ = __complex__ = __int__

    def fn(x, odd):
        texts = []
        for kind in (int, float, complex):
            try:
                kind(odd)
            except TypeError as error:
                texts.append(str(error))
        return x + 1, texts

    values = np.float32(1), np.int64(2), decimal.Decimal(1), collections.deque(), "a", Odd(1)
    return fn, [(torch.ones(2), Odd(value)) for value in values for _ in range(2)]


def test_a_slice_as_key_is_no_error_inside_burnish(recwarn):
    def fn(x, part):
        try:
            return x + 1, len({part}), {part: 1}[part]
        except TypeError as error:
            return str(error)

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(2):
        assert str(compiled(torch.ones(2), slice(1))) == str(fn(torch.ones(2), slice(1)))
    assert not [each for each in recwarn if "inside Burnish" in str(each.message)]


@program(breaks=None)
def test_objects_in_place_of_methods_are_not_compared():
    class Method:
        def __init__(self, result):
            self.result, self.compared = result, []

        def __call__(self, *args):
            return self.result

        def __eq__(self, other):
            self.compared.append(type(other).__name__)
            return False

        __hash__ = object.__hash__

    class Sized:
        __len__ = Method(3)
        __add__ = Method(4)

        def __sub__(self, other):
            return 5

    def fn(x):
        made = Sized()
        return x * len(made), made + 1, made - 1.0, Sized.__dict__["__len__"].compared

    return fn, lambda i: (torch.randn(3),)
