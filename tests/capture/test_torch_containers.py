"""Tensors in Python containers as arguments and results, and torch's own containers of modules and parameters."""

import dataclasses
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import NamedTuple

import torch
from torch import nn
from torch.utils import _pytree as pytree

from .caller_programs import program_with_caller
from .harness import Keywords, program

Pair = namedtuple("Pair", "left right")


class Batch(NamedTuple):
    data: torch.Tensor
    label: int = 0

    def scaled(self):
        return self._replace(data=self.data * self.label)


@dataclasses.dataclass
class State:
    hidden: torch.Tensor
    step: int = 0
    extra: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: torch.Tensor
    k: float


@program(breaks=0)
def test_dictionary_of_tensors():
    def fn(batch):
        return {"sum": batch["x"] + batch["y"], "x": batch["x"], **{k + "2": v * 2 for k, v in batch.items()}}

    return fn, [
        ({"x": torch.randn(2), "y": torch.randn(2)},),
        ({"y": torch.randn(2), "x": torch.randn(2)},),
        ({"x": torch.randn(2), "y": torch.randn(2), "z": torch.randn(1)},),
        ({"x": torch.randn(2), "y": torch.randn(2)},),
    ]


@program(breaks=0)
def test_nested_structure_in_and_out():
    def fn(tree):
        (a, [b, c]), d = tree["pair"], tree["rest"]["d"]
        return [(a + b, {"c": c}), (d, [a, [b * d]])]

    return fn, lambda i: ({"pair": (torch.randn(2), [torch.randn(2), i]), "rest": {"d": float(i)}},)


@program(breaks=0)
def test_lists_of_changing_length():
    def fn(tensors):
        return torch.stack(list(tensors)).sum(0), len(tensors), type(tensors).__name__

    return fn, [
        ([torch.randn(2)] * 2,),
        ([torch.randn(2) for _ in range(3)],),
        ((torch.randn(2), torch.randn(2)),),
        ([torch.randn(2), torch.randn(2)],),
    ]


@program
def test_named_tuples_in_and_out():
    def fn(pair, batch):
        scaled = batch.scaled()
        return Pair(pair.right * 2, pair.left), scaled.data, scaled._asdict(), pair._fields, batch.label

    return fn, lambda i: (Pair(torch.randn(2), torch.randn(2)), Batch(torch.randn(2), i))


@program
def test_dataclass_is_changed_and_replaced():
    def fn(state, x):
        state.hidden = (state.hidden + x).tanh()
        state.step += 1
        state.extra[f"at {state.step}"] = x.sum()
        return dataclasses.replace(state, step=state.step * 10), state

    return fn, [
        (State(torch.zeros(2)), torch.randn(2)),
        (State(torch.ones(2), 5), torch.randn(2)),
        (State(torch.ones(2), 1, {"kept": 1}), torch.randn(2)),
        (State(torch.zeros(2)), torch.randn(2)),
    ]


@program
def test_same_dataclass_comes_back_each_call():
    state = State(torch.zeros(2))

    def fn(s, x):
        s.hidden = s.hidden * 0.5 + x
        s.step += 1
        return s.hidden * s.step

    return fn, [(state, torch.randn(2)) for _ in range(4)], state


@program
def test_frozen_dataclass_refuses_assignment():
    def fn(f):
        try:
            f.k = 2.0
        except dataclasses.FrozenInstanceError as error:
            return str(error), f.x * f.k, Frozen(f.x + 1, 3.0)

    return fn, lambda i: (Frozen(torch.randn(2), float(i)),)


@program(breaks=0)
def test_none_in_place_of_a_tensor():
    def fn(x, mask=None, bias=None):
        if mask is not None:
            x = x * mask
        return x if bias is None else x + bias

    return fn, [
        (torch.randn(2),),
        (torch.randn(2), torch.ones(2)),
        (torch.randn(2), None, torch.ones(2)),
        (torch.randn(2), Keywords(bias=torch.zeros(2))),
        (torch.randn(2), None, None),
        (torch.randn(2),),
    ]


@program
def test_dictionary_argument_is_changed():
    def fn(d, x):
        old = d.pop("drop", None)
        d["new"] = x * 2
        d.setdefault("count", 0)
        d["count"] += 1
        d["x"] += x
        return old, list(d)

    return fn, [
        ({"x": torch.zeros(2), "drop": 1}, torch.randn(2)),
        ({"x": torch.zeros(2)}, torch.randn(2)),
        ({"count": 4, "x": torch.zeros(2)}, torch.randn(2)),
        ({"x": torch.zeros(2), "drop": 1}, torch.randn(2)),
    ]


@program
def test_list_argument_is_changed():
    def fn(tensors, x):
        tensors.append(x * 2)
        tensors[0] = tensors[0] + x
        tensors.insert(1, x)
        last = tensors.pop()
        tensors.sort(key=lambda t: t.numel())
        tensors += [last, None]
        return last

    return fn, lambda i: ([torch.randn(2), torch.randn(1)], torch.randn(2))


@program
def test_deque_keeps_the_last_states():
    window = deque(maxlen=2)

    def fn(x):
        window.append(x * 2)
        return torch.stack(tuple(window)).mean(0), len(window)

    return fn, lambda i: (torch.randn(2),), window


@program
def test_default_dictionary_groups_tensors():
    def fn(tensors):
        groups = defaultdict(list)
        for t in tensors:
            groups[t.dim()].append(t.sum())
        return {k: torch.stack(v) for k, v in sorted(groups.items())}

    return fn, [
        ([torch.randn(2), torch.randn(2, 2), torch.randn(3)],),
        ([torch.randn(1)],),
        ([torch.randn(2), torch.randn(2, 2), torch.randn(3)],),
        ([],),
    ]


@program
def test_ordered_dictionary_moves_keys():
    def fn(d):
        d.move_to_end("a")
        return OrderedDict((k, v * i) for i, (k, v) in enumerate(d.items()))

    return fn, lambda i: (OrderedDict(a=torch.randn(2), b=torch.randn(2), c=torch.randn(1)),)


@program
def test_pytree_maps_over_the_batch():
    def fn(tree):
        leaves, spec = pytree.tree_flatten(tree)
        doubled = pytree.tree_map(lambda v: v * 2 if isinstance(v, torch.Tensor) else v, tree)
        return pytree.tree_unflatten([leaf for leaf in leaves], spec), doubled, len(leaves)

    return fn, lambda i: ({"a": [torch.randn(2), i], "b": (torch.randn(1), None)},)


@program
def test_model_output_is_a_mapping_with_attributes():
    class Output(OrderedDict):
        def __init__(self, **values):
            super().__init__({k: v for k, v in values.items() if v is not None})
            for k, v in values.items():
                object.__setattr__(self, k, v)

        def to_tuple(self):
            return tuple(self[k] for k in self)

    layer = nn.Linear(2, 2)

    def fn(x, y=None):
        logits = layer(x)
        loss = None if y is None else (logits - y).pow(2).mean()
        out = Output(loss=loss, logits=logits)
        return out.to_tuple(), out.logits is out["logits"], list(out), out.loss

    return fn, [(torch.randn(1, 2),), (torch.randn(1, 2), torch.randn(1, 2)), (torch.randn(1, 2),)]


@program(breaks=0)
def test_named_results_of_max_and_sort():
    def fn(x):
        top = torch.max(x, dim=1)
        values, indices = top
        order = x.sort(dim=-1)
        return top.values + values, top.indices, indices, order, x.topk(2).indices, torch.aminmax(x)

    return fn, lambda i: (torch.randn(3, 4),)


@program(breaks=0)
def test_module_list_is_sliced_enumerated_and_reversed():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(4))

        def forward(self, x, n):
            for i, layer in enumerate(self.layers[:n]):
                x = layer(x) * (i + 1)
            for layer in reversed(self.layers):
                x = layer(x)
            return x + self.layers[-1].bias, len(self.layers)

    return Model(), [(torch.randn(1, 2), n) for n in (2, 0, 4, 2)]


@program(breaks=0)
def test_module_dictionary_is_a_table_of_branches():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleDict({"a": nn.Linear(2, 1), "b": nn.Linear(2, 3)})

        def forward(self, x, name):
            if name not in self.heads:
                return {k: head(x) for k, head in self.heads.items()}
            return self.heads[name](x)

    return Model(), [(torch.randn(1, 2), n) for n in ("a", "b", "none", "a", "b")]


@program(breaks=0)
def test_parameter_list_and_dictionary():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.scales = nn.ParameterList([nn.Parameter(torch.randn(2)) for _ in range(3)])
            self.named = nn.ParameterDict({"bias": nn.Parameter(torch.randn(2))})

        def forward(self, x):
            for s in self.scales:
                x = x * s
            for name, p in self.named.items():
                x = x + p * len(name)
            return x - self.named["bias"] * self.scales[-1], len(self.scales)

    return Model(), lambda i: (torch.randn(2),)


@program(breaks=0)
def test_sequential_is_sliced_and_indexed():
    model = nn.Sequential(OrderedDict(first=nn.Linear(2, 2), act=nn.ReLU(), last=nn.Linear(2, 1)))

    def fn(x, n):
        return model[:n](x), model.first(x), model[-1](x), [type(m).__name__ for m in model]

    return fn, [(torch.randn(1, 2), n) for n in (1, 3, 2, 1)]


@program_with_caller
def test_returned_container_is_new_each_call():
    def fn(x):
        return [x, x * 2], {"x": x}

    def caller(fn, x):
        items, table = fn(x)
        items.append(1)
        table["more"] = 2
        return items, table

    return fn, caller, lambda i: (torch.randn(2),)


@program_with_caller
def test_returned_container_is_the_argument():
    def fn(items, x):
        items.append(x)
        return items, {"items": items}

    def caller(fn, items, x):
        out, table = fn(items, x)
        return out is items, table["items"] is items, out

    return fn, caller, lambda i: ([torch.randn(1)], torch.randn(2))


@program
def test_star_arguments_gather_and_spread():
    def inner(a, *rest, key=1, **more):
        return a + sum(rest) * key, sorted(more)

    def fn(*args, **kwargs):
        first, *others = args
        return inner(*args, **kwargs), inner(first, *others[:1], **{"key": 2}), len(args)

    return fn, [
        (torch.ones(2),),
        (torch.ones(2), torch.ones(2), 3),
        (torch.ones(2), Keywords(key=4, other=None)),
        (torch.ones(2), 2, Keywords(key=4)),
        (torch.zeros(2),),
    ]


@program
def test_objects_in_a_set_of_names():
    def fn(x, names):
        unique = set(names)
        return [x * len(unique)] + [x + i for i, n in enumerate(("a", "b", "c")) if n in unique], sorted(unique)

    return fn, [(torch.ones(2), n) for n in (["a"], ["a", "b", "a"], [], ["c", "a"], ["a"])]
