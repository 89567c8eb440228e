"""``set_stance``: what compiled functions currently do, for a whole program or a ``with`` block.

    burnish.set_stance("fail_on_recompile")          # from here on

    with burnish.set_stance("force_eager"):          # inside the block
        model(x)

``torch.compiler.set_stance`` is respected as well. A stance may name another backend for all compiled functions:

    with burnish.set_stance("default", force_backend="eager"):
        model(x)
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from sys import gettrace
from typing import Any, NamedTuple

from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from .. import events
from ..errors import UserError, did_you_mean, warn
from ..foundation.torch_private import are_functorch_transforms_active


class Stance(NamedTuple):
    name: str = "default"
    backend: str | Callable[..., Any] | None = None
    """Compiles in place of the backend of each function."""


LATER = ("eager_then_compile", "aot_eager_then_compile")
"""Under these, the first call runs as plain Python, and the second one compiles: it knows which sizes differ."""

STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile", *LATER)
DYNAMO = "torch._dynamo.eval_frame"
DEFAULT = Stance()
_current = DEFAULT
_dynamo: Any = None
"""Dynamo's module that stores its stance, once it has been found."""


def current() -> str:
    """The name of the stance: ours; if that is the default, torch's."""
    return in_force().name


def in_force() -> Stance:
    return _current if _current is not DEFAULT else of_torch()


def of_torch() -> Stance:
    """The stance of ``torch.compiler.set_stance``. Dynamo stores it; a program that never called that has not imported
    Dynamo, and neither do we."""
    dynamo = sys.modules.get(DYNAMO)
    found: Any = getattr(dynamo, "_stance", None)
    if found is None or found.stance not in STANCES:
        return DEFAULT
    return Stance(found.stance, getattr(found, "backend", None))


def forces_eager() -> bool:
    """Whether a compiled function is not to run as usual: ``run_plainly`` says how.

    Also True while Dynamo traces through a compiled function: it should see the original. And inside of a transform
    of torch.func and in forward mode: kernels cannot read wrapped tensors, and tangents would be lost. And under a
    trace function: debuggers stop at lines of the program. Called on every call, so the common cases return without
    another function call of Python."""
    global _dynamo
    if forward_ad._current_level >= 0 or are_functorch_transforms_active():
        return True
    if _current is not DEFAULT:
        return _current.name == "force_eager" or _current.backend is not None or is_observed()
    if _dynamo is None:
        found = sys.modules.get(DYNAMO)
        if not hasattr(found, "_stance"):
            return gettrace() is not None  # Dynamo is not loaded, or still being imported
        _dynamo = found
    stance = _dynamo._stance
    return stance.stance == "force_eager" or stance.backend is not None or is_observed()


def is_observed() -> bool:
    return is_dynamo_compiling() or gettrace() is not None  # in this order: Dynamo cannot trace `gettrace`


def run_plainly(
    program: Any, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any], entry: list[Any] | None = None
) -> Any:
    """What a compiled function does if ``forces_eager``. ``entry``: the slots of the program, if they are not the
    arguments."""
    if is_dynamo_compiling():
        return original(*args, **kwargs)
    backend = in_force().backend
    if gettrace() is not None:
        events.emit("runtime", text=f"{program.entry.location}: runs eagerly under a trace function (sys.settrace)")
        warn_of_trace_function()
        backend = None
    if backend is None or forward_ad._current_level >= 0 or are_functorch_transforms_active():
        program.ran_compiled = False
        return original(*args, **kwargs)
    other = program.with_backend(backend)
    try:
        return other(*args, **kwargs) if entry is None else other.run(entry)
    finally:
        program.ran_compiled = other.ran_compiled


@functools.cache
def warn_of_trace_function() -> None:
    warn(
        "burnish: compiled functions run eagerly while a trace function is set (sys.settrace), as debuggers and "
        "coverage tools do: it is shown the program's lines. What to do: nothing, or remove it to run compiled code."
    )


class set_stance:  # noqa: N801  # a function to the user that also works with `with`
    """Set the stance now, or for a ``with`` block or a decorated function.

    default                 compile everything that is not compiled yet
    force_eager             run everything as plain Python
    eager_on_recompile      use compiled code, and plain Python for all else
    fail_on_recompile       use compiled code; an error for all else
    eager_then_compile      run the first call as plain Python, and compile in the second one
    aot_eager_then_compile  the same

    skip_guard_eval_unsafe: accepted for torch's sake. Guards are checked all the same: they cost microseconds.
    force_backend: under the default stance, a backend for all compiled functions in place of their own.
    """

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None):
        if stance not in STANCES:
            raise UserError(
                f"There is no stance {stance!r:.80}.{did_you_mean(str(stance), STANCES)} "
                f"The stances are: {', '.join(STANCES)}."
            )
        if force_backend is not None and stance != "default":
            raise UserError(f"set_stance({stance!r}, force_backend=...): only the default stance takes a backend.")
        if skip_guard_eval_unsafe:
            events.emit("runtime", text="skip_guard_eval_unsafe has no effect: all guards are checked on every call.")
        global _current
        self.stance = Stance(stance, force_backend) if (stance, force_backend) != ("default", None) else DEFAULT
        self._outer = [_current]  # the stances to restore, a stack for nested blocks of the same object
        self._is_fresh = True  # the constructor has set the stance; `with` right after it must not record it as outer
        _current = self.stance

    def __enter__(self) -> None:
        global _current
        if not self._is_fresh:
            self._outer.append(_current)
        self._is_fresh = False
        _current = self.stance

    def __exit__(self, *exc: object) -> None:
        global _current
        _current = self._outer.pop()

    def __call__(self, fn: Any) -> Any:
        """As a decorator: the stance holds only while ``fn`` runs."""
        if not callable(fn):
            raise UserError(f"set_stance({self.stance.name!r}) decorates a function, not {fn!r:.80}.")
        if self._is_fresh:
            self._is_fresh = False
            self.__exit__()

        @functools.wraps(fn)
        def under(*args: Any, **kwargs: Any) -> Any:
            with set_stance(self.stance.name, force_backend=self.stance.backend):
                return fn(*args, **kwargs)

        return under
