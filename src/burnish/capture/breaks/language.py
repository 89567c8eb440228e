"""Graph breaks at Python constructs that have no graph form: B3xx."""

from __future__ import annotations

from .break_kind import kind

OPAQUE_OPCODE = kind(
    "B301",
    "opaque-opcode",
    title="a Python instruction that capture does not follow",
    why="""Some bytecode instructions, above all those of `await`, `async for` and `async with`, hand control to code
        outside the function and have no graph form. Python runs them.""",
    what_to_do="""Put the tensor work into an ordinary function, compile that one, and call it from the asynchronous
        code.""",
    broken="""
        import asyncio
        import torch

        async def fn(x):
            await asyncio.sleep(0)
            return x * 2 + 1

        asyncio.run(fn(torch.ones(3)))
        """,
    fixed="""
        import asyncio
        import torch

        def fn(x):
            return x * 2 + 1

        async def serve(x):
            await asyncio.sleep(0)
            return fn(x)

        asyncio.run(serve(torch.ones(3)))
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
        every run, from its parts. An open file, a match of a regular expression, a thread or an iterator of C code
        has no parts that it could be built from.""",
    what_to_do="""Take out the plain data you need (a string, a number, a list) and hand that on. Or make the object
        outside and pass it in.""",
    broken="""
        import re
        import torch

        def fn(x, name):
            match = re.match(r"layer(\\d+)", name)
            return x * 2, match

        fn(torch.ones(3), "layer7")
        """,
    fixed="""
        import re
        import torch

        def fn(x, name):
            match = re.match(r"layer(\\d+)", name)
            return x * 2, match[1]

        fn(torch.ones(3), "layer7")
        """,
)

RAISED = kind(
    "B305",
    "raised",
    title="an exception cannot be rebuilt from the graph",
    why="""On later runs the exception is rebuilt from its class, its arguments and its attributes. This one
        holds something that has no such form, or was raised by native code with a state that Python cannot set.""",
    what_to_do="""Give the exception plain data only (strings, numbers, tensors), or raise it outside the compiled
        function, from a value that the function returns.""",
    broken="""
        import re
        import torch

        class BadName(ValueError):
            def __init__(self, match):
                super().__init__(match.string)
                self.match = match

        def fn(x, name):
            match = re.search(r"\\W", name)
            if match:
                raise BadName(match)
            return x * 2

        try:
            fn(torch.ones(3), "a-b")
        except BadName:
            pass
        """,
    fixed="""
        import re
        import torch

        class BadName(ValueError):
            def __init__(self, name, position):
                super().__init__(name)
                self.position = position

        def fn(x, name):
            match = re.search(r"\\W", name)
            if match:
                raise BadName(name, match.start())
            return x * 2

        try:
            fn(torch.ones(3), "a-b")
        except BadName:
            pass
        """,
)
