"""Aliases: one tensor under several names, among arguments, outputs, closures and from call to call."""

import torch

from .caller_programs import program_with_caller
from .harness import program


@program
def test_same_tensor_passed_twice_and_then_two_tensors():
    def fn(x, y):
        x.add_(1)
        return x * y, x is y

    a, b, c = torch.randn(3), torch.randn(3), torch.randn(3)
    return fn, [(a, a), (b, c), (c, c), (a, b)]


@program
def test_two_tensors_and_then_the_same_passed_twice():
    def fn(x, y):
        y.mul_(2)
        return x + y

    a, b = torch.randn(3), torch.randn(3)
    return fn, [(a, b), (a, a), (b, a), (b, b)]


@program
def test_overlapping_views_side_by_side():
    def fn(x, y):
        x.add_(1)
        y.mul_(2)
        return x.sum() - y.sum()

    base, other = torch.arange(6.0), torch.arange(6.0)
    return fn, [(base[:4], base[2:]), (base[:3], base[3:]), (other[:4], base[2:]), (other[1:5], other[:4])], base, other


@program
def test_disjoint_views_first_and_overlapping_views_later():
    def fn(x, y):
        x.zero_()
        return y + 1

    base = torch.arange(1.0, 7.0)
    return fn, [(base[:2], base[4:]), (base[1:3], base[2:4]), (base[:2], base[4:]), (base[4:], base[4:])], base


@program
def test_base_and_its_view_are_both_arguments():
    def fn(base, view):
        view.add_(1)
        doubled = base * 2
        base.zero_()
        return doubled, view.clone()

    a, b = torch.randn(4), torch.randn(4)
    return fn, [(a, a[1:]), (b, a[:2]), (b, b[2:]), (a, b[:3])]


@program_with_caller
def test_output_is_the_input_object():
    def fn(x, y):
        return x, y, [x, {"y": y}]

    def caller(fn, x, y):
        a, b, (c, d) = fn(x, y)
        return a is x, b is y, c is x, d["y"] is y, a is b

    a, b = torch.randn(2), torch.randn(2)
    return fn, caller, [(a, b), (a, a), (b, a), (b, b)]


@program_with_caller
def test_mutated_input_is_returned_as_itself():
    def fn(x):
        x.add_(1)
        return x.mul_(2)

    def caller(fn, x):
        out = fn(x)
        out.sub_(100)
        return out is x

    return fn, caller, lambda i: (torch.randn(3),)


@program_with_caller
def test_one_intermediate_returned_twice_is_one_object():
    def fn(x):
        y = x * 2
        return y, [y], y.view(-1), y + 0

    def caller(fn, x):
        a, (b,), c, d = fn(x)
        a.zero_()
        return a is b, a is c, c, d

    return fn, caller, lambda i: (torch.randn(3),)


@program_with_caller
def test_results_of_an_earlier_call_are_not_written_over():
    held = []

    def fn(x):
        return x * 2, torch.zeros(2), x.sum()

    def caller(fn, x):
        held.append(fn(x))
        held[-1][1].add_(len(held))
        return held

    return fn, caller, lambda i: (torch.randn(3),)


@program_with_caller
def test_closure_tensor_is_returned_as_itself():
    table = torch.arange(3.0)

    def fn(x):
        return table, x * table, table[1:]

    def caller(fn, x):
        whole, product, tail = fn(x)
        tail.add_(1)
        return whole is table, product

    return fn, caller, lambda i: (torch.randn(3),), table


@program
def test_argument_remembered_in_a_closure_is_changed_by_the_next_call():
    seen = []

    def fn(x):
        for old in seen:
            old.add_(1)
        seen.append(x)
        return x * len(seen)

    a, b = torch.zeros(2), torch.ones(2)
    return fn, [(a,), (b,), (a,), (torch.zeros(2),)], seen


@program
def test_output_remembered_in_a_closure_aliases_the_argument():
    held = []

    def fn(x):
        if held:
            held[-1].add_(10)
        held.append(x[1:])
        return x.sum()

    x = torch.zeros(3)
    return fn, [(x,), (x,), (x,), (x,)], held, x


@program
def test_parameter_is_also_an_argument():
    layer = torch.nn.Linear(2, 2)

    def fn(w, x):
        with torch.no_grad():
            w.mul_(2)
        return layer(x)

    other = torch.randn(2, 2)
    return fn, [(layer.weight, torch.randn(1, 2)), (other, torch.randn(1, 2)), (layer.weight, torch.randn(1, 2))], layer


@program
def test_argument_equals_a_closure_tensor_on_some_calls():
    table = torch.ones(3)

    def fn(x):
        table.add_(1)
        return x * 2, x is table

    return fn, [(torch.ones(3),), (table,), (torch.ones(3),), (table,)], table


@program
def test_identity_test_chooses_the_path():
    def fn(x, y):
        if x is y:
            return x * 2
        return torch.maximum(x, y)

    a, b = torch.randn(3), torch.randn(3)
    return fn, [(a, b), (a, a), (b, a), (b, b)]


@program
def test_list_holds_one_tensor_in_several_places():
    def fn(tensors):
        for t in tensors:
            t.add_(1)
        return torch.stack(tensors).sum(0), len({id(t) for t in tensors})

    a, b, c = torch.zeros(2), torch.zeros(2), torch.zeros(2)
    return fn, [([a, b, c],), ([a, a, b],), ([a, b, c],), ([c, c, c],)]


@program
def test_tensors_as_dict_keys_are_found_by_identity():
    def fn(x, y):
        count = {}
        for t in (x, y, x):
            count[t] = count.get(t, 0) + 1
        return [n * t for t, n in count.items()]

    a, b = torch.randn(2), torch.randn(2)
    return fn, [(a, b), (a, a), (b, a), (b, b)]


@program
def test_membership_by_identity_with_any():
    def fn(x, pool):
        inside = any(x is t for t in pool)
        return x * 2 if inside else x - 1

    a, b, c = torch.randn(2), torch.randn(2), torch.randn(2)
    return fn, [(a, [a, b]), (c, [a, b]), (b, [a, b]), (c, [c])]


@program_with_caller
def test_input_and_output_share_storage_through_flatten():
    def fn(x):
        return x.flatten(), x.squeeze(), x[None], x.expand_as(x), x.detach()

    def caller(fn, x):
        outs = fn(x)
        return [o.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for o in outs], [o is x for o in outs]

    return fn, caller, [(torch.randn(2, 3),), (torch.randn(3, 2).t(),), (torch.randn(2, 3),), (torch.randn(6),)]


@program_with_caller
def test_caller_changes_the_argument_between_two_uses_of_the_result():
    def fn(x):
        return x.view(-1), x.clone()

    def caller(fn, x):
        view, copy = fn(x)
        first = view.sum()
        x.add_(1)
        return first, view.sum(), copy.sum()

    return fn, caller, lambda i: (torch.randn(2, 2),)


@program
def test_accumulator_list_of_tensors_is_mutated_and_grown():
    total = [torch.zeros(2)]

    def fn(x):
        total[0] += x
        total.append(total[0].clone())
        total[0] = total[0] * 1
        return total[-1]

    return fn, lambda i: (torch.randn(2),), total
