"""``set_stance``: what compiled functions currently do, for a whole program or a ``with`` block.

    burnish.set_stance("fail_on_recompile")          # from here on

    with burnish.set_stance("force_eager"):          # inside the block
        model(x)

``torch.compiler.set_stance`` is respected as well.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from torch._C import _are_functorch_transforms_active
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from ..errors import UserError, did_you_mean

STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile")
DYNAMO = "torch._dynamo.eval_frame"
_current = "default"
_dynamo: Any = None
"""Dynamo's module that stores its stance, once it has been found."""


def current() -> str:
    """Ours; if that is the default, torch's."""
    return _current if _current != "default" else of_torch()


def of_torch() -> str:
    """The stance of ``torch.compiler.set_stance``. Dynamo stores it; a program that never called that has not imported
    Dynamo, and neither do we. Stances that only say when to compile count as the default here."""
    dynamo = sys.modules.get(DYNAMO)
    if dynamo is None:
        return "default"
    found: str = getattr(getattr(dynamo, "_stance", None), "stance", "default")
    return found if found in STANCES else "default"


def forces_eager() -> bool:
    """Also True while Dynamo traces through a compiled function: it should see the original. And inside of a transform
    of torch.func and in forward mode: kernels cannot read wrapped tensors, and tangents would be lost. Called on every
    call, so the common cases return without another function call of Python."""
    global _dynamo
    if forward_ad._current_level >= 0 or _are_functorch_transforms_active():
        return True
    if _current != "default":
        return _current == "force_eager" or is_dynamo_compiling()
    if _dynamo is None:
        found = sys.modules.get(DYNAMO)
        if not hasattr(found, "_stance"):
            return False  # it is not loaded, or still being imported
        _dynamo = found
    return _dynamo._stance.stance == "force_eager" or is_dynamo_compiling()


def run_plainly(program: Any, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a compiled function does if ``forces_eager``."""
    if not is_dynamo_compiling():
        program.ran_compiled = False
    return original(*args, **kwargs)


class set_stance:  # noqa: N801  # a function to the user that also works with `with`
    """Set the stance now, or for a ``with`` block or a decorated function.

    default            compile what is not compiled yet
    force_eager        run everything as plain Python
    eager_on_recompile use what is compiled; plain Python where a recompile would be needed
    fail_on_recompile  an error where a recompile would be needed
    """

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None):
        if stance not in STANCES:
            raise UserError(
                f"There is no stance {stance!r:.80}.{did_you_mean(str(stance), STANCES)} "
                f"The stances are: {', '.join(STANCES)}."
            )
        if force_backend is not None:
            raise UserError(
                "set_stance(force_backend=...) is not supported. Compile with the backend you want: "
                "burnish.compile(fn, backend=...)."
            )
        if skip_guard_eval_unsafe:
            raise UserError("set_stance(skip_guard_eval_unsafe=True) is not supported: guards are always checked.")
        global _current
        self.stance = stance
        self._outer = [_current]  # the stances to restore, a stack for nested blocks of the same object
        self._is_fresh = True  # the constructor has set the stance; `with` right after it must not record it as outer
        _current = stance

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
            raise UserError(f"set_stance({self.stance!r}) decorates a function, not {fn!r:.80}.")
        if self._is_fresh:
            self._is_fresh = False
            self.__exit__()

        @functools.wraps(fn)
        def under(*args: Any, **kwargs: Any) -> Any:
            with set_stance(self.stance):
                return fn(*args, **kwargs)

        return under
