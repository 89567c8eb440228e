"""``set_stance``: what compiled functions do at the moment, for a whole program or a ``with`` block."""

from __future__ import annotations

from typing import Any

from .errors import UserError, did_you_mean

STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile")
_current = "default"


def current() -> str:
    return _current


class set_stance:  # noqa: N801  # a function to the user that also works with `with`
    """Set the stance now, or for a ``with`` block or a decorated function.

    default            compile what is not compiled yet
    force_eager        run everything as plain Python
    eager_on_recompile use what is compiled; plain Python where a recompile would be needed
    fail_on_recompile  an error where a recompile would be needed
    """

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None):
        if stance not in STANCES:
            raise UserError(f"stance {stance!r} is unknown. {did_you_mean(stance, STANCES)} Stances: {', '.join(STANCES)}.")
        if force_backend is not None or skip_guard_eval_unsafe:
            raise UserError("set_stance: force_backend and skip_guard_eval_unsafe are not supported; "
                            "compile with the backend you want, guards are always checked.")
        global _current
        self.stance, self.before = stance, _current
        _current = stance

    def __enter__(self) -> None:
        global _current
        _current = self.stance

    def __exit__(self, *exc: object) -> None:
        global _current
        _current = self.before

    def __call__(self, fn: Any) -> Any:
        import functools

        self.__exit__()

        @functools.wraps(fn)
        def under(*args: Any, **kwargs: Any) -> Any:
            with set_stance(self.stance):
                return fn(*args, **kwargs)

        return under
