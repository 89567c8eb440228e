"""The settings: one typed object, a documented default for each, set from the environment or from code.

Base module. All other parts read `current()`; reading takes no lock.

    BURNISH_CHECK=1 BURNISH_SHOW=breaks,guards python train.py         for a process

    burnish.settings.configure(on_error="raise")                       for the process, from here on

    with burnish.settings.patch(show={"breaks"}):                      for this thread, inside the block
        model(x)

The environment is read once, when a setting is first needed. An invalid value is a UserError that names the valid
ones.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

from .concurrency.outside_errors import reraise_from_outside
from .errors import UserError, did_you_mean, warn

OnError = Literal["fallback", "raise"]
Check = bool | Literal["bisect"]
CpuLevel = Literal["x86-64-v2", "x86-64-v3", "x86-64-v4"]

STAGES = ("breaks", "guards", "graph", "effects", "lower", "loops", "kernels", "runtime", "fuel")
"""The stages that `show` can print."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting. Each one is also an environment variable: `on_error` is BURNISH_ON_ERROR."""

    segment_limit: int = 8
    """How many segments one continuation keeps. A function whose guards keep missing is compiled this many times
    at one place and then runs eagerly there. At least 1."""

    on_error: OnError = "fallback"
    """What an internal failure does. "fallback": the function runs eagerly, with one warning. "raise": the
    InternalError is raised."""

    check: Check = False
    """Verify the graph after every pass of the compiler; write the checks of guards in both of their forms, which must
    agree; fail where user code runs unseen while a function is captured; compare the results of the first calls of a
    compiled graph with eager's. Slow; on in the tests. "bisect": a graph that differs is also made smaller, and
    written to burnish-repro.py in the working directory, before the error is raised."""

    fuel: int | None = None
    """Stop optimizing after so many rewrites, counted over the whole process. None: no limit. With one, nothing that
    was compiled before is taken from the cache, and compiled code is kept even where eager is faster. `burnish bisect`
    uses it to find the rewrite that makes a program wrong."""

    native_guards: bool = True
    """Look at memory, by one native call, whether anything that the guards of a segment stand for has changed since
    they last held. Off, they are checked one by one in Python, which costs about a microsecond for each parameter. Read
    when a segment is made. Off, Burnish reads no memory of other objects at all, except elements of tensors that the
    call holds: the switch to try after a crash. `runtime/state_watch/native_watch.py` has the rules."""

    never_slower: bool = True
    """Let the first calls of a compiled graph take turns with eager, measure both, and keep the faster. Off, compiled
    code is always kept: for tests, and for reproducing a run exactly."""

    eager_random: bool = False
    """Let compiled code draw exactly the random numbers that eager draws. Off, it draws others, which cost next to
    nothing; `torch.manual_seed` makes both repeat. Read when a graph is compiled."""

    max_autotune: bool = False
    """Measure every way to compute a product or a convolution, and each for longer. Compiling takes several times as
    long, once: measurements are remembered. Read when a graph is compiled."""

    shape_padding: bool = False
    """On a GPU, give large products of matrices rows that begin at multiples of 16 bytes, where they do not: zeros are
    joined to the operands, and the result is cut. On a CPU nothing is padded. Read when a graph is compiled."""

    cuda_graphs: bool = False
    """Record what a call starts on a GPU as one graph, and replay that: for programs of many small kernels, which a CPU
    cannot start as fast as they run. Results are copied out. Read when a graph is compiled."""

    memory_budget: float = 1.0
    """Of what backward reads of forward, and would be saved because that is fastest, this share of the bytes may be;
    the rest is computed again, first what costs least. From 1.0 to 0.0, which is a checkpoint around the whole program;
    0.5 is worth trying where a model does not fit. Below 1.0 compiled code is kept where eager is faster. Read when a
    graph is compiled."""

    null_device: str | None = None
    """Make kernels for a GPU that is not there, of this architecture ("sm_90", say), and run graphs eagerly: with
    `show` or `dump`, to look at what would run on one."""

    compile_workers: int | None = None
    """How many processes compile kernels for GPUs side by side. None: one for each core of this process, at most 8, and
    none with fewer than 4 cores, where threads do as well. 0: threads of this process."""

    cpu: CpuLevel | None = None
    """Generate code for this level of x86-64 in place of this processor: "x86-64-v3" has AVX2 and no AVX-512, say. The
    processor must have what the level has. PyTorch's own kernels do not change. Read once, when a process first
    generates code or looks for it on disk."""

    cache: bool = True
    """Keep compiled graphs, machine code and measurements on disk, so that later processes need not compile."""

    cache_dir: Path | None = None
    """Where, or None for a folder `burnish` in the user's cache directory. From code a path or a string."""

    show: frozenset[str] = frozenset()
    """Which stages to print to stderr as they happen, of STAGES. From code any collection of names or one string
    with commas, in the environment BURNISH_SHOW=breaks,guards."""

    dump: Path | None = None
    """A directory into which each stage writes what it made, or None. It is created when it is first needed. From
    code a path or a string; the empty string is None."""

    progress: bool = True
    """On a terminal, show what is compiled and how far it is, once one compilation has taken two seconds."""

    report: Path | None = None
    """A directory into which each process writes a report of its whole run at its end, as `burnish.report` does, or
    None. It is created. From code a path or a string; the empty string is None."""

    untested_torch: bool = False
    """Compile on a PyTorch that is newer than all that Burnish was tested with. Off, everything runs as plain Python
    there, which a warning says once."""

    @property
    def compares(self) -> bool:
        """Whether compiled graphs have to be as fast as eager."""
        return self.never_slower and self.memory_budget == 1.0 and self.fuel is None

    def __post_init__(self) -> None:
        for field in fields(self):
            accept = _ACCEPT.get(field.name) or _ACCEPT_TYPE[field.type]  # type: ignore[index]
            object.__setattr__(self, field.name, accept(field.name, getattr(self, field.name)))


def current() -> Settings:
    """The settings in force here: those of the innermost `patch` of this thread, else those of the process."""
    patched = _patched.get()
    if patched is not None:
        return patched
    return _process if _process is not None else _read_process()


def patch(**changes: Any) -> AbstractContextManager[Settings]:
    """Change settings inside a `with` block, for the running thread (or task).

    The values are checked here, at the call. Other threads keep theirs, and so does this one outside the block: a
    `patch(...)` without `with` changes nothing. For a change that stays there is `configure`.
    """
    _replaced(Settings(), changes)
    return _patching(changes)


def configure(**changes: Any) -> Settings:
    """Change settings for the whole process and return the new ones. An open `patch` keeps its own until it ends."""
    global _process
    with _lock:
        _process = _replaced(_process if _process is not None else from_environment(os.environ), changes)
        made = _process
    _announce(current())
    return made


def on_change(fn: Callable[[Settings], None]) -> Callable[[], None]:
    """Call `fn` with the current settings, and again whenever others come into force. The result ends it.

    This is how printing starts when `show` first asks for it, without an import of the printer here. Before the
    environment has been read, `fn` is not called: importing Burnish never fails on a bad variable.
    """
    global _watchers
    watcher = _Watcher(fn)
    with _lock:
        _watchers = (*_watchers, watcher)
    if _process is not None:
        _tell(watcher, current())

    def stop() -> None:
        global _watchers
        with _lock:
            _watchers = tuple(w for w in _watchers if w is not watcher)

    return stop


def from_environment(environment: Mapping[str, str]) -> Settings:
    """The settings that a mapping such as `os.environ` asks for. An empty variable counts as one that is not set."""
    changes: dict[str, object] = {}
    for field in fields(Settings):
        text = environment.get(variable(field.name))
        if text:
            parse = _TYPE_FROM_TEXT.get(field.type)  # type: ignore[arg-type]
            changes[field.name] = parse(text) if parse else text
    return _replaced(Settings(), changes)


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"BURNISH_{name.upper()}"


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """BURNISH_ variables that no setting reads: most likely misspelt."""
    known = {variable(field.name) for field in fields(Settings)}
    return sorted(name for name in environment if name.startswith("BURNISH_") and name not in known)


@dataclass(frozen=True, slots=True, eq=False)
class _Watcher:
    fn: Callable[[Settings], None]


# A new thread starts with an empty context, so with the settings of the process.
_patched: ContextVar[Settings | None] = ContextVar("burnish.settings", default=None)
_process: Settings | None = None
_watchers: tuple[_Watcher, ...] = ()
_lock = threading.Lock()
if hasattr(os, "register_at_fork"):
    free: Callable[[], None] = getattr(_lock, "_at_fork_reinit")  # noqa: B009  # another thread may have held it
    os.register_at_fork(after_in_child=free)


def _read_process() -> Settings:
    global _process
    with _lock:
        first = _process is None
        if _process is None:
            _process = from_environment(os.environ)
        made = _process
    if first:
        _announce(made)
    return made


@contextmanager
def _patching(changes: dict[str, Any]) -> Generator[Settings, None, None]:
    # Restored by value: a token cannot be reset where a generator is closed in another context than it started in.
    before = _patched.get()
    patched = _replaced(current(), changes)
    try:
        _patched.set(patched)  # inside the try, as an interrupt may come right after it
        _announce(patched)
        yield patched
    finally:
        _patched.set(before)
        _announce(current())


def _announce(settings: Settings) -> None:
    for watcher in _watchers:
        _tell(watcher, settings)


def _tell(watcher: _Watcher, settings: Settings) -> None:
    """A watcher that fails costs a warning: what it prints or writes is not an effect of the program."""
    try:
        watcher.fn(settings)
    except Exception as error:
        reraise_from_outside(error)
        warn(f"burnish: {watcher.fn!r} failed at a change of settings: {type(error).__name__}: {error}")


def _replaced(settings: Settings, changes: dict[str, Any]) -> Settings:
    known = [field.name for field in fields(Settings)]
    for name in changes:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UserError(f'There is no setting called "{name}".{hint} The settings are: {", ".join(known)}.')
    return replace(settings, **changes)


def _bad(name: str, value: object, wanted: str) -> UserError:
    return UserError(
        f"The setting {name} ({variable(name)} in the environment) cannot be {value!r}. Set it to {wanted}."
    )


def _accept_count(least: int, wanted: str, may_be_none: bool = True) -> Callable[[str, object], int | None]:
    def accept(name: str, value: object) -> int | None:
        if value is None and may_be_none:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise _bad(name, value, wanted)
        return value

    return accept


def _accept_on_error(name: str, value: object) -> OnError:
    if value not in get_args(OnError):
        raise _bad(name, value, '"fallback", to run eagerly after a failure of Burnish, or "raise", to see the error')
    return cast(OnError, value)


def _accept_bool(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _bad(name, value, "True or False (1 or 0 in the environment)")
    return value


def _accept_check(name: str, value: object) -> Check:
    if value != "bisect" and not isinstance(value, bool):
        raise _bad(name, value, 'True or False (1 or 0 in the environment), or "bisect"')
    return cast(Check, value)


def _accept_share(name: str, value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 1:
        raise _bad(name, value, "a share from 0.0 to 1.0, such as 0.5")
    return float(value)


def _accept_architecture(name: str, value: object) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not re.fullmatch(r"sm_\d{2,3}", value) or int(value[3:]) < 70:
        raise _bad(name, value, 'the architecture of a GPU from "sm_70" on, "sm_90" say, or None')
    return value


def _accept_cpu(name: str, value: object) -> CpuLevel | None:
    if value is not None and value not in get_args(CpuLevel):
        raise _bad(name, value, f"a level of x86-64, of {', '.join(get_args(CpuLevel))}, or None for this processor")
    return cast("CpuLevel | None", value)


def _accept_show(name: str, value: object) -> frozenset[str]:
    if isinstance(value, str):
        names = [part.strip() for part in value.split(",")]
        value = [part for part in names if part]
    if not isinstance(value, Collection):
        raise _bad(name, value, f"a collection of stages, of {', '.join(STAGES)}")
    stages = list(cast("Collection[object]", value))
    for stage in stages:
        if stage not in STAGES:
            raise UserError(
                f"The setting {name} ({variable(name)} in the environment) names {stage!r}, which is not a stage."
                f"{did_you_mean(str(stage), STAGES)} The stages are: {', '.join(STAGES)}."
            )
    return frozenset(cast("list[str]", stages))


def _accept_folder(name: str, value: object) -> Path | None:
    if value is None or value == "":
        return None
    if not isinstance(value, (str, Path)):
        raise _bad(name, value, "the path of a directory, or None")
    path = Path(value)
    if path.exists() and not path.is_dir():
        raise _bad(name, str(value), "the path of a directory: this one is a file")
    return path


def _text_to(kind: Callable[[str], object]) -> Callable[[str], object]:
    def convert(text: str) -> object:
        try:
            return kind(text)
        except ValueError:
            return text  # the setting's validator rejects it, and quotes it

    return convert


def _text_to_bool(text: str) -> bool | str:
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    return known.get(text.strip().lower(), text)


_ACCEPT: dict[str, Callable[[str, object], object]] = {
    "segment_limit": _accept_count(1, "a whole number of at least 1, such as 8", may_be_none=False),
    "on_error": _accept_on_error,
    "check": _accept_check,
    "fuel": _accept_count(0, "a number of rewrites, such as 100, or None for no limit"),
    "memory_budget": _accept_share,
    "null_device": _accept_architecture,
    "compile_workers": _accept_count(0, "a whole number, such as 8, or 0 to have none"),
    "cpu": _accept_cpu,
    "show": _accept_show,
}
_ACCEPT_TYPE: dict[str, Callable[[str, object], object]] = {"bool": _accept_bool, "Path | None": _accept_folder}
"""For the settings of these types."""

_TYPE_FROM_TEXT: dict[str, Callable[[str], object]] = {
    "bool": _text_to_bool,
    "Check": _text_to_bool,
    "int": _text_to(int),
    "int | None": _text_to(int),
    "float": _text_to(float),
}
"""Types of settings whose text has to be converted to a value."""
