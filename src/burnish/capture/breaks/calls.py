"""Graph breaks at calls that capture does not trace into: B2xx."""

from __future__ import annotations

from .break_kind import kind

OPAQUE_CALL = kind(
    "B201",
    "opaque-call",
    title="a call into native code with unknown behaviour",
    why="""The function is written in C (SciPy, an extension module, parts of NumPy), so there is no Python to follow.
        What it reads, changes or returns is not known and cannot be recorded; it is called for real every time.""",
    what_to_do="""Use the torch function that does the same. If there is none, make the call an operation of its own
        with `torch.library.custom_op`, or call it before or after the compiled function.""",
    broken="""
        import numpy
        import torch

        def fn(x):
            return torch.as_tensor(numpy.unique(x)) + 1

        fn(torch.ones(3))
        """,
    fixed="""
        import torch

        def fn(x):
            return torch.sort(x).values + 1

        fn(torch.ones(3))
        """,
)

OPAQUE_FUNCTION = kind(
    "B202",
    "opaque-function",
    title="a Python function that only Python itself can run",
    why="""It looks at the interpreter's frames (`sys._getframe`, `inspect.stack`, `sys.settrace`), is a coroutine, or
        runs code made on the spot (`exec`, `eval`). Followed by capture it would see something else than in eager
        mode, so it is called natively. So are functions of torch that work with files or the profiler, such as
        `torch.save`, and progress bars of tqdm. `self.log` of Lightning is, too, if it gets a metric object, whose
        state the Trainer reads and resets, or if logged values are read in the same step.""",
    what_to_do="""Pass in what the function looks for (the caller's name, a value) as an argument, write generated
        code as an ordinary function, or call it outside the compiled function: a metric can be updated in the step,
        and logged in `on_train_epoch_end`.""",
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

DISABLED_CALL = kind(
    "B203",
    "disabled-call",
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

GRAPH_BREAK_REQUEST = kind(
    "B204",
    "graph-break-request",
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

FOREIGN_COMPILED = kind(
    "B205",
    "foreign-compiled",
    title="code that another compiler has made is called",
    why="""A `torch.jit` module or a function that was compiled elsewhere is a finished program: there is no Python
        left for capture to follow, so it is called as it is. A function of `torch.jit.script` is part of the graph if
        it only computes with tensors and numbers: it draws no random numbers, writes to no tensor and does not branch
        on data.""",
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

BACKWARD_CALL = kind(
    "B206",
    "backward-call",
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

RANDOM_CALL = kind(
    "B207",
    "random-call",
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

COLLECTIVE_CALL = kind(
    "B208",
    "collective-call",
    title="a call that other processes take part in",
    why="""The function is one of `torch.distributed` that has no form without side effects: it broadcasts, sends or
        receives, returns a handle to wait for (`async_op=True`), writes into a tensor that requires gradients, or makes
        a `DTensor` in another way than those below. It is called as it is.""",
    what_to_do="""`all_reduce`, `all_gather`, `all_gather_into_tensor`, `reduce_scatter_tensor` and `all_to_all_single`
        without a handle, `torch.distributed._functional_collectives`, and `from_local`, `to_local`, `redistribute`,
        `full_tensor` and `distribute_tensor` of a `DTensor` on a given mesh stay in the graph. Where another call
        costs, gather such calls at the beginning or the end of the compiled function, or call them outside of it.""",
    broken="""
        import torch
        from torch import distributed as dist
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

        def fn(x):
            y = x * 2
            dist.broadcast(y, src=0)
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

        dist.broadcast(fn(torch.ones(3)), src=0)
        dist.destroy_process_group()
        """,
)
