"""Graph breaks caused by a limit: B5xx."""

from __future__ import annotations

from .break_kind import kind

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
