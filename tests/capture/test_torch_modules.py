"""Calling modules: forward's signature, lookups of submodules, overridden special methods, bound methods as entry."""

import copy

import torch
from torch import nn

from .caller_programs import program_with_caller
from .harness import Keywords, program


class Block(nn.Module):
    def __init__(self, width=3, scale=1.0):
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.scale = scale

    def forward(self, x, *extra, bias=0.0, **options):
        y = self.inner(x) * self.scale + bias
        for e in extra:
            y = y + e
        return y * options.get("factor", 1)


@program(breaks=0)
def test_sequential_multilayer_perceptron():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), lambda i: (torch.randn(5, 3),)


@program(breaks=0)
def test_forward_with_positional_and_keyword_extras():
    return Block(), [
        (torch.randn(2, 3),),
        (torch.randn(2, 3), torch.ones(3), 2.0),
        (torch.randn(2, 3), Keywords(bias=1.0)),
        (torch.randn(2, 3), 1.0, Keywords(factor=3, other=None)),
        (torch.randn(2, 3),),
    ]


@program(breaks=0)
def test_bound_method_other_than_forward_is_compiled():
    class Encoder(Block):
        def encode(self, x, times=1):
            for _ in range(times):
                x = self.inner(x).tanh()
            return x

    return Encoder().encode, [
        (torch.randn(2, 3),),
        (torch.randn(2, 3), 3),
        (torch.randn(2, 3), Keywords(times=2)),
        (torch.randn(2, 3),),
    ]


@program
def test_bound_forward_is_compiled():
    block = Block(scale=2.0)
    return block.forward, lambda i: (torch.randn(2, 3), Keywords(bias=float(i)))


@program
def test_module_is_an_argument():
    def fn(module, x):
        return module(x), module.training, type(module).__name__

    a, b = Block(), nn.ReLU()
    return fn, [(a, torch.randn(2, 3)), (b, torch.randn(2, 3)), (a, torch.randn(2, 3)), (Block(), torch.randn(2, 3))]


@program(breaks=0)
def test_submodule_by_name_and_getattr():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            for i in range(3):
                setattr(self, f"layer{i}", nn.Linear(3, 3))

        def forward(self, x, order):
            for i in order:
                x = getattr(self, f"layer{i}")(x)
                x = self.get_submodule(f"layer{i}")(x)
            return x + self._modules["layer0"].bias

    return Model(), [(torch.randn(2, 3), order) for order in ((0, 1), (2, 0, 1), (), (0, 1))]


@program
def test_custom_call_wraps_forward():
    class Model(Block):
        def __call__(self, x):
            return super().__call__(x * 2), self.forward(x)

    model = Model()
    return lambda x: model(x), lambda i: (torch.randn(2, 3),)


@program
def test_custom_getattr_computes_missing_attributes():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                if name.startswith("times_"):
                    return lambda x: x * int(name[6:])
                raise

        def forward(self, x):
            y = self.times_3(self.inner(x)) + self.times_2(x)
            return y, hasattr(self, "nothing"), getattr(self, "missing", 7)

    return Model(), lambda i: (torch.randn(2, 3),)


@program
def test_missing_attribute_names_the_class():
    class Model(nn.Module):
        def forward(self, x, misspelt):
            return self.weigth * x if misspelt else x * 2

    return Model(), [(torch.randn(2), m) for m in (False, True, False, True)]


@program(breaks=0)
def test_properties_class_attributes_and_static_methods():
    class Model(Block):
        gain = 2.0

        @property
        def doubled(self):
            return self.inner.weight * 2

        @staticmethod
        def squash(x):
            return x.tanh()

        @classmethod
        def gained(cls, x):
            return x * cls.gain

        def forward(self, x):
            return self.gained(self.squash(x @ self.doubled.T))

    return Model(), lambda i: (torch.randn(2, 3),)


@program(breaks=0)
def test_super_forward_is_extended_twice():
    class Middle(Block):
        def forward(self, x, **options):
            return super().forward(x, bias=1.0, **options) + 1

    class Top(Middle):
        def forward(self, x, flip):
            y = super().forward(-x if flip else x, factor=2)
            return y.relu()

    return Top(), [(torch.randn(2, 3), flip) for flip in (True, False, True, False)]


@program
def test_named_parameters_and_state_dict_are_iterated_inside():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))

    def fn(x):
        norms = {name: p.abs().sum() for name, p in model.named_parameters()}
        penalty = sum(p.pow(2).sum() for p in model.parameters() if p.dim() > 1)
        names = list(model.state_dict())
        return x * penalty, norms, names, [n for n, _ in model.named_modules()], sum(b.sum() for b in model.buffers())

    return fn, lambda i: (torch.randn(2),)


@program
def test_apply_initialises_weights_inside():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))

    def fn(x, value):
        def init(m):
            if isinstance(m, nn.Linear):
                nn.init.constant_(m.weight, value)
                nn.init.zeros_(m.bias)

        model.apply(init)
        return model(x)

    return fn, [(torch.randn(3, 2), v) for v in (0.5, 2.0, 0.5, -1.0)], model


@program
def test_module_built_inside_the_function():
    def fn(x):
        layer = nn.Linear(3, 2)
        return layer(x), [p.requires_grad for p in layer.parameters()], layer.weight

    return fn, lambda i: (torch.randn(1, 3),)


@program(breaks=0)
def test_module_without_parameters_goes_where_a_tensor_is():
    class Criterion(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Dropout(0.0)

        def forward(self, x):
            return self.inner(x).square().sum()

    def fn(x):
        one, other = Criterion(), Criterion()
        one.to(x)
        return one(x) + other.to(x.device, non_blocking=True)(x), torch._C._nn._parse_to(x, True)

    return fn, [(torch.randn(3),), (torch.randn(3),), (torch.randn(3, dtype=torch.float64),)]


@program(breaks=0)
def test_module_goes_where_it_is_already():
    class Router(nn.Module):
        def __init__(self):
            super().__init__()
            self.choose = nn.Linear(3, 2)

        def forward(self, x):
            self.choose = self.choose.to(x.dtype)
            return self.choose(x).softmax(-1)

    router = Router()

    def fn(x):
        y = router(x)
        return y, router.choose.weight.requires_grad, y.requires_grad

    return fn, lambda i: (torch.randn(i + 1, 3),), router


@program
def test_class_defined_inside_the_function():
    def fn(x, k):
        class Scale(nn.Module):
            def __init__(self):
                super().__init__()
                self.k = k

            def forward(self, x):
                return x * self.k

        return nn.Sequential(Scale(), nn.Identity(), Scale())(x)

    return fn, [(torch.randn(3), k) for k in (2, 3.5, 2, -1)]


@program
def test_module_is_copied_inside():
    model = Block()

    def fn(x):
        twin = copy.deepcopy(model)
        with torch.no_grad():
            twin.inner.weight.zero_()
        return twin(x), model(x)

    return fn, lambda i: (torch.randn(1, 3),), model


@program(breaks=0)
def test_unbound_forward_is_called_with_another_module():
    wide, narrow = nn.Linear(3, 4), nn.Linear(3, 2)

    def fn(x):
        return nn.Linear.forward(narrow, x), nn.Module.__call__(wide, x), nn.Linear.__call__(narrow, x)

    return fn, lambda i: (torch.randn(2, 3),)


@program(breaks=0)
def test_one_module_called_several_times():
    cell = nn.Linear(3, 3)

    def fn(x, n):
        for _ in range(n):
            x = cell(x).relu()
        return x

    return fn, [(torch.randn(2, 3), n) for n in (1, 3, 0, 1)]


@program(breaks=0)
def test_modules_hidden_in_a_plain_list():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = [nn.Linear(2, 2) for _ in range(3)]
            self.by_name = {"last": nn.Tanh()}

        def forward(self, x):
            for layer in self.hidden:
                x = layer(x)
            return self.by_name["last"](x), len(list(self.parameters()))

    return Model(), lambda i: (torch.randn(2, 2),)


@program(breaks=0)
def test_module_with_length_and_iteration():
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList([nn.Linear(2, 2), nn.ReLU()])

        def __len__(self):
            return len(self.parts)

        def __iter__(self):
            return iter(self.parts)

        def __getitem__(self, i):
            return self.parts[i]

        def forward(self, x):
            for part in self:
                x = part(x)
            return self[0](x) * len(self)

    return Bag(), lambda i: (torch.randn(3, 2),)


@program
def test_forward_replaced_on_the_instance():
    model = Block()
    original = model.forward
    model.forward = lambda x, **options: original(x, **options) + 100
    return model, lambda i: (torch.randn(1, 3), Keywords(bias=float(i)))


@program
def test_forward_returns_none_and_writes_an_attribute():
    class Recorder(nn.Module):
        def __init__(self):
            super().__init__()
            self.last, self.calls = None, 0

        def forward(self, x):
            self.calls += 1
            if self.last is not None:
                x = x + self.last
            self.last = x * self.calls

    model = Recorder()
    return model, lambda i: (torch.randn(2),), model


@program_with_caller
def test_compiled_module_keeps_its_surface():
    model = Block()

    def caller(fn, x):
        names = [n for n, _ in fn.named_parameters()] if isinstance(fn, nn.Module) else []
        return fn(x), fn.training, fn.scale, len(names), fn.inner.weight is model.inner.weight

    return model, caller, lambda i: (torch.randn(1, 3),)


@program
def test_not_implemented_forward_raises():
    class Empty(nn.Module):
        pass

    modules = [nn.ReLU(), Empty()]

    def fn(x, i):
        return modules[i](x)

    return fn, [(torch.randn(3), i) for i in (0, 1, 0, 1)]


@program
def test_wrong_number_of_arguments_raises():
    model = nn.Sequential(nn.Linear(2, 2))

    def fn(x, extra):
        return model(x, x) if extra else model(x)

    return fn, [(torch.randn(1, 2), flag) for flag in (False, True, False, True)]


@program
def test_attributes_of_a_module_are_found_by_its_own_rules():
    class Found(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 3
            self.seen = []

        def __getattribute__(self, name):
            if name == "shift":
                return torch.ones(2)
            return super().__getattribute__(name)

        def forward(self, x):
            return self.scale * x + self.shift

    model = Found()

    def fn(x):
        return model(x) * 2

    return fn, [(torch.ones(2),), (torch.zeros(2),), (torch.ones(2),)]


@program(breaks=0)
def test_a_forward_that_is_computed():
    class Chosen(nn.Module):
        @property
        def forward(self):
            return self.first

        def first(self, x):
            return x + 1

    model = Chosen()

    def fn(x):
        return model(x) * 2

    return fn, [(torch.ones(2),), (torch.zeros(2),), (torch.ones(2),)]
