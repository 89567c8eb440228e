"""Parameters, tensor subclasses, user attributes on tensors, and torch function modes."""

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import burnish

from .caller_programs import program_with_caller
from .harness import program


class Tagged(torch.Tensor):
    """A tensor whose results keep its type by PyTorch's default rule."""


class Image(torch.Tensor):
    """A subclass with a property and a method."""

    @property
    def height(self):
        return self.shape[-2]

    def flipped(self):
        return self.flip(-1)


class Labelled(torch.Tensor):
    """A subclass whose instances carry an attribute from operand to result."""

    @staticmethod
    def __new__(cls, data, label):
        return torch.Tensor._make_subclass(cls, data)

    def __init__(self, data, label):
        self.label = label

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(out, cls):
            out.label = "+".join(a.label for a in args if isinstance(a, cls) and hasattr(a, "label"))
        return out


class Metered(torch.Tensor):
    """A tensor that counts the calls made on it."""

    calls = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.add or func is torch.add:
            cls.calls += 1
        return super().__torch_function__(func, types, args, kwargs or {})


class Scaled:
    """Not a tensor at all: takes part in torch functions."""

    def __init__(self, data, k):
        self.data, self.k = data, k

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        plain = [a.data * a.k if isinstance(a, cls) else a for a in args]
        k = next(a.k for a in args if isinstance(a, cls))
        return cls(func(*plain, **(kwargs or {})), k + 1)


@program
def test_parameter_as_an_argument():
    def fn(p, x):
        return p * x, isinstance(p, nn.Parameter), type(p).__name__, type(p * 1).__name__, p.data

    return fn, [
        (nn.Parameter(torch.ones(2)), torch.randn(2)),
        (torch.ones(2), torch.randn(2)),
        (nn.Parameter(torch.ones(2)), torch.randn(2)),
        (torch.ones(2, requires_grad=True), torch.randn(2)),
    ]


@program_with_caller
def test_parameter_made_inside_is_returned():
    def fn(x):
        return nn.Parameter(x * 2), nn.Parameter(x.clone(), requires_grad=False), nn.Buffer(x + 1)

    def caller(fn, x):
        p, q, b = fn(x)
        (p * 3).sum().backward()
        return p, q, b, type(p).__name__, type(b).__name__, p.is_leaf

    return fn, caller, lambda i: (torch.randn(2),)


@program
def test_subclass_without_own_behaviour():
    def fn(x):
        y = x * 2 + 1
        return y, type(y).__name__, type(y.sum()).__name__, isinstance(x, Tagged), x.as_subclass(torch.Tensor) + 1

    return fn, [
        (torch.randn(2).as_subclass(Tagged),),
        (torch.randn(2),),
        (torch.randn(2).as_subclass(Tagged),),
        (torch.randn(2),),
    ]


@program_with_caller
def test_subclass_with_own_torch_function():
    def fn(x, y):
        return x + y, torch.add(x, 1), x * 2, type(y + x).__name__

    def caller(fn, x, y):
        Metered.calls = 0
        return fn(x, y), Metered.calls

    return fn, caller, lambda i: (torch.randn(2).as_subclass(Metered), torch.randn(2))


@program
def test_subclass_carries_an_attribute():
    def fn(x, y):
        z = torch.mul(x, y)
        return z.as_subclass(torch.Tensor), z.label, (z + 1).label

    labels = (("a", "b"), ("c", "b"), ("a", "b"))
    return fn, [(Labelled(torch.randn(2), a), Labelled(torch.randn(2), b)) for a, b in labels]


@program
def test_object_that_takes_part_in_torch_functions():
    def fn(x, k):
        out = torch.add(Scaled(x, k), 1)
        both = torch.mul(out, out)
        return both.data, both.k, type(both).__name__

    return fn, [(torch.randn(2), k) for k in (1, 2, 1)]


@program
def test_user_attribute_on_a_tensor():
    def fn(x):
        count = getattr(x, "count", 0)
        x.count = count + 1
        y = x * x.count
        y.tag = "fresh"
        return y, x.count, y.tag, hasattr(y + 1, "tag")

    shared = torch.randn(2)
    return fn, [(shared,), (torch.randn(2),), (shared,), (shared,)]


@program_with_caller
def test_attribute_set_inside_is_seen_outside():
    def fn(x):
        y = x * 2
        y.info = {"mean": y.mean(), "n": x.numel()}
        x.seen = True
        return y

    def caller(fn, x):
        y = fn(x)
        return y.info, x.seen, vars(x)

    return fn, caller, [(torch.randn(n),) for n in (2, 3, 2)]


@program_with_caller
def test_attribute_set_outside_is_branched_on():
    def fn(x):
        if getattr(x, "no_decay", False):
            return x * 1
        return x * 0.9

    def caller(fn, x, flag):
        if flag is not None:
            x.no_decay = flag
        return fn(x)

    return fn, caller, [(torch.ones(2), f) for f in (None, True, False, True, None)]


@program
def test_function_mode_of_the_user():
    class Negate(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            return -out if func is torch.sin else out

    def fn(x, on):
        y = torch.sin(x)
        if on:
            with Negate():
                y = y + torch.sin(x) * 2
        return y + torch.sin(x)

    return fn, [(torch.randn(2), on) for on in (True, False, True)]


@program_with_caller
def test_function_mode_sees_keywords_as_in_eager():
    """C code without keywords passes None, Python code a dictionary."""
    seen = []

    class Log(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append((func.__name__, kwargs))
            return func(*args, **(kwargs or {}))

    def fn(x):
        with Log():
            y = torch.sin(x).clone().unsqueeze(0) + torch.zeros(2)
            return torch.nn.functional.relu(y).sum(dim=0, keepdim=True)

    def caller(fn, x):
        seen.clear()
        return fn(x), list(seen)

    return fn, caller, lambda i: (torch.randn(2),)


@program_with_caller
def test_function_mode_around_the_call_sees_every_operator():
    class Log(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    def fn(x):
        return torch.cos(torch.sin(x) + 1)

    def caller(fn, x):
        with Log() as log:
            out = fn(x)
        return out, log.names

    return fn, caller, lambda i: (torch.randn(2),)


@program
def test_torch_function_is_disabled_for_a_block():
    def fn(x):
        with torch._C.DisableTorchFunctionSubclass():
            y = x * 2
        return type(y).__name__, type(x * 2).__name__, y.sum()

    return fn, [(torch.randn(2).as_subclass(Tagged),), (torch.randn(2),), (torch.randn(2).as_subclass(Tagged),)]


@program
def test_deep_copy_and_clone_keep_the_kind():
    import copy

    def fn(p):
        twin = copy.deepcopy(p)
        with torch.no_grad():
            twin.mul_(2)
        return type(twin).__name__, twin.requires_grad, twin, type(p.clone()).__name__, p

    return fn, [(nn.Parameter(torch.ones(2)),), (torch.ones(2),), (nn.Parameter(torch.ones(2) * 3),)]


@program
def test_subclass_method_and_property():
    def fn(x):
        return x.flipped() * x.height, type(x.flipped()).__name__, x[0].shape

    return fn, [(torch.randn(h, 2).as_subclass(Image),) for h in (2, 3, 2)]


@program
def test_sparse_tensor_in_the_middle():
    def fn(x, y):
        sparse = x.relu().to_sparse()
        product = torch.sparse.mm(sparse, y)
        return product, sparse._nnz(), sparse.is_sparse, sparse.to_dense()

    return fn, [
        (torch.tensor(v), torch.randn(2, 2))
        for v in ([[1.0, 0.0], [0.0, 2.0]], [[0.0, -1.0], [0.0, 0.0]], [[1.0, 3.0], [4.0, 2.0]])
    ]


@program
def test_complex_and_quantities_without_gradient():
    def fn(z):
        return z.conj() * 2, z.conj().is_conj(), z.imag.sum(), torch.view_as_real(z), z.angle(), z.abs() > 1

    return fn, lambda i: (torch.randn(3, dtype=torch.complex64),)


class Counted(torch.Tensor):
    """A tensor whose rules note every call."""

    seen: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(getattr(func, "__name__", ""))
        return super().__torch_function__(func, types, args, kwargs or {})


class Claiming(torch.Tensor):
    """A tensor that claims a shape."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.size or func == torch.Tensor.shape.__get__:
            return torch.Size([args[0].__dict__["claimed"]])
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.falls_back("refused", only=r"burnish")
@pytest.mark.parametrize("backend", ["eager", "burnish"])
def test_rules_of_a_subclass_are_called_as_often_as_in_eager(backend):
    def fn(x):
        return x * 2 + 1

    x = torch.ones(3).as_subclass(Counted)
    compiled = burnish.compile(fn, backend=backend)
    for called in (fn, compiled, compiled, compiled):
        Counted.seen.clear()
        called(x)
        assert Counted.seen == ["mul", "add"]


def test_a_subclass_reports_another_shape_of_the_same_tensor():
    def fn(x):
        return x * 2, x.shape[0], x.size()[0]

    compiled = burnish.compile(fn, backend="eager")
    for claimed in (1, 2, 2, 1, 3):
        x = torch.ones(3).as_subclass(Claiming)
        x.claimed = claimed
        _, *sizes = compiled(x)
        assert sizes == [claimed, claimed]


class Chronicle(torch.Tensor):
    """A tensor whose results take on a copy of the log of what they were made from."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, Chronicle):
            for source in args:
                if isinstance(source, Chronicle) and "log" in source.__dict__:
                    result.log = list(source.log)
        return result


def chronicle():
    x = torch.ones(3).as_subclass(Chronicle)
    x.log = ["made"]
    return x


def append_to_the_log(x):
    x.log.append("noted")
    return x * 2


def replace_the_log(x):
    x.log = ["another"]
    return x * 2


def note_in_between(x):
    y = x * 2
    y.log.append("noted")
    return y * 3


def replace_in_between(x):
    y = x * 2
    y.log = ["another"]
    return y * 3


def through_the_dictionary(x):
    y = x * 2
    y.__dict__["log"].append("noted")
    return y * 3


@pytest.mark.falls_back(
    "refused",
    only=(
        r"replace_the_log-burnish|note_in_between-burnish|replace_in_between-burnish|"
        r"through_the_dictionary-burnish"
    ),
)
@pytest.mark.parametrize("backend", ["eager", "burnish"])
@pytest.mark.parametrize(
    "fn",
    [append_to_the_log, replace_the_log, note_in_between, replace_in_between, through_the_dictionary],
    ids=lambda fn: fn.__name__,
)
def test_rules_that_read_writes_of_the_program(fn, backend):
    compiled = burnish.compile(fn, backend=backend)
    for _ in range(3):
        x = chronicle()
        found, wanted = compiled(x), fn(chronicle())
        assert found.log == wanted.log and x.log in (["made"], wanted.log)
        assert torch.equal(found.as_subclass(torch.Tensor), wanted.as_subclass(torch.Tensor))
