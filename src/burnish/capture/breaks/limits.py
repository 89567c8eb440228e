"""Graph breaks caused by a limit: B5xx."""

from __future__ import annotations

from .break_kind import kind

LEFT_TO_PYTHON = kind(
    "B502",
    "left-to-python",
    title="a function is left to Python, because compiling it cannot pay",
    why="""The code of this function has many breaks and few torch calls between them. Capturing it takes far longer
        than running it, and each of its small graphs costs more than it saves. So it was captured a few times, and
        now runs as plain Python, with all that it calls.""",
    what_to_do="""Often nothing: such a function is Python at heart. If it computes with tensors that matter, remove
        its breaks: `burnish.explain(function)(...)` lists them. To spare the attempts, mark it with
        `@burnish.disable`.""",
    broken="""
        import torch

        def describe(x):
            text = f"sorted {x.sort().values.tolist()}, sums {x.cumsum(0).tolist()}, steps {x.diff().tolist()}"
            text += f", sizes {x.abs().tolist()}, signs {x.sign().tolist()}, rounded {x.round().tolist()}"
            return text + f", from {x.floor().tolist()} to {x.ceil().tolist()}, rest {x.frac().tolist()}"

        def fn(x):
            return x.sin() * len(describe(x))

        fn(torch.rand(4))
        fn(torch.rand(4))
        """,
    fixed="""
        import torch

        def describe(x):
            return torch.stack([x.sort().values, x.cumsum(0), x.abs(), x.sign(), x.round(), x.floor(), x.ceil()])

        def fn(x):
            return x.sin() * len(describe(x))

        fn(torch.rand(4))
        fn(torch.rand(4))
        """,
)

SEGMENT_LIMIT = kind(
    "B501",
    "segment-limit",
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
