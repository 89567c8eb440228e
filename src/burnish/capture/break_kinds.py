"""The catalog: every reason for which a graph ends, each with its cure.

A record is what a user is told, so it must be true and must help. ``why`` explains the reason to someone who does not
know how capture works, ``what_to_do`` names the way out, ``broken`` and ``fixed`` show it. Both examples are whole
programs: they define ``fn``, the function a user would compile, and what follows its definition runs it.

Codes never change their meaning. B1xx data, B2xx calls, B3xx language, B4xx state, B5xx limits.
"""

from __future__ import annotations

from .break_record import kind as _kind

DATA_BRANCH = _kind(
    "B101", "data-branch",
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

DATA_READ = _kind(
    "B102", "data-read",
    title="a tensor's values are read into Python",
    why="""`.item()`, `.tolist()`, `.numpy()`, `int(x)` and `float(x)` hand the values to Python, so everything before
        must have been computed by then (on a GPU the processor waits for it), and what Python does with the values is
        no part of the graph.""",
    what_to_do="""Keep the value a tensor: `x / x.max()` gives what `x / x.max().item()` gives. In place of NumPy use
        the torch function of the same purpose. If Python must have the value, return it and read it outside the
        compiled function.""",
    broken="""
        import torch

        def fn(x):
            low, high = torch.stack([x.min(), x.max()]).tolist()
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

LIVE_VALUE = _kind(
    "B103", "live-value",
    title="Python needs a number that was read from a tensor",
    why="""A number that came out of a tensor differs from call to call, so it must not become a constant of the
        graph. A text, a comparison, a `range`, a list index or a dictionary key needs the number itself, at this
        line.""",
    what_to_do="""Return the value and format it outside the compiled function. In place of a comparison use
        `torch.where`; in place of a list, index a tensor.""",
    broken="""
        import torch

        def fn(x):
            loss = (x * x).mean()
            text = f"loss {loss.item():.3f}"
            return loss * 2, text

        fn(torch.ones(3))
        """,
    fixed="""
        import torch

        def fn(x):
            loss = (x * x).mean()
            return loss * 2, loss

        doubled, loss = fn(torch.ones(3))
        text = f"loss {loss.item():.3f}"
        """,
)

DATA_SHAPE = _kind(
    "B104", "data-shape",
    title="the size of a result depends on the data",
    why="""`x[mask]`, `nonzero`, `unique`, `masked_select` and `repeat_interleave` with a tensor of counts return as
        many elements as the data happens to ask for. What follows is recorded for the size that Python sees, so it
        has to see the size first.""",
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

TENSOR_ERROR = _kind(
    "B105", "tensor-error",
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

UNKNOWN_TENSOR = _kind(
    "B106", "unknown-tensor",
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

SUBCLASS_TENSOR = _kind(
    "B107", "subclass-tensor",
    title="an object of a tensor subclass is made",
    why="""The constructor of a tensor subclass makes a tensor object, and may do anything to it in Python of the
        class's own. A graph has no form for that. Operations on objects that are there already are captured, and run
        under the rules of their class.""",
    what_to_do="""Make the object outside and hand it to the compiled function, or compute with the plain tensor and
        wrap the result outside.""",
    broken="""
        import torch

        class Image(torch.Tensor):
            pass

        def fn(x):
            return Image(x * 2) + 1

        fn(torch.ones(3))
        """,
    fixed="""
        import torch

        class Image(torch.Tensor):
            pass

        def fn(image):
            return image * 2 + 1

        fn(Image(torch.ones(3)))
        """,
)

OPAQUE_CALL = _kind(
    "B201", "opaque-call",
    title="a call into native code with unknown behaviour",
    why="""The function is written in C (NumPy, SciPy, an extension module), so there is no Python to follow. What it
        reads, changes or returns is not known and cannot be recorded; it is called for real every time.""",
    what_to_do="""Use the torch function that does the same. If there is none, make the call an operation of its own
        with `torch.library.custom_op`, or call it before or after the compiled function.""",
    broken="""
        import numpy
        import torch

        def fn(x):
            return torch.as_tensor(numpy.where(x > 0, x, 0)) + 1

        fn(torch.ones(3))
        """,
    fixed="""
        import torch

        def fn(x):
            return torch.where(x > 0, x, 0) + 1

        fn(torch.ones(3))
        """,
)

OPAQUE_FUNCTION = _kind(
    "B202", "opaque-function",
    title="a Python function that only Python itself can run",
    why="""It looks at the interpreter's frames (`sys._getframe`, `inspect.stack`), is a coroutine, or runs code made
        on the spot (`exec`, `eval`). Followed by capture it would see something else than in eager mode, so it is
        called natively.""",
    what_to_do="""Pass in what the function looks for (the caller's name, a value) as an argument, write generated
        code as an ordinary function, or call it outside the compiled function.""",
    broken="""
        import inspect
        import torch

        def caller_name():
            return inspect.stack()[1].function

        def fn(x):
            return x * 2, caller_name()

        fn(torch.ones(3))
        """,
    fixed="""
        import torch

        def fn(x, name="fn"):
            return x * 2, name

        fn(torch.ones(3))
        """,
)

DISABLED_CALL = _kind(
    "B203", "disabled-call",
    title="the function is marked to stay out of compilation",
    why="""`burnish.disable` or `torch.compiler.disable` was put on it, by you or by a library, to have it run as
        plain Python. The mark's own reason, where one was given, is shown with the call.""",
    what_to_do="""If the mark is yours and no longer needed, take it off. Otherwise call the function before or after
        the compiled part, where the graph has ended anyway.""",
    broken="""
        import burnish
        import torch

        @burnish.disable(reason="writes to the metrics server")
        def report(value):
            pass

        def fn(x):
            y = x * 2
            report(y)
            return y + 1

        fn(torch.ones(3))
        """,
    fixed="""
        import burnish
        import torch

        @burnish.disable(reason="writes to the metrics server")
        def report(value):
            pass

        def fn(x):
            y = x * 2
            return y + 1, y

        report(fn(torch.ones(3))[1])
        """,
)

GRAPH_BREAK_REQUEST = _kind(
    "B204", "graph-break-request",
    title="the code asks for a break here",
    why="""`burnish.graph_break()` or `torch._dynamo.graph_break()` is called, and it means exactly this: end the
        graph at this line.""",
    what_to_do="Remove the call if the break is no longer wanted.",
    broken="""
        import burnish
        import torch

        def fn(x):
            y = x * 2
            burnish.graph_break()
            return y + 1

        fn(torch.ones(3))
        """,
    fixed="""
        import torch

        def fn(x):
            y = x * 2
            return y + 1

        fn(torch.ones(3))
        """,
)

FOREIGN_COMPILED = _kind(
    "B205", "foreign-compiled",
    title="code that another compiler has made is called",
    why="""A `torch.jit` module or a function that was compiled elsewhere is a finished program: there is no Python
        left for capture to follow, so it is called as it is.""",
    what_to_do="""Call the original module or function in place of the compiled one, and compile only the outermost
        function, once.""",
    broken="""
        import torch

        layer = torch.nn.Linear(3, 3)
        traced = torch.jit.trace(layer, torch.ones(1, 3))

        def fn(x):
            return traced(x * 2) + 1

        fn(torch.ones(1, 3))
        """,
    fixed="""
        import torch

        layer = torch.nn.Linear(3, 3)

        def fn(x):
            return layer(x * 2) + 1

        fn(torch.ones(1, 3))
        """,
)

BACKWARD_CALL = _kind(
    "B206", "backward-call",
    title="gradients are computed here for something the graph does not hold",
    why="""`backward()` and `torch.autograd.grad` go into the graph when everything between the loss and its leaves was
        computed in this same graph. Here autograd runs for real: the forward ran before the graph began (before the
        compiled function was called, or before another break), or hooks run on the gradients, or gradients of
        gradients are kept in `.grad`, or the backend in use takes forward graphs only.""",
    what_to_do="""Compile the whole step, forward, `backward()` and `optimizer.step()`, as one function without a break
        between them. Or compile the function that computes the loss, and call `backward()` on its result outside.""",
    broken="""
        import torch

        layer = torch.nn.Linear(3, 1)

        def fn(loss):
            loss.backward()
            return loss

        fn(layer(torch.ones(2, 3)).square().mean())
        """,
    fixed="""
        import torch

        layer = torch.nn.Linear(3, 1)

        def fn(x):
            loss = layer(x).square().mean()
            loss.backward()
            return loss

        fn(torch.ones(2, 3))
        """,
)

RANDOM_CALL = _kind(
    "B207", "random-call",
    title="a random number is drawn from Python's or NumPy's generator",
    why="""Each call must draw a new number, and the generator must move on exactly as it does in eager mode. Graphs
        know torch's generators only, so the number is drawn by Python.""",
    what_to_do="""Draw with torch (`torch.rand`, `torch.randint`, `torch.nn.functional.dropout`), or draw before the
        call and pass the number in as a tensor.""",
    broken="""
        import random
        import torch

        def fn(x):
            return x * random.random()

        fn(torch.ones(3))
        """,
    fixed="""
        import torch

        def fn(x):
            return x * torch.rand(())

        fn(torch.ones(3))
        """,
)

COLLECTIVE_CALL = _kind(
    "B208", "collective-call",
    title="a call that other processes take part in",
    why="""The function is one of `torch.distributed`: it waits for other processes, sends them tensors, or makes a
        `DTensor`, of which each holds a part. A graph is what one process does, so it is called as it is.""",
    what_to_do="""Nothing is wrong with it. Where the break costs, gather such calls at the beginning or the end of the
        compiled function, or call them outside of it.""",
    broken="""
        import torch
        from torch import distributed as dist
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

        def fn(x):
            y = x * 2
            dist.all_reduce(y)
            return y

        fn(torch.ones(3))
        dist.destroy_process_group()
        """,
    fixed="""
        import torch
        from torch import distributed as dist
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

        def fn(x):
            return x * 2

        dist.all_reduce(fn(torch.ones(3)))
        dist.destroy_process_group()
        """,
)

OPAQUE_OPCODE = _kind(
    "B301", "opaque-opcode",
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

OUTSIDE_ITERATOR = _kind(
    "B302", "outside-iterator",
    title="an iterator from outside the function is advanced",
    why="""The iterator or generator existed before the call and hands out the next item on each call. How far it has
        come cannot be checked beforehand, and a step once taken cannot be taken back, so Python takes it.""",
    what_to_do="""Take the item outside, `item = next(iterator)`, and pass it in as an argument. Or pass in the list
        and iterate inside the function.""",
    broken="""
        import torch

        scales = iter([1.0, 2.0, 3.0])

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

USER_HASH = _kind(
    "B303", "user-hash",
    title="a dictionary or set key runs Python code of its own",
    why="""A lookup calls the key's `__hash__` and `__eq__` from native code, where capture cannot follow. What these
        methods read or change would go unnoticed, so the lookup runs natively on every call.""",
    what_to_do="""Use keys whose hash is built in: strings, numbers, tuples, a `typing.NamedTuple`, or objects that
        define neither method and so compare by identity. A dataclass with `frozen=True` counts as Python code too.""",
    broken="""
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
    fixed="""
        import typing
        import torch

        class Key(typing.NamedTuple):
            layer: int
            head: int

        scales = {Key(0, 1): 2.0}

        def fn(x):
            return x * scales[Key(0, 1)]

        fn(torch.ones(3))
        """,
)

UNREBUILDABLE = _kind(
    "B304", "unrebuildable",
    title="a value made here cannot be made again from the graph",
    why="""What the function makes and hands on (returns it, stores it, needs it after a break) is put together anew
        on every run, from its parts. An open file, a match of a regular expression, a lock or an iterator of C code
        has no parts that it could be put together from.""",
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

RAISED = _kind(
    "B305", "raised",
    title="an exception cannot be made again from the graph",
    why="""On later runs the exception is put together anew from its class, its arguments and its attributes. This one
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

TENSOR_STATE = _kind(
    "B401", "tensor-state",
    title="the state of a tensor object is changed",
    why="""`requires_grad_()`, the removal of a hook, or `x.data = y` with data of another shape change the tensor
        object that the caller holds, not a value that flows through the graph. Autograd looks at that state while
        operations run, so the change has to happen at its place, between two graphs. Registering a hook,
        `retain_grad()` and `x.data = y` of the same shape stay in the graph, unless the backend is one that runs no
        Python.""",
    what_to_do="""Set `requires_grad` and register hooks once, before the compiled function is called. Update values
        with in-place operations under `torch.no_grad()`.""",
    broken="""
        import torch

        def fn(x):
            x.requires_grad_()
            return (x * 2).sum()

        fn(torch.ones(3))
        """,
    fixed="""
        import torch

        def fn(x):
            return (x * 2).sum()

        fn(torch.ones(3, requires_grad=True))
        """,
)

UNSUPPORTED_WRITE = _kind(
    "B402", "unsupported-write",
    title="a write to an outside object that cannot be repeated",
    why="""Writes to attributes, lists, dictionaries, sets, globals and closures are noted and done again on every
        run. This object does its own writing in native code (an `array.array`, a `memoryview`, a `ctypes` structure),
        so what the write does is not known.""",
    what_to_do="Write to a list, a dictionary or an attribute in its place, or return the value and write outside.",
    broken="""
        import array
        import torch

        calls = array.array("l", [0])

        def fn(x):
            calls[0] += 1
            return x * 2

        fn(torch.ones(3))
        """,
    fixed="""
        import torch

        calls = [0]

        def fn(x):
            calls[0] += 1
            return x * 2

        fn(torch.ones(3))
        """,
)

GLOBAL_SWITCH = _kind(
    "B403", "global-switch",
    title="a global setting of torch is changed",
    why="""The setting (`torch.set_num_threads`, a torch function mode and the like) holds for the whole process and
        is no operation of a graph. What comes before must run under the old setting and what comes after under the
        new one.""",
    what_to_do="""Change the setting before the compiled function is called. The switches that belong to a stretch of
        code, `torch.no_grad()` and `torch.autocast(...)`, may stay inside.""",
    broken="""
        import torch

        def fn(x):
            torch.set_num_threads(1)
            return x * 2

        fn(torch.ones(3))
        """,
    fixed="""
        import torch

        torch.set_num_threads(1)

        def fn(x):
            return x * 2

        fn(torch.ones(3))
        """,
)

GPU_CALL = _kind(
    "B404", "gpu-call",
    title="a GPU is told something besides the work",
    why="""To wait for a GPU, to change streams, to note a time on it, to ask for its memory or to set its seed is about
        what was started before that line. In a graph there is no such line: what it computes is started as is fastest.
        So one graph ends there, and another one begins.""",
    what_to_do="""Measure, wait and change streams around the compiled function: it computes in whatever stream is the
        current one. `torch.cuda.device(...)` may stay inside where it is the current GPU anyway.""",
    broken="""
        import torch

        def fn(x):
            torch.cuda.manual_seed(0)
            return x * 2

        fn(torch.ones(3))
        """,
    fixed="""
        import torch

        torch.cuda.manual_seed(0)

        def fn(x):
            return x * 2

        fn(torch.ones(3))
        """,
)

SEGMENT_LIMIT = _kind(
    "B501", "segment-limit",
    title="one place was compiled for too many different cases",
    why="""Each time a guard fails, the code from this place on is compiled once more, for the new case. Here
        something differs on almost every call, so that compiling again costs more than it gives: further cases run as
        plain Python.""",
    what_to_do="""Find the value that keeps changing; the report of each guard miss names it. Pass a changing number
        as a tensor, pad changing shapes to a few sizes, and do not make new functions, modules or lists for every
        call.""",
    broken="""
        import torch

        def fn(x, steps):
            for _ in range(steps):
                x = x * 0.5
            return x

        [fn(torch.ones(3), steps) for steps in range(200)]
        """,
    fixed="""
        import torch

        def fn(x, steps):
            return x * 0.5 ** steps

        [fn(torch.ones(3), torch.tensor(steps)) for steps in range(200)]
        """,
)
