"""match statements: literals, captures, sequences, mappings, classes, guards."""

import abc
import dataclasses
import enum
from collections.abc import Generator, KeysView

import torch

from .call_sequences import Before, ordinary, swinging
from .harness import program


@program(breaks=0)
def test_match_on_literals():
    def fn(x, mode):
        match mode:
            case "relu" | "gelu":
                return x.relu()
            case None:
                return x
            case 1 | 2:
                return x * mode
            case _:
                return x - 1

    return fn, [(torch.randn(3), m) for m in ("relu", None, 1, 2, "gelu", "other", True, "relu")]


@program(breaks=0)
def test_match_on_the_rank_of_a_shape():
    def fn(x):
        match x.shape:
            case []:
                return x + 1
            case [n]:
                return x * n
            case [n, m] if n == m:
                return x @ x
            case [batch, *rest]:
                return x.reshape(batch, -1).sum(1), rest

    return fn, [(torch.randn(s),) for s in ((), (3,), (2, 2), (2, 3), (2, 3, 4), (3,))]


@program
def test_match_on_a_mapping_with_a_rest():
    def fn(batch):
        match batch:
            case {"x": x, "mask": mask}:
                return x * mask
            case {"x": torch.Tensor() as x, **rest}:
                return x.sum(), sorted(rest)
            case {}:
                return None

    return fn, [
        ({"x": torch.randn(2), "mask": torch.ones(2)},),
        ({"x": torch.randn(2), "n": 1},),
        ({"y": 1},),
        ({"x": torch.randn(2), "mask": torch.ones(2)},),
    ]


@program
def test_match_on_classes_by_keyword_and_position():
    class Conv:
        __match_args__ = ("width", "groups")

        def __init__(self, width, groups=1):
            self.width, self.groups = width, groups

    @dataclasses.dataclass
    class Linear:
        size: int
        bias: bool = True

    def fn(x, layer):
        match layer:
            case Conv(3, groups=1):
                return x * 3
            case Conv(width, groups) if width > groups:
                return x * width - groups
            case Linear(size=n, bias=True):
                return x + n
            case Linear(n):
                return x - n
            case int(n) | float(n):
                return x / n
            case _:
                return x

    layers = Conv(3), Conv(5, 2), Conv(2, 2), Linear(4), Linear(4, False), 2, 0.5, "none", Conv(3)
    return fn, [(torch.randn(2), layer) for layer in layers]


@program
def test_match_guard_reads_tensor_data():
    def fn(x):
        match x:
            case torch.Tensor() if x.sum() > 0:
                return x + 1
            case torch.Tensor(ndim=1):
                return x - 1

    return fn, swinging


@program
def test_match_on_enum_members():
    class Mode(enum.Enum):
        TRAIN = "train"
        EVAL = "eval"

    def fn(x, mode):
        match mode:
            case Mode.TRAIN:
                return x * 2
            case Mode.EVAL:
                return x
            case _:
                return x - 1

    return fn, [(torch.randn(2), m) for m in (Mode.TRAIN, Mode.EVAL, "train", Mode.TRAIN)]


@program
def test_match_nested_patterns_bind_names():
    def fn(command, x):
        match command:
            case ("scale", (int(a) | float(a), *_), {"clip": [lo, hi]}):
                return (x * a).clamp(lo, hi)
            case ("scale", (a, *others), _):
                return x * a + len(others)
            case [("shift", by)]:
                return x + by
            case str() as name:
                return x, name
        return x - 100

    commands = [
        ("scale", (2, 3), {"clip": [-1, 1]}),
        ("scale", (2, 3, 4), {}),
        [("shift", 2)],
        "hello",
        5,
        ("scale", (2, 3), {"clip": [-1, 1]}),
    ]
    return fn, [(c, torch.randn(2)) for c in commands]


@program
def test_match_without_a_hit_falls_through():
    def fn(x, n):
        y = x
        match n:
            case 0:
                y = x + 1
            case int(k) if k > 5:
                y = x * k
        return y, n

    return fn, [(torch.randn(2), n) for n in (0, 3, 7, 8, 0)]


@program
def test_match_tries_the_sequence_of_a_tuple_of_tensors():
    def fn(out):
        match out:
            case torch.Tensor():
                return out
            case (logits,):
                return logits + 1
            case (logits, loss, *_):
                return logits * loss

    return fn, [(torch.randn(2),), ((torch.randn(2),),), ([torch.randn(2), torch.randn(()), 1],), (torch.randn(2),)]


@program
def test_match_dispatch_inside_a_loop():
    def fn(x, program):
        for step in program:
            match step:
                case "relu":
                    x = x.relu()
                case ("scale", by):
                    x = x * by
                case {"add": y}:
                    x = x + y
                case "stop":
                    break
        else:
            x = x * 100
        return x

    programs = (
        ["relu", ("scale", 2)],
        [("scale", -1), "relu", "stop", "relu"],
        [{"add": 1}],
        ["relu", ("scale", 3)],
        ["relu", ("scale", 2)],
    )
    return fn, [(torch.randn(3), p) for p in programs]


@program
def test_match_class_pattern_on_a_property():
    class Scaled:
        reads = 0

        @property
        def scale(self):
            self.reads += 1
            return self.reads

    def fn(x, thing):
        match thing:
            case Scaled(scale=1):
                return x
            case Scaled(scale=n):
                return x * n

    thing = Scaled()
    return fn, lambda i: (torch.randn(2), thing), thing


@program(breaks=0)
def test_class_pattern_does_not_match_without_the_attribute():
    class Bare:
        pass

    def fn(x, thing):
        match thing:
            case Bare(scale=n):
                return x, n
        return x - 1, None

    return fn, [(torch.randn(2), Bare())]


@program
def test_match_on_numbers_of_several_types():
    def fn(x, n):
        match n:
            case True:
                return x + 1
            case 0:
                return x + 2
            case -1 | 2.5:
                return x + 3
            case bool():
                return x + 4
            case int():
                return x + 5
            case float(value) if value != value:
                return x + 6
        return x

    return fn, [(torch.randn(2), n) for n in (True, 0, -1, 2.5, False, 7, float("nan"), 1, 0.0, True)]


@program
def test_class_pattern_asks_the_metaclass():
    class Numbers(type):
        def __instancecheck__(cls, value):
            asked.append(value)
            return type(value) is int and value > 1

    class Number(metaclass=Numbers):
        pass

    asked = []

    def fn(x, value):
        match value:
            case Number():
                return x * value
            case _:
                return x

    return fn, [(torch.ones(2), n) for n in (1, 2, 1, 3)], asked


@program
def test_class_pattern_sees_classes_registered_and_patterns_changed_between_calls():
    class Named(abc.ABC):
        pass

    class Point:
        __match_args__ = ("a", "b")
        a, b = 2, 3

    def fn(x, value):
        match value:
            case Named():
                return x
            case Point(first, second):
                return x * first + second

    def change(i):
        if i == 1:
            Point.__match_args__ = ("b", "a")
        if i == 2:
            Named.register(Point)

    return fn, lambda i: (torch.ones(2), Point(), Before(lambda: change(i)))


@program(breaks=0)
def test_class_patterns_tell_iterators_apart():
    def fn(x):
        kinds = []
        for value in (map(len, ()), (n for n in ()), zip(), {}.keys(), range(3), "text", b"text"):
            match value:
                case Generator():
                    kinds.append("generator")
                case map() | zip():
                    kinds.append("builtin")
                case KeysView():
                    kinds.append("keys")
                case [*_]:
                    kinds.append("sequence")
                case _:
                    kinds.append("other")
        return x, kinds

    return fn, ordinary


@program
def test_mapping_pattern_calls_get_of_the_subject():
    class Counting(dict):
        def get(self, key, default=None):
            asked.append(key)
            return dict.get(self, key, default)

    asked = []

    def fn(x, table):
        match table:
            case {"k": 3, **rest}:
                return x, rest
            case {"k": factor}:
                return x * factor

    return fn, [(torch.ones(2), Counting(k=k, other=1)) for k in (3, 4, 3, 4)], asked


class Keys:
    first = second = "a"


@program
def test_a_mapping_pattern_with_a_key_twice():
    def fn(x):
        try:
            match {"a": 1}:
                case {Keys.first: _, Keys.second: _}:
                    return x
        except ValueError as error:
            return x * 2, str(error)

    return fn, lambda i: (torch.ones(2),)
