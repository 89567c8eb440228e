"""Rules of tensor subclasses, interpreted: the graph holds plain tensors, results take on the class again."""

import copy

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map, tree_map_only

from .tensor_subclasses import Course, Doubled, Pair, Quantized, Tagged, Unit, as_in_eager, pair

BACKENDS = pytest.mark.parametrize("backend", ["eager", "burnish"])


# ---- rules of the dispatcher


@BACKENDS
def test_dispatch_rule_computes_on_both_parts(backend):
    def fn(x, y):
        return (x * 2 + y).sin(), x.shape[0], type(x).__name__

    assert as_in_eager(fn, lambda i: (pair(3, 4), pair(3, 4)), backend=backend) == Course(1)


@BACKENDS
def test_wrapper_meets_a_plain_tensor(backend):
    def fn(x, y):
        return x * y, y - x

    make = lambda i: (pair(3), torch.randn(3) if i % 2 else pair(3))  # noqa: E731
    assert as_in_eager(fn, make, backend=backend) == Course(2)


@BACKENDS
def test_wrapper_is_made_inside_and_taken_apart(backend):
    def fn(x):
        y = Pair(x, x + 1) * 3
        return y.left + y.right, y, [y]

    see = lambda result, x: result[1] is result[2][0]  # noqa: E731
    assert as_in_eager(fn, lambda i: (torch.randn(3),), see=see, backend=backend) == Course(1)


@BACKENDS
def test_operator_returns_several_wrappers(backend):
    def fn(x):
        values, places = x.max(0)
        return values + 1, places

    assert as_in_eager(fn, lambda i: (pair(4, 2),), backend=backend) == Course(1)


@BACKENDS
def test_wrapper_in_wrapper(backend):
    def fn(x):
        return x * 2 - 1

    assert as_in_eager(fn, lambda i: (Pair(pair(3), pair(3)),), backend=backend) == Course(1)


@BACKENDS
def test_composite_operators_over_a_wrapper(backend):
    def fn(x, w, b):
        return nn.functional.linear(x, w, b), torch.einsum("ij,kj->ik", x, w), torch.softmax(w, 0)

    make = lambda i: (torch.randn(2, 4), pair(3, 4), torch.randn(3))  # noqa: E731
    assert as_in_eager(fn, make, backend=backend) == Course(1)


@BACKENDS
def test_inner_tensor_is_written_in_place(backend):
    def fn(x):
        x.left.add_(1)
        return x * 2

    assert as_in_eager(fn, lambda i: (pair(3),), backend=backend) == Course(1)


@BACKENDS
def test_wrapper_is_written_in_place(backend):
    def fn(x):
        y = x.mul_(2)
        return y is x, x + 1

    assert as_in_eager(fn, lambda i: (pair(3),), backend=backend) == Course(1)


@BACKENDS
def test_inner_tensor_is_replaced(backend):
    def fn(x, y):
        x.left = y * 2
        return x + 1

    assert as_in_eager(fn, lambda i: (pair(3), torch.randn(3)), backend=backend) == Course(1)


@BACKENDS
def test_result_is_the_argument(backend):
    def fn(x):
        return x, [x, x * 1]

    see = lambda result, x: (result[0] is x, result[1][0] is x, result[1][1] is x)  # noqa: E731
    assert as_in_eager(fn, lambda i: (pair(3),), see=see, backend=backend) == Course(1)


@BACKENDS
def test_views_of_a_wrapper_leave(backend):
    def fn(x):
        y = x.view(-1)
        return y, x[0], (x * 2).t(), y.view(3, 2)

    def see(result, x):
        flat, row, turned, again = result
        flat.mul_(2)
        return [y._is_view() for y in result], flat._base is x, row._base is x, again._base is x, turned._base is x

    assert as_in_eager(fn, lambda i: (pair(2, 3),), see=see, backend=backend) == Course(1)


@BACKENDS
def test_views_under_inference_mode(backend):
    def fn(x):
        return x.view(-1), x * 2

    see = lambda result, x: (result[0]._is_view(), result[1].is_inference())  # noqa: E731
    with torch.inference_mode():
        assert as_in_eager(fn, lambda i: (pair(2, 3),), see=see, backend=backend) == Course(1)


@BACKENDS
def test_sizes_of_wrappers_change(backend):
    def fn(x):
        return x * 2 + x.shape[0]

    course = as_in_eager(fn, lambda i: (pair((2, 3, 4, 2)[i], 2),), backend=backend)
    assert course == Course(3)


@BACKENDS
def test_number_that_changes_meets_a_wrapper(backend):
    class Optimizer:
        lr = 0.5

    optimizer = Optimizer()

    def fn(x):
        return x * optimizer.lr

    def make(i):
        optimizer.lr = 0.5 * i
        return (pair(2),)

    assert as_in_eager(fn, make, backend=backend).breaks == set()


@BACKENDS
def test_wrapper_crosses_a_break(backend):
    def fn(x):
        y = x * 2
        if (y.left.sum() > 0).item():
            return y + 1, y
        return y - 1, y

    see = lambda result, x: result[0] is result[1]  # noqa: E731
    course = as_in_eager(fn, lambda i: (pair(3),), see=see, backend=backend)
    assert len(course.breaks) == 1 and course.refused == []


@BACKENDS
def test_factory_makes_a_wrapper(backend):
    def fn(x):
        return torch.zeros_like(x) + x, torch.empty_like(x).copy_(x), x.clone(), x.to(torch.float64), x.new_ones(2)

    assert as_in_eager(fn, lambda i: (pair(3),), backend=backend) == Course(1)


# ---- rules of __torch_function__


@BACKENDS
def test_default_rule_keeps_the_class(backend):
    def fn(x, y):
        return x * 2, y + x, x.sum(), x.shape, x.split(1), x.max(0)

    make = lambda i: (torch.randn(3).as_subclass(Tagged), torch.randn(3))  # noqa: E731
    assert as_in_eager(fn, make, backend=backend) == Course(1)


@BACKENDS
def test_default_rule_under_writes_and_views(backend):
    def fn(x):
        y = x.view(-1)
        y.add_(1)
        x[0] = 5
        return x, y, x.t()

    see = lambda result, x: (result[0] is x, result[1].data_ptr() == x.data_ptr(), result[1]._is_view())  # noqa: E731
    make = lambda i: (torch.randn(2, 3).as_subclass(Tagged),)  # noqa: E731
    assert as_in_eager(fn, make, see=see, backend=backend) == Course(1)


@BACKENDS
def test_gradients_flow_through_the_default_rule(backend):
    def fn(x, y):
        return (x * y).sin().sum()

    def see(loss, x, y):
        loss.backward()
        return x.grad, y.grad

    def make(i):
        return torch.randn(3).as_subclass(Tagged).detach().requires_grad_(), torch.randn(3, requires_grad=True)

    assert as_in_eager(fn, make, see=see, backend=backend) == Course(1)


@BACKENDS
def test_subclass_of_parameter(backend):
    class Weight(nn.Parameter):
        pass

    layer = nn.Linear(3, 2)
    layer.weight = Weight(torch.randn(2, 3))

    def see(y, x):
        layer.zero_grad()
        y.sum().backward()
        return layer.weight.grad, x.grad

    make = lambda i: (torch.randn(4, 3, requires_grad=True),)  # noqa: E731
    assert as_in_eager(layer, make, see=see, backend=backend) == Course(1)


@BACKENDS
def test_rule_of_torch_function_computes(backend):
    def fn(x, y):
        return x + y, y + x, torch.add(x, 1), x - y, type(x * 1).__name__

    make = lambda i: (torch.randn(3).as_subclass(Doubled), torch.randn(3))  # noqa: E731
    assert as_in_eager(fn, make, backend=backend) == Course(1)


@BACKENDS
def test_rule_returns_not_implemented(backend):
    class Right(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return "right"

    class Left(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented if Right in types else "left"

    def fn(x, y):
        return x + y, y * x, torch.sub(x, x)

    def make(i):
        return torch.randn(2).as_subclass(Left), torch.randn(2).as_subclass(Right)

    assert as_in_eager(fn, make, backend=backend) == Course(1)


@BACKENDS
def test_other_metadata_is_compiled_again(backend):
    def fn(x):
        return (x + x).in_metres(), (x * 2).unit

    units = ("m", "km", "m", "cm", "km")
    make = lambda i: (Unit(torch.randn(3), units[i]),)  # noqa: E731
    assert as_in_eager(fn, make, calls=5, backend=backend) == Course(3)


@BACKENDS
def test_attributes_go_from_operand_to_result(backend):
    def fn(x):
        y = x * 2
        return y.unit, type(y).__name__, y.as_subclass(torch.Tensor), y

    assert as_in_eager(fn, lambda i: (Unit(torch.randn(3), "m"),), backend=backend) == Course(1)


@BACKENDS
def test_unit_is_made_inside(backend):
    def fn(x):
        y = Unit(x + 1, "km")
        return y.in_metres(), (y * y).unit, y

    assert as_in_eager(fn, lambda i: (torch.randn(3),), backend=backend) == Course(1)


# ---- quantized weights


@BACKENDS
def test_quantized_weight_of_a_layer(backend):
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    for layer in (net[0], net[2]):
        layer.weight = nn.Parameter(Quantized.of(layer.weight.detach()), requires_grad=False)

    def see(y, x):
        net.zero_grad()
        y.sum().backward()
        return x.grad, net[0].bias.grad, net[2].bias.grad

    make = lambda i: (torch.randn(2, 4, requires_grad=True),)  # noqa: E731
    assert as_in_eager(net, make, see=see, backend=backend) == Course(1)


@BACKENDS
def test_quantized_weight_is_replaced(backend):
    layer = nn.Linear(4, 3, bias=False)
    kinds = (torch.float32, torch.float64, torch.float32, torch.float64)

    def make(i):
        layer.weight = nn.Parameter(Quantized.of(torch.randn(3, 4, dtype=kinds[i])), requires_grad=False)
        return (torch.randn(2, 4, dtype=kinds[i]),)

    assert as_in_eager(layer, make, backend=backend) == Course(2)


@BACKENDS
def test_quantized_weight_is_swapped_for_a_plain_one(backend):
    layer = nn.Linear(4, 3)

    def make(i):
        weight = torch.randn(3, 4)
        layer.weight = nn.Parameter(Quantized.of(weight) if i % 2 else weight, requires_grad=False)
        return (torch.randn(2, 4),)

    assert as_in_eager(layer, make, backend=backend) == Course(2)


@BACKENDS
def test_inner_tensors_of_a_weight_are_updated(backend):
    layer = nn.Linear(4, 3)
    layer.weight = nn.Parameter(Quantized.of(torch.randn(3, 4)), requires_grad=False)

    def make(i):
        layer.weight.scale = torch.full((3, 1), float(i))
        layer.weight.q.fill_(i)
        return (torch.randn(2, 4),)

    assert as_in_eager(layer, make, backend=backend) == Course(1)


@BACKENDS
def test_batch_of_another_size_meets_a_quantized_weight(backend):
    layer = nn.Linear(4, 3)
    layer.weight = nn.Parameter(Quantized.of(torch.randn(3, 4)), requires_grad=False)
    course = as_in_eager(layer, lambda i: (torch.randn((2, 3, 5, 7)[i], 4),), backend=backend)
    assert course.segments <= 4 and course.breaks == set() and course.refused == []


# ---- what rules read and do


@BACKENDS
def test_what_a_rule_reads_is_guarded(backend):
    world = {"scale": 2.0}

    class Scaling(torch.Tensor):
        factor = 1.0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            made = super().__torch_function__(func, types, args, kwargs or {})
            return made * world["scale"] * cls.factor if func is torch.sin else made

    def make(i):
        world["scale"], Scaling.factor = ((2.0, 1.0), (3.0, 1.0), (2.0, 5.0), (2.0, 1.0))[i]
        return (torch.randn(2).as_subclass(Scaling),)

    assert as_in_eager(lambda x: torch.sin(x), make, backend=backend).refused == []


@BACKENDS
def test_what_a_dispatch_rule_reads_is_guarded(backend):
    class Scaling(Pair):
        factor = 1.0

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            made = super().__torch_dispatch__(func, types, args, kwargs)
            made.left = made.left * cls.factor
            return made

    def make(i):
        Scaling.factor = (1.0, 2.0, 1.0, 3.0)[i]
        return (Scaling(torch.randn(2), torch.randn(2)),)

    assert as_in_eager(lambda x: x * 2, make, backend=backend).refused == []


@pytest.mark.falls_back("refused", only="burnish")
@BACKENDS
def test_rule_that_counts_runs_as_often_as_in_eager(backend):
    class Counting(torch.Tensor):
        calls: list = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.calls.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    def make(i):
        Counting.calls.clear()
        return (torch.randn(2).as_subclass(Counting),)

    as_in_eager(lambda x: x * 2 + 1, make, see=lambda y, x: list(Counting.calls), backend=backend)


@pytest.mark.falls_back("refused", only="burnish")
@BACKENDS
def test_dispatch_rule_that_prints(backend, capsys):
    class Printing(Pair):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            print(func)
            return super().__torch_dispatch__(func, types, args, kwargs)

    make = lambda i: (Printing(torch.randn(2), torch.randn(2)),)  # noqa: E731
    as_in_eager(lambda x: (x * 2).sin(), make, see=lambda y, x: capsys.readouterr().out, backend=backend)


@pytest.mark.falls_back("refused", only="burnish")
@BACKENDS
def test_dispatch_rule_that_reads_data(backend):
    class Sparing(Pair):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            if args[0].left.sum() > 0:
                return super().__torch_dispatch__(func, types, args, kwargs)
            return args[0]

    make = lambda i: (Sparing(torch.full((2,), (-1.0) ** i), torch.ones(2)),)  # noqa: E731
    as_in_eager(lambda x: (x * 2, 1), make, see=lambda y, x: y[0] is x, backend=backend)


@BACKENDS
def test_rule_that_raises(backend):
    def fn(x):
        try:
            return torch.cos(x)
        except NotImplementedError as error:
            return str(error)

    as_in_eager(fn, lambda i: (Quantized.of(torch.randn(3, 4)),), backend=backend)


@BACKENDS
def test_rule_that_raises_through_the_function(backend):
    as_in_eager(lambda x, y: (y.sin(), torch.cos(x)), lambda i: (Quantized.of(torch.randn(3, 4)), torch.randn(2)))


# ---- autograd above the dispatcher


@pytest.mark.falls_back("refused", only="burnish")
@BACKENDS
def test_parameter_of_a_wrapper_is_trained(backend):
    def fn(w, x):
        return nn.functional.linear(x, w).tanh()

    def see(y, w, x):
        y.sum().backward()
        return w.grad

    def make(i):
        return nn.Parameter(Pair(torch.randn(3, 4), torch.randn(3, 4))), torch.randn(2, 4)

    course = as_in_eager(fn, make, see=see, backend=backend)
    assert all("Pair" in why for why in course.refused)


@BACKENDS
def test_quantized_parts_of_a_program_without_gradients(backend):
    """Rules of the dispatcher below no_grad, in a module with parameters that require gradients."""
    layer = nn.Linear(4, 3)
    layer.weight = nn.Parameter(Pair(torch.randn(3, 4), torch.randn(3, 4)))

    @torch.no_grad()
    def fn(x):
        return layer(x)

    assert as_in_eager(fn, lambda i: (torch.randn(2, 4),), backend=backend) == Course(1)


# ---- how objects are made


@BACKENDS
def test_class_without_a_constructor_shows_its_argument(backend):
    class Labelled(torch.Tensor):
        def __init__(self, data):
            self.label = "made"

    def fn(x):
        y, z = Tagged(x * 2), Labelled(x + 1)
        return y + 1, z, (z * 2).as_subclass(torch.Tensor), z.label

    def see(result, x):
        result[0].sum().backward()
        return x.grad

    assert as_in_eager(fn, lambda i: (torch.randn(3, requires_grad=True),), see=see, backend=backend) == Course(1)


@BACKENDS
def test_plain_tensor_shows_a_subclass(backend):
    def fn(x):
        y = x.as_subclass(torch.Tensor)
        y.add_(1)
        return y, type(y).__name__, x

    see = lambda result, x: result[0].data_ptr() == x.data_ptr()  # noqa: E731
    make = lambda i: (torch.randn(3).as_subclass(Tagged),)  # noqa: E731
    assert as_in_eager(fn, make, see=see, backend=backend) == Course(1)


@BACKENDS
def test_other_kinds_of_arguments_come(backend):
    """Checks meet values of another kind than those that they were made for."""

    def fn(x):
        return x * 2

    kinds = (lambda x: x.as_subclass(Tagged), lambda x: x, lambda x: 3, lambda x: Pair(x, x))
    make = lambda i: (kinds[i // 10 % 4](torch.randn(3)),)  # noqa: E731
    assert as_in_eager(fn, make, calls=80, backend=backend) == Course(4)


@pytest.mark.falls_back("refused", only="burnish")
@BACKENDS
def test_rule_above_autograd_calls_the_one_below(backend):
    class Both(Pair):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            with torch._C.DisableTorchFunctionSubclass():
                made = func(*args, **(kwargs or {}))
            return made * 1 if func is torch.Tensor.sin else made

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return super().__torch_dispatch__(func, types, args, kwargs)

    def fn(x, y):
        return (x * y).sin()

    def see(result, x, y):
        result.sum().backward()
        return y.grad

    make = lambda i: (Both(torch.randn(3), torch.randn(3)), torch.randn(3, requires_grad=True))  # noqa: E731
    as_in_eager(fn, make, see=see, backend=backend)


@BACKENDS
def test_rule_corrects_aliasing(backend):
    class Correct(Pair):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            made = super().__torch_dispatch__(func, types, args, kwargs)
            made = cls(made.left, made.right) if isinstance(made, Pair) else made
            return return_and_correct_aliasing(func, args, kwargs, made)

    def fn(x):
        y = x.view(-1)
        same = x.mul_(2)
        return y, y + 1, same is x, x.t()

    def see(result, x):
        y, other, _, turned = result
        storages = [each.untyped_storage()._cdata == x.untyped_storage()._cdata for each in (y, other, turned)]
        return storages, y._base is x, turned._base is x

    make = lambda i: (Correct(torch.randn(2, 3), torch.randn(2, 3)),)  # noqa: E731
    assert as_in_eager(fn, make, see=see, backend=backend) == Course(1)


@BACKENDS
def test_copy_of_a_subclass_keeps_the_class(backend):
    make = lambda i: (torch.randn(2).as_subclass(Tagged),)  # noqa: E731
    assert as_in_eager(copy.copy, make, backend=backend).refused == []


@BACKENDS
def test_numbers_read_by_rules_end_the_graph(backend):
    class Seven(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is torch.Tensor.item:
                return 7
            return super().__torch_function__(func, types, args, kwargs or {})

    make = lambda i: (torch.randn(3).as_subclass(Seven),)  # noqa: E731
    assert as_in_eager(lambda x: (x[0].item(), x * 2), make, backend=backend).breaks == {"B102"}


@BACKENDS
def test_wrappers_share_an_inner_tensor(backend):
    def fn(x, y):
        return x.left.mul_(2), y * 1, x * 1

    def make(i):
        x = pair(2)
        return x, x.left if i % 2 else torch.randn(2)

    assert as_in_eager(fn, make, backend=backend) == Course(2)


class Halves(torch.Tensor):
    """The state of an optimizer that is kept in half precision."""

    @staticmethod
    def __new__(cls, data):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=torch.float32)

    def __init__(self, data):
        self.data_in_half = data

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.copy_.default:
            args[0].data_in_half.copy_(args[1])
            return args[0]
        if func is torch.ops.aten.lerp.Scalar:
            return func(args[0].data_in_half.float(), *args[1:])
        raise NotImplementedError(str(func))


@BACKENDS
def test_state_of_an_optimizer_that_is_a_subclass(backend):
    """Calls that return their argument as it is, such as `float`, do not reach the rules."""
    state, weight = {}, torch.ones(4)

    def fn(gradient):
        if "average" not in state:
            state["average"] = Halves(torch.zeros(4, dtype=torch.float16)).to(gradient.device)
        average = state["average"].float().lerp(gradient, 0.1)
        state["average"].copy_(average)
        weight.sub_(average)
        return average, state["average"].float() is state["average"]

    def make(i):
        if i == 0:
            state.clear()
            weight.fill_(1)
        return (torch.linspace(-1, 1, 4) * (1 + i),)

    course = as_in_eager(fn, make, see=lambda result, gradient: weight.clone(), backend=backend)
    assert course == Course(2) and course.refused == []


@BACKENDS
@pytest.mark.parametrize("corrects", [False, True])
def test_results_of_an_operator_with_several_views(backend, corrects):
    class Corrected(Pair):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            lefts, rights = (
                func(*tree_map_only(Pair, lambda x, name=name: getattr(x, name), args), **(kwargs or {}))
                for name in ("left", "right")
            )
            out = tree_map(Corrected, lefts, rights)
            return return_and_correct_aliasing(func, args, kwargs or {}, out)

    def fn(x):
        first, *rest = x.split(1)
        return first, rest, x.unbind(1), (x * 2).chunk(2)

    def see(result, x):
        parts = result[0], *result[1], *result[2]
        shows = [part._is_view() and part._base is x for part in parts]
        with torch.no_grad():
            result[2][0].add_(10)
        return shows, x.left, result[3][0]._is_view()

    made = Corrected if corrects else Pair
    make = lambda i: (made(torch.randn(2, 3), torch.randn(2, 3)),)  # noqa: E731
    assert as_in_eager(fn, make, see=see, backend=backend) == Course(1)
