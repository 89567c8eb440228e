"""Graph breaks at changes to state that outlives the call: B4xx."""

from __future__ import annotations

from .break_kind import kind

TENSOR_STATE = kind(
    "B401",
    "tensor-state",
    title="the state of a tensor object is changed",
    why="""`resize_()`, the removal of a hook, or `x.data = y` with data of another shape change the tensor object that
        the caller holds, not a value that flows through the graph. Autograd looks at that state while operations run,
        so the change has to happen at its place, between two graphs. Registering a hook, `retain_grad()`,
        `requires_grad_()` and `x.data = y` of the same shape stay in the graph, unless the backend is one that runs
        no Python.""",
    what_to_do="""Give tensors their sizes and register hooks once, before the compiled function is called. Update
        values with in-place operations under `torch.no_grad()`.""",
    broken="""
        import torch

        def fn(x):
            x.data = torch.ones(2)
            return x.sum()

        fn(torch.ones(3))
        """,
    fixed="""
        import torch

        def fn(x):
            return x[:2].fill_(1).sum()

        fn(torch.ones(3))
        """,
)

UNSUPPORTED_WRITE = kind(
    "B402",
    "unsupported-write",
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

GLOBAL_SWITCH = kind(
    "B403",
    "global-switch",
    title="a global setting of torch is changed",
    why="""The setting (`torch.set_num_threads`, a torch function mode and the like) holds for the whole process and
        cannot be an operation of a graph. Calls before the change must run under the old setting, later ones under
        the new one.""",
    what_to_do="""Change the setting before the compiled function is called. The switches that belong to a stretch of
        code, `torch.no_grad()` and `torch.autocast(...)`, may stay inside. So may settings of kernels
        (`torch.use_deterministic_algorithms`, `sdpa_kernel`, the flags of `torch.backends`), the default dtype and
        `torch.manual_seed`; with a backend that runs no Python, only `sdpa_kernel`.""",
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

GPU_CALL = kind(
    "B404",
    "gpu-call",
    title="a call controls the GPU instead of computing",
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
