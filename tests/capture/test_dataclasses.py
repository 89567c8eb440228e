"""dataclasses, NamedTuple and enums with tensors in and around them."""

import enum
from dataclasses import FrozenInstanceError, InitVar, asdict, astuple, dataclass, field, fields, is_dataclass, replace
from typing import NamedTuple

import torch

from .call_sequences import Before, ordinary, swinging
from .harness import program


@dataclass
class Output:
    """A result as models return it."""

    loss: torch.Tensor
    logits: torch.Tensor
    hidden: list = field(default_factory=list)
    name: str = "out"


@dataclass(frozen=True)
class Config:
    """Settings that cannot change."""

    width: int = 2
    act: str = "relu"


class Stats(NamedTuple):
    """A named tuple with a method and a default."""

    mean: torch.Tensor
    count: int = 1

    def scaled(self):
        return self.mean * self.count


class Mode(enum.Enum):
    TRAIN = "train"
    EVAL = "eval"

    @property
    def scale(self):
        return 2.0 if self is Mode.TRAIN else 1.0


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Part(enum.Flag):
    WEIGHT = enum.auto()
    BIAS = enum.auto()
    BOTH = WEIGHT | BIAS


@program
def test_dataclass_made_inside_and_returned():
    def fn(x):
        out = Output(x.sum(), logits=x * 2)
        out.hidden.append(x + 1)
        return out

    return fn, ordinary


@program(breaks=0)
def test_dataclass_fields_feed_the_computation():
    def fn(x):
        out = Output(loss=x.mean(), logits=x)
        return out.logits * out.loss + len(out.hidden), out.name

    return fn, ordinary


@program
def test_dataclass_argument_is_mutated_around_a_break():
    def fn(out, x):
        out.logits = out.logits + x
        if out.logits.sum() > 0:
            out.loss = out.logits.sum()
        out.hidden.append(out.loss * 2)
        return out.name

    return fn, lambda i: (Output(torch.zeros(()), torch.zeros(4)), swinging(i)[0])


@program(breaks=0)
def test_frozen_config_decides_the_path():
    def fn(x, config):
        y = x[: config.width]
        return y.relu() if config.act == "relu" else y.tanh()

    return fn, [(torch.randn(4), c) for c in (Config(), Config(3), Config(2, "tanh"), Config())]


@program
def test_frozen_dataclass_refuses_writes():
    def fn(x):
        config = Config(3)
        try:
            config.width = 4
        except FrozenInstanceError as error:
            return x * config.width, str(error)

    return fn, ordinary


@program
def test_frozen_dataclass_as_dict_key():
    table = {Config(): 2.0, Config(3): 5.0}

    def fn(x, width):
        return x * table.get(Config(width), 1.0), Config(width) == Config(3), len({Config(), Config(2)})

    return fn, [(torch.randn(2), n) for n in (2, 3, 4, 2)]


@program
def test_replace_and_asdict_and_astuple():
    def fn(x):
        config = replace(Config(), width=3)
        out = Output(x.sum(), x, [x + 1])
        parts = asdict(out)
        return x * config.width, parts, list(asdict(config)), len(astuple(out)), replace(out, name="new").name

    return fn, ordinary


@program
def test_asdict_copies_deeply():
    def fn(x):
        out = Output(x.sum(), x, [[x]])
        parts = asdict(out)
        parts["hidden"][0].append(1)
        return len(out.hidden[0]), parts["logits"] is x, parts["logits"] + 1

    return fn, ordinary


@program
def test_post_init_and_init_var():
    @dataclass
    class Layer:
        weight: torch.Tensor
        scale: InitVar[float] = 2.0
        size: int = field(init=False)

        def __post_init__(self, scale):
            self.weight = self.weight * scale
            self.size = self.weight.shape[0]

    def fn(x):
        return Layer(x).weight + Layer(x, 3.0).size, Layer(x).size

    return fn, [(torch.randn(2),), (torch.randn(3),), (torch.randn(2),)]


@program
def test_dataclass_inheritance_and_keyword_only_fields():
    @dataclass
    class Base:
        x: torch.Tensor
        scale: float = 2.0

    @dataclass(kw_only=True)
    class Shifted(Base):
        shift: float
        scale: float = 3.0

    def fn(x):
        s = Shifted(x, shift=1.0)
        try:
            Shifted(x)
        except TypeError as error:
            return s.x * s.scale + s.shift, str(error).split(".")[-1], [f.name for f in fields(s)]

    return fn, ordinary


@program
def test_dataclass_order_and_equality():
    @dataclass(order=True)
    class Item:
        priority: int
        payload: torch.Tensor = field(compare=False)

    def fn(xs):
        items = [Item(n, x) for n, x in xs]
        same = items[0] == Item(xs[0][0], None)
        return max(items).payload * 2, [i.priority for i in sorted(items)], same, items[0] < items[-1]

    return fn, [([(n, torch.randn(2)) for n in order],) for order in ((1, 3, 2), (5, 4), (1, 3, 2))]


@program
def test_dataclass_with_slots():
    @dataclass(slots=True)
    class Point:
        x: torch.Tensor
        n: int = 0

    def fn(x):
        p = Point(x)
        p.n += 2
        try:
            p.other = 1
        except AttributeError:
            p.n += 10
        return p.x * p.n

    return fn, ordinary


@program
def test_default_factory_runs_for_every_object():
    made = []

    def factory():
        made.append(len(made))
        return [made[-1]]

    @dataclass
    class Box:
        items: list = field(default_factory=factory)

    def fn(x):
        a, b = Box(), Box()
        a.items.append(x.shape[0])
        return x * b.items[0], a.items, a.items is b.items

    return fn, ordinary, made


@program
def test_repr_of_a_dataclass():
    def fn(x):
        return x + 1, repr(Config(x.shape[0])), f"{Config()}", is_dataclass(Config), is_dataclass(x)

    return fn, [(torch.randn(2),), (torch.randn(3),), (torch.randn(2),)]


@program
def test_dataclass_field_changed_between_calls():
    out = Output(torch.ones(2), torch.ones(2))

    def fn(x):
        return x + out.logits if out.name == "out" else x - out.loss

    x = torch.randn(2)
    return fn, [
        (x,),
        (x, Before(lambda: setattr(out, "name", "other"))),
        (x, Before(lambda: setattr(out, "loss", torch.zeros(2)))),
        (x, Before(lambda: setattr(out, "name", "out"))),
    ]


@program
def test_model_output_that_is_also_a_mapping():
    @dataclass
    class Mapped:
        loss: torch.Tensor = None
        logits: torch.Tensor = None

        def __getitem__(self, key):
            if isinstance(key, str):
                return getattr(self, key)
            return self.to_tuple()[key]

        def to_tuple(self):
            return tuple(getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None)

    def fn(x, labels=None):
        logits = x * 2
        loss = None if labels is None else (logits - labels).pow(2).mean()
        out = Mapped(loss, logits)
        return out["logits"] + 1, out[0], len(out.to_tuple())

    return fn, [(torch.randn(2),), (torch.randn(2), torch.ones(2)), (torch.randn(2),)]


@program(breaks=0)
def test_named_tuple_fields_methods_and_unpacking():
    def fn(x):
        s = Stats(x.mean(), x.shape[0])
        mean, count = s
        return s.scaled() + mean * count, s[1], Stats(x).count, s._replace(count=7).scaled()

    return fn, ordinary


@program
def test_named_tuple_as_argument_and_result():
    def fn(stats, x):
        return Stats(stats.mean + x.mean(), stats.count + 1), isinstance(stats, tuple)

    return fn, [(Stats(torch.randn(()), n), torch.randn(2)) for n in (1, 2, 1)]


@program(breaks=0)
def test_enum_members_choose_a_path():
    def fn(x, mode):
        if mode is Mode.TRAIN:
            return x * mode.scale + 1
        return x * mode.scale

    return fn, [(torch.randn(2), m) for m in (Mode.TRAIN, Mode.EVAL, Mode.TRAIN)]


@program
def test_enum_lookups_by_value_and_name():
    def fn(x, text):
        try:
            mode = Mode(text)
        except ValueError as error:
            return x, str(error)
        return x * mode.scale, mode.name, mode.value, Mode["EVAL"] is mode, [m.name for m in Mode], mode in Mode

    return fn, [(torch.randn(2), t) for t in ("train", "eval", "test", "train")]


@program
def test_int_enum_acts_as_a_number():
    def fn(x, level):
        return x * level + Level.HIGH, level > Level.LOW, f"{level:d}", Level(5).name, sorted(Level)[0].name

    return fn, [(torch.randn(2), n) for n in (Level.LOW, Level.HIGH, 3, Level.LOW)]


@program
def test_flags_are_combined_and_tested():
    def fn(x, part):
        if Part.WEIGHT in part:
            x = x * 2
        if part & Part.BIAS:
            x = x + 1
        return x, bool(part & ~Part.BIAS), part == Part.BOTH, (part | Part.BIAS).value

    return fn, [(torch.randn(2), p) for p in (Part.WEIGHT, Part.BOTH, Part(0), Part.BIAS, Part.WEIGHT)]


@program
def test_enum_defined_inside_with_auto_and_text():
    def fn(x, name):
        class Act(str, enum.Enum):
            RELU = "relu"
            TANH = "tanh"

        act = Act(name)
        return x.relu() if act == Act.RELU else x.tanh(), act == "relu", act.upper(), len(Act)

    return fn, [(torch.randn(2), n) for n in ("relu", "tanh", "relu")]


@program
def test_enum_members_as_dict_keys():
    table = {Mode.TRAIN: torch.relu, Mode.EVAL: torch.tanh}

    def fn(x, mode):
        return table[mode](x)

    x = torch.randn(2)
    return fn, [(x, Mode.TRAIN), (x, Mode.EVAL), (x, Mode.TRAIN, Before(lambda: table.update({Mode.TRAIN: torch.sin})))]


@program(breaks=0)
def test_text_of_a_dataclass_that_holds_itself():
    @dataclass
    class Node:
        value: int
        below: list = field(default_factory=list)

    def fn(x, n):
        leaf, root = Node(n), Node(1)
        root.below += [leaf, root]
        return x + 1, f"{root}", str(leaf), repr([leaf])

    return fn, [(torch.ones(2), n) for n in (2, 3, 2)]
