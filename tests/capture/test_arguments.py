"""Arguments: defaults, keyword-only, positional-only, star forms, wrong calls."""

import inspect

import torch

from .call_sequences import Before, ordinary, swing, swinging
from .harness import Keywords, program


@program
def test_default_argument_given_and_left_out():
    def fn(x, scale=2.0):
        return x * scale

    return fn, [(torch.randn(3),), (torch.randn(3), 3.0), (torch.randn(3), Keywords(scale=4.0)), (torch.randn(3),)]


@program(breaks=0)
def test_default_tensor_is_used():
    def fn(x, bias=torch.ones(3)):
        return x + bias

    return fn, [(torch.randn(3),), (torch.randn(3), torch.zeros(3)), (torch.randn(3),)]


@program
def test_defaults_replaced_between_calls_are_seen():
    def scaled(x, factor=2):
        return x * factor

    def fn(x):
        return scaled(x)

    x = torch.randn(3)
    return fn, [(x,), (x, Before(lambda: setattr(scaled, "__defaults__", (7,)))), (x,)]


@program
def test_keyword_defaults_replaced_between_calls_are_seen():
    def scaled(x, *, factor=2):
        return x * factor

    def fn(x):
        return scaled(x)

    x = torch.randn(3)
    return fn, [(x,), (x, Before(lambda: scaled.__kwdefaults__.update(factor=7))), (x,)]


@program
def test_defaults_of_the_compiled_function_itself_replaced():
    def fn(x, factor=2):
        return x * factor

    x = torch.randn(3)
    return fn, [(x,), (x, Before(lambda: setattr(fn, "__defaults__", (7,)))), (x,)]


@program
def test_mutable_default_keeps_growing():
    def fn(x, seen=[]):  # noqa: B006
        seen.append(x.sum())
        return torch.stack(seen), len(seen)

    return fn, ordinary


@program
def test_mutable_default_of_an_inner_call_grows_around_a_break():
    def note(x, log={"n": 0}):  # noqa: B006
        log["n"] += 1
        if x.mean() > 0:
            log["positive"] = log["n"]
        return log

    def fn(x):
        log = note(x)
        return x * log["n"], dict(log)

    return fn, swinging


@program(breaks=0)
def test_keyword_only_arguments():
    def fn(x, *, scale, shift=0.0):
        return x * scale + shift

    return fn, [
        (torch.randn(3), Keywords(scale=2.0)),
        (torch.randn(3), Keywords(scale=2.0, shift=1.0)),
        (torch.randn(3), Keywords(shift=1.0, scale=2.0)),
        (torch.randn(3), Keywords(scale=2.0)),
    ]


@program(breaks=0)
def test_positional_only_name_is_free_for_the_keywords():
    def fn(x, /, **options):
        return x * options["x"]

    return fn, [
        (torch.randn(3), Keywords(x=2.0)),
        (torch.randn(3), Keywords(x=torch.ones(3))),
        (torch.randn(3), Keywords(x=2.0)),
    ]


@program
def test_star_arguments_of_changing_number():
    def fn(*xs):
        total = torch.zeros(3)
        for x in xs:
            total = total + x
        return total / len(xs), len(xs)

    return fn, [
        (torch.randn(3),),
        (torch.randn(3), torch.randn(3)),
        (torch.randn(3),),
        (torch.randn(3), torch.randn(3), torch.randn(3)),
    ]


@program
def test_keyword_arguments_keep_the_order_of_the_call():
    def fn(**parts):
        return torch.cat(list(parts.values())), list(parts)

    return fn, [
        (Keywords(a=torch.randn(2), b=torch.randn(2)),),
        (Keywords(b=torch.randn(2), a=torch.randn(2)),),
        (Keywords(a=torch.randn(2), b=torch.randn(2)),),
    ]


@program(breaks=0)
def test_star_and_double_star_forwarded():
    def layer(x, weight, bias=None, *, scale=1.0):
        y = x @ weight
        return y * scale if bias is None else (y + bias) * scale

    def fn(*args, **kwargs):
        return layer(*args, **kwargs)

    w = torch.randn(3, 3)
    return fn, [
        (torch.randn(2, 3), w),
        (torch.randn(2, 3), w, torch.ones(3), Keywords(scale=2.0)),
        (torch.randn(2, 3), Keywords(weight=w)),
        (torch.randn(2, 3), w),
    ]


@program(breaks=0)
def test_several_star_forms_in_one_call():
    def total(a, b, c, d, *, e, f):
        return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f

    def fn(x):
        return total(*[x, x + 1], x * 2, *(x.sin(),), **{"e": x.cos()}, **dict(f=1))

    return fn, ordinary


@program
def test_arguments_are_evaluated_from_left_to_right():
    order = []

    def note(name, value):
        order.append(name)
        return value

    def call(a, b, *rest, c, **more):
        return a + b + sum(rest) + c + more["d"]

    def fn(x):
        return call(note("a", x), note("b", 1), *note("rest", [2, 3]), c=note("c", x.sum()), d=note("d", 4))

    return fn, ordinary, order


@program
def test_missing_argument():
    def fn(x, weight):
        return x * weight

    return fn, [(torch.randn(3),), (torch.randn(3), 2.0), (torch.randn(3),), (torch.randn(3), 2.0)]


@program
def test_too_many_arguments():
    def fn(x, weight=1):
        return x * weight

    return fn, [
        (torch.randn(3), 2),
        (torch.randn(3), 2, 3),
        (torch.randn(3), 2),
        (torch.randn(3), 2, 3),
        (torch.randn(3),),
    ]


@program
def test_unexpected_keyword():
    def fn(x, weight=1):
        return x * weight

    return fn, [
        (torch.randn(3), Keywords(weigth=2)),
        (torch.randn(3), Keywords(weight=2)),
        (torch.randn(3), Keywords(weigth=2)),
        (torch.randn(3), Keywords(weight=2)),
    ]


@program
def test_argument_given_twice():
    def fn(x, weight=1):
        return x * weight

    return fn, [(torch.randn(3), *more) for more in ((Keywords(x=2),), (1,), (Keywords(x=2),), (1,))]


@program
def test_missing_keyword_only_argument():
    def fn(x, *, weight, bias):
        return x * weight + bias

    return fn, [
        (torch.randn(3),),
        (torch.randn(3), Keywords(weight=2, bias=1)),
        (torch.randn(3), Keywords(weight=2)),
        (torch.randn(3), Keywords(weight=2, bias=1)),
    ]


@program
def test_positional_only_given_by_name():
    def fn(x, y, /):
        return x * y

    return fn, [(torch.randn(3), *more) for more in ((Keywords(y=2),), (2,), (Keywords(y=2),), (2,))]


@program
def test_wrong_inner_calls_are_caught_with_their_texts():
    def layer(x, weight, *, bias=None):
        return x * weight

    def fn(x, case):
        try:
            if case == 0:
                layer(x)
            elif case == 1:
                layer(x, 1, 2)
            elif case == 2:
                layer(x, 1, bais=2)
            elif case == 3:
                layer(x, 1, x=2)
            elif case == 4:
                layer(*[x, 1], **{"weight": 3})
        except TypeError as error:
            return x + case, str(error)
        return layer(x, 2)

    return fn, [(torch.randn(3), case) for case in (0, 1, 2, 3, 4, 5, 0)]


@program
def test_keys_of_a_double_star_must_be_strings():
    def layer(**options):
        return options

    def fn(x, key):
        try:
            layer(**{key: x})
            return x * 2
        except TypeError as error:
            return x * 3, str(error)

    return fn, [(torch.randn(3), "a"), (torch.randn(3), 1), (torch.randn(3), "a")]


@program
def test_keywords_dict_is_a_copy():
    options = {"scale": 2.0}

    def layer(x, **kwargs):
        kwargs["scale"] = 10.0
        return x * kwargs["scale"]

    def fn(x):
        return layer(x, **options), options["scale"]

    return fn, ordinary, options


@program
def test_argument_list_is_mutated():
    def fn(xs, x):
        xs.append(x * 2)
        xs[0] = x + 1
        xs.insert(1, len(xs))
        return len(xs)

    return fn, lambda i: ([torch.zeros(2)], torch.randn(2))


@program
def test_argument_dict_is_mutated_around_a_break():
    def fn(batch):
        batch["hidden"] = batch["x"] * 2
        if batch["hidden"].sum() > 0:
            batch.pop("mask", None)
        else:
            batch["mask"] = batch["x"] < 0
        batch["out"] = batch["hidden"] + 1
        del batch["x"]

    return fn, lambda i: ({"x": swing(i), "mask": None},)


@program
def test_argument_set_and_nested_lists_are_mutated():
    def fn(x, names, nested):
        names.add(f"dim{x.dim()}")
        names.discard("old")
        nested[0][1].append(x * 3)
        nested[0].reverse()
        return x.sum(), sorted(names)

    return fn, lambda i: (torch.randn(2), {"old", "other"}, [[1, [2]]])


@program
def test_same_list_passed_twice_stays_one():
    def fn(a, b, x):
        a.append(x)
        b.append(x * 2)
        return len(a), len(b), a is b

    def calls(i):
        one, two = [], []
        return (one, one if i != 1 else two, torch.randn(2))

    return fn, calls


@program
def test_flag_argument_of_changing_type():
    def fn(x, flag):
        if flag:
            return x + 1, type(flag).__name__
        return x - 1, type(flag).__name__

    return fn, [(torch.randn(3), flag) for flag in (True, 1, 0, False, None, "a", "", [], [0], True)]


@program
def test_one_and_one_point_zero_and_true_are_distinguished():
    def fn(x, n):
        return x.to(torch.int64) * n, [n] * 2

    return fn, [(torch.full((2,), float(k)), n) for k, n in enumerate((1, 1.0, True, 1, -0.0, 0.0, 1.0))]


@program
def test_nested_containers_as_arguments():
    def fn(batch):
        (a, [b, c]), options = batch["inputs"], batch["options"]
        return (a + b) * options.get("scale", 1) + c

    return fn, [
        ({"inputs": (torch.randn(2), [torch.randn(2), 1]), "options": {"scale": 2}},),
        ({"inputs": (torch.randn(2), [torch.randn(2), 2]), "options": {}},),
        ({"inputs": (torch.randn(2), [torch.randn(2), torch.randn(2)]), "options": {"scale": 2}},),
        ({"inputs": (torch.randn(2), [torch.randn(2), 1]), "options": {"scale": 2}},),
    ]


@program
def test_none_and_tensor_alternate_as_argument():
    def fn(x, mask=None):
        if mask is not None:
            x = x.masked_fill(mask, 0.0)
        return x.sum()

    calls = [(torch.randn(3),), (torch.randn(3), torch.tensor([True, False, True])), (torch.randn(3), None)]
    return fn, calls + [(torch.randn(3), torch.tensor([True, True, False])), (torch.randn(3),)]


@program
def test_argument_rebound_inside_leaves_the_callers_alone():
    def fn(x, items):
        items = items + [x]
        x = x * 2
        items += [x]
        return items

    return fn, lambda i: (swing(i), [1])


@program
def test_names_of_a_double_star_after_a_break():
    """Behind the break a string is live: its value is not a constant of what is compiled until it is used as one."""

    class Name(str):
        pass

    def layer(**options):
        return [(name, str(type(name).__name__), value + 1) for name, value in options.items()]

    def fn(x, key):
        if x.sum() > 100:
            return x
        try:
            return layer(**{key: x}), list(dict(**{key: x}).values())
        except TypeError as error:
            return x * 3, str(error)

    return fn, [(torch.randn(3), key) for key in ("a", "b", Name("c"), 1, "a", None)]


# ---- signatures, as type checkers around a function use them


def weighted(x: torch.Tensor, weight: float = 2.0, *rest, bias=None, **more) -> torch.Tensor:
    return x * weight


SIGNATURE = inspect.signature(weighted)


@program(breaks=0)
def test_signature_is_bound_to_the_arguments_of_a_call():
    def fn(x, extra):
        bound = SIGNATURE.bind(x, 3.0, *extra, bias=x + 1, name="a")
        partial = SIGNATURE.bind_partial(weight=x * 2)
        given = dict(bound.arguments)
        bound.apply_defaults()
        bound.arguments["weight"] = 4.0
        return weighted(*bound.args, **bound.kwargs), given, bound.arguments["rest"], partial.arguments

    return fn, lambda i: (torch.randn(2), (1, 2)[: i % 2])


@program(breaks=0)
def test_signature_refuses_arguments():
    def fn(x):
        texts = []
        for args, kwargs in (((), {}), ((x, 1), {"weight": 2}), ((x,), {})):
            try:
                bound = SIGNATURE.bind(*args, **kwargs)
            except TypeError as error:
                texts.append(str(error))
        bound.apply_defaults()
        return bound.arguments["x"] + 1, bound.arguments["weight"], texts

    return fn, ordinary


@program(breaks=0)
def test_parameters_of_a_signature_are_read():
    def fn(x, signature):
        names = [name for name, each in signature.parameters.items() if each.kind is each.VAR_KEYWORD]
        kinds = [(each.name, each.annotation is torch.Tensor, each.default) for each in signature.parameters.values()]
        return x * len(names), names, kinds[1], signature.return_annotation is torch.Tensor

    return fn, lambda i: (torch.randn(2), SIGNATURE if i % 2 == 0 else inspect.signature(lambda a, b=1: a))
