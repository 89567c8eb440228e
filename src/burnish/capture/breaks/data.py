"""Graph breaks where Python needs the values in a tensor: B1xx."""

from __future__ import annotations

from .break_kind import kind

DATA_BRANCH = kind(
    "B101",
    "data-branch",
    title="Python control flow depends on a tensor's value",
    why="""A graph is made once and then run on other data, so it cannot know which way an `if`, `while`, `and`,
        or `not` on a tensor will go. The value has to be read and Python has to choose, on every call.""",
    what_to_do="""Choose inside the graph: `torch.where(condition, a, b)` takes the place of an `if` that picks
        values, `torch.cond(condition, f, g, (x,))` of one that is to compute one side alone. A check with `assert`,
        or with an `if` that only raises, stays in the graph as it is. If the condition is known without looking at
        the data, pass it in as a Python `bool`.""",
    broken="""
        import torch

        def fn(x):
            if x.sum() > 0:
                return x * 2
            return x - 1

        fn(torch.ones(3))
        """,
    fixed="""
        import torch

        def fn(x):
            return torch.where(x.sum() > 0, x * 2, x - 1)

        fn(torch.ones(3))
        """,
)

DATA_READ = kind(
    "B102",
    "data-read",
    title="a tensor's values are read into Python",
    why="""`.tolist()`, `complex(x)` and the text of a tensor hand the values to Python, so everything before must have
        been computed by then (on a GPU the processor waits for it), and what Python does with the values is not in
        the graph. A single number (`.item()`, `int(x)`, `float(x)`) stays in the graph until Python needs its value,
        and so does an array (`.numpy()`) of a tensor on a CPU that needs no gradient.""",
    what_to_do="""Keep the value a tensor: `x / x.max()` gives what `x / x.max().item()` gives. If Python must have the
        value, return it and read it outside the compiled function.""",
    broken="""
        import torch

        def fn(x):
            low, *_, high = x.sort().values.tolist()
            return (x - low) / (high - low)

        fn(torch.arange(3.0))
        """,
    fixed="""
        import torch

        def fn(x):
            low, high = torch.aminmax(x)
            return (x - low) / (high - low)

        fn(torch.arange(3.0))
        """,
)

LIVE_VALUE = kind(
    "B103",
    "live-value",
    title="Python needs a number that was read from a tensor",
    why="""A number that came out of a tensor differs from call to call, so it must not become a constant of the
        graph. A comparison, a `range`, a list index or a dictionary key needs the number itself, at this line.""",
    what_to_do="""Return the value and look at it outside the compiled function. In place of a comparison use
        `torch.where`; in place of a list, index a tensor.""",
    broken="""
        import torch

        def fn(x):
            loss = (x * x).mean()
            level = "high" if loss.item() > 2 else "low"
            return loss * 2, level

        fn(torch.ones(3))
        """,
    fixed="""
        import torch

        def fn(x):
            loss = (x * x).mean()
            return loss * 2, loss

        doubled, loss = fn(torch.ones(3))
        level = "high" if loss.item() > 2 else "low"
        """,
)

DATA_SHAPE = kind(
    "B104",
    "data-shape",
    title="the size of a result depends on the data",
    why="""`x[mask]`, `nonzero`, `unique`, `masked_select` and `repeat_interleave` with a tensor of counts return as
        many elements as the data happens to ask for. What follows is compiled for sizes that Python sees, so it
        has to see the size first. With `fullgraph=True` such calls are part of the graph, until Python needs the
        size.""",
    what_to_do="""Keep the size fixed and mask the values: `torch.where(mask, x, 0)` in place of `x[mask]`.
        `torch.topk` and `torch.nonzero_static(x, size=n)` return a known number of elements.""",
    broken="""
        import torch

        def fn(x):
            return x[x > 0].sum()

        fn(torch.randn(8))
        """,
    fixed="""
        import torch

        def fn(x):
            return torch.where(x > 0, x, 0).sum()

        fn(torch.randn(8))
        """,
)

TENSOR_ERROR = kind(
    "B105",
    "tensor-error",
    title="a torch operation raised an error",
    why="""The operation failed. A graph cannot hold a step that does not finish, so the step is left to plain Python,
        where it raises what it raises without Burnish and your `except` clauses see it.""",
    what_to_do="""If the error is a surprise, it is not Burnish's: the same call fails in eager mode, and the message
        says why. If the code counts on the error, ask first in place of catching it: compare shapes beforehand, or
        use the form that reports success as a tensor (`torch.linalg.cholesky_ex`, `torch.linalg.inv_ex`).""",
    broken="""
        import torch

        def fn(x):
            try:
                factor = torch.linalg.cholesky(x)
            except torch.linalg.LinAlgError:
                factor = torch.eye(3)
            return factor * 2

        fn(-torch.eye(3))
        """,
    fixed="""
        import torch

        def fn(x):
            factor, failed = torch.linalg.cholesky_ex(x)
            return torch.where(failed > 0, torch.eye(3), factor) * 2

        fn(-torch.eye(3))
        """,
)

UNKNOWN_TENSOR = kind(
    "B106",
    "unknown-tensor",
    title="a tensor appeared that capture did not see being made",
    why="""It was not passed in, it is not kept on an object that was, and no recorded operation returned it: native
        code made it. The graph has no step that would make it again on the next call.""",
    what_to_do="""Make the tensor before the compiled function is called and pass it in, keep it on the module (a
        buffer), or make it with torch operations inside the function.""",
    broken="""
        import numpy
        import torch

        table = numpy.ones(3, dtype=numpy.float32)

        def fn(x):
            return x * torch.from_dlpack(table)

        fn(torch.ones(3))
        """,
    fixed="""
        import numpy
        import torch

        table = torch.from_dlpack(numpy.ones(3, dtype=numpy.float32))

        def fn(x):
            return x * table

        fn(torch.ones(3))
        """,
)

SUBCLASS_TENSOR = kind(
    "B107",
    "subclass-tensor",
    title="an object of a tensor subclass is made",
    why="""Torch's own constructor gets data that is not a plain tensor, or makes a parameter of another class. A graph
        has no form for that. A class's own `__new__` is interpreted, and so are `Class(tensor)` and
        `tensor.as_subclass(Class)`.""",
    what_to_do="""Make the object outside and hand it to the compiled function, or compute with the plain tensor and
        wrap the result outside.""",
    broken="""
        import torch

        class Image(torch.Tensor):
            pass

        def fn(x):
            return Image([1.0, 2.0, 3.0]) + x

        fn(torch.ones(3))
        """,
    fixed="""
        import torch

        class Image(torch.Tensor):
            pass

        def fn(x):
            return Image(torch.tensor([1.0, 2.0, 3.0])) + x

        fn(torch.ones(3))
        """,
)
