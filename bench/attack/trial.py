"""One program, run eagerly, compiled and in float64; every difference that a user could see.

    verdict = tried("linear", lambda: Program(lambda x, w: x @ w, (x, w)))
    verdict.differences            ["gradient 1 lies as (1, 3), in eager as (3, 1)"]
    verdict.ratios                 error against float64 of each tensor, in eager's
    verdict.compiled               how many graphs were compiled

A program is called `CALLS` times. From the second call on gradients are added up. Each call goes backward twice
(`retain_graph`); after it the gradients are scaled in place, as clipping does, and one is added to each output in
place. A gradient that is handed out twice, or that shares memory with anything it does not share it with in eager,
changes values so.

Where an error is more than twice eager's, one input says little: rounding was kind to eager, or not to us. The program
is then run on `DRAWS` more inputs beside it, and the root mean squares of the errors decide. Their ratio is reported
beside that of the one input: about 1 if both round alike, and unchanged if our method is less accurate.
"""

from __future__ import annotations

import itertools
import math
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

import burnish
from burnish import events

CALLS = 3
SECONDS = 60
FACTOR = 2.0
"""Of eager's error against float64, that ours may be."""
DRAWS = 9
FAR = 64
"""Rounding units by which inputs differ at most from those of the program, in these draws."""
ROUNDINGS = 4.0
"""Added to it, in rounding units of the tensor's largest entry."""
WITHOUT_TRUTH = {torch.float64: 2.0**20, torch.complex128: 2.0**20}
"""The same where float64 has no better answer: one in the last place of a step may be many in the result."""


@dataclass
class Program:
    run: Any
    """A module, or a function."""
    args: tuple = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    training: Any = None
    """Of a function that is a whole step of training, the module whose `changed()` shows what it changes."""


@dataclass
class Seen:
    """What a user sees of some calls."""

    values: list[Any] = field(default_factory=list)
    """Tensors with their names, copied as they were, and other results."""
    facts: list[str] = field(default_factory=list)
    error: str = ""


@dataclass
class Verdict:
    name: str
    differences: list[str]
    ratios: list[tuple[float, str]]
    """Of each tensor that has a better answer, and its name."""
    compiled: int
    refused: list[str]
    by_chance: int = 0
    """Tensors whose errors were more than twice eager's on the program's inputs, and are not on those beside it."""
    over_draws: list[tuple[float, str]] = field(default_factory=list)
    """Of each tensor whose ratio is above `FACTOR`, that of the root mean squares over the inputs beside."""


class TooLong(BaseException):
    pass


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Seconds of the process, not on the wall: others may use the machine."""

    def stop(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def tried(name: str, make: Callable[[], Program]) -> Verdict:
    """`make` makes the same program each time. Raises TooLong where all takes more than `SECONDS`."""
    refused: list[str] = []
    burnish.reset()
    stop = events.subscribe(lambda event: refused.append(event.data["text"]), {"lower.refused"})
    try:
        with counted_graphs() as graphs, at_most(SECONDS):
            eager, truth = seen(make(), None), seen_in_double(make())
            got = seen(make(), burnish.compile)
    finally:
        stop()
    ratios: list[tuple[float, str]] = []
    found = list(differences(eager, got, truth, ratios))
    inaccurate = [text.partition(OFF)[0] for text in found if OFF in text]
    above = [tensor for ratio, tensor in ratios if ratio > FACTOR]
    over_draws: list[tuple[float, str]] = []
    if (inaccurate or above) and len(inaccurate) == len(found):
        with at_most(DRAWS * SECONDS):
            errors = typical_errors(make, {*inaccurate, *above})
        found = [
            f"{tensor}{OFF}{ours:.3g}, eager's {eagers:.3g}, over {DRAWS} inputs"
            for tensor in inaccurate
            for ours, eagers, allowed in [errors[tensor]]
            if ours > FACTOR * eagers + allowed
        ]
        over_draws = [(in_eagers(*errors[tensor]), tensor) for tensor in above]
    return Verdict(name, found, ratios, graphs["loops"], refused, len(inaccurate) if not found else 0, over_draws)


@contextmanager
def counted_graphs() -> Iterator[Counter[str]]:
    """Counts, under "loops", the graphs that are compiled meanwhile. Those that are left to eager's kernels as a whole
    are none, though `was_compiled` is true of them."""
    counts: Counter[str] = Counter()
    stop = events.subscribe(lambda event: counts.update([event.kind]), {"loops"})
    try:
        yield counts
    finally:
        stop()


OFF = ": error "
"""Between a tensor's name and by how much it is off."""


Errors = tuple[float, float, float]
"""Ours, eager's, and what is allowed besides."""


def typical_errors(make: Callable[[], Program], names: Iterable[str]) -> dict[str, Errors]:
    """Those of the named tensors, as root mean squares over `DRAWS` inputs."""
    squares = {name: [0.0, 0.0, 0.0] for name in names}
    for seed in range(DRAWS):
        eager, truth = seen(moved(make(), seed), None), seen_in_double(moved(make(), seed))
        burnish.reset()
        got = seen(moved(make(), seed), burnish.compile)
        ours, theirs, true = dict(got.values), dict(eager.values), dict(truth.values)
        for name, sums in squares.items():
            for k, value in enumerate(measured(theirs[name], ours[name], true.get(name))[:3]):
                sums[k] += value**2 / DRAWS
    return {
        name: (math.sqrt(own), math.sqrt(eagers), math.sqrt(allowed))
        for name, (own, eagers, allowed) in squares.items()
    }


def in_eagers(ours: float, eagers: float, allowed: float) -> float:
    """On both sides, half a rounding unit is luck."""
    half = allowed / ROUNDINGS / 2
    return (ours + half) / (eagers + half)


def moved(program: Program, seed: int) -> Program:
    """With all floats moved by some rounding units, in place."""
    generator = torch.Generator().manual_seed(seed)
    held = [x for x in tree_flatten((program.args, program.kwargs))[0] if isinstance(x, torch.Tensor)]
    for module in (program.run, program.training):
        held += module.parameters() if isinstance(module, torch.nn.Module) else ()
    with torch.no_grad():
        for x in held:
            if x.layout is torch.strided and x.is_floating_point() and not x.is_nested and not spread(x):
                steps = torch.randint(-FAR, FAR + 1, x.shape, generator=generator)
                x.mul_(1 + steps.to(x.dtype) * torch.finfo(x.dtype).eps)
    return program


# ---- the worlds


def in_double(program: Program) -> Program:
    run, args, kwargs = tree_map(doubled, (program.run, program.args, program.kwargs))
    return Program(run, args, kwargs, doubled(program.training))


class Wide(TorchFunctionMode):
    """A program that asks for float32 gets float64: rounded again in its midst, it would be no better than eager."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        args, kwargs = tree_map(lambda x: WIDE.get(x, x) if isinstance(x, torch.dtype) else x, (args, kwargs or {}))
        return {torch.Tensor.float: torch.Tensor.double, torch.Tensor.cfloat: torch.Tensor.cdouble}.get(func, func)(
            *args, **kwargs
        )


def seen_in_double(program: Program) -> Seen:
    with Wide():
        return seen(in_double(program), None)


WIDE = {torch.float32: torch.float64, torch.complex64: torch.complex128}


def doubled(x: Any) -> Any:
    """In float64."""
    if isinstance(x, torch.nn.Module):
        return x.double()
    if isinstance(x, torch.Tensor):
        dtype = WIDE.get(x.dtype)
        return x if dtype is None else x.detach().to(dtype).requires_grad_(x.requires_grad)
    return x


def seen(program: Program, compile_with: Callable | None) -> Seen:
    found = Seen()
    run = program.run if compile_with is None else compile_with(program.run)
    given = [x for x in tree_flatten((program.args, program.kwargs))[0] if isinstance(x, torch.Tensor)]
    state = list(program.run.state_dict(keep_vars=True).values()) if isinstance(program.run, torch.nn.Module) else []
    leaves = [x for x in (*state, *given) if isinstance(x, torch.Tensor) and x.requires_grad and x.is_leaf]
    for number in range(CALLS):
        torch.manual_seed(number)
        if number == 1:  # the first call is traced: what compiled code returns is to become `.grad` itself
            for x in leaves:
                x.grad = None
        try:
            outputs = [x for x in tree_flatten(run(*program.args, **program.kwargs))[0]]
            if program.training is None:
                go_backward(outputs)
        except Exception as error:
            found.error = f"{type(error).__name__}: {error}"
            return found
        named = {f"output {k}": x for k, x in enumerate(outputs)}
        named |= {f"gradient {k}": x.grad for k, x in enumerate(leaves)}
        named |= {f"input {k}": x for k, x in enumerate(given)} | {f"state {k}": x for k, x in enumerate(state)}
        if program.training is not None:
            named |= {f"inner {k}": x for k, x in enumerate(tree_flatten(program.training.changed())[0])}
        found.facts += [f"call {number}: {fact}" for fact in facts(named)]
        found.values += [
            (f"call {number}: {name}", x.detach().clone() if isinstance(x, torch.Tensor) else x)
            for name, x in named.items()
        ]
        write_in_place(outputs, given, leaves)
        found.values += [
            (f"after call {number}: {name}", x.detach().clone())
            for name, x in named.items()
            if isinstance(x, torch.Tensor) and not name.startswith("inner")
        ]
    return found


def go_backward(outputs: Sequence[Any]) -> None:
    flowing = [x for x in outputs if isinstance(x, torch.Tensor) and x.requires_grad]
    for retain in (True, False):
        if flowing:
            torch.autograd.backward(flowing, list(map(weights, flowing)), retain_graph=retain)


def weights(x: torch.Tensor) -> torch.Tensor:
    """What flows into an output: of each entry another amount."""
    flat = (torch.arange(x.numel()) % 7 + 1).to(torch.float64) / 8
    return flat.to(x.dtype).to(x.device).reshape(x.shape)


def write_in_place(outputs: Sequence[Any], given: Sequence[Any], leaves: Sequence[torch.Tensor]) -> None:
    """As users do after a call: into gradients, each once, and into outputs that are their own."""
    with torch.no_grad():
        for x in leaves:
            if x.grad is not None and x.grad.layout is torch.strided:
                x.grad.mul_(0.75)
        for x in outputs:
            if (
                isinstance(x, torch.Tensor)
                and x.layout is torch.strided
                and x.is_floating_point()
                and not any(overlaps(x, other) for other in (*given, *leaves))
                and not spread(x)
            ):
                x.add_(1)


def spread(x: torch.Tensor) -> bool:
    return any(step == 0 and size > 1 for size, step in zip(x.shape, x.stride(), strict=True))


# ---- what can be seen


def facts(named: dict[str, Any]) -> Iterator[str]:
    """Everything but the values."""
    tensors = {name: x for name, x in named.items() if isinstance(x, torch.Tensor)}
    for name, x in named.items():
        if name not in tensors:
            yield f"{name} is {type(x).__name__}"
        elif x.layout is torch.strided and not x.is_nested:
            strides = x.stride() if x.numel() else ()
            if name.startswith("gradient"):  # in dimensions of size 1 they may differ: see docs/limitations.md
                strides = tuple([step for size, step in zip(x.shape, strides, strict=False) if size > 1])
            yield (
                f"{name}: {type(x).__name__} {tuple(x.shape)} {strides} {x.dtype} "
                f"requires_grad={x.requires_grad} is_leaf={x.is_leaf}"
            )
    for (a, x), (b, y) in itertools.combinations(tensors.items(), 2):
        if x is y:
            yield f"{a} is {b}"
        elif overlaps(x, y):
            yield f"{a} overlaps {b}"


def overlaps(x: torch.Tensor, y: torch.Tensor) -> bool:
    if (
        x.layout is not torch.strided
        or y.layout is not torch.strided
        or not x.numel()
        or not y.numel()
        or x.is_nested
        or y.is_nested
    ):
        return False
    (a, b), (c, d) = reach(x), reach(y)
    return a < d and c < b


def reach(x: torch.Tensor) -> tuple[int, int]:
    far = sum((size - 1) * step for size, step in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + (far + 1) * x.itemsize


def differences(eager: Seen, got: Seen, truth: Seen, ratios: list[tuple[float, str]]) -> Iterator[str]:
    if eager.error != got.error:
        yield f"raises {got.error[:200] or 'nothing'!r}, eager {eager.error[:200] or 'nothing'!r}"
        return
    for fact in sorted({*eager.facts} ^ {*got.facts}):
        yield f"{'only in eager' if fact in eager.facts else 'only compiled'}: {fact}"
    if [name for name, _ in eager.values] != [name for name, _ in got.values]:
        yield "other results than eager's"
        return
    true = dict(truth.values) if not truth.error else {}
    for (name, x), (_, y) in zip(eager.values, got.values, strict=True):
        found: list[float] = []
        why = why_wrong(x, y, true.get(name), found)
        ratios += [(ratio, name) for ratio in found]
        if why is not None:
            yield f"{name}: {why}"


def why_wrong(x: Any, y: Any, true: Any, ratios: list[float]) -> str | None:
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        return (
            None
            if repr(x) == repr(y) or isinstance(x, float) and math.isclose(x, y, rel_tol=1e-5)
            else f"{y!r:.60}, in eager {x!r:.60}"
        )
    if x.is_sparse:
        x, y = x.to_dense(), y.to_dense()
    if x.shape != y.shape or x.dtype != y.dtype:
        return f"{tuple(y.shape)} {y.dtype}, in eager {tuple(x.shape)} {x.dtype}"
    if x.layout is not torch.strided or x.is_nested or not x.numel():
        return None
    if not x.is_floating_point() and not x.is_complex():
        return None if torch.equal(x, y) else f"{int((x != y).sum())} of {x.numel()} entries differ"
    finite = torch.isfinite(x)
    if not torch.equal(x[~finite].nan_to_num(nan=7.0), y[~finite].nan_to_num(nan=7.0)):
        return "NaN or infinite elsewhere than in eager"
    if not finite.any():
        return None
    ours, eagers, allowed, ratio = measured(x, y, true)
    if not math.isfinite(ours):
        return "not finite where eager is"
    if ratio is not None and (ours or eagers):  # what is exact in both, such as inputs, would hide the others
        ratios.append(ratio)
    if ours > FACTOR * eagers + allowed:
        return f"error {ours:.3g}, eager's {eagers:.3g}, allowed besides {allowed:.3g}"
    return None


def measured(x: torch.Tensor, y: torch.Tensor, true: Any) -> tuple[float, float, float, float | None]:
    """Our error, eager's, what is allowed besides, and their ratio if there is a better answer than eager's."""
    if not isinstance(true, torch.Tensor) or true.shape != x.shape:
        true = None
    # A result in float64 has a better one where float32 went into it.
    is_double = x.dtype in WITHOUT_TRUTH
    if is_double and true is not None and torch.allclose(true, x, rtol=1e-11, atol=0, equal_nan=True):
        true = None
    wide = torch.complex128 if x.is_complex() else torch.float64
    finite = torch.isfinite(x)
    x, y = x[finite], y[finite]
    aim = x.to(wide) if true is None else true.to(wide)[finite]
    aim = torch.where(torch.isfinite(aim), aim, x.to(wide))
    if not aim.numel():
        return 0.0, 0.0, 0.0, None
    eps = torch.finfo(torch.float32 if is_double and true is not None else x.dtype).eps
    unit = eps * max(float(aim.abs().max()), 1e-30)
    ours, eagers = float((y.to(wide) - aim).abs().max()), float((x.to(wide) - aim).abs().max())
    allowed = (WITHOUT_TRUTH.get(x.dtype, 64.0) if true is None else ROUNDINGS) * unit
    return ours, eagers, allowed, None if true is None else in_eagers(ours, eagers, allowed)


# ---- the report


def report(verdicts: Sequence[Verdict], seed: int, left_out: Sequence[str] = ()) -> str:
    ratios = [(ratio, f"{verdict.name}, {name}") for verdict in verdicts for ratio, name in verdict.ratios]
    ran = sum(1 for verdict in verdicts if verdict.compiled)
    wrong = [verdict for verdict in verdicts if verdict.differences]
    lines = [
        f"seed {seed}: {len(verdicts)} programs, {ran} ran compiled "
        f"({sum(v.compiled for v in verdicts)} graphs), {len(wrong)} differ from eager"
    ]
    if left_out:
        lines.append(f"left out: {len(left_out)} ({', '.join(left_out[:8])}{', …' if len(left_out) > 8 else ''})")
    by_chance = sum(verdict.by_chance for verdict in verdicts)
    if by_chance:
        lines.append(f"{by_chance} tensors were off by more than twice eager's error on one input, not over {DRAWS}")
    lines += distribution(ratios)
    over_draws = [(ratio, f"{verdict.name}, {name}") for verdict in verdicts for ratio, name in verdict.over_draws]
    if over_draws:
        lines += [f"the {len(over_draws)} above {FACTOR:g} again, as root mean squares over {DRAWS} inputs:"]
        lines += distribution(over_draws)
    for verdict in wrong:
        lines.append(f"{verdict.name}:")
        lines += [f"    {text}" for text in verdict.differences[:6]]
    return "\n".join(lines)


QUANTILES = {"50%": 0.5, "90%": 0.9, "99%": 0.99, "99.9%": 0.999}


def distribution(ratios: Sequence[tuple[float, str]], largest: int = 5) -> list[str]:
    """Lines about errors in eager's, with the names of the largest."""
    if not ratios:
        return []
    ordered = sorted(ratios)
    at = {name: ordered[min(int(share * len(ordered)), len(ordered) - 1)][0] for name, share in QUANTILES.items()}
    shown = ", ".join(f"{name} {value:.2f}" for name, value in at.items())
    above = sum(ratio > FACTOR for ratio, _ in ordered)
    lines = [
        f"error against float64, in eager's: {shown}, max {ordered[-1][0]:.2f}, of {len(ordered)} tensors, "
        f"{above} above {FACTOR:g}"
    ]
    return lines + [f"    {ratio:.2f} {name}" for ratio, name in ordered[: -largest - 1 : -1]]


@contextmanager
def as_attacked() -> Iterator[None]:
    """Compiled code is kept also where it is slower, draws eager's random numbers, and is compiled again."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with burnish.settings.patch(never_slower=False, eager_random=True, cache=False, on_error="raise", check=True):
            yield
    finally:
        torch.set_num_threads(before)
