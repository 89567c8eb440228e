"""Where compilers keep their caches, so that none finds what it, or another one, compiled before.

    os.environ.update(variables(folder_of("/tmp/run", "torch.compile:freezing")))

A contestant has one folder for each model. Its first call, timed in a process of its own, finds the folder empty; the
process in which all contestants take turns may use what that call left there.
"""

from __future__ import annotations

from pathlib import Path


def variables(folder: Path) -> dict[str, str]:
    """The environment variables that direct every cache we know of to the folder."""
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "BURNISH_CACHE_DIR": str(folder / "burnish"),
        "XDG_CACHE_HOME": str(folder / "user"),
    }


def folder_of(caches: str | Path, contestant: str) -> Path:
    return Path(caches) / "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in contestant)
