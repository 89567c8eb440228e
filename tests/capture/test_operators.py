"""Operator overloads: forward, reflected, in place, containers' protocols, comparison, hashing, calls from C."""

import bisect
import collections
import heapq
import operator
import sys

import torch

from .call_sequences import Before, ordinary, swing, swinging
from .harness import program


class Quantity:
    """A tensor with a unit; every operator notes that it ran."""

    log: list[str] = []

    def __init__(self, value, unit="m"):
        self.value, self.unit = value, unit

    def _other(self, other):
        return other.value if isinstance(other, Quantity) else other

    def __add__(self, other):
        self.log.append("add")
        return Quantity(self.value + self._other(other), self.unit)

    def __radd__(self, other):
        self.log.append("radd")
        return Quantity(other + self.value, self.unit)

    def __sub__(self, other):
        return Quantity(self.value - self._other(other), self.unit)

    def __rsub__(self, other):
        return Quantity(other - self.value, self.unit)

    def __mul__(self, other):
        if isinstance(other, str):
            return NotImplemented
        return Quantity(self.value * self._other(other), f"{self.unit}*")

    __rmul__ = __mul__

    def __truediv__(self, other):
        return Quantity(self.value / self._other(other), f"{self.unit}/")

    def __floordiv__(self, other):
        return Quantity(self.value // self._other(other), self.unit)

    def __mod__(self, other):
        return Quantity(self.value % self._other(other), self.unit)

    def __divmod__(self, other):
        return self // other, self % other

    def __pow__(self, power, modulo=None):
        return Quantity(self.value**power, f"{self.unit}{power}")

    def __rpow__(self, base):
        return Quantity(base**self.value, self.unit)

    def __matmul__(self, other):
        return Quantity(self.value @ self._other(other), f"{self.unit}@")

    def __neg__(self):
        return Quantity(-self.value, self.unit)

    def __pos__(self):
        return Quantity(self.value.relu(), self.unit)

    def __abs__(self):
        return Quantity(self.value.abs(), self.unit)

    def __invert__(self):
        return Quantity(1 / self.value, f"1/{self.unit}")

    def __iadd__(self, other):
        self.log.append("iadd")
        self.value = self.value + self._other(other)
        return self


@program
def test_arithmetic_operators_of_a_class():
    def fn(x):
        q = Quantity(x)
        out = [q - 1, q * 2, q / 3, q // 0.5, q % 0.7, q**2, -q, +q, abs(q), ~q]
        return [(o.value, o.unit) for o in out]

    return fn, lambda i: (torch.rand(3) + 1,)


@program(breaks=0)
def test_reflected_operators_of_a_class():
    def fn(x):
        q = Quantity(x)
        return [o.value for o in (1 - q, 2 * q, 2**q)]

    return fn, ordinary


@program
def test_matrix_product_and_divmod_operators():
    def fn(x):
        q = Quantity(x)
        whole, rest = divmod(q, 2)
        return (q @ q).value, whole.value, rest.value

    return fn, lambda i: (torch.randn(3, 3),)


@program
def test_sum_starts_with_the_reflected_add():
    Quantity.log.clear()

    def fn(x):
        return sum([Quantity(x), Quantity(x * 2)]).value, list(Quantity.log)

    return fn, ordinary, Quantity.log


@program
def test_in_place_add_keeps_the_object():
    Quantity.log.clear()

    def fn(q, x):
        same = q
        q += x
        q += 1
        return same is q, q.value

    return fn, lambda i: (Quantity(torch.randn(2)), torch.randn(2)), Quantity.log


@program
def test_in_place_without_its_own_method_makes_a_new_object():
    def fn(q, x):
        old = q
        q -= x
        q **= 2
        return old is q, old.value, q.value, q.unit

    return fn, lambda i: (Quantity(torch.randn(2)), torch.randn(2))


@program
def test_not_implemented_on_both_sides_is_a_type_error():
    def fn(x):
        try:
            return Quantity(x) * "a"
        except TypeError as error:
            return x * 2, str(error)

    return fn, ordinary


@program
def test_subclass_reflected_method_goes_first():
    class Base:
        def __init__(self, x):
            self.x = x

        def __add__(self, other):
            return ("add", self.x + other.x)

    class Special(Base):
        def __radd__(self, other):
            return ("radd", self.x * other.x)

    def fn(x):
        return Base(x) + Special(x + 1), Special(x) + Base(x), Base(x) + Base(x)

    return fn, ordinary


@program
def test_tensor_on_the_left_of_a_class_with_reflected_methods():
    class Scale:
        def __init__(self, by):
            self.by = by

        def __radd__(self, other):
            return other + self.by

        def __rmul__(self, other):
            return other * self.by

        def __rsub__(self, other):
            return other - self.by

    def fn(x, by):
        s = Scale(by)
        return x + s, x * s, x - s

    return fn, [(torch.randn(2), 2.0), (torch.randn(2), 3.0), (torch.randn(2), 2.0)]


@program
def test_bit_operators_and_shifts():
    class Mask:
        def __init__(self, m):
            self.m = m

        def __and__(self, other):
            return Mask(self.m & other.m)

        def __or__(self, other):
            return Mask(self.m | other.m)

        def __xor__(self, other):
            return Mask(self.m ^ other.m)

        def __invert__(self):
            return Mask(~self.m)

        def __lshift__(self, n):
            return Mask(self.m.roll(-n))

        def __rshift__(self, n):
            return Mask(self.m.roll(n))

        def __ior__(self, other):
            self.m = self.m | other.m
            return self

    def fn(x):
        a, b = Mask(x > 0), Mask(x < 0.5)
        c = (a & b) | (~a ^ b)
        c |= a << 1
        return c.m, (b >> 1).m

    return fn, ordinary


@program
def test_equality_and_hash_make_objects_dict_keys():
    class Key:
        def __init__(self, name, size):
            self.name, self.size = name, size

        def __eq__(self, other):
            return isinstance(other, Key) and (self.name, self.size) == (other.name, other.size)

        def __hash__(self):
            return hash((self.name, self.size))

    table = {Key("a", 4): 2.0, Key("b", 4): 3.0}

    def fn(x, name):
        key = Key(name, x.shape[0])
        table[Key("a", 4)] += 1
        return x * table.get(key, 10.0), key in table

    return (
        fn,
        [(torch.randn(4), "a"), (torch.randn(4), "b"), (torch.randn(3), "a"), (torch.randn(4), "a")],
        [*table.values()],
    )


@program
def test_equality_that_notes_its_calls():
    asked = []

    class Name:
        def __init__(self, text):
            self.text = text

        def __eq__(self, other):
            asked.append(self.text)
            return self.text == other.text

        __hash__ = None

    def fn(x):
        names = [Name("a"), Name("b"), Name("c")]
        found = Name("b") in names
        return x * names.index(Name("c")), found, names.count(Name("a"))

    return fn, ordinary, asked


@program
def test_colliding_hashes_ask_for_equality():
    class Slot:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return 1

        def __eq__(self, other):
            return self.n == other.n

    def fn(x):
        table = {}
        for n in (1, 2, 1, 3):
            table[Slot(n)] = table.get(Slot(n), 0) + x * n
        return list(table.values()), len({Slot(1), Slot(2), Slot(1)})

    return fn, ordinary


@program
def test_rich_comparisons_of_a_class():
    class Score:
        def __init__(self, n):
            self.n = n

        def __lt__(self, other):
            return self.n < other.n

        def __le__(self, other):
            return self.n <= other.n

        def __eq__(self, other):
            return self.n == other.n

        def __ne__(self, other):
            return "odd"

    def fn(x, n):
        a, b = Score(n), Score(2)
        return x * (1 if a < b else 2), a > b, a <= b, a >= b, a == b, a != b

    return fn, [(torch.randn(2), n) for n in (1, 2, 3, 1)]


@program
def test_comparison_that_returns_a_tensor():
    class Column:
        def __init__(self, x):
            self.x = x

        def __gt__(self, value):
            return self.x > value

        def __lt__(self, value):
            return self.x < value

    def fn(x):
        c = Column(x)
        if (c > 0).all():
            return x * 2
        return x.where(0 < c, -x)  # noqa: SIM300

    return fn, swinging


@program(breaks=0)
def test_order_of_a_class_by_one_method_alone():
    class Before:
        def __init__(self, n):
            self.n = n

        def __lt__(self, other):
            return self.n < other.n

    def fn(x, n):
        found = [Before(n) > Before(2), sorted([Before(n), Before(2)])[0].n, Before.__ge__(Before(1), 3)]
        try:
            found.append(Before(n) >= Before(2))
        except TypeError as error:
            found.append(str(error))
        return x * 2, found

    return fn, lambda i: (ordinary(i)[0], i)


@program
def test_chained_comparison_evaluates_the_middle_once():
    seen = []

    def note(v):
        seen.append(v)
        return v

    def fn(x):
        n = x.shape[0]
        if 1 < note(n) <= 3 != note(5):
            return x * 2
        return x * 3

    return fn, [(torch.randn(2),), (torch.randn(4),), (torch.randn(1),), (torch.randn(2),)], seen


@program
def test_chained_comparison_of_tensors():
    def fn(x):
        if 0 < x.sum() < 10:
            return x + 1
        return x - 1

    return fn, [(torch.ones(2),), (-torch.ones(2),), (torch.full((2,), 9.0),), (torch.ones(2),)]


@program
def test_bool_and_len_decide_truth():
    class Bag:
        def __init__(self, items):
            self.items = items

        def __len__(self):
            return len(self.items)

    class Flag(Bag):
        def __bool__(self):
            return bool(self.items and self.items[0] > 0)

    def fn(x, bag):
        if bag:
            return x + len(bag)
        return x - 1, not bag, bag or "empty", bool(bag and x is None)

    return fn, [(torch.randn(2), b) for b in (Bag([]), Bag([1, 2]), Flag([0]), Flag([1]), Bag([]))]


@program
def test_truth_of_an_object_reads_tensor_data():
    class Gate:
        def __init__(self, x):
            self.x = x

        def __bool__(self):
            return self.x.sum().item() > 0

    def fn(x):
        gate = Gate(x * 2)
        y = x.sin() if gate else x.cos()
        while not Gate(y - 1):
            y = y + 1
        return y

    return fn, swinging


@program
def test_item_access_of_a_class():
    class Params:
        def __init__(self, **kw):
            self.kw = kw

        def __getitem__(self, key):
            return self.kw[key]

        def __setitem__(self, key, value):
            self.kw[key] = value * 2

        def __delitem__(self, key):
            del self.kw[key]

        def __contains__(self, key):
            return key in self.kw

    def fn(p, x):
        p["w"] = p["w"] + x
        p["w"] += 1
        if "old" in p:
            del p["old"]
        return p["w"]

    return fn, lambda i: (Params(w=torch.randn(2), **({"old": 1} if i != 1 else {})), torch.randn(2))


@program(breaks=0)
def test_slices_and_tuples_arrive_in_getitem():
    class Grid:
        def __init__(self, x):
            self.x = x

        def __getitem__(self, key):
            if isinstance(key, slice):
                return self.x[key.start or 0 : key.stop : key.step], "slice"
            if isinstance(key, tuple):
                return self.x[..., key[-1]], len(key)
            return self.x[key], "item"

    def fn(x):
        g = Grid(x)
        return g[1:3], g[::2], g[0, 1], g[..., -1], g[2]

    return fn, lambda i: (torch.randn(4, 3),)


@program
def test_iteration_through_getitem_alone():
    class Old:
        def __init__(self, items):
            self.items = items

        def __getitem__(self, i):
            return self.items[i]

    def fn(items):
        old = Old(items)
        return [x * 2 for x in old], list(zip(old, range(1))), 1 in old  # noqa: B905

    return fn, [([1, torch.randn(2), 3][:n],) for n in (2, 1, 3, 2)]


@program
def test_iterator_protocol_of_a_class():
    class Countdown:
        def __init__(self, x, n):
            self.x, self.n = x, n

        def __iter__(self):
            return self

        def __next__(self):
            if self.n == 0:
                raise StopIteration
            self.n -= 1
            return self.x * self.n

    def fn(x, n):
        down = Countdown(x, n)
        first = next(down, None)
        return first, list(down), next(down, "done"), down.n

    return fn, [(torch.randn(2), n) for n in (3, 1, 0, 3)]


@program
def test_reversed_and_length_hint_protocols():
    class Stack:
        def __init__(self, items):
            self.items = items

        def __reversed__(self):
            return iter(self.items[::-1])

        def __iter__(self):
            return iter(self.items)

        def __length_hint__(self):
            return 2

    def fn(x):
        s = Stack([x, x * 2])
        return list(reversed(s)), list(s), tuple(s)

    return fn, ordinary


@program
def test_conversion_protocols_decide_shapes():
    class Size:
        def __init__(self, n):
            self.n = n

        def __index__(self):
            return self.n

        def __int__(self):
            return self.n * 10

        def __float__(self):
            return self.n + 0.5

        def __round__(self, digits=None):
            return self.n + 100

    def fn(x, n):
        s = Size(n)
        return x[:s], [0, 1, 2, 3][s], int(s) + float(s) + round(s), range(6)[s]

    return fn, [(torch.randn(4), n) for n in (1, 3, 1)]


@program
def test_format_and_repr_protocols():
    class Loss:
        def __init__(self, n):
            self.n = n

        def __repr__(self):
            return f"Loss({self.n})"

        def __str__(self):
            return f"loss {self.n}"

        def __format__(self, spec):
            return f"<{self.n:{spec or 'd'}}>"

    def fn(x):
        loss = Loss(x.shape[0])
        return x + 1, f"{loss} {loss!r} {loss!s} {loss:04d}", str([loss]), "%s" % loss

    return fn, [(torch.randn(2),), (torch.randn(3),), (torch.randn(2),)]


@program
def test_operator_module_functions():
    def fn(x, items):
        y = operator.add(x, operator.mul(x, 2))
        items = operator.iadd(items, [y])
        pick = operator.itemgetter(0, -1)
        shape = operator.attrgetter("shape")
        double = operator.methodcaller("mul", 2)
        return pick(items), shape(y), double(y), operator.matmul(x, x), operator.contains([1, 2], 2)

    return fn, lambda i: (torch.randn(2, 2), [i % 2])


@program
def test_operator_method_replaced_on_the_class_between_calls():
    class Scale:
        def __mul__(self, x):
            return x * 2

    scale = Scale()

    def fn(x):
        return scale * x

    x = torch.randn(2)
    return fn, [(x,), (x, Before(lambda: setattr(Scale, "__mul__", lambda self, y: y * 5))), (x,)]


@program
def test_short_circuit_operators_return_their_operand():
    calls = []

    def note(v):
        calls.append(str(v))
        return v

    def fn(x, a, b):
        first = note(a) or note(b)
        second = note(a) and note(b)
        return x, first, second, not a

    return fn, [(torch.randn(2), a, b) for a, b in ((0, 1), (2, 0), ([], None), (0, 1))], calls


@program
def test_and_or_with_tensors_read_their_data():
    def fn(x, y):
        z = x.sum() or y.sum()
        w = (x > 0).any() and y * 2
        return z, w

    return fn, lambda i: (swing(i) * (i != 2), torch.randn(4))


@program
def test_identity_operators():
    marker = object()

    def fn(x, y):
        return x is y, x is not None, (x + 0) is x, marker is marker, y * 2

    a = torch.randn(2)
    return fn, [(a, a), (a, torch.randn(2)), (a, a)]


@program(breaks=0)
def test_unequal_is_the_opposite_of_an_equal_in_python():
    class Point:
        def __init__(self, at):
            self.at = at

        def __eq__(self, other):
            return self.at == other.at if isinstance(other, Point) else NotImplemented

        __hash__ = None

    class Named(Point):
        pass

    def fn(x, a, b):
        return x + 1, a != b, b != a, a == b, a != 3, 3 != a

    return fn, [
        (torch.ones(1), Point(1), Point(1)),
        (torch.ones(1), Point(1), Named(2)),
        (torch.ones(1), Named(1), Point(1)),
    ]


@program
def test_sequence_tries_the_other_operand_first():
    class Joined:
        def __radd__(self, other):
            return "joined", other

        def __rmul__(self, other):
            return "repeated", other

    class Refusing:
        def __radd__(self, other):
            return NotImplemented

    def fn(x):
        items, texts = [1], []
        items += Joined()
        for sequence in ("a", [1], (1,), b"a", collections.deque([1])):
            try:
                sequence + Refusing()
            except TypeError as error:
                texts.append(str(error))
        return x, items, "a" + Joined(), [1] + Joined(), (1,) + Joined(), "a" * Joined(), texts

    return fn, [(torch.ones(2),)]


@program
def test_method_that_is_none_refuses():
    class Closed:
        __iadd__ = None
        __iter__ = None
        __contains__ = None

        def __add__(self, other):
            return "added"

        def __getitem__(self, at):
            return at

    def fn(x):
        texts = []
        for use in (lambda c: operator.iadd(c, 1), iter, list, lambda c: 1 in c, lambda c: [*c]):
            try:
                use(Closed())
            except TypeError as error:
                texts.append(str(error))
        return x, texts

    return fn, [(torch.ones(2),)]


@program
def test_keys_are_compared_and_hashed_as_often_as_in_eager():
    """The keys' methods have effects, and other keys are written to the same dictionary."""
    asked = []

    class Slot:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            asked.append("hash")
            return 1

        def __eq__(self, other):
            asked.append(other.n)
            return self.n == other.n

    def fn(x):
        asked.clear()
        table, seen = {}, {Slot(5)}
        for n in (1, 2, 1):
            if x.sum() > 100:
                return x
            table[Slot(n)] = table.get(Slot(n), 0) + x * n
        table["written"] = x
        return list(table.values()), Slot(5) in seen, list(asked)

    return fn, ordinary


class Index:
    def __init__(self, n):
        self.n = n

    def __index__(self):
        return self.n


class Odd(int):
    """A subclass of int is an index by itself."""

    def __index__(self):
        return 7


class Ratio:
    def __init__(self, n):
        self.n = n

    def __float__(self):
        return float(self.n)

    def __int__(self):
        return self.n

    def __radd__(self, other):
        return "reflected", other

    def __eq__(self, other):
        return self.n == other.n if isinstance(other, Ratio) else NotImplemented

    def __lt__(self, other):
        return self.n < other.n


def errors_of(calls):
    found = []
    for call in calls:
        try:
            call()
        except (TypeError, ValueError, IndexError) as error:
            found.append(str(error))
    return found


@program(breaks=0)
def test_objects_with_their_own_index_are_places_and_counts():
    def fn(x):
        items = same = [1, 2, 3, 4]
        found = [
            items[Index(1)],
            items[Index(1) : Index(3)],
            "abc"[Index(2)],
            (1, 2, 3)[Index(0) :],
            range(5)[Index(2)],
        ]
        items[Index(0)] = 9
        items[Index(1) : Index(2)] = [7, 7]
        del items[Index(0)]
        items *= Index(2)
        items.__setitem__(Index(1), 5)
        items.__setitem__(slice(2, 3), (n for n in (6, 6)))
        items.__delitem__(Index(0))
        items[Odd(1)] = items[Odd(0)]
        found += [operator.index(Index(3)), operator.index(Odd(3))]
        found += ["ab" * Index(2), Index(2) * (1,), [1] * Index(3), same is items, range(Index(1), Index(3))]
        refused = errors_of(
            (
                lambda: items[Index("a")],
                lambda: [][Index(3)],
                lambda: (1,)[Index(1) : Index(2) : Index(0)],
                lambda: [1] * Index(1.5),
                lambda: Index(1) * Index(2),
            )
        )
        return x + 1, found, items, refused

    return fn, ordinary


@program(breaks=0)
def test_functions_of_operator_are_the_operators():
    def fn(x):
        items = [1]
        found = [
            1 + Ratio(2),
            1.5 + Ratio(2),
            operator.eq(Ratio(1), Ratio(1)),
            operator.ne(Ratio(1), Ratio(2)),
            operator.lt(Ratio(1), Ratio(2)),
            operator.truth(Ratio(0)),
            operator.not_([]),
            operator.not_(Ratio(1)),
            operator.is_(None, None),
            operator.is_not([], []),
            operator.contains([Ratio(1)], Ratio(1)),
            operator.getitem([1, 2], 1),
            operator.iadd(items, [2]) is items,
        ]
        refused = errors_of(
            (
                lambda: 1 - Ratio(1),
                lambda: Index(1) < Index(2),
                lambda: Index(1) + 1,
                lambda: operator.add(1),
                lambda: operator.not_(),
                lambda: hash([]),
            )
        )
        return operator.add(x, 1), operator.neg(x), found, refused

    return fn, ordinary


@program(breaks=0)
def test_heaps_of_objects_that_compare_in_python():
    def fn(x):
        heap = [Ratio(n) for n in (5, 3, 8, 1, 9, 2)]
        heapq.heapify(heap)
        heapq.heappush(heap, Ratio(0))
        taken = [heapq.heappop(heap), heapq.heapreplace(heap, Ratio(7)), heapq.heappushpop(heap, Ratio(4))]
        refused = errors_of((lambda: heapq.heappop([]), lambda: heapq.heappush((), Ratio(1))))
        return x + taken[0].n, [one.n for one in taken], [one.n for one in heap], refused

    return fn, ordinary


@program(breaks=0)
def test_class_with_inequality_alone():
    class Differs:
        def __init__(self, n):
            self.n = n

        def __ne__(self, other):
            return self.n != other.n

    class Plain:
        n = 1

    def fn(x, n):
        one, two, plain = Differs(1), Differs(n), Plain()
        return x + 1, one != two, one == two, plain != one, one != plain, [one] != [two], one == one

    return fn, lambda i: (torch.randn(3), i)


@program(breaks=0)
def test_objects_that_are_no_sequences_refuse_to_be_searched():
    class OnlyLength:
        def __len__(self):
            return 2

    def fn(x):
        found = errors_of(
            (lambda: bisect.insort(object(), 1), lambda: bisect.insort_left(3, 1), lambda: OnlyLength()[0])
        )
        return x + 1, [text.partition(" at 0x")[0] for text in found]

    return fn, ordinary


@program
def test_membership_in_a_list_asks_no_iterator_of_a_subclass():
    class Number:
        def __init__(self, value):
            self.value = value

        def __eq__(self, other):
            return isinstance(other, Number) and self.value == other.value

        __hash__ = None

    class Empty(list):
        def __iter__(self):
            return iter(())

    def fn(x, items):
        return x + 1, Number(1) in items, Number(3) in items, Number(1) not in items

    return fn, [(torch.ones(2), Empty(map(Number, numbers))) for numbers in ((0, 1), (0, 1), (3,))]


@program
def test_an_error_about_a_generator_names_its_class():
    def generate():
        yield 1

    def outcome(call):
        try:
            return call()
        except TypeError as error:
            return str(error)

    def fn(x):
        return x + 1, outcome(lambda: [1] + generate()), outcome(lambda: (1,) * generate())

    return fn, [(torch.ones(2),)] * 3


@program(breaks=0)
def test_lengths_that_do_not_fit():
    class Long:
        def __init__(self, length):
            self.length = length

        def __len__(self):
            return self.length

    def fn(x, length):
        seen = []
        for ask in (len, bool, lambda long: 1 if long else 0):
            try:
                seen.append(ask(Long(length)))
            except (OverflowError, ValueError) as error:
                seen.append(repr(error))
        return x + len(seen), seen

    return fn, [(ordinary(i)[0], length) for i, length in enumerate((3, sys.maxsize, sys.maxsize + 1, -1))]
