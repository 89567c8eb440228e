"""Graph breaks at Python constructs that have no graph form: B3xx."""

from __future__ import annotations

from .break_kind import kind

OPAQUE_OPCODE = kind(
    "B301",
    "opaque-opcode",
    title="a Python instruction that capture does not follow",
    why="""A few bytecode instructions call Python code of the program in a way that capture does not follow, such as a
        `match` statement whose pattern reads a property. Those of `await`, `async for` and `async with` hand control
        to an event loop. Python runs them. An `async def` itself is not compiled.""",
    what_to_do="""Read the property before, or compare with `if`. Put tensor work of asynchronous code into an ordinary
        function, compile that one, and call it from the asynchronous code.""",
    broken="""
        import torch

        class Shape:
            def __init__(self, sides):
                self.sides = sides

            @property
            def is_square(self):
                return self.sides[0] == self.sides[1]

        def fn(x, shape):
            match shape:
                case Shape(is_square=True):
                    return x * 2
            return x

        fn(torch.ones(3), Shape([2, 2]))
        """,
    fixed="""
        import torch

        class Shape:
            def __init__(self, sides):
                self.sides = sides

            @property
            def is_square(self):
                return self.sides[0] == self.sides[1]

        def fn(x, shape):
            if isinstance(shape, Shape) and shape.is_square:
                return x * 2
            return x

        fn(torch.ones(3), Shape([2, 2]))
        """,
)

OUTSIDE_ITERATOR = kind(
    "B302",
    "outside-iterator",
    title="an iterator from outside the function is advanced",
    why="""The iterator existed before the call or the last break, and what it hands out next cannot be read without
        advancing it: it is not one over a list, tuple, dictionary, set, range or string (or `enumerate` or `zip` of
        these), the container has just been changed, or the loop is long. So Python takes the step.""",
    what_to_do="""Take the item outside, `item = next(iterator)`, and pass it in as an argument. Or pass in the list
        and iterate inside the function.""",
    broken="""
        import itertools
        import torch

        scales = itertools.cycle([1.0, 2.0, 3.0])

        def fn(x):
            return x * next(scales)

        fn(torch.ones(3))
        """,
    fixed="""
        import torch

        scales = iter(torch.tensor([1.0, 2.0, 3.0]))

        def fn(x, scale):
            return x * scale

        fn(torch.ones(3), next(scales))
        """,
)

USER_HASH = kind(
    "B303",
    "user-hash",
    title="a dictionary or set key runs Python code of its own",
    why="""A lookup calls the key's `__hash__` and `__eq__` from native code. If they only compute with what they
        read, they are interpreted before. These write to something, print, call torch or break the graph, or the key
        is in a set from outside, so the lookup runs natively on every call.""",
    what_to_do="""Let `__hash__` and `__eq__` only read: use a dataclass with `frozen=True`, a `typing.NamedTuple`, or
        keys whose hash is built in.""",
    broken="""
        import torch

        class Key:
            def __init__(self, layer, head):
                self.parts, self.number = (layer, head), None

            def __hash__(self):
                if self.number is None:
                    self.number = hash(self.parts)
                return self.number

            def __eq__(self, other):
                return self.parts == other.parts

        scales = {Key(0, 1): 2.0}

        def fn(x):
            return x * scales[Key(0, 1)]

        fn(torch.ones(3))
        """,
    fixed="""
        import dataclasses
        import torch

        @dataclasses.dataclass(frozen=True)
        class Key:
            layer: int
            head: int

        scales = {Key(0, 1): 2.0}

        def fn(x):
            return x * scales[Key(0, 1)]

        fn(torch.ones(3))
        """,
)

UNREBUILDABLE = kind(
    "B304",
    "unrebuildable",
    title="a value made here cannot be rebuilt from the graph",
    why="""A value that the function makes and passes on (returns it, stores it, needs it after a break) is rebuilt on
        every run, from its parts. Some have no such parts: an iterator over a dictionary that has changed since, or a
        function of a text that `exec` runs. An object whose class has `__del__` runs code at the moment when it is
        dropped, which is not repeated either. Without `fullgraph=True` the code runs eagerly from there.""",
    what_to_do="""Take out the plain data you need (a string, a number, a list) and hand that on. Or make the object
        outside and pass it in.""",
    broken="""
        import torch

        class Handle:
            def __init__(self, name):
                self.name = name

            def __del__(self):
                self.name = None

        def fn(x, name):
            handle = Handle(name)
            return x * len(handle.name)

        fn(torch.ones(3), "layer7")
        """,
    fixed="""
        import torch

        class Handle:
            def __init__(self, name):
                self.name = name

            def __del__(self):
                self.name = None

        def fn(x, handle):
            return x * len(handle.name)

        fn(torch.ones(3), Handle("layer7"))
        """,
)

RAISED = kind(
    "B305",
    "raised",
    title="an exception cannot be rebuilt from the graph",
    why="""A graph has one way through a checkpointed function, a branch of `torch.cond` or a function of `torch.func`:
        the one to its end. An exception that leaves it is raised by Python. So is one whose cause is a class with a
        constructor of its own (`raise error from Kind`).""",
    what_to_do="""Check what may be wrong before the call, or return a value that says so and raise the exception
        outside.""",
    broken="""
        import torch
        from torch.utils.checkpoint import checkpoint

        def layer(x):
            if x.ndim < 2:
                raise ValueError("not a batch")
            return torch.sin(x)

        def fn(x):
            try:
                return checkpoint(layer, x, use_reentrant=False)
            except ValueError:
                return x

        fn(torch.ones(3))
        """,
    fixed="""
        import torch
        from torch.utils.checkpoint import checkpoint

        def layer(x):
            return torch.sin(x)

        def fn(x):
            if x.ndim < 2:
                return x
            return checkpoint(layer, x, use_reentrant=False)

        fn(torch.ones(3))
        """,
)
