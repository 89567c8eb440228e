"""Compares calls at many input sizes with eager."""

import contextlib

import torch

import burnish
from burnish import events

ATOL = {torch.float32: 2e-5, torch.float64: 1e-10, torch.bfloat16: 2e-2, torch.float16: 2e-3}


class Seen:
    """The number of compiled segments, and the events about sizes."""

    def __init__(self):
        self.segments, self.words, self.programs = 0, [], []

    @property
    def is_open(self):
        return any(words.startswith("compiled for all") for words in self.words)

    @property
    def why_apiece(self):
        return [words for words in self.words if words.startswith("compiled for each")]

    @property
    def why_closed(self):
        return [words for words in self.words if words.startswith("compiled for one")]


@contextlib.contextmanager
def watching():
    seen = Seen()

    def note(event):
        seen.segments += event.kind == "segment"
        if event.kind == "guards.sizes":
            seen.words.append(event.data["text"])
            seen.programs += [event.data["program"]] if "program" in event.data else []

    end = events.subscribe(note, ["segment", "guards.sizes"])
    try:
        yield seen
    finally:
        end()


def same(found, wanted, path="result"):
    assert type(found) is type(wanted), f"{path}: {type(wanted)} expected, got {type(found)}"
    if isinstance(wanted, torch.Tensor):
        assert found.shape == wanted.shape and found.stride() == wanted.stride(), path
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=ATOL.get(wanted.dtype, 0), equal_nan=True)
    elif isinstance(wanted, (tuple, list)):
        assert len(found) == len(wanted), path
        for k, (f, w) in enumerate(zip(found, wanted, strict=True)):
            same(f, w, f"{path}[{k}]")
    else:
        assert found == wanted, f"{path}: {wanted} expected, got {found}"


def called_with(fn, calls, dynamic=None):
    """Call a compiled function and the plain one with each of the arguments, without gradients. Returns what was
    compiled. Every call is made twice, so that code that is compiled late runs as well."""
    burnish.reset()
    with watching() as seen, torch.no_grad(), burnish.settings.patch(never_slower=False):
        compiled = burnish.compile(fn, dynamic=dynamic)
        for args in calls:
            for _ in range(2):
                same(compiled(*args), fn(*args), f"for {[tuple(x.shape) for x in args if isinstance(x, torch.Tensor)]}")
    return seen
