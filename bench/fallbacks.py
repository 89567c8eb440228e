"""Fallbacks in a benchmark are errors: its figures would describe something else than they claim.

    if __name__ == "__main__":
        fallbacks.exit_with(main)

    with fallbacks.refused():          raises where anything in the block fell back
        ...

The causes are those of `burnish.report.collect_fallbacks`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn


def exit_with(main: Callable[..., int | None], *args: Any, named: Collection[str] = ()) -> NoReturn:
    """Run `main` and exit with its result, or with 1 if something fell back for a cause that is not in `named`."""
    from burnish.report.collect_fallbacks import collect_fallbacks

    with collect_fallbacks() as found:
        status = main(*args) or 0
    unnamed = [fallback for fallback in found if fallback.cause not in named]
    for fallback in unnamed:
        print(f"FALLBACK {str(fallback):.400}", file=sys.stderr)
    print(f"{len(unnamed)} fallbacks that are not expected", file=sys.stderr)
    sys.exit(status or min(len(unnamed), 1))


@contextlib.contextmanager
def refused(named: Collection[str] = ()) -> Iterator[None]:
    from burnish.report.collect_fallbacks import collect_fallbacks

    with collect_fallbacks() as found:
        yield
    unnamed = [str(fallback) for fallback in found if fallback.cause not in named]
    if unnamed:
        raise RuntimeError("it ran with fallbacks: " + "; ".join(unnamed)[:2000])
